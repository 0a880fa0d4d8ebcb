"""News reach a lane that is sending: a changed server or password, and messages written on the account's phone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from fanout.inbound import worker
from fanout.lanes.accounts import changing
from fanout.models import LaneState
from tests.engine.stage import Stage, fresh
from tests.factories import InboundEventFactory


def test_messages_go_to_the_new_server_at_once(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    account = stage.account(config={"account": "old"}, max_send_per_minute=60)
    run = stage.fire(stage.reminder(account, groups=30))
    changed_at = stage.now + timedelta(seconds=5)

    def change(now: datetime) -> None:
        with changing(account, stage.user, now) as change:
            change.account.config = {"account": "new"}

    stage.play(25, [(changed_at, change)])
    old, new = stage.times("old"), stage.times("new")
    assert max(old) <= changed_at + timedelta(seconds=1)  # with the provider by then
    assert min(new) <= changed_at + timedelta(seconds=3)
    assert fresh(run).sent == len(old) + len(new) > 20
    assert not stage.book.duplicates("message_id")
    lane = LaneState.objects.get()
    assert lane.crashes == 0
    assert all(at.tzinfo is UTC for at in new)


@pytest.mark.parametrize("per_minute", [20, 6], ids=["it goes on", "it is parked meanwhile"])
def test_what_is_written_on_the_phone_takes_its_time_from_the_lane(per_minute: int, stage: Stage) -> None:
    account = stage.account(max_send_per_minute=per_minute, send_burst=1, min_gap_seconds=0, max_gap_seconds=0)
    stage.fire(stage.reminder(account, groups=30))
    interval = timedelta(minutes=1) / per_minute
    written_at, messages = stage.now + 2.5 * interval, 5

    def write(now: datetime) -> None:
        for n in range(messages):
            InboundEventFactory.create(account=account, kind="written", key=f"written:{n}", happened_at=now)
        worker.step(now)

    stage.play((messages + 8) * interval.total_seconds(), [(written_at, write)])

    times = stage.times()
    gaps = {at: later - at for at, later in pairwise(times)}
    last = max(at for at in times if at < written_at)
    assert gaps.pop(last) == pytest.approx((messages + 1) * interval, abs=timedelta(seconds=1.5))
    assert all(gap == pytest.approx(interval, abs=timedelta(seconds=1.5)) for gap in gaps.values())
    assert len(times) > 5
