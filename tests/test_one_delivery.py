"""One delivery, from the form to the page. Start reading here.

A person fills in the reminder form, the reminder becomes due, a driver claims the recipient, the provider is called,
the answer is recorded, and the run's page shows it. Each step names the code that does it; docs/flow.md describes the
same path with all its exceptions. Everything is real (admin, PostgreSQL, driver, lane) except two things: the clock
is virtual, so that waiting takes no time, and the provider is the sandbox, which keeps a book of what it delivered.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.contrib.auth.models import Group
from django.test import Client
from django.urls import reverse

from accounts.access import OPERATORS
from accounts.channels.base import AccountConfig, Outcome, Part, Sent
from fanout.models import Activity, Event, LaneState, Notification, Run, RunTarget
from fanout.runs.firing import fire_due
from reminders.models import Recipient, Reminder
from tests.engine.stage import MONDAY, FarAwayTransport, Stage

CHOIR = "120363025246125400@g.us"
FORM = {
    "title": "Rehearsal",
    "timezone": "UTC",
    "schedule": "once",
    "fire_at": "2026-01-05T09:00",  # MONDAY
    "cron": "",
    "delivery_window_start_hour": 6,
    "delivery_window_end_hour": 18,
    "paste": f"Choir; {CHOIR}",
    "tag": "",
    "messages-TOTAL_FORMS": 1,
    "messages-INITIAL_FORMS": 0,
    "messages-0-kind": "text",
    "messages-0-text": "Hello {name|everyone}, we sing at eight.",
    "reply_parts-TOTAL_FORMS": 0,
    "reply_parts-INITIAL_FORMS": 0,
    "follow_up_parts-TOTAL_FORMS": 0,
    "follow_up_parts-INITIAL_FORMS": 0,
}


class WatchedTransport(FarAwayTransport):
    """The sandbox's transport. It notes the target's status in the database during the call."""

    def __init__(self, account: AccountConfig, stage: Stage, seen: list[Any]) -> None:
        super().__init__(account, stage.provider, stage.at_provider)
        self.database, self.seen = stage.watching, seen

    async def send(self, address: str, part: Part, message_id: str) -> Outcome:
        (row,) = await self.database.query("SELECT status FROM fanout_runtarget")
        outcome = await super().send(address, part, message_id)
        self.seen.append((row, address, part.text, outcome))
        return outcome


@pytest.fixture
def client(stage: Stage) -> Client:
    """An operator who is logged in."""
    stage.user.groups.add(Group.objects.get(name=OPERATORS))
    client = Client()
    client.force_login(stage.user)
    return client


def test_one_delivery(stage: Stage, client: Client) -> None:
    account = stage.account(label="Events line")

    # 1. An hour before it is due, an operator fills in the form (fanout/admin). The form turns the pasted
    #    line into a recipient (reminders/imports.py, reminders/targets.py), checks that the reminder can be sent
    #    (reminders/readiness.py, reminders/wording.py) and computes when it fires (reminders/schedule.py).
    with time_machine.travel(MONDAY - timedelta(hours=1), tick=False):
        answer = client.post(reverse("admin:reminders_reminder_add"), FORM | {"account": account.pk})
    assert answer.status_code == 302, answer.context["errors"]
    reminder = Reminder.objects.get()
    assert (reminder.enabled, reminder.next_fire_at) == (True, MONDAY)
    assert Recipient.objects.get().address == CHOIR

    # 2. Every minute a task of the cluster "main" (fanout/ops/tasks.py) fires what is due within the next minute
    #    (fanout/runs). The reminder becomes a run: its text, window and recipients are copied ("frozen") into the run
    #    and its targets, so later edits change nothing. A unique constraint allows one run per reminder and moment.
    stage.now = MONDAY - timedelta(seconds=30)
    (run,) = fire_due(stage.now)
    assert fire_due(stage.now) == []
    target = RunTarget.objects.get(run=run)
    assert (run.status, target.status, target.account_id) == ("queued", "pending", account.pk)

    #    The same transaction makes the account's lane due at that second (fanout/lanes): the lane is the account's
    #    queue, and its row tells drivers when to look at it.
    assert LaneState.objects.get(account=account).due_at == MONDAY

    # 3. A driver, a task of the cluster "drivers", takes the lane: it holds the account's advisory lock and raises
    #    the lane's epoch, so that no other process can send for this account (fanout/engine/driver.py). The lane asks
    #    the gates whether it may send now and the pace when (fanout/rules/gates.py, fanout/rules/pace.py), claims the
    #    target, calls the provider through the account's transport (accounts/channels/), and records the outcome
    #    (fanout/engine/ledger.py, with the statements of fanout/engine/commit.py).
    seen: list[Any] = []
    stage.transport = lambda account: WatchedTransport(account, stage, seen)  # type: ignore[method-assign]
    stage.play()

    #    The claim was committed before the provider was called: a crash in between leaves `sending`, which the next
    #    driver finds and calls unconfirmed instead of sending it again.
    ((row, address, text, outcome),) = seen
    assert row == {"status": "sending"}
    assert (address, text) == (CHOIR, "Hello Choir, we sing at eight.")
    assert isinstance(outcome, Sent)

    # 4. The provider's own book has the message once, in the second in which it was due.
    (delivery,) = stage.book.deliveries()
    assert delivery.to == CHOIR
    assert stage.times()[0] - MONDAY < timedelta(seconds=1)

    # 5. The record: the target is sent, the account's activity (which daily caps count) has a row, and a trigger has
    #    kept the run's counters (fanout/migrations/version_1_0/counters.py).
    target.refresh_from_db()
    run.refresh_from_db()
    assert (target.status, target.parts_sent) == ("sent", 1)
    assert Activity.objects.get(account=account).run_target_id == target.pk
    assert (run.total, run.pending, run.sending, run.sent) == (1, 0, 0, 1)

    # 6. Nothing is left to send, so the lane finishes the run (fanout/runs/transitions.py): status, summary, timeline
    #    and notification are one transaction. The lane has nothing due any more, and its lock is free.
    assert run.status == Run.Status.SUCCESS
    assert Event.objects.filter(run=run).exists()
    assert Notification.objects.get(run=run).user == stage.user
    assert LaneState.objects.get(account=account).due_at is None

    # 7. The operator sees it on the run's page (fanout/admin).
    with time_machine.travel(stage.now, tick=False):
        page = client.get(reverse("admin:fanout_run_change", args=[run.pk])).content.decode()
    words = " ".join(re.sub("<[^>]+>", " ", page).split())
    assert "Rehearsal Success Events line" in words
    assert "1 sent 0 pending 0 in flight 0 failed 0 skipped 0 unconfirmed" in words
