"""The actions that a provider counts per day, and the warm-up of a new account.

A warm-up raises the daily cap from a floor to its target over a number of days. The curve is geometric, because
providers judge a day by the days before it: from 5 to 1,000 in three weeks, every day allows about a third more than
the last. A straight line would allow ten times the first day on the second.
"""

from __future__ import annotations

from datetime import date, timedelta

from django.db import models


class Action(models.TextChoices):
    """An action that a provider counts per day."""

    EMAIL = "email", "e-mail"
    MESSAGE = "message", "message"
    CONNECTION_REQUEST = "connection_request", "connection request"
    INMAIL = "inmail", "InMail"


#: target of the curve for an account without a cap
UNCAPPED_TARGET = 1_000
#: bounds of a warm-up: at most a year long, begun on a plausible day
MOST_WARMUP_DAYS = 365
EARLIEST_WARMUP, LATEST_WARMUP = date(2000, 1, 1), date(2100, 1, 1)


def warmup_cap(target: int | None, floor: int, days: int, started_on: date, today: date) -> int | None:
    """Return the cap of `today`; from day number `days` on it is the target itself."""
    day = (today - started_on).days
    if days <= 0 or day >= days:
        return target
    goal = UNCAPPED_TARGET if target is None else target
    if day <= 0 or floor >= goal:
        return min(floor, goal)
    start = max(floor, 1)  # a curve cannot grow from zero
    return min(goal, int(start * (goal / start) ** (day / days)))


def warmup_curve(target: int | None, floor: int, days: int, started_on: date) -> list[tuple[date, int]]:
    """Return the cap of every day of the warm-up, from the floor to the target."""
    goal = UNCAPPED_TARGET if target is None else target
    dates = [started_on + timedelta(days=day) for day in range(max(days, 0) + 1)]
    return [(day, warmup_cap(goal, floor, days, started_on, day) or 0) for day in dates]
