"""Every answer of a provider, and what follows from it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from accounts.channels.base import Kind, NotSent, Outcome, Sent, Unknown
from accounts.channels.mail import MAIL
from fanout.rules.outcomes import (
    AccountChange,
    Consequence,
    after_timeout,
    ban_end,
    consequence,
    retry_delay,
    timed_out,
    timeouts_in_words,
)

NOW = datetime(2026, 12, 31, 23, 59, 30, tzinfo=UTC)
BAN_ENDS = NOW + timedelta(hours=6)
case = pytest.param


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def judge(outcome: Outcome, **given: Any) -> Consequence:
    known: dict[str, Any] = {
        "retries": (),
        "attempts": 1,
        "base": 5.0,
        "sample": "....",
        "repeatable": False,
        "now": NOW,
    }
    return consequence(outcome, **(known | given))


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        case(Sent("id"), Consequence("sent", "."), id="sent"),
        case(
            NotSent(Kind.HARD_BOUNCE, "no such user"),
            Consequence("failed", "b", suppress="hard_bounce", kind="hard_bounce", error="no such user"),
            id="hard-bounce",
        ),
        case(
            NotSent(Kind.RECIPIENT_GONE, "left"),
            Consequence("failed", "e", kind="recipient_gone", error="left"),
            id="recipient-gone",
        ),
        case(
            NotSent(Kind.NOT_WRITABLE, "only admins write"),
            Consequence("skipped", kind="not_writable", error="only admins write"),
            id="not-writable",
        ),
        case(
            NotSent(Kind.CONTENT_REJECTED, "too long"),
            Consequence("failed", "e", kind="content_rejected", error="too long"),
            id="content-rejected",
        ),
        case(
            NotSent(Kind.SENDER_REJECTED, "DMARC"),
            Consequence("failed", "b", kind="sender_rejected", error="DMARC"),
            id="sender-rejected",
        ),
        case(
            NotSent(Kind.SOFT_BOUNCE, "full"),
            Consequence("pending", "e", after(5), kind="soft_bounce", error="full"),
            id="soft-bounce",
        ),
        case(
            NotSent(Kind.UNKNOWN, "odd", retry_after=90),
            Consequence("pending", "e", after(90), kind="unknown", error="odd"),
            id="retry-after-is-longer",
        ),
        case(
            NotSent(Kind.AUTH, "wrong password"),
            Consequence(
                "pending",
                spends_attempt=False,
                account=AccountChange("suspended", "wrong password"),
                kind="auth",
                error="wrong password",
            ),
            id="auth",
        ),
        case(
            NotSent(Kind.BANNED, "spam", until=BAN_ENDS),
            Consequence(
                "pending",
                spends_attempt=False,
                account=AccountChange("suspended", "spam", BAN_ENDS),
                kind="banned",
                error="spam",
            ),
            id="temporary-ban",
        ),
        case(
            NotSent(Kind.BANNED),
            Consequence("pending", spends_attempt=False, account=AccountChange("suspended", "banned"), kind="banned"),
            id="ban-without-words",
        ),
        case(
            NotSent(Kind.RATE_LIMITED, "slow down", retry_after=7),
            Consequence(
                "pending",
                "r",
                after(60),
                spends_attempt=False,
                hold_until=after(60),
                slow=True,
                kind="rate_limited",
                error="slow down",
            ),
            id="rate-limited-a-minute-at-least",
        ),
        case(
            NotSent(Kind.RATE_LIMITED, "slow down", retry_after=300),
            Consequence(
                "pending",
                "r",
                after(300),
                spends_attempt=False,
                hold_until=after(300),
                slow=True,
                kind="rate_limited",
                error="slow down",
            ),
            id="rate-limited-longer",
        ),
        case(
            NotSent(Kind.UNAVAILABLE, "device offline"),
            Consequence(
                "pending",
                retry_at=after(20),
                spends_attempt=False,
                hold_until=after(20),
                kind="unavailable",
                error="device offline",
            ),
            id="device-offline",
        ),
        case(
            NotSent(Kind.NEW_CHATS_BLOCKED, "no new chats"),
            Consequence(
                "pending", retry_at=after(3600), spends_attempt=False, kind="new_chats_blocked", error="no new chats"
            ),
            id="new-chats-blocked-holds-one-target-only",
        ),
        case(
            NotSent(Kind.RECIPIENT_LIMITED, "limited", retry_after=86_400),
            Consequence("pending", None, after(86_400), kind="recipient_limited", error="limited"),
            id="a-limited-person-waits-alone",
        ),
        case(
            NotSent(Kind.OPTED_OUT, "stopped marketing"),
            Consequence("skipped", suppress="unsubscribed", kind="opted_out", error="stopped marketing"),
            id="an-opt-out-at-the-provider-is-honoured",
        ),
        case(
            NotSent(Kind.NETWORK, "reset"),
            Consequence("pending", "e", after(5), kind="network", error="reset"),
            id="network-while-others-get-through",
        ),
        case(
            Unknown("no answer"),
            Consequence("unconfirmed", "e", kind="unknown", error="no answer"),
            id="unknown",
        ),
    ],
)
def test_answer_and_consequence(outcome: Outcome, expected: Consequence) -> None:
    assert judge(outcome) == expected


def test_every_kind_has_a_consequence() -> None:
    for kind in Kind:
        assert judge(NotSent(kind)).status in ("pending", "failed", "skipped")


@pytest.mark.parametrize("kind", [Kind.AUTH, Kind.BANNED, Kind.UNAVAILABLE, Kind.RATE_LIMITED])
def test_a_broken_account_fails_no_target(kind: Kind) -> None:
    """However often: a thousand recipients must not pay for their sender's trouble."""
    for attempts in (1, 4, 100):
        told = judge(NotSent(kind), attempts=attempts)
        assert (told.status, told.spends_attempt) == ("pending", False)


