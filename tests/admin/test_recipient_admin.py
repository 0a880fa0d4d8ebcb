"""The timeline on a recipient's page, and Message 2 on the pages of runs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from django.utils import timezone

from accounts.models import Account
from fanout.inbound import person_timeline
from fanout.inbound.person_timeline import ENTRIES_SHOWN, timeline
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


def test_messages_that_others_sent_hide_none_of_ones_own(
    operator: User, colleague: User, account: Account, ann: Recipient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(person_timeline, "ENTRIES_SHOWN", 1)
    now, theirs = timezone.now(), AccountFactory.create(owner=colleague)
    mine = [sent_to(ann, account, settled_at=now - minutes * MINUTE) for minutes in (1, 30, 40)]
    for minutes in (2, 3, 4, 5, 6):
        sent_to(ann, theirs, settled_at=now - minutes * MINUTE)
    shown, place = [], ""
    for _ in mine:
        page = timeline(ann, operator, place)
        shown += [entry.target.run for entry in page.entries if entry.target]
        place = page.earlier
    assert shown == mine
    assert place == ""


def test_sent_read_and_received_messages_newest_first(operator: User, account: Account, ann: Recipient) -> None:
    now = timezone.now()
    run = sent_to(ann, account, read_at=now - 4 * MINUTE)
    stored(account, 0, now - MINUTE, "On my way")
    entries = timeline(ann, operator).entries
    assert [(entry.name, entry.texts) for entry in entries] == [("Events line", ["On my way"]), ("Rent", ["Hello"])]
    assert entries[1].steps == [("read", now - 4 * MINUTE)]
    html = page(operator, ann)
    assert html.index("On my way") < html.index("Hello")
    assert reverse("admin:fanout_run_change", args=[run.pk]) in html


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"status": "skipped", "error": "opted_out"}, "not sent: opted out"),
        ({"status": "failed", "error_kind": "recipient_gone", "error": "No such number"}, "No such number"),
        ({"status": "pending", "error": "asked to wait"}, "not sent yet: asked to wait"),
        ({"status": "unconfirmed", "claimed_at": timezone.now()}, "it is not known whether it arrived"),
    ],
    ids=["skipped", "failed", "pending", "unconfirmed"],
)
def test_why_something_was_not_sent(
    operator: User, account: Account, ann: Recipient, fields: dict[str, Any], reason: str
) -> None:
    sent_to(ann, account, **{"parts_sent": 0, "claimed_at": None, "settled_at": None} | fields)
    (entry,) = timeline(ann, operator).entries
    assert reason in entry.reason
    assert entry.texts == (["Hello"] if fields["status"] == "unconfirmed" else [])


def test_the_words_belong_to_the_account_they_came_to(
    operator: User, colleague: User, boss: User, account: Account
) -> None:
    theirs, elsewhere = person(colleague), AccountFactory.create(owner=colleague)
    sent_to(theirs, account)
    stored(account, 0, timezone.now(), "a secret <b>word</b>")
    stored(elsewhere, 0, timezone.now(), "for noor")
    entries = timeline(theirs, colleague).entries
    assert sorted(entry.texts[0] for entry in entries) == ["a reply to another account", "for noor"]
    html = page(colleague, theirs)
    assert "secret" not in html
    assert "Events line" not in html
    assert "Hello" not in html  # what others sent is theirs
    assert "a secret &lt;b&gt;word&lt;/b&gt;" in page(boss, theirs)


def test_messages_in_groups_are_left_out(operator: User, account: Account, ann: Recipient) -> None:
    stored(account, 0, timezone.now(), "hello everybody", group="120363000000000001@g.us")
    assert timeline(ann, operator).entries == []
    assert "Nothing was sent and nothing came back yet." in page(operator, ann)


def test_pages_follow_each_other_without_a_gap(operator: User, account: Account, ann: Recipient) -> None:
    """Also where many entries have the same moment: a delivery and its replies."""
    now = timezone.now()
    for _ in range(5):
        sent_to(ann, account, settled_at=now)
    for n in range(2 * ENTRIES_SHOWN):
        stored(account, 0, now - (n // 20) * MINUTE, f"number {n}")
    seen, before = [], ""
    while True:
        shown = timeline(ann, operator, before)
        seen += [entry.place for entry in shown.entries]
        if not (before := shown.earlier):
            break
        assert len(shown.entries) == ENTRIES_SHOWN
    assert seen == sorted(seen, reverse=True)
    assert len(set(seen)) == 2 * ENTRIES_SHOWN + 5
    url = reverse("admin:reminders_recipient_change", args=[ann.pk])
    html = login(operator).get(url, {"before": str(seen[ENTRIES_SHOWN])}).content.decode()
    assert "Earlier" in html
    assert "Newest" in html


@pytest.mark.parametrize("before", ["x", "2026-01-01_e_1", "2026-01-01T00:00:00+00:00_e_x", "_t_", "\x00"])
def test_a_wrong_place_means_the_newest(operator: User, account: Account, ann: Recipient, before: str) -> None:
    stored(account, 0, timezone.now(), "hello")
    assert timeline(ann, operator, before).is_first
    assert len(timeline(ann, operator, before).entries) == 1


def test_a_text_that_was_deleted_says_so(operator: User, account: Account, ann: Recipient) -> None:
    stored(account, 0, timezone.now(), "")
    assert timeline(ann, operator).entries[0].texts == ["the text is not kept any more"]


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


def test_a_new_recipient_has_no_follow_ups_and_a_long_tag_is_refused_in_words(operator: User) -> None:
    client, path = login(operator), reverse("admin:reminders_recipient_add")
    page = client.get(path).content.decode()
    assert "Own fields" in page
    assert "Cooldown" not in page
    assert "Members:" not in page
    answer = client.post(path, {"kind": "person", "address": "+4917612345678", "tags": "t" * 61, "status": "active"})
    assert "Tag 1 cannot be used: Ensure this value has at most 60 characters (it has 61)." in answer.content.decode()
