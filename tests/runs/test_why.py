"""The `why` line: the binding limit, and a time that does not move while one watches it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from accounts.models import Account
from fanout.models import Driver, Run
from fanout.rules.gates import AccountFacts, RunFacts, Wait
from fanout.rules.pace import PaceSettings, PaceState
from fanout.runs.why import LaneNow, RunNow, Why, explain, recorded_wait, short_why, why_account, why_run
from reminders.moments import TimeWords
from reminders.window import BusinessHours, Window
from tests.factories import (
    AccountFactory,
    ActivityFactory,
    DailyLimitFactory,
    DriverFactory,
    LaneStateFactory,
    RunFactory,
    RunTargetFactory,
)

NEW_YORK = "America/New_York"
OFFICE = BusinessHours(NEW_YORK, 9, 18, frozenset({1, 2, 3, 4, 5}))
case = pytest.param


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


NOW = at("2026-01-05T16:00")  # Monday, 11:00 in New York
TUESDAY_NINE = at("2026-01-06T14:00")
ACTIVE = AccountFacts("active", "", None, OFFICE, day_ends_at=at("2026-01-06T05:00"))
LANE = LaneNow(1, PaceSettings(40), ACTIVE.hours, facts=ACTIVE, driven=True, clock=TimeWords(NEW_YORK))
RUN = RunNow(
    RunFacts(at("2026-01-05T11:00"), at("2026-01-05T23:00")),
    Window(NEW_YORK, 6, 18),
    at("2026-01-05T15:00"),
    auto_resume=True,
    resume_after_limit=True,
)

RECORDED = Wait(at("2026-01-05T17:00"), "the provider asked to wait")


def paced(**fields: Any) -> LaneNow:
    return replace(LANE, pace=PaceState(**fields))


@pytest.mark.parametrize(
    ("lane", "run", "text", "next_send_at"),
    [
        case(
            replace(LANE, facts=replace(ACTIVE, cap=20, used=20)),
            RUN,
            "Daily cap reached (20/20); next send Tue 09:00 (America/New_York)",
            TUESDAY_NINE,
            id="cap",
        ),
        case(
            replace(LANE, facts=replace(ACTIVE, cap=20, used=20)),
            replace(RUN, resume_after_limit=False),
            "Daily cap reached (20/20); next send Tue 09:00 (America/New_York), once resumed",
            TUESDAY_NINE,
            id="cap-by-hand",
        ),
        case(
            replace(LANE, facts=replace(ACTIVE, cap=10, used=35)),
            RUN,
            "Daily cap reached (35/10); next send Tue 09:00 (America/New_York)",
            TUESDAY_NINE,
            id="cap-lowered",
        ),
        case(
            replace(LANE, facts=replace(ACTIVE, hours=BusinessHours(NEW_YORK, 13, 17))),
            RUN,
            "outside the account's business hours; next send 13:00 (America/New_York)",
            at("2026-01-05T18:00"),
            id="hours",
        ),
        case(
            LANE,
            replace(
                RUN, facts=RunFacts(at("2026-01-05T17:00"), at("2026-01-05T23:00")), window=Window(NEW_YORK, 12, 18)
            ),
            "delivery window not open yet; next send 12:00 (America/New_York)",
            at("2026-01-05T17:00"),
            id="window",
        ),
        case(
            LANE,
            replace(RUN, facts=RunFacts(at("2026-01-05T11:00"), NOW), window=Window(NEW_YORK, 6, 11)),
            "delivery window closed; next send Tue 09:00 (America/New_York)",
            TUESDAY_NINE,
            id="window-closed",
        ),
        case(
            LANE,
            replace(RUN, behind="queued behind another", recorded=RECORDED),
            "the provider asked to wait; next send 12:00 (America/New_York)",
            at("2026-01-05T17:00"),
            id="the lane's own reason first",
        ),
        case(
            LANE,
            replace(
                RUN, facts=RunFacts(at("2026-01-05T11:00"), NOW), window=Window(NEW_YORK, 6, 11), recorded=RECORDED
            ),
            "delivery window closed; next send Tue 09:00 (America/New_York)",
            TUESDAY_NINE,
            id="parked, and closed since",
        ),
        case(
            replace(LANE, driven=False),
            replace(RUN, recorded=RECORDED),
            "no driver is alive: nothing is sent until one starts",
            None,
            id="parked without a driver",
        ),
        case(
            replace(LANE, facts=replace(ACTIVE, status="suspended", status_reason="wrong password")),
            RUN,
            "account suspended: wrong password",
            None,
            id="suspended",
        ),
        case(
            replace(
                LANE,
                facts=replace(ACTIVE, status="suspended", status_reason="ban", status_until=at("2026-01-05T20:00")),
            ),
            RUN,
            "account suspended: ban; next send 15:00 (America/New_York)",
            at("2026-01-05T20:00"),
            id="ban-that-ends",
        ),
        case(
            LANE,
            replace(RUN, scheduled_for=at("2026-01-05T17:30")),
            "not due yet; next send 12:30 (America/New_York)",
            at("2026-01-05T17:30"),
            id="not-due",
        ),
        case(
            replace(LANE, driven=False),
            RUN,
            "no driver is alive: nothing is sent until one starts",
            None,
            id="no-driver",
        ),
        case(
            LANE,
            replace(RUN, retry_at=at("2026-01-05T16:05")),
            "waiting for a retry at 11:05 (America/New_York)",
            at("2026-01-05T16:05"),
            id="retry",
        ),
        case(
            paced(theoretical_arrival=at("2026-01-05T16:00:04.5")),
            RUN,
            "pace 40/min; next send 11:00:01 (America/New_York)",
            at("2026-01-05T16:00:01.5"),
            id="pace",
        ),
        case(
            paced(theoretical_arrival=at("2026-01-05T16:00:04.5"), slow_factor=1.5),
            RUN,
            "pace 40/min, slowed down ×1.5; next send 11:00:00 (America/New_York)",
            NOW,
            id="slowed-down",
        ),
        case(
            replace(paced(next_send_at=at("2026-01-05T16:12")), pace_settings=PaceSettings(40, 3, 300, 1_200)),
            RUN,
            "gap of 300–1200 s; next send 11:12:00 (America/New_York)",
            at("2026-01-05T16:12"),
            id="gap",
        ),
        case(
            replace(
                paced(next_send_at=at("2026-01-05T16:00:30")),
                pace_settings=PaceSettings(20, 1, batch_size=75, batch_pause=30),
            ),
            RUN,
            "pause of 30 s after 75 messages; next send 11:00:30 (America/New_York)",
            at("2026-01-05T16:00:30"),
            id="batch",
        ),
        case(
            paced(next_send_at=at("2026-01-05T16:01")),
            RUN,
            "held back by the provider; next send 11:01:00 (America/New_York)",
            at("2026-01-05T16:01"),
            id="rate-limited",
        ),
        case(
            replace(paced(theoretical_arrival=at("2026-01-05T16:00:04.5")), probing=True),
            RUN,
            "pace 40/min; next send 11:00:01 (America/New_York), a single trial message",
            at("2026-01-05T16:00:01.5"),
            id="probe",
        ),
        case(
            replace(LANE, facts=replace(ACTIVE, hours=BusinessHours(NEW_YORK, 20, 22))),
            RUN,
            "outside the account's business hours; the window and the account's business hours never meet",
            None,
            id="never",
        ),
    ],
)
def test_explain(lane: LaneNow, run: RunNow, text: str, next_send_at: datetime | None) -> None:
    assert explain(lane, run, NOW) == Why(text, next_send_at)


@pytest.mark.parametrize(
    ("now", "opens", "text"),
    [
        case("2026-03-06T22:00", "2026-03-09T13:00", "Mon 09:00", id="clocks-go-forward"),
        case("2026-10-30T21:00", "2026-11-02T14:00", "Mon 09:00", id="clocks-go-back"),
        case("2026-12-31T22:00", "2027-01-01T14:00", "Fri 09:00", id="year-end"),
    ],
)
def test_tomorrow_is_the_accounts_tomorrow(now: str, opens: str, text: str) -> None:
    day_ends = at(now).replace(hour=5) + timedelta(days=1)
    lane = replace(LANE, facts=replace(ACTIVE, cap=5, used=5, day_ends_at=day_ends))
    run = replace(
        RUN,
        facts=RunFacts(at(now) - timedelta(hours=1), at(now) + timedelta(minutes=30)),
        scheduled_for=at(now) - timedelta(hours=1),
    )
    assert explain(lane, run, at(now)) == Why(
        f"Daily cap reached (5/5); next send {text} (America/New_York)", at(opens)
    )


def test_the_time_does_not_move_while_one_watches() -> None:
    capped = replace(LANE, facts=replace(ACTIVE, cap=20, used=20))
    slow = paced(theoretical_arrival=at("2026-01-05T16:20"))
    for lane in (capped, slow):
        seen = {explain(lane, RUN, NOW + timedelta(seconds=13 * n)) for n in range(60)}
        assert len(seen) == 1


# --- read from the database -----------------------------------------------------------------------------


@pytest.fixture
def account(db: None) -> Account:
    account: Account = AccountFactory.create(timezone=NEW_YORK, hours_start=9, hours_end=18, send_days=[1, 2, 3, 4, 5])
    LaneStateFactory.create(account=account, theoretical_arrival=at("2026-01-05T16:00:04.5"))
    DriverFactory.create(beat_at=NOW - timedelta(seconds=1))
    return account


def fired(account: Account, **fields: Any) -> Run:
    usual = {
        "timezone": NEW_YORK,
        "window_start_hour": 6,
        "window_end_hour": 18,
        "status": "running",
        "scheduled_for": at("2026-01-05T15:00"),
        "window_closes_at": at("2026-01-05T23:00"),
        "targets": {"pending": 3, "sent": 1},
    }
    run: Run = RunFactory.create(account=account, **(usual | fields))
    return run


def both(account: Account, run: Run, queries: Any) -> set[Why]:
    with queries(5):
        of_account = why_account(account, NOW)
    with queries(5):
        of_run = why_run(run, NOW)
    return {of_account, of_run}


def test_pace(account: Account, django_assert_max_num_queries: Any) -> None:
    told = both(account, fired(account), django_assert_max_num_queries)
    assert told == {Why("pace 40/min; next send 11:00:01 (America/New_York)", at("2026-01-05T16:00:01.5"))}


def test_cap(account: Account, django_assert_max_num_queries: Any) -> None:
    DailyLimitFactory.create(account=account, limit=2)
    ActivityFactory.create_batch(2, account=account, at=NOW)
    told = both(account, fired(account, resume_after_limit=True), django_assert_max_num_queries)
    assert told == {Why("Daily cap reached (2/2); next send Tue 09:00 (America/New_York)", TUESDAY_NINE)}


def test_retry(account: Account, django_assert_max_num_queries: Any) -> None:
    run = fired(account, targets={"pending": 2})
    run.targets.update(next_attempt_at=NOW + timedelta(minutes=5))
    run.targets.filter(pk=run.targets.order_by("position")[0].pk).update(next_attempt_at=NOW + timedelta(minutes=15))
    told = both(account, run, django_assert_max_num_queries)
    assert told == {Why("waiting for a retry at 11:05 (America/New_York)", NOW + timedelta(minutes=5))}


def test_no_driver(account: Account, django_assert_max_num_queries: Any) -> None:
    run = fired(account)
    later = NOW + timedelta(minutes=1)
    assert str(why_run(run, later)) == "no driver is alive: nothing is sent until one starts"


UNSTORED = "the database does not take the result of 1 message, and nothing more is sent until it does"


@pytest.mark.parametrize(("seconds", "waits"), [(29, False), (31, True)], ids=["under way", "for longer than any call"])
def test_results_that_are_not_stored(
    account: Account, django_assert_max_num_queries: Any, seconds: int, waits: bool
) -> None:
    run = fired(account)
    claimed_at = NOW - timedelta(seconds=seconds)
    RunTargetFactory.create(run=run, status="sending", claimed_at=claimed_at)
    RunTargetFactory.create(status="sending", claimed_at=claimed_at)  # of another account
    RunTargetFactory.create(run=run, status="unconfirmed", claimed_at=claimed_at)
    run.refresh_from_db()
    told = both(account, run, django_assert_max_num_queries)
    assert (told == {Why(UNSTORED)}) is waits
    run.targets.filter(status="pending").update(status="sent")
    run.refresh_from_db()
    assert str(why_run(run, NOW)) == (UNSTORED if waits else "waiting for the provider")
    Driver.objects.all().delete()
    run.targets.filter(status="sent").update(status="pending")
    assert both(account, run, django_assert_max_num_queries) == {
        Why("no driver is alive: nothing is sent until one starts")
    }


def test_suspended(account: Account, django_assert_max_num_queries: Any) -> None:
    run = fired(account)
    Account.objects.update(status="suspended", status_reason="wrong password")
    assert both(account, run, django_assert_max_num_queries) == {Why("account suspended: wrong password")}


def test_nothing_to_send(account: Account, django_assert_max_num_queries: Any) -> None:
    run = fired(account, status="success", targets={"sent": 2})
    assert both(account, run, django_assert_max_num_queries) == {Why("nothing to send")}


@pytest.mark.slow
def test_paused_until_it_goes_on_by_itself(account: Account, django_assert_max_num_queries: Any) -> None:
    run = fired(account, status="paused", pause_reason="window_closed", resume_at=TUESDAY_NINE)
    with django_assert_max_num_queries(5):
        assert str(why_run(run, NOW)) == "paused: delivery window closed; next send Tue 09:00 (America/New_York)"
    assert why_account(account, NOW) == Why("its run is paused; next send Tue 09:00 (America/New_York)", TUESDAY_NINE)


def test_one_that_goes_on_before_its_account_may_send_says_when_that_is(account: Account) -> None:
    """Its window opens at 6, the account's hours at 9."""
    run = fired(account, status="paused", pause_reason="window_closed", resume_at=at("2026-01-06T11:00"))
    Account.objects.filter(pk=account.pk).update(hours_start=9, hours_end=17)
    assert str(why_run(run, NOW)) == "paused: delivery window closed; next send Tue 09:00 (America/New_York)"
    assert why_account(account, NOW) == Why("its run is paused; next send Tue 09:00 (America/New_York)", TUESDAY_NINE)


