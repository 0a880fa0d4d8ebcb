"""Offloading: what is pending in a run moves to another account of the same channel."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction
from django.db.models import QuerySet

from accounts import access
from accounts.models import Account
from fanout.database import carry_out, execute
from fanout.lanes.wake import wake_lanes
from fanout.models import Run, RunTarget
from fanout.plans import split
from fanout.plans.queue import movable
from fanout.runs import transitions
from fanout.runs.controls import Answer, User, change, log_event, resume_when_open, senders
from fanout.runs.replanning import plan_anew


def offload(run: Run, account: Account, user: User, now: datetime, and_resume: bool = False) -> Answer:
    """Move what is pending to another account of the same channel. What is in flight stays where it is.
    `and_resume`: a paused run goes on with it, now or when its window opens."""
    access.require(user, account)
    with change(run, user):
        if problem := _not_offloaded(run, account):
            return Answer(False, problem, run)
        before = run.lanes
    moved = _move(run, account, now)
    if not moved:
        return Answer(False, f"There is nothing left to move.{_in_doubt(run, account)}", run)
    with change(run, user):
        run.lanes = senders(run)
        run.save(update_fields=["lanes"])
        wake_lanes({*before, *run.lanes}, now)
        log_event(run, user, now, "offloaded", f"{moved} targets to {account.label}")
    plan_anew(account, now, run)
    # Counted while nothing is locked: the run may be large.
    text = f"{moved} targets moved to {account.label}: {split.in_words(split.whole(run))}.{_in_doubt(run, account)}"
    if and_resume and run.status == Run.Status.PAUSED:
        text = f"{text} {resume_when_open(run, user, now).text}"
    return Answer(True, text, run)


def _not_offloaded(run: Run, account: Account) -> str:
    """Why a run is not offloaded to this account; nothing where it can be."""
    if run.status in Run.FINISHED:
        return f"The run is {run.status}: there is nothing to offload."
    if run.status == Run.Status.PREPARING:
        return "The run is still being prepared: offload it when it is queued."
    if run.answers_id is not None:
        return "Message 2 comes from the account that was replied to: it cannot be offloaded."
    channels = _channels(run)
    if account.channel not in channels:
        return f"{account.label} is a {account.channel} account, the run needs {' or '.join(channels)}."
    if account.status != Account.Status.ACTIVE:
        return f"{account.label} is {account.status}: choose an active account."
    return ""


def _move(run: Run, account: Account, now: datetime) -> int:
    """In chunks: each locks the run for a moment only, and the account is a lane of the run with the first target that
    it gets. Returns how many were moved."""
    moved = 0
    while True:
        with transaction.atomic():
            execute(transitions.LOCK, {"runs": [run.pk]})  # before its targets, as everybody locks them
            ids = _unlocked(movable(run, account))
            RunTarget.objects.filter(pk__in=ids).update(account=account, next_attempt_at=None)
            if ids:
                carry_out(transitions.add_lanes(run.pk, [account.pk], now))
        moved += len(ids)
        if len(ids) < transitions.CHUNK:
            return moved


def _in_doubt(run: Run, account: Account) -> str:
    stay = run.targets.filter(status=RunTarget.Status.PENDING, in_doubt=True).exclude(account=account).count()
    return f" {stay} may have been delivered already and stay where they are." if stay else ""


def _channels(run: Run) -> list[str]:
    """The channels that its pending targets go through; its own account's where nothing is pending."""
    left = run.targets.filter(status=RunTarget.Status.PENDING).order_by()
    return sorted(left.values_list("account__channel", flat=True).distinct()) or [run.account.channel]


def _unlocked(targets: QuerySet[RunTarget]) -> list[int]:
    """A chunk of those that no claim has in its hands at this moment."""
    free = targets.order_by("pk").select_for_update(skip_locked=True)
    return list(free.values_list("pk", flat=True)[: transitions.CHUNK])
