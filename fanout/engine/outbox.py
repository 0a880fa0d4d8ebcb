"""Keep providers' answers that could not be stored yet."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from datetime import datetime
from itertools import islice
from typing import NamedTuple

import psycopg

from fanout.engine.commit import Locked, Result
from fanout.engine.connection import may_work_later
from fanout.rules.outcomes import AccountChange

log = logging.getLogger("crier.outbox")

WRITTEN_AT_ONCE = 500  # results in one transaction

#: returns whether the runs were judged again and the lanes woken in the same transaction
WriteLate = Callable[[list[Result]], Awaitable[bool]]


class Stop(NamedTuple):
    """An account that must stop, because of its provider's answer."""

    account_id: int
    change: AccountChange
    at: datetime


class Outbox:
    """Unstored results and stops. Outlives connections and slices: there is one per process. A ledger writes it
    (`Ledger.write_late`)."""

    def __init__(self) -> None:
        self._results: list[Result] = []
        self._stops: deque[Stop] = deque()
        self._waiting: Counter[int] = Counter()  # of both, by account
        # Where only the results could be written: runs to be judged again, and accounts to be woken.
        self.changed_runs: set[int] = set()
        self.changed_accounts: set[int] = set()

    def __len__(self) -> int:
        return len(self._results) + len(self._stops)

    def __bool__(self) -> bool:
        """Return whether anything is left to be done."""
        return bool(len(self) or self.changed_runs or self.changed_accounts)

    def put(self, results: list[Result]) -> None:
        self._results.extend(results)
        self._waiting.update(result.account_id for result in results)

    def put_stop(self, stop: Stop) -> None:
        self._stops.append(stop)
        self._waiting[stop.account_id] += 1

    def holds(self, account_id: int) -> bool:
        """Return whether something of the account is not stored yet. Until it is, the account claims nothing more."""
        return account_id in self._waiting

    async def write_stops(self, write: Callable[[Stop], Awaitable[None]]) -> None:
        """Write the stops; each is removed only when it is durable."""
        while self._stops:
            await write(self._stops[0])
            account_id = self._stops.popleft().account_id
            self._release([account_id])
            self.changed_accounts.add(account_id)

    async def write(self, write_late: WriteLate, locked: Locked) -> list[Result]:
        """Write a bounded number of results, removed only when they are durable, except those that need a `locked` row.
        Returns the results written."""
        results = list(islice((result for result in self._results if not locked.holds_up(result)), WRITTEN_AT_ONCE))
        if results:
            results = await self._write(write_late, results, locked)
            written = set(map(id, results))
            self._results = [result for result in self._results if id(result) not in written]
            self._release([result.account_id for result in results])
        return results

    async def _write(self, write_late: WriteLate, results: list[Result], locked: Locked) -> list[Result]:
        """Write results. Returns those that need not be tried again."""
        try:
            if await write_late(results):
                return results
        except psycopg.Error as error:
            if isinstance(error, psycopg.OperationalError) and not isinstance(error, psycopg.errors.LockNotAvailable):
                raise  # the whole database is affected: it may work later
            if len(results) > 1:
                return await self._write_each(write_late, results, locked)
            if may_work_later(error):
                raise
            log.error("a result was refused: %s", error, extra={"target": results[0].target_id})
        self.changed_runs.update(result.run_id for result in results)
        self.changed_accounts.update(result.account_id for result in results)
        return results

    async def _write_each(self, write_late: WriteLate, results: list[Result], locked: Locked) -> list[Result]:
        """Write results one by one, so that a refused one does not hold up the others. What is found locked on the way
        is left out. Raises the error when none could be written."""
        written: list[Result] = []
        problem: psycopg.Error | None = None
        for result in results:
            if locked.holds_up(result):
                continue
            try:
                written += await self._write(write_late, [result], locked)
            except psycopg.Error as error:
                problem = error
                if isinstance(error, psycopg.OperationalError):
                    break  # also after one lock timeout: the driver must beat in between
        if problem is not None and not written:
            raise problem
        return written

    def _release(self, accounts: list[int]) -> None:
        self._waiting.subtract(accounts)
        self._waiting = +self._waiting  # drops accounts with nothing left
