"""What Evolution's answers mean. Pure.

It sends and then writes to its database, inside one `try`, and answers 400 with the text of whatever exception came out
("Error: …", "PrismaClientKnownRequestError: …"): the message may have gone out. A 500 comes from what it does before
that: looking the number up, fetching and converting a file.
"""

from __future__ import annotations

import re
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
#: How an exception's text begins. Node puts its code behind the name ("TypeError [ERR_INVALID_ARG_TYPE]: …"), and one
#: without a message is only its name. Evolution's own exceptions become "[object Object]".
EXCEPTION = re.compile(r"\s*(?:[\w.$]*(?:Error|Exception)\b|\[object )")
#: How the look-up of a number fails, which comes before the send.
KIND_OF_LOOKUP = {"Connection Closed": Kind.UNAVAILABLE, "rate-overlimit": Kind.RATE_LIMITED}


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
    """Whether the 400 is an exception, which may have come after the message went out."""
    return answer.status == 400 and any(EXCEPTION.match(text) for text in texts(answer))


def failed_before_sending(answer: Answer, with_file: bool) -> Outcome:
    """What a 500 means. One without Evolution's own words comes from a proxy, and proves nothing."""
    for words_of_lookup, kind in KIND_OF_LOOKUP.items():
        if words_of_lookup in words(answer):
            return NotSent(kind, detail(answer))
    if with_file and entries(answer):
        return NotSent(Kind.CONTENT_REJECTED, detail(answer))
    return Unknown(detail(answer))


def refusal(answer: Answer) -> NotSent:
    """An answer that certainly means: nothing was sent."""
    if any(dig(entry, "exists") is False for entry in entries(answer)):
        return NotSent(Kind.RECIPIENT_GONE, "This number is not on WhatsApp.")
    kind = KIND_OF_STATUS.get(answer.status, Kind.UNAVAILABLE)
    return NotSent(kind, detail(answer), as_number(answer.retry_after))


def detail(answer: Answer) -> str:
    return f"HTTP {answer.status} {words(answer)}".strip()


def words(answer: Answer) -> str:
    return ", ".join(texts(answer))


def texts(answer: Answer) -> list[str]:
    """What the answer says, from the most to the least exact of the places where it may say it."""
    said = [as_text(entry) for entry in flat(entries(answer))]
    return list(filter(None, said)) or [as_text(answer.body.get("message")) or as_text(answer.body.get("error"))]


def flat(entries: list[Any]) -> list[Any]:
    """The entries, with those of lists among them."""
    return [inner for entry in entries for inner in (entry if isinstance(entry, list) else [entry])]


def entries(answer: Answer) -> list[Any]:
    message = dig(answer.body, "response", "message")
    return message if isinstance(message, list) else [message] if message else []
