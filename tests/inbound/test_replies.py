from __future__ import annotations

import threading
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction

from accounts.models import Account
from fanout.models import InboundEvent, Run, RunTarget
from fanout.runs import controls
from reminders.models import Recipient
from tests.engine.stage import MONDAY, Stage, books_balance, fresh
from tests.factories import AccountFactory, UserFactory
from tests.inbound.people import person, phone, remind, say, stored, work_on

pytestmark = pytest.mark.django_db
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


@pytest.fixture
def account() -> Account:
    return AccountFactory.create()


def limited(owner: Any, **fields: Any) -> Recipient:
    """Somebody whom the third follow-up made not interested."""
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
def test_a_status_that_somebody_chose_stays(account: Account, status: str) -> None:
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


def test_a_groups_chatter_is_nobodys_reply(account: Account) -> None:
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
    assert (fresh(run).status, run.error_summary) == (
        "failed",
        "0 of 1 group delivered, 1 skipped (the person has replied).",
    )


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


def test_a_reply_waits_for_whoever_holds_the_run(stage: Stage) -> None:
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
