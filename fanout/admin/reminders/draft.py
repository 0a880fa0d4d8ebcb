"""A reminder as the form shows it, saved or not: what is missing, when it would fire, and whether it would fit."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.http import HttpRequest
from django.template.defaultfilters import pluralize
from django.utils.text import get_text_list

from accounts.actions import Action
from accounts.inputs import as_id, valid_timezone
from accounts.models import Account
from fanout.admin.reminders.chosen import Chosen
from fanout.admin.runs.forecasts import my_zone
from fanout.plans.forecast import Forecast, Reader, of_lanes
from fanout.plans.lane_work import LaneWork
from fanout.plans.outlook import owed_at
from fanout.plans.reminder_forecast import CountNew, draft_lanes, forecast_draft
from reminders import schedule
from reminders.models import Reminder
from reminders.moments import moment, wall_clock
from reminders.readiness import missing, missing_in_words, subject_problem
from reminders.targets import able_to_reach, what_they_reach
from reminders.window import Window, window_error

PART = re.compile(r"(messages-\d{1,4})-kind")
FIRINGS = 5
MOST_SENDS = 100_000  # a forecast walks through every one of them


@dataclass(slots=True)
class Draft:
    senders: list[Account]
    timezone: str
    schedule: str
    fire_at: datetime | None
    cron: str
    hours: tuple[int, int] | None
    parts: int
    kinds: Counter[str]  # how many will get it, by kind of address
    count_new: CountNew
    action: str = ""
    subject: str = ""

    @classmethod
    def posted(cls, request: HttpRequest, chosen: Chosen, kinds: Counter[str], now: datetime) -> Draft:
        form = request.POST
        zone = form.get("timezone", "")
        return cls(
            chosen.accounts,
            zone,
            form.get("schedule", "once"),
            _moment(form.get("fire_at", ""), zone, now),
            form.get("cron", "").strip(),
            _hours(form.get("delivery_window_start_hour", ""), form.get("delivery_window_end_hour", "")),
            len(written_parts(form)),
            kinds,
            lambda account: chosen.new_chats(account, now),
            Action.CONNECTION_REQUEST if form.get("connect") else "",
            form.get("subject", ""),
        )

    def forecast(self, now: datetime) -> dict[str, Any]:
        """What the form shows: what is missing, the firings, the forecast, and each account's share of it."""
        answer: dict[str, Any] = {
            "review": "",
            "missing": "",
            "firings": [],
            "words": "",
            "window": "",
            "late": "",
            "forecast": "",
            "fits": True,
            "lanes": [],
            "problem": self.problem(),
        }
        if answer["problem"]:
            return answer
        when = (self.schedule, self.fire_at, self.cron, self.timezone)
        firings = schedule.upcoming(*when, now, FIRINGS) if self.timed else []
        answer["review"] = self._review(firings, now)
        answer["missing"] = " ".join(filter(None, [missing_in_words(self.missing()), *self._refused()]))
        answer["window"] = self._window_in_words()
        answer["firings"] = [self._firing(at, now) for at in firings]
        answer["words"] = schedule.describe(self.cron) if self.schedule == schedule.CRON else ""
        answer["late"] = (self.timed and schedule.late_error(*when, self._window, now)) or ""
        return answer | self._fitting(max(now, firings[0]) if firings else now, now)

    def problem(self) -> str:
        if not valid_timezone(self.timezone):
            return "Choose a timezone."
        if self.schedule not in Reminder.Schedule.values:
            return "Choose a schedule."
        if self.hours is None:
            return "Give the delivery hours as whole numbers."
        if problem := window_error(*self.hours):
            return problem
        return (schedule.cron_error(self.cron) or "") if self.schedule == schedule.CRON and self.cron else ""

    @property
    def timed(self) -> bool:
        return bool(self.cron if self.schedule == schedule.CRON else self.fire_at)

    def missing(self) -> list[str]:
        return missing(self.parts, self.kinds.total(), self.timed)

    def _refused(self) -> Iterator[str]:
        """What saving would refuse about these accounts: said before."""
        if not self.senders:
            return
        yield subject_problem(self.senders, self.subject)
        reached = sum(n for kind, n in self.kinds.items() if able_to_reach(kind, self.senders))
        if left_out := self.kinds.total() - reached:
            yield f"{recipients(left_out)} cannot be reached: {what_they_reach(self.senders)}."

    @property
    def _window(self) -> Window:
        assert self.hours is not None  # problem() has looked
        return Window(self.timezone, *self.hours)

    def _review(self, firings: Sequence[datetime], now: datetime) -> str:
        """The whole reminder in a sentence."""
        through = f" through {get_text_list([str(account) for account in self.senders], 'and')}" if self.senders else ""
        once = f", {moment(firings[0], self.timezone, now)}" if firings else ""
        when = f", {schedule.describe(self.cron)} ({self.timezone})" if self.schedule == schedule.CRON else once
        messages = f"{self.parts} message{pluralize(self.parts)} each"
        return f"To {recipients(self.kinds.total())}{through}{when}, {messages}."

    def _window_in_words(self) -> str:
        window = self._window
        hours = window.end_hour - window.start_hour
        return f"{window.start_hour:02d}:00–{window.end_hour:02d}:00, {hours} hour{pluralize(hours)} a day"

    def _firing(self, at: datetime, now: datetime) -> dict[str, Any]:
        late = self._is_late(at)
        after = ": after the delivery hours, sends nothing" if late else ""
        return {"text": f"{moment(at, self.timezone, now)}{after}", "late": late}

    def _is_late(self, at: datetime) -> bool:
        return at >= self._window.closes_on(at)

    def _fitting(self, at: datetime, now: datetime) -> dict[str, Any]:
        if not self.senders:
            return {"forecast": "Choose an account to see when it will be done."}
        if not self.kinds.total():
            return {"forecast": "Nobody to send it to yet."}
        if self.kinds.total() * max(self.parts, 1) > MOST_SENDS:
            return {"forecast": f"More than {MOST_SENDS:,} messages: no forecast."}
        lanes = draft_lanes(
            self.senders, self.kinds, self.parts or 1, self._window, at, now, self.count_new, self.action
        )
        whole = forecast_draft(lanes, self._window, at, Reader(now, my_zone()))
        lead = "" if self.timed else "If fired now: "
        fitting = {"forecast": f"{lead}{whole.sentence}", "fits": whole.fits}
        if self._is_late(at):
            return fitting
        return fitting | {"lanes": [self._share(account, lane, at, now) for account, lane in zip(self.senders, lanes)]}

    def _share(self, account: Account, lane: LaneWork, at: datetime, now: datetime) -> dict[str, Any]:
        """One account's row: what it still owes when the reminder fires, its share, and when that is done."""
        ahead = owed_at(lane.account, lane.account.queued_before, at, now)
        forecast = of_lanes([lane], self._window, at, Reader(now, my_zone()))
        return {
            "sender": str(account),
            "status": "" if account.status == Account.Status.ACTIVE else account.status,
            "ahead": f"{ahead:,}",
            "share": f"{lane.targets:,}",
            "done": self._done(lane, forecast, now),
            "fits": forecast.fits,
        }

    def _done(self, lane: LaneWork, forecast: Forecast, now: datetime) -> str:
        if not lane.targets:
            return "–"
        return wall_clock(forecast.ends_at, self.timezone, now) if forecast.ends_at else "never"


