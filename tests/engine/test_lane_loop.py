"""The acceptance list of the fan-out engine, on virtual time, judged by the provider's book."""

from __future__ import annotations

from collections import deque
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from accounts.channels.sandbox.script import Script
from accounts.models import Account
from fanout.engine.clock import VirtualClock
from fanout.engine.driver import Driver
from fanout.engine.lane_loop import FIRST_TARGETS, Lane, _merged
from fanout.engine.loading import LaneRun, TargetQueue
from fanout.lanes.lane_rows import wake_lanes
from fanout.models import Event, LaneState, MediaUpload, Notification, Run, RunTarget
from fanout.rules.gates import RunFacts
from fanout.rules.pace import PaceSettings
from fanout.runs import controls, corrections, self_test
from reminders.models import Suppression
from tests.engine.stage import MONDAY, Stage, books_balance, fresh
from tests.engine.test_protection import faults

MINUTE = timedelta(minutes=1)


def minutes(run: Run) -> float:
    assert run.finished_at is not None
    return (run.finished_at - run.scheduled_for) / MINUTE


def test_a_run_is_delivered_once_to_every_recipient(stage: Stage) -> None:
    run = stage.fire(stage.reminder(stage.account(), groups=50))
    stage.play()
    assert fresh(run).status == Run.Status.SUCCESS
    assert len(stage.book.deliveries()) == 50
    assert not stage.book.duplicates("to", "part")
    assert stage.book.peak() <= 43
    assert books_balance(run)
    assert Notification.objects.get(run=run).title == "Reminder sent"


def test_parts_of_a_target_go_out_in_order_and_never_overtake(stage: Stage) -> None:
    run = stage.fire(stage.reminder(stage.account(max_send_per_minute=600), groups=20, parts=("text", "image", "text")))
    stage.play()
    assert fresh(run).status == Run.Status.SUCCESS
    by_recipient: dict[str, list[tuple[float, int]]] = {}
    for delivery in stage.book.deliveries():
        by_recipient.setdefault(delivery.to, []).append((delivery.t, delivery.part))
    assert len(by_recipient) == 20
    for received in by_recipient.values():
        assert [part for _, part in received] == [0, 1, 2]
        gaps = [b[0] - a[0] for a, b in pairwise(received)]
        assert min(gaps) >= 0.2
    assert len(stage.book.uploads()) == 1
    assert len({d.t for d in stage.book.deliveries()}) > 20


def test_media_is_uploaded_once_across_runs(stage: Stage) -> None:
    account = stage.account(max_send_per_minute=600)
    reminder = stage.reminder(account, groups=5, parts=("image",))
    for _ in range(2):
        run = stage.fire(reminder)
        stage.play()
        assert fresh(run).status == Run.Status.SUCCESS
    assert len(stage.book.uploads()) == 1
    assert MediaUpload.objects.count() == 1


def test_a_failed_upload_pauses_and_burns_nothing(stage: Stage) -> None:
    stage.provider.set_script(Script({"*": {"faults": [{"on": "media", "match": {}, "effect": "content_rejected"}]}}))
    run = stage.fire(stage.reminder(stage.account(), groups=5, parts=("image",)))
    stage.play()
    assert fresh(run).status == Run.Status.PAUSED
    assert run.pause_reason == "media"
    assert run.pending == 5
    assert "picture.png" in run.error_summary
    assert not stage.book.deliveries()


def test_two_accounts_progress_at_once(stage: Stage) -> None:
    a, b = stage.account(), stage.account()
    stage.fire(stage.reminder(a, groups=40))
    stage.fire(stage.reminder(b, groups=40, first=100))
    stage.play(30)
    assert len(stage.book.deliveries(a.address)) >= 15
    assert len(stage.book.deliveries(b.address)) >= 15


def test_two_reminders_on_one_account_take_turns(stage: Stage) -> None:
    account = stage.account(max_send_per_minute=60)
    first = stage.fire(stage.reminder(account, groups=30))
    second = stage.fire(stage.reminder(account, groups=30), at=stage.now + timedelta(seconds=1))
    stage.play()
    assert fresh(first).status == fresh(second).status == Run.Status.SUCCESS
    by_run = {t.pk: t.run_id for t in RunTarget.objects.all()}
    order = [by_run[int(d.message_id.split("-")[1])] for d in stage.book.deliveries()]
    # One of the second may be on its way while the last of the first are: pace holds over both.
    assert order[:28] == [first.pk] * 28
    assert stage.book.peak() <= 63


