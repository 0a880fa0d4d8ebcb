"""Which message a receipt is about, and which unconfirmed target it settles."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from fanout.inbound import receipts, worker
from fanout.models import InboundEvent, Run, RunTarget
from fanout.rules.message_ids import message_id
from reminders.erasure import FACELESS
from tests.factories import AccountFactory, InboundEventFactory, RunFactory, RunTargetFactory

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
SENT_AT = NOW - timedelta(minutes=2)
HOUR, MINUTE, SECOND = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)
case = pytest.param


@pytest.fixture
def run() -> Run:
    made: Run = RunFactory.create(status="running", scheduled_for=NOW, parts=[{"kind": "text", "text": "Hi"}] * 3)
    return made


def target_of(run: Run, status: str = "sent", **fields: Any) -> RunTarget:
    values = {"provider_id": "sbx-1", "claimed_at": SENT_AT, "parts_sent": int(status == "sent"), "attempts": 1}
    target: RunTarget = RunTargetFactory.create(run=run, status=status, **values | fields)
    return target


def receipt(target: RunTarget, kind: str = "delivered", **fields: Any) -> InboundEvent:
    values = {"account": target.account, "provider_id": target.provider_id, "address": target.address}
    event: InboundEvent = InboundEventFactory.create(kind=kind, **{"happened_at": NOW - MINUTE} | values | fields)
    return event


def delivered() -> set[int]:
    return set(RunTarget.objects.filter(delivered_at__isnull=False).values_list("pk", flat=True))


def version(row: RunTarget) -> str:
    """Where the row lies: another place with every update."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT ctid::text FROM fanout_runtarget WHERE id = %s", [row.pk])
        return str(cursor.fetchone()[0])


@pytest.mark.django_db
def test_our_own_id_counts_more_than_the_providers(run: Run) -> None:
    named, other = target_of(run, provider_id="sbx-1"), target_of(run, provider_id="sbx-2")
    receipt(named, message_id=message_id(named.pk, 0), provider_id=other.provider_id)
    worker.step(NOW)
    assert delivered() == {named.pk}
    named.refresh_from_db()
    assert named.provider_id == "sbx-1", "what has a name keeps it"


@pytest.mark.django_db
def test_of_two_messages_with_one_id_the_later_is_meant(run: Run) -> None:
    target_of(run)
    later = target_of(run)
    receipt(later)
    worker.step(NOW)
    assert delivered() == {later.pk}


@pytest.mark.django_db
def test_a_receipt_without_an_id_is_about_no_message_without_one(run: Run) -> None:
    receipt(target_of(run, provider_id=""))
    worker.step(NOW)
    assert delivered() == set()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("status", "fields", "noted"),
    [
        case("sent", {}, True, id="sent"),
        case("failed", {}, True, id="failed"),
        case("pending", {}, False, id="its-lane-will-say"),
        case("sending", {}, False, id="in-flight"),
        case("skipped", {"claimed_at": None}, False, id="never-tried"),
    ],
)
def test_which_targets_are_told(run: Run, status: str, fields: dict[str, Any], noted: bool) -> None:
    target = target_of(run, status, **fields)
    receipt(target)
    worker.step(NOW)
    assert delivered() == ({target.pk} if noted else set())


@pytest.mark.django_db
def test_the_same_receipt_again_writes_nothing(run: Run) -> None:
    target = target_of(run)
    for kind in ("delivered", "read"):
        receipt(target, kind)
    worker.step(NOW)
    before = version(target)
    for kind in ("delivered", "read"):
        receipt(target, kind, happened_at=NOW)
    receipt(target, message_id=message_id(target.pk, 0), provider_id="")
    worker.step(NOW)
    assert version(target) == before
    assert not InboundEvent.objects.exclude(state="done").exists()


@pytest.mark.django_db
def test_read_is_noted_after_delivered_and_delivered_changes_no_more(run: Run) -> None:
    target = target_of(run)
    receipt(target)
    worker.step(NOW)
    before = version(target)
    receipt(target, happened_at=NOW)
    worker.step(NOW)
    assert version(target) == before
    receipt(target, "read", happened_at=NOW)
    worker.step(NOW)
    target.refresh_from_db()
    assert (target.delivered_at, target.read_at) == (NOW - MINUTE, NOW)


@pytest.mark.django_db
def test_what_names_nothing_gives_no_name(run: Run) -> None:
    target = target_of(run, provider_id="")
    receipt(target, message_id=message_id(target.pk, 0), detail={"by": "server"})
    before = version(target)
    worker.step(NOW)
    assert version(target) == before
    assert InboundEvent.objects.get().effect == "noted"


@pytest.mark.django_db
def test_the_receipt_of_an_erased_person_is_noted_and_forgotten(run: Run) -> None:
    target = target_of(run, provider_id="", address=f"{FACELESS}7")
    event = receipt(target, message_id=message_id(target.pk, 0), provider_id="wamid.1", address="+4915200000001")
    worker.step(NOW)
    target.refresh_from_db()
    event.refresh_from_db()
    assert (target.delivered_at, target.provider_id) == (NOW - MINUTE, "")
    assert (event.state, event.address, event.provider_id) == ("done", "", "")


def made_unconfirmed(run: Run, **fields: Any) -> RunTarget:
    return target_of(run, "unconfirmed", **{"provider_id": "", "error_kind": "unknown", "parts_sent": 0} | fields)


def by_device(target: RunTarget, **fields: Any) -> None:
    receipt(target, **{"provider_id": "3EB0NEW", "detail": {"by_device": True}} | fields)


