"""When will it finish, does it fit into today's window, how many fit, and what is in the way?

The forecast looks ahead through the account's queue (`outlook.look_ahead`) and puts it into a sentence. Where a lane
sends one message every D seconds with a pause of P after every B, that comes to (N·D) + (N/B)·P.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import NamedTuple

from django.db.models import Q

from accounts.addresses import PERSON
from accounts.channels.registry import channel
from accounts.models import Account
from fanout.lanes.new_chats import new_among, new_in_reminders, of_all, pending_new_chats
from fanout.models import Run
from fanout.rules.caps import local_date
from fanout.rules.pace import PaceSettings
from fanout.runs.outlook import DayPlan, LaneOutlook, RunOutlook, look_ahead, moment
from fanout.runs.planning import AccountPlan, DailyCap, Queued, Work
from fanout.runs.queue import (
    account_plan,
    account_plans,
    lane_order,
    lanes_of,
    movable,
    new_share,
    part_count,
    queued_for,
    work_by_account,
)
from reminders.models import Recipient, Reminder
from reminders.moments import closing_time, two_clocks, wall_clock
from reminders.senders import shares
from reminders.targets import count_kinds
from reminders.window import BusinessHours, Window


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


@dataclass(frozen=True, slots=True)
class LaneWork:
    """What one lane sends of the work that is forecast: the account with the queue before it, and its own share.
    `after`: what the lane owes to later runs, which go first while this one may not send."""

    account: AccountPlan
    mine: tuple[Queued, ...]
    noun: str = "group"
    after: tuple[Queued, ...] = ()

    @property
    def targets(self) -> int:
        return sum(queued.work.targets for queued in self.mine)

    @property
    def parts(self) -> int:
        return max((queued.work.parts for queued in self.mine), default=1)

    @property
    def queue(self) -> tuple[Queued, ...]:
        return (*self.account.queued_before, *self.mine, *self.after)

    @property
    def counted(self) -> str:
        """Which of the account's caps its messages use."""
        return self.account.counted(self.mine[0]) if self.mine else ""

    @property
    def cap(self) -> DailyCap:
        return self.account.caps[self.counted]

    @property
    def places(self) -> range:
        """Of its own work in the queue."""
        begin = len(self.account.queued_before)
        return range(begin, begin + len(self.mine))


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
    return assemble([_share(*pair) for pair in zip(lanes, outlooks)], window, at, reader)


# --- lanes put together ---------------------------------------------------------------------------------


@dataclass(slots=True)
class LaneShare:
    """One lane's part of a forecast: its work, and what lies before that."""

    lane: LaneWork
    ahead: LaneOutlook
    mine: RunOutlook

    @property
    def end(self) -> float:
        """When the lane is done; infinity: never."""
        if self.mine.targets < self.lane.targets:
            return math.inf
        return self.mine.last + self.lane.account.latency if self.mine.last is not None else 0.0


def _share(lane: LaneWork, ahead: LaneOutlook) -> LaneShare:
    return LaneShare(lane, ahead, together([ahead.runs[place] for place in lane.places]))


def together(runs: Sequence[RunOutlook]) -> RunOutlook:
    """Of several runs as if they were one."""
    begun = sorted((run for run in runs if run.first is not None), key=lambda run: run.first or 0.0)
    if len(begun) < 2:
        return begun[0] if begun else RunOutlook()
    return replace(
        begun[0],
        days=_merged([day for run in begun for day in run.days]),
        targets=sum(run.targets for run in begun),
        last=max(run.last or 0.0 for run in begun),
    )


def assemble(shares: Sequence[LaneShare], window: Window, at: datetime, reader: Reader) -> Forecast:
    days = _merged([day for share in shares for day in share.mine.days])
    today = local_date(window.timezone, at)
    left = sum(share.lane.targets for share in shares)
    fits_count = sum(day.targets for day in days if day.date == today)
    slowest_share = max(shares, key=lambda share: share.end)
    bound_by = _bound_by(slowest_share, reader.now)
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


