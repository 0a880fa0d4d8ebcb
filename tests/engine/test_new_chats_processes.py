"""New chats in real clusters, with kill -9 in the middle, judged by the provider's book."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.utils import timezone

from accounts.models import Account
from fanout.models import Run
from tests.engine.stage import Stage, fresh, whole_day
from tests.engine.test_new_chats import acquaintance, know, reminder_to, stranger
from tests.engine.test_processes import Cluster, until
from tests.sandbox_server import SandboxServer

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]

STRANGERS = [stranger(n) for n in range(30)]
FRIENDS = [acquaintance(n) for n in range(10)]


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[SandboxServer]:
    with SandboxServer(tmp_path, script={"*": {"latency_ms": [50, 150]}}) as server:
        yield server


def fired(stage: Stage, sandbox: SandboxServer, **knobs: float) -> tuple[Account, Run]:
    hours = whole_day(stage.now)
    account = stage.account(
        max_send_per_minute=240,
        group_concurrency=3,
        config={"url": sandbox.url},
        timezone=hours["timezone"],  # midnight would bring a fresh budget while the test runs
        **knobs,
    )
    know(account, *FRIENDS)
    return account, stage.fire(reminder_to(stage, account, [*STRANGERS, *FRIENDS], groups=10, **hours))


def reached(sandbox: SandboxServer) -> set[str]:
    return {delivery.to for delivery in sandbox.book().deliveries()}


def held_or_over(run: Run) -> bool:
    """Waiting for new chats, or paused where the day ends first."""
    return fresh(run).status in (Run.Status.WAITING, Run.Status.PAUSED) and not run.sending


def test_a_refusal_holds_strangers_over_a_kill_and_the_others_go_on(sandbox: SandboxServer, tmp_path: Path) -> None:
    stage = Stage(now=timezone.now())
    fault = {"match": {"suffix": "7"}, "effect": "new_chats_blocked"}
    sandbox.set_script({"*": {"latency_ms": [50, 150], "faults": [fault]}})
    _, run = fired(stage, sandbox)
    first = Cluster(tmp_path, sandbox).start()
    try:
        until(lambda: sandbox.book().refused("new_chats_blocked") and reached(sandbox))
    finally:
        first.kill()
    tried = {refusal.to for refusal in sandbox.book().refused("new_chats_blocked")}
    second = Cluster(tmp_path, sandbox).start()
    try:
        until(lambda: held_or_over(run))
    finally:
        second.kill()
    again = {refusal.to for refusal in sandbox.book().refused("new_chats_blocked")}
    assert 1 <= len(tried) <= 3
    # A call that was under way at the kill may have come to the provider after we looked.
    assert len(again) <= 3
    assert fresh(run).sent + run.unconfirmed >= 20
    # The known and the groups, except what was in flight at the kill and never came to the provider.
    others = set(run.targets.values_list("address", flat=True)) - set(STRANGERS)
    unconfirmed = set(run.targets.filter(status="unconfirmed").values_list("address", flat=True))
    assert len(others) == 20
    assert others - unconfirmed <= reached(sandbox) <= others
    assert not sandbox.book().duplicates("to", "part")


def test_a_kill_grants_no_fresh_budget(sandbox: SandboxServer, tmp_path: Path) -> None:
    stage = Stage(now=timezone.now())
    _, run = fired(stage, sandbox, new_chats_per_day=12)
    for seen in (3, 8):
        cluster = Cluster(tmp_path, sandbox).start()
        try:
            until(lambda: len(reached(sandbox)) >= seen)  # noqa: B023 - asked in this round only
        finally:
            cluster.kill()
    cluster = Cluster(tmp_path, sandbox).start()
    try:
        until(lambda: held_or_over(run))
    finally:
        cluster.kill()
    strangers = reached(sandbox) & set(STRANGERS)
    assert 12 - fresh(run).unconfirmed <= len(strangers) <= 12
    unconfirmed = set(run.targets.filter(status="unconfirmed").values_list("address", flat=True))
    assert reached(sandbox) >= set(FRIENDS) - unconfirmed
    assert not sandbox.book().duplicates("to", "part")
