"""Follow-ups that a reminder sends by itself, judged by the provider's book."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from accounts.access import NotYours
from accounts.channels.provider_events import EventKind
from accounts.channels.sandbox.script import Script
from fanout.models import Event, Run
from fanout.plans.agenda import agenda
from fanout.plans.audience import segment_members
from fanout.plans.follow_up_steps import step_moments, steps_of_runs
from fanout.rules.follow_up_limits import Limits, Prospect, not_by_itself
from fanout.runs import controls, corrections, firing, freezing, sequences
from reminders.models import FollowUpPart, Recipient, Reminder, ReminderMessage, Segment
from reminders.readiness import duplicate
from tests.channels.mail_server import wait_until
from tests.engine.stage import MONDAY, Stage, fresh
from tests.factories import UserFactory
from tests.inbound.people import phone, remind, say, stored

pytestmark = pytest.mark.django_db
DAY, HOUR = timedelta(days=1), timedelta(hours=1)


def with_follow_ups(stage: Stage, *days: int, people: int = 3, **fields: Any) -> Reminder:
    reminder = remind(stage, stage.account(), people, reply=(), **fields)
    reminder.follow_up_days = list(days)
    reminder.save(update_fields=["follow_up_days"])
    for step in range(1, len(days) + 1):
        FollowUpPart.objects.create(reminder=reminder, step=step, position=step - 1, text=f"Again {step}")
    return reminder


def days_later(stage: Stage, days: float) -> list[Run]:
    """Let so many days pass, make the follow-ups that are due then, and send them."""
    stage.now += timedelta(days=days)
    runs = sequences.fire_follow_ups(stage.now)
    stage.play()
    return runs


def got(stage: Stage) -> Counter[str]:
    """How many messages each address got, by the provider's book."""
    return Counter(delivery.to for delivery in stage.book.deliveries())


def test_those_who_do_not_reply_get_them_and_each_once(stage: Stage) -> None:
    reminder = with_follow_ups(stage, 2, 5)
    parent = stage.fire(reminder)
    stage.play()
    assert days_later(stage, 1) == []
    (first,) = days_later(stage, 1)
    assert (first.title, first.follow_up, first.follows, first.step) == ("Rent (follow-up 1)", True, parent, 1)
    assert [part["text"] for part in first.parts] == ["Again 1"]
    assert (fresh(first).status, fresh(first).sent) == ("success", 3)
    assert sequences.fire_follow_ups(stage.now) == [], "a second time makes nothing"
    say(reminder.account, 0, stage.now + HOUR)
    (second,) = days_later(stage, 3)
    assert fresh(second).total == 2
    assert got(stage) == {phone(0): 2, phone(1): 3, phone(2): 3}
    assert fresh(parent).next_step_at is None
    assert days_later(stage, 30) == []


def test_a_reply_takes_a_queued_one_out(stage: Stage) -> None:
    reminder = with_follow_ups(stage, 1)
    stage.fire(reminder)
    stage.play()
    stage.now += DAY
    (run,) = sequences.fire_follow_ups(stage.now)
    Run.objects.filter(pk=run.pk).update(created_at=stage.now)  # by the stage's clock
    say(reminder.account, 1, stage.now)
    stage.play()
    assert got(stage) == {phone(0): 2, phone(1): 1, phone(2): 2}
    assert fresh(run).skipped == 1


@pytest.mark.parametrize("how", ["retry failed", "send again"])
def test_a_failed_one_is_not_sent_again_after_a_reply(stage: Stage, how: str) -> None:
    reminder = with_follow_ups(stage, 1)
    stage.fire(reminder)
    stage.play()
    stage.now += DAY
    (run,) = sequences.fire_follow_ups(stage.now)
    stage.provider.set_script(Script({"*": {"faults": [{"effect": "content_rejected"}]}}))
    stage.play()
    assert got(stage).total() == 3
    stage.provider.set_script(Script())
    say(reminder.account, 1, stage.now)
    if how == "send again":
        run.targets.update(status="unconfirmed")
        corrections.settle(run, list(run.targets.values_list("pk", flat=True)), False, stage.user, stage.now)
    else:
        assert controls.retry_failed(run, stage.user, stage.now).ok
    stage.play()
    assert got(stage) == {phone(0): 2, phone(1): 1, phone(2): 2}
    assert run.targets.get(address=phone(1)).error == "the person has replied"


