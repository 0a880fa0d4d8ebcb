"""What operators do with a run: fire, pause, resume, widen, cancel, archive.

Each control checks ownership, changes state by one conditional update, wakes the lanes concerned and writes
who did it, all in one transaction. It answers with a sentence, also when nothing was changed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db import connection, transaction
from django.db.models import Q
from django.template.defaultfilters import pluralize

from accounts import access
from accounts.models import Account
from fanout.database import carry_out, execute
from fanout.lanes.wake import lock_lanes
from fanout.models import Event, PauseReason, Run
from fanout.runs import firing, preparing, texts, transitions
from reminders import usable
from reminders.models import Reminder
from reminders.moments import closing_time, moment
from reminders.window import Window, window_error

log = logging.getLogger("crier.controls")

CHUNKS_FOR = 20.0  # seconds that a person waits for a large run to be canceled; the rest is done every minute

User = Any  # a Django user, or None for Crier itself and for the shell


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a control: did it change anything, and what to tell the person."""

    ok: bool
    text: str
    run: Run | None = None


def fire(reminder: Reminder, user: User, now: datetime, at: datetime | None = None) -> Answer:
    """Fire now, or at a later moment, whatever the schedule says; the schedule goes on as before."""
    access.require(user, reminder)
    if reminder.archived:
        return Answer(False, "This reminder is archived: restore it first.")
    if problem := usable.problem(reminder, user):
        return Answer(False, problem)
    run = firing.make_run(reminder, at or now, now, actor=user)
    if run is None:
        return Answer(False, "This reminder was fired at this very moment already.")
    if run.status == Run.Status.SKIPPED:
        return Answer(False, f"Nothing was sent: {run.error_summary}", run)
    if run.status == Run.Status.FAILED:
        return Answer(False, run.error_summary, run)
    if run.status == Run.Status.PREPARING:
        return Answer(True, "Fired: so many recipients take a while to prepare; the run starts by itself.", run)
    starts = f" It starts {moment(at, run.timezone)}, when its window opens." if at and at > now else ""
    return Answer(True, f"Fired: {texts.recipients(run.facts())} queued.{starts}", run)


def run_again(run: Run, user: User, now: datetime) -> Answer:
    """A run that delivered nothing: its reminder is fired once more, now or when its window opens."""
    with change(run, user):
        Reminder.objects.select_for_update().get(pk=run.reminder_id)  # or two of its runs could be run again at once
        if problem := _not_again(run):
            return Answer(False, problem, run)
        answer = fire(run.reminder, user, now, at=run.reminder.window.next_opening(now))
        if answer.ok and answer.run:
            log_event(run, user, now, "run again", f"as run {answer.run.pk}")
    return answer


def _not_again(run: Run) -> str:
    """Why a run is not run again; nothing where it can be. Nobody may get a message twice by it."""
    if run.status not in (Run.Status.FAILED, Run.Status.SKIPPED) or run.answers_id is not None or run.sent:
        return f"The run is {run.status}: only one that delivered nothing is run again."
    if run.unconfirmed:
        return f"{run.unconfirmed} targets may have been delivered: say whether they were, then run it again."
    if run.is_test:
        return "This was a test: send another one from the reminder's page."
    if len(run.parts) > 1 and run.targets.filter(parts_sent__gt=0).exists():
        return "Some recipients got a part of it already: use “Retry failed”, which sends them only the rest."
    if run.reminder.runs.filter(status__in=Run.UNDER_WAY, answers=None, is_test=False).exists():
        return f"“{run.reminder}” is going out already."
    return ""


def pause(run: Run, user: User, now: datetime) -> Answer:
    """No claim after this commit; what is in flight ends and is recorded. A paused run that would go on by itself stays
    paused."""
    with change(run, user):
        if not carry_out(transitions.pause_by_operator(run.pk, pk_of(user), now)):
            return Answer(False, f"The run is {run.status}: only a run that is going on can be paused.", run)
        for child in run.message_2.all():
            carry_out(transitions.pause_by_operator(child.pk, pk_of(user), now))
        run.refresh_from_db()
    return Answer(True, f"Paused. {texts.delivered(run.facts())}.", run)


def by_itself() -> Q:
    """The runs that send without anybody's doing: now, when they are prepared, or at a planned resume."""
    return Q(status__in=Run.UNDER_WAY) | Q(status=Run.Status.PAUSED, resume_at__isnull=False)


def pause_all(user: User, now: datetime) -> Answer:
    """Every run that would send by itself. One that is being prepared gets the rest of its targets first: paused in the
    middle of it, it would lose them."""
    runs = Run.objects.filter(by_itself()).order_by("pk")
    mine = list(runs if user is None else access.visible(user, runs))
    # Those that take long come last.
    for run in sorted(mine, key=lambda run: run.status == Run.Status.PREPARING):
        while run.status == Run.Status.PREPARING and not preparing.prepare(run.pk, now):
            pass
        pause(run, user, now)
    left = Run.objects.filter(by_itself(), pk__in=[run.pk for run in mine]).count()
    paused = len(mine) - left
    text = f"Paused: {paused} run{pluralize(paused)}."
    if left:
        return Answer(False, f"{text} Not paused: {left}; `manage.py runs --live` lists them.")
    return Answer(True, text)


