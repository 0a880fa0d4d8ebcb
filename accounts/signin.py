"""Signing in at an account's provider, to see whether it works. Nothing is sent."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from accounts.channels.base import AccountConfig, CheckFailed, Kind
from accounts.channels.config import config_of
from accounts.channels.fields import BadSetting
from accounts.channels.registry import ChannelUnavailable, UnknownChannel, transport_for
from accounts.crypto import CredentialError
from accounts.models import Account

#: Transports end their own calls before this; it is for one that does not.
SIGN_IN_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class SignIn:
    """Did it work, and what to tell the person: who we are, or what is wrong. `kind` is empty where it worked."""

    ok: bool
    text: str
    kind: str = ""


async def sign_in(account: Account) -> SignIn:
    """Never raises: every failure is a sentence."""
    try:
        return SignIn(True, await _introduction(config_of(vars(account))))
    except CheckFailed as failure:
        return SignIn(False, failure.detail, failure.kind.value)
    except (UnknownChannel, ChannelUnavailable, CredentialError, BadSetting) as problem:
        return SignIn(False, str(problem), Kind.AUTH.value)
    except TimeoutError:
        return SignIn(False, f"no answer within {SIGN_IN_SECONDS:g} s", Kind.NETWORK.value)
    except Exception as error:  # a transport's bug; its words may hold what must not be shown
        return SignIn(False, f"the transport failed with {type(error).__name__}", Kind.UNKNOWN.value)


async def _introduction(config: AccountConfig) -> str:
    transport = transport_for(config)
    try:
        async with asyncio.timeout(SIGN_IN_SECONDS):
            return await transport.check()
    finally:
        await transport.close()
