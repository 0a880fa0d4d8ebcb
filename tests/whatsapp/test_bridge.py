"""The bridge as a process of its own: killed, hung, beside another one, and with many accounts."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.utils import timezone

from accounts.channels.base import AccountConfig, Kind, Media, NotSent, Outcome, Part, Sent, Unknown
from accounts.channels.registry import transport_for
from accounts.channels.whatsapp.bridge.conditions import RETRY_WHEN_OFFLINE
from accounts.channels.whatsapp.bridge.journal import JOURNAL_FILE, Journal
from accounts.channels.whatsapp.bridge.scripted import group_address
from accounts.channels.whatsapp.transport import WhatsAppTransport
from accounts.models import Account, PairedSession
from fanout.database import conninfo
from fanout.engine.clock import SystemClock
from fanout.engine.connection import AsyncLink
from fanout.engine.driver import Driver
from fanout.inbound import worker
from fanout.models import Event, InboundEvent, Run, RunTarget
from fanout.ops.tasks import open_ledger
from fanout.runs import controls
from reminders.models import Recipient, ReminderTarget
from tests.factories import AccountFactory, RecipientFactory, ReminderFactory
from tests.whatsapp.running import QUICK, Process, others_rest, wait_for, write_script

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]

GROUPS = 200
GIVE_UP = 180.0
SUSPENDED = "SELECT status = 'suspended' FROM accounts_account WHERE id = %s"
TOLD_UNPAIRED = """
SELECT count(*) > 0 FROM fanout_inboundevent
 WHERE account_id = %s AND kind = 'session' AND detail ->> 'state' = 'unpaired'
