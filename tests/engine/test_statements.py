"""Every condition of the ledger's statements: what each one keeps from happening, and what it lets happen."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fanout.engine import holding
from fanout.engine.clock import VirtualClock
from fanout.engine.commit import Call, Commit, Result, calls_of, ignore_written, plain
from fanout.engine.connection import Row
from fanout.engine.dispatcher import Dispatcher
from fanout.engine.driver import SUCCESSOR_WITHIN
from fanout.engine.lane_loop import Lane
from fanout.engine.ledger import Ledger
from fanout.engine.loading import LaneRun
from fanout.lanes import lane_rows
from fanout.models import Activity, Driver, KnownChat, LaneState, Run, RunTarget
from fanout.rules.gates import RunFacts, Wait
from fanout.rules.new_chat_limits import NewChatHold
from fanout.rules.pace import PaceState
from fanout.runs import texts
from reminders.models import Recipient, Suppression
from tests.engine.ledgers import EPOCH, NOW, claim, lane_write, ledger_in_test, record, with_ledger
from tests.factories import AccountFactory, DriverFactory, LaneStateFactory, RunFactory, RunTargetFactory

__all__ = ["ledger_in_test"]
pytestmark = pytest.mark.usefixtures("ledger_in_test")
case = pytest.param

SECOND = timedelta(seconds=1)
EARLIER = NOW - timedelta(minutes=1)
LATER = NOW + timedelta(minutes=1)


def make_run(status: str = "running", **fields: Any) -> Run:
    run: Run = RunFactory.create(
        **{"scheduled_for": NOW, "status": status, "window_closes_at": NOW + timedelta(hours=1)} | fields
    )
    LaneState.objects.get_or_create(account=run.account, defaults={"epoch": EPOCH})
    return run


def pending(run: Run | None = None, **fields: Any) -> RunTarget:
    """A target of a lane with EPOCH, and beside it one of another account and run that looks the same."""
    target: RunTarget = RunTargetFactory.create(run=run or make_run(), **fields)
    return target


def in_flight(run: Run | None = None, **fields: Any) -> RunTarget:
    return pending(run, **{"status": "sending", "claim_epoch": EPOCH, "claimed_at": NOW, "attempts": 1} | fields)


def change(thing: Any, **fields: Any) -> None:
    type(thing).objects.filter(pk=thing.pk).update(**fields)


# --- claim ------------------------------------------------------------------------------------------------


def test_a_claim_is_written_with_its_epoch_and_moment() -> None:
    target, beside = pending(next_attempt_at=EARLIER, attempts=1), pending()
    next_one = pending(target.run)
    assert claim(target)
    assert (target.status, target.claim_epoch, target.claimed_at) == ("sending", EPOCH, NOW)
    assert (target.attempts, target.next_attempt_at) == (2, None)
    for other in (beside, next_one):
        other.refresh_from_db()
        assert (other.status, other.attempts) == ("pending", 0)


@pytest.mark.parametrize("status", ["sending", "sent", "failed", "skipped", "unconfirmed"])
def test_only_what_is_pending_is_claimed(status: str) -> None:
    target = pending(status=status)
    assert not claim(target)
    assert target.status == status


@pytest.mark.parametrize("epoch", [EPOCH - 1, EPOCH + 1])
def test_a_claim_of_another_epoch_is_not_granted(epoch: int) -> None:
    target = pending()
    LaneStateFactory.create(epoch=epoch)  # another account's lane has that one
    assert not claim(target, epoch=epoch)
    assert target.status == "pending"


@pytest.mark.parametrize("known", [0, 2])
def test_a_claim_for_another_part_is_not_granted(known: int) -> None:
    """A result of an earlier holder came after the target was read: its part would go out a second time."""
    target = pending(parts_sent=1)
    target.parts_sent = known
    assert not claim(target)
    assert claim(target)


def test_a_claim_of_another_account_is_not_granted() -> None:
    target, other = pending(), pending()
    assert not claim(target, account=other.account_id)
    assert target.status == "pending"


@pytest.mark.parametrize("status", ["paused", "suspended", "unpaired"])
def test_an_account_that_is_not_active_claims_nothing(status: str) -> None:
    target, _ = pending(), pending()
    change(target.account, status=status)
    assert not claim(target)


@pytest.mark.parametrize("status", ["queued", "waiting", "paused", "canceled"])
def test_a_run_that_is_not_running_claims_nothing(status: str) -> None:
    target, _ = pending(), pending()
    change(target.run, status=status, pause_reason="operator" if status == "paused" else "")
    assert not claim(target)


@pytest.mark.parametrize(("closes_at", "granted"), [(NOW, False), (NOW + SECOND, True), (EARLIER, False)])
def test_a_claim_needs_an_open_window(closes_at: datetime, granted: bool) -> None:
    target, _ = pending(), pending()
    change(target.run, window_closes_at=closes_at)
    assert claim(target) is granted


@pytest.mark.parametrize("status", sorted(Recipient.GETS_NOTHING))
def test_a_recipient_who_gets_nothing_is_not_claimed(status: str) -> None:
    target, _ = pending(), pending()
    change(target.recipient, status=status)
    assert not claim(target)


@pytest.mark.parametrize(
    ("expires_at", "granted"),
    [case(None, False, id="for-good"), case(LATER, False, id="until-later"), case(NOW, True, id="until-now")],
)
def test_a_suppressed_address_is_not_claimed(expires_at: datetime | None, granted: bool) -> None:
    target = pending()
    Suppression.objects.create(address=target.address, reason="manual", expires_at=expires_at)
    assert claim(target) is granted


def test_the_suppression_of_another_address_does_not_matter() -> None:
    Suppression.objects.create(address="somebody@example.com", reason="manual")
    assert claim(pending())


@pytest.mark.parametrize(("expires_at", "granted"), [(NOW, False), (NOW + SECOND, True), (None, True)])
def test_a_target_that_has_expired_is_not_claimed(expires_at: datetime | None, granted: bool) -> None:
    assert claim(pending(expires_at=expires_at)) is granted


@pytest.mark.parametrize(("follow_up", "another"), [(True, True), (True, False), (False, True), (False, False)])
def test_a_person_gets_one_follow_up_at_a_time(follow_up: bool, another: bool) -> None:
    target = pending(make_run(follow_up=follow_up))
    in_flight(make_run(follow_up=another), recipient=target.recipient, address=target.address)
    assert claim(target) is not (follow_up and another)


@pytest.mark.parametrize("follow_up", [True, False])
def test_a_person_gets_no_more_follow_ups_than_the_limit(follow_up: bool) -> None:
    target = pending(make_run(follow_up=follow_up))
    change(target.recipient, follow_up_attempts=100)
    assert claim(target) is not follow_up


@pytest.mark.parametrize(
    ("status", "parts_sent", "run_status", "granted"),
    [
        case("pending", 0, "running", True, id="not-begun"),
        case("pending", 1, "running", False, id="begun"),
        case("pending", 1, "waiting", True, id="begun-but-its-run-waits"),
        case("sending", 0, "waiting", False, id="in-flight"),
        case("sent", 1, "running", True, id="over"),
    ],
)
def test_which_follow_ups_are_under_way(status: str, parts_sent: int, run_status: str, granted: bool) -> None:
    target, another = pending(make_run(follow_up=True)), make_run(run_status, follow_up=True)
    pending(another, recipient=target.recipient, address=target.address, status=status, parts_sent=parts_sent)
    assert claim(target) is granted


@pytest.mark.parametrize(
    ("replied_at", "parts_sent", "granted"),
    [
        case(None, 0, True, id="no-reply"),
        case(EARLIER - SECOND, 0, True, id="before-the-message"),
        case(EARLIER, 0, False, id="after-it"),
        case(NOW, 0, False, id="just-now"),
        case(NOW, 1, True, id="in-the-middle-of-the-follow-up"),
    ],
)
def test_a_follow_up_to_a_person_who_has_replied_is_not_claimed(
    replied_at: datetime | None, parts_sent: int, granted: bool
) -> None:
    first = pending(make_run("success"), status="sent", claimed_at=EARLIER)
    follows: dict[str, Any] = {"follow_up": True, "follows": first.run, "step": 1}
    run = make_run(reminder=first.run.reminder, scheduled_for=LATER, account=first.account, **follows)
    target = pending(run, recipient=first.recipient, address=first.address, parts_sent=parts_sent)
    in_flight(first.run, claimed_at=EARLIER - SECOND)  # to another person
    change(target.recipient, replied_at=replied_at)
    assert claim(target) is granted


@pytest.mark.parametrize("noted", [False, True])
def test_a_reply_that_is_noted_with_the_message_counts_whenever_its_last_part_was_claimed(noted: bool) -> None:
    replied_at = EARLIER - SECOND
    first = pending(make_run("success"), status="sent", claimed_at=EARLIER, replied_at=replied_at if noted else None)
    follows: dict[str, Any] = {"follow_up": True, "follows": first.run, "step": 1}
    run = make_run(reminder=first.run.reminder, scheduled_for=LATER, account=first.account, **follows)
    target = pending(run, recipient=first.recipient, address=first.address)
    change(target.recipient, replied_at=replied_at)
    assert claim(target) is not noted


def test_a_reply_does_not_hold_up_the_next_ordinary_message_or_follow_up_to_another_run() -> None:
    first = pending(make_run("success"), status="sent", claimed_at=EARLIER)
    change(first.recipient, replied_at=NOW)
    for run in (make_run(), make_run(follow_up=True)):
        target = pending(run, recipient=first.recipient, address=first.address)
        assert claim(target)
        change(target, status="sent")


def test_a_follow_up_that_has_begun_goes_on_beside_another() -> None:
    target = pending(make_run(follow_up=True), parts_sent=1)
    in_flight(make_run(follow_up=True), recipient=target.recipient, address=target.address)
    assert claim(target)


def test_the_follow_up_to_another_person_is_no_obstacle() -> None:
    in_flight(make_run(follow_up=True))
    assert claim(pending(make_run(follow_up=True)))


@pytest.mark.parametrize(
    ("after", "kind", "known_to", "granted"),
    [
        case(LATER, "person", "", False, id="a-new-chat"),
        case(LATER, "person", "other", False, id="known-to-another-account"),
        case(LATER, "person", "mine", True, id="a-known-chat"),
        case(LATER, "group", "", True, id="a-group"),
        case(NOW, "person", "", True, id="the-hold-is-over"),
        case(None, "person", "", True, id="no-hold"),
    ],
)
def test_a_hold_of_new_chats_holds_only_them(after: datetime | None, kind: str, known_to: str, granted: bool) -> None:
    target, other = pending(), AccountFactory.create()
    change(pending().recipient, kind="person")
    change(target.recipient, kind=kind)
    LaneState.objects.filter(account=target.account_id).update(new_chats_after=after)
    LaneStateFactory.create(account=other, epoch=EPOCH, new_chats_after=LATER + timedelta(days=1) if granted else None)
    if known_to:
        account = target.account if known_to == "mine" else other
        KnownChat.objects.create(account=account, address=target.address, begun_at=EARLIER)
    assert claim(target) is granted


# --- start ------------------------------------------------------------------------------------------------


def start(run: Run) -> None:
    """And beside it a run that waits for its own start."""
    beside = make_run("queued")

    async def hand_in(ledger: Any) -> None:
        ledger.start_run(run.pk, run.account_id, NOW)

    with_ledger(hand_in)
    run.refresh_from_db()
    beside.refresh_from_db()
    assert (beside.status, beside.started_at) == ("queued", None)


@pytest.mark.parametrize("status", list(Run.Status))
def test_start_is_for_runs_that_are_queued_or_wait(status: str) -> None:
    run = make_run(status, pause_reason="operator" if status == "paused" else "")
    start(run)
    started = status in ("queued", "waiting")
    assert (run.status, run.started_at) == (("running", NOW) if started else (status, None))


def test_a_run_that_goes_on_keeps_the_moment_of_its_start() -> None:
    run = make_run("waiting", started_at=EARLIER, waiting_until=LATER, waiting_why="daily cap")
    start(run)
    assert (run.status, run.started_at, run.waiting_until, run.waiting_why) == ("running", EARLIER, None, "")


async def all_others() -> None:
    """Until every task of the loop waits for something."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_a_start_that_waits_for_a_commit_does_not_end_a_wait_that_came_after_it() -> None:
    """As when the provider's break is met in the step that started the run."""
    run = make_run("queued")
    gate = Wait(NOW + timedelta(hours=1), "rate limited")

    async def start_and_hold(ledger: Ledger) -> None:
        lane = Lane(
            cast("Dispatcher", SimpleNamespace(ledger=ledger, clock=VirtualClock(NOW), account_id=run.account_id)), []
        )
        lane_run = LaneRun(run.pk, "queued", "message", 1, NOW, RunFacts(NOW, LATER), [], attempted=True)
        really, committing = ledger.locks.call, asyncio.Event()

        async def call(calls: Sequence[Call]) -> list[list[Row]]:
            await committing.wait()
            return await really(calls)

        ledger.locks.call = call  # type: ignore[method-assign]
        ledger.leave_lane(lane_write(run.account_id))
        await all_others()  # the writer is at it
        lane._start(lane_run, NOW)
        holding = asyncio.create_task(lane._hold(lane_run, gate, NOW))
        await all_others()
        committing.set()
        await holding

    with_ledger(start_and_hold)
    run.refresh_from_db()
    assert (run.status, run.waiting_until) == ("waiting", gate.until)


