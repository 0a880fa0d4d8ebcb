from __future__ import annotations

import json
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction

from accounts.channels.base import AccountConfig
from accounts.channels.provider_events import EventKind, HookRequest, ProviderEvent
from accounts.channels.waha.webhook import WahaWebhook
from accounts.models import Account
from fanout.inbound import event_store, replies, worker
from fanout.inbound.replies import decide
from fanout.lanes.results import Result, of_runs
from fanout.models import InboundEvent, Run, RunTarget
from fanout.rules.message_ids import message_id
from fanout.runs import controls
from reminders.models import Recipient, Suppression
from reminders.opt_outs import bare
from tests.engine.stage import MONDAY, Stage, books_balance, fresh
from tests.factories import (
    AccountFactory,
    RecipientFactory,
    RunFactory,
    RunTargetFactory,
    UserFactory,
)
from tests.inbound.people import person, phone, remind, say, stored, work_on

pytestmark = pytest.mark.django_db
DAY, HOUR, MINUTE, SECOND = timedelta(days=1), timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)


@pytest.fixture
def account() -> Account:
    return AccountFactory.create()


def limited(owner: Any, **fields: Any) -> Recipient:
    """A person whom the third follow-up made not interested."""
    state: dict[str, Any] = {
        "follow_up_attempts": 3,
        "cooldown_until": MONDAY + 48 * HOUR,
        "limited": True,
        "status": "not_interested",
    }
    return person(owner, **state | fields)


def state(recipient: Recipient) -> tuple[int, Any, bool, str]:
    recipient.refresh_from_db()
    return recipient.follow_up_attempts, recipient.cooldown_until, recipient.limited, recipient.status


# --- the person ---------------------------------------------------------------------------------------------


def test_a_reply_ends_the_waiting_in_every_list(account: Account) -> None:
    mine, theirs = limited(account.owner), limited(UserFactory.create())
    assert say(account, 0, MONDAY) == "noted"
    assert state(mine) == state(theirs) == (0, None, False, "active")
    assert mine.replied_at == mine.attempts_reset_at == MONDAY


@pytest.mark.parametrize("status", ["not_interested", "converted", "closed", "blacklisted"])
def test_a_status_that_an_operator_chose_stays(account: Account, status: str) -> None:
    recipient = person(account.owner, status=status)
    say(account, 0, MONDAY)
    assert state(recipient)[3] == status


def test_an_older_reply_overwrites_nothing(account: Account) -> None:
    recipient = person(account.owner)
    say(account, 0, MONDAY)
    Recipient.objects.update(follow_up_attempts=2)
    say(account, 0, MONDAY - HOUR, came_at=MONDAY + MINUTE)
    recipient.refresh_from_db()
    assert (recipient.replied_at, recipient.follow_up_attempts) == (MONDAY, 2)


def test_the_same_reply_twice_changes_nothing(account: Account) -> None:
    recipient = person(account.owner)
    event = stored(account, 0, MONDAY)
    work_on(event)
    Recipient.objects.update(follow_up_attempts=1, cooldown_until=MONDAY + HOUR)
    work_on(event)
    assert state(recipient) == (1, MONDAY + HOUR, False, "active")


@pytest.mark.parametrize(
    ("at", "left"), [(MONDAY + 3 * HOUR, 0), (MONDAY + 1.5 * HOUR, 1), (MONDAY + 0.5 * HOUR, 2), (MONDAY - HOUR, 3)]
)
def test_a_reply_answers_only_the_attempts_before_it(stage: Stage, at: datetime, left: int) -> None:
    account = stage.account()
    for hours in range(3):
        run = stage.fire(remind(stage, account, reply=(), follow_up=True))
        run.targets.update(status="sent", settled_at=MONDAY + hours * HOUR, claimed_at=MONDAY + hours * HOUR)
        Run.objects.filter(pk=run.pk).update(status="success", follow_up=True)
    Recipient.objects.update(
        follow_up_attempts=3, limited=True, status="not_interested", cooldown_until=MONDAY + 48 * HOUR
    )
    say(account, 0, at, came_at=MONDAY + 4 * HOUR)
    recipient = Recipient.objects.get()
    if left == 3:
        assert state(recipient) == (3, MONDAY + 48 * HOUR, True, "not_interested")
    else:
        assert state(recipient) == (left, None, False, "active")


