"""What happened and who did it; what the operator is told."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from accounts.models import Account
from fanout.models.run import Run


class Event(models.Model):
    """A line in the timeline of a run or an account. No actor means: Crier itself."""

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


class Notification(models.Model):
    """What one operator is told once."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="notifications")
    run = models.ForeignKey(Run, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    account = models.ForeignKey(Account, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    title = models.CharField(max_length=120)
    body = models.TextField()
    level = models.CharField(max_length=12, default="info")
    created_at = models.DateTimeField()
    read_at = models.DateTimeField(null=True, blank=True)
    # When mail and webhook were seen to, whether the operator wants any or not.
    passed_on_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        indexes = [
            # the bell: one operator's newest
            models.Index(fields=["user", "-id"], name="notification_user"),
            # what mail and webhooks still have to be told
            models.Index(fields=["id"], name="notification_to_pass_on", condition=models.Q(passed_on_at__isnull=True)),
        ]

    def __str__(self) -> str:
        return self.title


class Subscription(models.Model):
    """How an operator wants to be told besides the bell. Nothing here: only the bell."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="subscription")
    email = models.EmailField(blank=True, help_text="Empty: no mail.")
    webhook = models.URLField(blank=True, help_text="Gets a POST with JSON for every notification. Empty: none.")
    only_problems = models.BooleanField(default=True, help_text="Nothing for runs that were delivered in full.")

    def __str__(self) -> str:
        return f"notifications of {self.user}"
