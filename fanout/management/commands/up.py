"""`manage.py up`: start and supervise all of Crier's processes."""

from __future__ import annotations

import hashlib
import sys
from ipaddress import ip_address
from typing import Any

from django.conf import settings
from django.contrib.staticfiles.finders import get_finders
from django.core.management import call_command
from django.core.management.base import CommandError, CommandParser
from django.db import connection, connections
from django.db.migrations.executor import MigrationExecutor

from config.env import in_var
from config.local.supervisor import HIGHEST_PORT, StartError, Supervisor
from config.logins import DEMO_LOGINS, demo_logins
from config.problems import migrations_left, sentence, version_problem
from fanout.management.base import NotDone, PlainCommand, in_range
from fanout.management.commands.demo_data import EMBEDDED_ONLY
from fanout.ops import diagnosis

MOST_WORKERS = 64  # as DRIVER_SLOTS


class Command(PlainCommand):
    help = "Migrate the database, then run the web server and both clusters until Ctrl-C."
    example = "up --port 8000"
    requires_system_checks = "__all__"

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--demo", action="store_true", help="add demo data and run the sandbox provider")
        parser.add_argument("--host", default="127.0.0.1")
        parser.add_argument("--port", type=int, default=8000)
        parser.add_argument("--workers", type=int, help="driver slots (default: DRIVER_SLOTS)")

    def handle(self, *args: Any, demo: bool, host: str, port: int, workers: int | None, **options: Any) -> None:
        in_range("--port", port, 1, HIGHEST_PORT)
        if workers is not None:
            in_range("--workers", workers, 1, MOST_WORKERS)
        if demo and not _is_this_machine(host):
            raise CommandError(
                f"The demo has well-known passwords, so it listens on this machine only: omit --host {host} or --demo."
            )
        if demo and not settings.EMBEDDED_DATABASE:
            raise CommandError(EMBEDDED_ONLY)
        try:
            parent = Supervisor(self.say, host, port, sandbox=demo, workers=workers)
            parent.claim()
        except StartError as problem:
            raise NotDone(str(problem)) from None
        try:
            reason = self.run(parent, demo, workers)
            if reason:
                # Before stopping the processes that did start, which takes a while.
                self.stderr.write(reason)
        finally:
            parent.stop()
        if reason:
            sys.exit(1)

    def run(self, parent: Supervisor, demo: bool, workers: int | None) -> str:
        """Run until Ctrl-C. Returns the reason in a sentence if it cannot run."""
        try:
            self.prepare(parent, demo, workers)
            parent.start()
            self.greet(parent, demo)
            parent.watch()
        except KeyboardInterrupt:
            pass
        except (StartError, CommandError) as problem:
            return str(problem)
        except Exception as problem:
            if words := sentence(problem):
                return words
            raise
        return ""

    def prepare(self, parent: Supervisor, demo: bool, workers: int | None) -> None:
        if reason := diagnosis.refusal(workers):
            raise StartError(reason)
        self.migrate()
        if not _is_this_machine(parent.host) and (problems := demo_logins()):
            raise StartError(f"{problems[0].msg} {problems[0].hint} Or omit --host {parent.host}.")
        self.collect_static()
        if demo:
            provider = parent.start_provider()
            self.say("Demo data …")
            site = parent.env.get("SITE_URL")
            call_command("demo_data", provider=provider, site=site, stdout=self.stdout, stderr=self.stderr)
        # Child processes open their own connections; ours reopens when needed.
        connections.close_all()

    def migrate(self) -> None:
        if problem := version_problem():
            raise StartError(problem)
        if left := migrations_left():
            self.say(f"Applying {left} migrations …")
            call_command("migrate", interactive=False, verbosity=0)
        # After an upgrade from 0.10 there is nothing to apply, and the new names are noted.
        MigrationExecutor(connection).check_replacements()

    def collect_static(self) -> None:
        stamp = settings.STATIC_ROOT / ".fingerprint"
        fingerprint = _static_fingerprint()
        if stamp.exists() and stamp.read_text() == fingerprint:
            return
        self.say("Collecting static files …")
        call_command("collectstatic", interactive=False, verbosity=0)
        stamp.parent.mkdir(parents=True, exist_ok=True)
        stamp.write_text(fingerprint)

    def greet(self, parent: Supervisor, demo: bool) -> None:
        shown = "127.0.0.1" if parent.host in ("0.0.0.0", "::") else parent.host
        self.say(f"\nCrier is running: http://{shown}:{parent.port}/")
        if demo:
            for name, password in DEMO_LOGINS:
                self.say(f"  log in as {name} with the password {password}")
        self.say(f"Ctrl-C stops everything. Logs are in {in_var('log')}.\n")


def _is_this_machine(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _static_fingerprint() -> str:
    """Hash names, sizes and times of all static sources: faster than collecting them."""
    digest = hashlib.sha256()
    for finder in get_finders():
        for path, storage in finder.list([]):
            state = (path, storage.size(path), storage.get_modified_time(path).timestamp())
            digest.update(repr(state).encode())
    return digest.hexdigest()
