"""Notifications by mail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from django.core import mail
from django.db import connection, transaction
from django.urls import reverse
from django.utils import timezone

from fanout.admin.stream import missed_notifications
from fanout.database import execute
from fanout.lanes.telling import tell_of_reminder
from fanout.models import Notification, Run, Subscription
from fanout.ops import passing_on
from tests.admin.conftest import login
from tests.admin.test_notifications import paused_run
from tests.channels.mail_server import ScriptedServer
from tests.factories import NotificationFactory, ReminderFactory


def test_mail_goes_to_those_who_want_it_once(operator, colleague):
    Subscription.objects.create(user=operator, email="mei@example.com")
    NotificationFactory.create(user=operator, title="Reminder paused", level="warning")
    NotificationFactory.create(user=operator, title="Reminder sent", level="info")
    NotificationFactory.create(user=colleague, level="warning")
    for _ in range(2):
        passing_on.pass_on(timezone.now())
    assert [message.subject for message in mail.outbox] == ["Reminder paused"]
    assert not Notification.objects.filter(passed_on_at=None).exists()


def test_one_for_a_person_without_mail_that_comes_in_between_stops_nothing(operator, colleague):
    Subscription.objects.create(user=operator, email="mei@example.com")
    NotificationFactory.create(user=operator, title="Reminder paused", level="warning")
    late: list[Notification] = []

    def then_another(execute: Any, sql: str, *args: Any) -> Any:
        answer = execute(sql, *args)
        if sql.startswith("UPDATE") and not late:
            late.append(NotificationFactory.create(user=colleague, level="warning"))
        return answer

    with connection.execute_wrapper(then_another):
        assert passing_on.pass_on(timezone.now()) == 1
    assert [message.subject for message in mail.outbox] == ["Reminder paused"]
    passing_on.pass_on(timezone.now())
    assert not Notification.objects.filter(passed_on_at=None).exists()


@pytest.fixture
def smtp(settings: Any) -> Iterator[ScriptedServer]:
    """A real mail server for Crier's own mail."""
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    with ScriptedServer() as server:
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", server.port
        yield server


def test_a_mail_server_gets_the_title_and_the_cause(operator, smtp):
    run = paused_run(operator)
    Run.objects.update(title="Town hall tonight")
    Subscription.objects.create(user=operator, email="mei@example.com")
    body = "Sent to 1 of 2 groups. Resume from the Activity tab. Town hall tonight: delivery window closed."
    NotificationFactory.create(user=operator, run=run, title="Reminder paused", body=body, level="warning")
    assert passing_on.pass_on(timezone.now()) == 1
    (letter,) = smtp.mails
    assert letter.to == ["mei@example.com"]
    assert letter.message["Subject"] == "Reminder paused: Town hall tonight"
    text = letter.message.get_content()
    assert "delivery window closed" in text
    assert reverse("admin:fanout_run_change", args=[run.pk]) in text


def test_a_mail_about_a_reminder_names_it_and_leads_to_it(operator, smtp):
    reminder = ReminderFactory.create(owner=operator, title="Rent")
    Subscription.objects.create(user=operator, email="mei@example.com")
    with transaction.atomic():
        execute(*tell_of_reminder(reminder, "Reminder switched off", "It was switched off.", timezone.now()))
    (frame,) = missed_notifications(operator.pk, 0, timezone.now())
    page = reverse("admin:reminders_reminder_change", args=[reminder.pk])
    assert page in frame
    assert passing_on.pass_on(timezone.now()) == 1
    (letter,) = smtp.mails
    assert letter.message["Subject"] == "Reminder switched off: Rent"
    assert page in letter.message.get_content()


def test_a_trial_says_whether_it_arrived(operator, smtp):
    data = {"email": "mei@example.com", "bell": "on", "team": "on", "try_out": "1"}
    client = login(operator)

    def said() -> str:
        return " ".join(
            str(one) for one in client.post(reverse("admin:my_notifications"), data, follow=True).context["messages"]
        )

    assert "A test was sent." in said()
    assert len(smtp.mails) == 1
    smtp.script.rcpt = "550 5.1.1 no such mailbox"
    assert "The mail to mei@example.com could not be sent" in said()


def test_a_slow_mail_server_does_not_use_up_the_time_of_others(operator, colleague, monkeypatch):
    for user, count in ((operator, 20), (colleague, 3)):
        Subscription.objects.create(user=user, email="a@example.com")
        NotificationFactory.create_batch(count, user=user, level="warning")
    clock, told = [0.0], []

    def deliver(notification: Notification, wish: Subscription) -> list[str]:
        told.append(wish.user_id)
        clock[0] += 5.0 if wish.user_id == operator.pk else 0.1
        return []

    monkeypatch.setattr(passing_on, "deliver", deliver)
    monkeypatch.setattr(passing_on, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    passing_on.pass_on(timezone.now())
    assert Counter(told) == {operator.pk: 1, colleague.pk: 3}
    passing_on.pass_on(timezone.now())
    assert told.count(operator.pk) == 2  # the rest is not lost


def test_an_internal_error_does_not_stop_other_notifications(operator, colleague, monkeypatch):
    send = passing_on._mail
    monkeypatch.setattr(passing_on, "_mail", lambda one, to: 1 / 0 if to == "x@example.com" else send(one, to))
    Subscription.objects.create(user=operator, email="x@example.com")
    Subscription.objects.create(user=colleague, email="jonas@example.com")
    for user in (operator, colleague):
        NotificationFactory.create(user=user, level="warning")
    passing_on.pass_on(timezone.now())
    assert len(mail.outbox) == 1
