"""All time comes from a clock. Production passes the system's, the simulation a virtual one.

The virtual clock is an event loop whose time jumps to the next timer whenever nothing else can happen.
PostgreSQL is asked over a blocking link there, so its time does not count and every run of a seed is the same.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
BOOT_TIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """`now` is the wall's time, for moments. It may be set back or forward at any time, so durations come from
    `monotonic`."""

    def now(self) -> datetime: ...

    def monotonic(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Goes on while the machine is suspended, where the system has such a clock."""
        return time.clock_gettime(BOOT_TIME)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class VirtualClock:
    """Time of a VirtualLoop, counted from `start`."""

    def __init__(self, start: datetime) -> None:
        self.start = start

    def now(self) -> datetime:
        return self.start + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class _JumpingSelector(selectors.DefaultSelector):
    """Instead of waiting for a timer, moves the loop's time on to it."""

    def __init__(self) -> None:
        super().__init__()
        self.elapsed = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            return super().select(None)
        self.elapsed += max(0.0, timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.elapsed


def run_virtual(main: Callable[[VirtualClock], Awaitable[T]], start: datetime) -> T:
    """Run a coroutine on virtual time that begins at `start`."""

    async def call() -> T:
        return await main(VirtualClock(start))

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(call())
