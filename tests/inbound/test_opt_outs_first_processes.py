"""STOP behind hundreds of other replies, with real clusters: who wrote it gets no Message 2, by the provider's book."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from accounts.models import Account
from fanout.inbound import worker
from fanout.models import InboundEvent, Run, RunTarget
from reminders.models import Recipient, ReminderTarget, Suppression
from tests.crier_processes import clusters
from tests.engine.stage import Stage, whole_day
from tests.engine.test_processes import until
from tests.inbound.people import remind
from tests.inbound.test_webhooks import body_of, path_of, post
from tests.sandbox_server import SandboxServer

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]

#: people who reply, and those of them who write STOP after it; the long form: 1000 and 200
REPLIES = int(os.environ.get("OPT_OUT_REPLIES", "200"))
STOPS = int(os.environ.get("OPT_OUT_STOPS", "40"))
KEY = "between the provider and us"


def phone(n: int) -> str:
    return f"+49151{20_000_000 + n}"


def test_who_writes_stop_gets_no_message_2(tmp_path: Path, record_property: Any) -> None:
    with SandboxServer(tmp_path, script={"*": {"latency_ms": [5, 20]}}) as sandbox:
        stage = Stage(now=timezone.now())
        account = stage.account(
            max_send_per_minute=6000, send_burst=100, config={"url": sandbox.url}, credentials={"key": KEY}
        )
        sent_to_all(stage, account)
        # Not the first one, whose reply is stored by a commit of its own.
        stopping = {phone(n) for n in range(1, REPLIES, REPLIES // STOPS)}
        said = [(phone(n), "yes please") for n in range(REPLIES)] + [(address, "STOP") for address in sorted(stopping)]
        with clusters(tmp_path / "logs", "main", "drivers"):
            until(worker.is_running)
            begin = time.monotonic()
            post_all(account, said)
            answered = time.monotonic() - begin
            assert set(Suppression.objects.values_list("address", flat=True)) == stopping, "when the posts are answered"
            until(lambda: Recipient.objects.filter(status="opted_out").count() == len(stopping))
            opted_out = time.monotonic() - begin
            until(lambda: not InboundEvent.objects.filter(state="new").exists())
            until(lambda: not RunTarget.objects.filter(status__in=["pending", "sending"]).exists())
            everything = time.monotonic() - begin
        deliveries = sandbox.book().deliveries()
    record_property("seconds", {"answered": answered, "opted out": opted_out, "everything": everything})
    stop_came = dict(InboundEvent.objects.filter(opts_out=True).values_list("address", "came_at"))
    claimed: dict[str, Any] = dict(
        RunTarget.objects.filter(run__answers__isnull=False).values_list("address", "claimed_at")
    )
    late = [one.to for one in deliveries if one.to in stop_came and claimed[one.to] > stop_came[one.to]]
    assert late == [], "Message 2 after a STOP"
    assert {one.to for one in deliveries} >= {phone(n) for n in range(REPLIES)} - stopping


def sent_to_all(stage: Stage, account: Account) -> None:
    """A run whose Message 1 reached everyone a minute ago."""
    reminder = remind(stage, account, people=0, **whole_day(stage.now))
    people = Recipient.objects.bulk_create(
        Recipient(owner=stage.user, kind="person", address=phone(n)) for n in range(REPLIES)
    )
    ReminderTarget.objects.bulk_create(
        ReminderTarget(reminder=reminder, recipient=one, position=n) for n, one in enumerate(people)
    )
    run = stage.fire(reminder)
    at = timezone.now() - timedelta(minutes=1)
    run.targets.update(status="sent", parts_sent=1, claimed_at=at, settled_at=at, planned_at=at)
    Run.objects.filter(pk=run.pk).update(status="success", finished_at=at)


def post_all(account: Account, said: list[tuple[str, str]]) -> None:
    """Post like the provider: signed, several requests at once. They are answered when the replies are stored."""
    bodies = [
        body_of({"id": f"{address} {text}", "kind": "reply", "at": time.time(), "from": address, "text": text})
        for address, text in said
    ]
    assert set(post(path_of(account), *bodies, key=KEY)) == {200}
