"""The overview: what needs attention, what goes out, what is to come, and how much was delivered."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine
from django.contrib.auth.models import Group, User
from django.core.cache import cache
from django.db.models import Q
from django.urls import reverse
from django.utils import timezone

from accounts.models import Profile
from fanout.admin.dashboard import first_steps, lanes_ahead, overview, processes, sends_per_minute, volume
from fanout.models import ClusterBeat, LaneState, Run
from fanout.plans.queue import read_senders
from fanout.plans.upcoming import Firing, due_reminders, upcoming_firings
from reminders.models import Reminder
from tests.admin.conftest import login
from tests.factories import (
    AccountFactory,
    ActivityFactory,
    DriverFactory,
    LaneStateFactory,
    RecipientFactory,
    ReminderFactory,
    RunFactory,
)

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


# --- first steps ------------------------------------------------------------------------------------------


def test_first_steps_disappear_as_they_are_done(operator: User, colleague: User, viewer: User) -> None:
    def labels(user: User) -> list[str]:
        return [step.label for step in first_steps(user)]

    assert labels(operator) == ["Add an account", "Add recipients", "Write a reminder", "Send a test"]
    account = AccountFactory.create(owner=operator)
    RecipientFactory.create(owner=operator)
    assert labels(operator) == ["Write a reminder", "Send a test"]
    reminder = ReminderFactory.create(owner=operator, account=account, targets=1)
    RunFactory.create(reminder=reminder, owner=operator, status="success", targets={"sent": 1})
    assert labels(operator) == []
    assert len(labels(colleague)) == 4, "what belongs to others is no step of one's own"
    assert labels(viewer) == []


def test_an_empty_site_shows_them_and_how_to_begin(operator: User) -> None:
    page = login(operator).get(reverse("admin:index")).content.decode()
    assert "First steps" in page
    assert reverse("admin:reminders_reminder_add") in page


# --- the last day -----------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_deliveries_are_counted_by_when_they_were_settled() -> None:
    yesterday = NOW - timedelta(hours=30)
    began_today = RunFactory.create(first_attempt_at=NOW - HOUR, status="running", targets={"sent": 3, "failed": 1})
    went_on = RunFactory.create(first_attempt_at=yesterday, status="running", targets={"sent": 5, "failed": 2})
    ended = RunFactory.create(first_attempt_at=yesterday, finished_at=yesterday, status="success", targets={"sent": 7})
    for run in (began_today, went_on, ended):
        run.targets.update(settled_at=yesterday)
    recent = went_on.targets.filter(status="sent")[:2]
    went_on.targets.filter(pk__in=[target.pk for target in recent]).update(settled_at=NOW - MINUTE)
    cache.clear()
    day = volume(Run.objects.all(), NOW)
    assert (day.sent, day.failed) == (3 + 2, 1)
    assert day.errors_high


@pytest.mark.django_db
def test_the_targets_of_a_long_run_are_not_counted_at_every_look(django_assert_num_queries: Any) -> None:
    cache.clear()
    run = RunFactory.create(first_attempt_at=NOW - timedelta(hours=30), status="running", targets={"sent": 1})
    run.targets.update(settled_at=NOW - MINUTE)
    with django_assert_num_queries(2):
        first = volume(Run.objects.all(), NOW)
    with django_assert_num_queries(1):
        assert volume(Run.objects.all(), NOW) == first
    assert first.sent == 1


@pytest.mark.django_db
def test_every_account_that_sends_has_its_curve(django_assert_num_queries: Any) -> None:
    busy, slow, idle = AccountFactory.create_batch(3)
    for account, ago in ((busy, [1, 1, 2, 61]), (slow, [3])):
        LaneStateFactory.create(account=account, last_claim_at=NOW)
        for minutes in ago:
            ActivityFactory.create(account=account, at=NOW - minutes * MINUTE + timedelta(seconds=20))
    LaneStateFactory.create(account=idle, last_claim_at=NOW - 2 * HOUR)
    with django_assert_num_queries(1):
        chart = sends_per_minute(type(busy).objects.all(), NOW, "UTC")
    assert [(line.label, line.last) for line in chart.lines] == [(busy.label, "2"), (slow.label, "0")]
    assert chart.top == "2"
    assert LaneState.objects.count() == 3


# --- the next day -----------------------------------------------------------------------------------------


def ahead(**which: Any) -> list[Firing]:
    reminders = due_reminders(Reminder.objects.filter(**which), NOW)
    ids = {account.pk for reminder in reminders for account in reminder.senders}
    return upcoming_firings(reminders, read_senders(Q(pk__in=ids), NOW), NOW)


def reminder_at(account: Any, at: datetime, targets: int, **fields: Any) -> Reminder:
    usual = {
        "schedule": "once",
        "fire_at": at,
        "next_fire_at": at,
        "enabled": True,
        "timezone": "UTC",
        "delivery_window_start_hour": 6,
        "delivery_window_end_hour": 18,
    }
    reminder: Reminder = ReminderFactory.create(account=account, targets=targets, **(usual | fields))
    return reminder


@pytest.mark.django_db
def test_upcoming_firings_show_whether_they_fit_or_wait() -> None:
    account = AccountFactory.create(max_send_per_minute=1, send_burst=1, timezone="UTC")
    reminder_at(account, NOW + HOUR, 20, title="First")
    reminder_at(account, NOW + HOUR + 5 * MINUTE, 10, title="Second")
    reminder_at(account, NOW + 8 * HOUR, 90, title="Third")
    reminder_at(account, NOW + 10 * HOUR, 5, title="Fourth")
    verdicts = {str(firing.reminder): firing.verdict("UTC", NOW) for firing in ahead()}
    assert verdicts == {
        "First": "fits, done 10:19",
        "Second": "starts about 15 min late, done 10:29",
        "Third": "won't fit: 30 of 90 are left at 18:00",
        "Fourth": "fires after its delivery hours: nothing would be sent",
    }


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("after", "verdict"),
    [
        pytest.param(18 * MINUTE, "starts about 2 min late, done 10:24", id="two minutes late"),
        pytest.param(18 * MINUTE + timedelta(seconds=1), "fits, done 10:24", id="not worth showing"),
    ],
)
def test_from_two_minutes_on_a_firing_is_late(after: timedelta, verdict: str) -> None:
    account = AccountFactory.create(max_send_per_minute=1, send_burst=1, timezone="UTC")
    reminder_at(account, NOW + HOUR, 20)
    reminder_at(account, NOW + HOUR + after, 5)
    assert ahead()[1].verdict("UTC", NOW) == verdict


@pytest.mark.django_db
def test_a_firing_through_an_account_that_is_not_active_waits() -> None:
    reminder_at(AccountFactory.create(label="Spare number", status="paused"), NOW + HOUR, 20)
    (firing,) = ahead()
    assert not firing.fits
    assert firing.verdict("UTC", NOW) == "waits: Spare number is paused"


@pytest.mark.django_db
def test_a_cron_that_fires_often_is_there_as_often() -> None:
    account = AccountFactory.create()
    reminder_at(account, NOW + HOUR, 1, schedule="cron", cron="0 */6 * * *", fire_at=None, next_fire_at=NOW + 3 * HOUR)
    assert [firing.at.hour for firing in ahead()] == [12, 18, 0, 6]


@pytest.mark.django_db
def test_two_senders_share_a_firing() -> None:
    one, two = (AccountFactory.create(max_send_per_minute=1, send_burst=1, timezone="UTC") for _ in range(2))
    reminder = reminder_at(one, NOW + HOUR, 20)
    reminder.set_further_senders([two])
    (firing,) = ahead()
    assert {pk: lane.targets for pk, lane in firing.lanes.items()} == {one.pk: 10, two.pk: 10}
    assert firing.verdict("UTC", NOW) == "fits, done 10:09"


@pytest.mark.django_db
def test_each_sender_answers_for_its_own_share() -> None:
    """One of them has gone home when it fires."""
    usual = {"max_send_per_minute": 60, "send_burst": 1, "timezone": "UTC"}
    early, late = AccountFactory.create(hours_start=8, hours_end=10, **usual), AccountFactory.create(**usual)
    reminder = reminder_at(early, NOW + 8 * HOUR, 20)
    reminder.set_further_senders([late])
    (firing,) = ahead()
    rows = {row["account"]: row for row in lanes_ahead([firing], "UTC", NOW)}
    assert [one.verdict for one in rows[late]["ahead"]] == ["fits, done 17:00"]
    assert [one.verdict for one in rows[early]["ahead"]] == [
        "won't fit: 10 of 10 are left, outside the account's business hours"
    ]
    assert ([bar.tone for bar in rows[late]["bars"]], [bar.tone for bar in rows[early]["bars"]]) == (["good"], ["bad"])


# --- the page ---------------------------------------------------------------------------------------------


def test_follow_ups_are_shown_to_those_who_see_the_reminder(operator: User, colleague: User, team: Group) -> None:
    """Also through an account that has nothing else to do; not those of a private reminder through a shared account."""
    colleague.groups.add(team)
    account = AccountFactory.create(owner=operator, team=team, label="Shared")
    reminder = ReminderFactory.create(account=account, title="Private", follow_up_days=[1])
    further = AccountFactory.create(owner=operator, label="Own")
    reminder.set_further_senders([further])
    now = timezone.now()
    fired = {"scheduled_for": now - HOUR, "next_step_at": now + 23 * HOUR, "lanes": [account.pk, further.pk]}
    steps = [{"days": 1, "parts": [{"kind": "text", "text": "Again"}]}]
    RunFactory.create(
        reminder=reminder, owner=operator, title="Private", status="success", steps=steps, targets={"sent": 2}, **fired
    )

    def shown(user: User) -> list[str]:
        return [ahead.title for row in overview(user, now)["lanes"] for ahead in row["ahead"]]

    assert shown(operator) == ["Private (follow-up 1)"]
    assert shown(colleague) == []
    ReminderFactory.create(
        owner=colleague,
        account=account,
        title="Theirs",
        targets=1,
        enabled=True,
        cron="0 * * * *",
        schedule="cron",
        next_fire_at=now + HOUR / 2,
    )
    assert {*shown(colleague)} == {"Theirs"}
    assert "Private" not in login(colleague).get(reverse("admin:index")).content.decode()


def test_the_days_line_has_its_hours_by_the_readers_clock(operator: User) -> None:
    account = AccountFactory.create(owner=operator)
    Profile.objects.update_or_create(user=operator, defaults={"timezone": "Asia/Kuala_Lumpur"})
    client = login(operator)
    with time_machine.travel(NOW, tick=False):
        assert "quarters" not in client.get(reverse("admin:index")).content.decode()
        reminder_at(account, NOW + HOUR, 20, owner=operator)
        page = client.get(reverse("admin:index")).content.decode()
    hours = "".join(f"<span>{at}</span>" for at in ("17:00", "23:00", "05:00", "11:00", "17:00"))
    assert f'<div class="quarters quiet">{hours}</div>' in page


def test_the_page_shows_runs_accounts_and_processes(operator: User) -> None:
    account = AccountFactory.create(owner=operator, max_send_per_minute=60, send_burst=1, label="Community line")
    down = AccountFactory.create(owner=operator, status="suspended", status_reason="banned", label="Promotions line")
    first = RunFactory.create(
        reminder__owner=operator,
        account=account,
        owner=operator,
        title="Town hall",
        status="running",
        scheduled_for=NOW - 5 * MINUTE,
        targets={"pending": 100, "sent": 20},
    )
    RunFactory.create(
        reminder__owner=operator,
        account=account,
        owner=operator,
        title="Friday market",
        status="running",
        scheduled_for=NOW - MINUTE,
        targets={"pending": 10},
    )
    RunFactory.create(
        reminder__owner=operator,
        account=down,
        owner=operator,
        title="Water works",
        status="paused",
        pause_reason="account_down",
        targets={"pending": 40, "sent": 1},
    )
    reminder_at(account, NOW + HOUR, 3, owner=operator, title="Bin day")
    with time_machine.travel(NOW, tick=False):
        page = " ".join(login(operator).get(reverse("admin:index")).content.decode().split())
    assert "the rest takes about 1 min" in page
    assert "40 recipients wait, none is lost" in page
    assert "behind Town hall (100 left, about 2 min)" in page
    assert "fits, done 10:00" in page
    assert "Silent: workers “drivers”, workers “main”" in page
    assert f'data-run="{first.pk}"' in page, "the stream must tell when its status changes"


def test_a_run_is_named_with_who_sends_it_now(operator: User) -> None:
    """After an offload that is no longer the account it was fired through."""
    old, new = (AccountFactory.create(owner=operator, label=label) for label in ("Community line", "Office line"))
    run = RunFactory.create(
        reminder__owner=operator,
        account=old,
        owner=operator,
        status="running",
        lanes=[new.pk],
        started_at=None,
        targets={"pending": 2},
    )
    client = login(operator)
    for path, begins in (
        (reverse("admin:index"), "Going out now"),
        (reverse("admin:fanout_run_changelist"), "field-sender"),
        (reverse("admin:fanout_run_change", args=[run.pk]), "Settings of this run"),
        (reverse("admin:accounts_account_change", args=[new.pk]), "Runs of this account"),
    ):
        page = client.get(path).content.decode().partition(begins)[2].partition("</section>")[0]
        assert ("Office line" if "account/" not in path else run.title) in page, path
        assert "Community line" not in page, path


def test_a_run_that_has_not_started_shows_no_start(operator: User) -> None:
    RunFactory.create(reminder__owner=operator, status="queued", scheduled_for=NOW, targets={"pending": 2})
    page = login(operator).get(reverse("admin:fanout_run_changelist")).content.decode()
    assert '– <span class="quiet">due</span>' in page.partition('class="field-started')[2].partition("</td>")[0]


def test_only_own_accounts_in_use_are_listed_as_down(operator: User, colleague: User) -> None:
    """An operator's run may go through an account that is shared no longer, or was archived."""
    down = {"status": "suspended"}
    AccountFactory.create(owner=operator, label="Mine", **down)
    theirs = AccountFactory.create(owner=colleague, label="Theirs", **down)
    archived = AccountFactory.create(owner=operator, label="Archived", archived=True, **down)
    for account in (theirs, archived):
        facts = {"status": "paused", "pause_reason": "account_down", "targets": {"pending": 1}}
        RunFactory.create(reminder__owner=operator, owner=operator, account=account, **facts)
    overview = login(operator).get(reverse("admin:index")).context["overview"]
    assert len(overview["paused"]) == 2
    assert [account.label for account, _ in overview["down"]] == ["Mine"]


