"""How often something happened to an account's follow-ups, ever: counters for the metrics."""

from __future__ import annotations

from django.db import models

from accounts.models import Account


class Tally(models.Model):
    class What(models.TextChoices):
        ATTEMPTS = "attempts"  # follow-ups that went out
        COOLDOWNS = "cooldowns"  # that an attempt of this account began
        BACKPRESSURE = "backpressure"  # runs of which it kept targets out
        REFUSED = "refused"  # targets, when a run was made
        REMOVED = "removed"  # targets, by hygiene

    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="+", db_index=False)
    what = models.CharField(max_length=16, choices=What)
    why = models.CharField(max_length=40, blank=True)
    n = models.BigIntegerField(default=0)

    class Meta:
        verbose_name_plural = "tallies"
        constraints = [models.UniqueConstraint(fields=["account", "what", "why"], name="tally_once")]

    def __str__(self) -> str:
        return f"{self.n} {self.what} {self.why}".strip()
