"""What providers answered and nobody could write yet."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from datetime import datetime
from itertools import islice
from typing import NamedTuple

import psycopg

from fanout.engine.batch import Result
from fanout.rules.outcomes import AccountChange

log = logging.getLogger("crier.outbox")

WRITTEN_AT_ONCE = 500  # results in one transaction

WriteLate = Callable[[list[Result]], Awaitable[None]]


class Stop(NamedTuple):
    """An account that must not go on, by what its provider said."""

    account_id: int
    change: AccountChange
    at: datetime


class Outbox:
    """Outlives connections and slices: there is one per process. A ledger writes it (`Ledger.write_late`)."""

    def __init__(self) -> None:
        self._results: list[Result] = []
        self._stops: deque[Stop] = deque()

    def __len__(self) -> int:
        return len(self._results) + len(self._stops)

    def put(self, results: list[Result]) -> None:
        self._results.extend(results)

    def put_stop(self, stop: Stop) -> None:
        self._stops.append(stop)

    async def write_stops(self, write: Callable[[Stop], Awaitable[None]]) -> list[int]:
        """Taken out only when they are durable. Returns the accounts."""
        stopped = []
        while self._stops:
            await write(self._stops[0])
            stopped.append(self._stops.popleft().account_id)
        return stopped

    async def write(self, write_late: WriteLate, locked: Collection[int] = ()) -> list[Result]:
        """A bounded number, taken out only when they are durable. Those of `locked` runs wait. Returns what was
        written."""
        results = list(islice((result for result in self._results if result.run_id not in locked), WRITTEN_AT_ONCE))
        if results:
            await self._write(write_late, results)
            written = set(map(id, results))
            self._results = [result for result in self._results if id(result) not in written]
        return results

    async def _write(self, write_late: WriteLate, results: list[Result]) -> None:
        try:
            await write_late(results)
        except psycopg.OperationalError:
            raise  # it may work later
        except psycopg.Error as error:
            if len(results) == 1:  # the database will never take it, and must not keep the others waiting
                log.error("a result was refused: %s", error, extra={"target": results[0].target_id})
                return
            for result in results:
                await self._write(write_late, [result])
