"""What Unipile's answers mean: by the type of the error. Pure."""

from __future__ import annotations

from accounts.channels.base import Kind, NotSent, Outcome, Sent, Unknown
from accounts.channels.http import Answer, as_number, as_text

KIND_OF_TYPE = {
    "disconnected_account": Kind.AUTH,
    "expired_credentials": Kind.AUTH,
    "checkpoint_error": Kind.AUTH,
    "account_restricted": Kind.BANNED,
    "invalid_recipient": Kind.RECIPIENT_GONE,
    "user_unreachable": Kind.RECIPIENT_GONE,
    "blocked_recipient": Kind.RECIPIENT_GONE,
    "recipient_rejected": Kind.RECIPIENT_GONE,
    "no_connection_with_recipient": Kind.RECIPIENT_GONE,
    "already_invited_recently": Kind.RECIPIENT_GONE,
    "already_connected": Kind.RECIPIENT_GONE,
    # Often the account is throttled and not the recipient.
    "cannot_resend_yet": Kind.RATE_LIMITED,
    "limit_exceeded": Kind.RATE_LIMITED,
    "too_many_requests": Kind.RATE_LIMITED,
    "too_many_characters": Kind.CONTENT_REJECTED,
    "content_too_large": Kind.CONTENT_REJECTED,
}
KIND_OF_STATUS = {
    400: Kind.CONTENT_REJECTED,
    401: Kind.AUTH,
    403: Kind.AUTH,
    404: Kind.AUTH,  # there is no such account
    413: Kind.CONTENT_REJECTED,
    422: Kind.CONTENT_REJECTED,
    429: Kind.RATE_LIMITED,
    503: Kind.UNAVAILABLE,
}
#: A limit of LinkedIn's lasts for hours; asking every minute makes it last for days.
LIMIT_SECONDS = 3600.0


def outcome_of(answer: Answer, *id_names: str, repeatable: bool = False) -> Outcome:
    """`repeatable`: the provider itself refuses a second one, so an unclear failure may be tried again."""
    if answer.status in (200, 201):
        ids = [as_text(answer.body.get(name)) for name in id_names]
        named = next(filter(None, ids), "")
        return Sent(named) if named or "object" in answer.body else Unknown("accepted without an id")
    if kind_of(answer) is not None:
        return refusal(answer)
    if answer.status == 500 and repeatable:
        # LinkedIn over its limit answers 429 or 500.
        return NotSent(Kind.RATE_LIMITED, words(answer), LIMIT_SECONDS)
    return Unknown(words(answer))


def refusal(answer: Answer) -> NotSent:
    """An answer that certainly means: nothing was sent."""
    kind = kind_of(answer) or Kind.UNAVAILABLE
    wait = as_number(answer.retry_after)
    if kind is Kind.RATE_LIMITED and wait is None:
        wait = LIMIT_SECONDS
    return NotSent(kind, words(answer), wait)


def kind_of(answer: Answer) -> Kind | None:
    name = as_text(answer.body.get("type")).removeprefix("errors/")
    return KIND_OF_TYPE.get(name) or KIND_OF_STATUS.get(answer.status)


def words(answer: Answer) -> str:
    said = [as_text(answer.body.get("title")), as_text(answer.body.get("detail"))]
    return f"HTTP {answer.status} {': '.join(filter(None, said))}".strip()
