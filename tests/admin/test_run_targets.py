"""The list behind each number of a run: filtered by what came back and by cause, exported, and leading to people."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.urls import reverse
from django.utils import timezone

from fanout.admin.run_page import error_groups, live_part
from fanout.models import Run, RunTarget, TrailEntry
from reminders.models import Recipient
from tests.admin.conftest import login
from tests.factories import AccountFactory, RecipientFactory, RunFactory, RunTargetFactory

LIST = "admin:fanout_runtarget_changelist"


@pytest.fixture
def run(operator: User, team: Group) -> Run:
    """Six targets: read, replied, opted out, failed for two causes, and skipped."""
    now = timezone.now()
    account = AccountFactory.create(owner=operator, team=team, channel="sandbox")
    made: Run = RunFactory.create(reminder__account=account, team=team, status="partial", first_attempt_at=now)
    common: dict[str, Any] = {"run": made, "settled_at": now}
    fates: dict[str, dict[str, Any]] = {
        "Reader": {"status": "sent", "delivered_at": now, "read_at": now},
        "Replier": {"status": "sent", "delivered_at": now, "replied_at": now},
        "Leaver": {"status": "sent", "replied_at": now, "opted_out_at": now},
        "Gone": {"status": "failed", "error_kind": "recipient_gone", "error": "No such number"},
        "Bounced": {"status": "failed", "error_kind": "soft_bounce", "error": "Try later"},
        "Skipped": {"status": "skipped", "error": "suppressed"},
    }
    for name, fields in fates.items():
        RunTargetFactory.create(recipient__name=name, **common, **fields)
    made.refresh_from_db()
    return made


def rows(user: User, url: str) -> str:
    page = login(user).get(url).content.decode()
    return page[page.index('id="result_list"') :] if 'id="result_list"' in page else ""


NAMES = ("Reader", "Replier", "Leaver", "Gone", "Bounced", "Skipped")


def named(html: str) -> list[str]:
    return [name for name in NAMES if f">{name}</a>" in html]


def test_every_number_leads_to_exactly_its_targets(run: Run, operator: User) -> None:
    context = live_part(run, operator, timezone.now(), may_act=True)
    for step, url in context["funnel"]:
        assert len(named(rows(operator, url))) == step.n, step.name
    for count in context["counts"]:
        assert len(named(rows(operator, count["url"]))) == count["n"], count["status"]
    for group in context["groups"]:
        assert len(named(rows(operator, group["url"]))) == group["n"], group["words"]
    assert [step.n for step, _ in context["funnel"]] == [3, 2, 1, 2, 1]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("result=opted_out", ["Leaver"]),
        ("result=unread", ["Replier", "Leaver"]),
        ("cause=soft_bounce", ["Bounced"]),
        ("cause=suppressed", ["Skipped"]),
        ("cause=of+no+target", []),
        ("result=nonsense", list(NAMES)),
    ],
)
def test_filters(run: Run, operator: User, query: str, found: list[str]) -> None:
    assert named(rows(operator, f"{reverse(LIST)}?run__id__exact={run.pk}&{query}")) == found


def test_the_filtered_list_is_exported(run: Run, operator: User, colleague: User) -> None:
    url = f"{reverse('admin:fanout_runtarget_export')}?run__id__exact={run.pk}&result=replied"
    answer: Any = login(operator).get(url)
    table = list(csv.DictReader(io.StringIO(b"".join(answer.streaming_content).decode())))
    assert [line["name"] for line in table] == ["Replier", "Leaver"]
    assert [bool(line["opted_out_at"]) for line in table] == [False, True]
    assert TrailEntry.objects.filter(verb="exported", actor_name="mei").exists()
    assert login(colleague).get(url)["Location"] == reverse(LIST)


def test_a_target_opens_its_person_where_that_is_shared(run: Run, operator: User, viewer: User) -> None:
    target = RunTarget.objects.get(recipient__name="Reader")
    link = f"{reverse('admin:reminders_recipient_change', args=[target.recipient_id])}#timeline"
    url = f"{reverse(LIST)}?run__id__exact={run.pk}"
    assert link in rows(operator, url)
    assert link not in rows(viewer, url)
    assert "Reader" in rows(viewer, url)


def test_causes_are_offered_with_their_words(run: Run, operator: User) -> None:
    page = login(operator).get(f"{reverse(LIST)}?run__id__exact={run.pk}").content.decode()
    for group in error_groups(run):
        assert group["words"] in page


def test_an_erased_person_has_no_page(run: Run, operator: User) -> None:
    faceless = RecipientFactory.create(owner=operator, name="")
    Recipient.objects.filter(pk=faceless.pk).update(address="erased-9")
    RunTargetFactory.create(run=run, recipient=faceless, status="sent")
    assert reverse("admin:reminders_recipient_change", args=[faceless.pk]) not in rows(
        operator, f"{reverse(LIST)}?run__id__exact={run.pk}"
    )


def test_a_targets_own_page_is_in_words(run: Run, operator: User) -> None:
    """Its values are those of the lists, and no name of a database column is shown."""
    shown = {}
    for name in NAMES:
        target = run.targets.get(recipient__name=name)
        page = login(operator).get(reverse("admin:fanout_runtarget_change", args=[target.pk])).content.decode()
        shown[name] = page[page.index('id="runtarget_form"') :]
        assert f">{name}</a>" in shown[name]
        assert run.title in shown[name]
        for column in ("Part ids", "Claim epoch", "Latency ms", "Error kind", "In doubt"):
            assert column not in shown[name]
    assert "What came back" in shown["Reader"]
    assert "No such number" in shown["Gone"]


def test_why_a_target_was_left_out_is_said_in_words(run: Run, operator: User) -> None:
    target = run.targets.get(recipient__name="Skipped")
    RunTarget.objects.filter(pk=target.pk).update(error="cooldown_active_12h")
    assert "still in the cooldown" in rows(operator, f"{reverse(LIST)}?run__id__exact={run.pk}&status__exact=skipped")
    page = login(operator).get(reverse("admin:fanout_runtarget_change", args=[target.pk])).content.decode()
    assert "still in the cooldown" in page
    assert "cooldown_active" not in page
