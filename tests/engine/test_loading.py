"""Look-ups of a lane: what each of their conditions excludes and includes."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from fanout.engine import commit, holding, lane_loop, loading, uploads
from fanout.engine.commit import array
from fanout.engine.connection import Row
from fanout.engine.loading import Remaining, Target, Uploaded, Wanted
from fanout.lanes import lane_rows
from fanout.models import KnownChat, Run, RunTarget
from reminders.models import Suppression
from tests.engine.ledgers import NOW, ledger_in_test, with_ledger
from tests.factories import AccountFactory, LaneStateFactory, MediaUploadFactory, RunFactory, RunTargetFactory

__all__ = ["ledger_in_test"]
pytestmark = pytest.mark.usefixtures("ledger_in_test")
case = pytest.param

SECOND = timedelta(seconds=1)


def make_run(**fields: Any) -> Run:
    run: Run = RunFactory.create(**{"scheduled_for": NOW, "status": "running"} | fields)
    return run


def target(run: Run | None = None, **fields: Any) -> RunTarget:
    made: RunTarget = RunTargetFactory.create(run=run or make_run(), **fields)
    return made


def change(thing: Any, **fields: Any) -> None:
    type(thing).objects.filter(pk=thing.pk).update(**fields)


def read(statement: str, parameters: Any) -> list[Row]:
    return with_ledger(lambda ledger: ledger.read(statement, parameters))


def fetched(of: RunTarget, **fields: Any) -> list[Target]:
    """The next targets of its run and account."""
    values: dict[str, Any] = {
        "run": of.run_id,
        "account": of.account_id,
        "now": NOW,
        "open": "{}",
        "earlier": "{}",
        "follow_up": False,
        "no_new_chats": False,
        "message_1": None,
        "follows": None,
        "most": 10,
    }
    (targets,) = with_ledger(lambda ledger: loading.next_targets(ledger, [Wanted(**values | fields)]))
    return targets


def ids(targets: list[Target]) -> list[int]:
    return [one.id for one in targets]


# --- the next targets -----------------------------------------------------------------------------------------


def test_targets_are_those_of_the_run_and_the_account_in_their_order() -> None:
    run = make_run()
    second, first = target(run, position=2), target(run, position=1)
    target(run, account=AccountFactory.create(), position=0)
    target(make_run(reminder__account=run.account), position=0)
    assert ids(fetched(first)) == [first.pk, second.pk]
    assert ids(fetched(first, most=1)) == [first.pk]


def test_every_lane_that_asks_gets_its_own() -> None:
    one, other = target(), target()
    wanted = [Wanted(t.run_id, t.account_id, NOW, "{}", "{}", False, False, None, None, 10) for t in (other, one)]
    answers = with_ledger(lambda ledger: loading.next_targets(ledger, wanted))
    assert list(map(ids, answers)) == [[other.pk], [one.pk]]


@pytest.mark.parametrize("status", ["pending", "sending", "sent", "failed", "skipped", "unconfirmed"])
def test_only_what_is_pending_is_fetched(status: str) -> None:
    one = target(status=status)
    assert ids(fetched(one)) == [one.pk] * (status == "pending")


@pytest.mark.parametrize(
    ("at", "fetches"),
    [case(None, True, id="at-once"), case(NOW, True, id="now"), case(NOW + SECOND, False, id="later")],
)
def test_a_retry_is_fetched_when_its_time_has_come(at: datetime | None, fetches: bool) -> None:
    one = target(next_attempt_at=at)
    assert ids(fetched(one)) == [one.pk] * fetches


def test_open_targets_are_not_fetched_again() -> None:
    one = target(position=1)
    other = target(one.run, position=2)
    assert ids(fetched(one, open=array([one.pk]))) == [other.pk]


@pytest.mark.parametrize(
    ("status", "same_person", "earlier", "fetches"),
    [
        case("pending", True, True, False, id="it-is-sent-something"),
        case("sending", True, True, False, id="it-is-being-sent-something"),
        case("sent", True, True, True, id="it-has-got-it"),
        case("failed", True, True, True, id="it-never-will"),
        case("pending", False, True, True, id="somebody-else-is-sent-something"),
        case("pending", True, False, True, id="by-a-later-run"),
    ],
)
def test_nothing_overtakes_an_earlier_run(status: str, same_person: bool, earlier: bool, fetches: bool) -> None:
    one, before = target(), make_run()
    target(before, status=status, **({"recipient": one.recipient} if same_person else {}))
    assert ids(fetched(one, earlier=array([before.pk] if earlier else []))) == [one.pk] * fetches


@pytest.mark.parametrize(("follow_up", "another"), [(True, True), (True, False), (False, True)])
def test_a_follow_up_passes_over_whom_another_account_writes_one_to(follow_up: bool, another: bool) -> None:
    one = target(make_run(follow_up=follow_up))
    if another:
        target(make_run(follow_up=True), recipient=one.recipient, address=one.address, status="sending")
    assert ids(fetched(one, follow_up=follow_up)) == [one.pk] * (not (follow_up and another))


@pytest.mark.parametrize(
    ("kind", "known", "new"),
    [
        case("person", "", True, id="a-stranger"),
        case("person", "mine", False, id="somebody-known"),
        case("person", "other", True, id="known-to-another-account"),
        case("group", "", False, id="a-group"),
    ],
)
def test_new_chats_are_named_and_passed_over_where_none_may_begin(kind: str, known: str, new: bool) -> None:
    one, other = target(), AccountFactory.create()
    change(one.recipient, kind=kind)
    if known:
        account = one.account if known == "mine" else other
        KnownChat.objects.create(account=account, address=one.address, begun_at=NOW)
    (found,) = fetched(one)
    assert found.new_chat is new
    assert ids(fetched(one, no_new_chats=True)) == [one.pk] * (not new)


@pytest.mark.parametrize(
    ("reason", "expires_at", "suppressed"),
    [
        case("manual", None, "manual", id="for-good"),
        case("manual", NOW + SECOND, "manual", id="until-later"),
        case("manual", NOW, "", id="until-now"),
        case("", None, "", id="not-at-all"),
    ],
)
def test_a_suppression_counts_while_it_lasts(reason: str, expires_at: datetime | None, suppressed: str) -> None:
    one = target()
    Suppression.objects.create(address="somebody@example.com", reason="manual")
    if reason:
        Suppression.objects.create(address=one.address, reason=reason, expires_at=expires_at)
    (found,) = fetched(one)
    assert found.facts.suppressed == suppressed


@pytest.mark.parametrize(
    ("parts_sent", "same_person", "answers", "no_message_1"),
    [
        case(0, True, True, True, id="nothing-of-it-has-arrived"),
        case(1, True, True, False, id="a-part-has-arrived"),
        case(0, False, True, False, id="of-somebody-else"),
        case(0, True, False, False, id="it-answers-nothing"),
    ],
)
def test_message_2_follows_only_what_has_arrived_of_message_1(
    parts_sent: int, same_person: bool, answers: bool, no_message_1: bool
) -> None:
    first, one = make_run(), target()
    target(first, parts_sent=parts_sent, status="failed", **({"recipient": one.recipient} if same_person else {}))
    (found,) = fetched(one, message_1=first.pk if answers else None)
    assert found.facts.no_message_1 is no_message_1


@pytest.mark.parametrize(
    ("replied_at", "follows", "has_replied"),
    [(None, True, False), (NOW - SECOND, True, False), (NOW, True, True), (NOW, False, False)],
)
def test_a_follow_up_knows_whether_the_person_has_replied(
    replied_at: datetime | None, follows: bool, has_replied: bool
) -> None:
    first, one = make_run(), target()
    target(first, status="sent", claimed_at=NOW, recipient=one.recipient)
    change(one.recipient, replied_at=replied_at)
    (found,) = fetched(one, follow_up=True, follows=first.pk if follows else None)
    assert found.facts.has_replied is has_replied


def test_a_target_comes_with_all_that_decides_about_it() -> None:
    one = target(parts_sent=1, attempts=2, values={"name": "Ann"}, expires_at=NOW + SECOND)
    change(one.recipient, status="closed", follow_up_attempts=2, cooldown_until=NOW, limited=True)
    (found,) = fetched(one, follow_up=True)
    assert (found.address, found.parts_sent, found.attempts, found.values) == (one.address, 1, 2, {"name": "Ann"})
    person = found.facts.person
    assert (person.status, person.follow_up_attempts, person.cooldown_until, person.limited) == ("closed", 2, NOW, True)
    assert (found.facts.follow_up, found.facts.expires_at) == (True, NOW + SECOND)


# --- what is left of a run --------------------------------------------------------------------------------------


def remaining_of(of: RunTarget, no_new_chats: bool = False) -> tuple[bool, bool, datetime | None]:
    asked = [Remaining(of.run_id, of.account_id, no_new_chats)]
    (row,) = with_ledger(lambda ledger: loading.next_retries(ledger, asked))
    return row["pending"], row["free"], row["at"]


@pytest.mark.parametrize(
    ("status", "at", "expected"),
    [
        case("pending", None, (True, True, None), id="something-at-once"),
        case("pending", NOW, (True, True, NOW), id="a-retry"),
        case("sending", NOW, (False, False, None), id="nothing-but-what-is-in-flight"),
    ],
)
def test_the_rest_of_a_run_is_its_pending_targets(status: str, at: datetime | None, expected: tuple[Any, ...]) -> None:
    one = target(status=status, next_attempt_at=at)
    target(one.run, account=AccountFactory.create(), next_attempt_at=NOW - SECOND)  # of another lane
    target(next_attempt_at=NOW - SECOND)
    target(make_run(reminder__account=one.account), next_attempt_at=NOW - SECOND)  # of another run
    assert remaining_of(one) == expected


def test_the_first_retry_is_the_next() -> None:
    one = target(next_attempt_at=NOW + SECOND)
    target(one.run, next_attempt_at=NOW)
    target(one.run)
    assert remaining_of(one) == (True, True, NOW)


@pytest.mark.parametrize(
    ("kind", "held", "expected"),
    [
        case("person", True, (True, False, None), id="nothing-but-new-chats"),
        case("person", False, (True, True, NOW), id="new-chats-may-begin"),
        case("group", True, (True, True, NOW), id="a-group"),
    ],
)
def test_held_new_chats_are_not_free(kind: str, held: bool, expected: tuple[Any, ...]) -> None:
    one = target(next_attempt_at=NOW)
    change(one.recipient, kind=kind)
    assert remaining_of(one, held) == expected


def test_every_run_that_asks_has_its_answer_in_its_order() -> None:
    one, other = target(next_attempt_at=NOW), target(next_attempt_at=NOW + SECOND)
    asked = [Remaining(t.run_id, t.account_id, False) for t in (other, one)]
    rows = with_ledger(lambda ledger: loading.next_retries(ledger, asked))
    assert [row["at"] for row in rows] == [NOW + SECOND, NOW]


# --- accounts, runs and files ------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", list(Run.Status))
def test_a_lane_has_the_runs_that_live(status: str) -> None:
    run = make_run(status=status, pause_reason="operator" if status == "paused" else "")
    make_run(status=status, pause_reason="operator" if status == "paused" else "")  # of another account
    found = [row["id"] for row in read(loading.RUNS, {"accounts": [run.account_id]})]
    assert found == [run.pk] * (status in Run.LIVE)


def test_tests_come_first_then_replies_then_what_was_due_first() -> None:
    account = AccountFactory.create()
    late, early = (make_run(reminder__account=account, scheduled_for=NOW + n * SECOND) for n in (1, 0))
    reply = make_run(reminder__account=account, scheduled_for=NOW + 2 * SECOND, answers=early)
    test = make_run(reminder__account=account, scheduled_for=NOW + 3 * SECOND, is_test=True)
    same = make_run(reminder__account=account, scheduled_for=NOW + SECOND)
    found = [row["id"] for row in read(loading.RUNS, {"accounts": [account.pk]})]
    assert found == [test.pk, reply.pk, early.pk, late.pk, same.pk]


def test_a_run_of_two_lanes_is_read_once_and_belongs_to_both() -> None:
    one, other, third = (LaneStateFactory.create().account for _ in range(3))
    run = make_run(reminder__account=one, lanes=[one.pk, third.pk, other.pk])
    loads = with_ledger(lambda ledger: loading.load(ledger, [one.pk, other.pk], NOW))
    assert {account: [r.id for r in load.runs] for account, load in loads.items()} == {
        one.pk: [run.pk],
        other.pk: [run.pk],
    }


def test_loads_come_in_the_order_in_which_they_were_asked_for() -> None:
    one, other = (LaneStateFactory.create().account_id for _ in range(2))
    asked = [(other, NOW), (one, NOW + timedelta(days=1))]
    loads = with_ledger(lambda ledger: loading.load_again(ledger, asked))
    assert [load.account.config.id for load in loads] == [other, one]
    assert loads[0].account.day[0] == NOW.replace(hour=0) + timedelta(days=1)  # one reading of the clock for all


@pytest.mark.parametrize(
    ("budget", "with_run", "begun"),
    [case(30, True, 1, id="limited"), case(None, True, 0, id="no-limit"), case(30, False, 0, id="nothing-to-send")],
)
def test_chats_begun_today_are_counted_where_they_are_limited(budget: int | None, with_run: bool, begun: int) -> None:
    account = LaneStateFactory.create(account__new_chats_per_day=budget).account
    if with_run:
        make_run(reminder__account=account)
    KnownChat.objects.create(account=account, address="+491701234567", begun_at=NOW)
    KnownChat.objects.create(account=account, address="+491701234568", begun_at=NOW - timedelta(days=1))
    load = with_ledger(lambda ledger: loading.load(ledger, [account.pk], NOW))[account.pk]
    assert load.account.new_chats.begun == begun


def test_a_lane_knows_the_handles_of_its_own_files() -> None:
    account = LaneStateFactory.create().account
    file = {"sha256": "a" * 64, "filename": "a.png", "mime": "image/png", "size": 4}
    make_run(reminder__account=account, parts=[{"kind": "image", "text": "", "media": file}])
    MediaUploadFactory.create(account=account, sha256="a" * 64, handle="mine", expires_at=NOW)
    MediaUploadFactory.create(account=account, sha256="b" * 64, handle="of another file")
    MediaUploadFactory.create(sha256="a" * 64, handle="of another account")
    load = with_ledger(lambda ledger: loading.load(ledger, [account.pk], NOW))[account.pk]
    assert load.handles == {("a" * 64, ""): Uploaded("mine", NOW)}


@pytest.mark.parametrize(
    ("minutes", "usable"), [(None, True), (6, True), (5, False), (-1, False)], ids=["no end", "long", "soon", "over"]
)
def test_a_handle_that_is_about_to_expire_is_not_worth_starting_with(minutes: int | None, usable: bool) -> None:
    expires_at = None if minutes is None else NOW + timedelta(minutes=minutes)
    assert Uploaded("handle", expires_at).usable(NOW) is usable


def test_an_upload_that_is_remembered_again_replaces_the_first() -> None:
    account = AccountFactory.create()

    def remember(handle: str, kind: str, at: datetime) -> None:
        row = (account.pk, "a" * 64, kind, handle, 4, at, at)
        with_ledger(lambda ledger: ledger.write(uploads.REMEMBER_UPLOAD, row))

    remember("first", "", NOW)
    remember("again", "", NOW + SECOND)
    remember("another", "audio", NOW)
    rows = read(loading.UPLOADS, ([account.pk], ["a" * 64]))
    assert sorted((row["kind"], row["handle"], row["expires_at"]) for row in rows) == [
        ("", "again", NOW + SECOND),
        ("audio", "another", NOW),
    ]


# --- what others left ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "left"),
    [
        case({}, True, id="left-behind"),
        case({"delayed": False}, False, id="it-did-not-step-aside"),
        case({"in_lanes": True}, False, id="it-is-back"),
        case({"pending": "sent"}, False, id="it-left-nothing"),
        case({"in_flight": True}, False, id="something-is-in-flight"),
        case({"others": "pending"}, False, id="another-lane-goes-on"),
        case({"others": "sent"}, True, id="the-other-lane-is-done"),
        case({"others_aside": True}, True, id="what-others-left-too"),
    ],
)
def test_targets_left_by_a_lane_that_stepped_aside(fields: dict[str, Any], left: bool) -> None:
    aside, other, third = (AccountFactory.create() for _ in range(3))
    change(aside, status="suspended")
    lanes = [other.pk, *([aside.pk] if fields.get("in_lanes") else [])]
    delays = {str(aside.pk): {"why": "banned"}} if fields.get("delayed", True) else {}
    run = make_run(reminder__account=other, lanes=lanes, delays=delays)
    target(run, account=aside, status=fields.get("pending", "pending"))
    if fields.get("in_flight"):
        target(run, account=other, status="sending")
    if "others" in fields:
        target(run, account=other, status=fields["others"])
    if fields.get("others_aside"):
        target(run, account=third)
    beside = make_run(delays=delays, lanes=[third.pk])  # another run that was left alike
    target(beside, account=aside)
    assert read(lane_loop.LEFT_BEHIND, {"run": run.pk}) == [{"status": "suspended", "why": "banned"}] * left


@pytest.mark.parametrize(("ahead", "due"), [(-1, 0), (5, 5)], ids=["at the pause", "not before its own time"])
def test_only_what_we_hold_is_given_back(ahead: int, due: int) -> None:
    mine, beside = (LaneStateFactory.create(holder="me", due_at=NOW + ahead * SECOND) for _ in range(2))
    theirs = LaneStateFactory.create(holder="other", due_at=NOW - SECOND)
    accounts = [mine.account_id, theirs.account_id]
    given_back = {"accounts": accounts, "until": [NOW, NOW], "why": ["busy", "busy"], "token": "me"}
    returned = with_ledger(lambda ledger: ledger.write(lane_rows.GIVE_BACK, given_back))
    assert sorted(row["account_id"] for row in returned) == sorted(accounts)
    for lane in (mine, beside, theirs):
        lane.refresh_from_db()
    assert (mine.holder, mine.due_at, mine.why) == ("", NOW + due * SECOND, "busy")
    assert (beside.holder, theirs.holder, theirs.due_at, theirs.why) == ("me", "other", NOW - SECOND, "")


def test_unlocked_runs_are_free() -> None:
    one, _ = target(status="sending"), target(status="sending")
    rows = {"runs": [one.run_id], "lanes": [one.account_id], "targets": [one.pk], "people": [one.address]}
    assert read(commit.LOCKED_ROWS, rows) == []
    assert read(holding.BEHIND_LOCKED_ROWS, {"taken": [one.account_id]}) == []


def test_a_driver_locks_one_slot() -> None:
    """Two would keep the machine's other driver away."""
    held = "SELECT count(*) AS n FROM pg_locks WHERE locktype = 'advisory' AND classid = %s AND pid = pg_backend_pid()"
    space = 0x7465
    (row,) = read(holding.LOCK_SLOT, {"slots": 3, "space": space, "host": "a-machine"})
    (locks,) = read(held, (space,))
    read("SELECT pg_advisory_unlock_all()", None)
    assert (row["slot"], locks["n"]) == (0, 1)
