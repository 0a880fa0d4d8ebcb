"""Message 2, on the engine with a virtual clock: judged by what the provider got, and when."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction

from accounts.channels.sandbox.script import Script
from accounts.models import DailyLimit
from fanout.inbound import worker
from fanout.inbound.worker import EFFECTS
from fanout.models import Event, InboundEvent, LaneState, Notification, Run, RunTarget
from fanout.rules.gates import CLOSED_FOR_A_DAY
from fanout.runs import controls, corrections, message_2
from reminders.models import Recipient
from tests.engine.stage import MONDAY, Stage, books_balance, fresh
from tests.factories import UserFactory
from tests.inbound.people import person, phone, remind, say, stored, work_on
from tests.reads import counting_reads

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)


def texts(stage: Stage) -> list[tuple[str, str, datetime, str]]:
    """Return what the provider got: recipient, text, time and account."""
    targets = RunTarget.objects.select_related("run").in_bulk()
    received = []
    for one in stage.book.deliveries():
        parts = targets[int(one.message_id.split("-")[1])].run.parts
        received.append((one.to, parts[one.part]["text"], datetime.fromtimestamp(one.t, UTC), one.account))
    return received


def said(stage: Stage) -> list[str]:
    return [text for _, text, _, _ in texts(stage)]


def deliveries(stage: Stage, wanted: str = "Thank you!") -> list[tuple[str, datetime]]:
    """Return the recipients of this text, and when they got it."""
    return [(to, at) for to, text, at, _ in texts(stage) if text == wanted]


def sent(stage: Stage, people: int = 1, at: datetime = MONDAY, **fields: Any) -> Run:
    """Message 1, delivered to all targets."""
    stage.now = at
    run = stage.fire(remind(stage, fields.pop("account", None) or stage.account(), people, **fields))
    stage.play()
    assert fresh(run).status == "success"
    return run


def child_of(run: Run) -> Run:
    return run.message_2.get()


def settled_at(run: Run) -> datetime:
    moment = run.targets.get().settled_at
    assert moment is not None
    return moment


def jump(stage: Stage, to: datetime) -> None:
    """Move the clock, then let the lane and the tasks of the minute work."""
    stage.now = to
    stage.play(10)
    controls.resume_due(stage.now)
    message_2.skip_expired(stage.now)
    stage.play(10)


# --- who gets it ----------------------------------------------------------------------------------------------


def test_only_a_person_who_replies_gets_it(stage: Stage) -> None:
    run = sent(stage, people=3)
    assert say(run.account, 1, stage.now) == "noted; Message 2 queued"
    stage.play()
    assert [to for to, _ in deliveries(stage)] == [phone(1)]
    child = child_of(run)
    assert (child.status, child.title, child.sent, child.total) == ("success", "Rent (Message 2)", 1, 1)
    assert (child.owner_id, child.reminder_id, child.parts) == (run.owner_id, run.reminder_id, run.reply_parts)
    assert books_balance(child)


@pytest.mark.parametrize(("late", "gets_it"), [(-SECOND, True), (0 * SECOND, True), (SECOND, False)])
def test_within_a_day_of_message_1(stage: Stage, late: timedelta, gets_it: bool) -> None:
    run = sent(stage, delivery_window_start_hour=0, delivery_window_end_hour=24)
    stage.now = settled_at(run) + 24 * HOUR + late
    say(run.account, 0, stage.now)
    stage.play()
    assert bool(deliveries(stage)) == gets_it


def test_a_second_reply_gets_nothing(stage: Stage) -> None:
    run = sent(stage)
    event = stored(run.account, 0, stage.now)
    work_on(event)
    assert work_on(event) == "noted; no second Message 2"
    stage.play()
    assert say(run.account, 0, stage.now) == "noted; no second Message 2"
    stage.play()
    assert len(deliveries(stage)) == 1


def test_the_same_person_in_two_lists_gets_one(stage: Stage) -> None:
    stage.user.is_superuser = True
    stage.user.save(update_fields=["is_superuser"])
    reminder = remind(stage, stage.account())
    reminder.targets.create(recipient=person(UserFactory.create()), position=1)
    run = stage.fire(reminder)
    stage.play()
    for target in run.targets.all():
        event = stored(run.account, 0, stage.now, provider_id=target.provider_id)
        work_on(event)
    stage.play()
    assert len(deliveries(stage)) == 1


def test_the_reply_must_come_to_the_account_that_wrote(stage: Stage) -> None:
    sent(stage)
    assert say(stage.account(), 0, stage.now) == "noted"
    assert not Run.objects.filter(answers__isnull=False).exists()


def test_not_to_groups(stage: Stage) -> None:
    reminder = stage.reminder(stage.account(), groups=1)
    reminder.reply_parts.create(text="Thank you!")
    run = stage.fire(reminder)
    stage.play()
    group = run.targets.get().address
    assert say(run.account, 0, stage.now, group=group) == "nothing: it was said in a group"
    say(run.account, 0, stage.now, address=group)
    assert not run.message_2.exists()


def test_not_to_who_opts_out(stage: Stage) -> None:
    run = sent(stage)
    say(run.account, 0, stage.now, "STOP")
    assert not run.message_2.exists()


def test_not_after_an_opt_out_between_reply_and_claim(stage: Stage) -> None:
    run = sent(stage)
    say(run.account, 0, stage.now)
    say(run.account, 0, stage.now, "stop")
    stage.play()
    assert not deliveries(stage)
    child = child_of(run)
    assert (child.status, child.skipped) == ("failed", 1)
    assert "opted" in child.targets.get().error


def test_of_two_reminders_the_latest_is_answered(stage: Stage) -> None:
    account = stage.account()
    sent(stage, account=account, reply=("first",))
    run = sent(stage, at=stage.now + MINUTE, account=account, reply=("second",))
    sent(stage, at=stage.now + MINUTE, account=account, reply=())
    say(account, 0, stage.now)
    stage.play()
    assert [run.pk] == list(Run.objects.filter(answers__isnull=False).values_list("answers", flat=True))
    assert deliveries(stage, "second")
    assert not deliveries(stage, "first")


def test_reply_parts_are_frozen_with_message_1(stage: Stage) -> None:
    run = sent(stage, reply=("one", "two"))
    run.reminder.reply_parts.all().delete()
    say(run.account, 0, stage.now)
    stage.play()
    assert said(stage)[-2:] == ["one", "two"]


def test_a_file_goes_with_it(stage: Stage) -> None:
    reminder = remind(stage, stage.account(), reply=())
    reminder.reply_parts.create(kind="image", media=stage.media(b"map"), text="the way")
    run = stage.fire(reminder)
    stage.play()
    say(run.account, 0, stage.now)
    stage.play()
    assert said(stage)[-1] == "the way"
    assert len(stage.book.uploads()) == 1


@pytest.mark.slow
def test_no_reply_reads_all_that_the_run_has(stage: Stage) -> None:
    """Ten thousand have got Message 2 already: one more reply looks up the person, not the run."""
    run = sent(stage, people=2)
    say(run.account, 0, stage.now)
    child = child_of(run)
    others = Recipient.objects.bulk_create(
        Recipient(owner=stage.user, kind="person", address=f"+49160{n:07d}") for n in range(10_000)
    )
    RunTarget.objects.bulk_create(
        RunTarget(run=child, account=run.account, recipient=one, address=one.address, position=n + 2, status="sent")
        for n, one in enumerate(others)
    )
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE fanout_runtarget, reminders_recipient")
    with counting_reads() as reads:
        assert say(run.account, 1, stage.now) == "noted; Message 2 queued"
    assert reads.most[0] < 200, reads.most


def test_a_reply_takes_a_bounded_number_of_statements(stage: Stage, django_assert_max_num_queries: Any) -> None:
    """One worker serves all accounts: the person who wrote last waits for all before."""
    run = sent(stage, people=2)
    say(run.account, 0, stage.now)
    event = stored(run.account, 1, stage.now)
    with django_assert_max_num_queries(20):
        assert worker.work_on(event.pk, stage.now)
    event.refresh_from_db()
    assert event.effect == "noted; Message 2 queued"


# --- when -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_ahead_of_the_accounts_other_work(stage: Stage) -> None:
    """A hundred others are waiting at one message in ten seconds, and the lane sleeps between them."""
    account = stage.account(max_send_per_minute=6, send_burst=1)
    run = sent(stage, account=account)
    stage.fire(stage.reminder(account, groups=100), stage.now)
    replied_at = stage.now + timedelta(seconds=124)
    stage.play(200, [(replied_at, lambda now: say(account, 0, now))])
    ((_, at),) = deliveries(stage)
    assert at - replied_at < timedelta(seconds=11)
    assert stage.book.peak() <= 7  # under the same pace
    assert child_of(run).sent == 1


def test_a_parked_lane_is_woken(stage: Stage) -> None:
    """From the reply to the provider in less than three seconds, though the lane sleeps until the next retry or
    has nothing to do at all."""
    account = stage.account()
    run = sent(stage, people=10, account=account)
    replies = [(stage.now + n * 15 * SECOND, lambda now, n=n: say(account, n, now)) for n in range(1, 10)]
    stage.play(160, replies)  # type: ignore[arg-type]
    waits = [at - replied_at for (_, at), (replied_at, _) in zip(deliveries(stage), replies, strict=True)]
    assert max(waits) < 3 * SECOND
    assert (child_of(run).sent, Run.objects.filter(answers=run).count()) == (9, 1)


def test_outside_the_window_it_waits_for_the_opening(stage: Stage) -> None:
    run = sent(stage, at=MONDAY + 8 * HOUR)  # 17:00, the window closes at 18:00
    stage.now = MONDAY + 13 * HOUR
    assert say(run.account, 0, stage.now) == "noted; Message 2 waits for Tue 06 Jan 06:00"
    stage.play(60)
    child = child_of(run)
    assert (child.status, message_2.summary(child, stage.now)) == ("waiting", "1 waiting for Tue 06:00")
    stage.now = MONDAY + 21 * HOUR - 5 * SECOND
    stage.play(20)
    ((_, at),) = deliveries(stage)
    assert MONDAY + 21 * HOUR <= at < MONDAY + 21 * HOUR + 2 * SECOND


def test_a_window_that_closes_before_it_could_go_does_not_end_it(stage: Stage) -> None:
    """The very first of its run: an ordinary run would fail, with nothing to resume."""
    account = stage.account(max_send_per_minute=1, send_burst=1)
    run = sent(stage, at=MONDAY + 9 * HOUR - 20 * SECOND, account=account)  # 17:59:40
    say(account, 0, stage.now)
    stage.play(45)
    child = child_of(run)
    assert (child.status, child.pause_reason, child.pending) == ("paused", "window_closed", 1)
    assert message_2.summary(child, stage.now) == "1 waiting for Tue 06:00"
    jump(stage, MONDAY + 21 * HOUR + SECOND)
    assert len(deliveries(stage)) == 1


def test_a_reply_right_after_the_opening_does_not_wait_for_the_minute(stage: Stage) -> None:
    account = stage.account(max_send_per_minute=1, send_burst=1)
    run = sent(stage, people=1, at=MONDAY + 9 * HOUR - 20 * SECOND, account=account)
    say(account, 0, stage.now)
    stage.play(45)
    assert child_of(run).status == "paused"
    stage.now = MONDAY + 21 * HOUR + SECOND
    other = person(stage.user, 1)
    run.targets.create(
        account=account,
        recipient=other,
        address=other.address,
        position=9,
        status="sent",
        parts_sent=1,
        claimed_at=MONDAY + 8 * HOUR,
        settled_at=MONDAY + 8 * HOUR,
    )
    say(account, 1, stage.now)
    stage.play(120)
    assert {to for to, _ in deliveries(stage)} == {phone(0), phone(1)}


def test_none_when_the_account_opens_only_after_a_day(stage: Stage) -> None:
    friday = MONDAY + timedelta(days=4)
    account = stage.account(send_days=[1, 2, 3, 4, 5])
    run = sent(stage, at=friday + 8 * HOUR, account=account)
    stage.now = friday + 13 * HOUR
    assert say(account, 0, stage.now) == f"noted; no Message 2: {CLOSED_FOR_A_DAY}"
    child = child_of(run)
    assert (child.status, message_2.summary(child, stage.now)) == ("failed", "1 skipped")
    jump(stage, friday + 3 * 24 * HOUR)
    assert not deliveries(stage)


def test_a_reply_that_is_reported_a_day_late(stage: Stage) -> None:
    run = sent(stage)
    came_at = stage.now + 25 * HOUR
    say(run.account, 0, stage.now + MINUTE, came_at=came_at)
    stage.now = came_at
    stage.play()
    assert not deliveries(stage)
    assert message_2.summary(child_of(run), stage.now) == "1 too late"


def test_the_daily_cap_holds_and_what_waited_a_day_is_skipped(stage: Stage) -> None:
    account = stage.account()
    DailyLimit.objects.create(account=account, action="message", limit=3)
    run = sent(stage, people=2, account=account)
    say(account, 0, stage.now)
    stage.play(60)
    say(account, 1, stage.now)
    stage.play(60)
    assert len(deliveries(stage)) == 1
    child = child_of(run)
    assert (child.status, child.pause_reason) == ("paused", "account_capacity")
    assert message_2.summary(child, stage.now) == "1 sent, 1 waiting for Tue 06:00"
    DailyLimit.objects.update(limit=0)
    jump(stage, MONDAY + 22 * HOUR)
    jump(stage, MONDAY + 25 * HOUR)
    assert message_2.summary(fresh(child), stage.now) == "1 sent, 1 too late"
    assert (child.status, len(deliveries(stage))) == ("partial", 1)


# --- replies while Message 1 is under way ---------------------------------------------------------------------


def test_a_reply_between_two_parts_of_message_1(stage: Stage) -> None:
    account = stage.account(max_send_per_minute=6, send_burst=1)
    run = stage.fire(remind(stage, account, parts=("text", "text")))
    stage.play(happenings=[(MONDAY + 3 * SECOND, lambda now: say(account, 0, now))])
    assert said(stage) == ["part 0", "part 1", "Thank you!"]
    assert fresh(run).status == child_of(run).status == "success"


def test_a_reply_while_the_only_slot_is_taken_between_two_parts(stage: Stage) -> None:
    """The next part frees the place: the lane must not wait for it and for the place at once."""
    account = stage.account(max_send_per_minute=6, send_burst=1, group_concurrency=1)
    sent(stage, account=account)
    later = stage.fire(stage.reminder(account, groups=2, parts=("text", "text"), first=500), stage.now)
    began = stage.now
    # Between the first and the second part of another person's message.
    stage.play(happenings=[(began + 13 * SECOND, lambda now: say(account, 0, now))])
    ((_, at),) = deliveries(stage)
    assert fresh(later).status == "success"
    assert at - began <= timedelta(seconds=32)


def test_a_message_1_that_went_out_only_perhaps_has_its_day_too(stage: Stage) -> None:
    run = sent(stage)
    target = run.targets.get()
    assert target.claimed_at is not None
    target.status, target.settled_at = "unconfirmed", None
    assert message_2.in_time(vars(target), target.claimed_at + 24 * HOUR)
    assert not message_2.in_time(vars(target), target.claimed_at + 24 * HOUR + SECOND)


@pytest.mark.parametrize(("late", "gets_it"), [(0 * SECOND, True), (SECOND, False)])
def test_the_operators_word_does_not_begin_the_day_anew(stage: Stage, late: timedelta, gets_it: bool) -> None:
    """Settled hours later: the person has had the message since it was sent."""
    stage.provider.script = Script({"*": {"faults": [{"effect": "drop_after_accept"}]}})
    run = stage.fire(remind(stage, stage.account(), delivery_window_start_hour=0, delivery_window_end_hour=24))
    stage.play()
    target = run.targets.get()
    assert (target.status, target.claimed_at is None) == ("unconfirmed", False)
    assert target.claimed_at is not None
    corrections.settle(fresh(run), {target.pk}, True, stage.user, target.claimed_at + 20 * HOUR)
    assert run.targets.get().status == "sent"
    words = say(run.account, 0, target.claimed_at + 24 * HOUR + late)
    assert words.endswith("Message 2 queued") == gets_it


def test_a_reply_before_the_providers_answer_is_recorded(stage: Stage) -> None:
    stage.provider.script = Script({"*": {"latency_ms": [3000, 3000]}})
    run = stage.fire(remind(stage, stage.account()))
    stage.play(happenings=[(MONDAY + 2 * SECOND, lambda now: say(run.account, 0, now))])
    assert said(stage) == ["part 0", "Thank you!"]


def test_a_reply_while_message_1_is_about_to_fail(stage: Stage) -> None:
    """It cannot be a reply to a message that never arrived."""
    stage.provider.script = Script({"*": {"latency_ms": [3000, 3000], "faults": [{"effect": "recipient_gone"}]}})
    run = stage.fire(remind(stage, stage.account()))
    stage.play(happenings=[(MONDAY + 2 * SECOND, lambda now: say(run.account, 0, now))])
    assert fresh(run).failed == 1
    assert not deliveries(stage)
    assert child_of(run).targets.get().error == "Message 1 is not known to have gone out"


@pytest.mark.slow
def test_replies_do_not_wipe_out_the_sample_of_the_run_they_interrupt(stage: Stage) -> None:
    """One in three fails: the run must still be stopped, although people reply again and again."""
    account = stage.account(max_send_per_minute=60, send_burst=1, retry_base_seconds=1)
    sent(stage, people=15, account=account)
    # Message 2 goes to people, whose addresses have no such end.
    fault = {"effect": "recipient_gone", "match": {"suffix": "@g.us", "every": 3}}
    stage.provider.script = Script({"*": {"latency_ms": [20, 20], "faults": [fault]}})
    run = stage.fire(stage.reminder(account, groups=100), stage.now)
    replies = [(stage.now + n * 5 * SECOND, lambda now, n=n: say(account, n, now)) for n in range(15)]
    stage.play(74, replies)  # type: ignore[arg-type]
    assert (fresh(run).status, run.pause_reason) == ("paused", "circuit_breaker")


# --- what operators do ----------------------------------------------------------------------------------------


def test_a_canceled_run_sends_no_message_2(stage: Stage) -> None:
    account = stage.account(max_send_per_minute=6, send_burst=1)
    run = stage.fire(remind(stage, account, people=10))
    stage.play(35)
    say(account, 0, stage.now)
    controls.cancel(fresh(run), stage.user, stage.now)
    assert (child_of(run).status, child_of(run).skipped) == ("canceled", 1)
    assert say(account, 1, stage.now) == "noted; no Message 2: its run was canceled"
    stage.play()
    assert not deliveries(stage)


def test_message_2_alone_can_be_canceled(stage: Stage) -> None:
    run = sent(stage, people=2)
    say(run.account, 0, stage.now)
    controls.cancel(child_of(run), stage.user, stage.now)
    assert say(run.account, 1, stage.now) == "noted; no Message 2: it was canceled"
    stage.play()
    assert not deliveries(stage)


def test_it_pauses_and_goes_on_with_its_run(stage: Stage) -> None:
    account = stage.account(max_send_per_minute=6, send_burst=1)
    run = stage.fire(remind(stage, account, people=10))
    stage.play(35)
    controls.pause(fresh(run), stage.user, stage.now)
    say(account, 0, stage.now)
    say(account, 1, stage.now)
    stage.play(60)
    assert not deliveries(stage)
    assert (child_of(run).status, child_of(run).pause_reason, child_of(run).pending) == ("paused", "operator", 2)
    controls.resume(fresh(run), stage.user, stage.now)
    stage.play()
    assert len(deliveries(stage)) == 2
    assert fresh(run).status == child_of(run).status == "success"


def test_one_under_way_pauses_with_its_run(stage: Stage) -> None:
    account = stage.account(max_send_per_minute=6, send_burst=1)
    run = stage.fire(remind(stage, account, people=10))
    stage.play(35)
    say(account, 0, stage.now)
    controls.pause(fresh(run), stage.user, stage.now)
    assert child_of(run).status == "paused"
    controls.archive(fresh(run), stage.user, stage.now)
    assert child_of(run).archived


def test_it_is_not_offloaded(stage: Stage) -> None:
    run = sent(stage)
    say(run.account, 0, stage.now)
    answer = corrections.offload(child_of(run), stage.account(), stage.user, stage.now)
    assert not answer.ok
    assert "the account that was replied to" in answer.text


def test_each_of_several_senders_answers_its_own(stage: Stage) -> None:
    first, second = stage.account(), stage.account()
    reminder = remind(stage, first, people=4)
    reminder.set_further_senders([second])
    run = stage.fire(reminder)
    stage.play()
    for target in run.targets.all():
        say(target.account, int(target.address[-3:]), stage.now)
        stage.play()
    thanked = {to: account for to, text, _, account in texts(stage) if text == "Thank you!"}
    assert thanked == {to: account for to, text, _, account in texts(stage) if text == "part 0"}
    assert len(set(thanked.values())) == 2


def test_replies_send_no_notification_each(stage: Stage) -> None:
    run = sent(stage, people=3)
    told = Notification.objects.count()
    for n in range(3):
        say(run.account, n, stage.now)
        stage.play()
    assert Notification.objects.count() == told
    assert list(Event.objects.filter(run=child_of(run)).values_list("verb", flat=True)) == ["fired"]


# --- at the same moment ---------------------------------------------------------------------------------------


def test_replies_while_the_lane_finishes_the_run_again_and_again(stage: Stage) -> None:
    account = stage.account(max_send_per_minute=6000)
    run = sent(stage, people=20, account=account)
    replies = [(stage.now + n * timedelta(milliseconds=137), lambda now, n=n: say(account, n, now)) for n in range(20)]
    stage.play(10, replies)  # type: ignore[arg-type]
    assert {to for to, _ in deliveries(stage)} == {phone(n) for n in range(20)}
    assert child_of(run).status == "success"
    assert books_balance(child_of(run))


def test_two_first_replies_at_once_make_one_run(stage: Stage) -> None:
    run = sent(stage, people=6)
    events = [stored(run.account, n, stage.now) for n in range(6)]
    together = threading.Barrier(6)

    def work(event: InboundEvent) -> str:
        together.wait()
        try:
            return work_on(event)
        finally:
            connection.close()

    with ThreadPoolExecutor(6) as pool:
        assert set(pool.map(work, events)) == {"noted; Message 2 queued"}
    assert child_of(run).total == 6
    stage.play()
    assert len(deliveries(stage)) == 6


def test_a_reply_and_a_pause_at_once(stage: Stage) -> None:
    """In either order: nothing goes out before the run is resumed, and then all of it does."""
    account = stage.account(max_send_per_minute=6, send_burst=1)
    run = stage.fire(remind(stage, account, people=5))
    stage.play(15)
    event = stored(account, 0, stage.now)

    def work() -> str:
        try:
            return work_on(event)
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool, transaction.atomic():
        Run.objects.select_for_update().get(pk=run.pk)
        reply = pool.submit(work)
        with pytest.raises(TimeoutError):
            reply.result(0.3)
        controls.pause(fresh(run), stage.user, stage.now)
        transaction.on_commit(lambda: reply.result(10))
    assert child_of(run).pause_reason == "operator"
    stage.play(30)
    assert not deliveries(stage)
    controls.resume(fresh(run), stage.user, stage.now)
    stage.play()
    assert len(deliveries(stage)) == 1


# --- crashes --------------------------------------------------------------------------------------------------


def test_killed_between_the_store_and_the_target(stage: Stage) -> None:
    """The event is there and its effect is not: the next worker does all of it, once."""
    run = sent(stage)
    event = stored(run.account, 0, stage.now)
    with transaction.atomic():
        EFFECTS[event.kind](event, stage.now)
        transaction.set_rollback(True)
    assert not run.message_2.exists()
    assert Recipient.objects.get().replied_at is None
    work_on(InboundEvent.objects.get(pk=event.pk), stage.now)
    stage.play()
    assert len(deliveries(stage)) == 1


def test_killed_with_message_2_in_flight(stage: Stage) -> None:
    run = sent(stage)
    say(run.account, 0, stage.now)
    stage.provider.script = Script({"*": {"latency_ms": [2000, 2000]}})
    stage.play(1.5, crash=True)
    LaneState.objects.update(due_at=stage.now)
    stage.play(60)
    assert len(deliveries(stage)) == 1
    assert not stage.book.duplicates("message_id")
    assert RunTarget.objects.get(run=child_of(run)).status in ("unconfirmed", "sent")