def test_an_account_at_its_cap_names_the_cap(account: Account) -> None:
    DailyLimitFactory.create(account=account, limit=1)
    ActivityFactory.create(account=account, at=NOW)
    assert str(why_account(account, NOW)) == "Daily cap reached (1/1); nothing to send"
    runs = [fired(account, status="paused", pause_reason="account_capacity", resume_at=NOW) for _ in range(2)]
    assert str(why_account(account, NOW)) == (
        "Daily cap reached (1/1); its 2 runs are paused; next send Tue 09:00 (America/New_York)"
    )
    assert str(why_run(runs[0], NOW)) == ("paused: Daily cap reached (1/1); next send Tue 09:00 (America/New_York)")


def test_paused_for_its_operator(account: Account) -> None:
    DailyLimitFactory.create(account=account, limit=1)
    ActivityFactory.create(account=account, at=NOW)
    run = fired(account, status="paused", pause_reason="account_capacity")
    assert str(why_run(run, NOW)) == "Daily cap reached (1/1); next send Tue 09:00 (America/New_York), once resumed"
    run.pause_reason = "circuit_breaker"
    assert str(why_run(run, NOW)) == "paused: too many errors; resume it to go on"


def test_the_lane_that_has_the_next_target_is_asked(account: Account) -> None:
    """After an offload the run's own account may be down; what counts is who sends now."""
    down = AccountFactory.create(status="suspended", status_reason="ban")
    run = fired(down, targets={}, lanes=[down.pk, account.pk])
    RunTargetFactory.create(run=run, account=account)
    assert str(why_run(run, NOW)) == "pace 40/min; next send 11:00:01 (America/New_York)"


