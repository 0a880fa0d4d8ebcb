"""Replies, results, the calendar and segments against a colleague who changes addresses or conditions, two who click at
once, and texts of 100 KB."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.urls import reverse
from django.utils import timezone

from accounts.models import Account
from fanout.inbound import reply_inbox
from fanout.models import InboundEvent, RunTarget, TrailEntry
from fanout.plans.audience import audience, segment_members
from fanout.runs import controls
from reminders.models import Recipient, Reminder, Segment
from tests.admin.conftest import colleague, login, member, operator, team, viewer  # noqa: F401 fixtures
from tests.factories import AccountFactory, RecipientFactory, ReminderFactory
from tests.inbound.test_reply_inbox import account, replied  # noqa: F401 a fixture

pytestmark = pytest.mark.django_db
LONG = "x" * 100_000


def body(answer: Any) -> str:
    parts = answer.streaming_content if answer.streaming else [answer.content]
    return b"".join(parts).decode()


def test_filters_open_nothing_of_others(account: Account, colleague: User, team: Group) -> None:  # noqa: F811
    replied(account, text="a secret answer")
    target = RunTarget.objects.get()
    Account.objects.update(label="Secret line")
    run, secrets = target.run_id, ("a secret answer", "Secret line", target.run.title, target.address)
    pages: list[tuple[str, dict[str, Any]]] = [
        (reverse("admin:replies"), {"state": "all", "account": account.pk}),
        (reverse("admin:replies"), {"state": "all", "team": team.pk}),
        (reverse("admin:replies"), {"state": "all", "run": run}),
        (reverse("admin:replies"), {"state": "all", "person": target.address}),
        (reverse("admin:results"), {"account": account.pk, "reminder": target.run.reminder_id}),
        (reverse("admin:results"), {"account": account.pk, "csv": 1}),
        (reverse("admin:results_compare"), {"a": run, "b": run}),
        (reverse("admin:calendar"), {"account": account.pk}),
        (reverse("admin:calendar"), {"account": account.pk, "view": "month"}),
        (reverse("admin:fanout_runtarget_changelist"), {"run__id__exact": run, "result": "replied"}),
    ]
    client = login(colleague)
    for page, asked in pages:
        answer = client.get(page, asked)
        assert answer.status_code == 200, (page, asked)
        # What was typed may be repeated in its own field.
        shown = body(answer).replace(f'value="{target.address}"', "")
        assert not [secret for secret in secrets if secret in shown], (page, asked)
        if "csv" in asked:
            assert not any(set(line.split(",")[1:]) - {"0"} for line in shown.splitlines()[1:])
    assert client.get(reverse("admin:fanout_run_export", args=[run])).status_code == 404


def test_a_segment_reaches_no_one_by_the_tags_of_another_team(operator: User, colleague: User) -> None:  # noqa: F811
    RecipientFactory.create(owner=operator, tags=["board"], fields={"city": "Penang"})
    for conditions in ({"tags": ["board"]}, {"without_tags": ["x"]}, {"fields": [["city", "=", "Penang"]]}):
        theirs = Segment(owner=colleague, name="Theirs", **conditions)
        assert not segment_members(theirs, colleague, timezone.now()).exists()


def test_conditions_that_are_tried_out_tell_nothing_about_the_owners_other_recipients(
    operator: User,  # noqa: F811
    viewer: User,  # noqa: F811
    team: Group,  # noqa: F811
) -> None:
    jonas = member("jonas", "operators")
    jonas.groups.add(team)
    RecipientFactory.create(owner=operator, tags=["board"])
    RecipientFactory.create(owner=operator, tags=["board"], team=team)
    shared = Segment.objects.create(owner=operator, team=team, name="Board", tags=["board"])
    count, asked = reverse("admin:reminders_segment_count"), {"segment": shared.pk, "tags": "board", "fields": ""}
    for user, members in ((operator, "2 groups now"), (jonas, "1 group now"), (viewer, "1 group now")):
        assert login(user).post(count, asked).json()["members"].startswith(members)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", reply_inbox.CONTROLS)
def test_two_who_click_at_once_are_one(name: str) -> None:
    mei = member("mei", "operators")
    event = replied(AccountFactory.create(owner=mei))
    if name == "open":
        InboundEvent.objects.update(handled_at=timezone.now())
    answers: list[bool] = []
    ready = threading.Barrier(2)

    def click() -> None:
        try:
            mine = InboundEvent.objects.select_related("account").get(pk=event.pk)
            ready.wait()
            answers.append(reply_inbox.CONTROLS[name](mine, mei, timezone.now()).ok)
        finally:
            connection.close()

    clicks = [threading.Thread(target=click) for _ in range(2)]
    for one in clicks:
        one.start()
    for one in clicks:
        one.join(60)
    assert sorted(answers) == [False, True]
    assert TrailEntry.objects.count() == 1


def test_long_texts(account: Account, operator: User) -> None:  # noqa: F811
    replied(account, text=LONG)
    Recipient.objects.update(name=LONG[:200])
    client = login(operator)
    page = body(client.get(reverse("admin:replies")))
    assert LONG[:2_000] in page
    assert LONG[:2_001] not in page
    person = Recipient.objects.get()
    assert LONG[:2_001] not in body(client.get(reverse("admin:reminders_recipient_change", args=[person.pk])))
    for page in ("admin:replies", "admin:results", "admin:calendar", "admin:results_compare"):
        asked = dict.fromkeys(("person", "account", "team", "run", "reminder", "day", "weeks", "a", "before"), LONG)
        assert client.get(reverse(page), asked).status_code == 200
    values = {"name": "Long", "tags": LONG, "fields": f"city = {LONG}", "owner": operator.pk}
    answer = client.post(reverse("admin:reminders_segment_add"), values)
    assert answer.status_code == 200
    assert not Segment.objects.exists()


@pytest.mark.parametrize("whose", ["the owner's, changed", "the colleague's"])
def test_a_shared_reminder_brings_a_colleague_no_private_recipients(
    operator: User,  # noqa: F811
    team: Group,  # noqa: F811
    whose: str,
) -> None:
    """Conditions that a colleague writes are evaluated when the owner's reminder fires, whose run the team reads."""
    jonas = member("jonas", "operators")
    jonas.groups.add(team)
    shared: dict[str, Any] = {"owner": operator, "team": team}
    RecipientFactory.create(owner=operator, address="+60120000001", kind="person", name="Secret", tags=["vip"])
    ann = RecipientFactory.create(**shared, address="+60120000002", kind="person", name="Ann", tags=["vip"])
    segment = Segment.objects.create(owner=operator, team=team, name="Board", tags=["board"])
    reminder = ReminderFactory.create(**shared, account=AccountFactory.create(**shared), segment=segment)
    if whose == "the colleague's":
        segment = Segment.objects.create(owner=jonas, team=team, name="Mine", tags=["vip"])
        Reminder.objects.update(segment=segment)
    else:
        change = reverse("admin:reminders_segment_change", args=[segment.pk])
        login(jonas).post(change, {"name": "Board", "tags": "vip", "without_tags": "", "fields": ""})
        assert Segment.objects.get().tags == ["vip"]
    reminder, now = Reminder.objects.get(), timezone.now()
    assert list(audience(reminder, now)) == [ann]
    run = controls.fire(reminder, jonas, now).run
    assert run is not None
    assert list(run.targets.values_list("address", flat=True)) == [ann.address]
    page = reverse("admin:fanout_runtarget_changelist")
    assert "Secret" not in body(login(jonas).get(page, {"run__id__exact": run.pk}))
    Reminder.objects.update(team=None)
    assert audience(Reminder.objects.get(), now).count() == 2, "the run would be the owner's alone"
