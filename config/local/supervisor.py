"""The one parent of a running Crier: web server, two clusters, bridges of channels that need one and, for the demo, the
sandbox provider.

It starts them, restarts a child that ended or whose heartbeat stopped, and stops them in order. The children are noted
in `var/up.pid`, so that the next start recognises what a parent that was killed -9 left behind.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from django.conf import settings
from django.db import DatabaseError, connections
from django.db.models.functions import Now

from accounts.channels.base import Channel
from accounts.channels.registry import channels
from accounts.models import Account
from config import env
from config.local import embedded
from config.local.children import (
    ENDS_WITH_PARENT,
    Child,
    end,
    is_alive,
    kill_session,
    rotate,
    session_members,
    wait_until,
)
from config.local.provider import Provider, health
from fanout.models import ClusterBeat
from fanout.rules.liveness import CLUSTERS, FIRST_BEAT_WITHIN, RESTART_BRIDGE_AFTER, RESTART_CLUSTER_AFTER

log = logging.getLogger(__name__)

CHECK_SECONDS = 2.0
# A driver needs a second or two, 13 s where a provider has not answered yet, 43 s when the database is away as well.
STOP_PATIENCE = 45.0
# A stalled cluster can rarely end by itself, but a send that is under way gets its chance.
STALLED_PATIENCE = 5.0
# Remains of a killed parent finish what they are sending, but not for ever.
REMAINS_PATIENCE = 60.0
PORT_PATIENCE = 10.0
HIGHEST_PORT = 65_535

Say = Callable[[str], object]


class StartError(Exception):
    """The processes could not be started; a sentence for the operator."""


class Record:
    """The file `var/up.pid`: locked by the running parent, it names that parent and its children."""

    def __init__(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+")
            self.path = path
        except OSError as error:
            raise StartError(env.no_var_dir(path.parent, error)) from None

    def take(self) -> dict[str, int]:
        """Lock the file; return the processes that an earlier parent left, by name. Raises StartError."""
        before = self._read()
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            pid = before.get("parent", "unknown")
            raise StartError(f"Crier is already running in this checkout (pid {pid}).") from None
        return {name: pid for name, (pid, born) in before.get("children", {}).items() if _is_ours(pid, born)}

    def write(self, children: dict[str, psutil.Process]) -> None:
        born = {}
        for name, process in children.items():
            with suppress(psutil.NoSuchProcess):
                born[name] = [process.pid, process.create_time()]
        content = json.dumps({"parent": os.getpid(), "children": born}).encode()
        try:
            # Not through the buffer: what a full disk refuses would come again with the next write.
            os.pwrite(self.file.fileno(), content, 0)
            os.ftruncate(self.file.fileno(), len(content))
        except OSError as error:
            # No reason to stop sending: only the next start will not know what was started.
            log.warning("%s was not written: %s", self.path, error.strerror)

    def close(self) -> None:
        self.file.close()

    def _read(self) -> dict[str, Any]:
        self.file.seek(0)
        try:
            record: dict[str, Any] = json.load(self.file)
        except ValueError:
            return {}
        return record


def _is_ours(pid: int, born: float) -> bool:
    """Return whether anything of that child lives: the process itself, or orphans in its session.

    A session's number is not given to a new process while it has members, so orphans are proof enough.
    """
    with suppress(psutil.NoSuchProcess):
        return abs(psutil.Process(pid).create_time() - born) < 1
    return any(True for _member in session_members(pid))


class Supervisor:
    def __init__(self, say: Say, host: str, port: int, sandbox: bool, workers: int | None) -> None:
        self.say = say
        self.host, self.port = host, port
        self.record = Record(settings.VAR_DIR / "up.pid")
        self.stop_asked = threading.Event()
        self.preparing = True
        self.remains: dict[str, int] = {}
        self.remains_until = 0.0
        self.next_check = 0.0
        self.env = self._child_env(workers)
        self.web = self._web()
        self.clusters = [self._cluster(name) for name in CLUSTERS]
        self.provider = self._provider() if sandbox else None
        self.bridges: dict[str, Child] = {}

    # --- starting -----------------------------------------------------------------------------------

    def claim(self) -> None:
        """Check that we are the only parent and that the port is free, before anything is changed."""
        self.remains = self.record.take()
        self.remains_until = time.monotonic() + REMAINS_PATIENCE
        self._ask_remains_to_end()
        old_web = any(name.endswith("web") for name in self.remains)
        if not wait_until(self._port_is_free, PORT_PATIENCE if old_web else 0):
            other = self.port + 1 if self.port < HIGHEST_PORT else self.port - 1
            raise StartError(
                f"Port {self.port} is in use by another program: choose another one, for example with --port {other} "
                f"(make: PORT={other})."
            )
        for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # nohup ignores SIGHUP, and so must we then.
            if sign != signal.SIGHUP or signal.getsignal(sign) != signal.SIG_IGN:
                signal.signal(sign, self._on_signal)

    def start_provider(self) -> str:
        """Start the sandbox provider or join a running one; return its address."""
        provider = self.provider
        assert provider is not None
        old = self.remains.pop("sandbox", None)
        if not provider.join():
            if old is not None:
                kill_session(old)
            self._use_or_start(provider)
        for child in (self.web, *self.clusters):
            child.env["SANDBOX_URL"] = provider.url
        self._note()
        return provider.url

    def _use_or_start(self, provider: Provider) -> None:
        chosen = env.is_set("SANDBOX_URL")
        if chosen and health(provider.url):
            self.say(f"Using the sandbox provider at {provider.url}, which SANDBOX_URL names.")
            self.provider = None
        elif not provider.start(chosen):
            raise StartError(
                f"The sandbox provider did not start. Last lines of its log:\n{provider.child.tail()}"
                + ("\nChoose another address in SANDBOX_URL, or unset it." if chosen else "")
            )

    def start(self) -> None:
        for child in (self.web, *self.clusters):
            child.start()
        self._note()
        if not wait_until(self._web_answers, 60):
            raise StartError(f"The web server did not start within 60 s. Last lines of its log:\n{self.web.tail()}")

    def _web_answers(self) -> bool:
        if not self.web.alive():
            raise StartError(f"The web server ended while starting. Last lines of its log:\n{self.web.tail()}")
        host = "127.0.0.1" if self.host in ("0.0.0.0", "::") else self.host
        return _answers((host, self.port))

    def _port_is_free(self) -> bool:
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((self.host, self.port))
                # Another socket may be bound without listening: only listening tells.
                probe.listen(1)
            except PermissionError:
                raise StartError(f"Port {self.port} needs root rights: choose one above 1023.") from None
            except (OSError, UnicodeError) as problem:
                if getattr(problem, "errno", None) == errno.EADDRINUSE:
                    return False
                raise StartError(
                    f"{self.host!r} is not an address of this machine: omit --host for this machine only, "
                    "or take --host 0.0.0.0 for all of its addresses."
                ) from None
        return True

    # --- watching -----------------------------------------------------------------------------------

    def watch(self) -> None:
        self.preparing = False
        while not self.stop_asked.wait(0.3):
            self.step()

    def step(self) -> None:
        self._restart_hung_bridges()
        for child in self._children():
            self._keep_alive(child)
        now = time.monotonic()
        if now < self.next_check:
            return
        self.next_check = now + CHECK_SECONDS
        self._keep_database()
        self._start_bridges()
        self._restart_stalled()
        self._rotate_logs()
        self._end_remains(now)

    def _keep_alive(self, child: Child) -> None:
        if child.alive():
            return
        if child.restart_at is None:
            child.kill_all()
            delay = child.plan_restart()
            self.say(f"{child.name} ended with code {child.code}; restarting it in {delay:.0f} s. Its log: {child.log}")
        if child.restart_at is not None and time.monotonic() >= child.restart_at:
            child.start()
            self._note()

    def _start_bridges(self) -> None:
        """Start the bridge of each channel that needs one, has an account and can run here."""
        try:
            used = set(Account.objects.order_by().values_list("channel", flat=True).distinct())
        except DatabaseError:
            connections.close_all()
            return
        for described in channels().values():
            if described.bridge and described.key in used - self.bridges.keys() and not described.bridge_problem():
                self.bridges[described.key] = self._bridge(described)
                self.bridges[described.key].start()
                self._note()

    def _restart_hung_bridges(self) -> None:
        """Restart bridges without a heartbeat: a hung event loop answers no requests while its process is alive."""
        for child in self.bridges.values():
            patience = RESTART_BRIDGE_AFTER if child.has_beaten() else FIRST_BEAT_WITHIN
            if child.alive() and child.silent_for() > patience.total_seconds():
                self.say(f"{child.name} has no heartbeat; restarting it")
                child.kill_all()  # its event loop is what would end it in order

    def _restart_stalled(self) -> None:
        try:
            beating = self._beating_pids()
        except DatabaseError:
            # Without a database there are no heartbeats to judge; everyone gets their time again after it.
            connections.close_all()
            for child in self.clusters:
                child.started = time.monotonic()
            return
        for child in self.clusters:
            if child.alive() and child.age > FIRST_BEAT_WITHIN.total_seconds() and child.pid not in beating:
                self.say(f"{child.name} has no heartbeat; restarting it")
                end([child], STALLED_PATIENCE)

    def _beating_pids(self) -> set[int]:
        fresh = ClusterBeat.objects.filter(host=socket.gethostname(), beat_at__gt=Now() - RESTART_CLUSTER_AFTER)
        return set(fresh.values_list("pid", flat=True))

    def _keep_database(self) -> None:
        """Restart the embedded server's keeper if it was killed; no other process would."""
        if not settings.EMBEDDED_DATABASE:
            return
        if embedded.is_kept(settings.VAR_DIR):
            return
        try:
            embedded.ensure_running(settings.VAR_DIR)
        except embedded.EmbeddedError as problem:
            self.say(str(problem))

    def _rotate_logs(self) -> None:
        """Keep logs small: every request of a stranger writes lines."""
        for child in self._children():
            try:
                rotate(child.log)
            except OSError as problem:  # a full disk: no reason to stop sending
                log.warning("%s was not rotated: %s", child.log, problem.strerror)

    def _ask_remains_to_end(self) -> None:
        """Signal them where the kernel did not: a second SIGTERM can catch django-q2 inside its first and hang it."""
        if ENDS_WITH_PARENT:
            return
        for name, pid in self.remains.items():
            if name != "sandbox":
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)

    def _end_remains(self, now: float) -> None:
        if not self.remains or now < self.remains_until:
            return
        for pid in self.remains.values():
            kill_session(pid)
        self.remains = {}
        self._note()

    # --- stopping -----------------------------------------------------------------------------------

    def stop(self) -> None:
        self.preparing = False
        self.say("Stopping …")
        # The clusters first, so that they hand over while the web server ends; the provider outlives them.
        end([*self.clusters, self.web], STOP_PATIENCE)
        # After the clusters, which may still be sending through them.
        end(self.bridges.values(), STOP_PATIENCE)
        if self.provider:
            end([self.provider.child], STOP_PATIENCE)
        for pid in self.remains.values():
            kill_session(pid)
        self.record.write({})
        connections.close_all()
        if settings.EMBEDDED_DATABASE:
            embedded.stop_and_wait(settings.VAR_DIR)
        self.say("Stopped.")

    def _on_signal(self, _signal: int, _frame: object) -> None:
        self.stop_asked.set()
        if self.preparing:
            # Migrations and the like do not look at the flag.
            self.preparing = False
            raise KeyboardInterrupt

    # --- the children -------------------------------------------------------------------------------

    def _children(self) -> list[Child]:
        return [self.web, *self.clusters, *self.bridges.values(), *([self.provider.child] if self.provider else [])]

    def _note(self) -> None:
        noted = {f"before-{name}": psutil.Process(pid) for name, pid in self.remains.items() if psutil.pid_exists(pid)}
        for child in self._children():
            if child.process is not None and is_alive(child.process):
                noted[child.name] = child.process
        self.record.write(noted)

    def _child_env(self, workers: int | None) -> dict[str, str]:
        env = {"PYTHONUNBUFFERED": "1"}
        if "SITE_URL" not in os.environ:
            host = f"[{self.host}]" if ":" in self.host else self.host
            env["SITE_URL"] = f"http://{host}:{self.port}"
            (settings.VAR_DIR / "site-url").write_text(env["SITE_URL"])  # for commands in other shells
        if workers is not None:
            env["DRIVER_SLOTS"] = str(workers)
        return env

    def _web(self) -> Child:
        command = ["-m", "uvicorn", "config.asgi:application", "--host", self.host, "--port", str(self.port)]
        return self._child(
            "web", [*command, "--lifespan", "off", "--no-proxy-headers", "--timeout-graceful-shutdown", "5"]
        )

    def _cluster(self, name: str) -> Child:
        return self._child(name, ["manage.py", "cluster", name], {"Q_CLUSTER_NAME": name})

    def _bridge(self, described: Channel) -> Child:
        beat = settings.VAR_DIR / "log" / f"{described.key}.beat"
        child = self._child(described.key, ["manage.py", described.bridge], {"BEAT_FILE": str(beat)})
        child.beat, child.first_delay = beat, 0.0  # lanes wait for it
        beat.unlink(missing_ok=True)  # of an earlier parent's
        return child

    def _provider(self) -> Provider:
        return Provider(settings.VAR_DIR / "sandbox", settings.SANDBOX_URL, self._child("sandbox", []))

    def _child(self, name: str, arguments: list[str], env: dict[str, str] | None = None) -> Child:
        log_file = settings.VAR_DIR / "log" / f"{name}.log"
        return Child(name, [sys.executable, *arguments], log_file, self.env | (env or {}))


def _answers(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, timeout=1).close()
    except OSError:
        return False
    return True
