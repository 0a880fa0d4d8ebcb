"""People as providers call them: remembered per account, matched first, and asked for where an id hides the number."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from accounts.channels.base import Kind
from accounts.models import Account
from accounts.signin import NoAnswer
from fanout.inbound import known_ids, worker
from fanout.models import InboundEvent, KnownId
from fanout.runs.erasing import erase
from reminders.models import OptOutPhrase, Recipient, Suppression
from reminders.opt_outs import essence
from tests.engine.stage import MONDAY
from tests.factories import AccountFactory
from tests.inbound.people import person, stored

#: An id that no rule leads to the number: only the provider can tell.
LISTED, ID = "+4915112345678", "+4915199999999"
HIDDEN = "382111222333444@lid"
LATER = MONDAY + timedelta(hours=1)


class Gateway:
    """Stands for the gateway's answers about hidden ids, and counts the questions."""

    def __init__(self) -> None:
        self.numbers: dict[str, str] = {}
        self.down = False
        self.asked: list[str] = []

    async def number_behind(self, account: Account, hidden: str) -> str:
        self.asked.append(hidden)
        if self.down:
            raise NoAnswer("no answer within 5 s", Kind.NETWORK)
        return self.numbers.get(hidden, "")


@pytest.fixture
def account(transactional_db: None) -> Account:
    return AccountFactory.create()


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gateway]:
    standing_in = Gateway()

    async def ask(account: Account, hidden: str) -> str:
        # The network is never asked inside a transaction.
        assert not connection.in_atomic_block
        return await standing_in.number_behind(account, hidden)

    monkeypatch.setattr(known_ids, "number_behind", ask)
    known_ids._silent_until.clear()
    yield standing_in
    known_ids._silent_until.clear()


def process_inbound(**after: float) -> None:
    while worker.step(LATER + timedelta(**after)):
        pass


def status_of(recipient: Recipient) -> str:
    recipient.refresh_from_db()
    return str(recipient.status)


def test_the_id_that_the_provider_told_goes_first(account: Account, gateway: Gateway) -> None:
    whom, other = person(account.owner, address=LISTED), person(account.owner, 1, address=ID)
    known_ids.remember(account.pk, ID, LISTED)

    stored(account, 0, LATER, "STOP", address=ID)
    process_inbound()

    assert (status_of(whom), status_of(other)) == ("opted_out", "active")
    assert [one.address for one in Suppression.objects.all()] == [LISTED]
    assert InboundEvent.objects.get().address == LISTED


@pytest.mark.parametrize("fields", [{"address": ID}, {"address": "", "detail": {"jid": "382111222333444:3@lid"}}])
def test_a_stop_under_an_id_that_is_known_counts_when_it_comes(account: Account, fields: dict[str, Any]) -> None:
    for known_as in (ID, HIDDEN):
        known_ids.remember(account.pk, known_as, LISTED)

    event = stored(account, 0, LATER, "STOP", **fields)

    assert [one.address for one in Suppression.objects.all()] == [LISTED]
    assert event.opts_out, "it is worked on first"


def test_it_holds_for_that_account_only(account: Account, gateway: Gateway) -> None:
    whom = person(account.owner, address=LISTED)
    known_ids.remember(AccountFactory.create().pk, ID, LISTED)

    stored(account, 0, LATER, "STOP", address=ID)
    process_inbound()

    assert status_of(whom) == "active"


def test_a_number_beside_a_hidden_id_is_remembered(account: Account, gateway: Gateway) -> None:
    whom = person(account.owner, address=LISTED)
    stored(account, 0, LATER, "Hello", address=LISTED, detail={"jid": "382111222333444:7@lid"})
    process_inbound()
    assert KnownId.objects.get().known_as == HIDDEN

    stored(account, 0, LATER, "STOP", address="", detail={"jid": HIDDEN})
    process_inbound()

    assert status_of(whom) == "opted_out"
    assert gateway.asked == []


