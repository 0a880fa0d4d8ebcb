"""Every page opens for those who may see it, with few queries."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
import time_machine
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from accounts.models import Account
from fanout.admin.widgets import ACCOUNT, RECIPIENT, RUN, TARGET, badge
from fanout.models import Event, KnownChat, LaneState, Run, RunTarget
from reminders.models import Recipient
from tests.admin.conftest import login
from tests.factories import (
    AccountFactory,
    ActivityFactory,
    NotificationFactory,
    ReminderFactory,
    RunFactory,
    RunTargetFactory,
)

MOST_QUERIES = 25
#: pages that show more than one thing: the offload proposal, controls under way, segments and follow-ups, the weeks
#: of an account, opt-outs, follow-ups that are due
LARGER_PAGES = {"dashboard": 27, "run": 29, "live part": 28, "reminder": 28, "account": 27}


@pytest.fixture
def things(operator: User, team: Group) -> Run:
    account = AccountFactory.create(owner=operator, team=team, warmup_started_on=timezone.now().date(), warmup_days=10)
    reminder = ReminderFactory.create(account=account, team=team, schedule="cron", cron="0 9 * * 1-5", targets=3)
    now = timezone.now()
    RunFactory.create(
        reminder=reminder,
        team=team,
        status="running",
        targets={"pending": 3, "sent": 2},
        started_at=now,
        scheduled_for=now - timedelta(hours=2),
    )
    run = RunFactory.create(
        reminder=reminder,
        team=team,
        status="paused",
        pause_reason="window_closed",
        started_at=now - timedelta(hours=1),
        first_attempt_at=now - timedelta(hours=1),
        finished_at=now,
        targets={"pending": 2, "sent": 4, "failed": 3, "skipped": 1, "unconfirmed": 2},
    )
    run.targets.filter(status="sent").update(settled_at=now - timedelta(minutes=30))
    run.targets.filter(status="failed").update(error_kind="soft_bounce", error="mailbox full")
    Event.objects.create(run=run, at=now, verb="paused", detail="because")
    ActivityFactory.create_batch(3, account=account)
    NotificationFactory.create(user=operator, run=run, title="Reminder paused")
    return run


def paths(run: Run) -> dict[str, str]:
    return {
        "dashboard": reverse("admin:index"),
        "runs": reverse("admin:fanout_run_changelist"),
        "paused runs": reverse("admin:fanout_run_changelist") + "?status=paused",
        "archive": reverse("admin:fanout_run_changelist") + "?status=archived",
        "run": reverse("admin:fanout_run_change", args=[run.pk]),
        "live part": reverse("admin:fanout_run_live", args=[run.pk]),
        "targets": reverse("admin:fanout_runtarget_changelist") + f"?run__id__exact={run.pk}",
        "failed targets": reverse("admin:fanout_runtarget_changelist")
        + f"?run__id__exact={run.pk}&status__exact=failed",
        "unconfirmed": reverse("admin:fanout_runtarget_changelist"),
        "target": reverse("admin:fanout_runtarget_change", args=[run.targets.all()[0].pk]),
        "reminders": reverse("admin:reminders_reminder_changelist"),
        "reminder": reverse("admin:reminders_reminder_change", args=[run.reminder_id]),
        "reminder's targets": reverse("admin:reminders_remindertarget_changelist")
        + f"?reminder__id__exact={run.reminder_id}",
        "recipients": reverse("admin:reminders_recipient_changelist"),
        "recipient": reverse("admin:reminders_recipient_change", args=[run.targets.all()[0].recipient_id]),
        "suppressions": reverse("admin:reminders_suppression_changelist"),
        "media": reverse("admin:reminders_mediafile_changelist"),
        "accounts": reverse("admin:accounts_account_changelist"),
        "accounts down": reverse("admin:accounts_account_changelist") + "?health=down",
        "account": reverse("admin:accounts_account_change", args=[run.account_id]),
        "notifications": reverse("admin:fanout_notification_changelist"),
        "bell": reverse("admin:bell_history"),
        "my notifications": reverse("admin:my_notifications"),
    }


@pytest.mark.parametrize("role", ["operator", "boss"])
def test_every_page_opens_with_few_queries(role, things, operator, boss):
    client = login({"operator": operator, "boss": boss}[role])
    client.get(reverse("admin:my_notifications"))  # renews the session, which happens once in five minutes
    for name, path in paths(things).items():
        with CaptureQueriesContext(
            connection,
        ) as queries:
            answer = client.get(path)
        assert answer.status_code == 200, name
        assert len(queries) <= LARGER_PAGES.get(name, MOST_QUERIES), f"{name}: {len(queries)} queries"


def queries_of(client: Client, things: Run) -> dict[str, int]:
    counts = {}
    for name, path in paths(things).items():
        with CaptureQueriesContext(connection) as queries:
            assert client.get(path).status_code == 200, name
        counts[name] = len(queries)
    return counts


def grow(things: Run, operator: User, team: Group) -> None:
    for n in range(4):
        account = AccountFactory.create(owner=operator, team=team)
        reminder = ReminderFactory.create(account=account, team=team, targets=2)
        state = {"status": "paused", "pause_reason": "window_closed"} if n % 2 else {"status": "running"}
        run = RunFactory.create(reminder=reminder, team=team, targets={"pending": 2, "sent": 2, "failed": 1}, **state)
        RunTargetFactory.create_batch(3, run=things, status="failed", error_kind="soft_bounce")
        RunTargetFactory.create_batch(3, run=things, status="unconfirmed")
        NotificationFactory.create(user=operator, run=run)
        Event.objects.create(run=things, at=timezone.now(), verb="resumed")


@pytest.mark.slow
def test_pages_take_no_more_queries_when_there_is_more_to_show(things, operator, team):
    client = login(operator)
    grow(things, operator, team)
    queries_of(client, things)  # what is read once
    few = queries_of(client, things)
    grow(things, operator, team)
    many = queries_of(client, things)
    assert {name: (few[name], many[name]) for name in few if many[name] > few[name]} == {}


def test_an_account_shows_its_new_chats(things, operator):
    account = things.account
    Account.objects.filter(pk=account.pk).update(new_chats_per_day=30)
    now = timezone.now()
    KnownChat.objects.create(account=account, address="+4917600000001", begun_at=now)
    KnownChat.objects.create(account=account, address="+4917600000002")  # wrote first
    held = {"new_chats_after": now + timedelta(hours=1), "new_chats_why": "463: no strangers"}
    LaneState.objects.update_or_create(account=account, defaults=held)

    html = login(operator).get(paths(things)["account"]).content.decode()

    assert "New chats today" in html
    assert "<b>1</b> of 30" in html
    assert "463: no strangers" in html
    assert "Groups and known chats go on." in html


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({}, "40"),
        ({"announce_only": True}, "40 · only admins write"),
        ({"announce_only": True, "may_write": False}, "40 · only admins write, and none of the accounts is one"),
    ],
)
def test_a_group_says_who_writes_there(things, operator, facts, words):
    group = things.targets.all()[0].recipient
    group.memberships.create(account=things.account, name="Choir", size=40, seen_at=timezone.now(), **facts)
    for name in ("recipients", "recipient"):
        html = login(operator).get(paths(things)[name]).content.decode()
        assert words in html, name
        assert words + " ·" not in html


def test_add_forms_open(things, operator):
    client = login(operator)
    for name in ("reminders_reminder", "accounts_account", "reminders_recipient", "reminders_suppression"):
        assert client.get(reverse(f"admin:{name}_add")).status_code == 200, name


def test_a_viewer_sees_the_teams_run_without_buttons(things, viewer):
    client = login(viewer)
    for name in ("runs", "run", "reminders", "reminder", "accounts", "account", "targets"):
        answer = client.get(paths(things)[name])
        assert answer.status_code == 200, name
        html = answer.content.decode()
        assert "/do/" not in html, name
        assert "/fire/" not in html, name


def test_pages_keep_the_strict_policy(things, operator):
    client = login(operator)
    for name, path in paths(things).items():
        answer = client.get(path)
        assert answer.status_code == 200, name
        policy = answer["Content-Security-Policy"]
        assert "unsafe" not in policy
        html = answer.content.decode()
        assert " style=" not in html, name
        assert " onclick=" not in html, name
        assert "<style" not in html, name


def test_lists_show_only_what_is_mine(things, colleague):
    client = login(colleague)
    for name in ("runs", "targets", "reminders", "accounts", "recipients", "unconfirmed"):
        answer = client.get(paths(things)[name])
        assert answer.status_code == 200, name
        assert things.title not in answer.content.decode(), name
        assert things.account.label not in answer.content.decode(), name


@pytest.mark.parametrize(
    ("statuses", "tones"),
    [
        pytest.param(Run.Status, RUN, id="run"),
        pytest.param(RunTarget.Status, TARGET, id="run-target"),
        pytest.param(Account.Status, ACCOUNT, id="account"),
        pytest.param(Recipient.Status, RECIPIENT, id="recipient"),
    ],
)
def test_every_status_has_a_badge(statuses, tones):
    assert set(tones) == set(statuses)


@pytest.mark.parametrize("status", Run.Status)
def test_a_run_is_under_the_pill_that_its_badge_names(operator, status):
    """The word in a row is the name of the pill that lists it, in every list."""
    reason = {"pause_reason": "operator"} if status == Run.Status.PAUSED else {}
    run = RunFactory.create(reminder__owner=operator, reminder__account__owner=operator, status=status, **reason)
    word = re.sub("<.*?>", "", badge(run))
    client = login(operator)
    pills = {pill["label"]: pill for pill in client.get(reverse("admin:fanout_run_changelist")).context["pills"][1:]}
    assert {name for name, pill in pills.items() if pill["count"] == "1"} == {word}
    listed = client.get(reverse("admin:fanout_run_changelist") + pills[word]["url"]).context["cl"].result_list
    assert list(listed) == [run]
    assert f">{word}</a>" in client.get(reverse("admin:reminders_reminder_changelist")).content.decode()


def test_a_run_behind_another_is_queued_in_every_list(operator):
    """“Queued” is for the account's other runs, “waiting” for its limits."""
    now = timezone.now()
    account = AccountFactory.create(owner=operator, label="Community line")
    for title, status, minutes in (("Town hall", "running", 5), ("Friday market", "queued", 1)):
        RunFactory.create(
            reminder__owner=operator,
            reminder__title=title,
            account=account,
            status=status,
            targets={"pending": 50},
            scheduled_for=now - timedelta(minutes=minutes),
        )
    client = login(operator)
    for path in (
        reverse("admin:fanout_run_changelist"),
        reverse("admin:reminders_reminder_changelist"),
    ):
        page = client.get(path).content.decode()
        assert re.search(r'class="badge info"[^>]*>Queued<', page), path
        assert ">Waiting<" not in page, path


