"""What became of a run's messages: sent, delivered, read, replied."""

from __future__ import annotations

from dataclasses import dataclass

from accounts.channels.registry import channel
from fanout.lanes.statements import execute
from fanout.models import Run

#: Of a larger run the first so many are counted: the page must not read a million rows.
MOST = 100_000

COUNT = f"""
SELECT count(*) AS sent, count(delivered_at) AS delivered, count(read_at) AS read, count(replied_at) AS replied
  FROM (SELECT delivered_at, read_at, replied_at FROM fanout_runtarget
         WHERE run_id = %(run)s AND status = 'sent' ORDER BY position LIMIT {MOST}) AS counted
"""


@dataclass(frozen=True, slots=True)
class Step:
    word: str
    n: int
    percent: float


def funnel(run: Run) -> list[Step]:
    """Each step with its share of what was sent; nothing where the run's channel reports no receipts."""
    if not run.sent or not channel(run.account.channel).receipts:
        return []
    (row,) = execute(COUNT, {"run": run.pk})
    return [Step(word, n, 100 * n / row["sent"] if row["sent"] else 0.0) for word, n in row.items()]