def test_lanes_that_a_batch_writes_twice_are_locked_in_their_order() -> None:
    """A hold of new chats on one account must not lock it before the pace of a smaller one."""
    result = Result(1, 1, 7, EPOCH, NOW, "pending", 0, 0, NOW, new_chat_hold=NewChatHold(LATER, "said so", 1))
    lanes = {account: lane_write(account) for account in (9, 3)}
    calls = calls_of(Commit(results=[(result, ignore_written)], lanes=lanes))
    assert [name for name, _ in calls][-3:] == ["lock_lane_states", "hold_new_chats", "pace"]
    assert dict(calls)["lock_lane_states"] == ["{3,7,9}"]
    assert [name for name, _ in calls_of(Commit(lanes=lanes))] == ["pace"]


# --- record -----------------------------------------------------------------------------------------------


def test_a_delivery_is_recorded_with_its_activity() -> None:
    target, beside = in_flight(provider_id="", in_doubt=True), in_flight()
    record(target, "sent", parts_sent=1, activity="sent", at=LATER, latency_ms=80, provider_id="p-1", part=0)
    assert (target.status, target.parts_sent, target.settled_at) == ("sent", 1, LATER)
    assert (target.latency_ms, target.provider_id, target.in_doubt) == (80, "p-1", False)
    activity = Activity.objects.get()
    assert (activity.account_id, activity.run_target_id, activity.outcome, activity.at) == (
        target.account_id,
        target.pk,
        "sent",
        LATER,
    )
    beside.refresh_from_db()
    assert beside.status == "sending"


