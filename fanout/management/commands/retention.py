"""`manage.py retention`: delete old runs and what belongs to them, a few at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from axes.models import AccessAttempt
from django.conf import settings
from django.contrib.sessions.models import Session
from django.core.management.base import CommandParser
from django.db import connection, transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet, TextField
from django.db.models.functions import Cast
from django.utils import timezone

from accounts.channels.waha import conversion
from accounts.fields import Sealed
from fanout.management.base import BadInput, CrierCommand, in_range
from fanout.models import Activity, Event, InboundEvent, LostClaim, Notification, Run, TrailEntry
from reminders.models import MediaFile

SHORTEST = 30  # days: caps, advice and cool-downs look back that far
LONGEST = 36_500
BATCH = 5000
WORDS = (
    *("runs", "targets", "activity", "events", "notifications", "sessions", "lockouts", "trail", "reports", "texts"),
    "conversions",
)

DELETE_TARGETS = "DELETE FROM fanout_runtarget WHERE run_id = %s"


class Command(CrierCommand):
    help = (
        "Delete finished runs, activity, events, notifications and failed logins older than --days, and sessions that "
        "ended; live and paused runs are kept. The audit trail is kept for AUDIT_TRAIL_DAYS, what providers reported "
        "for INBOUND_KEEP_DAYS, and the texts of replies for REPLY_TEXT_KEEP_DAYS. Converted videos and voice messages "
        f"are removed {conversion.KEPT_DAYS} days after their last use, and with their original. "
        "It works in small steps and can be interrupted and run again."
    )
    example = "retention --days 365 --dry-run"

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--days", type=int, default=365, help=f"days to keep, at least {SHORTEST} [365]")
        parser.add_argument("--most-runs", type=int, default=1000, help="most runs to delete in one call [1000]")
        parser.add_argument("--dry-run", action="store_true", help="count only")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["days"] < SHORTEST:
            raise BadInput(f"--days takes at least {SHORTEST}: daily caps and advice look back that far.")
        in_range("--days", options["days"], SHORTEST, LONGEST)
        in_range("--most-runs", options["most_runs"], 1, 1_000_000)
        before = timezone.now() - timedelta(days=options["days"])
        counts = count(before) if options["dry_run"] else self.delete(before, options["most_runs"])
        verb = "to delete" if options["dry_run"] else "deleted"
        text = ", ".join(f"{counts[word]} {word}" for word in WORDS)
        left = 0 if options["dry_run"] else old_runs(before).count()
        data = {word: counts[word] for word in WORDS}
        self.answer(
            data | {"before": before.isoformat(), "runs_left": left, "dry_run": options["dry_run"]},
            f"Before {before:%F}: {text} {verb}.",
            *([f"{left} more runs to delete: run the command again."] if left else []),
        )

    def delete(self, before: datetime, most: int) -> Counter[str]:
        counts: Counter[str] = Counter()
        counts["activity"] = delete_in_batches(Activity.objects.filter(at__lt=before))
        counts["events"] = delete_in_batches(Event.objects.filter(at__lt=before, run=None))
        counts["lost messages"] = delete_in_batches(old_lost_claims(before))
        counts["notifications"] = delete_in_batches(Notification.objects.filter(created_at__lt=before))
        counts["sessions"] = delete_in_batches(ended_sessions())
        counts["lockouts"] = delete_in_batches(old_lockouts(before))
        counts["trail"] = delete_in_batches(old_trail())
        counts["reports"] = delete_in_batches(old_reports())
        counts["texts"] = sum(_blank(old_texts()))
        counts["conversions"] = conversion.remove_unused(originals())
        # Message 2 first: deleted with its Message 1, it would not be counted. Follow-ups before what they follow.
        in_order = old_runs(before).order_by(*(F(name).asc(nulls_last=True) for name in ("answers", "follows")), "pk")
        runs = list(in_order.values_list("pk", flat=True)[:most])
        progress = self.progress(len(runs), "runs")
        for done, run in enumerate(runs):
            progress.show(done)
            if (targets := delete_run(run, before)) is not None:
                counts["targets"] += targets
                counts["runs"] += 1
        progress.end()
        return counts


def old_runs(before: datetime) -> QuerySet[Run]:
    """Return finished runs before that time, without those whose Message 2 is newer: it would be deleted, too. Runs
    stay while a follow-up is still to come or newer: it goes by their targets."""
    old = Run.objects.filter(status__in=Run.FINISHED, finished_at__lt=before, next_step_at=None)
    newer = Run.objects.exclude(pk__in=old.values("pk"))
    old = old.exclude(Exists(newer.filter(answers=OuterRef("pk"))))
    return old.exclude(Exists(newer.filter(follows=OuterRef("pk"))))


def old_lost_claims(before: datetime) -> QuerySet[LostClaim]:
    return LostClaim.objects.filter(confirmed_at__lt=before)


def old_trail() -> QuerySet[TrailEntry]:
    """Return audit trail entries past AUDIT_TRAIL_DAYS: they are kept longer than the rows they describe."""
    return TrailEntry.objects.filter(at__lt=timezone.now() - timedelta(days=settings.AUDIT_TRAIL_DAYS))


def old_reports() -> QuerySet[InboundEvent]:
    before = timezone.now() - timedelta(days=settings.INBOUND_KEEP_DAYS)
    return InboundEvent.objects.filter(came_at__lt=before).exclude(state=InboundEvent.State.NEW)


def old_texts() -> QuerySet[InboundEvent]:
    """Return inbound events past REPLY_TEXT_KEEP_DAYS: their texts are deleted earlier than the events."""
    before = timezone.now() - timedelta(days=settings.REPLY_TEXT_KEEP_DAYS)
    # As text: the field itself cannot be compared.
    rows = InboundEvent.objects.annotate(token=Cast("words", TextField())).exclude(token="")
    return rows.filter(came_at__lt=before).exclude(state=InboundEvent.State.NEW)


def count(before: datetime) -> Counter[str]:
    runs = old_runs(before)
    return Counter(
        runs=runs.count(),
        targets=sum(runs.values_list("total", flat=True)),
        activity=Activity.objects.filter(at__lt=before).count(),
        events=Event.objects.filter(at__lt=before, run=None).count(),
        notifications=Notification.objects.filter(created_at__lt=before).count(),
        **{"lost messages": old_lost_claims(before).count()},
        sessions=ended_sessions().count(),
        lockouts=old_lockouts(before).count(),
        trail=old_trail().count(),
        reports=old_reports().count(),
        texts=old_texts().count(),
        conversions=len(conversion.unused(originals())),
    )


def originals() -> set[str]:
    """Return the files of which a converted form may be kept."""
    return set(MediaFile.objects.values_list("sha256", flat=True))


def ended_sessions() -> QuerySet[Session]:
    return Session.objects.filter(expire_date__lt=timezone.now())


def old_lockouts(before: datetime) -> QuerySet[Any]:
    """Return old failed logins, which hold names and addresses of people."""
    attempts: QuerySet[Any] = AccessAttempt.objects.filter(attempt_time__lt=before)
    return attempts


def delete_run(run: int, before: datetime) -> int | None:
    """Delete a run with its targets in one transaction: with half of its targets its totals would be wrong.

    Later activity of its targets stays: searching for it would read all activity for every run. Returns the number of
    targets; None if the run, its Message 2 or a follow-up was resumed meanwhile, and is kept. It is also kept while a
    follow-up of it is left: without the run, one that is sent again would go to people who have replied.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        # Lock the runs before their targets, in the usual order, then check again: it may have been reopened meanwhile.
        list(Run.objects.filter(Q(pk=run) | Q(answers=run)).order_by("pk").select_for_update(of=("self",)).only("pk"))
        if not old_runs(before).filter(pk=run, follow_ups=None).exists():
            return None
        cursor.execute(DELETE_TARGETS, [run])
        targets: int = cursor.rowcount
        Run.objects.filter(pk=run).delete()
    return targets


def delete_in_batches(rows: QuerySet[Any]) -> int:
    return sum(_batches(rows))


def _batches(rows: QuerySet[Any]) -> Iterator[int]:
    while ids := list(rows.order_by("pk").values_list("pk", flat=True)[:BATCH]):
        # With the same condition: a session may have been renewed since, and an event processed again.
        yield rows.filter(pk__in=ids)._raw_delete(using="default")


def _blank(rows: QuerySet[InboundEvent]) -> Iterator[int]:
    while ids := list(rows.order_by("pk").values_list("pk", flat=True)[:BATCH]):
        yield rows.filter(pk__in=ids).update(words=Sealed(""))
