"""500 targets through every gateway, with rate limits, drops and time-outs in between, and a kill -9 in the middle."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fanout.rules import outcomes
from tests.engine.driving import drive
from tests.gateways.process import GatewayServer
from tests.gateways.running import AT_ONCE, judge_by_the_book, make_run

TARGETS = 500
KILL_AFTER = 150


class Case(NamedTuple):
    channel: str
    config: dict[str, Any]
    credentials: dict[str, Any]
    kind: str = "group"
    pattern: str = "1203630000{n:08d}@g.us"
    action: str = "message"


CASES = [
    Case("waha", {"session": "default"}, {"api_key": "k"}),
    Case("evolution", {"instance": "acme"}, {"api_key": "k"}),
    Case("cloud", {"phone_number_id": "10200"}, {"access_token": "k"}, "person", "+49176{n:08d}"),
    Case("wassenger", {"device": "d1"}, {"token": "k"}),
    Case("unipile", {"account_id": "a1"}, {"api_key": "k"}, "profile", "linkedin.com/in/member-{n}"),
]

FAULTS = [
    {"match": {"every": 110}, "effect": "rate_limited", "retry_after": 1},
    {"match": {"every": 71}, "effect": "drop_after_accept"},
    {"match": {"every": 160}, "effect": "hang"},
    {"match": {"every": 170}, "effect": "hang", "accept": True},
    {"match": {"every": 130}, "effect": "unavailable"},
    {"match": {"every": 90}, "effect": "error_after_accept", "message": "PrismaClientKnownRequestError: \nTimed out"},
]


@pytest.fixture(autouse=True)
def _no_long_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rate limit is sat out for a minute; here for moments."""
    for name in ("RATE_LIMIT_HOLD", "OFFLINE_HOLD", "NETWORK_HOLD_MAX", "LONGEST_HOLD"):
        monkeypatch.setattr(outcomes, name, 0.2)


@pytest.mark.processes
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.channel)
def test_everybody_gets_it_once_or_is_unconfirmed(case: Case, tmp_path: Path) -> None:
    with GatewayServer(tmp_path, case.channel) as server:
        server.set_script({"*": {"latency_ms": [1, 5], "faults": FAULTS}})
        recipients = [(case.kind, case.pattern.format(n=n)) for n in range(TARGETS)]
        config = {"url": server.url, "timeout": 0.7, **case.config}
        run = make_run(case.channel, config, case.credentials, recipients, case.action)

        def kill_and_restart() -> None:
            server.kill()
            assert len(server.book().deliveries()) < TARGETS
            server.start()

        asyncio.run(drive(run.pk, kill_and_restart, lambda: len(server.book().deliveries()) >= KILL_AFTER))

        counts, not_delivered = judge_by_the_book(run, server)

    assert set(counts) <= {"sent", "unconfirmed"}
    assert 0 < counts["unconfirmed"] < TARGETS // 4
    # What met with silence, and what was in the air when the server died: nothing else may be lost.
    assert not_delivered <= len(server.book().refused("hang")) + AT_ONCE
    assert server.book().refused("rate_limited")
