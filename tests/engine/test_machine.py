"""Invariants 3 to 6 under operators, clocks and crashes in any order."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

import pytest
from django.core.management import call_command
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from accounts.channels.sandbox.script import Script
from fanout.database import execute
from fanout.models import Run, RunTarget
from fanout.runs import controls
from tests.engine.stage import MONDAY, Stage, books_balance

RATE, BURST = 120, 3
LATENCY = 0.2


class Machine(RuleBasedStateMachine):
    @initialize()
    def set_the_scene(self) -> None:
        wipe()
        self.stage = Stage(now=MONDAY.replace(hour=9, minute=58))
        self.stage.tick = 1
        self.stage.provider.set_script(Script({"*": {"latency_ms": [50, LATENCY * 1000]}}))
        self.account = self.stage.account(max_send_per_minute=RATE, send_burst=BURST)
        self.reminder = self.stage.reminder(
            self.account, groups=40, parts=("text", "text"), delivery_window_start_hour=6, delivery_window_end_hour=10
        )
        self.runs: list[Run] = []
        self.closings: dict[int, list[tuple[datetime, datetime]]] = {}

    @rule()
    def fire(self) -> None:
        self.stage.now += timedelta(milliseconds=1)  # one run per moment
        if len(self.runs) < 4:
            self.note(self.stage.fire(self.reminder))

    @rule(seconds=st.floats(0.3, 90), drivers=st.integers(1, 2))
    def tick(self, seconds: float, drivers: int) -> None:
        self.stage.play(seconds, drivers=drivers)

    @rule(seconds=st.floats(0.1, 20))
    def crash(self, seconds: float) -> None:
        self.stage.play(seconds, crash=True)

    @rule(which=st.integers(0, 3), after=st.floats(0, 5))
    def pause(self, which: int, after: float) -> None:
        run = self.pick(which)
        if run is not None:
            at = self.stage.now + timedelta(seconds=after)
            self.stage.play(after + 1, [(at, lambda now: controls.pause(run, self.stage.user, now))])

    @rule(which=st.integers(0, 3), next_day=st.booleans())
    def resume(self, which: int, next_day: bool) -> None:
        run = self.pick(which)
        if run is None:
            return
        if next_day:
            self.stage.now = (self.stage.now + timedelta(days=1)).replace(hour=9, minute=59)
        if controls.resume(run, self.stage.user, self.stage.now).ok:
            self.note(run)

    @rule(end=st.sampled_from([10, 11, 24]))
    def change_window(self, end: int) -> None:
        self.reminder.delivery_window_end_hour = end
        self.reminder.save(update_fields=["delivery_window_end_hour"])

    def pick(self, which: int) -> Run | None:
        return self.runs[which % len(self.runs)] if self.runs else None

    def note(self, run: Run) -> None:
        run.refresh_from_db()
        if run.pk not in self.closings:
            self.runs.append(run)
        self.closings.setdefault(run.pk, []).append((self.stage.now, run.window_closes_at))

    # --- the invariants ---------------------------------------------------------------------------------

    @invariant()
    def never_twice(self) -> None:
        if hasattr(self, "stage"):
            assert not self.stage.book.duplicates("message_id")

    @invariant()
    def the_pace_holds(self) -> None:
        if hasattr(self, "stage"):
            assert self.stage.book.peak() <= RATE + BURST

    @invariant()
    def the_books_balance(self) -> None:
        for run in getattr(self, "runs", []):
            assert books_balance(run)
            if run.status in ("success", "partial", "failed"):
                assert run.pending == run.sending == 0

    @invariant()
    def nothing_after_the_close(self) -> None:
        if not getattr(self, "runs", None):
            return
        run_of = dict(RunTarget.objects.values_list("pk", "run_id"))
        for delivery in self.stage.book.deliveries():
            run_id = run_of[int(delivery.message_id.split("-")[1])]
            at = datetime.fromtimestamp(delivery.t, UTC)
            closes = [closes for since, closes in self.closings[run_id] if since <= at][-1]
            assert at < closes + timedelta(seconds=LATENCY + 0.05)

    @invariant()
    def never_lost(self) -> None:
        """Targets counted as sent are at the provider; it has at most one unconfirmed part beyond that."""
        if not hasattr(self, "stage"):
            return
        received: dict[int, set[int]] = {}
        for delivery in self.stage.book.deliveries():
            _, number, part, _ = delivery.message_id.split("-")
            received.setdefault(int(number), set()).add(int(part))
        for target in RunTarget.objects.all():
            parts = received.get(target.pk, set())
            assert set(range(target.parts_sent)) <= parts
            if target.status in ("pending", "skipped", "failed"):
                assert parts == set(range(target.parts_sent))
            else:
                assert parts <= set(range(target.parts_sent + 1))


def wipe() -> None:
    """Empty all tables. Django's flush numbers runs from 1 again and does not know the table of appended changes:
    those of an earlier run 1 would be counted for the next one."""
    call_command("flush", verbosity=0, interactive=False, inhibit_post_migrate=True)
    execute("TRUNCATE fanout_runchange", {})


@pytest.mark.django_db(transaction=True)
def test_invariants_hold_in_every_order_of_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")  # operators act inside the event loop
    examples = int(os.environ.get("MACHINE_EXAMPLES", "6"))
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=12,
            deadline=None,
            derandomize=examples <= 6,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        ),
    )
