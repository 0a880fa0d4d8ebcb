"""Single messages: accepted one by one, sent in runs, judged by the provider's book."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
import time_machine
from django.contrib.auth.models import Group
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.access import OPERATORS
from accounts.models import DailyLimit
from fanout.models import Notification, Run, RunTarget, SingleMessage, TrailEntry
from fanout.ops import tasks
from fanout.rules.gates import LATEST_PASSED
from fanout.runs import controls, message_2, single_messages
from fanout.runs.erasing import erase
from reminders import erasure
from reminders.models import Recipient, Suppression
from tests.api.conftest import Api
from tests.engine.stage import MONDAY, FarAwayTransport, Stage
from tests.factories import AccountFactory, RecipientFactory, UserFactory

GROUP = 120363025246125400


def address(n: int) -> str:
    return f"{GROUP + n}@g.us"


@pytest.fixture
def api(stage: Stage) -> Iterator[Api]:
    stage.user.groups.add(Group.objects.get(name=OPERATORS))
    with time_machine.travel(MONDAY, tick=False):
        yield Api(stage.user)


def collect(now: datetime) -> None:
    assert single_messages.collect(now, seconds=30)


SAID: list[tuple[str, str]] = []


@pytest.fixture(autouse=True)
def said(monkeypatch: Any) -> None:
    """The texts that the provider was called with; its book has the addresses."""
    SAID.clear()
    send = FarAwayTransport.send

    async def noted(self: Any, to: str, part: Any, message_id: str) -> Any:
        outcome = await send(self, to, part, message_id)
        SAID.append((to, part.text))
        return outcome

    monkeypatch.setattr(FarAwayTransport, "send", noted)


def texts(stage: Stage) -> list[tuple[str, str]]:
    assert sorted(to for to, _ in SAID) == sorted(one.to for one in stage.book.deliveries())
    return SAID


def test_many_messages_with_texts_of_their_own_share_a_run(stage, api):
    account = stage.account(label="Shop")
    wish = {"account": account.pk}
    ids = [api.post("/messages", wish | {"address": address(n), "text": f"Order {n} {{ok}}"}) for n in range(30)]
    assert {answer.status_code for answer in ids} == {202}
    assert ids[0].json()["status"] == "accepted"
    collect(MONDAY)
    run = Run.objects.get()
    assert (run.total, run.pending, run.status) == (30, 30, "queued")
    stage.play()
    assert sorted(texts(stage)) == sorted((address(n), f"Order {n} {{ok}}") for n in range(30))
    run.refresh_from_db()
    assert (run.status, run.sent) == ("success", 30)
    assert not Notification.objects.exists(), "not one after every message"
    message = api.get(f"/messages/{ids[0].json()['id']}").json()
    assert (message["status"], message["run"]) == ("sent", run.pk)
    assert SingleMessage.objects.filter(parts=[], values__isnull=True).count() == 30, "the texts are in the run only"

    # A message of the same hour joins the run again, and a second one to the same person gets another run.
    with time_machine.travel(stage.now, tick=False):
        api.post("/messages", wish | {"address": address(40), "text": "late"})
        api.post("/messages", wish | {"address": address(1), "text": "again"})
    collect(stage.now)
    stage.play()
    assert Run.objects.count() == 2
    assert [text for _, text in texts(stage)[30:]] in (["late", "again"], ["again", "late"])
    assert not stage.book.duplicates("message_id")


def test_the_audit_trail_names_the_token_of_a_run(stage, api):
    wish = {"account": stage.account().pk, "text": "Hello"}
    shop = Api(api.user, name="shop")
    for n, caller in enumerate((api, shop, api)):
        caller.post("/messages", wish | {"address": address(n)})
    collect(MONDAY)
    assert sorted(Run.objects.values_list("total", flat=True)) == [1, 2]
    names = {
        entry.actor_name: Run.objects.get(pk=entry.subject_id).total
        for entry in TrailEntry.objects.filter(verb="fired")
    }
    person = api.user.get_username()
    assert names == {f"{person} (token n8n)": 2, f"{person} (token shop)": 1}


def test_a_message_does_not_join_an_archived_run(stage, api):
    wish = {"account": stage.account().pk, "text": "Hello"}
    for n in range(2):
        api.post("/messages", wish | {"address": address(n)})
        collect(MONDAY)
        Run.objects.update(archived=True)
    assert list(Run.objects.values_list("total", flat=True)) == [1, 1]


def test_messages_with_the_same_parts_and_values_share_a_run(stage, api):
    account = stage.account()
    parts = [{"text": "Dear {first_name|customer}, order {order} is {state|ready}."}, {"text": "Thank you!"}]
    for n in range(3):
        wish = {"account": account.pk, "address": address(n), "parts": parts, "values": {"Order": str(n)}}
        assert api.post("/messages", wish).status_code == 202
    lacking = api.post("/messages", {"account": account.pk, "address": address(9), "parts": parts})
    assert lacking.status_code == 422
    assert "{order}" in lacking.json()["detail"]
    collect(MONDAY)
    stage.play()
    assert Run.objects.get().sent == 3
    said = [text for to, text in texts(stage) if to == address(2)]
    assert said == ["Dear customer, order 2 is ready.", "Thank you!"]


@pytest.mark.parametrize(
    ("part", "says"),
    [
        pytest.param({}, "Part 1 needs a text", id="empty"),
        pytest.param({"text": " \n"}, "Part 1 needs a text", id="blank"),
        pytest.param({"text": "Order {order is ready, {name}"}, "In part 1: Line 1 has a single “{”", id="malformed"),
        pytest.param({"text": "Dear {{name}}"}, "write {name} with one brace", id="doubled"),
        pytest.param({"text": "Order {{order}}"}, "write {order} with one brace", id="doubled value"),
        pytest.param({"text": "Dear", "html": "<b>{{name}}</b>"}, "In the HTML of part 1", id="html"),
    ],
)
def test_parts_are_checked_as_those_of_reminders(stage, api, part, says):
    wish = {"account": stage.account().pk, "address": address(1), "parts": [part], "values": {"order": "12"}}
    answer = api.post("/messages", wish)
    assert answer.status_code == 422, answer.content
    assert says in answer.json()["detail"]
    assert [one["field"] for one in answer.json()["errors"]] == ["parts"]


def test_a_message_waits_for_its_time_and_its_window_and_expires(stage, api):
    account = stage.account()
    thursday = MONDAY + timedelta(days=3)
    wish = {"account": account.pk, "window": {"start_hour": 8, "end_hour": 18}, "text": "Your visit"}
    api.post("/messages", wish | {"address": address(1), "earliest": (thursday + timedelta(minutes=20)).isoformat()})
    api.post("/messages", wish | {"address": address(2), "latest": (MONDAY + timedelta(minutes=5)).isoformat()})
    night = MONDAY.replace(hour=3) + timedelta(days=1)
    api.post("/messages", wish | {"address": address(3), "earliest": night.isoformat()})
    collect(MONDAY + timedelta(minutes=6))
    message_2.skip_expired(MONDAY + timedelta(minutes=6))
    stage.now = MONDAY + timedelta(minutes=6)
    for begins in (stage.now, night, night.replace(hour=7, minute=59, second=50), thursday + timedelta(minutes=19)):
        stage.now = begins
        stage.play(seconds=100)
    went_out = RunTarget.objects.filter(status="sent", settled_at__isnull=False)
    sent = {target.address: target.settled_at for target in went_out if target.settled_at}
    assert set(sent) == {address(1), address(3)}
    assert thursday + timedelta(minutes=20) <= sent[address(1)] < thursday + timedelta(minutes=22)
    assert sent[address(3)].hour == 8, "at the opening after three in the night"
    late = RunTarget.objects.get(address=address(2))
    assert (late.status, late.error) == ("skipped", LATEST_PASSED)


def test_a_lane_that_comes_too_late_says_so(stage, api):
    wish = {"account": stage.account().pk, "address": address(1), "text": "Your visit"}
    message = api.post("/messages", wish | {"latest": (MONDAY + timedelta(minutes=5)).isoformat()}).json()["id"]
    collect(MONDAY)
    stage.now = MONDAY + timedelta(minutes=6)
    stage.play()
    assert texts(stage) == []
    assert api.get(f"/messages/{message}").json()["problem"] == LATEST_PASSED


def test_a_message_for_later_does_not_keep_back_one_for_now(stage, api):
    account = stage.account()
    later = (MONDAY + timedelta(hours=8)).isoformat()
    api.post("/messages", {"account": account.pk, "address": address(1), "text": "tonight", "earliest": later})
    api.post("/messages", {"account": account.pk, "address": address(1), "text": "now"})
    collect(MONDAY)
    stage.play(seconds=60)
    assert [text for _, text in texts(stage)] == ["now"]


def test_a_team_sends_through_one_of_its_accounts_and_always_the_same_to_one_person(stage, api):
    team = Group.objects.create(name="shop")
    api.user.groups.add(team)
    for n in range(3):
        stage.account(label=f"shop {n}", team=team)
    chosen = set()
    for n in range(12):
        wish = {"team": team.pk, "address": address(n % 6), "text": f"text {n}"}
        chosen.add((n % 6, api.post("/messages", wish).json()["account"]))
    assert len(chosen) == 6
    assert len({account for _, account in chosen}) == 3
    team.user_set.clear()
    assert api.post("/messages", {"team": team.pk, "address": address(1), "text": "x"}).status_code == 403


def test_what_is_refused_at_once(stage, api):
    account = stage.account()
    Suppression.objects.create(address=address(1), reason="manual")
    wish: dict[str, Any] = {"account": account.pk, "address": address(2), "text": "Hello"}

    def refused(**other: Any) -> str:
        answer = api.post("/messages", wish | other)
        assert answer.status_code == 422, answer.content
        return str(answer.json()["errors"][0]["field"])

    assert refused(address=address(1)) == "address"
    assert refused(address="nonsense") == "address"
    assert refused(text="") == "text"
    assert refused(team=1) == "account"
    assert refused(earliest="2026-01-05T10:00:00") == "earliest"
    assert refused(latest="2026-01-05T08:00:00Z") == "latest"
    assert refused(earliest="2036-01-05T08:00:00Z") == "earliest"
    assert refused(earliest="0001-01-01T00:00:00+14:00") == "earliest"
    assert refused(latest="9999-12-31T23:59:59-14:00") == "latest"
    assert refused(timezone="Europe/Berln") == "timezone"
    assert refused(window={"start_hour": 9, "end_hour": 8}) == "window"
    assert refused(text="x" * 70_000) == "text"
    stranger = AccountFactory.create()
    assert api.post("/messages", wish | {"account": stranger.pk}).status_code == 404
    assert not SingleMessage.objects.exists()


def test_stored_messages_that_cannot_be_used_are_refused_and_the_others_go_on(stage, api):
    """Such messages are the oldest here, so they are the first that the task comes to."""
    account = stage.account()
    wish = {"account": account.pk, "text": "Hello"}
    zone, time, good = (api.post("/messages", wish | {"address": address(n)}).json()["id"] for n in range(3))
    SingleMessage.objects.filter(pk=zone).update(timezone="Europe/Berln", key="other")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE fanout_singlemessage SET earliest = '0001-01-01 00:00+14' WHERE id = %s", [time])
    collect(MONDAY)
    stage.play()
    assert texts(stage) == [(address(2), "Hello")]
    assert api.get(f"/messages/{good}").json()["status"] == "sent"
    for pk in (zone, time):
        message = api.get(f"/messages/{pk}").json()
        assert (message["status"], message["problem"]) == ("refused", single_messages.UNUSABLE)


def test_a_group_that_fails_for_now_is_tried_again_and_the_others_go_on(stage, api, monkeypatch):
    account, later = stage.account(), stage.account()
    for n, sender in enumerate((later, account)):
        api.post("/messages", {"account": sender.pk, "text": "Hello", "address": address(n)})
    # As if another transaction had locked a row for longer than the task waits.
    real = single_messages._join

    def locked(run: Run, *args: Any) -> None:
        if run.account_id == later.pk:
            raise OperationalError("canceling statement due to lock timeout")
        real(run, *args)

    monkeypatch.setattr(single_messages, "_join", locked)
    collect(MONDAY)
    assert [run.account_id for run in Run.objects.all()] == [account.pk], "no run without its message"
    monkeypatch.setattr(single_messages, "_join", real)
    collect(MONDAY)
    assert sorted(Run.objects.values_list("account_id", "total")) == sorted([(account.pk, 1), (later.pk, 1)])
    assert not SingleMessage.objects.exclude(problem="").exists()


@pytest.mark.parametrize(
    ("hours", "cap", "reason"),
    [
        pytest.param({}, 1, "account_capacity", id="daily cap"),
        pytest.param({"hours_start": 7, "hours_end": 9}, 5, "account_hours", id="account's hours"),
    ],
)
def test_messages_go_on_by_themselves_after_a_limit_of_the_account(stage, api, hours, cap, reason):
    account = stage.account(**hours)
    DailyLimit.objects.update_or_create(account=account, action="message", defaults={"limit": cap})
    for n in range(2):
        api.post("/messages", {"account": account.pk, "address": address(n), "text": "Hello"})
    collect(MONDAY)
    stage.play()
    run = Run.objects.get()
    assert (run.status, run.pause_reason) == ("paused", reason)
    assert run.resume_at is not None
    assert run.resume_at.day == MONDAY.day + 1
    stage.now = run.resume_at
    assert controls.resume_due(stage.now) == 1
    stage.play()
    assert sorted(texts(stage)) == [(address(0), "Hello"), (address(1), "Hello")]


@pytest.mark.parametrize("shared", [False, True])
def test_a_message_costs_few_statements(stage, api, shared):
    team = Group.objects.create(name="shop") if shared else None
    if team:
        api.user.groups.add(team)
    account = stage.account(team=team)
    wish = {"account": account.pk, "text": "Hello"}
    api.post("/messages", wish | {"address": address(0)})
    for to in (address(1), address(1)):  # a new person, and one that is known
        with CaptureQueriesContext(connection) as asked:
            assert api.post("/messages", wish | {"address": to}, Idempotency_Key=f"{len(SAID)}").status_code == 202
        assert len(asked) <= 10, [query["sql"] for query in asked]
    assert set(SingleMessage.objects.values_list("team", flat=True)) == {team.pk if team else None}


def test_a_person_is_found_as_pages_find_them(stage, api):
    """Own recipients and those of the teams are used; others' are not, and get a row of the caller's own."""
    team = Group.objects.create(name="shop")
    api.user.groups.add(team)
    other = UserFactory.create()
    shared = RecipientFactory.create(owner=other, team=team, address=address(1), kind="group")
    theirs = RecipientFactory.create(owner=other, address=address(2), kind="group")
    hidden = RecipientFactory.create(owner=api.user, address=address(3), kind="group", archived=True)
    account = stage.account(team=team)

    def recipient(caller: Api, n: int) -> int:
        answer = caller.post("/messages", {"account": account.pk, "address": address(n), "text": "Hello"})
        assert answer.status_code == 202, answer.content
        return int(answer.json()["recipient"])

    assert recipient(api, 1) == shared.pk
    assert recipient(api, 2) == Recipient.objects.get(owner=api.user, address=address(2)).pk != theirs.pk
    for_team = Api(api.user, team=team)
    assert recipient(for_team, 1) == shared.pk
    refused = for_team.post("/messages", {"account": account.pk, "address": address(3), "text": "Hello"})
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "address")
    hidden.refresh_from_db()
    assert hidden.archived
    assert Recipient.objects.get(pk=recipient(for_team, 4)).team == team
    erasure.remember(address(5), timezone.now())
    answer = api.post("/messages", {"account": account.pk, "address": address(5), "text": "Hello"})
    assert answer.json()["detail"] == erasure.REFUSED


def test_a_repeated_call_sends_nothing_twice(stage, api):
    account = stage.account()
    wish = {"account": account.pk, "address": address(1), "text": "Hello"}
    for _ in range(3):
        api.post("/messages", wish, Idempotency_Key="order-1")
    collect(MONDAY)
    stage.play()
    assert len(texts(stage)) == 1


def test_canceling(stage, api):
    account = stage.account()
    wish = {"account": account.pk, "text": "Hello"}
    first, second = (api.post("/messages", wish | {"address": address(n)}).json()["id"] for n in range(2))
    assert api.post(f"/messages/{first}/cancel").json()["message"]["status"] == "refused"
    collect(MONDAY)
    assert api.post(f"/messages/{second}/cancel").json()["message"]["status"] == "skipped"
    assert api.post(f"/messages/{second}/cancel").status_code == 409
    trail = TrailEntry.objects.order_by("pk").values_list("verb", "kind", "subject_id")
    assert list(trail) == [
        ("canceled", "singlemessage", str(first)),
        ("fired", "run", str(Run.objects.get().pk)),
        ("canceled", "singlemessage", str(second)),
    ]
    stage.play()
    assert texts(stage) == []


def test_an_opt_out_between_call_and_sending_is_honoured(stage, api):
    account = stage.account()
    api.post("/messages", {"account": account.pk, "address": address(1), "text": "Hello"})
    collect(MONDAY)
    Suppression.objects.create(address=address(1), reason="opted_out")
    stage.play()
    assert texts(stage) == []
    assert RunTarget.objects.get().status == "skipped"


def test_erasing_a_person_takes_messages_along(stage, api):
    account = stage.account()
    api.post("/messages", {"account": account.pk, "address": address(1), "text": "Hello"})
    assert erase(address(1), None, timezone.now()).ok
    assert not SingleMessage.objects.exists()
    assert not Recipient.objects.filter(address=address(1)).exists()


def test_the_task_runs_once_for_many_messages_and_is_not_lost(stage, api, monkeypatch):
    account, begun = stage.account(), []
    monkeypatch.setattr(single_messages, "async_task", lambda *words, **more: begun.append(words))
    for n in range(5):
        api.post("/messages", {"account": account.pk, "address": address(n), "text": "Hello"})
    assert len(begun) == 1
    tasks.go_on_collecting(timezone.now())
    assert len(begun) == 2
    tasks.collect_messages()
    assert Run.objects.get().total == 5
    api.post("/messages", {"account": account.pk, "address": address(5), "text": "Hello"})
    assert len(begun) == 3  # the earlier ones are in a run
    tasks.collect_messages()
    with time_machine.travel(MONDAY + timedelta(days=31), tick=False):
        tasks.hygiene()
    assert not SingleMessage.objects.exists()
