"""Access tokens for Gmail: signed for by the service account, fetched once, kept until shortly before they end."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from weakref import WeakKeyDictionary

from google.auth import crypt, jwt

from accounts.channels.base import AccountConfig, Kind, NotSent, Refused
from accounts.channels.fields import BadSetting
from accounts.channels.gmail.answers import told_wait, words
from accounts.channels.gmail.channel import TOKEN_URL as TOKEN_FIELD
from accounts.channels.http import Answer

TOKEN_URL = "https://oauth2.googleapis.com/token"
SCOPE = "https://www.googleapis.com/auth/gmail.send"
GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
ASSERTION_SECONDS = 3600
#: A token is renewed this long before it ends, so that no send ever meets an expired one.
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
            # The error's own words may quote the key.
            reason = NotSent(Kind.AUTH, "The service account's key is missing or not readable.")
            raise Refused(reason) from None
        token_url = _token_url(account.config.get("token_url") or info.get("token_uri"))
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


def _token_url(chosen: Any) -> str:
    """The key file names an address too, and an operator wrote that file."""
    try:
        return str(TOKEN_FIELD.read(chosen) or TOKEN_URL)
    except BadSetting as problem:
        raise Refused(NotSent(Kind.AUTH, f"Account setting {problem}")) from None


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
        wait = told_wait(answer, datetime.fromtimestamp(at, UTC))
        raise Refused(NotSent(Kind.UNAVAILABLE, f"No token: {words(answer)}", wait))
    raise Refused(NotSent(Kind.AUTH, f"No token: {words(answer)}"))


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
