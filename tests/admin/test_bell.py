"""Notifications: who is told, through what, and that a reconnect loses none."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import time_machine
from asgiref.sync import sync_to_async
from django.core import mail
from django.db import OperationalError, connections, transaction
from django.test import AsyncClient
from django.urls import reverse
from django.utils import timezone

from fanout.admin import bell, stream
from fanout.database import execute
from fanout.lanes.telling import tell_of_reminder
from fanout.models import Notification, Run, RunTarget, Subscription
from fanout.ops import passing_on
from tests.admin.conftest import login, member
from tests.channels.mail_server import ScriptedServer
from tests.factories import NotificationFactory, ReminderFactory, RunFactory


def told(frames: list[str]) -> list[int]:
    return [json.loads(line[6:])["id"] for text in frames for line in text.splitlines() if line.startswith("data: ")]


def test_who_comes_back_gets_what_was_missed(operator, colleague):
    first, second, third = NotificationFactory.create_batch(3, user=operator)
    NotificationFactory.create(user=colleague)
    old = timezone.now() - timedelta(hours=1)
    Notification.objects.update(created_at=old)
    assert told(bell.missed(operator.pk, first.pk, timezone.now())) == [second.pk, third.pk]


def test_a_late_commit_with_a_lower_id_is_not_lost(operator):
    late, seen = NotificationFactory.create_batch(2, user=operator)
    assert late.pk in told(bell.missed(operator.pk, seen.pk, timezone.now()))


def test_the_bell_counts_and_is_read_by_a_post(operator, colleague):
    NotificationFactory.create_batch(2, user=operator)
    NotificationFactory.create(user=colleague)
    assert bell.state(operator)["unread"] == 2
    client = login(operator)
    client.get(reverse("admin:fanout_notification_changelist"))
    assert bell.state(operator)["unread"] == 2
    client.get(reverse("admin:bell_history"))
    assert bell.state(operator)["unread"] == 2
    assert client.post(reverse("admin:bell_read")).json()["unread"] == 0
    assert bell.state(operator)["unread"] == 0
    assert bell.state(colleague)["unread"] == 1


def test_one_is_read_and_nobody_reads_anothers(operator, colleague):
    mine, other = NotificationFactory.create_batch(2, user=operator)
    foreign = NotificationFactory.create(user=colleague)
    answer = login(operator).post(reverse("admin:bell_read"), {"id": [mine.pk, foreign.pk]})
    assert answer.json()["unread"] == 1
    assert list(Notification.objects.filter(read_at=None)) == [foreign, other]


def paused_run(owner, team=None):
    facts = {"reminder__owner": owner, "reminder__account__owner": owner, "team": team}
    return RunFactory.create(status="paused", pause_reason="operator", targets={"pending": 1, "sent": 1}, **facts)


def test_a_notification_of_a_paused_run_has_its_button(operator):
    run = paused_run(operator)
    notification = NotificationFactory.create(user=operator, run=run)
    client = login(operator)
    for path in (reverse("admin:bell_history"), reverse("admin:bell_buttons", args=[notification.pk])):
        assert reverse("admin:fanout_run_do", args=[run.pk, "resume"]) in client.get(path).content.decode()
    client.post(reverse("admin:fanout_run_do", args=[run.pk, "resume"]))
    assert "button" not in client.get(reverse("admin:bell_buttons", args=[notification.pk])).content.decode()


def test_outside_the_window_the_button_waits_for_its_opening(operator):
    run = paused_run(operator)
    night = timezone.now().replace(hour=3)
    Run.objects.update(window_start_hour=6, window_end_hour=18, window_closes_at=night - timedelta(hours=9))
    with time_machine.travel(night, tick=False):
        ((_, _, buttons),) = bell.with_buttons(operator, [NotificationFactory.create(user=operator, run=run)], night)
    assert [button.name for button in buttons] == ["resume_when_open"]


def test_who_may_not_resume_gets_no_button(operator, viewer, colleague, team):
    run = paused_run(operator, team)
    for person in (viewer, colleague):
        notification = NotificationFactory.create(user=person, run=run)
        page = login(person).get(reverse("admin:bell_buttons", args=[notification.pk]))
        assert (page.status_code, "button" in page.content.decode()) == (200, False)
        assert login(operator).get(reverse("admin:bell_buttons", args=[notification.pk])).status_code == 404


def test_the_list_marks_as_read_what_was_chosen(operator, colleague):
    mine, foreign = NotificationFactory.create(user=operator), NotificationFactory.create(user=colleague)
    data = {"action": "mark_read", "_selected_action": [mine.pk, foreign.pk]}
    login(operator).post(reverse("admin:fanout_notification_changelist"), data)
    assert list(Notification.objects.filter(read_at=None)) == [foreign]


def test_mail_goes_to_those_who_want_it_once(operator, colleague):
    Subscription.objects.create(user=operator, email="mei@example.com")
    NotificationFactory.create(user=operator, title="Reminder paused", level="warning")
    NotificationFactory.create(user=operator, title="Reminder delivered", level="info")
    NotificationFactory.create(user=colleague, level="warning")
    for _ in range(2):
        passing_on.pass_on(timezone.now())
    assert [message.subject for message in mail.outbox] == ["Reminder paused"]
    assert not Notification.objects.filter(passed_on_at=None).exists()


@pytest.fixture
def smtp(settings: Any) -> Iterator[ScriptedServer]:
    """A real mail server for Crier's own mail."""
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    with ScriptedServer() as server:
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", server.port
        yield server


