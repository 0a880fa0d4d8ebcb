"""The timing of a lane's sends: token bucket, gap, batch pause, slow-down factor. Pure.

The bucket is kept as GCRA: one timestamp (`tat`, the theoretical arrival time of the next message) says all
there is to say about it, so it can be stored with the claim and read by whoever drives the lane next.
In any 60 seconds at most rate + burst messages go out.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

NEVER_LONGER_THAN = timedelta(seconds=10)  # a slow-down stops here; an operator's own pace may be slower
SLOW = 1.5  # above the error threshold the delay grows by exactly half
STEP_BACK = 0.01  # and falls back in these steps, one for every outcome


@dataclass(frozen=True, slots=True)
class PaceSettings:
    per_minute: float = 40  # 0: no limit
    burst: int = 3
    min_gap: float = 0
    max_gap: float = 0
    batch_size: int = 0
    batch_pause: float = 0

    @property
    def interval(self) -> timedelta:
        return timedelta(seconds=60 / self.per_minute) if self.per_minute else timedelta(0)


@dataclass(frozen=True, slots=True)
class PaceState:
    tat: datetime | None = None
    next_send_at: datetime | None = None
    batch_sent: int = 0
    slow_factor: float = 1.0


def slowed(base: timedelta, factor: float) -> timedelta:
    """The delay under a slow-down: never beyond ten seconds, unless the operator chose more."""
    return max(base, min(base * factor, NEVER_LONGER_THAN))


def next_slot(state: PaceState, settings: PaceSettings, now: datetime) -> datetime:
    """The earliest moment at which the next message may go out."""
    slot = now
    if state.tat is not None and settings.per_minute:
        interval = slowed(settings.interval, state.slow_factor)
        slot = max(slot, state.tat - interval * (settings.burst - 1))
    if state.next_send_at is not None:
        slot = max(slot, state.next_send_at)
    return slot


def after_claim(state: PaceState, settings: PaceSettings, at: datetime, rng: random.Random) -> PaceState:
    """The pace once a message was claimed at `at`: one token spent, gap drawn, batch counted."""
    interval = slowed(settings.interval, state.slow_factor)
    tat = max(state.tat or at, at) + interval if settings.per_minute else state.tat
    next_send_at = state.next_send_at
    if settings.max_gap > 0:
        gap = timedelta(seconds=rng.uniform(settings.min_gap, settings.max_gap))
        next_send_at = at + slowed(gap, state.slow_factor)
    batch_sent = state.batch_sent + 1
    if settings.batch_size and batch_sent >= settings.batch_size:
        batch_sent = 0
        # The pause comes on top of the usual delay: N messages take N·D + (N/B)·P.
        after = max(tat or at, at) - interval * (settings.burst - 1) if settings.per_minute else at
        # Never from before the last message: a full bucket must not eat the pause.
        pause_ends = max(next_send_at or at, after, at) + timedelta(seconds=settings.batch_pause)
        next_send_at = max(pause_ends, next_send_at or at)
    return PaceState(tat, next_send_at, batch_sent, state.slow_factor)


def believed(state: PaceState, settings: PaceSettings, now: datetime) -> PaceState:
    """What was stored, unless it cannot be true: a bucket never owes more than its burst, so a later time means that
    the clock was set back since."""
    if state.tat is None:
        return state
    return replace(state, tat=min(state.tat, now + slowed(settings.interval, state.slow_factor) * settings.burst))


def called_late(state: PaceState, tat_at_claim: datetime | None, lag: timedelta) -> PaceState:
    """The provider was called `lag` after the claim: the bucket counts from the call, not from the claim."""
    if tat_at_claim is None or state.tat is None or tat_at_claim + lag <= state.tat:
        return state
    return replace(state, tat=tat_at_claim + lag)


def held(state: PaceState, until: datetime) -> PaceState:
    """Nothing goes out before `until`: a provider asked for it."""
    return replace(state, next_send_at=max(until, state.next_send_at or until))


def moved(state: PaceState, step: timedelta) -> PaceState:
    """The same pace after the clock was set by `step`."""
    tat = state.tat and state.tat + step
    return replace(state, tat=tat, next_send_at=state.next_send_at and state.next_send_at + step)


def adapted(state: PaceState, error_rate: float, threshold: float) -> PaceState:
    """Slow down above the threshold; below it go back to normal step by step."""
    if error_rate > threshold:
        return replace(state, slow_factor=max(SLOW, state.slow_factor))
    return replace(state, slow_factor=max(1.0, round(state.slow_factor - STEP_BACK, 2)))
