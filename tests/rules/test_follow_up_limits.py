from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fanout.rules.follow_up_limits import (
    UNKNOWN_PROSPECT,
    Limits,
    Prospect,
    QueueLimits,
    after_attempt,
    after_cooldown,
    after_reply,
    not_admitted,
    refusal,
    under_lower_limit,
    without_number,
)

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
LIMITS = Limits()


@pytest.mark.parametrize(
    ("person", "ordinary", "follow_up"),
    [
        (Prospect(), "", ""),
        (Prospect(follow_up_attempts=2), "", ""),
        (Prospect(follow_up_attempts=3), "", "max_attempts_reached_3"),
        (Prospect("opted_out"), "opted_out", "opted_out"),
        (Prospect("blacklisted"), "blacklisted", "blacklisted"),
        (Prospect("do_not_disturb"), "do_not_disturb", "do_not_disturb"),
        (Prospect("converted"), "", "converted"),
        (Prospect("not_interested"), "", "not_interested"),
        (Prospect("closed"), "", "closed"),
        (Prospect(cooldown_until=NOON + 12 * HOUR), "", "cooldown_active_12h"),
        (Prospect(cooldown_until=NOON + 11 * HOUR + timedelta(seconds=1)), "", "cooldown_active_12h"),
        (Prospect(cooldown_until=NOON + timedelta(seconds=1)), "", "cooldown_active_1h"),
        (Prospect(cooldown_until=NOON, follow_up_attempts=3), "", ""),
        (Prospect("not_interested", 3, None, NOON + 48 * HOUR, limited=True), "", "cooldown_active_48h"),
        (Prospect("not_interested", 3, None, NOON, limited=True), "", ""),
        (Prospect("not_interested", 0, limited=True), "", "not_interested"),
        (Prospect("converted", 3, None, NOON + 48 * HOUR, limited=True), "", "converted"),
        (Prospect("not_interested", 3, None, NOON + 48 * HOUR), "", "not_interested"),
        (Prospect("converted", 3, None, NOON, limited=True), "", "converted"),
        (Prospect("opted_out", 3, None, NOON, limited=True), "opted_out", "opted_out"),
    ],
)
def test_every_reason(person: Prospect, ordinary: str, follow_up: str) -> None:
    assert refusal(person, False, LIMITS, NOON) == ordinary
    assert refusal(person, True, LIMITS, NOON) == follow_up


def test_the_reason_names_the_limit_that_was_set() -> None:
    assert refusal(Prospect(follow_up_attempts=2), True, Limits(attempts=2), NOON) == "max_attempts_reached_2"


def test_the_third_attempt_begins_the_cooldown() -> None:
    person = Prospect()
    for day in range(3):
        assert refusal(person, True, LIMITS, NOON + day * 24 * HOUR) == ""
        person = after_attempt(person, LIMITS, NOON + day * 24 * HOUR)
    third = NOON + 48 * HOUR
    assert person == Prospect("not_interested", 3, None, third + 48 * HOUR, limited=True)
    assert after_cooldown(person, third + 48 * HOUR) == Prospect("active", 0, third + 48 * HOUR)


def test_the_limit_does_not_overwrite_an_operators_status() -> None:
    """A converted person stays so, and the end of the cooldown does not make them active."""
    person = after_attempt(Prospect("converted", 2), LIMITS, NOON)
    assert (person.status, person.limited, person.cooldown_until) == ("converted", False, NOON + 48 * HOUR)
    assert after_cooldown(person, NOON + 48 * HOUR).status == "converted"


def test_a_reply_gives_everything_back_once() -> None:
    limited = Prospect("not_interested", 3, None, NOON + 48 * HOUR, limited=True)
    replied = after_reply(limited, NOON)
    assert replied == Prospect("active", 0, NOON, None, NOON)
    once_more = after_attempt(replied, LIMITS, NOON + HOUR)
    assert after_reply(once_more, NOON) == once_more, "the same event may be worked on twice"
    assert after_reply(Prospect("not_interested"), NOON).status == "not_interested"


def test_an_attempt_before_the_reply_is_answered() -> None:
    """It was unconfirmed when the person replied, and is settled as sent only now."""
    replied = after_reply(Prospect(follow_up_attempts=1), NOON)
    assert after_attempt(replied, LIMITS, NOON - HOUR) == replied


@pytest.mark.parametrize(
    ("hours", "counted"),
    [(-1, False), (0, True), (1, True)],
    ids=["before the reply", "at that moment", "after it"],
)
def test_an_attempt_counts_from_the_last_fresh_start_on(hours: int, counted: bool) -> None:
    replied = after_reply(Prospect(follow_up_attempts=1), NOON)
    assert after_attempt(replied, LIMITS, NOON + hours * HOUR).follow_up_attempts == counted


@pytest.mark.parametrize(("lasts", "until"), [(72, 72), (24, 48)], ids=["a longer one", "a shorter one"])
def test_an_attempt_never_shortens_a_cooldown(lasts: int, until: int) -> None:
    person = Prospect(follow_up_attempts=3, cooldown_until=NOON + lasts * HOUR)
    assert after_attempt(person, LIMITS, NOON).cooldown_until == NOON + until * HOUR


