"""The audit trail: who changed what, from where; no secrets; nothing without its change."""

from __future__ import annotations

import csv
import getpass
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import InternalError, ProgrammingError, transaction
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounts.models import Account
from fanout.admin.login import MOST_FAILURES_PER_MINUTE
from fanout.lanes import accounts
from fanout.models import Run, TrailEntry
from fanout.models.trail import note
from fanout.runs import controls
from reminders.models import Recipient
from tests.admin.conftest import login
from tests.factories import AccountFactory, RecipientFactory, ReminderFactory, RunFactory
from tests.security.conftest import PASSWORD
from tests.security.test_confirming import account_form

pytestmark = pytest.mark.django_db


def entries(**facts: Any) -> list[tuple[str, ...]]:
    rows = TrailEntry.objects.filter(**facts).exclude(verb="logged in").order_by("pk")
    return list(rows.values_list("actor_name", "verb", "subject", "detail"))


def test_an_account_changed_in_the_admin(operator):
    account = AccountFactory.create(owner=operator, label="Line", config={"account": "a"})
    data = account_form(account, label="Renamed", max_send_per_minute=10, secret_key="TOP-SECRET")
    path = reverse("admin:accounts_account_change", args=[account.pk])
    answer = login(operator).post(path, data, REMOTE_ADDR="203.0.113.9")
    assert answer.status_code == 302, answer.context["errors"]
    changed, tuned = entries(kind="account")
    assert changed == ("mei", "changed", "Renamed", "label, key")
    assert tuned[1] == "tuned"
    assert "max_send_per_minute" in tuned[3]
    assert set(TrailEntry.objects.filter(kind="account").values_list("address", flat=True)) == {"203.0.113.9"}
    assert "TOP-SECRET" not in str(list(TrailEntry.objects.values()))


def test_an_account_added_paused_and_reactivated(operator):
    now = timezone.now()
    account = Account(owner=operator, channel="sandbox", label="New", config={"account": "a"})
    accounts.add_account(account, operator, now)
    controls.pause_account(account, operator, now)
    controls.pause_account(account, operator, now)  # is paused already: no entry
    controls.reactivate(account, operator, now)
    assert [(who, verb) for who, verb, _, _ in entries(kind="account")] == [
        ("mei", "added"),
        ("mei", "paused"),
        ("mei", "reactivated"),
    ]


def test_the_shell_is_named(operator):
    account = AccountFactory.create(owner=operator, label="Line")
    call_command("account", "set", "Line", "--set", "timezone=Europe/Berlin")
    ((who, verb, what, detail),) = entries(kind="account", subject_id=account.pk)
    assert who.startswith("shell (")
    assert (verb, what, detail) == ("changed", "Line", "timezone")


def test_no_entry_without_its_change(operator):
    account = AccountFactory.create(owner=operator)

    def half() -> None:
        with accounts.changing(account, operator, timezone.now()) as change:
            change.account.label = "Renamed"
            change.account.timezone = "Mars/Olympus"

    with pytest.raises(Exception, match="not a timezone"):
        half()
    assert not entries(kind="account")


def test_no_change_without_its_entry(operator, monkeypatch):
    """A failing trail takes the change with it."""
    account = AccountFactory.create(owner=operator, label="Line")
    monkeypatch.setattr(accounts, "note", lambda *facts: 1 / 0)
    with pytest.raises(ZeroDivisionError), accounts.changing(account, operator, timezone.now()) as change:
        change.account.label = "Renamed"
    assert Account.objects.get(pk=account.pk).label == "Line"


def test_a_reminder_deleted(operator):
    reminder = ReminderFactory.create(account__owner=operator, title="Town hall")
    login(operator).post(reverse("admin:reminders_reminder_delete", args=[reminder.pk]), {"post": "yes"})
    assert entries(kind="reminder") == [("mei", "deleted", "Town hall", "")]


