"""Timelines, the events that providers report, and notifications of operators."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.urls import reverse

from accounts.channels.provider_events import EventKind
from accounts.fields import EncryptedJSONField
from accounts.models import Account
from fanout.models.run import Run
from reminders.models import Reminder


class Event(models.Model):
    """A line in the timeline of a run or an account. Without an actor it was Crier itself."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, null=True, blank=True, related_name="events")
    account = models.ForeignKey(Account, on_delete=models.CASCADE, null=True, blank=True, related_name="events")
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    at = models.DateTimeField()
    verb = models.CharField(max_length=40)
    detail = models.TextField(blank=True)

    class Meta:
        ordering = ["at", "id"]
        indexes = [
            # timelines
            models.Index(fields=["run", "at"], name="event_run"),
            models.Index(fields=["account", "at"], name="event_account"),
        ]

    def __str__(self) -> str:
        return f"{self.verb} at {self.at:%F %T}"


RECEIPT = Q(kind__in=["delivered", "read"])
#: What a person wrote back to a message of ours. An erased person's has no address.
REPLY_TO_US = Q(kind="reply", run_target_id__isnull=False) & ~Q(address="")


class InboundEvent(models.Model):
    """One reply, receipt, bounce, complaint, unsubscription, message of the account's own phone or change of a session.
    Never stored twice."""

    class Kind(models.TextChoices):
        REPLY = EventKind.REPLY.value
        DELIVERED = EventKind.DELIVERED.value
        READ = EventKind.READ.value
        BOUNCE = EventKind.BOUNCE.value
        COMPLAINT = EventKind.COMPLAINT.value
        UNSUBSCRIBE = EventKind.UNSUBSCRIBE.value
        AUTOMATIC = EventKind.AUTOMATIC.value
        WRITTEN = EventKind.WRITTEN.value
        SESSION = EventKind.SESSION.value

    class State(models.TextChoices):
        NEW = "new"
        DONE = "done"
        FAILED = "failed"

    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="inbound_events", db_index=False)
    # The provider's id of the event: a second delivery of the same one changes nothing.
    key = models.CharField(max_length=200)
    kind = models.CharField(max_length=12, choices=Kind)
    address = models.CharField(max_length=254, blank=True)
    group = models.CharField(max_length=254, blank=True)
    provider_id = models.CharField(max_length=200, blank=True)
    message_id = models.CharField(max_length=200, blank=True)
    # {"text": the message}: people's messages are encrypted like credentials.
    words = EncryptedJSONField(default=dict, blank=True)
    detail = models.JSONField(default=dict, blank=True)
    happened_at = models.DateTimeField()
    came_at = models.DateTimeField()
    state = models.CharField(max_length=8, choices=State, default=State.NEW)
    attempts = models.PositiveSmallIntegerField(default=0)
    next_attempt_at = models.DateTimeField(null=True, blank=True)
    # The person asks for no more messages. Decided when it came: the address is suppressed by then, and the event is
    # worked on before all others.
    opts_out = models.BooleanField(default=False, db_default=False)
    # Its effect in words; of a failed event: why it could not be processed.
    effect = models.CharField(max_length=500, blank=True)
    # No constraint: a run may be deleted, and its events outlive it until retention takes them.
    run_target_id = models.BigIntegerField(null=True, blank=True)
    # When an operator dealt with a reply, and their name; an opt-out needs no one. No foreign key: deleting a user must
    # not search this table.
    handled_at = models.DateTimeField(null=True, blank=True)
    handled_by = models.CharField(max_length=150, blank=True, default="", db_default="")

    class Meta:
        ordering = ["-id"]
        indexes = [
            # the worker takes new events in order: receipts, which are most of the volume, apart from the rest
            models.Index(fields=["id"], name="inbound_new", condition=Q(state="new") & ~RECEIPT),
            models.Index(fields=["id"], name="inbound_new_receipts", condition=Q(state="new") & RECEIPT),
            # opt-outs, which come before all others
            models.Index(fields=["id"], name="inbound_opt_outs", condition=Q(state="new", opts_out=True)),
            # events that wait for another try, or for another look
            models.Index(
                fields=["next_attempt_at"],
                name="inbound_waiting",
                condition=Q(state="new", next_attempt_at__isnull=False) & ~RECEIPT,
            ),
            # the conversation with one person
            models.Index(fields=["address", "-happened_at"], name="inbound_address", condition=~Q(address="")),
            # an account's events, newest first
            models.Index(fields=["account", "-id"], name="inbound_account"),
            # the list of events that could not be processed
            models.Index(fields=["-id"], name="inbound_failed", condition=Q(state="failed")),
            # the newest report about an account's session
            models.Index(fields=["account", "-happened_at"], name="inbound_session", condition=Q(kind="session")),
            # an account's complaint rate
            models.Index(fields=["account", "happened_at"], name="inbound_complaint", condition=Q(kind="complaint")),
            # retention
            models.Index(fields=["came_at"], name="inbound_came"),
            # the page of replies, newest first: of all accounts, and of one
            models.Index(fields=["-id"], name="inbound_replies", condition=REPLY_TO_US),
            models.Index(fields=["account", "-id"], name="inbound_account_replies", condition=REPLY_TO_US),
            # replies that wait for an operator, and their number in the header of every page
            models.Index(
                fields=["account", "-id"], name="inbound_unhandled", condition=REPLY_TO_US & Q(handled_at__isnull=True)
            ),
            # the replies to one run
            models.Index(fields=["run_target_id"], name="inbound_reply_target", condition=REPLY_TO_US),
        ]
        constraints = [
            models.UniqueConstraint(fields=["account", "key"], name="inbound_once_per_account"),
            models.CheckConstraint(condition=Q(state__in=["new", "done", "failed"]), name="inbound_state_known"),
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()}: {self.address or self.account}"

    @property
    def text(self) -> str:
        return str(self.words.get("text", ""))