def test_a_test_goes_ahead_of_a_run_that_is_going_on(stage: Stage) -> None:
    reminder = stage.reminder(stage.account(max_send_per_minute=60), groups=60)
    run = stage.fire(reminder)
    me, at = "120363999999999999@g.us", stage.now + timedelta(seconds=10)
    stage.play(120, [(at, lambda now: self_test.send_test(reminder, me, stage.user, now))])
    order = [delivery.to for delivery in stage.book.deliveries()]
    assert order.index(me) < 20
    assert fresh(run).status == Run.Status.SUCCESS
    assert stage.book.peak() <= 63


def test_a_test_adds_to_the_sample_of_the_run_that_it_interrupts(stage: Stage) -> None:
    """A run is judged by its own outcomes, and those before the test are among them."""
    account = stage.account(max_send_per_minute=60)
    reminder = stage.reminder(account, groups=8)
    run = stage.fire(reminder)
    me, at = "120363999999999999@g.us", stage.now + timedelta(seconds=3)
    stage.play(120, [(at, lambda now: self_test.send_test(reminder, me, stage.user, now))])
    lane = LaneState.objects.get(account=account)
    assert (lane.sample_run, len(lane.sample)) == (run.pk, 9)


def test_window_closes_midway_then_resume_pause_again_and_success(stage: Stage) -> None:
    reminder = stage.reminder(stage.account(), groups=100, delivery_window_end_hour=10)
    stage.now = MONDAY + timedelta(minutes=59)
    run = stage.fire(reminder)
    stage.play()
    close = MONDAY + timedelta(hours=1)
    assert fresh(run).status == Run.Status.PAUSED
    assert run.pause_reason == "window_closed"
    assert all(t < close for t in stage.times())
    sent = len(stage.book.deliveries())
    assert 0 < sent < 100
    assert (run.sent, run.pending, run.total) == (sent, 100 - sent, 100)
    assert run.error_summary.startswith(
        f"Delivery window closed at 10:00 (UTC). Sent to {sent} of 100 groups, {100 - sent} still pending."
    )
    assert "Resume from the Activity tab." in run.error_summary
    assert "It started 1 min before the window closed" in run.error_summary
    note = Notification.objects.get(run=run)
    assert (note.title, note.body) == (
        "Reminder paused",
        f"Sent to {sent} of 100 groups. Resume from the Activity tab. Rent: delivery window closed.",
    )

    # The next morning, just before the window closes again.
    stage.now = MONDAY + timedelta(days=1, minutes=59)
    assert controls.resume(run, stage.user, stage.now).ok
    stage.play()
    again = len(stage.book.deliveries())
    assert fresh(run).status == Run.Status.PAUSED
    assert sent < again < 100
    assert f"Sent to {again} of 100 groups" in run.error_summary

    stage.now = MONDAY + timedelta(days=2)
    assert controls.resume(run, stage.user, stage.now).ok
    stage.play()
    assert fresh(run).status == Run.Status.SUCCESS
    assert len(stage.book.deliveries()) == 100
    assert not stage.book.duplicates("to", "part")


def test_resume_with_failures_ends_partial(stage: Stage) -> None:
    stage.provider.set_script(Script({"*": {"faults": [{"match": {"first": 2}, "effect": "hard_bounce"}]}}))
    account = stage.account(bounce_rate_pause=1)
    reminder = stage.reminder(account, groups=60, delivery_window_end_hour=10)
    stage.now = MONDAY + timedelta(minutes=59)
    run = stage.fire(reminder)
    stage.play()
    assert fresh(run).status == Run.Status.PAUSED
    assert run.failed == 2
    stage.now = MONDAY + timedelta(days=1)
    controls.resume(run, stage.user, stage.now)
    stage.play()
    assert fresh(run).status == Run.Status.PARTIAL
    assert (run.sent, run.failed) == (58, 2)
    assert Suppression.objects.count() == 2


