"""Links to PostgreSQL: plans by key."""

from __future__ import annotations

import asyncio

import pytest
from django.db import connection

from fanout.database import conninfo
from fanout.engine.connection import BlockingLink, by_key


@pytest.mark.django_db
@pytest.mark.parametrize("way", ["enable_seqscan", "enable_hashjoin", "enable_mergejoin", "jit"])
def test_look_ups_are_planned_by_key(way: str) -> None:
    async def shown() -> str:
        link = await by_key(BlockingLink.open(conninfo(connection.settings_dict)))
        (row,) = await link.query(f"SHOW {way}")
        await link.close()
        return str(row[way])

    assert asyncio.run(shown()) == "off"