class Notification(models.Model):
    """A notification for one operator."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="notifications")
    run = models.ForeignKey(Run, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    account = models.ForeignKey(Account, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    reminder = models.ForeignKey(Reminder, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    title = models.CharField(max_length=120)
    body = models.TextField()
    level = models.CharField(max_length=12, default="info")
    created_at = models.DateTimeField()
    read_at = models.DateTimeField(null=True, blank=True)
    # When mail was handled, whether the operator wants any or not.
    passed_on_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        indexes = [
            # the bell: one operator's newest
            models.Index(fields=["user", "-id"], name="notification_user"),
            # notifications not yet sent by mail
            models.Index(fields=["id"], name="notification_to_pass_on", condition=models.Q(passed_on_at__isnull=True)),
        ]

    def __str__(self) -> str:
        return self.title

    def get_absolute_url(self) -> str:
        """Return the page that a click leads to: its subject, else the list."""
        if self.run_id:
            return reverse("admin:fanout_run_change", args=[self.run_id])
        if self.account_id:
            return reverse("admin:accounts_account_change", args=[self.account_id])
        if self.reminder_id:
            return reverse("admin:reminders_reminder_change", args=[self.reminder_id])
        return reverse("admin:fanout_notification_changelist")


class Subscription(models.Model):
    """An operator's settings for notifications. Without one: by the bell, about their own things and their teams'."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="subscription")
    email = models.EmailField(blank=True, help_text="Empty: no mail.")
    # Of earlier versions: 0.10 made signed webhooks of them (fanout.ops.webhooks).
    webhook = models.URLField(blank=True, editable=False)
    bell = models.BooleanField(
        "on the bell", default=True, db_default=True, help_text="Count them on the bell and show them as they come."
    )
    team = models.BooleanField(
        "my team's too",
        default=True,
        db_default=True,
        help_text="Also what happens to reminders and accounts that others share with your team.",
    )
    only_problems = models.BooleanField(default=True, help_text="No mail for runs that were delivered in full.")

    def __str__(self) -> str:
        return f"notifications of {self.user}"
