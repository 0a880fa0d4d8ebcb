"""Protection of accounts, on the real lane and virtual time, judged by the provider's book."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from accounts.channels.sandbox.script import Script
from accounts.models import Account, DailyLimit
from fanout.inbound import worker
from fanout.lanes.lane_rows import wake_lanes
from fanout.models import Activity, Event, LaneState, Notification, Run
from fanout.plans.plan import delay_reason, planned_time
from fanout.runs import controls
from tests.engine.stage import MONDAY, Stage, books_balance, fresh
from tests.factories import InboundEventFactory

MINUTE = timedelta(minutes=1)


def faults(stage: Stage, *rules: dict[str, Any], **settings: Any) -> None:
    stage.provider.set_script(Script({"*": {"latency_ms": [80, 200], "faults": list(rules), **settings}}))


def cap(account: Account, limit: int) -> None:
    DailyLimit.objects.update_or_create(account=account, action="message", defaults={"limit": limit})


# --- hours and caps -------------------------------------------------------------------------------------


def test_business_hours_inside_the_window_make_the_run_wait(stage: Stage) -> None:
    stage.tick = 5
    account = stage.account(hours_start=10, hours_end=12, send_days=[1, 2, 3, 4, 5])
    run = stage.fire(stage.reminder(account, groups=5))
    stage.play(30)
    assert fresh(run).status == Run.Status.WAITING
    assert run.waiting_until == MONDAY + timedelta(hours=1)
    stage.play()
    assert fresh(run).status == Run.Status.SUCCESS
    assert min(stage.times()) >= MONDAY + timedelta(hours=1)


def test_business_hours_after_the_window_pause_the_run(stage: Stage) -> None:
    account = stage.account(hours_start=20, hours_end=22)
    run = stage.fire(stage.reminder(account, groups=5))
    stage.play()
    assert fresh(run).status == Run.Status.PAUSED
    assert run.pause_reason == "account_hours"
    assert run.pending == 5
    assert run.error_summary.startswith("Outside the account's business hours. Sent to 0 of 5 groups")
    assert run.error_summary.endswith("Extend the account's business hours, or offload to another account.")


def test_a_run_that_its_business_hours_paused_goes_on_by_itself(stage: Stage) -> None:
    account = stage.account(hours_start=9, hours_end=10, max_send_per_minute=1)
    run = stage.fire(stage.reminder(account, groups=90, resume_after_limit=True))
    stage.play()
    assert (fresh(run).status, run.pause_reason) == (Run.Status.PAUSED, "account_hours")
    assert run.resume_at == MONDAY + timedelta(days=1)


def test_a_drip_goes_on_by_itself_over_many_days(stage: Stage) -> None:
    """Mon–Fri 9–12, 20 a day, 50 groups: Monday 20, Tuesday 20, Wednesday 10."""
    account = stage.account(hours_start=9, hours_end=12, send_days=[1, 2, 3, 4, 5], max_send_per_minute=60)
    cap(account, 20)
    run = stage.fire(stage.reminder(account, groups=50, resume_after_limit=True))
    for _ in range(4):
        stage.play()
        if fresh(run).status != Run.Status.PAUSED:
            break
        assert run.pause_reason == "account_capacity"
        assert run.resume_at is not None
        stage.now = run.resume_at
        assert controls.resume_due(stage.now) == 1
    assert fresh(run).status == Run.Status.SUCCESS
    days: dict[int, int] = {}
    for t in stage.times():
        days[t.day] = days.get(t.day, 0) + 1
        assert 9 <= t.hour < 12
    assert days == {5: 20, 6: 20, 7: 10}


def test_a_drip_skips_the_weekend(stage: Stage) -> None:
    stage.now = datetime(2026, 1, 9, 9, 0, tzinfo=UTC)  # a Friday
    account = stage.account(hours_start=9, hours_end=12, send_days=[1, 2, 3, 4, 5])
    cap(account, 3)
    run = stage.fire(stage.reminder(account, groups=5, resume_after_limit=True))
    stage.play()
    assert fresh(run).resume_at == datetime(2026, 1, 12, 9, 0, tzinfo=UTC)


def test_unconfirmed_targets_count_and_failures_do_not(stage: Stage) -> None:
    account = stage.account(bounce_rate_pause=1, circuit_breaker=1)
    cap(account, 6)
    faults(
        stage,
        {"match": {"first": 2}, "effect": "drop_after_accept"},
        {"match": {"first": 5}, "effect": "recipient_gone"},
    )
    run = stage.fire(stage.reminder(account, groups=20))
    stage.play()
    # Two unconfirmed and four delivered are six; the failures cost nothing.
    assert (fresh(run).unconfirmed, run.sent) == (2, 4)
    assert run.failed == 5
    assert run.status == Run.Status.PAUSED
    assert run.pause_reason == "account_capacity"
    assert len(stage.book.deliveries()) == 6


def test_a_cap_holds_over_two_drivers_and_crashes(stage: Stage) -> None:
    account = stage.account(max_send_per_minute=600)
    cap(account, 25)
    run = stage.fire(stage.reminder(account, groups=60))
    for _ in range(4):
        stage.play(0.7, crash=True, drivers=2)
    stage.play(drivers=2)
    assert fresh(run).status == Run.Status.PAUSED
    assert len(stage.book.deliveries()) <= 25
    assert run.sent + run.unconfirmed == 25
    assert books_balance(run)


def test_a_cap_lowered_below_what_was_sent_stops_at_once(stage: Stage) -> None:
    account = stage.account()
    cap(account, 100)
    run = stage.fire(stage.reminder(account, groups=60))
    stage.play(20)
    sent = len(stage.book.deliveries())
    cap(account, 5)
    wake_lanes([account.pk], stage.now)
    stage.play()
    assert len(stage.book.deliveries()) <= sent + 1
    assert fresh(run).pause_reason == "account_capacity"
    assert "Daily cap reached" in run.error_summary


def test_the_day_of_a_cap_is_the_accounts_own(stage: Stage) -> None:
    account = stage.account(timezone="Asia/Kuala_Lumpur")  # midnight there is 16:00 UTC
    cap(account, 4)
    stage.now = MONDAY.replace(hour=15, minute=50)
    run = stage.fire(stage.reminder(account, groups=8))
    stage.play()
    assert fresh(run).status == Run.Status.SUCCESS
    before = [t for t in stage.times() if t.hour < 16]
    assert len(before) == 4
    assert len(stage.times()) == 8


def test_warm_up_caps_the_first_days(stage: Stage) -> None:
    account = stage.account(warmup_started_on=MONDAY.date(), warmup_days=10, warmup_floor=5)
    cap(account, 100)
    run = stage.fire(stage.reminder(account, groups=20))
    stage.play()
    assert len(stage.book.deliveries()) == 5
    assert fresh(run).pause_reason == "account_capacity"


# --- planning -------------------------------------------------------------------------------------------


def test_every_target_is_planned_and_the_plan_is_kept(stage: Stage) -> None:
    run = stage.fire(stage.reminder(stage.account(), groups=40))
    planned = {t.pk: t.planned_at for t in run.targets.all()}
    assert all(planned.values())
    stage.play()
    assert len(planned) == len(stage.book.deliveries()) == 40
    for delivery in stage.book.deliveries():
        target = int(delivery.message_id.split("-")[1])
        at = datetime.fromtimestamp(delivery.t, UTC)
        assert abs(at - planned[target]) < timedelta(seconds=3)  # type: ignore[operator]


def test_a_rotation_takes_turns_and_each_account_keeps_its_pace(stage: Stage) -> None:
    a, b, c = (stage.account() for _ in range(3))
    reminder = stage.reminder(a, groups=60)
    reminder.set_further_senders([a, b, c])
    run = stage.fire(reminder)
    assert sorted(run.lanes) == sorted([a.pk, b.pk, c.pk])
    stage.play()
    assert fresh(run).status == Run.Status.SUCCESS
    assert [len(stage.book.deliveries(x.address)) for x in (a, b, c)] == [20, 20, 20]
    assert not stage.book.duplicates("to", "part")
    assert max(stage.book.peaks().values()) <= 43


def test_a_target_that_slips_is_planned_again_with_the_reason(stage: Stage) -> None:
    account = stage.account()
    run = stage.fire(stage.reminder(account, groups=60, resume_after_limit=True))
    stage.play(20)
    cap(account, 3)
    wake_lanes([account.pk], stage.now)
    stage.play()
    delayed = run.targets.filter(status="pending").first()
    assert delayed is not None
    assert planned_time(delayed, fresh(run)) == run.resume_at
    assert "Daily cap reached" in delay_reason(delayed, run)


# --- spacing --------------------------------------------------------------------------------------------


def test_gaps_and_batches(stage: Stage) -> None:
    account = stage.account(min_gap_seconds=2, max_gap_seconds=4, batch_size=5, batch_pause_seconds=30)
    run = stage.fire(stage.reminder(account, groups=12))
    stage.play()
    times = stage.times()
    gaps = [(b - a).total_seconds() for a, b in pairwise(times)]
    assert len(times) == 12
    assert min(gaps) >= 1.8  # provider latency differs by 120 ms
    assert gaps[4] >= 29
    assert gaps[9] >= 29
    assert fresh(run).status == Run.Status.SUCCESS


def test_cold_mail_gaps_park_the_lane_and_hold_no_worker(stage: Stage) -> None:
    stage.tick = 5
    account = stage.account(min_gap_seconds=300, max_gap_seconds=1200)
    run = stage.fire(stage.reminder(account, groups=4))
    stage.play(60)
    assert LaneState.objects.get(account=account).holder == ""
    stage.play()
    times = stage.times()
    gaps = [(b - a).total_seconds() for a, b in pairwise(times)]
    assert len(gaps) == 3
    assert all(299 <= gap <= 1202 + stage.tick for gap in gaps)  # a driver looks for due lanes once a tick
    assert fresh(run).status == Run.Status.SUCCESS


# --- retries --------------------------------------------------------------------------------------------


def test_messaging_retries_double_and_nothing_overtakes(stage: Stage) -> None:
    account = stage.account(retry_base_seconds=5, circuit_breaker=1)
    first = stage.reminder(account, groups=3)
    address = first.recipients.order_by("address")[0].address
    faults(stage, {"match": {"address": address, "first": 3}, "effect": "soft_bounce"})
    one = stage.fire(first)
    two = stage.fire(stage.reminder(account, groups=3), at=stage.now + timedelta(seconds=1))
    stage.play()
    assert fresh(one).status == fresh(two).status == Run.Status.SUCCESS
    refused = [r.t for r in stage.book.refused()]
    delays = [b - a for a, b in pairwise(refused)]
    assert [round(delay) for delay in delays] == [5, 10]
    of_run = dict(one.targets.values_list("pk", "run_id")) | dict(two.targets.values_list("pk", "run_id"))
    received = [of_run[int(d.message_id.split("-")[1])] for d in stage.book.deliveries() if d.to == address]
    assert received == [one.pk, two.pk]


def test_retries_give_up_after_three(stage: Stage) -> None:
    account = stage.account(retry_base_seconds=1, circuit_breaker=1)
    reminder = stage.reminder(account, groups=3)
    address = reminder.recipients.order_by("address")[0].address
    faults(stage, {"match": {"address": address}, "effect": "soft_bounce"})
    run = stage.fire(reminder)
    stage.play()
    assert fresh(run).status == Run.Status.PARTIAL
    assert len(stage.book.refused()) == 4


def test_retries_never_outlive_the_window(stage: Stage) -> None:
    stage.tick = 5
    account = stage.account(retry_base_seconds=3600, circuit_breaker=1)
    reminder = stage.reminder(account, groups=2, delivery_window_end_hour=10)
    address = reminder.recipients.order_by("address")[0].address
    faults(stage, {"match": {"address": address}, "effect": "soft_bounce"})
    stage.now = MONDAY + timedelta(minutes=30)
    run = stage.fire(reminder)
    stage.play()
    assert fresh(run).status == Run.Status.PAUSED
    assert run.pause_reason == "window_closed"
    assert (run.sent, run.pending) == (1, 1)


def test_a_rate_limit_holds_the_lane_and_slows_it_at_once(stage: Stage) -> None:
    account = stage.account()
    faults(stage, {"match": {"after_accepted": 5, "first": 1}, "effect": "rate_limited", "retry_after": 90})
    run = stage.fire(stage.reminder(account, groups=12))
    stage.play()
    assert fresh(run).status == Run.Status.SUCCESS
    refused = stage.book.refused()[0].t
    after = [d.t for d in stage.book.deliveries() if d.t > refused + 1]
    assert min(after) >= refused + 90 - 0.5
    gaps = [b - a for a, b in pairwise(after[3:])]
    assert len(gaps) == 3
    assert all(gap >= 2.0 for gap in gaps)  # 1.5 s and half of it, less the provider's jitter
    assert Activity.objects.filter(outcome="rate_limited").count() == 1
    assert LaneState.objects.get(account=account).slow_factor > 1


def test_a_device_offline_leaves_everything_pending_and_goes_on_by_itself(stage: Stage) -> None:
    faults(stage, {"match": {"between": [5, 100]}, "effect": "unavailable"})
    run = stage.fire(stage.reminder(stage.account(), groups=20))
    stage.play(60)
    assert fresh(run).status == Run.Status.WAITING
    assert "unavailable" in run.waiting_why
    stage.play()
    assert fresh(run).status == Run.Status.SUCCESS
    assert run.failed == 0
    assert len(stage.book.refused()) <= 8  # one try every 20 s


@pytest.mark.slow
def test_an_outage_marks_no_target_failed(stage: Stage) -> None:
    stage.tick = 5
    run = stage.fire(stage.reminder(stage.account(), groups=30))
    down = stage.now + timedelta(seconds=5)
    stage.play(
        1200,
        [
            (down, lambda now: setattr(stage.provider, "down", True)),
            (down + 10 * MINUTE, lambda now: setattr(stage.provider, "down", False)),
        ],
    )
    assert fresh(run).failed == 0
    assert run.status == Run.Status.SUCCESS


# --- slow-down and breaker ------------------------------------------------------------------------------


def test_the_breaker_pauses_tells_and_probes(stage: Stage) -> None:
    account = stage.account(max_send_per_minute=120, bounce_rate_pause=1)
    faults(stage, {"match": {"after_accepted": 15}, "effect": "content_rejected"})
    run = stage.fire(stage.reminder(account, groups=80))
    stage.play()
    assert fresh(run).status == Run.Status.PAUSED
    assert run.pause_reason == "circuit_breaker"
    assert run.pending > 30
    assert Notification.objects.filter(run=run, title="Reminder paused").exists()

    # Still broken: the probe is one message, and the run pauses again.
    tried = len(stage.book.refused())
    assert controls.resume(run, stage.user, stage.now).ok
    stage.play()
    assert fresh(run).pause_reason == "circuit_breaker"
    assert len(stage.book.refused()) == tried + 1

    # Mended: the probe goes through, and then the rest at full pace.
    faults(stage)
    assert controls.resume(run, stage.user, stage.now).ok
    stage.play()
    assert fresh(run).pending == 0
    assert not LaneState.objects.get(account=account).probing


def gone(*groups: int) -> list[dict[str, Any]]:
    return [{"match": {"address": f"{120363000000000000 + n}@g.us"}, "effect": "recipient_gone"} for n in groups]


@pytest.mark.parametrize(("effect", "before"), [("unavailable", 0), ("unavailable", 30), ("rate_limited", 30)])
def test_a_failure_after_a_mere_break_is_one_failure(stage: Stage, effect: str, before: int) -> None:
    """The device was offline for a moment, and the group after it is gone: that says nothing about the other 79."""
    account = stage.account(max_send_per_minute=120, group_concurrency=1)
    stage.fire(stage.reminder(account, groups=before, title="yesterday"))
    stage.play()
    faults(stage, {"match": {"first": 1}, "effect": effect}, *gone(100, 101))
    run = stage.fire(stage.reminder(account, groups=80, first=100))
    stage.play()
    assert (fresh(run).status, run.sent, run.failed) == (Run.Status.PARTIAL, 78, 2)
    assert len(stage.book.deliveries()) == before + 78


def test_a_break_of_one_run_is_no_trial_of_the_next(stage: Stage) -> None:
    """The operator pauses the run that met the break; the first group of the next one is gone."""
    account = stage.account(max_send_per_minute=120, group_concurrency=1)
    faults(stage, {"match": {"first": 1}, "effect": "unavailable"}, *gone(100))
    held = stage.fire(stage.reminder(account, groups=10))
    stage.play(5)
    assert controls.pause(held, stage.user, stage.now).ok
    run = stage.fire(stage.reminder(account, groups=30, first=100))
    stage.play()
    assert (fresh(run).status, run.sent, run.failed) == (Run.Status.PARTIAL, 29, 1)


def test_a_trial_that_meets_a_break_is_still_one(stage: Stage) -> None:
    """After the breaker one message must go through, also where its provider asks for a moment first."""
    account = stage.account(max_send_per_minute=120, bounce_rate_pause=1, group_concurrency=1)
    faults(stage, {"match": {"after_accepted": 15}, "effect": "content_rejected"})
    run = stage.fire(stage.reminder(account, groups=80))
    stage.play()
    assert fresh(run).pause_reason == "circuit_breaker"
    tried, refusing = len(stage.book.refused()), {"match": {"after_accepted": 15}, "effect": "content_rejected"}
    faults(stage, {"match": {"first": 1}, "effect": "unavailable"}, refusing)
    assert controls.resume(run, stage.user, stage.now).ok
    stage.play()
    assert fresh(run).pause_reason == "circuit_breaker"
    assert len(stage.book.refused()) == tried + 2


@pytest.mark.slow
def test_retries_of_one_run_do_not_blind_the_breaker_of_another(stage: Stage) -> None:
    """A has soft bounces that are tried again all the while; B, behind it, is always refused."""
    account = stage.account(max_send_per_minute=60, bounce_rate_pause=1, group_concurrency=1, retry_base_seconds=300)
    groups = [f"{120363000000000000 + n}@g.us" for n in range(1400)]
    bouncing = [{"match": {"address": to}, "effect": "soft_bounce"} for to in groups[14:300:15]]
    refused = [{"match": {"address": to}, "effect": "content_rejected"} for to in groups[1000:]]
    faults(stage, *bouncing, *refused)
    stage.fire(stage.reminder(account, groups=300, title="A"))
    run = stage.fire(stage.reminder(account, groups=400, first=1000, title="B"))
    stage.play()
    assert fresh(run).pause_reason == "circuit_breaker"
    assert (run.sent, run.failed) == (0, 20)
    assert "100% of the last sends failed" in run.error_summary


@pytest.mark.slow
def test_an_outage_between_two_runs_counts_for_neither(stage: Stage) -> None:
    """A's retry comes while B finds the provider gone: that A's own last message went through says nothing."""
    account = stage.account(max_send_per_minute=60, group_concurrency=1, retry_base_seconds=20)
    faults(stage, {"match": {"address": "120363000000000000@g.us", "first": 1}, "effect": "soft_bounce"})
    first = stage.fire(stage.reminder(account, groups=3, title="A"))
    second = stage.fire(stage.reminder(account, groups=60, first=100, title="B"))
    down = stage.now + timedelta(seconds=10)
    stage.play(
        900,
        [
            (down, lambda now: setattr(stage.provider, "down", True)),
            (down + 5 * MINUTE, lambda now: setattr(stage.provider, "down", False)),
        ],
    )
    assert (fresh(first).status, fresh(second).status) == (Run.Status.SUCCESS, Run.Status.SUCCESS)
    assert sorted({*first.targets.values_list("attempts", flat=True)}) == [1, 2]


@pytest.mark.slow
def test_errors_slow_the_lane_and_recovery_speeds_it_up_again(stage: Stage) -> None:
    account = stage.account(max_send_per_minute=60, send_burst=1, circuit_breaker=1)
    faults(stage, {"match": {"every": 8}, "effect": "recipient_gone"})
    run = stage.fire(stage.reminder(account, groups=60))
    stage.play()
    assert LaneState.objects.get(account=account).slow_factor == 1.5
    faults(stage)
    stage.fire(stage.reminder(account, groups=150, first=100))
    stage.play()
    assert LaneState.objects.get(account=account).slow_factor == 1.0
    assert fresh(run).status == Run.Status.PARTIAL


def test_messages_written_on_the_phone_are_taken_from_the_pace_and_the_day(stage: Stage) -> None:
    """Of a lane that is being driven: it has its pace in memory."""
    account = stage.account(max_send_per_minute=60, send_burst=1)
    cap(account, 20)
    run = stage.fire(stage.reminder(account, groups=30))

    def write(now: datetime) -> None:
        InboundEventFactory.create_batch(5, account=account, kind="written", happened_at=now)
        worker.step(now)

    stage.play(60, [(stage.now + timedelta(seconds=5.5), write)])

    times = sorted(stage.times())
    assert len(times) == 15
    assert max(later - earlier for earlier, later in pairwise(times)) >= timedelta(seconds=5)
    assert fresh(run).pending == 15


# --- account health -------------------------------------------------------------------------------------


def test_an_auth_failure_suspends_the_account_and_fails_no_target(stage: Stage) -> None:
    account = stage.account()
    faults(stage, {"match": {"after_accepted": 5}, "effect": "auth"})
    run = stage.fire(stage.reminder(account, groups=30))
    stage.play()
    account.refresh_from_db()
    assert account.status == "suspended"
    assert fresh(run).status == Run.Status.PAUSED
    assert run.pause_reason == "account_down"
    assert (run.failed, run.sent + run.pending) == (0, 30)
    assert Notification.objects.filter(account=account).exists()
    assert not controls.resume(run, stage.user, stage.now).ok

    faults(stage)
    assert controls.reactivate(account, stage.user, stage.now).ok
    assert Event.objects.filter(account=account, actor=stage.user, verb="reactivated").exists()
    assert controls.resume(run, stage.user, stage.now).ok
    stage.play()
    assert fresh(run).status == Run.Status.SUCCESS


def test_bounces_pause_the_account(stage: Stage) -> None:
    account = stage.account(circuit_breaker=1)
    faults(stage, {"match": {"every": 10}, "effect": "hard_bounce"})
    run = stage.fire(stage.reminder(account, groups=60))
    stage.play()
    account.refresh_from_db()
    assert account.status == "paused"
    assert "bounce rate" in account.status_reason
    assert fresh(run).pause_reason == "account_down"


def test_a_temporary_ban_ends_with_a_probe(stage: Stage) -> None:
    stage.tick = 5
    account = stage.account()
    faults(stage, {"match": {"after_accepted": 5, "first": 1}, "effect": "banned", "seconds": 1800})
    run = stage.fire(stage.reminder(account, groups=20))
    stage.play(60)
    account.refresh_from_db()
    assert account.status == "suspended"
    until = account.status_until
    assert until is not None
    assert fresh(run).status == Run.Status.WAITING
    stage.play()
    assert fresh(run).status == Run.Status.SUCCESS
    account.refresh_from_db()
    assert account.status == "active"
    refused = stage.book.refused()[0].t
    assert min(d.t for d in stage.book.deliveries() if d.t > refused + 1) >= until.timestamp()


def test_a_lane_that_fails_again_and_again_is_suspended_and_others_go_on(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = stage.account(), stage.account()
    sick = stage.fire(stage.reminder(bad, groups=5))
    well = stage.fire(stage.reminder(good, groups=5, first=50))
    monkeypatch.setattr("fanout.engine.dispatcher.Dispatcher.claim_and_send", _failing_for(bad.pk))
    stage.play()
    bad.refresh_from_db()
    assert bad.status == "suspended"
    assert bad.status_reason.startswith("Too many worker crashes (its lane failed 5 times in a row: ")
    assert fresh(sick).pause_reason == "account_down"
    assert fresh(well).status == Run.Status.SUCCESS


def _failing_for(account_id: int) -> Any:
    from fanout.engine.dispatcher import Dispatcher

    really = Dispatcher.claim_and_send

    async def claim_and_send(self: Dispatcher, *given: Any) -> None:
        if self.account_id == account_id:
            raise RuntimeError("nothing works")
        await really(self, *given)

    return claim_and_send
