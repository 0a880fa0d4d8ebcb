"""Accounts whose provider accepts connections and never answers: they must not keep the places of a driver from the
accounts of others. Real sockets and a real driver, judged by the provider's book."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import User
from django.db import connection
from django.utils import timezone

from accounts.channels.registry import transport_for
from accounts.models import Account
from accounts.signin import SignIn
from fanout.engine.clock import SystemClock
from fanout.engine.dispatcher import SEND_LIMIT
from fanout.engine.driver import Driver
from fanout.lanes.accounts import changing, note_test
from fanout.lanes.lane_rows import OUTAGE, wake_after_outage, wake_lanes
from fanout.models import LaneState, Run
from fanout.ops.tasks import open_ledger
from fanout.runs import controls
from fanout.runs.why import why_account
from reminders.models import Recipient, Reminder, ReminderMessage, ReminderTarget
from tests.channels.mail_server import ScriptedServer, wait_until
from tests.engine.stage import Stage, fresh, whole_day
from tests.engine.test_protection import faults

PLACES = 4
SILENT_ACCOUNTS = 10
MAILS = 6
PATIENCE = 2.5 * SEND_LIMIT  # seconds: a call that has begun ends within its limit; then the place is free


class SilentServer:
    """Accepts every connection, reads nothing and says nothing."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self.socket.getsockname()[1]
        self.connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                self.connections.append(self.socket.accept()[0])
            except OSError:
                return

    def close(self) -> None:
        self.socket.close()
        for accepted in self.connections:
            accepted.close()


@pytest.fixture
def silence() -> Iterator[SilentServer]:
    server = SilentServer()
    yield server
    server.close()


@pytest.fixture
def mail_server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as running:
        yield running


def operator(name: str) -> User:
    return get_user_model().objects.create_user(name, is_staff=True, is_superuser=True)


def silent_account(owner: User, n: int, port: int) -> Account:
    """A gateway over HTTP: without an answer the message may have gone out, so it is not tried again at once."""
    return Account.objects.create(
        owner=owner,
        label=f"silent {n}",
        channel="waha",
        address=f"+4915100000{n:03}",
        config={"url": f"http://127.0.0.1:{port}"},
        credentials={"api_key": "key"},
        max_send_per_minute=0,
    )


def mailer(owner: User, port: int) -> Account:
    return Account.objects.create(
        owner=owner,
        label="mailer",
        channel="smtp",
        address="mailer@example.com",
        config={"host": "127.0.0.1", "port": port, "security": "plain"},
        max_send_per_minute=0,
    )


def fire(account: Account, kind: str, addresses: list[str]) -> Run:
    """Make a run of one text to these addresses, due at once."""
    reminder = Reminder.objects.create(
        owner=account.owner,
        account=account,
        title=account.label,
        subject="Rent",
        action="email" if kind == "mailbox" else "message",
        **whole_day(timezone.now()),
    )
    ReminderMessage.objects.create(reminder=reminder, text="Doors open at nine")
    people = Recipient.objects.bulk_create(
        Recipient(owner=account.owner, kind=kind, address=address) for address in addresses
    )
    ReminderTarget.objects.bulk_create(
        ReminderTarget(reminder=reminder, recipient=person, position=n) for n, person in enumerate(people)
    )
    run = controls.fire(reminder, account.owner, timezone.now()).run
    assert run is not None
    return run


def groups(n: int) -> list[str]:
    return [f"12036300{n:04}{place:06}@g.us" for place in range(30)]


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_silent_accounts_of_one_operator_leave_places_for_another(
    silence: SilentServer, mail_server: ScriptedServer
) -> None:
    mallory, ann = operator("mallory"), operator("ann")
    for n in range(SILENT_ACCOUNTS):
        fire(silent_account(mallory, n, silence.port), "group", groups(n))
    account = mailer(ann, mail_server.port)

    async def attack() -> None:
        driver = Driver(SystemClock(), open_ledger, transport_for, capacity=PLACES, slice_seconds=3600)
        driving = asyncio.create_task(driver.run())
        try:
            await asyncio.to_thread(wait_until, lambda: len(silence.connections) >= PLACES, 60)
            await asyncio.to_thread(fire_mails)
            await asyncio.to_thread(wait_until, lambda: len(mail_server.mails) == MAILS, PATIENCE)
        finally:
            driver.stopping = True
            await driving

    def fire_mails() -> None:
        fire(account, "mailbox", [f"u{n}@example.org" for n in range(MAILS)])
        connection.close()  # of this thread

    asyncio.run(attack())
    assert sorted(mail.to[0] for mail in mail_server.mails) == [f"u{n}@example.org" for n in range(MAILS)]