def describe_pause(run: Run) -> None:
    """Say how it stands; not of one that was resumed meanwhile."""
    run.refresh_from_db()
    if run.status == Run.Status.PAUSED:
        run.error_summary = texts.paused(run.facts())
        Run.objects.filter(pk=run.pk, status=Run.Status.PAUSED).update(error_summary=run.error_summary)


def resume(run: Run, user: User, now: datetime) -> Answer:
    """Only pending targets are sent. Outside the window it stays paused, and says when the window opens."""
    with change(run, user):
        if run.status != Run.Status.PAUSED:
            return Answer(False, f"The run is {run.status}: no longer paused.", run)
        if not run.window.is_open(now):
            return _stay_paused(run, user, now)
        problem = _account_problem(run)
        if problem:
            return Answer(False, problem, run)
        if run.pause_reason == PauseReason.OPERATOR:
            _resume_message_2(run, now)
        _go_on(run, now)
        log_event(run, user, now, "resumed", f"{run.pending} pending")
    return Answer(True, f"Resumed: {run.pending} still to send.", run)


def _resume_message_2(run: Run, now: datetime) -> None:
    """Paused with the run by its operator, and so it goes on with it."""
    paused = run.message_2.filter(status=Run.Status.PAUSED, pause_reason=PauseReason.OPERATOR).order_by("pk")
    children = list(paused.select_for_update(no_key=True, of=("self",)))
    if children:
        # Poked one run after the other: the lanes of all of them first, as everybody locks them.
        lock_lanes({account for one in (run, *children) for account in senders(one)})
    for child in children:
        _go_on(child, now)


def widen(run: Run, until_hour: int, user: User, now: datetime) -> Answer:
    """A paused run goes on today until a later hour than its window says. From tomorrow on its own window holds."""
    with change(run, user):
        if problem := widening_problem(run, until_hour, now) or _account_problem(run):
            return Answer(False, problem, run)
        run.window_closes_at = _widened(run, until_hour).closes_on(now)
        run.save(update_fields=["window_closes_at"])
        log_event(run, user, now, "window widened", f"until {texts.window_end(run.facts())}")
        answer = resume(run, user, now)
    closes = texts.window_end(run.facts())
    return replace(answer, text=f"The window of this run closes at {closes} today. {answer.text}")


def _widened(run: Run, until_hour: int) -> Window:
    return Window(run.timezone, run.window_start_hour, until_hour)


def widening_problem(run: Run, until_hour: int, now: datetime) -> str:
    """Why a run's window cannot be widened to this hour of today; nothing where it can."""
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


def _stay_paused(run: Run, user: User, now: datetime) -> Answer:
    opens = run.window.next_opening(now)
    text = f"The delivery window is closed; it opens {moment(opens, run.timezone)}."
    run.error_summary = f"{texts.paused(run.facts())} {text}"
    if run.resume_at is not None:
        run.resume_at = opens  # it was late for its own opening; the next one will do
    run.save(update_fields=["error_summary", "resume_at"])
    log_event(run, user, now, "resume refused", text)
    return Answer(False, text, run)


def _account_problem(run: Run) -> str:
    accounts = Account.objects.filter(pk__in=senders(run))
    if any(account.status == Account.Status.ACTIVE for account in accounts):
        return ""
    account = accounts[0]
    reason = f" ({account.status_reason})" if account.status_reason else ""
    return f"The account {account.label} is {account.status}{reason}: reactivate it or offload the rest first."


def _go_on(run: Run, now: datetime) -> None:
    after_breaker = run.pause_reason == PauseReason.CIRCUIT_BREAKER
    closes_at = run.window.closes_on(now)
    carry_out(transitions.resume(run.pk, senders(run), closes_at, now, probe=after_breaker))


def senders(run: Run) -> list[int]:
    """The accounts that still have something to send for the run: a lane with nothing to do must not judge it."""
    return [row["id"] for row in execute(transitions.SENDERS, {"run": run.pk})] or [run.account_id]