def outside_hours(hours: BusinessHours, window: Window, at: datetime) -> bool:
    """Whether the account's hours end before the window of that day does, or are over already."""
    closes = window.closes_on(at)
    opens = hours.next_open(max(at, window.opens_on(at)))
    ends = hours.closes_at(opens)
    return opens >= closes or (ends is not None and ends < closes)


def _merged(days: Sequence[DayPlan]) -> list[DayPlan]:
    """The days of all lanes, in order."""
    merged: dict[date, DayPlan] = {}
    for day in days:
        other = merged.get(day.date, DayPlan(day.date, 0, 0, day.ends_at))
        merged[day.date] = DayPlan(
            day.date, day.targets + other.targets, day.messages + other.messages, max(day.ends_at, other.ends_at)
        )
    return [merged[date] for date in sorted(merged)]


# --- what binds -----------------------------------------------------------------------------------------


def _bound_by(share: LaneShare, now: datetime) -> str:
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


BUDGET, HOLD = "budget of new chats", "hold of new chats"


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


# --- read from the database -----------------------------------------------------------------------------


def forecast_reminder(reminder: Reminder, now: datetime, zone: str = "") -> Forecast:
    """As if it fired at its next time, or at once where it has none. `zone`: of whoever reads it."""
    at = max(now, reminder.next_fire_at or now)
    kinds = count_kinds(Recipient.objects.filter(reminders=reminder))
    parts = max(reminder.messages.count(), 1)

    def count_new(account: int) -> int:
        return new_in_reminders([(reminder.pk, account)])[reminder.pk, account]

    return forecast_draft(
        reminder.senders, kinds, parts, reminder.window, at, now, count_new, reminder.run_action, zone
    )


# How many of a draft's persons are new chats of an account; asked only where those have limits.
CountNew = Callable[[int], int]


def forecast_draft(
    senders: Sequence[Account],
    kinds: Mapping[str, int],
    parts: int,
    window: Window,
    at: datetime,
    now: datetime,
    count_new: CountNew,
    action: str = "",
    zone: str = "",
) -> Forecast:
    """For so many targets of each kind that these accounts would share at `at`, behind what they owe by then."""
    reader = Reader(now, zone)
    if window.closes_on(at) <= at:
        sentence = f"The window is closed at {reader.time(at, window.timezone)}: nothing would be sent."
        return Forecast(None, None, False, 0, "window", [], sentence)
    return of_lanes(draft_lanes(senders, kinds, parts, window, at, now, count_new, action), window, at, reader)


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
    """Each account's share of such a draft, in the order of the accounts."""
    plans = account_plans(senders, now, action)
    lanes = []
    for account, targets in zip(senders, shares(kinds, senders)):
        plan = plans[account.pk]
        new = new_share(account, senders, kinds, count_new(account.pk)) if plan.new_chats.limited(now) else 0
        mine = Queued(Work.of(targets, parts), window, at).split(new)
        lanes.append(LaneWork(plan.before(at, sys.maxsize), mine, _noun(account)))
    return lanes


def forecast_run(run: Run, now: datetime, zone: str = "") -> Forecast:
    """What is left of a run, between what its lanes owe to others. A paused one as if it were resumed now."""
    return forecast_runs([run], now, zone)[run.pk]


class Senders(NamedTuple):
    """Accounts, and each as plans see it."""

    accounts: Mapping[int, Account]
    plans: Mapping[int, AccountPlan]


def read_senders(which: Q, now: datetime, action: str | Mapping[int, str] = "") -> Senders:
    accounts = Account.objects.filter(which).in_bulk()
    return Senders(accounts, account_plans(list(accounts.values()), now, action))


