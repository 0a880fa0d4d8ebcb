"""Make runs of reminders that are due, one per reminder and moment, and answer what an operator asks before firing by
hand.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db import IntegrityError, connection, transaction
from django.db.models import Count, F, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Greatest

from accounts.models import Account, status_in_words
from fanout.database import carry_out, execute, raise_unless
from fanout.lanes import account_limits
from fanout.lanes.lane_rows import wake_lanes_at
from fanout.lanes.telling import tell_of_reminder
from fanout.models import Event, Run
from fanout.models.trail import with_author
from fanout.plans.audience import audience
from fanout.runs import transitions
from fanout.runs.freezing import (
    Snapshots,
    enqueue_preparing,
    freeze_targets,
    frozen,
    snapshots_of,
)
from reminders import readiness
from reminders.models import Reminder, ReminderTarget
from reminders.moments import duration, moment, wall_clock

log = logging.getLogger("crier.firing")


AHEAD = timedelta(seconds=60)  # runs are made this long before they start, so that they start on their second
MISSED_AT_MOST = 100  # firings of one reminder recorded after a downtime
RECENT = timedelta(hours=2)
# Fired in one transaction, so that their accounts are read together; no more than a task has time for.
MOST_REMINDERS = 25
MOST_TARGETS = 2_000
READ_TOGETHER = ("further_senders", "messages__media", "reply_parts__media", "follow_up_parts__media", "owner__groups")
LATELY = timedelta(hours=24)  # firing a reminder again within it asks first
LARGE = 20_000  # targets above which a run is prepared by a task of its own, in chunks
SET_ASIDE_AFTER = 3  # attempts that ended the worker; another reminder may have caused the first of them

ENDS_WORKERS = (
    "It was switched off, because making a run of it stopped Crier's worker several times and held up other reminders. "
    "Look at its text, recipients and schedule, then switch it on again on its page."
)
TRIED_AGAIN = "It is tried again every minute; an administrator finds the cause in the log of the cluster main."


class Targets(NamedTuple):
    """How many targets a reminder has, and how many of them are not its owner's own recipients."""

    total: int
    of_others: int


NO_TARGETS = Targets(0, 0)


@dataclass(slots=True)
class Together:
    """State shared by the firings of one transaction."""

    snapshots: Snapshots = field(default_factory=dict)  # what was read of accounts already
    targets: dict[int, Targets] = field(default_factory=dict)  # by reminder, where they were counted together
    due: dict[int, datetime] = field(default_factory=dict)  # lanes to wake at the end, each for its first moment

    def note_due(self, lanes: Iterable[int], at: datetime) -> None:
        self.due |= {lane: min(at, self.due.get(lane, at)) for lane in lanes}


def fire_due(now: datetime) -> list[Run]:
    """Make the runs that are due within the next minute, and account for those that were missed. Reminders whose last
    firing failed are left to `fire_after_failures`."""
    due = _due(now).filter(firing_attempts=0, firing_problem="").order_by("next_fire_at", "pk")
    sizes = due.annotate(size=Count("targets")).values_list("pk", "size", "segment")
    # A segment is not counted for this: its reminder is fired without others.
    alone = ((pk, size if segment is None else max(size, MOST_TARGETS)) for pk, size, segment in sizes)
    return [run for chunk in chunked(alone) for run in _fire_chunk(chunk, now)]


def fire_after_failures(now: datetime) -> list[Run]:
    """Fire the other reminders one by one: those that could not be fired, and those that a worker was firing when it
    died. One of them may have killed it and may kill this worker too, so those with the fewest attempts come first. A
    reminder with too many attempts is set aside."""
    failed_before = (
        _due(now).exclude(firing_attempts=0, firing_problem="").order_by("firing_attempts", "next_fire_at", "pk")
    )
    runs: list[Run] = []
    for pk, attempts in list(failed_before.values_list("pk", "firing_attempts")):
        if attempts < SET_ASIDE_AFTER:
            runs += _fire_chunk([pk], now)
        else:
            _set_aside(pk, now)
    return runs


def _due(now: datetime) -> QuerySet[Reminder]:
    return Reminder.objects.filter(enabled=True, next_fire_at__lte=now + AHEAD)


