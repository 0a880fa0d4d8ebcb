"""The list of inbound events, and an account's webhook address."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group, User
from django.urls import reverse
from django.utils import timezone

from accounts.fields import Sealed
from accounts.models import Account
from fanout.lanes import accounts
from fanout.models import Event, InboundEvent, Run, TrailEntry
from tests.admin.conftest import login
from tests.factories import AccountFactory, InboundEventFactory, RunFactory, RunTargetFactory
from tests.security.test_confirming import stale

LIST = "admin:fanout_inboundevent_changelist"


@pytest.fixture
def account(operator: User, team: Group) -> Account:
    made: Account = AccountFactory.create(owner=operator, team=team)
    made.refresh_from_db()
    return made


@pytest.fixture
def event(account: Account) -> InboundEvent:
    return InboundEventFactory.create(
        account=account, kind="reply", words={"text": "See you"}, state="failed", attempts=5, effect="Poison: bad"
    )


def test_a_replys_text_is_seen_by_those_who_see_the_account(event, operator, viewer, colleague):
    page = reverse("admin:fanout_inboundevent_change", args=[event.pk])
    for user, seen in ((operator, True), (viewer, True), (colleague, False)):
        client = login(user)
        assert ("See you" in client.get(reverse(LIST)).content.decode()) is seen
        assert ("See you" in client.get(page, follow=True).content.decode()) is seen


def test_a_text_that_no_key_opens_does_not_close_the_page(event, boss):
    InboundEvent.objects.filter(pk=event.pk).update(words=Sealed("lost"))
    assert "no key decrypts it" in login(boss).get(reverse(LIST)).content.decode()


def test_failed_events_are_worked_on_again(event, operator, account):
    done = InboundEventFactory.create(account=account, state="done")
    data = {"action": "work_on_again", "_selected_action": [event.pk, done.pk]}
    answer = login(operator).post(reverse(LIST), data, follow=True)
    assert "1 events will be worked on again. 1 had not failed." in answer.content.decode()
    for row in (event, done):
        row.refresh_from_db()
    assert (event.state, event.attempts, done.state) == ("new", 0, "done")
    assert TrailEntry.objects.filter(verb="worked on again", actor_name="mei").count() == 1


def test_strangers_work_on_nothing(event, colleague):
    data = {"action": "work_on_again", "_selected_action": [event.pk]}
    login(colleague).post(reverse(LIST), data, follow=True)
    event.refresh_from_db()
    assert event.state == "failed"


def test_the_title_of_a_run_is_for_those_who_see_the_run(account, operator, viewer, colleague):
    """The account is shared with a team, the run that a colleague sent through it is not."""
    shared = RunFactory.create(title="Rent is due", owner=operator, team=account.team, account=account)
    private = RunFactory.create(title="Private party", owner=colleague, team=None, account=account)
    for run, who, seen in ((shared, viewer, True), (private, viewer, False), (private, operator, False)):
        target = RunTargetFactory.create(run=run, status="sent")
        event = InboundEventFactory.create(account=account, kind="bounce", run_target_id=target.pk)
        page = login(who).get(reverse("admin:fanout_inboundevent_change", args=[event.pk])).content.decode()
        assert (run.title in page) is seen
        assert (reverse("admin:fanout_run_change", args=[run.pk]) in page) is seen


# --- the webhook address ----------------------------------------------------------------------------------


def test_the_address_is_for_those_who_may_change_the_account(account, operator, viewer):
    page = reverse("admin:accounts_account_change", args=[account.pk])
    assert accounts.webhook_address(account) in login(operator).get(page).content.decode()
    assert account.hook_token not in login(viewer).get(page).content.decode()


def test_evolutions_global_webhook_is_warned_of_beside_the_address(account, operator):
    Account.objects.filter(pk=account.pk).update(
        channel="evolution", config={"url": "https://e.example", "instance": "a"}
    )
    page = reverse("admin:accounts_account_change", args=[account.pk])
    assert "global webhook sends no headers" in login(operator).get(page).content.decode()


def test_renewing_is_noted_without_the_address(account, operator):
    url = reverse("admin:accounts_account_do", args=[account.pk, "renew_hook"])
    old = account.hook_token
    assert "has a new webhook address" in login(operator).post(url, follow=True).content.decode()
    account.refresh_from_db()
    assert account.hook_token != old
    assert Event.objects.get(account=account, verb="webhook renewed").actor == operator
    entry = TrailEntry.objects.get(verb="renewed webhook")
    assert (entry.actor_name, entry.subject) == ("mei", account.label)
    assert account.hook_token not in entry.detail


def test_the_title_of_an_event_says_what_came(account, operator):
    now = timezone.now()
    common = {"account": account, "happened_at": now, "came_at": now}
    read = InboundEvent.objects.create(key="1", kind="read", address="+4917612345678", **common)
    session = InboundEvent.objects.create(key="2", kind="session", **common)
    for event, title in ((read, "Read: +4917612345678"), (session, f"Session: {account}")):
        page = login(operator).get(reverse("admin:fanout_inboundevent_change", args=[event.pk])).content.decode()
        assert f"<h1>{title}</h1>" in page


def test_renewing_asks_who_it_is(account, operator):
    url, old = reverse("admin:accounts_account_do", args=[account.pk, "renew_hook"]), account.hook_token
    answer = stale(operator).post(url)
    page = reverse("admin:accounts_account_change", args=[account.pk])
    assert "Confirm that it is you" in answer.content.decode()
    account.refresh_from_db()
    assert account.hook_token == old
    assert stale(operator).post(reverse("admin:accounts_account_do", args=[account.pk, "pause"]))["Location"] == page


def test_a_channel_without_webhook_has_no_address(operator):
    account = AccountFactory.create(owner=operator, channel="smtp")
    assert accounts.webhook_address(account) == ""
    url = reverse("admin:accounts_account_do", args=[account.pk, "renew_hook"])
    assert "has no webhook" in login(operator).post(url, follow=True).content.decode()


# --- the run's page ---------------------------------------------------------------------------------------


def test_the_run_page_shows_the_funnel(operator, account):
    at = timezone.now()
    run: Run = RunFactory.create(reminder__account=account, status="success", first_attempt_at=at)
    RunTargetFactory.create(run=run, status="sent", settled_at=at, delivered_at=at, read_at=at)
    RunTargetFactory.create(run=run, status="sent", settled_at=at, delivered_at=at)
    page = login(operator).get(reverse("admin:fanout_run_change", args=[run.pk])).content.decode()
    shown = " ".join(page[page.index('class="funnel"') :].split())
    assert '<b data-count="sent">2</b> sent' in shown
    assert "<b>2</b> received" in shown
    assert "<b>1</b> read" in shown
    assert "<b>0</b> replied" in shown
    assert "<b>0</b> opted out" in shown
    assert f'?run__id__exact={run.pk}&amp;status__exact=sent&amp;result=read"' in shown
