"""`manage.py limits`: check that activity, targets, caps, counters and plans agree."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.core.management.base import CommandParser
from django.utils import timezone

from fanout.management.base import CrierCommand, NotDone, in_range
from fanout.ops import audit

LONGEST = 36_500  # days


class Command(CrierCommand):
    help = (
        "Check counters, activity, caps and plans, and report inconsistencies. --repair fixes those that can be "
        "derived from other rows, and replans what exceeds a daily cap; it deletes nothing."
    )
    example = "limits --check"

    def arguments(self, parser: CommandParser) -> None:
        mode = parser.add_mutually_exclusive_group()
        mode.add_argument("--check", action="store_true", help="report only (the default)")
        mode.add_argument("--repair", action="store_true", help="fix what can be derived from other rows")
        parser.add_argument("--days", type=int, default=30, help="days to look back, and ahead for plans [30]")

    def handle(self, *args: Any, **options: Any) -> None:
        in_range("--days", options["days"], 1, LONGEST)
        now = timezone.now()
        since = now - timedelta(days=options["days"])
        repaired = audit.repair(since, now) if options["repair"] else []
        left = audit.examine(since, now)
        self.report(repaired, left)

    def report(self, repaired: list[audit.Violation], left: list[audit.Violation]) -> None:
        data = {"violations": [v.as_dict() for v in left], "repaired": [v.as_dict() for v in repaired]}
        lines = [f"repaired  {_line(v)}" for v in repaired] + [f"violation {_line(v)}" for v in left]
        if not left:
            self.answer(data, *lines, "No inconsistencies.")
            return
        for line in lines:
            self.say(line)
        hint = "; `manage.py limits --repair` fixes some of them" if any(v.repairable for v in left) else ""
        raise NotDone(f"Inconsistencies: {len(left)}{hint}.", data)


def _line(violation: audit.Violation) -> str:
    return f"{violation.check:9} {violation.subject}: {violation.text}"
