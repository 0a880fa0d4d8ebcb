"""Statements around a run's transitions: what they change, for which runs, and what they leave alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fanout.database import LOCK_RUNS, Steps, carry_out, execute
from fanout.models import Event, LaneState, Notification, PauseReason, Run, RunTarget
from fanout.rules.gates import Close, Wait
from fanout.runs import texts, transitions
from tests.factories import AccountFactory, NotificationFactory, RunFactory, RunTargetFactory

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)  # a Monday
EARLIER, LATER = NOW - timedelta(hours=1), NOW + timedelta(hours=1)
LIVE = {"queued", "running", "waiting"}
JUDGED = {"success", "partial", "failed"}
STATUSES = list(Run.Status)
case = pytest.param


def make(status: str = "running", **fields: Any) -> Run:
    """Make a run, and another one beside it in the same state that no statement may change."""
    reason = "operator" if status == "paused" else ""
    facts = {"scheduled_for": NOW, "status": status, "pause_reason": reason, "error_summary": "before"} | fields
    RunFactory.create(**{**facts, "title": "beside"})
    run: Run = RunFactory.create(**{**facts, "title": "Rent"})
    return run


def one(statement: str, parameters: dict[str, Any]) -> Steps[Any]:
    return (yield statement, parameters)


# --- start ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("started_at", [None, EARLIER])
def test_what_is_queued_or_waits_starts(status: str, started_at: datetime | None) -> None:
    run = make(status, started_at=started_at, waiting_until=LATER, waiting_why="cap")
    execute(transitions.START, [[run.pk], [NOW]])
    run.refresh_from_db()
    if status in ("queued", "waiting"):
        assert (run.status, run.waiting_until, run.waiting_why) == ("running", None, "")
        assert run.started_at == (started_at or NOW)
    else:
        assert (run.status, run.waiting_until, run.started_at) == (status, LATER, started_at)
    assert Run.objects.get(title="beside").status == status


# --- a plan that is delayed ------------------------------------------------------------------------------------


def test_a_slip_is_noted_from_the_first_pending_target_of_the_account() -> None:
    run = make(delays={"7": {"why": "cap"}})
    planned: list[dict[str, Any]] = [
        {"status": "sent", "planned_at": NOW - timedelta(minutes=9)},
        {"account": AccountFactory.create(), "planned_at": NOW - timedelta(minutes=8)},
        {"planned_at": NOW - timedelta(minutes=5)},
        {"planned_at": NOW - timedelta(minutes=7)},
    ]
    for position, fields in enumerate(planned):
        RunTargetFactory.create(run=run, position=position, **fields)
    RunTargetFactory.create(run=RunFactory.create(account=run.account), position=0, planned_at=EARLIER)
    carry_out(transitions.wait(run.pk, run.account_id, Wait(LATER, "w" * 300), NOW))
    run.refresh_from_db()
    mine = run.delays.pop(str(run.account_id))
    assert run.delays == {"7": {"why": "cap"}}
    assert datetime.fromisoformat(mine["from"]) == NOW - timedelta(minutes=5)
    assert (datetime.fromisoformat(mine["to"]), mine["why"]) == (LATER, "w" * 200)
    assert Run.objects.get(title="beside").delays == {"7": {"why": "cap"}}


def test_who_steps_aside_has_no_time_and_says_so() -> None:
    one_, two = AccountFactory.create(), AccountFactory.create()
    run = make(account=one_, lanes=[one_.pk, two.pk])
    for account in (one_, two):
        RunTargetFactory.create(run=run, account=account)
    assert carry_out(transitions.step_aside(run.pk, one_.pk, "Ann", "x" * 300, NOW))
    run.refresh_from_db()
    assert run.delays[str(one_.pk)] == {"from": None, "to": None, "why": "x" * 200}
    event = Event.objects.get()
    assert (event.run, event.at, event.verb, event.detail) == (run, NOW, "stepped aside", f"Ann: {'x' * 300}")


# --- paused, and going on ---------------------------------------------------------------------------------


@pytest.mark.parametrize("auto_resume", [False, True])
@pytest.mark.parametrize("reason", [PauseReason.WINDOW_CLOSED, PauseReason.CIRCUIT_BREAKER])
def test_a_gate_tells_the_owner_and_plans_nothing_without_facts(auto_resume: bool, reason: PauseReason) -> None:
    run = make(targets={"pending": 1}, auto_resume=auto_resume)
    assert carry_out(transitions.pause(run.pk, Close(reason, "why"), {}, NOW))
    run.refresh_from_db()
    assert (run.resume_at, list(run.delays)) == (None, [str(run.account_id)])
    told = Notification.objects.get()
    assert (told.user, told.run, told.level, told.created_at) == (run.owner, run, "warning", NOW)
    event = Event.objects.get()
    assert (event.run, event.verb, event.detail) == (run, "paused", run.error_summary)
    assert run.error_summary not in ("", "before")
    assert Run.objects.get(title="beside").error_summary == "before"


@pytest.mark.parametrize(
    ("status", "reason", "targets", "renewed"),
    [
        case("paused", "operator", {"sent": 1, "pending": 1}, True, id="paused"),
        case("paused", "operator", {"sending": 1}, False, id="in-flight"),
        case("paused", "window_closed", {"pending": 1}, False, id="by-a-gate"),
        case("running", "", {"pending": 1}, False, id="going-on"),
    ],
)
def test_which_run_is_described_again(status: str, reason: str, targets: dict[str, int], renewed: bool) -> None:
    run = make(status, pause_reason=reason, targets=targets)
    carry_out(transitions.describe_again(run.pk, NOW))
    run.refresh_from_db()
    assert (run.error_summary != "before") is renewed
    assert Run.objects.get(title="beside").error_summary == "before"


@pytest.mark.parametrize("status", STATUSES)
def test_only_a_paused_run_is_resumed(status: str) -> None:
    run = make(status, resume_at=LATER, finished_at=EARLIER)
    done = carry_out(transitions.resume(run.pk, [run.account_id], LATER, NOW))
    run.refresh_from_db()
    assert done is (status == "paused")
    assert run.status == ("queued" if done else status)
    assert Run.objects.get(title="beside").status == status
    assert LaneState.objects.filter(account=run.account_id, wake_count=1, due_at=NOW, probing=False).exists() is done
    if done:
        assert (run.pause_reason, run.error_summary, run.finished_at, run.resume_at) == ("", "", None, None)
        assert (run.window_closes_at, run.delays[str(run.account_id)]["why"]) == (LATER, "resumed")


@pytest.mark.parametrize("paused", [False, True])
def test_message_2_is_taken_up_with_all_that_owe_something(paused: bool) -> None:
    owing, idle, new = (AccountFactory.create() for _ in range(3))
    run = make("paused", pause_reason="window_closed", account=owing, lanes=[owing.pk, idle.pk], resume_at=LATER)
    RunTargetFactory.create(run=run, account=owing)
    RunTargetFactory.create(run=run, account=idle, status="sent")
    RunTargetFactory.create(run=RunFactory.create(), account=idle)
    lanes = carry_out(transitions.reopen_for_account(run.pk, new.pk, LATER, paused, NOW))
    run.refresh_from_db()
    assert lanes == run.lanes == sorted([owing.pk, new.pk])
    state = ("paused", "operator", NOW) if paused else ("queued", "", None)
    assert (run.status, run.pause_reason, run.finished_at) == state
    assert (run.window_closes_at, run.resume_at, run.error_summary) == (LATER, None, "")
    assert Run.objects.get(title="beside").status == "paused"


@pytest.mark.parametrize(("closes_at", "after"), [case(LATER, NOW, id="later"), case(EARLIER, EARLIER, id="earlier")])
@pytest.mark.parametrize("already", [False, True])
def test_message_2_that_goes_on_gets_one_lane_more(closes_at: datetime, after: datetime, already: bool) -> None:
    account = AccountFactory.create()
    run = make("running", window_closes_at=NOW)
    lanes = [*run.lanes, *([account.pk] if already else [])]
    Run.objects.filter(pk=run.pk).update(lanes=lanes)
    assert carry_out(transitions.reopen_for_account(run.pk, account.pk, closes_at, False, NOW)) == [
        run.account_id,
        account.pk,
    ]
    run.refresh_from_db()
    assert (run.status, run.lanes, run.window_closes_at) == ("running", [run.account_id, account.pk], after)
    beside = Run.objects.get(title="beside")
    assert (account.pk in beside.lanes, beside.window_closes_at) == (False, NOW)


@pytest.mark.parametrize("status", STATUSES)
def test_what_is_reopened_is_paused_first(status: str) -> None:
    """One that is finished; another has its lanes told."""
    run = make(status, waiting_until=LATER, waiting_why="cap")
    assert carry_out(transitions.reopen(run.pk, NOW)) is (status in JUDGED)
    run.refresh_from_db()
    paused = (run.status, run.pause_reason, run.finished_at, run.waiting_until) == ("paused", "operator", NOW, None)
    assert paused is (status in JUDGED)
    assert paused or (run.status, run.waiting_until) == (status, LATER)
    assert Run.objects.get(title="beside").status == status


@pytest.mark.parametrize("status", list(RunTarget.Status))
def test_which_targets_are_reopened(status: str) -> None:
    run = make("paused", parts=[{"kind": "text", "text": "Hi"}] * 2)
    facts = {"status": status, "attempts": 3, "error": "gone", "error_kind": "auth", "settled_at": EARLIER}
    target, beside = (
        RunTargetFactory.create(run=run, parts_sent=2, in_doubt=True, next_attempt_at=LATER, **facts) for _ in range(2)
    )
    reopened = status in ("failed", "unconfirmed")
    assert carry_out(transitions.reopen_targets(run.pk, [target.pk], 2, NOW)) == (int(reopened), False)
    for row in (target, beside):
        row.refresh_from_db()
    fresh = ("pending", 0, "", "", None, None, 1, NOW, False)
    seen: tuple[Any, ...] = (target.status, target.attempts, target.error, target.error_kind, target.settled_at)
    seen += (target.next_attempt_at, target.parts_sent, target.reopened_at, target.in_doubt)
    assert (seen == fresh) is reopened
    assert (beside.status, beside.attempts, beside.parts_sent) == (status, 3, 2)


@pytest.mark.parametrize(("parts", "sent", "after"), [(0, 1, 0), (1, 1, 0), (2, 1, 1), (3, 1, 1), (2, 2, 1)])
def test_a_bounced_target_gets_its_last_part_again(parts: int, sent: int, after: int) -> None:
    target = RunTargetFactory.create(run=make("paused"), status="failed", parts_sent=sent)
    carry_out(transitions.reopen_targets(target.run_id, [target.pk], parts, NOW))
    target.refresh_from_db()
    assert target.parts_sent == after


@pytest.mark.parametrize("status", STATUSES)
def test_what_becomes_of_a_run_whose_target_is_reopened(status: str) -> None:
    """Its account is a lane of it and is woken, also if it was resumed meanwhile. A canceled run stays as it is."""
    run = make(status)
    account = AccountFactory.create()
    target = RunTargetFactory.create(run=run, account=account, status="failed")
    RunTargetFactory.create(run=Run.objects.get(title="beside"), account=account, status="failed")
    goes_on = status in LIVE | JUDGED | {"paused"}
    reopened = carry_out(transitions.reopen_targets(run.pk, [target.pk], 1, NOW))
    assert reopened == (int(goes_on), status in JUDGED)
    run.refresh_from_db()
    target.refresh_from_db()
    assert (target.status, account.pk in run.lanes) == ("pending" if goes_on else "failed", goes_on)
    assert run.status == ("paused" if status in JUDGED else status)
    assert LaneState.objects.filter(account=account, due_at=NOW).exists() is goes_on
    beside = Run.objects.get(title="beside")
    assert (beside.status, beside.lanes, beside.failed) == (status, [beside.account_id], 1)


# --- lanes ------------------------------------------------------------------------------------------------


def test_lanes_are_added_once_and_in_order() -> None:
    run = make()
    one, two = AccountFactory.create().pk, AccountFactory.create().pk
    for accounts in ([two], [one, two], [two, one]):
        carry_out(transitions.add_lanes(run.pk, accounts, NOW))
    run.refresh_from_db()
    assert run.lanes == [run.account_id, two, one]
    assert [lane.wake_count for lane in LaneState.objects.filter(account__in=[one, two]).order_by("account")] == [2, 3]
    assert Run.objects.get(title="beside").lanes != run.lanes


def test_who_still_has_something_to_send() -> None:
    run = make()
    accounts: dict[str, int] = {status: AccountFactory.create().pk for status in RunTarget.Status}
    for status, account in accounts.items():
        RunTargetFactory.create_batch(3, run=run, account_id=account, status=status)
        RunTargetFactory.create(run=Run.objects.get(title="beside"), status=status)
    seen = [row["id"] for row in execute(transitions.SENDERS, {"run": run.pk})]
    assert seen == sorted([accounts["pending"], accounts["sending"]])


@pytest.mark.parametrize("status", sorted({*STATUSES} - JUDGED))
@pytest.mark.parametrize(
    ("delay", "aside"),
    [
        case(None, False, id="no-delay"),
        case({"to": None, "from": None, "why": "cap"}, True, id="stepped-aside"),
        case({"to": LATER.isoformat(), "from": None, "why": "cap"}, False, id="waited"),
    ],
)
def test_which_lanes_a_run_has_forgotten(status: str, delay: dict[str, Any] | None, aside: bool) -> None:
    run = make(status, targets={"pending": 1})
    account = AccountFactory.create()
    RunTargetFactory.create_batch(2, run=run, account=account)
    Run.objects.filter(pk=run.pk).update(delays={str(account.pk): delay} if delay else {})
    forgotten = status in LIVE | {"paused"} and not aside
    assert carry_out(transitions.name_lanes(run.pk, NOW)) == ([account.pk] if forgotten else [])
    assert carry_out(transitions.name_lanes(run.pk, NOW)) == []
    run.refresh_from_db()
    assert run.lanes == [run.account_id, *([account.pk] if forgotten else [])]
    assert LaneState.objects.filter(account=account).exists() is forgotten


# --- finished ---------------------------------------------------------------------------------------------


def test_the_causes_are_those_of_this_run_and_of_what_was_not_delivered() -> None:
    run = make(targets={"sent": 1})
    for status, kind, error in (
        ("failed", "hard_bounce", "550"),
        ("failed", "auth", "535"),
        ("failed", "auth", "535"),
        ("skipped", "", "opted_out"),
        ("unconfirmed", "unknown", "?"),
    ):
        RunTargetFactory.create(run=run, status=status, error_kind=kind, error=error)
    RunTargetFactory.create(run=Run.objects.get(title="beside"), status="failed", error_kind="banned")
    RunTargetFactory.create(run=Run.objects.get(title="beside"), status="skipped", error="blacklisted")
    rows = execute(transitions.CAUSES, {"run": run.pk})
    assert [(row["status"], row["cause"], row["count"]) for row in rows] == [
        ("failed", "auth", 2),
        ("failed", "hard_bounce", 1),
        ("skipped", "opted_out", 1),
    ]


@pytest.mark.parametrize(
    ("answers", "told"), [case(False, 1, id="a-run"), case(True, 0, id="message-2-ends-after-every-reply")]
)
def test_who_is_told_that_it_is_finished(answers: bool, told: int) -> None:
    run = make(targets={"sent": 1})
    if answers:
        Run.objects.filter(pk=run.pk).update(answers=Run.objects.get(title="beside"))
    assert carry_out(transitions.finish(run.pk, NOW))
    run.refresh_from_db()
    assert (run.status, run.error_summary) == ("success", "")
    assert Notification.objects.filter(level="info").count() == Notification.objects.count() == told
    assert Event.objects.filter(run=run, verb="success").count() == told


@pytest.mark.parametrize("status", STATUSES)
def test_a_bounce_is_told_of_finished_runs_only(status: str) -> None:
    targets = {"sent": 1, "failed": 1} if status in JUDGED else {"sent": 1, "pending": 1}
    run = make(status, targets=targets)
    carry_out(transitions.came_back(run.pk, "gone", NOW))
    run.refresh_from_db()
    again = status in JUDGED
    assert Notification.objects.filter(user=run.owner, run=run, level="warning").count() == int(again)
    assert Notification.objects.count() == int(again)
    assert Event.objects.filter(run=run, verb="partial").exists() is (again and status != "partial")
    assert (run.error_summary != "before") is again


@pytest.mark.parametrize(
    ("fields", "renewed"),
    [
        case({}, True, id="not-passed-on-yet"),
        case({"passed_on_at": EARLIER}, False, id="passed-on"),
        case({"title": "Reminder sent"}, False, id="about-something-else"),
        case({"run": "beside"}, False, id="of-another-run"),
        case({"user": "another"}, False, id="another-users"),
    ],
)
def test_which_notification_is_kept_up_to_date(fields: dict[str, Any], renewed: bool) -> None:
    run = make("partial", targets={"sent": 1, "failed": 1})
    fields = {name: Run.objects.get(title="beside") if name == "run" else value for name, value in fields.items()}
    if "user" in fields:
        fields = {"user": AccountFactory.create().owner}
    known = NotificationFactory.create(
        **{"user": run.owner, "run": run, "title": texts.CAME_BACK, "body": "old", "read_at": EARLIER} | fields
    )
    carry_out(transitions.came_back(run.pk, "gone", NOW))
    known.refresh_from_db()
    assert (known.body != "old", known.read_at is None) == (renewed, renewed)
    assert Notification.objects.exclude(pk=known.pk).count() == int(not renewed)


@pytest.mark.parametrize("status", list(RunTarget.Status))
def test_only_what_is_pending_is_taken_out_and_an_empty_run_is_finished(status: str) -> None:
    run = make()
    target, other = (RunTargetFactory.create(run=run, status=status) for _ in range(2))
    ids = [target.pk, *([other.pk] if status == "pending" else [])]
    assert carry_out(transitions.take_out(ids[:1], "replied", NOW)) == int(status == "pending")
    target.refresh_from_db()
    other.refresh_from_db()
    run.refresh_from_db()
    assert (other.status, run.status) == (status, "running")
    if status == "pending":
        assert (target.status, target.error, target.settled_at) == ("skipped", "replied", NOW)
        assert carry_out(transitions.take_out(ids, "replied", NOW)) == 1
        run.refresh_from_db()
        assert run.status == "skipped"
    else:
        assert (target.status, target.error) == (status, "")


def test_nothing_to_take_out_runs_no_query(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        assert carry_out(transitions.take_out([], "replied", NOW)) == 0


# --- canceled ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", STATUSES)
def test_which_runs_are_canceled(status: str) -> None:
    run = make(status, resume_at=LATER, waiting_until=LATER, targets={"sent": 1})
    done = carry_out(transitions.cancel(run.pk, run.owner_id, NOW))
    run.refresh_from_db()
    assert done is (status in LIVE | {"paused", "preparing"})
    assert run.status == ("canceled" if done else status)
    assert Run.objects.get(title="beside").status == status
    assert Event.objects.filter(run=run, verb="canceled", actor=run.owner, at=NOW).count() == int(done)
    assert LaneState.objects.filter(account=run.account_id, due_at=NOW).exists() is done
    if done:
        assert (run.resume_at, run.waiting_until, run.pause_reason, run.finished_at) == (None, None, "", NOW)


def test_canceled_counts_what_will_not_be_sent() -> None:
    run = make(targets={"pending": 2, "skipped": 3, "sent": 1, "sending": 1})
    carry_out(transitions.cancel(run.pk, None, NOW))
    assert Event.objects.get().detail == "5 skipped"


@pytest.mark.parametrize(
    ("status", "target", "skipped"),
    [
        case("canceled", "pending", True, id="pending"),
        case("canceled", "sending", False, id="in-flight"),
        case("canceled", "unconfirmed", False, id="in-doubt"),
        case("running", "pending", False, id="not-canceled"),
        case("paused", "pending", False, id="paused"),
    ],
)
def test_what_is_skipped_of_a_canceled_run(status: str, target: str, skipped: bool) -> None:
    run = make(status)
    mine, theirs = RunTargetFactory.create(run=run, status=target), RunTargetFactory.create(run=RunFactory.create())
    Run.objects.filter(pk=theirs.run_id).update(status="canceled")
    assert carry_out(transitions.skip_canceled(run.pk, NOW)) is False
    for row in (mine, theirs):
        row.refresh_from_db()
    assert (mine.status, mine.error) == (("skipped", texts.CANCELED) if skipped else (target, ""))
    assert theirs.status == "pending"


@pytest.mark.parametrize(("rows", "more"), [(0, False), (4_999, False), (5_000, True)])
@pytest.mark.parametrize("skip", [transitions.skip_canceled, transitions.skip_unstarted])
def test_a_full_chunk_may_not_be_the_last(skip: Any, rows: int, more: bool) -> None:
    steps = skip(7, NOW)
    assert next(steps) == (LOCK_RUNS, {"runs": [7]}), "the run before its targets"
    steps.send([])
    with pytest.raises(StopIteration) as end:
        steps.send([{"id": n} for n in range(rows)])
    assert end.value.value is more


# --- the words --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("status", "written"), [("partial", True), ("success", False)])
def test_a_summary_is_written_only_while_it_is_still_true(status: str, written: bool) -> None:
    run = make("partial")
    carry_out(one(*transitions._summarise({"id": run.pk, "status": status}, "after")))
    run.refresh_from_db()
    assert run.error_summary == ("after" if written else "before")
    assert Run.objects.get(title="beside").error_summary == "before"


@pytest.mark.parametrize(
    ("status", "level"), [("paused", "warning"), ("failed", "warning"), ("partial", "warning"), ("success", "info")]
)
def test_how_loud_it_is_told(status: str, level: str) -> None:
    run = make(status)
    row = {**Run.objects.filter(pk=run.pk).values().get(), "channel": "sandbox"}
    _, parameters = transitions._tell(row, "words", NOW, LATER)
    assert (parameters["level"], parameters["resume_at"], parameters["summary"]) == (level, LATER, "words")
    assert parameters["owner"] == run.owner_id


def make_beside(status: str = "running", **fields: Any) -> Run:
    """Make a run, and another one beside it that no statement may change."""
    RunFactory.create(scheduled_for=NOW, status="waiting", waiting_why="beside", lanes=[1, 2])
    reason = "operator" if status == "paused" else ""
    run: Run = RunFactory.create(**{"scheduled_for": NOW, "status": status, "pause_reason": reason} | fields)
    return run


def reread(run: Run) -> Run:
    beside = Run.objects.exclude(pk=run.pk).get()
    assert (beside.status, beside.waiting_why, beside.lanes, beside.total) == ("waiting", "beside", [1, 2], 0)
    return Run.objects.get(pk=run.pk)


@pytest.mark.parametrize("status", STATUSES)
def test_only_a_live_run_waits(status: str) -> None:
    run = make_beside(status)
    assert carry_out(transitions.wait(run.pk, run.account_id, Wait(LATER, "daily cap"), NOW)) is (status in LIVE)
    assert reread(run).status == ("waiting" if status in LIVE else status)


@pytest.mark.parametrize(
    ("until", "why", "news"),
    [
        case(LATER, "daily cap", False, id="the-same"),
        case(LATER + timedelta(minutes=1), "daily cap", True, id="longer"),
        case(LATER, "business hours", True, id="for-something-else"),
    ],
)
def test_a_wait_is_counted_once(until: datetime, why: str, news: bool) -> None:
    run = make_beside("waiting", waiting_until=LATER, waiting_why="daily cap", seconds_waiting=3600)
    assert carry_out(transitions.wait(run.pk, run.account_id, Wait(until, why), NOW)) is news
    assert (reread(run).seconds_waiting > 3600) is news


@pytest.mark.parametrize(
    ("until", "counts", "seconds"),
    [case(LATER, True, 3600, id="counts"), case(LATER, False, 0, id="not"), case(EARLIER, True, 0, id="over-already")],
)
def test_how_long_a_wait_counts(until: datetime, counts: bool, seconds: float) -> None:
    run = make_beside("running", started_at=EARLIER)
    assert carry_out(transitions.wait(run.pk, run.account_id, Wait(until, "why"), NOW, counts))
    assert (reread(run).seconds_waiting, reread(run).started_at) == (seconds, EARLIER)


def two_lanes(other: str, status: str = "running") -> tuple[Run, int]:
    """A run of two accounts; the second has one target in this status."""
    one, two = AccountFactory.create(), AccountFactory.create()
    run = make_beside(status, account=one, lanes=[one.pk, two.pk])
    RunTargetFactory.create(run=run, account=one)
    RunTargetFactory.create(run=run, account=two, status=other)
    # Of another run, or of an account that does not send for this one: these are not continued.
    for left in ("pending", "sending"):
        RunTargetFactory.create(run=run, account=AccountFactory.create(), status=left)
    return run, one.pk


@pytest.mark.parametrize(
    ("other", "aside"),
    [("pending", True), ("sending", True), ("sent", False), ("failed", False), ("unconfirmed", False)],
)
def test_a_lane_steps_aside_while_another_has_something(other: str, aside: bool) -> None:
    run, account = two_lanes(other)
    assert carry_out(transitions.step_aside(run.pk, account, "One", "cap", NOW)) is aside
    assert (account in reread(run).lanes) is not aside


@pytest.mark.parametrize("status", sorted({"paused", "canceled"} | LIVE))
def test_a_lane_steps_aside_from_live_runs_only(status: str) -> None:
    run, account = two_lanes("pending", status)
    assert carry_out(transitions.step_aside(run.pk, account, "One", "cap", NOW)) is (status in LIVE)


def test_a_lane_steps_aside_from_this_run_alone() -> None:
    run, account = two_lanes("pending")
    another = RunFactory.create(scheduled_for=LATER, status="running", account_id=account, lanes=run.lanes)
    for lane in run.lanes:
        RunTargetFactory.create(run=another, account_id=lane)
    assert carry_out(transitions.step_aside(run.pk, account, "One", "cap", NOW))
    another.refresh_from_db()
    assert another.lanes == run.lanes


def test_its_own_targets_are_no_reason_to_step_aside() -> None:
    account = AccountFactory.create()
    run = make_beside(account=account, lanes=[account.pk], targets={"pending": 2, "sending": 1})
    assert not carry_out(transitions.step_aside(run.pk, account.pk, "One", "cap", NOW))
    assert reread(run).lanes == [account.pk]


def test_targets_of_another_run_are_no_reason_to_step_aside() -> None:
    run, account = two_lanes("sent")
    two = next(lane for lane in run.lanes if lane != account)
    beside = Run.objects.exclude(pk=run.pk).get()
    target = RunTargetFactory.create(run=run, account_id=two)
    RunTarget.objects.filter(pk=target.pk).delete()
    another = RunFactory.create(account_id=two, scheduled_for=LATER, targets={"pending": 1, "sending": 1})
    assert not carry_out(transitions.step_aside(run.pk, account, "One", "cap", NOW))
    another.delete()
    beside.refresh_from_db()


GATE = Close(PauseReason.WINDOW_CLOSED, "window")


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("by", ["a gate", "an operator"])
def test_only_a_live_run_is_paused(status: str, by: str) -> None:
    targets = {"sent": 1} if status in JUDGED else {"sent": 1, "pending": 1}
    run = make_beside(status, targets=targets, waiting_until=LATER, waiting_why="why")
    steps = (
        transitions.pause(run.pk, GATE, {}, NOW) if by == "a gate" else transitions.pause_by_operator(run.pk, None, NOW)
    )
    assert carry_out(steps) is (status in LIVE)
    run = reread(run)
    if status in LIVE:
        reason = "window_closed" if by == "a gate" else "operator"
        assert (run.status, run.pause_reason, run.finished_at) == ("paused", reason, NOW)
        assert (run.waiting_until, run.waiting_why) == (None, "")
    else:
        assert (run.status, run.finished_at) == (status, None)


@pytest.mark.parametrize(
    ("targets", "paused"),
    [
        case({"sent": 1, "pending": 1}, True, id="something-left"),
        case({"sent": 2}, False, id="nothing-left"),
        case({"pending": 1, "sending": 1}, False, id="something-in-flight"),
        case({"sent": 1, "sending": 1}, False, id="only-in-flight"),
    ],
)
def test_a_gate_pauses_once_nothing_is_in_flight(targets: dict[str, int], paused: bool) -> None:
    run = make_beside(targets=targets)
    assert carry_out(transitions.pause(run.pk, GATE, {}, NOW)) is paused
    assert reread(run).status == ("paused" if paused else "running")


def test_an_operator_does_not_wait_for_anything() -> None:
    run = make_beside(targets={"sending": 1})
    assert carry_out(transitions.pause_by_operator(run.pk, None, NOW))
    assert reread(run).status == "paused"


@pytest.mark.parametrize("status", STATUSES)
def test_which_runs_are_finished(status: str) -> None:
    run = make_beside(status, targets={"sent": 1}, waiting_until=LATER, waiting_why="why", resume_at=LATER)
    finished = status in LIVE | {"paused", "partial", "failed"}
    assert carry_out(transitions.finish(run.pk, NOW)) is finished
    run = reread(run)
    assert run.status == ("success" if finished else status)
    if finished:
        assert (run.pause_reason, run.waiting_until, run.waiting_why, run.resume_at) == ("", None, "", None)


def test_a_run_that_is_judged_again_keeps_the_moment_of_its_end() -> None:
    run = make_beside("partial", targets={"sent": 1}, finished_at=EARLIER)
    assert carry_out(transitions.finish(run.pk, NOW))
    assert (reread(run).status, reread(run).finished_at) == ("success", EARLIER)


@pytest.mark.parametrize(
    ("targets", "verdict"),
    [
        case({"sent": 2}, "success", id="all"),
        case({"sent": 1, "skipped": 1}, "partial", id="some"),
        case({"unconfirmed": 2}, "failed", id="none"),
        case({}, "failed", id="no-targets"),
    ],
)
def test_the_verdict(targets: dict[str, int], verdict: str) -> None:
    run = make_beside(targets=targets)
    assert carry_out(transitions.finish(run.pk, NOW))
    assert (reread(run).status, reread(run).finished_at) == (verdict, NOW)


@pytest.mark.parametrize("left", ["pending", "sending"])
def test_a_run_with_something_left_is_not_finished(left: str) -> None:
    run = make_beside(targets={"sent": 1, left: 1})
    assert not carry_out(transitions.finish(run.pk, NOW))
    assert reread(run).status == "running"


@pytest.mark.parametrize("status", [status for status in STATUSES if status not in JUDGED])
def test_only_what_is_pending_in_a_live_run_is_skipped_unstarted(status: str) -> None:
    run = make_beside(status)
    pending, failed = RunTargetFactory.create(run=run), RunTargetFactory.create(run=run, status="failed", error="gone")
    assert carry_out(transitions.skip_unstarted(run.pk, NOW)) is False
    for target in (pending, failed):
        target.refresh_from_db()
    assert (failed.status, failed.error) == ("failed", "gone")
    skipped = (pending.status, pending.settled_at) == ("skipped", NOW)
    assert skipped is (status in LIVE)
    assert skipped or pending.status == "pending"


@pytest.mark.parametrize(
    ("in_flight", "first_attempt_at"), [(False, EARLIER), (True, None)], ids=["tried", "in flight"]
)
def test_a_run_that_was_tried_is_not_skipped_unstarted(in_flight: bool, first_attempt_at: datetime | None) -> None:
    run = make_beside("running")
    target = RunTargetFactory.create(run=run)
    if in_flight:
        RunTargetFactory.create(run=run, status="sending", claimed_at=NOW)
    Run.objects.filter(pk=run.pk).update(first_attempt_at=first_attempt_at)
    carry_out(transitions.skip_unstarted(run.pk, NOW))
    target.refresh_from_db()
    assert target.status == "pending"


@pytest.mark.parametrize("reason", ["", *PauseReason])
@pytest.mark.parametrize("status", STATUSES)
def test_message_2_is_reopened_unless_something_stopped_it(status: str, reason: str) -> None:
    if (status == "paused") is not bool(reason):
        return
    run = make_beside(status, pause_reason=reason)
    row = {"run": run.pk, "account": run.account_id, "closes_at": LATER, "paused": False, "now": NOW}
    taken = bool(carry_out(one_statement(transitions.REOPEN_FOR_ACCOUNT, row)))
    assert taken is (status in JUDGED or reason == "window_closed")
    assert reread(run).status == ("queued" if taken else status)


def one_statement(statement: str, parameters: dict[str, Any]) -> Steps[Any]:
    return (yield statement, parameters)
