"""`manage.py demo_data`: added once, with live runs."""

from __future__ import annotations

import pytest

from accounts.models import Account
from fanout.models import Activity, Run, RunTarget
from tests.commands.calling import data, text

pytestmark = pytest.mark.django_db


# --- demo data ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_demo_data_is_made_once_and_one_run_is_live():
    assert "15 past runs" in text("demo_data")
    counts = {model: model.objects.count() for model in (Account, Run, RunTarget, Activity)}
    assert "still going out" in text("demo_data")
    assert {model: model.objects.count() for model in counts} == counts
    statuses = set(Run.objects.values_list("status", flat=True))
    assert statuses == {"success", "partial", "paused", "failed", "skipped", "queued"}
    assert data("limits") == {"violations": [], "repaired": []}


@pytest.mark.slow
def test_the_demo_has_replies_results_and_a_warning():
    text("demo_data")
    assert len(data("replies")["replies"]) == 4
    assert len(data("replies", "--state", "handled")["replies"]) == 15
    weeks = data("results", "--weeks", "4", "--by", "account")["results"]
    assert {one["name"] for one in weeks} >= {"Office line", "Events line", "Community line"}
    warned = [one for one in data("results", "--reputation")["accounts"] if one["warning"]]
    assert [one["name"] for one in warned] == ["Office line"]
    assert "more than doubled" in warned[0]["warning"]