@pytest.mark.parametrize(
    "fields",
    [case({"epoch": EPOCH + 1}, id="epoch"), case({"claimed_at": EARLIER}, id="moment")],
)
def test_a_result_of_another_claim_changes_nothing(fields: dict[str, Any]) -> None:
    target = in_flight()
    record(target, "sent", parts_sent=1, activity="sent", **fields)
    assert (target.status, target.parts_sent) == ("sending", 0)
    assert not Activity.objects.exists()


@pytest.mark.parametrize(
    ("status", "accepted"),
    [
        ("sending", True),
        ("unconfirmed", True),
        ("pending", True),
        ("sent", False),
        ("failed", False),
        ("skipped", False),
    ],
)
def test_an_answer_is_accepted_until_an_operator_settled_the_target(status: str, accepted: bool) -> None:
    target = in_flight(status=status)
    record(target, "sent", parts_sent=1, activity="sent", provider_id="late")
    assert (target.provider_id == "late") is accepted
    assert Activity.objects.exists() is accepted


@pytest.mark.parametrize(
    ("activity", "parts_sent", "accepted"),
    [
        case("sent", 2, True, id="another-part"),
        case("sent", 1, False, id="a-part-that-is-noted"),
        case("failed", 2, False, id="a-failure"),
    ],
)
def test_a_target_put_back_takes_only_a_further_part(activity: str, parts_sent: int, accepted: bool) -> None:
    target = in_flight(status="pending", parts_sent=1)
    record(target, "pending", parts_sent=parts_sent, activity=activity, provider_id="late")
    assert (target.provider_id == "late") is accepted


