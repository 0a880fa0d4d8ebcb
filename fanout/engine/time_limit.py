"""A time limit for many calls at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

Answer = TypeVar("Answer")


class TimeLimit:
    """What `asyncio.timeout` does, with one timer for all calls under way. A timer for each of them took a tenth of a
    driver's time, and nearly all were cancelled."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._began: dict[asyncio.Task[object], float] = {}  # the oldest first
        self._late: set[asyncio.Task[object]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def keep(self, call: Awaitable[Answer]) -> Answer:
        """The answer, or TimeoutError when it takes too long. One call per task."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        self._began[task] = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(self.seconds, self._end_late)
        try:
            return await call
        except asyncio.CancelledError:
            # More than once: somebody else wants the task to end as well.
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