def test_a_mail_server_gets_the_title_and_the_cause(operator, smtp):
    run = paused_run(operator)
    Run.objects.update(title="Town hall tonight")
    Subscription.objects.create(user=operator, email="mei@example.com")
    body = "1 of 2 groups delivered. Resume from the Activity tab. Town hall tonight: delivery window closed."
    NotificationFactory.create(user=operator, run=run, title="Reminder paused", body=body, level="warning")
    assert passing_on.pass_on(timezone.now()) == 1
    (letter,) = smtp.mails
    assert letter.to == ["mei@example.com"]
    assert letter.message["Subject"] == "Reminder paused: Town hall tonight"
    text = letter.message.get_content()
    assert "delivery window closed" in text
    assert reverse("admin:fanout_run_change", args=[run.pk]) in text


def test_a_mail_about_a_reminder_names_it_and_leads_to_it(operator, smtp):
    reminder = ReminderFactory.create(owner=operator, title="Rent")
    Subscription.objects.create(user=operator, email="mei@example.com")
    with transaction.atomic():
        execute(*tell_of_reminder(reminder, "Reminder switched off", "It was switched off.", timezone.now()))
    (frame,) = bell.missed(operator.pk, 0, timezone.now())
    page = reverse("admin:reminders_reminder_change", args=[reminder.pk])
    assert page in frame
    assert passing_on.facts(Notification.objects.get())["reminder"] == "Rent"
    assert passing_on.pass_on(timezone.now()) == 1
    (letter,) = smtp.mails
    assert letter.message["Subject"] == "Reminder switched off: Rent"
    assert page in letter.message.get_content()


def test_a_trial_says_whether_it_arrived(operator, smtp):
    data = {"email": "mei@example.com", "webhook": "", "bell": "on", "team": "on", "try_out": "1"}
    client = login(operator)

    def said() -> str:
        return " ".join(
            str(one) for one in client.post(reverse("admin:my_notifications"), data, follow=True).context["messages"]
        )

    assert "A trial was sent." in said()
    assert len(smtp.mails) == 1
    smtp.script.rcpt = "550 5.1.1 no such mailbox"
    assert "The mail to mei@example.com could not be sent" in said()


class Hook:
    """A server that says the same to everybody, and keeps what it was sent."""

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


def test_a_webhook_gets_the_facts(operator):
    Subscription.objects.create(user=operator, only_problems=False)
    run = paused_run(operator)
    NotificationFactory.create(user=operator, run=run, title="Reminder paused")
    with Hook(b"HTTP/1.1 204 No Content\r\n\r\n") as hook:
        Subscription.objects.update(webhook=hook.url)
        assert passing_on.pass_on(timezone.now()) == 1
    sent = json.loads(hook.posted[0].partition(b"\r\n\r\n")[2])
    assert (sent["title"], sent["reminder"], sent["cause"]) == ("Reminder paused", run.title, "paused by an operator")


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"garbage\r\n\r\n", id="garbage"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", id="length"),
        pytest.param(b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\n\r\n", id="redirect"),
        pytest.param(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000, id="headers"),
    ],
)
def test_a_webhook_that_answers_garbage_ends_nothing_for_others(operator, colleague, answer):
    Subscription.objects.create(user=colleague, email="jonas@example.com")
    with Hook(answer) as hook:
        Subscription.objects.create(user=operator, webhook=hook.url)
        for user in (operator, colleague):
            NotificationFactory.create(user=user, title="Reminder paused", level="warning")
        passing_on.pass_on(timezone.now())
    assert [message.to for message in mail.outbox] == [["jonas@example.com"]]
    assert not Notification.objects.filter(passed_on_at=None).exists()


