"""The forecast for a reminder before it fires, saved or not: each account's share, behind what it owes by then."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from accounts.channels.registry import channel
from accounts.models import Account
from fanout.lanes.new_chats import new_in_reminders
from fanout.plans.forecast import Forecast, Reader, of_lanes
from fanout.plans.lane_work import LaneWork
from fanout.plans.owed import Queued, Work
from fanout.plans.queue import account_plans, new_share
from reminders.models import Recipient, Reminder
from reminders.targets import count_kinds, shares
from reminders.window import Window

# How many of a draft's persons are new chats of an account; asked only where those have limits.
CountNew = Callable[[int], int]


def forecast_reminder(reminder: Reminder, now: datetime, zone: str = "") -> Forecast:
    """As if it fired at its next time, or at once where it has none. `zone`: of whoever reads it."""
    at = max(now, reminder.next_fire_at or now)
    kinds = count_kinds(Recipient.objects.filter(reminders=reminder))
    parts = max(reminder.messages.count(), 1)

    def count_new(account: int) -> int:
        return new_in_reminders([(reminder.pk, account)])[reminder.pk, account]

    lanes = draft_lanes(reminder.senders, kinds, parts, reminder.window, at, now, count_new, reminder.run_action)
    return forecast_draft(lanes, reminder.window, at, Reader(now, zone))


def forecast_draft(lanes: Sequence[LaneWork], window: Window, at: datetime, reader: Reader) -> Forecast:
    """What these lanes would send of a reminder fired at `at`, if the window is open then."""
    if window.closes_on(at) <= at:
        sentence = f"The window is closed at {reader.time(at, window.timezone)}: nothing would be sent."
        return Forecast(None, None, False, 0, "window", [], sentence)
    return of_lanes(lanes, window, at, reader)


def draft_lanes(
    senders: Sequence[Account],
    kinds: Mapping[str, int],
    parts: int,
    window: Window,
    at: datetime,
    now: datetime,
    count_new: CountNew,
    action: str = "",
) -> list[LaneWork]:
    """Each account's share of so many targets of each kind that are fired at `at`, behind what it owes by then; in the
    order of the accounts."""
    plans = account_plans(senders, now, action)
    lanes = []
    for account, targets in zip(senders, shares(kinds, senders)):
        plan = plans[account.pk]
        new = new_share(account, senders, kinds, count_new(account.pk)) if plan.new_chats.limited(now) else 0
        mine = Queued(Work.of(targets, parts), window, at).split(new)
        lanes.append(LaneWork(plan.before(at, sys.maxsize), mine, channel(account.channel).noun))
    return lanes