def go_on_if_open(run: Run, now: datetime, text: str) -> Answer:
    """Go on at once where the window is open; otherwise the run waits, paused, for its operator. Whoever calls this
    has checked ownership."""
    with change(run, None):
        if run.status == Run.Status.CANCELED:
            return Answer(False, "The run was canceled meanwhile: nothing more is sent.", run)
        if run.status != Run.Status.PAUSED:
            return Answer(True, text, run)  # resumed meanwhile: its lanes were told
        problem = _account_problem(run)
        if run.window.is_open(now) and not problem:
            _resume_message_2(run, now)  # a reply that came in between paused it too
            _go_on(run, now)
            return Answer(True, text, run)
        describe_pause(run)
        if problem:
            return Answer(True, f"{text} But: {problem}", run)
        when = moment(run.window.next_opening(now), run.timezone)
    return Answer(True, f"{text} The delivery window is closed: resume after it opens {when}.", run)


def resume_at_opening(run: Run, user: User, now: datetime) -> Answer:
    """Once, at the next window opening, whatever the reminder says about auto-resume."""
    with change(run, user):
        if run.status != Run.Status.PAUSED:
            return Answer(False, f"The run is {run.status}: no longer paused.", run)
        run.resume_at = run.window.opening_after(now)
        run.save(update_fields=["resume_at"])
        when = moment(run.resume_at, run.timezone)
        log_event(run, user, now, "resume planned", when)
    return Answer(True, f"The run goes on {when}.", run)


def resume_when_open(run: Run, user: User, now: datetime) -> Answer:
    """At once while the window is open, otherwise when it opens next."""
    return resume(run, user, now) if run.window.is_open(now) else resume_at_opening(run, user, now)


def keep_paused(run: Run, user: User, now: datetime) -> Answer:
    """Take back a planned resume, whether an operator or the reminder's auto-resume planned it."""
    with change(run, user):
        if run.status != Run.Status.PAUSED or run.resume_at is None:
            return Answer(False, "There is no planned resume to take back.", run)
        run.resume_at = None
        run.save(update_fields=["resume_at"])
        log_event(run, user, now, "planned resume taken back")
    return Answer(True, "The run stays paused until somebody resumes it.", run)


def resume_due(now: datetime) -> int:
    """Runs that asked to go on by themselves. Called every minute."""
    due = Run.objects.filter(status=Run.Status.PAUSED, resume_at__lte=now)
    return sum(_resume_if_due(run, now) for run in due)


def _resume_if_due(run: Run, now: datetime) -> bool:
    """Whether it went on. An operator may have taken the resume back, or paused the run, since it was listed. One that
    fails does not keep the others from going on."""
    try:
        with change(run, None):
            return run.resume_at is not None and run.resume_at <= now and resume(run, None, now).ok
    except Exception:
        if not connection.is_usable():
            raise
        log.exception("a run could not be resumed", extra={"run": run.pk})
        return False


def cancel(run: Run, user: User, now: datetime) -> Answer:
    with change(run, user):
        if run.status in Run.FINISHED:
            return Answer(False, f"The run is {run.status} already.", run)
        canceled = [run, *run.message_2.order_by("pk").select_for_update(no_key=True, of=("self",))]
        # All runs, then all lanes, as everybody locks them.
        lock_lanes({account for one in canceled for account in one.lanes})
        for one in canceled:
            carry_out(transitions.cancel(one.pk, pk_of(user), now))
    for one in canceled:
        _skip_canceled(one.pk, now)
    run.refresh_from_db()
    return Answer(True, f"Canceled: {run.sent} were delivered, {run.skipped + run.pending} will not be.", run)


def _skip_canceled(run_id: int, now: datetime) -> None:
    """Chunk by chunk for as long as somebody may wait for it; what is left then is for the next sweep."""
    until = time.monotonic() + CHUNKS_FOR
    while time.monotonic() < until:
        with transaction.atomic():
            if not carry_out(transitions.skip_canceled(run_id, now)):
                return


def sweep_canceled(now: datetime) -> int:
    """A target that was in a claim's hands while its run was canceled: it is skipped like the others."""
    runs = Run.objects.filter(status=Run.Status.CANCELED, pending__gt=0).values_list("pk", flat=True)
    for run_id in runs:
        _skip_canceled(run_id, now)
    return len(runs)


def archive(run: Run, user: User, now: datetime, archived: bool = True) -> Answer:
    with change(run, user):
        if archived and run.status in Run.LIVE:
            return Answer(False, "The run is still going on.", run)
        run.archived = archived
        run.save(update_fields=["archived"])
        run.message_2.update(archived=archived)
        log_event(run, user, now, "archived" if archived else "unarchived")
    return Answer(True, "Archived." if archived else "Back in the list.", run)


@contextmanager
def change(run: Run, user: User) -> Iterator[None]:
    """One control's transaction: the run's row locked and fresh, ownership checked."""
    access.require(user, run)
    with transaction.atomic():
        Run.objects.select_for_update().get(pk=run.pk)
        run.refresh_from_db()
        yield


def pk_of(user: User) -> int | None:
    return user.pk if user is not None else None


def log_event(run: Run, user: User, now: datetime, verb: str, detail: str = "") -> None:
    Event.objects.create(run=run, actor=user, at=now, verb=verb, detail=detail)
