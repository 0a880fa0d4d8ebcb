"""Whom an account has talked to."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from accounts.models import Account


class KnownChat(models.Model):
    """A person who wrote to the account or got a message from it. Anybody else is a new chat.

    One narrow row, found by its key: a claim must not search the targets of all runs.
    """

    pk = models.CompositePrimaryKey("account_id", "address")
    # No constraint: PostgreSQL would lock and look up the account for every chat that begins. Django keeps it whole.
    account = models.ForeignKey(
        Account, on_delete=models.CASCADE, related_name="+", db_index=False, db_constraint=False
    )
    address = models.CharField(max_length=254)
    # When the account's first message went out; empty where the person wrote first: those are in nobody's budget.
    begun_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes = [
            # how many new chats an account has begun today
            models.Index(fields=["account", "begun_at"], name="chat_begun", condition=Q(begun_at__isnull=False)),
            # erasing a person
            models.Index(fields=["address"], name="chat_address"),
        ]

    def __str__(self) -> str:
        return f"{self.address} and account {self.account_id}"