def test_a_retry_has_its_time_and_is_not_settled() -> None:
    target = in_flight(provider_id="earlier", latency_ms=70)
    record(target, "pending", retry_at=LATER, kind="soft_bounce", error="full", activity="failed")
    assert (target.status, target.next_attempt_at, target.settled_at) == ("pending", LATER, None)
    assert (target.provider_id, target.latency_ms, target.error_kind) == ("earlier", 70, "soft_bounce")


def test_no_outcome_no_activity() -> None:
    target = in_flight()
    record(target, "pending", retry_at=LATER, kind="network")
    assert target.status == "pending"
    assert not Activity.objects.exists()


@pytest.mark.parametrize(
    ("before", "kind", "activity", "after"),
    [
        case(False, "unknown", "", True, id="no-answer"),
        case(True, "network", "", True, id="an-earlier-try-had-none"),
        case(True, "", "sent", False, id="known-to-be-sent"),
        case(False, "soft_bounce", "failed", False, id="refused"),
    ],
)
def test_doubt_lasts_until_the_part_is_sent(before: bool, kind: str, activity: str, after: bool) -> None:
    target = in_flight(in_doubt=before)
    record(target, "pending", parts_sent=int(activity == "sent"), kind=kind, activity=activity, retry_at=LATER)
    assert target.in_doubt is after


def test_a_result_says_how_many_parts_and_attempts_there_were() -> None:
    target = in_flight(parts_sent=1, attempts=2)
    record(target, "failed", parts_sent=0, attempts=0)
    assert (target.parts_sent, target.attempts) == (0, 0)


def test_a_claim_that_never_called_is_as_before() -> None:
    target, other = in_flight(parts_sent=1, attempts=2), in_flight(attempts=0)
    for one in (target, other):
        record(one, "pending", parts_sent=-1, attempts=-1)
    assert (target.parts_sent, target.attempts, other.attempts) == (1, 1, 0)


def test_attempts_begin_anew_with_the_next_part() -> None:
    target = in_flight(attempts=3)
    record(target, "pending", parts_sent=1, attempts=0, activity="sent", retry_at=LATER)
    assert (target.parts_sent, target.attempts) == (1, 0)


def canceled_in_flight() -> RunTarget:
    target, _ = in_flight(), in_flight()
    change(target.run, status="canceled")
    return target


def test_a_canceled_run_gets_no_further_part() -> None:
    target = canceled_in_flight()
    record(target, "pending", parts_sent=1, activity="sent", retry_at=LATER, error="x")
    assert (target.status, target.error, target.settled_at) == ("skipped", texts.CANCELED, NOW)
    assert (target.next_attempt_at, target.parts_sent) == (None, 1)


@pytest.mark.parametrize("status", ["sent", "failed", "unconfirmed"])
def test_an_answer_stands_in_a_canceled_run(status: str) -> None:
    target = canceled_in_flight()
    record(target, status, activity="sent" if status == "sent" else "failed", error="its own words")
    assert (target.status, target.error) == (status, "its own words")


