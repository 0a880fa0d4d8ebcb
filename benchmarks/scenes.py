"""Large scenes for benchmarks, written by a few statements: thousands of accounts, each with a run that is due."""

from __future__ import annotations

from datetime import datetime

from django.contrib.auth import get_user_model
from django.db import connection

from accounts.models import Account
from fanout.lanes.lane_rows import wake_lanes
from fanout.models import Run
from reminders.models import Recipient, Reminder, ReminderMessage, ReminderTarget

# Each target is what `fanout.runs.freezing.FREEZE` makes of it, without a plan.
TARGETS = """
INSERT INTO fanout_runtarget (run_id, account_id, recipient_id, position, address, status, parts_sent, attempts,
                              claim_epoch, provider_id, error_kind, error)
SELECT r.id, r.account_id, p.id, row_number() OVER (PARTITION BY r.id ORDER BY p.id), p.address, 'pending', 0, 0, 0, '',
       '', ''
  FROM fanout_run r, reminders_recipient p WHERE r.id = ANY(%s)
"""


def due_runs(accounts: int, targets: int, due_at: datetime, per_minute: float, concurrency: int = 3) -> None:
    """A run of `targets` recipients on each of `accounts` accounts, all due at the same moment."""
    reminders = _reminders(accounts, targets, per_minute, concurrency)
    runs = Run.objects.bulk_create((_run(reminder, due_at) for reminder in reminders), batch_size=1000)
    ids = [run.pk for run in runs]
    with connection.cursor() as cursor:
        for first in range(0, len(ids), 500):
            cursor.execute(TARGETS, [ids[first : first + 500]])
    wake_lanes([run.account_id for run in runs], due_at)
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")


def scheduled(reminders: int, targets: int, due_at: datetime) -> None:
    """Reminders of `targets` recipients, each on an account of its own, all due at the same moment."""
    made = _reminders(reminders, targets, per_minute=40, concurrency=3)
    recipients = list(Recipient.objects.values_list("pk", flat=True))
    ReminderMessage.objects.bulk_create(ReminderMessage(reminder=reminder, text="A reminder") for reminder in made)
    ReminderTarget.objects.bulk_create(
        (
            ReminderTarget(reminder=reminder, recipient_id=recipient, position=position)
            for reminder in made
            for position, recipient in enumerate(recipients)
        ),
        batch_size=5000,
    )
    Reminder.objects.update(schedule="cron", cron="0 9 * * *", next_fire_at=due_at)
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")


def _reminders(accounts: int, targets: int, per_minute: float, concurrency: int) -> list[Reminder]:
    user = get_user_model().objects.create_user(f"benchmark {get_user_model().objects.count()}")
    Recipient.objects.bulk_create(
        Recipient(owner=user, kind="group", address=f"{10**12 + n}@g.us") for n in range(targets)
    )
    senders = Account.objects.bulk_create(
        (
            Account(
                owner=user,
                label=f"account {n}",
                channel="sandbox",
                address=f"a{n}",
                max_send_per_minute=per_minute,
                group_concurrency=concurrency,
            )
            for n in range(accounts)
        ),
        batch_size=1000,
    )
    return Reminder.objects.bulk_create(
        (
            Reminder(
                owner=user,
                title=f"benchmark {account.label}",
                account=account,
                delivery_window_start_hour=0,
                delivery_window_end_hour=24,
            )
            for account in senders
        ),
        batch_size=1000,
    )


def _run(reminder: Reminder, due_at: datetime) -> Run:
    return Run(
        reminder=reminder,
        account_id=reminder.account_id,
        lanes=[reminder.account_id],
        owner_id=reminder.owner_id,
        title=reminder.title,
        action="message",
        scheduled_for=due_at,
        parts=[{"kind": "text", "text": "A reminder"}],
        timezone=reminder.timezone,
        window_start_hour=0,
        window_end_hour=24,
        window_closes_at=reminder.window.closes_on(due_at),
    )
