"""Three database machines with etcd and Patroni, each in a network namespace, for tests in which they fail.

with DatabaseCluster(folder) as cluster:
    ...                          # DATABASE_URL=cluster.url
    cluster.switch_over()
    cluster.kill(cluster.leader())
    cluster.cut_off(cluster.leader())

The configuration is that of docs/operations.md, with shorter times. Needs root, `ip` and the programs of Debian's
packages etcd-server, patroni and postgresql; `CLUSTER_ROOT` names a directory into which the packages were unpacked
with `dpkg -x`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.error import URLError
from urllib.request import Request, urlopen

NETWORK = "10.213.77"
BRIDGE = "crierdb"
USER = 65534  # nobody: PostgreSQL does not start as root
START_SECONDS = 120.0
ROOT = Path(os.environ.get("CLUSTER_ROOT", "/"))
SEARCHED = os.pathsep.join([str(ROOT / "usr/bin"), os.environ.get("PATH", "")])

ETCD = """
name: {name}
data-dir: {folder}/etcd
listen-peer-urls: http://{ip}:2380
listen-client-urls: http://{ip}:2379
initial-advertise-peer-urls: http://{ip}:2380
advertise-client-urls: http://{ip}:2379
initial-cluster: {peers}
initial-cluster-token: crier
initial-cluster-state: new
enable-grpc-gateway: true
"""

PATRONI = """
scope: crier
name: {name}
restapi: {{listen: "{ip}:8008", connect_address: "{ip}:8008"}}
etcd3: {{hosts: [{clients}]}}
bootstrap:
  dcs:
    ttl: 12
    loop_wait: 2
    retry_timeout: 4
    maximum_lag_on_failover: 1048576
    synchronous_mode: {synchronous}
    postgresql:
      use_pg_rewind: true
      parameters:
        max_connections: 100
        wal_keep_size: 256MB
        wal_sender_timeout: 5s
        wal_receiver_timeout: 5s
  initdb: [data-checksums, {{encoding: UTF8}}]
  pg_hba:
    - host all all {network}.0/24 scram-sha-256
    - host replication replicator {network}.0/24 scram-sha-256
postgresql:
  listen: {ip}:5432
  connect_address: {ip}:5432
  data_dir: {folder}/data
  pgpass: {folder}/pgpass
  remove_data_directory_on_rewind_failure: true
  remove_data_directory_on_diverged_timelines: true
  bin_dir: {bin}
  authentication:
    superuser: {{username: postgres, password: secret}}
    replication: {{username: replicator, password: secret}}
  parameters: {{unix_socket_directories: {folder}}}
