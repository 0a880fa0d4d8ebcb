"""Entries that lanes hand in together are written together, in parts of a bounded size and in their order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import psycopg
import pytest

from fanout.engine import ledger as ledgers
from fanout.engine.commit import Call, Claim, Result
from fanout.engine.connection import Row
from fanout.engine.ledger import Ledger, LedgerLost
from fanout.engine.outbox import Outbox
from fanout.models import LaneState, RunTarget
from fanout.rules.pace import PaceState
from tests.engine.ledgers import EPOCH, NOW, TestsOwnLink, lane_write, ledger_in_test, with_ledger
from tests.factories import LaneStateFactory, RunFactory, RunTargetFactory

__all__ = ["ledger_in_test"]
pytestmark = pytest.mark.usefixtures("ledger_in_test")


class Recording(TestsOwnLink):
    """Notes the size of each commit, and refuses nonsense. After `last` of them the connection is gone."""

    def __init__(self, last: int = 1000) -> None:
        super().__init__()
        self.commits: list[dict[str, int]] = []
        self.last = last

    async def call(self, calls: Sequence[Call]) -> list[list[Row]]:
        if len(self.commits) == self.last:
            self.closed = True
            raise psycopg.OperationalError("the server is gone")
        self.commits.append({name: str(values[0]).count(",") + 1 for name, values in calls})
        await asyncio.sleep(0)  # others hand in meanwhile
        if any("nonsense" in str(value) for _, values in calls for value in values):
            raise psycopg.errors.CheckViolation("no such status")
        return await super().call(calls)


@pytest.fixture
def targets(monkeypatch: pytest.MonkeyPatch) -> list[RunTarget]:
    monkeypatch.setattr(ledgers, "FULL", 2)
    run = RunFactory.create(scheduled_for=NOW, status="running", window_closes_at=NOW.replace(hour=12))
    LaneStateFactory.create(account=run.account, epoch=EPOCH)
    return [RunTargetFactory.create(run=run) for _ in range(5)]


def claim_of(target: RunTarget) -> Claim:
    return Claim(target.pk, target.run_id, target.account_id, EPOCH, NOW)


def result_of(target: RunTarget) -> Result:
    return Result(target.pk, target.run_id, target.account_id, EPOCH, NOW, "sent", 1, 1, NOW, "message", 0, "sent")


def states(targets: list[RunTarget]) -> list[str]:
    by_id = dict(RunTarget.objects.values_list("pk", "status"))
    return [by_id[target.pk] for target in targets]


def test_many_entries_are_written_in_parts(targets: list[RunTarget]) -> None:
    link = Recording()

    async def work(ledger: Ledger) -> None:
        lane = targets[0].account_id
        paces = [lane_write(lane, pace=PaceState(batch_sent=n)) for n in range(5)]
        granted = await asyncio.gather(*(ledger.claim([claim_of(t)], pace) for t, pace in zip(targets, paces)))
        assert [*granted] == [{target.pk} for target in targets]
        await asyncio.gather(*(ledger.record(result_of(target)) for target in targets))

    with_ledger(work, link)
    assert [commit["claim"] for commit in link.commits[:2]] == [4, 1]
    assert [commit["record"] for commit in link.commits[2:]] == [4, 1]
    assert states(targets) == ["sent"] * 5
    assert LaneState.objects.get().batch_sent == 4  # of the last claim


def test_settled_waits_for_all_that_was_handed_in(targets: list[RunTarget]) -> None:
    async def work(ledger: Ledger) -> None:
        claims = [ledger.claim([claim_of(target)], lane_write(target.account_id)) for target in targets]
        handed_in = asyncio.gather(*claims)
        await asyncio.sleep(0)
        await ledger.flushed()
        rows = await ledger.read("SELECT status FROM fanout_runtarget")
        assert [row["status"] for row in rows] == ["sending"] * 5
        await handed_in

    with_ledger(work, Recording())


def test_after_a_lost_connection_every_part_is_kept(targets: list[RunTarget], monkeypatch: pytest.MonkeyPatch) -> None:
    RunTarget.objects.update(status="sending", claim_epoch=EPOCH, claimed_at=NOW)

    async def work(ledger: Ledger) -> Outbox:
        monkeypatch.setattr(ledgers, "FULL", 1)
        answers = [ledger.record(result_of(target)) for target in targets[:4]]
        claim = ledger.claim([claim_of(targets[4])], lane_write(targets[4].account_id))
        *_, lost = await asyncio.gather(*answers, claim, return_exceptions=True)
        assert isinstance(lost, LedgerLost)
        return ledger.outbox

    outbox = with_ledger(work, Recording(last=1))
    assert states(targets) == ["sent"] * 2 + ["sending"] * 3
    kept = outbox._results
    assert {result.target_id: result.status for result in kept} == {
        targets[2].pk: "sent",
        targets[3].pk: "sent",
        targets[4].pk: "pending",
    }


def test_a_claim_goes_out_with_the_result_that_made_room_for_it(targets: list[RunTarget]) -> None:
    RunTarget.objects.filter(pk=targets[0].pk).update(status="sending", claim_epoch=EPOCH, claimed_at=NOW)
    link = Recording()
    written: list[BaseException | None] = []

    async def work(ledger: Ledger) -> None:
        ledger.hand_in(result_of(targets[0]), None, written.append)
        assert await ledger.claim([claim_of(targets[1])], lane_write(targets[1].account_id)) == {targets[1].pk}
        assert written == [None]

    with_ledger(work, link)
    assert [sorted(commit) for commit in link.commits] == [["claim", "lock_runs", "pace", "record"]]
    assert states(targets)[:2] == ["sent", "sending"]


def test_a_lane_whose_claim_was_granted_claims_with_what_came_meanwhile(targets: list[RunTarget]) -> None:
    """The next commit began before the lane had its turn: results went out alone, and its claim waited for two."""
    RunTarget.objects.filter(pk=targets[0].pk).update(status="sending", claim_epoch=EPOCH, claimed_at=NOW)

    class Slow(Recording):
        async def call(self, calls: Sequence[Call]) -> list[list[Row]]:
            if not self.commits:
                ledger.hand_in(result_of(targets[0]), None, lambda error: None)
            return await super().call(calls)

    link = Slow()
    ledger: Ledger

    async def work(its_ledger: Ledger) -> None:
        nonlocal ledger
        ledger = its_ledger
        for n, target in enumerate(targets[1:3]):
            await ledger.claim([claim_of(target)], lane_write(target.account_id, timeouts=n))

    with_ledger(work, link)
    assert [sorted(commit) for commit in link.commits] == [
        ["claim", "lock_runs", "pace"],
        ["claim", "lock_runs", "pace", "record"],
    ]


@pytest.mark.parametrize(
    ("later", "written"),
    [
        ({}, False),
        ({"timeouts": 1}, True),
        ({"pace": PaceState(theoretical_arrival=NOW)}, True),
        ({"epoch": EPOCH + 1}, True),
        ({"clears_crashes": True}, True),
        ({"at": NOW + timedelta(seconds=1)}, True),
        ({"at": NOW + timedelta(seconds=0.9)}, False),
    ],
    ids=["the same", "a time-out", "its pace", "another holder", "its first delivery", "a second later", "sooner"],
)
def test_a_lanes_state_is_stored_when_it_says_something_new(
    targets: list[RunTarget], later: dict[str, Any], written: bool
) -> None:
    """A lane without a pace claims hundreds of times a second, and its state stays the same."""
    link, account = Recording(), targets[0].account_id

    async def work(ledger: Ledger) -> None:
        for target, fields in zip(targets, ({}, later)):
            await ledger.claim([claim_of(target)], lane_write(account, **fields))

    with_ledger(work, link)
    assert ["pace" in commit for commit in link.commits] == [True, written]


def test_a_lane_that_waits_in_an_earlier_batch_claims_there(targets: list[RunTarget]) -> None:
    others = [RunTargetFactory.create(run__status="running", run__window_closes_at=NOW.replace(hour=12)) for _ in "ab"]
    for other in others:
        LaneStateFactory.create(account=other.run.account, epoch=EPOCH)
    RunTarget.objects.exclude(pk=targets[1].pk).update(status="sending", claim_epoch=EPOCH, claimed_at=NOW)
    link = Recording()

    async def work(ledger: Ledger) -> None:
        for target in (targets[0], *others):  # the batch is full with the second: a third lane begins a new one
            ledger.hand_in(result_of(target), None, lambda error: None)
        await ledger.claim([claim_of(targets[1])], lane_write(targets[1].account_id))
        await ledger.flushed()

    with_ledger(work, link)
    assert [(commit["record"], commit.get("claim", 0)) for commit in link.commits] == [(2, 1), (1, 0)]


def test_a_refused_result_is_reported_to_its_lane(targets: list[RunTarget]) -> None:
    RunTarget.objects.update(status="sending", claim_epoch=EPOCH, claimed_at=NOW)
    received: dict[int, BaseException | None] = {}

    async def work(ledger: Ledger) -> None:
        for target, status in zip(targets, ["sent", "nonsense"]):
            result = replace(result_of(target), status=status)
            ledger.hand_in(result, None, partial(received.__setitem__, target.pk))
        await ledger.flushed()

    with_ledger(work, Recording())
    assert received[targets[0].pk] is None
    assert isinstance(received[targets[1].pk], psycopg.errors.CheckViolation)
    assert states(targets)[:2] == ["sent", "sending"]
