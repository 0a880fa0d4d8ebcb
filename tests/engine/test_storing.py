"""While results cannot be stored nothing more is claimed: in flight never exceeds an account's concurrency.

In flight is what is durably `sending`; what was answered and is not stored yet is part of it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest
from django.db import connection
from django.utils import timezone

from accounts.channels.base import Outcome
from accounts.channels.sandbox.script import Script
from fanout.database import conninfo
from fanout.engine import driver, holding, loading
from fanout.engine.commit import Claim, LaneWrite
from fanout.engine.connection import BlockingLink, prepare
from fanout.engine.ledger import Ledger
from fanout.engine.outbox import Outbox
from fanout.models import Activity, LaneState, Run, RunTarget
from reminders.suppressions import NewSuppression, suppress
from tests.engine.stage import FarAwayTransport, Stage, books_balance, fresh
from tests.engine.test_database_trouble import cut
from tests.factories import AccountFactory, RunTargetFactory

SECOND = timedelta(seconds=1)
CONCURRENCY = 3
ACCOUNTS = 2
GROUPS = 25

#: what the database refuses: a table, what happens to it, and a condition
RESULTS = (("fanout_activity", "INSERT", "true"),)
CLAIMS = (("fanout_runtarget", "UPDATE", "NEW.status = 'sending' AND OLD.status <> 'sending'"),)
EVERYTHING = tuple(
    (table, "INSERT OR UPDATE", "true")
    for table in ("fanout_activity", "fanout_runtarget", "fanout_lanestate", "fanout_run", "fanout_event")
)
LOCK_RUN = "SELECT 1 FROM fanout_run WHERE id = %s FOR UPDATE"
IN_FLIGHT = "SELECT count(*) FROM fanout_runtarget WHERE account_id = %s AND status = 'sending'"
FULL_DISK, READ_ONLY, TIMEOUT, BROKEN, UNWILLING = "53100", "25006", "57014", "P0001", "23514"


class Fault:
    """A trigger that refuses statements of the test database from `begin` to `end`."""

    def __init__(self, refused: tuple[tuple[str, str, str], ...], state: str = FULL_DISK) -> None:
        self.refused = refused
        self.state = state

    def begin(self, now: datetime | None = None) -> None:
        with connection.cursor() as cursor:
            cursor.execute(
                "CREATE OR REPLACE FUNCTION refused() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
                f"RAISE EXCEPTION 'No space left on device' USING ERRCODE = '{self.state}'; END $$"
            )
            for table, event, condition in self.refused:
                cursor.execute(
                    f"CREATE TRIGGER refused BEFORE {event} ON {table} FOR EACH ROW WHEN ({condition}) "
                    "EXECUTE FUNCTION refused()"
                )

    def end(self, now: datetime | None = None) -> None:
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION IF EXISTS refused() CASCADE")


@pytest.fixture(autouse=True)
def healed(transactional_db: None) -> Iterator[None]:
    yield
    Fault(()).end()


@dataclass
class Scene:
    stage: Stage
    runs: list[Run]
    most: Counter[int]  # by account: the most that was durably in flight at a call
    claims: Counter[int]  # by account: how often one was asked for

    def deliveries(self) -> int:
        return len(self.stage.book.deliveries())

    def unconfirmed(self) -> int:
        return RunTarget.objects.filter(status="unconfirmed").count()

    def in_flight(self) -> dict[int, int]:
        return dict(Counter(RunTarget.objects.filter(status="sending").values_list("account_id", flat=True)))

    def ends_well(self, unconfirmed: int = 0) -> None:
        """Everything went out once and is recorded, apart from what a crash left in doubt."""
        assert max(self.most.values()) <= CONCURRENCY
        assert not self.stage.book.duplicates("account", "to", "part")
        assert self.deliveries() == ACCOUNTS * GROUPS
        assert self.unconfirmed() <= unconfirmed
        for run in self.runs:
            assert books_balance(run)
            assert run.sent + run.unconfirmed == GROUPS
            assert run.status == (Run.Status.PARTIAL if run.unconfirmed else Run.Status.SUCCESS)
        assert set(LaneState.objects.values_list("account__status", flat=True)) == {"active"}


@pytest.fixture
def watch(transactional_db: None) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(conninfo(connection.settings_dict), autocommit=True) as other:
        yield other


@pytest.fixture
def scene(stage: Stage, watch: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch) -> Scene:
    """Accounts whose every call counts what is in flight."""
    most: Counter[int] = Counter()
    really = FarAwayTransport.send

    async def send(self: FarAwayTransport, *arguments: Any) -> Outcome:
        in_flight = watch.execute(IN_FLIGHT, [self.account.id]).fetchone()
        assert in_flight is not None
        most[self.account.id] = max(most[self.account.id], in_flight[0])
        return await really(self, *arguments)

    claims: Counter[int] = Counter()
    claim = Ledger.claim

    async def claiming(self: Ledger, wanted: list[Claim], lane: LaneWrite) -> set[int]:
        claims[lane.account_id] += 1
        return await claim(self, wanted, lane)

    monkeypatch.setattr(FarAwayTransport, "send", send)
    monkeypatch.setattr(Ledger, "claim", claiming)
    monkeypatch.setattr(driver, "LAST_WRITES", 1.0)
    stage.slice_seconds = 6
    stage.provider.set_script(Script({"*": {"latency_ms": [400, 1200]}}))
    fields = {"max_send_per_minute": 120, "group_concurrency": CONCURRENCY}
    accounts = [stage.account(**fields) for _ in range(ACCOUNTS)]
    runs = [stage.fire(stage.reminder(account, groups=GROUPS, first=n * 100)) for n, account in enumerate(accounts)]
    return Scene(stage, runs, most, claims)


FAULTS = [
    pytest.param(RESULTS, FULL_DISK, id="results, full disk"),
    pytest.param(RESULTS, READ_ONLY, id="results, read-only"),
    pytest.param(RESULTS, TIMEOUT, id="results, statement timeout"),
    pytest.param(RESULTS, BROKEN, id="results, a trigger that raises"),
    pytest.param(CLAIMS, FULL_DISK, id="claims, full disk"),
    pytest.param(CLAIMS, READ_ONLY, id="claims, read-only"),
    pytest.param(EVERYTHING, FULL_DISK, id="everything, full disk"),
    pytest.param(EVERYTHING, READ_ONLY, id="everything, read-only"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("refused", "state"), FAULTS)
def test_lanes_wait_until_the_database_takes_results_again(
    scene: Scene, refused: tuple[tuple[str, str, str], ...], state: str
) -> None:
    """Over several slices, each of which could leave more in flight than the last one."""
    stage, fault = scene.stage, Fault(refused, state)
    stage.play(12, [(stage.now + 5 * SECOND, fault.begin)], drivers=2)
    before = scene.deliveries()
    assert 0 < before < ACCOUNTS * GROUPS
    scene.claims.clear()
    stage.play(25, drivers=2)
    assert scene.deliveries() == before, "nothing is sent while nothing can be stored"
    assert scene.claims.total() <= (0 if refused is RESULTS else ACCOUNTS * 25), "nobody asks without a pause"
    assert all(n <= CONCURRENCY for n in scene.in_flight().values())
    fault.end()
    stage.play()
    scene.ends_well()


@pytest.mark.slow
@pytest.mark.parametrize(("refused", "state"), FAULTS)
def test_after_a_crash_no_more_is_unconfirmed_than_was_in_flight(
    scene: Scene, refused: tuple[tuple[str, str, str], ...], state: str
) -> None:
    stage, fault = scene.stage, Fault(refused, state)
    stage.play(12, [(stage.now + 5 * SECOND, fault.begin)], crash=True)
    for _ in range(2):
        stage.outbox = Outbox()  # the last one died with its process, and the next process meets the same database
        stage.play(8, crash=True)
    stage.outbox = Outbox()
    fault.end()
    stage.play()
    scene.ends_well(unconfirmed=ACCOUNTS * CONCURRENCY)


def test_a_lane_whose_skips_are_refused_does_not_spin(stage: Stage) -> None:
    run = stage.fire(stage.reminder(stage.account(), groups=4))
    for address in run.targets.values_list("address", flat=True):
        suppress(NewSuppression(address, "manual", "operator", "", stage.now, None, None))
    fault = Fault((("fanout_runtarget", "UPDATE", "NEW.status = 'skipped'"),))
    fault.begin()
    stage.play(10)
    assert 5 <= stage.reads.count(loading.TARGETS) <= 12
    assert fresh(run).pending == 4
    fault.end()
    stage.play()
    assert (fresh(run).skipped, run.status) == (4, Run.Status.SKIPPED)


# --- connections and locks --------------------------------------------------------------------------------


def test_calls_that_outlive_their_connection_keep_their_places(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new connection is there long before the provider has answered."""
    under_way: Counter[int] = Counter()
    most: Counter[int] = Counter()
    stage, really = scene.stage, FarAwayTransport.send

    async def send(self: FarAwayTransport, *arguments: Any) -> Outcome:
        under_way[self.account.id] += 1
        most[self.account.id] = max(most[self.account.id], under_way[self.account.id])
        try:
            return await really(self, *arguments)
        finally:
            under_way[self.account.id] -= 1

    monkeypatch.setattr(FarAwayTransport, "send", send)
    stage.provider.set_script(Script({"*": {"latency_ms": [3000, 5000]}}))
    stage.slice_seconds = 60
    stage.play(None, [(stage.now + seconds * SECOND, lambda now: cut(stage)) for seconds in (2, 12)])
    assert max(most.values()) == CONCURRENCY
    scene.ends_well()


