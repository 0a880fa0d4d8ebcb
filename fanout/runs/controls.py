"""Let operators control runs and accounts: fire, pause, resume, widen, cancel, retry, archive.

Each control checks ownership, changes state by one conditional update, wakes the lanes concerned and writes who did
it, all in one transaction. It answers with a sentence, also when nothing was changed.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from asgiref.sync import async_to_sync
from django.db import connection, transaction
from django.db.models import Q
from django.template.defaultfilters import pluralize
from django_q.tasks import async_task

from accounts import access
from accounts.channels.http import FAILURES, words_of
from accounts.channels.registry import channel, pairing
from accounts.inputs import counted
from accounts.models import Account
from accounts.signin import NoAnswer, listed_contacts, listed_groups
from fanout.database import Steps, carry_out, execute
from fanout.lanes import account_limits, status
from fanout.lanes.lane_rows import lock_lanes
from fanout.models import Correction, Event, PauseReason, Run, RunTarget
from fanout.models.run import LANE_ORDER
from fanout.models.trail import note, shell_user, with_author
from fanout.rules.gates import goes_on_at
from fanout.runs import firing, freezing, server, texts, transitions
from fanout.runs.planning import plan_resumed
from reminders import readiness
from reminders.groups import add_contacts, synchronise
from reminders.models import Reminder
from reminders.moments import closing_time, moment
from reminders.window import Window, window_error

log = logging.getLogger("crier.controls")
JUST_NOW = timedelta(seconds=30)  # a second click, or a second person at the same moment
CHUNKS_FOR = 1.5  # seconds of chunks that a person waits for; a task does the rest
User = Any  # a Django user, or None for Crier itself and for the shell


@dataclass(frozen=True, slots=True)
class ControlResult:
    """The result of a control: whether it changed anything, and a sentence for the person."""

    ok: bool
    text: str
    run: Run | None = None
    #: nothing was done, and it is done after the person has been asked: the text is the question, about `run`
    asks: bool = False


@contextmanager
def change(run: Run, user: User) -> Iterator[None]:
    """Open one control's transaction: ownership checked, the run's row locked and fresh."""
    access.require(user, run)
    with transaction.atomic():
        Run.objects.select_for_update().get(pk=run.pk)
        run.refresh_from_db()
        yield


def pk_of(user: User) -> int | None:
    return user.pk if user is not None else None


def log_event(run: Run, user: User, now: datetime, verb: str, detail: str = "") -> None:
    """Note it in the run's timeline, and what a person did in the audit trail, too."""
    Event.objects.create(run=run, actor=user, at=now, verb=verb, detail=with_author(detail, user))
    note_act(run, user, now, verb, detail)


def note_act(run: Run, user: User, now: datetime, verb: str, detail: str = "") -> None:
    if user is not None or shell_user():
        note(verb, run, user, now, detail)


# --- fire ------------------------------------------------------------------------------------------------


def fire(
    reminder: Reminder, user: User, now: datetime, at: datetime | None = None, after: int | None = None
) -> ControlResult:
    """Fire now, or at a later moment, regardless of the schedule, which goes on as before. If it was fired a moment
    ago, by this person or another, nothing is done and the answer asks. `after`: the run that the person knows of and
    wants another one after."""
    access.require(user, reminder)
    if reminder.archived:
        return ControlResult(False, "This reminder is archived: restore it first.")
    if problem := readiness.rights_problem(reminder, user):
        return ControlResult(False, problem)
    if not server.may_fire():
        return ControlResult(False, server.NOT_ACCEPTED)
    with transaction.atomic():
        # Of two persons at the same moment one fires, and the other is asked.
        Reminder.objects.select_for_update(no_key=True, of=("self",)).get(pk=reminder.pk)
        latest = _fired_just_now(reminder, now)
        if latest is not None and latest.pk != after:
            ago = max(1, round((now - latest.created_at).total_seconds()))
            question = f"“{reminder}” was fired {ago} s ago already. Fire it again?"
            return ControlResult(False, question, latest, asks=True)
        run = firing.make_run(reminder, at or now, now, actor=user)
        if run is None:
            return ControlResult(False, "This reminder was fired at this very moment already.")
        note_act(run, user, now, "fired", f"reminder {reminder.pk}")
    if run.status == Run.Status.SKIPPED:
        return ControlResult(False, f"Nothing was sent: {run.error_summary.removeprefix(texts.NO_ONE)}", run)
    if run.status == Run.Status.FAILED:
        return ControlResult(False, run.error_summary, run)
    if run.status == Run.Status.PREPARING:
        return ControlResult(True, "Fired: so many recipients take a while to prepare; the run starts by itself.", run)
    starts = f" It starts {moment(at, run.timezone)}, when its window opens." if at and at > now else ""
    return ControlResult(True, f"Fired: {queued([run])}{starts}", run)