def _senders(runs: Sequence[Run], actions: Mapping[int, str], now: datetime) -> Senders:
    if len(runs) == 1 and actions.keys() <= {runs[0].account_id}:
        account = runs[0].account  # which a page has read already
        return Senders({account.pk: account}, account_plans([account], now, actions))
    return read_senders(Q(pk__in=actions), now, actions)


def forecast_runs(
    runs: Sequence[Run], now: datetime, zone: str = "", senders: Senders | None = None
) -> dict[int, Forecast]:
    """The same for many runs: one look through the queue of each account. `senders`: where they have been read."""
    unqueued = {run: work_by_account(run) for run in runs if not _wholly_queued(run)}
    actions = {pk: run.action for run in reversed(runs) for pk in (*lanes_of(run), *unqueued.get(run, ()))}
    accounts, plans = senders or _senders(runs, actions, now)
    left = {(run.pk, pk): work.targets for run, by_lane in unqueued.items() for pk, work in by_lane.items()}
    new = new_chats_left(left, plans, now)
    queues = {pk: _with(unqueued, pk, plans[pk].queued_before, new, now) for pk in actions if pk in plans}
    asked = {run.pk for run in runs}
    outlooks = {pk: look_ahead(plans[pk], queue, now, _places(queue, asked)) for pk, queue in queues.items()}
    forecasts = {}
    for run in runs:
        lanes = [(pk, places) for pk, queue in queues.items() if (places := _places(queue, {run.pk}))]
        mine = [_share(_lane(plans[pk], queues[pk], places, accounts[pk]), outlooks[pk]) for pk, places in lanes]
        forecasts[run.pk] = assemble(mine, run.window, goes_on_from(run, now), Reader(now, zone)) if mine else NOTHING
    return forecasts


ByLane = Mapping[tuple[int, int], int]  # how many targets, by run and account


def new_chats_left(left: ByLane, plans: Mapping[int, AccountPlan], now: datetime) -> ByLane:
    """How many of the targets that are left are new chats; only where those have limits."""
    counted = pending_new_chats([(run, pk) for run, pk in left if pk in plans and plans[pk].new_chats.limited(now)])
    return {pair: of_all(new, left[pair]) for pair, new in counted.items()}


def seconds_to_send(run: Run, plans: Mapping[int, AccountPlan], new: ByLane) -> float:
    """How long the rest of a run takes by the pace and the new chats of its accounts, whenever it goes on; infinity: it
    has new chats left and may begin none."""
    lanes = [plans[pk] for pk in run.lanes if pk in plans]
    days = [_days_of_new_chats(new.get((run.pk, plan.account_id), 0), plan.new_chats.budget) for plan in lanes]
    return max([_seconds_at_pace(run, lanes), *(DAY * (n - 1) for n in days)])


DAY = 86_400.0


def _days_of_new_chats(new: int, budget: int | None) -> float:
    if not new or budget is None:
        return 1
    return math.ceil(new / budget) if budget else math.inf


def _seconds_at_pace(run: Run, lanes: Sequence[AccountPlan]) -> float:
    parts = part_count(run)
    messages = (run.pending + run.sending) * parts
    each = [slowest(plan.pace, parts, plan.concurrency, plan.latency, plan.jitter)[1] for plan in lanes]
    return messages / sum(1 / max(seconds, 1e-6) for seconds in each) if each else 0.0


NOTHING = Forecast(None, None, True, 0, "nothing", [], "Nothing to send.")


def _wholly_queued(run: Run) -> bool:
    """Whether all that is left of it stands in the queues of its lanes; not where one of them has stepped aside."""
    aside = {int(pk) for pk in run.slips} - {*run.lanes}
    going = (*Run.LIVE, Run.Status.PREPARING)
    return not aside and (run.status in going or (run.status == Run.Status.PAUSED and run.resume_at is not None))