"""
TEXT = Part(key="1:0", index=0, kind="text", text="At 8, see you there!")


def account(**facts: Any) -> Account:
    return AccountFactory.create(channel="whatsapp", config={}, max_send_per_minute=0, **facts)


@pytest.fixture(scope="module")
def process(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """One for all tests here: starting it takes seconds. Whoever kills it starts it again."""
    folder = tmp_path_factory.mktemp("bridge")
    write_script(folder)
    with Process(folder) as running:
        yield running


@pytest.fixture
def bridge(process: Process, transactional_db: None, settings: Any) -> Iterator[Process]:
    write_script(process.folder, latency_ms=[1, 3], groups=5)
    process.book.path.unlink(missing_ok=True)
    settings.VAR_DIR = process.var
    yield process
    # It must not write any more when the tables are emptied.
    Account.objects.update(channel="sandbox")
    wait_for(lambda: process.ask("GET", "/accounts") == {})
    wait_for(others_rest)


def logins(bridge: Process, sender: Account) -> list[dict[str, Any]]:
    """Return those of this account: the one of an earlier test may log in late."""
    return [line for line in bridge.book.lines("login") if line["account"] == str(sender.pk)]


def run_of(sender: Account, groups: int) -> Run:
    reminder = ReminderFactory.create(account=sender, owner=sender.owner)
    addresses = [group_address(str(sender.pk), n) for n in range(groups)]
    # The bridge lists them too, at the same time.
    Recipient.objects.bulk_create(
        [Recipient(owner=sender.owner, kind="group", address=address) for address in addresses], ignore_conflicts=True
    )
    recipients = Recipient.objects.filter(owner=sender.owner, address__in=addresses)
    ReminderTarget.objects.bulk_create(
        ReminderTarget(reminder=reminder, recipient=one, position=n) for n, one in enumerate(recipients)
    )
    done = controls.fire(reminder, sender.owner, timezone.now())
    assert done.run is not None
    return done.run


async def drive(accident: Callable[[], None], is_time: Callable[[], object], over: Awaitable[None]) -> None:
    driver = Driver(SystemClock(), open_ledger, transport_for, capacity=8, slice_seconds=3600)
    driving = asyncio.create_task(driver.run())
    try:
        async with asyncio.timeout(GIVE_UP):
            await asyncio.to_thread(wait_for, is_time)
            await asyncio.to_thread(accident)
            await over
    finally:
        driver.stopping = True
        await driving


async def says(statement: str, *values: Any) -> None:
    """Until the database answers yes."""
    link = await AsyncLink.open(conninfo(connection.settings_dict))
    try:
        while True:
            (row,) = await link.query(f"SELECT ({statement}) AS yes", values)
            if row["yes"]:
                return
            await asyncio.sleep(0.1)
    finally:
        await link.close()


def send(account_id: int, address: str, message_id: str = "crier-1-0", timeout: float = 30.0) -> Outcome:
    async def go() -> Outcome:
        transport = WhatsAppTransport(AccountConfig(account_id, "whatsapp", "Line", "", {}))
        transport.bridge.timeout = timeout
        try:
            return await transport.send(address, TEXT, message_id)
        finally:
            await transport.close()

    return asyncio.run(go())


def process_inbound() -> None:
    """As the worker would: everything that came in so far."""
    while worker.step(timezone.now()):
        pass


def upload(account_id: int, content: bytes) -> str:
    async def go() -> str:
        transport = WhatsAppTransport(AccountConfig(account_id, "whatsapp", "Line", "", {}))
        media = Media("f" * 64, "file.bin", "application/octet-stream", len(content), lambda: content)
        try:
            return (await transport.prepare(media)).value
        finally:
            await transport.close()

    return asyncio.run(go())


def test_a_bridge_killed_midway_loses_nothing_and_doubles_nothing(bridge: Process) -> None:
    write_script(bridge.folder, latency_ms=[1, 3], groups=GROUPS)
    sender = account()
    bridge.pair_all(sender.pk)
    bridge.wait_state(sender.pk, "connected")
    run = run_of(sender, GROUPS)

    def kill_and_restart() -> None:
        bridge.kill()
        assert len(bridge.delivered()) < GROUPS
        bridge.start()

    over = says("SELECT finished_at IS NOT NULL FROM fanout_run WHERE id = %s", run.pk)
    asyncio.run(drive(kill_and_restart, lambda: len(bridge.delivered()) > GROUPS // 4, over))

    delivered = Counter(line["to"] for line in bridge.delivered())
    by_status: dict[str, set[str]] = {}
    for status, address in RunTarget.objects.filter(run=run).values_list("status", "address"):
        by_status.setdefault(status, set()).add(address)
    unconfirmed = by_status.get("unconfirmed", set())
    assert max(delivered.values()) == 1
    assert set(by_status) <= {"sent", "unconfirmed"}
    assert by_status["sent"] <= set(delivered)
    assert set(delivered) - by_status["sent"] <= unconfirmed
    # One message at a time, so one was in the air.
    assert len(unconfirmed) <= 1
    _, login = logins(bridge, sender)
    # The number woke its lane: it did not wait until the bridge is asked again.
    resumed = next(line["t"] for line in bridge.delivered() if line["t"] > login["t"])
    assert resumed - login["t"] < RETRY_WHEN_OFFLINE / 2
    # What had gone out all the same is settled by its receipt, which came after the restart.
    wait_for(
        lambda: InboundEvent.objects.filter(kind="delivered").count() == GROUPS - len(unconfirmed - set(delivered))
    )
    process_inbound()
    left = set(RunTarget.objects.filter(run=run, status="unconfirmed").values_list("address", flat=True))
    assert left == unconfirmed - set(delivered)
    assert RunTarget.objects.filter(run=run, delivered_at=None).count() == len(left)


def test_what_never_left_a_killed_bridge_is_sent_again_by_itself(
    bridge: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bridge had taken the order, and had not begun it: no operator needs to decide."""
    monkeypatch.setattr("accounts.channels.whatsapp.transport.RETRY_WHEN_OFFLINE", 0.2)
    limits = QUICK | {"review_after": 1.0}
    write_script(bridge.folder, limits=limits, question=60)
    sender = account()
    in_use_for_long(bridge, sender)
    bridge.kill()
    bridge.start()
    bridge.wait_state(sender.pk, "connected")
    reminder = ReminderFactory.create(account=sender, owner=sender.owner)
    for n in range(3):
        person = RecipientFactory.create(owner=sender.owner, kind="person", address=f"+491520000010{n}")
        ReminderTarget.objects.create(reminder=reminder, recipient=person, position=n)
    run = controls.fire(reminder, sender.owner, timezone.now()).run
    assert run is not None

    def kill_and_restart() -> None:
        bridge.kill()
        write_script(bridge.folder, limits=limits)
        bridge.start()

    over = says("SELECT sent = 3 FROM fanout_run WHERE id = %s", run.pk)
    asyncio.run(drive(kill_and_restart, lambda: bridge.book.lines("question"), over))

    assert sorted(line["to"] for line in bridge.delivered()) == [f"491520000010{n}@s.whatsapp.net" for n in range(3)]
    settled = Event.objects.filter(run=run, verb="settled").values_list("detail", flat=True)
    assert list(settled) == ["1 × never left, by the bridge's journal: send again"]