def test_the_soonest_of_several_runs(account: Account) -> None:
    fired(account, scheduled_for=at("2026-01-05T14:00"), window_start_hour=13, window_closes_at=at("2026-01-05T23:00"))
    fired(account)
    assert str(why_account(account, NOW)).startswith("pace 40/min")


def at_its_cap(account: Account, action: str) -> None:
    DailyLimitFactory.create(account=account, action=action, limit=2)
    ActivityFactory.create_batch(2, account=account, action=action, at=NOW)


def test_in_a_mixed_run_the_lane_is_asked_about_what_it_counts_itself(account: Account) -> None:
    """Groups and mailboxes in one run, whose action is that of its first sender."""
    office = AccountFactory.create(channel="smtp", timezone=NEW_YORK, hours_start=9, hours_end=18)
    at_its_cap(office, "email")
    run = fired(account, targets={}, lanes=[account.pk, office.pk], resume_after_limit=True)
    RunTargetFactory.create(run=run, account=office)
    assert run.action == "message"
    assert str(why_run(run, NOW)).startswith("Daily cap reached (2/2); next send Tue 09:00")
    assert str(why_account(office, NOW)).startswith("Daily cap reached (2/2); next send Tue 09:00")


def test_each_run_of_an_account_is_asked_about_its_own_action(account: Account) -> None:
    Account.objects.filter(pk=account.pk).update(channel="unipile", min_gap_seconds=0, max_gap_seconds=0)
    account.refresh_from_db()
    at_its_cap(account, "message")
    fired(account, resume_after_limit=True)
    requests = fired(account, action="connection_request", scheduled_for=at("2026-01-05T15:30"))
    assert str(why_account(account, NOW)).startswith("pace 1/min; next send")
    assert str(why_run(requests, NOW)).startswith("pace 1/min; next send")


def test_a_run_that_is_being_prepared_says_so(account: Account) -> None:
    run = fired(account, status="preparing", targets={})
    assert str(why_run(run, NOW)) == "its recipients are being copied; it starts when that is done"


@pytest.mark.parametrize(
    ("status", "until", "why", "recorded"),
    [
        case("waiting", NOW, "cap", Wait(NOW, "cap"), id="waiting"),
        case("running", NOW, "cap", None, id="running"),
        case("waiting", None, "cap", None, id="without a time"),
        case("waiting", NOW, "", None, id="without a reason"),
    ],
)
def test_what_the_lane_recorded_counts_while_the_run_waits(
    status: str, until: datetime | None, why: str, recorded: Wait | None
) -> None:
    assert recorded_wait(Run(status=status, waiting_until=until, waiting_why=why)) == recorded


@pytest.mark.parametrize(
    ("recorded", "behind", "text"),
    [("cap", "behind another", "cap"), ("", "behind another", "behind another"), ("cap", "", "cap"), ("", "", "")],
)
def test_lists_show_first_what_the_lane_recorded(recorded: str, behind: str, text: str) -> None:
    assert short_why(Run(waiting_why=recorded), behind) == text
