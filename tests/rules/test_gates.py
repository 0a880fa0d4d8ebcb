"""The gates: in their order, on days with 23 and 25 hours, at the ends of months and years."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from accounts.channels import registry
from fanout.models.run import PauseReason
from fanout.plans.forecast import Reader, forecast_lanes
from fanout.plans.outlook import LaneWork
from fanout.plans.projection import AccountSnapshot, Queued, Work, as_datetime, project_sends
from fanout.rules import gates
from fanout.rules.follow_up_limits import Limits, Prospect
from fanout.rules.gates import (
    ACCOUNT_STATUS,
    BUSINESS_HOURS,
    DAILY_CAP,
    DELIVERY_WINDOW,
    ENDS_BY_ITSELF,
    LIMITS,
    NEW_CHAT_BUDGET,
    NEW_CHAT_HOLD,
    NO_MESSAGE_1,
    OPEN,
    REPLIED,
    TOO_LATE,
    AccountFacts,
    Cap,
    Close,
    Gate,
    LaneLimit,
    Limit,
    OwnLimit,
    Refuse,
    RunFacts,
    TargetFacts,
    Wait,
    WarmUp,
    business_hours,
    cap_of_day,
    daily_cap,
    goes_on_at,
    limit_in_the_way,
    local_date,
    may_receive,
    may_run,
    reason_recorded,
    suspension_over,
)
from fanout.rules.pace import PaceSettings
from fanout.runs import texts
from fanout.runs.why import LaneNow, RunNow, Why, explain
from reminders.moments import TimeWords
from reminders.window import BusinessHours, Window, local_day_bounds

case = pytest.param
NEW_YORK = "America/New_York"
ANY_TIME = BusinessHours("UTC")
OFFICE = BusinessHours(NEW_YORK, 9, 18, frozenset({1, 2, 3, 4, 5}))


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


NOON = at("2026-01-05T12:00")  # a Monday
RUN = RunFacts(at("2026-01-05T06:00"), at("2026-01-05T18:00"))


ACTIVE = AccountFacts("active", "", None, ANY_TIME)


def account(**fields: Any) -> AccountFacts:
    return replace(ACTIVE, **fields)


def capped(cap: int, used: int, now: datetime, hours: BusinessHours = ANY_TIME) -> AccountFacts:
    return account(cap=cap, used=used, hours=hours, day_ends_at=local_day_bounds(hours.timezone, now)[1])


@pytest.mark.parametrize(
    ("facts", "now", "gate"),
    [
        case(account(), NOON, OPEN, id="open"),
        case(
            account(),
            at("2026-01-05T18:00"),
            Close(PauseReason.WINDOW_CLOSED, "delivery window closed"),
            id="closes-on-the-second",
        ),
        case(
            account(),
            at("2026-01-05T05:59:59"),
            Wait(RUN.window_opens_at, "delivery window not open yet"),
            id="not-open-yet",
        ),
        case(account(), RUN.window_opens_at, OPEN, id="opens-on-the-second"),
        case(account(), at("2026-01-05T17:59:59"), OPEN, id="open-to-the-last-second"),
        case(account(status="paused"), NOON, Close(PauseReason.ACCOUNT_DOWN, "account paused"), id="account-paused"),
        case(
            account(status="paused", status_reason="paused by an operator"),
            NOON,
            Close(PauseReason.ACCOUNT_DOWN, "account paused by an operator"),
            id="account-paused-by-an-operator",
        ),
        case(
            account(status="suspended", status_reason="wrong password."),
            NOON,
            Close(PauseReason.ACCOUNT_DOWN, "account suspended: wrong password"),
            id="account-suspended",
        ),
        case(
            account(status="suspended", status_reason="ban", status_until=at("2026-01-05T15:00")),
            NOON,
            Wait(at("2026-01-05T15:00"), "account suspended: ban"),
            id="ban-ends-inside-the-window",
        ),
        case(
            account(status="suspended", status_reason="ban", status_until=at("2026-01-06T15:00")),
            NOON,
            Close(PauseReason.ACCOUNT_DOWN, "account suspended: ban"),
            id="ban-ends-after-it",
        ),
        case(
            account(status="suspended", status_until=RUN.window_closes_at),
            NOON,
            Close(PauseReason.ACCOUNT_DOWN, "account suspended"),
            id="ban-ends-with-it",
        ),
        case(
            account(status="suspended", status_until=NOON),
            NOON,
            Close(PauseReason.ACCOUNT_DOWN, "account suspended"),
            id="ban-ends-now-and-nobody-has-ended-it",
        ),
        case(
            account(status="suspended", status_until=NOON - timedelta(hours=1)),
            NOON,
            Close(PauseReason.ACCOUNT_DOWN, "account suspended"),
            id="ban-has-ended-and-nobody-has-ended-it",
        ),
        case(
            account(hours=BusinessHours("UTC", 13, 17)),
            NOON,
            Wait(at("2026-01-05T13:00"), "outside the account's business hours"),
            id="hours-later-today",
        ),
        case(
            account(hours=BusinessHours("UTC", 8, 10)),
            NOON,
            Close(PauseReason.ACCOUNT_HOURS, "outside the account's business hours"),
            id="hours-over",
        ),
        case(capped(20, 20, NOON), NOON, Close(PauseReason.ACCOUNT_CAPACITY, "Daily cap reached (20/20)"), id="cap"),
        case(capped(20, 19, NOON), NOON, OPEN, id="one-left"),
        case(account(cap=20, used=20), NOON, OPEN, id="cap-of-a-day-that-nobody-knows"),
        case(account(cap=1, day_ends_at=at("2026-01-06T00:00")), NOON, OPEN, id="nothing-used-yet"),
        case(
            capped(10, 35, NOON),
            NOON,
            Close(PauseReason.ACCOUNT_CAPACITY, "Daily cap reached (35/10)"),
            id="cap-lowered-below-what-was-sent",
        ),
        case(capped(0, 0, NOON), NOON, Close(PauseReason.ACCOUNT_CAPACITY, "Daily cap reached (0/0)"), id="cap-zero"),
        case(
            account(status="paused", hours=BusinessHours("UTC", 8, 10)),
            at("2026-01-05T19:00"),
            Close(PauseReason.WINDOW_CLOSED, "delivery window closed"),
            id="the-window-is-asked-first",
        ),
    ],
)
def test_may_run(facts: AccountFacts, now: datetime, gate: object) -> None:
    assert may_run(facts, RUN, now) == gate


# --- every limit, everywhere ------------------------------------------------------------------------------


DAYTIME = Window("UTC", 6, 18)
EVERY_LIMIT = pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.name)


@dataclass(frozen=True)
class Closed:
    """An account and a run that this limit alone keeps from sending at NOON, until `until`."""

    until: datetime
    why: str
    facts: AccountFacts = ACTIVE
    window: Window = DAYTIME

    @property
    def run(self) -> RunFacts:
        return RunFacts(self.window.opens_on(NOON), self.window.closes_on(NOON))


ONE_O_CLOCK = at("2026-01-05T13:00")
SURFACES = {
    DELIVERY_WINDOW: Closed(ONE_O_CLOCK, "delivery window not open yet", window=Window("UTC", 13, 18)),
    ACCOUNT_STATUS: Closed(
        ONE_O_CLOCK,
        "account suspended: ban",
        account(status="suspended", status_reason="ban", status_until=ONE_O_CLOCK),
    ),
    BUSINESS_HOURS: Closed(
        ONE_O_CLOCK, "outside the account's business hours", account(hours=BusinessHours("UTC", 13, 17))
    ),
    DAILY_CAP: Closed(
        at("2026-01-05T15:00"), "Daily cap reached (20/20)", capped(20, 20, NOON, BusinessHours("Asia/Tokyo"))
    ),
}


def test_every_limit_is_in_the_table() -> None:
    assert tuple(SURFACES) == LIMITS


@EVERY_LIMIT
def test_the_lane_asks_every_limit(limit: LaneLimit) -> None:
    closed = SURFACES[limit]
    assert may_run(closed.facts, closed.run, NOON) == Wait(closed.until, closed.why)
    assert may_run(closed.facts, closed.run, closed.until - timedelta(seconds=1)) != OPEN


@pytest.mark.parametrize("limit", LIMITS[1:], ids=lambda limit: limit.name)
def test_a_limit_that_outlasts_the_window_closes_the_run_with_its_own_reason(limit: LaneLimit) -> None:
    closed = SURFACES[limit]
    run = RunFacts(closed.run.window_opens_at, closed.until)
    assert may_run(closed.facts, run, NOON) == Close(limit.reason, closed.why)


@EVERY_LIMIT
def test_a_stopped_run_goes_on_when_every_limit_is_over(limit: LaneLimit) -> None:
    closed = SURFACES[limit]
    assert goes_on_at(closed.window, closed.facts, NOON) == closed.until


@EVERY_LIMIT
def test_the_why_line_names_every_limit(limit: LaneLimit) -> None:
    closed = SURFACES[limit]
    lane = LaneNow(1, PaceSettings(60), closed.facts.hours, facts=closed.facts, driven=True, clock=TimeWords("UTC"))
    line = explain(lane, RunNow(closed.run, closed.window, NOON, auto_resume=True, resume_after_limit=True), NOON)
    assert line == Why(f"{closed.why}; next send {closed.until:%H:%M} (UTC)", closed.until)


@EVERY_LIMIT
def test_the_forecast_projects_every_limit(limit: LaneLimit) -> None:
    closed = SURFACES[limit]
    facts = closed.facts
    lane = AccountSnapshot(1, PaceSettings(60), facts.hours, base_facts=facts, cap=facts.cap, used=facts.used)
    queue = [Queued(Work.of(1), closed.window, NOON)]
    (send,) = project_sends(lane, queue, NOON, random.Random(1))
    assert as_datetime(send.at) == closed.until


def test_a_new_limit_needs_its_description_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lane, auto-resume, `why`, forecast and the texts of a paused run know a limit that was added to the list."""

    def opt_outs(account: AccountFacts, run: RunFacts | None, now: datetime) -> Gate:
        return Wait(ONE_O_CLOCK, "Opt-outs within an hour: 5 of 5") if now < ONE_O_CLOCK else OPEN

    limit = LaneLimit("opt-outs per hour", "Opt-outs within an hour: {n} of {most}", gate=opt_outs)
    monkeypatch.setattr(gates, "LIMITS", (*LIMITS, limit))
    wait = opt_outs(ACTIVE, None, NOON)
    lane = AccountSnapshot(1, PaceSettings(60), ANY_TIME, base_facts=ACTIVE)
    queue = Queued(Work.of(3), DAYTIME, NOON)
    stored = LaneNow(1, PaceSettings(60), ANY_TIME, facts=ACTIVE, driven=True, clock=TimeWords("UTC"))

    assert may_run(ACTIVE, RUN, NOON) == wait
    assert may_run(ACTIVE, RunFacts(RUN.window_opens_at, ONE_O_CLOCK), NOON) == Close(
        PauseReason.ACCOUNT_CAPACITY, "Opt-outs within an hour: 5 of 5"
    )
    assert goes_on_at(DAYTIME, ACTIVE, NOON) == ONE_O_CLOCK
    line = explain(stored, RunNow(RUN, DAYTIME, NOON, auto_resume=False, resume_after_limit=True), NOON)
    assert line.text == "Opt-outs within an hour: 5 of 5; next send 13:00 (UTC)"
    forecast = forecast_lanes([LaneWork(lane, (queue,))], DAYTIME, NOON, Reader(NOON))
    assert (forecast.starts_at, forecast.bound_by) == (ONE_O_CLOCK, "opt-outs per hour")
    assert forecast.sentence == (
        "3 recipients at 60/min from 13:00 on (Opt-outs within an hour: 5 of 5): done about 13:00; fits."
    )
    assert reason_recorded("Opt-outs within an hour: 5 of 5") == limit.reason
    assert limit.reason in gates.ASKED_AGAIN