def in_use_for_long(bridge: Process, sender: Account) -> None:
    """Pair the number, and have its journal prove what happens from now on."""
    bridge.pair_all(sender.pk)
    journal = Journal(bridge.var / "whatsapp" / str(sender.pk) / JOURNAL_FILE)
    since = timezone.now() - timedelta(days=1)
    PairedSession.objects.update_or_create(
        account=sender, defaults={"journal": journal.id(), "journal_since": since, "host": "here"}
    )
    journal.close()


@pytest.mark.parametrize(
    ("event", "fields", "over"),
    [
        # The lane itself learns of a ban, from its next message.
        ("TemporaryBan", {"Code": 4, "Expire": 7200}, SUSPENDED),
        ("LoggedOut", {}, TOLD_UNPAIRED),
    ],
    ids=["banned", "logged out"],
)
def test_an_account_in_trouble_fails_nobody(bridge: Process, event: str, fields: dict[str, Any], over: str) -> None:
    write_script(bridge.folder, latency_ms=[20, 40], groups=200)
    sender = account()
    bridge.pair_all(sender.pk)
    bridge.wait_state(sender.pk, "connected")
    run = run_of(sender, 200)

    trouble = partial(bridge.happen, sender.pk, event=event, fields=fields)
    asyncio.run(drive(trouble, lambda: len(bridge.delivered()) > 5, says(over, sender.pk)))

    run.refresh_from_db()
    assert (run.failed, run.skipped, run.unconfirmed) == (0, 0, 0)
    assert run.sent == len(bridge.delivered())
    assert run.pending == 200 - run.sent > 0
    if event == "TemporaryBan":
        sender.refresh_from_db()
        assert sender.status_until is not None
        assert sender.status_until > timezone.now() + timedelta(hours=1)


def test_a_frozen_bridge_has_taken_nothing_until_it_says_so(bridge: Process) -> None:
    sender = account()
    bridge.pair_all(sender.pk)
    bridge.wait_state(sender.pk, "connected")
    address = group_address(str(sender.pk), 0)

    bridge.freeze()
    outcome = send(sender.pk, address, timeout=0.5)
    bridge.thaw()

    assert isinstance(outcome, NotSent)
    assert outcome.kind is Kind.UNAVAILABLE
    bridge.wait_state(sender.pk, "connected")
    assert isinstance(send(sender.pk, address), Sent)
    assert len(bridge.delivered()) == 1


def test_a_bridge_killed_while_it_sends_leaves_doubt_and_the_receipt_ends_it(bridge: Process) -> None:
    sender = account()
    bridge.pair_all(sender.pk)
    bridge.wait_state(sender.pk, "connected")
    address = group_address(str(sender.pk), 0)
    write_script(bridge.folder, groups=5, sends={address: {"late": 30}}, receipts=30)

    assert isinstance(send(sender.pk, address, "crier-7-0", timeout=3.0), Unknown)
    wait_for(bridge.delivered)
    bridge.kill()
    assert len(bridge.delivered()) == 1
    assert not InboundEvent.objects.filter(kind="delivered").exists()
    # A younger journal settles nothing by chat.
    PairedSession.objects.update(journal_since=timezone.now() - timedelta(days=31))
    bridge.start()

    wait_for(InboundEvent.objects.filter(kind="delivered", message_id="crier-7-0").exists)
    assert InboundEvent.objects.get(kind="delivered").provider_id == bridge.delivered()[0]["id"]


