"""The targets that the provider has, that are between two parts, or whose result is being written: by run, the only
count of them."""

from __future__ import annotations

from fanout.engine.loading import LaneRun, Target


class OpenTargets:
    """Each has one of the account's places, until only its result is left to be written."""

    def __init__(self) -> None:
        self._by_run: dict[int, set[int]] = {}
        self._places: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._by_run)

    @property
    def places(self) -> int:
        return len(self._places)

    @property
    def being_written(self) -> int:
        return sum(map(len, self._by_run.values())) - len(self._places)

    def of(self, run: LaneRun) -> set[int]:
        return self._by_run.get(run.id, set())

    def add(self, run: LaneRun, target: Target) -> None:
        self._by_run.setdefault(run.id, set()).add(target.id)
        self._places.add(target.id)

    def free_place(self, target: Target) -> None:
        self._places.discard(target.id)

    def remove(self, run: LaneRun, target: Target) -> None:
        self._places.discard(target.id)
        targets = self._by_run[run.id]
        targets.discard(target.id)
        if not targets:
            del self._by_run[run.id]
