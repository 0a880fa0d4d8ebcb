"""The transports of a driver's accounts: kept while nothing changes, closed in time."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from accounts.channels.base import AccountConfig
from fanout.engine.clock import VirtualClock, run_virtual
from fanout.engine.driver import CLOSE_LIMIT, Transports
from tests.engine.ledgers import NOW


class Wire:
    def __init__(self, config: AccountConfig, takes: float = 0.0, error: Exception | None = None) -> None:
        self.account = config
        self.takes = takes
        self.error = error
        self.closed = False

    async def close(self) -> None:
        await asyncio.sleep(self.takes)
        if self.error is not None:
            raise self.error
        self.closed = True


def config(words: str) -> AccountConfig:
    """Two of the same words are the same settings."""
    return cast("AccountConfig", words)


def test_a_transport_is_made_anew_only_when_its_account_has_changed() -> None:
    async def main() -> None:
        transports = Transports(cast("Any", Wire))
        await transports.make_ready(1, config("a"))
        await transports.make_ready(2, config("a"))
        first, other = (cast("Any", transports[account]) for account in (1, 2))
        await transports.make_ready(1, config("a"))
        assert cast("Any", transports[1]) is first
        await transports.make_ready(1, config("b"))
        assert cast("Any", transports[1]).account == "b"
        assert (first.closed, other.closed) == (True, False)
        assert cast("Any", transports[2]) is other

    asyncio.run(main())


def test_all_transports_are_closed_at_once_within_the_limit(caplog: pytest.LogCaptureFixture) -> None:
    wires: dict[str, Wire] = {}

    def make(one: AccountConfig) -> Wire:
        takes = {"slow": CLOSE_LIMIT * 0.9, "slower": CLOSE_LIMIT * 0.8, "stuck": 1000.0}.get(str(one), 0.0)
        wires[str(one)] = Wire(one, takes, OSError("refused") if one == config("broken") else None)
        return wires[str(one)]

    async def main(clock: VirtualClock) -> None:
        transports = Transports(cast("Any", make))
        await transports.close()
        assert clock.monotonic() == 0
        for number, words in enumerate(("slow", "slower", "stuck", "broken")):
            await transports.make_ready(number, config(words))
        await transports.close()
        assert clock.monotonic() == CLOSE_LIMIT
        await asyncio.sleep(0)
        assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []  # the stuck one ended
        with pytest.raises(KeyError):
            transports[0]
        await transports.close()
        assert clock.monotonic() == CLOSE_LIMIT  # there is nothing left to close

    run_virtual(main, NOW)
    assert {name: wire.closed for name, wire in wires.items()} == {
        "slow": True,
        "slower": True,
        "stuck": False,
        "broken": False,
    }
    assert "refused" in caplog.text