@pytest.mark.slow
def test_results_of_a_locked_run_keep_their_places_from_other_runs(stage: Stage, scene: Scene) -> None:
    account = stage.account(max_send_per_minute=0, group_concurrency=CONCURRENCY)
    first = stage.fire(stage.reminder(account, groups=CONCURRENCY, first=1000))
    second = stage.fire(stage.reminder(account, groups=10, first=2000), at=stage.now + 0.001 * SECOND)
    info = conninfo(connection.settings_dict)
    stage.slice_seconds = 60
    with psycopg.connect(info) as other:
        lock = [(stage.now + 0.3 * SECOND, lambda now: other.execute(LOCK_RUN, [first.pk]))]
        stage.play(6, lock)
        assert fresh(first).sending == CONCURRENCY  # answered long ago, and it cannot be stored
        other.rollback()
    stage.play()
    assert (fresh(first).sent, fresh(second).sent) == (CONCURRENCY, 10)
    assert max(scene.most.values()) <= CONCURRENCY


# --- what the last holder left in flight ------------------------------------------------------------------


def settle_in_flight(taken: list[int], repeatable: list[int]) -> holding.Rescued:
    async def settle() -> holding.Rescued:
        link = await prepare(BlockingLink.open(conninfo(connection.settings_dict)))
        try:
            return await holding.settle_in_flight(Ledger(link, link), taken, repeatable)
        finally:
            await link.close()

    return asyncio.run(settle())


