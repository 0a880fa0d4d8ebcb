"""Freezing a reminder into its run: admission, plan, values and copy of its targets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from accounts.models import Account
from fanout.models import Event, LaneState, Run, RunTarget, Tally
from fanout.plans.audience import uncopied
from fanout.plans.plan import NO_SENDER, UNREACHABLE, Planned, PlannedTarget, plan
from fanout.plans.projection import AccountSnapshot
from fanout.rules.pace import PaceSettings
from fanout.runs import freezing
from fanout.runs.freezing import admitted, freeze, note_refused
from reminders.models import Reminder
from reminders.window import BusinessHours, Window
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

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)  # a Monday


def test_who_gets_nothing_has_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A suppressed mailbox in front must not move a group to the account that sends mail."""
    people = ([1, 2, 3], ["mailbox", "group", "mailbox"], ["suppressed", "", ""])
    monkeypatch.setattr(freezing, "_people", lambda run, now: people)
    run: Any = SimpleNamespace(follow_up=False, step=0)
    senders = [Account(channel="smtp", status="active"), Account(channel="waha", status="active")]
    recipients, turns, whys = freezing.admitted(run, senders, NOW)
    assert (recipients, turns, whys) == (people[0], [None, 1, 0], people[2])


HOUR, SECOND = timedelta(hours=1), timedelta(seconds=1)


@pytest.mark.django_db
def test_who_lacks_a_value_is_skipped_with_its_name() -> None:
    part = {"kind": "text", "text": "Flat {flat}, floor {floor}, {name|you}", "personal": True}
    reminder = ReminderFactory.create()
    run = RunFactory.create(reminder=reminder, scheduled_for=NOW, parts=[part])
    found: list[PlannedTarget] = []
    for fields in ({"flat": "1", "floor": "2"}, {"flat": "1"}, {}, {"flat": "3", "floor": "4"}):
        recipient = RecipientFactory.create(owner=reminder.owner, name="", fields=fields)
        ReminderTargetFactory.create(reminder=reminder, recipient=recipient, position=len(found))
        found.append((recipient.pk, Planned(run.account_id, NOW)))
    freeze(run, found[:1], NOW)
    run.targets.update(values={})  # of an earlier chunk, which is not read again
    freeze(run, found[1:], NOW)
    assert list(run.targets.order_by("position").values_list("position", "status", "error", "settled_at")) == [
        (1, "pending", "", None),
        (2, "skipped", "no value for {floor}, which has no default", NOW),
        (3, "skipped", "no value for {flat}, {floor}, which has no default", NOW),
        (4, "pending", "", None),
    ]
    assert (run.total, run.pending, run.skipped) == (4, 2, 2)
    plain = RunFactory.create(reminder=reminder, scheduled_for=NOW + HOUR)
    freeze(plain, found, NOW)
    assert set(plain.targets.values_list("status", "values")) == {("pending", None)}


case = pytest.param


def due(at: datetime | None = NOW, **fields: Any) -> Reminder:
    made: Reminder = ReminderFactory.create(**{"targets": 1, "next_fire_at": at, "timezone": "UTC"} | fields)
    return made


@pytest.mark.django_db
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


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("suppression", "why"),
    [
        case({}, "suppressed: complaint", id="for-ever"),
        case({"expires_at": NOW + SECOND}, "suppressed: complaint", id="for-a-while"),
        case({"expires_at": NOW}, "", id="over"),
        case({"address": "somebody@example.com"}, "", id="another-address"),
    ],
)
def test_who_is_suppressed(suppression: dict[str, Any], why: str) -> None:
    reminder = due()
    address = reminder.recipients.get().address
    SuppressionFactory.create(**{"address": address, "reason": "complaint"} | suppression)
    run = RunFactory.create(reminder=reminder, scheduled_for=NOW)
    recipients, turns, whys = admitted(run, reminder.senders, NOW)
    assert (len(recipients), turns, whys) == (1, [None if why else 0], [why])


@pytest.mark.django_db
def test_those_whom_the_run_has_are_left_out_and_the_others_come_in_order() -> None:
    reminder = due(targets=3)
    due(targets=1)
    first, second, third = reminder.targets.order_by("position")
    run = RunFactory.create(reminder=reminder, scheduled_for=NOW)
    RunTargetFactory.create(run=run, recipient=second.recipient)
    RunTargetFactory.create(recipient=first.recipient)
    run.refresh_from_db(fields=["total"])
    assert set(uncopied(run)) == {first.recipient, third.recipient}
    type(first).objects.filter(pk=first.pk).update(position=9)
    assert admitted(run, reminder.senders, NOW)[0] == [third.recipient_id, first.recipient_id]


@pytest.mark.django_db
def test_what_was_refused_is_told_and_tallied() -> None:
    run = RunFactory.create(follow_up=True)
    planned = [(n, Planned(None, None, why)) for n, why in enumerate(["queue_full_5", "queue_full_7", "opted_out", ""])]
    note_refused(run, planned, NOW)
    assert Event.objects.get().detail == "2 the queue of follow-ups is full, 1 opted out"
    assert set(Tally.objects.values_list("what", "why", "n")) == {
        ("refused", "queue_full", 2),
        ("refused", "opted_out", 1),
        ("backpressure", "", 1),
    }
    note_refused(run, planned[3:], NOW)
    assert Event.objects.count() == 1


