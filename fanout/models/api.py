"""What the HTTP API stores: answers that are repeated for the same Idempotency-Key."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import models

from accounts.models import ApiToken


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
