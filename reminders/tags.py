"""Tags of recipients: put on and taken off many at once, and counted."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db.models import CharField, Count, F, Func, QuerySet, Value
from django.db.models.functions import Lower

from reminders.imports import MOST_TAG
from reminders.models import Recipient

TAGS = ArrayField(CharField(max_length=MOST_TAG))
#: recipients that are looked at for a count; an administrator's list may be long
COUNTED = 10_000


def with_tag(tag: str) -> Func:
    return Func(F("tags"), Value(tag, CharField(max_length=MOST_TAG)), function="array_append", output_field=TAGS)


def without_tag(tag: str) -> Func:
    return Func(F("tags"), Value(tag, CharField(max_length=MOST_TAG)), function="array_remove", output_field=TAGS)


def add(recipients: QuerySet[Recipient], tag: str) -> int:
    """How many had not got it yet."""
    return recipients.exclude(tags__contains=[tag]).update(tags=with_tag(tag))


def remove(recipients: QuerySet[Recipient], tag: str) -> int:
    """How many had it."""
    return recipients.filter(tags__contains=[tag]).update(tags=without_tag(tag))


def counts(recipients: QuerySet[Recipient]) -> dict[str, int]:
    """Tags of the first recipients, by their names, and how many have each."""
    some = Recipient.objects.filter(pk__in=recipients.order_by().values("pk")[:COUNTED])
    each = some.order_by().annotate(tag=Func("tags", function="unnest", output_field=CharField()))
    rows = each.values("tag").annotate(n=Count("pk")).order_by(Lower("tag"))
    return dict(rows.values_list("tag", "n"))
