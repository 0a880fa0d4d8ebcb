"""An account's lane, the processes that drive lanes, and what an account did: activity, uploads, chats and tallies."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from accounts.actions import Action
from accounts.models import Account
from fanout.models.run import RunTarget


class LaneState(models.Model):
    """An account's lane: its fencing epoch, its pace, and when it next has something to do."""

    account = models.OneToOneField(Account, on_delete=models.CASCADE, primary_key=True, related_name="lane")
    # Raised by every holder of the advisory lock; every claim names it.
    epoch = models.BigIntegerField(default=0)
    holder = models.CharField(max_length=64, blank=True)
    # When a driver should take the lane; empty: nothing to do.
    due_at = models.DateTimeField(null=True, blank=True)
    # Raised by every change that the lane must notice: new run, pause, new settings.
    wake_count = models.BigIntegerField(default=0)

    # The pace, written with every claim, so that no driver starts with a fresh bucket.
    theoretical_arrival = models.DateTimeField(
        null=True, blank=True, help_text="GCRA: theoretical arrival time of the next message."
    )
    next_send_at = models.DateTimeField(null=True, blank=True, help_text="Gap, batch pause or slow-down ends.")
    batch_sent = models.PositiveIntegerField(default=0)
    # Messages that a person wrote with the account's phone, ever: a holder spends the difference from its own pace.
    written_elsewhere = models.BigIntegerField(default=0, db_default=0)
    slow_factor = models.FloatField(default=1.0)
    last_claim_at = models.DateTimeField(null=True, blank=True)
    # The last outcomes of one run, one letter each (fanout.rules.breaker): a run is judged by its own.
    sample = models.CharField(max_length=100, blank=True)
    sample_run = models.BigIntegerField(null=True, blank=True)
    # Half-open: the next claim is a single probe. While no run is judged (`sample_run`), it must go through.
    probing = models.BooleanField(default=False)

    # Calls in a row that the provider did not answer in time: after each the lane waits longer (fanout.rules.outcomes).
    timeouts = models.PositiveSmallIntegerField(default=0, db_default=0)

    # New chats are held back until this moment, because the provider refused one; and how many it refused in a row.
    new_chats_after = models.DateTimeField(null=True, blank=True)
    new_chats_why = models.CharField(max_length=300, blank=True, default="", db_default="")
    new_chat_refusals = models.PositiveSmallIntegerField(default=0, db_default=0)

    crashes = models.PositiveIntegerField(default=0)
    # The last claim, result or waking: a lane that should send and stands still is noticed (fanout.ops.heartbeat).
    progress_at = models.DateTimeField(null=True, blank=True)
    why = models.CharField(max_length=300, blank=True)

    class Meta:
        indexes = [
            # how many lanes are due, and which of them have a dead holder
            models.Index(fields=["due_at"], name="lane_due", condition=models.Q(due_at__isnull=False)),
            # drivers ask for lanes that are due and free
            models.Index(fields=["due_at", "account"], name="lane_free", condition=models.Q(holder="")),
        ]

    def __str__(self) -> str:
        return f"lane of {self.account_id}"


class Driver(models.Model):
    """The heartbeat of one of a machine's driver slots. By the backend pid other drivers free the locks of a stuck
    one."""

    host = models.CharField(max_length=200)
    slot = models.PositiveIntegerField()
    token = models.CharField(max_length=64)
    pid = models.IntegerField()
    backend_pid = models.IntegerField()
    started_at = models.DateTimeField()
    beat_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    lanes = models.PositiveIntegerField(default=0)
    # Whether its commits waited for a standby at its last beat.
    synchronous = models.BooleanField(default=False, db_default=False)

    class Meta:
        constraints = [
            # the look-up of a beat is by token: a few rows, so it needs no index
            models.UniqueConstraint(fields=["host", "slot"], name="driver_once_per_slot"),
        ]

    def __str__(self) -> str:
        return f"driver {self.slot} on {self.host}"


class ClusterBeat(models.Model):
    """The heartbeat of a django-q2 cluster, written from its main process."""

    cluster = models.CharField(max_length=32)
    host = models.CharField(max_length=200)
    pid = models.IntegerField()
    beat_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["cluster", "host"], name="cluster_beat_once")]

    def __str__(self) -> str:
        return f"{self.cluster} on {self.host}"


