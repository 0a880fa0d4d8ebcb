"""What happens in a chaos campaign beside the kills: operators at the same moment, clients that stand still with rows
locked, and a disk that is full.

The full disk is played by triggers that refuse rows with PostgreSQL's own error: a real one also stops the server,
which the campaign kills anyway.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import psycopg

#: what a stuck client locks, each with an account and a run in its place
LOCKS = (
    "SELECT 1 FROM fanout_lanestate WHERE account_id = %(account)s FOR UPDATE",
    "SELECT 1 FROM fanout_run WHERE id = %(run)s FOR UPDATE",
    "SELECT 1 FROM accounts_account WHERE id = %(account)s FOR UPDATE",
    """SELECT 1 FROM fanout_runtarget WHERE run_id = %(run)s AND status IN ('pending', 'sending')
        ORDER BY position LIMIT 20 FOR UPDATE""",
)
KINDS = ("stuck_client", "operators", "full_disk")


class Trouble:
    kinds: tuple[str, ...] = KINDS

    def __init__(self, rng: random.Random, runs: list[Any], user: Any) -> None:
        self.rng = rng
        self.runs = runs
        self.user = user
        self.seen: Counter[str] = Counter()
        self.clients: list[tuple[float, psycopg.Connection[Any]]] = []
        self.full_until: float | None = None
        self.threads = ThreadPoolExecutor(4)
        self.acting: list[Future[None]] = []

    def begin(self, kind: str = "") -> str:
        """Begin some trouble, which ends by itself with `end_due`. Returns what it is."""
        kind = kind or self.rng.choice(self.kinds)
        with suppress(psycopg.Error, *database_errors()):  # the server may be gone at this moment
            getattr(self, kind)()
            self.seen[kind] += 1
        return kind

    def end_due(self, everything: bool = False) -> bool:
        """End trouble that is over. Returns whether there is none left."""
        now = time.monotonic()
        for until, client in self.clients:
            if everything or now >= until:
                with suppress(psycopg.Error):
                    client.close()
        self.clients = [one for one in self.clients if not one[1].closed]
        if self.full_until is not None and (everything or now >= self.full_until):
            with suppress(*database_errors()):
                fault().end()
                self.full_until = None
        self.acting = [one for one in self.acting if not one.done()]
        return not self.clients and self.full_until is None and not self.acting

    def stuck_client(self) -> None:
        """A client locks rows and then does nothing inside its transaction for some seconds."""
        from django.db import connection

        from fanout.database import conninfo

        run = self.rng.choice(self.runs)
        client = psycopg.connect(conninfo(connection.settings_dict), connect_timeout=5)
        client.execute("SET lock_timeout = '2s'")
        client.execute(
            self.rng.choice(LOCKS), {"run": run.pk, "account": self.rng.choice(run.lanes or [run.account_id])}
        )
        self.clients.append((time.monotonic() + self.rng.uniform(2, 6), client))

    def full_disk(self) -> None:
        if self.full_until is None:
            self.full_until = time.monotonic() + self.rng.uniform(1, 4)
            fault(everything=self.rng.random() < 0.5).begin()

    def operators(self) -> None:
        """Two operators at the same moment, at a run that several accounts share."""
        shared = [run for run in self.runs if len(run.lanes) > 1] or self.runs
        run = self.rng.choice(shared)
        for control in self.rng.choices(self._controls(run), k=2):
            self.acting.append(self.threads.submit(act, control))

    def _controls(self, run: Any) -> list[Callable[[Any], Any]]:
        from accounts.models import Account
        from fanout.lanes.accounts import tune
        from fanout.runs import controls, corrections

        target = self.rng.choice(["a0", "a1", "a2", "a3"])

        def offload(now: Any) -> Any:
            account = Account.objects.get(label=target)
            return corrections.offload(fresh(run), account, self.user, now, and_resume=True)

        return [
            lambda now: controls.pause(fresh(run), self.user, now),
            lambda now: controls.resume(fresh(run), self.user, now),
            lambda now: controls.retry_failed(fresh(run), self.user, now),
            lambda now: tune(run.account, {"send_burst": 3}, self.user, now),
            offload,
        ]

    def resume_paused(self) -> bool:
        """Resume what operators have paused, so that every run comes to its end."""
        from django.utils import timezone

        from fanout.models import Run
        from fanout.runs import controls

        for run in Run.objects.filter(status="paused"):
            controls.resume(run, self.user, timezone.now())
        return True


def act(control: Callable[[Any], Any]) -> None:
    """Carry out a control in a thread of its own. What a killed server interrupts, an operator tries again later."""
    from django.db import connection
    from django.utils import timezone

    try:
        with suppress(*database_errors()):
            control(timezone.now())
    finally:
        connection.close()


def fresh(run: Any) -> Any:
    return type(run).objects.get(pk=run.pk)


def fault(everything: bool = False) -> Any:
    from tests.engine.test_storing import EVERYTHING, RESULTS, Fault

    return Fault(EVERYTHING if everything else RESULTS)


def database_errors() -> tuple[type[Exception], ...]:
    from django.db import DatabaseError, InterfaceError

    return DatabaseError, InterfaceError
