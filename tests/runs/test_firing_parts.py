"""When a reminder becomes a run, who is in it, and what hygiene takes out again: case by case."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fanout.models import Event, LaneState, Run, RunTarget, Tally
from fanout.plans.plan import Planned
from fanout.plans.queue import uncopied
from fanout.runs import firing, freezing, hygiene
from fanout.runs.freezing import admitted, note_refused, reasons_in_words
from reminders.models import Recipient, Reminder
from tests.factories import (
    AccountFactory,
    MediaFileFactory,
    RecipientFactory,
    ReminderFactory,
    ReminderTargetFactory,
    RunFactory,
    RunTargetFactory,
    SuppressionFactory,
)

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)  # a Monday
HOUR, MINUTE, SECOND = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)
case = pytest.param


def due(at: datetime | None = NOW, **fields: Any) -> Reminder:
    made: Reminder = ReminderFactory.create(**{"targets": 1, "next_fire_at": at, "timezone": "UTC"} | fields)
    return made


# --- what is due ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "fields", "fires"),
    [
        case(NOW, {}, True, id="now"),
        case(NOW + firing.AHEAD, {}, True, id="within-the-minute"),
        case(NOW + firing.AHEAD + SECOND, {}, False, id="later"),
        case(None, {}, False, id="never"),
        case(NOW, {"enabled": False}, False, id="disabled"),
    ],
)
@pytest.mark.parametrize("asked", ["listed", "locked"])
def test_which_reminders_fire(at: datetime | None, fields: dict[str, Any], fires: bool, asked: str) -> None:
    reminder, beside = due(at, **fields), due(NOW + HOUR)
    runs = firing.fire_due(NOW) if asked == "listed" else firing.fire_if_due([reminder.pk], NOW)
    assert [(run.reminder_id, run.scheduled_for) for run in runs] == ([(reminder.pk, at)] if fires else [])
    reminder.refresh_from_db()
    beside.refresh_from_db()
    assert (reminder.next_fire_at, beside.next_fire_at) == (None if fires else at, NOW + HOUR)
    assert LaneState.objects.filter(account=reminder.account_id, due_at=at).exists() is fires


@pytest.mark.parametrize(
    ("ago", "skipped"),
    [case(MINUTE, 0, id="on-time"), case(MINUTE + SECOND, 0, id="one-missed"), case(3 * MINUTE, 1, id="two-missed")],
)
def test_of_missed_firings_the_last_is_made_up_for(ago: timedelta, skipped: int) -> None:
    due(NOW - ago, schedule="cron", cron="* * * * *")
    runs = firing.fire_due(NOW)
    assert [run.status for run in runs[:skipped]] == ["skipped"] * skipped
    assert {run.status for run in runs[skipped:]} == {"queued"}
    for run in runs[:skipped]:
        assert (run.finished_at, run.pending) == (NOW, 0)
        assert "a later firing" in Event.objects.get(run=run, verb="fired").detail


def test_lanes_are_due_for_the_first_of_their_moments() -> None:
    together = firing.Together()
    together.note_due([1, 2], NOW)
    together.note_due([2, 3], NOW - HOUR)
    together.note_due([1], NOW + HOUR)
    assert together.due == {1: NOW, 2: NOW - HOUR, 3: NOW - HOUR}


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        case({}, "", id="fine"),
        case({"targets": 0}, "The reminder has no targets.", id="nobody"),
        case({"parts": ()}, "The reminder has no message.", id="nothing"),
        case({"status": "paused"}, "The account Ann is paused.", id="down"),
        case({"status": "paused", "status_reason": "why"}, "The account Ann is paused: why.", id="down-with-a-reason"),
    ],
)
def test_why_a_firing_is_skipped(fields: dict[str, Any], why: str) -> None:
    state = {name: fields.pop(name) for name in ("status", "status_reason") if name in fields}
    reminder = due(account=AccountFactory.create(label="Ann", **state), **fields)
    assert firing.reason_to_skip(reminder) == why
    run = firing.make_run(reminder, NOW, NOW)
    assert run is not None
    assert (run.status, run.error_summary) == (("skipped", why) if why else ("queued", ""))
    assert firing.make_run(reminder, NOW, NOW) is None


def test_one_active_sender_is_enough() -> None:
    reminder = due(account=AccountFactory.create(status="paused"))
    reminder.set_further_senders([AccountFactory.create(owner=reminder.owner)])
    assert firing.reason_to_skip(reminder) == ""


@pytest.mark.parametrize(("ends", "status"), [(9, "failed"), (10, "queued")], ids=["just closed", "still open"])
def test_a_window_that_is_over_fails_at_once(ends: int, status: str) -> None:
    reminder = due(delivery_window_start_hour=6, delivery_window_end_hour=ends)
    run = firing.make_run(reminder, NOW.replace(hour=8), NOW)
    assert run is not None
    assert (run.status, run.skipped) == (status, int(status == "failed"))
    assert LaneState.objects.exists() is (status == "queued")


def test_a_large_run_is_only_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(firing, "LARGE", 1)
    for targets, status in ((1, "queued"), (2, "preparing")):
        run = firing.make_run(due(targets=targets), NOW, NOW)
        assert run is not None
        assert (run.status, run.total) == (status, 1 if status == "queued" else 0)


@pytest.mark.parametrize(
    ("fields", "keys"),
    [
        case({}, {"kind", "text"}, id="plain"),
        case({"subject": "Rent"}, {"kind", "text", "subject"}, id="subject"),
        case({"html": "<b>Hi</b>"}, {"kind", "text", "html"}, id="html"),
        case({"media": True}, {"kind", "text", "media"}, id="media"),
    ],
)
def test_what_a_part_is_frozen_as(fields: dict[str, Any], keys: set[str]) -> None:
    reminder = due(subject=fields.get("subject", ""))
    message = reminder.messages.get()
    message.html = fields.get("html", "")
    file = MediaFileFactory.create(owner=reminder.owner) if "media" in fields else None
    message.media = file
    part = freezing.frozen_part(reminder, message)
    assert set(part) == keys
    if file:
        assert (part["media"]["id"], part["media"]["sha256"], part["media"]["size"]) == (
            file.pk,
            file.sha256,
            file.size,
        )


# --- asked before it is fired by hand ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "sent", "ago", "says"),
    [
        case("success", 1, timedelta(hours=24) - SECOND, True, id="within-a-day"),
        case("success", 1, timedelta(hours=24), False, id="a-day-ago"),
        case("failed", 0, HOUR, False, id="nothing-went-out"),
        case("paused", 0, HOUR, True, id="not-over"),
    ],
)
def test_what_went_out_lately(status: str, sent: int, ago: timedelta, says: bool) -> None:
    run = Run(status=status, sent=sent, total=1, finished_at=NOW - ago)
    assert bool(firing._lately(run, NOW)) is says
    assert firing._lately(None, NOW) == ""


def test_the_newest_run_is_the_last_of_its_own() -> None:
    reminder = due()
    first = RunFactory.create(reminder=reminder, scheduled_for=NOW)
    RunFactory.create(reminder=reminder, scheduled_for=NOW - HOUR)
    RunFactory.create(reminder=reminder, scheduled_for=NOW + HOUR, answers=first)
    RunFactory.create(reminder=reminder, scheduled_for=NOW + 2 * HOUR, is_test=True)
    other = RunFactory.create()
    assert firing.last_runs([reminder.pk]) == {reminder.pk: first}
    assert firing.last_runs([reminder.pk, other.reminder_id, due().pk]) == {
        reminder.pk: first,
        other.reminder_id: other,
    }


@pytest.mark.parametrize(
    ("hour", "says"),
    [(5, "It starts when"), (6, ""), (17, ""), (18, "closed at 18:00")],
    ids=["early", "open", "still open", "closed"],
)
def test_what_the_window_says_today(hour: int, says: str) -> None:
    reminder = due(delivery_window_start_hour=6, delivery_window_end_hour=18)
    said = firing._window_today(reminder, NOW.replace(hour=hour))
    assert (says in said, bool(said)) == (True, bool(says))


# --- who is in it -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("suppression", "why"),
    [
        case({}, "suppressed: complaint", id="for-ever"),
        case({"expires_at": NOW + SECOND}, "suppressed: complaint", id="for-a-while"),
        case({"expires_at": NOW}, "", id="over"),
        case({"address": "somebody@example.com"}, "", id="somebody-else"),
    ],
)
def test_who_is_suppressed(suppression: dict[str, Any], why: str) -> None:
    reminder = due()
    address = reminder.recipients.get().address
    SuppressionFactory.create(**{"address": address, "reason": "complaint"} | suppression)
    run = RunFactory.create(reminder=reminder, scheduled_for=NOW)
    recipients, turns, whys = admitted(run, reminder.senders, NOW)
    assert (len(recipients), turns, whys) == (1, [None if why else 0], [why])


def test_those_whom_the_run_has_are_left_out_and_the_others_come_in_order() -> None:
    reminder = due(targets=3)
    due(targets=1)
    first, second, third = reminder.targets.order_by("position")
    run = RunFactory.create(reminder=reminder, scheduled_for=NOW)
    RunTargetFactory.create(run=run, recipient=second.recipient)
    RunTargetFactory.create(recipient=first.recipient)
    assert list(uncopied(run).order_by("position")) == [first, third]
    type(first).objects.filter(pk=first.pk).update(position=9)
    assert admitted(run, reminder.senders, NOW)[0] == [third.recipient_id, first.recipient_id]


def test_what_was_refused_is_told_and_tallied() -> None:
    run = RunFactory.create(follow_up=True)
    planned = [(n, Planned(None, None, why)) for n, why in enumerate(["queue_full_5", "queue_full_7", "opted_out", ""])]
    note_refused(run, planned, NOW)
    assert Event.objects.get().detail == "1 opted_out, 1 queue_full_5, 1 queue_full_7"
    assert set(Tally.objects.values_list("what", "why", "n")) == {
        ("refused", "queue_full", 2),
        ("refused", "opted_out", 1),
        ("backpressure", "", 1),
    }
    note_refused(run, planned[3:], NOW)
    assert Event.objects.count() == 1


def test_reasons_in_words() -> None:
    assert reasons_in_words(Counter({"b": 1, "a": 1, "c": 3})) == "3 c, 1 a, 1 b"


# --- a large run ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["preparing", "queued", "canceled"])
def test_only_what_is_being_prepared_is_prepared(status: str) -> None:
    reminder = due(targets=3)
    run = RunFactory.create(reminder=reminder, status=status, scheduled_for=NOW)
    assert freezing.unprepared() == ([run.pk] if status == "preparing" else [])
    assert freezing.prepare(run.pk, NOW) is True
    run.refresh_from_db()
    assert (run.status, run.total) == (("queued", 3) if status == "preparing" else (status, 0))
    assert LaneState.objects.filter(account=run.account_id, due_at=NOW).exists() is (status == "preparing")


def test_preparing_stops_when_its_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freezing, "CHUNK", 2)
    monkeypatch.setattr(freezing, "WORK_FOR", 0.0)
    run = RunFactory.create(reminder=due(targets=3), status="preparing", scheduled_for=NOW)
    seen = [
        (freezing.prepare(run.pk, NOW), RunTarget.objects.count(), Run.objects.get(pk=run.pk).status) for _ in range(3)
    ]
    assert seen == [(False, 2, "preparing"), (False, 3, "preparing"), (True, 3, "queued")]


@pytest.mark.parametrize(
    ("change", "somebody_else", "goes_on"),
    [
        case({}, False, True, id="as-we-left-it"),
        case({"status": "canceled"}, False, False, id="canceled"),
        case({}, True, False, id="somebody-else-is-at-it"),
    ],
)
def test_a_chunk_is_copied_only_while_nobody_else_is_at_it(
    change: dict[str, Any], somebody_else: bool, goes_on: bool
) -> None:
    reminder = due()
    run = RunFactory.create(reminder=reminder, status="preparing", scheduled_for=NOW)
    if change:
        Run.objects.filter(pk=run.pk).update(**change)
    if somebody_else:
        RunTargetFactory.create(run=run)
    chunk = [(reminder.recipients.get().pk, Planned(run.account_id, NOW, "opted_out"))]
    assert freezing.prepare_chunk(run, chunk, NOW) is goes_on
    assert run.targets.filter(error="opted_out").count() == int(goes_on)
    assert Event.objects.filter(run=run, verb="skipped at once").count() == int(goes_on)


# --- hygiene ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("run", "target", "suppression", "skipped"),
    [
        case({}, {}, {}, True, id="suppressed"),
        case({"status": "queued"}, {}, {}, True, id="queued"),
        case({"status": "waiting"}, {}, {}, True, id="waiting"),
        case({"status": "canceled"}, {}, {}, False, id="canceled"),
        case({"follow_up": False}, {}, {}, False, id="no-follow-up"),
        case({}, {"status": "sending"}, {}, False, id="in-flight"),
        case({}, {"position": 0}, {}, True, id="the-very-first"),
        case({}, {}, {"expires_at": NOW + SECOND}, True, id="for-a-while"),
        case({}, {}, {"expires_at": NOW}, False, id="no-longer"),
        case({}, {}, {"address": "somebody@example.com"}, False, id="somebody-else"),
    ],
)
def test_who_is_taken_out_of_the_queue(
    run: dict[str, Any], target: dict[str, Any], suppression: dict[str, Any], skipped: bool
) -> None:
    made = RunFactory.create(**{"follow_up": True, "status": "running"} | run)
    gone, beside = RunTargetFactory.create(run=made, **target), RunTargetFactory.create(run=made)
    SuppressionFactory.create(**{"address": gone.address, "reason": "manual"} | suppression)
    found = hygiene.clean_up(NOW)
    for row in (gone, beside):
        row.refresh_from_db()
    assert (gone.status == "skipped", gone.error) == (skipped, "suppressed: manual" if skipped else "")
    assert (beside.status, sum(found.skipped.values())) == ("pending", int(skipped))
    assert LaneState.objects.filter(account=made.account_id, due_at=NOW).exists() is skipped
    assert Tally.objects.filter(what="removed").count() == int(skipped)


@pytest.mark.parametrize(
    ("fields", "over"),
    [
        case({"cooldown_until": NOW}, 1, id="over"),
        case({"cooldown_until": NOW + SECOND}, 0, id="not-yet"),
        case({}, 0, id="none"),
    ],
)
def test_which_cooldowns_are_over(fields: dict[str, Any], over: int) -> None:
    person = RecipientFactory.create()
    Recipient.objects.filter(pk=person.pk).update(follow_up_attempts=2, **fields)
    assert hygiene.clean_up(NOW).cooldowns_over == over
    person.refresh_from_db()
    assert person.follow_up_attempts == (0 if over else 2)


def test_a_round_in_words() -> None:
    this = hygiene.Round()
    assert str(this) == "0 queued follow-ups looked at, 0 skipped, 0 cooldowns over"
    this = hygiene.Round(9, 2, 3, Counter({(1, "opted_out"): 2, (2, "opted_out"): 1}))
    assert str(this) == "9 queued follow-ups looked at, 3 skipped (3 opted_out), 2 cooldowns over, 3 begun"


def test_a_reminder_target_beside_it_is_not_looked_at() -> None:
    reminder = due(targets=1)
    ReminderTargetFactory.create()
    run = RunFactory.create(reminder=reminder, scheduled_for=NOW)
    assert admitted(run, reminder.senders, NOW)[0] == [reminder.recipients.get().pk]


@pytest.mark.parametrize(("hours", "moments"), [(0, 1), (50, 51), (500, firing.MISSED_AT_MOST + 2)])
def test_a_long_downtime_records_the_first_that_were_missed_and_the_last_two_hours(hours: int, moments: int) -> None:
    now = datetime(2026, 1, 10, 12, 30, tzinfo=UTC)
    first = now.replace(minute=0) - timedelta(hours=hours)
    reminder = Reminder(schedule="cron", cron="0 * * * *", timezone="UTC", next_fire_at=first)
    due = firing._due_moments(reminder, now)
    in_a_row = min(moments, firing.MISSED_AT_MOST)
    assert due[:in_a_row] == [first + timedelta(hours=n) for n in range(in_a_row)]
    assert len(due) == moments
    assert due[-1] == now.replace(minute=0)
    assert reminder.next_fire_at == now.replace(hour=13, minute=0)