def queued(runs: Sequence[Run]) -> str:
    """Return what new runs send, what they leave out, and why. Not those that are still being prepared."""
    counts = ("pending", "sending", "sent", "skipped")
    facts: dict[str, Any] = {name: sum(getattr(run, name) for run in runs) for name in counts}
    reasons: Counter[str] = Counter()
    for run in runs:
        reasons.update(carry_out(transitions.reasons_left_out(run.pk)) if run.skipped else {})
    return texts.queued(facts | {"kinds": {kind for run in runs for kind in run.kinds}}, reasons)


def _fired_just_now(reminder: Reminder, now: datetime) -> Run | None:
    """Return the run of the last seconds, if it sends or has sent something. Machines' clocks differ a little."""
    made = reminder.runs.filter(created_at__range=(now - JUST_NOW, now + JUST_NOW), answers=None, is_test=False, step=0)
    return made.exclude(status__in=(Run.Status.SKIPPED, Run.Status.FAILED)).order_by("-created_at").first()


def run_again(run: Run, user: User, now: datetime) -> ControlResult:
    """Fire the reminder of a run that sent nothing once more, now or when its window opens."""
    with change(run, user):
        Reminder.objects.select_for_update().get(pk=run.reminder_id)  # or two of its runs could be run again at once
        if problem := _not_again(run):
            return ControlResult(False, problem, run)
        result = fire(run.reminder, user, now, at=run.reminder.window.next_opening(now))
        if result.ok and result.run:
            log_event(run, user, now, "run again", f"as run {result.run.pk}")
    return result


def _not_again(run: Run) -> str:
    """Return why a run is not run again; empty where it can be. Running it again must not repeat a message."""
    if run.status not in (Run.Status.FAILED, Run.Status.SKIPPED) or run.answers_id is not None or run.sent:
        return f"The run is {run.status}: only one that sent nothing is run again."
    if run.unconfirmed:
        return f"{run.unconfirmed} targets may have been delivered: say whether they were, then run it again."
    if run.is_test:
        return "This was a test: send another one from the reminder's page."
    if run.step:
        return (
            "This was a follow-up: running it again would send the first message to everyone. "
            "“Retry failed” repeats what failed."
        )
    if len(run.parts) > 1 and run.targets.filter(parts_sent__gt=0).exists():
        return "Some recipients got a part of it already: use “Retry failed”, which sends them only the rest."
    if run.reminder.runs.filter(status__in=Run.UNDER_WAY, answers=None, is_test=False).exists():
        return f"“{run.reminder}” is going out already."
    return ""


# --- pause -----------------------------------------------------------------------------------------------


def pause(run: Run, user: User, now: datetime) -> ControlResult:
    """Pause the run: no claim after this commit; what is in flight ends and is recorded. A paused run that would go on
    by itself stays paused."""
    with change(run, user):
        if not carry_out(transitions.pause_by_operator(run.pk, pk_of(user), now)):
            return ControlResult(False, f"The run is {run.status}: only a run that is going on can be paused.", run)
        for child in run.message_2.all():
            carry_out(transitions.pause_by_operator(child.pk, pk_of(user), now))
        run.refresh_from_db()
        note_act(run, user, now, "paused")
    return ControlResult(True, f"Paused. {texts.sent(run.facts())}.", run)


