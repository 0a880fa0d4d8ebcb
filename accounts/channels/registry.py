"""Which transport speaks for which channel.

A transport is named as "module:Class" and imported when an account first needs it: a channel whose packages
are not installed costs nothing until then, and says what is missing.
"""

from __future__ import annotations

import importlib

from accounts.channels.base import AccountConfig, Transport

_paths: dict[str, str] = {}


class UnknownChannel(LookupError):
    """No transport is registered for the channel."""

    def __init__(self, channel: str) -> None:
        super().__init__(f"No transport for channel “{channel}”. Known: {', '.join(channels())}.")


class ChannelUnavailable(RuntimeError):
    """The channel is known, but a package it needs is not installed."""

    def __init__(self, channel: str, missing: str) -> None:
        super().__init__(f"Channel “{channel}” needs the Python package “{missing}”, which is not installed.")


def register(channel: str, path: str) -> None:
    """Name the transport of a channel as "module:Class"."""
    _paths[channel] = path


def channels() -> tuple[str, ...]:
    return tuple(sorted(_paths))


def transport_class(channel: str) -> type[Transport]:
    try:
        module, _, name = _paths[channel].partition(":")
    except KeyError:
        raise UnknownChannel(channel) from None
    try:
        found: type[Transport] = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        raise ChannelUnavailable(channel, error.name or module) from error
    return found


def transport_for(account: AccountConfig) -> Transport:
    return transport_class(account.channel)(account)


register("sandbox", "accounts.channels.sandbox.transport:SandboxTransport")
register("smtp", "accounts.channels.smtp.transport:SmtpTransport")
register("gmail", "accounts.channels.gmail.transport:GmailTransport")