@pytest.mark.parametrize(
    ("retries", "delays"),
    [
        case(MAIL.retries, [60, 300, 900, None], id="mail"),
        case((), [5, 10, 20, None], id="messaging"),
        case((7.0,), [7, None, None, None], id="one-of-its-own"),
    ],
)
def test_retry_schedule(retries: tuple[float, ...], delays: list[float | None]) -> None:
    assert [retry_delay(retries, attempts, 5) for attempts in (1, 2, 3, 4)] == delays


def test_a_limited_person_says_nothing_about_the_lane() -> None:
    told = judge(NotSent(Kind.RECIPIENT_LIMITED), attempts=4)

    assert (told.status, told.letter, told.hold_until, told.account) == ("failed", None, None, None)


def test_the_last_attempt_fails() -> None:
    assert judge(NotSent(Kind.SOFT_BOUNCE), attempts=4).status == "failed"


def test_a_retry_crosses_the_year() -> None:
    assert judge(NotSent(Kind.SOFT_BOUNCE), retries=MAIL.retries).retry_at == datetime(2027, 1, 1, 0, 0, 30, tzinfo=UTC)


def test_unknown_is_asked_again_only_where_repeats_are_dropped() -> None:
    told = judge(Unknown("no answer"), repeatable=True)
    assert (told.status, told.retry_at) == ("pending", after(5))
    assert judge(Unknown("no answer"), repeatable=True, attempts=4).status == "unconfirmed"


@pytest.mark.parametrize(("sample", "seconds"), [("", 5), ("..e", 10), (".ee", 20), ("eeee", 60), ("e" * 50, 60)])
def test_an_unreachable_provider_holds_the_lane(sample: str, seconds: float) -> None:
    """The lane backs off, doubling up to a minute, and the recipient keeps its attempts."""
    told = judge(NotSent(Kind.NETWORK), sample=sample, attempts=9)
    assert (told.status, told.hold_until, told.spends_attempt) == ("pending", after(seconds), False)


