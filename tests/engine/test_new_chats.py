"""New chats on the real lane and virtual time: the hold after a refusal, and the budget of a day. By the provider's
book: addresses that end in 7 are people whom the provider lets nobody approach."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accounts.channels.sandbox.script import Script
from accounts.models import Account
from fanout.lanes import chats
from fanout.lanes.account_state import new_chats_now
from fanout.models import Event, KnownChat, LaneState, Run, RunTarget
from fanout.runs import controls, corrections
from fanout.runs.why import why_account, why_run
from reminders.models import Recipient, Reminder, ReminderTarget
from tests.engine.stage import MONDAY, Stage, books_balance, fresh

HOUR = timedelta(hours=1)


def stranger(n: int) -> str:
    return f"+49176{n:07d}7"


def acquaintance(n: int) -> str:
    return f"+49152{n:07d}8"


def refuse_strangers(stage: Stage, **fault: Any) -> None:
    fault = {"match": {"suffix": "7"}, "effect": "new_chats_blocked"} | fault
    stage.provider.set_script(Script({"*": {"latency_ms": [80, 200], "faults": [fault]}}))


def let_strangers_in(stage: Stage) -> None:
    stage.provider.set_script(Script({"*": {"latency_ms": [80, 200]}}))


def reminder_to(stage: Stage, account: Account, addresses: list[str], groups: int = 0, **fields: Any) -> Reminder:
    """The people first, then groups."""
    reminder = stage.reminder(account, groups=groups, **fields)
    people = Recipient.objects.bulk_create(
        Recipient(owner=stage.user, kind="person", address=address) for address in addresses
    )
    ReminderTarget.objects.filter(reminder=reminder).update(position=len(people))
    ReminderTarget.objects.bulk_create(
        ReminderTarget(reminder=reminder, recipient=person, position=n) for n, person in enumerate(people)
    )
    return reminder


def know(account: Account, *addresses: str) -> None:
    KnownChat.objects.bulk_create(KnownChat(account=account, address=address) for address in addresses)


def tried(stage: Stage) -> list[str]:
    return [refusal.to for refusal in stage.book.refused("new_chats_blocked")]


def reached(stage: Stage) -> set[str]:
    return {delivery.to for delivery in stage.book.deliveries()}


def state(account: Account) -> LaneState:
    return LaneState.objects.get(account=account)


# --- the hold ---------------------------------------------------------------------------------------------


@pytest.fixture
def line(stage: Stage) -> Account:
    return stage.account(max_send_per_minute=60, group_concurrency=3)


def test_after_a_refusal_only_those_in_flight_are_tried_and_groups_and_known_chats_go_on(
    stage: Stage, line: Account
) -> None:
    refuse_strangers(stage)
    friends = [acquaintance(n) for n in range(10)]
    know(line, *friends)
    strangers = [stranger(n) for n in range(30)]
    run = stage.fire(reminder_to(stage, line, [*strangers, *friends], groups=10))
    stage.play(300)
    assert len(tried(stage)) <= 3
    assert len(reached(stage)) == 20
    assert fresh(run).status == Run.Status.WAITING
    assert run.pending == 30
    lane = state(line)
    assert lane.holder == ""  # no driver holds it
    assert lane.new_chats_after is not None
    assert lane.due_at == lane.new_chats_after == run.waiting_until
    words = "No new chats for now: This account may not start new chats; next send"
    assert why_run(run, stage.now).text.startswith(words)
    assert why_account(line, stage.now).text.startswith(words)
    assert why_run(run, stage.now).next_send_at == lane.new_chats_after
    assert Event.objects.filter(account=line, verb="new chats held").count() == 1


def test_the_hold_ends_and_one_stranger_goes_first(stage: Stage, line: Account) -> None:
    refuse_strangers(stage)
    run = stage.fire(reminder_to(stage, line, [stranger(n) for n in range(9)]))
    stage.play(60)
    first = len(tried(stage))
    let_strangers_in(stage)
    stage.tick = 30
    stage.play()
    assert fresh(run).status == Run.Status.SUCCESS
    assert len(tried(stage)) == first
    times = stage.times()
    assert times[0] >= MONDAY + HOUR
    assert state(line).new_chat_refusals == 0
    assert books_balance(run)


def test_a_second_refusal_holds_twice_as_long_and_costs_one_stranger(stage: Stage, line: Account) -> None:
    refuse_strangers(stage)
    stage.tick = 30
    stage.fire(reminder_to(stage, line, [stranger(n) for n in range(9)]))
    stage.play(60)
    first, until = len(tried(stage)), state(line).new_chats_after
    assert until is not None
    stage.play((until - stage.now).total_seconds() + 60)
    lane = state(line)
    assert len(tried(stage)) == first + 1
    assert lane.new_chat_refusals == 2
    assert lane.new_chats_after is not None
    assert timedelta(hours=2) <= lane.new_chats_after - until < timedelta(hours=2, minutes=1)


def test_the_hold_outlives_a_crash(stage: Stage, line: Account) -> None:
    refuse_strangers(stage)
    stage.fire(reminder_to(stage, line, [stranger(n) for n in range(30)], groups=200))
    stage.play(20, crash=True)
    before = len(tried(stage))
    assert 1 <= before <= 3
    stage.play(60)
    assert len(tried(stage)) == before


def test_a_hold_that_the_lane_has_not_seen_stops_the_claim(stage: Stage, line: Account) -> None:
    """Written by another session, without waking the lane: only the claim itself can know."""
    until = MONDAY + timedelta(hours=2)

    def hold(now: datetime) -> None:
        LaneState.objects.filter(account=line).update(
            new_chats_after=until, new_chats_why="said so", new_chat_refusals=1
        )

    stage.fire(reminder_to(stage, line, [stranger(n) for n in range(60)], groups=10))
    at = MONDAY + timedelta(seconds=10)
    stage.play(120, [(at, hold)])
    late = [d for d in stage.book.deliveries() if d.t > at.timestamp() + 1]
    assert {d.to for d in late if d.to.endswith("@g.us")} == {d.to for d in late}
    assert len(late) == 10


def test_a_person_who_writes_is_no_stranger_any_more(stage: Stage, line: Account) -> None:
    refuse_strangers(stage, match={"suffix": "7", "first": 3})
    run = stage.fire(reminder_to(stage, line, [stranger(n) for n in range(9)]))
    stage.play(60)
    held = set(fresh(run).targets.filter(status="pending", next_attempt_at=None).values_list("address", flat=True))
    writer = sorted(held)[0]
    stage.play(60, [(stage.now, lambda now: chats.note_message_from(line.pk, writer, now, now))])
    assert reached(stage) == {writer}
    assert KnownChat.objects.get(account=line, address=writer).begun_at is None


def test_a_hold_beyond_the_window_pauses_the_run_with_the_cause(stage: Stage, line: Account) -> None:
    refuse_strangers(stage)
    reminder = reminder_to(stage, line, [stranger(n) for n in range(9)], groups=4, delivery_window_end_hour=10)
    run = stage.fire(reminder, MONDAY)
    stage.play(300)
    assert fresh(run).status == Run.Status.PAUSED
    assert run.pause_reason == "account_capacity"
    assert "No new chats for now" in run.error_summary
    assert run.pending == 9
    line_of_run = why_run(run, stage.now)
    assert line_of_run.text.startswith("No new chats for now")
    assert line_of_run.text.endswith("once resumed")


def test_strangers_do_not_wait_for_another_retry(stage: Stage, line: Account) -> None:
    """The provider refuses a known chat too, and asks for longer there."""
    friend = acquaintance(1)
    know(line, friend)
    strangers = {"match": {"suffix": "7", "first": 1}, "effect": "new_chats_blocked", "retry_after": 600}
    friends = {"match": {"suffix": "8", "first": 1}, "effect": "new_chats_blocked", "retry_after": 7200}
    stage.provider.set_script(Script({"*": {"latency_ms": [80, 200], "faults": [strangers, friends]}}))
    stage.tick = 30
    stage.fire(reminder_to(stage, line, [stranger(1), friend]))
    stage.play(1200)
    assert reached(stage) == {stranger(1)}


def test_another_run_to_known_people_goes_on(stage: Stage, line: Account) -> None:
    refuse_strangers(stage)
    stage.fire(reminder_to(stage, line, [stranger(n) for n in range(9)]))
    other = stage.fire(stage.reminder(line, groups=20))
    stage.play(60)
    assert fresh(other).status == Run.Status.SUCCESS


# --- the budget -------------------------------------------------------------------------------------------


def test_a_day_has_its_budget_and_the_next_day_another(stage: Stage) -> None:
    stage.tick = 30
    account = stage.account(max_send_per_minute=60, new_chats_per_day=5)
    run = stage.fire(reminder_to(stage, account, [stranger(n) for n in range(12)], groups=10, resume_after_limit=True))
    stage.play()
    assert fresh(run).status == Run.Status.PAUSED
    assert "New chats today: 5 of 5" in run.error_summary
    assert len(reached(stage)) == 15
    assert run.resume_at == MONDAY + timedelta(hours=21)  # midnight, in a window of 0–18
    for _ in range(2):
        controls.resume_due(stage.now + timedelta(days=1))
        stage.now = stage.now + timedelta(days=1)
        stage.play()
    assert fresh(run).status == Run.Status.SUCCESS
    days = [t.date() for t in stage.times()]
    assert [days.count(day) for day in sorted(set(days))] == [15, 5, 2]


def test_the_second_message_to_a_person_costs_no_budget(stage: Stage) -> None:
    account = stage.account(max_send_per_minute=60, new_chats_per_day=5)
    people = [stranger(n) for n in range(5)]
    stage.fire(reminder_to(stage, account, people, parts=("text", "text")))
    stage.play()
    again = stage.reminder(account, groups=0)
    ReminderTarget.objects.bulk_create(
        ReminderTarget(reminder=again, recipient=person) for person in Recipient.objects.filter(kind="person")
    )
    run = stage.fire(again)
    stage.play()
    assert fresh(run).status == Run.Status.SUCCESS
    assert len(stage.book.deliveries()) == 15


def test_a_budget_of_nothing_begins_no_chat(stage: Stage) -> None:
    account = stage.account(new_chats_per_day=0)
    run = stage.fire(reminder_to(stage, account, [stranger(1)], groups=3))
    stage.play()
    assert fresh(run).status == Run.Status.PAUSED
    assert len(reached(stage)) == 3


def test_an_unconfirmed_message_counts_and_one_settled_as_delivered_is_known(stage: Stage) -> None:
    stage.provider.set_script(Script({"*": {"faults": [{"effect": "drop_after_accept", "match": {"first": 1}}]}}))
    account = stage.account(max_send_per_minute=60, new_chats_per_day=2, circuit_breaker=1)
    run = stage.fire(reminder_to(stage, account, [stranger(n) for n in range(5)]))
    stage.play()
    assert len(reached(stage)) == 2
    unconfirmed = RunTarget.objects.get(run=run, status="unconfirmed")
    corrections.settle(run, {unconfirmed.pk}, True, stage.user, stage.now)
    assert KnownChat.objects.filter(
        account=account, address=unconfirmed.address, begun_at=unconfirmed.claimed_at
    ).exists()
    account.refresh_from_db()
    assert new_chats_now(account, stage.now).begun == 2


@pytest.mark.slow
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    budget=st.integers(0, 8),
    concurrency=st.integers(1, 5),
    crashes=st.lists(st.floats(0.2, 6), max_size=4),
    errors=st.sampled_from([0.0, 0.3]),
)
def test_never_more_strangers_a_day_than_the_budget_despite_crashes(
    stage: Stage, budget: int, concurrency: int, crashes: list[float], errors: float
) -> None:
    fault = {"match": {"probability": errors, "seed": 1}, "effect": "soft_bounce"}
    stage.provider.set_script(Script({"*": {"latency_ms": [80, 900], "faults": [fault]}}))
    account = stage.account(
        max_send_per_minute=0, group_concurrency=concurrency, new_chats_per_day=budget, circuit_breaker=1
    )
    run = stage.fire(reminder_to(stage, account, [stranger(n) for n in range(20)], groups=5))
    for seconds in crashes:
        stage.play(seconds, crash=True)
    stage.play(60)
    days: dict[Any, set[str]] = {}
    for delivery in stage.book.deliveries(account.address):
        if not delivery.to.endswith("@g.us"):
            days.setdefault(datetime.fromtimestamp(delivery.t, UTC).date(), set()).add(delivery.to)
    assert bool(days) == bool(budget)
    assert all(len(people) <= budget for people in days.values())
    assert books_balance(run)
    _leave(stage)


def _leave(stage: Stage) -> None:
    """The next example begins with an empty list of recipients."""
    RunTarget.objects.all().delete()
    Run.objects.all().delete()
    Reminder.objects.all().delete()
    Recipient.objects.all().delete()
    LaneState.objects.update(due_at=None)
