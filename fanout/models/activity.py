"""What an account did: messages sent, files uploaded."""

from __future__ import annotations

from django.db import models

from accounts.actions import Action
from accounts.models import Account
from fanout.models.target import RunTarget


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
