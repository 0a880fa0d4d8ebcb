"""Message 2: what a person gets who replies to Message 1 within a day.

It goes out in a run of its own, which answers the run of Message 1: made with the first reply, one target per person
ever, ahead of the account's other work.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet

from fanout.lanes.poke import poke
from fanout.lanes.settings import business_hours
from fanout.lanes.statements import carry_out
from fanout.models import Event, PauseReason, Run, RunTarget
from fanout.rules.gates import TOO_LATE
from fanout.runs import transitions
from reminders.moments import wall_clock
from reminders.placeholders import lacking, required_in

Status = RunTarget.Status

WITHIN = timedelta(hours=24)  # a reply to Message 1; and Message 2 after the reply
TITLE = " (Message 2)"
TITLE_LENGTH = 200


# --- a reply ------------------------------------------------------------------------------------------------


def answer(target_id: int, replied_at: datetime, now: datetime) -> str:
    """Message 2 for the person who replied to this target; says what came of it. The caller has locked the runs of both
    messages."""
    message_1 = RunTarget.objects.select_related("run", "account").get(pk=target_id)
    parent = message_1.run
    if parent.status == Run.Status.CANCELED:
        return "no Message 2: its run was canceled"
    if not in_time(message_1, replied_at):
        return "no Message 2: the reply came more than 24 hours after Message 1"
    run = parent.message_2.first()
    if run is not None and run.status == Run.Status.CANCELED:
        return "no Message 2: it was canceled"
    if run is not None and run.targets.filter(address=message_1.address).exists():
        return "no second Message 2"
    expires_at = replied_at + WITHIN
    opens = _opens(message_1, now)
    if opens is None or opens >= expires_at:
        _add(run or _make(message_1, now, now), message_1, expires_at, now, why=TOO_LATE)
        return f"no Message 2: {TOO_LATE}"
    if lacks := set(required_in(parent.reply_parts)) - set(message_1.values or {}):
        _add(run or _make(message_1, now, now), message_1, expires_at, now, why=lacking(lacks))
        return f"no Message 2: {lacking(lacks)}"
    _send(run or _make(message_1, opens, now), message_1, expires_at, opens, now)
    return "Message 2 queued" if opens <= now else f"Message 2 waits for {wall_clock(opens, parent.timezone)}"


def in_time(message_1: RunTarget, replied_at: datetime) -> bool:
    """Within a day of Message 1's last part, or before that part."""
    if message_1.status in (Status.PENDING, Status.SENDING):
        return True
    # One that went out in part, or perhaps, ended with its last try; a bounce that came later settles it anew.
    ended_at = message_1.settled_at if message_1.status == Status.SENT else message_1.claimed_at
    return ended_at is None or replied_at <= ended_at + WITHIN


def _opens(message_1: RunTarget, now: datetime) -> datetime | None:
    """When the run's window and the account's hours are both open."""
    return message_1.run.window.meets(business_hours(message_1.account.__dict__), now)


def _make(message_1: RunTarget, opens: datetime, now: datetime) -> Run:
    parent = message_1.run
    run = Run.objects.create(
        answers=parent,
        reminder_id=parent.reminder_id,
        account_id=message_1.account_id,
        lanes=[message_1.account_id],
        owner_id=parent.owner_id,
        team_id=parent.team_id,
        title=parent.title[: TITLE_LENGTH - len(TITLE)] + TITLE,
        action=parent.action,
        archived=parent.archived,
        scheduled_for=now,
        parts=parent.reply_parts,
        timezone=parent.timezone,
        window_start_hour=parent.window_start_hour,
        window_end_hour=parent.window_end_hour,
        window_closes_at=parent.window.closes_on(opens),
        auto_resume=True,
        # Nothing to send yet: the first target takes it up.
        status=Run.Status.SUCCESS,
        finished_at=now,
    )
    Event.objects.create(run=run, at=now, verb="fired", detail="the first reply came")
    return run


def _send(run: Run, message_1: RunTarget, expires_at: datetime, opens: datetime, now: datetime) -> None:
    parent = message_1.run
    paused = parent.status == Run.Status.PAUSED and parent.pause_reason == PauseReason.OPERATOR
    closes_at = run.window.closes_on(opens)
    carry_out(transitions.take_up(run.pk, message_1.account_id, closes_at, paused, now))
    _add(run, message_1, expires_at, max(opens, now))
    run.refresh_from_db(fields=["lanes"])
    poke(run.lanes, now)


def _add(run: Run, message_1: RunTarget, expires_at: datetime, planned_at: datetime, why: str = "") -> None:
    """`why`: it cannot go out any more, and is only counted."""
    run.refresh_from_db(fields=["total"])
    settled: dict[str, Any] = {"status": Status.SKIPPED, "error": why, "settled_at": planned_at} if why else {}
    RunTarget.objects.create(
        run=run,
        account_id=message_1.account_id,
        recipient_id=message_1.recipient_id,
        position=run.total + 1,
        address=message_1.address,
        values=message_1.values,
        planned_at=planned_at,
        expires_at=expires_at,
        **settled,
    )
    if why:
        carry_out(transitions.rejudge(run.pk, planned_at))


def skip_expired(now: datetime) -> int:
    """What waited in vain for its window, its cap or its operator. Called every minute."""
    waiting = Run.objects.filter(answers__isnull=False, status__in=[*Run.LIVE, Run.Status.PAUSED], pending__gt=0)
    return sum(_skip_expired(run_id, now) for run_id in waiting.values_list("pk", flat=True))


def _skip_expired(run_id: int, now: datetime) -> int:
    with transaction.atomic():
        run = Run.objects.select_for_update(no_key=True).get(pk=run_id)
        expired = run.targets.filter(status=Status.PENDING, expires_at__lte=now)
        return carry_out(transitions.take_out(list(expired.values_list("pk", flat=True)), TOO_LATE, now))


# --- what the operator reads ----------------------------------------------------------------------------------


def listed(runs: QuerySet[Run]) -> QuerySet[Run]:
    """The runs of a list: Message 2 is shown with Message 1, unless it waits for an operator's hand."""
    return runs.filter(Q(answers__isnull=True) | Q(status=Run.Status.PAUSED, resume_at__isnull=True))


def summary(run: Run, now: datetime) -> str:
    """“212 sent, 14 waiting for 06:00, 3 too late”, of a Message 2."""
    too_late = run.targets.filter(status=Status.SKIPPED, error=TOO_LATE).count()
    counts = [
        (run.sent, "sent"),
        (run.pending + run.sending, _waiting(run, now)),
        (too_late, "too late"),
        (run.skipped - too_late, "skipped"),
        (run.failed, "failed"),
        (run.unconfirmed, "unconfirmed"),
    ]
    return ", ".join(f"{n} {word}" for n, word in counts if n) or "0 sent"


def _waiting(run: Run, now: datetime) -> str:
    until = run.resume_at if run.status == Run.Status.PAUSED else run.waiting_until
    if until is not None:
        return f"waiting for {wall_clock(until, run.timezone, now)}"
    return f"waiting, {run.get_pause_reason_display()}" if run.status == Run.Status.PAUSED else "on their way"
