"""Correct what a run did or will do: settle unconfirmed targets, offload the rest to another account,
archive reminders, accounts and recipients.

Like the controls, each is one call that returns a sentence, also when nothing was changed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import F, Q, QuerySet

from accounts import access
from accounts.channels.registry import channel
from accounts.models import Account
from fanout.database import LOCK_RUNS, carry_out, execute
from fanout.lanes import chats, status
from fanout.lanes.lane_rows import lock_lanes, wake_lanes
from fanout.models import Activity, Correction, Offload, Run, RunTarget
from fanout.models.trail import note
from fanout.plans.queue import movable, run_shares, shares_in_words
from fanout.rules.outcomes import next_part
from fanout.runs import follow_ups, texts, transitions
from fanout.runs.controls import (
    CHUNKS_FOR,
    ControlResult,
    User,
    begin_correction,
    change,
    describe_pause,
    enqueue_rest,
    go_on_if_open,
    log_event,
    reopen_targets,
    resume_when_open,
    senders,
)
from fanout.runs.planning import plan_anew
from reminders.models import Recipient, Reminder, ReminderTarget
from reminders.targets import restore

log = logging.getLogger("crier.corrections")

# --- unconfirmed targets ---------------------------------------------------------------------------------


def settle(
    run: Run, ids: Iterable[int], delivered: bool, user: User, now: datetime, by_provider: bool = False, words: str = ""
) -> ControlResult:
    """Settle unconfirmed targets by an operator's word, or the provider's: they were delivered, or are sent again.

    `words`: the timeline's, where it was neither.
    """
    ids, words = list(ids), words or _settled_as(delivered, by_provider)
    if len(ids) > transitions.CHUNK:
        return _settle_many(run, ids, delivered, user, now, words)
    with change(run, user):
        unconfirmed = run.targets.filter(pk__in=ids, status=RunTarget.Status.UNCONFIRMED)
        targets = list(unconfirmed.select_related("account"))
        if not targets:
            return ControlResult(False, "These targets are no longer unconfirmed.", run)
        again = _believe(run, targets, now) if delivered else [target.pk for target in targets]
        if again and run.status == Run.Status.CANCELED:
            skipped = RunTarget.objects.filter(pk__in=again)
            skipped.update(status=RunTarget.Status.SKIPPED, error=texts.CANCELED, settled_at=now)
            again = []
        was_finished = bool(again) and carry_out(transitions.reopen(run.pk, now))
        if delivered and again:
            # In this transaction: after a crash in between they would be unconfirmed, and settled a second time.
            carry_out(transitions.reopen_targets(run.pk, again, len(run.parts), now))
        log_event(run, user, now, "settled", f"{len(targets)} × {words}")
        if not again:
            carry_out(transitions.rejudge(run.pk, now))
    if again:
        was_finished |= not delivered and reopen_targets(run, again, now)
        return _send_again(run, len(again), was_finished, now)
    what = "marked as delivered" if delivered else "settled; the run was canceled and sends nothing more"
    return ControlResult(True, f"{len(targets)} targets {what}.", run)


def _settle_many(run: Run, ids: list[int], delivered: bool, user: User, now: datetime, words: str) -> ControlResult:
    """Have a task settle them, chunk by chunk, by the same function."""
    with change(run, user):
        unconfirmed = run.targets.filter(status=RunTarget.Status.UNCONFIRMED, pk__in=ids)
        targets = list(unconfirmed.order_by("position", "pk").values_list("pk", flat=True))
        if not targets:
            return ControlResult(False, "These targets are no longer unconfirmed.", run)
        what = f"targets will be {'marked as delivered' if delivered else 'sent again'}"
        return begin_correction(run, user, now, targets, delivered, "settling", what, words)


def carry_on_corrections(now: datetime, seconds: float) -> bool:
    """Carry on with the corrections that are under way, one after the other. Returns whether all are at their end."""
    until = time.monotonic() + seconds
    for pk, run_id in list(Correction.objects.order_by("pk").values_list("pk", "run_id")):
        try:
            while time.monotonic() < until and _correct_chunk(pk, now):
                pass
        except Exception:
            # One that fails must not hold up the others; it is tried again in the next minute.
            log.exception("a correction could not be carried on", extra={"run": run_id})
    return not Correction.objects.exists()


def _correct_chunk(pk: int, now: datetime) -> bool:
    """Correct the next targets and note how far it got, in one transaction. Returns whether there may be more.

    Each target has its turn once: what fails again meanwhile is not tried a second time. A run goes on with its first
    targets, or when it was finished; one that an operator has paused since waits for the operator."""
    with transaction.atomic():
        rows = Correction.objects.select_for_update(of=("self",), skip_locked=True).select_related("run")
        under_way = rows.filter(pk=pk).first()
        if under_way is None:
            return False  # at its end, or another task is at it
        run, first = under_way.run, under_way.done
        chunk = under_way.targets[first : first + transitions.CHUNK]
        if not chunk:
            under_way.delete()
            return False
        if under_way.delivered is not None:
            settle(run, chunk, under_way.delivered, None, now, words=under_way.words)
        else:
            failed = run.targets.filter(pk__in=chunk, status=RunTarget.Status.FAILED).values_list("pk", flat=True)
            was_finished = reopen_targets(run, list(failed), now)
            if was_finished or not first:
                go_on_if_open(run, now, "", was_finished)
        under_way.done = first + len(chunk)
        under_way.save(update_fields=["done"])
    return True


def _send_again(run: Run, targets: int, was_finished: bool, now: datetime) -> ControlResult:
    """Continue a finished run with them; a run that an operator has paused waits for the operator."""
    if was_finished:
        return go_on_if_open(run, now, f"{targets} targets will be sent.", was_finished)
    with change(run, None):  # an operator may pause or cancel it at this moment
        if run.status == Run.Status.CANCELED:
            return ControlResult(False, "The run was canceled meanwhile: nothing more is sent.", run)
        if run.status == Run.Status.PAUSED:
            describe_pause(run)
            return ControlResult(True, f"{targets} targets will be sent when the run is resumed.", run)
    return ControlResult(True, f"{targets} targets will be sent.", run)


def _settled_as(delivered: bool, by_provider: bool) -> str:
    if by_provider:
        return "confirmed by the provider" if delivered else "refused by the provider, send again"
    return "was delivered" if delivered else "send again"


def _believe(run: Run, targets: list[RunTarget], now: datetime) -> list[int]:
    """Record that the unconfirmed part was delivered. Returns the targets that still have parts to come."""
    Activity.objects.bulk_create(
        Activity(
            account=target.account,
            run_target=target,
            action=channel(target.account.channel).counts(run.action),
            outcome=Activity.Outcome.SENT,
            part=target.parts_sent,
            at=target.claimed_at or now,
            kind="settled",
        )
        for target in targets
    )
    believed = RunTarget.objects.filter(pk__in=[target.pk for target in targets])
    believed.filter(part_ids={}).update(parts_sent=F("parts_sent") + 1)
    after = {target.pk: next_part(target.parts_sent, target.part_ids) for target in targets}
    for target in targets:
        if target.part_ids:
            believed.filter(pk=target.pk).update(parts_sent=after[target.pk])
    believed.filter(parts_sent__gte=len(run.parts)).update(status=RunTarget.Status.SENT, settled_at=now)
    more = [pk for pk, part in after.items() if part < len(run.parts)]
    whole = [target for target in targets if target.pk not in more]
    follow_ups.settled_as_sent([target.pk for target in whole], {target.address for target in whole})
    chats.begin_chats([target.pk for target in targets])
    return more


# --- offloading ------------------------------------------------------------------------------------------


def offload(run: Run, account: Account, user: User, now: datetime, and_resume: bool = False) -> ControlResult:
    """Move what is pending to another account of the same channel. What is in flight stays where it is. `and_resume`: a
    paused run goes on with it, now or when its window opens.

    Targets are moved in chunks, and the account may send the first ones while the others are still being moved. What
    takes longer than a person should wait is done by a task, also after a crash: see `carry_on_offloads`.
    """
    access.require(user, account)
    with change(run, user):
        if problem := _not_offloaded(run, account):
            return ControlResult(False, problem, run)
        total = movable(run, account).count()
        if not total:
            return ControlResult(False, f"There is nothing left to move.{_unmovable_note(run, account)}", run)
        fields = {"account": account, "actor": user, "began_at": now, "total": total, "and_resume": and_resume}
        begun, _ = Offload.objects.update_or_create(run=run, defaults=fields | {"moved": 0, "moved_at": None})
    return carry_on(begun, now, CHUNKS_FOR)


def carry_on(offload: Offload, now: datetime, seconds: float) -> ControlResult:
    """Carry on with an offload for some seconds. Returns what has happened, also where it is not at its end."""
    run, until = offload.run, time.monotonic() + seconds
    while offload.moved_at is None and time.monotonic() < until:
        if problem := _move_chunk(offload, now):
            run.refresh_from_db()
            return ControlResult(False, problem, run)
    if offload.moved_at is None:
        enqueue_rest()
        run.refresh_from_db()
        return ControlResult(True, f"{offload} so far; the rest follows by itself.", run)
    plan_anew(offload.account, now, run, until=max(until, time.monotonic() + CHUNKS_FOR))
    run.refresh_from_db()
    Offload.objects.filter(pk=offload.pk, began_at=offload.began_at).delete()
    # Counted without a lock, because the run may be large.
    shares, note = shares_in_words(run_shares(run)), _unmovable_note(run, offload.account)
    text = f"{offload.moved} targets moved to {offload.account.label}: {shares}.{note}"
    if offload.and_resume and run.status == Run.Status.PAUSED:
        text = f"{text} {resume_when_open(run, offload.actor, now).text}"
    return ControlResult(True, text, run)


def carry_on_offloads(now: datetime, seconds: float) -> bool:
    """Carry on with the offloads that are under way, one after the other. Returns whether all are at their end."""
    until = time.monotonic() + seconds
    for offload in Offload.objects.select_related("run__account", "account", "actor").order_by("pk"):
        if time.monotonic() >= until:
            return False
        carry_on(offload, now, until - time.monotonic())
    return not Offload.objects.exists()


def _move_chunk(offload: Offload, now: datetime) -> str:
    """Move a chunk. It locks the run for a moment only, and the account becomes a lane of the run with its first
    target. Returns why the offload ended before its end; empty where it goes on."""
    run, account = offload.run, offload.account
    with transaction.atomic():
        execute(LOCK_RUNS, {"runs": [run.pk]})  # runs are locked before their targets
        mine = Offload.objects.filter(pk=offload.pk, began_at=offload.began_at)
        if not mine.exists():
            return "Another offload has taken its place, or it was carried to its end."
        run.refresh_from_db()
        account.refresh_from_db()
        if problem := _not_offloaded(run, account):
            mine.delete()
            if offload.moved:
                log_event(run, offload.actor, now, "offloaded", f"{offload}; then: {problem}")
            return problem
        lock_lanes({*run.lanes, account.pk})  # all that are woken below, in their order
        ids = _unlocked(movable(run, account))
        RunTarget.objects.filter(pk__in=ids).update(account=account, next_attempt_at=None)
        offload.moved += len(ids)
        if ids:
            carry_out(transitions.add_lanes(run.pk, [account.pk], now))
        if len(ids) < transitions.CHUNK:
            offload.moved_at = now
            before, run.lanes = run.lanes, senders(run)
            run.save(update_fields=["lanes"])
            wake_lanes({*before, *run.lanes}, now)
            log_event(run, offload.actor, now, "offloaded", f"{offload.moved} targets to {account.label}")
        mine.update(moved=offload.moved, moved_at=offload.moved_at)
    return ""


def _not_offloaded(run: Run, account: Account) -> str:
    """Return why a run is not offloaded to this account; empty where it can be."""
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


def _unmovable_note(run: Run, account: Account) -> str:
    stay = run.targets.filter(status=RunTarget.Status.PENDING, in_doubt=True).exclude(account=account).count()
    return f" {stay} may have been delivered already and stay where they are." if stay else ""


def _channels(run: Run) -> list[str]:
    """Return the channels of its pending targets; its own account's where nothing is pending."""
    left = run.targets.filter(status=RunTarget.Status.PENDING).order_by()
    return sorted(left.values_list("account__channel", flat=True).distinct()) or [run.account.channel]


