"""What operators do with targets that have ended: retry the failed ones, settle the unconfirmed ones.

What is to be sent after all becomes pending again, and its run goes on with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from django.db import transaction
from django.db.models import F

from accounts.channels.registry import channel
from fanout.database import carry_out
from fanout.lanes import new_chats
from fanout.models import Activity, Run, RunTarget
from fanout.runs import follow_ups, texts, transitions
from fanout.runs.controls import Answer, User, change, describe_pause, go_on_if_open, log_event


def retry_failed(run: Run, user: User, now: datetime, kinds: Iterable[str] | None = None) -> Answer:
    """Failed targets become pending again, all or those of some error kinds; the run goes on with them."""
    with change(run, user):
        if run.status not in (Run.Status.PARTIAL, Run.Status.FAILED, Run.Status.PAUSED):
            return Answer(False, f"The run is {run.status}: failed targets are retried once it has stopped.", run)
        failed = run.targets.filter(status=RunTarget.Status.FAILED)
        if kinds is not None:
            failed = failed.filter(error_kind__in=list(kinds))
        ids = list(failed.values_list("pk", flat=True))
        if not ids:
            return Answer(False, "There are no failed targets to retry.", run)
        carry_out(transitions.reopen(run.pk, now))
        log_event(run, user, now, "retry failed", f"{len(ids)} targets")
    _reopen(run, ids, now)
    return go_on_if_open(run, now, f"{len(ids)} failed targets will be tried again.")


def settle(
    run: Run, ids: Iterable[int], delivered: bool, user: User, now: datetime, by_provider: bool = False
) -> Answer:
    """The operator's word on unconfirmed targets, or the provider's: it was delivered, or send it again."""
    with change(run, user):
        unconfirmed = run.targets.filter(pk__in=list(ids), status=RunTarget.Status.UNCONFIRMED)
        targets = list(unconfirmed.select_related("account"))
        if not targets:
            return Answer(False, "These targets are no longer unconfirmed.", run)
        again = _believe(run, targets, now) if delivered else [target.pk for target in targets]
        if again and run.status == Run.Status.CANCELED:
            skipped = RunTarget.objects.filter(pk__in=again)
            skipped.update(status=RunTarget.Status.SKIPPED, error=texts.CANCELED, settled_at=now)
            again = []
        was_finished = bool(again) and carry_out(transitions.reopen(run.pk, now))
        if delivered and again:
            # In this transaction: after a crash in between they would be unconfirmed, and settled a second time.
            carry_out(transitions.reopen_targets(run.pk, again, len(run.parts), now))
        log_event(run, user, now, "settled", f"{len(targets)} × {_settled_as(delivered, by_provider)}")
        if not again:
            carry_out(transitions.rejudge(run.pk, now))
    if again:
        was_finished |= not delivered and _reopen(run, again, now)
        return _to_be_sent(run, len(again), was_finished, now)
    what = "marked as delivered" if delivered else "settled; the run was canceled and sends nothing more"
    return Answer(True, f"{len(targets)} targets {what}.", run)


def _to_be_sent(run: Run, targets: int, was_finished: bool, now: datetime) -> Answer:
    """A run that was finished goes on with them; one that an operator has paused waits for the operator."""
    run.refresh_from_db()
    if was_finished or run.status != Run.Status.PAUSED:
        return go_on_if_open(run, now, f"{targets} targets will be sent.")
    describe_pause(run)
    return Answer(True, f"{targets} targets will be sent when the run is resumed.", run)


def _settled_as(delivered: bool, by_provider: bool) -> str:
    if by_provider:
        return "confirmed by the provider" if delivered else "refused by the provider, send again"
    return "was delivered" if delivered else "send again"


def _believe(run: Run, targets: list[RunTarget], now: datetime) -> list[int]:
    """The part in doubt was delivered. Returns the targets that still have parts to come."""
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
    believed.update(parts_sent=F("parts_sent") + 1)
    believed.filter(parts_sent__gte=len(run.parts)).update(status=RunTarget.Status.SENT, settled_at=now)
    more = [target.pk for target in targets if target.parts_sent + 1 < len(run.parts)]
    whole = [target for target in targets if target.pk not in more]
    follow_ups.settled_as_sent([target.pk for target in whole], {target.address for target in whole})
    new_chats.begin_chats([target.pk for target in targets])
    return more


def _reopen(run: Run, ids: list[int], now: datetime) -> bool:
    """In chunks: each locks the run for a moment only. Whether the run had finished meanwhile and was paused."""
    was_finished = False
    for chunk in batched(ids, transitions.CHUNK):
        with transaction.atomic():
            was_finished |= carry_out(transitions.reopen_targets(run.pk, chunk, len(run.parts), now))[1]
    run.refresh_from_db()
    return was_finished


def batched(items: list[int], size: int) -> Iterator[list[int]]:
    return (items[first : first + size] for first in range(0, len(items), size))
