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
    assert "9 past runs" in text("demo_data")
    counts = {model: model.objects.count() for model in (Account, Run, RunTarget, Activity)}
    assert "still going out" in text("demo_data")
    assert {model: model.objects.count() for model in counts} == counts
    statuses = set(Run.objects.values_list("status", flat=True))
    assert statuses == {"success", "partial", "paused", "failed", "skipped", "queued"}
    assert data("limits") == {"violations": [], "repaired": []}
