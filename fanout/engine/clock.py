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


class TimeLimit:
    """`asyncio.timeout` for many calls, with one timer for all of them. A timer for each took a tenth of a driver's
    time, and nearly all were cancelled."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._began: dict[asyncio.Task[object], float] = {}  # the oldest first
        self._late: set[asyncio.Task[object]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def keep(self, call: Awaitable[T]) -> T:
        """Return the answer, or raise TimeoutError when it takes too long. One call per task."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        self._began[task] = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(self.seconds, self._end_late)
        try:
            return await call
        except asyncio.CancelledError:
            # More than once: the task was cancelled from outside as well.
            if task in self._late and task.cancelling() == 1:
                raise TimeoutError from None
            raise
        finally:
            del self._began[task]
            if task in self._late:
                self._late.remove(task)
                task.uncancel()

    def _end_late(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        for task, began in self._began.items():
            left = began + self.seconds - loop.time()
            if left > 0:  # and those behind it have more time still
                self._timer = loop.call_later(left, self._end_late)
                return
            if task not in self._late:
                self._late.add(task)
                task.cancel()