def test_messages_in_groups_are_ignored(account: Account) -> None:
    group = Recipient.objects.create(owner=account.owner, kind="group", address="120363000000000001@g.us")
    member = limited(account.owner)
    assert say(account, 0, MONDAY, group=group.address) == "nothing: it was said in a group"
    assert say(account, 0, MONDAY, address=group.address) == "nothing: the address is in no list"
    group.refresh_from_db()
    assert group.replied_at is None
    assert state(member)[0] == 3
    assert InboundEvent.objects.count() == 2


# --- queued follow-ups --------------------------------------------------------------------------------------


def queued(stage: Stage, account: Account, people: int = 2, **fields: Any) -> Run:
    run = stage.fire(remind(stage, account, people, reply=(), **fields))
    Run.objects.filter(pk=run.pk).update(follow_up=True, created_at=MONDAY)
    return fresh(run)


def test_queued_follow_ups_are_taken_out(stage: Stage) -> None:
    account = stage.account()
    follow_up, plain = queued(stage, account), stage.fire(remind(stage, account, 2, reply=()), MONDAY + MINUTE)
    assert say(account, 0, MONDAY + MINUTE) == "noted; 1 queued follow-up taken out"
    assert follow_up.targets.get(status="skipped").error == "the person has replied"
    assert (fresh(follow_up).pending, fresh(plain).pending) == (1, 2)
    assert books_balance(follow_up)


def test_a_run_that_had_nothing_else_left_is_finished(stage: Stage) -> None:
    account = stage.account()
    run = queued(stage, account, people=1)
    controls.pause(run, stage.user, MONDAY)
    say(account, 0, MONDAY + MINUTE)
    assert (fresh(run).status, run.error_summary) == ("skipped", "No one was written to: 1 replied.")


def test_a_follow_up_made_after_the_reply_goes_out(stage: Stage) -> None:
    account = stage.account()
    event = stored(account, 0, MONDAY - MINUTE)
    run = queued(stage, account)
    work_on(event, MONDAY + MINUTE)
    assert fresh(run).pending == 2


def test_half_a_message_is_not_taken_out(stage: Stage) -> None:
    account = stage.account()
    run = queued(stage, account)
    run.targets.filter(address=phone(0)).update(parts_sent=1)
    say(account, 0, MONDAY + MINUTE)
    assert fresh(run).pending == 2


# --- the message that it answers ----------------------------------------------------------------------------


def replied(account: Account) -> list[datetime | None]:
    targets = RunTarget.objects.filter(account=account).order_by("run_id")
    return list(targets.values_list("replied_at", flat=True))


def test_it_answers_the_latest_message_of_that_account(stage: Stage) -> None:
    account, other = stage.account(), stage.account()
    for sender in (account, account, other):
        stage.fire(remind(stage, sender, reply=()), stage.now)
        stage.play()
        stage.now += MINUTE
    say(account, 0, stage.now)
    assert replied(account) == [None, stage.now]
    assert replied(other) == [None]


def test_it_answers_the_message_that_it_quotes(stage: Stage) -> None:
    account = stage.account()
    for _ in range(2):
        stage.fire(remind(stage, account, reply=()), stage.now)
        stage.play()
        stage.now += MINUTE
    first = RunTarget.objects.order_by("run_id").first()
    assert first is not None
    assert first.provider_id
    event = stored(account, 0, stage.now, provider_id=first.provider_id)
    work_on(event)
    assert replied(account) == [stage.now, None]
    event.refresh_from_db()
    assert event.run_target_id == first.pk


@pytest.mark.parametrize(("subject", "is_reply"), [("Vacation", True), ("Automatic reply: Vacation", False)])
def test_a_message_about_an_absence_gets_replies(stage: Stage, subject: str, is_reply: bool) -> None:
    account = stage.account()
    stage.fire(remind(stage, account, reply=()))
    stage.play()
    Run.objects.update(parts=[{"kind": "text", "subject": "Vacation", "text": "Who is away in June?"}])
    event = stored(account, 0, stage.now + MINUTE, "me", kind=EventKind.AUTOMATIC, detail={"subject": subject})
    work_on(event)
    event.refresh_from_db()
    assert event.kind == ("reply" if is_reply else "automatic")
    assert replied(account) == [stage.now + MINUTE if is_reply else None]


def test_the_first_reply_counts_however_late_it_comes(stage: Stage) -> None:
    account = stage.account()
    stage.fire(remind(stage, account, reply=()))
    stage.play()
    say(account, 0, stage.now + HOUR)
    say(account, 0, stage.now + MINUTE, came_at=stage.now + 2 * HOUR)
    say(account, 0, stage.now + 3 * HOUR)
    assert replied(account) == [stage.now + MINUTE]


