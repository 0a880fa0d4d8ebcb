"""Who lacks a value that the text needs gets nothing: one test, because it is quick."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from fanout.plans.plan import Planned, PlannedTarget
from fanout.runs.freezing import freeze
from tests.factories import RecipientFactory, ReminderFactory, ReminderTargetFactory, RunFactory

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
HOUR = timedelta(hours=1)


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
    run.targets.update(values={})  # of an earlier chunk: nobody looks at it again
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
