"""How soon Crier calls the provider: after a run became due, after Resume, and after a driver was killed.

    python -m benchmarks.reaction [--rounds 40] [--json FILE]

A real cluster of two drivers and the sandbox provider in a process of its own. Due and Resume are judged by the
provider's book. After kill -9 the first claim of the next holder counts: the book alone could not tell its calls from
what the killed driver had under way. Killed is the one that has the lane, or both drivers at once. Prints the median,
the 99th percentile and the longest, in seconds.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import django

from benchmarks.reporting import report

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

ACCOUNTS = 20
PATIENCE = 60.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--json", type=Path, help="append the figures to this file, one line each")
    options = parser.parse_args()
    django.setup()
    from benchmarks.scratch import scratch_database
    from tests.engine.test_processes import Cluster
    from tests.sandbox_server import SandboxServer

    with (
        scratch_database(),
        tempfile.TemporaryDirectory() as folder,
        SandboxServer(Path(folder), script={"*": {"latency_ms": [20, 80]}}) as sandbox,
    ):
        scene = Scene(sandbox)
        cluster = Cluster(Path(folder), sandbox).start()
        try:
            for what in (scene.due, scene.resumed, scene.killed, scene.both_killed):
                report({"after": what.__name__, **spread([what() for _ in range(options.rounds)])}, options.json)
        finally:
            cluster.kill()


def spread(seconds: list[float]) -> dict[str, Any]:
    ordered = sorted(seconds)
    at_99 = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    return {
        "rounds": len(ordered),
        "p50": round(ordered[len(ordered) // 2], 2),
        "p99": round(at_99, 2),
        "longest": round(ordered[-1], 2),
    }


class Scene:
    """Accounts that take turns; each round is a run of its own."""

    def __init__(self, sandbox: Any) -> None:
        from django.utils import timezone

        from tests.engine.stage import Stage

        self.sandbox = sandbox
        self.stage = Stage(now=timezone.now())
        self.accounts = [
            self.stage.account(max_send_per_minute=600, config={"url": sandbox.url}) for _ in range(ACCOUNTS)
        ]
        self.rounds = 0

    def _fire(self, groups: int, due_in: float = 0) -> Any:
        from django.utils import timezone

        self.rounds += 1
        account = self.accounts[self.rounds % ACCOUNTS]
        reminder = self.stage.reminder(
            account, groups=groups, delivery_window_start_hour=0, delivery_window_end_hour=24
        )
        self.stage.now = timezone.now() + timedelta(seconds=due_in)
        return self.stage.fire(reminder)

    def due(self) -> float:
        """From the second a run is due to the first call."""
        run = self._fire(1, due_in=2.0)
        return self._first_call(run, run.scheduled_for.timestamp()) - run.scheduled_for.timestamp()

    def resumed(self) -> float:
        """From the click to the first call."""
        from django.utils import timezone

        from fanout.runs import controls

        run = self._fire(400)
        self._first_call(run, 0)
        controls.pause(run, self.stage.user, timezone.now())
        _until(lambda: not run.targets.filter(status="sending").exists())
        clicked = time.time()
        controls.resume(run, self.stage.user, timezone.now())
        seconds = self._first_call(run, clicked) - clicked
        controls.cancel(run, self.stage.user, timezone.now())
        return seconds

    def killed(self) -> float:
        """From kill -9 of the driver that has the lane to the first claim of the next one."""
        from tests.engine.test_processes import driver_of

        return self._after_kill(lambda run: [driver for driver in [driver_of(run.account)] if driver is not None])

    def both_killed(self) -> float:
        """The same with both drivers killed: their successors must be started first."""
        return self._after_kill(lambda run: _live_drivers())

    def _after_kill(self, victims: Callable[[Any], list[Any]]) -> float:
        from django.utils import timezone
        from django_q.models import OrmQ

        from fanout.models import LaneState
        from fanout.runs import controls

        # The tasks of drivers killed before come back after `retry`: a successor would be there already.
        OrmQ.objects.filter(lock__gt=timezone.now()).delete()
        _until(lambda: len(_live_drivers()) == 2)
        run = self._fire(400)
        self._first_call(run, 0)
        drivers = _until(lambda: len(_live_drivers()) == 2 and victims(run))  # not between two slices
        epoch = LaneState.objects.get(account=run.account_id).epoch
        at = timezone.now()
        for driver in drivers:
            os.kill(driver.pid, signal.SIGKILL)
        later = run.targets.filter(claim_epoch__gt=epoch).order_by("claimed_at")
        _until(later.exists)
        seconds = (later[0].claimed_at - at).total_seconds()
        controls.cancel(run, self.stage.user, timezone.now())
        return seconds

    def _first_call(self, run: Any, since: float) -> float:
        account = run.account.address

        def calls() -> list[float]:
            return [d.t for d in self.sandbox.book().deliveries() if d.account == account and d.t >= since]

        _until(lambda: bool(calls()))
        return min(calls())


def _live_drivers() -> list[Any]:
    """Those that hold their locks. One that was just killed has beaten a moment ago, but its session is gone."""
    from fanout.engine import holding
    from fanout.models import Driver
    from fanout.rules.liveness import DRIVER_SILENT_AFTER

    return list(Driver.objects.raw(holding.LIVE_DRIVERS, {"silent_after": DRIVER_SILENT_AFTER}))


def _until(ask: Callable[[], Any]) -> Any:
    """What it answers when it is no longer nothing."""
    end = time.monotonic() + PATIENCE
    while not (answer := ask()):
        assert time.monotonic() < end, f"still not so after {PATIENCE:g} s"
        time.sleep(0.02)
    return answer


if __name__ == "__main__":
    main()
