"""Settling, offloading and archiving. What is archived sends nothing, is hidden, and can be restored."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django_q.models import OrmQ

from accounts.models import Account
from fanout.models import Activity, Event, KnownChat, LaneState, Offload, Run, RunTarget, TrailEntry
from fanout.runs import controls, corrections, firing, transitions
from reminders import targets
from reminders.imports import Entry
from reminders.models import Recipient, Reminder
from tests.factories import AccountFactory, RecipientFactory, ReminderFactory, RunFactory, RunTargetFactory
from tests.runs.monday import FINISHED, NOW, TEXT, fresh, log, make, message_2, was_woken

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 1, 6, 12, tzinfo=UTC)


def test_an_archived_reminder_never_fires():
    reminder = ReminderFactory.create(targets=1, next_fire_at=NOON)
    assert corrections.archive_reminder(reminder, reminder.owner, NOON).ok
    assert firing.fire_due(NOON) == []
    reminder.refresh_from_db()
    assert controls.fire(reminder, reminder.owner, NOON).text == "This reminder is archived: restore it first."
    assert not Run.objects.exists()
    with pytest.raises(IntegrityError), transaction.atomic():
        Reminder.objects.update(enabled=True)
    assert corrections.restore_reminder(reminder, reminder.owner, NOON).ok
    reminder.refresh_from_db()
    assert (reminder.archived, reminder.enabled) == (False, False)
    assert list(TrailEntry.objects.order_by("pk").values_list("verb", flat=True)) == ["archived", "restored"]


def test_a_reminder_that_is_going_out_is_not_archived():
    run = RunFactory.create(status="running", targets={"pending": 1})
    answer = corrections.archive_reminder(run.reminder, None, NOON)
    assert "is going out now" in answer.text


def test_an_archived_account_is_never_active():
    account = AccountFactory.create(label="Line")
    assert corrections.archive_account(account, account.owner, NOON).ok
    account.refresh_from_db()
    assert (account.archived, account.status) == (True, "paused")
    assert controls.reactivate(account, account.owner, NOON).text == "Line is archived: restore it first."
    with pytest.raises(IntegrityError), transaction.atomic():
        Account.objects.update(status="active")
    assert corrections.restore_account(account, account.owner, NOON).ok
    account.refresh_from_db()
    assert controls.reactivate(account, account.owner, NOON).ok


def test_an_archived_recipient_leaves_its_reminders_and_comes_back_when_it_is_added_again():
    reminder = ReminderFactory.create(targets=2)
    gone, stays = (target.recipient for target in reminder.targets.all())
    Recipient.objects.update(tags=["choir"])
    RunFactory.create(reminder=reminder, status="success", targets={"sent": 1})
    assert corrections.archive_recipient(gone, reminder.owner, NOON).ok
    assert [target.recipient for target in reminder.targets.all()] == [stays]
    other = ReminderFactory.create(account=reminder.account, owner=reminder.owner)
    assert targets.add_tagged(other, other.owner, "choir") == 1
    listed = Entry(1, gone.kind, gone.address, "", [], {})
    assert targets.add_listed(other, other.owner, [listed]) == 1
    gone.refresh_from_db()
    assert not gone.archived


def test_an_import_brings_back_whom_it_names():
    recipient = RecipientFactory.create(archived=True)
    assert targets.store_recipients([Entry(1, recipient.kind, recipient.address, "", [], {})], recipient.owner) == 0
    recipient.refresh_from_db()
    assert not recipient.archived


def test_an_account_in_use_is_not_archived():
    reminder = ReminderFactory.create(account__label="Line")
    further = AccountFactory.create(label="Second")
    reminder.set_further_senders([further])
    for account in (reminder.account, further):
        assert "is used by 1 reminder that is switched on" in corrections.archive_account(account, None, NOON).text
    Reminder.objects.update(enabled=False)
    run = RunFactory.create(reminder=reminder, status="waiting", targets={"pending": 1})
    assert "is sending for a run" in corrections.archive_account(run.account, None, NOON).text


HOUR = timedelta(hours=1)
case = pytest.param


def test_an_offload_moves_what_is_pending() -> None:
    run, helper = make(targets={"pending": 2, "sent": 1, "sending": 1}), AccountFactory.create(label="Ben")
    RunTarget.objects.filter(status="pending").update(next_attempt_at=NOW + HOUR)
    answer = corrections.offload(run, helper, None, NOW)
    assert answer.ok
    assert answer.text.startswith("2 targets moved to Ben: ")
    moved = run.targets.filter(account=helper)
    assert set(moved.values_list("status", "next_attempt_at")) == {("pending", None)}
    assert fresh(run).lanes == sorted([run.account_id, helper.pk]), "one is still in flight"
    assert log(run) == [("offloaded", "2 targets to Ben")]
    assert was_woken(run.account_id)
    assert was_woken(helper.pk)
    assert set(moved.exclude(planned_at=None).values_list("pk", flat=True)) == {target.pk for target in moved}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that has time for no chunk, and chunks of one target."""
    monkeypatch.setattr(corrections, "CHUNKS_FOR", 0.0)
    monkeypatch.setattr(transitions, "CHUNK", 1)


