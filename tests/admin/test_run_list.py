"""The activity list: filters, search, order and numbers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine
from django.contrib.auth.models import User
from django.urls import reverse

from fanout.models import Run
from tests.admin.conftest import login
from tests.factories import AccountFactory, RecipientFactory, RunFactory, RunTargetFactory

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
DAY = timedelta(days=1)


def listed(user: User, **query: str) -> list[str]:
    answer = login(user).get(reverse("admin:fanout_run_changelist"), query)
    assert answer.status_code == 200, query
    return [run.title for run in answer.context["cl"].result_list]


@pytest.fixture
def runs(operator: User) -> dict[str, Run]:
    office, events = (AccountFactory.create(owner=operator, label=label) for label in ("Office line", "Events line"))

    def run(title: str, account: Any, days: int, **fields: Any) -> Run:
        made: Run = RunFactory.create(
            reminder__owner=operator,
            owner=operator,
            account=account,
            title=title,
            status="success",
            scheduled_for=NOW + days * DAY,
            **({"lanes": [account.pk]} | fields),
        )
        return made

    return {
        "old": run("Rent", office, -3, targets={"sent": 2}),
        "shared": run("Market", office, -1, lanes=[office.pk, events.pk], targets={"sent": 5}),
        "new": run("Choir", events, 0, targets={"sent": 1}),
    }


@pytest.mark.parametrize(
    ("query", "titles"),
    [
        pytest.param({}, ["Choir", "Market", "Rent"], id="all"),
        pytest.param({"account": "Events line"}, ["Choir", "Market"], id="account-also-as-one-of-several"),
        pytest.param({"account": "nonsense"}, [], id="no-account"),
        pytest.param({"owner": "mei"}, ["Choir", "Market", "Rent"], id="owner"),
        pytest.param({"owner": "999999"}, [], id="another-owner"),
        pytest.param({"since": "2026-01-04"}, ["Choir", "Market"], id="since"),
        pytest.param({"since": "2026-01-04", "until": "2026-01-04"}, ["Market"], id="one-day"),
        pytest.param({"since": "yesterday"}, ["Choir", "Market", "Rent"], id="no-date"),
        pytest.param({"q": "rent"}, ["Rent"], id="title"),
        pytest.param({"q": "events"}, ["Choir"], id="account-name"),
        pytest.param({"q": "Anna Tan"}, ["Market"], id="recipient-name"),
        pytest.param({"q": "+60 12-345 6789"}, ["Market"], id="recipient-address-in-any-spelling"),
        pytest.param({"q": "nobody at all"}, [], id="nothing"),
        pytest.param({"o": "1"}, ["Choir", "Market", "Rent"], id="by-title"),
        pytest.param({"o": "-3"}, ["Market", "Rent", "Choir"], id="by-deliveries"),
    ],
)
def test_runs_are_found(runs: dict[str, Run], operator: User, query: dict[str, str], titles: list[str]) -> None:
    anna = RecipientFactory.create(owner=operator, kind="person", address="+60123456789", name="Anna Tan")
    RunTargetFactory.create(run=runs["shared"], recipient=anna, status="sent")
    names = {"Events line": str(runs["new"].account_id), "mei": str(operator.pk)}
    assert listed(operator, **{key: names.get(value, value) for key, value in query.items()}) == titles


def test_owners_to_choose_from_are_those_of_ones_teams(operator: User, colleague: User, viewer: User) -> None:
    """`colleague` shares nothing but the role."""
    page = login(operator).get(reverse("admin:fanout_run_changelist"))
    assert [name for _, name in page.context["filters"]["owners"]] == ["mei", "vera"]


def test_a_day_is_that_of_the_readers_clock(runs: dict[str, Run], operator: User) -> None:
    """At 9 in London it is 1 in the night of that day in Los Angeles; eight hours earlier it is another one there."""
    Run.objects.filter(pk=runs["new"].pk).update(scheduled_for=NOW.replace(hour=7))
    client = login(operator)
    client.cookies["timezone"] = "America/Los_Angeles"
    answer = client.get(reverse("admin:fanout_run_changelist"), {"since": "2026-01-04", "until": "2026-01-04"})
    assert [run.title for run in answer.context["cl"].result_list] == ["Choir", "Market"]


def test_other_peoples_recipients_find_nothing(runs: dict[str, Run], colleague: User, boss: User) -> None:
    theirs = RecipientFactory.create(owner=boss, kind="person", address="+60123456789", name="Anna Tan")
    RunTargetFactory.create(run=runs["shared"], recipient=theirs, status="sent")
    assert listed(colleague, q="Anna Tan") == []
    assert listed(boss, q="Anna Tan") == ["Market"]


def test_the_list_says_what_fits_today(operator: User) -> None:
    account = AccountFactory.create(owner=operator, max_send_per_minute=1, send_burst=1)
    RunFactory.create(
        reminder__owner=operator,
        account=account,
        owner=operator,
        status="running",
        scheduled_for=NOW,
        timezone="UTC",
        window_start_hour=6,
        window_end_hour=10,
        window_closes_at=NOW + timedelta(hours=1),
        targets={"pending": 90},
    )
    with time_machine.travel(NOW, tick=False):
        page = " ".join(login(operator).get(reverse("admin:fanout_run_changelist")).content.decode().split())
    assert "60 more fit today" in page
    assert "Tue 06:29" in page
