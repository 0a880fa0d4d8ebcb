"""`manage.py doctor`: check that everything is in place for sending."""

from __future__ import annotations

from typing import Any

from fanout.management.base import CrierCommand, NotDone
from fanout.ops import diagnosis

SIGN = {diagnosis.OK: "✓", diagnosis.WARNING: "!", diagnosis.FAILED: "✗"}


class Command(CrierCommand):
    help = (
        "Check configuration, database, locks, clusters, schedules, clocks and accounts, with advice for each problem."
    )
    example = "doctor"

    def handle(self, *args: Any, **options: Any) -> None:
        verdicts = []
        for verdict in diagnosis.examine():
            verdicts.append(verdict)
            self.say(line(verdict))
        data = {"checks": [{"name": v.name, "state": v.state, "text": v.text, "hint": v.hint} for v in verdicts]}
        failed = [verdict.name for verdict in verdicts if verdict.state == diagnosis.FAILED]
        if failed:
            raise NotDone(f"Failing checks: {', '.join(failed)}.", data)
        self.answer(data, "No failing checks.")


def line(verdict: diagnosis.Verdict) -> str:
    hint = f"\n    → {verdict.hint}" if verdict.hint else ""
    return f"{SIGN[verdict.state]} {verdict.name:14} {verdict.text}{hint}"
