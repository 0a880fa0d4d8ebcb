"""A database that is thrown away, and a scene on it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from django.conf import settings
from django.core.management import call_command
from django.db import connection
from django.utils import timezone


@contextmanager
def empty_database() -> Iterator[str]:
    """The name of a database that is dropped at the end."""
    name = f"crier_bench_{os.getpid()}"
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name}")
    connection.close()
    try:
        yield name
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE {name} WITH (FORCE)")
        connection.close()


@contextmanager
def scratch_database() -> Iterator[None]:
    """Django works on a fresh database of its own inside."""
    usual = connection.settings_dict["NAME"]
    with empty_database() as name:
        settings.DATABASES["default"]["NAME"] = connection.settings_dict["NAME"] = name
        try:
            call_command("migrate", verbosity=0)
            yield
        finally:
            connection.close()
            settings.DATABASES["default"]["NAME"] = connection.settings_dict["NAME"] = usual


def fire_everywhere(accounts: int, targets: int, concurrency: int, per_minute: int = 0) -> None:
    """A run of `targets` on each of `accounts` accounts, due now, open around the clock."""
    from django.contrib.auth import get_user_model

    from accounts.models import Account
    from fanout.runs import controls
    from reminders.models import Recipient, Reminder, ReminderMessage, ReminderTarget

    user = get_user_model().objects.create_user("benchmark")
    people = Recipient.objects.bulk_create(
        Recipient(owner=user, kind="group", address=f"{10**12 + n}@g.us") for n in range(targets)
    )
    for n in range(accounts):
        account = Account.objects.create(
            owner=user,
            label=f"account {n}",
            channel="sandbox",
            address=f"a{n}",
            max_send_per_minute=per_minute,
            group_concurrency=concurrency,
        )
        reminder = Reminder.objects.create(
            owner=user,
            title=f"benchmark {n}",
            account=account,
            delivery_window_start_hour=0,
            delivery_window_end_hour=24,
        )
        ReminderMessage.objects.create(reminder=reminder, text="A reminder")
        ReminderTarget.objects.bulk_create(
            ReminderTarget(reminder=reminder, recipient=person, position=i) for i, person in enumerate(people)
        )
        controls.fire(reminder, None, timezone.now() - timedelta(seconds=1))
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
