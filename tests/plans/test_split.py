"""Who sends how much of a run, before and after an offload."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from fanout.models import LaneState, RunTarget
from fanout.plans import queue
from fanout.runs import corrections
from tests.factories import AccountFactory, LaneStateFactory, RunFactory

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
pytestmark = pytest.mark.django_db


def test_what_was_sent_and_what_may_have_gone_out_stays_where_it_is():
    office, community = AccountFactory.create(label="Office line"), AccountFactory.create(label="Community line")
    run = RunFactory.create(
        reminder__account=office,
        status="paused",
        pause_reason="account_capacity",
        targets={"sent": 2, "pending": 5, "skipped": 1},
    )
    first, second = run.targets.filter(status="pending").values_list("pk", flat=True)[:2]
    RunTarget.objects.filter(pk=first).update(parts_sent=1)
    RunTarget.objects.filter(pk=second).update(in_doubt=True)
    shares = queue.run_shares(run)
    assert queue.shares_in_words(shares) == "7 via Office line"
    assert queue.shares_in_words(queue.pending_shares([run])) == "5 via Office line"
    foretold = queue.shares_in_words(queue.shares_after_offload(shares, community))
    assert foretold == "4 via Office line, 3 via Community line"
    answer = corrections.offload(run, community, None, run.scheduled_for, and_resume=True)
    assert answer.text.startswith(f"3 targets moved to Community line: {foretold}.")
    assert answer.text.endswith("Resumed: 5 still to send.")
    run.refresh_from_db()
    assert (run.status, set(run.lanes)) == ("queued", {office.pk, community.pk})


def test_both_accounts_look_again_when_a_running_run_is_moved():
    run = RunFactory.create(status="running", targets={"pending": 2})
    other = AccountFactory.create()
    for account in (run.account, other, AccountFactory.create()):
        LaneStateFactory.create(account=account, due_at=None, poke=3)
    assert corrections.offload(run, other, None, NOW).ok
    looked = dict(LaneState.objects.filter(due_at=NOW, poke__gt=3).values_list("account_id", "poke"))
    assert set(looked) == {run.account_id, other.pk}


def test_an_account_of_another_channel_takes_nothing():
    run = RunFactory.create(reminder__account__label="Community line", status="running", targets={"pending": 2})
    mail = AccountFactory.create(label="Mailbox", channel="smtp")
    assert queue.shares_in_words(queue.shares_after_offload(queue.run_shares(run), mail)) == "2 via Community line"
