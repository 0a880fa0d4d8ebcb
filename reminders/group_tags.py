"""The tag on the groups of a paired number: it says through which account they are reached."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db.models import CharField, F, Func, Value

from accounts.models import Account
from reminders.imports import MOST_TAG
from reminders.models import Recipient

TAGS = ArrayField(CharField(max_length=MOST_TAG))


def tag_of(account: Account) -> str:
    """With the account's number in front: its label may change, and another account may have the same."""
    return f"#{account.pk} {account.label}"[:MOST_TAG]


def tag_members(account: Account) -> None:
    """Every group that the account is in has its tag, and no other."""
    tag = tag_of(account)
    own = Recipient.objects.filter(owner=account.owner_id)
    former = {t for tags in own.filter(memberships__account=account).values_list("tags", flat=True) for t in tags}
    members = own.filter(memberships__account=account, memberships__gone_at=None).values("pk")
    for old in former:
        if old.startswith(f"#{account.pk} "):
            stale = own.filter(tags__contains=[old])
            (stale if old != tag else stale.exclude(pk__in=members)).update(tags=_without(old))
    own.filter(pk__in=members).exclude(tags__contains=[tag]).update(tags=_with(tag))


def _with(tag: str) -> Func:
    return Func(F("tags"), Value(tag, CharField(max_length=MOST_TAG)), function="array_append", output_field=TAGS)


def _without(tag: str) -> Func:
    return Func(F("tags"), Value(tag, CharField(max_length=MOST_TAG)), function="array_remove", output_field=TAGS)