def test_the_break_grows_across_restarts_and_a_delivery_ends_it(stage: Stage) -> None:
    """Every slice of 40 s is a driver of its own: what it knows, it has read."""
    account = stage.account(max_send_per_minute=0)
    faults(stage, {"effect": "hang"})
    run = stage.fire(stage.reminder(account, groups=40))
    stage.play(300)
    calls = [call.t for call in stage.book.refused("hang")]
    began = [first for first, before in zip(calls, [0.0, *calls]) if first - before > 1]  # three at once, then one
    pauses = [later - earlier - SEND_LIMIT for earlier, later in pairwise(began)]
    assert pauses == [pytest.approx(seconds, abs=3) for seconds in (15, 30, 60, 120)]
    assert LaneState.objects.get(account=account).timeouts == 5
    said = "the provider did not answer in time 5 times in a row"
    assert said in why_account(account, stage.now).text
    assert said in fresh(run).waiting_why

    faults(stage)
    stage.play(400)
    lane = LaneState.objects.get(account=account)
    assert (lane.timeouts, lane.probing) == (0, False)
    assert len(stage.book.deliveries()) == fresh(run).sent > 0
    assert "did not answer" not in why_account(account, stage.now).text


def test_one_call_without_an_answer_does_not_stop_a_lane_whose_others_get_through(stage: Stage) -> None:
    account = stage.account(max_send_per_minute=60)
    faults(stage, {"match": {"every": 20}, "effect": "hang"})
    run = stage.fire(stage.reminder(account, groups=60))
    stage.play(90)
    assert LaneState.objects.get(account=account).timeouts == 0
    assert len(stage.book.deliveries()) == fresh(run).sent == 57


def test_new_credentials_and_a_successful_test_end_the_break(stage: Stage) -> None:
    account = stage.account()
    later = stage.now + timedelta(minutes=9)
    stored = LaneState.objects.create(account=account, timeouts=6, next_send_at=later, due_at=later)
    for end_break in (change_credentials, succeed_in_a_test):
        stored.save()
        end_break(account, stage)
        lane = LaneState.objects.get(account=account)
        assert (lane.timeouts, lane.next_send_at, lane.due_at) == (0, None, stage.now)


def change_credentials(account: Account, stage: Stage) -> None:
    with changing(account, stage.user, stage.now) as change:
        change.enter({"key": "a new one"}, replace=True)


def succeed_in_a_test(account: Account, stage: Stage) -> None:
    note_test(account, SignIn(True, "signed in"), stage.user, stage.now)


def test_a_busy_owner_makes_room_for_another(stage: Stage) -> None:
    """No provider is slow here, and every account has work for minutes: only the shares free a place."""
    stage.capacity = PLACES
    for n in range(2 * PLACES):
        account = stage.account(max_send_per_minute=60, send_burst=1)
        stage.fire(stage.reminder(account, groups=120, first=1000 * n))
    stage.play(3)
    stage.user = operator("ann")
    for n in (20, 21):
        stage.fire(stage.reminder(stage.account(max_send_per_minute=60, address=f"ann-{n}"), groups=30, first=1000 * n))
    fired = stage.now
    stage.play(12)
    for n in (20, 21):
        first = stage.book.deliveries(f"ann-{n}")[0].t
        assert first - fired.timestamp() < 6
    others = [delivery for delivery in stage.book.deliveries() if not delivery.account.startswith("ann")]
    assert len({d.account for d in others if d.t > fired.timestamp() + 8}) == PLACES - 2


def test_a_lane_that_is_woken_during_an_outage_still_waits_for_its_provider(stage: Stage) -> None:
    """Otherwise the process that knows when the provider is back would not find it."""
    account = stage.account(group_concurrency=1)
    faults(stage, {"match": {"first": 1}, "effect": "unavailable", "retry_after": 60})
    run = stage.fire(stage.reminder(account, groups=3))
    stage.play(5)
    (parked,) = LaneState.objects.filter(holder="", why__startswith=OUTAGE)
    wake_lanes([account.pk], stage.now)
    stage.play(5)
    (again,) = LaneState.objects.filter(holder="", why=parked.why)
    assert again.epoch > parked.epoch
    assert again.next_send_at == parked.next_send_at
    assert wake_after_outage([account.pk], stage.now) == [account.pk]
    stage.play(10)
    assert fresh(run).sent == 3