def _locked(reminders: QuerySet[Reminder]) -> QuerySet[Reminder]:
    """Lock the reminders, without those that are being fired or saved: they have their turn in the next minute."""
    return reminders.select_for_update(of=("self",), no_key=True, skip_locked=True)


def chunked(sizes: Iterable[tuple[int, int]]) -> Iterator[list[int]]:
    """Yield reminders, given with the number of their targets, in groups that are fired in one transaction. A large run
    only begins there: its targets do not count."""
    chunk: list[int] = []
    targets = 0
    for pk, size in sizes:
        copied = size if size <= LARGE else 0
        if chunk and (len(chunk) == MOST_REMINDERS or targets + copied > MOST_TARGETS):
            yield chunk
            chunk, targets = [], 0
        chunk.append(pk)
        targets += copied
    if chunk:
        yield chunk


def _fire_chunk(pks: list[int], now: datetime) -> list[Run]:
    """Fire the reminders together, or one by one if that fails: one broken reminder must not stop the others."""
    begun = _begin(pks, now)
    if not begun:
        return []
    try:
        return fire_if_due(begun, now)
    except Exception as error:
        if not connection.is_usable():
            raise  # the database went away, which no reminder causes
        # The attempt has ended, though it failed.
        Reminder.objects.filter(pk__in=begun).update(firing_attempts=Greatest(F("firing_attempts") - 1, 0))
        if len(begun) == 1:
            log.exception("a reminder could not be fired", extra={"reminder": begun[0]})
            _note_problem(begun[0], error, now)
            return []
    return [run for pk in begun for run in _fire_chunk([pk], now)]


def _begin(pks: list[int], now: datetime) -> list[int]:
    """Record the attempt durably: if it ends the worker, the next one knows which reminders were being fired. Returns
    the reminders that are still due."""
    with transaction.atomic():
        locked = set(_locked(_due(now).filter(pk__in=pks).order_by("pk")).values_list("pk", flat=True))
        Reminder.objects.filter(pk__in=locked).update(firing_attempts=F("firing_attempts") + 1)
    return [pk for pk in pks if pk in locked]


FIRED = """
UPDATE reminders_reminder r SET next_fire_at = f.at, firing_attempts = 0, firing_problem = ''
  FROM unnest(%(reminders)s::bigint[], %(times)s::timestamptz[]) AS f(id, at) WHERE r.id = f.id
"""


def fire_if_due(pks: list[int], now: datetime) -> list[Run]:
    """Make the runs of these reminders that are due. They are read under a lock, so that a reminder disabled or
    rescheduled since it was listed is left alone."""
    with transaction.atomic():  # all of them and the next times, or none: a kill in between loses no firing
        locked = _locked(_due(now).filter(pk__in=pks).order_by("pk")).select_related(
            "account", "owner", "segment__owner"
        )
        reminders = sorted(locked.prefetch_related(*READ_TOGETHER), key=lambda r: pks.index(r.pk))
        account_limits.lock_queues({account.pk for r in reminders if r.follow_up for account in r.senders})
        fixed = [reminder.pk for reminder in reminders if reminder.segment_id is None]
        together = Together(snapshots_of(reminders, now), count_targets(fixed))
        runs = [run for reminder in reminders for run in _fire_moments(reminder, now, together)]
        times = [reminder.next_fire_at for reminder in reminders]
        execute(FIRED, {"reminders": [reminder.pk for reminder in reminders], "times": times})
        wake_lanes_at(together.due, now)
        return runs


def count_targets(reminders: Sequence[int]) -> dict[int, Targets]:
    """Return the targets of each reminder in numbers."""
    rows = ReminderTarget.objects.filter(reminder__in=reminders).order_by().values_list("reminder")
    of_others = Count("pk", filter=~Q(recipient__owner=F("reminder__owner")))
    counted = {pk: Targets(total, others) for pk, total, others in rows.annotate(n=Count("pk"), of_others=of_others)}
    return dict.fromkeys(reminders, NO_TARGETS) | counted


def count_audience(reminder: Reminder, at: datetime) -> Targets:
    """Return to how many the reminder goes at this moment. Of a segment no more are counted than make a run large."""
    fixed = count_targets([reminder.pk])[reminder.pk]
    if reminder.segment_id is None:
        return fixed
    return fixed._replace(total=audience(reminder, at)[: LARGE + 1].count())


