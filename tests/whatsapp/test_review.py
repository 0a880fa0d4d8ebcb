"""What the journal says about messages in doubt, and how a decision ends a uncertain that blocks others."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from accounts.channels.base import AccountConfig, Kind, NotSent, Outcome, Part, Sent, Unknown
from accounts.channels.provider_events import EventKind
from accounts.channels.whatsapp.bridge.incoming import receipt_event
from accounts.channels.whatsapp.bridge.journal import Journal, Receipt, SentMessage
from accounts.channels.whatsapp.bridge.review import Judged, UncertainSend, judge
from accounts.channels.whatsapp.bridge.scripted import group_address
from accounts.channels.whatsapp.transport import WhatsAppTransport
from accounts.channels.whatsapp.wire import Order
from accounts.models import PairedSession
from fanout import bridge as process
from fanout.models import Event, RunTarget
from fanout.rules.message_ids import message_id, name_of
from tests.factories import (
    AccountFactory,
    ActivityFactory,
    LaneStateFactory,
    RecipientFactory,
    RunFactory,
    RunTargetFactory,
)
from tests.whatsapp.running import IMPATIENT, InThread, wait_for

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
LONG_AGO, CLAIMED = NOW - timedelta(days=90), NOW - timedelta(minutes=5)
GROUP, OTHER = group_address("1", 0), group_address("1", 1)
HASHED = f"crier-7-0-{'ab' * 10}"
TEXT = Part(key="1:0", index=0, kind="text", text="At 8, see you there!")


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    journal = Journal(tmp_path / "journal.db")
    yield journal
    journal.close()


def uncertain(**facts: Any) -> UncertainSend:
    return replace(UncertainSend(7, 1, "crier-7-0", CLAIMED, claim_epoch=4, lane_epoch=5), **facts)


def began(journal: Journal, message: str = HASHED, chat: str = GROUP, at: float = 1000) -> int:
    return journal.begin(message, chat, chat, at)


def acknowledged(journal: Journal, message: str, provider_id: str, at: float = 1000, chat: str = GROUP) -> None:
    journal.sent(began(journal, message, chat, at), SentMessage(provider_id, message, chat), at)


# -- verdicts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "in_use_since", "at_hand", "verdict"),
    [
        ({}, LONG_AGO, (), ""),
        ({}, CLAIMED - timedelta(minutes=1), (), ""),
        ({}, CLAIMED - timedelta(seconds=59), (), None),
        ({}, NOW, (), None),
        ({"claimed_at": NOW - timedelta(days=31)}, LONG_AGO, (), None),
        ({}, LONG_AGO, (HASHED,), None),
        ({}, LONG_AGO, (f"crier-77-0-{'ab' * 10}",), ""),
        ({"name": "crier-8-0"}, LONG_AGO, (), None),
        ({"name": "crier-8-1"}, LONG_AGO, (), ""),
        ({"name": "crier-9-0"}, LONG_AGO, (), "3EB0NINE"),
        ({"name": "crier-9-0"}, NOW, (), "3EB0NINE"),
        ({"witness": "crier-9-0"}, LONG_AGO, (), ""),
        ({"witness": "crier-8-0"}, LONG_AGO, (), ""),
        ({"witness": "crier-10-0"}, LONG_AGO, (), None),
    ],
    ids=[
        "never begun",
        "a minute after the journal",
        "too soon after the journal",
        "a new journal",
        "longer ago than the journal remembers",
        "at hand",
        "another at hand",
        "begun",
        "another part of it",
        "acknowledged",
        "acknowledged, in a new journal",
        "the one before it is known",
        "the one before it was begun",
        "the one before it is not known: restored from a copy",
    ],
)
def test_what_the_journal_says(
    facts: dict[str, Any], in_use_since: datetime, at_hand: tuple[str, ...], verdict: str | None, journal: Journal
) -> None:
    """`verdict`: WhatsApp's id, nothing where the message never left, None where it stays uncertain."""
    began(journal, f"crier-8-0-{'cd' * 10}")
    acknowledged(journal, f"crier-9-0-{'ef' * 10}", "3EB0NINE")

    judged = judge([uncertain(**facts)], journal, in_use_since, at_hand, NOW)

    assert [one.provider_id for one in judged] == ([] if verdict is None else [verdict])