@pytest.mark.parametrize("hours", [-1, 0], ids=["an earlier one that came late", "the same again"])
def test_only_a_later_reply_is_another_one(hours: int) -> None:
    person = Prospect(follow_up_attempts=2, replied_at=NOON, attempts_reset_at=NOON)
    assert after_reply(person, NOON + hours * HOUR) == person
    assert after_reply(person, NOON + HOUR) == Prospect(attempts_reset_at=NOON + HOUR, replied_at=NOON + HOUR)


def test_a_reply_that_came_late_does_not_move_the_fresh_start_back() -> None:
    person = Prospect(follow_up_attempts=1, attempts_reset_at=NOON)
    assert after_reply(person, NOON - HOUR) == Prospect(attempts_reset_at=NOON, replied_at=NOON - HOUR)


@pytest.mark.parametrize(
    ("person", "expected"),
    [
        (Prospect(follow_up_attempts=1), Prospect(follow_up_attempts=1)),
        (
            Prospect(follow_up_attempts=2),
            Prospect("not_interested", 2, cooldown_until=NOON + 48 * HOUR, limited=True),
        ),
        (
            Prospect(follow_up_attempts=3),
            Prospect("not_interested", 3, cooldown_until=NOON + 48 * HOUR, limited=True),
        ),
        (Prospect("converted", 2), Prospect("converted", 2, cooldown_until=NOON + 48 * HOUR)),
        (
            Prospect(follow_up_attempts=2, cooldown_until=NOON),
            Prospect(follow_up_attempts=2, cooldown_until=NOON),
        ),
        (Prospect(cooldown_until=NOON), Prospect(cooldown_until=NOON)),
    ],
    ids=["below it", "at it", "above it", "somebody decided", "cooling already", "cooling below it"],
)
def test_a_person_above_a_lowered_limit_begins_the_cooldown(person: Prospect, expected: Prospect) -> None:
    assert under_lower_limit(person, Limits(attempts=2), NOON) == expected


def test_three_attempts_and_two_days_by_default() -> None:
    assert (LIMITS, QueueLimits()) == (Limits(3, 48 * HOUR), QueueLimits(200, 5_000))


@pytest.mark.parametrize(
    ("queued", "urgency", "reason"),
    [
        (200, "low", ""),
        (201, "low", "backpressure_200"),
        (201, "medium", "backpressure_200"),
        (201, "high", ""),
        (4_999, "high", ""),
        (5_000, "high", "queue_full_5000"),
        (5_000, "low", "queue_full_5000"),
    ],
)
def test_follow_ups_that_may_join_the_queue(queued: int, urgency: str, reason: str) -> None:
    assert not_admitted(queued, urgency, QueueLimits()) == reason


def test_reasons_are_counted_without_their_numbers() -> None:
    reasons = ("cooldown_active_12h", "max_attempts_reached_3", "queue_full_5000", "backpressure_200", "opted_out")
    assert [without_number(reason) for reason in reasons] == [
        "cooldown_active",
        "max_attempts_reached",
        "queue_full",
        "backpressure",
        "opted_out",
    ]


# --- against a model ------------------------------------------------------------------------------------


@dataclass
class Model:
    """The same rules told as a diary: what happened since the last fresh start is read anew each time."""

    attempts: list[datetime]
    cooling_until: datetime | None = None
    replied_at: datetime | None = None

    def pass_time(self, now: datetime) -> None:
        if self.cooling_until is not None and self.cooling_until <= now:
            self.attempts, self.cooling_until = [], None

    def attempt(self, now: datetime, limits: Limits) -> None:
        self.attempts.append(now)
        if len(self.attempts) >= limits.attempts:
            self.cooling_until = now + limits.cooldown

    def reply(self, now: datetime) -> None:
        self.attempts, self.cooling_until, self.replied_at = [], None, now


STEPS = st.lists(st.tuples(st.sampled_from(["attempt", "forced", "reply", "sweep"]), st.integers(1, 60)), max_size=40)


@settings(max_examples=300, deadline=None)
@given(STEPS, st.integers(1, 4), st.integers(0, 72))
def test_the_state_machine_against_a_model(steps: list[tuple[str, int]], most: int, hours: int) -> None:
    """Attempts, replies and the end of cooldowns in any order. `forced` is one that was in flight already; `sweep` is
    hygiene, which must not change what anybody may get."""
    limits = Limits(most, hours * HOUR)
    person, model, now = Prospect(), Model([]), NOON
    for step, wait in steps:
        now += wait * HOUR
        model.pass_time(now)
        free = refusal(person, True, limits, now) == ""
        assert free == (model.cooling_until is None and len(model.attempts) < most)
        assert refusal(person, False, limits, now) == ""
        if step == "forced" or (step == "attempt" and free):
            person = after_attempt(person, limits, now)
            model.attempt(now, limits)
        elif step == "reply":
            person = after_reply(person, now)
            model.reply(now)
        elif step == "sweep":
            person = after_cooldown(person, now)
        model.pass_time(now)
        seen = after_cooldown(person, now)
        assert (seen.follow_up_attempts, seen.cooldown_until) == (len(model.attempts), model.cooling_until)
        assert seen.status == ("active" if model.cooling_until is None else "not_interested")
        assert seen.limited == (model.cooling_until is not None)
        assert seen.replied_at == model.replied_at
        assert after_cooldown(seen, now) == seen
        assert seen.replied_at is None or after_reply(seen, seen.replied_at) == seen


def test_an_unknown_person_has_had_no_attempt() -> None:
    assert refusal(UNKNOWN_PROSPECT, True, Limits(attempts=1), NOON) == ""
