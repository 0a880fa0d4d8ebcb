"""A reminder as the form shows it, saved or not: when it would fire, and whether it would fit the window."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from django.http import HttpRequest

from accounts import access
from accounts.actions import Action
from accounts.models import Account
from accounts.timezones import valid_timezone
from fanout.admin.runs import forecasts
from reminders import schedule
from reminders.models import Reminder
from reminders.moments import moment
from reminders.targets import tagged
from reminders.window import Window, window_error

PART = re.compile(r"messages-(\d+)-kind")
FIRINGS = 5
MOST_TARGETS = 100_000  # a forecast walks through every send


@dataclass(slots=True)
class Draft:
    account_id: str
    action: str
    timezone: str
    schedule: str
    fire_at: datetime | None
    cron: str
    hours: tuple[int, int] | None
    parts: int
    targets: int
    tag: str = ""

    @classmethod
    def posted(cls, request: HttpRequest) -> Draft:
        form = request.POST
        zone = form.get("timezone", "")
        return cls(
            form.get("account", ""), form.get("action", ""), zone, form.get("schedule", "once"),
            _moment(form.get("fire_at", ""), zone), form.get("cron", "").strip(),
            _hours(form.get("delivery_window_start_hour", ""), form.get("delivery_window_end_hour", "")),
            _parts(form), _present(request) + _pasted(form.get("paste", "")), form.get("tag", "").strip(),
        )  # fmt: skip

    def outlook(self, user: Any, now: datetime) -> dict[str, Any]:
        """What the form shows: the forecast, the firings, or what is missing for them."""
        answer: dict[str, Any] = {
            "firings": [],
            "words": "",
            "forecast": "",
            "fits": True,
            "problem": self.problem(),
        }
        if answer["problem"]:
            return answer
        moments = schedule.upcoming(self.schedule, self.fire_at, self.cron, self.timezone, now, FIRINGS)
        answer["firings"] = [moment(at, self.timezone, now) for at in moments]
        answer["words"] = schedule.describe(self.cron) if self.schedule == schedule.CRON else ""
        return answer | self._forecast(user, max(now, moments[0]) if moments else now)

    def problem(self) -> str:
        if not valid_timezone(self.timezone):
            return "Choose a timezone."
        if self.schedule not in Reminder.Schedule.values:
            return "Choose a schedule."
        if self.hours is None:
            return "Give the delivery hours as whole numbers."
        if problem := window_error(*self.hours):
            return problem
        return (schedule.cron_error(self.cron) or "") if self.schedule == schedule.CRON else ""

    def _forecast(self, user: Any, at: datetime) -> dict[str, Any]:
        accounts = access.visible(user, Account.objects.all())
        account = accounts.filter(pk=self.account_id).first() if self.account_id.isdigit() else None
        if account is None or self.action not in Action.values:
            return {"forecast": "Choose an account to see when it will be done."}
        assert self.hours is not None  # problem() has looked
        targets = self.targets + (tagged(user, self.tag, account).count() if self.tag else 0)
        if targets > MOST_TARGETS:
            return {"forecast": f"More than {MOST_TARGETS:,} targets: no forecast."}
        forecast = forecasts.forecast_draft(
            account, self.action, targets, self.parts, Window(self.timezone, *self.hours), at
        )
        return {"forecast": forecast.sentence, "fits": forecast.fits}


def _moment(text: str, zone: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
    except (ValueError, OSError):
        return None


def _hours(start: str, end: str) -> tuple[int, int] | None:
    return (int(start), int(end)) if start.isdigit() and end.isdigit() and len(start + end) < 7 else None


def _parts(form: Any) -> int:
    kinds = [match.group(1) for name in form if (match := PART.fullmatch(name))]
    return sum(1 for number in kinds if not form.get(f"messages-{number}-DELETE"))


def _pasted(text: str) -> int:
    return sum(1 for line in text.splitlines() if line.strip())


def _present(request: HttpRequest) -> int:
    """Targets that the reminder has already, unless they are about to be removed."""
    pk = request.POST.get("reminder", "")
    if not pk.isdigit() or request.POST.get("clear"):
        return 0
    reminder = access.visible(request.user, Reminder.objects.filter(pk=pk)).first()
    return reminder.targets.count() if reminder else 0