def test_the_key_of_the_site_may_have_changed(journal: Journal) -> None:
    """Its ids have another hash then; the message is the same."""
    began(journal, f"crier-7-0-{'00' * 10}")
    assert judge([uncertain()], journal, LONG_AGO, (), NOW) == []


def test_a_journal_keeps_its_id_and_its_epoch(tmp_path: Path) -> None:
    first = Journal(tmp_path / "journal.db")
    name = first.id()
    judge([uncertain()], first, LONG_AGO, (), NOW)
    first.fence(3)
    first.close()
    again, other = Journal(tmp_path / "journal.db"), Journal(tmp_path / "other.db")
    assert (again.id(), again.epoch()) == (name, 5)
    assert other.id() != name
    again.close()
    other.close()


def test_a_try_is_on_disk_before_its_message_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut must not make a journal forget what it noted: the message would be sent a second time."""
    said: list[str] = []
    connect = sqlite3.connect

    def traced(*args: Any, **options: Any) -> sqlite3.Connection:
        db: sqlite3.Connection = connect(*args, **options)
        db.set_trace_callback(said.append)
        return db

    monkeypatch.setattr(sqlite3, "connect", traced)
    journal = Journal(tmp_path / "journal.db")
    said.clear()
    began(journal)
    journal.close()
    noted = next(n for n, words in enumerate(said) if words.startswith("INSERT INTO tries"))
    assert [words for words in said[:noted] if "synchronous" in words][-1] == "PRAGMA synchronous = FULL"


# -- in the bridge ----------------------------------------------------------------------------------------


@pytest.fixture
def bridge(tmp_path: Path, settings: Any) -> Iterator[InThread]:
    with InThread(tmp_path, 1, limits=IMPATIENT) as running:
        settings.WHATSAPP_BRIDGE_URL = running.url
        running.wait_state(1, "connected")
        wait_for(lambda: running.state(1)["groups"])
        yield running


def send(address: str, message: str, epoch: int = 0, **limits: float) -> Outcome:
    async def go() -> Outcome:
        transport = WhatsAppTransport(AccountConfig(1, "whatsapp", "Line", "", {}))
        transport.epoch = epoch
        transport.bridge.timeout = limits.get("timeout", 5.0)
        try:
            return await transport.send(address, TEXT, message)
        finally:
            await transport.close()

    return asyncio.run(go())


def test_an_order_of_an_earlier_holder_of_the_lane_is_refused(bridge: InThread) -> None:
    """A driver that was stopped wakes up after its messages were judged."""
    bridge.feed.open_uncertain = {1: [uncertain()]}
    wait_for(lambda: bridge.bridge.sessions[1].journal.epoch() == 5)

    late = send(GROUP, HASHED, epoch=4)

    assert isinstance(late, NotSent)
    assert (late.kind, bridge.delivered()) == (Kind.UNAVAILABLE, [])
    assert isinstance(send(GROUP, HASHED, epoch=5), Sent)
    assert isinstance(send(OTHER, "crier-1-0"), Sent)  # a test message has no lane


def test_a_message_whose_caller_has_gone_is_not_begun(bridge: InThread) -> None:
    """It is judged as never begun, and sent again."""
    bridge.script(limits=IMPATIENT, sends={GROUP: {"late": 1.0, "times": 1}})
    order = Order(OTHER, "text", "crier-2-0", text="Hello")
    sender = bridge.bridge.sessions[1].dispatcher

    assert isinstance(send(GROUP, "crier-1-0"), Unknown)
    outcome = asyncio.run_coroutine_threadsafe(sender.send(order, is_wanted=lambda: False), bridge.loop)
    assert isinstance(outcome.result(10), NotSent)
    wait_for(lambda: not sender.tasks)
    outcome = asyncio.run_coroutine_threadsafe(sender.send(order, is_wanted=lambda: False), bridge.loop)

    assert isinstance(outcome.result(10), NotSent)
    assert [line["to"] for line in bridge.delivered()] == [GROUP]
    assert not bridge.bridge.sessions[1].journal.has_begun("crier-2-0")


def test_a_message_that_is_not_begun_in_time_is_certainly_not_sent(
    bridge: InThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender = bridge.bridge.sessions[1].dispatcher
    asked, may_go_on = asyncio.Event(), asyncio.Event()
    chat = sender._chat

    async def slow(jid: Any) -> Any:
        asked.set()
        await may_go_on.wait()
        return await chat(jid)

    monkeypatch.setattr(sender, "_chat", slow)
    outcome = send(GROUP, "crier-1-0")
    assert asked.is_set()
    bridge.loop.call_soon_threadsafe(may_go_on.set)
    wait_for(lambda: not sender.tasks)

    assert isinstance(outcome, NotSent)
    assert bridge.delivered() == []
    assert not sender.at_hand


def test_the_bridge_ends_doubts_and_hears_of_decisions(bridge: InThread) -> None:
    session = bridge.bridge.sessions[1]
    session.in_use_since = LONG_AGO
    now = datetime.now(UTC)
    began(session.journal, "crier-8-0")
    lost = [uncertain(claimed_at=now), uncertain(name="crier-8-0", target_id=8, claimed_at=now)]
    bridge.feed.open_uncertain = {1: lost}
    bridge.feed.decided = {"crier-8-0"}

    wait_for(lambda: bridge.feed.judged)
    wait_for(lambda: not session.journal.open_tries(now.timestamp()))

    assert {one.uncertain.name for one in bridge.feed.judged} == {"crier-7-0"}


# -- decided tries ----------------------------------------------------------------------------------------


def receipt(provider_id: str, at: int = 2000, chat: str = GROUP) -> Receipt:
    return Receipt(provider_id, EventKind.DELIVERED, chat, chat, at)


def confirm(journal: Journal, provider_id: str, message: str, at: int = 2000) -> None:
    told, sent = receipt(provider_id, at), SentMessage(provider_id, message, GROUP)
    journal.confirm(told, sent, receipt_event(told, sent), None, at)


def settles(journal: Journal, at: int = 2000) -> str:
    found = journal.uncertain_in((GROUP, GROUP), at)
    return found[1] if found else ""


def test_an_open_try_blocks_later_ones_until_it_is_decided(journal: Journal) -> None:
    first = began(journal, "crier-1-0", at=1000)
    began(journal, "crier-2-0", at=1500)
    assert settles(journal) == ""

    journal.decide(first)
    assert settles(journal) == ""  # the next unknown id may be the first one's
    journal.drop_unknown(receipt("3EB0FIRST"), 2000)

    assert settles(journal) == "crier-2-0"
    # Another member of the group tells of the same message: it is not the second one.
    assert journal.message_id_of("3EB0FIRST") == ""


def test_a_later_message_that_arrived_ends_a_decided_try(journal: Journal) -> None:
    journal.decide(began(journal, "crier-1-0", at=1000))
    acknowledged(journal, "crier-2-0", "3EB0TWO", at=1500)
    confirm(journal, "3EB0TWO", "crier-2-0")
    began(journal, "crier-3-0", at=1900)
    assert settles(journal) == "crier-3-0"


@pytest.mark.parametrize("case", ["an earlier message", "another chat"])
def test_other_messages_do_not_end_it(case: str, journal: Journal) -> None:
    chat, at = (GROUP, 900) if case == "an earlier message" else (OTHER, 1500)
    acknowledged(journal, "crier-0-0", "3EB0ZERO", at=at, chat=chat)
    journal.decide(began(journal, "crier-1-0", at=1000))
    told = receipt("3EB0ZERO", chat=chat)
    sent = SentMessage("3EB0ZERO", "crier-0-0", chat)
    journal.confirm(told, sent, receipt_event(told, sent), None, 2000)
    began(journal, "crier-3-0", at=1900)
    assert settles(journal) == ""


def test_a_receipt_ends_the_oldest_of_several_decided_tries(journal: Journal) -> None:
    """One receipt is about one of them: the others keep taking the next ids."""
    for n, at in ((1, 1000), (2, 1200)):
        journal.decide(began(journal, f"crier-{n}-0", at=at))
    began(journal, "crier-3-0", at=1500)

    journal.drop_unknown(receipt("3EB0FIRST"), 2000)
    assert (settles(journal), journal.has_begun("crier-1-0"), journal.has_begun("crier-2-0")) == ("", False, True)
    journal.drop_unknown(receipt("3EB0SECOND"), 2000)
    assert settles(journal) == "crier-3-0"


def test_a_read_receipt_ends_nothing(journal: Journal) -> None:
    """The message may have arrived before."""
    journal.decide(began(journal, "crier-1-0", at=1000))
    began(journal, "crier-2-0", at=1500)
    journal.drop_unknown(Receipt("3EB0X", EventKind.READ, GROUP, GROUP, 2000), 2000)
    assert (settles(journal), journal.message_id_of("3EB0X")) == ("", None)


# -- in the database --------------------------------------------------------------------------------------


def in_doubt(claimed_at: datetime, **facts: Any) -> RunTarget:
    sender = AccountFactory.create(channel="whatsapp", config={})
    LaneStateFactory.create(account=sender, epoch=6)
    run = RunFactory.create(account=sender, owner=sender.owner, status="running", lanes=[sender.pk])
    group = RecipientFactory.create(owner=sender.owner, kind="group", address=group_address(str(sender.pk), 0))
    state = {"status": "unconfirmed", "claimed_at": claimed_at, "claim_epoch": 4, "in_doubt": True}
    target: RunTarget = RunTargetFactory.create(run=run, account=sender, recipient=group, **state | facts)
    return target


@pytest.mark.django_db
def test_the_owner_of_an_id(django_assert_num_queries: Any) -> None:
    """By the first part's id, and by those of later parts to the same chat, also in another list."""
    first = in_doubt(CLAIMED, status="sent", provider_id="3EB0A", part_ids={"0": "3EB0A", "1": "3EB0B"}, parts_sent=2)
    run = RunFactory.create(account=first.account, owner=first.account.owner)
    other = RecipientFactory.create(kind="group", address=first.address)
    asking = RunTargetFactory.create(run=run, account=first.account, recipient=other, status="unconfirmed")
    stranger = in_doubt(CLAIMED, status="sent", provider_id="3EB0C")

    with django_assert_num_queries(1):
        found = process._owners(
            first.account_id, dict.fromkeys(["3EB0A", "3EB0B", "3EB0C", "3EB0D"], message_id(asking.pk, 0))
        )

    assert found == {"3EB0A": message_id(first.pk, 0), "3EB0B": message_id(first.pk, 1)}
    assert process._owners(stranger.account_id, {"3EB0C": "?"}) == {"3EB0C": message_id(stranger.pk, 0)}


