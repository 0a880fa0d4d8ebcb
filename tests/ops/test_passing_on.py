"""Notifications by mail and webhook."""

from __future__ import annotations

import json
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from django.core import mail
from django.db import transaction
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
    NotificationFactory.create(user=operator, title="Reminder delivered", level="info")
    NotificationFactory.create(user=colleague, level="warning")
    for _ in range(2):
        passing_on.pass_on(timezone.now())
    assert [message.subject for message in mail.outbox] == ["Reminder paused"]
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
    body = "1 of 2 groups delivered. Resume from the Activity tab. Town hall tonight: delivery window closed."
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
    assert passing_on.facts(Notification.objects.get())["reminder"] == "Rent"
    assert passing_on.pass_on(timezone.now()) == 1
    (letter,) = smtp.mails
    assert letter.message["Subject"] == "Reminder switched off: Rent"
    assert page in letter.message.get_content()


def test_a_trial_says_whether_it_arrived(operator, smtp):
    data = {"email": "mei@example.com", "webhook": "", "bell": "on", "team": "on", "try_out": "1"}
    client = login(operator)

    def said() -> str:
        return " ".join(
            str(one) for one in client.post(reverse("admin:my_notifications"), data, follow=True).context["messages"]
        )

    assert "A trial was sent." in said()
    assert len(smtp.mails) == 1
    smtp.script.rcpt = "550 5.1.1 no such mailbox"
    assert "The mail to mei@example.com could not be sent" in said()


class Hook:
    """A server that gives the same answer to every request, and keeps the requests."""

    def __init__(self, answer: bytes) -> None:
        self.answer, self.posted = answer, list[bytes]()
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listening.getsockname()[1]}/x"

    def __enter__(self) -> Hook:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                visitor, _ = self.listening.accept()
                with visitor:
                    visitor.settimeout(0.3)
                    with suppress(TimeoutError):
                        self.posted.append(visitor.recv(65536))
                        self.posted[-1] += visitor.recv(65536)
                    visitor.sendall(self.answer)

    def __exit__(self, *args: object) -> None:
        self.listening.close()


def test_a_webhook_gets_the_facts(operator):
    Subscription.objects.create(user=operator, only_problems=False)
    run = paused_run(operator)
    NotificationFactory.create(user=operator, run=run, title="Reminder paused")
    with Hook(b"HTTP/1.1 204 No Content\r\n\r\n") as hook:
        Subscription.objects.update(webhook=hook.url)
        assert passing_on.pass_on(timezone.now()) == 1
    sent = json.loads(hook.posted[0].partition(b"\r\n\r\n")[2])
    assert (sent["title"], sent["reminder"], sent["cause"]) == ("Reminder paused", run.title, "paused by an operator")


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"garbage\r\n\r\n", id="garbage"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", id="length"),
        pytest.param(b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\n\r\n", id="redirect"),
        pytest.param(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000, id="headers"),
    ],
)
def test_a_webhook_that_answers_garbage_does_not_stop_other_notifications(operator, colleague, answer):
    Subscription.objects.create(user=colleague, email="jonas@example.com")
    with Hook(answer) as hook:
        Subscription.objects.create(user=operator, webhook=hook.url)
        for user in (operator, colleague):
            NotificationFactory.create(user=user, title="Reminder paused", level="warning")
        passing_on.pass_on(timezone.now())
    assert [message.to for message in mail.outbox] == [["jonas@example.com"]]
    assert not Notification.objects.filter(passed_on_at=None).exists()


def test_a_slow_webhook_does_not_use_up_the_time_of_others(operator, colleague, monkeypatch):
    for user, count in ((operator, 20), (colleague, 3)):
        Subscription.objects.create(user=user, webhook="https://hooks.example.com")
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
    monkeypatch.setattr(passing_on, "_post", lambda *args: 1 / 0)
    Subscription.objects.create(user=operator, webhook="https://hooks.example.com/")
    Subscription.objects.create(user=colleague, email="jonas@example.com")
    for user in (operator, colleague):
        NotificationFactory.create(user=user, level="warning")
    passing_on.pass_on(timezone.now())
    assert len(mail.outbox) == 1


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("http://127.0.0.1:8000/", id="own-machine"),
        pytest.param("http://10.0.0.1/", id="private"),
        pytest.param("http://169.254.169.254/latest", id="cloud-metadata"),
        pytest.param("http://[64:ff9b::a9fe:a9fe]/", id="metadata by NAT64"),
        pytest.param("http://224.0.0.1/", id="multicast"),
        pytest.param("http://example.com:99999/", id="port"),
        pytest.param("ftp://example.com/", id="scheme"),
    ],
)
def test_a_webhook_cannot_reach_the_internal_network(url, settings):
    settings.ALLOW_PRIVATE_NETWORKS = []
    assert passing_on.webhook_error(url)


def test_a_webhook_that_was_public_when_it_was_entered_is_checked_when_it_is_called(operator, settings):
    settings.ALLOW_PRIVATE_NETWORKS = []
    NotificationFactory.create(user=operator, level="warning")
    with Hook(b"HTTP/1.1 204 No Content\r\n\r\n") as hook:
        Subscription.objects.create(user=operator, webhook=hook.url)
        passing_on.pass_on(timezone.now())
    assert hook.posted == []
