"""When will it finish, does it fit into today's window, how many fit, and what is in the way? Pure.

The forecast looks ahead through the account's queue (`outlook.look_ahead`) and puts it into a sentence. Where a lane
sends one message every D seconds with a pause of P after every B, that comes to (N·D) + (N/B)·P.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from fanout.plans.binding import BUDGET, HOLD, what_binds
from fanout.plans.lane_work import LaneShare, LaneWork, share_of
from fanout.plans.outlook import DayPlan, look_ahead, merged_days
from fanout.plans.stretches import outside_hours
from fanout.plans.walk import moment
from fanout.rules.gates import local_date
from reminders.moments import closing_time, two_clocks, wall_clock
from reminders.window import Window


@dataclass(frozen=True, slots=True)
class Forecast:
    """`ends_at` is None where the work never ends: window and business hours do not meet, or the cap is zero.
    `fits_count` of the targets that are `left` are done before today's window closes. `in_front`: the runs that the
    lane sends first, though this one could go."""

    starts_at: datetime | None
    ends_at: datetime | None
    fits: bool
    fits_count: int
    bound_by: str
    days: list[DayPlan]
    sentence: str
    left: int = 0
    in_front: tuple[int, ...] = ()
    # Of an offload: the account's own runs that would end later, and by how many seconds.
    delays: tuple[tuple[int, float], ...] = ()
    # The limit of new chats in words, where that is what binds: "30 new chats a day".
    new_chats: str = ""

    def __str__(self) -> str:
        return self.sentence

    @property
    def wait(self) -> str:
        """How many wait for another day because they are new chats; empty where something else binds."""
        if not self.new_chats or self.fits:
            return ""
        return f"{self.new_chats}: {self.left - self.fits_count:,} more wait for the following days"


NOTHING = Forecast(None, None, True, 0, "nothing", [], "Nothing to send.")


@dataclass(frozen=True, slots=True)
class Reader:
    """Who reads the sentence: at what time, and by which clock; an empty one is the run's own."""

    now: datetime
    zone: str = ""

    def time(self, at: datetime, own: str) -> str:
        return two_clocks(at, self.zone, own, self.now) if self.zone else wall_clock(at, own, self.now)


def of_lanes(lanes: Sequence[LaneWork], window: Window, at: datetime, reader: Reader) -> Forecast:
    """The forecast for work that several lanes share: it ends when the slowest of them ends."""
    lanes = [lane for lane in lanes if lane.targets] or list(lanes[:1])
    outlooks = [look_ahead(lane.account, lane.queue, reader.now, lane.places) for lane in lanes]
    return assemble([share_of(*pair) for pair in zip(lanes, outlooks)], window, at, reader)


def assemble(shares: Sequence[LaneShare], window: Window, at: datetime, reader: Reader) -> Forecast:
    days = merged_days([day for share in shares for day in share.mine.days])
    today = local_date(window.timezone, at)
    left = sum(share.lane.targets for share in shares)
    fits_count = sum(day.targets for day in days if day.date == today)
    slowest_share = max(shares, key=lambda share: share.end)
    bound_by = what_binds(slowest_share, reader.now)
    begun = [share for share in shares if share.mine.first is not None]
    soonest = min(begun, key=lambda share: share.mine.first or 0.0, default=None)
    forecast = Forecast(
        starts_at=moment(soonest.mine.first) if soonest and soonest.mine.first is not None else None,
        ends_at=moment(slowest_share.end) if 0 < slowest_share.end < math.inf else None,
        fits=fits_count >= left,
        fits_count=fits_count,
        bound_by=bound_by,
        days=days,
        sentence="",
        left=left,
        in_front=tuple(dict.fromkeys(soonest.lane.queue[n].run_id for n in soonest.mine.in_front)) if soonest else (),
        new_chats=_limit_of_new_chats(bound_by, shares, window, reader),
    )
    lanes = [share.lane for share in shares]
    return replace(forecast, sentence=_sentence(forecast, lanes, slowest_share.lane, window, at, reader))


# --- in words -------------------------------------------------------------------------------------------


def _sentence(
    forecast: Forecast,
    lanes: Sequence[LaneWork],
    slowest_lane: LaneWork,
    window: Window,
    at: datetime,
    reader: Reader,
) -> str:
    targets = forecast.left
    if not targets:
        return "Nothing to send."
    what = f"{targets:,} {_noun_of(lanes)}{'' if targets == 1 else 's'}"
    if len(lanes) > 1:
        what += f" through {len(lanes)} accounts"
    elif not forecast.new_chats:
        what += f" {_at_pace(forecast, slowest_lane, at)}"
    if forecast.ends_at is None:
        owner = "the account's" if len(lanes) == 1 else "one account's"
        return f"{what}: never done, because of {owner} {forecast.bound_by}."
    done = f"done about {reader.time(forecast.ends_at, window.timezone)}"
    if forecast.fits:
        limit = f" {forecast.new_chats}," if forecast.new_chats else ""
        return f"{what}:{limit} {done}; fits."
    goes_on = f"{done} if it goes on at each opening"
    if window.closes_on(at) <= at:
        return f"{what}: the window has closed for today; {goes_on}."
    if forecast.wait:
        return f"{what}: {forecast.fits_count:,} fit today. {_capitalised(forecast.wait)}; {goes_on}."
    if forecast.bound_by != "daily cap" and outside_hours(slowest_lane.account.hours, window, at):
        owner = "the account's" if len(lanes) == 1 else "one account's"
        return f"{what}: {forecast.fits_count:,} fit today, the rest is outside {owner} business hours; {goes_on}."
    closes = _closing(window, at, reader)
    return f"{what}: {forecast.fits_count:,} fit before the window closes at {closes}; {goes_on}."


def _capitalised(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _limit_of_new_chats(bound_by: str, shares: Sequence[LaneShare], window: Window, reader: Reader) -> str:
    """Of all lanes that have new chats to begin; empty where something else binds."""
    begin = [share.lane.account.new_chats for share in shares if any(queued.new_chats for queued in share.lane.mine)]
    if bound_by == BUDGET:
        budget = sum(chats.budget or 0 for chats in begin)
        return f"{budget:,} new chat{'' if budget == 1 else 's'} a day"
    ends = [chats.hold.until for chats in begin if chats.hold.until is not None]
    return f"no new chats before {reader.time(max(ends), window.timezone)}" if bound_by == HOLD else ""


def _closing(window: Window, at: datetime, reader: Reader) -> str:
    closes = window.closes_on(at)
    own = closing_time(closes, window.timezone)
    theirs = closing_time(closes, reader.zone) if reader.zone else own
    return own if theirs == own else f"{theirs} ({own} {window.timezone})"


def _noun_of(lanes: Sequence[LaneWork]) -> str:
    nouns = {"recipient" if queued.new_chats else lane.noun for lane in lanes for queued in lane.mine}
    return nouns.pop() if len(nouns) == 1 else "recipient"


def _at_pace(forecast: Forecast, lane: LaneWork, now: datetime) -> str:
    pace = lane.account.pace
    if forecast.bound_by == "daily cap":
        return f"at {lane.cap.on(local_date(lane.account.hours.timezone, now))} a day"
    if forecast.bound_by == "gap":
        return f"with gaps of {pace.min_gap:g}–{pace.max_gap:g} s"
    return f"at {pace.per_minute:g}/min" if pace.per_minute else "without a rate limit"