def test_two_bridges_never_have_one_account_and_the_second_takes_over(bridge: Process) -> None:
    sender = account()
    bridge.pair_all(sender.pk)
    bridge.wait_state(sender.pk, "connected")
    address = group_address(str(sender.pk), 0)
    with Process(bridge.folder, "second") as second:
        second_url = second.url
        answer = second.ask("GET", f"/accounts/{sender.pk}")
        assert (answer["status"], answer["owner"]) == (421, bridge.url)
        # A lane that comes to the wrong one is shown the way, with files as well.
        assert isinstance(send(sender.pk, address), Sent)
        assert upload(sender.pk, b"\xff\x00 no text")
        assert {line["pid"] for line in bridge.book.lines("login")} == {bridge.child.pid}

        bridge.kill()

        assert second.wait_state(sender.pk, "connected")["connected"]
        assert {line["pid"] for line in bridge.book.lines("login")} == {bridge.child.pid, second.child.pid}
        assert second.url == second_url
        assert isinstance(send(sender.pk, address, "crier-2-0"), Sent)
    assert len(bridge.delivered()) == 2
    bridge.start()


def test_a_number_that_an_operator_moves_away_and_back(bridge: Process) -> None:
    sender = account()
    bridge.pair_all(sender.pk)
    bridge.wait_state(sender.pk, "connected")
    address = group_address(str(sender.pk), 0)
    here = PairedSession.objects.get(account=sender).host
    call_command("account", "move", str(sender.pk), "--to", f"not {here}")

    wait_for(lambda: bridge.ask("GET", f"/accounts/{sender.pk}").get("status") == 421)
    assert isinstance(send(sender.pk, address), NotSent)
    call_command("account", "move", str(sender.pk), "--to", here)
    bridge.wait_state(sender.pk, "connected")
    assert isinstance(send(sender.pk, address), Sent)
    assert len(bridge.delivered()) == 1


def test_after_a_restore_nothing_is_sent_before_an_operator_says_so(bridge: Process) -> None:
    sender = account()
    bridge.pair_all(sender.pk)
    bridge.wait_state(sender.pk, "connected")
    address, stored = group_address(str(sender.pk), 0), PairedSession.objects.filter(account=sender)
    assert isinstance(send(sender.pk, address), Sent)
    wait_for(lambda: stored.get().journal_page > 0)
    bridge.kill()
    stored.update(journal_page=0)  # as in an older backup
    bridge.start()
    bridge.wait_state(sender.pk, "connected")

    refused = send(sender.pk, address, "crier-2-0")
    assert isinstance(refused, NotSent)
    assert "restored from a backup" in refused.detail
    call_command("account", "restored")
    assert isinstance(send(sender.pk, address, "crier-2-0"), Sent)
    assert len(bridge.delivered()) == 2


def test_a_bridge_that_loses_its_locks_ends_its_sessions_and_begins_anew(bridge: Process) -> None:
    sender = account()
    bridge.pair_all(sender.pk)
    bridge.wait_state(sender.pk, "connected")

    assert len(logins(bridge, sender)) == 1

    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE application_name LIKE 'crier-bridge %' AND datname = current_database()"
        )
        assert cursor.fetchone() == (1,)

    wait_for(lambda: len(logins(bridge, sender)) == 2)
    assert isinstance(send(sender.pk, group_address(str(sender.pk), 0)), Sent)