def by_itself() -> Q:
    """Select the runs that send without an operator: now, when they are prepared, or at a planned resume."""
    return Q(status__in=Run.UNDER_WAY) | Q(status=Run.Status.PAUSED, resume_at__isnull=False)


def pause_all(user: User, now: datetime) -> ControlResult:
    """Pause every run that would send by itself. A run that is being prepared gets the rest of its targets first:
    paused in the middle of it, it would lose them."""
    runs = Run.objects.filter(by_itself()).order_by("pk")
    mine = list(runs if user is None else access.visible(user, runs))
    # Those that take long come last.
    for run in sorted(mine, key=lambda run: run.status == Run.Status.PREPARING):
        while run.status == Run.Status.PREPARING and not freezing.prepare(run.pk, now):
            pass
        pause(run, user, now)
    left = Run.objects.filter(by_itself(), pk__in=[run.pk for run in mine]).count()
    paused = len(mine) - left
    text = f"Paused: {paused} run{pluralize(paused)}."
    if left:
        return ControlResult(False, f"{text} Not paused: {left}; `manage.py runs --live` lists them.")
    return ControlResult(True, text)


def describe_pause(run: Run, advise: bool = True) -> None:
    """Write the summary of a paused run; not of one that was resumed meanwhile. `advise`: say what held it up."""
    run.refresh_from_db()
    if run.status == Run.Status.PAUSED:
        run.error_summary = texts.paused(run.facts(), advise=advise)
        Run.objects.filter(pk=run.pk, status=Run.Status.PAUSED).update(error_summary=run.error_summary)


# --- resume ----------------------------------------------------------------------------------------------


def resume(run: Run, user: User, now: datetime) -> ControlResult:
    """Resume the run; only pending targets are sent. Outside the window it stays paused, and says when the window
    opens."""
    with change(run, user):
        if run.status != Run.Status.PAUSED:
            return ControlResult(False, f"The run is {run.status}: no longer paused.", run)
        if not run.window.is_open(now):
            return _stay_paused(run, user, now)
        problem = _account_problem(run)
        if problem:
            return ControlResult(False, problem, run)
        if run.pause_reason == PauseReason.OPERATOR:
            _resume_message_2(run, now)
        _go_on(run, now)
        log_event(run, user, now, "resumed", f"{run.pending} pending")
    plan_resumed(run, now)
    return ControlResult(True, f"Resumed: {run.pending} still to send.", run)


def _stay_paused(run: Run, user: User, now: datetime) -> ControlResult:
    opens = run.window.next_opening(now)
    text = f"The delivery window is closed; it opens {moment(opens, run.timezone)}."
    run.error_summary = f"{texts.paused(run.facts())} {text}"
    if run.resume_at is not None:
        run.resume_at = goes_on_after(run, opens, now)  # it missed its own opening and takes the next one
    run.save(update_fields=["error_summary", "resume_at"])
    log_event(run, user, now, "resume refused", text)
    return ControlResult(False, text, run)


def _account_problem(run: Run) -> str:
    accounts = Account.objects.filter(pk__in=senders(run))
    if any(account.status == Account.Status.ACTIVE for account in accounts):
        return ""
    account = accounts[0]
    reason = f" ({account.status_reason})" if account.status_reason else ""
    return f"The account {account.label} is {account.status}{reason}: {account.way_back} or offload the rest first."


def _resume_message_2(run: Run, now: datetime) -> None:
    """Resume Message 2, which was paused with the run by its operator."""
    paused = run.message_2.filter(status=Run.Status.PAUSED, pause_reason=PauseReason.OPERATOR).order_by("pk")
    children = list(paused.select_for_update(no_key=True, of=("self",)))
    if children:
        # They are woken one run after the other, so lock the lanes of all of them first, in the usual order.
        lock_lanes({account for one in (run, *children) for account in senders(one)})
    for child in children:
        _go_on(child, now)


