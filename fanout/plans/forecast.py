"""Forecast when runs, reminders and offloads finish, how much fits into today's window, and what is in the way.

A forecast looks ahead through each account's queue (`outlook.look_ahead`) and puts the result into a sentence. Where a
lane sends one message every D seconds with a pause of P after every B, that comes to (N·D) + (N/B)·P.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db.models import Exists, OuterRef, Q, Value

from accounts import access
from accounts.addresses import NEW_CHAT_KINDS, counted_as
from accounts.channels.registry import channel
from accounts.models import Account
from fanout.lanes.chats import new_among, scaled_to_all, wrote_since
from fanout.models import Run
from fanout.plans.audience import audience, kinds_of, new_chats
from fanout.plans.outlook import (
    DayPlan,
    LaneShare,
    LaneWork,
    hold_that_binds,
    look_ahead,
    merged_days,
    share_of,
    slowest,
    what_binds,
)
from fanout.plans.projection import AccountSnapshot, Queued, Work, as_datetime, outside_hours
from fanout.plans.queue import (
    ByLane,
    Senders,
    account_snapshot,
    account_snapshots,
    lanes_of,
    movable,
    new_chats_left,
    new_share,
    part_count,
    queue_order,
    queued_for,
    read_senders,
    starts_at,
    work_by_account,
)
from fanout.rules.gates import BUSINESS_HOURS, DAILY_CAP, NEW_CHAT_BUDGET, NEW_CHAT_HOLD, local_date
from reminders.models import Reminder
from reminders.moments import about, closing_time, two_clocks, wall_clock
from reminders.part_templates import Choice, stored_parts, who_is_outside
from reminders.targets import shares
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
    # For an offload: the account's own runs that would end later, and by how many seconds.
    delays: tuple[tuple[int, float], ...] = ()
    # The limit of new chats in words, where that is what binds: "30 new chats a day".
    new_chats: str = ""

    def __str__(self) -> str:
        return self.sentence

    @property
    def wait(self) -> str:
        """The targets that wait for another day because they are new chats, in words; empty where something else
        binds."""
        if not self.new_chats or self.fits:
            return ""
        return f"{self.new_chats}: {self.left - self.fits_count:,} more wait for the following days"


NOTHING = Forecast(None, None, True, 0, "nothing", [], "Nothing to send.")


@dataclass(frozen=True, slots=True)
class Reader:
    """The reader's time and timezone; an empty one is the run's own."""

    now: datetime
    zone: str = ""

    def time(self, at: datetime, own: str) -> str:
        return two_clocks(at, self.zone, own, self.now) if self.zone else wall_clock(at, own, self.now)


def forecast_lanes(lanes: Sequence[LaneWork], window: Window, at: datetime, reader: Reader) -> Forecast:
    """Forecast work that several lanes share: it ends when the slowest of them ends."""
    lanes = [lane for lane in lanes if lane.targets] or list(lanes[:1])
    outlooks = [look_ahead(lane.account, lane.queue, reader.now, lane.positions) for lane in lanes]
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
        starts_at=as_datetime(soonest.mine.first) if soonest and soonest.mine.first is not None else None,
        ends_at=as_datetime(slowest_share.end) if 0 < slowest_share.end < math.inf else None,
        fits=fits_count >= left,
        fits_count=fits_count,
        bound_by=bound_by,
        days=days,
        sentence="",
        left=left,
        in_front=tuple(dict.fromkeys(soonest.lane.queue[n].run_id for n in soonest.mine.in_front)) if soonest else (),
        new_chats=_limit_of_new_chats(bound_by, shares, window, reader),
    )
    return replace(forecast, sentence=_sentence(forecast, shares, slowest_share, window, at, reader))


# --- in words -------------------------------------------------------------------------------------------


def _sentence(
    forecast: Forecast,
    shares: Sequence[LaneShare],
    slowest_share: LaneShare,
    window: Window,
    at: datetime,
    reader: Reader,
) -> str:
    lanes, slowest_lane, targets = [share.lane for share in shares], slowest_share.lane, forecast.left
    if not targets:
        return "Nothing to send."
    what = counted_as(targets, {kind for lane in lanes if lane.targets for kind in lane.kinds})
    if len(lanes) > 1:
        what += f" through {len(lanes)} accounts"
    elif not forecast.new_chats:
        what += f" {_at_pace(forecast, slowest_lane, at)}"
    hold = hold_that_binds(slowest_share, reader.now)
    if hold is not None and hold.limit == forecast.bound_by:
        what += f" from {reader.time(hold.until, window.timezone)} on ({hold.why})"
    if forecast.ends_at is None:
        owner = "the account's" if len(lanes) == 1 else "one account's"
        return f"{what} will never finish because of {owner} {forecast.bound_by}."
    done = f"done about {reader.time(forecast.ends_at, window.timezone)}"
    if forecast.fits:
        limit = f" {forecast.new_chats}," if forecast.new_chats else ""
        return f"{what}:{limit} {done}; fits."
    goes_on = f"{done} if it goes on at each opening"
    if window.closes_on(at) <= at:
        return f"{what}: the window has closed for today; {goes_on}."
    if forecast.wait:
        wait = f"{forecast.wait[:1].upper()}{forecast.wait[1:]}"
        return f"{what}: {forecast.fits_count:,} fit today. {wait}; {goes_on}."
    if forecast.bound_by != DAILY_CAP.name and outside_hours(slowest_lane.account.hours, window, at):
        owner = "the account's" if len(lanes) == 1 else "one account's"
        return (
            f"{what}: {forecast.fits_count:,} fit today, the rest is outside {owner} {BUSINESS_HOURS.name}; {goes_on}."
        )
    closes = _closing(window, at, reader)
    return f"{what}: {forecast.fits_count:,} fit before the window closes at {closes}; {goes_on}."


def _limit_of_new_chats(bound_by: str, shares: Sequence[LaneShare], window: Window, reader: Reader) -> str:
    """Return the limit of all lanes with new chats to begin, in words; empty where something else binds."""
    begin = [share.lane.account.new_chats for share in shares if any(queued.new_chats for queued in share.lane.mine)]
    if bound_by == NEW_CHAT_BUDGET.name:
        budget = sum(chats.budget or 0 for chats in begin)
        return f"{budget:,} new chat{'' if budget == 1 else 's'} a day"
    ends = [chats.hold.until for chats in begin if chats.hold.until is not None]
    return f"no new chats before {reader.time(max(ends), window.timezone)}" if bound_by == NEW_CHAT_HOLD.name else ""


def _closing(window: Window, at: datetime, reader: Reader) -> str:
    closes = window.closes_on(at)
    own = closing_time(closes, window.timezone)
    theirs = closing_time(closes, reader.zone) if reader.zone else own
    return own if theirs == own else f"{theirs} ({own} {window.timezone})"


def _at_pace(forecast: Forecast, lane: LaneWork, now: datetime) -> str:
    pace = lane.account.pace_settings
    if forecast.bound_by == DAILY_CAP.name:
        return f"at {lane.cap.on(local_date(lane.account.hours.timezone, now))} a day"
    if forecast.bound_by == "gap":
        return f"with gaps of {pace.min_gap:g}–{pace.max_gap:g} s"
    return f"at {pace.per_minute:g}/min" if pace.per_minute else "without a rate limit"


# --- what is left of runs --------------------------------------------------------------------------------


def forecast_run(run: Run, now: datetime, zone: str = "") -> Forecast:
    """Forecast what is left of a run, among the other runs of its lanes. A paused run as if it were resumed now."""
    return forecast_runs([run], now, zone)[run.pk]


def forecast_runs(
    runs: Sequence[Run], now: datetime, zone: str = "", senders: Senders | None = None
) -> dict[int, Forecast]:
    """Forecast many runs with one look through the queue of each account. `senders`: where they have been read."""
    unqueued = {run: work_by_account(run) for run in runs if not _wholly_queued(run)}
    actions = {pk: run.action for run in reversed(runs) for pk in (*lanes_of(run), *unqueued.get(run, ()))}
    snapshots = (senders or _senders(runs, actions, now)).snapshots
    left = {(run.pk, pk): work.targets for run, by_lane in unqueued.items() for pk, work in by_lane.items()}
    new = new_chats_left(left, snapshots, now)
    queues = {pk: _with(unqueued, pk, snapshots[pk].queued_before, new, now) for pk in actions if pk in snapshots}
    asked = {run.pk for run in runs}
    outlooks = {pk: look_ahead(snapshots[pk], queue, now, _positions(queue, asked)) for pk, queue in queues.items()}
    forecasts = {}
    for run in runs:
        lanes = [(pk, positions) for pk, queue in queues.items() if (positions := _positions(queue, {run.pk}))]
        mine = [share_of(_lane(snapshots[pk], queues[pk], positions, run), outlooks[pk]) for pk, positions in lanes]
        forecasts[run.pk] = assemble(mine, run.window, goes_on_from(run, now), Reader(now, zone)) if mine else NOTHING
    return forecasts


def _senders(runs: Sequence[Run], actions: Mapping[int, str], now: datetime) -> Senders:
    if len(runs) == 1 and actions.keys() <= {runs[0].account_id}:
        account = runs[0].account  # a page has read it already
        return Senders({account.pk: account}, account_snapshots([account], now, actions))
    return read_senders(Q(pk__in=actions), now, actions)


def _wholly_queued(run: Run) -> bool:
    """Return whether all that is left of it stands in the queues of its lanes; not where one of them has stepped
    aside."""
    aside = {int(pk) for pk in run.delays} - {*run.lanes}
    going = (*Run.LIVE, Run.Status.PREPARING)
    return not aside and (run.status in going or (run.status == Run.Status.PAUSED and run.resume_at is not None))


def _with(
    unqueued: Mapping[Run, Mapping[int, Work]], account: int, queue: Sequence[Queued], new: ByLane, now: datetime
) -> tuple[Queued, ...]:
    """Return the account's queue with what it would send of runs that are not in it. A paused run may stand there for a
    later time than the one asked about."""
    asked = {run.pk for run in unqueued if run.status == Run.Status.PAUSED}
    queue = [queued for queued in queue if queued.run_id not in asked]
    here = {queued.run_id for queued in queue}
    added = [
        queued
        for run, work in unqueued.items()
        if account in work and run.pk not in here
        for queued in queued_for(run, work[account], goes_on_from(run, now)).split(new.get((run.pk, account), 0))
    ]
    return tuple(sorted([*queue, *added], key=queue_order)) if added else tuple(queue)


def _positions(queue: Sequence[Queued], runs: Collection[int]) -> list[int]:
    return [position for position, queued in enumerate(queue) if queued.run_id in runs]


def _lane(snapshot: AccountSnapshot, queue: tuple[Queued, ...], positions: Sequence[int], run: Run) -> LaneWork:
    first, end = positions[0], positions[-1] + 1  # they lie side by side
    before = replace(snapshot, queued_before=queue[:first])
    return LaneWork(before, queue[first:end], frozenset(run.kinds), queue[end:])


def goes_on_from(run: Run, now: datetime) -> datetime:
    """Return when the run may send at the earliest, regardless of its window."""
    return max(now, starts_at(run))


# --- a reminder before it fires --------------------------------------------------------------------------

# Counts a draft's persons that are new chats of an account; called only where those have limits.
CountNew = Callable[[int], int]


def forecast_reminder(reminder: Reminder, now: datetime, zone: str = "") -> Forecast:
    """Forecast the reminder as if it fired at its next time, or at once where it has none. `zone`: the reader's."""
    at = max(now, reminder.next_fire_at or now)
    kinds = kinds_of(reminder, now)
    parts = max(reminder.messages.count(), 1)

    def count_new(account: int) -> int:
        return new_chats([(reminder, account)], now)[reminder.pk, account]

    lanes = draft_lanes(reminder.senders, kinds, parts, reminder.window, at, now, count_new, reminder.run_action)
    return forecast_draft(lanes, reminder.window, at, Reader(now, zone))


