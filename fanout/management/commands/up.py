"""`manage.py up`: start and supervise all of Crier's processes."""

from __future__ import annotations

import hashlib
from ipaddress import ip_address
from typing import Any

from django.conf import settings
from django.contrib.staticfiles.finders import get_finders
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection, connections
from django.db.migrations.executor import MigrationExecutor

from config.local.supervisor import StartError, Supervisor
from fanout.management.demo.cast import LOGINS


class Command(BaseCommand):
    help = "Migrate the database, then run the web server and both clusters until Ctrl-C."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--demo", action="store_true", help="add demo data and run the sandbox provider")
        parser.add_argument("--host", default="127.0.0.1")
        parser.add_argument("--port", type=int, default=8000)
        parser.add_argument("--workers", type=int, help="driver slots (default: DRIVER_SLOTS)")

    def handle(self, *args: Any, demo: bool, host: str, port: int, workers: int | None, **options: Any) -> None:
        if demo and not _is_this_machine(host):
            raise CommandError(
                f"The demo has well-known passwords, so it listens on this machine only: omit --host {host} or --demo."
            )
        parent = Supervisor(self.say, host, port, sandbox=demo, workers=workers)
        try:
            parent.claim()
        except StartError as problem:
            raise CommandError(str(problem)) from None
        try:
            self.prepare(demo)
            parent.start()
            self.greet(host, port, demo)
            parent.watch()
        except StartError as problem:
            raise CommandError(str(problem)) from None
        except KeyboardInterrupt:
            pass
        finally:
            parent.stop()

    def say(self, line: str) -> None:
        self.stdout.write(line)
        self.stdout.flush()

    def prepare(self, demo: bool) -> None:
        self.migrate()
        self.collect_static()
        if demo:
            self.say("Demo data …")
            call_command("demo_data", stdout=self.stdout, stderr=self.stderr)
        # The children get their own; ours opens again when it is needed.
        connections.close_all()

    def migrate(self) -> None:
        executor = MigrationExecutor(connection)
        plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
        if plan:
            self.say(f"Applying {len(plan)} migrations …")
            call_command("migrate", interactive=False, verbosity=0)

    def collect_static(self) -> None:
        stamp = settings.STATIC_ROOT / ".fingerprint"
        fingerprint = _static_fingerprint()
        if stamp.exists() and stamp.read_text() == fingerprint:
            return
        self.say("Collecting static files …")
        call_command("collectstatic", interactive=False, verbosity=0)
        stamp.parent.mkdir(parents=True, exist_ok=True)
        stamp.write_text(fingerprint)

    def greet(self, host: str, port: int, demo: bool) -> None:
        shown = "127.0.0.1" if host in ("0.0.0.0", "::") else host
        self.say(f"\nCrier is running: http://{shown}:{port}/")
        if demo:
            for name, password in LOGINS:
                self.say(f"  log in as {name} with the password {password}")
        self.say("Ctrl-C stops everything. Logs are in var/log.\n")


def _is_this_machine(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _static_fingerprint() -> str:
    """Names, sizes and times of all static sources: collecting them takes seconds, this does not."""
    digest = hashlib.sha256()
    for finder in get_finders():
        for path, storage in finder.list([]):
            state = (path, storage.size(path), storage.get_modified_time(path).timestamp())
            digest.update(repr(state).encode())
    return digest.hexdigest()