@pytest.mark.parametrize("limit", [*LIMITS, NEW_CHAT_BUDGET, NEW_CHAT_HOLD], ids=lambda limit: limit.name)
def test_every_limit_has_its_words(limit: Limit) -> None:
    run: dict[str, Any] = {
        "pause_reason": limit.reason,
        "window_closes_at": RUN.window_closes_at,
        "timezone": "UTC",
        "window_start_hour": 6,
        "window_end_hour": 18,
        "kinds": [],
        "started_at": None,
        **dict.fromkeys(("total", "sent", "pending", "failed", "unconfirmed"), 1),
        **{f"seconds_{cause}": 0 for cause in texts.ADVICE},
    }
    assert limit.name
    assert limit.sentence
    assert texts.paused(run, "why").endswith(texts.advice(run))
    assert texts.advice(run)
    assert limit.ends_by_itself == (limit.reason in ENDS_BY_ITSELF)


@pytest.mark.parametrize(
    ("why", "reason"),
    [
        case("outside the account's business hours", PauseReason.ACCOUNT_HOURS, id="hours"),
        case("Daily cap reached (20/20)", PauseReason.ACCOUNT_CAPACITY, id="cap"),
        case("New chats today: 3 of 3", PauseReason.ACCOUNT_CAPACITY, id="new-chats"),
        case("account suspended: ban", PauseReason.ACCOUNT_CAPACITY, id="a-ban-that-is-over"),
        case("held back by the provider", PauseReason.ACCOUNT_CAPACITY, id="no-limit-of-ours"),
    ],
)
def test_a_lane_that_stepped_aside_recorded_its_limit(why: str, reason: PauseReason) -> None:
    assert reason_recorded(why) == reason