def test_another_canceled_run_skips_nothing() -> None:
    canceled_in_flight()
    target = in_flight()
    record(target, "pending", retry_at=LATER)
    assert (target.status, target.next_attempt_at) == ("pending", LATER)


@pytest.mark.parametrize(
    ("follow_up", "status", "counted"), [(True, "sent", 1), (True, "failed", 0), (False, "sent", 0)]
)
def test_only_a_follow_up_that_went_out_is_counted(follow_up: bool, status: str, counted: int) -> None:
    make_run(follow_up=not follow_up)
    target = in_flight(make_run(follow_up=follow_up))
    record(target, status, activity=status, follow_up_to=target.address)
    target.recipient.refresh_from_db()
    assert (target.status, target.recipient.follow_up_attempts) == (status, counted)
    assert Activity.objects.count() == 1


@pytest.mark.parametrize(
    "words", ["a\x00b", "\x00", "half \ud83d", "plain"], ids=["nul", "only-nul", "half-a-character", "plain"]
)
def test_a_providers_words_fit_into_a_column(words: str) -> None:
    target = in_flight()
    record(target, "failed", error=words, provider_id=words, activity="failed")
    assert (target.status, target.error) == ("failed", plain(words))
    assert "\x00" not in target.error


# --- skip, pace, times ------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["pending", "sending", "sent"])
def test_only_what_is_pending_is_skipped(status: str) -> None:
    target, beside = pending(status=status), pending()

    async def skip(ledger: Any) -> None:
        ledger.skip(target.pk, target.run_id, "not today", LATER)

    with_ledger(skip)
    target.refresh_from_db()
    beside.refresh_from_db()
    skipped = ("skipped", "not today", LATER)
    assert (target.status, target.error, target.settled_at) == (skipped if status == "pending" else (status, "", None))
    assert beside.status == "pending"


@pytest.mark.parametrize(
    ("epoch", "delivered", "written", "crashes"),
    [
        case(EPOCH, False, True, 2, id="mine"),
        case(EPOCH, True, True, 0, id="a-delivery-clears"),
        case(EPOCH - 1, True, False, 2, id="fenced"),
    ],
)
def test_the_pace_is_written_by_the_lanes_holder(epoch: int, delivered: bool, written: bool, crashes: int) -> None:
    lane = LaneStateFactory.create(epoch=EPOCH, crashes=2, last_claim_at=EARLIER)
    beside = LaneStateFactory.create(epoch=epoch)

    async def leave(ledger: Any) -> None:
        ledger.leave_lane(
            lane_write(
                lane.account_id,
                epoch,
                pace=PaceState(theoretical_arrival=LATER, batch_sent=4),
                clears_crashes=delivered,
            )
        )

    with_ledger(leave)
    lane.refresh_from_db()
    beside.refresh_from_db()
    assert (lane.theoretical_arrival, lane.batch_sent) == ((LATER, 4) if written else (None, 0))
    assert (lane.crashes, lane.last_claim_at, beside.theoretical_arrival) == (crashes, EARLIER, None)


def test_seconds_are_added_to_the_run_they_belong_to() -> None:
    run, beside = make_run(seconds_pacing=5), make_run()

    async def spend(ledger: Any) -> None:
        ledger.spent(run.pk, "pacing", 2.0)
        ledger.spent(run.pk, "media", 3.0)
        ledger.write_times(run.pk)
        ledger._wake.set()

    with_ledger(spend)
    run.refresh_from_db()
    beside.refresh_from_db()
    assert (run.seconds_pacing, run.seconds_media, run.seconds_retries) == (7.0, 3.0, 0.0)
    assert (beside.seconds_pacing, beside.seconds_media) == (0.0, 0.0)


def test_seconds_that_wait_for_a_commit_are_not_replaced_by_later_ones() -> None:
    run = make_run()

    async def spend(ledger: Any) -> None:
        for seconds in (2.0, 3.0):
            ledger.spent(run.pk, "pacing", seconds)
            ledger.write_times(run.pk)
        ledger._wake.set()

    with_ledger(spend)
    run.refresh_from_db()
    assert run.seconds_pacing == 5.0


# --- taking and leaving lanes -----------------------------------------------------------------------------


def test_taking_a_lane_fences_all_earlier_holders() -> None:
    taken, beside = LaneStateFactory.create(epoch=EPOCH), LaneStateFactory.create(epoch=EPOCH)
    with_ledger(lambda ledger: ledger.write(lane_rows.TAKE_LANES, ([taken.account_id], "me")))
    taken.refresh_from_db()
    beside.refresh_from_db()
    assert (taken.epoch, taken.holder) == (EPOCH + 1, "me")
    assert (beside.epoch, beside.holder) == (EPOCH, "")


