"""Gmail's API, by a service account that acts for one mailbox (domain-wide delegation).

`messages.send` has no idempotency key: a repeat is a second mail. So the rule is strict. A 4xx is a refusal,
because Gmail rejects before it accepts. A 5xx, a redirect or no answer at all, once the body has left, is
`Unknown`, the documented "backendError, try again" included: Gmail may have sent it, and with the scope
`gmail.send` nobody can look.
"""

from __future__ import annotations

import asyncio
import base64
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

import aiohttp
from google.auth import crypt, jwt

from accounts.channels.base import AccountConfig, CheckFailed, Kind, NotSent, Outcome, Part, Sent, Transport, Unknown
from accounts.channels.mime import BadContent, BadHeader, Envelope, not_writable
from accounts.channels.sandbox.transport import FAILURES, Body, StaleConnection, as_number, as_object, words_of

BASE_URL = "https://gmail.googleapis.com"
TOKEN_URL = "https://oauth2.googleapis.com/token"
SCOPE = "https://www.googleapis.com/auth/gmail.send"
GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
ASSERTION_SECONDS = 3600
#: A token is renewed this long before it ends, so that no send ever meets an expired one.
EARLY = 300.0
#: Below the lane's own limit for a call (12 s), so that it is we who say whether the body had left. A setting above
#: it counts as this.
LONGEST_TIMEOUT = 11.0

# Google's day, in which "daily" limits count.
GOOGLES_DAY = ZoneInfo("America/Los_Angeles")
RETRY_TIME = re.compile(r"(?i)retry after (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d))")

RATE_REASONS = {"rateLimitExceeded", "userRateLimitExceeded", "quotaExceeded", "concurrentLimitExceeded"}
DAILY_REASONS = {"dailyLimitExceeded", "dailyLimitExceededUnreg"}
RECIPIENT_WORDS = re.compile(r"(?i)recipient address|invalid (?:to|cc|bcc) header|invalid recipient")


class Refused(Exception):
    """Google, or a setting, said no; `reason` says what that means."""

    def __init__(self, reason: NotSent) -> None:
        super().__init__(reason.detail)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer that came back whole."""

    status: int
    body: dict[str, Any]
    retry_after: str = ""

    @property
    def error(self) -> dict[str, Any]:
        error = self.body.get("error")
        return error if isinstance(error, dict) else {}

    @property
    def reasons(self) -> set[str]:
        """Google names the reason in one of two places, by the age of the API."""
        listed = [*as_list(self.error.get("errors")), *as_list(self.error.get("details"))]
        return {str(entry["reason"]) for entry in listed if isinstance(entry, dict) and entry.get("reason")}

    @property
    def words(self) -> str:
        """Google's own: an API error has a message, the token endpoint a description."""
        told = self.error.get("message") or self.body.get("error_description") or self.body.get("error")
        reason = ", ".join(sorted(self.reasons))
        return f"HTTP {self.status} {reason}{': ' if reason and told else ''}{told or ''}".strip()


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


