"""What an operator is told, and how they want to be told."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.urls import reverse

from accounts.models import Account
from fanout.models.run import Run
from reminders.models import Reminder


class Notification(models.Model):
    """What one operator is told once."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="notifications")
    run = models.ForeignKey(Run, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    account = models.ForeignKey(Account, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    reminder = models.ForeignKey(Reminder, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
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

    def get_absolute_url(self) -> str:
        """The page a click leads to: what it is about, else the list."""
        if self.run_id:
            return reverse("admin:fanout_run_change", args=[self.run_id])
        if self.account_id:
            return reverse("admin:accounts_account_change", args=[self.account_id])
        if self.reminder_id:
            return reverse("admin:reminders_reminder_change", args=[self.reminder_id])
        return reverse("admin:fanout_notification_changelist")


class Subscription(models.Model):
    """How an operator wants to be told. Nothing here: by the bell, of their own things and their teams'."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="subscription")
    email = models.EmailField(blank=True, help_text="Empty: no mail.")
    webhook = models.URLField(blank=True, help_text="Gets a POST with JSON for every notification. Empty: none.")
    bell = models.BooleanField(
        "on the bell", default=True, db_default=True, help_text="Count them on the bell and show them as they come."
    )
    team = models.BooleanField(
        "my team's too",
        default=True,
        db_default=True,
        help_text="Also what happens to reminders and accounts that others share with your team.",
    )
    only_problems = models.BooleanField(
        default=True, help_text="No mail and no webhook for runs that were delivered in full."
    )

    def __str__(self) -> str:
        return f"notifications of {self.user}"
