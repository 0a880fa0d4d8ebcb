"""A real cluster works on reports; killed in the middle, the next one goes on and nothing happens twice."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from django.db.models import Count
from django.utils import timezone

from accounts.channels.provider_events import EventKind, ProviderEvent
from fanout.inbound import event_store
from fanout.models import Activity, Event, InboundEvent, RunTarget
from fanout.rules.message_ids import message_id
from tests.crier_processes import clusters
from tests.factories import RunFactory

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]


def wait(condition: Callable[[], bool], seconds: float = 90.0) -> None:
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.02)


def test_a_cluster_that_is_killed_in_the_middle_loses_nothing_and_repeats_nothing(tmp_path: Path):
    run = RunFactory.create(status="partial", targets={"unconfirmed": 300})
    RunTarget.objects.filter(run=run).update(claimed_at=timezone.now() - timedelta(minutes=1))
    account, targets = run.account_id, list(run.targets.values_list("pk", flat=True))
    done = InboundEvent.objects.filter(state="done")
    with clusters(tmp_path / "1", "main"):
        wait(lambda: _works(account))
        for target in targets:
            receipt = ProviderEvent(f"e-{target}", EventKind.DELIVERED, message_id=message_id(target, 0))
            event_store.store(account, [receipt], timezone.now())
        wait(lambda: done.count() > 20)
    # It was killed -9 while it was at it, or just after; what it had not committed is new.
    with clusters(tmp_path / "2", "main"):
        wait(lambda: done.count() == len(targets) + 1)
    run.refresh_from_db()
    assert (run.sent, run.status) == (300, "success")
    assert not Activity.objects.values("run_target").annotate(n=Count("id")).filter(n__gt=1).exists()
    assert Activity.objects.count() == 300


def _works(account: int) -> bool:
    """Return whether a first report was worked on."""
    first = ProviderEvent("first", EventKind.SESSION, detail={"state": "disconnected"})
    event_store.store(account, [first], timezone.now())
    return Event.objects.filter(account=account, verb="disconnected").exists()
