"""A whole run over SMTP by the real engine, with the server killed and restarted in the middle."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.utils import timezone

from accounts.channels import registry
from accounts.models import Account, DailyLimit
from fanout.models import Run, RunTarget
from fanout.rules import outcomes
from fanout.runs import controls
from reminders.models import Recipient, Reminder, ReminderMessage, ReminderTarget, Suppression
from tests.channels.booking_server import BookingServer
from tests.channels.mail_server import ScriptedServer
from tests.engine.driving import drive
from tests.engine.stage import whole_day

RECIPIENTS = 800
CONNECTIONS = 10
KILL_AFTER = 250


@pytest.fixture
def server(tmp_path: Path) -> Iterator[BookingServer]:
    with BookingServer(tmp_path) as running:
        yield running


@pytest.fixture(autouse=True)
def _no_long_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mail is tried again after minutes; here after moments."""
    quick = replace(registry.channel("smtp"), retries=(0.3, 0.5, 1.0))
    monkeypatch.setitem(registry.channels(), "smtp", quick)
    monkeypatch.setattr(outcomes, "NETWORK_HOLD_MAX", 0.5)


def make_run(port: int, recipients: int = RECIPIENTS, text: str = "Doors open at nine") -> Run:
    owner = get_user_model().objects.create_user("operator", is_staff=True, is_superuser=True)
    account = Account.objects.create(
        owner=owner,
        label="Mailer",
        channel="smtp",
        address="mailer@example.com",
        config={"host": "127.0.0.1", "port": port, "security": "plain"},
        max_send_per_minute=0,
        group_concurrency=CONNECTIONS,
        error_rate_slowdown=1,
        circuit_breaker=1,
    )
    DailyLimit.objects.create(account=account, action="email", limit=None)
    reminder = Reminder.objects.create(
        owner=owner,
        account=account,
        title="Newsletter",
        subject="Newsletter",
        action="email",
        **whole_day(timezone.now()),
    )
    ReminderMessage.objects.create(reminder=reminder, text=text)
    people = Recipient.objects.bulk_create(
        Recipient(owner=owner, kind="mailbox", address=f"u{n}@example.org") for n in range(recipients)
    )
    ReminderTarget.objects.bulk_create(
        ReminderTarget(reminder=reminder, recipient=person, position=n) for n, person in enumerate(people)
    )
    done = controls.fire(reminder, owner, timezone.now())
    assert done.run is not None
    return done.run


@pytest.mark.processes
@pytest.mark.django_db(transaction=True)
def test_a_server_killed_midway_gets_each_mail_once_or_leaves_it_unconfirmed(server: BookingServer) -> None:
    def kill_and_restart() -> None:
        server.kill()
        assert sum(server.deliveries().values()) < RECIPIENTS
        server.start()

    run = make_run(server.port)
    asyncio.run(drive(run.pk, kill_and_restart, lambda: sum(server.deliveries().values()) >= KILL_AFTER))

    delivered = server.deliveries()
    by_status: dict[str, set[str]] = {}
    for status, address in RunTarget.objects.filter(run=run).values_list("status", "address"):
        by_status.setdefault(status, set()).add(address)
    run.refresh_from_db()

    assert max(delivered.values()) == 1
    assert max(server.message_ids().values()) == 1
    assert set(by_status) <= {"sent", "unconfirmed"}
    assert by_status["sent"] <= set(delivered)
    assert set(delivered) - by_status["sent"] <= by_status.get("unconfirmed", set())
    # What was in the air when the server died, and no more.
    assert len(by_status.get("unconfirmed", ())) <= CONNECTIONS
    assert run.sent + run.unconfirmed == run.total == RECIPIENTS
    assert run.status in ("success", "partial")


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("text", "footer"),
    [("Bye: {unsubscribe_link}", False), ("Bye: {unsubscribe_link}", True), ("Doors open at nine", True)],
    ids=["placeholder", "placeholder and switch", "switch"],
)
def test_every_recipient_gets_a_link_of_their_own_that_works(
    client: Client, settings: Any, text: str, footer: bool
) -> None:
    settings.PUBLIC_URL, settings.UNSUBSCRIBE_FOOTER = "https://crier.example", footer
    settings.ALLOWED_HOSTS = ["testserver"]
    with ScriptedServer() as server:
        run = make_run(server.port, 2, text)
        asyncio.run(drive(run.pk, lambda: None, lambda: True))

    assert {mail.to[0] for mail in server.mails} == {"u0@example.org", "u1@example.org"}
    for mail in server.mails:
        body = mail.message.get_content().replace("\r\n", "\n")
        (link,) = re.findall(r"https://crier\.example\S+", body)
        assert mail.message["List-Unsubscribe"].startswith("<https://crier.example/unsubscribe/")
        begins = "Bye: https://" if text.startswith("Bye") else "Doors open at nine\n\nUnsubscribe: https://"
        assert body.startswith(begins)
        assert client.post(link.removeprefix(settings.PUBLIC_URL)).status_code == 200
        assert Suppression.objects.filter(address=mail.to[0]).exists()