def recipients(n: int, cap: int | None = None) -> str:
    """So many, in words; beyond the cap nobody has counted."""
    many = f"more than {cap:,}" if cap is not None and n > cap else f"{n:,}"
    return f"{many} recipient{pluralize(n)}"


def written_parts(form: Mapping[str, Any], files: Mapping[str, Any] | None = None) -> list[str]:
    """The prefixes of the parts that say something and stay."""
    prefixes = [match.group(1) for name in form if (match := PART.fullmatch(name))]
    return [prefix for prefix in prefixes if not form.get(f"{prefix}-DELETE") and _says_something(form, files, prefix)]


def _says_something(form: Mapping[str, Any], files: Mapping[str, Any] | None, prefix: str) -> bool:
    # While the form is being written its files are not posted: their part is told by its kind.
    has_file = f"{prefix}-upload" in files if files is not None else form.get(f"{prefix}-kind", "text") != "text"
    return bool(form.get(f"{prefix}-text", "").strip() or form.get(f"{prefix}-media") or has_file)


def _moment(text: str, zone: str, now: datetime) -> datetime | None:
    try:
        return schedule.from_wall_clock(datetime.fromisoformat(text), zone, now)
    except (ValueError, OSError):
        return None


def _hours(start: str, end: str) -> tuple[int, int] | None:
    hours = as_id(start), as_id(end)
    return (hours[0], hours[1]) if hours[0] is not None and hours[1] is not None else None
