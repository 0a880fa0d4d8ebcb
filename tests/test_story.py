"""From fired to delivered and told, with real processes; then interrupted by kill -9.

Deliveries are judged by the provider's own book, never by our rows.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path

import pytest
from django.contrib.auth.models import Group
from django.core.management import call_command
from django.urls import reverse
from django.utils import timezone

from accounts.access import OPERATORS
from accounts.models import Account
from fanout.models import Driver, Notification, Run, RunTarget
from fanout.runs import controls, corrections
from reminders.models import Reminder
from tests.crier_processes import clusters
from tests.factories import AccountFactory, ReminderFactory
from tests.sandbox_server import SandboxServer

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]

PATIENCE = 120.0
GROUPS = 60
PARTS = ("First this.", "Then that.")


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[SandboxServer]:
    with SandboxServer(tmp_path, {"*": {"latency_ms": [20, 60]}}) as server:
        yield server


@pytest.fixture
def reminder(provider: SandboxServer) -> Reminder:
    account = AccountFactory.create(
        config={"url": provider.url, "account": "story"},
        max_send_per_minute=1200,
        part_jitter_min_ms=0,
        part_jitter_max_ms=5,
    )
    return ReminderFactory.create(account=account, parts=PARTS, targets=GROUPS)


@pytest.fixture
def crier(tmp_path: Path, reminder: Reminder) -> Iterator[None]:
    with clusters(tmp_path / "log", "drivers", "main", DRIVER_SLOTS="2") as children:
        try:
            wait_for(lambda: Driver.objects.count() == 2)
        except AssertionError:
            raise AssertionError(children["drivers"].tail(30)) from None
        yield


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


def fire(reminder: Reminder) -> Run:
    done = controls.fire(reminder, reminder.owner, timezone.now())
    assert done.run is not None
    assert done.run.pending == GROUPS
    return done.run


def finished(run: Run) -> bool:
    run.refresh_from_db()
    assert run.total == run.pending + run.sending + run.sent + run.failed + run.skipped + run.unconfirmed
    return run.status in Run.FINISHED


def in_book(provider: SandboxServer) -> list[tuple[str, int]]:
    return [(delivery.to, delivery.part) for delivery in provider.book().deliveries()]


def everything(reminder: Reminder) -> set[tuple[str, int]]:
    addresses = reminder.recipients.values_list("address", flat=True)
    return {(address, part) for address in addresses for part in range(len(PARTS))}


def test_a_reminder_fired_in_the_admin_is_delivered_and_the_operator_told(crier, provider, reminder, client):
    operator = reminder.owner
    operator.groups.add(Group.objects.get(name=OPERATORS))
    client.force_login(operator)
    chosen = {"action": "fire_selected", "_selected_action": [reminder.pk], "confirmed": "yes"}
    answer = client.post(reverse("admin:reminders_reminder_changelist"), chosen)
    assert answer.status_code == 302
    run = Run.objects.get()
    assert run.total == GROUPS
    wait_for(lambda: finished(run))

    assert run.status == Run.Status.SUCCESS
    assert sorted(in_book(provider)) == sorted(everything(reminder))
    wait_for(lambda: Notification.objects.exists())
    told = Notification.objects.get(user=operator)
    assert (told.run, told.title) == (run, "Reminder sent")
    assert f"Sent to {GROUPS} of {GROUPS} groups" in told.body
    page = client.get(reverse("admin:fanout_run_changelist")).content.decode()
    assert reminder.title in page
    assert "success" in page


def test_a_worker_killed_on_the_way_sends_nothing_twice_and_loses_nothing(crier, provider, reminder):
    run = fire(reminder)
    wait_for(lambda: len(in_book(provider)) > GROUPS // 2)
    os.kill(Driver.objects.get(lanes__gt=0).pid, signal.SIGKILL)
    wait_for(lambda: finished(run))

    assert run.sent + run.unconfirmed == GROUPS
    assert provider.book().duplicates("to", "part") == {}
    settle_by_the_book(run, provider)
    wait_for(lambda: finished(run))

    assert run.status == Run.Status.SUCCESS
    assert sorted(in_book(provider)) == sorted(everything(reminder))


def test_a_new_rate_reaches_a_running_lane(crier, provider, reminder):
    account = reminder.account
    Account.objects.filter(pk=account.pk).update(max_send_per_minute=30)  # four minutes for all of it
    run = fire(reminder)
    wait_for(lambda: len(in_book(provider)) > 4)
    call_command("tune", account.label, "--set", "max_send_per_minute=3000", stdout=StringIO())
    tuned = time.monotonic()
    wait_for(lambda: finished(run))

    assert run.status == Run.Status.SUCCESS
    assert time.monotonic() - tuned < 90


def settle_by_the_book(run: Run, provider: SandboxServer) -> None:
    """The operator looks into each chat: what arrived was delivered, the rest is sent again."""
    arrived = set(in_book(provider))
    for target in run.targets.filter(status=RunTarget.Status.UNCONFIRMED):
        delivered = (target.address, target.parts_sent) in arrived
        assert corrections.settle(run, [target.pk], delivered, run.owner, timezone.now()).ok
