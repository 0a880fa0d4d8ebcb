"""The conversation on a recipient's page, and Message 2 on the pages of runs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from django.utils import timezone

from accounts.models import Account
from fanout.inbound.conversations import LINES_SHOWN, conversation
from fanout.models import Run
from reminders.models import Recipient
from tests.admin.conftest import login
from tests.factories import TEXT, AccountFactory, ReminderFactory, RunFactory, RunTargetFactory
from tests.inbound.people import person, stored

MINUTE = timedelta(minutes=1)


@pytest.fixture
def account(operator: User) -> Account:
    return AccountFactory.create(owner=operator, label="Events line")


@pytest.fixture
def ann(operator: User) -> Recipient:
    return person(operator, name="Ann")


def sent_to(recipient: Recipient, account: Account, **fields: Any) -> Run:
    now = timezone.now()
    run = RunFactory.create(reminder=ReminderFactory.create(account=account, title="Rent"), owner=account.owner)
    RunTargetFactory.create(
        run=run,
        recipient=recipient,
        **{"status": "sent", "parts_sent": 1, "claimed_at": now - 5 * MINUTE, "settled_at": now - 5 * MINUTE} | fields,
    )
    return run


def page(user: User, recipient: Recipient) -> str:
    url = reverse("admin:reminders_recipient_change", args=[recipient.pk])
    return login(user).get(url).content.decode()


def test_sent_and_received_messages_newest_last(operator: User, account: Account, ann: Recipient) -> None:
    run = sent_to(ann, account)
    stored(account, 0, timezone.now() - MINUTE, "On my way")
    lines = conversation(ann, operator)
    assert [(line.name, line.texts) for line in lines] == [("Rent", ["Hello"]), ("Events line", ["On my way"])]
    html = page(operator, ann)
    assert html.index("Hello") < html.index("On my way")
    assert reverse("admin:fanout_run_change", args=[run.pk]) in html


def test_the_words_belong_to_the_account_they_came_to(
    operator: User, colleague: User, boss: User, account: Account
) -> None:
    theirs, elsewhere = person(colleague), AccountFactory.create(owner=colleague)
    sent_to(theirs, account)
    stored(account, 0, timezone.now(), "a secret <b>word</b>")
    stored(elsewhere, 0, timezone.now(), "for noor")
    lines = conversation(theirs, colleague)
    assert sorted(line.texts[0] for line in lines) == ["a reply to another account", "for noor"]
    html = page(colleague, theirs)
    assert "secret" not in html
    assert "Events line" not in html
    assert "Hello" not in html  # what others sent is theirs
    assert "a secret &lt;b&gt;word&lt;/b&gt;" in page(boss, theirs)


def test_messages_in_groups_are_left_out(operator: User, account: Account, ann: Recipient) -> None:
    stored(account, 0, timezone.now(), "hello everybody", group="120363000000000001@g.us")
    assert conversation(ann, operator) == []
    assert "Nothing was sent and nothing came back yet." in page(operator, ann)


def test_it_is_bounded(operator: User, account: Account, ann: Recipient) -> None:
    now = timezone.now()
    for n in range(LINES_SHOWN + 5):
        stored(account, 0, now - n * MINUTE, f"number {n}")
    lines = conversation(ann, operator)
    assert len(lines) == LINES_SHOWN
    assert lines[-1].texts == ["number 0"]


def test_a_text_that_was_deleted_says_so(operator: User, account: Account, ann: Recipient) -> None:
    stored(account, 0, timezone.now(), "")
    assert conversation(ann, operator)[0].texts == ["the text is not kept any more"]


# --- Message 2 ------------------------------------------------------------------------------------------------


@pytest.fixture
def answered(account: Account, ann: Recipient) -> Run:
    """Message 2 of a run of the operator, with one sent and one waiting."""
    run = sent_to(ann, account)
    Run.objects.filter(pk=run.pk).update(reply_parts=[TEXT])
    child = RunFactory.create(
        reminder=run.reminder,
        owner=run.owner,
        answers=run,
        title="Rent (Message 2)",
        status="waiting",
        waiting_until=timezone.now().replace(hour=6, minute=0),
        targets={"sent": 1, "pending": 1},
    )
    assert child.total == 2
    return child


def test_the_runs_page_says_how_message_2_stands(operator: User, answered: Run) -> None:
    url = reverse("admin:fanout_run_change", args=[answered.answers_id])
    html = login(operator).get(url).content.decode()
    assert "1 sent, 1 waiting for 06:00" in html
    assert reverse("admin:fanout_run_change", args=[answered.pk]) in html
    own = login(operator).get(reverse("admin:fanout_run_change", args=[answered.pk])).content.decode()
    assert f'For people who replied to <a href="{url}">' in own
    assert "Offload" not in own


def test_message_2_is_not_in_the_lists(operator: User, answered: Run) -> None:
    client = login(operator)
    listing = reverse("admin:fanout_run_changelist")
    assert "Rent (Message 2)" not in client.get(listing).content.decode()
    assert "Rent (Message 2)" in client.get(f"{listing}?status=message_2").content.decode()
    assert "Rent (Message 2)" not in client.get(reverse("admin:index")).content.decode()
    account = reverse("admin:accounts_account_change", args=[answered.account_id])
    assert "Rent (Message 2)" not in client.get(account).content.decode()


def test_message_2_that_waits_for_an_operator_is_in_the_lists(operator: User, answered: Run) -> None:
    Run.objects.filter(pk=answered.pk).update(status="paused", pause_reason="account_down", waiting_until=None)
    client = login(operator)
    assert "Rent (Message 2)" in client.get(reverse("admin:fanout_run_changelist")).content.decode()
    assert "Rent (Message 2)" in client.get(reverse("admin:index")).content.decode()
    page_of_1 = reverse("admin:fanout_run_change", args=[answered.answers_id])
    assert "1 waiting, account not active" in client.get(page_of_1).content.decode()


def test_the_reminders_last_run_is_not_message_2(operator: User, answered: Run) -> None:
    html = login(operator).get(reverse("admin:reminders_reminder_changelist")).content.decode()
    assert reverse("admin:fanout_run_change", args=[answered.answers_id]) in html
    assert reverse("admin:fanout_run_change", args=[answered.pk]) not in html
