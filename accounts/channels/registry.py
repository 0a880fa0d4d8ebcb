"""The channels that exist: every folder here that has a `channel.py` with a `CHANNEL`.

Descriptions are read at once, because they cost nothing. A transport is imported when an account first needs it, so a
channel whose packages are not installed reports that only then.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Callable, Coroutine, Mapping
from functools import cache
from typing import Any

from django.conf import settings

from accounts import channels as folder
from accounts import crypto
from accounts.channels.base import AccountConfig, Channel, Media, Transport
from accounts.channels.provider_events import Webhook

#: takes account id, method, action and body; returns an Answer (accounts.channels.http)
PairingCall = Callable[..., Coroutine[Any, Any, Any]]


class UnknownChannel(LookupError):
    """Raised for a channel that has no folder."""

    def __init__(self, key: str) -> None:
        super().__init__(f"No transport for channel “{key}”. Known: {', '.join(channels())}.")


class ChannelUnavailable(RuntimeError):
    """Raised where a channel is known, but a package that it needs is not installed."""

    def __init__(self, key: str, missing: str) -> None:
        super().__init__(
            f"Channel “{key}” needs the Python package “{missing}”, which is not installed: "
            f"`pip install {missing}` where Crier runs."
        )


@cache
def channels() -> dict[str, Channel]:
    """Return every channel by its key."""
    names = sorted(module.name for module in pkgutil.iter_modules(folder.__path__) if module.ispkg)
    paths = [f"{folder.__name__}.{name}.channel" for name in names]
    described = [importlib.import_module(path).CHANNEL for path in paths if importlib.util.find_spec(path)]
    return {channel.key: channel for channel in described}


def offered() -> dict[str, Channel]:
    """Return the channels for a new account."""
    return {key: channel for key, channel in channels().items() if settings.SANDBOX or not channel.demo}


def channel(key: str) -> Channel:
    """Return the channel's description. An account whose channel is gone gets a plain one: its page must still open."""
    return channels().get(key) or Channel(key=key, label=key)


def transport_class(key: str) -> type[Transport]:
    if key not in channels():
        raise UnknownChannel(key)
    transport: type[Transport] = _imported(key, channel(key).transport)
    return transport


def webhook(key: str) -> Webhook | None:
    """Return the reader of the channel's webhook; None where its provider does not call us."""
    path = channel(key).webhook
    return _imported(key, path)() if path else None


def pairing(key: str) -> PairingCall:
    """Return the function that asks the bridge about an account whose number is paired."""
    ask: PairingCall = _imported(key, channel(key).pairing)
    return ask


def _imported(key: str, path: str) -> Any:
    module, _, name = path.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        raise ChannelUnavailable(key, error.name or module) from error


def transport_for(account: AccountConfig) -> Transport:
    return transport_class(account.channel)(account)


# -- an account as its transport sees it ------------------------------------------------------------------


def config_of(
    row: Mapping[str, Any],
    concurrency: int = 1,
    unsubscribe_url: Callable[[str], str | None] = lambda address: None,
    media_url: Callable[[Media], str | None] = lambda media: None,
) -> AccountConfig:
    """Build an account's configuration from its columns: a row of a query, or `vars()` of a model instance.

    Raises CredentialError where no key opens the credentials.
    """
    return AccountConfig(
        id=row["id"],
        channel=row["channel"],
        label=row["label"],
        address=row["address"],
        config=channel(row["channel"]).defaults() | row["config"],
        credentials=_opened(row["credentials"]),
        concurrency=concurrency,
        own_template=row.get("own_template"),
        unsubscribe_url=unsubscribe_url,
        media_url=media_url,
    )


def _opened(credentials: str | dict[str, Any]) -> dict[str, Any]:
    """Return the credentials. A row has the encrypted token; an instance may have the credentials themselves."""
    if isinstance(credentials, str):
        return crypto.decrypt(credentials) if credentials else {}
    return credentials
