"""An opt-out is honoured when it comes: before the worker gets to it, before all other events, and before Message 2."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from accounts.channels.provider_events import EventKind, ProviderEvent
from accounts.models import Account
from fanout.database import execute
from fanout.inbound import event_store, worker
from fanout.inbound.reply_mails import take_in_reply
from fanout.models import InboundEvent, Run
from reminders import erasure
from reminders.models import OptOutPhrase, Recipient, Suppression
from tests.engine.stage import MONDAY, Stage
from tests.factories import AccountFactory, RunTargetFactory
from tests.inbound.mails import id_of
from tests.inbound.people import person, phone, remind, stored
from tests.inbound.test_worker import many
from tests.reads import handled_by

pytestmark = pytest.mark.django_db
MINUTE = timedelta(minutes=1)
case = pytest.param


@pytest.fixture
def account() -> Account:
    return AccountFactory.create()


BY_SUBJECT = {"kind": EventKind.AUTOMATIC, "detail": {"what": "an absence note", "subject": "Vacation"}}


def suppressed() -> list[tuple[str, str, str]]:
    return list(Suppression.objects.order_by("address").values_list("address", "reason", "detail"))


# --- when it comes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        case({"text": "STOP"}, "opted_out", id="a word"),
        case({"text": "please stop, thank you"}, "opted_out", id="a sentence"),
        case({"kind": EventKind.UNSUBSCRIBE, "text": ""}, "unsubscribed", id="the provider's button"),
        case({"kind": EventKind.COMPLAINT, "text": ""}, "complaint", id="a complaint"),
        case({"text": "yes"}, None, id="another word"),
        case({"text": "STOP", "group": "120363000000000001@g.us"}, None, id="in a group"),
        case({"kind": EventKind.UNSUBSCRIBE, "text": "", "detail": {"resumed": True}}, None, id="taken back"),
        case({"kind": EventKind.AUTOMATIC, "text": "STOP"}, None, id="of a program"),
        case(BY_SUBJECT | {"text": "STOP"}, "opted_out", id="of a program, by its subject alone"),
        case(BY_SUBJECT | {"text": "I'm back on Monday."}, None, id="an absence note"),
    ],
)
def test_it_is_suppressed_by_the_statement_that_stores_it(
    account: Account, event: dict[str, Any], reason: str | None
) -> None:
    made = stored(account, 0, MONDAY, **event)
    assert [row[:2] for row in suppressed()] == ([(phone(0), reason)] if reason else [])
    assert made.opts_out is bool(reason)
    worker.step(MONDAY)
    made.refresh_from_db()
    assert made.state == "done"
    assert [row[:2] for row in suppressed()] == ([(phone(0), reason)] if reason else [])


@pytest.mark.parametrize(("text", "kind"), [("STOP", "reply"), ("cease", "reply"), ("ok", "automatic")])
def test_a_person_is_heard_under_a_programs_subject(account: Account, text: str, kind: str) -> None:
    """Also with a phrase of the site's own list."""
    OptOutPhrase.objects.create(phrase="cease", essence="cease")
    event = stored(account, 0, MONDAY, text, **BY_SUBJECT)
    assert (event.kind, event.opts_out) == (kind, kind == "reply")
    worker.step(MONDAY)
    assert Suppression.objects.count() == (kind == "reply")


def test_every_spelling_of_the_number_is_suppressed(account: Account) -> None:
    stored(account, 0, MONDAY, "STOP", address="+5511987654321")
    assert [address for address, _, _ in suppressed()] == ["+551187654321", "+5511987654321"]


def test_a_mail_is_suppressed_too() -> None:
    target = RunTargetFactory.create(
        status="sent", claimed_at=MONDAY, recipient__kind="mailbox", recipient__address="ann@example.org"
    )
    raw = f"From: ann@example.org\nMessage-ID: <1@x>\nIn-Reply-To: <{id_of(target)}>\n\nunsubscribe me\n".encode()
    assert take_in_reply(raw, MONDAY + MINUTE) == (True, True)
    assert suppressed() == [("ann@example.org", "opted_out", "wrote an opt-out word")]


def test_a_repeated_report_does_not_suppress_again(account: Account) -> None:
    event = ProviderEvent("e-1", EventKind.REPLY, address=phone(0), text="STOP")
    assert event_store.store(account.pk, [event, event], MONDAY) == 1
    Suppression.objects.all().delete()  # an administrator lifts it
    assert event_store.store(account.pk, [event], MONDAY) == 0
    assert suppressed() == []