def uncertain_of(target: RunTarget, now: datetime) -> list[UncertainSend]:
    found = process._uncertain_sends([target.account_id], timedelta(days=30), timedelta(seconds=30), now)
    return found.get(target.account_id, [])


@pytest.mark.django_db
def test_the_doubts_of_an_account_and_their_witness() -> None:
    target = in_doubt(CLAIMED)
    before = RunTargetFactory.create(run=target.run, account=target.account, status="sent")
    facts = {"account": target.account, "run_target": before, "outcome": "sent", "action": "message"}
    ActivityFactory.create(**facts, part=1, at=CLAIMED - timedelta(minutes=1))
    ActivityFactory.create(**facts | {"run_target": target}, part=0, at=CLAIMED - timedelta(seconds=1), kind="settled")
    ActivityFactory.create(**facts | {"outcome": "failed"}, part=0, at=CLAIMED - timedelta(seconds=1))

    (found,) = uncertain_of(target, NOW)

    assert found == UncertainSend(
        target.pk, target.run_id, name_of(target.pk, 0), CLAIMED, 4, 6, witness=name_of(before.pk, 1)
    )
    assert uncertain_of(target, CLAIMED + timedelta(seconds=29)) == []
    assert uncertain_of(target, CLAIMED + timedelta(days=31)) == []


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("provider_id", "status", "words"),
    [("", "pending", process.NEVER_LEFT), ("3EB0X", "sent", process.KNOWN_AS_SENT)],
    ids=["never left", "acknowledged"],
)
def test_a_doubt_that_the_journal_ends(provider_id: str, status: str, words: str) -> None:
    target = in_doubt(CLAIMED)
    (found,) = uncertain_of(target, NOW)

    for _ in range(2):  # a second time changes nothing
        process._settle(target.account_id, [Judged(found, provider_id)], NOW)

    target.refresh_from_db()
    assert (target.status, target.provider_id, target.in_doubt) == (status, provider_id, False)
    assert list(Event.objects.filter(verb="settled").values_list("detail", flat=True)) == [f"1 × {words}"]