def _set_aside(pk: int, now: datetime) -> None:
    """Switch the reminder off and tell its owner. Its content is not read, because that is what ended the workers."""
    with transaction.atomic():
        failed_before = _due(now).filter(pk=pk, firing_attempts__gte=SET_ASIDE_AFTER)
        reminder = _locked(failed_before).first()
        if reminder is None:
            return
        reminder.enabled, reminder.firing_attempts, reminder.firing_problem = False, 0, ENDS_WORKERS
        reminder.save(update_fields=["enabled", "firing_attempts", "firing_problem", "updated_at"])
        due_at = moment(reminder.next_fire_at or now, reminder.timezone)
        body = f"“{reminder.title}”: {ENDS_WORKERS} Nothing was sent {due_at}."
        execute(*tell_of_reminder(reminder, "Reminder switched off", body, now))
    log.error("a reminder was set aside: firing it ended its worker", extra={"reminder": pk})


def _note_problem(pk: int, error: Exception, now: datetime) -> None:
    """Show why it could not be fired, and tell its owner once."""
    problem = f"It could not be fired because of an error in Crier ({type(error).__name__}). {TRIED_AGAIN}"
    with transaction.atomic():
        if Reminder.objects.filter(pk=pk).exclude(firing_problem=problem).update(firing_problem=problem):
            reminder = Reminder.objects.get(pk=pk)
            body = f"“{reminder.title}”: {problem}"
            execute(*tell_of_reminder(reminder, "Reminder could not be fired", body, now))


def _fire_moments(reminder: Reminder, now: datetime, together: Together) -> list[Run]:
    """Make up for only the last of several missed firings: the same text ten times, because the machine was off, helps
    no reader."""
    moments = _due_moments(reminder, now)
    missed = [moment for moment in moments if moment < now - AHEAD]
    note = "Missed: Crier did not run or could not fire it in time; a later firing of the same reminder took its place."
    runs = [_make_run(reminder, moment, now, together, skip=note) for moment in missed[:-1][:MISSED_AT_MOST]]
    runs += [_make_run(reminder, moment, now, together) for moment in [*missed[-1:], *moments[len(missed) :]]]
    return [run for run in runs if run is not None]


def _due_moments(reminder: Reminder, now: datetime) -> list[datetime]:
    """Return the first of the missed moments, as many as are worth recording, and all of the last two hours."""
    moments: list[datetime] = []
    while reminder.next_fire_at is not None and reminder.next_fire_at <= now + AHEAD:
        moments.append(reminder.next_fire_at)
        long_ago = len(moments) >= MISSED_AT_MOST and reminder.next_fire_at < now - RECENT
        reminder.next_fire_at = reminder.firing_after(_last_before(reminder, now) if long_ago else moments[-1])
    return moments


def _last_before(reminder: Reminder, now: datetime) -> datetime:
    """Return a moment, never before the one already reached, from which the next firing is the last one missed or close
    to it. Doubling the step keeps it to a few look-ups, however long the machine was off."""
    step = RECENT
    while reminder.next_fire_at is not None and now - step > reminder.next_fire_at:
        following = reminder.firing_after(now - step)
        if following is not None and following <= now - AHEAD:
            return now - step
        step *= 2
    assert reminder.next_fire_at is not None
    return reminder.next_fire_at


def make_run(reminder: Reminder, scheduled_for: datetime, now: datetime, actor: Any = None) -> Run | None:
    """Make a run; None: this moment already has one."""
    together = Together()
    with transaction.atomic():
        run = _make_run(reminder, scheduled_for, now, together, actor)
        wake_lanes_at(together.due, now)
    return run


def _make_run(
    reminder: Reminder, scheduled_for: datetime, now: datetime, together: Together, actor: Any = None, skip: str = ""
) -> Run | None:
    """Make a run in the caller's transaction, which wakes the lanes at its end."""
    targets = together.targets.get(reminder.pk) or count_audience(reminder, scheduled_for)
    skip = skip or reason_to_skip(reminder, targets)
    try:
        with transaction.atomic():
            run = Run.objects.create(**frozen(reminder, scheduled_for), **(_skipped(skip, now) if skip else {}))
            Event.objects.create(run=run, actor=actor, at=now, verb="fired", detail=with_author(skip, actor))
            if not skip:
                send_off(run, targets.total, now, together)
    except IntegrityError as error:
        raise_unless(error, "run_once_per_moment")
        return None
    return run