@pytest.mark.parametrize(("expires", "kept"), [(MINUTE, True), (-MINUTE, False), (None, True)])
def test_a_suppression_that_holds_stays_until_the_worker_comes(
    account: Account, expires: timedelta | None, kept: bool
) -> None:
    until = None if expires is None else MONDAY + expires
    Suppression.objects.create(address=phone(0), reason="soft_bounces", detail="full", expires_at=until)
    stored(account, 0, MONDAY, "STOP")
    row = Suppression.objects.get()
    assert (row.reason, row.expires_at) == (("soft_bounces", until) if kept else ("opted_out", None))
    worker.step(MONDAY)
    row.refresh_from_db()
    assert (row.reason, row.expires_at) == ("opted_out", None)


def test_an_erased_person_is_not_written_down_again(account: Account) -> None:
    erasure.remember(phone(0), MONDAY)
    stored(account, 0, MONDAY, "STOP")
    stored(account, 1, MONDAY, "STOP")
    assert [address for address, _, _ in suppressed()] == [phone(1)]


@pytest.mark.parametrize("together", [True, False])
def test_an_opt_out_that_was_taken_back_later_suppresses_no_one(account: Account, together: bool) -> None:
    back = ProviderEvent("back", EventKind.UNSUBSCRIBE, MONDAY, phone(0), detail={"resumed": True})
    out = ProviderEvent("out", EventKind.UNSUBSCRIBE, MONDAY - MINUTE, phone(0))
    for batch in [[back, out]] if together else [[back], [out]]:
        event_store.store(account.pk, batch, MONDAY)
    worker.step(MONDAY)
    assert suppressed() == []


def test_a_resume_that_is_worked_on_after_a_newer_opt_out_changes_nothing(account: Account) -> None:
    whom = person(account.owner)
    back = ProviderEvent("back", EventKind.UNSUBSCRIBE, MONDAY - MINUTE, phone(0), detail={"resumed": True})
    out = ProviderEvent("out", EventKind.UNSUBSCRIBE, MONDAY, phone(0))
    event_store.store(account.pk, [back, out], MONDAY)
    worker.step(MONDAY)
    whom.refresh_from_db()
    assert whom.status == "opted_out"
    assert InboundEvent.objects.get(key="back").effect == "nothing: the person opted out again later"
    assert [row[1] for row in suppressed()] == ["unsubscribed"]


def test_storing_wishes_reads_no_other_events(account: Account) -> None:
    many(20_000, state="done", kind="unsubscribe")
    execute("ANALYZE fanout_inboundevent", {})
    kinds = [EventKind.REPLY, EventKind.UNSUBSCRIBE, EventKind.COMPLAINT]
    wishes = [ProviderEvent(f"e-{n}", kinds[n % 3], address=phone(n), text="STOP") for n in range(99)]
    statement, parameters = event_store.storing([(account.pk, wish) for wish in wishes], MONDAY)
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {statement}", parameters)
        rows = handled_by(cursor)
    assert Suppression.objects.count() == 99
    assert rows < 5_000


# --- before all others --------------------------------------------------------------------------------------