def test_deleted_in_bulk(operator):
    rows = [RecipientFactory.create(owner=operator) for _ in range(3)]
    data = {"action": "remove", "_selected_action": [row.pk for row in rows], "confirmed": "yes"}
    login(operator).post(reverse("admin:reminders_recipient_changelist"), data)
    assert not Recipient.objects.exists()
    assert {(who, what) for who, _, what, _ in entries(kind="recipient", verb="deleted")} == {
        ("mei", f"recipient {row.pk}") for row in rows
    }


def test_a_recipients_address_is_not_in_it(operator):
    recipient = RecipientFactory.create(owner=operator)
    data = {"kind": recipient.kind, "address": recipient.address, "name": "New name", "tags": "", "status": "active"}
    login(operator).post(reverse("admin:reminders_recipient_change", args=[recipient.pk]), data)
    assert entries(kind="recipient") == [("mei", "changed", f"recipient {recipient.pk}", "Name")]
    assert recipient.address not in str(list(TrailEntry.objects.values()))


def test_users(boss):
    client = login(boss)
    client.post(reverse("admin:auth_user_add"), {"username": "eve", "role": "operator"})
    eve = User.objects.get(username="eve")
    asked = client.post(reverse("admin:auth_user_invitation", args=[eve.pk]))
    visitor, link = Client(), urlsplit(asked.context["link"]).path
    form = visitor.get(link, follow=True).request["PATH_INFO"]
    visitor.post(form, {"new_password1": PASSWORD, "new_password2": PASSWORD})
    changed = {"username": "eve", "is_active": "on", "role": "viewer"}
    client.post(reverse("admin:auth_user_change", args=[eve.pk]), changed)
    assert sorted(entries(kind="user")) == [
        ("boss", "added", "eve", ""),
        ("boss", "changed", "eve", "role"),
        ("boss", "changed the role", "eve", "no role → operator"),
        ("boss", "changed the role", "eve", "operator → viewer"),
        ("boss", "invited", "eve", "by a copied link"),
        ("eve", "set a password by invitation", "eve", ""),
    ]
    text = str(list(TrailEntry.objects.values()))
    assert PASSWORD not in text
    assert link.split("/")[-2] not in text


def test_runs_by_a_person_the_shell_and_crier(operator):
    reminder = ReminderFactory.create(owner=operator, account__owner=operator, targets=2)
    run = controls.fire(reminder, operator, timezone.now()).run
    assert run is not None
    controls.pause(run, operator, timezone.now())
    call_command("resume", str(run.pk))
    call_command("cancel", str(run.pk))
    assert controls.resume_due(timezone.now()) == 0
    shell = f"shell ({getpass.getuser()})"
    what = f"run {run.pk}"
    assert entries(kind="run") == [
        ("mei", "fired", what, f"reminder {reminder.pk}"),
        ("mei", "paused", what, ""),
        (shell, "resumed", what, "2 pending"),
        (shell, "canceled", what, ""),
    ]
    assert run.events.get(verb="resumed").detail == f"2 pending, by {shell}"
    call_command("fire", str(reminder.pk), again=True)
    assert list(reminder.runs.latest("pk").events.filter(verb="fired").values_list("detail", flat=True)) == [
        f"by {shell}"
    ]
    # What Crier does by itself is in the timeline only, and is not taken for the shell's.
    again = RunFactory.create(
        status="paused", pause_reason="operator", targets={"pending": 1}, resume_at=timezone.now()
    )
    assert controls.resume_due(timezone.now()) == 1
    assert again.events.get(verb="resumed").detail == "1 pending"
    assert not entries(subject=f"run {again.pk}")


def test_logins_failures_and_lockouts(person, client: Client):
    for _ in range(6):
        client.post(reverse("admin:login"), {"username": "mei", "password": "wrong"}, REMOTE_ADDR="198.51.100.7")
    verbs = [verb for _, verb, what, _ in entries(subject="mei")]
    assert verbs.count("login failed") >= 5
    assert "locked out" in verbs
    assert set(TrailEntry.objects.values_list("address", flat=True)) == {"198.51.100.7"}


