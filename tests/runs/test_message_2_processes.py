"""From a stored reply to the provider's call, with real drivers, beside a fan-out that keeps the account busy."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from fanout.models import Run, RunTarget
from tests.engine.stage import Stage, fresh
from tests.engine.test_processes import Cluster, all_day, until
from tests.inbound.people import phone, remind, say
from tests.sandbox_server import SandboxServer

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]

REPLIES = int(os.environ.get("MESSAGE_2_REPLIES", "15"))  # the long form: 60
# The promise is 3 s at the 99th percentile; here only that it does not wait for the fan-out, which takes four minutes.
PATIENCE = float(os.environ.get("MESSAGE_2_SECONDS", "30"))
ALL_DAY: dict[str, Any] = {"delivery_window_start_hour": 0, "delivery_window_end_hour": 24}


def test_message_2_follows_within_seconds(tmp_path: Path, record_property: Any) -> None:
    with SandboxServer(tmp_path, script={"*": {"latency_ms": [20, 80]}}) as sandbox:
        stage = Stage(now=timezone.now())
        busy = stage.account(max_send_per_minute=240, config={"url": sandbox.url})
        idle = stage.account(max_send_per_minute=240, config={"url": sandbox.url})
        runs = [stage.fire(remind(stage, account, REPLIES, title=account.label, **ALL_DAY)) for account in (busy, idle)]
        cluster = Cluster(tmp_path, sandbox).start()
        try:
            until(lambda: all(fresh(run).sent == REPLIES for run in runs))
            all_day(stage, busy, 1000)
            until(lambda: len(sandbox.book().deliveries()) > 2 * REPLIES + 10)
            stored_at = {}
            for n in range(REPLIES):
                account = busy if n % 2 else idle
                stored_at[account.address, phone(n)] = time.time()
                assert say(account, n, timezone.now()).endswith("Message 2 queued")
                time.sleep(random.uniform(0.1, 1.0))
            children = [run.message_2.get() for run in runs]
            until(lambda: sum(fresh(child).sent for child in children) == REPLIES)
            waits = sorted(_waits(sandbox, children, stored_at))
        finally:
            cluster.kill()
    assert len(waits) == REPLIES
    p99 = waits[int(REPLIES * 0.99)]
    record_property("seconds", {"median": waits[REPLIES // 2], "p99": p99})
    assert p99 < PATIENCE, waits


def _waits(sandbox: SandboxServer, children: list[Run], stored_at: dict[tuple[str, str], float]) -> list[float]:
    targets = RunTarget.objects.filter(run__in=children).select_related("account")
    people = {target.pk: (target.account.address, target.address) for target in targets}
    waits = []
    for one in sandbox.book().deliveries():
        whose = people.get(int(one.message_id.split("-")[1]))
        if whose is not None:
            waits.append(one.t - stored_at[whose])
    return waits
