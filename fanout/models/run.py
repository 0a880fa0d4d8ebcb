"""One firing of a reminder (run), and one recipient in it (run target): the row that says whether that delivery
happened.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models import F, Q, Value
from django.db.models.lookups import IsNull

from accounts.actions import Action
from accounts.channels.registry import channel
from accounts.models import Account, Owned
from reminders.models import Recipient, Reminder
from reminders.window import Window

#: The order in which a lane takes its runs, for the ORM: first a test, whose author waits for it, then Message 2.
LANE_ORDER = ("-is_test", IsNull(F("answers"), True), "scheduled_for", "pk")


def lane_order(run: str) -> str:
    """Return LANE_ORDER as SQL, for a run with this alias."""
    return f"NOT {run}.is_test, {run}.answers_id IS NULL, {run}.scheduled_for, {run}.id"


class PauseReason(models.TextChoices):
    WINDOW_CLOSED = "window_closed", "delivery window closed"
    ACCOUNT_HOURS = "account_hours", "outside business hours"
    ACCOUNT_CAPACITY = "account_capacity", "account at capacity"
    CIRCUIT_BREAKER = "circuit_breaker", "too many errors"
    ACCOUNT_DOWN = "account_down", "account not active"
    MEDIA = "media", "media could not be uploaded"
    OPERATOR = "operator", "paused by an operator"


def in_sql(statuses: Iterable[str]) -> str:
    """Return the statuses as SQL writes them after IN."""
    return "(" + ", ".join(f"'{status}'" for status in statuses) + ")"


def window_of(run: Mapping[str, Any]) -> Window:
    """Return the hours that were frozen into a run; on the day of `window_closes_at` at least until then."""
    hours = run["window_start_hour"], run["window_end_hour"]
    return Window(run["timezone"], *hours, widened_to=run["window_closes_at"])


class Run(Owned):
    class Status(models.TextChoices):
        # Many targets are being copied into it, in chunks.
        PREPARING = "preparing", "being prepared"
        QUEUED = "queued"
        RUNNING = "running"
        WAITING = "waiting"
        PAUSED = "paused"
        SUCCESS = "success"
        PARTIAL = "partial"
        FAILED = "failed"
        SKIPPED = "skipped"
        CANCELED = "canceled"

    #: a lane may send for it
    LIVE = (Status.QUEUED, Status.RUNNING, Status.WAITING)
    #: live, or live once its targets are copied
    UNDER_WAY = (*LIVE, Status.PREPARING)
    #: something is still to be sent, now or when it is resumed
    UNFINISHED = (*LIVE, Status.PAUSED)
    FINISHED = (Status.SUCCESS, Status.PARTIAL, Status.FAILED, Status.SKIPPED, Status.CANCELED)

    reminder = models.ForeignKey(Reminder, on_delete=models.PROTECT, related_name="runs")
    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="runs")
    # The accounts whose lanes send for it: the run's own, and those it was offloaded to or planned onto.
    lanes = ArrayField(models.BigIntegerField(), default=list)
    # The kinds of its recipients' addresses, for sentences; empty: not known, as of runs before there was this column.
    kinds = ArrayField(models.CharField(max_length=16), default=list, db_default=[])
    title = models.CharField(max_length=200)
    action = models.CharField(max_length=32, choices=Action)
    status = models.CharField(max_length=16, choices=Status, default=Status.QUEUED)
    pause_reason = models.CharField(max_length=20, choices=PauseReason, blank=True)
    error_summary = models.TextField(blank=True)
    archived = models.BooleanField(default=False)

    scheduled_for = models.DateTimeField()
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True, blank=True)
    first_attempt_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    # A waiting run goes on by itself at this time; a paused one at resume_at.
    waiting_until = models.DateTimeField(null=True, blank=True)
    waiting_why = models.CharField(max_length=300, blank=True)
    resume_at = models.DateTimeField(null=True, blank=True)

    # Changes of the plan, by account: the plan's first open moment, where that has moved to (null: unknown) and why.
    # Stored with the run, not with its targets: there may be a million of them. See fanout.plans.plan.
    delays = models.JSONField(default=dict)

    # Frozen when the run is made.
    parts = models.JSONField(default=list)
    timezone = models.CharField(max_length=64)
    window_start_hour = models.PositiveSmallIntegerField()
    window_end_hour = models.PositiveSmallIntegerField()
    # The window's end for the day it was fired or resumed on; resume computes it anew. Later than window_end_hour
    # where an operator widened it for that day.
    window_closes_at = models.DateTimeField()
    # Goes on by itself: after its window has closed, and after a limit of its account. See `gates.goes_on_by_itself`.
    auto_resume = models.BooleanField(default=False)
    resume_after_limit = models.BooleanField(default=False, db_default=False)
    follow_up = models.BooleanField(default=False, db_default=False)
    urgency = models.CharField(
        max_length=8, choices=Reminder.Urgency, default=Reminder.Urgency.MEDIUM, db_default="medium"
    )
    # Message 2, for people who reply within a day: its parts are frozen with Message 1. It goes out in a run of its
    # own, which answers this one: made with the first reply, and sent ahead of the account's other work.
    reply_parts = models.JSONField(default=list, db_default=Value([], models.JSONField()))
    answers = models.ForeignKey("self", on_delete=models.CASCADE, null=True, blank=True, related_name="message_2")
    # Follow-ups of this firing, frozen with it: [{"days": 2, "parts": […]}]. Each goes out in a run of its own, which
    # follows this one, to those who have not replied. See fanout.runs.sequences.
    steps = models.JSONField(default=list, db_default=Value([], models.JSONField()))
    next_step_at = models.DateTimeField(null=True, blank=True)
    # No constraint: deleting an old run must not search for its follow-ups.
    follows = models.ForeignKey(
        "self", on_delete=models.SET_NULL, null=True, blank=True, related_name="follow_ups", db_constraint=False
    )
    step = models.PositiveSmallIntegerField(default=0, db_default=0)
    # Single messages of the API that have the same parts, account and hour: they are added as they come, also after it
    # was finished (fanout.runs.single_messages). Empty: an ordinary run.
    collects = models.CharField(max_length=64, blank=True, default="", db_default="", editable=False)
    # One message to the reminder's author, who waits for it: ahead of everything else.
    is_test = models.BooleanField(default=False, db_default=False)

    # Counters, kept by a trigger on fanout_runtarget; nothing else writes them. Of a run that a driver sends at full
    # speed they are up to a second old while it is running: its last changes are in fanout_runchange, from the number
    # after `counted_to` on (migrations/version_1_0/counters.py). `LOCK_RUNS` and every change of status bring them up
    # to date.
    total = models.PositiveIntegerField(default=0)
    pending = models.PositiveIntegerField(default=0)
    sending = models.PositiveIntegerField(default=0)
    sent = models.PositiveIntegerField(default=0)
    failed = models.PositiveIntegerField(default=0)
    skipped = models.PositiveIntegerField(default=0)
    unconfirmed = models.PositiveIntegerField(default=0)
    counted_to = models.BigIntegerField(default=0, db_default=0, editable=False)

    # Where the time went, in seconds; the paused text names the largest.
    seconds_pacing = models.FloatField(default=0)
    seconds_provider = models.FloatField(default=0)
    seconds_media = models.FloatField(default=0)
    seconds_retries = models.FloatField(default=0)
    seconds_waiting = models.FloatField(default=0)

    class Meta:
        ordering = ["-scheduled_for", "-id"]
        indexes = [
            # the run list, newest first, for one operator
            models.Index(fields=["owner", "-scheduled_for", "-id"], name="run_owner_newest"),
            # the run list, newest first, for all
            models.Index(fields=["-scheduled_for", "-id"], name="run_newest"),
            # the status filters of the run list
            models.Index(fields=["status", "-scheduled_for"], name="run_status"),
            # a lane asks for its live runs
            GinIndex(
                fields=["lanes"],
                name="run_live",
                fastupdate=False,
                condition=Q(status__in=["queued", "running", "waiting"]),
            ),
            # a driver that takes a lane asks for paused runs with nothing left to send
            GinIndex(fields=["lanes"], name="run_paused", fastupdate=False, condition=Q(status="paused")),
            # the activity list of one account, also where it is one of several senders
            GinIndex(fields=["lanes"], name="run_lanes", fastupdate=False),
            # the runs of one account, newest first
            models.Index(fields=["account", "-scheduled_for"], name="run_account"),
            # sequences ask every minute for follow-ups that are due
            models.Index(fields=["next_step_at"], name="run_step_due", condition=Q(next_step_at__isnull=False)),
            # the run that further single messages join
            models.Index(fields=["reminder", "collects", "-id"], name="run_collects", condition=~Q(collects="")),
            # auto-resume asks every minute for what is due
            models.Index(fields=["resume_at"], name="run_resume_due", condition=Q(status="paused")),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["reminder", "scheduled_for"], name="run_once_per_moment", condition=Q(answers__isnull=True)
            ),
            models.UniqueConstraint(
                fields=["follows", "step"], name="run_one_follow_up_per_step", condition=Q(follows__isnull=False)
            ),
            models.UniqueConstraint(fields=["answers"], name="run_one_message_2", condition=Q(answers__isnull=False)),
            models.CheckConstraint(
                condition=Q(
                    total=F("pending") + F("sending") + F("sent") + F("failed") + F("skipped") + F("unconfirmed")
                ),
                name="run_books_balance",
            ),
            models.CheckConstraint(
                condition=~Q(status__in=["success", "partial", "failed"]) | Q(pending=0, sending=0),
                name="run_finished_means_settled",
            ),
            models.CheckConstraint(
                condition=Q(status="paused") & ~Q(pause_reason="") | ~Q(status="paused") & Q(pause_reason=""),
                name="run_paused_has_reason",
            ),
            models.CheckConstraint(
                condition=Q(window_start_hour__lt=F("window_end_hour"), window_end_hour__lte=24),
                name="run_window_in_one_day",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.title} ({self.pk})"

    @property
    def window(self) -> Window:
        return window_of(vars(self))

    @property
    def window_opens_at(self) -> datetime:
        """Return the opening that belongs to `window_closes_at`."""
        return self.window.opened_before(self.window_closes_at)

    def facts(self) -> dict[str, Any]:
        """Return the columns, for the texts."""
        return vars(self)


class Offload(models.Model):
    """An offload that is under way: its targets are moved in chunks, by the page that began it and then by a task."""

    run = models.OneToOneField(Run, on_delete=models.CASCADE, related_name="offload")
    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="+", db_index=False)
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+", db_index=False
    )
    began_at = models.DateTimeField()
    total = models.PositiveIntegerField(default=0)  # when it began
    moved = models.PositiveIntegerField(default=0)
    and_resume = models.BooleanField(default=False)
    # Everything is moved; what is left is planning it, and going on.
    moved_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"{self.moved:,} of {self.total:,} targets moved to {self.account.label}"


class Correction(models.Model):
    """A correction of very many targets that is under way: a task carries it out in chunks."""

    # The run page shows what is under way.
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="corrections")
    began_at = models.DateTimeField()
    # Unconfirmed targets were delivered, or are sent again; null: failed ones are tried again.
    delivered = models.BooleanField(null=True)
    words = models.CharField(max_length=200, blank=True)  # for the timeline
    targets = ArrayField(models.BigIntegerField())
    done = models.PositiveIntegerField(default=0)  # of them, in their order

    def __str__(self) -> str:
        return f"{self.done:,} of {len(self.targets):,} targets corrected"


class RunTarget(models.Model):
    """One recipient in one run."""

    class Status(models.TextChoices):
        PENDING = "pending"
        SENDING = "sending"
        SENT = "sent"
        FAILED = "failed"
        SKIPPED = "skipped"
        UNCONFIRMED = "unconfirmed"

    # The foreign keys have no index of their own: every delivery updates every index of this table twice, and
    # those in Meta serve the same look-ups.
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="targets", db_index=False)
    # Which lane sends it: the run's account unless it was offloaded or planned onto another. Triggers do the work of
    # the constraint, which would read this table for every account that is deleted: it has no index
    # (migrations/version_1_0/senders.py).
    account = models.ForeignKey(
        Account, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False
    )
    recipient = models.ForeignKey(Recipient, on_delete=models.PROTECT, related_name="run_targets", db_index=False)
    position = models.PositiveIntegerField()
    address = models.CharField(max_length=254)
    status = models.CharField(max_length=12, choices=Status, default=Status.PENDING)
    # The next part to send: those before it have gone out.
    parts_sent = models.PositiveSmallIntegerField(default=0)
    # The provider's ids of the parts that have gone out, by number, where a message has several. After a part was
    # refused late, it also says which later ones are not sent again.
    part_ids = models.JSONField(default=dict, db_default=models.Value({}, models.JSONField()), blank=True)
    attempts = models.PositiveSmallIntegerField(default=0)
    next_attempt_at = models.DateTimeField(null=True, blank=True)
    planned_at = models.DateTimeField(null=True, blank=True)

    # Values of its placeholders, frozen when the run was made; null where the parts have none.
    values = models.JSONField(null=True, blank=True)
    # Message 2 is not sent at or after this moment: a day after the reply it is too late.
    expires_at = models.DateTimeField(null=True, blank=True)

    # The claim: which lane epoch took it, and when. A late result is accepted when the epoch fits.
    claim_epoch = models.BigIntegerField(default=0)
    claimed_at = models.DateTimeField(null=True, blank=True)
    settled_at = models.DateTimeField(null=True, blank=True)
    latency_ms = models.PositiveIntegerField(null=True, blank=True)
    provider_id = models.CharField(max_length=200, blank=True)
    # An earlier attempt at the current part had no answer: it may have gone out, so no other account may send it.
    in_doubt = models.BooleanField(default=False, db_default=False)
    # When an operator had it sent again: earlier sends do not count any more.
    reopened_at = models.DateTimeField(null=True, blank=True)
    error_kind = models.CharField(max_length=24, blank=True)
    error = models.CharField(max_length=500, blank=True)

    # The provider's receipts, the person's first reply, and when they opted out after this message: by a reply, the
    # provider's button, the link in a mail or a complaint.
    delivered_at = models.DateTimeField(null=True, blank=True)
    read_at = models.DateTimeField(null=True, blank=True)
    replied_at = models.DateTimeField(null=True, blank=True)
    opted_out_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["position", "id"]
        indexes = [
            # the lane fetches the next pending targets of a run
            models.Index(fields=["run", "account", "position"], name="target_pending", condition=Q(status="pending")),
            # rescue, caps and the unconfirmed list: what may have gone out without a settled answer
            models.Index(
                fields=["account", "claimed_at"],
                name="target_open",
                condition=Q(status__in=["sending", "unconfirmed"]),
            ),
            # receipts name a message as its provider does
            models.Index(fields=["provider_id"], name="target_provider_id", condition=~Q(provider_id="")),
            # the run page's filtered target lists
            models.Index(fields=["run", "status", "position"], name="target_run_status"),
            # who replied to a run, and who opted out after it: few rows, so a delivery never writes them
            models.Index(fields=["run", "position"], name="target_replied", condition=Q(replied_at__isnull=False)),
            models.Index(fields=["run", "position"], name="target_opted_out", condition=Q(opted_out_at__isnull=False)),
        ]
        constraints = [
            # recipient first: its history and its erasure use this index too. With the times, by which a person's
            # timeline is ordered, so that it reads no row that it does not show.
            models.UniqueConstraint(
                fields=["recipient", "run"], name="target_once_per_run", include=["id", "settled_at", "claimed_at"]
            ),
            models.CheckConstraint(
                condition=Q(status__in=["pending", "sending", "sent", "failed", "skipped", "unconfirmed"]),
                name="target_status_known",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.address} in run {self.run_id}"

    @property
    def action(self) -> str:
        """Return the action that its account's provider counts it as."""
        return channel(self.account.channel).counts(self.run.action)