@pytest.mark.parametrize(
    ("status", "until", "over"),
    [
        case("suspended", NOON, True, id="ends-now"),
        case("suspended", NOON + timedelta(seconds=1), False, id="ends-later"),
        case("suspended", None, False, id="open-ended"),
        case("paused", NOON, False, id="paused-by-a-person"),
        case("active", NOON, False, id="active"),
    ],
)
def test_a_suspension_ends_only_at_a_time_that_was_named(status: str, until: datetime | None, over: bool) -> None:
    assert suspension_over(account(status=status, status_until=until), NOON) is over


@pytest.mark.parametrize(
    ("now", "opens"),
    [
        case("2026-01-09T22:59:59", None, id="friday-five-to-six"),
        case("2026-01-09T23:00", "2026-01-12T14:00", id="friday-evening-to-monday"),
        case("2026-03-07T20:00", "2026-03-09T13:00", id="over-the-night-with-23-hours"),
        case("2026-10-31T20:00", "2026-11-02T14:00", id="over-the-night-with-25-hours"),
        case("2026-02-27T23:30", "2026-03-02T14:00", id="month-end"),
        case("2026-12-31T23:30", "2027-01-01T14:00", id="year-end"),
        case("2028-02-28T23:30", "2028-02-29T14:00", id="leap-day"),
    ],
)
def test_business_hours(now: str, opens: str | None) -> None:
    gate = business_hours(account(hours=OFFICE), None, at(now))
    assert gate == (OPEN if opens is None else Wait(at(opens), "outside the account's business hours"))


