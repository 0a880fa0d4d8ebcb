"""Results over time, two runs side by side, and an account's reputation, on their pages and in the shell."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.urls import reverse
from django.utils import timezone

from accounts.models import Account
from fanout.lanes import reputation
from fanout.lanes.results import Result
from fanout.management.base import BadInput
from fanout.models import KnownChat, Notification, Run
from fanout.rules import breaker
from tests.admin.conftest import login
from tests.commands.calling import data, text
from tests.factories import AccountFactory, ReminderFactory, RunFactory, RunTargetFactory


@pytest.fixture
def account(operator: User, team: Group) -> Account:
    made: Account = AccountFactory.create(owner=operator, team=team, label="Events line")
    return made


def ran(account: Account, days_ago: int, sent: int, read: int = 0, opted_out: int = 0) -> Run:
    at = timezone.now() - timedelta(days=days_ago)
    reminder = ReminderFactory.create(account=account, title=f"Market {days_ago}", team=account.team)
    run: Run = RunFactory.create(reminder=reminder, team=account.team, status="success", scheduled_for=at)
    for n in range(sent):
        times = {"read_at": at if n < read else None, "opted_out_at": at if n < opted_out else None}
        RunTargetFactory.create(run=run, status="sent", settled_at=at, claimed_at=at, **times)
    return run


def test_the_page_by_day_account_and_reminder(account, operator, colleague):
    ran(account, 1, sent=5, read=3)
    ran(account, 40, sent=7)
    page = reverse("admin:results")
    html = login(operator).get(page).content.decode()
    assert "<b>5</b> sent" in html
    assert "<b>3</b> read" in html
    assert "Events line" in html
    assert "Market 1" in html
    assert "Market 40" not in html
    assert "<b>12</b> sent" in login(operator).get(page, {"weeks": 8}).content.decode()
    reminder = Run.objects.get(title="Market 40").reminder_id
    narrowed = login(operator).get(page, {"weeks": 8, "reminder": reminder}).content.decode()
    assert "<b>7</b> sent" in narrowed
    assert "Reminder: Market 40" in narrowed
    assert "<b>0</b> sent" in login(colleague).get(page, {"account": account.pk}).content.decode()


def test_a_filter_names_only_what_the_person_may_see(account, colleague):
    html = login(colleague).get(reverse("admin:results"), {"account": account.pk}).content.decode()
    assert "Events line" not in html


def test_the_days_are_exported(account, operator):
    ran(account, 1, sent=2, opted_out=1)
    answer: Any = login(operator).get(reverse("admin:results"), {"csv": 1})
    lines = b"".join(answer.streaming_content).decode().splitlines()
    assert lines[0] == "day,sent,received,read,replied,opted_out,failed"
    assert any(line.endswith(",2,0,0,0,1,0") for line in lines)


def test_two_runs_side_by_side(account, operator, colleague):
    first, second = ran(account, 8, sent=4, read=1), ran(account, 1, sent=4, read=3)
    page = f"{reverse('admin:results_compare')}?a={first.pk}&b={second.pk}"
    html = login(operator).get(page).content.decode()
    assert "+50.0" in html
    assert "25.0%" in html
    assert "75.0%" in html
    theirs = login(colleague).get(page).content.decode()
    assert "Market 8" not in theirs
    assert f"There is no run {first.pk} among yours." in theirs


def test_the_run_page_offers_to_compare(account, operator):
    run = ran(account, 8, sent=1)
    later = RunFactory.create(reminder=run.reminder, team=run.team, status="success", targets={"sent": 1})
    html = login(operator).get(reverse("admin:fanout_run_change", args=[later.pk])).content.decode()
    assert f"?a={run.pk}&amp;b={later.pk}" in html


# --- the shell ------------------------------------------------------------------------------------------------


def test_the_command(account):
    run, other = ran(account, 1, sent=3, read=1), ran(account, 2, sent=2)
    assert "sent" in text("results")
    assert sum(day["sent"] for day in data("results")["results"]) == 5
    (by_account,) = data("results", "--by", "account")["results"]
    assert (by_account["name"], by_account["sent"], by_account["read"]) == ("Events line", 5, 1)
    assert [one["name"] for one in data("results", "--by", "reminder")["results"]] == ["Market 1", "Market 2"]
    side = data("results", "--runs", str(run.pk), str(other.pk))["results"]
    assert [one["sent"] for one in side] == [3, 2]
    assert data("results", "--account", "Events line", "--weeks", "1")["results"]


@pytest.mark.parametrize("arguments", [["--weeks", "0"], ["--account", "none"], ["--runs", "1", "x"]])
@pytest.mark.django_db
def test_bad_input(arguments):
    with pytest.raises(BadInput):
        text("results", *arguments)


# --- reputation -----------------------------------------------------------------------------------------------


def test_an_account_shows_replies_and_opt_outs_and_warns_of_their_rise(account, operator):
    page = reverse("admin:accounts_account_change", args=[account.pk])
    ran(account, 9, sent=60, opted_out=1)
    assert "doubled" not in login(operator).get(page).content.decode()
    ran(account, 1, sent=60, opted_out=4)
    warning = "Opt-outs have more than doubled: 67 per 1,000 messages in the last seven days, 17 in the seven before"
    html = login(operator).get(page).content.decode()
    assert warning in html
    assert html.count("<dt>Today</dt>") == 1
    assert "Opt-outs rise" in login(operator).get(reverse("admin:index")).content.decode()
    (row,) = data("results", "--reputation")["accounts"]
    assert (row["opted_out_per_1000"], row["opted_out_per_1000_before"]) == (66.7, 16.7)
    assert row["warning"] == f"{warning}."
    assert "Opt-outs have more than doubled" in text("results", "--reputation")


def test_new_chats_are_counted_by_week(account):
    now = timezone.now()
    for n, days in enumerate((1, 2, 9, 30)):
        KnownChat.objects.create(account=account, address=f"+49151{n:08d}", begun_at=now - timedelta(days=days))
    found = reputation.trend(account, now)
    assert (found.new_chats, found.new_chats_before, found.week.sent, found.warning) == (2, 1, 0, "")


def test_owner_and_team_are_told_once_a_week(account, viewer):
    now = timezone.now()
    ran(account, 1, sent=30, opted_out=3)
    assert [reputation.warn_of_opt_outs(now + timedelta(hours=hours)) for hours in (0, 1, 24)] == [1, 0, 0]
    told = Notification.objects.filter(account=account)
    assert set(told.values_list("user__username", flat=True)) == {"mei", "vera"}
    assert "Many people opt out: 100 per 1,000 messages" in told[0].body
    assert account.events.filter(verb="opt-outs rise").count() == 1


@pytest.mark.parametrize(
    ("before", "words"),
    [
        (Result(sent=10, opted_out=1), "Many people opt out: 30 per 1,000 messages in the last seven days; before,"),
        (
            Result(sent=100, opted_out=1),
            "Opt-outs have more than doubled: 30 per 1,000 messages in the last seven days, 10",
        ),
        (Result(sent=100), "Opt-outs have begun: 30 per 1,000 messages in the last seven days, 0 in the seven before."),
    ],
)
def test_the_words_come_from_the_rate_that_was_compared(before, words):
    assert reputation.Trend(Result(sent=100, opted_out=3), before).warning.startswith(words)


@pytest.mark.parametrize(
    ("week", "before", "words"),
    [
        (Result(sent=100, opted_out=4), Result(sent=200, opted_out=4), "have doubled: 40 per 1,000 messages"),
        (Result(sent=99, opted_out=4), Result(sent=200, opted_out=4), "have more than doubled: 40 per 1,000 messages"),
        (
            Result(sent=1000, opted_out=4),
            Result(sent=5000, opted_out=2),
            "have more than doubled: 4.0 per 1,000 messages in the last seven days, 0.4 in the seven before",
        ),
    ],
)
def test_twice_as_many_are_not_more_than_twice_and_few_are_not_none(week, before, words):
    assert reputation.Trend(week, before).warning.startswith(f"Opt-outs {words}")


@pytest.mark.parametrize(
    ("week", "before", "warns"),
    [
        ((2, 50), (0, 50), False),  # too few to say anything
        ((3, 1500), (0, 1500), False),  # as usual
        ((3, 50), (0, 0), True),
        ((6, 300), (3, 300), True),
        ((5, 300), (3, 300), False),
        ((3, 0), (0, 0), False),
        ((5, 5), (0, 1000), False),  # of the many messages before
        ((3, 19), (0, 0), False),
        ((3, 20), (0, 0), True),
        ((3, 100), (1, 10), True),  # ten messages say nothing about before
    ],
)
def test_when_opt_outs_rise(week, before, warns):
    assert breaker.opt_outs_rise(*week, *before) is warns
