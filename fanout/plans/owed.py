"""What a lane owes to its runs, and its account as plans and forecasts see it: plain values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from typing import NamedTuple

from accounts.channels.registry import channel
from fanout.rules.new_chats import NO_LIMIT, NewChats
from fanout.rules.pace import PaceSettings, PaceState
from reminders.window import BusinessHours, Window

FRESH = PaceState()
CapOn = Callable[[date], int | None]


@dataclass(frozen=True, slots=True)
class Work:
    """What is left to send: `messages` is below targets × parts where some targets have had a part."""

    messages: int
    parts: int
    targets: int

    @classmethod
    def of(cls, targets: int, parts: int = 1) -> Work:
        return cls(targets * parts, parts, targets)

    def queue(self) -> Iterator[int]:
        """How many parts each target still gets. Those that have had some come first, as in the lane."""
        begun = self.targets * self.parts - self.messages
        for _ in range(self.targets):
            had = min(begun, self.parts - 1)
            begun -= had
            yield self.parts - had


@dataclass(frozen=True, slots=True)
class Queued:
    """What a lane owes to a run, in which window, and from when on. It goes on at each opening until it is done."""

    work: Work
    window: Window
    starts: datetime
    # A lane takes its runs in this order: when they were due, and their number.
    due: tuple[datetime, int] | None = None
    follow_up: bool = False
    run_id: int = 0
    # Only persons to whom the account has not written yet.
    new_chats: bool = False
    # What its run does; empty: what the account's plan was asked about.
    action: str = ""

    def split(self, new: int) -> tuple[Queued, ...]:
        """Its new chats, which have limits of their own, and the rest. They go first: those that had to wait stand
        at the head of the run when they may go."""
        work, new = self.work, min(new, self.work.targets)
        others = work.targets - new
        parts = [
            replace(self, work=Work.of(new, work.parts), new_chats=True),
            replace(self, work=Work(max(work.messages - new * work.parts, others), work.parts, others)),
        ]
        return tuple(part for part in parts if part.work.targets) if new else (self,)


class DailyCap(NamedTuple):
    """Of one action. `used`: so much of today's."""

    cap: int | CapOn | None = None
    used: int = 0

    def on(self, day: date) -> int | None:
        return self.cap(day) if callable(self.cap) else self.cap


@dataclass(frozen=True, slots=True)
class AccountPlan:
    """What the plan needs to know of an account. `cap` and `used` are of the action that was asked about."""

    account_id: int
    pace: PaceSettings
    hours: BusinessHours
    state: PaceState = FRESH
    cap: int | CapOn | None = None
    used: int = 0
    # The caps of further actions that its channel counts.
    channel: str = ""
    others: Mapping[str, DailyCap] = field(default_factory=dict)
    concurrency: int = 3
    latency: float = 0.2
    jitter: tuple[float, float] = (0.2, 0.5)
    # Follow-ups left above which they wait longer between sends.
    pressed_above: int = 200
    new_chats: NewChats = NO_LIMIT
    # What the lane owes to earlier runs, which it sends first.
    queued_before: tuple[Queued, ...] = ()

    @property
    def caps(self) -> dict[str, DailyCap]:
        """By action; that which was asked about has an empty name."""
        return {"": DailyCap(self.cap, self.used), **self.others}

    def counted(self, queued: Queued) -> str:
        """Which of the caps its messages use."""
        action = channel(self.channel).counts(queued.action) if queued.action else ""
        return action if action in self.others else ""

    def before(self, due: datetime, run_id: int = 0) -> AccountPlan:
        """The account with only that part of its queue which goes out before a run that is due then."""
        earlier = (queued for queued in self.queued_before if queued.due is None or queued.due < (due, run_id))
        return replace(self, queued_before=tuple(earlier))