def test_fired_after_the_close_fails_with_everything_skipped(stage: Stage) -> None:
    reminder = stage.reminder(stage.account(), groups=7, delivery_window_end_hour=8)
    run = stage.fire(reminder)
    stage.play()
    assert fresh(run).status == Run.Status.FAILED
    assert run.skipped == 7
    assert set(run.targets.values_list("error", flat=True)) == {"delivery window closed"}
    assert not controls.resume(run, stage.user, stage.now).ok
    assert not stage.book.deliveries()


def test_resume_outside_the_window_stays_paused_and_says_when_it_opens(stage: Stage) -> None:
    reminder = stage.reminder(stage.account(), groups=50, delivery_window_end_hour=10)
    stage.now = MONDAY + timedelta(minutes=59, seconds=30)
    run = stage.fire(reminder)
    stage.play()
    sent = fresh(run).sent
    done = controls.resume(run, stage.user, MONDAY + timedelta(hours=3))
    assert not done.ok
    assert "opens Tue 06 Jan 06:00 (UTC)" in done.text
    stage.play()
    assert fresh(run).status == Run.Status.PAUSED
    assert len(stage.book.deliveries()) == sent


def test_fired_before_the_window_opens_waits_and_goes_on_by_itself(stage: Stage) -> None:
    stage.tick = 15
    reminder = stage.reminder(stage.account(), groups=5, delivery_window_start_hour=10)
    run = stage.fire(reminder)
    stage.play(60)
    assert fresh(run).status == Run.Status.WAITING
    stage.play()
    assert fresh(run).status == Run.Status.SUCCESS
    assert min(stage.times()) >= MONDAY + timedelta(hours=1)


def test_pause_takes_effect_at_once_and_resume_sends_only_the_rest(stage: Stage) -> None:
    run = stage.fire(stage.reminder(stage.account(max_send_per_minute=120), groups=60))
    at = stage.now + timedelta(seconds=10)
    stage.play(20, [(at, lambda now: controls.pause(run, stage.user, now))])
    assert fresh(run).status == Run.Status.PAUSED
    assert max(stage.times()) <= at + timedelta(seconds=2)
    assert run.sending == 0
    assert books_balance(run)
    controls.resume(run, stage.user, stage.now)
    stage.play()
    assert fresh(run).status == Run.Status.SUCCESS
    assert len(stage.book.deliveries()) == 60


def test_cancel_skips_the_rest(stage: Stage) -> None:
    run = stage.fire(stage.reminder(stage.account(), groups=60))
    at = stage.now + timedelta(seconds=10)
    stage.play(20, [(at, lambda now: controls.cancel(run, stage.user, now))])
    assert fresh(run).status == Run.Status.CANCELED
    assert run.sent == len(stage.book.deliveries())
    assert run.sent + run.skipped == 60


def test_offload_moves_the_rest_to_another_account(stage: Stage) -> None:
    a, b = stage.account(), stage.account()
    run = stage.fire(stage.reminder(a, groups=40))
    at = stage.now + timedelta(seconds=10)
    stage.play(None, [(at, lambda now: corrections.offload(run, b, stage.user, now))])
    assert fresh(run).status == Run.Status.SUCCESS
    assert len(stage.book.deliveries(b.address)) >= 25
    assert len(stage.book.deliveries()) == 40
    assert not stage.book.duplicates("to", "part")


def test_unconfirmed_is_settled_only_by_the_operator(stage: Stage) -> None:
    fault = {"match": {"first": 2}, "effect": "drop_after_accept"}
    stage.provider.set_script(Script({"*": {"faults": [fault]}}))
    run = stage.fire(stage.reminder(stage.account(), groups=5))
    stage.play()
    assert fresh(run).status == Run.Status.PARTIAL
    assert run.unconfirmed == 2
    first, second = run.targets.filter(status="unconfirmed")
    assert corrections.settle(run, [first.pk], True, stage.user, stage.now).ok
    assert fresh(run).sent == 4
    assert corrections.settle(run, [second.pk], False, stage.user, stage.now).ok
    stage.play()
    assert fresh(run).status == Run.Status.SUCCESS
    assert books_balance(run)


