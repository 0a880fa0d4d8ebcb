from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from accounts.channels.base import AccountConfig
from accounts.channels.events import EventKind, HookRequest, ProviderEvent
from accounts.channels.waha.webhook import WahaWebhook
from accounts.models import Account
from fanout.inbound import events, hearing
from fanout.inbound.opt_out import is_opt_out
from fanout.models import InboundEvent
from reminders.models import Recipient, Suppression
from tests.engine.stage import MONDAY, Stage, fresh
from tests.factories import AccountFactory, UserFactory
from tests.inbound.people import person, phone, remind, say, stored, work_on


@pytest.mark.parametrize(
    "text",
    ["STOP", "stop", " Stop! ", "«Arrêt»", "ARRET.", "Berhenti\n", "opt-out", "Unsubscribe 🛑", "Ｓｔｏｐ", "baja"],
)
def test_only_the_word(text: str) -> None:
    assert is_opt_out(text)


@pytest.mark.parametrize("text", ["", "!", "stop by at eight", "don't stop", "non-stop", "stopping", "🛑"])
def test_more_than_the_word(text: str) -> None:
    assert not is_opt_out(text)


def test_the_words_are_a_setting(settings: Any) -> None:
    settings.OPT_OUT_WORDS = ["Nächstes Mal nicht"]
    assert is_opt_out("nachstes mal NICHT.")
    assert not is_opt_out("STOP")


@pytest.mark.django_db
def test_it_reaches_the_person_in_every_list() -> None:
    account = AccountFactory.create()
    mine, theirs = person(account.owner), person(UserFactory.create(), status="converted")
    other = person(account.owner, 1)
    assert say(account, 0, MONDAY, "Stop.") == "noted; opted out and suppressed"
    for one in (mine, theirs, other):
        one.refresh_from_db()
    assert [mine.status, theirs.status, other.status] == ["opted_out", "opted_out", "active"]
    assert mine.replied_at == MONDAY
    suppression = Suppression.objects.get()
    assert (suppression.address, suppression.reason, suppression.source) == (phone(0), "opted_out", "recipient")


@pytest.mark.django_db
def test_somebody_in_nobodys_list_is_suppressed_all_the_same() -> None:
    account = AccountFactory.create()
    assert say(account, 7, MONDAY, "stop") == "opted out and suppressed"
    assert Suppression.objects.get().address == phone(7)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("kind", "reason", "source"), [("unsubscribe", "unsubscribed", "recipient"), ("complaint", "complaint", "provider")]
)
def test_a_providers_word(kind: str, reason: str, source: str) -> None:
    account = AccountFactory.create()
    person(account.owner)
    event = stored(account, 0, MONDAY, "", kind=EventKind(kind))
    work_on(event)
    work_on(event)
    assert Recipient.objects.get().status == "opted_out"
    suppression = Suppression.objects.get()
    assert (suppression.reason, suppression.source, suppression.expires_at) == (reason, source, None)


def wish(account: Account, minute: int, resumed: bool = False) -> str:
    """Work on the person's wish to get nothing more, or to get messages again."""
    at = MONDAY + timedelta(minutes=minute)
    return say(account, 0, at, "", kind=EventKind.UNSUBSCRIBE, detail={"resumed": True} if resumed else {})


def status_of(whom: Recipient) -> str:
    return Recipient.objects.get(pk=whom.pk).status


@pytest.mark.django_db
def test_a_provider_reports_that_an_opt_out_is_taken_back() -> None:
    account = AccountFactory.create()
    mine, theirs = person(account.owner), person(UserFactory.create())
    wish(account, 0)

    assert wish(account, 1, resumed=True) == "resumed: the opt-out is taken back"
    assert wish(account, 1, resumed=True) == "nothing: there is no opt-out that it takes back"
    assert {status_of(mine), status_of(theirs)} == {"active"}
    assert not Suppression.objects.exists()