@pytest.mark.parametrize(
    ("now", "again"),
    [
        case("2026-01-05T16:00", "2026-01-06T14:00", id="tomorrow-nine-o-clock"),
        case("2026-01-09T16:00", "2026-01-12T14:00", id="friday-to-monday"),
        case("2026-03-06T20:00", "2026-03-09T13:00", id="clocks-go-forward-meanwhile"),
        case("2026-10-30T20:00", "2026-11-02T14:00", id="clocks-go-back-meanwhile"),
        case("2026-12-31T20:00", "2027-01-01T14:00", id="year-end"),
    ],
)
def test_cap_is_fresh_on_the_accounts_next_day(now: str, again: str) -> None:
    gate = daily_cap(capped(20, 20, at(now), OFFICE), None, at(now))
    assert gate == Wait(at(again), "Daily cap reached (20/20)")


@pytest.mark.parametrize(
    ("day", "hours"),
    [("2026-03-29", 11), ("2026-10-25", 13), ("2026-06-01", 12)],
    ids=["clocks-forward", "clocks-back", "plain"],
)
def test_window_of_a_dst_day(day: str, hours: int) -> None:
    """A window over the change of clocks is shorter or longer; nothing starts at or after its end."""
    noon = at(f"{day}T12:00")
    window = Window("Europe/Berlin", 0, 12)
    run = RunFacts(window.opens_on(noon), window.closes_on(noon))
    assert run.window_closes_at - run.window_opens_at == timedelta(hours=hours)
    assert may_run(account(), run, run.window_closes_at - timedelta(seconds=1)) == OPEN
    assert isinstance(may_run(account(), run, run.window_closes_at), Close)