def done_in_order(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which the texts of replies are added as they are worked on."""
    seen: list[str] = []
    effect = worker.EFFECTS["reply"]

    def reply(event: InboundEvent, now: Any) -> str:
        if event.text == "poison":
            raise ValueError("it cannot be read")
        seen.append(event.text)
        return effect(event, now)

    monkeypatch.setitem(worker.EFFECTS, "reply", reply)
    return seen


def test_it_comes_before_what_was_said_earlier(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = done_in_order(monkeypatch)
    for n in range(worker.BATCH + 5):
        stored(account, n, MONDAY, f"yes {n}")
    stored(account, 0, MONDAY, "STOP")
    worker.step(MONDAY)
    assert seen[:2] == ["STOP", "yes 0"]


def test_one_that_comes_during_a_batch_does_not_wait_for_its_end(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = done_in_order(monkeypatch)
    effect = worker.EFFECTS["reply"]

    def reply(event: InboundEvent, now: Any) -> str:
        if event.text == "yes 1":
            stored(account, 9, MONDAY, "STOP")
        return effect(event, now)

    monkeypatch.setitem(worker.EFFECTS, "reply", reply)
    for n in range(4):
        stored(account, n, MONDAY, f"yes {n}")
    worker.step(MONDAY)
    assert seen == ["yes 0", "yes 1", "STOP", "yes 2", "yes 3"]


def test_an_event_that_fails_does_not_hold_up_the_same_persons_stop(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    whom, seen = person(account.owner), done_in_order(monkeypatch)
    stored(account, 0, MONDAY, "poison")
    worker.step(MONDAY)
    stored(account, 0, MONDAY, "STOP")
    worker.step(MONDAY)
    whom.refresh_from_db()
    assert (seen, whom.status) == (["STOP"], "opted_out")


def test_an_opt_out_that_fails_holds_up_what_the_person_said_before(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = done_in_order(monkeypatch)
    InboundEvent.objects.filter(pk=stored(account, 0, MONDAY, "poison").pk).update(opts_out=True)
    worker.step(MONDAY)
    first = stored(account, 0, MONDAY, "yes")
    InboundEvent.objects.filter(pk=first.pk).update(id=1)  # as if it had come before
    worker.step(MONDAY)
    assert seen == []


def test_an_opt_out_of_an_earlier_version_is_decided_by_the_worker(account: Account) -> None:
    event = stored(account, 0, MONDAY, "STOP")
    InboundEvent.objects.filter(pk=event.pk).update(opts_out=False)
    Suppression.objects.all().delete()
    worker.step(MONDAY)
    assert [row[1] for row in suppressed()] == ["opted_out"]


# --- Message 2, by the provider's book ------------------------------------------------------------------------


def test_yes_and_then_stop_brings_no_message_2(stage: Stage) -> None:
    account = stage.account()
    stage.fire(remind(stage, account, people=3))
    stage.play()
    for n in range(3):
        stored(account, n, stage.now, "yes")
    stored(account, 1, stage.now, "STOP")
    worker.step(stage.now)
    assert Run.objects.get(answers__isnull=False).total == 2
    stage.play()
    assert sorted(one.to for one in stage.book.deliveries()) == sorted(
        [phone(0), phone(0), phone(1), phone(2), phone(2)]
    )
    effects = InboundEvent.objects.filter(address=phone(1)).order_by("pk").values_list("effect", flat=True)
    assert list(effects) == ["noted; no Message 2: the address is suppressed", "noted; opted out and suppressed"]


def test_stop_while_message_2_waits_is_honoured_without_a_worker(stage: Stage) -> None:
    account = stage.account()
    stage.fire(remind(stage, account))
    stage.play()
    stored(account, 0, stage.now, "yes")
    worker.step(stage.now)
    stored(account, 0, stage.now, "STOP")
    stage.play()
    assert len(stage.book.deliveries()) == 1
    assert Recipient.objects.get().status == "active", "the worker has not run yet"


def test_a_message_that_is_edited_to_stop_opts_out(stage: Stage) -> None:
    account = stage.account()
    stage.fire(remind(stage, account))
    stage.play()
    stored(account, 0, stage.now, "yes")
    worker.step(stage.now)
    stored(account, 0, stage.now, "STOP", detail={"edited": True})
    stage.play()
    assert len(stage.book.deliveries()) == 1, "Message 2 is not sent"
    worker.step(stage.now)
    assert Recipient.objects.get().status == "opted_out"


def test_another_edit_is_no_second_reply(stage: Stage) -> None:
    account = stage.account()
    stage.fire(remind(stage, account))
    stage.play()
    before = Recipient.objects.values("replied_at", "status").get()
    stored(account, 0, stage.now, "yes!", detail={"edited": True})
    worker.step(stage.now)
    assert InboundEvent.objects.get().effect == "kept: an edit of an earlier message"
    assert Recipient.objects.values("replied_at", "status").get() == before
    assert not Run.objects.filter(answers__isnull=False).exists(), "no Message 2"


# --- one slow event -----------------------------------------------------------------------------------------

#: each comes apart into two marks, which Unicode's normal form sorts in quadratic time
MARKS = "\u0f73" * 64_000


def test_a_text_of_marks_delays_no_one(account: Account) -> None:
    stored(account, 0, MONDAY, "warm")
    worker.step(MONDAY)
    begin = time.process_time()
    for n in range(20):
        stored(account, n, MONDAY, MARKS)
    stored(account, 50, MONDAY, "STOP")
    worker.step(MONDAY)
    assert time.process_time() - begin < 2.0
    assert [address for address, _, _ in suppressed()] == [phone(50)]
    assert len(InboundEvent.objects.filter(address=phone(1)).latest("pk").text) == event_store.MOST_WORDS
