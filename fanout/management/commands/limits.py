"""`manage.py limits`: do activity, targets, caps, counters and plans agree?"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.core.management.base import CommandParser
from django.utils import timezone

from fanout.management.base import CrierCommand, NotDone, in_range
from fanout.ops import audit

LONGEST = 36_500  # days


class Command(CrierCommand):
    help = "Verify the books, and say each violation. --repair mends what can be derived and deletes nothing."
    example = "limits --check"

    def arguments(self, parser: CommandParser) -> None:
        mode = parser.add_mutually_exclusive_group()
        mode.add_argument("--check", action="store_true", help="look only (the default)")
        mode.add_argument("--repair", action="store_true", help="mend what follows from other rows")
        parser.add_argument("--days", type=int, default=30, help="how far to look back")

    def handle(self, *args: Any, **options: Any) -> None:
        in_range("--days", options["days"], 1, LONGEST)
        now = timezone.now()
        since = now - timedelta(days=options["days"])
        mended = audit.repair(since, now) if options["repair"] else []
        left = audit.examine(since, now)
        self.report(mended, left)

    def report(self, mended: list[audit.Violation], left: list[audit.Violation]) -> None:
        data = {"violations": [v.as_dict() for v in left], "repaired": [v.as_dict() for v in mended]}
        lines = [f"repaired  {_line(v)}" for v in mended] + [f"violation {_line(v)}" for v in left]
        if not left:
            self.answer(data, *lines, "The books agree.")
            return
        for line in lines:
            self.say(line)
        hint = "; `limits --repair` mends some" if any(v.repairable for v in left) else ""
        raise NotDone(f"{len(left)} violations{hint}.", data)


def _line(violation: audit.Violation) -> str:
    return f"{violation.check:9} {violation.subject}: {violation.text}"