def test_a_password_typed_as_a_name_is_not_kept(db, client: Client):
    client.post(reverse("admin:login"), {"username": "hunter2 my password", "password": "x"})
    assert "hunter2" not in str(list(TrailEntry.objects.values()))
    assert entries() == [("nobody", "login failed", "", "unknown name")]


def test_failures_do_not_fill_the_table(db, client: Client, settings):
    settings.AXES_ENABLED = False
    for _ in range(MOST_FAILURES_PER_MINUTE + 3):
        client.post(reverse("admin:login"), {"username": "x", "password": "x"})
    kept = entries()
    assert len(kept) == MOST_FAILURES_PER_MINUTE
    assert "are not listed" in kept[-1][3]


def test_guesses_at_made_up_names_do_not_hide_those_at_a_persons(person):
    """70 cheap ones first: unknown and overlong names, and a name that is locked out."""

    def guess(name: str, number: int) -> None:
        form = {"username": name, "password": "wrong"}
        Client().post(reverse("admin:login"), form, REMOTE_ADDR=f"198.51.100.{number}")

    for number in range(40):
        guess("x" * (200 if number % 2 else 20), number)
    for _ in range(30):
        guess("noor", 200)
    for number in (201, 202, 203):
        guess("mei", number)
    failed = TrailEntry.objects.filter(verb="login failed", subject="mei").order_by("pk")
    assert list(failed.values_list("address", flat=True)) == ["198.51.100.201", "198.51.100.202", "198.51.100.203"]


def test_a_locked_out_name_leaves_room_for_guesses_that_count(person, client: Client):
    for _ in range(40):
        client.post(reverse("admin:login"), {"username": "mei", "password": "wrong"}, REMOTE_ADDR="198.51.100.7")
    client.post(reverse("admin:login"), {"username": "mei", "password": "wrong"}, REMOTE_ADDR="198.51.100.8")
    failed = TrailEntry.objects.filter(verb="login failed", subject="mei").order_by("pk")
    assert list(failed.values_list("address", flat=True)) == ["198.51.100.7"] * 5 + ["198.51.100.8"]


def test_entries_are_never_changed(db):
    note("tested", None, None, timezone.now())
    with pytest.raises((InternalError, ProgrammingError), match="never changed"), transaction.atomic():
        TrailEntry.objects.update(actor_name="somebody else")


def test_the_page_and_its_export(boss, operator):
    note("changed", AccountFactory.create(label="a;=HYPERLINK(1)"), boss, timezone.now(), "label")
    client = login(boss)
    assert "=HYPERLINK(1)" in client.get(reverse("admin:fanout_trailentry_changelist")).content.decode()
    answer: Any = client.get(reverse("admin:fanout_trailentry_export"))
    rows = list(csv.DictReader(b"".join(answer.streaming_content).decode().splitlines()))
    assert [row["verb"] for row in rows][:2] == ["exported the audit trail", "logged in"]
    assert rows[-1]["subject"] == "a;'=HYPERLINK(1)"
    assert login(operator).get(reverse("admin:fanout_trailentry_export")).status_code == 403


def test_the_page_leads_to_what_the_entries_are_about(boss):
    run = RunFactory.create(title="Choir <b>")
    note("paused", run, boss, timezone.now())
    url = reverse("admin:fanout_run_change", args=[run.pk])
    page = login(boss).get(reverse("admin:fanout_trailentry_changelist")).content.decode()
    assert f'<a href="{url}">Choir &lt;b&gt; ({run.pk})</a>' in page
    Run.objects.all().delete()
    page = login(boss).get(reverse("admin:fanout_trailentry_changelist")).content.decode()
    assert f"run {run.pk}" in page
    assert url not in page


def test_retention_keeps_it_for_its_days(settings, db):
    settings.AUDIT_TRAIL_DAYS = 400
    for days in (399, 401):
        note(f"{days} days ago", None, None, timezone.now() - timedelta(days=days))
    call_command("retention", "--days", "30")
    assert list(TrailEntry.objects.values_list("verb", flat=True)) == ["399 days ago"]