def test_retry_failed_is_asked_for(stage: Stage) -> None:
    stage.provider.set_script(Script({"*": {"faults": [{"match": {"first": 3}, "effect": "recipient_gone"}]}}))
    run = stage.fire(stage.reminder(stage.account(), groups=30))
    stage.play()
    assert fresh(run).status == Run.Status.PARTIAL
    stage.provider.set_script(Script({}))
    assert controls.retry_failed(run, stage.user, stage.now).ok
    stage.play()
    assert fresh(run).status == Run.Status.SUCCESS


def test_a_group_where_the_account_may_not_write_is_skipped_with_the_reason(stage: Stage) -> None:
    stage.provider.set_script(Script({"*": {"faults": [{"match": {"every": 2}, "effect": "not_writable"}]}}))
    run = stage.fire(stage.reminder(stage.account(), groups=40))

    stage.play()

    # Half of them: a breaker that took them for failures would have paused the run.
    assert fresh(run).status == Run.Status.PARTIAL
    assert (run.sent, run.skipped, run.failed) == (20, 20, 0)
    assert set(run.targets.filter(status="skipped").values_list("error", flat=True)) == {
        "Only admins write in this group"
    }
    assert books_balance(run)


def test_auto_resume_goes_on_at_the_next_opening(stage: Stage) -> None:
    reminder = stage.reminder(stage.account(), groups=60, delivery_window_end_hour=10, auto_resume=True)
    stage.now = MONDAY + timedelta(minutes=59)
    run = stage.fire(reminder)
    stage.play()
    assert fresh(run).status == Run.Status.PAUSED
    assert run.resume_at == MONDAY.replace(hour=6) + timedelta(days=1)
    stage.now = run.resume_at
    assert controls.resume_due(stage.now) == 1
    stage.play()
    assert fresh(run).status == Run.Status.SUCCESS


@pytest.mark.slow
def test_a_widened_window_holds_for_its_day_only(stage: Stage) -> None:
    reminder = stage.reminder(stage.account(), groups=200, delivery_window_end_hour=10, auto_resume=True)
    stage.now = MONDAY + timedelta(minutes=59)
    run = stage.fire(reminder)
    stage.play()
    stage.now = MONDAY.replace(hour=10, minute=58)
    assert controls.widen(run, 11, stage.user, stage.now).ok
    stage.play()
    assert (fresh(run).status, run.pause_reason) == ("paused", "window_closed")
    assert run.error_summary.startswith("Delivery window closed at 11:00 (UTC).")
    assert MONDAY.replace(hour=10, minute=59) < max(stage.times()) < MONDAY.replace(hour=11)
    # The second day has the run's own hours again.
    tuesday = MONDAY + timedelta(days=1)
    assert run.resume_at == tuesday.replace(hour=6)
    stage.now = tuesday.replace(hour=9, minute=59)
    assert controls.resume_due(stage.now) == 1
    stage.play()
    assert fresh(run).error_summary.startswith("Delivery window closed at 10:00 (UTC).")
    assert max(stage.times()) < tuesday.replace(hour=10)
    assert not controls.resume(run, stage.user, tuesday.replace(hour=10, minute=30)).ok


def test_a_widened_run_that_was_paused_goes_on_until_its_later_hour(stage: Stage) -> None:
    run = stage.fire(stage.reminder(stage.account(), groups=60, delivery_window_end_hour=10))
    stage.play(10)
    assert controls.pause(run, stage.user, stage.now).ok
    stage.play()
    stage.now = MONDAY.replace(hour=10, minute=30)
    assert controls.widen(run, 12, stage.user, stage.now).ok
    assert controls.pause(run, stage.user, stage.now).ok
    assert controls.resume(run, stage.user, stage.now).ok
    assert fresh(run).window_closes_at == MONDAY.replace(hour=12)
    stage.play()
    assert fresh(run).status == Run.Status.SUCCESS


