"""Plans, cancels, moves and firings of many targets go in chunks, so that no step grows with the run."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from fanout.database import carry_out
from fanout.models import Event, LaneState, Run, RunTarget
from fanout.plans import plan
from fanout.plans.forecast import forecast_reminder, forecast_run
from fanout.rules.gates import Wait
from fanout.runs import controls, corrections, firing, freezing, transitions
from reminders.models import Recipient, Reminder, ReminderTarget
from tests.engine.stage import Stage, fresh

pytestmark = pytest.mark.django_db


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five are many here."""
    monkeypatch.setattr(firing, "LARGE", 4)
    monkeypatch.setattr(freezing, "CHUNK", 2)
    for name in ("SKIP_UNSTARTED", "SKIP_CANCELED"):
        monkeypatch.setattr(transitions, name, getattr(transitions, name).replace("LIMIT 5000", "LIMIT 2"))
    monkeypatch.setattr(transitions, "CHUNK", 2)


def prepare(stage: Stage, run: Run) -> None:
    assert freezing.unprepared() == [run.pk]
    assert freezing.prepare(run.pk, stage.now)


def test_a_large_run_is_prepared_in_chunks_and_then_goes_out(stage: Stage, small_chunks: None) -> None:
    run = stage.fire(stage.reminder(stage.account(), groups=7))
    assert (run.status, run.total) == ("preparing", 0)
    assert LaneState.objects.count() == 0
    prepare(stage, run)
    assert (fresh(run).status, run.total) == ("queued", 7)
    positions = list(run.targets.order_by("position").values_list("position", flat=True))
    assert positions == list(range(1, 8))
    assert all(run.targets.values_list("planned_at", flat=True))
    stage.play()
    assert fresh(run).status == Run.Status.SUCCESS
    assert len({d.to for d in stage.book.deliveries()}) == 7


def prepare_one_chunk(run: Run, now: datetime) -> None:
    """Prepare like a task whose time is over after one chunk."""
    with pytest.MonkeyPatch.context() as no_time:
        no_time.setattr(freezing, "WORK_FOR", 0.0)
        assert not freezing.prepare(run.pk, now)


def test_preparing_goes_on_after_the_last_chunk(stage: Stage, small_chunks: None) -> None:
    run = stage.fire(stage.reminder(stage.account(), groups=7))
    planned = [target.at for _, target in freezing.plan_targets(run, stage.now)]
    prepare_one_chunk(run, stage.now)
    assert fresh(run).total == 2
    assert freezing.prepare(run.pk, stage.now)
    assert fresh(run).total == 7
    assert list(run.targets.order_by("position").values_list("planned_at", flat=True)) == planned


def edit_after_the_first_chunk(monkeypatch: pytest.MonkeyPatch, edit: Callable[[], object]) -> None:
    really, chunks = freezing.prepare_chunk, []

    def prepare_chunk(*arguments: Any) -> bool:
        chunks.append(really(*arguments))
        if len(chunks) == 1:
            edit()
        return chunks[-1]

    monkeypatch.setattr(freezing, "prepare_chunk", prepare_chunk)


@pytest.mark.parametrize("within_one_task", [True, False], ids=["within one task", "between two tasks"])
def test_editing_a_reminder_while_its_run_is_prepared_loses_and_doubles_no_target(
    stage: Stage, small_chunks: None, monkeypatch: pytest.MonkeyPatch, within_one_task: bool
) -> None:
    reminder = stage.reminder(stage.account(send_burst=1), groups=9)
    run = stage.fire(reminder)
    stage.recipients(100, 2)
    early, late = Recipient.objects.order_by("-address")[:2]
    before = list(reminder.targets.values_list("recipient_id", flat=True))

    def edit() -> None:
        reminder.targets.filter(recipient_id__in=[before[1], before[4]]).delete()  # copied already, and not yet
        for n, target in enumerate(reminder.targets.order_by("-position")):  # the last come first
            target.position = n + 10
            target.save(update_fields=["position"])
        ReminderTarget.objects.create(reminder=reminder, recipient=early, position=0)
        ReminderTarget.objects.create(reminder=reminder, recipient=late, position=99)

    if within_one_task:
        edit_after_the_first_chunk(monkeypatch, edit)
        assert not freezing.prepare(run.pk, stage.now)  # two are new
    else:
        prepare_one_chunk(run, stage.now)
        edit()
    assert freezing.prepare(run.pk, stage.now)
    # Who was copied stays, as every frozen target does; who left before that is not in it.
    copied = list(run.targets.values_list("recipient_id", flat=True))
    assert sorted(copied) == sorted({*before, early.pk, late.pk} - {before[4]})
    moments = [at for at in run.targets.order_by("position").values_list("planned_at", flat=True) if at]
    assert len(moments) == 10
    assert moments == sorted(moments)
    assert (fresh(run).status, run.total) == ("queued", 10)


