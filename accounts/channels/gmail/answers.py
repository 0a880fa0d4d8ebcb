"""What Google's answers mean. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any
from zoneinfo import ZoneInfo

from accounts.channels.base import Kind, NotSent, Outcome, Sent, Unknown
from accounts.channels.http import Answer, as_number, as_text

# Google's day, in which "daily" limits count.
GOOGLES_DAY = ZoneInfo("America/Los_Angeles")
RETRY_TIME = re.compile(r"(?i)retry after (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d))")

RATE_REASONS = {"rateLimitExceeded", "userRateLimitExceeded", "quotaExceeded", "concurrentLimitExceeded"}
DAILY_REASONS = {"dailyLimitExceeded", "dailyLimitExceededUnreg"}
RECIPIENT_WORDS = re.compile(r"(?i)recipient address|invalid (?:to|cc|bcc) header|invalid recipient")


def outcome_of(answer: Answer, at: datetime) -> Outcome:
    if answer.status == 200:
        message = answer.body.get("id")
        return Sent(message) if isinstance(message, str) and message else Unknown("accepted without an id")
    if 400 <= answer.status < 500:
        return refusal(answer, at)
    return Unknown(words(answer))


def refusal(answer: Answer, at: datetime) -> NotSent:
    """An answer that certainly means: nothing was sent."""
    if reasons(answer) & DAILY_REASONS:
        return NotSent(Kind.RATE_LIMITED, words(answer), told_wait(answer, at) or until_tomorrow(at))
    if answer.status == 429 or reasons(answer) & RATE_REASONS:
        return NotSent(Kind.RATE_LIMITED, words(answer), told_wait(answer, at))
    if answer.status >= 500:
        return NotSent(Kind.UNAVAILABLE, words(answer), told_wait(answer, at))
    return NotSent(KIND_OF_STATUS.get(answer.status, by_reason)(answer), words(answer))


def by_reason(answer: Answer) -> Kind:
    """400 and its kin: the recipient, the mailbox or the message."""
    if reasons(answer) & {"failedPrecondition"} or error(answer).get("status") == "FAILED_PRECONDITION":
        return Kind.AUTH
    if RECIPIENT_WORDS.search(str(error(answer).get("message", ""))):
        return Kind.HARD_BOUNCE
    return Kind.CONTENT_REJECTED


def the_account(answer: Answer) -> Kind:
    return Kind.AUTH


#: 404 is a mailbox that is not there, or a wrong base_url; 408 a body that did not arrive in time.
KIND_OF_STATUS: dict[int, Callable[[Answer], Kind]] = {
    401: the_account,
    403: the_account,
    404: the_account,
    408: lambda answer: Kind.NETWORK,
}


def told_wait(answer: Answer, at: datetime) -> float | None:
    """Seconds to wait, from the header or from the time in the message."""
    moment = retry_moment(answer)
    if moment is not None:
        return max(0.0, (moment - at).total_seconds())
    return as_number(answer.retry_after)


def retry_moment(answer: Answer) -> datetime | None:
    named = RETRY_TIME.search(str(error(answer).get("message", "")))
    try:
        if named is not None:
            return datetime.fromisoformat(named[1])
        if answer.retry_after and not answer.retry_after.isdigit():
            date = parsedate_to_datetime(answer.retry_after)
            return date if date.tzinfo else date.replace(tzinfo=UTC)
    except ValueError:
        pass
    return None


def until_tomorrow(at: datetime) -> float:
    """Until Google's next day begins, at most 24 hours."""
    local = at.astimezone(GOOGLES_DAY)
    midnight = datetime.combine(local.date() + timedelta(days=1), datetime.min.time(), GOOGLES_DAY)
    return min(86_400.0, (midnight.astimezone(UTC) - at).total_seconds())


# -- where Google says what -------------------------------------------------------------------------------


def error(answer: Answer) -> dict[str, Any]:
    described = answer.body.get("error")
    return described if isinstance(described, dict) else {}


def reasons(answer: Answer) -> set[str]:
    """Google names the reason in one of two places, by the age of the API."""
    listed = [*as_list(error(answer).get("errors")), *as_list(error(answer).get("details"))]
    return {str(entry["reason"]) for entry in listed if isinstance(entry, dict) and entry.get("reason")}


def words(answer: Answer) -> str:
    """Google's own: an API error has a message, the token endpoint a description."""
    message = error(answer).get("message") or answer.body.get("error_description") or as_text(answer.body.get("error"))
    reason = ", ".join(sorted(reasons(answer)))
    return f"HTTP {answer.status} {reason}{': ' if reason and message else ''}{message or ''}".strip()


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