@pytest.mark.django_db
@pytest.mark.parametrize(
    "since", [{"claim_epoch": 5}, {"claimed_at": NOW}, {"status": "sending"}, {"status": "sent"}], ids=str
)
def test_only_the_claim_that_was_judged_is_settled(since: dict[str, Any]) -> None:
    """It may have been sent again, and be in doubt again, since the bridge asked."""
    target = in_doubt(CLAIMED)
    (found,) = uncertain_of(target, NOW)
    RunTarget.objects.filter(pk=target.pk).update(**since)
    process._settle(target.account_id, [Judged(found, "")], NOW)
    assert RunTarget.objects.filter(pk=target.pk, **since).exists()
    assert not RunTarget.objects.filter(pk=target.pk, status="pending").exists()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("facts", "settled"),
    [
        ({}, False),
        ({"status": "sending"}, False),
        ({"status": "pending"}, True),
        ({"status": "sent", "parts_sent": 1}, True),
        ({"status": "failed"}, True),
        ({"status": "skipped"}, True),
        ({"status": "unconfirmed", "parts_sent": 1}, True),
    ],
    ids=["in doubt", "under way", "sent again", "delivered", "failed", "canceled", "its next part is in doubt"],
)
def test_what_was_decided(facts: dict[str, Any], settled: bool) -> None:
    target = in_doubt(CLAIMED, **facts)
    asked = [message_id(target.pk, 0), message_id(target.pk + 1, 0), "not ours"]
    assert process._settled(asked) == ({asked[0]} if settled else set())


@pytest.mark.django_db(transaction=True)
def test_the_journal_of_an_account_changes_with_a_pairing_or_an_old_copy() -> None:
    sender = AccountFactory.create(channel="whatsapp", config={})

    async def use(*journals: tuple[str, int, bool]) -> list[datetime | None]:
        from django.db import connection

        from fanout.database import conninfo

        shard = process.LockShard(conninfo(connection.settings_dict), "whatsapp")
        await shard.open()
        try:
            used = [await shard.use_journal(sender.pk, *journal) for journal in journals]
            return [one and one[0] for one in used]
        finally:
            await shard.close()

    first, later, copy, original, foreign, moved, back = asyncio.run(
        use(
            ("a", 0, False),
            ("a", 3, False),
            ("a", 2, False),
            ("a", 3, False),
            ("b", 0, False),
            ("b", 0, True),
            ("a", 9, False),
        )
    )
    assert first is not None
    assert copy is not None
    assert original is not None
    assert moved is not None
    assert (later, foreign, back) == (first, None, None)
    assert first < copy < original < moved, "what a copy, or the original after it, does not know is no proof"
    assert PairedSession.objects.get(account=sender).journal == "b"
