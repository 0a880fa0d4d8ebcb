"""What Meta's answers mean: by the error's code, because the HTTP status says little. Pure."""

from __future__ import annotations

from typing import Any

from accounts.channels.base import Kind, NotSent, Outcome, Sent, Unknown
from accounts.channels.http import Answer, as_number, as_text, dig

KIND_OF_CODE = {
    # the account
    3: Kind.AUTH,
    10: Kind.AUTH,
    190: Kind.AUTH,  # the token has expired
    131005: Kind.AUTH,
    131042: Kind.AUTH,  # no means of payment
    133010: Kind.AUTH,  # the number is not registered
    368: Kind.BANNED,
    131031: Kind.BANNED,
    131048: Kind.BANNED,  # too many people blocked or reported it
    131064: Kind.BANNED,
    # too fast, or Meta is down
    4: Kind.RATE_LIMITED,
    80007: Kind.RATE_LIMITED,
    130429: Kind.RATE_LIMITED,
    131208: Kind.RATE_LIMITED,
    133016: Kind.RATE_LIMITED,
    131016: Kind.UNAVAILABLE,
    131057: Kind.UNAVAILABLE,
    131056: Kind.SOFT_BOUNCE,  # too many to this one recipient; others go on
    # the recipient
    131026: Kind.RECIPIENT_GONE,
    131021: Kind.RECIPIENT_GONE,  # it is the sender itself
    131050: Kind.RECIPIENT_GONE,  # wants no marketing from us
    130472: Kind.RECIPIENT_GONE,
    131020: Kind.RECIPIENT_GONE,
    131041: Kind.RECIPIENT_GONE,
    131207: Kind.RECIPIENT_GONE,
    131049: Kind.NEW_CHATS_BLOCKED,
    # the content
    100: Kind.CONTENT_REJECTED,
    131008: Kind.CONTENT_REJECTED,
    131009: Kind.CONTENT_REJECTED,
    131047: Kind.CONTENT_REJECTED,  # more than 24 hours since the recipient wrote
    131051: Kind.CONTENT_REJECTED,
    131052: Kind.CONTENT_REJECTED,
    131053: Kind.CONTENT_REJECTED,
    131215: Kind.CONTENT_REJECTED,
}
#: An error on Meta's side of which it does not say whether it came before or after the message.
UNCERTAIN_CODES = (1, 2, 131000)
#: Everything about templates: missing, paused, wrong variables.
TEMPLATE_CODES = range(132000, 133000)
#: Permissions of the app.
PERMISSION_CODES = range(200, 300)
PAIR_SECONDS = 6.0
TEMPLATE_HINT = " Set a template on the account to reach people who have not written within 24 hours."


def outcome_of(answer: Answer) -> Outcome:
    if answer.status == 200:
        messages = answer.body.get("messages")
        message = as_text(dig(messages[0], "id")) if isinstance(messages, list) and messages else ""
        return Sent(message) if message else Unknown("accepted without an id")
    if kind_of(code_of(answer)) or (400 <= answer.status < 500 and not is_uncertain(answer)):
        return refusal(answer)
    return Unknown(words(answer))


def is_uncertain(answer: Answer) -> bool:
    """Whether a 4xx leaves open what became of the message: a time-out, or an error that has no cause."""
    return answer.status == 408 or code_of(answer) in UNCERTAIN_CODES


def refusal(answer: Answer) -> NotSent:
    """An answer that certainly means: nothing was sent."""
    code = code_of(answer)
    kind = kind_of(code) or (Kind.UNAVAILABLE if answer.status >= 500 else Kind.UNKNOWN)
    wait = as_number(answer.retry_after)
    if code == 131056 and wait is None:
        wait = PAIR_SECONDS
    return NotSent(kind, words(answer) + (TEMPLATE_HINT if code == 131047 else ""), wait)


def kind_of(code: Any) -> Kind | None:
    if not isinstance(code, int):
        return None
    if code in TEMPLATE_CODES:
        return Kind.CONTENT_REJECTED
    return Kind.AUTH if code in PERMISSION_CODES else KIND_OF_CODE.get(code)


def code_of(answer: Answer) -> Any:
    return dig(answer.body, "error", "code")


def words(answer: Answer) -> str:
    error = answer.body.get("error")
    return f"HTTP {answer.status} {words_of(error)}".strip()


def words_of(error: Any) -> str:
    """Meta's own: the message, and what it says in detail."""
    message = as_text(dig(error, "message")) or as_text(dig(error, "title"))
    details = as_text(dig(error, "error_data", "details"))
    code = as_text(dig(error, "code"))
    said = ": ".join(filter(None, [message, details if details != message else ""]))
    return f"{said} ({code})" if code and code not in said else said
