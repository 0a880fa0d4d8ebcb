"""Reading accounts and their queues: every condition of the statements, and what is made of the rows."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fanout.models import LaneState, Run, RunTarget
from fanout.plans import queue
from fanout.plans.forecast import _wholly_queued, goes_on_from
from fanout.plans.projection import Queued, Work, as_datetime, project_sends
from fanout.runs import corrections
from fanout.runs.planning import plan_anew
from reminders.models import Recipient
from reminders.window import Window
from tests.factories import (
    AccountFactory,
    ActivityFactory,
    LaneStateFactory,
    ReminderFactory,
    RunFactory,
    RunTargetFactory,
)

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)  # a Monday
HOUR, SECOND = timedelta(hours=1), timedelta(seconds=1)
#: a finished run has nothing to send: the database enforces it
UNFINISHED = [status for status in Run.Status if status not in ("success", "partial", "failed")]
OPEN = {"preparing", "queued", "running", "waiting"}
case = pytest.param


def make(status: str = "running", **fields: Any) -> Run:
    reason = "operator" if status == "paused" else ""
    run: Run = RunFactory.create(**{"scheduled_for": NOW, "status": status, "pause_reason": reason} | fields)
    return run


# --- how fast the provider answers ------------------------------------------------------------------------


def answered(run: Run, seconds: float | None, at: datetime = NOW, **activity: Any) -> None:
    latency = None if seconds is None else int(seconds * 1000)
    target = RunTargetFactory.create(run=run, status="sent", latency_ms=latency)
    ActivityFactory.create(**{"account": run.account, "run_target": target, "at": at} | activity)


@pytest.mark.parametrize(
    "other",
    [
        case({"action": "email"}, id="another-action"),
        case({"outcome": "failed"}, id="a-failure"),
        case({"seconds": None}, id="not-measured"),
        case({"at": NOW - HOUR}, id="long-ago"),
    ],
)
def test_which_answers_are_measured(monkeypatch: pytest.MonkeyPatch, other: dict[str, Any]) -> None:
    run = make()
    monkeypatch.setattr(queue, "MEASURED", 3)
    for _ in range(2 if other.get("seconds", 9) is None else 3):
        answered(run, 0.5)
    answered(run, other.get("seconds", 9), **{k: v for k, v in other.items() if k != "seconds"})
    assert queue.measured_latencies({run.account_id: "message"}) == {run.account_id: 0.5}


def test_latencies_are_per_account_and_unknown_before_the_first_send() -> None:
    one, two = make(), make()
    answered(one, 0.5)
    answered(two, 2)
    counted = dict.fromkeys([one.account_id, two.account_id, AccountFactory.create().pk], "message")
    assert queue.measured_latencies(counted) == {one.account_id: 0.5, two.account_id: 2.0}


# --- their queues ----------------------------------------------------------------------------------------


def queue_of(*accounts: int) -> dict[int, list[tuple[int, int, int]]]:
    """Return each account's queue: the run, its targets and its messages, in the lane's order."""
    queues = queue.queues_of(list(accounts))
    return {pk: [(q.run_id, q.work.targets, q.work.messages) for q in those] for pk, those in queues.items()}


@pytest.mark.parametrize("status", UNFINISHED)
@pytest.mark.parametrize("resume_at", [None, NOW + HOUR], ids=["", "goes on by itself"])
def test_which_runs_are_queued(status: str, resume_at: datetime | None) -> None:
    run = make(status, resume_at=resume_at)
    RunTargetFactory.create(run=run)
    waits = status in OPEN or (status == "paused" and resume_at)
    assert queue_of(run.account_id) == ({run.account_id: [(run.pk, 1, 1)]} if waits else {})


@pytest.mark.parametrize("status", list(RunTarget.Status))
def test_which_targets_are_queued(status: str) -> None:
    run = make(parts=[{"kind": "text", "text": "Hi"}] * 3)
    RunTargetFactory.create(run=run, status=status, parts_sent=1)
    Run.objects.filter(pk=run.pk).update(status="running")
    assert queue_of(run.account_id) == ({run.account_id: [(run.pk, 1, 2)]} if status in ("pending", "sending") else {})


def test_each_account_owes_its_own_targets_while_it_sends_for_the_run() -> None:
    one, two, aside = (AccountFactory.create() for _ in range(3))
    run = make(account=one, lanes=[one.pk, two.pk])
    for account, targets in ((one, 1), (two, 2), (aside, 3)):
        for _ in range(targets):
            RunTargetFactory.create(run=run, account=account)
    assert queue_of(one.pk, two.pk, aside.pk) == {one.pk: [(run.pk, 1, 1)], two.pk: [(run.pk, 2, 2)]}
    assert queue_of(two.pk) == {two.pk: [(run.pk, 2, 2)]}
    assert queue_of(aside.pk) == {}


def test_runs_stand_in_the_order_in_which_they_were_due_and_tests_ahead_of_all() -> None:
    account = AccountFactory.create()
    second = make(account=account, targets={"pending": 1})
    third = make(account=account, targets={"pending": 1})
    first = make(account=account, scheduled_for=NOW - HOUR, targets={"pending": 1})
    test = make(account=account, scheduled_for=NOW + HOUR, is_test=True, targets={"pending": 1})
    assert [run for run, *_ in queue_of(account.pk)[account.pk]] == [test.pk, first.pk, second.pk, third.pk]


def test_message_2_goes_ahead_of_what_was_due_before() -> None:
    first = make(targets={"pending": 1})
    answer = make(account=first.account, answers=first, scheduled_for=NOW + HOUR, targets={"pending": 1})
    assert [run for run, *_ in queue_of(first.account_id)[first.account_id]] == [answer.pk, first.pk]


@pytest.mark.parametrize(
    ("status", "resume_at", "starts"),
    [
        case("paused", NOW + HOUR, NOW + HOUR, id="paused"),
        case("running", NOW + HOUR, NOW, id="resumed-before-that"),
        case("running", None, NOW, id="running"),
    ],
)
def test_when_what_is_owed_may_go(status: str, resume_at: datetime | None, starts: datetime) -> None:
    run = make(status, resume_at=resume_at, targets={"pending": 1})
    (queued,) = queue.queues_of([run.account_id])[run.account_id]
    assert (queued.starts, queued.due) == (starts, (NOW, run.pk))
    assert goes_on_from(run, NOW - HOUR) == starts
    assert goes_on_from(run, NOW + 2 * HOUR) == NOW + 2 * HOUR


@pytest.mark.parametrize(
    ("status", "fields", "wholly"),
    [
        *(case(status, {}, True, id=status) for status in sorted(OPEN)),
        case("paused", {"resume_at": NOW}, True, id="paused-and-goes-on"),
        case("paused", {}, False, id="paused"),
        case("success", {"resume_at": NOW}, False, id="success"),
        case("canceled", {}, False, id="canceled"),
        case("running", {"delays": {"0": {}}}, False, id="one-has-stepped-aside"),
    ],
)
def test_what_stands_wholly_in_the_queues(status: str, fields: dict[str, Any], wholly: bool) -> None:
    run = make(status, **fields)
    assert _wholly_queued(run) is wholly
    run.delays = {**run.delays, str(run.account_id): {}}
    assert _wholly_queued(run) is wholly, "a delay of a lane that sends is no step aside"


# --- a list of accounts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("status", UNFINISHED)
@pytest.mark.parametrize("archived", [False, True])
def test_which_runs_wait_for_an_account(status: str, archived: bool) -> None:
    run = make(status)
    RunTargetFactory.create(run=run)
    Run.objects.filter(pk=run.pk).update(archived=archived)
    waits = status in Run.UNFINISHED and not archived
    assert queue.pending_by_account([run.account_id]) == ({run.account_id: 1} if waits else {})


def test_what_waits_for_an_account_is_pending_its_own_and_counted_up_to_a_limit(
    monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: Any
) -> None:
    one, two = AccountFactory.create(), AccountFactory.create()
    run = make(account=one, lanes=[one.pk, two.pk], targets={"pending": 3, "sending": 1, "sent": 1})
    RunTargetFactory.create(run=run, account=two)
    make(account=two, lanes=[two.pk], targets={"pending": 1})
    make("canceled", account=one, targets={"pending": 1})
    assert queue.pending_by_account([one.pk, two.pk]) == {one.pk: 3, two.pk: 2}
    assert queue.pending_by_account([one.pk]) == {one.pk: 3}
    monkeypatch.setattr(queue, "MOST_PENDING", 1)
    assert queue.pending_by_account([one.pk]) == {one.pk: 2}, "one more than the limit says that it is more"
    with django_assert_num_queries(0):
        assert queue.pending_by_account([]) == {}


# --- what is left of a run ---------------------------------------------------------------------------------


def test_what_is_left_by_account() -> None:
    run = make(parts=[{"kind": "text", "text": "Hi"}] * 2, targets={"pending": 2, "sending": 1, "sent": 4})
    other = AccountFactory.create()
    RunTargetFactory.create(run=run, account=other, parts_sent=1)
    assert queue.work_by_account(run) == {run.account_id: Work(6, 2, 3), other.pk: Work(1, 2, 1)}


@pytest.mark.parametrize(("parts", "count"), [(0, 1), (1, 1), (3, 3)])
def test_a_run_without_parts_counts_as_one_of_one(parts: int, count: int) -> None:
    run = make(parts=[{"kind": "text", "text": "Hi"}] * parts)
    assert queue.part_count(run) == count
    (read,) = queue.with_part_count(Run.objects.filter(pk=run.pk))
    assert queue.part_count(read) == count


@pytest.mark.parametrize(
    ("fields", "moves"),
    [
        case({}, True, id="pending"),
        case({"status": "sending"}, False, id="in-flight"),
        case({"status": "unconfirmed"}, False, id="unconfirmed"),
        case({"parts_sent": 1}, False, id="between-two-parts"),
        case({"in_doubt": True}, False, id="may-have-gone-out"),
        case({"account": "smtp"}, False, id="of-another-channel"),
        case({"account": "mine"}, False, id="its-own-already"),
    ],
)
def test_what_an_offload_moves(fields: dict[str, Any], moves: bool) -> None:
    run, helper = make(), AccountFactory.create()
    accounts = {"smtp": AccountFactory.create(channel="smtp"), "mine": helper}
    if "account" in fields:
        fields = {"account": accounts[fields["account"]]}
    target = RunTargetFactory.create(run=run, **fields)
    RunTargetFactory.create(run=make())
    assert list(queue.movable(run, helper)) == ([target] if moves else [])


@pytest.mark.parametrize(
    ("new", "persons", "senders", "share"),
    [
        case(4, 4, 1, 4, id="alone"),
        case(4, 4, 2, 2, id="half-of-them"),
        case(3, 4, 2, 2, id="rounded-up"),
        case(0, 4, 2, 0, id="none-new"),
        case(3, 0, 1, 0, id="no-persons"),
    ],
)
def test_how_many_new_chats_an_account_begins(new: int, persons: int, senders: int, share: int) -> None:
    accounts = [AccountFactory.create(channel="whatsapp", config={}) for _ in range(senders)]
    kinds = {"person": persons, "group": 7}
    assert queue.new_share(accounts[-1], accounts, kinds, new) == share


@pytest.mark.parametrize(
    ("account", "held"),
    [
        case({"status": "suspended", "status_until": NOW + HOUR}, True, id="suspended"),
        case({"status": "suspended"}, False, id="no-known-end"),
        case({"status": "active", "status_until": NOW + HOUR}, False, id="active"),
    ],
)
def test_a_suspended_account_sends_when_it_is_over(account: dict[str, Any], held: bool) -> None:
    plan = queue.account_snapshot(AccountFactory.create(**account), NOW)
    (send,) = project_sends(plan, [Queued(Work.of(1), Window("UTC"), NOW)], NOW, random.Random(1))
    assert as_datetime(send.at) == (NOW + HOUR if held else NOW)


def test_a_run_that_is_being_prepared_owes_what_was_not_copied_yet() -> None:
    reminder = ReminderFactory.create(targets=3)
    run = make("preparing", reminder=reminder, lanes=[])
    assert queue.lanes_of(run) == [reminder.account_id]
    (queued,) = queue.queues_of([reminder.account_id])[reminder.account_id]
    assert (queued.run_id, queued.work) == (run.pk, Work(3, 1, 3))
    assert queue.queues_of([AccountFactory.create().pk]) == {}
    run.status, run.lanes = "running", [1]
    assert queue.lanes_of(run) == [1]


# --- planned anew -----------------------------------------------------------------------------------------


def planned(run: Run) -> list[tuple[str, datetime | None]]:
    return list(run.targets.order_by("position").values_list("status", "planned_at"))


def test_only_what_is_pending_gets_a_new_time() -> None:
    account = AccountFactory.create(max_send_per_minute=60, send_burst=1)
    LaneStateFactory.create(account=account)
    run = make(account=account, targets={"sending": 1, "pending": 2, "sent": 1})
    delays = {str(account.pk): {"from": None}, "0": {"from": None}}
    Run.objects.filter(pk=run.pk).update(delays=delays)
    done = make("success", account=account, delays=delays)
    plan_anew(account, NOW)
    assert planned(run) == [
        ("sending", None),
        ("pending", NOW + SECOND),
        ("pending", NOW + 2 * SECOND),
        ("sent", None),
    ]
    run.refresh_from_db()
    done.refresh_from_db()
    assert (run.delays, done.delays) == ({"0": {"from": None}}, delays), "what moved the old plan says nothing now"


def test_one_run_is_planned_anew_behind_the_others() -> None:
    account = AccountFactory.create(max_send_per_minute=60, send_burst=1)
    delays = {str(account.pk): {"from": None}}
    first, second = (make(account=account, targets={"pending": 2}, delays=delays) for _ in range(2))
    plan_anew(account, NOW, second)
    assert [at for _, at in planned(first)] == [None, None]
    assert [at for _, at in planned(second)] == [NOW + 2 * SECOND, NOW + 3 * SECOND]
    first.refresh_from_db()
    second.refresh_from_db()
    assert (first.delays, second.delays) == (delays, {})


def test_targets_that_have_had_a_part_are_planned_first() -> None:
    account = AccountFactory.create(max_send_per_minute=60, send_burst=1)
    run = make(account=account, parts=[{"kind": "text", "text": "Hi"}] * 2)
    late, begun = RunTargetFactory.create(run=run), RunTargetFactory.create(run=run, parts_sent=1)
    plan_anew(account, NOW)
    for target in (late, begun):
        target.refresh_from_db()
    assert begun.planned_at == NOW
    assert late.planned_at == NOW + SECOND


def test_what_others_send_for_the_run_keeps_its_time() -> None:
    account, other = AccountFactory.create(), AccountFactory.create()
    run = make(account=account, lanes=[account.pk, other.pk], targets={"pending": 1})
    theirs = RunTargetFactory.create(run=run, account=other, planned_at=NOW - HOUR)
    plan_anew(account, NOW)
    theirs.refresh_from_db()
    assert theirs.planned_at == NOW - HOUR
    assert Recipient.objects.count() == 2


def test_what_was_sent_and_what_may_have_gone_out_stays_where_it_is():
    office, community = AccountFactory.create(label="Office line"), AccountFactory.create(label="Community line")
    run = RunFactory.create(
        reminder__account=office,
        status="paused",
        pause_reason="account_capacity",
        targets={"sent": 2, "pending": 5, "skipped": 1},
    )
    first, second = run.targets.filter(status="pending").values_list("pk", flat=True)[:2]
    RunTarget.objects.filter(pk=first).update(parts_sent=1)
    RunTarget.objects.filter(pk=second).update(in_doubt=True)
    shares = queue.run_shares(run)
    assert queue.shares_in_words(shares) == "7 via Office line"
    assert queue.shares_in_words(queue.pending_shares([run])) == "5 via Office line"
    foretold = queue.shares_in_words(queue.shares_after_offload(shares, community))
    assert foretold == "4 via Office line, 3 via Community line"
    answer = corrections.offload(run, community, None, run.scheduled_for, and_resume=True)
    assert answer.text.startswith(f"3 targets moved to Community line: {foretold}.")
    assert answer.text.endswith("Resumed: 5 still to send.")
    run.refresh_from_db()
    assert (run.status, set(run.lanes)) == ("queued", {office.pk, community.pk})


def test_both_accounts_look_again_when_a_running_run_is_moved():
    run = RunFactory.create(status="running", targets={"pending": 2})
    other = AccountFactory.create()
    for account in (run.account, other, AccountFactory.create()):
        LaneStateFactory.create(account=account, due_at=None, wake_count=3)
    assert corrections.offload(run, other, None, NOW).ok
    looked = dict(LaneState.objects.filter(due_at=NOW, wake_count__gt=3).values_list("account_id", "wake_count"))
    assert set(looked) == {run.account_id, other.pk}


def test_an_account_of_another_channel_takes_nothing():
    run = RunFactory.create(reminder__account__label="Community line", status="running", targets={"pending": 2})
    mail = AccountFactory.create(label="Mailbox", channel="smtp")
    assert queue.shares_in_words(queue.shares_after_offload(queue.run_shares(run), mail)) == "2 via Community line"