@pytest.mark.usefixtures("impatient")
def test_a_large_offload_answers_at_once_and_a_task_carries_it_to_its_end() -> None:
    run, helper = make("paused", targets={"pending": 3}), AccountFactory.create(label="Ben")
    answer = corrections.offload(run, helper, None, NOW, and_resume=True)
    assert (answer.ok, answer.text) == (True, "0 of 3 targets moved to Ben so far; the rest follows by itself.")
    assert OrmQ.objects.count() == 1
    under_way = Offload.objects.get()
    assert corrections._move_chunk(under_way, NOW) == ""  # and its process dies
    assert (fresh(run).status, str(Offload.objects.get())) == ("paused", "1 of 3 targets moved to Ben")
    assert sorted(fresh(run).lanes) == sorted([run.account_id, helper.pk])
    assert corrections.carry_on_offloads(NOW, 60)
    assert (fresh(run).status, fresh(run).lanes, Offload.objects.count()) == ("queued", [helper.pk], 0)
    assert run.targets.filter(account=helper).count() == 3
    assert log(run)[0] == ("offloaded", "3 targets to Ben")


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("after", ["cancel", "pause the other account", "offload elsewhere"])
def test_an_offload_under_way_ends_when_it_is_overtaken(after: str) -> None:
    run, helper, other = make("paused", targets={"pending": 3}), AccountFactory.create(), AccountFactory.create()
    corrections.offload(run, helper, None, NOW, and_resume=True)
    first = Offload.objects.select_related("run", "account").get()
    corrections._move_chunk(first, NOW)
    if after == "cancel":
        controls.cancel(fresh(run), None, NOW)
    elif after == "offload elsewhere":
        corrections.offload(fresh(run), other, None, NOW + HOUR)
    else:
        controls.pause_account(helper, None, NOW)
    assert not corrections.carry_on(first, NOW, 60).ok
    assert run.targets.filter(account=helper).count() == 1
    corrections.carry_on_offloads(NOW, 60)
    assert not Offload.objects.exists()
    assert fresh(run).status == ("canceled" if after == "cancel" else "paused")
    assert run.targets.filter(account=other).count() == (3 if after == "offload elsewhere" else 0)


def test_a_large_cancel_answers_at_once_and_sends_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transitions, "CHUNK", 1)
    monkeypatch.setattr(controls, "_skip_canceled", partial(controls._skip_canceled, seconds=0.0))
    run = make(targets={"pending": 3})
    answer = controls.cancel(run, None, NOW)
    assert (answer.ok, answer.text) == (True, "Canceled: 0 were sent, 3 will not be.")
    assert (fresh(run).status, fresh(run).pending, OrmQ.objects.count()) == ("canceled", 3, 1)
    monkeypatch.undo()
    assert (controls.sweep_canceled(NOW), fresh(run).pending, fresh(run).skipped) == (1, 0, 3)


@pytest.mark.parametrize(
    ("status", "and_resume", "after"),
    [("paused", True, "queued"), ("paused", False, "paused"), ("running", True, "running")],
)
def test_an_offloaded_run_goes_on_where_it_is_asked_to(status: str, and_resume: bool, after: str) -> None:
    run, helper = make(status, targets={"pending": 1}), AccountFactory.create()
    answer = corrections.offload(run, helper, None, NOW, and_resume)
    assert (answer.ok, fresh(run).status, fresh(run).lanes) == (True, after, [helper.pk])
    assert ("Resumed" in answer.text) is (after == "queued")


