"""Webhooks out: written by triggers, signed, in order per run, tried again for a day, with a log."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
import threading
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.urls import reverse
from django.utils import timezone

from accounts.access import give_role
from fanout.models import InboundEvent, Notification, Run, RunTarget, WebhookDelivery, WebhookEndpoint, WebhookEvent
from fanout.ops import webhooks
from fanout.runs import controls
from tests.admin.conftest import login
from tests.engine.stage import fresh
from tests.factories import AccountFactory, InboundEventFactory, RunFactory
from tests.inbound.people import remind, say
from tests.reads import handled_by

pytestmark = pytest.mark.django_db
OK, NO = b"HTTP/1.1 204 No Content\r\n\r\n", b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"
ALL = list(WebhookEndpoint.Kind.values)


class Hook:
    """A server that gives the same answer to every request, and keeps the requests."""

    def __init__(self, answer: bytes) -> None:
        self.answer, self.posted = answer, list[bytes]()
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listening.getsockname()[1]}/x"

    def __enter__(self) -> Hook:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                visitor, _ = self.listening.accept()
                with visitor:
                    visitor.settimeout(0.3)
                    with suppress(TimeoutError):
                        self.posted.append(visitor.recv(65536))
                        self.posted[-1] += visitor.recv(65536)
                    visitor.sendall(self.answer)

    def __exit__(self, *args: object) -> None:
        self.listening.close()


def endpoint(owner: Any, url: str, **facts: Any) -> WebhookEndpoint:
    row = WebhookEndpoint.objects.create(**{"owner": owner, "url": url, "kinds": ALL} | facts)
    webhooks.rotate(row, timezone.now())
    return row


def requests(hook: Hook) -> list[tuple[dict[str, str], bytes]]:
    found = []
    for raw in hook.posted:
        head, _, body = raw.partition(b"\r\n\r\n")
        lines = (line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
        found.append(({name.lower(): value for name, value in lines}, body))
    return found


def told(hook: Hook) -> list[str]:
    return [json.loads(body)["type"] for _, body in requests(hook)]


def until_quiet(now: Any = None) -> None:
    while webhooks.step(now or timezone.now()):
        pass


def verified(secret: str, headers: dict[str, str], body: bytes) -> bool:
    """As the specification says, written anew."""
    key = base64.b64decode(secret.split("_", 1)[1])
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    wanted = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return f"v1,{wanted}" in headers["webhook-signature"].split(" ")


def test_a_run_is_told_in_order_and_verifies(operator):
    run = RunFactory.create(reminder__account__owner=operator, status="queued", targets={"pending": 2})
    with Hook(OK) as hook:
        row = endpoint(operator, hook.url)
        Run.objects.filter(pk=run.pk).update(status="running", first_attempt_at=timezone.now())
        controls.pause(run, operator, timezone.now())
        controls.cancel(run, operator, timezone.now())
        until_quiet()
    assert told(hook) == ["run.started", "run.paused", "run.finished"]
    for headers, body in requests(hook):
        assert verified(row.secrets["current"], headers, body)
        assert not verified(webhooks.new_secret(), headers, body)
    paused = json.loads(requests(hook)[1][1])
    assert paused["data"]["run"] == run.pk
    assert (paused["data"]["status"], paused["data"]["total"]) == ("paused", 2)
    assert run.title in paused["text"]
    assert not WebhookEvent.objects.exists()


def kinds_of(run: Run) -> list[str]:
    return list(WebhookEvent.objects.filter(run_id=run.pk).order_by("pk").values_list("kind", flat=True))


def test_a_run_that_waits_first_is_told_at_its_first_attempt_and_not_again_after_a_pause(stage):
    account = stage.account(hours_start=10, hours_end=18, max_send_per_minute=20)
    endpoint(stage.user, "http://127.0.0.1:9/x")
    run = stage.fire(stage.reminder(account, groups=60))
    stage.play(600)
    assert fresh(run).status == Run.Status.WAITING
    assert kinds_of(run) == []
    stage.play(3600 - 600 + 60)
    assert fresh(run).status == Run.Status.RUNNING
    assert kinds_of(run) == ["run.started"]
    controls.pause(run, stage.user, stage.now)
    stage.play(60)
    assert controls.resume(run, stage.user, stage.now).ok
    stage.play(600)
    assert fresh(run).status == Run.Status.SUCCESS
    assert len(stage.book.deliveries()) == 60
    assert kinds_of(run) == ["run.started", "run.paused", "run.finished"]
    assert WebhookEvent.objects.get(kind="run.started").facts["status"] == "running"


def test_a_run_that_collects_single_messages_tells_only_that_it_is_paused(stage):
    endpoint(stage.user, "http://127.0.0.1:9/x")
    reminder = stage.reminder(stage.account(max_send_per_minute=20), groups=40)
    run = stage.fire(reminder)
    Run.objects.filter(pk=run.pk).update(collects="single messages")
    stage.play(30)
    controls.pause(run, stage.user, stage.now)
    assert controls.resume(run, stage.user, stage.now).ok
    stage.play(600)
    assert fresh(run).status == Run.Status.SUCCESS
    assert kinds_of(run) == ["run.paused"]


def test_message_2_tells_neither_that_it_starts_nor_that_it_ends(stage):
    """It does both with every reply: the replies are told."""
    give_role(stage.user, "operator", [])
    run = stage.fire(remind(stage, stage.account(), people=2))
    stage.play()
    endpoint(stage.user, "http://127.0.0.1:9/x")
    for n in range(2):
        say(run.account, n, stage.now)
        stage.play()
    answers = run.message_2.get()
    assert answers.sent == 2
    assert kinds_of(answers) == ["run.started", "run.finished", "run.finished"]
    Run.objects.filter(pk=answers.pk).update(status="paused", pause_reason="operator")
    assert webhooks.fan_out(stage.now) == 4
    assert list(WebhookDelivery.objects.values_list("kind", flat=True)) == ["run.paused"]
    assert not WebhookEvent.objects.exists()


def test_a_start_that_is_told_late_says_nothing_of_what_came_after(operator):
    run = RunFactory.create(reminder__account__owner=operator, status="queued", targets={"pending": 2})
    endpoint(operator, "http://127.0.0.1:9/x")
    Run.objects.filter(pk=run.pk).update(status="running", first_attempt_at=timezone.now())
    controls.pause(run, operator, timezone.now())
    webhooks.fan_out(timezone.now())
    started, paused = (one.payload for one in WebhookDelivery.objects.order_by("pk"))
    assert (started["text"], started["data"]["summary"]) == (f"{run.title}: running.", "")
    assert paused["data"]["summary"] == fresh(run).error_summary
    assert "Paused by" in paused["text"]


def test_targets_replies_opt_outs_and_accounts(operator):
    run = RunFactory.create(reminder__account__owner=operator, status="running", targets={"sending": 2})
    with Hook(OK) as hook:
        endpoint(operator, hook.url)
        first, second = run.targets.order_by("pk")
        RunTarget.objects.filter(pk=first.pk).update(status="failed", error="no such number", error_kind="recipient")
        RunTarget.objects.filter(pk=second.pk).update(status="unconfirmed")
        for opts_out, words in ((False, "yes"), (True, "stop")):
            event = InboundEventFactory.create(
                account=run.account, kind="reply", address="+4915112345678", words={"text": words}, opts_out=opts_out
            )
            InboundEvent.objects.filter(pk=event.pk).update(state="new")
            InboundEvent.objects.filter(pk=event.pk).update(state="done")
        run.account.status, run.account.status_reason = "suspended", "banned"
        run.account.save(update_fields=["status", "status_reason"])
        until_quiet()
    said = {json.loads(body)["type"]: json.loads(body) for _, body in requests(hook)}
    assert set(said) >= {"target.failed", "target.unconfirmed", "reply", "opt_out", "account.suspended"}
    assert said["target.failed"]["data"]["error"] == "no such number"
    assert said["reply"]["data"]["message"] == "yes"
    assert said["opt_out"]["data"]["address"] == "+4915112345678"
    assert said["account.suspended"]["data"]["reason"] == "banned"


def says(run: Run, words: str, target: RunTarget | None = None) -> None:
    event = InboundEventFactory.create(
        account=run.account, kind="reply", words={"text": words}, run_target_id=target.pk if target else None
    )
    InboundEvent.objects.filter(pk=event.pk).update(state="new")
    InboundEvent.objects.filter(pk=event.pk).update(state="done")


def test_a_reply_goes_in_order_with_its_run_and_holds_back_no_other_of_its_account(operator):
    account = AccountFactory.create(owner=operator)
    targets = {"sent": 1, "pending": 1}
    runs = [RunFactory.create(reminder__account=account, status="running", targets=targets) for _ in range(2)]
    endpoint(operator, "http://127.0.0.1:9/x")
    for run in runs:
        says(run, "yes", run.targets.get(status="sent"))
        controls.pause(run, operator, timezone.now())
    says(runs[0], "hello")
    webhooks.fan_out(timezone.now())
    subjects = list(WebhookDelivery.objects.order_by("pk").values_list("kind", "subject"))
    of_runs = [(kind, f"run {run.pk}") for run in runs for kind in ("reply", "run.paused")]
    assert subjects == [*of_runs, ("reply", f"account {runs[0].account_id}")]


def test_endpoints_get_only_what_is_theirs_and_wanted(operator, colleague, team):
    shared = RunFactory.create(reminder__account__owner=operator, team=team, status="running", targets={"pending": 1})
    with Hook(OK) as mine, Hook(OK) as theirs, Hook(OK) as teams, Hook(OK) as other:
        endpoint(operator, mine.url)
        endpoint(colleague, theirs.url)
        endpoint(operator, teams.url, team=team)
        endpoint(operator, other.url, kinds=["reply"])
        controls.pause(shared, operator, timezone.now())
        until_quiet()
    assert [told(hook) for hook in (mine, theirs, teams, other)] == [["run.paused"], [], ["run.paused"], []]


def test_who_has_left_the_team_gets_nothing_more(operator, colleague, team):
    for person in (operator, colleague):
        person.groups.add(team)
    with Hook(OK) as hook:
        mine = endpoint(operator, hook.url, team=team)
        account = AccountFactory.create(owner=colleague, team=team)
        run = RunFactory.create(owner=colleague, team=team, account=account)
        Run.objects.filter(pk=run.pk).update(status="running", first_attempt_at=timezone.now())
        until_quiet()
        assert told(hook) == ["run.started"]
        operator.groups.remove(team)
        Run.objects.filter(pk=run.pk).update(status="paused", pause_reason="operator")
        until_quiet()
        assert told(hook) == ["run.started"]
        mine.refresh_from_db()
        assert not mine.enabled
        assert "is no longer in the team" in mine.problem


@pytest.mark.parametrize("lost", ["role", "login"])
def test_who_lost_the_role_or_the_login_gets_nothing_more(operator, lost):
    with Hook(OK) as hook:
        mine = endpoint(operator, hook.url)
        run = RunFactory.create(reminder__account__owner=operator, status="running", targets={"pending": 1})
        if lost == "role":
            operator.groups.clear()
        else:
            User.objects.filter(pk=operator.pk).update(is_staff=False)
        Run.objects.filter(pk=run.pk).update(status="paused", pause_reason="operator")
        until_quiet()
        assert told(hook) == []
        mine.refresh_from_db()
        assert not mine.enabled
        assert "may not use webhooks any more" in mine.problem


def test_nothing_is_written_where_no_endpoint_wants_it(operator):
    run = RunFactory.create(reminder__account__owner=operator, status="running", targets={"pending": 1})
    controls.pause(run, operator, timezone.now())
    assert not WebhookEvent.objects.exists()


def test_one_that_is_not_taken_holds_back_the_rest_of_its_run_and_is_repeated_with_its_id(operator):
    run = RunFactory.create(reminder__account__owner=operator, status="running", targets={"pending": 1})
    other = RunFactory.create(reminder__account__owner=operator, status="running", targets={"pending": 1})
    now = timezone.now()
    with Hook(NO) as hook:
        endpoint(operator, hook.url)
        controls.pause(run, operator, now)
        controls.cancel(run, operator, now)
        controls.pause(other, operator, now)
        until_quiet(now)
        assert told(hook) == ["run.paused", "run.paused"], "one per run"
        hook.answer = OK
        until_quiet(now + timedelta(seconds=1))
        assert len(hook.posted) == 2, "not before its time"
        until_quiet(now + timedelta(seconds=6))
    first, _, *later = requests(hook)
    assert [json.loads(body)["type"] for _, body in later].count("run.finished") == 1
    assert first[0]["webhook-id"] in {headers["webhook-id"] for headers, _ in later}
    assert set(WebhookDelivery.objects.values_list("state", flat=True)) == {"delivered"}


def pending(row: WebhookEndpoint, subjects: int, each: int = 1, **facts: Any) -> None:
    plain = {"endpoint": row, "kind": "reply", "payload": {}, "created_at": timezone.now()} | facts
    WebhookDelivery.objects.bulk_create(
        WebhookDelivery(message_id=f"{row.pk} {n}", subject=f"run {n % subjects}", **plain)
        for n in range(subjects * each)
    )


def test_an_endpoint_with_very_many_subjects_leaves_the_others_their_turns(operator):
    busy, other = (endpoint(operator, f"http://127.0.0.1:9/{n}") for n in range(2))
    now = timezone.now()
    pending(busy, 1_100, created_at=now - timedelta(hours=1))
    pending(other, 1, each=2, created_at=now, attempts=1, next_attempt_at=now)
    with webhooks.Poster() as poster:
        poster.start(now + timedelta(seconds=1))
        chosen = [(one.endpoint, one.message_id) for one in poster.under_way.values()]
        while poster.under_way:
            poster.record(webhooks.TIMEOUT, now)
    assert sorted(row.pk for row, _ in chosen) == [busy.pk] * webhooks.EACH + [other.pk]
    assert (other, f"{other.pk} 0") in chosen


def one_look(now: Any, poster: webhooks.Poster) -> list[str]:
    """Return the subjects that a search for due deliveries chose, after their answers were stored."""
    poster.start(now)
    chosen = [one.subject for one in poster.under_way.values()]
    while poster.under_way:
        poster.record(webhooks.TIMEOUT, now)
    return chosen


def test_a_due_delivery_is_found_behind_more_waiting_ones_than_one_search_looks_at(operator, monkeypatch):
    monkeypatch.setattr(webhooks, "LOOKS", 3)
    row, now = endpoint(operator, "http://127.0.0.1:9/x"), timezone.now()
    pending(row, 8, created_at=now, next_attempt_at=now + timedelta(hours=1))
    WebhookDelivery.objects.filter(subject="run 7").update(next_attempt_at=None)
    with webhooks.Poster() as poster:
        assert [one_look(now, poster) for _ in range(4)] == [[], [], ["run 7"], []]


def test_subjects_take_turns(operator, monkeypatch):
    """Also where the first ones always have something to send."""
    monkeypatch.setattr(webhooks, "EACH", 2)
    now = timezone.now()
    with Hook(OK) as hook, webhooks.Poster() as poster:
        pending(endpoint(operator, hook.url), 5, each=3, created_at=now)
        looks = [sorted(one_look(now, poster)) for _ in range(8)]
    chosen = [subject for look in looks for subject in look]
    assert looks[:3] == [["run 0", "run 1"], ["run 2", "run 3"], ["run 0", "run 4"]]
    assert sorted(chosen) == sorted([f"run {n}" for n in range(5)] * 3)


@pytest.mark.parametrize("subjects", [1, 3_000])
def test_a_search_among_many_pending_deliveries_reads_few(operator, subjects):
    row, now = endpoint(operator, "http://127.0.0.1:9/x"), timezone.now()
    pending(row, subjects, each=6_000 // subjects, created_at=now)
    limits: dict[str, Any] = {"now": now, "busy": [], "full": [], "after": "{}"}
    limits |= {"each": webhooks.EACH, "looks": webhooks.LOOKS}
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE fanout_webhookdelivery")
        cursor.execute(webhooks.NEXT, limits)
        assert len(cursor.fetchall()) == min(subjects, webhooks.EACH)
        cursor.execute(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {webhooks.NEXT}", limits)
        assert handled_by(cursor) < 100


def test_two_secrets_are_valid_while_they_are_rotated(operator):
    run = RunFactory.create(reminder__account__owner=operator, status="running", targets={"pending": 1})
    with Hook(OK) as hook:
        row = endpoint(operator, hook.url)
        old, new = row.secrets["current"], webhooks.rotate(row, timezone.now())
        controls.pause(run, operator, timezone.now())
        until_quiet()
        ((headers, body),) = requests(hook)
        assert verified(old, headers, body)
        assert verified(new, headers, body)
        hook.posted.clear()
        webhooks.resend([WebhookDelivery.objects.get()], None, timezone.now())
        until_quiet(timezone.now() + timedelta(hours=25))
        ((headers, body),) = requests(hook)
        assert not verified(old, headers, body)
        assert verified(new, headers, body)


def test_the_old_secret_ends_at_its_moment(operator):
    row, now = endpoint(operator, "https://hook.example.com/"), timezone.now()
    webhooks.rotate(row, now)
    row.refresh_from_db()
    until = row.previous_until
    assert until is not None
    signatures = [
        webhooks.headers(row, "m", b"", at)["webhook-signature"] for at in (until - timedelta(seconds=1), until)
    ]
    assert [len(found.split()) for found in signatures] == [2, 1]


def test_endpoints_of_leavers_are_switched_off_without_an_event(operator):
    row = endpoint(operator, "https://hook.example.com/")
    operator.groups.clear()
    webhooks.look_after(timezone.now())
    row.refresh_from_db()
    assert not row.enabled


def test_the_owner_is_warned_before_a_failing_endpoint_is_switched_off(operator):
    run = RunFactory.create(reminder__account__owner=operator, status="running", targets={"pending": 1})
    now = timezone.now()
    with Hook(NO) as hook:
        row = endpoint(operator, hook.url)
        controls.pause(run, operator, now)
        webhooks.step(now)
        webhooks.look_after(now + timedelta(hours=13))
        webhooks.look_after(now + timedelta(hours=14))
        assert [one.title for one in Notification.objects.filter(title=webhooks.WARNING)] == [webhooks.WARNING]
        webhooks.look_after(now + timedelta(hours=24, minutes=1))
    row.refresh_from_db()
    assert row.enabled is False
    assert Notification.objects.filter(title=webhooks.SWITCHED_OFF, user=operator).count() == 1
    assert WebhookDelivery.objects.get().state == "failed"


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"garbage\r\n\r\n", id="garbage"),
        pytest.param(b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\n\r\n", id="redirect"),
        pytest.param(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000, id="headers"),
    ],
)
def test_a_receiver_that_answers_garbage_does_not_stop_others(operator, answer):
    run = RunFactory.create(reminder__account__owner=operator, status="running", targets={"pending": 1})
    with Hook(answer) as bad, Hook(OK) as good:
        endpoint(operator, bad.url)
        endpoint(operator, good.url)
        controls.pause(run, operator, timezone.now())
        until_quiet()
    assert told(good) == ["run.paused"]
    assert WebhookDelivery.objects.get(state="pending").attempts == 1


def test_one_that_is_sent_again_begins_with_the_shortest_wait(operator):
    now = timezone.now()
    with Hook(NO) as hook:
        pending(endpoint(operator, hook.url), 1, attempts=8, state="failed", settled_at=now)
        webhooks.resend([WebhookDelivery.objects.get()], operator, now)
        webhooks.step(now)
    row = WebhookDelivery.objects.get()
    assert (row.attempts, row.next_attempt_at) == (1, now + timedelta(seconds=webhooks.WAITS[0]))


def test_a_receiver_that_never_answers_and_one_that_is_not_there_are_told_in_words(operator, monkeypatch):
    monkeypatch.setattr(webhooks, "TIMEOUT", 1.0)
    run = RunFactory.create(reminder__account__owner=operator, status="running", targets={"pending": 1})
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.create_server(("127.0.0.1", 0)) as closed:
        urls = [f"http://127.0.0.1:{one.getsockname()[1]}/" for one in (silent, closed)]
        rows = [endpoint(operator, url) for url in urls]
        closed.close()
        controls.pause(run, operator, timezone.now())
        webhooks.step(timezone.now())
    said = [WebhookEndpoint.objects.get(pk=row.pk).problem for row in rows]
    assert said[0] == "no answer within 1 seconds"
    assert said[1].startswith("not reached: 127.0.0.1 does not accept connections at port")


def test_410_switches_off(operator):
    run = RunFactory.create(reminder__account__owner=operator, status="running", targets={"pending": 1})
    with Hook(b"HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n") as hook:
        row = endpoint(operator, hook.url)
        controls.pause(run, operator, timezone.now())
        webhooks.step(timezone.now())
    row.refresh_from_db()
    assert row.enabled is False


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("http://127.0.0.1:8000/", id="own-machine"),
        pytest.param("http://10.0.0.1/", id="private"),
        pytest.param("http://169.254.169.254/latest", id="cloud-metadata"),
        pytest.param("http://[64:ff9b::a9fe:a9fe]/", id="metadata by NAT64"),
        pytest.param("http://224.0.0.1/", id="multicast"),
        pytest.param("http://example.com:99999/", id="port"),
        pytest.param("ftp://example.com/", id="scheme"),
    ],
)
def test_a_webhook_cannot_reach_the_internal_network(url, settings):
    settings.ALLOW_PRIVATE_NETWORKS = []
    assert webhooks.url_problem(url)


def test_an_address_that_was_public_when_it_was_entered_is_checked_when_it_is_called(operator, settings):
    run = RunFactory.create(reminder__account__owner=operator, status="running", targets={"pending": 1})
    settings.ALLOW_PRIVATE_NETWORKS = []
    with Hook(OK) as hook:
        endpoint(operator, hook.url)
        controls.pause(run, operator, timezone.now())
        webhooks.step(timezone.now())
    assert hook.posted == []


# --- pages ------------------------------------------------------------------------------------------------------


def test_an_operator_adds_one_sees_its_secret_once_and_sends_again(operator, colleague):
    AccountFactory.create(owner=operator)
    page = login(operator)
    with Hook(OK) as hook:
        data = {"url": hook.url, "kinds": ["run.paused"], "enabled": "on", "team": ""}
        answer = page.post(reverse("admin:fanout_webhookendpoint_add"), data, follow=True)
        row = WebhookEndpoint.objects.get()
        assert (row.owner, row.kinds) == (operator, ["run.paused"])
        secret = row.secrets["current"]
        assert secret in answer.content.decode().replace("&#x2B;", "+")
        change = page.get(reverse("admin:fanout_webhookendpoint_change", args=[row.pk])).content.decode()
        assert secret not in change
        run = RunFactory.create(reminder__account__owner=operator, status="running", targets={"pending": 1})
        controls.pause(run, operator, timezone.now())
        until_quiet()
        delivery = WebhookDelivery.objects.get()
        again = {"action": "send_again", "_selected_action": [delivery.pk]}
        theirs = reverse("admin:fanout_webhookdelivery_changelist")
        login(colleague).post(theirs, again)
        until_quiet()
        assert len(hook.posted) == 1, "not another person's"
        page.post(theirs, again)
        until_quiet()
        assert len(hook.posted) == 2
    rotate = reverse("admin:fanout_webhookendpoint_rotate", args=[row.pk])
    assert login(colleague).post(rotate).status_code == 404
    new = page.post(rotate).content.decode()
    row.refresh_from_db()
    assert row.secrets["current"] in new.replace("&#x2B;", "+")
    assert row.secrets["previous"] == secret


def test_one_is_deleted_with_its_log(operator, colleague):
    row = endpoint(operator, "https://hooks.example.org/x")
    WebhookDelivery.objects.create(
        endpoint=row, message_id="msg_1", kind="reply", payload={}, state="failed", created_at=timezone.now()
    )
    path = reverse("admin:fanout_webhookendpoint_delete", args=[row.pk])
    assert "Webhook deliveries: 1" in login(operator).get(path).content.decode()
    login(colleague).post(path, {"post": "yes"})
    assert WebhookEndpoint.objects.exists(), "not by another person"
    login(operator).post(path, {"post": "yes"})
    assert not WebhookEndpoint.objects.exists()
    assert not WebhookDelivery.objects.exists()
