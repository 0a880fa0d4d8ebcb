"""`manage.py runs`: list, filters, expected ends and Message 2."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from fanout.models import Run
from tests.commands.calling import bad_input, data, text
from tests.factories import (
    AccountFactory,
    RunFactory,
    RunTargetFactory,
)

pytestmark = pytest.mark.django_db


# --- runs ---------------------------------------------------------------------------------------------------


def test_runs_are_listed_and_filtered():
    live = RunFactory.create(targets={"pending": 2}, status="running", waiting_why="")
    paused = RunFactory.create(targets={"pending": 1}, status="paused", pause_reason="operator")
    RunFactory(archived=True, status="success")
    assert {run["run"] for run in data("runs")["runs"]} == {live.pk, paused.pk}
    assert [run["run"] for run in data("runs", "--live")["runs"]] == [live.pk]
    assert [run["run"] for run in data("runs", "--status", "paused")["runs"]] == [paused.pk]
    assert len(data("runs", "--archived")["runs"]) == 3
    assert [run["run"] for run in data("runs", "--account", live.account.label)["runs"]] == [live.pk]
    assert "paused (paused by an operator)" in text("runs")
    assert "--limit" in bad_input("runs", "--limit", "0")
    assert "--limit takes a whole number from 1 to 100000" in bad_input("runs", "--limit", "9" * 20)


def test_runs_say_when_they_are_done_and_what_they_wait_behind():
    account = AccountFactory.create(max_send_per_minute=1, send_burst=1)
    facts = {"account": account, "status": "running", "targets": {"pending": 30}}
    first = RunFactory.create(title="Rent", scheduled_for=timezone.now() - timedelta(minutes=2), **facts)
    RunFactory.create(title="Market", scheduled_for=timezone.now() - timedelta(minutes=1), **facts)
    later, sooner = data("runs", "--live")["runs"]
    assert (sooner["run"], sooner["per_minute"], sooner["waiting_why"]) == (first.pk, None, "")
    assert later["waiting_why"] == "queued behind Rent (30 left, about 30 min)"
    assert sooner["expected_end"] < later["expected_end"]


def test_message_2_is_listed_by_itself():
    run = RunFactory.create(targets={"sent": 2}, status="success")
    child = RunFactory.create(answers=run, title="Rent (Message 2)", status="waiting")
    RunTargetFactory(run=child, recipient=run.targets.all()[0].recipient, status="pending")
    assert [row["run"] for row in data("runs")["runs"]] == [run.pk]
    assert [row["run"] for row in data("runs", "--live")["runs"]] == [child.pk]
    (row,) = data("runs", "--message-2")["runs"]
    assert (row["run"], row["answers"], row["pending"]) == (child.pk, run.pk, 1)
    assert [one["message_2"] for one in data("export_run", str(run.pk))["targets"]] == ["pending", None]
    assert len(data("export_run", str(child.pk))["targets"]) == 1
    assert data("why", "--run", str(child.pk))["why"][0]["label"] == "Rent (Message 2)"


def test_message_2_that_waits_for_a_hand_is_among_the_runs():
    run = RunFactory.create(status="success")
    child = RunFactory.create(answers=run, status="paused", pause_reason="circuit_breaker")
    assert {row["run"] for row in data("runs")["runs"]} == {run.pk, child.pk}
    Run.objects.filter(pk=child.pk).update(resume_at=run.scheduled_for)
    assert {row["run"] for row in data("runs")["runs"]} == {run.pk}
