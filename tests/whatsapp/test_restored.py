"""After the database was restored from a backup: what the journal knows and the database does not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from accounts.channels.whatsapp.bridge import conditions
from accounts.channels.whatsapp.bridge.journal import Journal, NotedMessage, SentMessage
from accounts.channels.whatsapp.bridge.review import judge
from accounts.channels.whatsapp.bridge.scripted import group_address
from accounts.models import PairedSession
from fanout import bridge as process
from fanout.database import conninfo
from fanout.models import Run, RunTarget
from fanout.rules.message_ids import message_id
from tests.factories import AccountFactory, LaneStateFactory, RunFactory, RunTargetFactory
from tests.whatsapp.running import InThread, wait_for

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
HOUR = timedelta(hours=1)
GROUP = group_address("1", 0)
TEXT = {"kind": "text", "text": "Hello"}


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[InThread]:
    with InThread(tmp_path, 1, receipts=None) as running:
        running.wait_state(1, "connected")
        yield running


def order(bridge: InThread, message: str, **facts: Any) -> dict[str, Any]:
    body = {"to": GROUP, "kind": "text", "message_id": message, "text": "At 8"} | facts
    answer: dict[str, Any] = bridge.ask("POST", "/accounts/1/messages", body)
    return answer


def test_nothing_is_sent_until_the_journal_was_compared(bridge: InThread) -> None:
    assert order(bridge, "crier-1-0", epoch=7)["outcome"] == "sent"
    session = bridge.bridge.sessions[1]
    session.journal.fence(7)
    session.journal.told(3)
    bridge.shard.behind = True
    session.turn_page_at = 0.0  # due at once; otherwise every half minute
    wait_for(lambda: session.restored)

    answer = order(bridge, "crier-2-0")
    assert (answer["outcome"], answer["detail"]) == ("not_sent", conditions.DATABASE_RESTORED)
    assert bridge.state(1)["restored"]
    bridge.happen(1, receipt={"id": bridge.delivered()[0]["id"]}, **{"in": GROUP})
    wait_for(session.journal.held)
    assert bridge.of_kind("delivered") == []

    bridge.shard.behind = False
    assert "knows 0 messages" in bridge.ask("POST", "/accounts/1/restored")["detail"]
    assert order(bridge, "crier-2-0", epoch=2)["outcome"] == "sent", "epochs of the lane have gone back too"
    wait_for(lambda: not session.journal.held())
    assert bridge.of_kind("delivered") == [], "the number 1 may be that of another message by now"
    assert not session.journal.has_begun("crier-1-0")
    assert "was not restored" in bridge.ask("POST", "/accounts/1/restored")["detail"]


def test_a_restart_does_not_forget_it(tmp_path: Path) -> None:
    with InThread(tmp_path, 1) as bridge:
        bridge.wait_state(1, "connected")
        bridge.bridge.sessions[1].journal.found_restored()
    with InThread(tmp_path, 1) as again:
        again.wait_state(1, "connected")
        assert order(again, "crier-2-0")["outcome"] == "not_sent"


def test_messages_that_the_database_knows_keep_their_receipts(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.db")
    for n in (1, 2):
        journal.sent(journal.begin(f"crier-{n}-0", GROUP, GROUP, n), SentMessage(f"3EB0{n}", f"crier-{n}-0", GROUP), n)
        journal.begin(f"crier-{n}-1", GROUP, GROUP, n)
    journal.begin_anew({"crier-1-0", "crier-1-1"})

    assert (journal.message_id_of("3EB01"), journal.message_id_of("3EB02")) == ("crier-1-0", "")
    assert [name for _, name in journal.open_tries(9)] == ["crier-1-1"]
    assert journal.uncertain_in((GROUP, GROUP), 2) is None, "the other try still counts"
    journal.close()


# --- by the database --------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("stored", "behind"),
    [
        pytest.param({"journal": "a", "journal_page": 5}, False, id="as told"),
        pytest.param({"journal": "a", "journal_page": 6}, False, id="later"),
        pytest.param({"journal": "a", "journal_page": 4}, True, id="of a backup"),
        pytest.param(None, True, id="from before the pairing"),
        pytest.param({"journal": "b", "journal_page": 0}, False, id="of another machine"),
    ],
)
def test_a_database_that_has_gone_back(stored: dict[str, Any] | None, behind: bool) -> None:
    sender = AccountFactory.create(channel="whatsapp", config={})
    if stored is not None:
        PairedSession.objects.create(account=sender, journal_since=NOW, host="mars", **stored)

    async def ask() -> bool:
        shard = process.LockShard(conninfo(connection.settings_dict), "whatsapp")
        await shard.open()
        try:
            return await shard.is_behind(sender.pk, "a", 5)
        finally:
            await shard.close()

    assert asyncio.run(ask()) is behind


@pytest.mark.django_db
def test_what_was_sent_since_the_backup_is_not_sent_again(tmp_path: Path) -> None:
    """Pending by the database; the journal knows that it went out, or may have."""
    sender = AccountFactory.create(channel="whatsapp", config={})
    LaneStateFactory.create(account=sender, epoch=2)
    paused = {"status": "paused", "pause_reason": "operator"}
    old, two_parts, new = (
        RunFactory.create(
            account=sender, owner=sender.owner, parts=[{"kind": "text", "text": "Hello"}] * parts, **paused
        )
        for parts in (1, 2, 1)
    )
    Run.objects.update(created_at=NOW - 2 * HOUR)
    Run.objects.filter(pk=new.pk).update(created_at=NOW + HOUR)
    acknowledged, unanswered, untouched = RunTargetFactory.create_batch(3, run=old, account=sender)
    half = RunTargetFactory.create(run=two_parts, account=sender)
    reused = RunTargetFactory.create(run=new, account=sender)
    refused = {"part_ids": {"1": "3EB0-1"}, "reopened_at": NOW + HOUR / 2}
    one_left = RunTargetFactory.create(run=two_parts, account=sender, **refused)
    done = RunTargetFactory.create(run=old, account=sender, status="sent", parts_sent=1)
    journal = Journal(tmp_path / "journal.db")

    def sent(target: RunTarget, part: int = 0) -> None:
        number = journal.begin(message_id(target.pk, part), "chat", "chat", NOW.timestamp())
        message = SentMessage(f"3EB0{target.pk}-{part}", message_id(target.pk, part), "chat")
        journal.sent(number, message, NOW.timestamp())

    for target in (acknowledged, half, reused, done):
        sent(target)
    sent(half, 1)
    sent(one_left)
    sent(one_left, 1)
    journal.begin(message_id(unanswered.pk, 0), "chat", "chat", NOW.timestamp())
    noted = [*journal.messages(), NotedMessage(message_id(10**9, 0), NOW.timestamp(), True)]

    compared = process._compare(sender.pk, noted)

    assert compared.marked == 3
    assert message_id(reused.pk, 0) not in compared.known
    journal.begin_anew(compared.known)
    uncertain_sends = process._uncertain_sends([sender.pk], timedelta(days=30), timedelta(seconds=30), NOW + HOUR)[
        sender.pk
    ]
    judged = judge(uncertain_sends, journal, NOW - 5 * HOUR, [], NOW + HOUR)
    process._settle(sender.pk, judged, NOW + HOUR)
    journal.close()

    facts = {
        target.pk: (target.status, target.provider_id)
        for target in RunTarget.objects.filter(account=sender).order_by("pk")
    }
    assert facts[acknowledged.pk] == ("sent", f"3EB0{acknowledged.pk}-0")
    assert facts[half.pk] == ("sent", f"3EB0{half.pk}-1")
    assert facts[unanswered.pk] == ("unconfirmed", "")
    one_left.refresh_from_db()
    assert (one_left.status, one_left.parts_sent) == ("pending", 0), "its first part was refused late"
    assert (facts[untouched.pk], facts[reused.pk]) == (("pending", ""), ("pending", ""))