def test_before_anything_was_sent_it_answers_nothing(stage: Stage) -> None:
    account = stage.account()
    stage.fire(remind(stage, account))
    assert say(account, 0, MONDAY) == "noted"
    assert replied(account) == [None]


# --- races, with real transactions ----------------------------------------------------------------------------


def test_a_reply_while_the_follow_up_is_claimed(stage: Stage) -> None:
    """Either it is taken out or it goes out; never both, and the books balance."""
    account = stage.account(max_send_per_minute=600, send_burst=1)
    run = queued(stage, account, people=20)
    moments = [(MONDAY + timedelta(milliseconds=97 * n), n) for n in range(20)]
    stage.play(happenings=[(at, lambda now, n=n: say(account, n, now)) for at, n in moments])  # type: ignore[misc]
    sent = {delivery.to for delivery in stage.book.deliveries()}
    assert sent == set(run.targets.filter(status="sent").values_list("address", flat=True))
    assert run.targets.filter(status="skipped").count() == 20 - len(sent)
    assert 0 < len(sent) < 20
    assert books_balance(run)


def test_a_reply_waits_for_the_lock_of_the_run(stage: Stage) -> None:
    """An operator's pause and a reply at the same moment: one after the other, without a deadlock."""
    account = stage.account()
    run = queued(stage, account)
    event = stored(account, 0, MONDAY + MINUTE)

    def work() -> None:
        work_on(event)
        connection.close()

    replies = threading.Thread(target=work)
    with transaction.atomic():
        Run.objects.select_for_update().get(pk=run.pk)
        replies.start()
        replies.join(0.3)
        assert replies.is_alive()
        controls.pause(run, stage.user, MONDAY + MINUTE)
    replies.join(10)
    assert (fresh(run).status, run.pending, run.skipped) == ("paused", 1, 1)


NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
PHONE = "+4915112345000"
case = pytest.param


@pytest.fixture
def run() -> Run:
    made: Run = RunFactory.create(status="running", scheduled_for=NOW, parts=[{"kind": "text", "text": "Hi"}] * 3)
    return made


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
        case({"recipient": "another"}, False, id="to-another"),
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
        case({"recipient": "another"}, 0, id="to-another"),
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


def test_groups_are_not_people(ann: Recipient) -> None:
    same = RecipientFactory.create(kind="person", address=PHONE)
    Recipient.objects.filter(pk=RecipientFactory.create().pk).update(address=PHONE)
    RecipientFactory.create(kind="person", address="+4915112345001")
    assert sorted(replies.recipients_at(PHONE)) == replies.lock_recipients(PHONE) == [ann.pk, same.pk]


@pytest.mark.parametrize(
    ("text", "word"),
    [("  STOP! ", "stop"), ("Dé-sabonner", "de sabonner"), ("stop  by", "stop by"), ("👋", ""), ("", "")],
)
def test_the_bare_words(text: str, word: str) -> None:
    assert bare(text) == word


@pytest.mark.parametrize(
    "text",
    ["STOP", "stop", " Stop! ", "«Arrêt»", "ARRET.", "Berhenti\n", "opt-out", "Unsubscribe 🛑", "Ｓｔｏｐ", "baja"],
)
def test_only_the_word(text: str) -> None:
    assert decide(text).opts_out


@pytest.mark.parametrize("text", ["", "!", "stop by at eight", "don't stop", "non-stop", "stopping", "🛑"])
def test_more_than_the_word(text: str) -> None:
    assert not decide(text).opts_out


def test_the_words_are_a_setting(settings: Any) -> None:
    settings.OPT_OUT_WORDS = ["Nächstes Mal nicht"]
    assert decide("nachstes mal NICHT.").opts_out
    assert not decide("STOP").opts_out


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
def test_an_address_in_no_list_is_suppressed_too() -> None:
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