@pytest.mark.parametrize("repeatable", [True, False], ids=["repeats are recognised", "repeats are not"])
@pytest.mark.parametrize(
    ("state", "settled"),
    [
        pytest.param(FULL_DISK, False, id="full disk"),
        pytest.param(READ_ONLY, False, id="read-only"),
        pytest.param(UNWILLING, True, id="a rule"),
    ],
)
@pytest.mark.usefixtures("transactional_db")
def test_targets_in_flight_wait_while_results_cannot_be_stored(state: str, settled: bool, repeatable: bool) -> None:
    """Only that account waits. A result that breaks a rule is refused for good, and not waited for."""
    fields = {"status": "sending", "claim_epoch": 1, "claimed_at": timezone.now()}
    one, other = (RunTargetFactory.create(**fields) for _ in range(2))
    taken = [one.account_id, other.account_id, AccountFactory.create().pk]
    Fault((("fanout_activity", "INSERT", f"NEW.account_id = {one.account_id}"),), state).begin()
    rescued = settle_in_flight(taken, [one.account_id] if repeatable else [])
    Fault(()).end()
    assert rescued == holding.Rescued(1 + settled, frozenset() if settled else frozenset({one.account_id}))
    for target in (one, other):
        target.refresh_from_db()
    assert one.status == (("pending" if repeatable else "unconfirmed") if settled else "sending")
    assert other.status == "unconfirmed"
    assert not Activity.objects.exists()  # a rehearsal leaves nothing behind
    assert settle_in_flight(taken, []).targets == (0 if settled else 1)