@pytest.mark.parametrize(
    ("status", "at", "says"),
    [
        pytest.param("suspended", MONDAY.replace(hour=10, minute=30), "reactivate it", id="account-down"),
        pytest.param("active", MONDAY.replace(hour=5), "opens Mon 05 Jan 06:00 (UTC)", id="before-the-opening"),
    ],
)
def test_a_window_that_would_not_help_is_not_widened(stage: Stage, status: str, at: datetime, says: str) -> None:
    account = stage.account()
    run = stage.fire(stage.reminder(account, delivery_window_end_hour=10))
    assert controls.pause(run, stage.user, stage.now).ok
    Account.objects.update(status=status)
    answer = controls.widen(run, 12, stage.user, at)
    assert (answer.ok, fresh(run).window_closes_at) == (False, MONDAY.replace(hour=10))
    assert says in answer.text


@pytest.mark.slow
def test_at_full_pace_98_percent_of_what_is_permitted_is_used(stage: Stage) -> None:
    stage.fire(stage.reminder(stage.account(), groups=650))
    stage.tick = 2
    stage.play(15 * 60)
    within = [t for t in stage.times() if t < MONDAY + timedelta(minutes=15)]
    assert 0.98 * (40 * 15 + 3) <= len(within) <= 40 * 15 + 3
    assert stage.book.peak() <= 43


@pytest.mark.slow
@pytest.mark.parametrize(
    ("groups", "parts", "low", "high"),
    [
        pytest.param(400, ("image",), 9.9, 12, id="captioned image"),
        pytest.param(100, ("text", "image"), 4.9, 5.7, id="two parts"),
    ],
)
def test_many_groups(stage: Stage, groups: int, parts: tuple[str, ...], low: float, high: float) -> None:
    stage.tick = 2
    run = stage.fire(stage.reminder(stage.account(), groups=groups, parts=parts))
    stage.play()
    assert fresh(run).status == Run.Status.SUCCESS
    assert low <= minutes(run) <= high
    assert len(stage.book.uploads()) == 1
    assert stage.book.peak() <= 43


def test_up_front_reads_do_not_depend_on_the_number_of_targets(stage: Stage) -> None:
    reads = []
    for groups in (10, 400):
        stage.reads.clear()
        run = stage.fire(stage.reminder(stage.account(), groups=groups, first=groups * 10))
        stage.play(0.4)
        reads.append(len(stage.reads))
        controls.cancel(run, stage.user, stage.now)
        stage.play(3)
    assert reads[0] == reads[1] <= 12


def test_the_timeline_names_actor_and_action(stage: Stage) -> None:
    run = stage.fire(stage.reminder(stage.account(), groups=60))
    stage.play(5)
    controls.pause(run, stage.user, stage.now)
    controls.resume(run, stage.user, stage.now)
    controls.cancel(run, stage.user, stage.now)
    verbs = list(Event.objects.filter(run=run, actor=stage.user).values_list("verb", flat=True))
    assert verbs == ["fired", "paused", "resumed", "canceled"]


def test_a_lane_is_taken_ahead_and_sends_in_the_second_it_is_due(stage: Stage) -> None:
    """Thousands that are due in the same second would else begin one after the other."""
    stage.tick = 2
    due = stage.now + timedelta(seconds=21)
    stage.fire(stage.reminder(stage.account(), groups=1), at=due)
    stage.play(30)
    (at,) = stage.times()
    assert timedelta(0) <= at - due < timedelta(seconds=0.5)


@pytest.mark.parametrize(
    ("due", "soon", "taken"),
    [
        pytest.param(0, 8, 4, id="half of the places stay free"),
        pytest.param(3, 8, 4, id="what is due comes first"),
        pytest.param(6, 8, 6, id="no place for what is not due"),
        pytest.param(0, 2, 2, id="few"),
    ],
)
def test_lanes_taken_ahead_keep_no_place_from_others(stage: Stage, due: int, soon: int, taken: int) -> None:
    driver = Driver(VirtualClock(MONDAY), stage.open_ledger, stage.transport, capacity=8, slice_seconds=40)
    rows = [{"due_at": MONDAY}] * due + [{"due_at": MONDAY + timedelta(seconds=2)}] * soon
    assert len(driver._within_room(rows, MONDAY)) == taken


NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)


def lane_run(pk: int, **fields: Any) -> LaneRun:
    facts = RunFacts(NOW, NOW + timedelta(hours=3))
    return LaneRun(pk, "running", "message", 1, NOW, facts, [], attempted=True, **fields)


