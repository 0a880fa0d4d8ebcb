"""`manage.py forecast`: when would it be done, does it fit, and what is in the way?"""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser
from django.utils import timezone

from fanout.management import lookup
from fanout.management.base import BadInput, CrierCommand, table
from fanout.runs.forecast import Forecast, forecast_reminder, forecast_run
from reminders.moments import moment


class Command(CrierCommand):
    help = "Forecast a reminder's next firing, or what is left of a run: its end, whether it fits, what binds."
    example = 'forecast "Water works"'

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("reminder", nargs="?", help="number or title")
        parser.add_argument("--run", help="instead of a reminder: a run's number")

    def handle(self, *args: Any, **options: Any) -> None:
        if bool(options["reminder"]) == bool(options["run"]):
            raise BadInput("Name a reminder or a run, one of the two.")
        now = timezone.now()
        if options["run"]:
            run = lookup.run(options["run"])
            found, timezone_name = forecast_run(run, now), run.timezone
        else:
            reminder = lookup.reminder(options["reminder"])
            found, timezone_name = forecast_reminder(reminder, now), reminder.timezone
        self.answer(facts(found), found.sentence, *days(found, timezone_name))


def facts(found: Forecast) -> dict[str, Any]:
    return {
        "sentence": found.sentence,
        "starts_at": found.starts_at and found.starts_at.isoformat(),
        "ends_at": found.ends_at and found.ends_at.isoformat(),
        "fits": found.fits,
        "fits_count": found.fits_count,
        "bound_by": found.bound_by,
        "days": [
            {
                "date": day.date.isoformat(),
                "targets": day.targets,
                "messages": day.messages,
                "ends_at": day.ends_at.isoformat(),
            }
            for day in found.days
        ],
    }


def days(found: Forecast, timezone_name: str) -> list[str]:
    """Only where there is more than one."""
    if len(found.days) < 2:
        return []
    rows = [(day.date, day.targets, day.messages, moment(day.ends_at, timezone_name)) for day in found.days]
    return table(("day", "targets", "messages", "last message"), rows)
