"""Every action with a foreign object, with an own one, and as a viewer of the team's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine
from django.contrib.auth.models import Group, User
from django.urls import get_resolver, reverse
from django.utils import timezone

from accounts.models import Account
from fanout.admin.run_status import BUTTONS
from fanout.models import Event, Run, RunTarget
from reminders.models import MediaFile, Reminder
from tests.admin.conftest import login
from tests.factories import AccountFactory, MediaFileFactory, ReminderFactory, RunFactory

AT_NIGHT = datetime(2026, 1, 6, 3, tzinfo=UTC)


@dataclass
class World:
    run: Run
    reminder: Reminder
    account: Account
    other_account: Account
    media: MediaFile


@pytest.fixture
def world(operator: User, team: Group) -> World:
    account = AccountFactory.create(owner=operator, team=team)
    other = AccountFactory.create(owner=operator, team=team)
    reminder = ReminderFactory.create(account=account, team=team, targets=2)
    run = RunFactory.create(
        reminder=reminder,
        team=team,
        status="paused",
        pause_reason="operator",
        targets={"pending": 2, "sent": 1, "failed": 1, "unconfirmed": 1},
    )
    Run.objects.update(created_at=timezone.now() - timedelta(hours=1))  # a second fire at once would ask
    return World(run, reminder, account, other, MediaFileFactory.create(owner=operator, team=team))


def url(name: str, *args: Any) -> str:
    return reverse(f"admin:{name}", args=args)


Click = Callable[[World], tuple[str, dict[str, Any]]]


def target(world: World) -> int:
    return world.run.targets.get(status="unconfirmed").pk


#: to what some of them ask
YES = {"confirmed": "yes"}
#: every POST that acts on one object
CLICKS: dict[str, Click] = {
    **{
        f"run {button.name}": lambda w, name=button.name: (url("fanout_run_do", w.run.pk, name), YES)  # type: ignore[misc]
        for button in BUTTONS
    },
    "run retry these": lambda w: (url("fanout_run_retry", w.run.pk), {"kind": [""]}),
    "run widen": lambda w: (url("fanout_run_widen", w.run.pk), {"until": "24"}),
    "run settle": lambda w: (
        url("fanout_run_settle", w.run.pk),
        {"target": [target(w)], "verdict": "delivered"},
    ),
    "run offload": lambda w: (url("fanout_run_offload"), {"runs": w.run.pk, "account": w.other_account.pk}),
    "reminder fire": lambda w: (url("reminders_reminder_fire", w.reminder.pk), YES),
    "reminder test": lambda w: (
        url("reminders_reminder_test", w.reminder.pk),
        {"address": "120363000000000999@g.us"},
    ),
    "reminder duplicate": lambda w: (url("reminders_reminder_duplicate", w.reminder.pk), {}),
    "reminder archive": lambda w: (url("reminders_reminder_archive", w.reminder.pk), {}),
    "account archive": lambda w: (url("accounts_account_do", w.account.pk, "archive"), {}),
    "account restore": lambda w: (url("accounts_account_do", w.account.pk, "restore"), {}),
    "account pause": lambda w: (url("accounts_account_do", w.account.pk, "pause"), {}),
    "account reactivate": lambda w: (url("accounts_account_do", w.account.pk, "reactivate"), {}),
    "account test": lambda w: (url("accounts_account_test", w.account.pk), {}),
    "account send test": lambda w: (url("accounts_account_send_test", w.account.pk), {"to": "+4917612345678"}),
    "account groups": lambda w: (url("accounts_account_groups", w.account.pk), {}),
    "account contacts": lambda w: (url("accounts_account_contacts", w.account.pk), {}),
}
#: every page of one object
PAGES: dict[str, Callable[[World], str]] = {
    "run": lambda w: url("fanout_run_change", w.run.pk),
    "run live": lambda w: url("fanout_run_live", w.run.pk),
    "run export": lambda w: url("fanout_run_export", w.run.pk),
    "run history": lambda w: url("fanout_run_history", w.run.pk),
    "offload": lambda w: f"{url('fanout_run_offload')}?runs={w.run.pk}",
    "target": lambda w: url("fanout_runtarget_change", target(w)),
    "reminder": lambda w: url("reminders_reminder_change", w.reminder.pk),
    "reminder delete": lambda w: url("reminders_reminder_delete", w.reminder.pk),
    "reminder history": lambda w: url("reminders_reminder_history", w.reminder.pk),
    "account": lambda w: url("accounts_account_change", w.account.pk),
    "account pair": lambda w: url("accounts_account_pair", w.account.pk),
    "account pair state": lambda w: url("accounts_account_pair_state", w.account.pk),
    "recipient": lambda w: url("reminders_recipient_change", w.run.targets.all()[0].recipient_id),
    "media": lambda w: url("media_file", w.media.pk),
    "media form": lambda w: url("reminders_mediafile_change", w.media.pk),
}


def state(world: World) -> list[Any]:
    """Everything a click could have changed."""
    return [
        list(Run.objects.order_by("pk").values_list("pk", "status", "archived", "lanes", "resume_at")),
        list(RunTarget.objects.order_by("pk").values_list("pk", "status", "account_id")),
        list(Account.objects.order_by("pk").values_list("pk", "status")),
        Reminder.objects.count(),
        Event.objects.count(),
    ]


@pytest.mark.parametrize("name", CLICKS)
def test_a_foreign_object_is_out_of_reach(name, world, colleague):
    path, data = CLICKS[name](world)
    before = state(world)
    answer = login(colleague).post(path, data)
    assert answer.status_code == 404
    assert state(world) == before


@pytest.mark.parametrize("name", CLICKS)
def test_a_viewer_changes_nothing(name, world, viewer):
    path, data = CLICKS[name](world)
    before = state(world)
    answer = login(viewer).post(path, data)
    assert answer.status_code == 403
    assert state(world) == before


@pytest.mark.parametrize("name", [name for name in CLICKS if name != "account test"])
def test_the_owner_gets_an_answer_and_leaves_a_trace(name, world, operator):
    path, data = CLICKS[name](world)
    answer = login(operator).post(path, data, follow=True)
    assert answer.status_code == 200
    assert list(answer.context["messages"])


@pytest.mark.parametrize("name", CLICKS)
def test_clicks_are_posts(name, world, operator):
    path, _ = CLICKS[name](world)
    before = state(world)
    answer = login(operator).get(path)
    assert answer.status_code in (404, 405)
    assert state(world) == before


@pytest.mark.parametrize("name", PAGES)
def test_a_foreign_page_does_not_open(name, world, colleague):
    answer = login(colleague).get(PAGES[name](world))
    assert answer.status_code in (302, 403, 404)  # Django's own pages lead to the index
    if answer.status_code == 302:
        assert answer["Location"] == reverse("admin:index")


@pytest.mark.parametrize("name", PAGES)
def test_every_page_needs_a_login(name, world, client):
    answer = client.get(PAGES[name](world))
    assert answer.status_code == 302
    assert "/login/" in answer["Location"]


@pytest.mark.parametrize(
    "status", ["pause", "resume", "cancel", "archive", "retry_failed", "resume_at_opening", "keep_paused"]
)
def test_bulk_actions_skip_what_is_foreign(status, world, colleague):
    before = state(world)
    data = {"action": status, "_selected_action": [world.run.pk], "confirmed": "yes"}
    login(colleague).post(url("fanout_run_changelist"), data)
    assert state(world) == before


def test_bulk_resume_acts_at_once_and_counts_what_it_did(world, operator):
    finished = RunFactory.create(reminder=world.reminder, status="success", targets={"sent": 1})
    data = {"action": "resume", "_selected_action": [world.run.pk, finished.pk]}
    answer = login(operator).post(url("fanout_run_changelist"), data, follow=True)
    (message,) = [str(message) for message in answer.context["messages"]]
    assert message.startswith("Resumed: 1 of 2. Not changed: 1 × The run is success: no longer paused. Done about ")
    event = Event.objects.get(run=world.run, verb="resumed")
    assert event.actor == operator


def test_bulk_resume_begins_with_the_oldest_run(world, operator):
    paused = {"status": "paused", "pause_reason": "operator", "targets": {"pending": 1}}
    newer = RunFactory.create(reminder=world.reminder, **paused)
    data = {"action": "resume", "_selected_action": [newer.pk, world.run.pk], "confirmed": "yes"}
    login(operator).post(url("fanout_run_changelist"), data)
    resumed = Event.objects.filter(verb="resumed").order_by("pk").values_list("run", flat=True)
    assert list(resumed) == [world.run.pk, newer.pk]


def test_bulk_resume_outside_the_window_plans_it(world, operator):
    Run.objects.update(window_start_hour=6, window_end_hour=18, window_closes_at=AT_NIGHT - timedelta(days=1))
    data = {"action": "resume", "_selected_action": [world.run.pk]}
    with time_machine.travel(AT_NIGHT, tick=False):
        client = login(operator)
        answer = client.post(url("fanout_run_changelist"), data, follow=True)
        (message,) = [str(message) for message in answer.context["messages"]]
        assert message == "Resumed: 1 of 1. 1 run goes on when the delivery window opens."
        world.run.refresh_from_db()
        assert (world.run.status, world.run.resume_at) == ("paused", AT_NIGHT.replace(hour=6))
        assert "Keep paused" in client.get(url("fanout_run_changelist")).content.decode()
        client.post(url("fanout_run_do", world.run.pk, "keep_paused"))
    world.run.refresh_from_db()
    assert world.run.resume_at is None
    assert list(world.run.events.values_list("verb", flat=True)) == ["resume planned", "planned resume taken back"]


def test_a_buttons_question_leads_back_to_the_list_by_its_name(world, operator):
    run = RunFactory.create(reminder=world.reminder, status="running", targets={"pending": 3})
    asked = login(operator).post(url("fanout_run_do", run.pk, "cancel")).content.decode()
    assert f'<a href="{url("fanout_run_changelist")}">Activity</a>' in asked


def test_bulk_cancel_asks_with_numbers_and_takes_all_that_match(world, operator):
    for _ in range(2):
        RunFactory.create(reminder=world.reminder, status="running", targets={"pending": 3, "sent": 4})
    data = {"action": "cancel", "_selected_action": [world.run.pk], "select_across": "1"}
    client = login(operator)
    asked = client.post(url("fanout_run_changelist") + "?status=running", data).content.decode()
    assert "Cancel 2 runs" in asked
    assert "6 pending will not be sent, 8 were sent." in asked
    assert Run.objects.filter(status="running").count() == 2
    client.post(url("fanout_run_changelist") + "?status=running", data | {"confirmed": "yes"})
    assert Run.objects.filter(status="canceled").count() == 2
    world.run.refresh_from_db()
    assert world.run.status == "paused"


def test_bulk_settle_of_foreign_targets_does_nothing(world, colleague):
    before = state(world)
    data = {"action": "was_delivered", "_selected_action": [target(world)]}
    login(colleague).post(f"{url('fanout_runtarget_changelist')}?run__id__exact={world.run.pk}", data)
    assert state(world) == before


def test_offload_to_a_foreign_account_is_refused(world, operator, colleague):
    foreign = AccountFactory.create(owner=colleague)
    answer = login(operator).post(url("fanout_run_offload"), {"runs": world.run.pk, "account": foreign.pk})
    assert answer.status_code == 403
    assert not world.run.targets.filter(account=foreign).exists()


def test_a_reminder_cannot_use_a_foreign_account(world, operator, colleague):
    foreign = AccountFactory.create(owner=colleague)
    html = login(operator).get(url("reminders_reminder_add")).content.decode()
    assert world.account.label in html
    assert foreign.label not in html


def test_every_endpoint_of_ours_is_covered():
    """A new endpoint that acts on an object must be added above."""
    admin: Any = next(one for one in get_resolver().url_patterns if getattr(one, "namespace", "") == "admin")
    inner = [pattern for outer in admin.url_patterns for pattern in getattr(outer, "url_patterns", [outer])]
    ours = {pattern.name for pattern in inner if pattern.name and str(pattern.pattern).startswith("<int:pk>/")}
    assert ours == {
        "fanout_run_live",
        "fanout_run_do",
        "fanout_run_export",
        "fanout_run_retry",
        "fanout_run_settle",
        "fanout_run_widen",
        "reminders_reminder_fire",
        "reminders_reminder_test",
        "reminders_reminder_tested",  # only reads; the matrix in tests/security has it
        "reminders_reminder_duplicate",
        "reminders_reminder_archive",
        "accounts_account_do",
        "accounts_account_test",
        "accounts_account_send_test",
        "accounts_account_groups",
        "accounts_account_contacts",
        "accounts_account_pair",
        "accounts_account_pair_state",
        "auth_user_invitation",  # tests/admin/test_users.py
        "fanout_webhookendpoint_rotate",  # tests/ops/test_webhooks.py
    }


def test_the_forecast_does_not_tell_about_foreign_accounts(world, colleague):
    data = {
        "account": world.account.pk,
        "action": "message",
        "timezone": "UTC",
        "schedule": "once",
        "fire_at": "",
        "delivery_window_start_hour": "6",
        "delivery_window_end_hour": "18",
        "reminder": world.reminder.pk,
    }
    answer = login(colleague).post(url("reminders_reminder_forecast"), data).json()
    assert "Choose an account" in answer["forecast"]


def test_guessing_passwords_is_slowed_down(client, operator):
    operator.set_password("right horse")
    operator.save()
    for _ in range(5):
        client.post(reverse("admin:login"), {"username": "mei", "password": "wrong"})
    answer = client.post(reverse("admin:login"), {"username": "mei", "password": "right horse"})
    assert answer.status_code == 429
