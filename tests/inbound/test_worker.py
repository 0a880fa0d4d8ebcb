"""Events are worked on once, in order per address; a failing event does not hold up others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django_q.models import OrmQ

from accounts.channels.provider_events import EventKind, ProviderEvent
from accounts.models import Account
from fanout.database import execute
from fanout.inbound import event_store, receipts, worker
from fanout.models import InboundEvent
from fanout.ops import tasks
from tests.factories import AccountFactory, InboundEventFactory
from tests.reads import counting_reads

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
ANN, BEN = "+4917612345678", "+4917612345679"


class Poison(Exception):
    pass


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch, db: None) -> list[str]:
    """Replies whose text is "poison" raise; of the others the texts are kept."""
    texts: list[str] = []

    def reply(event: InboundEvent, now: datetime) -> str:
        if event.text == "poison":
            raise Poison("it cannot be read")
        texts.append(event.text)
        return f"received “{event.text}”"

    monkeypatch.setitem(worker.EFFECTS, "reply", reply)
    return texts


def reply(text: str, address: str = ANN, **fields: object) -> InboundEvent:
    return InboundEventFactory.create(kind="reply", address=address, words={"text": text}, **fields)


def test_an_event_is_worked_on_once(seen):
    event = reply("yes")
    assert (worker.step(NOW), worker.step(NOW)) == (1, 0)
    event.refresh_from_db()
    assert (event.state, event.effect, seen) == ("done", "received “yes”", ["yes"])


def test_poison_is_failed_after_five_tries_with_its_reason(seen):
    event, at = reply("poison"), NOW
    for _ in range(worker.MOST_ATTEMPTS):
        worker.step(at)
        at += timedelta(hours=1)
    assert worker.step(at) == 0
    event.refresh_from_db()
    assert (event.state, event.attempts, event.effect) == ("failed", 5, "Poison: it cannot be read")


def test_only_the_same_address_waits_behind_a_failing_event(seen):
    reply("poison"), reply("later, from Ann"), reply("from Ben", BEN)
    worker.step(NOW)
    assert seen == ["from Ben"]
    worker.step(NOW + timedelta(seconds=1))
    assert seen == ["from Ben"], "it waits while the earlier one waits for its next try"
    for hours in range(1, 6):
        worker.step(NOW + timedelta(hours=hours))
    assert seen == ["from Ben", "later, from Ann"]


def test_nothing_of_a_failed_effect_stays(seen, monkeypatch):
    def half(event: InboundEvent, now: datetime) -> str:
        InboundEvent.objects.filter(pk=event.pk).update(run_target_id=7)
        raise Poison

    monkeypatch.setitem(worker.EFFECTS, "reply", half)
    event = reply("yes")
    worker.step(NOW)
    event.refresh_from_db()
    assert (event.run_target_id, event.state) == (None, "new")


def test_an_event_that_kills_its_worker_is_given_up(seen, monkeypatch):
    """The try is counted before the work: a worker that dies says nothing afterwards."""

    def die(event: InboundEvent, now: datetime) -> str:
        raise SystemExit

    monkeypatch.setitem(worker.EFFECTS, "reply", die)
    event = reply("deadly")
    for _ in range(worker.MOST_ATTEMPTS):
        with pytest.raises(SystemExit):
            worker.step(NOW)
    worker.step(NOW)
    event.refresh_from_db()
    assert (event.state, event.effect) == ("failed", "its worker ended 5 times while it worked on this")


def test_failed_events_can_be_worked_on_again(seen):
    event = reply("yes", state="failed", attempts=5, effect="Poison")
    assert worker.try_again([event.pk]) == 1
    worker.step(NOW)
    event.refresh_from_db()
    assert (event.state, event.effect, event.attempts) == ("done", "received “yes”", 1)


def test_a_kind_without_an_effect_fails_with_its_name(db, monkeypatch):
    monkeypatch.delitem(worker.EFFECTS, "complaint", raising=False)
    event, at = InboundEventFactory.create(kind="complaint"), NOW
    for _ in range(worker.MOST_ATTEMPTS):
        worker.step(at)
        at += timedelta(hours=1)
    event.refresh_from_db()
    assert (event.state, event.effect) == ("failed", "KeyError: 'complaint'")


def test_receipts_that_cannot_be_worked_on_together_are_worked_on_alone(db, monkeypatch):
    good, bad = InboundEventFactory.create(), InboundEventFactory.create(provider_id="bad")
    apply = receipts.apply

    def picky(batch: list[InboundEvent], now: datetime) -> None:
        if any(event.provider_id == "bad" for event in batch):
            raise Poison("bad id")
        apply(batch, now)

    monkeypatch.setattr(receipts, "apply", picky)
    worker.step(NOW)
    for row in (good, bad):
        row.refresh_from_db()
    assert (good.effect, bad.effect, bad.attempts) == ("", "Poison: bad id", 1)


# --- many of them -----------------------------------------------------------------------------------------

MANY = """
INSERT INTO fanout_inboundevent (account_id, key, kind, address, "group", provider_id, message_id, words, detail,
                                 happened_at, came_at, state, attempts, next_attempt_at, effect)
