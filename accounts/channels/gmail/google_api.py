"""Google's side of the Gmail API: access tokens, and the meaning of its answers."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any
from weakref import WeakKeyDictionary
from zoneinfo import ZoneInfo

from google.auth import crypt, jwt

from accounts.channels.base import AccountConfig, Kind, NotSent, Outcome, Refused, Sent, Unknown
from accounts.channels.gmail.channel import TOKEN_URL as TOKEN_FIELD
from accounts.channels.http import Answer, as_number, as_text
from accounts.channels.settings import BadSetting

TOKEN_URL = "https://oauth2.googleapis.com/token"
SCOPE = "https://www.googleapis.com/auth/gmail.send"
GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
ASSERTION_SECONDS = 3600
#: A token is renewed this long before it expires, so that no send uses an expired one.
EARLY = 300.0

TokenKey = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class Token:
    value: str
    expires_at: float

    def __repr__(self) -> str:
        return f"<Token until {self.expires_at:.0f}>"


@dataclass(frozen=True, slots=True, repr=False)
class ServiceAccount:
    email: str
    key_id: str
    token_url: str
    signer: Any

    @classmethod
    def of(cls, account: AccountConfig) -> ServiceAccount:
        key = account.credentials.get("service_account")
        try:
            info: dict[str, Any] = json.loads(key) if isinstance(key, str) else key or {}
            signer = signer_of(json.dumps(info, sort_keys=True))
            email = str(info["client_email"])
        except (KeyError, TypeError, ValueError):
            # The error's own text may quote the key.
            reason = NotSent(Kind.AUTH, "The service account's key is missing or not readable.")
            raise Refused(reason) from None
        token_url = _token_url(account.config.get("token_url") or info.get("token_uri"))
        return cls(email, str(info.get("private_key_id", "")), token_url, signer)

    def key(self, subject: str) -> TokenKey:
        return (self.email, self.key_id, subject, self.token_url)

    def assertion(self, subject: str, at: float) -> str:
        """Return a signed request of this service account to act for that mailbox."""
        claims = {
            "iss": self.email,
            "sub": subject,
            "scope": SCOPE,
            "aud": self.token_url,
            "iat": int(at),
            "exp": int(at) + ASSERTION_SECONDS,
        }
        encoded: bytes = jwt.encode(self.signer, claims)
        return encoded.decode("ascii")


def _token_url(chosen: Any) -> str:
    """Return the address for tokens, checked: the key file names one too, and an operator wrote that file."""
    try:
        return str(TOKEN_FIELD.read(chosen) or TOKEN_URL)
    except BadSetting as problem:
        raise Refused(NotSent(Kind.AUTH, f"Account setting {problem}")) from None


_signers: dict[str, Any] = {}


def signer_of(info: str) -> Any:
    """Return the signer of a key, read once per process: reading a key takes longer than signing with it."""
    if info not in _signers:
        _signers[info] = crypt.RSASigner.from_service_account_info(json.loads(info))
    return _signers[info]


def token_of(answer: Answer, at: float) -> Token:
    value, seconds = answer.body.get("access_token"), answer.body.get("expires_in", ASSERTION_SECONDS)
    if answer.status == 200 and isinstance(value, str) and isinstance(seconds, (int, float)):
        return Token(value, at + seconds)
    if answer.status == 429 or answer.status >= 500:
        wait = requested_wait(answer, datetime.fromtimestamp(at, UTC))
        raise Refused(NotSent(Kind.UNAVAILABLE, f"No token: {words(answer)}", wait))
    raise Refused(NotSent(Kind.AUTH, f"No token: {words(answer)}"))


# Tokens outlive a driver's slice, and with it the event loop; the locks cannot.
_tokens: dict[TokenKey, Token] = {}
_locks: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[TokenKey, asyncio.Lock]] = WeakKeyDictionary()


async def token_for(key: TokenKey, fetch: Callable[[], Any]) -> str:
    """Return a token that is good for a while. It is fetched once, however many sends need a new one."""
    held = _tokens.get(key)
    if held is not None and held.expires_at - time.time() > EARLY:
        return held.value
    locks = _locks.setdefault(asyncio.get_running_loop(), {})
    async with locks.setdefault(key, asyncio.Lock()):
        held = _tokens.get(key)
        if held is None or held.expires_at - time.time() <= EARLY:
            held = _tokens[key] = await renewed(held, fetch)
        return held.value


async def renewed(held: Token | None, fetch: Callable[[], Any]) -> Token:
    """Return a new token; while none can be had, the old one for as long as it lasts."""
    try:
        fresh: Token = await fetch()
    except Refused as error:
        passing = error.reason.kind in (Kind.NETWORK, Kind.UNAVAILABLE)
        if held is not None and passing and held.expires_at > time.time():
            return held
        raise
    return fresh


def forget(key: TokenKey, value: str) -> None:
    """Drop a token that Google no longer takes. One that another send has renewed meanwhile stays."""
    held = _tokens.get(key)
    if held is not None and held.value == value:
        del _tokens[key]


# -- meaning of the answers -------------------------------------------------------------------------------


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
    """Return the meaning of an answer which certainly says that nothing was sent."""
    if reasons(answer) & DAILY_REASONS:
        return NotSent(Kind.RATE_LIMITED, words(answer), requested_wait(answer, at) or until_tomorrow(at))
    if answer.status == 429 or reasons(answer) & RATE_REASONS:
        return NotSent(Kind.RATE_LIMITED, words(answer), requested_wait(answer, at))
    if answer.status >= 500:
        return NotSent(Kind.UNAVAILABLE, words(answer), requested_wait(answer, at))
    return NotSent(KIND_OF_STATUS.get(answer.status, by_reason)(answer), words(answer))


def by_reason(answer: Answer) -> Kind:
    """Return the kind of 400 and similar: the recipient, the mailbox or the message."""
    if reasons(answer) & {"failedPrecondition"} or error(answer).get("status") == "FAILED_PRECONDITION":
        return Kind.AUTH
    if RECIPIENT_WORDS.search(str(error(answer).get("message", ""))):
        return Kind.HARD_BOUNCE
    return Kind.CONTENT_REJECTED


def account_trouble(answer: Answer) -> Kind:
    return Kind.AUTH


#: 404 is a mailbox that is not there, or a wrong base_url; 408 a body that did not arrive in time.
KIND_OF_STATUS: dict[int, Callable[[Answer], Kind]] = {
    401: account_trouble,
    403: account_trouble,
    404: account_trouble,
    408: lambda answer: Kind.NETWORK,
}


def requested_wait(answer: Answer, at: datetime) -> float | None:
    """Return the seconds to wait, from the header or from the time in the message."""
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
    """Return the seconds until Google's next day begins, at most 24 hours."""
    local = at.astimezone(GOOGLES_DAY)
    midnight = datetime.combine(local.date() + timedelta(days=1), datetime.min.time(), GOOGLES_DAY)
    return min(86_400.0, (midnight.astimezone(UTC) - at).total_seconds())


# -- fields of Google's answers ------------------------------------------------------------------------------


def error(answer: Answer) -> dict[str, Any]:
    described = answer.body.get("error")
    return described if isinstance(described, dict) else {}


def reasons(answer: Answer) -> set[str]:
    """Return the reasons. Google names them in one of two places, by the age of the API."""
    listed = [*as_list(error(answer).get("errors")), *as_list(error(answer).get("details"))]
    return {str(entry["reason"]) for entry in listed if isinstance(entry, dict) and entry.get("reason")}


def words(answer: Answer) -> str:
    """Return Google's own words: an API error has a message, the token endpoint a description."""
    message = error(answer).get("message") or answer.body.get("error_description") or as_text(answer.body.get("error"))
    reason = ", ".join(sorted(reasons(answer)))
    return f"HTTP {answer.status} {reason}{': ' if reason and message else ''}{message or ''}".strip()


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
