"""One mail to one recipient, and whether its final dot left."""

from __future__ import annotations

import time
from dataclasses import dataclass

from accounts.channels.base import Kind, NotSent, Outcome, Unknown
from accounts.channels.mime import Encoded

NOTHING = Encoded(b"", b"", b"")


@dataclass(slots=True)
class Delivery:
    """One message to one recipient, and whether its final dot left."""

    sender: str
    address: str
    headers: bytes = b""
    encoded: Encoded = NOTHING
    dot_left: bool = False
    deadline: float = 0.0
    reserve: float = 0.0

    @property
    def size(self) -> int:
        return len(self.encoded.fixed) + len(self.headers) + len(self.encoded.stuffed) + 2

    def text(self) -> bytes:
        return b"".join((self.encoded.fixed, self.headers, b"\r\n", self.encoded.stuffed))

    def lost(self, words: str) -> Outcome:
        return Unknown(words) if self.dot_left else NotSent(Kind.NETWORK, words)

    def late(self) -> bool:
        return time.monotonic() > self.deadline - self.reserve
