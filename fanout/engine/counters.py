"""Runs that a driver writes many times a second, and when their counters are brought up to date.

Every commit changes the counters of its runs. Updating the run's row makes a new version of it with each commit, and
while a backup keeps an old snapshot, PostgreSQL keeps all versions and looks through them at every commit. So the
changes of such runs are appended, and folded into the row once a second. Triggers do both
(fanout/migrations/version_1_0/counters.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

AGAIN_WITHIN = 0.25  # seconds: a run that changes three times so soon is hot
COUNT_EVERY = 1.0  # seconds between two versions of a hot run's row

# Read by the trigger that counts, for this transaction.
HOT_RUNS = "SELECT set_config('crier.hot_runs', %s, true)"

# Of runs that no other session has locked at this moment; returns them.
FOLD = """
WITH free AS MATERIALIZED (
  SELECT array_agg(id) AS ids FROM (SELECT id FROM fanout_run WHERE id = ANY(%(runs)s::bigint[])
                                     ORDER BY id FOR NO KEY UPDATE SKIP LOCKED) AS f)
SELECT ids, fanout_lock_runs(ids) FROM free WHERE ids IS NOT NULL
"""

# What killed drivers have left.
FOLD_ALL = FOLD.replace("%(runs)s::bigint[]", "ARRAY(SELECT DISTINCT run_id FROM fanout_runchange)")


class HotRuns:
    """When one driver's commits last changed and counted each of its runs.

    A claim and its answer are two changes: of a run that is sent at a pace they are written at once. Appending one of
    them and folding it in a second later cost twice as much.
    """

    def __init__(self) -> None:
        self._changed: dict[int, tuple[float, float]] = {}  # the change before the last one, and the last one
        self._counted: dict[int, float] = {}
        self.uncounted: set[int] = set()  # with changes that were appended

    def among(self, runs: Iterable[int], now: float) -> list[int]:
        """Return the runs whose changes are to be appended in a commit of this moment."""
        if not self._changed:
            return []
        changed_after, counted_after = now - AGAIN_WITHIN, now - COUNT_EVERY
        return [
            run
            for run in runs
            if run in self._changed
            and self._changed[run][0] > changed_after
            and self._counted.get(run, counted_after) > counted_after
        ]

    def written(self, runs: Iterable[int], hot: Collection[int], now: float) -> None:
        """Note a commit."""
        for run in runs:
            self._changed[run] = (self._changed[run][1] if run in self._changed else 0.0, now)
            if run in hot:
                self.uncounted.add(run)
            else:
                self.counted([run], now)

    def counted(self, runs: Iterable[int], now: float) -> None:
        for run in runs:
            self._counted[run] = now
            self.uncounted.discard(run)

    def due(self, now: float) -> list[int]:
        """Return the runs whose appended changes are to be counted now, and forget those that are at rest."""
        before = now - COUNT_EVERY
        self._changed = {run: at for run, at in self._changed.items() if at[1] > before}
        self._counted = {run: at for run, at in self._counted.items() if at > before}
        return sorted(run for run in self.uncounted if run not in self._counted)