def test_sixty_accounts_in_one_bridge(bridge: Process) -> None:
    before = bridge.ask("GET", "/healthz")["memory"]
    senders = [account() for _ in range(60)]
    bridge.pair_all(*(sender.pk for sender in senders))
    wait_for(lambda: sum(s["connected"] for s in bridge.ask("GET", "/accounts").values()) == 60)

    async def all_send() -> list[Outcome]:
        transports = [WhatsAppTransport(AccountConfig(s.pk, "whatsapp", "Line", "", {})) for s in senders]
        try:
            sends = [
                transport.send(group_address(str(transport.account.id), 0), TEXT, f"crier-{transport.account.id}-0")
                for transport in transports
            ]
            return await asyncio.gather(*sends)
        finally:
            for transport in transports:
                await transport.close()

    assert all(isinstance(outcome, Sent) for outcome in asyncio.run(all_send()))
    assert len({line["account"] for line in bridge.delivered()}) == 60
    grown = bridge.ask("GET", "/healthz")["memory"] - before
    # Groups, journal and tasks of an account; neonize's own client takes about 1.5 MB more.
    assert grown / 60 < 3_000_000


def test_every_kind_of_message_in_the_librarys_own_classes(bridge: Process) -> None:
    """neonize's, where it is installed: they refuse fields that they do not have."""
    sender = account()
    bridge.pair_all(sender.pk)
    bridge.wait_state(sender.pk, "connected")
    address = group_address(str(sender.pk), 0)
    mimes = {"image": "image/png", "video": "video/mp4", "audio": "audio/ogg", "document": "application/pdf"}

    async def go() -> list[Outcome]:
        transport = WhatsAppTransport(AccountConfig(sender.pk, "whatsapp", "Line", "", {"typing": True}))
        outcomes = [await transport.send("+4915200000001", TEXT, "crier-9-0")]
        try:
            for n, (kind, mime) in enumerate(mimes.items(), start=1):
                media = Media(f"{n}" * 64, f"file.{kind}", mime, 4, lambda: b"file", kind)
                handle = (await transport.prepare(media)).value
                part = Part(key="1:1", index=n, kind=kind, text="" if kind == "audio" else "See", media=media)
                outcomes.append(await transport.send(address, replace(part, handle=handle), f"crier-9-{n}"))
        finally:
            await transport.close()
        return outcomes

    assert all(isinstance(outcome, Sent) for outcome in asyncio.run(go()))
    assert [line["kind"] for line in bridge.delivered()] == ["text", *mimes]
    bridge.happen(sender.pk, say="I am in!", id="A1", **{"in": address})
    wait_for(InboundEvent.objects.filter(kind="reply", account=sender).exists)
    assert InboundEvent.objects.get(kind="reply").text == "I am in!"
    wait_for(lambda: InboundEvent.objects.filter(kind="delivered", account=sender).count() == 5)


def test_a_kill_between_pairing_and_the_first_login_needs_no_new_pairing(bridge: Process) -> None:
    write_script(bridge.folder, pair_after=0, groups=3, connect={"event": "Disconnected", "fields": {}})
    sender = account()
    bridge.ask("POST", f"/accounts/{sender.pk}/pair")
    wait_for(lambda: bridge.state(sender.pk)["detail"].startswith("Paired"))
    assert not bridge.book.lines("login")

    bridge.kill()
    write_script(bridge.folder, groups=3)  # nobody scans a code
    bridge.start()

    bridge.wait_state(sender.pk, "connected")
    assert bridge.state(sender.pk)["address"] == f"+49151{sender.pk:08d}"


def test_a_number_that_was_paired_brings_its_groups_and_its_address(bridge: Process) -> None:
    write_script(bridge.folder, groups=3, pair_after=0)
    sender = account(label="Choir line")

    bridge.ask("POST", f"/accounts/{sender.pk}/pair")

    wait_for(lambda: Recipient.objects.filter(owner=sender.owner).count() == 3)
    sender.refresh_from_db()
    assert sender.address == f"+49151{sender.pk:08d}"
    first = Recipient.objects.get(address=group_address(str(sender.pk), 0))
    assert (first.name, first.tags) == ("Neighbours 1", [f"#{sender.pk} Choir line"])
    wait_for(InboundEvent.objects.filter(account=sender, kind="session", detail__state="active").exists)
    Account.objects.filter(pk=sender.pk).update(status="unpaired")
    process_inbound()
    sender.refresh_from_db()
    assert sender.status == "active"