def _go_on(run: Run, now: datetime) -> None:
    after_breaker = run.pause_reason == PauseReason.CIRCUIT_BREAKER
    closes_at = run.window.closes_on(now)
    carry_out(transitions.resume(run.pk, senders(run), closes_at, now, probe=after_breaker))


def senders(run: Run) -> list[int]:
    """Return the accounts that still have something to send for the run: a lane with nothing to do must not judge
    it."""
    return [row["id"] for row in execute(transitions.SENDERS, {"run": run.pk})] or [run.account_id]


def widen(run: Run, until_hour: int, user: User, now: datetime) -> ControlResult:
    """Let a paused run go on today until a later hour than its window says. From tomorrow on its own window holds."""
    with change(run, user):
        if problem := widening_problem(run, until_hour, now) or _account_problem(run):
            return ControlResult(False, problem, run)
        run.window_closes_at = _widened(run, until_hour).closes_on(now)
        run.save(update_fields=["window_closes_at"])
        log_event(run, user, now, "window widened", f"until {texts.window_end(run.facts())}")
        result = resume(run, user, now)
    closes = texts.window_end(run.facts())
    return replace(result, text=f"The window of this run closes at {closes} today. {result.text}")


def widening_problem(run: Run, until_hour: int, now: datetime) -> str:
    """Return why a run's window cannot be widened to this hour of today; empty where it can."""
    if run.status != Run.Status.PAUSED:
        return f"The run is {run.status}: only the window of a paused run can be widened."
    if problem := window_error(run.window_start_hour, until_hour):
        return problem
    if now < run.window.opens_on(now):
        return f"The delivery window opens {moment(run.window.opens_on(now), run.timezone)}: resume the run then."
    today, closes = run.window.closes_on(now), _widened(run, until_hour).closes_on(now)
    if closes <= today:
        return f"The window closes at {closing_time(today, run.timezone)} today already: choose a later hour."
    if closes <= now:
        return f"It is past {until_hour}:00 in {run.timezone} already: choose a later hour, or resume tomorrow."
    return ""


def _widened(run: Run, until_hour: int) -> Window:
    return Window(run.timezone, run.window_start_hour, until_hour)


def resume_when_open(run: Run, user: User, now: datetime) -> ControlResult:
    """Resume at once while the window is open, otherwise when it opens next."""
    return resume(run, user, now) if run.window.is_open(now) else resume_at_opening(run, user, now)


def resume_at_opening(run: Run, user: User, now: datetime) -> ControlResult:
    """Plan one resume at the next window opening, regardless of the reminder's auto-resume."""
    with change(run, user):
        if run.status != Run.Status.PAUSED:
            return ControlResult(False, f"The run is {run.status}: no longer paused.", run)
        run.resume_at = goes_on_after(run, run.window.opening_after(now), now)
        run.save(update_fields=["resume_at"])
        when = moment(run.resume_at, run.timezone)
        log_event(run, user, now, "resume planned", when)
    return ControlResult(True, f"The run goes on {when}.", run)


def goes_on_after(run: Run, opens: datetime, now: datetime) -> datetime:
    """Return when a run goes on after this opening of its window: as soon as one of its accounts may send by its hours
    and caps."""
    accounts = Account.objects.filter(pk__in=senders(run))
    facts = [account_limits.facts_now(one, channel(one.channel).counts(run.action), now) for one in accounts]
    times = [at for one in facts if (at := goes_on_at(run.window, one, now, opens))]
    return min(times, default=opens)


def keep_paused(run: Run, user: User, now: datetime) -> ControlResult:
    """Take back a planned resume, whether an operator or the reminder's auto-resume planned it."""
    with change(run, user):
        if run.status != Run.Status.PAUSED or run.resume_at is None:
            return ControlResult(False, "There is no planned resume to take back.", run)
        run.resume_at = None
        run.save(update_fields=["resume_at"])
        log_event(run, user, now, "planned resume taken back")
    return ControlResult(True, "The run stays paused until it is resumed.", run)


