"""Questions to an account's provider while a person waits: does it work, and which groups are there? Nothing is
sent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from accounts.channels.base import AccountConfig, CheckFailed, Contact, Group, Kind, Transport
from accounts.channels.registry import ChannelUnavailable, UnknownChannel, config_of, transport_for
from accounts.channels.settings import BadSetting
from accounts.channels.templates import Template
from accounts.crypto import CredentialError
from accounts.models import Account

#: Transports end their own calls earlier; this stops one that does not.
SIGN_IN_SECONDS = 15.0
#: The inbound worker waits for the answer, and every event with it.
WORKER_SECONDS = 2.0
#: Some gateways look every group up.
LIST_SECONDS = 60.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SignIn:
    """The result of a sign-in.

    `text` is for the person: the account's identity, or the problem. `kind` is empty on success. `learned` has settings
    that the account lacked and the provider knew.
    """

    ok: bool
    text: str
    kind: str = ""
    learned: Mapping[str, str] = field(default_factory=dict)


class NoAnswer(Exception):
    """Raised where the provider could not be asked, or refused. The text is for the person who asked."""

    def __init__(self, text: str, kind: Kind) -> None:
        super().__init__(text)
        self.kind = kind


async def sign_in(account: Account) -> SignIn:
    """Sign in at the provider. Never raises: every failure is a sentence."""
    try:
        text = await _ask(account, lambda transport: transport.check(), SIGN_IN_SECONDS)
    except NoAnswer as problem:
        return SignIn(False, str(problem), problem.kind.value)
    return SignIn(True, text, learned=await learned_settings(account))


async def learned_settings(account: Account) -> dict[str, str]:
    """Return settings that the account lacks and its provider knows; none where it does not say."""
    try:
        return await _ask(account, lambda transport: transport.learn(), SIGN_IN_SECONDS)
    except NoAnswer:
        return {}


async def listed_groups(account: Account) -> list[Group]:
    """Return the groups that the provider lists for the account; raises NoAnswer."""
    return await _ask(account, lambda transport: transport.groups(), LIST_SECONDS)


async def listed_contacts(account: Account) -> list[Contact]:
    """Return the address book that the provider lists for the account; raises NoAnswer."""
    return await _ask(account, lambda transport: transport.contacts(), LIST_SECONDS)


async def listed_templates(account: Account) -> list[Template]:
    """Return the message templates that the provider lists for the account; raises NoAnswer."""
    return await _ask(account, lambda transport: transport.templates(), LIST_SECONDS)


async def number_behind(account: Account, hidden: str) -> str:
    """Return the number behind a hidden WhatsApp id, or "" where the provider does not know it; raises NoAnswer."""
    return await _ask(account, lambda transport: transport.number_behind(hidden), WORKER_SECONDS)


async def _ask(account: Account, question: Callable[[Transport], Awaitable[T]], seconds: float) -> T:
    try:
        return await _answer(config_of(vars(account)), question, seconds)
    except CheckFailed as failure:
        raise NoAnswer(failure.detail, failure.kind) from failure
    except (UnknownChannel, ChannelUnavailable, CredentialError, BadSetting) as problem:
        raise NoAnswer(str(problem), Kind.AUTH) from problem
    except TimeoutError as error:
        raise NoAnswer(f"no answer within {seconds:g} s", Kind.NETWORK) from error
    except Exception as error:  # a transport's bug; its text may contain secrets
        raise NoAnswer(f"the transport failed with {type(error).__name__}", Kind.UNKNOWN) from error


async def _answer(config: AccountConfig, question: Callable[[Transport], Awaitable[T]], seconds: float) -> T:
    transport = transport_for(config)
    try:
        async with asyncio.timeout(seconds):
            return await question(transport)
    finally:
        await transport.close()
