"""`manage.py forecast`: the expected end of a reminder or run, whether it fits, and which limit is decisive."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.core.management.base import CommandParser
from django.utils import timezone

from fanout.management.base import BadInput, CrierCommand, find_reminder, find_run, table
from fanout.plans.follow_up_steps import steps_of_firing
from fanout.plans.forecast import Forecast, forecast_reminder, forecast_run, template_outlook
from reminders.models import MOST_STEP_DAYS, Reminder
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
        now, templates, later = timezone.now(), [], []
        if options["run"]:
            run = find_run(options["run"])
            forecast, timezone_name = forecast_run(run, now), run.timezone
        else:
            reminder = find_reminder(options["reminder"])
            forecast, timezone_name = forecast_reminder(reminder, now), reminder.timezone
            templates = template_outlook(reminder, forecast.starts_at or now, now)
            later = follow_ups(reminder, forecast, now)
        report = as_data(forecast) | ({"templates": templates} if templates else {})
        report |= {"follow_ups": later} if later else {}
        lines = [f"Follow-up {moment(one['at'], timezone_name)}: to at most {one['at_most']:,}." for one in later]
        self.answer(report, forecast.sentence, *templates, *lines, *days(forecast, timezone_name))


def follow_ups(reminder: Reminder, forecast: Forecast, now: datetime) -> list[dict[str, Any]]:
    """Return when the follow-ups of the next firing are due, each with the number of recipients that it has at most."""
    at = max(now, reminder.next_fire_at or now)
    steps = steps_of_firing(reminder, at, {0: forecast.left}, at + timedelta(days=MOST_STEP_DAYS + 1))
    return [{"at": step.at, "at_most": forecast.left, "parts": step.parts} for step in steps]


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