def resume_due(now: datetime) -> int:
    """Resume the runs whose planned resume is due, in the order in which lanes send them. Called every minute."""
    due = Run.objects.filter(status=Run.Status.PAUSED, resume_at__lte=now).order_by(*LANE_ORDER)
    return sum(_resume_if_due(run, now) for run in due)


def _resume_if_due(run: Run, now: datetime) -> bool:
    """Resume the run and return whether it went on. An operator may have taken the resume back, or paused the run,
    since it was listed. A run that fails does not keep the others from going on."""
    try:
        with change(run, None):
            return run.resume_at is not None and run.resume_at <= now and resume(run, None, now).ok
    except Exception:
        if not connection.is_usable():
            raise
        log.exception("a run could not be resumed", extra={"run": run.pk})
        return False


# --- retry -----------------------------------------------------------------------------------------------


def retry_failed(run: Run, user: User, now: datetime, kinds: Iterable[str] | None = None) -> ControlResult:
    """Reopen failed targets, all or those of some error kinds; the run goes on with them."""
    with change(run, user):
        if run.status not in (Run.Status.PARTIAL, Run.Status.FAILED, Run.Status.PAUSED):
            return ControlResult(
                False, f"The run is {run.status}: failed targets are retried once it has stopped.", run
            )
        failed = run.targets.filter(status=RunTarget.Status.FAILED)
        if kinds is not None:
            failed = failed.filter(error_kind__in=list(kinds))
        ids = list(failed.values_list("pk", flat=True))
        if not ids:
            return ControlResult(False, "There are no failed targets to retry.", run)
        if len(ids) > transitions.CHUNK:
            return begin_correction(run, user, now, ids, None, "retry failed", "failed targets will be tried again")
        was_finished = carry_out(transitions.reopen(run.pk, now))
        log_event(run, user, now, "retry failed", f"{len(ids)} targets")
    was_finished |= reopen_targets(run, ids, now)
    return go_on_if_open(run, now, f"{counted(len(ids), 'failed target')} will be tried again.", was_finished)


def begin_correction(
    run: Run,
    user: User,
    now: datetime,
    targets: list[int],
    delivered: bool | None,
    verb: str,
    what: str,
    words: str = "",
) -> ControlResult:
    """Note a correction of more targets than a person should wait for; a task carries it out, also after a crash: see
    `fanout.runs.corrections.carry_on_corrections`. The caller has locked the run. `what`: what happens to them."""
    if under_way := Correction.objects.filter(run=run).first():
        return ControlResult(False, f"{under_way} so far: wait until the rest has followed.", run)
    Correction.objects.create(run=run, began_at=now, targets=targets, delivered=delivered, words=words)
    log_event(run, user, now, verb, f"{len(targets)} {f'× {words}' if words else 'targets'}")
    transaction.on_commit(enqueue_rest)
    return ControlResult(True, f"{len(targets):,} {what}, a few thousand at a time.", run)


def reopen_targets(run: Run, ids: list[int], now: datetime) -> bool:
    """Reopen the targets in chunks, each of which locks the run for a moment only. Returns whether the run had finished
    meanwhile and was paused."""
    was_finished = False
    for chunk in batched(ids, transitions.CHUNK):
        with transaction.atomic():
            was_finished |= carry_out(transitions.reopen_targets(run.pk, chunk, len(run.parts), now))[1]
    run.refresh_from_db()
    return was_finished


def batched(items: list[int], size: int) -> Iterator[list[int]]:
    return (items[first : first + size] for first in range(0, len(items), size))


