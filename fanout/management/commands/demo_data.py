"""`manage.py demo_data`: something to look at, and one run that goes on right now."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser
from django.db import transaction
from django.utils import timezone

from fanout.management.base import PlainCommand
from fanout.management.demo import cast as demo
from fanout.management.demo import history
from fanout.models import Run
from fanout.runs import controls


class Command(PlainCommand):
    help = "Add demo data. If it exists already, only start a run, unless one is going on."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--provider", metavar="URL", help="the sandbox provider to send to (default: SANDBOX_URL)")

    def handle(self, *args: Any, provider: str | None, **options: Any) -> None:
        if not settings.EMBEDDED_DATABASE:
            raise CommandError(
                "The demo has well-known passwords, so it goes into the embedded database only: unset DATABASE_URL."
            )
        with transaction.atomic():
            cast = demo.gather(provider or settings.SANDBOX_URL)
            made = history.write(cast, timezone.now())
        if made:
            self.stdout.write(f"{len(cast.accounts)} accounts, {len(cast.recipients)} groups, {made} past runs.")
        self.stdout.write(go_live(cast))


def go_live(cast: demo.Cast) -> str:
    """The drivers of a running Crier send it to the sandbox provider at 40 a minute."""
    reminder = cast.reminders[demo.LIVE]
    if reminder.runs.filter(status__in=Run.LIVE).exists():
        return f"“{reminder.title}” is still going out."
    return f"“{reminder.title}”: {controls.fire(reminder, cast.mei, timezone.now()).text}"
