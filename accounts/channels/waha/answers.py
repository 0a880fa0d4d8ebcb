"""What WAHA's answers mean. Pure.

WAHA answers 201, or 500 for nearly everything else: what happened stands in `exception.message`, in the words of the
WhatsApp library behind it. The body of a 500 repeats our request, so only that message is ever shown.
"""

from __future__ import annotations

import re
from typing import Any

from accounts.channels.base import Kind, NotSent, Outcome, Sent, Unknown
from accounts.channels.http import Answer, as_number, as_text, dig

#: Where an answer may have the message's id, by engine and version.
ID_PLACES = (("id",), ("key", "id"), ("_data", "id", "_serialized"), ("_data", "Info", "ID"), ("id", "_serialized"))

KIND_OF_STATUS = {
    400: Kind.CONTENT_REJECTED,
    401: Kind.AUTH,
    403: Kind.AUTH,
    404: Kind.AUTH,  # there is no such session
    413: Kind.CONTENT_REJECTED,
    422: Kind.CONTENT_REJECTED,
    429: Kind.RATE_LIMITED,
}
#: WhatsApp's own refusals: an acknowledgement with an error, so nothing went out.
KIND_OF_ERROR = {
    "401": Kind.AUTH,
    "403": Kind.AUTH,
    "429": Kind.RATE_LIMITED,
    "463": Kind.NEW_CHATS_BLOCKED,
    "500": Kind.UNAVAILABLE,
    "503": Kind.UNAVAILABLE,
}
SERVER_ERROR = re.compile(r"server returned error (\d+)")
CERTAIN = (
    (re.compile(r"rate-overlimit"), Kind.RATE_LIMITED),
    (re.compile(r"no LID found"), Kind.RECIPIENT_GONE),
    (re.compile(r"PayloadTooLargeError"), Kind.CONTENT_REJECTED),
    # Without "failed to …" GOWS lost the connection again in its own second try, and the first may have arrived.
    (re.compile(r"failed to .*: websocket not connected|doesn't contain a device JID"), Kind.UNAVAILABLE),
)


def outcome_of(answer: Answer) -> Outcome:
    if answer.status in (200, 201):
        message = message_id(answer.body)
        # WEBJS has answered 201 with an empty body and sent the message.
        return Sent(message) if message else Unknown("accepted without an id")
    if answer.status in KIND_OF_STATUS:
        return refusal(answer)
    kind = certain_kind(words(answer)) if answer.status == 500 else None
    return NotSent(kind, words(answer)) if kind else Unknown(f"HTTP {answer.status} {words(answer)}".strip())


def refusal(answer: Answer) -> NotSent:
    """An answer that certainly means: nothing was sent."""
    wait = as_number(answer.retry_after)
    if answer.status == 422 and "expected" in answer.body:
        return NotSent(Kind.UNAVAILABLE, f"The session is {answer.body.get('status')}, not WORKING.", wait)
    kind = KIND_OF_STATUS.get(answer.status) or certain_kind(words(answer)) or Kind.UNAVAILABLE
    return NotSent(kind, f"HTTP {answer.status} {words(answer)}".strip(), wait)


def certain_kind(message: str) -> Kind | None:
    """None where the message may have gone out, as after a time-out of the library."""
    if number := SERVER_ERROR.search(message):
        return KIND_OF_ERROR.get(number[1], Kind.UNKNOWN)
    return next((kind for pattern, kind in CERTAIN if pattern.search(message)), None)


def words(answer: Answer) -> str:
    message = dig(answer.body, "exception", "message") or answer.body.get("message") or answer.body.get("error")
    return ", ".join(map(str, message)) if isinstance(message, list) else as_text(message)


def message_id(body: Any) -> str:
    """WhatsApp's own id of a message, whichever way the engine wraps it."""
    return next((short_id(value) for place in ID_PLACES if (value := as_text(dig(body, *place)))), "")


def short_id(serialised: str) -> str:
    """The third part of true_<chat>_<id>_<participant>: receipts name it, with chats spelled in two ways."""
    parts = serialised.split("_")
    return parts[2] if len(parts) >= 3 and parts[0] in ("true", "false") else serialised