def forecast_draft(lanes: Sequence[LaneWork], window: Window, at: datetime, reader: Reader) -> Forecast:
    """Forecast what these lanes would send of a reminder fired at `at`, if the window is open then."""
    if window.closes_on(at) <= at:
        sentence = f"The window is closed at {reader.time(at, window.timezone)}: nothing would be sent."
        return Forecast(None, None, False, 0, "window", [], sentence)
    return forecast_lanes(lanes, window, at, reader)


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
    """Return each account's share of so many targets of each kind fired at `at`, behind its queue, in the order of the
    accounts."""
    snapshots = account_snapshots(senders, now, action)
    lanes = []
    for account, targets in zip(senders, shares(kinds, senders)):
        snapshot = snapshots[account.pk]
        new = new_share(account, senders, kinds, count_new(account.pk)) if snapshot.new_chats.limited(now) else 0
        mine = Queued(Work.of(targets, parts), window, at).split(new)
        reached = frozenset(kind for kind, n in kinds.items() if n and channel(account.channel).reaches(kind))
        lanes.append(LaneWork(snapshot.before(at, sys.maxsize), mine, reached))
    return lanes


# --- an offload ------------------------------------------------------------------------------------------

# A delay of another run by an offload is named from so many seconds on.
WORTH_SAYING = 30.0


