"""`manage.py forecast`: the expected end of a reminder or run, whether it fits, and which limit is decisive."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser
from django.utils import timezone

from fanout.management.base import BadInput, CrierCommand, find_reminder, find_run, table
from fanout.plans.forecast import Forecast, forecast_reminder, forecast_run, template_outlook
from reminders.moments import moment


class Command(CrierCommand):
    help = (
        "Forecast a reminder's next firing or the rest of a run: when it ends, whether it fits the window, and which "
        "limit is decisive."
    )
    example = 'forecast "Water works"'

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("reminder", nargs="?", help="number or title")
        parser.add_argument("--run", help="number of a run, instead of a reminder")

    def handle(self, *args: Any, **options: Any) -> None:
        if bool(options["reminder"]) == bool(options["run"]):
            raise BadInput("Name either a reminder or a run.")
        now, templates = timezone.now(), []
        if options["run"]:
            run = find_run(options["run"])
            forecast, timezone_name = forecast_run(run, now), run.timezone
        else:
            reminder = find_reminder(options["reminder"])
            forecast, timezone_name = forecast_reminder(reminder, now), reminder.timezone
            templates = template_outlook(reminder, forecast.starts_at or now, now)
        report = as_data(forecast) | ({"templates": templates} if templates else {})
        self.answer(report, forecast.sentence, *templates, *days(forecast, timezone_name))


def as_data(forecast: Forecast) -> dict[str, Any]:
    return {
        "sentence": forecast.sentence,
        "starts_at": forecast.starts_at and forecast.starts_at.isoformat(),
        "ends_at": forecast.ends_at and forecast.ends_at.isoformat(),
        "fits": forecast.fits,
        "fits_count": forecast.fits_count,
        "bound_by": forecast.bound_by,
        "days": [
            {
                "date": day.date.isoformat(),
                "targets": day.targets,
                "messages": day.messages,
                "ends_at": day.ends_at.isoformat(),
            }
            for day in forecast.days
        ],
    }


def days(forecast: Forecast, timezone_name: str) -> list[str]:
    """Return a table of the days if there is more than one."""
    if len(forecast.days) < 2:
        return []
    rows = [(day.date, day.targets, day.messages, moment(day.ends_at, timezone_name)) for day in forecast.days]
    return table(("day", "targets", "messages", "last message"), rows)
