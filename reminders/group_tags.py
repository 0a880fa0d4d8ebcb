"""The tag on the groups of a paired number: it says through which account they are reached."""

from __future__ import annotations

from accounts.models import Account
from reminders import tags
from reminders.imports import MOST_TAG
from reminders.models import Recipient


def tag_of(account: Account) -> str:
    """With the account's number in front: its label may change, and another account may have the same."""
    return f"#{account.pk} {account.label}"[:MOST_TAG]


def tag_members(account: Account) -> None:
    """Every group that the account is in has its tag, and no other."""
    tag = tag_of(account)
    own = Recipient.objects.filter(owner=account.owner_id)
    listed = own.filter(memberships__account=account).values_list("tags", flat=True)
    former = {one for several in listed for one in several}
    members = own.filter(memberships__account=account, memberships__gone_at=None).values("pk")
    for old in former:
        if old.startswith(f"#{account.pk} "):
            stale = own.filter(tags__contains=[old])
            tags.remove(stale if old != tag else stale.exclude(pk__in=members), old)
    tags.add(own.filter(pk__in=members), tag)
