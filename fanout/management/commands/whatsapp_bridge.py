"""`manage.py whatsapp_bridge`: the process that keeps the sessions of paired WhatsApp numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser

from accounts.channels.whatsapp.bridge.library import NotInstalled, installed
from config.problems import set_up_problem
from fanout import bridge
from fanout.management.base import BadInput, NotDone, PlainCommand, in_range
from fanout.ops.heartbeat import beat_of_bridge

MOST_ACCOUNTS = 2_000


class Command(PlainCommand):
    help = "Run the bridge to WhatsApp: it keeps the sessions of paired numbers and sends for the lanes."
    example = "whatsapp_bridge --host 10.0.0.7 --port 8900 --public-url http://10.0.0.7:8900"

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine only)")
        parser.add_argument("--port", type=int, default=0, help="0 picks a free one")
        parser.add_argument(
            "--public-url",
            default="",
            help=f"how drivers on other machines reach this bridge, at most {bridge.LONGEST_ADDRESS} characters",
        )
        parser.add_argument("--most", type=int, default=200, help="accounts that this bridge takes at most")
        parser.add_argument("--script", type=Path, help="folder of a scripted WhatsApp (default: WHATSAPP_SCRIPT)")

    def handle(self, *args: Any, script: Path | None, most: int, **options: Any) -> None:
        in_range("--most", most, 1, MOST_ACCOUNTS)
        where = options["host"], options["port"], options["public_url"].rstrip("/")
        if len(where[2].encode()) > bridge.LONGEST_ADDRESS:
            raise BadInput(
                f"--public-url takes at most {bridge.LONGEST_ADDRESS} characters, this one has {len(where[2])}: "
                "PostgreSQL would cut it. Use the machine's short name or its IP address."
            )
        if script is None and settings.WHATSAPP_SCRIPT:
            script = Path(settings.WHATSAPP_SCRIPT)
        if script is None and not installed():
            raise NotDone(str(NotInstalled()))
        if reason := set_up_problem():
            raise NotDone(reason)
        try:
            bridge.run(bridge.Options(*where, most, script), beat_of_bridge)
        except NotInstalled as problem:
            raise NotDone(str(problem)) from problem