def leave(
    lane: LaneState,
    epoch: int = EPOCH,
    wake_count: int = 0,
    due_at: datetime | None = LATER,
    failed: bool = False,
    written: int = 0,
) -> None:
    row = (lane.account_id, epoch, wake_count, due_at, "why", failed, written, 2 * SECOND, NOW)
    with_ledger(lambda ledger: ledger.write(lane_rows.LEAVE_LANES, [[value] for value in row]))
    lane.refresh_from_db()


@pytest.mark.parametrize(("failed", "crashes"), [(False, 0), (True, 3)])
def test_a_lane_is_parked_with_its_wake_up_time(failed: bool, crashes: int) -> None:
    lane = LaneStateFactory.create(epoch=EPOCH, holder="me", crashes=2, due_at=NOW)
    beside = LaneStateFactory.create(epoch=EPOCH, holder="me", due_at=NOW)
    leave(lane, failed=failed)
    beside.refresh_from_db()
    assert (lane.holder, lane.due_at, lane.why, lane.crashes) == ("", LATER, "why", crashes)
    assert (beside.holder, beside.due_at) == ("me", NOW)


def test_a_lane_that_was_woken_meanwhile_stays_due() -> None:
    lane = LaneStateFactory.create(epoch=EPOCH, holder="me", due_at=NOW, wake_count=8)
    leave(lane, wake_count=7)
    assert (lane.holder, lane.due_at) == ("", NOW)


@pytest.mark.parametrize(
    ("arrival", "written", "after"),
    [
        (None, 5, None),
        (None, 3, NOW + 4 * SECOND),
        (NOW - SECOND, 3, NOW + 4 * SECOND),
        (NOW + SECOND, 4, NOW + 3 * SECOND),
        (NOW + 50 * SECOND, 0, NOW + 60 * SECOND),
        (NOW + 90 * SECOND, 0, NOW + 90 * SECOND),
    ],
    ids=["all seen", "two unseen", "long ago", "beside ours", "a minute at most", "further away"],
)
def test_what_was_written_on_the_phone_since_it_looked_is_taken_from_the_pace(
    arrival: datetime | None, written: int, after: datetime | None
) -> None:
    lane = LaneStateFactory.create(epoch=EPOCH, holder="me", written_elsewhere=5, theoretical_arrival=arrival)
    leave(lane, written=written)
    assert (lane.holder, lane.theoretical_arrival) == ("", after)


def test_a_lane_of_another_holder_is_not_given_back() -> None:
    lane = LaneStateFactory.create(epoch=EPOCH + 1, holder="other", due_at=NOW, crashes=1)
    leave(lane)
    assert (lane.holder, lane.due_at, lane.crashes) == ("other", NOW, 1)


def test_due_lanes_are_the_free_ones_the_longest_waiting_first() -> None:
    late, later = LaneStateFactory.create(due_at=NOW), LaneStateFactory.create(due_at=EARLIER)
    LaneStateFactory.create(due_at=NOW + SECOND)
    LaneStateFactory.create(due_at=EARLIER, holder="other")
    LaneStateFactory.create(due_at=None)

    def due(limit: int) -> list[int]:
        rows = with_ledger(lambda ledger: ledger.read(lane_rows.DUE_LANES, {"now": NOW, "limit": limit}))
        return [row["account_id"] for row in rows]

    assert due(10) == [later.account_id, late.account_id]
    assert due(1) == [later.account_id]


def test_an_account_that_cannot_be_read_rests_and_counts_as_a_crash() -> None:
    lane, beside = (LaneStateFactory.create(holder="me", crashes=1, due_at=NOW) for _ in range(2))
    account = {"account": lane.account_id, "until": LATER}
    assert with_ledger(lambda ledger: ledger.write(lane_rows.LEAVE_UNREAD, account)) == [{"crashes": 2}]
    lane.refresh_from_db()
    assert (lane.holder, lane.due_at, lane.why) == ("", LATER, "the account cannot be read")
    with_ledger(lambda ledger: ledger.write(lane_rows.NOTHING_DUE, (lane.account_id,)))
    lane.refresh_from_db()
    beside.refresh_from_db()
    assert (lane.due_at, lane.crashes) == (None, 0)
    assert (beside.holder, beside.due_at, beside.crashes) == ("me", NOW, 1)


# --- a break that the provider asked for --------------------------------------------------------------------

SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("epoch", "before", "after"),
    [(EPOCH + 1, None, 60), (EPOCH + 1, 30, 60), (EPOCH + 1, 90, 90), (EPOCH, None, None)],
    ids=["none yet", "a shorter one", "a longer one", "the lane is ours and writes it itself"],
)
def test_a_break_reaches_the_lanes_holder_and_is_never_shortened(
    epoch: int, before: float | None, after: float | None
) -> None:
    target = in_flight()
    lane = LaneState.objects.filter(account=target.account_id)
    lane.update(epoch=epoch, next_send_at=before and NOW + before * SECOND)
    record(target, "pending", hold_until=NOW + 60 * SECOND)
    assert lane.get().next_send_at == (after and NOW + after * SECOND)
    assert lane.get().probing is (epoch != EPOCH)


