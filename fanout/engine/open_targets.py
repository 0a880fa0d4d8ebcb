"""The targets that the provider has, or that are between two parts: by run, the only count of them."""

from __future__ import annotations

from fanout.engine.loading import LaneRun, Target


class OpenTargets:
    def __init__(self) -> None:
        self._by_run: dict[int, set[int]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_run.values()))

    def of(self, run: LaneRun) -> set[int]:
        return self._by_run.get(run.id, set())

    def add(self, run: LaneRun, target: Target) -> None:
        self._by_run.setdefault(run.id, set()).add(target.id)

    def remove(self, run: LaneRun, target: Target) -> None:
        targets = self._by_run[run.id]
        targets.discard(target.id)
        if not targets:
            del self._by_run[run.id]