def _skipped(reason: str, now: datetime) -> dict[str, Any]:
    return {"status": Run.Status.SKIPPED, "error_summary": reason, "finished_at": now}


def send_off(run: Run, size: int, now: datetime, together: Together) -> None:
    """Freeze the targets with their plan and note the lanes to wake; where the window is over, fail at once. A large
    run only begins here: `freezing.prepare` goes on with it."""
    if size > LARGE:
        run.status = Run.Status.PREPARING
        run.save(update_fields=["status"])
        transaction.on_commit(enqueue_preparing)
        return
    freeze_targets(run, now, together.snapshots)
    if not run.pending:
        carry_out(transitions.skip(run.pk, now))
        run.refresh_from_db()
    elif run.window_closes_at <= now:
        carry_out(transitions.fail_unstarted(run.pk, now))
        run.refresh_from_db()
    else:
        together.note_due(run.lanes, run.scheduled_for)


def reason_to_skip(reminder: Reminder, targets: Targets) -> str:
    """Return why a reminder with these targets is not sent; empty: it is."""
    senders = reminder.senders
    if not any(account.status == Account.Status.ACTIVE for account in senders):
        account = senders[0]
        return f"The account {account.label} is {status_in_words(account.status, account.status_reason)}."
    if problem := readiness.rights_problem(reminder, reminder.owner, ask_recipients=targets.of_others > 0):
        return f"Its owner may not send this any more. {problem}"
    if not targets.total:
        shared = f" who is shared with {reminder.team}" if reminder.team else ""
        in_segment = f" No one{shared} is in the segment “{reminder.segment}” now." if reminder.segment else ""
        return f"The reminder has no targets.{in_segment}"
    if not reminder.messages.all():
        return "The reminder has no message."
    return ""


# --- asked before it is fired by hand ---------------------------------------------------------------------------


def last_runs(reminders: Sequence[int]) -> dict[int, Run]:
    """Return the newest run of each reminder, without tests, Message 2 and follow-ups."""
    own = Run.objects.filter(reminder=OuterRef("pk"), answers=None, is_test=False, step=0).order_by(
        "-scheduled_for", "-pk"
    )
    newest = Reminder.objects.filter(pk__in=reminders).values_list(Subquery(own.values("pk")[:1]), flat=True)
    runs = Run.objects.filter(pk__in=list(newest)).defer("parts", "reply_parts")
    return {run.reminder_id: run for run in runs}


def question(reminder: Reminder, recipients: str, last: Run | None, now: datetime) -> str:
    """Return what a person should know before firing by hand: to whom, what went out lately, and when it starts."""
    opens = when_closed(reminder, now)
    at = f"when its window opens, {moment(opens, reminder.timezone, now)}" if opens else "now"
    window = "" if opens else _window_today(reminder, now)
    sentences = [f"Send “{reminder.title}” to {recipients} {at}?", _lately(last, now), window]
    return " ".join(sentence for sentence in sentences if sentence)


def when_closed(reminder: Reminder, now: datetime) -> datetime | None:
    """Return the next opening where the window has closed for today: firing now would send nothing."""
    return reminder.window.next_opening(now) if reminder.window.closes_on(now) <= now else None


def _lately(last: Run | None, now: datetime) -> str:
    if last is None:
        return ""
    counts = f"{last.sent:,} of {last.total:,} sent"
    if last.status not in Run.FINISHED:
        return f"It is {last.status} already, {counts}: they would get it again."
    if last.sent and last.finished_at and now - last.finished_at < LATELY:
        passed = duration((now - last.finished_at).total_seconds())
        return f"It went out {passed} ago ({counts}): they would get it again."
    return ""


def _window_today(reminder: Reminder, now: datetime) -> str:
    opens = reminder.window.opens_on(now)
    return f"It starts when its window opens at {wall_clock(opens, reminder.timezone, now)}." if now < opens else ""