def settled(target: RunTarget) -> bool:
    worker.step(NOW + 40 * HOUR)
    target.refresh_from_db()
    return target.status != "unconfirmed"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("fields", "settles"),
    [
        case({}, True, id="the-first-part"),
        case({"parts_sent": 1, "provider_id": "sbx-1"}, True, id="the-second-of-a-known-first"),
        case({"parts_sent": 1}, False, id="the-second-of-an-unknown-first"),
        case({"parts_sent": 2, "provider_id": "sbx-2"}, False, id="the-third"),
        case({"in_doubt": True}, True, id="its-own-doubt-is-no-obstacle"),
    ],
)
def test_which_unconfirmed_target_an_unknown_id_settles(run: Run, fields: dict[str, Any], settles: bool) -> None:
    target = made_unconfirmed(run, **fields)
    by_device(target)
    assert settled(target) is settles


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("after", "settles"),
    [
        case(timedelta(0), True, id="at-once"),
        case(-SECOND, False, id="before"),
        case(timedelta(days=3), True, id="after-three-days"),
        case(timedelta(days=3, seconds=1), False, id="later"),
    ],
)
def test_when_a_receipt_can_be_meant(run: Run, after: timedelta, settles: bool) -> None:
    target = made_unconfirmed(run)
    by_device(target, happened_at=SENT_AT + after)
    assert settled(target) is settles


@pytest.mark.django_db
def test_a_receipt_without_an_id_can_be_meant_too(run: Run) -> None:
    target = made_unconfirmed(run)
    target_of(run, provider_id="")
    by_device(target, provider_id="")
    assert settled(target)


@pytest.mark.django_db
def test_the_ids_of_another_account_are_its_own(run: Run) -> None:
    target = made_unconfirmed(run)
    target_of(RunFactory.create(status="running"), provider_id="3EB0NEW")
    by_device(target)
    assert settled(target)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("fields", "settles"),
    [
        case({"parts_sent": 1}, True, id="its-only-id-is-known"),
        case({"parts_sent": 2}, False, id="the-id-of-a-part-is-not"),
        case({"parts_sent": 1, "provider_id": ""}, False, id="its-id-is-not"),
        case({"parts_sent": 0, "provider_id": ""}, True, id="nothing-went-out"),
        case({"parts_sent": 2, "claimed_at": SENT_AT - receipts.KEPT}, True, id="no-phone-is-away-so-long"),
        case({"parts_sent": 2, "claimed_at": SENT_AT - receipts.KEPT + SECOND}, False, id="almost-so-long"),
        case({"parts_sent": 2, "account": "another"}, True, id="of-another-account"),
        case({"parts_sent": 2, "recipient": "another"}, True, id="to-another"),
    ],
)
def test_which_other_messages_can_be_meant(run: Run, fields: dict[str, Any], settles: bool) -> None:
    target = made_unconfirmed(run)
    same: dict[str, Any] = {"account": run.account, "recipient": target.recipient, "address": target.address}
    if fields.get("account"):
        same["account"] = AccountFactory.create()
    if fields.get("recipient"):
        del same["recipient"], same["address"]
    beside = RunFactory.create(status="running", account=run.account, scheduled_for=NOW)
    status = "failed" if fields["parts_sent"] == 0 else "sent"
    given = {name: value for name, value in fields.items() if name not in ("account", "recipient")}
    target_of(beside, status, **same | given)
    by_device(target)
    assert settled(target) is settles


@pytest.mark.django_db
def test_an_unconfirmed_target_of_another_chat_or_account_is_not_meant(run: Run) -> None:
    target, elsewhere = made_unconfirmed(run), made_unconfirmed(run)
    theirs = made_unconfirmed(RunFactory.create(status="running"), recipient=target.recipient, address=target.address)
    by_device(target)
    assert settled(target)
    assert not settled(elsewhere)
    assert not settled(theirs)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("fields", "due"),
    [
        case({}, True, id="new"),
        case({"kind": "read"}, True, id="read"),
        case({"next_attempt_at": NOW}, True, id="its-time-has-come"),
        case({"next_attempt_at": NOW + SECOND}, False, id="not-yet"),
        case({"state": "done"}, False, id="done"),
        case({"state": "failed"}, False, id="failed"),
        case({"kind": "reply"}, False, id="no-receipt"),
    ],
)
def test_which_receipts_are_due(fields: dict[str, Any], due: bool) -> None:
    event = InboundEventFactory.create(**fields)
    assert receipts.ready(NOW) == ([event] if due else [])


@pytest.mark.django_db
def test_receipts_come_in_batches_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipts, "BATCH", 2)
    events = [InboundEventFactory.create(provider_id="by-hand") for _ in range(3)]
    assert receipts.ready(NOW) == events[:2]
    assert worker.work_on_receipts(NOW) == 2


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("looks", "state", "then", "next_look"),
    [(0, "new", 1, 2), (1, "new", 2, 15), (2, "new", 3, 120), (3, "done", 3, None)],
)
@pytest.mark.parametrize("attempts", [0, 4], ids=["no errors", "after errors"])
def test_a_receipt_of_nothing_looks_again_three_times(
    looks: int, state: str, then: int, next_look: int | None, attempts: int
) -> None:
    event = InboundEventFactory.create(provider_id="by-hand", attempts=attempts, detail={"looks": looks})
    worker.step(NOW)
    event.refresh_from_db()
    until = None if next_look is None else NOW + timedelta(seconds=next_look)
    assert (event.state, event.attempts, event.next_attempt_at) == (state, attempts, until)
    assert event.detail["looks"] == then
    assert bool(event.effect) is (state == "done")