def forecast_offload(
    runs: Sequence[Run], account: Account, now: datetime, zone: str = "", snapshot: AccountSnapshot | None = None
) -> Forecast:
    """Forecast what is left of these runs if another account sent what can be moved to it, and what that would
    delay."""
    lane = _offloaded(runs, account, snapshot or account_snapshot(account, now, max(runs, key=_due).action), now)
    first = min(runs, key=_due)
    forecast = forecast_lanes([lane], first.window, max(now, first.scheduled_for), Reader(now, zone))
    return replace(forecast, delays=tuple(_delays(lane, now).items()))


def _offloaded(runs: Sequence[Run], account: Account, snapshot: AccountSnapshot, now: datetime) -> LaneWork:
    runs = sorted(runs, key=_due)
    last = runs[-1]
    # What it sends of the last one already goes first too.
    before = snapshot.before(last.scheduled_for, last.pk + 1)
    mine = tuple(queued for run in runs for queued in _moved(run, account, snapshot, now))
    after = snapshot.queued_before[len(before.queued_before) :]
    return LaneWork(before, mine, frozenset(kind for run in runs for kind in run.kinds), after)


def _moved(run: Run, account: Account, snapshot: AccountSnapshot, now: datetime) -> tuple[Queued, ...]:
    """Return what an offload of the run would add to the account's queue."""
    targets, starts = movable(run, account), max(now, run.scheduled_for)
    work = Work.of(targets.count(), part_count(run))
    moved = Queued(work, run.window, starts, follow_up=run.follow_up, action=run.action)
    if not snapshot.new_chats.limited(now):
        return (moved,)
    persons = targets.filter(recipient__kind__in=NEW_CHAT_KINDS)
    return moved.split(scaled_to_all(new_among(persons, account.pk), persons.count()))