def test_a_slow_webhook_does_not_use_up_the_time_of_others(operator, colleague, monkeypatch):
    for user, count in ((operator, 20), (colleague, 3)):
        Subscription.objects.create(user=user, webhook="https://hooks.example.com")
        NotificationFactory.create_batch(count, user=user, level="warning")
    clock, told = [0.0], []

    def deliver(notification: Notification, wish: Subscription) -> list[str]:
        told.append(wish.user_id)
        clock[0] += 5.0 if wish.user_id == operator.pk else 0.1
        return []

    monkeypatch.setattr(passing_on, "deliver", deliver)
    monkeypatch.setattr(passing_on, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    passing_on.pass_on(timezone.now())
    assert Counter(told) == {operator.pk: 1, colleague.pk: 3}
    passing_on.pass_on(timezone.now())
    assert told.count(operator.pk) == 2  # the rest is not lost


def test_a_fault_of_ours_ends_nothing_for_others_either(operator, colleague, monkeypatch):
    monkeypatch.setattr(passing_on, "_post", lambda *args: 1 / 0)
    Subscription.objects.create(user=operator, webhook="https://hooks.example.com/")
    Subscription.objects.create(user=colleague, email="jonas@example.com")
    for user in (operator, colleague):
        NotificationFactory.create(user=user, level="warning")
    passing_on.pass_on(timezone.now())
    assert len(mail.outbox) == 1


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
def test_a_webhook_cannot_reach_inside(url, settings):
    settings.ALLOW_PRIVATE_NETWORKS = []
    assert passing_on.webhook_error(url)


def test_a_webhook_that_was_public_when_it_was_entered_is_checked_when_it_is_called(operator, settings):
    settings.ALLOW_PRIVATE_NETWORKS = []
    NotificationFactory.create(user=operator, level="warning")
    with Hook(b"HTTP/1.1 204 No Content\r\n\r\n") as hook:
        Subscription.objects.create(user=operator, webhook=hook.url)
        passing_on.pass_on(timezone.now())
    assert hook.posted == []


def test_a_persons_wishes_are_their_own(operator, colleague):
    client = login(operator)
    client.post(reverse("admin:my_notifications"), {"email": "mei@example.com", "webhook": "", "only_problems": "on"})
    assert Subscription.objects.get().user == operator
    assert "mei@example.com" not in login(colleague).get(reverse("admin:my_notifications")).content.decode()


def test_the_stream_is_for_staff_only(client, db):
    assert client.get(reverse("admin:live_stream")).status_code == 403


# --- the stream itself -----------------------------------------------------------------------------------


async def first_frames(chunks: Any, wanted: str, patience: float = 60.0) -> list[str]:
    """Everything up to the first frame that contains `wanted`."""
    frames: list[str] = []

    async def read() -> None:
        async for chunk in chunks:
            frames.append(chunk.decode() if isinstance(chunk, bytes) else chunk)
            if wanted in frames[-1]:
                return

    await asyncio.wait_for(read(), patience)
    return frames


@pytest.mark.django_db(transaction=True)
def test_notifications_and_progress_arrive_live():
    operator = member("mei", "operators", is_superuser=True)
    run = RunFactory.create(reminder__owner=operator, status="running", targets={"pending": 3})

    async def story() -> None:
        client = AsyncClient()
        await sync_to_async(client.force_login)(operator, backend="django.contrib.auth.backends.ModelBackend")
        answer: Any = await client.get(reverse("admin:live_stream"), {"runs": str(run.pk), "after": "0"})
        assert answer["Content-Type"] == "text/event-stream"
        chunks = answer.streaming_content
        await first_frames(chunks, "event: run")
        await sync_to_async(NotificationFactory.create)(user=operator, title="Reminder paused")
        frames = await first_frames(chunks, "Reminder paused")
        assert "\nevent: notification" in frames[-1]
        await sync_to_async(RunTarget.objects.filter(run=run).update)(status="sent")
        frames = await first_frames(chunks, '"sent": 3')
        # The server cancels the task that reads when the tab goes away.
        reading = asyncio.create_task(first_frames(chunks, "never"))
        await asyncio.sleep(0.1)
        reading.cancel()
        with suppress(asyncio.CancelledError):
            await reading
        assert not stream.hub().watchers
        # Of the thread that sync_to_async works in: it lives on, and would keep its connection.
        await sync_to_async(connections.close_all)()

    asyncio.run(story())


@pytest.mark.django_db(transaction=True)
def test_two_hundred_tabs_cost_one_query_a_second(monkeypatch):
    """Counted at the hub: what it asks does not depend on how many listen."""
    operator = member("mei", "operators", is_superuser=True)
    run = RunFactory.create(reminder__owner=operator, status="running", targets={"pending": 3})
    asked: list[str] = []
    rows = stream.Hub._rows

    async def counted(self: stream.Hub, link: Any, statement: str, given: Any = None) -> Any:
        asked.append(statement)
        return await rows(self, link, statement, given)

    monkeypatch.setattr(stream.Hub, "_rows", counted)

    async def story() -> None:
        watchers = [stream.Watcher(person, frozenset({run.pk})) for person in range(200)]
        assert all(stream.hub().join(watcher) for watcher in watchers)
        began = asyncio.get_running_loop().time()
        while any(watcher.queue.empty() for watcher in watchers) or asked.count(stream.RUNS) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.5)
        seconds = asyncio.get_running_loop().time() - began
        for watcher in watchers:
            stream.hub().leave(watcher)
        await asyncio.sleep(1.2)
        assert asked.count(stream.RUNS) <= seconds + 3

    asyncio.run(story())


