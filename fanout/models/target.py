"""One recipient in one run: the row that says whether that delivery happened."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from accounts.channels.registry import channel
from accounts.models import Account
from fanout.models.run import Run
from reminders.models import Recipient


class RunTarget(models.Model):
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
    # the constraint (migration 0002): without an index it would read this table for every account that is deleted.
    account = models.ForeignKey(
        Account, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False
    )
    recipient = models.ForeignKey(Recipient, on_delete=models.PROTECT, related_name="run_targets", db_index=False)
    position = models.PositiveIntegerField()
    address = models.CharField(max_length=254)
    status = models.CharField(max_length=12, choices=Status, default=Status.PENDING)
    parts_sent = models.PositiveSmallIntegerField(default=0)
    attempts = models.PositiveSmallIntegerField(default=0)
    next_attempt_at = models.DateTimeField(null=True, blank=True)
    planned_at = models.DateTimeField(null=True, blank=True)

    # What its placeholders stand for, frozen when the run was made; null where the parts have none.
    values = models.JSONField(null=True, blank=True)
    # Message 2 is worth nothing to somebody who wrote a day ago: not sent at or after this moment.
    expires_at = models.DateTimeField(null=True, blank=True)

    # The claim: which lane epoch took it, and when. A late result is accepted when the epoch fits.
    claim_epoch = models.BigIntegerField(default=0)
    claimed_at = models.DateTimeField(null=True, blank=True)
    settled_at = models.DateTimeField(null=True, blank=True)
    latency_ms = models.PositiveIntegerField(null=True, blank=True)
    provider_id = models.CharField(max_length=200, blank=True)
    # An earlier try at the current part had no answer: it may have gone out, so no other account may send it.
    in_doubt = models.BooleanField(default=False, db_default=False)
    # When an operator had it sent again: what was sent before that is history.
    reopened_at = models.DateTimeField(null=True, blank=True)
    error_kind = models.CharField(max_length=24, blank=True)
    error = models.CharField(max_length=500, blank=True)

    # What came back: the provider's receipts, and the person's first reply.
    delivered_at = models.DateTimeField(null=True, blank=True)
    read_at = models.DateTimeField(null=True, blank=True)
    replied_at = models.DateTimeField(null=True, blank=True)

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
        ]
        constraints = [
            # recipient first: its history and its erasure use this index too
            models.UniqueConstraint(fields=["recipient", "run"], name="target_once_per_run"),
            models.CheckConstraint(
                condition=Q(status__in=["pending", "sending", "sent", "failed", "skipped", "unconfirmed"]),
                name="target_status_known",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.address} in run {self.run_id}"

    @property
    def action(self) -> str:
        """What its account's provider counts it as."""
        return channel(self.account.channel).counts(self.run.action)