def test_a_run_that_is_under_way_keeps_its_targets_and_is_otherwise_as_the_database_says() -> None:
    targets: deque[Any] = deque(["a target"])
    kept = lane_run(1, queue=TargetQueue(targets, dry_until=NOW), over=True)
    later = RunFacts(NOW, NOW + timedelta(hours=9))
    read = lane_run(1)
    read.status, read.facts = "waiting", later
    merged = _merged(kept, read)
    assert merged is kept
    assert (merged.queue.buffer, merged.status, merged.facts) == (targets, "waiting", later)
    assert (merged.queue.dry_until, merged.over) == (None, False)
    assert _merged(None, read) is read


@pytest.mark.parametrize(
    ("per_minute", "fetched", "targets"),
    [
        (0, False, FIRST_TARGETS),
        (0, True, 500),
        (40, True, 20),
        (600, False, FIRST_TARGETS),
        (600, True, 300),
        (6000, True, 500),
        (3, False, 10),
        (3, True, 10),
    ],
)
def test_a_run_begins_with_a_few_targets_and_then_reads_half_a_minutes_worth(
    per_minute: int, fetched: bool, targets: int
) -> None:
    run = lane_run(1, queue=TargetQueue(fetched=fetched))
    lane: Any = SimpleNamespace(account=SimpleNamespace(pace_settings=PaceSettings(per_minute=per_minute)))
    assert Lane._chunk(lane, run) == targets


def test_a_lane_that_reads_again_keeps_its_sample_and_sends_as_before(stage: Stage) -> None:
    run = stage.fire(stage.reminder(stage.account(max_send_per_minute=60), groups=20))
    stage.play(60, [(stage.now + timedelta(seconds=8), lambda now: wake_lanes([run.account_id], now))])
    lane = LaneState.objects.get()
    assert (lane.sample, lane.probing) == ("." * 20, False)
    assert len(stage.book.deliveries()) == 20


def test_a_final_failure_with_nothing_left_to_fetch_ends_the_run(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    run = stage.fire(stage.reminder(stage.account(max_send_per_minute=0, group_concurrency=3), groups=3))
    gone = run.targets.order_by("position")[1].address
    faults = [{"match": {"address": gone}, "effect": "recipient_gone"}]
    stage.provider.set_script(Script({"*": {"latency_ms": [80, 200], "faults": faults}}))
    stage.play(60)
    assert sorted(run.targets.values_list("status", flat=True)) == ["failed", "sent", "sent"]
    assert fresh(run).status == "partial"
    assert "a lane failed" not in caplog.text


SLOW = [900, 1000]


def test_a_break_between_two_parts_does_not_stall_the_lane(stage: Stage) -> None:
    fault = {"match": {"after_accepted": 2, "first": 1}, "effect": "unavailable", "retry_after": 3}
    faults(stage, fault, latency_ms=[80, 900])
    stage.fire(stage.reminder(stage.account(), groups=20, parts=("text", "text")))
    stage.play(39)
    assert len(stage.book.deliveries()) > 15


def test_a_paused_run_gives_its_places_to_the_next(stage: Stage) -> None:
    account = stage.account(max_send_per_minute=600)
    faults(stage, latency_ms=SLOW)
    one = stage.fire(stage.reminder(account, groups=50, parts=("text", "text")))
    two = stage.fire(stage.reminder(account, groups=20, first=200), at=stage.now + timedelta(seconds=1))
    at = stage.now + timedelta(seconds=3)
    stage.play(38, [(at, lambda now: controls.pause(one, stage.user, now))])
    ids = set(two.targets.values_list("pk", flat=True))
    began = min(d.t for d in stage.book.deliveries() if int(d.message_id.split("-")[1]) in ids)
    assert began - at.timestamp() < 5


def test_a_clock_set_back_does_not_stop_the_lane(stage: Stage) -> None:
    account = stage.account()
    run = stage.fire(stage.reminder(account, groups=10))
    stage.play(4)
    LaneState.objects.filter(account=account).update(theoretical_arrival=stage.now + timedelta(days=1))
    stage.play(60)
    assert fresh(run).status == Run.Status.SUCCESS
