"""STOP through a gateway, from the report to the follow-up that is not sent, however the sender is named."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import uvicorn
from django.utils import timezone

from accounts.models import Account
from fanout.inbound import worker
from fanout.inbound.webhooks import Webhooks
from fanout.models import InboundEvent, Run
from fanout.runs import controls
from reminders.models import Recipient, Reminder, Suppression
from tests.channels.mail_server import wait_until
from tests.engine.driving import drive
from tests.gateways.process import GatewayServer
from tests.gateways.running import make_run

SECRET = "a shared secret"
#: Here neither the report nor the gateway tells the number, so that STOP cannot be matched with a recipient. WAHA's
#: WEBJS does not report it either, but the gateway is asked.
NOWHERE = {"nowhere"}


class Case(NamedTuple):
    channel: str
    config: dict[str, Any]
    credentials: dict[str, Any]
    #: what the gateway's book calls the account
    name: str
    #: how senders are named (`Dialect.incoming`); one person each
    hidden: tuple[str, ...]


CASES = [
    Case(
        "waha",
        {"session": "default"},
        {"api_key": "k", "hmac_key": SECRET},
        "default",
        ("", "GOWS", "NOWEB", "NOWEB of 2025", "WEBJS"),
    ),
    Case(
        "evolution",
        {"instance": "acme"},
        {"api_key": "k", "webhook_secret": SECRET},
        "acme",
        ("", "remoteJidAlt", "senderPn", "nowhere"),
    ),
    Case(
        "wassenger",
        {"device": "d1"},
        {"token": "k", "webhook_secret": SECRET},
        "d1",
        ("fromNumber", "nested"),
    ),
    Case(
        "cloud",
        # Nobody has written yet, so that the texts need a template.
        {"phone_number_id": "10200", "template": "news"},
        {"access_token": "k", "app_secret": SECRET},
        "10200",
        ("", "button", "list", "nowhere"),
    ),
]


@contextmanager
def listening() -> Iterator[str]:
    """The address of a web server that takes webhooks."""

    async def not_ours(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError(f"{scope['path']} is no webhook")

    hooks = Webhooks(not_ours)
    server = uvicorn.Server(uvicorn.Config(hooks, port=0, log_level="warning", lifespan="off"))

    async def serve() -> None:
        await server.serve()
        for database in (hooks.intake.accounts, hooks.intake.events) if hooks.intake else ():
            await database.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    wait_until(lambda: server.started, 30)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)


def carry_out(run: Run) -> None:
    asyncio.run(drive(run.pk, lambda: None, lambda: True))


def follow_up(run: Run) -> Run:
    """The reminder once more, to those who have not answered."""
    Reminder.objects.filter(pk=run.reminder_id).update(follow_up=True)
    reminder = Reminder.objects.get(pk=run.reminder_id)
    done = controls.fire(reminder, reminder.owner, timezone.now(), after=run.pk)
    assert done.run is not None
    return done.run


@pytest.mark.processes
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.channel)
def test_stop_is_honoured_however_the_sender_is_named(case: Case, tmp_path: Path) -> None:
    people = {f"+49176000000{n:02d}": hidden for n, hidden in enumerate(case.hidden)}
    told = {number for number, hidden in people.items() if hidden not in NOWHERE}
    recipients = [("person", number) for number in people]

    with GatewayServer(tmp_path, case.channel) as gateway, listening() as site:
        config = {"url": gateway.url, **case.config}
        run = make_run(case.channel, config, case.credentials, recipients, "message")
        account = Account.objects.get()
        gateway.set_hook(case.name, f"{site}/hooks/{case.channel}/{account.hook_token}", SECRET)
        carry_out(run)
        for number, hidden in people.items():
            assert gateway.answer(number, "STOP", hidden) == 200
        queued = follow_up(run)
        while worker.step(timezone.now()):
            pass
        carry_out(queued)

        delivered = [delivery.to for delivery in gateway.book().deliveries()]

    assert InboundEvent.objects.filter(kind="reply", state="done").count() == len(people)
    assert set(Suppression.objects.values_list("address", flat=True)) == told
    opted_out = Recipient.objects.filter(status="opted_out").values_list("address", flat=True)
    assert set(opted_out) == told
    assert sorted(delivered) == sorted([*people, *(number for number in people if number not in told)])
    skipped = queued.targets.filter(status="skipped").values_list("address", flat=True)
    assert set(skipped) == told