# --- processes --------------------------------------------------------------------------------------------


def beating(host: str, slot: int, seconds_ago: float = 1, **fields: Any) -> None:
    beat_at = NOW - timedelta(seconds=seconds_ago)
    DriverFactory.create(host=host, slot=slot, beat_at=beat_at, **fields)


def names_of(rows: list[dict[str, Any]]) -> list[str]:
    return [row["name"] for row in rows]


@pytest.mark.django_db
def test_the_processes_in_one_query(django_assert_num_queries: Any) -> None:
    for name, host, seconds in (("main", "one", 1), ("main", "two", 60), ("drivers", "one", 2)):
        ClusterBeat.objects.create(cluster=name, host=host, pid=1, beat_at=NOW - timedelta(seconds=seconds))
    beating("one", 0, lanes=3)
    beating("one", 1, lanes=1)
    beating("one", 2, ended_at=NOW)
    beating("one", 3, seconds_ago=2 * 24 * 3600)
    with django_assert_num_queries(1):
        shown = processes(NOW)
    assert names_of(shown["rows"]) == ["workers “drivers”", "workers “main”", "driver 1", "driver 2"]
    assert shown["words"] == "All well: 2 drivers, 4 accounts sending."
    assert shown["silent"] == []


@pytest.mark.django_db
def test_sums_of_a_day_lead_to_no_list_of_something_else(operator: Any) -> None:
    page = login(operator).get(reverse("admin:index")).content.decode()
    sums = page.split("In the last 24 hours", 1)[1].split("</p>", 1)[0]
    assert "sent" in sums
    assert "<a" not in sums


@pytest.mark.django_db
def test_between_two_slices_there_is_no_driver() -> None:
    for name in ("main", "drivers"):
        ClusterBeat.objects.create(cluster=name, host="one", pid=1, beat_at=NOW)
    beating("one", 0, ended_at=NOW)
    assert processes(NOW)["words"] == "All well: a driver starts as soon as something is due."


@pytest.mark.django_db
def test_silent_processes_are_named_with_their_machine() -> None:
    ClusterBeat.objects.create(cluster="main", host="one", pid=1, beat_at=NOW)
    beating("one", 0)
    beating("two", 0, seconds_ago=60)
    shown = processes(NOW)
    assert shown["silent"] == ["workers “drivers”", "driver 1 on two"]
    assert names_of(shown["rows"])[2:] == ["driver 1 on one", "driver 1 on two"]
    assert shown["words"] == ""