async def hub_ended() -> None:
    """It closes its connection when it notices that no tab is left."""
    task = stream.hub().task
    assert task is not None
    await asyncio.wait_for(task, 30)


@pytest.mark.django_db(transaction=True)
def test_a_person_keeps_the_newest_tabs_and_all_tabs_are_bounded(monkeypatch):
    monkeypatch.setattr(stream, "MOST_EACH", 2)
    monkeypatch.setattr(stream, "MOST", 3)

    async def nothing() -> list[Any]:
        return []

    def tab(person: int) -> Any:
        return stream.events(person, [], nothing, nothing)

    async def story() -> None:
        first, second, third, other, late = tabs = [tab(person) for person in (1, 1, 1, 2, 3)]
        assert [await anext(one) for one in (first, second, third)] == ["retry: 2000\n\n"] * 3
        assert [text async for text in first] == [stream.FULL]
        assert await anext(other) == "retry: 2000\n\n"
        assert [text async for text in late] == [stream.FULL]
        await second.aclose()
        tabs.append(tab(3))
        assert await anext(tabs[-1]) == "retry: 2000\n\n"
        for one in tabs:
            await one.aclose()
        assert not stream.hub().watchers
        await hub_ended()

    asyncio.run(story())


@pytest.mark.django_db(transaction=True)
def test_a_stream_ends_while_rights_cannot_be_looked_up(monkeypatch):
    monkeypatch.setattr(stream, "HEARTBEAT", 0.1)

    async def nothing() -> list[Any]:
        return []

    async def away() -> list[int]:
        raise OperationalError("the database is away")

    async def story() -> list[str]:
        texts = [text async for text in stream.events(1, [], nothing, away)]
        await hub_ended()
        return texts

    assert asyncio.run(story()) == ["retry: 2000\n\n"]


def test_a_slow_tab_is_told_to_fetch_everything_anew():
    async def story() -> list[str]:
        watcher = stream.Watcher(1, frozenset())
        for number in range(stream.QUEUE + 1):
            watcher.push(str(number))
        return [watcher.queue.get_nowait() for _ in range(watcher.queue.qsize())]

    assert asyncio.run(story()) == [stream.RESYNC]
