"""What a lane remembers from one holder to the next."""

from __future__ import annotations

from django.db import models

from accounts.models import Account


class LaneState(models.Model):
    """An account's lane: its fencing epoch, its pace, and when it next has something to do."""

    account = models.OneToOneField(Account, on_delete=models.CASCADE, primary_key=True, related_name="lane")
    # Bumped by every holder of the advisory lock; every claim names it.
    epoch = models.BigIntegerField(default=0)
    holder = models.CharField(max_length=64, blank=True)
    # When a driver should take the lane; empty: nothing to do.
    due_at = models.DateTimeField(null=True, blank=True)
    # Bumped by whoever changes something a lane must notice: new run, pause, new settings.
    poke = models.BigIntegerField(default=0)

    # The pace, written with every claim, so that nobody ever starts with a fresh bucket.
    tat = models.DateTimeField(null=True, blank=True, help_text="GCRA: theoretical arrival time of the next message.")
    next_send_at = models.DateTimeField(null=True, blank=True, help_text="Gap, batch pause or slow-down ends.")
    batch_sent = models.PositiveIntegerField(default=0)
    slow_factor = models.FloatField(default=1.0)
    last_claim_at = models.DateTimeField(null=True, blank=True)
    # The last outcomes of one run, one letter each (fanout.rules.breaker): a run is judged by its own.
    sample = models.CharField(max_length=100, blank=True)
    sample_run = models.BigIntegerField(null=True, blank=True)
    # Half-open: the next claim is a single probe. While no run is judged (`sample_run`), it must go through.
    probing = models.BooleanField(default=False)

    # New chats are held back until this moment, because the provider refused one; and how many it refused in a row.
    new_chats_after = models.DateTimeField(null=True, blank=True)
    new_chats_why = models.CharField(max_length=300, blank=True, default="", db_default="")
    new_chat_refusals = models.PositiveSmallIntegerField(default=0, db_default=0)

    crashes = models.PositiveIntegerField(default=0)
    # The last claim, result or poke: a lane that should send and stands still is noticed (fanout.ops.heartbeat).
    progress_at = models.DateTimeField(null=True, blank=True)
    why = models.CharField(max_length=300, blank=True)

    class Meta:
        indexes = [
            # how many lanes are due, and which of them have a dead holder
            models.Index(fields=["due_at"], name="lane_due", condition=models.Q(due_at__isnull=False)),
            # drivers ask for lanes that are due and that nobody holds
            models.Index(fields=["due_at", "account"], name="lane_free", condition=models.Q(holder="")),
        ]

    def __str__(self) -> str:
        return f"lane of {self.account_id}"
