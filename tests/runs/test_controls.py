"""Operators' controls: their effects, refusals and sentences."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User

from accounts.access import NotYours
from fanout.models import Event, LaneState, Run, RunTarget
from fanout.plans.plan import planned_time
from fanout.runs import controls, corrections, firing
from reminders.models import Reminder, ReminderTarget
from reminders.moments import moment
from tests.factories import (
    AccountFactory,
    RecipientFactory,
    ReminderFactory,
    RunTargetFactory,
    UserFactory,
)
from tests.runs.monday import FINISHED, MINUTE, NOW, TEXT, fresh, log, make, message_2, was_woken

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)
TOMORROW = NOW.replace(hour=6) + timedelta(days=1)
OPENS = moment(TOMORROW, "UTC")
LIVE = ("queued", "running", "waiting")
case = pytest.param


# --- fire -------------------------------------------------------------------------------------------------


@pytest.fixture
def reminder() -> Reminder:
    made: Reminder = ReminderFactory.create(targets=2)
    return made


@pytest.mark.parametrize(
    ("at", "starts"),
    [
        case(None, "", id="now"),
        case(NOW, "", id="at-this-moment"),
        case(NOW + HOUR, f" It starts {moment(NOW + HOUR, 'UTC')}, when its window opens.", id="later"),
    ],
)
def test_fire(reminder: Reminder, at: datetime | None, starts: str) -> None:
    answer = controls.fire(reminder, reminder.owner, NOW, at)
    assert (answer.ok, answer.text) == (True, f"Fired: 2 groups queued.{starts}")
    assert answer.run is not None
    assert (answer.run.scheduled_for, answer.run.pending) == (at or NOW, 2)
    again = controls.fire(reminder, reminder.owner, NOW, at)
    assert (again.ok, again.text, again.run) == (
        False,
        "This reminder was fired at this very moment already.",
        None,
    )


def test_an_archived_reminder_is_not_fired(reminder: Reminder) -> None:
    reminder.archived = True
    answer = controls.fire(reminder, reminder.owner, NOW)
    assert (answer.ok, answer.text) == (False, "This reminder is archived: restore it first.")
    assert not Run.objects.exists()


def test_outside_its_window_nothing_is_sent() -> None:
    reminder = ReminderFactory.create(targets=1, delivery_window_start_hour=6, delivery_window_end_hour=8)
    answer = controls.fire(reminder, reminder.owner, NOW)
    assert not answer.ok
    assert answer.run is not None
    assert answer.run.status in ("skipped", "failed")
    assert answer.run.error_summary in answer.text


# --- run again --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "targets", "fields", "says"),
    [
        case("failed", {"failed": 1}, {}, "", id="failed"),
        case("skipped", {"skipped": 1}, {}, "", id="skipped"),
        case("partial", {"sent": 1, "failed": 1}, {}, "only one that sent nothing", id="partial"),
        case("failed", {"sent": 1, "failed": 1}, {}, "only one that sent nothing", id="something-arrived"),
        case("canceled", {"skipped": 1}, {}, "only one that sent nothing", id="canceled"),
        case("failed", {"unconfirmed": 1}, {}, "1 targets may have been delivered", id="in-doubt"),
        case("failed", {"failed": 1}, {"is_test": True}, "This was a test", id="a-test"),
    ],
)
def test_which_runs_are_run_again(status: str, targets: dict[str, int], fields: dict[str, Any], says: str) -> None:
    run = make("running", reminder=ReminderFactory.create(targets=1), targets=targets, **fields)
    Run.objects.filter(pk=run.pk).update(status=status)
    answer = controls.run_again(fresh(run), run.owner, NOW + HOUR)
    assert answer.ok is (says == "")
    assert says in answer.text
    if answer.ok:
        assert answer.run is not None
        assert answer.run.pk != run.pk
        assert log(run) == [("run again", f"as run {answer.run.pk}")]
    else:
        assert (log(run), Run.objects.count()) == ([], 1)


@pytest.mark.parametrize(
    ("parts", "parts_sent", "ok"), [(1, 1, True), (2, 0, True), (2, 1, False)], ids=["one part", "none", "half"]
)
def test_who_got_a_part_gets_only_the_rest(parts: int, parts_sent: int, ok: bool) -> None:
    run = make("running", reminder=ReminderFactory.create(targets=1), parts=[TEXT] * parts)
    RunTargetFactory.create(run=run, status="failed", parts_sent=parts_sent)
    Run.objects.filter(pk=run.pk).update(status="failed")
    answer = controls.run_again(fresh(run), run.owner, NOW + HOUR)
    assert (answer.ok, "Retry failed" in answer.text) == (ok, not ok)


@pytest.mark.parametrize(
    ("status", "fields", "ok"),
    [
        *(case(status, {}, False, id=status) for status in ("preparing", *LIVE)),
        case("paused", {}, True, id="paused"),
        case("success", {}, True, id="success"),
        case("running", {"is_test": True}, True, id="a-test"),
        case("running", {"answers": True}, True, id="message-2"),
        case("running", {"reminder": True}, True, id="another-reminders"),
    ],
)
def test_a_reminder_that_goes_out_is_not_run_again(status: str, fields: dict[str, Any], ok: bool) -> None:
    reminder = ReminderFactory.create(targets=1)
    run = make("failed", reminder=reminder)
    given: dict[str, Any] = {"reminder": reminder, "is_test": fields.get("is_test", False)}
    given |= {"answers": run} if "answers" in fields else {}
    given |= {"reminder": ReminderFactory.create()} if "reminder" in fields else {}
    make(status, scheduled_for=NOW - HOUR, **given)
    answer = controls.run_again(run, run.owner, NOW + HOUR)
    assert (answer.ok, "is going out already" in answer.text) == (ok, not ok)


def test_message_2_is_never_run_again() -> None:
    run = message_2(make("success"), "failed")
    assert not controls.run_again(run, run.owner, NOW).ok


# --- pause and resume -------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["preparing", "paused", *LIVE, *FINISHED])
def test_only_what_goes_on_is_paused_and_message_2_with_it(status: str) -> None:
    run = make(status)
    child = message_2(run, "running")
    answer = controls.pause(run, run.owner, NOW)
    paused = status in LIVE
    assert answer.ok is paused
    assert (fresh(run).status, fresh(child).status) == (("paused", "paused") if paused else (status, "running"))
    if paused:
        assert answer.text == "Paused. Sent to 0 of 0 groups, 0 still pending."
        assert (log(run), log(child)) == ([("paused", "")], [("paused", "")])
        assert Event.objects.filter(actor=run.owner).count() == 2
    else:
        assert answer.text == f"The run is {status}: only a run that is going on can be paused."


@pytest.mark.parametrize("status", ["running", "success", "canceled"])
def test_only_a_paused_run_is_resumed(status: str) -> None:
    run = make(status)
    for control in (controls.resume, controls.resume_at_opening):
        answer = control(run, run.owner, NOW)
        assert (answer.ok, answer.text) == (False, f"The run is {status}: no longer paused.")
    assert fresh(run).status == status


@pytest.mark.parametrize("reason", ["operator", "circuit_breaker", "window_closed"])
def test_a_run_is_resumed_and_after_a_breaker_with_a_trial(reason: str) -> None:
    run = make("paused", reason=reason, targets={"pending": 2, "sent": 1})
    answer = controls.resume(run, run.owner, NOW)
    assert (answer.ok, answer.text) == (True, "Resumed: 2 still to send.")
    assert (fresh(run).status, fresh(run).window_closes_at) == ("queued", NOW.replace(hour=18))
    assert log(run) == [("resumed", "2 pending")]
    assert was_woken(run.account_id)
    assert LaneState.objects.get().probing is (reason == "circuit_breaker")


@pytest.mark.parametrize(
    ("reason", "child_reason", "goes_on"),
    [
        case("operator", "operator", True, id="paused-with-it"),
        case("operator", "circuit_breaker", False, id="stopped-by-trouble"),
        case("window_closed", "operator", False, id="the-operator-paused-only-that"),
    ],
)
def test_message_2_goes_on_with_what_was_paused_with_it(reason: str, child_reason: str, goes_on: bool) -> None:
    run = make("paused", reason=reason, targets={"pending": 1})
    child = message_2(run, "paused", reason=child_reason, targets={"pending": 1})
    assert controls.resume(run, run.owner, NOW).ok
    assert fresh(child).status == ("queued" if goes_on else "paused")


@pytest.mark.parametrize("resume_at", [None, NOW])
def test_outside_the_window_a_run_stays_paused_and_says_when_it_opens(resume_at: datetime | None) -> None:
    run = make("paused", resume_at=resume_at, targets={"pending": 1})
    answer = controls.resume(run, run.owner, NOW.replace(hour=20))
    opens = f"The delivery window is closed; it opens {OPENS}."
    assert (answer.ok, answer.text) == (False, opens)
    after = fresh(run)
    assert (after.status, after.resume_at) == ("paused", TOMORROW if resume_at else None)
    assert after.error_summary.endswith(opens)
    assert log(run) == [("resume refused", opens)]


@pytest.mark.parametrize(
    ("first", "second", "problem"),
    [
        case("active", None, "", id="active"),
        case("paused", None, "The account Ann is paused (why): reactivate it or offload the rest first.", id="down"),
        case("paused", "active", "", id="one-of-two"),
        case("paused", "suspended", "is paused (why)", id="both"),
    ],
)
def test_a_run_goes_on_while_one_of_its_accounts_can_send(first: str, second: str | None, problem: str) -> None:
    ann = AccountFactory.create(label="Ann", status=first, status_reason="why")
    run = make("paused", account=ann, targets={"pending": 1})
    if second:
        RunTargetFactory.create(run=run, account=AccountFactory.create(status=second))
    answer = controls.resume(run, run.owner, NOW)
    assert answer.ok is (problem == "")
    assert problem in answer.text
    assert fresh(run).status == ("paused" if problem else "queued")


@pytest.mark.parametrize(
    ("hour", "status", "until", "problem"),
    [
        case(18, "paused", 20, "", id="just-closed"),
        case(9, "paused", 20, "", id="still-open"),
        case(9, "running", 20, "only the window of a paused run", id="going-on"),
        case(5, "paused", 20, f"The delivery window opens {moment(NOW.replace(hour=6), 'UTC')}", id="not-open-yet"),
        case(6, "paused", 20, "", id="just-open"),
        case(9, "paused", 18, "closes at 18:00 today already", id="no-later"),
        case(9, "paused", 19, "", id="an-hour-later"),
        case(20, "paused", 20, "It is past 20:00 in UTC already", id="past-it"),
        case(19, "paused", 20, "", id="just-in-time"),
        case(9, "paused", 5, "", id="no-window"),
    ],
)
def test_which_windows_can_be_widened(hour: int, status: str, until: int, problem: str) -> None:
    found = controls.widening_problem(make(status), until, NOW.replace(hour=hour))
    assert (problem in found, bool(found)) == (True, bool(problem) or until == 5)


def test_a_widened_run_goes_on_until_the_later_hour() -> None:
    run = make("paused", targets={"pending": 1})
    answer = controls.widen(run, 20, run.owner, NOW.replace(hour=19))
    assert (answer.ok, answer.text) == (
        True,
        "The window of this run closes at 20:00 (UTC) today. Resumed: 1 still to send.",
    )
    assert (fresh(run).status, fresh(run).window_closes_at) == ("queued", NOW.replace(hour=20))
    assert log(run) == [("window widened", "until 20:00 (UTC)"), ("resumed", "1 pending")]


def test_a_refused_widening_changes_nothing() -> None:
    run = make("paused", targets={"pending": 1})
    assert not controls.widen(run, 18, run.owner, NOW).ok
    down = make("paused", account=AccountFactory.create(status="paused"), targets={"pending": 1})
    assert not controls.widen(down, 20, down.owner, NOW).ok
    for one in (run, down):
        assert (fresh(one).status, fresh(one).window_closes_at, log(one)) == ("paused", one.window_closes_at, [])


def test_a_resume_is_planned_and_taken_back() -> None:
    run = make("paused")
    answer = controls.resume_at_opening(run, run.owner, NOW)
    assert (answer.ok, answer.text) == (True, f"The run goes on {OPENS}.")
    assert fresh(run).resume_at == TOMORROW
    answer = controls.keep_paused(run, run.owner, NOW)
    assert (answer.ok, answer.text) == (True, "The run stays paused until it is resumed.")
    assert fresh(run).resume_at is None
    assert log(run) == [("resume planned", OPENS), ("planned resume taken back", "")]
    assert not controls.keep_paused(run, run.owner, NOW).ok
    going = make("running", resume_at=TOMORROW)
    assert not controls.keep_paused(going, going.owner, NOW).ok
    assert fresh(going).resume_at == TOMORROW


@pytest.mark.parametrize(("hour", "status", "planned"), [(9, "queued", False), (20, "paused", True)])
def test_at_once_while_the_window_is_open(hour: int, status: str, planned: bool) -> None:
    run = make("paused", targets={"pending": 1})
    assert controls.resume_when_open(run, run.owner, NOW.replace(hour=hour)).ok
    assert (fresh(run).status, fresh(run).resume_at is not None) == (status, planned)


@pytest.mark.parametrize(
    ("status", "resume_at", "resumed"),
    [
        case("paused", NOW, 1, id="due"),
        case("paused", NOW + MINUTE, 0, id="not-yet"),
        case("paused", None, 0, id="not-planned"),
        case("running", NOW, 0, id="going-on"),
    ],
)
def test_which_runs_go_on_by_themselves(status: str, resume_at: datetime | None, resumed: int) -> None:
    run = make(status, resume_at=resume_at, targets={"pending": 1})
    assert controls.resume_due(NOW) == resumed
    assert fresh(run).status == ("queued" if resumed else status)


# --- cancel and retry -------------------------------------------------------------------------------------


def test_canceled_with_its_message_2() -> None:
    run = make(targets={"sent": 2, "pending": 3, "skipped": 1})
    child, other = message_2(run, "running", targets={"pending": 1}), make(targets={"pending": 1})
    answer = controls.cancel(run, run.owner, NOW)
    assert (answer.ok, answer.text) == (True, "Canceled: 2 were sent, 4 will not be.")
    assert (fresh(child).status, fresh(child).skipped, fresh(other).status) == ("canceled", 1, "running")
    assert was_woken(run.account_id)


@pytest.mark.parametrize(
    ("kinds", "cooling", "ok", "says"),
    [
        case(["group"] * 3, 0, True, "Fired: 3 groups queued.", id="groups"),
        case(["person"] * 3, 0, True, "Fired: 3 people queued.", id="people"),
        case(["mailbox", "group"], 0, True, "Fired: 2 recipients queued.", id="mixed"),
        case(["person"] * 3, 2, True, "Fired: 1 person queued; 2 left out: 2 still in the cooldown.", id="some"),
        case(["person"] * 2, 2, False, "Nothing was sent: 2 still in the cooldown.", id="none"),
    ],
)
def test_firing_says_what_was_queued_and_what_was_not(kinds: list[str], cooling: int, ok: bool, says: str) -> None:
    reminder = ReminderFactory.create(follow_up=True)
    for n, kind in enumerate(kinds):
        until = NOW + timedelta(hours=12) if n < cooling else None
        who = {"owner": reminder.owner, "kind": kind, "address": ADDRESS[kind].format(n)}
        recipient = RecipientFactory.create(**who, cooldown_until=until)
        ReminderTarget.objects.create(reminder=reminder, recipient=recipient, position=n)
    answer = controls.fire(reminder, reminder.owner, NOW)
    assert (answer.ok, answer.text) == (ok, says)


ADDRESS = {"group": "12036302524612540{}@g.us", "person": "+6012345678{}", "mailbox": "ann{}@example.com"}


def test_a_canceled_run_is_no_longer_described_as_paused() -> None:
    run = make(targets={"sent": 2, "pending": 3})
    assert controls.pause(run, run.owner, NOW).ok
    assert controls.cancel(run, run.owner, NOW).ok
    assert fresh(run).error_summary == "Canceled by the operator: what was pending is not sent."


@pytest.mark.parametrize(
    ("fields", "resumes"), [case({}, False, id="by-hand"), case({"auto_resume": True}, True, id="by-itself")]
)
def test_retrying_outside_the_window_says_that_it_is_closed(fields: dict[str, Any], resumes: bool) -> None:
    run = make("partial", targets={"sent": 1, "failed": 2}, window_closes_at=NOW.replace(hour=18), **fields)
    night = NOW.replace(hour=20)
    answer = controls.retry_failed(run, run.owner, night)
    opens = "Tue 06 Jan 06:00 (UTC)"
    says = f"the run goes on {opens}." if resumes else f"resume after it opens {opens}."
    assert answer.text == f"2 failed targets will be tried again. The delivery window is closed: {says}"
    run = fresh(run)
    assert (run.status, run.pause_reason, run.resume_at is not None) == ("paused", "window_closed", resumes)
    assert run.error_summary == (
        "Delivery window closed at 18:00 (UTC). Sent to 1 of 3 groups, 2 still pending. Resume from the Activity tab."
    )


def test_the_plan_of_a_resumed_run_keeps_no_night_of_the_old_window() -> None:
    """Two were planned for this evening, two for tomorrow morning; the window is widened, and all go out today."""
    closed = {"reason": "window_closed", "window_closes_at": NOW.replace(hour=18)}
    run = make("paused", targets={"sent": 1, "pending": 4}, **closed)
    evening, morning = NOW.replace(hour=17, minute=59), (NOW + timedelta(days=1)).replace(hour=6)
    for target, at in zip(run.targets.filter(status="pending").order_by("position"), [evening] * 2 + [morning] * 2):
        RunTarget.objects.filter(pk=target.pk).update(planned_at=at)
    later = NOW.replace(hour=18, minute=5)
    assert controls.widen(run, 21, run.owner, later).ok
    run = fresh(run)
    planned = [planned_time(target, run) for target in run.targets.filter(status="pending")]
    assert all(at is not None and later <= at < NOW.replace(hour=21) for at in planned), planned


@pytest.mark.parametrize("status", FINISHED)
def test_what_is_over_is_not_canceled(status: str) -> None:
    run = make(status)
    child = message_2(run, "running")
    answer = controls.cancel(run, run.owner, NOW)
    assert (answer.ok, answer.text) == (False, f"The run is {status} already.")
    assert (fresh(run).status, fresh(child).status) == (status, "running")


@pytest.mark.parametrize(
    ("status", "targets", "swept"),
    [
        case("canceled", {"pending": 1}, 1, id="left-over"),
        case("canceled", {"skipped": 1}, 0, id="nothing-left"),
        case("paused", {"pending": 1}, 0, id="paused"),
    ],
)
def test_what_a_claim_held_is_swept_later(status: str, targets: dict[str, int], swept: int) -> None:
    run = make(status, targets=targets)
    assert controls.sweep_canceled(NOW) == swept
    assert fresh(run).skipped == (1 if status == "canceled" else 0)


@pytest.mark.parametrize("status", ["paused", *LIVE, *FINISHED])
def test_failed_targets_are_retried_once_the_run_has_stopped(status: str) -> None:
    run = make(status, targets={"failed": 2, "sent": 1, "unconfirmed": 1})
    answer = controls.retry_failed(run, run.owner, NOW)
    retried = status in ("partial", "failed", "paused")
    assert answer.ok is retried
    after = fresh(run)
    assert (after.status, after.pending, after.failed) == (("queued", 2, 0) if retried else (status, 0, 2))
    assert log(run) == ([("retry failed", "2 targets")] if retried else [])
    if retried:
        assert (answer.text, after.unconfirmed) == ("2 failed targets will be tried again.", 1)


@pytest.mark.parametrize(("kinds", "pending"), [(None, 2), (["auth"], 1), (["banned"], 0), ([], 0)])
def test_only_failures_of_some_kinds_are_retried(kinds: list[str] | None, pending: int) -> None:
    run = make("running")
    for kind in ("auth", "network"):
        RunTargetFactory.create(run=run, status="failed", error_kind=kind)
    Run.objects.filter(pk=run.pk).update(status="failed")
    answer = controls.retry_failed(fresh(run), run.owner, NOW, kinds)
    assert (answer.ok, fresh(run).pending) == (bool(pending), pending)
    assert pending or answer.text == "There are no failed targets to retry."


@pytest.mark.parametrize(
    ("hour", "account", "status", "says"),
    [
        case(9, "active", "queued", "1 failed target will be tried again.", id="at-once"),
        case(20, "active", "paused", f"resume after it opens {OPENS}.", id="window-closed"),
        case(9, "paused", "paused", " But: The account", id="account-down"),
    ],
)
def test_a_retried_run_goes_on_or_says_why_not(hour: int, account: str, status: str, says: str) -> None:
    run = make("failed", account=AccountFactory.create(status=account), targets={"failed": 1})
    answer = controls.retry_failed(run, run.owner, NOW.replace(hour=hour))
    assert answer.ok
    assert says in answer.text
    assert (fresh(run).status, fresh(run).pending) == (status, 1)
    assert bool(fresh(run).error_summary) is (status == "paused")


@pytest.mark.parametrize(("size", "chunks"), [(1, [[1], [2], [3]]), (2, [[1, 2], [3]]), (3, [[1, 2, 3]])])
def test_batches(size: int, chunks: list[list[int]]) -> None:
    assert list(controls.batched([1, 2, 3], size)) == chunks


# --- settle -----------------------------------------------------------------------------------------------


def unconfirmed(run: Run, **fields: Any) -> RunTarget:
    facts = {"status": "unconfirmed", "claimed_at": NOW - HOUR, "claim_epoch": 1}
    target: RunTarget = RunTargetFactory.create(run=run, **facts | fields)
    return target


# --- archive, accounts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("archived", [True, False])
@pytest.mark.parametrize("status", ["paused", *LIVE, *FINISHED])
def test_what_goes_on_is_not_archived(status: str, archived: bool) -> None:
    run = make(status, archived=not archived)
    child = message_2(run, "success", archived=not archived)
    answer = controls.archive(run, run.owner, NOW, archived)
    done = not (archived and status in LIVE)
    says = ("Archived." if archived else "Back in the list.") if done else "The run is still going on."
    assert (answer.ok, answer.text) == (done, says)
    assert fresh(run).archived is fresh(child).archived is (archived if done else not archived)
    assert log(run) == ([("archived" if archived else "unarchived", "")] if done else [])


@pytest.mark.parametrize(
    ("account", "ok", "says"),
    [
        case({"status": "paused"}, True, "Ann reactivated.", id="paused"),
        case({"status": "active"}, False, "Ann is active already.", id="active"),
        case({"status": "paused", "archived": True}, False, "Ann is archived: restore it first.", id="archived"),
        case(
            {"status": "unpaired", "channel": "whatsapp"},
            False,
            "Ann is not paired: open “Pair” on its page to connect its phone.",
            id="unpaired",
        ),
        case({"status": "unpaired", "channel": "waha"}, True, "Ann reactivated.", id="paired-at-its-gateway"),
    ],
)
def test_reactivated(account: dict[str, Any], ok: bool, says: str) -> None:
    ann = AccountFactory.create(label="Ann", **account)
    answer = controls.reactivate(ann, ann.owner, NOW)
    assert (answer.ok, answer.text) == (ok, says)
    ann.refresh_from_db()
    assert (ann.status == "active") is (ok or account["status"] == "active")


def test_an_unpaired_account_stays_unpaired() -> None:
    """Paused or archived, and reactivated after that, it would seem to send."""
    ann = AccountFactory.create(label="Ann", channel="whatsapp", status="unpaired")
    answer = controls.pause_account(ann, ann.owner, NOW)
    assert (answer.ok, answer.text) == (False, "Ann is unpaired: it sends nothing until it is paired again.")
    assert corrections.archive_account(ann, ann.owner, NOW).ok
    ann.refresh_from_db()
    assert ann.status == "unpaired"
    restored = corrections.restore_account(ann, ann.owner, NOW)
    assert restored.text == "Ann is back in the list. It is unpaired: pair it when it should send."
    run = make("paused", account=ann, targets={"pending": 1})
    says = "The account Ann is unpaired: pair it or offload the rest first."
    assert controls.resume(run, run.owner, NOW).text == says


@pytest.mark.parametrize(
    ("account", "ended"),
    [
        case({"status": "suspended", "status_until": NOW}, 1, id="over"),
        case({"status": "suspended", "status_until": NOW + MINUTE}, 0, id="not-yet"),
        case({"status": "suspended"}, 0, id="no-known-end"),
        case({"status": "paused", "status_until": NOW}, 0, id="paused"),
    ],
)
def test_which_suspensions_end(account: dict[str, Any], ended: int) -> None:
    AccountFactory.create(**account)
    assert controls.end_suspensions(NOW) == ended


@pytest.fixture
def stranger() -> User:
    user: User = UserFactory.create()
    return user


def test_controls_refuse_strangers(stranger: User, reminder: Reminder) -> None:
    run, account = make("paused", targets={"pending": 1, "failed": 1, "unconfirmed": 1}), AccountFactory.create()
    ids = [target.pk for target in run.targets.all()]
    for attempt in (
        lambda: controls.fire(reminder, stranger, NOW),
        lambda: controls.run_again(run, stranger, NOW),
        lambda: controls.pause(run, stranger, NOW),
        lambda: controls.resume(run, stranger, NOW),
        lambda: controls.widen(run, 20, stranger, NOW),
        lambda: controls.resume_at_opening(run, stranger, NOW),
        lambda: controls.keep_paused(run, stranger, NOW),
        lambda: controls.cancel(run, stranger, NOW),
        lambda: controls.retry_failed(run, stranger, NOW),
        lambda: corrections.offload(run, AccountFactory.create(owner=stranger), stranger, NOW),
        lambda: corrections.offload(run, account, run.owner, NOW),
        lambda: corrections.settle(run, ids, True, stranger, NOW),
        lambda: controls.archive(run, stranger, NOW),
        lambda: controls.pause_account(account, stranger, NOW),
        lambda: controls.reactivate(AccountFactory.create(status="paused"), stranger, NOW),
    ):
        with pytest.raises(NotYours):
            attempt()
    assert (fresh(run).status, fresh(run).pending, fresh(run).unconfirmed) == ("paused", 1, 1)


@pytest.mark.parametrize(
    ("parts", "targets", "reason"),
    [
        pytest.param((), 1, "The reminder has no message.", id="no-message"),
        pytest.param(("Hello",), 0, "The reminder has no targets.", id="no-targets"),
    ],
)
def test_an_empty_reminder_does_not_fire(parts: tuple[str, ...], targets: int, reason: str) -> None:
    reminder = ReminderFactory.create(parts=parts, targets=targets)
    answer = controls.fire(reminder, reminder.owner, NOW)
    assert (answer.ok, answer.text) == (False, f"Nothing was sent: {reason}")
    run = Run.objects.get()
    assert (run.status, run.error_summary, run.finished_at, run.total) == ("skipped", reason, NOW, 0)
    assert firing.make_run(reminder, NOW, NOW) is None