def _delays(lane: LaneWork, now: datetime) -> dict[int, float]:
    """Return the account's own runs that would end later, each with the seconds that it would wait longer."""
    others = (*lane.account.queued_before, *lane.after)
    ends = {queued.run_id: run.last for queued, run in zip(others, look_ahead(lane.account, others, now).runs)}
    later = zip(lane.queue, look_ahead(lane.account, lane.queue, now).runs)
    waits = {queued.run_id: (run.last or 0.0) - (ends.get(queued.run_id) or math.inf) for queued, run in later}
    return {run: seconds for run, seconds in waits.items() if run and seconds >= WORTH_SAYING}


def _due(run: Run) -> tuple[datetime, int]:
    return run.scheduled_for, run.pk


# --- the runs in front -----------------------------------------------------------------------------------

MOST_NAMED = 3
UNSEEN = "another run of this account"


def queued_behind(forecast: Forecast, runs: Mapping[int, Run], now: datetime) -> str:
    """Return "queued behind Library opening hours (87 left, about 2 min)"; empty where no run is in front."""
    if not forecast.in_front or forecast.starts_at is None:
        return ""
    first, *others = forecast.in_front
    name = _name(runs[first])
    more = f" and {len(others)} more run{'s' if others[1:] else ''}" if others else ""
    left = sum(runs[pk].pending + runs[pk].sending for pk in forecast.in_front)
    wait = about((forecast.starts_at - now).total_seconds())
    return f"queued behind {name}{more} ({left:,} left, {wait})"