@pytest.mark.parametrize(
    ("status", "fields", "account", "says"),
    [
        *(case(status, {}, {}, "there is nothing to offload", id=status) for status in FINISHED),
        case("preparing", {}, {}, "still being prepared", id="preparing"),
        case("running", {"answers": True}, {}, "Message 2 comes from the account", id="message-2"),
        case("running", {}, {"channel": "smtp"}, "the run needs sandbox", id="another-channel"),
        case("running", {}, {"status": "paused"}, "choose an active account", id="not-active"),
    ],
)
def test_what_is_not_offloaded(status: str, fields: dict[str, Any], account: dict[str, Any], says: str) -> None:
    run = message_2(make("success"), status) if fields else make(status)
    if status not in FINISHED:
        RunTargetFactory.create(run=run)
    answer = corrections.offload(run, AccountFactory.create(**account), None, NOW)
    assert not answer.ok
    assert says in answer.text
    assert (fresh(run).lanes, log(run)) == ([run.account_id], [])


def test_what_may_have_gone_out_stays_and_is_said() -> None:
    run, helper = make(targets={"pending": 1}), AccountFactory.create(label="Ben")
    RunTargetFactory.create(run=run, in_doubt=True)
    answer = corrections.offload(run, helper, None, NOW)
    assert answer.text.endswith(" 1 may have been delivered already and stay where they are.")
    assert fresh(run).lanes == sorted([run.account_id, helper.pk])
    again = corrections.offload(run, helper, None, NOW)
    assert (again.ok, again.text) == (
        False,
        "There is nothing left to move. 1 may have been delivered already and stay where they are.",
    )


def test_chunk_after_chunk_is_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fanout.runs.transitions.CHUNK", 2)
    run, helper = make(targets={"pending": 4}), AccountFactory.create()
    assert corrections.offload(run, helper, None, NOW).text.startswith("4 targets moved")
    assert run.targets.filter(account=helper).count() == 4


def unconfirmed(run: Run, **fields: Any) -> RunTarget:
    facts = {"status": "unconfirmed", "claimed_at": NOW - HOUR, "claim_epoch": 1}
    target: RunTarget = RunTargetFactory.create(run=run, **facts | fields)
    return target


@pytest.mark.parametrize(
    ("delivered", "by_provider", "words"),
    [
        (True, False, "was delivered"),
        (False, False, "send again"),
        (True, True, "confirmed by the provider"),
        (False, True, "refused by the provider, send again"),
    ],
)
def test_whose_word_it_was(delivered: bool, by_provider: bool, words: str) -> None:
    run = make()
    target, beside = unconfirmed(run), unconfirmed(run)
    assert corrections.settle(run, [target.pk], delivered, None, NOW, by_provider).ok
    assert log(run)[0] == ("settled", f"1 × {words}")
    beside.refresh_from_db()
    assert beside.status == "unconfirmed"


def test_a_correction_that_another_task_has_ended_is_done() -> None:
    assert corrections._correct_chunk(0, NOW) is False


@pytest.mark.parametrize("status", ["sent", "pending", "failed"])
def test_what_is_settled_already_is_not_settled_again(status: str) -> None:
    run = make()
    target = RunTargetFactory.create(run=run, status=status)
    answer = corrections.settle(run, [target.pk], True, None, NOW)
    assert (answer.ok, answer.text) == (False, "These targets are no longer unconfirmed.")
    target.refresh_from_db()
    assert (target.status, log(run)) == (status, [])


def test_a_delivered_target_is_sent_and_counts_on_its_day() -> None:
    run = make("partial", targets={"sent": 1})
    person = RecipientFactory.create(kind="person", address="+60123456789")
    target = unconfirmed(run, recipient=person)
    Run.objects.filter(pk=run.pk).update(status="partial")
    answer = corrections.settle(fresh(run), [target.pk], True, None, NOW)
    assert (answer.ok, answer.text) == (True, "1 targets marked as delivered.")
    target.refresh_from_db()
    assert (target.status, target.parts_sent, target.settled_at, fresh(run).status) == ("sent", 1, NOW, "success")
    activity = Activity.objects.get()
    assert (activity.account, activity.run_target, activity.outcome) == (run.account, target, "sent")
    assert (activity.part, activity.at, activity.kind) == (0, NOW - HOUR, "settled")
    assert KnownChat.objects.get().begun_at == NOW - HOUR