def test_the_plan_belongs_to_a_recipient_and_not_to_a_position(
    stage: Stage, small_chunks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a group would get the turn of a mailbox, whose account cannot reach it."""
    any_kind, mail = stage.account(), stage.account(channel="smtp", address="office@example.com")
    reminder = stage.reminder(any_kind, groups=6, subject="Rent")
    reminder.set_further_senders([mail])
    for n in range(6):
        person = Recipient.objects.create(owner=stage.user, kind="mailbox", address=f"p{n}@example.com")
        ReminderTarget.objects.create(reminder=reminder, recipient=person, position=n)
    run = stage.fire(reminder)
    edit_after_the_first_chunk(monkeypatch, reminder.targets.filter(position=2, recipient__kind="group").delete)
    assert freezing.prepare(run.pk, stage.now)
    assert (fresh(run).total, run.pending) == (11, 11)
    assert {t.recipient.kind for t in run.targets.filter(account=mail).select_related("recipient")} == {"mailbox"}
    assert run.lanes == sorted([any_kind.pk, mail.pk])


def test_a_canceled_run_is_prepared_no_further(stage: Stage, small_chunks: None) -> None:
    run = stage.fire(stage.reminder(stage.account(), groups=7))
    assert controls.cancel(run, stage.user, stage.now).ok
    assert freezing.prepare(run.pk, stage.now)
    assert (fresh(run).status, run.total) == ("canceled", 0)


def test_a_large_run_is_canceled_in_chunks(stage: Stage, small_chunks: None) -> None:
    run = stage.fire(stage.reminder(stage.account(), groups=7))
    prepare(stage, run)
    answer = controls.cancel(run, stage.user, stage.now)
    assert answer.text == "Canceled: 0 were sent, 7 will not be."
    assert (fresh(run).skipped, run.pending) == (7, 0)


def stopped(stage: Stage, status: str) -> Run:
    """A run of which no target was delivered."""
    run = stage.fire(stage.reminder(stage.account(), groups=5))
    prepare(stage, run)
    run.targets.update(status=status, claimed_at=stage.now, attempts=1)
    carry_out(transitions.finish(run.pk, stage.now))
    assert fresh(run).status == "failed"
    return run


def carry_on(now: datetime) -> None:
    assert corrections.carry_on_corrections(now, 60)


def test_many_failed_targets_are_retried_in_chunks(stage: Stage, small_chunks: None) -> None:
    run = stopped(stage, "failed")
    answer = controls.retry_failed(run, None, stage.now)
    assert (answer.ok, answer.text) == (True, "5 failed targets will be tried again, a few thousand at a time.")
    assert "0 of 5 targets corrected so far" in controls.retry_failed(run, None, stage.now).text
    assert corrections._correct_chunk(run.corrections.get().pk, stage.now)
    assert (fresh(run).pending, run.status) == (2, "queued")  # the first ones go out
    controls.pause(run, None, stage.now)
    carry_on(stage.now)
    assert (fresh(run).pending, run.status) == (5, "paused")  # not resumed against an operator's will
    controls.resume(run, None, stage.now)
    stage.play()
    assert (fresh(run).status, run.sent) == ("success", 5)
    assert Event.objects.filter(run=run, verb="retry failed", detail__startswith="5 targets").count() == 1


def test_what_fails_again_meanwhile_is_not_retried_twice(stage: Stage, small_chunks: None) -> None:
    run = stopped(stage, "failed")
    controls.retry_failed(run, None, stage.now)
    assert corrections._correct_chunk(run.corrections.get().pk, stage.now)
    run.targets.filter(status="pending").update(status="failed")
    carry_on(stage.now)
    assert (fresh(run).pending, run.failed) == (3, 2)


@pytest.mark.parametrize("delivered", [True, False])
def test_many_unconfirmed_targets_are_settled_in_chunks(stage: Stage, small_chunks: None, delivered: bool) -> None:
    run = stopped(stage, "unconfirmed")
    ids = list(run.targets.values_list("pk", flat=True))
    answer = corrections.settle(run, ids, delivered, None, stage.now)
    assert (answer.ok, fresh(run).unconfirmed) == (True, 5)
    carry_on(stage.now)
    assert fresh(run).unconfirmed == 0
    stage.play()
    assert (fresh(run).status, run.sent) == ("success", 5)
    assert len(stage.book.deliveries()) == (0 if delivered else 5)


def test_a_canceled_run_is_corrected_no_further(stage: Stage, small_chunks: None) -> None:
    run = stopped(stage, "failed")
    controls.retry_failed(run, None, stage.now)
    assert corrections._correct_chunk(run.corrections.get().pk, stage.now)
    controls.cancel(fresh(run), None, stage.now)
    carry_on(stage.now)
    assert (fresh(run).status, run.pending, run.failed, run.skipped) == ("canceled", 0, 3, 2)


def test_what_a_cancel_leaves_is_swept_up(stage: Stage) -> None:
    run = stage.fire(stage.reminder(stage.account(), groups=3))
    assert carry_out(transitions.cancel(run.pk, None, stage.now))
    assert fresh(run).pending == 3
    controls.sweep_canceled(stage.now)
    assert (fresh(run).skipped, run.pending) == (3, 0)


def test_a_large_run_that_never_started_fails_in_chunks(stage: Stage, small_chunks: None) -> None:
    run = stage.fire(stage.reminder(stage.account(hours_start=19, hours_end=20), groups=7))
    prepare(stage, run)
    Run.objects.filter(pk=run.pk).update(window_closes_at=stage.now)
    stage.play()
    assert (fresh(run).status, run.skipped) == ("failed", 7)


def test_the_plan_of_a_large_run_moves_with_one_row(stage: Stage) -> None:
    """A pause that writes every target stops all lanes of its driver for as long."""
    run = stage.fire(stage.reminder(stage.account(), groups=50))
    versions = set(run.targets.values_list("pk", flat=True))
    before = dict(RunTarget.objects.extra(select={"xmin": "xmin::text"}).values_list("pk", "xmin"))
    stage.play(10)
    controls.pause(run, stage.user, stage.now)
    after = dict(run.targets.filter(status="pending").extra(select={"xmin": "xmin::text"}).values_list("pk", "xmin"))
    assert after
    assert {pk: before[pk] for pk in after} == after
    assert versions == set(before)


# --- what may have gone out stays ---------------------------------------------------------------------------


def test_an_unanswered_send_is_not_offloaded(stage: Stage) -> None:
    """Its own account may repeat it under the same id; another one would send it a second time."""
    from tests.engine.test_protection import faults

    faults(stage, {"match": {"first": 2}, "effect": "drop_after_accept"}, recognises_repeats=True)
    config = {"recognises_repeats": True}
    one, two = stage.account(config=config), stage.account(config=config)
    run = stage.fire(stage.reminder(one, groups=6))
    stage.play(1.2)
    in_doubt = set(run.targets.filter(in_doubt=True, status="pending").values_list("address", flat=True))
    assert in_doubt
    answer = corrections.offload(run, two, stage.user, stage.now)
    assert f"{len(in_doubt)} may have been delivered already" in answer.text
    faults(stage, recognises_repeats=True)
    stage.play()
    assert fresh(run).sent == 6
    assert not stage.book.duplicates("to", "part")
    assert in_doubt.isdisjoint(d.to for d in stage.book.deliveries(two.address))


# --- races of operators -------------------------------------------------------------------------------------


def test_a_run_that_was_canceled_meanwhile_does_not_come_back_to_life(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = stage.fire(stage.reminder(stage.account(), groups=3))
    stage.play()
    run.targets.filter(position=1).update(status="failed", error_kind="soft_bounce")
    carry_out(transitions.rejudge(run.pk, stage.now))
    really = controls.reopen_targets

    def reopen_and_cancel(*arguments: Any) -> bool:
        was_finished = really(*arguments)
        carry_out(transitions.cancel(run.pk, None, stage.now))
        return was_finished

    monkeypatch.setattr(controls, "reopen_targets", reopen_and_cancel)
    answer = controls.retry_failed(fresh(run), stage.user, stage.now)
    assert not answer.ok
    assert fresh(run).status == Run.Status.CANCELED


# --- firing -------------------------------------------------------------------------------------------------


def test_a_reminder_that_was_disabled_meanwhile_does_not_fire(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (
        stage.reminder(stage.account(), groups=1, fire_at=stage.now, next_fire_at=stage.now) for _ in range(2)
    )
    really = firing.fire_if_due

    def fire_and_disable(pks: list[int], now: Any) -> list[Run]:
        Reminder.objects.filter(pk=second.pk).update(enabled=False)
        return really(pks, now)

    monkeypatch.setattr(firing, "fire_if_due", fire_and_disable)
    runs = firing.fire_due(stage.now)
    assert [run.reminder_id for run in runs] == [first.pk]
    second.refresh_from_db()
    assert second.next_fire_at == stage.now


@pytest.mark.parametrize(("cron", "days"), [("*/5 * * * *", 3), ("* * * * *", 40), ("0 9 * * 1", 400)])
def test_after_a_long_downtime_the_last_missed_firing_is_made_up_for(stage: Stage, cron: str, days: int) -> None:
    since = stage.now - timedelta(days=days)
    reminder = stage.reminder(
        stage.account(), groups=1, schedule="cron", cron=cron, delivery_window_start_hour=0, delivery_window_end_hour=24
    )
    Reminder.objects.filter(pk=reminder.pk).update(next_fire_at=since)
    runs = firing.fire_due(stage.now + timedelta(seconds=90))
    live = [run for run in runs if run.status != Run.Status.SKIPPED]
    made_up_for = min(run.scheduled_for for run in live)
    newest = max(run.scheduled_for for run in runs)
    assert newest - made_up_for <= timedelta(minutes=2)
    assert len(runs) <= firing.MISSED_AT_MOST + 3
    assert Event.objects.filter(verb="fired").count() == len(runs)


def test_a_cron_with_a_quiet_end_of_the_day_comes_to_its_last_missed_firing(stage: Stage) -> None:
    """Nothing fired in the last two hours: the look-back must not return to where it has been."""
    reminder = stage.reminder(stage.account(), groups=1, schedule="cron", cron="*/5 6-8 * * *")
    Reminder.objects.filter(pk=reminder.pk).update(next_fire_at=stage.now - timedelta(days=4))
    runs = firing.fire_due(stage.now.replace(hour=11, minute=30))
    assert [run.scheduled_for for run in runs if run.status != Run.Status.SKIPPED] == [
        stage.now.replace(hour=8, minute=55)
    ]


def test_planned_times_follow_in_sql_and_in_python(stage: Stage) -> None:
    from django.db import connection

    run = stage.fire(stage.reminder(stage.account(), groups=4))
    until = stage.now + timedelta(hours=3)
    carry_out(transitions.wait(run.pk, run.account_id, Wait(until, "hours"), stage.now))
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT t.id, {plan.PLANNED_AT} FROM fanout_runtarget t JOIN fanout_run r ON r.id = t.run_id ORDER BY t.id"
        )
        by_sql = dict(cursor.fetchall())
    run.refresh_from_db()
    assert by_sql == {target.pk: plan.planned_time(target, run) for target in run.targets.all()}
    assert min(by_sql.values()) == until


def test_what_is_being_prepared_is_owed_already(stage: Stage, small_chunks: None) -> None:
    """Through two senders that take turns, one of which has no target of it yet; with and without a first chunk."""
    first, second = (stage.account(max_send_per_minute=10, send_burst=1) for _ in range(2))
    reminder = stage.reminder(first, groups=40)
    reminder.set_further_senders([second])
    run = stage.fire(reminder)
    for chunks in range(2):
        assert run.status == Run.Status.PREPARING
        known = forecast_run(run, stage.now)
        assert (known.left, known.ends_at and known.ends_at > stage.now + timedelta(minutes=1.8)) == (40, True)
        behind = forecast_reminder(stage.reminder(second, groups=4, first=100 * (chunks + 1)), stage.now)
        assert behind.starts_at == stage.now + timedelta(minutes=2)
        assert behind.in_front == (run.pk,)
        prepare_one_chunk(run, stage.now)
        fresh(run)
    freezing.prepare(run.pk, stage.now)
    assert forecast_run(fresh(run), stage.now).ends_at == known.ends_at


def test_the_new_chats_of_a_run_that_is_being_prepared_count(stage: Stage, small_chunks: None) -> None:
    account = stage.account(new_chats_per_day=5)
    reminder = stage.reminder(account, groups=2)
    for n in range(8):
        person = Recipient.objects.create(owner=stage.user, kind="person", address=f"+4915112345{n:03}")
        ReminderTarget.objects.create(reminder=reminder, recipient=person, position=10 + n)
    known = forecast_run(stage.fire(reminder), stage.now)
    assert (known.left, known.fits_count) == (10, 7)
