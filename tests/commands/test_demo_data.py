"""`manage.py demo_data`: added once, with live runs, and told to the provider's book."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from django.utils import timezone

from accounts.channels.sandbox.book import Book
from accounts.models import Account
from fanout.models import Activity, Run, RunTarget
from reminders.models import Segment
from reminders.opt_outs import decide_by_words
from tests.admin.conftest import login
from tests.commands.calling import data, text
from tests.sandbox_server import SandboxServer

pytestmark = [pytest.mark.django_db, pytest.mark.slow]


def test_demo_data_is_made_once_and_one_run_is_live():
    assert "43 past runs" in text("demo_data")
    counts = {model: model.objects.count() for model in (Account, Run, RunTarget, Activity)}
    assert "still going out" in text("demo_data")
    assert {model: model.objects.count() for model in counts} == counts
    statuses = set(Run.objects.values_list("status", flat=True))
    assert statuses == {"success", "partial", "paused", "failed", "skipped", "queued"}
    assert data("limits") == {"violations": [], "repaired": []}


def test_the_demo_has_replies_results_and_a_warning():
    text("demo_data")
    assert len(data("replies")["replies"]) == 7
    assert len(data("replies", "--state", "handled", "--limit", "50")["replies"]) == 21
    weeks = data("results", "--weeks", "4", "--by", "account")["results"]
    assert {one["name"] for one in weeks} >= {"Office line", "Events line", "Community line"}
    warned = [one for one in data("results", "--reputation")["accounts"] if one["warning"]]
    assert [one["name"] for one in warned] == ["Office line"]
    assert "more than doubled" in warned[0]["warning"]


def test_a_sequence_is_under_way():
    text("demo_data")
    parent = Run.objects.get(title="Help at the food bank")
    (later,) = parent.follow_ups.all()
    assert (parent.sent, later.total) == (24, 22)
    assert parent.next_step_at is not None
    assert timedelta() < parent.next_step_at - timezone.now() < timedelta(days=3)
    assert Segment.objects.get(name="Volunteers who have not answered").not_replied_to is not None


def by_the_book(book: Book) -> dict[str, dict[str, int]]:
    """What each account sent and what came back, by the provider's book alone: a message counts with its last part."""
    parts = Counter((line.account, line.message_id.rsplit("-", 2)[0]) for line in book.deliveries())
    found: dict[str, Counter[str]] = {}
    for account, _ in parts:
        found.setdefault(account, Counter())["sent"] += 1
    refused = {(line.account, line.message_id) for line in book.refused()}
    for account, _ in refused:
        found[account]["failed"] += 1
    kinds = {"delivered": "received", "read": "read", "reply": "replied"}
    for report in book.reports():
        found[report.account][kinds[report.kind]] += 1
        found[report.account]["opted_out"] += report.kind == "reply" and decide_by_words(report.text).opts_out
    names = ("sent", "failed", "received", "read", "replied", "opted_out")
    return {account: {name: counted[name] for name in names} for account, counted in found.items()}


def test_the_numbers_agree_with_the_providers_book(tmp_path: Path, settings: Any):
    plain = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
    settings.STORAGES = settings.STORAGES | {"staticfiles": plain}
    with SandboxServer(tmp_path) as server:
        text("demo_data", "--provider", server.url)
        text("demo_data", "--provider", server.url)  # a second time adds nothing to the book
        told = by_the_book(server.book())
        assert not server.book().duplicates()
    shown: dict[str, Any] = {one["name"]: one for one in data("results", "--weeks", "13", "--by", "account")["results"]}
    names = {account.label: account.config["account"] for account in Account.objects.filter(label__in=shown)}
    assert {names[label] for label in shown} == set(told)
    for label, numbers in shown.items():
        assert {name: numbers[name] for name in told[names[label]]} == told[names[label]], label
    # The page has the same numbers.
    html = login(User.objects.get(username="mei")).get(reverse("admin:results"), {"weeks": 13}).content.decode()
    for name in ("sent", "received", "read", "replied", "failed"):
        assert f"<b>{sum(account[name] for account in told.values()):,}</b> {name}" in html