@pytest.mark.parametrize(
    ("parts", "parts_sent", "after"),
    [case(2, 0, ("pending", 1), id="parts-to-come"), case(2, 1, ("sent", 2), id="the-last-part")],
)
def test_parts_that_are_still_to_come_are_sent(parts: int, parts_sent: int, after: tuple[str, int]) -> None:
    run = make(parts=[TEXT] * parts, targets={"sent": 1})
    target = unconfirmed(run, parts_sent=parts_sent)
    answer = corrections.settle(run, [target.pk], True, None, NOW)
    target.refresh_from_db()
    assert (target.status, target.parts_sent) == after
    assert answer.text == ("1 targets will be sent." if after[0] == "pending" else "1 targets marked as delivered.")


@pytest.mark.parametrize(
    ("status", "after", "says"),
    [
        case("running", ("running", "pending"), "1 targets will be sent.", id="going-on"),
        case("partial", ("queued", "pending"), "1 targets will be sent.", id="finished"),
        case("paused", ("paused", "pending"), "1 targets will be sent when the run is resumed.", id="paused"),
        case(
            "canceled", ("canceled", "skipped"), "settled; the run was canceled and sends nothing more", id="canceled"
        ),
    ],
)
def test_send_it_again(status: str, after: tuple[str, str], says: str) -> None:
    run = make("running", targets={"sent": 1})
    target = unconfirmed(run)
    reason = "operator" if status == "paused" else ""
    Run.objects.filter(pk=run.pk).update(status=status, pause_reason=reason, error_summary="before")
    answer = corrections.settle(fresh(run), [target.pk], False, None, NOW)
    target.refresh_from_db()
    assert answer.ok
    assert says in answer.text
    assert (fresh(run).status, target.status) == after
    assert fresh(run).error_summary != "before" or status in ("canceled", "running")
    assert not Activity.objects.exists()


def test_an_offload_to_another_channel_is_refused_and_moves_nothing() -> None:
    run = RunFactory.create(targets={"pending": 2}, status="running", scheduled_for=NOW)
    mail = AccountFactory.create(channel="smtp", owner=run.owner, label="Mail")
    answer = corrections.offload(run, mail, run.owner, NOW)
    assert (answer.ok, answer.text) == (False, "Mail is a smtp account, the run needs sandbox.")
    assert set(run.targets.values_list("account", flat=True)) == {run.account_id}
    assert not Event.objects.exists()
    assert not LaneState.objects.exists()


@pytest.mark.parametrize("status", ["success", "partial", "failed", "canceled", "skipped", "preparing"])
def test_a_run_that_does_not_send_is_not_offloaded(status: str) -> None:
    run = RunFactory.create(status=status, scheduled_for=NOW)
    other = AccountFactory.create(owner=run.owner)
    answer = corrections.offload(run, other, run.owner, NOW)
    assert not answer.ok
    assert Run.objects.get(pk=run.pk).lanes == [run.account_id]


def test_an_offload_with_nothing_to_move_is_not_done() -> None:
    run = RunFactory.create(targets={"sent": 1, "sending": 1}, status="running", scheduled_for=NOW)
    answer = corrections.offload(run, AccountFactory.create(owner=run.owner), run.owner, NOW)
    assert (answer.ok, answer.text) == (False, "There is nothing left to move.")
    assert Run.objects.get(pk=run.pk).lanes == [run.account_id]


def test_what_may_have_been_delivered_is_not_offloaded() -> None:
    run = RunFactory.create(targets={"pending": 1}, status="running", scheduled_for=NOW)
    doubtful = RunTargetFactory.create(run=run, in_doubt=True)
    other = AccountFactory.create(owner=run.owner)
    answer = corrections.offload(run, other, run.owner, NOW)
    assert answer.text.startswith(f"1 targets moved to {other.label}")
    assert answer.text.endswith(" 1 may have been delivered already and stay where they are.")
    doubtful.refresh_from_db()
    assert doubtful.account_id == run.account_id
