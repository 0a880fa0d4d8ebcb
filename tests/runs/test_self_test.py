"""A test to oneself goes only where the channel can, ahead of the queue, and its status can be read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from fanout.models import Run, RunTarget
from fanout.plans.queue import queues_of
from fanout.runs.self_test import last_address, send_account_test, send_test, status_of_test
from tests.factories import AccountFactory, ReminderFactory, RunFactory, SuppressionFactory

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("channel", "address", "ok", "action"),
    [
        pytest.param("smtp", "ann@example.com", True, "email", id="mail"),
        pytest.param("smtp", "120363025246125486@g.us", False, "", id="mail to a group"),
        pytest.param("sandbox", "120363025246125486@g.us", True, "message", id="message"),
    ],
)
def test_whom_a_test_reaches(channel: str, address: str, ok: bool, action: str) -> None:
    account = AccountFactory.create(label="Line", channel=channel, address="line@example.com")

    done = send_account_test(account, address, timezone.now())

    assert done.ok is ok
    assert list(Run.objects.values_list("action", flat=True)) == ([action] if ok else [])
    assert ok or done.text == f"Line (smtp) sends to mailboxes only: no test can go to {address}."


def test_a_test_says_what_is_wrong_before_it_is_sent() -> None:
    mail = AccountFactory.create(label="Office", channel="smtp", address="office@example.com")
    reminder = ReminderFactory.create(account=mail, owner=mail.owner, subject="")
    me = "me@example.com"

    assert "Give the reminder a subject" in send_test(reminder, me, mail.owner, timezone.now()).text
    SuppressionFactory.create(address=me)
    assert "me@example.com is suppressed" in send_test(reminder, me, mail.owner, timezone.now()).text
    reminder.messages.all().delete()
    assert "no message yet" in send_test(reminder, me, mail.owner, timezone.now()).text


@pytest.mark.parametrize(
    ("target", "text", "live"),
    [
        pytest.param({"status": "sent", "settled_at": timezone.now()}, "was sent at ", False, id="sent"),
        pytest.param({"status": "failed", "error": "no such number"}, "not delivered: no such number.", False, id="no"),
        pytest.param({"status": "failed", "error_kind": "auth"}, "not delivered: login refused.", False, id="kind"),
        pytest.param({"status": "unconfirmed"}, "had no answer", False, id="unconfirmed"),
        pytest.param({"status": "pending"}, "is on its way: no driver is alive", True, id="pending"),
    ],
)
def test_what_became_of_it(target: dict[str, Any], text: str, live: bool) -> None:
    now = timezone.now()
    account = AccountFactory.create(channel="sandbox")
    run = send_account_test(account, "120363025246125486@g.us", now).run
    assert run is not None
    RunTarget.objects.update(**target)

    shown = status_of_test(run, now, run.timezone)

    assert text in shown.text
    assert shown.text.startswith("The test to 120363025246125486@g.us")
    assert shown.live is live


def test_it_was_sent_at_a_time_by_the_readers_clock_and_by_the_accounts() -> None:
    noon = datetime(2026, 3, 2, 12, tzinfo=UTC)
    account = AccountFactory.create(channel="sandbox", timezone="Asia/Kuala_Lumpur")
    run = send_account_test(account, "120363025246125486@g.us", noon).run
    assert run is not None
    RunTarget.objects.update(status="sent", settled_at=noon)

    assert status_of_test(run, noon, "UTC").text.endswith("was sent at 12:00:00 (20:00:00 Asia/Kuala_Lumpur).")
    assert status_of_test(run, noon, run.timezone).text.endswith("was sent at 20:00:00.")


def test_a_test_goes_ahead_of_the_queue() -> None:
    now = timezone.now()
    account = AccountFactory.create(channel="sandbox")
    before = RunFactory.create(
        reminder__account=account, status="running", scheduled_for=now - timedelta(hours=1), targets={"pending": 3}
    )
    run = send_account_test(account, "120363025246125486@g.us", now).run
    assert run is not None

    ahead = [queued.due for queued in queues_of([account.pk])[account.pk]]

    assert ahead == [None, (before.scheduled_for, before.pk)]
    assert last_address(account.owner, account) == "120363025246125486@g.us"
