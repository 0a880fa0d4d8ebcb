"""The ledger inside a test's own transaction: what it writes is gone with the test, and a statement costs little."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import pytest
from django.db import connections

from fanout.database import Statement
from fanout.engine import commit
from fanout.engine.commit import Call, Claim, LaneWrite, Result
from fanout.engine.connection import Row
from fanout.engine.ledger import Ledger
from fanout.models import RunTarget
from fanout.rules.pace import PaceState

T = TypeVar("T")
JSONB = 3802  # PostgreSQL's number of the type
NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)  # a Monday
EPOCH = 3

#: the ledger begins and ends transactions of its own; the test is inside one already
NESTED = {"BEGIN": "SAVEPOINT ledger", "COMMIT": "RELEASE SAVEPOINT ledger", "ROLLBACK": "ROLLBACK TO SAVEPOINT ledger"}


def _as_it_is(value: Any) -> Any:
    return value


class TestsOwnLink:
    __test__ = False
    closed = False

    def __init__(self) -> None:
        self.connection = connections["default"]  # inside the loop there would be another one

    async def query(self, statement: str, parameters: Any = None) -> list[Row]:
        with self.connection.cursor() as cursor:
            cursor.execute(NESTED.get(statement, statement), parameters)
            if cursor.description is None:
                return []
            names = [column.name for column in cursor.description]
            # Django leaves JSON as it comes; the drivers' connections do not.
            read = [json.loads if column.type_code == JSONB else _as_it_is for column in cursor.description]
            rows = [[value and of(value) for of, value in zip(read, row)] for row in cursor.fetchall()]
            return [dict(zip(names, row)) for row in rows]

    async def call(self, calls: Sequence[Call]) -> list[list[Row]]:
        answers = [await self.query(commit.HOT[name], values) for name, values in calls]
        await self.query(commit.HOT["hot_runs"], ("",))  # a commit of its own would forget them
        return answers

    async def script(self, statements: Sequence[Statement]) -> list[list[Row]]:
        return [await self.query(*statement) for statement in statements]

    async def close(self) -> None:
        """It is the test's."""


@pytest.fixture
def ledger_in_test(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")


def with_ledger(work: Callable[[Ledger], Awaitable[T]], link: TestsOwnLink | None = None) -> T:
    link = link or TestsOwnLink()

    async def main() -> T:
        ledger = Ledger(link, link)
        ledger.start()
        try:
            return await work(ledger)
        finally:
            await ledger.stop()

    return asyncio.run(main())


def lane_write(account: int, epoch: int = EPOCH, at: datetime = NOW, **fields: Any) -> LaneWrite:
    values: dict[str, Any] = {"pace": PaceState(), "sample": "", "sample_run": None, "probing": False} | fields
    return LaneWrite(account, epoch, at=at, **values)


def claim(target: RunTarget, epoch: int = EPOCH, at: datetime = NOW, account: int | None = None) -> bool:
    """Claim a target. Returns whether it was granted."""
    by = target.account_id if account is None else account
    one = Claim(target.pk, target.run_id, by, epoch, at, part=target.parts_sent)
    granted = with_ledger(lambda ledger: ledger.claim([one], lane_write(by, epoch, at)))
    target.refresh_from_db()
    return target.pk in granted


def record(target: RunTarget, status: str, epoch: int = EPOCH, claimed_at: datetime = NOW, **fields: Any) -> None:
    values: dict[str, Any] = {"parts_sent": target.parts_sent, "attempts": target.attempts, "at": NOW} | fields
    result = Result(target.pk, target.run_id, target.account_id, epoch, claimed_at, status, action="message", **values)
    with_ledger(lambda ledger: ledger.record(result))
    target.refresh_from_db()
