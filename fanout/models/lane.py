"""What a lane remembers, who drives it, and what the account did."""

from __future__ import annotations

from django.db import models

from accounts.models import Account, Action
from fanout.models.run import RunTarget


class LaneState(models.Model):
    """An account's lane: its fencing epoch, its pace, and when it next has something to do."""

    account = models.OneToOneField(Account, on_delete=models.CASCADE, primary_key=True, related_name="lane")
    # Bumped by every holder of the advisory lock; every claim names it.
    epoch = models.BigIntegerField(default=0)
    holder = models.CharField(max_length=64, blank=True)
    # When a driver should take the lane; empty: nothing to do.
    due_at = models.DateTimeField(null=True, blank=True)
    # Bumped by whoever changes something a lane must notice: new run, pause, new settings.
    poke = models.BigIntegerField(default=0)

    # The pace, written with every claim, so that nobody ever starts with a fresh bucket.
    tat = models.DateTimeField(null=True, blank=True, help_text="GCRA: theoretical arrival time of the next message.")
    next_send_at = models.DateTimeField(null=True, blank=True, help_text="Gap, batch pause or slow-down ends.")
    batch_sent = models.PositiveIntegerField(default=0)
    slow_factor = models.FloatField(default=1.0)
    last_claim_at = models.DateTimeField(null=True, blank=True)
    # The last outcomes, one letter each: '.' sent, 'e' error, 'b' bounce.
    sample = models.CharField(max_length=100, blank=True)
    # Half-open: the next claim is a single probe.
    probing = models.BooleanField(default=False)

    crashes = models.PositiveIntegerField(default=0)
    progress_at = models.DateTimeField(null=True, blank=True)
    why = models.CharField(max_length=300, blank=True)
    why_until = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes = [
            # drivers ask for lanes that are due
            models.Index(fields=["due_at"], name="lane_due", condition=models.Q(due_at__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"lane of {self.account_id}"


class Driver(models.Model):
    """The heartbeat of a driver slot. The backend pid lets the living free the locks of one that is stuck."""

    slot = models.PositiveIntegerField(primary_key=True)
    token = models.CharField(max_length=64)
    host = models.CharField(max_length=200)
    pid = models.IntegerField()
    backend_pid = models.IntegerField()
    started_at = models.DateTimeField()
    beat_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    lanes = models.PositiveIntegerField(default=0)
    drain = models.BooleanField(default=False)

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
    """What an account did, one row per message: the source of truth for daily caps."""

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
    handle = models.TextField()
    size = models.PositiveBigIntegerField(default=0)
    uploaded_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["account", "sha256"], name="upload_once_per_account")]

    def __str__(self) -> str:
        return f"{self.sha256[:8]} on account {self.account_id}"
