"""A reminder as the form shows it, saved or not: when it would fire, and whether it would fit the window."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from django.http import HttpRequest

from accounts import access
from accounts.models import Account
from accounts.numbers import as_id, as_ids
from accounts.timezones import valid_timezone
from fanout.runs.forecast import forecast_draft
from reminders import imports, schedule
from reminders.models import Recipient, Reminder
from reminders.moments import moment
from reminders.targets import count_kinds, tagged
from reminders.window import Window, window_error

PART = re.compile(r"messages-(\d+)-kind")
FIRINGS = 5
MOST_SENDS = 100_000  # a forecast walks through every one of them


@dataclass(slots=True)
class Draft:
    senders: list[str]
    timezone: str
    schedule: str
    fire_at: datetime | None
    cron: str
    hours: tuple[int, int] | None
    parts: int
    targets: Counter[str]  # by kind of address
    tag: str = ""

    @classmethod
    def posted(cls, request: HttpRequest) -> Draft:
        form = request.POST
        zone = form.get("timezone", "")
        return cls(
            [form.get("account", ""), *form.getlist("further")],
            zone,
            form.get("schedule", "once"),
            _moment(form.get("fire_at", ""), zone),
            form.get("cron", "").strip(),
            _hours(form.get("delivery_window_start_hour", ""), form.get("delivery_window_end_hour", "")),
            _parts(form),
            _present(request) + _pasted(form.get("paste", "")),
            form.get("tag", "").strip(),
        )

    def forecast(self, user: Any, now: datetime) -> dict[str, Any]:
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
        return answer | self._sentence(user, max(now, moments[0]) if moments else now, now)

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

    def _sentence(self, user: Any, at: datetime, now: datetime) -> dict[str, Any]:
        senders = self._senders(user)
        if not senders:
            return {"forecast": "Choose an account to see when it will be done."}
        assert self.hours is not None  # problem() has looked
        kinds = self.targets + (count_kinds(tagged(user, self.tag, senders)) if self.tag else Counter())
        if kinds.total() * max(self.parts, 1) > MOST_SENDS:
            return {"forecast": f"More than {MOST_SENDS:,} messages: no forecast."}
        forecast = forecast_draft(senders, kinds, self.parts or 1, Window(self.timezone, *self.hours), at, now)
        return {"forecast": forecast.sentence, "fits": forecast.fits}

    def _senders(self, user: Any) -> list[Account]:
        """The chosen accounts, the first one first; none before it is chosen."""
        ids = as_ids(dict.fromkeys(self.senders))
        accounts = access.visible(user, Account.objects.all()).in_bulk(ids)
        return [accounts[pk] for pk in ids if pk in accounts] if as_id(self.senders[0]) is not None else []


def _moment(text: str, zone: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
    except (ValueError, OSError):
        return None


def _hours(start: str, end: str) -> tuple[int, int] | None:
    hours = as_id(start), as_id(end)
    return (hours[0], hours[1]) if hours[0] is not None and hours[1] is not None else None


def _parts(form: Any) -> int:
    kinds = [match.group(1) for name in form if (match := PART.fullmatch(name))]
    return sum(1 for number in kinds if not form.get(f"messages-{number}-DELETE"))


def _pasted(text: str) -> Counter[str]:
    return Counter(entry.kind for entry in imports.read(text).entries)


def _present(request: HttpRequest) -> Counter[str]:
    """Targets that the reminder has already, unless they are about to be removed."""
    pk = request.POST.get("reminder", "")
    if request.POST.get("clear"):
        return Counter()
    reminder = access.visible(request.user, Reminder.objects.filter(pk__in=as_ids([pk]))).first()
    return count_kinds(Recipient.objects.filter(reminders=reminder)) if reminder else Counter()
