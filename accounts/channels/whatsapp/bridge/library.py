"""What the bridge needs of neonize, in one place: its client, its message classes, its events.

The real one, or the scripted client with neonize's own classes where they are installed and stand-ins where not.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from accounts.channels.whatsapp.bridge import shapes

VERSION = "0.5.2"
INSTALL = "pip install -r requirements-whatsapp.lock"


class NotInstalled(RuntimeError):
    """The extra is missing; the text says how to install it."""

    def __init__(self) -> None:
        super().__init__(f"WhatsApp accounts need the package neonize, which is not installed: `{INSTALL}`.")


@dataclass(frozen=True, slots=True)
class Library:
    #: makes a client: `client(name, uuid=…)`, where `name` is the path of its store
    client: Callable[..., Any]
    types: Any
    events: Mapping[str, Any]
    error: type[Exception]
    #: Clients begin one after the other: neonize notes them in a map without a lock, and Go ends the process when two
    #: write there at once.
    turn: asyncio.Lock = field(default_factory=asyncio.Lock, compare=False)


def installed() -> bool:
    return importlib.util.find_spec("neonize") is not None


def neonize() -> Library:
    """The real one. Importing it takes a second and 65 MB, and starts a thread."""
    if not installed():
        raise NotInstalled
    from neonize.aioze.client import NewAClient

    types = real_types()
    return Library(NewAClient, types, real_events(), types.NeonizeError)


def with_client(client: Callable[..., Any], stand_ins: bool) -> Library:
    """Another client in neonize's shape, speaking in its classes, or in stand-ins of them."""
    if stand_ins or not installed():
        return Library(client, shapes, shapes.EVENTS, shapes.NeonizeError)
    types = real_types()
    return Library(client, types, real_events(), types.NeonizeError)


def real_events() -> dict[str, Any]:
    from neonize.proto import Neonize_pb2

    return {name: getattr(Neonize_pb2, name) for name in shapes.EVENTS}


def real_types() -> Any:
    """neonize's classes under the names that `shapes` has for them."""
    from types import SimpleNamespace

    from neonize.exc import NeonizeError
    from neonize.proto import Neonize_pb2
    from neonize.proto.waE2E import WAWebProtobufsE2E_pb2 as contents
    from neonize.utils import enum

    classes = {name: value for name, value in vars(shapes).items() if _is_shape(value)}
    found = {name: getattr(contents, name, None) or getattr(Neonize_pb2, name, None) for name in classes}
    return SimpleNamespace(
        **found
        | {
            "Content": contents.Message,
            "JID": Neonize_pb2.JID,
            "MediaType": enum.MediaType,
            "ChatPresence": enum.ChatPresence,
            "ChatPresenceMedia": enum.ChatPresenceMedia,
            "NeonizeError": NeonizeError,
        }
    )


def _is_shape(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, shapes.Shape) and value is not shapes.Shape