@pytest.mark.parametrize(
    ("kind", "said_nothing"), [(Kind.RATE_LIMITED, 60), (Kind.UNAVAILABLE, 20), (Kind.NEW_CHATS_BLOCKED, 3600)]
)
@pytest.mark.parametrize(
    ("asked", "seconds"),
    [
        case(4000, 4000, id="so-long"),
        case(10_000_000, 86_400, id="a-day-at-most"),
        case(float("inf"), 86_400, id="for-ever"),
        case(float("nan"), None, id="nonsense"),
        case(-5, None, id="before-now"),
        case(0, None, id="at-once"),
        case(None, None, id="nothing"),
    ],
)
def test_a_provider_gets_the_break_it_asks_for_within_reason(
    kind: Kind, said_nothing: float, asked: float | None, seconds: float | None
) -> None:
    assert judge(NotSent(kind, retry_after=asked)).retry_at == after(said_nothing if seconds is None else seconds)


@pytest.mark.parametrize(
    ("ends_in", "expected"),
    [
        case(None, None, id="an-operator-decides"),
        case(601, 601, id="later"),
        case(600, 600, id="soon"),
        case(599, 600, id="too-soon"),
        case(-1, 600, id="over-by-our-clock"),
    ],
)
def test_a_ban_lasts_ten_minutes_at_least(ends_in: float | None, expected: float | None) -> None:
    until = None if ends_in is None else after(ends_in)
    assert ban_end(until, NOW) == (None if expected is None else after(expected))


@pytest.mark.parametrize(("failed", "seconds"), [(0, 0.5), (1, 1), (5, 16), (6, 32), (7, 32), (50, 32)])
def test_the_wait_for_an_unreachable_provider_doubles_six_times(failed: int, seconds: float) -> None:
    assert judge(NotSent(Kind.NETWORK), sample="e" * failed, base=0.5).hold_until == after(seconds)


def test_an_unreachable_provider_is_noted_in_the_sample() -> None:
    told = judge(NotSent(Kind.NETWORK, "reset"), sample="..e")
    assert told == Consequence(
        "pending", "n", after(10), spends_attempt=False, hold_until=after(10), kind="network", error="reset"
    )


@pytest.mark.parametrize(
    ("outcome", "seconds", "expected"),
    [
        case(Unknown("no answer"), 5, True, id="no-answer"),
        case(Unknown("reset"), 4.9, False, id="broken-off-at-once"),
        case(NotSent(Kind.NETWORK), 11, True, id="never-connected"),
        case(NotSent(Kind.UNAVAILABLE), 40, True, id="an-upload-without-an-end"),
        case(NotSent(Kind.SOFT_BOUNCE), 11, False, id="a-slow-answer"),
        case(Sent("id"), 11, False, id="a-slow-delivery"),
    ],
)
def test_a_call_times_out_that_has_no_answer_for_long(outcome: Outcome, seconds: float, expected: bool) -> None:
    assert timed_out(outcome, seconds) is expected


@pytest.mark.parametrize(
    ("timeouts", "seconds"), [(1, 15), (2, 30), (3, 60), (6, 480), (7, 600), (8, 600), (30_000, 600)]
)
def test_the_break_after_a_timeout_doubles_up_to_ten_minutes(timeouts: int, seconds: float) -> None:
    verdict = after_timeout(judge(Unknown("no answer")), timeouts, NOW)
    assert (verdict.status, verdict.hold_until) == ("unconfirmed", after(seconds))
    assert verdict.hold_why == timeouts_in_words(timeouts) != ""


def test_a_longer_break_of_the_provider_is_not_shortened() -> None:
    held = judge(NotSent(Kind.UNAVAILABLE, retry_after=99))
    assert after_timeout(held, 1, NOW).hold_until == after(99)


def test_the_sentence_about_timeouts() -> None:
    assert timeouts_in_words(0) == ""
    assert timeouts_in_words(1).startswith("the provider did not answer in time; each time")
    assert timeouts_in_words(3).startswith("the provider did not answer in time 3 times in a row; each time")