def test_the_accounts_midnight_inside_the_window_gives_a_new_cap() -> None:
    """For an account in Tokyo the day turns at 15:00 UTC: the run waits, and is not paused."""
    facts = capped(20, 20, NOON, BusinessHours("Asia/Tokyo"))
    assert may_run(facts, RUN, NOON) == Wait(at("2026-01-05T15:00"), "Daily cap reached (20/20)")
    assert may_run(replace(facts, used=0), RUN, at("2026-01-05T15:00")) == OPEN


def test_a_clock_that_jumps_back_does_not_reopen_a_cap() -> None:
    """Use is counted in the ledger, so an earlier `now` of the same day finds the cap as used as before."""
    facts = capped(20, 20, NOON)
    assert isinstance(may_run(facts, RUN, NOON - timedelta(hours=2)), Close)


COOLING = Prospect("not_interested", 3, cooldown_until=NOON + timedelta(hours=1), limited=True)


@pytest.mark.parametrize(
    ("target", "gate"),
    [
        case(TargetFacts(), OPEN, id="open"),
        case(TargetFacts(suppressed="unsubscribed"), Refuse("suppressed: unsubscribed"), id="suppressed"),
        case(TargetFacts(person=Prospect("opted_out")), Refuse("opted_out"), id="opted-out"),
        case(TargetFacts(person=Prospect("converted")), OPEN, id="converted"),
        case(TargetFacts(person=Prospect("converted"), follow_up=True), Refuse("converted"), id="follow-up"),
        case(TargetFacts(person=COOLING), OPEN, id="cooling"),
        case(TargetFacts(person=COOLING, follow_up=True), Refuse("cooldown_active_1h"), id="cooling-follow-up"),
        case(TargetFacts(expires_at=NOON), Refuse(TOO_LATE), id="expired"),
        case(TargetFacts(expires_at=NOON + timedelta(seconds=1)), OPEN, id="expires-later"),
        case(TargetFacts(no_message_1=True), Refuse(NO_MESSAGE_1), id="no-message-1"),
        case(TargetFacts(follow_up=True, has_replied=True), Refuse(REPLIED), id="replied"),
    ],
)
def test_may_receive(target: TargetFacts, gate: object) -> None:
    assert may_receive(target, Limits(), NOON) == gate


TODAY = date(2026, 1, 5)
FALLBACK = {"email": 20, "message": 50}
NO_WARMUP = WarmUp()
WARMING = WarmUp(date(2026, 1, 1), 14, 5)


@pytest.mark.parametrize(
    ("channel", "own", "warmup", "cap"),
    [
        case("smtp", None, NO_WARMUP, Cap(20, "fallback"), id="mail-falls-back"),
        case("smtp", OwnLimit(300), NO_WARMUP, Cap(300, "account"), id="own-limit"),
        case("smtp", OwnLimit(None), NO_WARMUP, Cap(None, "account"), id="own-limit-says-none"),
        case("sandbox", None, NO_WARMUP, Cap(None, "none"), id="messaging-has-none"),
        case("sandbox", OwnLimit(7), NO_WARMUP, Cap(7, "account"), id="messaging-with-its-own"),
        case("smtp", OwnLimit(300), WARMING, Cap(16, "warm-up"), id="warming-up"),
        case("sandbox", None, WARMING, Cap(22, "warm-up"), id="warming-up-without-a-cap"),
        case("smtp", OwnLimit(3), WARMING, Cap(3, "account"), id="already-below-the-floor"),
        case("smtp", OwnLimit(300), WarmUp(date(2025, 1, 1), 14, 5), Cap(300, "account"), id="warm"),
        case("smtp", OwnLimit(300), WarmUp(date(2026, 1, 5), 0, 5), Cap(300, "account"), id="warm-up-off"),
    ],
)
def test_daily_cap(channel: str, own: OwnLimit | None, warmup: WarmUp, cap: Cap) -> None:
    assert cap_of_day(channel, "email", own, FALLBACK, warmup, TODAY) == cap