def go_on_if_open(run: Run, now: datetime, text: str, was_finished: bool) -> ControlResult:
    """Go on at once where the window is open; otherwise the run waits, paused, for the opening. A run that was finished
    was not paused by an operator, and says what it waits for. The caller has checked ownership."""
    with change(run, None):
        if run.status == Run.Status.CANCELED:
            return ControlResult(False, "The run was canceled meanwhile: nothing more is sent.", run)
        if run.status != Run.Status.PAUSED:
            return ControlResult(True, text, run)  # resumed meanwhile: its lanes were told
        problem = _account_problem(run)
        if run.window.is_open(now) and not problem:
            _resume_message_2(run, now)  # a reply that came in between paused it too
            _go_on(run, now)
            return ControlResult(True, text, run)
        opens = run.window.next_opening(now)
        if was_finished:
            run.pause_reason = PauseReason.ACCOUNT_DOWN if problem else PauseReason.WINDOW_CLOSED
            run.resume_at = goes_on_after(run, opens, now) if run.auto_resume and not problem else None
            run.save(update_fields=["pause_reason", "resume_at"])
        describe_pause(run, advise=not was_finished)  # nothing held up a run that had finished
        if problem:
            return ControlResult(True, f"{text} But: {problem}", run)
    if run.resume_at is not None:
        goes_on = moment(run.resume_at, run.timezone)
        return ControlResult(True, f"{text} The delivery window is closed: the run goes on {goes_on}.", run)
    when = moment(opens, run.timezone)
    return ControlResult(True, f"{text} The delivery window is closed: resume after it opens {when}.", run)


# --- cancel and archive ----------------------------------------------------------------------------------


def cancel(run: Run, user: User, now: datetime) -> ControlResult:
    with change(run, user):
        if run.status in Run.FINISHED:
            return ControlResult(False, f"The run is {run.status} already.", run)
        canceled = [run, *run.message_2.order_by("pk").select_for_update(no_key=True, of=("self",))]
        # Lock order: all runs, then all lanes.
        lock_lanes({account for one in canceled for account in one.lanes})
        for one in canceled:
            carry_out(transitions.cancel(one.pk, pk_of(user), now))
        note_act(run, user, now, "canceled")
    if not all(_skip_canceled(one.pk, now) for one in canceled):
        enqueue_rest()
    run.refresh_from_db()
    return ControlResult(True, f"Canceled: {run.sent:,} were sent, {run.skipped + run.pending:,} will not be.", run)


def stop_follow_ups(run: Run, user: User, now: datetime) -> ControlResult:
    """Make no further follow-ups of a run, and cancel the one that is going out. The run itself stays as it is."""
    with change(run, user):
        # Under the run's lock, as a follow-up is made: either it is among those below, or it is not made.
        going = list(run.follow_ups.exclude(status__in=Run.FINISHED).order_by("pk"))
        if run.next_step_at is None and not going:
            return ControlResult(False, "No follow-up of this run is to come.", run)
        run.next_step_at = None
        run.save(update_fields=["next_step_at"])
        log_event(run, user, now, "follow-ups stopped")
    canceled = [cancel(one, user, now) for one in going]
    words = " ".join(f"Follow-up {one.step}: {answer.text}" for one, answer in zip(going, canceled))
    return ControlResult(True, f"No further follow-ups are sent. {words}".strip(), run)


def _skip_canceled(run_id: int, now: datetime, seconds: float = CHUNKS_FOR) -> bool:
    """Skip targets of a canceled run chunk by chunk, for a while: it sends nothing more in any case. Returns whether
    that was all of them."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with transaction.atomic():
            if not carry_out(transitions.skip_canceled(run_id, now)):
                return True
    return False


def enqueue_rest() -> None:
    """Start the task that carries large controls to their end. Twice does no harm: each chunk is taken once."""
    async_task("fanout.ops.tasks.carry_on", cluster="main", task_name="carry-on")


def sweep_canceled(now: datetime, seconds: float = CHUNKS_FOR) -> int:
    """Skip targets of canceled runs that are left: a claim had locked them, or there were many. Returns how many runs
    there were."""
    until = time.monotonic() + seconds  # for all of them
    runs = Run.objects.filter(status=Run.Status.CANCELED, pending__gt=0).values_list("pk", flat=True)
    done = [_skip_canceled(run_id, now, until - time.monotonic()) for run_id in runs]
    if not all(done):
        enqueue_rest()
    return len(done)


def archive(run: Run, user: User, now: datetime, archived: bool = True) -> ControlResult:
    with change(run, user):
        if archived and run.status in Run.LIVE:
            return ControlResult(False, "The run is still going on.", run)
        run.archived = archived
        run.save(update_fields=["archived"])
        run.message_2.update(archived=archived)
        log_event(run, user, now, "archived" if archived else "unarchived")
    return ControlResult(True, "Archived." if archived else "Back in the list.", run)


# --- accounts --------------------------------------------------------------------------------------------


def reactivate(account: Account, user: User, now: datetime) -> ControlResult:
    """Let the account send again, by an operator's decision. Its runs are resumed one by one, on purpose."""
    if account.archived:
        return ControlResult(False, f"{account.label} is archived: restore it first.")
    if account.needs_pairing:
        return ControlResult(False, f"{account.label} is not paired: open “Pair” on its page to connect its phone.")
    return _change_account(account, user, "reactivated", status.reactivate(account.pk, pk_of(user), now), now)


