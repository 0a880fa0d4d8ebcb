"""What neonize's words about a send mean. Pure: every row of the table in docs/whatsapp.md is a test.

neonize raises one type of error for everything that can go wrong with a message, so its words decide. Where they are
not among those that are known to mean that nothing went out, the message may have gone out.
"""

from __future__ import annotations

import re

from accounts.channels.base import Kind, NotSent, Outcome, Unknown

#: The connection comes back by itself, after 0, 2, 4, 6 … seconds.
RETRY_WHEN_OFFLINE = 20.0

#: The server's own code, in an acknowledgement or in an answer to a question before the message.
ACK = re.compile(r"server returned error (\d{3})")
QUESTION = re.compile(r"(?:info query returned status|\b)\s*(429)\b")

KIND_OF_CODE = {
    404: Kind.RECIPIENT_GONE,
    429: Kind.RATE_LIMITED,
    # "Reach-out timelock": no new one-to-one chats; existing chats and groups go on.
    463: Kind.NEW_CHATS_BLOCKED,
    503: Kind.UNAVAILABLE,
}

#: Words that are known to come before anything left, with what they mean.
CERTAIN = (
    # Without the words before it, it comes from the client's own second try, and the first may have arrived.
    ("failed to send message node: websocket not connected", Kind.UNAVAILABLE),
    ("client is nil", Kind.UNAVAILABLE),
    ("the store doesn't contain a device jid", Kind.UNAVAILABLE),
    ("no lid found for", Kind.RECIPIENT_GONE),
    ("you're not participating in that group", Kind.NOT_WRITABLE),
    ("that group does not exist", Kind.RECIPIENT_GONE),
)
#: Questions that are asked before the message is sent: where they fail, it was not.
BEFORE_SENDING = (
    "failed to get device list",
    "failed to get group",
    "failed to get user devices",
    "failed to get user info for",
)


def outcome_of(words: str) -> Outcome:
    """The outcome of a send that raised with these words."""
    if match := ACK.search(words):
        return refused(int(match[1]), words)
    lowered = words.lower()
    for certain, kind in CERTAIN:
        if certain in lowered:
            return not_sent(kind, words)
    if lowered.startswith(BEFORE_SENDING):
        return not_sent(question_kind(words), words)
    return Unknown(words)


def refused(code: int, words: str) -> NotSent:
    """The server acknowledged the message with an error: certain that it went nowhere."""
    return not_sent(KIND_OF_CODE.get(code, Kind.UNKNOWN), words)


def asked(words: str) -> NotSent:
    """A question about a recipient, a group or a file failed: nothing was sent by it."""
    return not_sent(question_kind(words), words)


def question_kind(words: str) -> Kind:
    if QUESTION.search(words):
        return Kind.RATE_LIMITED
    offline = any(sign in words.lower() for sign in ("websocket", "timed out", "not connected"))
    return Kind.UNAVAILABLE if offline else Kind.UNKNOWN


def not_sent(kind: Kind, words: str) -> NotSent:
    return NotSent(kind, words, RETRY_WHEN_OFFLINE if kind is Kind.UNAVAILABLE else None)


def upload_failed(words: str) -> NotSent:
    """WhatsApp's media server said no. Nothing reaches a recipient by an upload."""
    if "status code 429" in words:
        return NotSent(Kind.RATE_LIMITED, words)
    rejected = any(f"status code {code}" in words for code in (400, 413, 415))
    return not_sent(Kind.CONTENT_REJECTED if rejected else Kind.UNAVAILABLE, words)