@pytest.mark.django_db
@pytest.mark.parametrize("status", ["preparing", "queued", "canceled"])
def test_only_what_is_being_prepared_is_prepared(status: str) -> None:
    reminder = due(targets=3)
    run = RunFactory.create(reminder=reminder, status=status, scheduled_for=NOW)
    assert freezing.unprepared() == ([run.pk] if status == "preparing" else [])
    assert freezing.prepare(run.pk, NOW) is True
    run.refresh_from_db()
    assert (run.status, run.total) == (("queued", 3) if status == "preparing" else (status, 0))
    assert LaneState.objects.filter(account=run.account_id, due_at=NOW).exists() is (status == "preparing")


@pytest.mark.django_db
def test_preparing_stops_when_its_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freezing, "CHUNK", 2)
    monkeypatch.setattr(freezing, "WORK_FOR", 0.0)
    run = RunFactory.create(reminder=due(targets=3), status="preparing", scheduled_for=NOW)
    seen = [
        (freezing.prepare(run.pk, NOW), RunTarget.objects.count(), Run.objects.get(pk=run.pk).status) for _ in range(3)
    ]
    assert seen == [(False, 2, "preparing"), (False, 3, "preparing"), (True, 3, "queued")]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("change", "other_worker", "goes_on"),
    [
        case({}, False, True, id="as-we-left-it"),
        case({"status": "canceled"}, False, False, id="canceled"),
        case({}, True, False, id="another-worker"),
    ],
)
def test_a_chunk_is_copied_only_by_one_worker(change: dict[str, Any], other_worker: bool, goes_on: bool) -> None:
    reminder = due()
    run = RunFactory.create(reminder=reminder, status="preparing", scheduled_for=NOW)
    if change:
        Run.objects.filter(pk=run.pk).update(**change)
    if other_worker:
        RunTargetFactory.create(run=run)
    chunk = [(reminder.recipients.get().pk, Planned(run.account_id, NOW, "opted_out"))]
    assert freezing.prepare_chunk(run, chunk, NOW) is goes_on
    assert run.targets.filter(error="opted_out").count() == int(goes_on)
    assert Event.objects.filter(run=run, verb="skipped at once").count() == int(goes_on)


@pytest.mark.django_db
def test_a_reminder_target_beside_it_is_not_looked_at() -> None:
    reminder = due(targets=1)
    ReminderTargetFactory.create()
    run = RunFactory.create(reminder=reminder, scheduled_for=NOW)
    assert admitted(run, reminder.senders, NOW)[0] == [reminder.recipients.get().pk]


@pytest.mark.django_db
def test_a_run_that_sends_nothing_has_a_lane_to_end_it() -> None:
    reminder = ReminderFactory.create(targets=1)
    run = RunFactory.create(reminder=reminder, scheduled_for=NOW, lanes=[])
    freeze(run, [(reminder.targets.get().recipient_id, NO_SENDER)], NOW)
    assert (run.lanes, run.total, run.skipped) == ([reminder.account_id], 1, 1)
    assert Run.objects.get(pk=run.pk).lanes == [reminder.account_id]


ALL_DAY = Window("UTC")
ONE_A_SECOND = PaceSettings(60, 1)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def lane(account_id: int = 1, **fields: Any) -> AccountSnapshot:
    return replace(AccountSnapshot(account_id, ONE_A_SECOND, BusinessHours("UTC")), **fields)


def planned_for(reminder: Reminder, planned: Iterable[Planned]) -> list[PlannedTarget]:
    return list(zip(reminder.targets.values_list("recipient_id", flat=True), planned))


@pytest.mark.django_db
def test_freeze() -> None:
    one, two = AccountFactory.create(), AccountFactory.create()
    reminder = ReminderFactory.create(account=one, targets=5)
    run = RunFactory.create(reminder=reminder, scheduled_for=NOW)
    planned = planned_for(reminder, plan([0] * 5, [lane(two.pk)], ALL_DAY, NOW))
    freeze(run, planned[:3], NOW)
    reminder.targets.filter(recipient_id=planned[3][0]).delete()
    freeze(run, planned[1:], NOW)
    stored = run.targets.order_by("position").values_list("recipient_id", "account_id", "planned_at")
    assert [(recipient, Planned(account, at)) for recipient, account, at in stored] == [*planned[:3], planned[4]]
    run.refresh_from_db()
    assert (run.pending, run.total, run.lanes) == (4, 4, [two.pk])


@pytest.mark.django_db
def test_an_unreachable_target_is_skipped_with_the_reason() -> None:
    reminder = ReminderFactory.create(targets=2)
    run = RunFactory.create(reminder=reminder, scheduled_for=NOW)
    freeze(run, planned_for(reminder, [NO_SENDER, Planned(run.account_id, NOW)]), NOW)
    first, second = run.targets.order_by("position")
    assert (first.status, first.error, first.settled_at) == ("skipped", UNREACHABLE, NOW)
    assert (second.status, second.planned_at, second.settled_at) == ("pending", NOW, None)
    assert (second.attempts, second.parts_sent, second.error_kind, second.error) == (0, 0, "", "")
    run.refresh_from_db()
    assert (run.total, run.pending, run.skipped) == (2, 1, 1)