@pytest.mark.parametrize(
    ("until", "at", "kept"),
    [(60, 0, True), (60, 61, False), (None, 0, False)],
    ids=["during the break", "after it", "a trial without a break"],
)
def test_a_lane_that_does_not_know_of_a_break_does_not_end_it(until: float | None, at: float, kept: bool) -> None:
    target = pending()
    lane = LaneState.objects.filter(account=target.account_id)
    lane.update(epoch=EPOCH, next_send_at=until and NOW + until * SECOND, probing=True, slow_factor=1.5)

    async def leave(ledger: Ledger) -> None:
        ledger.leave_lane(lane_write(target.account_id, at=NOW + at * SECOND))

    with_ledger(leave)
    assert lane.get().probing is kept
    assert (lane.get().next_send_at == NOW + 60 * SECOND) is kept
    assert (lane.get().slow_factor == 1.5) is kept


# --- what a crash left ------------------------------------------------------------------------------------


def settle_in_flight(taken: list[int], repeatable: list[int]) -> holding.Rescued:
    return with_ledger(lambda ledger: holding.settle_in_flight(ledger, taken, repeatable))


def test_targets_in_flight_become_unconfirmed_unless_a_repeat_is_safe() -> None:
    once, again, beside = in_flight(), in_flight(next_attempt_at=EARLIER, settled_at=EARLIER), in_flight()
    waiting = pending(once.run)
    rescued = settle_in_flight([once.account_id, again.account_id], [again.account_id, beside.account_id])
    assert rescued == holding.Rescued(2, frozenset())
    for target in (once, again, beside, waiting):
        target.refresh_from_db()
    assert [once.status, again.status] == ["unconfirmed", "pending"]
    assert [once.in_doubt, again.in_doubt, again.next_attempt_at, again.settled_at] == [True, True, None, None]
    assert [once.error_kind, again.error_kind] == ["unknown", "unknown"]
    assert "may have been delivered" in once.error
    assert "repeated under the same id" in again.error
    assert [beside.status, waiting.status, waiting.in_doubt] == ["sending", "pending", False]


def lane_of(holder: str, crashes: int = 0, busy: bool = True, epoch: int = EPOCH) -> LaneState:
    """A lane that its holder left without a word."""
    account = AccountFactory.create()
    if busy:
        in_flight(make_run(reminder__account=account), claim_epoch=epoch)
    lane, _ = LaneState.objects.update_or_create(
        account=account, defaults={"epoch": EPOCH, "holder": holder, "crashes": crashes}
    )
    return lane


def crashes_of(*lanes: LaneState, found: LaneState | None = None) -> list[int]:
    """After another driver has found the first of them without a holder."""
    account = (found or lanes[0]).account_id
    with_ledger(lambda ledger: holding.settle_crashes(ledger, [account], "me", NOW))
    for lane in lanes:
        lane.refresh_from_db()
    return [lane.crashes for lane in lanes]


def test_a_crash_counts_against_lanes_that_had_something_in_flight() -> None:
    busy, idle = lane_of("dead"), lane_of("dead", busy=False)
    earlier, beside = lane_of("dead", epoch=EPOCH - 1), lane_of("alive")
    assert crashes_of(busy, idle, earlier, beside) == [1, 0, 0, 0]
    assert [lane.holder for lane in (busy, idle, earlier, beside)] == ["", "", "", "alive"]


def test_targets_settled_by_this_holder_were_not_in_flight() -> None:
    lane = lane_of("dead")
    RunTarget.objects.filter(account=lane.account_id).update(status="sent")
    assert crashes_of(lane) == [0]


def test_where_a_dead_driver_held_suspects_only_they_are_counted() -> None:
    assert crashes_of(lane_of("dead", crashes=2), lane_of("dead", crashes=1), lane_of("dead")) == [3, 1, 0]


def test_one_crash_makes_no_suspect() -> None:
    assert crashes_of(lane_of("dead", crashes=1), lane_of("dead")) == [2, 1]


def test_our_own_lanes_have_not_crashed() -> None:
    mine = lane_of("me")
    assert crashes_of(mine) == [0]
    assert mine.holder == "me"


@pytest.mark.parametrize(
    ("token", "minutes_after_start", "crashes"),
    [
        case("dead", -1, 0, id="postgresql-was-restarted"),
        case("dead", 0, 1, id="it-beat-at-that-moment"),
        case("dead", 1, 1, id="it-beat-after-that"),
        case("another", -1, 1, id="another-driver"),
    ],
)
def test_a_restart_of_postgresql_is_not_a_crash(token: str, minutes_after_start: int, crashes: int) -> None:
    (row,) = with_ledger(lambda ledger: ledger.read("SELECT pg_postmaster_start_time() AS at"))
    DriverFactory.create(token=token, beat_at=row["at"] + timedelta(minutes=minutes_after_start))
    assert crashes_of(lane_of("dead")) == [crashes]


