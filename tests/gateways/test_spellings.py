"""People whose WhatsApp ids differ from the numbers in the lists: their replies and their STOP."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from accounts.channels.provider_events import EventKind
from accounts.models import Account
from fanout.inbound import worker
from fanout.models import InboundEvent, KnownChat, RunTarget
from reminders.erasure import remember
from reminders.models import Recipient, Suppression
from tests.engine.stage import MONDAY
from tests.factories import AccountFactory, RunFactory, RunTargetFactory, UserFactory
from tests.inbound.people import person, say, stored, work_on

pytestmark = pytest.mark.django_db

#: the number as lists have it, and the address that follows from the WhatsApp id
PAIRS = {
    "Brazil": ("+5531987654321", "+553187654321"),
    "Argentina": ("+541123456789", "+5491123456789"),
}
LISTED, ID = PAIRS["Brazil"]
LATER = MONDAY + timedelta(hours=1)


@pytest.fixture
def account() -> Account:
    return AccountFactory.create()


@pytest.fixture(params=PAIRS.values(), ids=list(PAIRS))
def pair(request: pytest.FixtureRequest) -> tuple[str, str]:
    listed, id = request.param
    return listed, id


def replied(recipient: Recipient) -> bool:
    recipient.refresh_from_db()
    return recipient.replied_at is not None


def sent_to(account: Account, recipient: Recipient, **fields: Any) -> RunTarget:
    """Return the target of a message that the account sent to the person."""
    run = RunFactory.create(account=account, status="running", scheduled_for=MONDAY)
    values = {"status": "sent", "provider_id": "3EB0AA", "parts_sent": 1, "claimed_at": MONDAY, "attempts": 1}
    return RunTargetFactory.create(run=run, recipient=recipient, address=recipient.address, **values | fields)


def test_a_reply_is_that_of_the_person_in_the_list(account: Account, pair: tuple[str, str]) -> None:
    listed, id = pair
    recipient = person(account.owner, address=listed)

    words = say(account, 0, LATER, address=id)

    assert words.startswith("noted")
    assert replied(recipient)
    assert InboundEvent.objects.get().address == listed
    assert KnownChat.objects.filter(account=account, address=listed).exists()


def test_stop_suppresses_every_spelling(account: Account, pair: tuple[str, str]) -> None:
    listed, id = pair
    theirs, others = person(account.owner, address=listed), person(UserFactory.create(), address=id)

    assert "opted out" in say(account, 0, LATER, "STOP", address=id)

    assert set(Suppression.objects.values_list("address", flat=True)) == {listed, id}
    for recipient in (theirs, others):
        recipient.refresh_from_db()
        assert recipient.status == "opted_out"


def test_stop_of_a_person_in_no_list_holds_for_later_lists(account: Account, pair: tuple[str, str]) -> None:
    say(account, 0, LATER, "STOP", address=pair[1])

    assert set(Suppression.objects.values_list("address", flat=True)) == set(pair)


def test_the_providers_own_opt_out(account: Account, pair: tuple[str, str]) -> None:
    listed, id = pair
    recipient = person(account.owner, address=listed)

    work_on(stored(account, 0, LATER, address=id, kind=EventKind.UNSUBSCRIBE))

    recipient.refresh_from_db()
    assert recipient.status == "opted_out"


def test_a_person_who_was_erased_stays_forgotten(account: Account, pair: tuple[str, str]) -> None:
    listed, id = pair
    remember(listed, MONDAY)

    say(account, 0, LATER, "STOP", address=id)

    assert not Suppression.objects.exists()
    assert InboundEvent.objects.get().address == ""


def test_the_same_spelling_wins(account: Account) -> None:
    other, same = person(account.owner, address=LISTED), person(account.owner, address=ID)

    say(account, 0, LATER, address=ID)

    assert (replied(other), replied(same)) == (False, True)


def test_the_one_that_the_account_wrote_to_wins(account: Account) -> None:
    same, written_to = person(UserFactory.create(), address=ID), person(account.owner, address=LISTED)
    target = sent_to(account, written_to)

    say(account, 0, LATER, address=ID)

    assert (replied(written_to), replied(same)) == (True, False)
    target.refresh_from_db()
    assert target.replied_at == LATER


def test_a_receipt_settles_a_send_without_an_answer(account: Account, pair: tuple[str, str]) -> None:
    listed, id = pair
    doubt = {"status": "unconfirmed", "provider_id": "", "parts_sent": 0, "in_doubt": True}
    target = sent_to(account, person(account.owner, address=listed), **doubt)
    by_device = {"provider_id": "3EB0NEW", "detail": {"by_device": True}}
    stored(account, 0, LATER, "", kind=EventKind.DELIVERED, address=id, **by_device)

    worker.step(LATER)

    target.refresh_from_db()
    assert (target.status, target.delivered_at) == ("sent", LATER)


def test_the_same_reply_twice_changes_nothing(account: Account) -> None:
    recipient = person(account.owner, address=LISTED)
    event = stored(account, 0, LATER, address=ID)

    first = work_on(event)
    event.refresh_from_db()

    assert work_on(event) == first
    assert replied(recipient)
    assert event.address == LISTED