@pytest.mark.parametrize("wish", ["STOP", "No more choir"])
def test_the_gateway_is_asked_who_hides_behind_an_id_once(account: Account, gateway: Gateway, wish: str) -> None:
    OptOutPhrase.objects.create(phrase="No more choir", essence=essence("No more choir"))
    whom = person(account.owner, address=LISTED)
    gateway.numbers[HIDDEN] = LISTED
    for text in ("Hello", wish):
        stored(account, 0, LATER, text, address="", detail={"jid": HIDDEN})
    process_inbound()

    assert status_of(whom) == "opted_out"
    assert gateway.asked == [HIDDEN]
    assert Suppression.objects.get().address == LISTED


def test_a_person_whom_the_gateway_does_not_know_stays_unknown(account: Account, gateway: Gateway) -> None:
    stored(account, 0, LATER, "STOP", address="", detail={"jid": HIDDEN})
    process_inbound()

    event = InboundEvent.objects.get()
    assert (event.state, event.effect) == ("done", "nothing: it names no person")


def test_a_gateway_that_does_not_answer_is_asked_again_and_holds_up_only_once(
    account: Account, gateway: Gateway
) -> None:
    whom = person(account.owner, address=LISTED)
    gateway.numbers[HIDDEN], gateway.down = LISTED, True
    for _ in range(3):
        stored(account, 0, LATER, "STOP", address="", detail={"jid": HIDDEN})
    process_inbound()
    assert len(gateway.asked) == 1
    assert set(InboundEvent.objects.values_list("state", flat=True)) == {"new"}
    assert status_of(whom) == "active"

    gateway.down = False
    known_ids._silent_until.clear()
    process_inbound(seconds=61)

    assert status_of(whom) == "opted_out"
    assert set(InboundEvent.objects.values_list("state", flat=True)) == {"done"}


def test_many_silent_gateways_do_not_hold_up_the_worker(db: None, gateway: Gateway) -> None:
    gateway.down = True
    for number in range(5):
        account = AccountFactory.create(channel="waha", config={"url": "https://waha.example"})
        stored(account, number, LATER, "STOP", address="", detail={"jid": HIDDEN})
    process_inbound()
    assert len(gateway.asked) == 1, "each question may take seconds"


def test_a_gateway_is_asked_for_days_and_then_no_more(account: Account, gateway: Gateway) -> None:
    gateway.down = True
    event = stored(account, 0, LATER, "STOP", address="", detail={"jid": HIDDEN})
    for days in (0, 1, 2):
        known_ids._silent_until.clear()
        process_inbound(days=days)
        event.refresh_from_db()
        assert event.state == "new"
    known_ids._silent_until.clear()
    process_inbound(days=3, minutes=1)
    event.refresh_from_db()
    assert (event.state, len(gateway.asked)) == ("failed", 4)


@pytest.mark.parametrize(
    "fields",
    [
        {"group": "120363025246125486@g.us", "detail": {"jid": HIDDEN}},
        {"detail": {"jid": "4917612345678@c.us"}},
        {"detail": {}},
    ],
    ids=["in-a-group", "not-hidden", "no-id"],
)
def test_nothing_is_asked_where_nothing_is_hidden(account: Account, gateway: Gateway, fields: dict[str, Any]) -> None:
    stored(account, 0, LATER, "STOP", address="", **fields)
    process_inbound()

    assert gateway.asked == []


def test_a_copy_with_the_number_is_enough(account: Account, gateway: Gateway) -> None:
    named = stored(account, 0, LATER, "Hello", address=LISTED, detail={"jid": HIDDEN})
    KnownId.objects.all().delete()
    copy = stored(account, 0, LATER, "Hello", address="", detail={"jid": HIDDEN})
    InboundEvent.objects.filter(pk=copy.pk).update(key=f"{named.key}:nobody")
    process_inbound()

    assert gateway.asked == []


def test_an_erased_person_is_forgotten(account: Account, gateway: Gateway) -> None:
    person(account.owner, address=LISTED)
    known_ids.remember(account.pk, HIDDEN, LISTED)

    erase(LISTED, None, LATER)

    assert not KnownId.objects.exists()
