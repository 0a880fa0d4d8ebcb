"""What the HTTP API stores: answers that are repeated for the same Idempotency-Key, and single messages on their way
into a run."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import models
from django.db.models import Q

from accounts.models import Account, ApiToken, Owned
from reminders.models import Recipient


class KeptAnswer(models.Model):
    """The answer to a POST with an Idempotency-Key, for a day. Without a status the call is under way, or its process
    died."""

    KEPT_FOR = timedelta(hours=24)

    token = models.ForeignKey(ApiToken, on_delete=models.CASCADE, related_name="+", db_index=False)
    key = models.CharField(max_length=255)
    # Of method, path and body: the same key with another request is a mistake.
    digest = models.CharField(max_length=64)
    status = models.PositiveSmallIntegerField(null=True, blank=True)
    kind = models.CharField(max_length=60, blank=True, default="")
    # Encrypted where it has a webhook's secret.
    body = models.TextField(blank=True, default="")
    began_at = models.DateTimeField()

    class Meta:
        indexes = [
            # answers that are a day old are deleted
            models.Index(fields=["began_at"], name="kept_answer_began"),
        ]
        constraints = [models.UniqueConstraint(fields=["token", "key"], name="kept_answer_once_per_key")]

    def __str__(self) -> str:
        return self.key

    @classmethod
    def forget(cls, now: datetime) -> int:
        """Delete answers that no client may ask for any more."""
        return cls.objects.filter(began_at__lt=now - cls.KEPT_FOR).delete()[0]


class SingleMessage(Owned):
    """A message that a program has handed in. It is stored by itself, without a lock that others wait for; a task puts
    those of the same kind into a run together (fanout.runs.single_messages)."""

    KEPT_FOR = timedelta(days=30)

    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="+", db_index=False)
    recipient = models.ForeignKey(Recipient, on_delete=models.CASCADE, related_name="+")
    # Its frozen parts, and the key of messages that may share a run with it. Both go into the run, and the texts are
    # removed here.
    parts = models.JSONField(default=list)
    key = models.CharField(max_length=64)
    values = models.JSONField(null=True, blank=True)
    timezone = models.CharField(max_length=64)
    window_start_hour = models.PositiveSmallIntegerField(default=0)
    window_end_hour = models.PositiveSmallIntegerField(default=24)
    earliest = models.DateTimeField(null=True, blank=True)
    latest = models.DateTimeField(null=True, blank=True)
    accepted_at = models.DateTimeField()
    # Name of the token that handed it in: the audit entry of its run names it.
    token = models.CharField(max_length=60, blank=True, default="", db_default="", editable=False)
    # No constraint: its run may be deleted.
    run_target_id = models.BigIntegerField(null=True, blank=True)
    # Why it is in no run: it was canceled, or its account may not be used any more.
    problem = models.CharField(max_length=300, blank=True, default="")

    class Meta:
        indexes = [
            # the task asks for those that are in no run yet
            models.Index(fields=["id"], name="message_waiting", condition=Q(run_target_id__isnull=True, problem="")),
            # old ones are deleted
            models.Index(fields=["accepted_at"], name="message_accepted"),
        ]

    def __str__(self) -> str:
        return f"message {self.pk}"
