"""The timing of a lane's sends: token bucket, gap, batch pause, slow-down factor. Pure.

The bucket is kept as GCRA: one timestamp, the theoretical arrival time of the next message, holds its whole state, so
it can be stored with the claim and read by the next driver of the lane. In any 60 seconds at most rate + burst messages
go out.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

NEVER_LONGER_THAN = 10.0  # seconds: a slow-down stops here; an operator's own pace may be slower
SLOW = 1.5  # above the error threshold the delay grows by exactly half
STEP_BACK = 0.01  # and falls back in these steps, one for every outcome
NOTHING = timedelta(0)
#: how long messages that a person wrote with the account's phone may hold it up, all together
ELSEWHERE_MOST = timedelta(seconds=60)
BACKPRESSURE_FACTORS = (1.2, 1.4)  # under backpressure every wait between sends grows by a factor from this range


@dataclass(frozen=True, slots=True)
class PaceSettings:
    per_minute: float = 40  # 0: no limit
    burst: int = 3
    min_gap: float = 0
    max_gap: float = 0
    batch_size: int = 0
    batch_pause: float = 0

    @property
    def interval(self) -> float:
        """Seconds between two messages; 0: no limit."""
        return 60 / self.per_minute if self.per_minute else 0.0


@dataclass(frozen=True, slots=True)
class PaceState:
    """The pace as it is stored with a lane."""

    theoretical_arrival: datetime | None = None
    next_send_at: datetime | None = None
    batch_sent: int = 0
    slow_factor: float = 1.0
    # What late calls have added to `theoretical_arrival` so far. Not stored: the next driver has no call under way.
    late: timedelta = NOTHING


def slowed(base: float, factor: float) -> float:
    """Return the delay under a slow-down: never beyond ten seconds, unless the operator chose more."""
    return max(base, min(base * factor, NEVER_LONGER_THAN)) if factor != 1.0 else base


class Bucket:
    """The pace in seconds since 1970, one message after the other. The plan simulates many messages with it; the
    functions below take a single step of a stored pace."""

    __slots__ = ("batch_sent", "factor", "interval", "next_send", "settings", "theoretical_arrival", "tolerance")

    def __init__(self, state: PaceState, settings: PaceSettings) -> None:
        self.settings = settings
        # 0: nothing was sent yet
        arrival = state.theoretical_arrival if settings.per_minute else None
        self.theoretical_arrival = arrival.timestamp() if arrival is not None else 0.0
        self.next_send = state.next_send_at.timestamp() if state.next_send_at is not None else 0.0
        self.batch_sent = state.batch_sent
        self.slow_down(state.slow_factor)

    def slow_down(self, factor: float) -> None:
        self.factor = factor
        self.interval = slowed(self.settings.interval, factor)
        # How far ahead of the bucket's time a burst may be.
        self.tolerance = self.interval * (self.settings.burst - 1)

    def earliest_send(self, now: float) -> float:
        """The earliest moment at which the next message may go out."""
        return max(now, self.theoretical_arrival - self.tolerance, self.next_send)

    def spend(self, at: float, rng: random.Random, backpressure: bool = False) -> None:
        """Send a message: spend a token, draw the gap, count the batch. Under `backpressure` the next one waits
        longer."""
        settings, longer = self.settings, rng.uniform(*BACKPRESSURE_FACTORS) if backpressure else 1.0
        if settings.per_minute:
            self.theoretical_arrival = max(self.theoretical_arrival, at) + self.interval * longer
        if settings.max_gap > 0:
            self.next_send = at + slowed(rng.uniform(settings.min_gap, settings.max_gap), self.factor) * longer
        self.batch_sent += 1 if settings.batch_size else 0
        if settings.batch_size and self.batch_sent >= settings.batch_size:
            self.batch_sent = 0
            # The pause comes on top of the usual delay: N messages take N·D + (N/B)·P. It never counts from before the
            # last message: a full bucket must not eat it.
            self.next_send = self.earliest_send(at) + settings.batch_pause


def earliest_send(state: PaceState, settings: PaceSettings, now: datetime) -> datetime:
    """The earliest moment at which the next message may go out."""
    if state.next_send_at is None and (state.theoretical_arrival is None or not settings.per_minute):
        return now  # asked for every message of accounts without a limit
    at = now.timestamp()
    earliest = Bucket(state, settings).earliest_send(at)
    return datetime.fromtimestamp(earliest, UTC) if earliest > at else now


def after_claim(
    state: PaceState, settings: PaceSettings, at: datetime, rng: random.Random, backpressure: bool = False
) -> PaceState:
    """Return the pace after a message was claimed at `at`."""
    if not (settings.per_minute or settings.max_gap > 0 or settings.batch_size):
        return state  # nothing limits the account
    bucket = Bucket(state, settings)
    bucket.spend(at.timestamp(), rng, backpressure)
    arrival = state.theoretical_arrival
    if settings.per_minute:
        arrival = datetime.fromtimestamp(bucket.theoretical_arrival, UTC)
    next_send_at = datetime.fromtimestamp(bucket.next_send, UTC) if bucket.next_send else None
    return PaceState(arrival, next_send_at, bucket.batch_sent, state.slow_factor, state.late)


def believed(state: PaceState, settings: PaceSettings, now: datetime, held: bool = False) -> PaceState:
    """Return the stored pace, cut to what is possible: a bucket lags by its burst at most, and no gap is longer
    than the longest, so a later time means that the clock was set back since. `held`: a provider asked for a break,
    which may be of any length."""
    # The last message may have gone out under backpressure.
    most_debt = slowed(settings.interval, state.slow_factor) * (settings.burst - 1 + BACKPRESSURE_FACTORS[1])
    gap = max(most_debt, slowed(settings.max_gap, state.slow_factor) * BACKPRESSURE_FACTORS[1]) + settings.batch_pause
    return replace(
        state,
        theoretical_arrival=_at_most(state.theoretical_arrival, now, most_debt),
        next_send_at=state.next_send_at if held else _at_most(state.next_send_at, now, gap),
    )


def _at_most(moment: datetime | None, now: datetime, seconds: float) -> datetime | None:
    return min(moment, now + timedelta(seconds=seconds)) if moment is not None else None


def debt(state: PaceState, now: datetime) -> timedelta:
    """Return how far the bucket's theoretical arrival is ahead of `now`, without the lateness that it contains already:
    `called_late` adds lateness to it again."""
    arrival = state.theoretical_arrival
    return (max(NOTHING, arrival - now) if arrival is not None else NOTHING) - state.late


def called_late(state: PaceState, debt_at_claim: timedelta, lag: timedelta) -> PaceState:
    """Return the pace after the provider was called `lag` after the claim: the bucket counts from the call, not from
    the claim. While it was in debt anyway, it counts from the end of that."""
    beyond = lag - debt_at_claim - state.late
    if state.theoretical_arrival is None or beyond <= NOTHING:
        return state
    return replace(state, theoretical_arrival=state.theoretical_arrival + beyond, late=state.late + beyond)


def spent_elsewhere(state: PaceState, settings: PaceSettings, messages: int, now: datetime) -> PaceState:
    """Return the pace after a person wrote so many messages with the account's phone: each takes a token. Together they
    hold the account up for a minute at most."""
    if messages <= 0 or not settings.per_minute:
        return state
    interval = slowed(settings.interval, state.slow_factor)
    arrival = max(state.theoretical_arrival or now, now)
    spent = min(arrival + timedelta(seconds=messages * interval), now + ELSEWHERE_MOST)
    return replace(state, theoretical_arrival=max(arrival, spent))


def held(state: PaceState, until: datetime) -> PaceState:
    """Return the pace with a break until `until` that a provider asked for."""
    return replace(state, next_send_at=max(until, state.next_send_at or until))


def moved(state: PaceState, step: timedelta) -> PaceState:
    """Return the pace after the clock was set by `step`."""
    return replace(
        state,
        theoretical_arrival=state.theoretical_arrival and state.theoretical_arrival + step,
        next_send_at=state.next_send_at and state.next_send_at + step,
    )


def adapted(state: PaceState, error_rate: float, threshold: float) -> PaceState:
    """Return the pace after an outcome: slower above the threshold, else one step back to normal."""
    factor = max(SLOW, state.slow_factor) if error_rate > threshold else recovered(state.slow_factor)
    return state if factor == state.slow_factor else replace(state, slow_factor=factor)


def recovered(factor: float) -> float:
    """Return the slow-down factor after one more outcome below the threshold."""
    return max(1.0, round(factor - STEP_BACK, 2))