class GmailTransport(Transport):
    channel = "gmail"

    def __init__(self, account: AccountConfig) -> None:
        super().__init__(account)
        config = account.config
        self.base = str(config.get("base_url") or BASE_URL).rstrip("/")
        self.timeout = min(as_number(config.get("timeout")) or LONGEST_TIMEOUT, LONGEST_TIMEOUT)
        self.subject = str(config.get("subject") or account.address)
        self.envelope = Envelope(account)
        self._session: aiohttp.ClientSession | None = None

    async def check(self) -> str:
        """A token proves the delegation; the mailbox's profile proves that the API is switched on."""
        try:
            self.envelope.full_id("check")
            token = await self._token()
            answer = await self._get("/gmail/v1/users/me/profile", token)
        except Refused as error:
            raise CheckFailed(error.reason.kind, error.reason.detail) from None
        except BadHeader as error:
            raise CheckFailed(Kind.AUTH, str(error)) from None
        except FAILURES as error:
            raise CheckFailed(Kind.NETWORK, words_of(error)) from None
        return self._introduction(answer)

    def _introduction(self, answer: Answer) -> str:
        # The scope for sending does not open the profile: being told so is as good as seeing it.
        may_only_send = answer.status == 403 and answer.reasons & {
            "insufficientPermissions",
            "ACCESS_TOKEN_SCOPE_INSUFFICIENT",
        }
        if answer.status != 200 and not may_only_send:
            reason = refusal(answer, now())
            raise CheckFailed(reason.kind, reason.detail)
        return f"Gmail as {answer.body.get('emailAddress') or self.subject}"

    async def send(self, address: str, part: Part, message_id: str) -> Outcome:
        sending = Sending()
        try:
            # Over writing, token and send together: the lane's own limit would not know whether the body had left.
            async with asyncio.timeout(self.timeout):
                sending.content = await self._content(address, part, message_id)
                return outcome_of(await self._post_signed_in(sending), now())
        except Refused as error:
            return error.reason
        except FAILURES as error:
            return sending.lost(words_of(error))

    async def _content(self, address: str, part: Part, message_id: str) -> bytes:
        try:
            headers = self.envelope.headers(address, message_id)
            encoded = await self.envelope.encode(part)
        except (BadHeader, BadContent, OSError) as error:
            raise Refused(not_writable(error)) from error
        raw = encoded.fixed + headers + b"\r\n" + encoded.body
        return b'{"raw":"%b"}' % base64.urlsafe_b64encode(raw)

    async def _post_signed_in(self, sending: Sending) -> Answer:
        token = await self._token()
        answer = await self._post(sending, token)
        if answer.status != 401:
            return answer
        # A token that Google no longer takes: nothing was sent, so a new one is not a second try.
        forget(self._key(), token)
        token = await self._token()
        return await self._post(sending, token)

    async def _post(self, sending: Sending, token: str) -> Answer:
        try:
            return await self._post_once(sending.fresh(), token)
        except StaleConnection:
            # The kept connection was dead before anything was written to it.
            return await self._post_once(sending.fresh(), token)

    async def _post_once(self, body: Body, token: str) -> Answer:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        url = f"{self.base}/gmail/v1/users/me/messages/send"
        # A redirect could make the body leave twice: never followed.
        async with self._open().post(url, data=body, headers=headers, allow_redirects=False) as response:
            return await read(response)

    async def _get(self, path: str, token: str) -> Answer:
        headers = {"Authorization": f"Bearer {token}"}
        async with self._open().get(f"{self.base}{path}", headers=headers, allow_redirects=False) as response:
            return await read(response)

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=self.timeout),
                cookie_jar=aiohttp.DummyCookieJar(),
                connector=aiohttp.TCPConnector(limit=max(1, self.account.concurrency)),
            )
        return self._session

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    # -- the token ----------------------------------------------------------------------------------------

    def _key(self) -> TokenKey:
        return ServiceAccount.of(self.account).key(self.subject)

    async def _token(self) -> str:
        service = ServiceAccount.of(self.account)
        return await token_for(service.key(self.subject), lambda: self._fetch_token(service))

    async def _fetch_token(self, service: ServiceAccount) -> Token:
        form = {"grant_type": GRANT, "assertion": service.assertion(self.subject, time.time())}
        try:
            async with self._open().post(service.token_url, data=form, allow_redirects=False) as response:
                answer = await read(response)
        except FAILURES as error:
            raise Refused(NotSent(Kind.NETWORK, f"No token: {words_of(error)}")) from error
        return token_of(answer, time.time())


class Sending:
    """One mail on its way, and whether the body of its last request left."""

    def __init__(self) -> None:
        self.content = b""
        self.body: Body | None = None

    def fresh(self) -> Body:
        self.body = Body(self.content)
        return self.body

    def lost(self, words: str) -> Outcome:
        left = self.body is not None and self.body.left
        return Unknown(words) if left else NotSent(Kind.NETWORK, words)


async def read(response: aiohttp.ClientResponse) -> Answer:
    body = as_object(await response.read())
    return Answer(response.status, body, response.headers.get("Retry-After", ""))


def now() -> datetime:
    return datetime.now(UTC)


# -- what Google's answers mean ---------------------------------------------------------------------------


def outcome_of(answer: Answer, at: datetime) -> Outcome:
    if answer.status == 200:
        found = answer.body.get("id")
        return Sent(found) if isinstance(found, str) and found else Unknown("accepted without an id")
    if 400 <= answer.status < 500:
        return refusal(answer, at)
    return Unknown(answer.words)