"""


def missing() -> str:
    """Return why the cluster cannot be started here; empty if it can."""
    if os.geteuid() != 0:
        return "three machines on one need network namespaces, and those need root"
    programs = [name for name in ("etcd", "patroni", "ip", "setpriv") if not _found(name)]
    if not postgres_bin():
        programs.append("postgres")
    if programs:
        return f"{', '.join(programs)} not found: install etcd-server, patroni, postgresql, or set CLUSTER_ROOT"
    return ""


def _found(name: str) -> str:
    return shutil.which(name, path=SEARCHED) or ""


def postgres_bin() -> Path | None:
    return max(Path("/usr/lib/postgresql").glob("*/bin"), default=None)


@dataclass
class Node:
    name: str
    ip: str
    folder: Path
    processes: list[subprocess.Popen[bytes]]

    @property
    def link(self) -> str:
        return f"crier-{self.name}"


class DatabaseCluster:
    def __init__(self, folder: Path, synchronous: bool = True) -> None:
        self.synchronous = synchronous
        self.nodes = [Node(f"db{n}", f"{NETWORK}.{n}", folder / f"db{n}", []) for n in (1, 2, 3)]

    @property
    def url(self) -> str:
        hosts = ",".join(f"{node.ip}:5432" for node in self.nodes)
        return f"postgresql://crier:crier@{hosts}/crier"

    def __enter__(self) -> Self:
        for node in self.nodes:
            self.kill(node)  # of a campaign that was killed itself
        self._clean_up()
        ip("link", "add", BRIDGE, "type", "bridge")
        ip("addr", "add", f"{NETWORK}.254/24", "dev", BRIDGE)
        ip("link", "set", BRIDGE, "up")
        for node in self.nodes:
            self._connect(node)
            self._configure(node)
            self.start(node)
        self._wait(lambda: len(self.standbys()) == 2, "the cluster did not form")
        if self.synchronous:
            self._wait(lambda: self.synchronous_standby() is not None, "no standby became synchronous")
        self._create_database()
        return self

    def __exit__(self, *exc: object) -> None:
        for node in self.nodes:
            self.kill(node)
        if exc[0] is not None:
            for node in self.nodes:
                for log in node.folder.glob("*.log"):
                    shutil.copy(log, f"{node.folder.parent}-{node.name}-{log.name}")
        self._clean_up()

    # --- what happens to machines -----------------------------------------------------------------------

    def start(self, node: Node) -> None:
        """Start a machine's etcd and Patroni."""
        environment = os.environ | {"PYTHONPATH": str(ROOT / "usr/lib/python3/dist-packages")}
        commands = [[_found("etcd"), f"--config-file={node.folder}/etcd.yml"]]
        commands.append(["/usr/bin/python3", _found("patroni"), f"{node.folder}/patroni.yml"])
        for command in commands:
            name = Path(command[-1].split("=")[-1]).stem
            log = (node.folder / f"{name}.log").open("ab")
            inside = [
                "ip",
                "netns",
                "exec",
                node.link,
                "setpriv",
                f"--reuid={USER}",
                f"--regid={USER}",
                "--clear-groups",
            ]
            node.processes.append(
                subprocess.Popen([*inside, *command], stdout=log, stderr=log, env=environment, cwd=node.folder)
            )
            log.close()

    def kill(self, node: Node) -> None:
        """Kill everything on the machine, as a power failure does."""
        running = subprocess.run(["ip", "netns", "pids", node.link], capture_output=True, text=True, check=False)
        for pid in map(int, running.stdout.split()):
            with suppress(ProcessLookupError):
                os.kill(pid, 9)
        for process in node.processes:
            process.wait()
        node.processes.clear()

    def cut_off(self, node: Node) -> None:
        ip("link", "set", node.link, "down")

    def connect_again(self, node: Node) -> None:
        ip("link", "set", node.link, "up")

    def switch_over(self) -> Node:
        """Hand the leadership to the synchronous standby, as `patronictl switchover` does. Returns the new leader."""
        leader = self.leader()
        self._wait(lambda: self._asked_to_switch(leader), "the leader did not switch over")
        return self.wait_for_leader(but=leader)

    def _asked_to_switch(self, leader: Node) -> bool:
        candidate = self.synchronous_standby()
        if candidate is None:
            return False
        words = json.dumps({"leader": leader.name, "candidate": candidate.name}).encode()
        try:
            urlopen(Request(f"http://{leader.ip}:8008/switchover", words, method="POST"), timeout=60).close()
        except URLError:  # another standby has become the synchronous one
            return False
        return True

    # --- who is what ------------------------------------------------------------------------------------

    def members(self) -> dict[str, dict[str, Any]]:
        for node in self.nodes:
            with (
                suppress(OSError, URLError, ValueError),
                urlopen(f"http://{node.ip}:8008/cluster", timeout=2) as answer,
            ):
                return {member["name"]: member for member in json.load(answer)["members"]}
        return {}

    def leader(self) -> Node:
        return self.wait_for_leader()

    def wait_for_leader(self, but: Node | None = None) -> Node:
        return self._wait(lambda: self._answering_leader(but), "no leader was elected")

    def _answering_leader(self, but: Node | None) -> Node | None:
        for node in self.nodes:
            if node is not but and self._answers(node, "primary"):
                return node
        return None

    def standbys(self) -> list[Node]:
        return [node for node in self.nodes if self._answers(node, "replica")]

    def synchronous_standby(self) -> Node | None:
        return next((node for node in self.nodes if self._answers(node, "synchronous")), None)

    def _answers(self, node: Node, role: str) -> bool:
        try:
            with urlopen(f"http://{node.ip}:8008/{role}", timeout=2) as answer:
                return bool(answer.status == 200)
        except (OSError, URLError):
            return False

    def wait_until_whole(self) -> None:
        self._wait(lambda: len(self.standbys()) == 2, "a machine did not come back")
        if self.synchronous:
            self._wait(lambda: self.synchronous_standby() is not None, "no standby became synchronous")

    # --- setting up -------------------------------------------------------------------------------------

    def _connect(self, node: Node) -> None:
        ip("netns", "add", node.link)
        ip("link", "add", node.link, "type", "veth", "peer", "name", "eth0", "netns", node.link)
        ip("link", "set", node.link, "master", BRIDGE, "up")
        for words in (
            ["addr", "add", f"{node.ip}/24", "dev", "eth0"],
            ["link", "set", "eth0", "up"],
            ["link", "set", "lo", "up"],
        ):
            ip("netns", "exec", node.link, "ip", *words)

    def _configure(self, node: Node) -> None:
        node.folder.mkdir(parents=True)
        facts = {
            "name": node.name,
            "ip": node.ip,
            "folder": node.folder,
            "network": NETWORK,
            "bin": postgres_bin(),
            "synchronous": str(self.synchronous).lower(),
            "peers": ",".join(f"{one.name}=http://{one.ip}:2380" for one in self.nodes),
            "clients": ", ".join(f"'{one.ip}:2379'" for one in self.nodes),
        }
        (node.folder / "etcd.yml").write_text(ETCD.format(**facts))
        (node.folder / "patroni.yml").write_text(PATRONI.format(**facts))
        for path in (node.folder, *node.folder.iterdir()):
            os.chown(path, USER, USER)

    def _create_database(self) -> None:
        import psycopg

        info = f"host={self.leader().ip} user=postgres password=secret dbname=postgres"
        with psycopg.connect(info, autocommit=True) as server:
            server.execute("CREATE ROLE crier LOGIN PASSWORD 'crier'")
            server.execute("CREATE DATABASE crier OWNER crier")

    def _wait(self, ask: Callable[[], Any], problem: str) -> Any:
        end = time.monotonic() + START_SECONDS
        while not (answer := ask()):
            assert time.monotonic() < end, f"{problem} within {START_SECONDS:g} s: {self.members()}"
            time.sleep(0.2)
        return answer

    def _clean_up(self) -> None:
        for node in self.nodes:
            subprocess.run(["ip", "netns", "del", node.link], capture_output=True, check=False)
            subprocess.run(["ip", "link", "del", node.link], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", BRIDGE], capture_output=True, check=False)


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


if __name__ == "__main__":
    sys.exit(missing() or 0)
