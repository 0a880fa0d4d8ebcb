"""Runs with placeholders: frozen with their targets, unchanged by later edits, a text of its own for each recipient."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from fanout.models import Run
from fanout.plans.audience import audience
from fanout.runs import self_test
from fanout.runs.freezing import freeze, plan_targets, written_part
from reminders import wording
from reminders.models import Recipient, Reminder, ReminderMessage
from tests.engine.stage import Stage


def personal(stage: Stage, *texts: str, groups: int = 3, **fields: Any) -> Reminder:
    reminder = stage.reminder(stage.account(), groups=groups, parts=("text",) * len(texts), **fields)
    for position, text in enumerate(texts):
        reminder.messages.filter(position=position).update(text=text)
    return reminder


def told(stage: Stage) -> list[str]:
    return sorted(str(line["text"]) for line in stage.book.lines())


def test_each_recipient_gets_their_own_words(stage):
    reminder = personal(stage, "Hi {name}, flat {flat|unknown}", "Same for all {{}}")
    Recipient.objects.filter(name="Group 1").update(fields={"flat": "7 <C>"})
    stage.fire(reminder)
    # What is edited after the firing changes nothing.
    Recipient.objects.filter(owner=stage.user).update(name="Somebody else", fields={})
    ReminderMessage.objects.update(text="Other words for {name}")
    stage.play()
    assert told(stage) == [
        "Hi Group 0, flat unknown",
        "Hi Group 1, flat 7 <C>",
        "Hi Group 2, flat unknown",
        *["Same for all {{}}"] * 3,
    ]


def test_a_run_without_placeholders_keeps_no_values(stage):
    run = stage.fire(personal(stage, "a { b", "Hello {{name}}"))
    assert [part["text"] for part in run.parts] == ["a { b", "Hello {name}"]
    assert not any("personal" in part for part in run.parts)
    assert set(run.targets.values_list("values", flat=True)) == {None}


def test_who_lacks_a_value_is_skipped_with_the_reason(stage):
    reminder = personal(stage, "Flat {flat}, floor {floor}, {name}")
    Recipient.objects.filter(name="Group 2").update(fields={"flat": "1", "floor": "2"})
    Recipient.objects.filter(name="Group 1").update(fields={"flat": "1"})
    run = stage.fire(reminder)
    stage.play()
    run.refresh_from_db()
    assert told(stage) == ["Flat 1, floor 2, Group 2"]
    assert run.status == Run.Status.PARTIAL
    assert list(run.targets.values_list("status", "error")) == [
        ("skipped", "no value for {flat}, {floor}, which has no default"),
        ("skipped", "no value for {floor}, which has no default"),
        ("sent", ""),
    ]


def test_message_2_finds_its_values_with_message_1(stage):
    reminder = personal(stage, "Hello", groups=1)
    Recipient.objects.filter(owner=stage.user).update(fields={"flat": "9"})
    run = stage.fire(reminder)
    assert run.targets.get().values is None
    run = Run.objects.create(**{**_columns(run), "reply_parts": [{"kind": "text", "text": "{flat}", "personal": True}]})
    freeze(run, list(plan_targets(run, stage.now)), stage.now)
    assert run.targets.get().values == {"flat": "9"}


def _columns(run: Run) -> dict[str, Any]:
    kept = ("reminder_id", "account_id", "lanes", "owner_id", "title", "action", "parts", "timezone")
    hours = ("window_start_hour", "window_end_hour", "window_closes_at")
    return {name: getattr(run, name) for name in kept + hours} | {
        "scheduled_for": run.scheduled_for + timedelta(minutes=1)
    }


def test_a_test_to_oneself_shows_the_first_targets_words(stage):
    reminder = personal(stage, "Flat {flat} of {name}")
    Recipient.objects.filter(name="Group 0").update(fields={"flat": "4"})
    answer = self_test.send_test(reminder, "120363999999999999@g.us", stage.user, stage.now)
    assert answer.ok, answer.text
    stage.play()
    assert told(stage) == ["Flat 4 of Group 0"]


@pytest.mark.parametrize(
    "text",
    ["Hi {name}", "Hi {first_name|there}", "Hello", "{{name}}", "{{x}} for {name}", "{1} and {a: b}", "{{1}} {name|?}"],
)
def test_the_preview_is_what_is_sent(stage: Stage, text: str) -> None:
    reminder = personal(stage, text)
    parts = [written_part(reminder, part) for part in reminder.messages.all()]
    shown = wording.preview(parts, wording.Audience(audience(reminder, stage.now)).some())
    stage.fire(reminder)
    stage.play()
    assert set(told(stage)) == {example["parts"][0]["text"] for example in shown}
