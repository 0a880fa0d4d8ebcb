"""What binds: the limit to change if a lane should be done sooner. Pure."""

from __future__ import annotations

import math
from datetime import datetime

from fanout.plans.lane_work import LaneShare
from fanout.plans.walk import moment
from fanout.rules.gates import local_date
from fanout.rules.pace import PaceSettings

BUDGET, HOLD = "budget of new chats", "hold of new chats"


def what_binds(share: LaneShare, now: datetime) -> str:
    """The limit to change if it should be done sooner."""
    lane, account = share.lane, share.lane.account
    if not lane.targets:
        return "nothing"
    if new_chats := _new_chats_bind(share, now):
        return new_chats
    if lane.cap.cap is not None and _cap_stops(share, now):
        return "daily cap"
    stretch, last = share.mine.stretch, share.mine.last
    if stretch is None or last is None or (last >= stretch.ends and stretch.ended_by == "hours"):
        return "business hours"
    return slowest(account.pace, lane.parts, account.concurrency, account.latency, account.jitter)[0]


def _cap_stops(share: LaneShare, now: datetime) -> bool:
    """Whether the cap of today, or of the day it starts on, is used up before the work is done."""
    lane, stretch, by_cap = share.lane, share.mine.stretch, share.ahead.by_cap[share.lane.counted]
    today = local_date(lane.account.hours.timezone, now)
    last_day = next(reversed(by_cap), None)
    for day in {today, stretch.account_day if stretch else None} - {None, last_day}:
        cap = lane.cap.on(day) if day else None
        if cap is not None and by_cap[day] + (lane.cap.used if day == today else 0) >= cap:
            return True
    return share.mine.targets < share.lane.targets and stretch is None


def _new_chats_bind(share: LaneShare, now: datetime) -> str:
    """Which limit of new chats decides when the work is done; empty: none."""
    lane, chats = share.lane, share.lane.account.new_chats
    new = [(lane.queue[n], share.ahead.runs[n]) for n in lane.places if lane.queue[n].new_chats]
    if not new or not any(run.last is None or run.last == share.mine.last for _, run in new):
        return ""
    starts = max(now, min(queued.starts for queued, _ in new))
    if chats.budget is not None and _budget_used_up(share, chats.budget, starts, now):
        return BUDGET
    return HOLD if chats.hold.lasts(starts) else ""


def _budget_used_up(share: LaneShare, budget: int, starts: datetime, now: datetime) -> bool:
    """Whether it is so on a day before the work is done."""
    account = share.lane.account
    today, first = (local_date(account.hours.timezone, at) for at in (now, starts))
    begun = {first: 0} | share.ahead.new_chats
    begun[today] = begun.get(today, 0) + account.new_chats.begun
    last = local_date(account.hours.timezone, moment(share.end)) if share.end < math.inf else None
    return any(n >= budget for day, n in begun.items() if day and day >= first and (last is None or day < last))


def slowest(
    pace: PaceSettings, parts: int, concurrency: int, latency: float, jitter: tuple[float, float]
) -> tuple[str, float]:
    """The limit that holds a lane back while it may send, and the seconds per message it comes to."""
    busy = parts * latency + (parts - 1) * sum(jitter) / 2
    delays = {
        "pace": pace.interval,
        "gap": (pace.min_gap + pace.max_gap) / 2 if pace.max_gap else 0.0,
        "provider": busy / (parts * concurrency),
    }
    cause = max(delays, key=lambda name: delays[name])
    pause = pace.batch_pause / pace.batch_size if pace.batch_size else 0.0
    return "batch pauses" if pause > delays[cause] else cause, delays[cause] + pause
