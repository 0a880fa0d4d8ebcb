"""A changed server or password reaches a lane that is sending."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from fanout.lanes.accounts import changing
from fanout.models import LaneState
from tests.engine.stage import Stage, fresh


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
