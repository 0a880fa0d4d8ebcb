"""neonize in one place: its client, its message classes, its events, and how long the bridge waits for each.

Either the real package, or the scripted client with neonize's own classes where they are installed and stand-ins where
not.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from accounts.channels.whatsapp.bridge import stand_ins

VERSION = "0.5.2"
INSTALL = "pip install -r requirements-whatsapp.lock"


class NotInstalled(RuntimeError):
    """Raised where the extra is missing; the text says how to install it."""

    def __init__(self, text: str = f"WhatsApp accounts need the package neonize, which is not installed: `{INSTALL}`."):
        super().__init__(text)


@dataclass(frozen=True, slots=True)
class Library:
    """The parts of neonize that the bridge uses."""

    #: makes a client: `client(name, uuid=…)`, where `name` is the path of its store
    client: Callable[..., Any]
    types: Any
    events: Mapping[str, Any]
    error: type[Exception]
    #: Clients start one after the other: neonize keeps them in a map without a lock, and Go ends the process when two
    #: write there at once.
    turn: asyncio.Lock = field(default_factory=asyncio.Lock, compare=False)


def installed() -> bool:
    return importlib.util.find_spec("neonize") is not None


def version() -> str:
    """Return the version of neonize, or "" where it is not installed."""
    return importlib.metadata.version("neonize") if installed() else ""


def neonize() -> Library:
    """Return the real library. Importing it takes a second and 65 MB, and starts a thread."""
    if not installed():
        raise NotInstalled
    try:
        from neonize.aioze.client import NewAClient
    except ImportError as problem:  # neonize is there, but not libmagic, which pip cannot install
        raise NotInstalled(
            f"The package neonize cannot be loaded: {problem}. It needs libmagic; on Debian: `apt install libmagic1`."
        ) from problem

    types = real_types()
    return Library(NewAClient, types, real_events(), types.NeonizeError)


def with_client(client: Callable[..., Any], use_stand_ins: bool) -> Library:
    """Return a library with another client of neonize's shape, using its classes or stand-ins of them."""
    if use_stand_ins or not installed():
        return Library(client, stand_ins, stand_ins.EVENTS, stand_ins.NeonizeError)
    types = real_types()
    return Library(client, types, real_events(), types.NeonizeError)


def real_events() -> dict[str, Any]:
    from neonize.proto import Neonize_pb2

    return {name: getattr(Neonize_pb2, name) for name in stand_ins.EVENTS}


def real_types() -> Any:
    """Return neonize's classes under the names that `stand_ins` has for them."""
    from types import SimpleNamespace

    from neonize.exc import NeonizeError
    from neonize.proto import Neonize_pb2
    from neonize.proto.waE2E import WAWebProtobufsE2E_pb2 as contents
    from neonize.utils import enum

    classes = {name: value for name, value in vars(stand_ins).items() if _is_shape(value)}
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
    return isinstance(value, type) and issubclass(value, stand_ins.Shape) and value is not stand_ins.Shape


#: Characters: fast enough that a long text takes no longer than `Limits.longest_typing`.
TYPED_PER_SECOND = 60


# -- time limits ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds that the bridge waits. Tests and the demo have shorter ones."""

    #: lifetime of a QR code: the first, and each further one
    first_code: float = 60.0
    next_code: float = 20.0
    #: The lane has 12 s for a call and its transport 11: the bridge answers before both.
    answer: float = 10.0
    #: Of that, the wait behind a message that WhatsApp has not answered yet.
    turn: float = 5.0
    question: float = 8.0
    #: A message from a hidden id waits so long for its number, after a kill for the next connection.
    naming: float = 3600.0
    #: “typing…” before a text. Longer would hold up the account's other messages: one goes out after the other.
    shortest_typing: float = 0.5
    longest_typing: float = 2.0
    #: neonize has no limit for an upload. Files get this, and their size at a slow line's speed.
    upload: float = 30.0
    upload_bytes_per_second: float = 256_000.0
    #: Between two tries to connect: doubled each time, up to the longest.
    first_retry: float = 2.0
    longest_retry: float = 60.0
    #: A login takes a tenth of a second, rarely some. It has this long before its client is replaced: doubled each
    #: time, up to eight times this.
    login: float = 10.0
    #: After this, a client that does not begin to connect no longer blocks other sessions.
    connect: float = 10.0
    #: A client has begun with its first event, or after this: the next one may begin.
    begin: float = 0.5
    #: neonize normally reconnects by itself, after 0, 2, 4, 6 s; after this long the bridge starts a new client.
    disconnected: float = 20.0
    #: For so long after a number is back, its lane is looked after: the hold may be stored a moment later.
    wake: float = 10.0
    #: A lost connection that is back within this is not reported.
    worth_telling: float = 30.0
    #: The list of groups is asked for again after so long; after news of a group; for a group that is not on it.
    groups: float = 3600.0
    groups_changed: float = 300.0
    groups_unheard: float = 60.0
    #: After a failed list: doubled each time, up to the hour. neonize itself waits for 75 s.
    groups_failed: float = 90.0
    #: After a failed pairing this bridge keeps the account for so long.
    unused: float = 600.0
    #: between two looks at messages in doubt, and the age from which they are judged: no order is on its way by then
    review: float = 5.0
    review_after: float = 30.0
    #: between two reports of the sessions' health; a changed one is reported at once
    report: float = 15.0
    #: between two clean-ups of the journal
    forget: float = 3600.0
    watch: float = 1.0
    stop: float = 5.0

    def typing(self, text: str) -> float:
        """Return the seconds for which “typing…” is shown before a text."""
        return min(self.longest_typing, self.shortest_typing + len(text) / TYPED_PER_SECOND)

    def upload_limit(self, size: int) -> float:
        return self.upload + size / self.upload_bytes_per_second

    def groups_retry(self, failures: int) -> float:
        return min(self.groups, self.groups_failed * 2.0 ** min(max(failures - 1, 0), 10))

    def retry(self, failures: int) -> float:
        return min(self.longest_retry, self.first_retry * 2.0 ** min(failures, 10))

    def login_limit(self, earlier: int) -> float:
        """Return the seconds for a login; `earlier` counts clients since the last connection that never logged in."""
        return self.login * 2.0 ** min(earlier, 3)
