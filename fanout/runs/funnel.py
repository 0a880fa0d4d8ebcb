"""What became of a run's messages: sent, received, read, replied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from django.db.models import Count

from accounts.channels.registry import channel
from fanout.models import Run

#: Counted over a run's sent targets; a page that reads them anyway adds these to its query.
COUNTS = {
    "sent": Count("id"),
    # The provider's receipt. "Delivered" is what Crier has sent, on the same page.
    "received": Count("delivered_at"),
    "read": Count("read_at"),
    "replied": Count("replied_at"),
}


@dataclass(frozen=True, slots=True)
class Step:
    word: str
    n: int
    percent: float


def funnel(run: Run, counted: Iterable[Mapping[str, int]]) -> list[Step]:
    """Each step with its share of what was sent; nothing where the run's channel reports no receipts."""
    rows = list(counted)
    totals = {word: sum(row[word] for row in rows) for word in COUNTS}
    if not totals["sent"] or not channel(run.account.channel).receipts:
        return []
    return [Step(word, n, 100 * n / totals["sent"]) for word, n in totals.items()]
