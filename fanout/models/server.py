"""The database server that Crier has compared with its own records, and claims that a server has lost."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from accounts.models import Account


class KnownServer(models.Model):
    """The only row: which history of PostgreSQL is known to be complete, and the comparison under way with another.

    A server's history is named by its system identifier and timeline. A promotion begins a new timeline, and a restored
    backup has one of its own. Both may lack commits, so every machine compares its claim journal first
    (fanout/engine/lost_commits.py).
    """

    system_identifier = models.BigIntegerField(null=True, blank=True)
    timeline = models.BigIntegerField(null=True, blank=True)
    # Raised with every history that was accepted. Journals name it, so that they know which entries were compared.
    generation = models.PositiveIntegerField(default=0, db_default=0)
    # The history that is being compared, and what each machine has found: {host: {"answered", "lost", "synchronous"}}.
    new_system_identifier = models.BigIntegerField(null=True, blank=True)
    new_timeline = models.BigIntegerField(null=True, blank=True)
    noticed_at = models.DateTimeField(null=True, blank=True)
    machines = models.JSONField(default=dict, blank=True)
    # Nothing is claimed until an operator confirms.
    held = models.BooleanField(default=False, db_default=False)
    why = models.TextField(blank=True, default="")
    # From when on commits are missing, as far as known.
    lost_since = models.DateTimeField(null=True, blank=True)
    confirmed_at = models.DateTimeField(null=True, blank=True)
    confirmed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )

    class Meta:
        verbose_name = "known database server"
        constraints = [models.CheckConstraint(condition=models.Q(pk=1), name="known_server_once")]

    def __str__(self) -> str:
        return f"timeline {self.timeline} of {self.system_identifier}"


class LostClaim(models.Model):
    """A message that a machine had claimed and may have sent, and of which the database knew nothing after a fail-over
    or a restore."""

    # No constraint on the target and the run: they may be lost as well.
    account = models.ForeignKey(
        Account, on_delete=models.CASCADE, related_name="+", db_constraint=False, db_index=False
    )
    target_id = models.BigIntegerField()
    run_id = models.BigIntegerField()
    reminder_id = models.BigIntegerField()
    scheduled_for = models.DateTimeField()
    address = models.CharField(max_length=254)
    part = models.PositiveSmallIntegerField()
    claimed_at = models.DateTimeField()
    host = models.CharField("machine", max_length=200)
    # "sent" and the like where the machine had the provider's answer; empty: unknown.
    answer = models.CharField(max_length=12, blank=True)
    # Whether the database still had the target, which is unconfirmed since then. Without it the whole run is lost.
    target_found = models.BooleanField()
    noticed_at = models.DateTimeField()
    confirmed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = "lost message"
        ordering = ["-claimed_at", "-id"]
        constraints = [
            # two drivers of a machine may report the same claim
            models.UniqueConstraint(fields=["target_id", "part", "claimed_at"], name="lost_claim_once"),
        ]
        indexes = [
            # when its reminder is fired again, and when the person is erased
            models.Index(fields=["address", "reminder_id"], name="lost_claim_address"),
        ]

    def __str__(self) -> str:
        return f"part {self.part + 1} to {self.address}"
