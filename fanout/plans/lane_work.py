"""What one lane sends of the work that is forecast, and what lies before that. Plain values."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fanout.plans.outlook import LaneOutlook, RunOutlook, together
from fanout.plans.owed import AccountPlan, DailyCap, Queued


@dataclass(frozen=True, slots=True)
class LaneWork:
    """What one lane sends of the work that is forecast: the account with the queue before it, and its own share.
    `after`: what the lane owes to later runs, which go first while this one may not send."""

    account: AccountPlan
    mine: tuple[Queued, ...]
    noun: str = "group"
    after: tuple[Queued, ...] = ()

    @property
    def targets(self) -> int:
        return sum(queued.work.targets for queued in self.mine)

    @property
    def parts(self) -> int:
        return max((queued.work.parts for queued in self.mine), default=1)

    @property
    def queue(self) -> tuple[Queued, ...]:
        return (*self.account.queued_before, *self.mine, *self.after)

    @property
    def counted(self) -> str:
        """Which of the account's caps its messages use."""
        return self.account.counted(self.mine[0]) if self.mine else ""

    @property
    def cap(self) -> DailyCap:
        return self.account.caps[self.counted]

    @property
    def places(self) -> range:
        """Of its own work in the queue."""
        begin = len(self.account.queued_before)
        return range(begin, begin + len(self.mine))


@dataclass(slots=True)
class LaneShare:
    """One lane's part of a forecast: its work, and what lies before that."""

    lane: LaneWork
    ahead: LaneOutlook
    mine: RunOutlook

    @property
    def end(self) -> float:
        """When the lane is done; infinity: never."""
        if self.mine.targets < self.lane.targets:
            return math.inf
        return self.mine.last + self.lane.account.latency if self.mine.last is not None else 0.0


def share_of(lane: LaneWork, ahead: LaneOutlook) -> LaneShare:
    return LaneShare(lane, ahead, together([ahead.runs[place] for place in lane.places]))