def behind(forecasts: Mapping[int, Forecast], user: Any, now: datetime, team: int | None = None) -> dict[int, str]:
    """Return the same sentence for many runs, in one query. Runs that the user may not see are not named; None is the
    shell, which sees all. `team`: only this team's runs are named, as a token of the team sees no others."""
    runs = _runs({pk for forecast in forecasts.values() for pk in forecast.in_front}, user, team)
    return {pk: queued_behind(forecast, runs, now) for pk, forecast in forecasts.items()}


def would_wait(forecast: Forecast, user: Any) -> str:
    """Return a sentence with the runs of the account that an offload would delay; empty where there are none."""
    delays = dict(forecast.delays)
    if not delays:
        return ""
    delayed = _runs(delays, user)
    named = [f"{_name(delayed[pk])} ({about(delays[pk])} longer)" for pk in sorted(delays, key=lambda pk: -delays[pk])]
    rest = len(named) - MOST_NAMED
    more = f" and {rest} more" if rest > 0 else ""
    return f"Will wait for it: {', '.join(named[:MOST_NAMED])}{more}."


def _runs(ids: Collection[int], user: Any, team: int | None = None) -> dict[int, Run]:
    """Read the runs, each with `seen`: whether the user may see it."""
    if not ids:
        return {}
    mine = Run.objects.filter(pk=OuterRef("pk"), **({} if team is None else {"team": team}))
    seen = Value(True) if user is None else Exists(access.visible(user, mine))
    return dict(Run.objects.only("title", "pending", "sending").annotate(seen=seen).in_bulk(ids))


def _name(run: Run) -> str:
    return run.title if run.__dict__["seen"] else UNSEEN


# --- the time that is left, without a calendar -----------------------------------------------------------

DAY = 86_400.0


def seconds_to_send(run: Run, snapshots: Mapping[int, AccountSnapshot], new: ByLane) -> float:
    """Return how long the rest of a run takes by the pace and the new chats of its accounts, once it goes on; infinity:
    it has new chats left and may begin none."""
    lanes = [snapshots[pk] for pk in run.lanes if pk in snapshots]
    days = [
        _days_of_new_chats(new.get((run.pk, snapshot.account_id), 0), snapshot.new_chats.budget) for snapshot in lanes
    ]
    return max([_seconds_at_pace(run, lanes), *(DAY * (n - 1) for n in days)])


def _days_of_new_chats(new: int, budget: int | None) -> float:
    if not new or budget is None:
        return 1
    return math.ceil(new / budget) if budget else math.inf


def _seconds_at_pace(run: Run, lanes: Sequence[AccountSnapshot]) -> float:
    parts = part_count(run)
    messages = (run.pending + run.sending) * parts
    each = [
        slowest(snapshot.pace_settings, parts, snapshot.concurrency, snapshot.latency, snapshot.jitter)[1]
        for snapshot in lanes
    ]
    return messages / sum(1 / max(seconds, 1e-6) for seconds in each) if each else 0.0


# --- people who need a template ----------------------------------------------------------------------------


def template_outlook(reminder: Reminder, at: datetime, now: datetime) -> list[str]:
    """Return how many people will need a message template when the reminder goes out, and the parts that lack one."""
    choice = Choice(reminder.senders)
    persons = audience(reminder, now).filter(kind__in=NEW_CHAT_KINDS)
    people = persons.count() if choice.needed else 0
    if not people:
        return []
    wrote = [
        wrote_since(persons, account.pk, since)
        for account in choice.accounts
        if (since := channel(account.channel).free_since(at)) is not None
    ]
    fates = [choice.fate(part, {}) for part in stored_parts(reminder)]
    who = who_is_outside(people - min(wrote), people, exact=len(wrote) == 1)
    return [who, *(fate["problem"] for fate in fates if fate["problem"])]
