"""Webhooks out in a real cluster, to receivers that are killed, late or silent, judged by what they wrote down."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from django_q.models import Schedule

from accounts.access import OPERATORS
from config.local.children import Child, wait_until
from fanout.models import Notification, Run, WebhookDelivery, WebhookEndpoint, WebhookEvent
from fanout.ops import tasks, webhooks
from fanout.runs import controls
from tests.admin.conftest import member
from tests.channels.mail_server import free_port
from tests.crier_processes import clusters, environment
from tests.factories import RunFactory
from tests.ops.test_webhooks import endpoint, verified

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]
PATIENCE = 240
RUNS = 3
STORY = ["run.started", "run.paused", "run.finished"]

#: Writes each request down, then answers after some seconds.
RECEIVER = """
import json, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
port, book, wait = int(sys.argv[1]), sys.argv[2], float(sys.argv[3])

class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        with open(book, "a") as file:
            file.write(json.dumps([dict((k.lower(), v) for k, v in self.headers.items()), body]) + "\\n")
        time.sleep(wait)
        self.send_response(204)
        self.end_headers()
    def log_message(self, *words):
        pass

ThreadingHTTPServer(("127.0.0.1", port), Receiver).serve_forever()
"""


class Receiver:
    def __init__(self, folder: Path, name: str, wait: float = 0.0) -> None:
        self.port, self.book, self.name = free_port(), folder / f"{name}.jsonl", name
        words = [sys.executable, "-c", RECEIVER, str(self.port), str(self.book), str(wait)]
        self.child = Child(name, words, folder / f"{name}.log", environment())
        self.url = f"http://127.0.0.1:{self.port}/{name}"

    def requests(self) -> list[tuple[dict[str, str], str]]:
        lines = self.book.read_text().splitlines() if self.book.exists() else []
        return [(headers, body) for headers, body in map(json.loads, lines)]

    def told(self, run: Run) -> list[str]:
        """Return what it was told about a run, in order, each event once."""
        seen: dict[str, str] = {}
        for headers, body in self.requests():
            event = json.loads(body)
            if event["data"].get("run") == run.pk:
                seen.setdefault(headers["webhook-id"], event["type"])
        return list(seen.values())


@contextmanager
def running(*receivers: Receiver) -> Iterator[None]:
    try:
        for receiver in receivers:
            receiver.child.start()
        yield
    finally:
        for receiver in receivers:
            receiver.child.kill_all()


def until(condition: Callable[[], Any]) -> None:
    assert wait_until(condition, PATIENCE)


def tell_stories(owner: User) -> list[Run]:
    """Start, pause and cancel some runs: three events each."""
    account = {"reminder__account__owner": owner, "status": "queued", "targets": {"pending": 1}}
    runs = [RunFactory.create(**account) for _ in range(RUNS)]
    Run.objects.filter(pk__in=[run.pk for run in runs]).update(status="running", first_attempt_at=timezone.now())
    for run in runs:
        controls.pause(run, owner, timezone.now())
        controls.cancel(run, owner, timezone.now())
    return runs


def test_receivers_that_are_killed_late_or_silent_do_not_hold_up_others(tmp_path: Path) -> None:
    owner = member("mei", OPERATORS)
    good, late = Receiver(tmp_path, "good"), Receiver(tmp_path, "late", wait=2.0)
    silent, dead = Receiver(tmp_path, "silent", wait=3600), Receiver(tmp_path, "dead")
    rows = {one.name: endpoint(owner, one.url) for one in (good, late, silent, dead)}
    tasks.ensure_schedules()  # as the other cluster does when it starts
    with ExitStack() as stack:
        stack.enter_context(running(good, late, silent))
        first = stack.enter_context(clusters(tmp_path, "main"))["main"]
        runs = tell_stories(owner)

        until(lambda: all(good.told(run) == STORY for run in runs))
        until(lambda: WebhookDelivery.objects.filter(endpoint=rows["dead"], attempts__gte=1).exists())
        first.kill_all()  # kill -9 while the silent receiver holds connections and the dead one is tried again

        _failing_for(rows["silent"], 13)
        Schedule.objects.filter(name="crier-webhooks").update(next_run=timezone.now())  # the minute is over
        stack.enter_context(running(dead))
        stack.enter_context(clusters(tmp_path / "second", "main"))
        until(lambda: all(one.told(run) == STORY for run in runs for one in (late, dead)))
        delivered = WebhookDelivery.objects.filter(endpoint__in=[rows[name].pk for name in ("good", "late", "dead")])
        until(lambda: not delivered.exclude(state="delivered").exists())

        # The silent one is tried again and again, its owner is warned, and it is switched off.
        tried = WebhookDelivery.objects.filter(endpoint=rows["silent"], attempts__gte=1)
        until(tried.exists)
        assert not WebhookDelivery.objects.filter(endpoint=rows["silent"], state="delivered").exists()
        until(lambda: Notification.objects.filter(user=owner, title=webhooks.WARNING).exists())
        assert WebhookEndpoint.objects.get(pk=rows["silent"].pk).enabled
        _failing_for(rows["silent"], 25)
        until(lambda: not WebhookEndpoint.objects.get(pk=rows["silent"].pk).enabled)
    assert Notification.objects.filter(user=owner, title=webhooks.SWITCHED_OFF).count() == 1
    assert not WebhookEvent.objects.exists()
    for one in (good, late, dead):
        secret = rows[one.name].secrets["current"]
        assert all(verified(secret, headers, body.encode()) for headers, body in one.requests())
    # Until the first kill everything went to the good one once: what is repeated has the same id.
    ids = [headers["webhook-id"] for headers, _ in good.requests()]
    assert len(set(ids)) == RUNS * len(STORY)


def _failing_for(row: WebhookEndpoint, hours: int) -> None:
    WebhookEndpoint.objects.filter(pk=row.pk).update(failing_since=timezone.now() - timedelta(hours=hours))