@pytest.mark.django_db
def test_an_older_opt_out_that_comes_late_is_taken_back_already() -> None:
    account = AccountFactory.create()
    whom = person(account.owner)

    assert wish(account, 1, resumed=True) == "nothing: there is no opt-out that it takes back"
    assert wish(account, 0) == "nothing: the person took it back later"
    assert status_of(whom) == "active"
    assert wish(account, 2) == "unsubscribed: opted out and suppressed"


@pytest.mark.django_db
@pytest.mark.parametrize("word_first", [True, False])
def test_who_also_wrote_stop_stays_out(word_first: bool) -> None:
    account = AccountFactory.create()
    whom = person(account.owner)
    for by_word in (word_first, not word_first):
        say(account, 0, MONDAY, "STOP") if by_word else wish(account, 0)

    assert wish(account, 1, resumed=True) == "nothing: there is no opt-out that it takes back"
    assert status_of(whom) == "opted_out"
    assert Suppression.objects.get().expires_at is None


@pytest.mark.django_db
def test_who_stopped_another_account_stays_out_until_both_are_resumed() -> None:
    one, other = AccountFactory.create(), AccountFactory.create()
    whom = person(one.owner)
    wish(one, 0)
    wish(other, 0)

    assert wish(one, 1, resumed=True).startswith("nothing: the person has opted out of another account's")
    assert status_of(whom) == "opted_out"
    assert wish(other, 2, resumed=True) == "resumed: the opt-out is taken back"
    assert status_of(whom) == "active"


@pytest.mark.django_db
def test_a_suppression_that_would_expire_becomes_the_persons_word() -> None:
    account = AccountFactory.create()
    Suppression.objects.create(address=phone(0), reason="soft_bounces", expires_at=MONDAY + timedelta(days=1))
    say(account, 0, MONDAY, "STOP")
    suppression = Suppression.objects.get()
    assert (suppression.reason, suppression.expires_at) == ("opted_out", None)


@pytest.mark.django_db
def test_a_group_opts_nobody_out() -> None:
    account = AccountFactory.create()
    person(account.owner)
    assert say(account, 0, MONDAY, "STOP", group="120363000000000001@g.us") == "nothing: it was said in a group"
    assert not Suppression.objects.exists()
    assert InboundEvent.objects.exists()  # kept


def test_in_the_middle_of_a_run(stage: Stage) -> None:
    account = stage.account(max_send_per_minute=6, send_burst=1)
    run = stage.fire(remind(stage, account, people=5, reply=()))
    stage.play(happenings=[(MONDAY + timedelta(seconds=15), lambda now: say(account, 4, now, "STOP"))])
    assert [delivery.to for delivery in stage.book.deliveries()] == [phone(n) for n in range(4)]
    assert (fresh(run).sent, run.skipped) == (4, 1)
    assert "opted" in run.targets.get(status="skipped").error


def waha_copy(chat: str) -> ProviderEvent:
    """WAHA's report of one message, with the sender's chat spelled like this."""
    payload = {"id": f"false_{chat}_3EB0AA", "from": chat, "fromMe": False, "body": "STOP"}
    request = HookRequest("POST", {}, {}, json.dumps({"event": "message", "payload": payload}).encode())
    (event,) = WahaWebhook().parse(request, AccountConfig(1, "waha", "Line", "", {}))
    return event


@pytest.mark.django_db
@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("hidden_first", [True, False])
def test_a_copy_without_the_number_does_not_keep_out_the_one_with_it(hidden_first: bool, together: bool) -> None:
    account = AccountFactory.create(channel="waha", config={"url": "https://waha.example"})
    number = f"{phone(0).removeprefix('+')}@c.us"
    copies = [waha_copy(chat) for chat in ("999@lid", number)][:: 1 if hidden_first else -1]

    for batch in [copies * 2] if together else [[copy] for copy in copies * 2]:
        events.store(account.pk, batch, MONDAY)
        hearing.step(MONDAY)

    assert Suppression.objects.get().address == phone(0)
    effects = InboundEvent.objects.order_by("-address").values_list("address", "effect")
    assert list(effects) == [(phone(0), "opted out and suppressed"), ("", "nothing: it names no person")]