def test_facets_cannot_be_asked_for(things, boss):
    client = login(boss)
    for name in ("runs", "targets", "reminders", "accounts", "recipients"):
        path = paths(things)[name]
        answer = client.get(path + ("&" if "?" in path else "?") + "_facets=True")
        assert answer.context["cl"].add_facets is False, name


def test_a_run_target_of_unconfirmed_run_is_linked(things, operator):
    RunTargetFactory.create(run=things, status="unconfirmed")
    html = login(operator).get(paths(things)["run"]).content.decode()
    assert "Unconfirmed: did these arrive?" in html
    assert "3 ×" in html  # three failures of one cause
    assert "Retry these" in html


@pytest.mark.parametrize(
    ("targets", "headings"),
    [
        ({"failed": 1, "skipped": 1}, ["What went wrong", "Not sent"]),
        ({"failed": 1}, ["What went wrong"]),
        ({"sent": 1, "skipped": 1}, ["Not sent"]),
    ],
)
def test_only_failures_are_what_went_wrong(operator, targets, headings):
    run = RunFactory.create(owner=operator, status="partial", targets=targets)
    html = login(operator).get(reverse("admin:fanout_run_change", args=[run.pk])).content.decode()
    assert [heading for heading in ("What went wrong", "Not sent") if f"<h2>{heading}</h2>" in html] == headings