def test_a_channel_may_know_its_providers_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    capped = replace(registry.channel("smtp"), daily_caps={"email": 500})
    monkeypatch.setitem(registry.channels(), "smtp", capped)

    assert cap_of_day("smtp", "email", None, FALLBACK, NO_WARMUP, TODAY) == Cap(500, "channel")
    assert cap_of_day("smtp", "message", None, FALLBACK, NO_WARMUP, TODAY) == Cap(50, "fallback")
    assert cap_of_day("smtp", "email", OwnLimit(7), FALLBACK, NO_WARMUP, TODAY) == Cap(7, "account")


def test_an_action_without_a_fallback_has_no_cap() -> None:
    assert cap_of_day("smtp", "inmail", None, FALLBACK, NO_WARMUP, TODAY) == Cap(None, "none")


@pytest.mark.parametrize(
    ("at", "day"),
    [
        case("2027-01-01T04:59", date(2026, 12, 31), id="still-last-year"),
        case("2027-01-01T05:00", date(2027, 1, 1), id="new-year"),
        case("2026-11-02T04:59", date(2026, 11, 1), id="day-with-25-hours"),
    ],
)
def test_the_day_is_the_accounts_own(at: str, day: date) -> None:
    assert local_date("America/New_York", datetime.fromisoformat(at).replace(tzinfo=UTC)) == day


HOUR = timedelta(hours=1)
MIDNIGHT = datetime(2026, 1, 6, tzinfo=UTC)
WINDOW = Window("UTC", 8, 18)


CAPPED = {"cap": 1, "used": 1, "day_ends_at": MIDNIGHT}


@pytest.mark.parametrize(
    ("fields", "until"),
    [
        case({}, None, id="nothing"),
        case({"status": "paused"}, None, id="an-operator-decides"),
        case({"status": "suspended", "status_until": NOON + HOUR}, NOON + HOUR, id="a-ban"),
        case({"hours": BusinessHours("UTC", 15, 17)}, NOON + 3 * HOUR, id="its-hours"),
        case(CAPPED, MIDNIGHT, id="its-cap"),
        case(CAPPED | {"status": "suspended", "status_until": NOON + HOUR}, MIDNIGHT, id="the-longer-one"),
    ],
)
def test_the_limit_that_lasts_longest_is_in_the_way(fields: dict[str, Any], until: datetime | None) -> None:
    limit = limit_in_the_way(account(**fields), NOON)
    assert (limit.until if isinstance(limit, Wait) else None) == until


@pytest.mark.parametrize(
    ("fields", "not_before", "goes_on"),
    [
        case({}, None, NOON, id="at-once"),
        case({}, NOON - HOUR, NOON, id="not-before-a-moment-that-is-over"),
        case({}, NOON + HOUR, NOON + HOUR, id="not-before-later"),
        case({}, NOON + 7 * HOUR, NOON + 20 * HOUR, id="when-the-window-opens"),
        case({"status": "suspended", "status_until": NOON + 2 * HOUR}, None, NOON + 2 * HOUR, id="after-the-ban"),
        case({"status": "suspended", "status_until": NOON + 2 * HOUR}, NOON + HOUR, NOON + 2 * HOUR, id="the-later"),
        case(CAPPED, None, MIDNIGHT + 8 * HOUR, id="tomorrow"),
    ],
)
def test_a_run_goes_on_as_soon_as_window_and_account_allow(
    fields: dict[str, Any], not_before: datetime | None, goes_on: datetime
) -> None:
    assert goes_on_at(WINDOW, account(**fields), NOON, not_before) == goes_on


def test_where_window_and_hours_never_meet_a_run_does_not_go_on() -> None:
    assert goes_on_at(WINDOW, account(hours=BusinessHours("UTC", 19, 22)), NOON) is None
