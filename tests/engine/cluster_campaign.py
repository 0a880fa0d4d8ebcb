"""A campaign against three database machines: `python -m tests.engine.chaos --cluster`.

etcd and Patroni run on three machines (tests/engine/database_cluster.py), and two Crier machines send. One round hands
the leadership over, kills the leader's machine, cuts the leader off from the network and cuts the synchronous standby
off. The provider's book judges: no part twice, nothing lost, nothing uncertain.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from tests.engine.chaos import ROOT, Campaign, call, kill, wait
from tests.engine.database_cluster import DatabaseCluster, Node

MACHINES = ("crier1", "crier2")
GOES_ON = 20  # parts that must have been sent before the next accident


class ClusterCampaign(Campaign):
    slow_groups = 2

    def __init__(self, folder: Path, given: argparse.Namespace, servers: DatabaseCluster) -> None:
        super().__init__(folder, given)
        self.servers = servers
        self.rounds = given.rounds
        self.clusters: dict[str, subprocess.Popen[bytes]] = {}
        self.standstills: dict[str, list[float]] = {}
        self.confirmations = 0

    def torment(self) -> None:
        self.goes_on("start")
        for _ in range(self.rounds):
            self.after("switch-over", self.servers.switch_over)
            self.servers.wait_until_whole()
            dead = self.servers.leader()
            self.after("killed leader", self.servers.kill, dead)
            self.servers.start(dead)
            self.servers.wait_until_whole()
            lonely = self.servers.leader()
            self.after("leader cut off", self.servers.cut_off, lonely)
            self.servers.connect_again(lonely)
            self.servers.wait_until_whole()
            standby = self.servers.synchronous_standby()
            assert standby is not None
            self.after("standby cut off", self.servers.cut_off, standby)
            self.servers.connect_again(standby)
            self.servers.wait_until_whole()

    def after(self, accident: str, happen: Callable[..., object], *machine: Node) -> None:
        happen(*machine)
        self.killed[accident] = self.killed.get(accident, 0) + 1
        self.goes_on(accident)

    def goes_on(self, accident: str) -> None:
        """Wait until messages go out again, by the provider's book, and note how long that took."""
        began, before = time.monotonic(), len(self.sandbox.book().deliveries())
        if not wait(lambda: self.confirmed() and len(self.sandbox.book().deliveries()) >= before + GOES_ON):
            self.broken.append(f"nothing went out after: {accident}")
        self.standstills.setdefault(accident, []).append(round(time.monotonic() - began, 1))

    def confirmed(self) -> bool:
        """Confirm like an operator where the servers have lost commits. Patroni 3.0.2 was seen promoting an old leader
        that came back from a cut, although there was another one."""
        from fanout.models import KnownServer

        if self.supervise() and KnownServer.objects.filter(held=True).exists():
            call("lost_commits", "--confirm")
            self.confirmations += 1
        return True

    def wait_for_the_end(self, runs: list[Any]) -> bool:
        return wait(self.confirmed) and super().wait_for_the_end(runs)

    def accidents(self) -> None:
        if not self.confirmations:
            self.expect_unconfirmed(0, "the accidents")

    # --- two machines -----------------------------------------------------------------------------------

    def start_cluster(self) -> None:
        for name in MACHINES:
            self.start_machine(name)

    def start_machine(self, name: str) -> None:
        with (self.folder / "cluster.log").open("ab") as log:
            self.clusters[name] = subprocess.Popen(
                [sys.executable, "-m", "tests.engine.set_clock", str(self.clock), "cluster", "drivers"],
                cwd=ROOT,
                stdout=log,
                stderr=log,
                env=os.environ
                | {"Q_CLUSTER_NAME": "drivers", "CRIER_VAR": str(self.folder / name), "TEST_HOST_NAME": name},
            )

    def supervise(self) -> bool:
        for name, cluster in self.clusters.items():
            if cluster.poll() is not None:
                self.start_machine(name)
        return True

    def stop_cluster(self) -> None:
        for cluster in self.clusters.values():
            if cluster.poll() is None:
                children = psutil.Process(cluster.pid).children(recursive=True)
                for pid in [cluster.pid, *(child.pid for child in children)]:
                    kill(pid)
            cluster.wait()

    def judge(self, runs: list[Any], book: Any, finished: bool, seconds: float) -> dict[str, Any]:
        from fanout.models import Driver, KnownServer

        known = KnownServer.objects.get()
        if known.held:
            self.broken.append(f"sending is held up: {known.why}")
        found = super().judge(runs, book, finished, seconds)
        return found | {
            "seconds_until_20_more_parts": self.standstills,
            "timeline": known.timeline,
            "confirmed_lost_commits": self.confirmations,
            "machines": sorted(Driver.objects.values_list("host", flat=True).distinct()),
        }