@pytest.mark.parametrize("planned", [None, datetime(2026, 1, 6, 6, tzinfo=UTC)], ids=["", "planned for its opening"])
def test_a_paused_run_is_widened_on_its_page(operator, planned):
    evening = datetime(2026, 1, 5, 19, 30, tzinfo=UTC)
    run = RunFactory.create(
        reminder__owner=operator,
        reminder__account__owner=operator,
        status="paused",
        pause_reason="window_closed",
        resume_at=planned,
        targets={"pending": 2},
        window_start_hour=6,
        window_end_hour=18,
        scheduled_for=evening.replace(hour=9),
    )
    with time_machine.travel(evening, tick=False):
        client = login(operator)
        client.get(reverse("admin:my_notifications"))  # renews the session, which happens once in five minutes
        with CaptureQueriesContext(connection) as queries:
            page = client.get(reverse("admin:fanout_run_change", args=[run.pk])).content.decode()
        assert len(queries) <= LARGER_PAGES["run"]
        assert "Widen today’s window until" in page
        assert 'value="20"' in page  # two are sent by then
        assert "All would be sent by" in page
        assert ">Resume<" not in page  # it would be refused
        client.post(reverse("admin:fanout_run_widen", args=[run.pk]), {"until": "21"})
    run.refresh_from_db()
    assert (run.status, run.window_closes_at, run.window_end_hour) == ("queued", evening.replace(hour=21, minute=0), 18)


