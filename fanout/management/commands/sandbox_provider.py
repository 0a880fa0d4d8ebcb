"""`manage.py sandbox_provider`: a provider to try Crier with."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from accounts.channels.sandbox import server


class Command(BaseCommand):
    help = "Run the sandbox provider, which accepts messages over HTTP and records them in its own book."
    # It touches no database and must start when ours is down.
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        server.add_arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        code = server.run(argparse.Namespace(**options))
        if code:
            sys.exit(code)
