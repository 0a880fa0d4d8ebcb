"""The pace: bucket, gap, batch pause, slow-down; also when the clock jumps."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fanout.rules.pace import (
    Bucket,
    PaceSettings,
    PaceState,
    adapted,
    after_claim,
    believed,
    called_late,
    debt,
    earliest_send,
    held,
    moved,
    recovered,
    slowed,
    spent_elsewhere,
)

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
SECOND = timedelta(seconds=1)
case = pytest.param


def moments(pace: PaceSettings, n: int, now: datetime = NOW, seed: int = 1) -> list[float]:
    """Seconds from `now` at which n messages go out, one after the other as soon as the pace allows."""
    rng, state, at, sent = random.Random(seed), PaceState(), now, []
    for _ in range(n):
        at = earliest_send(state, pace, at)
        state = after_claim(state, pace, at, rng)
        sent.append((at - now).total_seconds())
    return sent


@pytest.mark.parametrize(
    ("pace", "expected"),
    [
        case(PaceSettings(60, 1), [0, 1, 2, 3, 4, 5], id="one-by-one"),
        case(PaceSettings(60, 3), [0, 0, 0, 1, 2, 3], id="burst-then-rate"),
        case(PaceSettings(0, 1), [0, 0, 0, 0, 0, 0], id="no-limit"),
        case(PaceSettings(), [0, 0, 0, 1.5, 3, 4.5], id="where-nobody-says-otherwise"),
        case(PaceSettings(0, 1, 5, 5), [0, 5, 10, 15, 20, 25], id="gap"),
        case(PaceSettings(0, 1, 0.5, 0.5), [0, 0.5, 1, 1.5, 2, 2.5], id="short-gap"),
        case(PaceSettings(60, 1, 5, 5), [0, 5, 10, 15, 20, 25], id="gap-above-rate"),
        case(PaceSettings(60, 1, batch_size=2, batch_pause=10), [0, 1, 12, 13, 24, 25], id="batches"),
        case(PaceSettings(0, 1, batch_size=3, batch_pause=10), [0, 0, 0, 10, 10, 10], id="batches-without-rate"),
        # The bucket fills in a pause, so that a burst follows it, but it never eats the pause.
        case(PaceSettings(60, 4, batch_size=2, batch_pause=10), [0, 0, 10, 10, 20, 20], id="batch-below-burst"),
        case(PaceSettings(0, 1, 2, 2, batch_size=2, batch_pause=10), [0, 2, 14, 16, 28, 30], id="gap-and-batch"),
    ],
)
def test_when_messages_go_out(pace: PaceSettings, expected: list[float]) -> None:
    assert moments(pace, 6) == expected


@given(st.integers(1, 600), st.integers(1, 10), st.integers(0, 30), st.integers(0, 40))
@settings(max_examples=60, deadline=None)
def test_never_more_than_rate_and_burst_in_a_minute(rate: int, burst: int, size: int, pause: int) -> None:
    sent = moments(PaceSettings(rate, burst, batch_size=size, batch_pause=pause), 700)
    assert len(sent) == 700  # more than any rate and burst here
    for n, at in enumerate(sent):
        if n >= rate + burst:
            assert at - sent[n - rate - burst] >= 60 - 1e-3


PACES = st.builds(
    lambda rate, burst, gap, more, size, pause: PaceSettings(rate, burst, gap, gap + more, size, pause),
    st.integers(0, 600),
    st.integers(1, 10),
    st.sampled_from([0, 0.5, 20]),
    st.sampled_from([0, 1, 40]),
    st.integers(0, 12),
    st.sampled_from([0, 2, 30]),
)


@given(PACES, st.sampled_from([0.0, 0.7, 5.0]), st.sampled_from([1.0, 1.5]))
@settings(max_examples=100, deadline=None)
def test_a_pace_that_is_stored_after_every_message_goes_on_where_it_was(
    pace: PaceSettings, busy: float, factor: float
) -> None:
    """Also where the provider is what holds the lane back. A microsecond is what the database keeps."""
    state, bucket = PaceState(slow_factor=factor), Bucket(PaceState(slow_factor=factor), pace)
    rng, ahead, now = random.Random(3), random.Random(3), NOW
    for _ in range(60):
        earliest = earliest_send(state, pace, now)
        assert bucket.earliest_send(now.timestamp()) == pytest.approx(earliest.timestamp(), abs=1e-4)
        state = after_claim(state, pace, earliest, rng)
        bucket.spend(earliest.timestamp(), ahead)
        now = earliest + busy * SECOND


def test_without_a_rate_an_old_bucket_holds_nothing_back() -> None:
    """The operator took the limit away while the bucket was empty."""
    state = PaceState(theoretical_arrival=NOW + timedelta(minutes=5))
    assert earliest_send(state, PaceSettings(0, 1), NOW) == NOW
    assert (
        after_claim(state, PaceSettings(0, 1), NOW, random.Random(1)).theoretical_arrival == state.theoretical_arrival
    )


def test_random_gaps_stay_in_their_range() -> None:
    sent = moments(PaceSettings(600, 1, 300, 1_200), 200)
    gaps = [after - before for before, after in pairwise(sent)]
    assert min(gaps) >= 300
    assert max(gaps) <= 1_200
    assert len(set(gaps)) == 199


def test_a_clock_that_jumps_back_waits_and_grants_nothing() -> None:
    """Set back by an hour, the lane waits for the stored time; it does not get a fresh bucket."""
    settings = PaceSettings(60, 3)
    state, rng = PaceState(), random.Random(1)
    for _ in range(3):
        state = after_claim(state, settings, NOW, rng)
    back = NOW - timedelta(hours=1)
    assert earliest_send(state, settings, back) == NOW + SECOND
    assert after_claim(state, settings, back, rng).theoretical_arrival == NOW + 4 * SECOND


def test_a_clock_that_jumps_forward_fills_one_burst_and_no_more() -> None:
    settings = PaceSettings(60, 3)
    state, rng = after_claim(PaceState(), settings, NOW, random.Random(1)), random.Random(1)
    later, granted = NOW + timedelta(days=1), 0
    while earliest_send(state, settings, later) <= later:
        state, granted = after_claim(state, settings, later, rng), granted + 1
    assert granted == 3


@pytest.mark.parametrize(
    ("base", "factor", "seconds"),
    [
        case(2, 1.0, 2, id="normal"),
        case(2, 1.5, 3, id="half-as-much-again"),
        case(8, 1.5, 10, id="capped"),
        case(60, 1.5, 60, id="the-operators-own-is-slower"),
    ],
)
def test_slow_down(base: float, factor: float, seconds: float) -> None:
    assert slowed(base, factor) == seconds


def test_falls_back_step_by_step() -> None:
    state, seen = adapted(PaceState(), 0.06, 0.05), []
    while state.slow_factor > 1:
        seen.append(state.slow_factor)
        state = adapted(state, 0.05, 0.05)
    assert seen[:3] == [1.5, 1.49, 1.48]
    assert len(seen) == 50


def test_more_errors_do_not_slow_it_down_further() -> None:
    state = adapted(adapted(PaceState(), 1.0, 0.05), 1.0, 0.05)
    assert state.slow_factor == 1.5


def test_held_never_shortens_an_earlier_wait() -> None:
    state = held(PaceState(), NOW + 60 * SECOND)
    assert held(state, NOW + 20 * SECOND).next_send_at == NOW + 60 * SECOND


def test_the_bucket_counts_from_the_call() -> None:
    settings = PaceSettings(60, 1)
    state = after_claim(PaceState(), settings, NOW, random.Random(1))
    late = called_late(state, 0 * SECOND, 2 * SECOND)
    assert earliest_send(late, settings, NOW) == NOW + 3 * SECOND


def test_a_late_call_costs_nothing_while_the_bucket_is_in_debt() -> None:
    settings, rng = PaceSettings(60, 3), random.Random(1)
    state = after_claim(PaceState(), settings, NOW, rng)
    debt_before = debt(state, NOW)
    assert debt_before == SECOND
    state = after_claim(state, settings, NOW, rng)
    assert called_late(state, debt_before, SECOND) == state
    assert called_late(state, debt_before, 3 * SECOND).theoretical_arrival == NOW + 4 * SECOND


@pytest.mark.parametrize("seconds", [0.5, 2, 10])
def test_a_burst_that_is_called_late_counts_from_the_call_as_one(seconds: float) -> None:
    """Its claims wait for the same commit: that is late once, not once for each."""
    pace, rng, state, debt_before = PaceSettings(60, 3), random.Random(1), PaceState(), []
    for _ in range(3):
        debt_before.append(debt(state, NOW))
        state = after_claim(state, pace, NOW, rng)
    for debt_at_claim in debt_before:
        state = called_late(state, debt_at_claim, seconds * SECOND)
    assert state.theoretical_arrival == NOW + (seconds + 3) * SECOND
    assert earliest_send(state, pace, NOW) == NOW + (seconds + 1) * SECOND


@given(
    lags=st.lists(st.floats(0, 5), min_size=80, max_size=160),
    gaps=st.lists(st.sampled_from([0, 0, 0, 4.0]), min_size=160, max_size=160),
    burst=st.integers(1, 5),
)
@settings(deadline=None)
def test_a_bucket_is_never_behind_the_calls_it_has_seen(lags: list[float], gaps: list[float], burst: int) -> None:
    """Also where a claim follows before the calls of the one before it, as in a lane whose claims come back."""
    pace, rng, state, now = PaceSettings(40, burst), random.Random(1), PaceState(), NOW
    under_way: list[tuple[datetime, timedelta]] = []
    exact = NOW
    calls: list[datetime] = []
    for lag, gap in zip(lags, gaps):
        now = earliest_send(state, pace, now + gap * SECOND)
        earlier, under_way = under_way, []
        while len(under_way) < 3 and earliest_send(state, pace, now) <= now:
            under_way.append((now, debt(state, now)))
            state = after_claim(state, pace, now, rng)
        for claimed_at, debt_before in earlier:
            state = called_late(state, debt_before, now - claimed_at)
            exact = max(exact, now) + 1.5 * SECOND
            calls.append(now)
        assert state.theoretical_arrival is not None
        assert state.theoretical_arrival >= exact - SECOND / 1000
        now += lag * SECOND
    for call, other in zip(calls, calls[40 + burst :]):
        assert other >= call + timedelta(minutes=1)


@given(
    lags=st.lists(st.floats(0, 5), min_size=80, max_size=160),
    at_once=st.integers(1, 3),
    burst=st.integers(1, 5),
)
@settings(deadline=None)
def test_calls_that_come_late_never_add_up_to_more_than_rate_and_burst(
    lags: list[float], at_once: int, burst: int
) -> None:
    """As a lane does it: it claims what the bucket lets through, and calls when the claim is durable."""
    pace, rng, state, now = PaceSettings(40, burst), random.Random(1), PaceState(), NOW
    calls: list[datetime] = []
    for lag in (timedelta(seconds=lag) for lag in lags):
        now = earliest_send(state, pace, now)
        claimed: list[timedelta] = []
        while len(claimed) < at_once and earliest_send(state, pace, now) <= now:
            claimed.append(debt(state, now))
            state = after_claim(state, pace, now, rng)
        now += lag
        for debt_before in claimed:
            state = called_late(state, debt_before, lag)
            calls.append(now)
    for call, other in zip(calls, calls[40 + burst :]):
        assert other >= call + timedelta(minutes=1)


def test_the_slow_factor_stretches_the_bucket() -> None:
    settings, rng = PaceSettings(30, 1), random.Random(1)
    state = after_claim(PaceState(slow_factor=1.5), settings, NOW, rng)
    assert earliest_send(state, settings, NOW) == NOW + 3 * SECOND


@pytest.mark.parametrize("pace", [PaceSettings(60, 1), PaceSettings(0, 1, 1, 1)], ids=["rate", "gap"])
def test_under_backpressure_every_wait_is_a_fifth_to_two_fifths_longer(pace: PaceSettings) -> None:
    rng, state, at, sent = random.Random(1), PaceState(), NOW, []
    for _ in range(200):
        at = earliest_send(state, pace, at)
        state = after_claim(state, pace, at, rng, backpressure=True)
        sent.append(at)
        assert believed(state, pace, at) == state, "whoever takes the lane over keeps the longer wait"
    waits = [(after - before).total_seconds() for before, after in pairwise(sent)]
    assert 1.2 <= min(waits) < 1.21
    assert 1.39 < max(waits) <= 1.4
    assert len(set(waits)) == 199


def test_without_a_gap_nothing_is_drawn_and_no_moment_is_stored() -> None:
    rng = random.Random(1)
    state = after_claim(PaceState(), PaceSettings(60, 1), NOW, rng)
    assert (state.theoretical_arrival, state.next_send_at, state.batch_sent) == (NOW + SECOND, None, 0)
    assert rng.random() == random.Random(1).random()
    counting = PaceSettings(60, 1, batch_size=9)
    assert after_claim(after_claim(state, counting, NOW, rng), counting, NOW, rng).batch_sent == 2


def test_a_gap_holds_although_an_old_bucket_does_not() -> None:
    state = PaceState(theoretical_arrival=NOW + timedelta(minutes=5), next_send_at=NOW + SECOND)
    assert earliest_send(state, PaceSettings(0, 1), NOW) == NOW + SECOND


#: a bucket of three, every two seconds, gaps of up to ten and pauses of thirty
STORED = PaceSettings(30, 3, 5, 10, 4, 30)


@pytest.mark.parametrize(
    ("pace", "factor", "debt_before", "gap"),
    [
        case(STORED, 1.0, 2 * (2 + 1.4), 10 * 1.4 + 30, id="a-gap-and-a-pause"),
        case(STORED, 1.5, 3 * (2 + 1.4), 10 * 1.4 + 30, id="slowed-down"),
        case(PaceSettings(30, 3), 1.0, 2 * (2 + 1.4), 2 * (2 + 1.4), id="a-bucket-alone"),
        case(PaceSettings(30, 3, batch_size=4, batch_pause=30), 1.0, 6.8, 6.8 + 30, id="a-bucket-and-a-pause"),
    ],
)
@pytest.mark.parametrize("beyond", [-0.01, 0.01], ids=["true", "cannot-be-true"])
def test_a_stored_pace_is_believed_as_far_as_it_can_be_true(
    pace: PaceSettings, factor: float, debt_before: float, gap: float, beyond: float
) -> None:
    """The clock was set back since, where it is further away than any pace of these settings leads."""
    far = PaceState(NOW + (debt_before + beyond) * SECOND, NOW + (gap + beyond) * SECOND, 2, factor)
    true = believed(far, pace, NOW)
    moments = [
        (moment - NOW).total_seconds() for moment in (true.theoretical_arrival, true.next_send_at) if moment is not None
    ]
    assert moments == pytest.approx([debt_before + min(beyond, 0), gap + min(beyond, 0)])
    assert (true.batch_sent, true.slow_factor) == (2, factor)


def test_a_break_that_a_provider_asked_for_may_be_of_any_length() -> None:
    state = PaceState(NOW + timedelta(days=1), NOW + timedelta(days=1))
    assert believed(state, STORED, NOW, held=True).next_send_at == NOW + timedelta(days=1)
    assert believed(state, STORED, NOW, held=True).theoretical_arrival == NOW + 6.8 * SECOND
    assert believed(PaceState(), STORED, NOW) == PaceState()


def test_a_pace_moves_along_with_the_clock() -> None:
    hour = timedelta(hours=1)
    both = PaceState(NOW, NOW + SECOND, 3, 1.2)
    assert moved(both, hour) == PaceState(NOW + hour, NOW + SECOND + hour, 3, 1.2)
    assert moved(both, -hour) == PaceState(NOW - hour, NOW + SECOND - hour, 3, 1.2)
    assert moved(PaceState(), hour) == PaceState()


def test_a_bucket_without_a_message_is_never_late() -> None:
    assert called_late(PaceState(), 0 * SECOND, 2 * SECOND) == PaceState()
    assert debt(PaceState(), NOW) == 0 * SECOND


def test_earlier_lateness_is_no_debt() -> None:
    state = PaceState(theoretical_arrival=NOW + 5 * SECOND, late=2 * SECOND)
    assert (debt(state, NOW), debt(state, NOW + 10 * SECOND)) == (3 * SECOND, -2 * SECOND)


@pytest.mark.parametrize(("factor", "after"), [(1.5, 1.49), (1.01, 1.0), (1.0, 1.0)])
def test_one_outcome_is_one_step_back(factor: float, after: float) -> None:
    assert recovered(factor) == after


@pytest.mark.parametrize(
    ("pace", "arrival", "messages", "expected"),
    [
        case(PaceSettings(60, 3), None, 2, NOW + 2 * SECOND, id="from-now"),
        case(PaceSettings(60, 3), NOW + SECOND, 1, NOW + 2 * SECOND, id="behind-ours"),
        case(PaceSettings(60, 3), None, 90, NOW + 60 * SECOND, id="a-minute-at-most"),
        case(PaceSettings(2, 3), NOW + 50 * SECOND, 1, NOW + 60 * SECOND, id="a-minute-in-total"),
        case(PaceSettings(2, 3), NOW + 80 * SECOND, 1, NOW + 80 * SECOND, id="never-earlier"),
        case(PaceSettings(60, 3), NOW + SECOND, 0, NOW + SECOND, id="none"),
        case(PaceSettings(0, 3), None, 5, None, id="no-limit"),
    ],
)
def test_messages_written_on_the_phone_are_taken_from_the_bucket(
    pace: PaceSettings, arrival: datetime | None, messages: int, expected: datetime | None
) -> None:
    state = PaceState(arrival, NOW + 900 * SECOND)
    assert spent_elsewhere(state, pace, messages, NOW) == PaceState(expected, NOW + 900 * SECOND)