def test_targets_show_their_planned_time_and_why_it_slipped(operator):
    run = RunFactory.create(reminder__owner=operator, status="waiting")
    RunTargetFactory(run=run, planned_at=datetime(2026, 1, 6, 8, 45, tzinfo=UTC))
    delay = {"from": "2026-01-06T08:45:00+00:00", "to": "2026-01-06T09:45:00+00:00", "why": "Daily cap reached (20/20)"}
    Run.objects.update(delays={str(run.account_id): delay})
    url = f"{reverse('admin:fanout_runtarget_changelist')}?run__id__exact={run.pk}"
    page = login(operator).get(url).content.decode()
    assert "09:45" in page
    assert "Daily cap reached (20/20)" in page


def test_the_targets_of_a_run_lead_back_to_it(things, operator):
    page = login(operator).get(paths(things)["targets"]).content.decode()
    crumbs = page.partition('class="breadcrumbs"')[2].partition("</div>")[0]
    assert reverse("admin:fanout_run_change", args=[things.pk]) in crumbs
    marked = page.partition('class="top-nav"')[2].partition("</nav>")[0]
    assert re.findall(r'aria-current="page">(\w+)<', marked) == ["Activity"]
    assert "column-of_run" not in page


@pytest.mark.parametrize(("hour", "offered"), [(12, False), (19, True)])
def test_a_wider_window_is_offered_only_where_it_helps(operator, hour, offered):
    """Two are left: at noon a resume will do."""
    run = RunFactory.create(
        reminder__owner=operator,
        reminder__account__owner=operator,
        status="paused",
        pause_reason="operator",
        targets={"pending": 2},
        window_start_hour=6,
        window_end_hour=18,
        scheduled_for=datetime(2026, 1, 5, 9, tzinfo=UTC),
    )
    with time_machine.travel(datetime(2026, 1, 5, hour, tzinfo=UTC), tick=False):
        page = login(operator).get(reverse("admin:fanout_run_change", args=[run.pk])).content.decode()
    assert ("Widen today’s window until" in page) == offered