SELECT %(account)s, %(state)s || %(kind)s || %(attempts)s || g, %(kind)s, '+49' || g, '', '', '', '', '{}', %(now)s,
       %(now)s, %(state)s, %(attempts)s, %(next)s, ''
  FROM generate_series(1, %(n)s) AS g
"""


def many(n: int, **fields: object) -> None:
    """Each of another address, the same ones every time."""
    account = Account.objects.first() or AccountFactory.create()
    given = {"account": account.pk, "kind": "reply", "state": "new", "attempts": 0, "next": None, "now": NOW, "n": n}
    execute(MANY, given | fields)


@pytest.fixture(params=["as it was", "fresh"])
def statistics(request: pytest.FixtureRequest, db: None) -> Callable[[], None]:
    """Give the planner statistics of an idle table, or of the table as it is now."""
    many(20_000, state="done")
    execute("ANALYZE fanout_inboundevent", {})

    def now() -> None:
        if request.param == "fresh":
            execute("ANALYZE fanout_inboundevent", {})

    return now


def test_new_receipts_are_nothing_that_others_wait_behind(statistics):
    many(40_000, kind="delivered")
    many(300)
    statistics()
    with counting_reads() as reads:
        assert len(worker.ready(NOW)) == worker.BATCH
    assert reads.most[0] < 2_000, reads.most


def test_what_waits_behind_others_is_not_compared_with_all_of_them(statistics):
    many(3_000, attempts=1, next=NOW + timedelta(hours=1))
    many(3_000)  # of the same people
    statistics()
    last = reply("from Ben", BEN)
    with counting_reads() as reads:
        assert [row["id"] for row in worker.ready(NOW)] == [last.pk]
    assert reads.most[0] < 20_000, reads.most


def test_what_came_before_the_one_that_waits_does_not_wait(db):
    before = reply("looks again", attempts=0, next_attempt_at=NOW - timedelta(seconds=1))
    reply("waits", attempts=1, next_attempt_at=NOW + timedelta(hours=1))
    reply("behind it")
    unnamed = reply("from no address", address="", attempts=1, next_attempt_at=NOW + timedelta(hours=1))
    other = reply("from no address either", address="")
    assert unnamed.pk < other.pk
    assert [row["id"] for row in worker.ready(NOW)] == [before.pk, other.pk]


# --- storing ----------------------------------------------------------------------------------------------


def test_the_same_event_is_stored_once(db):
    account = AccountFactory.create()
    event = ProviderEvent("e-1", EventKind.REPLY, text="yes")
    assert [event_store.store(account.pk, [event, event], NOW) for _ in range(2)] == [1, 0]
    assert InboundEvent.objects.get().text == "yes"


def test_an_event_without_words_stores_none(db):
    event_store.store(AccountFactory.create().pk, [ProviderEvent("e-1", EventKind.READ)], NOW)
    assert InboundEvent.objects.values_list("words", flat=True).get() == ""
    assert InboundEvent.objects.get().text == ""


def test_words_are_not_readable_in_the_database(db):
    event_store.store(AccountFactory.create().pk, [ProviderEvent("e-1", EventKind.REPLY, text="my secret")], NOW)
    assert "secret" not in InboundEvent.objects.values_list("words", flat=True).get()


@pytest.mark.parametrize(
    "text", ["a\x00b", "a\ud800b", "a\U0010ffffb", "x" * 100_000], ids=["nul", "half", "last", "long"]
)
def test_strange_text_is_stored_and_refuses_no_other_event(db, text):
    account = AccountFactory.create()
    strange = ProviderEvent(
        text, EventKind.REPLY, address=text, provider_id=text, text=text, detail={text: text, "n": float("nan")}
    )
    assert event_store.store(account.pk, [strange, ProviderEvent("plain", EventKind.READ)], NOW) == 2
    assert InboundEvent.objects.get(kind="reply").text.startswith(text[0])


def test_nothing_happens_in_the_future(db):
    future = ProviderEvent("e-1", EventKind.READ, at=NOW + timedelta(days=1))
    event_store.store(AccountFactory.create().pk, [future], NOW)
    assert InboundEvent.objects.get().happened_at == NOW


# --- the task ---------------------------------------------------------------------------------------------


@pytest.fixture
def elsewhere(transactional_db: None) -> Iterator[None]:
    """Another session holds the lock."""
    other = connection.copy()
    with other.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(%s, 0)", [worker.LOCK])
    yield
    other.close()


def test_only_one_hears(elsewhere):
    assert worker.is_running()
    assert tasks.process_inbound() == "another worker handles inbound events"
    tasks.ensure_inbound_worker()
    assert not OrmQ.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_slice_ends_with_its_successor_and_without_the_lock(settings):
    settings.DRIVER_SLICE_SECONDS = 0.01
    assert tasks.process_inbound() == "handed over"
    assert OrmQ.objects.filter(key="main").count() == 1
    assert not worker.is_running()


@pytest.mark.django_db(transaction=True)
def test_a_stop_ends_it_at_once_and_without_a_successor(monkeypatch):
    monkeypatch.setattr(tasks, "stop_asked", lambda: True)
    assert tasks.process_inbound() == "handed over"
    assert not OrmQ.objects.exists()


def test_the_worker_is_started_if_none_runs(db):
    tasks.ensure_inbound_worker()
    tasks.ensure_inbound_worker()
    assert OrmQ.objects.filter(key="main").count() == 1, "one on its way is enough"


SECOND = timedelta(seconds=1)
PHONE = "+4915112345000"
case = pytest.param


def stored_reply(address: str = PHONE, **fields: Any) -> InboundEvent:
    event: InboundEvent = InboundEventFactory.create(**{"kind": "reply", "address": address} | fields)
    return event


def ready() -> list[int]:
    return [row["id"] for row in worker.ready(NOW)]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("waiting", "waits"),
    [
        case({}, True, id="another-try-later"),
        case({"attempts": 0}, False, id="only-a-look"),
        case({"next_attempt_at": NOW}, False, id="its-time-has-come"),
        case({"next_attempt_at": None}, False, id="never-tried"),
        case({"state": "failed"}, False, id="failed"),
        case({"kind": "delivered"}, False, id="a-receipt"),
        case({"address": "+4915112345001"}, False, id="another-address"),
        case({"kind": "session"}, False, id="of-an-account"),
    ],
)
def test_what_waits_behind_an_event(waiting: dict[str, Any], waits: bool) -> None:
    later: dict[str, Any] = {"attempts": 1, "next_attempt_at": NOW + SECOND}
    first = stored_reply(**later | waiting)
    behind = stored_reply()
    assert (behind.pk in ready()) is not waits
    assert (first.pk in ready()) is (waiting.get("next_attempt_at", NOW + SECOND) in (None, NOW))


@pytest.mark.django_db
def test_sessions_of_one_account_wait_only_for_each_other() -> None:
    first = stored_reply("", kind="session", attempts=1, next_attempt_at=NOW + SECOND)
    stored_reply("", kind="session", account=first.account)
    other = stored_reply("", kind="session")
    assert ready() == [other.pk]


@pytest.mark.django_db
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
    event = stored_reply(**fields)
    assert ready() == ([event.pk] if due else [])


@pytest.mark.django_db
@pytest.mark.parametrize(("state", "tries"), [("new", 1), ("done", 0), ("failed", 0)])
def test_only_a_new_event_is_begun(monkeypatch: pytest.MonkeyPatch, state: str, tries: int) -> None:
    monkeypatch.setitem(worker.EFFECTS, "reply", lambda event, now: "received")
    event, beside = stored_reply(state=state), stored_reply("+4915112345001")
    assert worker.work_on(event.pk, NOW) is True
    for row in (event, beside):
        row.refresh_from_db()
    assert (event.attempts, event.effect) == (tries, "received" if tries else "")
    assert (beside.attempts, beside.state) == (0, "new")


@pytest.mark.django_db
@pytest.mark.parametrize(("attempts", "seconds"), [(0, 5), (1, 30), (2, 120), (3, 600), (4, None), (5, None)], ids=str)
def test_how_long_a_failing_event_waits(monkeypatch: pytest.MonkeyPatch, attempts: int, seconds: int | None) -> None:
    def fails(event: InboundEvent, now: datetime) -> str:
        raise ValueError("a\x00b" * 300)

    monkeypatch.setitem(worker.EFFECTS, "reply", fails)
    event, beside = stored_reply(attempts=attempts), stored_reply("+4915112345001", state="done")
    last = seconds is None
    assert worker.work_on(event.pk, NOW) is last, "what came after it waits, until it is given up"
    for row in (event, beside):
        row.refresh_from_db()
    assert (event.state, event.attempts) == ("failed" if last else "new", attempts + 1)
    assert event.next_attempt_at == (None if seconds is None else NOW + timedelta(seconds=seconds))
    assert event.effect.startswith("its worker ended" if attempts == 5 else "ValueError: abab")
    assert (beside.state, beside.effect) == ("done", "")


@pytest.mark.django_db
def test_a_receipt_that_fails_alone_counts_its_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(events: list[InboundEvent], now: datetime) -> None:
        raise ValueError("bad")

    monkeypatch.setattr(receipts, "apply", fails)
    event = InboundEventFactory.create(attempts=1)
    assert worker.work_on_receipts(NOW) == 1
    event.refresh_from_db()
    assert (event.attempts, event.next_attempt_at) == (2, NOW + timedelta(seconds=30))


@pytest.mark.django_db
@pytest.mark.parametrize(("state", "counted"), [("failed", 1), ("done", 0), ("new", 0)])
def test_only_what_failed_is_new_again(state: str, counted: int) -> None:
    event = stored_reply(state=state, attempts=5, effect="why", next_attempt_at=None)
    beside = stored_reply(state="failed", attempts=5)
    assert worker.try_again([event.pk]) == counted
    for row in (event, beside):
        row.refresh_from_db()
    assert (event.state, event.attempts, event.effect) == (("new", 0, "") if counted else (state, 5, "why"))
    assert (beside.state, beside.attempts) == ("failed", 5)


def test_it_pauses_only_when_nothing_waits(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    steps, pauses = [True, True, False, True], []
    monkeypatch.setattr(worker, "step", lambda now: steps.pop(0))
    monkeypatch.setattr("fanout.inbound.worker.time.sleep", lambda seconds: pauses.append(len(steps)))
    assert worker.run(60, stop_asked=lambda: not steps)
    assert pauses == [1]
