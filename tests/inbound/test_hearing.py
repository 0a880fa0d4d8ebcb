"""Events are worked on once, in order per address; one that cannot be worked on holds up nobody else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django_q.models import OrmQ

from accounts.channels.events import EventKind, ProviderEvent
from accounts.models import Account
from fanout.database import execute
from fanout.inbound import effects, events, hearing, receipts
from fanout.models import InboundEvent
from fanout.ops import stop, tasks
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
        return f"heard “{event.text}”"

    monkeypatch.setitem(effects.EFFECTS, "reply", reply)
    return texts


def reply(text: str, address: str = ANN, **fields: object) -> InboundEvent:
    return InboundEventFactory.create(kind="reply", address=address, words={"text": text}, **fields)


def test_an_event_is_worked_on_once(seen):
    event = reply("yes")
    assert (hearing.step(NOW), hearing.step(NOW)) == (1, 0)
    event.refresh_from_db()
    assert (event.state, event.effect, seen) == ("done", "heard “yes”", ["yes"])


def test_poison_is_failed_after_five_tries_with_its_reason(seen):
    event, at = reply("poison"), NOW
    for _ in range(hearing.MOST_ATTEMPTS):
        hearing.step(at)
        at += timedelta(hours=1)
    assert hearing.step(at) == 0
    event.refresh_from_db()
    assert (event.state, event.attempts, event.effect) == ("failed", 5, "Poison: it cannot be read")


def test_only_the_same_address_waits_behind_a_failing_event(seen):
    reply("poison"), reply("later, from Ann"), reply("from Ben", BEN)
    hearing.step(NOW)
    assert seen == ["from Ben"]
    hearing.step(NOW + timedelta(seconds=1))
    assert seen == ["from Ben"], "it waits while the earlier one waits for its next try"
    for hours in range(1, 6):
        hearing.step(NOW + timedelta(hours=hours))
    assert seen == ["from Ben", "later, from Ann"]


def test_nothing_of_a_failed_effect_stays(seen, monkeypatch):
    def half(event: InboundEvent, now: datetime) -> str:
        InboundEvent.objects.filter(pk=event.pk).update(run_target_id=7)
        raise Poison

    monkeypatch.setitem(effects.EFFECTS, "reply", half)
    event = reply("yes")
    hearing.step(NOW)
    event.refresh_from_db()
    assert (event.run_target_id, event.state) == (None, "new")


def test_an_event_that_kills_its_worker_is_given_up(seen, monkeypatch):
    """The try is counted before the work: a worker that dies says nothing afterwards."""

    def die(event: InboundEvent, now: datetime) -> str:
        raise SystemExit

    monkeypatch.setitem(effects.EFFECTS, "reply", die)
    event = reply("deadly")
    for _ in range(hearing.MOST_ATTEMPTS):
        with pytest.raises(SystemExit):
            hearing.step(NOW)
    hearing.step(NOW)
    event.refresh_from_db()
    assert (event.state, event.effect) == ("failed", "its worker ended 5 times while it worked on this")


def test_failed_events_can_be_worked_on_again(seen):
    event = reply("yes", state="failed", attempts=5, effect="Poison")
    assert hearing.again([event.pk]) == 1
    hearing.step(NOW)
    event.refresh_from_db()
    assert (event.state, event.effect, event.attempts) == ("done", "heard “yes”", 1)


def test_a_kind_without_an_effect_fails_with_its_name(db, monkeypatch):
    monkeypatch.delitem(effects.EFFECTS, "complaint", raising=False)
    event, at = InboundEventFactory.create(kind="complaint"), NOW
    for _ in range(hearing.MOST_ATTEMPTS):
        hearing.step(at)
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
    hearing.step(NOW)
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
    """What the planner knows: of an idle table, or of what is there now."""
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
        assert len(hearing.ready(NOW)) == hearing.BATCH
    assert reads.most[0] < 2_000, reads.most


def test_what_waits_behind_others_is_not_compared_with_all_of_them(statistics):
    many(3_000, attempts=1, next=NOW + timedelta(hours=1))
    many(3_000)  # of the same people
    statistics()
    last = reply("from Ben", BEN)
    with counting_reads() as reads:
        assert [row["id"] for row in hearing.ready(NOW)] == [last.pk]
    assert reads.most[0] < 20_000, reads.most


def test_what_came_before_the_one_that_waits_does_not_wait(db):
    before = reply("looks again", attempts=0, next_attempt_at=NOW - timedelta(seconds=1))
    reply("waits", attempts=1, next_attempt_at=NOW + timedelta(hours=1))
    reply("behind it")
    nobody = reply("from nobody", address="", attempts=1, next_attempt_at=NOW + timedelta(hours=1))
    other = reply("from nobody else", address="")
    assert nobody.pk < other.pk
    assert [row["id"] for row in hearing.ready(NOW)] == [before.pk, other.pk]


# --- storing ----------------------------------------------------------------------------------------------


def test_the_same_event_is_stored_once(db):
    account = AccountFactory.create()
    event = ProviderEvent("e-1", EventKind.REPLY, text="yes")
    assert [events.store(account.pk, [event, event], NOW) for _ in range(2)] == [1, 0]
    assert InboundEvent.objects.get().text == "yes"


def test_an_event_without_words_stores_none(db):
    events.store(AccountFactory.create().pk, [ProviderEvent("e-1", EventKind.READ)], NOW)
    assert InboundEvent.objects.values_list("words", flat=True).get() == ""
    assert InboundEvent.objects.get().text == ""


def test_words_are_not_readable_in_the_database(db):
    events.store(AccountFactory.create().pk, [ProviderEvent("e-1", EventKind.REPLY, text="my secret")], NOW)
    assert "secret" not in InboundEvent.objects.values_list("words", flat=True).get()


@pytest.mark.parametrize(
    "text", ["a\x00b", "a\ud800b", "a\U0010ffffb", "x" * 100_000], ids=["nul", "half", "last", "long"]
)
def test_strange_text_is_stored_and_refuses_nobody(db, text):
    account = AccountFactory.create()
    strange = ProviderEvent(
        text, EventKind.REPLY, address=text, provider_id=text, text=text, detail={text: text, "n": float("nan")}
    )
    assert events.store(account.pk, [strange, ProviderEvent("plain", EventKind.READ)], NOW) == 2
    assert InboundEvent.objects.get(kind="reply").text.startswith(text[0])


def test_nothing_happens_in_the_future(db):
    future = ProviderEvent("e-1", EventKind.READ, at=NOW + timedelta(days=1))
    events.store(AccountFactory.create().pk, [future], NOW)
    assert InboundEvent.objects.get().happened_at == NOW


# --- the task ---------------------------------------------------------------------------------------------


@pytest.fixture
def elsewhere(transactional_db: None) -> Iterator[None]:
    """Another session holds the lock."""
    other = connection.copy()
    with other.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(%s, 0)", [hearing.LOCK])
    yield
    other.close()


def test_only_one_hears(elsewhere):
    assert hearing.somebody_listens()
    assert tasks.hear() == "somebody else is hearing"
    tasks.ensure_hearing()
    assert not OrmQ.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_slice_ends_with_its_successor_and_without_the_lock(settings):
    settings.DRIVER_SLICE_SECONDS = 0.01
    assert tasks.hear() == "handed over"
    assert OrmQ.objects.filter(key="main").count() == 1
    assert not hearing.somebody_listens()


@pytest.mark.django_db(transaction=True)
def test_a_stop_ends_it_at_once_and_without_a_successor(monkeypatch):
    monkeypatch.setattr(stop, "asked", lambda: True)
    assert tasks.hear() == "handed over"
    assert not OrmQ.objects.exists()


def test_somebody_is_asked_to_hear(db):
    tasks.ensure_hearing()
    tasks.ensure_hearing()
    assert OrmQ.objects.filter(key="main").count() == 1, "one on its way is enough"