def _unlocked(targets: QuerySet[RunTarget]) -> list[int]:
    """Return a chunk of the targets that no claim has locked at this moment."""
    free = targets.order_by("pk").select_for_update(skip_locked=True)
    return list(free.values_list("pk", flat=True)[: transitions.CHUNK])


# --- archiving -------------------------------------------------------------------------------------------


def archive_reminder(reminder: Reminder, user: Any, now: datetime) -> ControlResult:
    """Archive the reminder and switch it off: an archived reminder never fires."""
    access.require(user, reminder)
    with transaction.atomic():
        row = Reminder.objects.select_for_update(of=("self",)).get(pk=reminder.pk)
        if row.archived:
            return ControlResult(False, f"{row} is archived already.")
        if row.runs.filter(status__in=Run.UNDER_WAY).exists():
            return ControlResult(False, f"{row} is going out now: cancel its run, or wait for its end.")
        row.archived, row.enabled = True, False
        row.save(update_fields=["archived", "enabled", "updated_at"])
        note("archived", row, user, now)
    return ControlResult(True, f"{row} was archived and will not fire any more.")


def restore_reminder(reminder: Reminder, user: Any, now: datetime) -> ControlResult:
    return _restore(reminder, "It is off: switch it on when it should fire.", user, now)


def archive_account(account: Account, user: Any, now: datetime) -> ControlResult:
    """Archive the account and pause it: an archived account sends nothing."""
    access.require(user, account)
    with transaction.atomic():
        row = Account.objects.select_for_update(of=("self",)).get(pk=account.pk)
        if row.archived:
            return ControlResult(False, f"{row} is archived already.")
        if problem := _in_use(row):
            return ControlResult(False, problem)
        carry_out(status.pause(row.pk, "archived", user.pk if user else None, now))
        Account.objects.filter(pk=row.pk).update(archived=True, updated_at=now)
        note("archived", row, user, now)
    return ControlResult(True, f"{row} was archived.")


