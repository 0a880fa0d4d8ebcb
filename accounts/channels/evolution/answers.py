"""What Evolution's answers mean. Pure.

It answers 400 with "Error: …" for whatever failed in sending, also for its own database work after the message had gone
out: that is unknown. A 500 comes from what it does before it sends.
"""

from __future__ import annotations

from typing import Any

from accounts.channels.base import Kind, NotSent, Outcome, Sent, Unknown
from accounts.channels.http import Answer, as_number, as_text, dig

KIND_OF_STATUS = {
    400: Kind.CONTENT_REJECTED,
    401: Kind.AUTH,
    403: Kind.AUTH,
    404: Kind.AUTH,  # there is no such instance
    413: Kind.CONTENT_REJECTED,
    429: Kind.RATE_LIMITED,
}
CLOSED = "Connection Closed"
#: An exception of its own, turned into text; in a group it most likely means that there is no such group.
OBJECT = "[object Object]"


def outcome_of(answer: Answer, with_file: bool) -> Outcome:
    if answer.status in (200, 201):
        message = as_text(dig(answer.body, "key", "id"))
        return Sent(message) if message else Unknown("accepted without an id")
    if answer.status == 500:
        return failed_before_sending(answer, with_file)
    if answer.status not in KIND_OF_STATUS or in_sending(answer):
        return Unknown(detail(answer))
    return refusal(answer)


def in_sending(answer: Answer) -> bool:
    return answer.status == 400 and words(answer).startswith(("Error:", OBJECT))


def failed_before_sending(answer: Answer, with_file: bool) -> Outcome:
    """A lost connection shows when the number is looked up; a file is fetched and converted before it is sent."""
    if CLOSED in words(answer):
        return NotSent(Kind.UNAVAILABLE, detail(answer))
    return NotSent(Kind.CONTENT_REJECTED, detail(answer)) if with_file else Unknown(detail(answer))


def refusal(answer: Answer) -> NotSent:
    """An answer that certainly means: nothing was sent."""
    if any(dig(entry, "exists") is False for entry in entries(answer)):
        return NotSent(Kind.RECIPIENT_GONE, "This number is not on WhatsApp.")
    kind = KIND_OF_STATUS.get(answer.status, Kind.UNAVAILABLE)
    return NotSent(kind, detail(answer), as_number(answer.retry_after))


def detail(answer: Answer) -> str:
    return f"HTTP {answer.status} {words(answer)}".strip()


def words(answer: Answer) -> str:
    said = ", ".join(as_text(entry) for entry in entries(answer))
    return said or as_text(answer.body.get("message")) or as_text(answer.body.get("error"))


def entries(answer: Answer) -> list[Any]:
    message = dig(answer.body, "response", "message")
    return message if isinstance(message, list) else [message] if message else []
