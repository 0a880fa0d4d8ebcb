"""Drivers go on while an upgrade beside them adds columns: “Upgrade without stopping” in docs/operations.md."""

from __future__ import annotations

import asyncio

import psycopg
import pytest
from django.db import connection

from fanout.database import conninfo
from fanout.engine import loading
from fanout.engine.connection import AsyncLink, by_key
from tests.factories import LaneStateFactory, RunFactory

pytestmark = pytest.mark.django_db(transaction=True)

PREPARED_AFTER = 5  # uses, psycopg's default


@pytest.mark.parametrize(
    ("table", "statement"),
    [("fanout_run", loading.RUNS), ("fanout_lanestate", loading.LANES), ("accounts_account", loading.LANES)],
    ids=["runs", "lanes", "accounts"],
)
def test_a_column_that_is_added_beside_a_driver_stops_no_look_up(table: str, statement: str) -> None:
    run = RunFactory.create(status="running")
    LaneStateFactory.create(account=run.account)
    parameters = {"accounts": [run.account_id]} if statement is loading.RUNS else ([run.account_id],)
    info = conninfo(connection.settings_dict)

    async def look() -> None:
        link = await by_key(await AsyncLink.open(info))
        try:
            for _ in range(PREPARED_AFTER + 2):
                assert len(await link.query(statement, parameters)) == 1
            migrate(f"ALTER TABLE {table} ADD COLUMN added boolean NOT NULL DEFAULT true")
            for _ in range(3):
                (row,) = await link.query(statement, parameters)
                assert row["added"] is True
        finally:
            await link.close()

    def migrate(change: str) -> None:
        with psycopg.connect(info, autocommit=True) as beside:
            beside.execute(change)

    try:
        asyncio.run(look())
    finally:
        migrate(f"ALTER TABLE {table} DROP COLUMN IF EXISTS added")
