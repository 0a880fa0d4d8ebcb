"""What providers answered and nobody could write yet."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from itertools import islice

import psycopg

from fanout.engine.batch import Result

log = logging.getLogger("crier.outbox")

WRITTEN_AT_ONCE = 500  # results in one transaction

WriteLate = Callable[[list[Result]], Awaitable[None]]


class Outbox:
    """Outlives connections and slices: there is one per process. A ledger writes it (`Ledger.write_late`)."""

    def __init__(self) -> None:
        self._results: deque[Result] = deque()

    def __len__(self) -> int:
        return len(self._results)

    def put(self, results: list[Result]) -> None:
        self._results.extend(results)

    async def write(self, write_late: WriteLate) -> list[Result]:
        """A bounded number, taken out only when they are durable. Returns what was written."""
        results = list(islice(self._results, WRITTEN_AT_ONCE))
        if results:
            await self._write(write_late, results)
        for _ in results:
            self._results.popleft()
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
