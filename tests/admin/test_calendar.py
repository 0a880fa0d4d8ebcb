"""The calendar's page, and the feed for calendar programs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.core.cache import cache
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounts.models import CalendarFeed
from fanout.admin.calendar_feed import _folded, _text
from fanout.models import TrailEntry
from fanout.plans.agenda import MOST_ACCOUNTS
from reminders.models import FollowUpPart
from tests.admin.conftest import login
from tests.factories import AccountFactory, ReminderFactory, RunFactory

pytestmark = pytest.mark.django_db
DAY = timedelta(days=1)
PAGE, FEED = reverse("admin:calendar"), reverse("admin:calendar_feed")


@pytest.fixture(autouse=True)
def nothing_kept() -> None:
    cache.clear()


def fires_tomorrow(owner: Any, **fields: Any) -> Any:
    at = (timezone.now() + timedelta(days=1)).replace(hour=10)
    plain = {"schedule": "once", "fire_at": at, "next_fire_at": at, "timezone": "UTC", "targets": 2}
    return ReminderFactory.create(account=AccountFactory.create(owner=owner, label="Line"), **plain | fields)


def test_week_and_month_show_the_firing(operator: Any) -> None:
    reminder = fires_tomorrow(operator, title="Choir <b>")
    day = f"{reminder.fire_at:%Y-%m-%d}"
    for view in ("week", "month"):
        page = login(operator).get(PAGE, {"view": view, "day": day}).content.decode()
        assert "Choir &lt;b&gt;" in page
        assert "Choir <b>" not in page
        assert "2 groups" in page
        assert reverse("admin:reminders_reminder_change", args=[reminder.pk]) in page


@pytest.mark.parametrize(
    ("view", "before", "after"), [("week", "2026-03-11", "2026-03-25"), ("month", "2026-02-28", "2026-04-01")]
)
def test_one_page_leads_to_the_next(operator: Any, view: str, before: str, after: str) -> None:
    page = login(operator).get(PAGE, {"view": view, "day": "2026-03-18"})
    links = page.context["links"]
    assert [parse_qs(urlsplit(links[way]).query)["day"] for way in ("before", "after")] == [[before], [after]]


@pytest.mark.parametrize(
    ("view", "heading"), [("week", "16 Mar – 22 Mar 2026"), ("month", "March 2026")], ids=["week", "month"]
)
def test_the_heading_names_the_days(operator: Any, view: str, heading: str) -> None:
    assert login(operator).get(PAGE, {"view": view, "day": "2026-03-18"}).context["heading"] == heading


@pytest.mark.parametrize("view", ["week", "month"])
def test_a_full_calendar_takes_no_more_queries_than_other_pages(
    operator: Any, team: Any, django_assert_max_num_queries: Any, view: str
) -> None:
    operator.groups.add(team)
    now = timezone.now()
    for n in range(MOST_ACCOUNTS + 2):
        AccountFactory.create(owner=operator, label=f"Line {n}")
    reminder = fires_tomorrow(operator, follow_up_days=[1])
    FollowUpPart.objects.create(reminder=reminder, step=1, text="Again")
    reminder.set_further_senders([AccountFactory.create(owner=operator)])
    steps = [{"days": 1, "parts": [{"kind": "text", "text": "Again"}]}]
    RunFactory.create(
        reminder=reminder, owner=operator, scheduled_for=now, targets={"sent": 2}, steps=steps, next_step_at=now + DAY
    )
    RunFactory.create(reminder__account=reminder.account, status="running", targets={"pending": 2}, scheduled_for=now)
    client = login(operator)
    client.get(PAGE, {"view": view})  # what the process keeps
    with django_assert_max_num_queries(25):
        client.get(PAGE, {"view": view})


def test_an_account_that_does_not_send_is_not_full(operator: Any) -> None:
    AccountFactory.create(owner=operator, label="Line", status="suspended")
    page = login(operator).get(PAGE).content.decode()
    assert '<p class="capacity">suspended</p>' in page


@pytest.mark.parametrize(
    "query", [{"day": "x"}, {"day": "9999-12-31"}, {"view": "x"}, {"account": "x"}, {"account": 9}]
)
def test_any_address_shows_something(operator: Any, query: dict[str, Any]) -> None:
    assert login(operator).get(PAGE, query).status_code == 200


def test_strangers_see_nothing_of_it(operator: Any, colleague: Any) -> None:
    reminder = fires_tomorrow(operator, title="Mine")
    page = login(colleague).get(PAGE, {"account": reminder.account_id}).content.decode()
    assert "Mine" not in page
    assert "Line" not in page


def test_a_free_time_starts_a_reminder_there(operator: Any) -> None:
    account = AccountFactory.create(owner=operator)
    day = timezone.now() + timedelta(days=2)
    response = login(operator).get(PAGE, {"day": f"{day:%Y-%m-%d}"})
    gaps = [gap for row in response.context["rows"] for cell in row["cells"] for gap in cell["gaps"]]
    url = gaps[-1]["url"]
    asked = parse_qs(urlsplit(url).query)
    assert asked["account"] == [str(account.pk)]
    page = login(operator).get(url).content.decode()
    assert f'value="{asked["fire_at"][0]}"' in page
    assert asked["fire_at"][0].endswith("T06:00")


def test_a_viewer_gets_no_free_times(viewer: Any, team: Any, operator: Any) -> None:
    AccountFactory.create(owner=operator, team=team)
    rows = login(viewer).get(PAGE).context["rows"]
    assert rows
    assert not [gap for row in rows for cell in row["cells"] for gap in cell["gaps"]]


# --- the feed ---------------------------------------------------------------------------------------------


def made(user: Any) -> str:
    address: str = login(user).post(FEED, {"make": "1"}).context["address"]
    return urlsplit(address).path


def test_a_program_reads_it_by_the_secret_until_that_is_revoked(operator: Any) -> None:
    fires_tomorrow(operator, title="Choir; at 8,\r\nBEGIN:VEVENT")
    address = made(operator)
    answer = Client().get(address)
    assert (answer.status_code, answer["Content-Type"]) == (200, "text/calendar; charset=utf-8")
    text = answer.content.decode()
    assert text.startswith("BEGIN:VCALENDAR\r\nVERSION:2.0\r\n")
    assert text.endswith("END:VCALENDAR\r\n")
    assert text.count("\r\nBEGIN:VEVENT\r\n") == text.count("\r\nEND:VEVENT\r\n") == 1
    assert "Choir\\; at 8\\,\\n" in text.replace("\r\n ", "")
    assert all(len(line.encode()) <= 75 for line in text.split("\r\n"))
    token = address.rsplit("/", 1)[-1].removesuffix(".ics")
    assert token not in str(list(CalendarFeed.objects.values_list())), "only its hash is kept"
    assert token not in str(list(TrailEntry.objects.values_list()))

    second = made(operator)
    assert Client().get(address).status_code == 404, "a new address ends the old one"
    assert Client().get(second).status_code == 200
    login(operator).post(FEED, {"revoke": "1"})
    assert Client().get(second).status_code == 404
    assert not CalendarFeed.objects.exists()


def test_the_secret_of_someone_who_left_opens_nothing(operator: Any) -> None:
    address = made(operator)
    operator.is_active = False
    operator.save(update_fields=["is_active"])
    assert Client().get(address).status_code == 404


def test_the_secret_of_someone_who_may_not_log_in_opens_nothing(operator: Any) -> None:
    address = made(operator)
    assert Client().get(address).status_code == 200
    operator.is_staff = False
    operator.save(update_fields=["is_staff"])
    assert Client().get(address).status_code == 404


def test_who_has_left_a_team_sees_nothing_of_it_at_once(operator: Any, team: Any, colleague: Any) -> None:
    operator.groups.add(team)
    reminder = fires_tomorrow(colleague, title="Choir", team=team)
    reminder.account.team = team
    reminder.account.save(update_fields=["team"])
    address = made(operator)
    assert b"Choir" in Client().get(address).content
    operator.groups.remove(team)
    assert b"Choir" not in Client().get(address).content


def test_follow_ups_that_meet_at_one_time_have_ids_of_their_own(operator: Any) -> None:
    daily = {"schedule": "cron", "cron": "0 10 * * *", "fire_at": None}
    reminder = fires_tomorrow(operator, title="Choir", follow_up_days=[1, 2], **daily)
    for step in (1, 2):
        reminder.follow_up_parts.create(step=step, position=step, kind="text", text="Again")
    text = Client().get(made(operator)).content.decode().replace("\r\n ", "")
    ids = [line for line in text.splitlines() if line.startswith("UID:")]
    assert len(ids) > 60, "of each of some 30 days the firing and the follow-ups of those before"
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("token", ["x", "a" * 500, "%C3%A9"])
def test_a_wrong_secret(token: str) -> None:
    assert Client().get(f"/admin/calendar/{token}.ics").status_code == 404


def test_lines_are_folded_between_characters() -> None:
    pieces = list(_folded("é" * 100))
    assert "".join(piece.removeprefix(" ") for piece in pieces) == "é" * 100
    assert max(len(piece.encode()) for piece in pieces) <= 75
    assert _text("a\\b\n;,") == "a\\\\b\\n\\;\\,"