def refusal(answer: Answer, at: datetime) -> NotSent:
    """An answer that certainly means: nothing was sent."""
    if answer.reasons & DAILY_REASONS:
        return NotSent(Kind.RATE_LIMITED, answer.words, told_wait(answer, at) or until_tomorrow(at))
    if answer.status == 429 or answer.reasons & RATE_REASONS:
        return NotSent(Kind.RATE_LIMITED, answer.words, told_wait(answer, at))
    if answer.status >= 500:
        return NotSent(Kind.UNAVAILABLE, answer.words, told_wait(answer, at))
    return NotSent(KIND_OF_STATUS.get(answer.status, by_reason)(answer), answer.words)


def by_reason(answer: Answer) -> Kind:
    """400 and its kin: the recipient, the mailbox or the message."""
    if answer.reasons & {"failedPrecondition"} or answer.error.get("status") == "FAILED_PRECONDITION":
        return Kind.AUTH
    if RECIPIENT_WORDS.search(str(answer.error.get("message", ""))):
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
    try:
        return max(0.0, float(answer.retry_after))
    except ValueError:
        return None


def retry_moment(answer: Answer) -> datetime | None:
    found = RETRY_TIME.search(str(answer.error.get("message", "")))
    try:
        if found is not None:
            return datetime.fromisoformat(found[1])
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


# -- tokens -----------------------------------------------------------------------------------------------

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
        given = account.credentials.get("service_account")
        try:
            info: dict[str, Any] = json.loads(given) if isinstance(given, str) else given or {}
            signer = signer_of(json.dumps(info, sort_keys=True))
            email = str(info["client_email"])
        except (KeyError, TypeError, ValueError):
            # The error's own words may quote the key.
            words = "The service account's key is missing or not readable."
            raise Refused(NotSent(Kind.AUTH, words)) from None
        token_url = str(account.config.get("token_url") or info.get("token_uri") or TOKEN_URL)
        return cls(email, str(info.get("private_key_id", "")), token_url, signer)

    def key(self, subject: str) -> TokenKey:
        return (self.email, self.key_id, subject, self.token_url)

    def assertion(self, subject: str, at: float) -> str:
        """Signed by the key: this service account asks to act for that mailbox."""
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


_signers: dict[str, Any] = {}


def signer_of(info: str) -> Any:
    """Reading a key takes longer than signing with it: once per process."""
    if info not in _signers:
        _signers[info] = crypt.RSASigner.from_service_account_info(json.loads(info))
    return _signers[info]


def token_of(answer: Answer, at: float) -> Token:
    value, seconds = answer.body.get("access_token"), answer.body.get("expires_in", ASSERTION_SECONDS)
    if answer.status == 200 and isinstance(value, str) and isinstance(seconds, (int, float)):
        return Token(value, at + seconds)
    if answer.status == 429 or answer.status >= 500:
        words = f"No token: {answer.words}"
        raise Refused(NotSent(Kind.UNAVAILABLE, words, told_wait(answer, datetime.fromtimestamp(at, UTC))))
    raise Refused(NotSent(Kind.AUTH, f"No token: {answer.words}"))


# Tokens outlive a driver's slice, and with it the event loop; the locks cannot.
_tokens: dict[TokenKey, Token] = {}
_locks: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[TokenKey, asyncio.Lock]] = WeakKeyDictionary()


async def token_for(key: TokenKey, fetch: Callable[[], Any]) -> str:
    """A token that is good for a while. However many sends need a new one, it is fetched once."""
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
    """A new token; while there is none to be had, the old one for as long as it lasts."""
    try:
        fresh: Token = await fetch()
    except Refused as error:
        passing = error.reason.kind in (Kind.NETWORK, Kind.UNAVAILABLE)
        if held is not None and passing and held.expires_at > time.time():
            return held
        raise
    return fresh


def forget(key: TokenKey, value: str) -> None:
    """Google no longer takes this token. One that somebody else has renewed meanwhile stays."""
    held = _tokens.get(key)
    if held is not None and held.value == value:
        del _tokens[key]