@pytest.mark.parametrize(
    ("kind", "text", "replied"),
    [("reply", "STOP", True), ("unsubscribe", "", False), ("complaint", "", False)],
    ids=["word", "button", "complaint"],
)
def test_an_opt_out_is_noted_with_the_message_after_which_it_came(kind: str, text: str, replied: bool) -> None:
    account = AccountFactory.create()
    whom = person(account.owner)
    old, new = (
        RunTargetFactory.create(
            run__reminder__account=account, recipient=whom, status="sent", parts_sent=1, claimed_at=MONDAY - days * DAY
        )
        for days in (2, 1)
    )
    for minutes in (1, 5):  # the second one changes nothing
        say(account, 0, MONDAY + minutes * MINUTE, text, kind=EventKind(kind))
    for target in (old, new):
        target.refresh_from_db()
    assert (old.opted_out_at, old.replied_at) == (None, None)
    assert new.opted_out_at == MONDAY + MINUTE
    assert (new.replied_at is not None) is replied
    assert set(InboundEvent.objects.values_list("run_target_id", flat=True)) == {new.pk}


def wish(account: Account, minute: int, resumed: bool = False) -> str:
    """Work on the person's wish to get nothing more, or to get messages again."""
    at = MONDAY + timedelta(minutes=minute)
    return say(account, 0, at, "", kind=EventKind.UNSUBSCRIBE, detail={"resumed": True} if resumed else {})


def status_of(whom: Recipient) -> str:
    return Recipient.objects.get(pk=whom.pk).status


def test_a_provider_reports_that_an_opt_out_is_taken_back() -> None:
    account = AccountFactory.create()
    mine, theirs = person(account.owner), person(UserFactory.create())
    wish(account, 0)

    assert wish(account, 1, resumed=True) == "resumed: the opt-out is taken back"
    assert wish(account, 1, resumed=True) == "nothing: there is no opt-out that it takes back"
    assert {status_of(mine), status_of(theirs)} == {"active"}
    assert not Suppression.objects.exists()


def test_an_older_opt_out_that_comes_late_is_taken_back_already() -> None:
    account = AccountFactory.create()
    whom = person(account.owner)

    assert wish(account, 1, resumed=True) == "nothing: there is no opt-out that it takes back"
    assert wish(account, 0) == "nothing: the person took it back later"
    assert status_of(whom) == "active"
    assert wish(account, 2) == "unsubscribed: opted out and suppressed"


@pytest.mark.parametrize("resumed_first", [False, True])
def test_an_opt_out_that_is_taken_back_is_not_counted(resumed_first: bool) -> None:
    """In whichever order the reports come."""
    account = AccountFactory.create()
    sent = {"status": "sent", "parts_sent": 1, "claimed_at": MONDAY - DAY, "settled_at": MONDAY - DAY}
    target = RunTargetFactory.create(run__reminder__account=account, recipient=person(account.owner), **sent)
    for resumed in (resumed_first, not resumed_first):
        wish(account, 1 if resumed else 0, resumed=resumed)
    target.refresh_from_db()
    assert target.opted_out_at is None
    assert sum(of_runs([target.run_id])[target.run_id].values(), Result()).opted_out == 0
    wish(account, 5)
    target.refresh_from_db()
    assert target.opted_out_at == MONDAY + 5 * MINUTE


def test_an_earlier_word_stays_noted() -> None:
    account = AccountFactory.create()
    target = RunTargetFactory.create(
        run__reminder__account=account,
        recipient=person(account.owner),
        status="sent",
        parts_sent=1,
        claimed_at=MONDAY - DAY,
    )
    say(account, 0, MONDAY - MINUTE, "STOP")
    wish(account, 0)
    wish(account, 1, resumed=True)
    target.refresh_from_db()
    assert target.opted_out_at == MONDAY - MINUTE


@pytest.mark.parametrize("word_first", [True, False])
def test_who_also_wrote_stop_stays_out(word_first: bool) -> None:
    account = AccountFactory.create()
    whom = person(account.owner)
    for by_word in (word_first, not word_first):
        say(account, 0, MONDAY, "STOP") if by_word else wish(account, 0)

    assert wish(account, 1, resumed=True) == "nothing: there is no opt-out that it takes back"
    assert status_of(whom) == "opted_out"
    assert Suppression.objects.get().expires_at is None


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
def test_a_word_in_a_group_is_no_opt_out() -> None:
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
        event_store.store(account.pk, batch, MONDAY)
        worker.step(MONDAY)
    # The gateway could not be asked who it was; meanwhile the other copy has told it.
    worker.step(MONDAY + timedelta(seconds=70))

    assert Suppression.objects.get().address == phone(0)
    effects = InboundEvent.objects.order_by("-address").values_list("address", "effect")
    assert list(effects) == [(phone(0), "opted out and suppressed"), ("", "nothing: it names no person")]
