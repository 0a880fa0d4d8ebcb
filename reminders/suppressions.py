"""Who is not written to any more: how an address gets onto the list of suppressions, and off it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from datetime import datetime

from django.db import connection
from django.db.models import Exists, OuterRef, Q

from reminders.models import Suppression

#: rows that one statement writes at most
CHUNK = 5_000

# One that holds at least as long keeps its reason; one that has expired, or would earlier, gives way. Sorted, so that
# two who suppress the same addresses do not wait for each other in a circle.
INTO = """
INSERT INTO reminders_suppression AS s (address, reason, source, detail, created_at, expires_at, added_by_id)
SELECT DISTINCT ON (n.address) n.address, n.reason, n.source, n.detail, n.at, n.expires_at, n.added_by
  FROM {rows} AS n(address, reason, source, detail, at, expires_at, added_by)
 ORDER BY n.address, n.expires_at DESC NULLS FIRST
ON CONFLICT (address) DO UPDATE
   SET reason = excluded.reason, source = excluded.source, detail = excluded.detail,
       created_at = excluded.created_at, expires_at = excluded.expires_at, added_by_id = excluded.added_by_id
 WHERE s.expires_at IS NOT NULL AND (excluded.expires_at IS NULL OR excluded.expires_at > s.expires_at)
RETURNING s.address
"""
# Takes the columns of `New` as arrays.
SUPPRESS_ALL = INTO.format(
    rows="unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::timestamptz[], %s::timestamptz[], %s::bigint[])"
)
# Takes the columns of `New` by name.
SUPPRESS = INTO.format(
    rows="(SELECT %(address)s::text, %(reason)s::text, %(source)s::text, %(detail)s::text, %(at)s::timestamptz, "
    "%(expires_at)s::timestamptz, %(added_by)s::bigint)"
)


@dataclass(frozen=True, slots=True)
class New:
    """An address to suppress, and what is noted with it."""

    address: str
    reason: str
    source: str
    detail: str
    at: datetime
    expires_at: datetime | None = None
    added_by: int | None = None


def suppress(new: New) -> bool:
    """Whether that changed anything: an address that is suppressed for as long already keeps its reason."""
    return suppress_all([new]) == 1


def suppress_all(news: Sequence[New]) -> int:
    """How many of them changed anything."""
    return sum(_write(news[start : start + CHUNK]) for start in range(0, len(news), CHUNK))


def _write(news: Sequence[New]) -> int:
    with connection.cursor() as cursor:
        cursor.execute(SUPPRESS_ALL, [list(column) for column in zip(*map(astuple, news))])
        return len(cursor.fetchall())


def holding(now: datetime) -> Q:
    """Those that have not expired: the others hold nobody back."""
    return Q(expires_at=None) | Q(expires_at__gt=now)


def is_suppressed(now: datetime, address: str = "address") -> Exists:
    """Of the rows of a query: whether a suppression holds for the address in this column."""
    return Exists(Suppression.objects.filter(holding(now), address=OuterRef(address)))


def lift(addresses: Iterable[str]) -> list[str]:
    """Those of them that were on the list and are not any more."""
    rows = Suppression.objects.filter(address__in=list(addresses))
    lifted = list(rows.values_list("address", flat=True))
    rows.delete()
    return lifted