def pause_account(account: Account, user: User, now: datetime, reason: str = "paused by an operator") -> ControlResult:
    if account.status == Account.Status.UNPAIRED:
        return ControlResult(False, f"{account.label} is unpaired: it sends nothing until it is paired again.")
    return _change_account(account, user, "paused", status.pause(account.pk, reason, pk_of(user), now), now)


def _change_account(account: Account, user: User, verb: str, change: Steps[bool], now: datetime) -> ControlResult:
    access.require(user, account)
    with transaction.atomic():
        changed = carry_out(change)
        account.refresh_from_db()
        if changed:
            note(verb, account, user, now, account.status_reason)
    return ControlResult(
        changed, f"{account.label} {verb}." if changed else f"{account.label} is {account.status} already."
    )


def end_suspensions(now: datetime) -> int:
    """End temporary bans that are over, for accounts without a live run; a lane ends its own."""
    # In the order in which lanes are locked.
    ended = Account.objects.filter(status=Account.Status.SUSPENDED, status_until__lte=now).order_by("pk")
    with transaction.atomic():
        return sum(carry_out(status.end_suspension(account.pk, now)) for account in ended)


def synchronise_groups(account: Account, user: Any, now: datetime) -> ControlResult:
    described = channel(account.channel)
    if not described.lists_groups:
        return ControlResult(
            False, f"{account.label}: {described.label} does not list groups. Import them as recipients."
        )
    try:
        groups = async_to_sync(listed_groups)(account)
    except NoAnswer as problem:
        return ControlResult(False, f"{account.label} could not list its groups: {problem}")
    if not groups:
        return ControlResult(False, f"{account.label}: the provider lists no groups; nothing was changed.")
    done = synchronise(account, groups, now)
    words = f"{len(groups)} groups listed: {done.added} added, {done.renamed} renamed, {done.gone} no longer there"
    Event.objects.create(account=account, actor=user, at=now, verb="groups synchronised", detail=words)
    return ControlResult(True, f"{account.label}: {words}.")


def compare_with_journal(account: Account) -> ControlResult:
    """Have a number's bridge compare a database that was restored with its journal, and send again after that."""
    if not channel(account.channel).pairs:
        return ControlResult(False, f"{account.label} is no paired number.")
    try:
        answer = async_to_sync(pairing(account.channel))(account.pk, "POST", "restored", None)
    except FAILURES as error:
        return ControlResult(False, words_of(error))
    return ControlResult(answer.status == 200, str(answer.body.get("detail") or f"HTTP {answer.status}"))


def synchronise_contacts(account: Account, user: Any, now: datetime) -> ControlResult:
    described = channel(account.channel)
    if not described.lists_contacts:
        return ControlResult(
            False, f"{account.label}: {described.label} does not list contacts. Import them as recipients."
        )
    try:
        contacts = async_to_sync(listed_contacts)(account)
    except NoAnswer as problem:
        return ControlResult(False, f"{account.label} could not list its contacts: {problem}")
    words = f"{len(contacts)} contacts listed: {add_contacts(account, contacts)} added"
    Event.objects.create(account=account, actor=user, at=now, verb="contacts synchronised", detail=words)
    return ControlResult(True, f"{account.label}: {words}.")
