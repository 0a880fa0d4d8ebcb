"""What happened to a run or an account, and who did it."""

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
