"""What each condition of the statements about what comes back is there for: what it keeps out, and what it lets in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from accounts.channels.base import Kind
from fanout.inbound import events, mails, receipts, replies, sessions, worker
from fanout.inbound.bounces import _about_last_try, _is_refusal, cause, counted_as
from fanout.inbound.mails import Bounce, mailbox, verdict
from fanout.inbound.replies import bare
from fanout.models import Event, InboundEvent, LaneState, Run, RunTarget
from fanout.rules.message_ids import message_id
from reminders.erasure import FACELESS
from reminders.models import Recipient
from tests.factories import (
    AccountFactory,
    EventFactory,
    InboundEventFactory,
    RecipientFactory,
    RunFactory,
    RunTargetFactory,
)
from tests.inbound.people import say

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
SENT_AT = NOW - timedelta(minutes=2)
HOUR, MINUTE, SECOND = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)
PHONE = "+4915112345000"
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


# --- whose receipt it is ----------------------------------------------------------------------------------


def test_our_own_id_counts_more_than_the_providers(run: Run) -> None:
    named, other = target_of(run, provider_id="sbx-1"), target_of(run, provider_id="sbx-2")
    receipt(named, message_id=message_id(named.pk, 0), provider_id=other.provider_id)
    worker.step(NOW)
    assert delivered() == {named.pk}
    named.refresh_from_db()
    assert named.provider_id == "sbx-1", "what has a name keeps it"


def test_of_two_messages_with_one_id_the_later_is_meant(run: Run) -> None:
    target_of(run)
    later = target_of(run)
    receipt(later)
    worker.step(NOW)
    assert delivered() == {later.pk}


def test_a_receipt_without_an_id_is_about_no_message_without_one(run: Run) -> None:
    receipt(target_of(run, provider_id=""))
    worker.step(NOW)
    assert delivered() == set()


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


def test_what_names_nothing_gives_no_name(run: Run) -> None:
    target = target_of(run, provider_id="")
    receipt(target, message_id=message_id(target.pk, 0), detail={"by": "server"})
    before = version(target)
    worker.step(NOW)
    assert version(target) == before
    assert InboundEvent.objects.get().effect == "noted"


def test_the_receipt_of_somebody_who_was_erased_is_noted_and_forgotten(run: Run) -> None:
    target = target_of(run, provider_id="", address=f"{FACELESS}7")
    event = receipt(target, message_id=message_id(target.pk, 0), provider_id="wamid.1", address="+4915200000001")
    worker.step(NOW)
    target.refresh_from_db()
    event.refresh_from_db()
    assert (target.delivered_at, target.provider_id) == (NOW - MINUTE, "")
    assert (event.state, event.address, event.provider_id) == ("done", "", "")


# --- what is in doubt -------------------------------------------------------------------------------------


def doubted(run: Run, **fields: Any) -> RunTarget:
    return target_of(run, "unconfirmed", **{"provider_id": "", "error_kind": "unknown", "parts_sent": 0} | fields)


def by_device(target: RunTarget, **fields: Any) -> None:
    receipt(target, **{"provider_id": "3EB0NEW", "detail": {"by_device": True}} | fields)


def settled(target: RunTarget) -> bool:
    worker.step(NOW + 40 * HOUR)
    target.refresh_from_db()
    return target.status != "unconfirmed"


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
def test_which_doubt_an_unknown_id_settles(run: Run, fields: dict[str, Any], settles: bool) -> None:
    target = doubted(run, **fields)
    by_device(target)
    assert settled(target) is settles


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
    target = doubted(run)
    by_device(target, happened_at=SENT_AT + after)
    assert settled(target) is settles


def test_a_receipt_without_an_id_can_be_meant_too(run: Run) -> None:
    target = doubted(run)
    target_of(run, provider_id="")
    by_device(target, provider_id="")
    assert settled(target)


def test_the_ids_of_another_account_are_its_own(run: Run) -> None:
    target = doubted(run)
    target_of(RunFactory.create(status="running"), provider_id="3EB0NEW")
    by_device(target)
    assert settled(target)


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
        case({"parts_sent": 2, "recipient": "another"}, True, id="to-somebody-else"),
    ],
)
def test_which_other_messages_can_be_meant(run: Run, fields: dict[str, Any], settles: bool) -> None:
    target = doubted(run)
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


def test_a_doubt_of_another_chat_or_account_is_not_meant(run: Run) -> None:
    target, elsewhere = doubted(run), doubted(run)
    theirs = doubted(RunFactory.create(status="running"), recipient=target.recipient, address=target.address)
    by_device(target)
    assert settled(target)
    assert not settled(elsewhere)
    assert not settled(theirs)


# --- which receipts are due -------------------------------------------------------------------------------


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


def test_receipts_come_in_batches_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipts, "BATCH", 2)
    events = [InboundEventFactory.create(provider_id="by-hand") for _ in range(3)]
    assert receipts.ready(NOW) == events[:2]
    assert worker.work_on_receipts(NOW) == 2


@pytest.mark.parametrize(
    ("attempts", "state", "then", "next_look"),
    [(0, "new", 1, 2), (1, "new", 2, 15), (2, "new", 3, 120), (3, "done", 3, None)],
)
def test_a_receipt_of_nothing_looks_again_three_times(
    attempts: int, state: str, then: int, next_look: int | None
) -> None:
    event = InboundEventFactory.create(provider_id="by-hand", attempts=attempts)
    worker.step(NOW)
    event.refresh_from_db()
    until = None if next_look is None else NOW + timedelta(seconds=next_look)
    assert (event.state, event.attempts, event.next_attempt_at) == (state, then, until)
    assert bool(event.effect) is (state == "done")


# --- an event that looks again ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("detail", "attempts", "after"),
    [
        case({}, 1, (0, 2, 1), id="the-first-time"),
        case({"looks": 1}, 1, (0, 15, 2), id="the-second"),
        case({"looks": 2}, 3, (2, 120, 3), id="the-third"),
        case({}, 0, (0, 2, 1), id="never-below-none"),
    ],
)
def test_a_look_is_no_try(detail: dict[str, int], attempts: int, after: tuple[int, int, int]) -> None:
    event = InboundEventFactory.create(kind="bounce", detail={**detail, "kind": "x"}, attempts=attempts)
    assert events.may_look_again(event)
    events.look_again(event.pk, NOW)
    event.refresh_from_db()
    tries, seconds, looks = after
    assert (event.attempts, event.next_attempt_at) == (tries, NOW + timedelta(seconds=seconds))
    assert event.detail == {"kind": "x", "looks": looks}
    assert events.may_look_again(event) is (looks < 3)


def test_what_is_done_does_not_look_again() -> None:
    event = InboundEventFactory.create(kind="bounce", state="done")
    events.look_again(event.pk, NOW)
    event.refresh_from_db()
    assert (event.next_attempt_at, event.detail) == (None, {})


# --- the order of events ----------------------------------------------------------------------------------


def reply(address: str = PHONE, **fields: Any) -> InboundEvent:
    event: InboundEvent = InboundEventFactory.create(**{"kind": "reply", "address": address} | fields)
    return event


def ready() -> list[int]:
    return [row["id"] for row in worker.ready(NOW)]


@pytest.mark.parametrize(
    ("waiting", "waits"),
    [
        case({}, True, id="another-try-later"),
        case({"attempts": 0}, False, id="only-a-look"),
        case({"next_attempt_at": NOW}, False, id="its-time-has-come"),
        case({"next_attempt_at": None}, False, id="never-tried"),
        case({"state": "failed"}, False, id="failed"),
        case({"kind": "delivered"}, False, id="a-receipt"),
        case({"address": "+4915112345001"}, False, id="of-somebody-else"),
        case({"kind": "session"}, False, id="of-an-account"),
    ],
)
def test_what_waits_behind_an_event(waiting: dict[str, Any], waits: bool) -> None:
    later: dict[str, Any] = {"attempts": 1, "next_attempt_at": NOW + SECOND}
    first = reply(**later | waiting)
    behind = reply()
    assert (behind.pk in ready()) is not waits
    assert (first.pk in ready()) is (waiting.get("next_attempt_at", NOW + SECOND) in (None, NOW))


def test_sessions_of_one_account_wait_for_each_other_and_for_nobody_else() -> None:
    first = reply("", kind="session", attempts=1, next_attempt_at=NOW + SECOND)
    reply("", kind="session", account=first.account)
    other = reply("", kind="session")
    assert ready() == [other.pk]


@pytest.mark.parametrize(
    ("fields", "due"),
    [
        case({}, True, id="new"),
        case({"state": "done"}, False, id="done"),
        case({"state": "failed"}, False, id="failed"),
        case({"kind": "read"}, False, id="a-receipt"),
        case({"next_attempt_at": NOW}, True, id="its-time-has-come"),
        case({"next_attempt_at": NOW + SECOND}, False, id="not-yet"),
    ],
)
def test_which_events_are_ready(fields: dict[str, Any], due: bool) -> None:
    event = reply(**fields)
    assert ready() == ([event.pk] if due else [])


@pytest.mark.parametrize(("state", "tries"), [("new", 1), ("done", 0), ("failed", 0)])
def test_only_a_new_event_is_begun(monkeypatch: pytest.MonkeyPatch, state: str, tries: int) -> None:
    monkeypatch.setitem(worker.EFFECTS, "reply", lambda event, now: "heard")
    event, beside = reply(state=state), reply("+4915112345001")
    assert worker.work_on(event.pk, NOW) is True
    for row in (event, beside):
        row.refresh_from_db()
    assert (event.attempts, event.effect) == (tries, "heard" if tries else "")
    assert (beside.attempts, beside.state) == (0, "new")


@pytest.mark.parametrize(("attempts", "seconds"), [(0, 5), (1, 30), (2, 120), (3, 600), (4, None), (5, None)], ids=str)
def test_how_long_a_failing_event_waits(monkeypatch: pytest.MonkeyPatch, attempts: int, seconds: int | None) -> None:
    def fails(event: InboundEvent, now: datetime) -> str:
        raise ValueError("a\x00b" * 300)

    monkeypatch.setitem(worker.EFFECTS, "reply", fails)
    event, beside = reply(attempts=attempts), reply("+4915112345001", state="done")
    last = seconds is None
    assert worker.work_on(event.pk, NOW) is last, "what came after it waits, until it is given up"
    for row in (event, beside):
        row.refresh_from_db()
    assert (event.state, event.attempts) == ("failed" if last else "new", attempts + 1)
    assert event.next_attempt_at == (None if seconds is None else NOW + timedelta(seconds=seconds))
    assert event.effect.startswith("its worker ended" if attempts == 5 else "ValueError: abab")
    assert (beside.state, beside.effect) == ("done", "")


def test_a_receipt_that_fails_alone_counts_its_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(events: list[InboundEvent], now: datetime) -> None:
        raise ValueError("bad")

    monkeypatch.setattr(receipts, "apply", fails)
    event = InboundEventFactory.create(attempts=1)
    assert worker.work_on_receipts(NOW) == 1
    event.refresh_from_db()
    assert (event.attempts, event.next_attempt_at) == (2, NOW + timedelta(seconds=30))


@pytest.mark.parametrize(("state", "counted"), [("failed", 1), ("done", 0), ("new", 0)])
def test_only_what_failed_is_new_again(state: str, counted: int) -> None:
    event = reply(state=state, attempts=5, effect="why", next_attempt_at=None)
    beside = reply(state="failed", attempts=5)
    assert worker.try_again([event.pk]) == counted
    for row in (event, beside):
        row.refresh_from_db()
    assert (event.state, event.attempts, event.effect) == (("new", 0, "") if counted else (state, 5, "why"))
    assert (beside.state, beside.attempts) == ("failed", 5)


# --- replies ----------------------------------------------------------------------------------------------


@pytest.fixture
def ann() -> Recipient:
    person: Recipient = RecipientFactory.create(kind="person", address=PHONE)
    return person


def follow_up(ann: Recipient, **fields: Any) -> RunTarget:
    """One that waits for her, in a run that was made an hour ago."""
    run = RunFactory.create(status="running", scheduled_for=NOW, follow_up=fields.pop("follow_up", True))
    Run.objects.filter(pk=run.pk).update(created_at=fields.pop("created_at", NOW - HOUR))
    target: RunTarget = RunTargetFactory.create(run=run, **{"recipient": ann} | fields)
    RunTargetFactory.create(run=run)
    return target


@pytest.mark.parametrize(
    ("fields", "taken"),
    [
        case({}, True, id="queued"),
        case({"created_at": NOW}, True, id="made-at-that-moment"),
        case({"created_at": NOW + SECOND}, False, id="made-later"),
        case({"follow_up": False}, False, id="no-follow-up"),
        case({"parts_sent": 1}, False, id="between-two-parts"),
        case({"status": "sending"}, False, id="in-flight"),
    ],
)
def test_which_queued_follow_ups_a_reply_takes_out(ann: Recipient, fields: dict[str, Any], taken: bool) -> None:
    target = follow_up(ann, **fields)
    words = say(AccountFactory.create(), 0, NOW)
    target.refresh_from_db()
    assert words == ("noted; 1 queued follow-up taken out" if taken else "noted")
    assert (target.status == "skipped") is taken
    assert target.run.targets.exclude(pk=target.pk).get().status == "pending"


def test_an_opt_out_leaves_the_queue_to_the_claim(ann: Recipient) -> None:
    target = follow_up(ann)
    assert say(AccountFactory.create(), 0, NOW, "STOP") == "noted; opted out and suppressed"
    target.refresh_from_db()
    ann.refresh_from_db()
    assert (target.status, ann.status) == ("pending", "opted_out")


@pytest.mark.parametrize(
    ("fields", "answers"),
    [
        case({}, True, id="sent"),
        case({"status": "sending"}, True, id="in-flight"),
        case({"status": "unconfirmed"}, True, id="in-doubt"),
        case({"status": "failed", "parts_sent": 1}, True, id="half-of-it-arrived"),
        case({"status": "failed"}, False, id="failed"),
        case({"claimed_at": NOW + SECOND}, True, id="within-the-second"),
        case({"claimed_at": NOW + 2 * SECOND}, False, id="sent-later"),
        case({"claimed_at": None}, False, id="never-claimed"),
        case({"account": "another"}, False, id="of-another-account"),
        case({"recipient": "another"}, False, id="to-somebody-else"),
    ],
)
def test_which_message_a_reply_answers(ann: Recipient, fields: dict[str, Any], answers: bool) -> None:
    run = RunFactory.create(status="running", scheduled_for=NOW)
    given: dict[str, Any] = {"status": "sent", "claimed_at": NOW - HOUR, "recipient": ann, "account": run.account}
    made = {"account": AccountFactory.create, "recipient": RecipientFactory.create}
    fields = {name: made[name]() if value == "another" else value for name, value in fields.items()}
    target = RunTargetFactory.create(run=run, **given | fields)
    say(run.account, 0, NOW)
    target.refresh_from_db()
    assert target.replied_at == (NOW if answers else None)
    assert InboundEvent.objects.get().run_target_id == (target.pk if answers else None)


@pytest.mark.parametrize(
    ("names", "answered"),
    [
        case({}, "late", id="nothing-the-latest"),
        case({"provider_id": "wamid.early"}, "early", id="the-providers-id"),
        case({"provider_id": "wamid.other"}, "late", id="an-unknown-id"),
        case({"message_id": "early"}, "early", id="our-own-id"),
    ],
)
def test_a_reply_answers_what_it_names(ann: Recipient, names: dict[str, str], answered: str) -> None:
    account = AccountFactory.create()
    sent = {}
    for name, hours, provider_id in (("early", 3, "wamid.early"), ("late", 1, ""), ("middle", 2, "")):
        run = RunFactory.create(status="running", account=account, scheduled_for=NOW)
        sent[name] = RunTargetFactory.create(
            run=run, recipient=ann, status="sent", claimed_at=NOW - hours * HOUR, provider_id=provider_id
        )
    if "message_id" in names:
        names = {"message_id": message_id(sent["early"].pk, 0)}
    say(account, 0, NOW, **names)
    assert InboundEvent.objects.get().run_target_id == sent[answered].pk
    assert [name for name, target in sent.items() if RunTarget.objects.get(pk=target.pk).replied_at] == [answered]


@pytest.mark.parametrize(
    ("target", "left"),
    [
        case({}, 1, id="after-the-reply"),
        case({"claimed_at": NOW}, 1, id="at-that-moment"),
        case({"claimed_at": NOW - SECOND}, 0, id="before-it"),
        case({"status": "failed"}, 0, id="failed"),
        case({"follow_up": False}, 0, id="no-follow-up"),
        case({"recipient": "another"}, 0, id="to-somebody-else"),
        case({"recipient": "the same"}, 1, id="from-another-list"),
    ],
)
def test_which_attempts_a_late_reply_leaves(ann: Recipient, target: dict[str, Any], left: int) -> None:
    Recipient.objects.filter(pk=ann.pk).update(follow_up_attempts=2)
    whom = {"another": "+4915112345001", "the same": PHONE}
    if "recipient" in target:
        target = {"recipient": RecipientFactory.create(kind="person", address=whom[target["recipient"]])}
    follow_up(ann, **{"status": "sent", "claimed_at": NOW + SECOND, "parts_sent": 1} | target)
    say(AccountFactory.create(), 0, NOW, came_at=NOW + HOUR)
    ann.refresh_from_db()
    assert (ann.follow_up_attempts, ann.replied_at) == (left, NOW)


def test_people_with_an_address_are_no_groups(ann: Recipient) -> None:
    same = RecipientFactory.create(kind="person", address=PHONE)
    Recipient.objects.filter(pk=RecipientFactory.create().pk).update(address=PHONE)
    RecipientFactory.create(kind="person", address="+4915112345001")
    assert sorted(replies.recipients_at(PHONE)) == replies.lock(PHONE) == [ann.pk, same.pk]


@pytest.mark.parametrize(
    ("text", "word"),
    [("  STOP! ", "stop"), ("Dé-sabonner", "de sabonner"), ("stop  by", "stop by"), ("👋", ""), ("", "")],
)
def test_the_bare_words(text: str, word: str) -> None:
    assert bare(text) == word


# --- bounces ----------------------------------------------------------------------------------------------


def bounce(kind: str = "hard_bounce", **fields: Any) -> Bounce:
    return Bounce("ann@example.org", Kind(kind), fields.pop("detail", "gone"), **fields)


@pytest.mark.parametrize(
    ("given", "refusal"),
    [
        case(bounce("rate_limited", by_mail=False), True, id="the-accounts-trouble"),
        case(bounce("rate_limited", by_mail=True), False, id="in-a-report"),
        case(bounce("hard_bounce", by_mail=False), False, id="of-the-address"),
        case(bounce("hard_bounce", by_mail=True, certain=True), True, id="certain"),
    ],
)
def test_what_answers_one_try(given: Bounce, refusal: bool) -> None:
    assert _is_refusal(given) is refusal


@pytest.mark.parametrize(
    ("happened_at", "claimed_at", "last"),
    [
        case(NOW, None, True, id="never-claimed"),
        case(NOW, NOW, True, id="at-once"),
        case(NOW, NOW + SECOND, True, id="within-the-second"),
        case(NOW, NOW + 2 * SECOND, False, id="before-it"),
    ],
)
def test_whether_it_is_about_the_last_try(happened_at: datetime, claimed_at: datetime | None, last: bool) -> None:
    event, target = InboundEvent(happened_at=happened_at), RunTarget(claimed_at=claimed_at)
    assert _about_last_try(event, target) is last


@pytest.mark.parametrize(
    ("given", "counted"),
    [
        case(bounce("hard_bounce", by_mail=True), "hard_bounce", id="hard"),
        case(bounce("content_rejected", by_mail=True), "soft_bounce", id="any-other-mail"),
        case(bounce("content_rejected", by_mail=False), "content_rejected", id="an-event"),
        case(bounce("hard_bounce", by_mail=False), "hard_bounce", id="a-hard-event"),
    ],
)
def test_as_what_it_counts(given: Bounce, counted: str) -> None:
    assert counted_as(given) == counted


def test_the_cause_is_short_and_names_nobody() -> None:
    words = cause(bounce(detail=f"ann@example.org {'x' * 500}"))
    assert words == f"hard bounce, … {'x' * 148}"


@pytest.mark.parametrize(
    ("status", "diagnostic", "kind", "detail"),
    [
        case("5.1.1", "smtp; 550 5.1.1 unknown", "hard_bounce", "550 5.1.1 unknown", id="both"),
        case("5.1.1", "smtp; 550 unknown", "hard_bounce", "550 5.1.1 unknown", id="a-status-of-its-own"),
        case("5.1.1", "x-unix; unknown", "hard_bounce", "554 5.1.1 unknown", id="no-reply"),
        case("4.2.2", "full", "soft_bounce", "450 4.2.2 full", id="no-kind-of-diagnostic"),
        case("", "smtp; 452 full", "soft_bounce", "452 full", id="no-status"),
    ],
)
def test_what_a_report_means(status: str, diagnostic: str, kind: str, detail: str) -> None:
    found = verdict(status, diagnostic)
    assert found[0].value == kind
    assert found[1].split() == detail.split()


@pytest.mark.parametrize(
    ("value", "address"),
    [
        ("rfc822; Ann@Example.org", "Ann@example.org"),
        ("ann@example.org", "ann@example.org"),
        ("UTF-8;ann@example.org", "ann@example.org"),
        ("smtp; ann@example.org", "ann@example.org"),
        ("x400; ann@example.org", ""),
        ("rfc822; nobody", ""),
    ],
)
def test_the_mailbox_of_a_report(value: str, address: str) -> None:
    assert mailbox(value).lower() == address.lower()


# --- replies by mail --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "person"),
    [
        case(b"X-Nothing: 1", True, id="a-person"),
        case(b"Auto-Submitted: no", True, id="says-so"),
        case(b"Auto-Submitted: auto-replied; x=1", False, id="rfc-3834"),
        case(b"Precedence: Bulk ", False, id="bulk"),
        case(b"Precedence: special", True, id="another-precedence"),
        case(b"Return-Path: <>", False, id="nobodys-path"),
        case(b"Return-Path: <ann@example.org>", True, id="somebodys-path"),
        case(b"List-Id: x", False, id="a-list"),
        case(b"X-Autoreply: yes", False, id="autoreply"),
    ],
)
def test_what_a_person_writes(header: bytes, person: bool) -> None:
    named = f"In-Reply-To: <{message_id(7, 0)}@example.com>\r\n".encode()
    raw = b"From: ann@example.org\r\n" + named + header + b"\r\nMessage-ID: <1@x>\r\n\r\nYes, please\r\n"
    found = mails.parse_reply(raw)
    assert (found is not None) is person
    if found:
        assert (found.address, found.message.target_id, found.text, found.at) == (
            "ann@example.org",
            7,
            "Yes, please",
            None,
        )


# --- sessions ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("until", "ends"),
    [
        case("2026-01-06T09:00:00+00:00", NOW + timedelta(days=1), id="with-a-zone"),
        case("2026-01-06T09:00:00", NOW + timedelta(days=1), id="without-one"),
        case("soon", None, id="unreadable"),
        case(None, None, id="not-said"),
    ],
)
def test_until_when_a_ban_lasts(until: str | None, ends: datetime | None) -> None:
    assert sessions.until(InboundEvent(detail={"until": until})) == ends


@pytest.mark.parametrize(
    ("fields", "overtaken"),
    [
        case({}, True, id="a-later-one-was-worked-on"),
        case({"happened_at": NOW}, False, id="of-the-same-moment"),
        case({"state": "new"}, False, id="not-yet"),
        case({"kind": "reply"}, False, id="of-another-kind"),
        case({"account": "another"}, False, id="of-another-account"),
    ],
)
def test_which_report_is_overtaken(fields: dict[str, Any], overtaken: bool) -> None:
    event = reply("", kind="session", happened_at=NOW)
    if "account" in fields:
        fields = {"account": AccountFactory.create()}
    later = {"kind": "session", "account": event.account, "happened_at": NOW + SECOND, "state": "done"}
    reply("", **later | fields)
    assert sessions.overtaken(event) is overtaken


@pytest.mark.parametrize(
    ("ago", "lines"), [case(HOUR, 1, id="an-hour"), case(HOUR + SECOND, 2, id="longer"), case(MINUTE, 1, id="a-minute")]
)
def test_a_lost_connection_is_noted_once_an_hour(ago: timedelta, lines: int) -> None:
    account = AccountFactory.create()
    EventFactory.create(run=None, account=account, verb="disconnected", at=NOW - ago)
    EventFactory.create(run=None, account=AccountFactory.create(), verb="disconnected", at=NOW)
    EventFactory.create(run=None, account=account, verb="reported", at=NOW)
    assert sessions.note_disconnection(account.pk, "lost", NOW) == "noted"
    assert Event.objects.filter(account=account, verb="disconnected").count() == lines
    assert not LaneState.objects.filter(account=account).exists()
