"""Runs of the past weeks, as the engine would have left them. The trigger keeps their counters."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from accounts.channels.provider_events import EventKind
from fanout.database import carry_out
from fanout.inbound import replies
from fanout.inbound.event_store import SUPPRESSED_AS
from fanout.management.demo.cast import FOOD_BANK, OFFICE_CAP, VOLUNTEERS, ZONE, Cast
from fanout.management.demo.provider_book import BY_DEMO
from fanout.models import Activity, Event, InboundEvent, Notification, PauseReason, Run, RunTarget
from fanout.plans.audience import unanswered
from fanout.plans.follow_up_steps import step_moments
from fanout.rules.gates import DAILY_CAP
from fanout.runs import firing, freezing, sequences, texts, transitions
from reminders.models import Recipient, Reminder

LATENCY_MS = 180
CRASHED = "worker died while sending: it may have been delivered"


@dataclass(frozen=True)
class Past:
    """One past run: its start, its end, and its targets with trouble."""

    reminder: str
    days_ago: int
    start: tuple[int, int]  # hour and minute, in the reminder's timezone
    status: str
    per_minute: float = 40
    sent: int | None = None  # None: all targets without trouble
    failed: tuple[tuple[str, str, int], ...] = ()  # error kind, the provider's words, how many
    unconfirmed: int = 0
    pause_reason: str = ""
    why: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    replies: tuple[str, ...] = ()  # of one person each
    opted_out: int = 0  # people who wrote STOP


PAST = (
    Past(VOLUNTEERS, 54, (10, 0), "success", replies=("Happy to help",)),
    Past(VOLUNTEERS, 47, (10, 0), "success", replies=("Yes", "Only in the morning")),
    Past(VOLUNTEERS, 40, (10, 0), "success", replies=("I will be there",)),
    Past(VOLUNTEERS, 33, (10, 0), "success", replies=("Sure", "Can I bring my son?")),
    Past(VOLUNTEERS, 26, (10, 0), "success", replies=("I have time on Friday", "Not this week, sorry")),
    Past(VOLUNTEERS, 19, (10, 0), "success", replies=("Yes!", "Where do we meet?", "I can bring a ladder")),
    Past(VOLUNTEERS, 12, (10, 0), "success", replies=("Gladly", "From 4 pm on")),
    Past(VOLUNTEERS, 10, (10, 0), "success", replies=("I am on holiday",), opted_out=1),
    Past(VOLUNTEERS, 8, (10, 0), "partial", replies=("Count me in", "My sister comes, too")),
    Past("Choir concert", 4, (17, 0), "success"),
    Past(
        "Vaccination day",
        3,
        (11, 0),
        "partial",
        failed=(
            ("recipient_gone", "The group does not exist any more", 9),
            ("content_rejected", "The group does not allow pictures", 4),
            ("unavailable", "Try again later", 5),
        ),
    ),
    Past("Lost and found", 3, (12, 0), "skipped"),
    Past(
        "Water works",
        2,
        (17, 44),
        "paused",
        sent=620,
        pause_reason=PauseReason.WINDOW_CLOSED,
        seconds={"pacing": 870.0, "provider": 112.0},
    ),
    Past(
        "Library opening hours",
        2,
        (9, 0),
        "paused",
        per_minute=20,
        sent=OFFICE_CAP,
        pause_reason=PauseReason.ACCOUNT_CAPACITY,
        why=DAILY_CAP.sentence.format(used=OFFICE_CAP, cap=OFFICE_CAP),
    ),
    Past("Late notice", 2, (18, 5), "failed"),
    Past("Choir concert", 1, (10, 0), "partial", unconfirmed=3),
    Past(
        VOLUNTEERS,
        1,
        (10, 0),
        "partial",
        replies=("Yes, I can help", "What time is it?", "Is there a place to park?", "I moved away, not for me"),
        opted_out=4,
    ),
)
#: parts of what was sent
RECEIVED, READ = 0.96, 0.7
HANDLED_AFTER = timedelta(days=3)


@dataclass(frozen=True)
class Weekly:
    """A reminder that was sent on the same weekday for some weeks; some groups are gone by now."""

    reminder: str
    weekday: int  # 0 is Monday
    start: tuple[int, int]
    weeks: int
    gone: int = 0

    def runs(self, today: date) -> Iterator[Past]:
        since = (today.weekday() - self.weekday - 1) % 7 + 1  # yesterday at the latest
        failed = (("recipient_gone", "The group does not exist any more", self.gone),) if self.gone else ()
        for week in range(self.weeks):
            status = Run.Status.PARTIAL if self.gone else Run.Status.SUCCESS
            yield Past(self.reminder, since + 7 * week, self.start, status, failed=failed)


WEEKLY = (
    Weekly("Friday market", 4, (8, 0), weeks=8),
    Weekly("Weekly clean-up", 5, (9, 0), weeks=8, gone=2),
    Weekly("Evening class", 1, (17, 0), weeks=4),
    Weekly("Sunday walk", 6, (12, 0), weeks=4),
)
#: begun three days ago: the first follow-up went out yesterday, the second is to come
SEQUENCE = Past(FOOD_BANK, 3, (10, 0), "success", replies=("Count on me", "I am away until Sunday"))


def write(cast: Cast, now: datetime) -> int:
    """Add the past runs, unless there are some. Returns how many were added."""
    if Run.objects.filter(reminder__in=cast.reminders.values()).exists():
        return 0
    weekly = [past for one in WEEKLY for past in one.runs(now.astimezone(ZoneInfo(ZONE)).date())]
    in_order = sorted([*PAST, *weekly], key=lambda past: -past.days_ago)
    made = [_write_run(past, cast.reminders[past.reminder], now) for past in in_order]
    return len([*made, *_write_sequence(cast.reminders[FOOD_BANK], now)])


def _write_sequence(reminder: Reminder, now: datetime) -> list[Run]:
    """Add a run with follow-ups of which the first has gone out to those who had not replied."""
    parent = _write_run(SEQUENCE, reminder, now)
    first, second = step_moments(parent.steps, parent.scheduled_for, parent.timezone)
    Run.objects.filter(pk=parent.pk).update(next_step_at=second)
    silent = unanswered(parent.pk, first).select_related("recipient").order_by("position")
    asked = [target.recipient for target in silent]
    later = Past(reminder.title, 1, (10, 0), "success", replies=("Sorry, I forgot: yes",))
    run = _fill_run(Run.objects.create(**sequences.frozen_step(parent, 1, first), status=later.status), later, asked)
    reached = run.targets.filter(status=RunTarget.Status.SENT).values("recipient")
    Recipient.objects.filter(pk__in=reached).exclude(replied_at__gte=first).update(follow_up_attempts=1)
    return [parent, run]


def _write_run(past: Past, reminder: Reminder, now: datetime) -> Run:
    start = _start(past, reminder, now)
    run = Run.objects.create(**freezing.frozen(reminder, start), status=past.status, pause_reason=past.pause_reason)
    return _fill_run(run, past, [link.recipient for link in reminder.targets.select_related("recipient")])


def _fill_run(run: Run, past: Past, recipients: Sequence[Recipient]) -> Run:
    """Write what became of these recipients, and how the run ended."""
    if past.status != Run.Status.SKIPPED:
        _write_targets(run, past, recipients)
        kinds = run.targets.order_by("recipient__kind").values_list("recipient__kind", flat=True).distinct()
        Run.objects.filter(pk=run.pk).update(kinds=list(kinds))
    run.refresh_from_db()
    _finish(run, past, run.reminder)
    _tell(run, past)
    return run


def _start(past: Past, reminder: Reminder, now: datetime) -> datetime:
    zone = ZoneInfo(reminder.timezone)
    day = now.astimezone(zone).date() - timedelta(days=past.days_ago)
    hour, minute = past.start
    return datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)


# --- targets ----------------------------------------------------------------------------------------------


def _write_targets(run: Run, past: Past, recipients: Sequence[Recipient]) -> None:
    fates = [
        ("skipped", "", "opted_out") if recipient.status == Recipient.Status.OPTED_OUT else fate
        for recipient, fate in zip(recipients, _fates(past, len(recipients)))
    ]
    pace = timedelta(minutes=1) / past.per_minute * len(run.parts)
    first = _first_attempt(run, past, pace)
    targets = [
        RunTarget(
            run=run,
            account_id=run.account_id,
            recipient=recipient,
            position=n + 1,
            address=recipient.address,
            **_outcome(fate, first + pace * n, n + 1, run),
        )
        for n, (recipient, fate) in enumerate(zip(recipients, fates))
    ]
    RunTarget.objects.bulk_create(targets)
    Activity.objects.bulk_create(activity for target in targets for activity in _activity(run, target))
    _write_answers(run, past, targets)


def _first_attempt(run: Run, past: Past, pace: timedelta) -> datetime:
    """Return the time of the first send; a run stopped by its window sent until it closed."""
    if past.pause_reason == PauseReason.WINDOW_CLOSED:
        return run.window_closes_at - pace * (past.sent or 0)
    return run.scheduled_for


def _fates(past: Past, total: int) -> list[tuple[str, str, str]]:
    """Return status, error kind and message of each target, in order; errors are spread over the list."""
    if past.status == Run.Status.FAILED:
        return [("skipped", "", texts.WINDOW_CLOSED_UNSTARTED)] * total
    fates = [("sent", "", "")] * (total if past.sent is None else past.sent)
    fates += [("pending", "", "")] * (total - len(fates))
    troubles = [("failed", kind, words) for kind, words, n in past.failed for _ in range(n)]
    troubles += [("unconfirmed", "unknown", CRASHED)] * past.unconfirmed
    for n, trouble in enumerate(troubles):
        fates[(n * 37 + 11) % total] = trouble
    return fates


def _outcome(fate: tuple[str, str, str], at: datetime, position: int, run: Run) -> dict[str, Any]:
    status, kind, words = fate
    values: dict[str, Any] = {"status": status, "error_kind": kind, "error": words}
    if status == "pending":
        return values
    settled_at = at + timedelta(milliseconds=LATENCY_MS)
    if status == "skipped":
        return values | {"settled_at": run.scheduled_for}
    values |= {
        "attempts": 4 if kind == "unavailable" else 1,
        "claim_epoch": 1,
        "claimed_at": at,
        "settled_at": settled_at,
    }
    if status == "sent":
        values |= {
            "parts_sent": len(run.parts),
            "latency_ms": LATENCY_MS,
            "provider_id": f"{BY_DEMO}{run.pk}-{position}",
            **_receipts(settled_at),
        }
    return values


def _receipts(settled_at: datetime) -> dict[str, datetime]:
    """Return when the message was received and read: most are, minutes to hours later, and always the same ones."""
    luck = random.Random(settled_at.timestamp())
    times = {}
    if luck.random() < RECEIVED:
        times["delivered_at"] = settled_at + timedelta(seconds=luck.randrange(2, 90))
        if luck.random() < READ:
            times["read_at"] = times["delivered_at"] + timedelta(minutes=luck.randrange(1, 240))
    return times


def _activity(run: Run, target: RunTarget) -> Iterator[Activity]:
    outcome = {"sent": Activity.Outcome.SENT, "failed": Activity.Outcome.FAILED}.get(target.status)
    if outcome is None or target.claimed_at is None:
        return
    for part in range(len(run.parts) if outcome == Activity.Outcome.SENT else 1):
        yield Activity(
            account_id=run.account_id,
            run_target=target,
            action=run.action,
            outcome=outcome,
            kind=target.error_kind,
            part=part,
            at=target.claimed_at + timedelta(seconds=part),
        )


# --- replies and opt-outs ---------------------------------------------------------------------------------


def _write_answers(run: Run, past: Past, targets: Sequence[RunTarget]) -> None:
    """Write what people answered, and handle what is older than a few days."""
    said = [*((text, False) for text in past.replies), *[("STOP", True)] * past.opted_out]
    sent = [target for target in targets if target.status == RunTarget.Status.SENT]
    # Other people in each run, and not those who are first in all lists.
    first = (past.days_ago * 7) % len(sent) if sent else 0
    for (text, opts_out), target in zip(said, [*sent[first:], *sent[:first]]):
        assert target.settled_at is not None  # sent
        at = target.settled_at + timedelta(minutes=25)
        target.replied_at, target.opted_out_at = at, at if opts_out else None
        target.delivered_at = target.delivered_at or target.settled_at
        target.read_at = target.read_at or at
        target.save(update_fields=["replied_at", "opted_out_at", "delivered_at", "read_at"])
        Recipient.objects.filter(pk=target.recipient_id).update(replied_at=at)
        handled = opts_out or timedelta(days=past.days_ago) > HANDLED_AFTER
        InboundEvent.objects.create(
            account_id=target.account_id,
            key=f"demo-{target.pk}",
            kind=InboundEvent.Kind.REPLY,
            address=target.address,
            words={"text": text},
            happened_at=at,
            came_at=at,
            state=InboundEvent.State.DONE,
            opts_out=opts_out,
            effect="noted; opted out and suppressed" if opts_out else "noted",
            run_target_id=target.pk,
            handled_at=at + timedelta(hours=1) if handled else None,
            handled_by=run.owner.get_username() if handled and not opts_out else "",
        )
        if opts_out:
            replies.opt_out(target.address, *SUPPRESSED_AS[EventKind.REPLY])


# --- the verdict ------------------------------------------------------------------------------------------


def _finish(run: Run, past: Past, reminder: Reminder) -> None:
    claims = run.targets.filter(claimed_at__isnull=False).order_by("claimed_at")
    first, last = claims.first(), claims.last()
    run.created_at = run.scheduled_for - timedelta(seconds=20)
    run.started_at = None if past.status in (Run.Status.SKIPPED, Run.Status.FAILED) else run.scheduled_for
    run.first_attempt_at = first.claimed_at if first else None
    run.finished_at = _end(run, past, last)
    spent = (last.claimed_at - first.claimed_at).total_seconds() if first and last else 0.0  # type: ignore[operator]
    for cause, seconds in (past.seconds or {"pacing": spent * 0.89, "provider": spent * 0.11}).items():
        setattr(run, f"seconds_{cause}", seconds)
    run.error_summary = _summary(run, past, reminder)
    times = ["created_at", "started_at", "first_attempt_at", "finished_at", "error_summary"]
    run.save(update_fields=[*times, *(f"seconds_{cause}" for cause in texts.ADVICE)])


def _end(run: Run, past: Past, last: RunTarget | None) -> datetime:
    if past.pause_reason == PauseReason.WINDOW_CLOSED:
        return run.window.closes_on(run.scheduled_for)
    return last.settled_at if last and last.settled_at else run.scheduled_for


def _summary(run: Run, past: Past, reminder: Reminder) -> str:
    if past.status == Run.Status.SKIPPED:
        return firing.reason_to_skip(reminder, firing.count_audience(reminder, run.scheduled_for))
    if past.status == Run.Status.FAILED:
        return texts.closed_before_start(run.facts())
    if past.status == Run.Status.PAUSED:
        return texts.paused(run.facts(), past.why)
    return carry_out(transitions.finished(run.facts()))


def _tell(run: Run, past: Past) -> None:
    assert run.finished_at is not None
    Event.objects.create(run=run, at=run.created_at, verb="fired")
    Event.objects.create(run=run, at=run.finished_at, verb=run.status, detail=run.error_summary)
    notification = texts.notification(run.facts())
    if notification is not None:
        title, body = notification
        level = "info" if run.status == Run.Status.SUCCESS else "warning"
        Notification.objects.create(
            user=run.owner,
            run=run,
            title=title,
            body=body,
            level=level,
            created_at=run.finished_at,
            read_at=run.finished_at if run.status == Run.Status.SUCCESS else None,
        )