@pytest.mark.parametrize(("ended_at", "crashes"), [(NOW, 0), (None, 1)], ids=["ended in order", "did not"])
def test_a_driver_that_ended_in_order_has_not_crashed_although_it_could_not_give_its_lanes_back(
    ended_at: datetime | None, crashes: int
) -> None:
    (row,) = with_ledger(lambda ledger: ledger.read("SELECT pg_postmaster_start_time() AS at"))
    DriverFactory.create(token="dead", beat_at=row["at"] + timedelta(minutes=1), ended_at=ended_at)
    assert crashes_of(lane_of("dead")) == [crashes]


@pytest.mark.parametrize(("minutes_after_start", "ended_at", "crashes"), [(-1, None, 0), (1, None, 1), (1, NOW, 0)])
def test_nor_is_it_one_when_the_same_slot_starts_again_first(
    minutes_after_start: int, ended_at: datetime | None, crashes: int
) -> None:
    (row,) = with_ledger(lambda ledger: ledger.read("SELECT pg_postmaster_start_time() AS at"))
    beat_at = row["at"] + timedelta(minutes=minutes_after_start)
    last = DriverFactory.create(token="dead", beat_at=beat_at, ended_at=ended_at)
    lane = lane_of("dead")
    slot = {"host": last.host, "slot": last.slot, "token": "new", "pid": 1}
    with_ledger(lambda ledger: ledger.write(holding.START_DRIVER, slot))
    assert crashes_of(lane) == [crashes]
    lane.refresh_from_db()
    assert lane.holder == ""


@pytest.mark.parametrize("before", [True, False], ids=["used before", "first use"])
def test_a_driver_starts_with_no_lanes(before: bool) -> None:
    if before:
        DriverFactory.create(host="here", slot=0, token="last", lanes=5, pid=7, ended_at=NOW)
    slot = {"host": "here", "slot": 0, "token": "new", "pid": 8}
    with_ledger(lambda ledger: ledger.write(holding.START_DRIVER, slot))
    driver = Driver.objects.get()
    assert (driver.token, driver.pid, driver.lanes, driver.ended_at) == ("new", 8, 0, None)


@pytest.mark.parametrize(("seconds_ago", "drivers"), [(1, 2), (4, 1)])
def test_a_driver_that_has_just_ended_has_its_share(seconds_ago: float, drivers: int) -> None:
    (row,) = with_ledger(lambda ledger: ledger.read("SELECT clock_timestamp() AS at, pg_backend_pid() AS pid"))
    DriverFactory.create(slot=0, backend_pid=row["pid"], beat_at=row["at"])
    DriverFactory.create(slot=1, backend_pid=1, beat_at=row["at"], ended_at=row["at"] - seconds_ago * SECOND)
    asked = {"now": NOW, "silent_after": 10 * SECOND, "successor_within": SUCCESSOR_WITHIN}
    (share,) = with_ledger(lambda ledger: ledger.read(holding.SHARE, asked))
    assert share["drivers"] == drivers


@pytest.mark.parametrize(
    ("crashes", "status"), [case(3, "active", id="the-fourth"), case(4, "suspended", id="the-fifth")]
)
def test_the_only_suspect_is_suspended_after_five_crashes(crashes: int, status: str) -> None:
    lane, innocent = lane_of("dead", crashes=crashes), lane_of("dead")
    assert crashes_of(lane, innocent) == [crashes + 1, 0]
    lane.account.refresh_from_db()
    innocent.account.refresh_from_db()
    assert (lane.account.status, innocent.account.status) == (status, "active")


def test_with_two_suspects_neither_is_alone() -> None:
    one, other = lane_of("dead", crashes=4), lane_of("dead", crashes=4)
    assert crashes_of(one, other) == [5, 5]
    one.account.refresh_from_db()
    assert one.account.status == "active"


def test_only_a_suspect_is_alone() -> None:
    suspect, innocent = lane_of("dead", crashes=2), lane_of("dead", crashes=1)
    holder = {"holder": "dead", "suspect": holding.SUSPECT_AFTER}
    rows = with_ledger(lambda ledger: ledger.write(holding.COUNT_CRASH, holder))
    alone = {row["account_id"]: row["alone"] for row in rows}
    assert alone == {suspect.account_id: True, innocent.account_id: False}


def test_an_idle_suspect_is_not_suspended_by_the_crash_of_others() -> None:
    idle = lane_of("dead", crashes=4, busy=False)
    assert crashes_of(idle) == [4]
    idle.account.refresh_from_db()
    assert idle.account.status == "active"


# --- the books --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["sending", "sent", "unconfirmed", "pending"])
def test_the_first_attempt_of_a_run_is_its_first_claim(status: str) -> None:
    """A target moved there with the claim of another run has not been attempted in this one."""
    run = make_run()
    in_flight(run, status=status)
    run.refresh_from_db()
    assert run.first_attempt_at == (NOW if status == "sending" else None)
    in_flight(run, claimed_at=LATER)
    run.refresh_from_db()
    assert run.first_attempt_at == (NOW if status == "sending" else LATER)