def test_one_that_fails_for_a_moment_is_not_tried_again_after_a_reply(stage: Stage) -> None:
    reminder = with_follow_ups(stage, 1, people=1)
    stage.fire(reminder)
    stage.play()
    stage.now += DAY
    (run,) = sequences.fire_follow_ups(stage.now)
    Run.objects.filter(pk=run.pk).update(created_at=stage.now)  # by the stage's clock
    fails_once = {"effect": "refused", "match": {"first": 1}}
    stage.provider.set_script(Script({"*": {"latency_ms": [3000, 3000], "faults": [fails_once]}}))
    under_way = []

    def reply(now: datetime) -> None:
        under_way.append(run.targets.get().status)
        say(reminder.account, 0, now)

    stage.play(happenings=[(stage.now + timedelta(seconds=2), reply)])
    assert under_way == ["sending"]
    assert run.targets.get().attempts == 1
    assert got(stage) == {phone(0): 1}


def test_a_reply_that_comes_while_it_is_being_made_counts(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reply finds no queued follow-up yet, because the copies are not committed; then it waits for the run."""
    reminder = with_follow_ups(stage, 1)
    stage.fire(reminder)
    stage.play()
    stage.now += DAY
    replies: list[Any] = []

    def reply() -> str:
        try:
            return say(reminder.account, 1, stage.now)
        finally:
            connection.close()

    def send_off(*args: Any) -> None:
        firing.send_off(*args)
        replies.append(pool.submit(reply))
        wait_until(lambda: replies[0].done() or waits_for_a_lock())

    with ThreadPoolExecutor(1) as pool:
        monkeypatch.setattr(sequences, "send_off", send_off)
        (run,) = sequences.fire_follow_ups(stage.now)
        assert "noted" in replies[0].result(30)
    assert fresh(run).pending == 3, "the reply did not see it"
    stage.play()
    assert got(stage) == {phone(0): 2, phone(1): 1, phone(2): 2}


def test_a_reply_between_two_parts_of_the_message_is_one_to_it(stage: Stage) -> None:
    """The claim of the last part is younger than the reply. Neither the forecast nor a segment counts the person."""
    reminder = with_follow_ups(stage, 1)
    ReminderMessage.objects.create(reminder=reminder, position=1, kind="text", text="And this")
    stage.provider.set_script(Script({"*": {"latency_ms": [3000, 3000]}}))
    parent = stage.fire(reminder)

    def reply(now: datetime) -> None:
        assert parent.targets.get(address=phone(0)).parts_sent == 1
        say(reminder.account, 0, now)

    stage.play(happenings=[(stage.now + timedelta(seconds=3.1), reply)])
    one = parent.targets.get(address=phone(0))
    assert one.replied_at is not None
    assert one.claimed_at is not None
    assert one.replied_at < one.claimed_at
    assert one.parts_sent == 2
    segment = Segment.objects.create(owner=stage.user, name="Silent", not_replied_to=reminder)
    assert set(segment_members(segment, stage.user, stage.now).values_list("address", flat=True)) == {
        phone(1),
        phone(2),
    }
    (planned,) = steps_of_runs([reminder.account_id], stage.now + DAY)
    assert planned.shares == {reminder.account_id: 2}
    (run,) = days_later(stage, 1)
    assert (run.total, got(stage)) == (2, {phone(0): 2, phone(1): 3, phone(2): 3})


@pytest.mark.parametrize(
    ("seconds", "fields", "counts"),
    [
        (0, {}, True),
        (-2 * 86_400, {}, False),
        (0, {"group": "120363040000000001@g.us"}, False),
        (0, {"kind": EventKind.AUTOMATIC}, False),
    ],
)
def test_a_reply_that_waits_for_the_inbound_worker_counts(
    stage: Stage, seconds: int, fields: dict[str, Any], counts: bool
) -> None:
    """Thousands may come at once."""
    reminder = with_follow_ups(stage, 1)
    stage.fire(reminder)
    stage.play()
    stage.now += DAY
    (run,) = sequences.fire_follow_ups(stage.now)
    stored(reminder.account, 1, stage.now + timedelta(seconds=seconds), came_at=stage.now, **fields)
    stage.play()
    assert got(stage) == {phone(0): 2, phone(1): 1 if counts else 2, phone(2): 2}
    assert run.targets.get(address=phone(1)).error == ("the person has replied" if counts else "")


def waits_for_a_lock() -> bool:
    with connection.cursor() as cursor:
        # Not the transaction's snapshot of the statistics.
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute(
            "SELECT EXISTS (SELECT FROM pg_stat_activity"
            " WHERE wait_event_type = 'Lock' AND datname = current_database())"
        )
        return bool(cursor.fetchone()[0])


@pytest.mark.parametrize("queued", [False, True])
def test_who_opts_out_between_the_message_and_the_follow_up_gets_none(stage: Stage, queued: bool) -> None:
    reminder = with_follow_ups(stage, 1)
    stage.fire(reminder)
    stage.play()
    stage.now += DAY
    runs = sequences.fire_follow_ups(stage.now) if queued else []
    say(reminder.account, 1, stage.now, "STOP")
    assert Recipient.objects.get(address=phone(1)).status == "opted_out"
    runs = runs or sequences.fire_follow_ups(stage.now)
    stage.play()
    assert got(stage) == {phone(0): 2, phone(1): 1, phone(2): 2}
    assert [fresh(run).sent for run in runs] == [2]


def test_everyone_has_replied(stage: Stage) -> None:
    reminder = with_follow_ups(stage, 2, people=1)
    parent = stage.fire(reminder)
    stage.play()
    say(reminder.account, 0, stage.now + HOUR)
    assert days_later(stage, 2) == []
    assert "everyone who got the message has replied" in Event.objects.get(run=parent, verb="no follow-up").detail


def test_attempts_and_cooldown_hold(stage: Stage) -> None:
    """The third follow-up without a reply begins the cooldown, in which a further one is refused."""
    stage.fire(with_follow_ups(stage, 1, 2, 3, people=1))
    stage.play()
    for _ in range(3):
        days_later(stage, 1)
    person = Recipient.objects.get(address=phone(0))
    assert (person.follow_up_attempts, person.status, person.limited) == (3, "not_interested", True)
    assert got(stage) == {phone(0): 4}


def test_the_queue_of_the_account_is_kept(stage: Stage, settings: Any) -> None:
    settings.BOT_QUEUE_MAX = 2
    stage.fire(with_follow_ups(stage, 1))
    stage.play()
    (run,) = days_later(stage, 1)
    assert list(run.targets.values_list("error", flat=True)).count("queue_full_2") == 1
    assert got(stage).total() == 5


@pytest.mark.parametrize(("hours", "why"), [(1, "active_chat_1h"), (23.5, "active_chat_24h"), (24, ""), (None, "")])
def test_who_is_in_a_conversation_gets_none(hours: float | None, why: str) -> None:
    replied = MONDAY - timedelta(hours=hours) if hours is not None else None
    assert not_by_itself(Prospect(replied_at=replied), Limits(), MONDAY) == why


def test_who_wrote_shortly_before_is_left_out(stage: Stage, settings: Any) -> None:
    settings.BOT_ACTIVE_CHAT_HOURS = 48
    reminder = with_follow_ups(stage, 1, people=2)
    say(reminder.account, 0, stage.now - HOUR)
    stage.fire(reminder)
    stage.play()
    (run,) = days_later(stage, 1)
    assert run.targets.get(address=phone(0)).error.startswith("active_chat_2")
    assert got(stage) == {phone(0): 1, phone(1): 2}


def test_the_same_account_writes_again(stage: Stage) -> None:
    reminder = with_follow_ups(stage, 1, people=4)
    reminder.set_further_senders([stage.account()])
    stage.fire(reminder)
    stage.play()
    days_later(stage, 1)
    senders = {(delivery.to, delivery.account) for delivery in stage.book.deliveries()}
    assert len(senders) == 4, "each person hears from one account"
    assert len({account for _, account in senders}) == 2


def test_who_got_the_message_shortly_before_is_left_to_the_next_one(stage: Stage) -> None:
    parent = stage.fire(with_follow_ups(stage, 1, 2, people=2))
    stage.play()
    parent.targets.filter(address=phone(1)).update(claimed_at=stage.now + 20 * HOUR)  # it was resumed in between
    days_later(stage, 1)
    assert got(stage) == {phone(0): 2, phone(1): 1}
    days_later(stage, 1)
    assert got(stage) == {phone(0): 3, phone(1): 2}


def test_later_edits_change_nothing_in_a_firing(stage: Stage) -> None:
    reminder = with_follow_ups(stage, 1)
    stage.fire(reminder)
    stage.play()
    FollowUpPart.objects.update(text="changed")
    (run,) = days_later(stage, 1)
    assert run.parts[0]["text"] == "Again 1"


@pytest.mark.parametrize("how", ["archived", "no days", "not shared"])
def test_what_stops_them(stage: Stage, how: str) -> None:
    reminder = with_follow_ups(stage, 1, 2)
    parent = stage.fire(reminder)
    stage.play()
    if how == "archived":
        assert corrections.archive_reminder(reminder, stage.user, stage.now).ok
    elif how == "no days":
        Reminder.objects.update(follow_up_days=[])
    else:
        Recipient.objects.update(owner=UserFactory.create())
    assert days_later(stage, 1) == []
    assert fresh(parent).next_step_at is None
    assert got(stage).total() == 3


def test_a_daily_reminder_and_its_follow_ups_have_different_moments(stage: Stage) -> None:
    reminder = with_follow_ups(stage, 1, people=1)
    stage.fire(reminder)
    stage.play()
    again = stage.fire(reminder, stage.now + DAY)
    (run,) = days_later(stage, 1)
    assert again.scheduled_for != run.scheduled_for
    assert got(stage) == {phone(0): 3}


def test_the_time_of_day_stays_when_the_clocks_change() -> None:
    at = datetime(2026, 3, 27, 8, tzinfo=UTC)  # 09:00 in Berlin, two days before the clocks go forward
    (moment,) = step_moments([{"days": 3}], at, "Europe/Berlin")
    assert moment == datetime(2026, 3, 30, 7, 0, 0, 1, tzinfo=UTC)


def test_firings_that_fall_together_when_the_clocks_change_keep_their_follow_ups(stage: Stage) -> None:
    """Two firings at 02:30, in summer time and in winter time, have follow-ups at the same moment of the next day."""
    stage.now = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    reminder = with_follow_ups(stage, 1, people=1, timezone="Europe/Berlin", delivery_window_start_hour=0)
    parents = []
    for _ in range(2):
        parents.append(stage.fire(reminder, stage.now))
        stage.play()
        stage.now = parents[-1].scheduled_for + HOUR
    assert [parent.scheduled_for.hour for parent in parents] == [0, 1]
    runs = days_later(stage, 1)
    assert {run.follows_id for run in runs} == {parent.pk for parent in parents}
    assert len({run.scheduled_for for run in runs}) == 2


def test_a_large_follow_up_is_prepared_in_chunks(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.fire(with_follow_ups(stage, 1, people=7))
    stage.play()
    monkeypatch.setattr(firing, "LARGE", 4)
    monkeypatch.setattr(freezing, "CHUNK", 2)
    (run,) = days_later(stage, 1)
    assert run.status == "preparing"
    assert freezing.prepare(run.pk, stage.now)
    stage.play()
    assert (fresh(run).status, got(stage).total()) == ("success", 14)


def test_the_calendar_counts_them(stage: Stage) -> None:
    reminder = with_follow_ups(stage, 2, 4)
    stage.fire(reminder)
    stage.play()
    Reminder.objects.update(enabled=True, next_fire_at=stage.now + DAY)
    days = [(stage.now + n * DAY).date() for n in range(7)]
    found = agenda(stage.user, days, "UTC", stage.now)
    titles = [[entry.title for entry in found.on(day) if entry.tone != "mute"] for day in days]
    steps = ["Rent (follow-up 1)", "Rent (follow-up 2)"]
    assert titles == [[], ["Rent"], steps[:1], steps[:1], steps[1:], steps[1:], []]
    assert found.cells[reminder.account_id, days[2]].planned == 3
    assert found.on(days[2])[0].words.startswith("at most, without a reply: fits")


def test_removed_ones_are_not_planned(stage: Stage) -> None:
    reminder = with_follow_ups(stage, 2)
    stage.fire(reminder)
    stage.play()
    day = (stage.now + 2 * DAY).date()
    assert len(agenda(stage.user, [day], "UTC", stage.now).on(day)) == 1
    Reminder.objects.update(follow_up_days=[])
    assert agenda(stage.user, [day], "UTC", stage.now).on(day) == []


def test_a_copy_has_them_too(stage: Stage) -> None:
    copy = duplicate(with_follow_ups(stage, 2), stage.user)
    assert (copy.follow_up_days, copy.follow_up_parts.get().text) == ([2], "Again 1")


# --- stopped by a person ------------------------------------------------------------------------------------


def test_a_person_stops_the_follow_ups(stage: Stage) -> None:
    parent = stage.fire(with_follow_ups(stage, 1, 2))
    stage.play()
    days_later(stage, 1)
    assert controls.stop_follow_ups(parent, stage.user, stage.now).text == "No further follow-ups are sent."
    assert days_later(stage, 10) == []
    assert set(got(stage).values()) == {2}
    assert (fresh(parent).status, fresh(parent).next_step_at) == ("success", None)
    assert Event.objects.get(run=parent, verb="follow-ups stopped").actor == stage.user
    assert not controls.stop_follow_ups(parent, stage.user, stage.now).ok


def test_one_that_is_going_out_is_canceled(stage: Stage) -> None:
    parent = stage.fire(with_follow_ups(stage, 1, 2))
    stage.play()
    stage.now += DAY
    (run,) = sequences.fire_follow_ups(stage.now)
    answer = controls.stop_follow_ups(parent, stage.user, stage.now)
    assert answer.text.endswith("Follow-up 1: Canceled: 0 were sent, 3 will not be.")
    stage.play()
    assert set(got(stage).values()) == {1}
    assert fresh(run).status == "canceled"


def test_only_who_may_act_on_the_run_stops_them(stage: Stage) -> None:
    parent = stage.fire(with_follow_ups(stage, 1))
    with pytest.raises(NotYours):
        controls.stop_follow_ups(parent, UserFactory.create(), stage.now)
    assert fresh(parent).next_step_at is not None
