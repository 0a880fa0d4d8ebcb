"""What a provider told us of its own accord: stored first, then worked on."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from accounts.channels.events import EventKind
from accounts.fields import EncryptedJSONField
from accounts.models import Account

RECEIPT = Q(kind__in=["delivered", "read"])


class InboundEvent(models.Model):
    """One reply, receipt, bounce, complaint, unsubscription or change of a session. Never stored twice."""

    class Kind(models.TextChoices):
        REPLY = EventKind.REPLY.value
        DELIVERED = EventKind.DELIVERED.value
        READ = EventKind.READ.value
        BOUNCE = EventKind.BOUNCE.value
        COMPLAINT = EventKind.COMPLAINT.value
        UNSUBSCRIBE = EventKind.UNSUBSCRIBE.value
        SESSION = EventKind.SESSION.value

    class State(models.TextChoices):
        NEW = "new"
        DONE = "done"
        FAILED = "failed"

    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="inbound_events", db_index=False)
    # What the provider calls the event: a second delivery of the same one changes nothing.
    key = models.CharField(max_length=200)
    kind = models.CharField(max_length=12, choices=Kind)
    address = models.CharField(max_length=254, blank=True)
    group = models.CharField(max_length=254, blank=True)
    provider_id = models.CharField(max_length=200, blank=True)
    message_id = models.CharField(max_length=200, blank=True)
    # {"text": what was said}: people's words are kept like credentials.
    words = EncryptedJSONField(default=dict, blank=True)
    detail = models.JSONField(default=dict, blank=True)
    happened_at = models.DateTimeField()
    came_at = models.DateTimeField()
    state = models.CharField(max_length=8, choices=State, default=State.NEW)
    attempts = models.PositiveSmallIntegerField(default=0)
    next_attempt_at = models.DateTimeField(null=True, blank=True)
    # What it did, in words; of a failed one: why it could not be worked on.
    effect = models.CharField(max_length=500, blank=True)
    # No constraint: a run may be deleted, and its events outlive it until retention takes them.
    run_target_id = models.BigIntegerField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        indexes = [
            # the worker takes what is new, in order: receipts, which are most of the volume, apart from the rest
            models.Index(fields=["id"], name="inbound_new", condition=Q(state="new") & ~RECEIPT),
            models.Index(fields=["id"], name="inbound_new_receipts", condition=Q(state="new") & RECEIPT),
            # what waits for another try, or for another look
            models.Index(
                fields=["next_attempt_at"],
                name="inbound_waiting",
                condition=Q(state="new", next_attempt_at__isnull=False) & ~RECEIPT,
            ),
            # the conversation with one person
            models.Index(fields=["address", "-happened_at"], name="inbound_address", condition=~Q(address="")),
            # an account's events, newest first
            models.Index(fields=["account", "-id"], name="inbound_account"),
            # the list of what could not be worked on
            models.Index(fields=["-id"], name="inbound_failed", condition=Q(state="failed")),
            # the newest report about an account's session
            models.Index(fields=["account", "-happened_at"], name="inbound_session", condition=Q(kind="session")),
            # retention
            models.Index(fields=["came_at"], name="inbound_came"),
        ]
        constraints = [
            models.UniqueConstraint(fields=["account", "key"], name="inbound_once_per_account"),
            models.CheckConstraint(condition=Q(state__in=["new", "done", "failed"]), name="inbound_state_known"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} at {self.happened_at:%F %T}"

    @property
    def text(self) -> str:
        return str(self.words.get("text", ""))
