"""What Wassenger's answers mean. Pure.

Its reference says little about errors: what is not clearly a refusal is unknown.
"""

from __future__ import annotations

from accounts.channels.base import Kind, NotSent, Outcome, Sent, Unknown
from accounts.channels.http import Answer, as_number, as_text, dig

KIND_OF_STATUS = {
    400: Kind.CONTENT_REJECTED,
    401: Kind.AUTH,
    402: Kind.AUTH,  # the subscription has ended
    403: Kind.AUTH,
    404: Kind.RECIPIENT_GONE,
    413: Kind.CONTENT_REJECTED,
    415: Kind.CONTENT_REJECTED,
    422: Kind.CONTENT_REJECTED,
    429: Kind.RATE_LIMITED,
    503: Kind.UNAVAILABLE,  # the device is not connected
}
#: Seconds, where the answer does not say how long.
WAITS = {429: 60.0, 503: 20.0}
#: A time-out, and a message that is already there.
UNCERTAIN = {408, 409}
RECIPIENT_FIELDS = {"phone", "group", "channel", "user"}


def outcome_of(answer: Answer) -> Outcome:
    if answer.status in (200, 201):
        # Receipts name WhatsApp's id; theirs is in the answer from the beginning.
        message = as_text(answer.body.get("waId")) or as_text(answer.body.get("id"))
        return Sent(message) if message else Unknown("accepted without an id")
    if answer.status == 503 or (400 <= answer.status < 500 and answer.status not in UNCERTAIN):
        return refusal(answer)
    return Unknown(words(answer))


def refusal(answer: Answer) -> NotSent:
    """An answer that certainly means: nothing was sent."""
    wait = as_number(answer.retry_after)
    kind = KIND_OF_STATUS.get(answer.status, Kind.UNKNOWN if answer.status < 500 else Kind.UNAVAILABLE)
    if answer.status in (400, 422) and wrong_fields(answer) & RECIPIENT_FIELDS:
        kind = Kind.RECIPIENT_GONE
    if answer.status == 404 and "device" in words(answer).lower():
        kind = Kind.AUTH
    return NotSent(kind, words(answer), WAITS.get(answer.status) if wait is None else wait)


def wrong_fields(answer: Answer) -> set[str]:
    errors = answer.body.get("errors")
    return {as_text(dig(error, "path")) for error in errors} if isinstance(errors, list) else set()


def words(answer: Answer) -> str:
    errors = answer.body.get("errors")
    details = [as_text(dig(error, "message")) for error in errors] if isinstance(errors, list) else []
    said = ": ".join(filter(None, [as_text(answer.body.get("message")), *details]))
    return f"HTTP {answer.status} {said}".strip()