def restore_account(account: Account, user: Any, now: datetime) -> ControlResult:
    what_next = f"It is {account.status}: {account.way_back} when it should send."
    return _restore(account, what_next, user, now)


def _restore(archived: Reminder | Account, what_next: str, user: Any, now: datetime) -> ControlResult:
    access.require(user, archived)
    with transaction.atomic():
        rows = type(archived)._default_manager.filter(pk=archived.pk, archived=True)
        if not rows.update(archived=False, updated_at=now):
            return ControlResult(False, f"{archived} is not archived.")
        note("restored", archived, user, now)
    return ControlResult(True, f"{archived} is back in the list. {what_next}")


def archive_recipient(recipient: Recipient, user: Any, now: datetime) -> ControlResult:
    """Archive the recipient and remove it from every reminder. Runs that were fired before still send to it."""
    access.require(user, recipient)
    with transaction.atomic():
        if not Recipient.objects.filter(pk=recipient.pk, archived=False).update(archived=True):
            return ControlResult(False, f"{recipient} is archived already.")
        ReminderTarget.objects.filter(recipient=recipient).delete()
        note("archived", recipient, user, now)
    return ControlResult(True, f"{recipient} was archived and is no longer among any reminder's targets.")


def remove_recipient(recipient: Recipient, user: Any, now: datetime) -> ControlResult:
    """Delete the recipient if no run ever had it, otherwise archive it."""
    if recipient.run_targets.exists():
        return archive_recipient(recipient, user, now)
    access.require(user, recipient)
    with transaction.atomic():
        note("deleted", recipient, user, now)
        recipient.delete()
    return ControlResult(True, f"{recipient} was deleted.")


def restore_recipient(recipient: Recipient, user: Any, now: datetime) -> ControlResult:
    access.require(user, recipient)
    with transaction.atomic():
        if not restore(Recipient.objects.filter(pk=recipient.pk)):
            return ControlResult(False, f"{recipient} is not archived.")
        note("restored", recipient, user, now)
    return ControlResult(True, f"{recipient} is back in the list.")


def _in_use(account: Account) -> str:
    """Return why an account cannot be archived; empty where it can."""
    if Run.objects.filter(status__in=Run.UNDER_WAY, lanes__contains=[account.pk]).exists():
        return f"{account} is sending for a run: cancel or offload the run, or wait for its end."
    uses = Q(account=account) | Q(further_senders__account=account)
    using = Reminder.objects.filter(uses, enabled=True).distinct().count()
    if using:
        reminders = "1 reminder that is" if using == 1 else f"{using} reminders that are"
        return f"{account} is used by {reminders} switched on: choose another account there, or archive them first."
    return ""
