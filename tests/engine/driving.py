"""A run that a driver in this process carries out, with an accident on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from django.db import connection

from accounts.channels.registry import transport_for
from fanout.database import conninfo
from fanout.engine.clock import SystemClock
from fanout.engine.connection import AsyncLink
from fanout.engine.driver import Driver
from fanout.ops.tasks import open_ledger
from tests.channels.mail_server import wait_until

GIVE_UP = 120.0


async def drive(run_id: int, accident: Callable[[], None], is_time: Callable[[], bool]) -> None:
    """Until the run has ended, with an accident on the way."""
    driver = Driver(SystemClock(), open_ledger, transport_for, capacity=8, slice_seconds=3600)
    driving = asyncio.create_task(driver.run())
    try:
        async with asyncio.timeout(GIVE_UP):
            await asyncio.to_thread(wait_until, is_time, GIVE_UP)
            await asyncio.to_thread(accident)
            await _finished(run_id)
    finally:
        driver.stopping = True
        await driving


async def _finished(run_id: int) -> None:
    link = await AsyncLink.open(conninfo(connection.settings_dict))
    try:
        while True:
            (run,) = await link.query("SELECT finished_at FROM fanout_run WHERE id = %s", (run_id,))
            if run["finished_at"] is not None:
                return
            await asyncio.sleep(0.1)
    finally:
        await link.close()