def _with(
    unqueued: Mapping[Run, Mapping[int, Work]], account: int, queue: Sequence[Queued], new: ByLane, now: datetime
) -> tuple[Queued, ...]:
    """The account's queue, with what it would send of runs that are not in it. A paused one may stand there for a later
    time than it is asked about."""
    asked = {run.pk for run in unqueued if run.status == Run.Status.PAUSED}
    queue = [queued for queued in queue if queued.run_id not in asked]
    here = {queued.run_id for queued in queue}
    added = [
        queued
        for run, work in unqueued.items()
        if account in work and run.pk not in here
        for queued in queued_for(run, work[account], goes_on_from(run, now)).split(new.get((run.pk, account), 0))
    ]
    return tuple(sorted([*queue, *added], key=lane_order)) if added else tuple(queue)


def _places(queue: Sequence[Queued], runs: Collection[int]) -> list[int]:
    return [place for place, queued in enumerate(queue) if queued.run_id in runs]


def _lane(plan: AccountPlan, queue: tuple[Queued, ...], places: Sequence[int], account: Account) -> LaneWork:
    first, end = places[0], places[-1] + 1  # they lie side by side
    before = replace(plan, queued_before=queue[:first])
    return LaneWork(before, queue[first:end], _noun(account), queue[end:])


def goes_on_from(run: Run, now: datetime) -> datetime:
    """When the run may send at the earliest, whatever its window says."""
    due = run.resume_at if run.status == Run.Status.PAUSED and run.resume_at else run.scheduled_for
    return max(now, due)


def forecast_offload(
    runs: Sequence[Run], account: Account, now: datetime, zone: str = "", plan: AccountPlan | None = None
) -> Forecast:
    """What is left of these runs, if another account sent what can be moved to it; and what that would delay."""
    lane = _offloaded(runs, account, plan or account_plan(account, now, max(runs, key=_due).action), now)
    first = min(runs, key=_due)
    forecast = of_lanes([lane], first.window, max(now, first.scheduled_for), Reader(now, zone))
    return replace(forecast, delays=tuple(_delays(lane, now).items()))


def _delays(lane: LaneWork, now: datetime) -> dict[int, float]:
    """The account's own runs that would end later, each with the seconds that it would wait longer."""
    owed = (*lane.account.queued_before, *lane.after)
    ends = {queued.run_id: run.last for queued, run in zip(owed, look_ahead(lane.account, owed, now).runs)}
    later = zip(lane.queue, look_ahead(lane.account, lane.queue, now).runs)
    waits = {queued.run_id: (run.last or 0.0) - (ends.get(queued.run_id) or math.inf) for queued, run in later}
    return {run: seconds for run, seconds in waits.items() if run and seconds >= WORTH_SAYING}


# Seconds by which an offload delays another run before anybody needs to know.
WORTH_SAYING = 30.0


def _due(run: Run) -> tuple[datetime, int]:
    return run.scheduled_for, run.pk


def _offloaded(runs: Sequence[Run], account: Account, plan: AccountPlan, now: datetime) -> LaneWork:
    runs = sorted(runs, key=_due)
    last = runs[-1]
    # What it sends of the last one already goes first too.
    before = plan.before(last.scheduled_for, last.pk + 1)
    mine = tuple(queued for run in runs for queued in _moved(run, account, plan, now))
    after = plan.queued_before[len(before.queued_before) :]
    return LaneWork(before, mine, _noun(account), after)


def _moved(run: Run, account: Account, plan: AccountPlan, now: datetime) -> tuple[Queued, ...]:
    """What an offload of the run would add to the account's queue."""
    targets, starts = movable(run, account), max(now, run.scheduled_for)
    work = Work.of(targets.count(), part_count(run))
    moved = Queued(work, run.window, starts, follow_up=run.follow_up, action=run.action)
    if not plan.new_chats.limited(now):
        return (moved,)
    persons = targets.filter(recipient__kind=PERSON)
    return moved.split(of_all(new_among(persons, account.pk), persons.count()))


def _noun(account: Account) -> str:
    return channel(account.channel).noun
