"""Who a reminder goes to: fixed targets, and who is in its segment at the firing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from fanout.models import Run
from fanout.plans.audience import audience, segment_members
from fanout.plans.forecast import forecast_reminder
from fanout.runs import controls, firing, freezing
from reminders.models import Recipient, Reminder, Segment
from tests.engine.stage import MONDAY, Stage, fresh
from tests.factories import (
    RecipientFactory,
    ReminderTargetFactory,
    RunFactory,
    RunTargetFactory,
    SegmentFactory,
    TeamFactory,
    UserFactory,
)

pytestmark = pytest.mark.django_db
NOW = MONDAY


def names(segment: Segment, user: Any = None) -> list[str]:
    rows = segment_members(segment, user or segment.owner, NOW)
    return sorted(rows.values_list("name", flat=True))


@pytest.fixture
def owner() -> Any:
    owner = UserFactory.create()
    for name, tags, fields in (
        ("Ann", ["choir"], {"city": "Penang"}),
        ("Ben", ["choir", "north"], {"city": "penang "}),
        ("Chong", ["north"], {"city": "Ipoh"}),
        ("Devi", [], {}),
    ):
        RecipientFactory.create(owner=owner, name=name, tags=tags, fields=fields)
    return owner


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ({"tags": ["choir"]}, ["Ann", "Ben"]),
        ({"tags": ["choir", "north"]}, ["Ann", "Ben", "Chong"]),
        ({"tags": ["choir", "north"], "every_tag": True}, ["Ben"]),
        ({"tags": ["choir"], "without_tags": ["north"]}, ["Ann"]),
        ({"without_tags": ["choir"]}, ["Chong", "Devi"]),
        ({"fields": [["city", "=", "PENANG"]]}, ["Ann"]),
        ({"fields": [["city", "!=", "Penang"]]}, ["Ben", "Chong", "Devi"]),
        ({"fields": [["city", "=", ""]]}, ["Devi"]),
        ({"fields": [["city", "!=", ""]], "tags": ["north"]}, ["Ben", "Chong"]),
        ({"fields": [["name", "=", "devi"]]}, ["Devi"]),
        ({"fields": [["city", "=", "' OR 1=1 --"]]}, []),
        ({"fields": [["city", "=", "%"]]}, []),
        ({"not_contacted_days": 30}, ["Ann", "Ben", "Chong", "Devi"]),
    ],
)
def test_conditions(owner: Any, conditions: dict[str, Any], expected: list[str]) -> None:
    assert names(SegmentFactory.create(**{"owner": owner, "tags": []} | conditions)) == expected


def test_who_gets_nothing_is_not_in_it(owner: Any) -> None:
    segment = SegmentFactory.create(owner=owner, tags=["choir"])
    Recipient.objects.filter(name="Ann").update(status=Recipient.Status.OPTED_OUT)
    Recipient.objects.filter(name="Ben").update(archived=True)
    assert names(segment) == []


def test_only_recipients_that_the_person_sees(owner: Any) -> None:
    segment, stranger, team = (
        SegmentFactory.create(owner=owner, tags=["choir"]),
        UserFactory.create(),
        TeamFactory.create(),
    )
    assert names(segment, stranger) == []
    stranger.groups.add(team)
    Recipient.objects.filter(name="Ann").update(team=team)
    assert names(segment, stranger) == ["Ann"]


def sent(recipient: Recipient, run: Run, days: float) -> None:
    RunTargetFactory.create(run=run, recipient=recipient, status="sent", claimed_at=NOW - timedelta(days=days))


def test_not_contacted_counts_every_list_that_has_the_person(owner: Any) -> None:
    segment, other = SegmentFactory.create(owner=owner, tags=[], not_contacted_days=30), UserFactory.create()
    ann, ben, chong = Recipient.objects.order_by("name")[:3]
    run = RunFactory.create()
    sent(ann, run, 29)
    sent(ben, run, 31)
    sent(RecipientFactory.create(owner=other, address=chong.address), run, 1)
    assert names(segment) == ["Ben", "Devi"]


def test_did_not_reply(owner: Any) -> None:
    ann, ben, chong, _ = Recipient.objects.order_by("name")
    run = RunFactory.create(reminder__owner=owner)
    segment = SegmentFactory.create(owner=owner, tags=[], not_replied_to=run.reminder)
    for one in (ann, ben, chong):
        sent(one, run, 2)
    assert names(segment) == ["Ann", "Ben", "Chong"], "not Devi, who did not get it"
    Recipient.objects.filter(pk=ann.pk).update(replied_at=NOW - timedelta(days=1))
    Recipient.objects.filter(pk=ben.pk).update(replied_at=NOW - timedelta(days=3))
    assert names(segment) == ["Ben", "Chong"]


# --- firing ------------------------------------------------------------------------------------------------


def to_segment(stage: Stage, groups: int = 0, **conditions: Any) -> Reminder:
    reminder = stage.reminder(stage.account(), groups=groups)
    reminder.segment = SegmentFactory.create(owner=reminder.owner, **{"tags": ["north"]} | conditions)
    reminder.save(update_fields=["segment"])
    return reminder


def member(reminder: Reminder, **fields: Any) -> Recipient:
    # Not an address that the stage gives to its groups.
    address = f"{120363000000900000 + Recipient.objects.count()}@g.us"
    return RecipientFactory.create(**{"owner": reminder.owner, "tags": ["north"], "address": address} | fields)


def test_a_weekly_reminder_reaches_new_members_and_no_former_ones(stage: Stage) -> None:
    reminder = to_segment(stage)
    first = member(reminder)
    run = stage.fire(reminder)
    assert list(run.targets.values_list("recipient", flat=True)) == [first.pk]
    second = member(reminder)
    Recipient.objects.filter(pk=first.pk).update(tags=[])
    assert fresh(run).total == 1, "frozen"
    later = stage.fire(reminder, stage.now + timedelta(hours=1))
    assert list(later.targets.values_list("recipient", flat=True)) == [second.pk]
    stage.play()
    assert sorted(delivery.to for delivery in stage.book.deliveries()) == sorted([first.address, second.address])


def test_fixed_targets_and_the_segment_each_once(stage: Stage) -> None:
    reminder = to_segment(stage, groups=2)
    both = member(reminder)
    ReminderTargetFactory.create(reminder=reminder, recipient=both, position=9)
    last = member(reminder)
    assert audience(reminder, NOW).count() == 4
    run = stage.fire(reminder)
    assert fresh(run).total == 4
    assert list(run.targets.order_by("position").values_list("recipient", flat=True))[2:] == [both.pk, last.pk]


def test_members_out_of_reach_are_left_out(stage: Stage) -> None:
    reminder = to_segment(stage)
    member(reminder)
    reminder.account.channel = "waha"
    reminder.account.save(update_fields=["channel"])
    member(reminder, kind="mailbox", address="ann@example.com")
    assert audience(Reminder.objects.get(pk=reminder.pk), NOW).count() == 1


def test_an_empty_segment_skips_the_firing_with_its_reason(stage: Stage) -> None:
    reminder = to_segment(stage)
    result = controls.fire(reminder, reminder.owner, stage.now)
    assert not result.ok
    assert f"No one is in the segment “{reminder.segment}” now." in result.text


def test_a_segment_that_is_no_longer_shared_stops_the_firing(stage: Stage) -> None:
    reminder = to_segment(stage)
    member(reminder)
    Segment.objects.update(owner=UserFactory.create())
    reminder = Reminder.objects.get(pk=reminder.pk)
    run = firing.make_run(reminder, stage.now, stage.now)
    assert run is not None
    assert (run.status, "may not use" in run.error_summary) == (Run.Status.SKIPPED, True)


def test_a_large_segment_is_prepared_in_chunks(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(firing, "LARGE", 4)
    monkeypatch.setattr(freezing, "CHUNK", 2)
    reminder = to_segment(stage)
    for _ in range(7):
        member(reminder)
    run = stage.fire(reminder)
    assert (run.status, run.total) == ("preparing", 0)
    assert freezing.prepare(run.pk, stage.now)
    assert (fresh(run).status, fresh(run).total) == ("queued", 7)
    stage.play()
    assert len({delivery.to for delivery in stage.book.deliveries()}) == 7


def test_preparing_goes_on_after_an_interruption(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(firing, "LARGE", 4)
    monkeypatch.setattr(freezing, "CHUNK", 2)
    monkeypatch.setattr(freezing, "WORK_FOR", 0)
    reminder = to_segment(stage, groups=2)
    Recipient.objects.filter(reminders=reminder).update(tags=["north"])
    for _ in range(5):
        member(reminder)
    run = stage.fire(reminder)
    assert not freezing.prepare(run.pk, stage.now)
    assert fresh(run).total == 2
    late = member(reminder)
    while not freezing.prepare(run.pk, stage.now):
        pass
    assert (fresh(run).status, fresh(run).total) == ("queued", 8)
    stage.play()
    to = [delivery.to for delivery in stage.book.deliveries()]
    assert len(to) == len(set(to)) == 8
    assert late.address in to


def test_due_reminders_fire_with_their_segment(stage: Stage) -> None:
    reminder = to_segment(stage)
    member(reminder)
    Reminder.objects.filter(pk=reminder.pk).update(enabled=True, next_fire_at=stage.now)
    (run,) = firing.fire_due(stage.now)
    assert (run.status, run.total) == ("queued", 1)


def test_the_forecast_counts_who_is_in_it_now(stage: Stage) -> None:
    reminder = to_segment(stage)
    assert forecast_reminder(reminder, stage.now).left == 0
    member(reminder)
    member(reminder, kind="person", address="+60123450001")
    assert forecast_reminder(reminder, stage.now).left == 2