class Activity(models.Model):
    """An account's activity, one row per message: the source of truth for daily caps."""

    #: the kind of messages that a person wrote with the account's phone
    ON_PHONE = "phone"

    class Outcome(models.TextChoices):
        SENT = "sent"
        FAILED = "failed"
        RATE_LIMITED = "rate_limited"

    # No constraint: PostgreSQL would lock and look up the account for every message sent. Django keeps it whole.
    account = models.ForeignKey(
        Account, on_delete=models.CASCADE, related_name="+", db_index=False, db_constraint=False
    )
    # Neither index nor constraint: the account's history outlives the run, and deleting a run must not search it.
    run_target = models.ForeignKey(
        RunTarget, on_delete=models.DO_NOTHING, null=True, related_name="+", db_index=False, db_constraint=False
    )
    action = models.CharField(max_length=32, choices=Action)
    outcome = models.CharField(max_length=12, choices=Outcome)
    kind = models.CharField(max_length=24, blank=True)
    part = models.PositiveSmallIntegerField(default=0)
    at = models.DateTimeField()

    class Meta:
        verbose_name_plural = "activity"
        indexes = [
            # the daily cap and the sends-per-hour chart of an account
            models.Index(fields=["account", "action", "at"], name="activity_account_day"),
        ]

    def __str__(self) -> str:
        return f"{self.action} {self.outcome} at {self.at:%F %T}"


class MediaUpload(models.Model):
    """A file that an account has uploaded, and the provider's handle for it."""

    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="+")
    sha256 = models.CharField(max_length=64)
    # Of its part, where the provider keeps a file differently for each (accounts.channels.base.Media).
    kind = models.CharField(max_length=16, blank=True, default="")
    handle = models.TextField()
    size = models.PositiveBigIntegerField(default=0)
    uploaded_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["account", "sha256", "kind"], name="upload_once_per_account")]

    def __str__(self) -> str:
        return f"{self.sha256[:8]} on account {self.account_id}"


class KnownChat(models.Model):
    """A person who wrote to the account or got a message from it. All others are new chats.

    A narrow row, found by its key: a claim must not search the targets of all runs.
    """

    pk = models.CompositePrimaryKey("account_id", "address")
    # No constraint: PostgreSQL would lock and look up the account for every chat that begins. Django keeps it whole.
    account = models.ForeignKey(
        Account, on_delete=models.CASCADE, related_name="+", db_index=False, db_constraint=False
    )
    address = models.CharField(max_length=254)
    # When the account's first message went out; empty where the person wrote first: those are in no budget.
    begun_at = models.DateTimeField(null=True, blank=True)
    # When the person last wrote to the account; some providers take only templates a day later.
    heard_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes = [
            # how many new chats an account has begun today
            models.Index(fields=["account", "begun_at"], name="chat_begun", condition=Q(begun_at__isnull=False)),
            # erasing a person
            models.Index(fields=["address"], name="chat_address"),
        ]

    def __str__(self) -> str:
        return f"{self.address} and account {self.account_id}"


class KnownId(models.Model):
    """A person as an account's provider calls them, where that is not the stored address.

    WhatsApp spells some numbers in another way and hides others. Only the provider knows which are meant.
    """

    pk = models.CompositePrimaryKey("account_id", "known_as")
    # No constraint, as for KnownChat.
    account = models.ForeignKey(
        Account, on_delete=models.CASCADE, related_name="+", db_index=False, db_constraint=False
    )
    # "+553187654321" or "382…@lid"
    known_as = models.CharField(max_length=100)
    # As lists have it.
    address = models.CharField(max_length=254)

    class Meta:
        indexes = [
            # erasing a person
            models.Index(fields=["address"], name="known_id_address"),
        ]

    def __str__(self) -> str:
        return f"{self.known_as} on account {self.account_id}"


class Tally(models.Model):
    """A counter of an account's follow-ups, for the metrics."""

    class What(models.TextChoices):
        ATTEMPTS = "attempts"  # follow-ups that went out
        COOLDOWNS = "cooldowns"  # that an attempt of this account began
        BACKPRESSURE = "backpressure"  # runs of which it kept targets out
        REFUSED = "refused"  # targets, when a run was made
        REMOVED = "removed"  # targets, by hygiene

    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="+", db_index=False)
    what = models.CharField(max_length=16, choices=What)
    why = models.CharField(max_length=40, blank=True)
    n = models.BigIntegerField(default=0)

    class Meta:
        verbose_name_plural = "tallies"
        constraints = [models.UniqueConstraint(fields=["account", "what", "why"], name="tally_once")]

    def __str__(self) -> str:
        return f"{self.n} {self.what} {self.why}".strip()
