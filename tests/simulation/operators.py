"""What operators and recipients do in a play, one after the other or two controls at the same moment.

A control is a few transactions. Two at the same moment are played by carrying the second out between two transactions
of the first, at a point that the play has drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import Any
from unittest import mock

from django.db import connection
from django.db.transaction import Atomic

from accounts.channels.provider_events import EventKind, ProviderEvent
from accounts.channels.sandbox.book import MemoryBook
from accounts.models import Account
from fanout.inbound import worker
from fanout.inbound.event_store import store
from fanout.lanes.accounts import tune
from fanout.management.commands.retention import delete_run
from fanout.models import Run
from fanout.runs import controls, corrections, transitions
from reminders import suppressions
from reminders.suppressions import NewSuppression
from tests.simulation.judge import Judge
from tests.simulation.schedule import Pair


class Operators:
    def __init__(self, user: Any, judge: Judge, book: MemoryBook, runs: dict[int, Run]) -> None:
        self.user = user
        self.judge = judge
        self.book = book
        self.runs = runs

    def do(self, what: str, account: int, now: datetime) -> None:
        """Carry out an action on the account's run. One that retention has deleted has nothing to be done to."""
        run = Run.objects.filter(pk=self.runs[account].pk).first()
        if run is None:
            return
        {
            "pause": self._pause,
            "resume": self._resume,
            "cancel": self._cancel,
            "suppress": self._suppress,
            "opt out": self._opt_out,
            "stop account": self._stop_account,
            "reactivate": self._reactivate,
            "settle": self._settle,
            "retry failed": self._retry_failed,
            "offload": self._offload,
            "archive": self._archive,
            "edit": self._edit,
            "retention": self._retention,
        }[what](run, now)

    def do_both(self, pair: Pair, account: int, now: datetime) -> None:
        """Carry out the second control before a transaction of the first one, or after its last."""
        done: list[str] = []

        def interrupt() -> None:
            done.append(pair.second)
            self.do(pair.second, account, now)

        # A run that is deleted under a control's hands ends the control.
        with small_chunks(), before_transaction(pair.point, interrupt), suppress(Run.DoesNotExist):
            self.do(pair.first, account, now)
        if not done:
            self.do(pair.second, account, now)

    def _pause(self, run: Run, now: datetime) -> None:
        if controls.pause(run, self.user, now).ok:
            self._stopped(run, now)

    def _resume(self, run: Run, now: datetime) -> None:
        if controls.resume(run, self.user, now).ok:
            self._goes_on(run)

    def _cancel(self, run: Run, now: datetime) -> None:
        if controls.cancel(run, self.user, now).ok:
            self._stopped(run, now)

    def _suppress(self, run: Run, now: datetime) -> None:
        address = run.targets.order_by("-position")[0].address
        suppressions.suppress(NewSuppression(address, "manual", "operator", "", now, None, None))
        self.judge.stopped["address", address] = now

    def _opt_out(self, run: Run, now: datetime) -> None:
        address = run.targets.order_by("-position")[0].address
        key = f"{run.pk}-{now}"
        store(run.account_id, [ProviderEvent(key=key, kind=EventKind.REPLY, at=now, text="STOP", address=address)], now)
        worker.step(now)
        self.judge.stopped["address", address] = now

    def _stop_account(self, run: Run, now: datetime) -> None:
        if controls.pause_account(run.account, self.user, now).ok:
            self.judge.stopped["account", run.account_id] = now

    def _reactivate(self, run: Run, now: datetime) -> None:
        if controls.reactivate(run.account, self.user, now).ok:
            self.judge.stopped.pop(("account", run.account_id), None)

    def _settle(self, run: Run, now: datetime) -> None:
        """As an operator does who has waited a while and looked whether it arrived."""
        latest = now - timedelta(seconds=8)
        received = {delivery.message_id.split("-")[1] + "-" + str(delivery.part) for delivery in self.book.deliveries()}
        for target in run.targets.filter(status="unconfirmed", claimed_at__lt=latest):
            corrections.settle(run, [target.pk], f"{target.pk}-{target.parts_sent}" in received, self.user, now)
        corrections.carry_on_corrections(now, 60.0)
        self._goes_on(run)

    def _retry_failed(self, run: Run, now: datetime) -> None:
        if controls.retry_failed(run, self.user, now).ok:
            corrections.carry_on_corrections(now, 60.0)
            self._goes_on(run)

    def _offload(self, run: Run, now: datetime) -> None:
        """To the sender that has the least to do with it."""
        others = Account.objects.filter(status="active", pk__in=self.runs).exclude(pk__in=run.lanes)
        if (account := others.order_by("pk").first()) is not None:
            corrections.offload(run, account, self.user, now, and_resume=True)
            corrections.carry_on_offloads(now, 60.0)  # a busy machine leaves some of it to a task
            self._goes_on(run)

    def _archive(self, run: Run, now: datetime) -> None:
        controls.archive(run, self.user, now)

    def _edit(self, run: Run, now: datetime) -> None:
        tune(run.account, {"max_send_per_minute": self.judge.schedules[run.account_id].rate}, self.user, now)

    def _retention(self, run: Run, now: datetime) -> None:
        delete_run(run.pk, now + timedelta(seconds=1))  # nothing, unless it is finished

    def _stopped(self, run: Run, now: datetime) -> None:
        if Run.objects.filter(pk=run.pk, status__in=("paused", "canceled")).exists():
            self.judge.stopped["run", run.pk] = now

    def _goes_on(self, run: Run) -> None:
        if Run.objects.filter(pk=run.pk, status__in=Run.LIVE).exists():
            self.judge.stopped.pop(("run", run.pk), None)


@contextmanager
def before_transaction(point: int, what: Callable[[], None]) -> Iterator[None]:
    """Call `what` once, when the transaction with this number is about to begin."""
    begun = 0
    enter = Atomic.__enter__

    def entering(self: Atomic) -> None:
        nonlocal begun
        if not connection.in_atomic_block:
            begun += 1
            if begun == point:
                what()
        enter(self)

    with mock.patch.object(Atomic, "__enter__", entering):
        yield


@contextmanager
def small_chunks() -> Iterator[None]:
    """Let controls work in chunks of one target, so that there are several of them."""
    with mock.patch.object(transitions, "CHUNK", 1):
        yield
