"""Webhooks out: where a team's events are posted to, what happened, and each delivery of it."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from accounts.fields import EncryptedJSONField
from accounts.models import Owned


class WebhookEndpoint(Owned):
    """An address that gets what happens to a team's things; without a team, to the owner's own. Signed as the Standard
    Webhooks specification says."""

    class Kind(models.TextChoices):
        RUN_STARTED = "run.started", "run started"
        RUN_PAUSED = "run.paused", "run paused"
        RUN_FINISHED = "run.finished", "run finished"
        TARGET_FAILED = "target.failed", "target failed"
        TARGET_UNCONFIRMED = "target.unconfirmed", "target unconfirmed"
        REPLY = "reply", "reply"
        OPT_OUT = "opt_out", "opt-out"
        ACCOUNT_SUSPENDED = "account.suspended", "account suspended"

    url = models.URLField(max_length=500, help_text="Gets a signed POST for each event.")
    kinds = ArrayField(models.CharField(max_length=20, choices=Kind), default=list)
    # {"current": "whsec_…", "previous": "whsec_…"}: both sign until the previous one expires.
    secrets = EncryptedJSONField(default=dict)
    previous_until = models.DateTimeField(null=True, blank=True, editable=False)
    enabled = models.BooleanField("on", default=True)
    # Since then no delivery has succeeded; the owner is warned before it is switched off.
    failing_since = models.DateTimeField(null=True, blank=True, editable=False)
    warned_at = models.DateTimeField(null=True, blank=True, editable=False)
    problem = models.CharField(max_length=300, blank=True, default="", editable=False)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        verbose_name = "webhook"
        ordering = ["-id"]
        indexes = [
            # the triggers ask whether a team, or an owner, wants an event
            models.Index(fields=["team"], name="endpoint_team", condition=Q(enabled=True)),
        ]

    def __str__(self) -> str:
        return self.url


class WebhookEvent(models.Model):
    """Something that happened, written by triggers in the same transaction where an endpoint wants it. It is turned
    into deliveries and then deleted."""

    kind = models.CharField(max_length=20)
    owner_id = models.BigIntegerField()
    team_id = models.BigIntegerField(null=True)
    run_id = models.BigIntegerField(null=True)
    target_id = models.BigIntegerField(null=True)
    inbound_id = models.BigIntegerField(null=True)
    account_id = models.BigIntegerField(null=True)
    at = models.DateTimeField()
    # What may have changed by the time it is posted: status, counts, summary.
    facts = models.JSONField(default=dict)

    def __str__(self) -> str:
        return f"{self.kind} at {self.at:%F %T}"


class WebhookDelivery(models.Model):
    """One event for one endpoint, until it was taken or given up; kept for a while as the log."""

    class State(models.TextChoices):
        PENDING = "pending"
        DELIVERED = "delivered"
        FAILED = "failed"

    endpoint = models.ForeignKey(WebhookEndpoint, on_delete=models.CASCADE, related_name="deliveries")
    # "msg_…": the same for every attempt, so that the receiver recognises a repetition.
    message_id = models.CharField(max_length=40, unique=True)
    kind = models.CharField("event", max_length=20)
    payload = models.JSONField()
    # Deliveries of the same subject go out in their order.
    subject = models.CharField(max_length=40, blank=True, default="")
    state = models.CharField(max_length=10, choices=State, default=State.PENDING)
    attempts = models.PositiveSmallIntegerField(default=0)
    next_attempt_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField()
    settled_at = models.DateTimeField(null=True, blank=True)
    answer = models.CharField(max_length=300, blank=True, default="")

    class Meta:
        verbose_name = "webhook delivery"
        verbose_name_plural = "webhook deliveries"
        ordering = ["-id"]
        indexes = [
            # what is to be posted next
            models.Index(fields=["endpoint", "subject", "id"], name="delivery_next", condition=Q(state="pending")),
            # the log of an endpoint, newest first
            models.Index(fields=["endpoint", "-id"], name="delivery_log"),
            # the same of one state, for programs: failed ones are rare among many
            models.Index(fields=["endpoint", "state", "-id"], name="delivery_log_state"),
            # old ones are deleted
            models.Index(fields=["settled_at"], name="delivery_settled"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.message_id}"
