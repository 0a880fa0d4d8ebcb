"""What happens on which day: firings to come, runs that go on, past runs, and each account's used and free capacity.

Every time and number is the forecast's: one look ahead through the queues of all accounts (`upcoming`).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django.db.models import Exists, OuterRef, Q

from accounts import access
from accounts.addresses import counted_as
from accounts.models import Account
from fanout.models import Run
from fanout.plans.outlook import DayPlan, RunOutlook, combined, slowest
from fanout.plans.projection import AccountSnapshot, as_datetime
from fanout.plans.queue import Senders, read_senders, starts_at
from fanout.plans.upcoming import Ahead, Firing, due_reminders, look_ahead_until
from reminders.models import Reminder
from reminders.moments import closing_time, wall_clock
from reminders.window import Window

#: entries that a page looks at; a reminder every five minutes would have thousands
MOST_FIRINGS = 500
MOST_PAST = 300
MOST_ACCOUNTS = 40
#: days that can be looked ahead: beyond, caps and lists will have changed anyway
MOST_DAYS = 62
#: a shorter time between two sendings is not offered for another reminder
WORTH_OFFERING = timedelta(minutes=30)
#: of a new reminder: free times are those within them
USUAL_HOURS = (
    int(Reminder._meta.get_field("delivery_window_start_hour").default),
    int(Reminder._meta.get_field("delivery_window_end_hour").default),
)
UNSEEN = "another reminder of this account"
GOOD, LATER, BAD, PAST = "good", "warn", "bad", "mute"


@dataclass(frozen=True, slots=True)
class Entry:
    """One account's part of a firing or run on one day. `conflict`: it will not fit, or begin late, because the account
    has other things to send or too little time."""

    account: int
    day: date
    due: datetime
    begins: datetime
    ends: datetime | None
    title: str
    targets: int
    tone: str
    words: str
    reminder: int | None = None
    run: int | None = None
    conflict: bool = False
    # The number of a follow-up of the reminder; 0: the reminder itself.
    step: int = 0
    kinds: Collection[str] = ()  # of its recipients' addresses

    @property
    def recipients(self) -> str:
        return counted_as(self.targets, self.kinds)

    @property
    def problem(self) -> bool:
        """Return whether its tone says more than the colour: then its words are shown, too."""
        return self.tone in (LATER, BAD)


@dataclass(slots=True)
class AccountDay:
    """One account on one day: what it sends, how much is planned and free, and when."""

    account: int
    day: date
    entries: list[Entry] = field(default_factory=list)
    planned: int = 0
    used: int = 0
    free: int = 0
    capped: bool = False
    #: Its usual hours are over: nothing is free, and yet it is not full.
    over: bool = False
    #: The account does not send on this day: neither is it full.
    closed: bool = False
    #: why the account sends nothing: its status in words; empty while it is active
    down: str = ""
    busy: list[tuple[datetime, datetime]] = field(default_factory=list)
    gaps: list[tuple[datetime, datetime]] = field(default_factory=list)

    @property
    def full(self) -> bool:
        return not self.free and not self.gaps and not self.down and not self.over and not self.closed

    def words(self, zone: str) -> str:
        """Return for example "320 planned, 180 free, busy until 14:20". Without a cap, only the pace limits the number:
        then it is not what is left of a cap, and the words say so."""
        numbers = [f"{self.used:,} sent" if self.used else "", f"{self.planned:,} planned" if self.planned else ""]
        until = self.busy[0][1] if self.busy and self.gaps and self.busy[0][1] <= self.gaps[0][0] else None
        busy = f"busy until {wall_clock(until, zone)[-5:]}" if until else ""
        none = "closed" if self.closed else "over for today" if self.over else "full"
        some = f"{self.free:,} free" if self.capped else f"no cap, time for {self.free:,}"
        free = self.down or (none if self.free <= 0 else some)
        return ", ".join(text for text in [*numbers, free, busy] if text)


class Cells(dict[tuple[int, date], AccountDay]):
    """The days by account and day. One that is asked for and not there is empty: most of a month are."""

    def __missing__(self, key: tuple[int, date]) -> AccountDay:
        self[key] = AccountDay(*key)
        return self[key]


@dataclass(frozen=True, slots=True)
class Agenda:
    days: list[date]
    accounts: list[Account]
    cells: Cells
    #: more fires than is shown
    cut: bool = False

    def on(self, day: date) -> list[Entry]:
        """Return the entries of all accounts on a day, in order."""
        cells = [self.cells.get((account.pk, day)) for account in self.accounts]
        entries = [entry for cell in cells if cell is not None for entry in cell.entries]
        return sorted(entries, key=lambda entry: (entry.begins, entry.title))


def agenda(
    user: Any, days: Sequence[date], zone: str, now: datetime, only: int | None = None, idle_days: bool = True
) -> Agenda:
    """Return what happens on these days by the reader's clock, through the accounts that the person sees. Reminders of
    others through these accounts count, but are not named. `only`: one account. `idle_days`: tell what is free also
    where nothing is planned."""
    until = min(_starts(max(days) + timedelta(days=1), zone), now + timedelta(days=MOST_DAYS))
    accounts = _accounts(user, only, until)
    ids = [account.pk for account in accounts]
    ahead, senders = _look(ids, now, until)
    cells = Cells()
    shown, mine = set(days), set(ids)
    entries = [
        *_past(user, ids, _starts(min(days), zone), now, zone),
        *_of_firings(ahead.firings, accounts, _seen(user, [f.reminder.pk for f in ahead.firings]), zone, now),
        *_of_runs(ahead, user, zone, now),
    ]
    for entry in sorted(entries, key=lambda entry: entry.begins):
        if entry.day in shown and entry.account in mine:
            cells[entry.account, entry.day].entries.append(entry)
    for account in accounts:
        _count(account, ahead, senders.snapshots[account.pk], cells, days, zone, now, idle_days)
    return Agenda(list(days), accounts, cells, cut=len(ahead.firings) >= MOST_FIRINGS)


def _accounts(user: Any, only: int | None, until: datetime) -> list[Account]:
    """Return the accounts by their labels; of too many, first those for which reminders are due."""
    mine = access.visible(user, Account.objects.filter(archived=False))
    if only is not None:
        return list(mine.filter(pk=only))
    due = Reminder.objects.filter(account=OuterRef("pk"), enabled=True, next_fire_at__lte=until)
    busy = list(mine.annotate(busy=Exists(due)).order_by("-busy", "label", "pk")[:MOST_ACCOUNTS])
    return sorted(busy, key=lambda account: (account.label, account.pk))


def _look(accounts: Sequence[int], now: datetime, until: datetime) -> tuple[Ahead, Senders]:
    """Look ahead through everything that the accounts will send, also for other people."""
    through = Q(account__in=accounts) | Q(further_senders__account__in=accounts)
    mine = Reminder.objects.filter(pk__in=Reminder.objects.filter(through).values("pk"))
    reminders = due_reminders(mine, now, until, MOST_FIRINGS) if until > now else []
    wanted = {*accounts, *(account.pk for reminder in reminders for account in reminder.senders)}
    senders = read_senders(Q(pk__in=wanted), now)
    return look_ahead_until(reminders, senders, now, until, MOST_FIRINGS, whole=True), senders


def _starts(day: date, zone: str) -> datetime:
    return datetime.combine(day, time(), ZoneInfo(zone)).astimezone(UTC)


def _day(at: datetime, zone: str) -> date:
    return at.astimezone(ZoneInfo(zone)).date()


def _seen(user: Any, reminders: Sequence[int]) -> set[int]:
    rows = access.visible(user, Reminder.objects.filter(pk__in=set(reminders)))
    return set(rows.values_list("pk", flat=True))


# --- entries ---------------------------------------------------------------------------------------------


def _of_firings(
    firings: Sequence[Firing], accounts: Sequence[Account], seen: set[int], zone: str, now: datetime
) -> Iterator[Entry]:
    by_pk = {account.pk: account for account in accounts}
    for firing in firings:
        reminder, named = firing.reminder, firing.reminder.pk in seen
        # One without recipients is shown with the reminder's own account.
        sending = [pk for pk, targets in firing.shares.items() if targets]
        for pk in sending if firing.targets else [reminder.account_id]:
            if (account := by_pk.get(pk)) is None:
                continue
            mine = firing.share(account)
            begins, collides = mine.starts_at or mine.at, mine.collides
            entry = Entry(
                account=pk,
                day=_day(begins, zone),
                due=mine.at,
                begins=begins,
                ends=mine.ends_at,
                title=mine.title if named else UNSEEN,
                targets=mine.targets,
                tone=BAD if not mine.targets or not mine.fits else LATER if collides else GOOD,
                words=f"{'at most, without a reply: ' if mine.step else ''}{mine.verdict(zone, now)}",
                reminder=reminder.pk if named else None,
                conflict=collides,
                step=mine.step,
                kinds=mine.kinds,
            )
            yield entry
            yield from _following(entry, mine.lanes.get(pk), zone, reminder.auto_resume)


def _of_runs(ahead: Ahead, user: Any, zone: str, now: datetime) -> Iterator[Entry]:
    """Yield what is left of runs: those that go out now, and paused ones that go on by themselves."""
    ids = {queued.run_id for lane in ahead.lanes.values() for queued in lane.queue if queued.run_id > 0}
    mine = access.visible(user, Run.objects.filter(pk=OuterRef("pk")))
    runs = Run.objects.defer("parts", "reply_parts").annotate(seen=Exists(mine)).in_bulk(ids)
    for pk, lane in ahead.lanes.items():
        # What waits for another try, and new chats, are apart in the queue.
        parts: dict[int, list[tuple[int, RunOutlook]]] = defaultdict(list)
        for queued, outlook in zip(lane.queue, lane.outlook.runs):
            if queued.run_id in runs and outlook.first is not None:
                parts[queued.run_id].append((queued.work.targets, outlook))
        for run_id, pieces in parts.items():
            run, outlook = runs[run_id], combined([outlook for _, outlook in pieces])
            assert outlook.first is not None
            resumes = run.status == Run.Status.PAUSED
            begins = max(as_datetime(outlook.first), starts_at(run))
            entry = Entry(
                account=pk,
                day=_day(begins, zone),
                due=starts_at(run),
                begins=begins,
                ends=as_datetime(outlook.last) if outlook.last else None,
                title=run.title if run.seen else UNSEEN,
                targets=sum(targets for targets, _ in pieces),
                tone=GOOD if len(outlook.days) == 1 else LATER,
                words=("resumes by itself" if resumes else "going out")
                + ("" if len(outlook.days) == 1 else f" on {len(outlook.days)} days"),
                run=run.pk if run.seen else None,
                conflict=len(outlook.days) > 1,
                kinds=run.kinds,
            )
            yield entry
            yield from _following(entry, outlook, zone, run.auto_resume)


def _following(entry: Entry, outlook: RunOutlook | None, zone: str, by_itself: bool) -> Iterator[Entry]:
    """Yield the further days of a firing or run that takes several."""
    for plan in outlook.days[1:] if outlook else ():
        day = _day(plan.begins_at, zone)
        if day != entry.day:
            words = f"goes on with {plan.targets:,}{'' if by_itself else ' if it is resumed'}"
            yield replace(entry, day=day, begins=plan.begins_at, ends=plan.ends_at, targets=plan.targets, words=words)


def _past(user: Any, accounts: Sequence[int], since: datetime, now: datetime, zone: str) -> Iterator[Entry]:
    """Yield the runs that were made on the days before; only those that the person sees."""
    runs = access.visible(user, Run.objects.filter(archived=False, is_test=False, answers=None))
    runs = runs.filter(Q(account__in=accounts) | Q(lanes__overlap=list(accounts)))
    runs = runs.filter(scheduled_for__gte=since, scheduled_for__lt=now)
    runs = runs.filter(status__in=[*Run.FINISHED, Run.Status.PAUSED], resume_at=None)
    for run in runs.defer("parts", "reply_parts").order_by("-scheduled_for")[:MOST_PAST]:
        bad = run.status in (Run.Status.FAILED, Run.Status.PAUSED)
        entry = Entry(
            account=run.account_id,
            day=_day(run.scheduled_for, zone),
            due=run.scheduled_for,
            begins=run.scheduled_for,
            ends=run.finished_at,
            title=run.title,
            targets=run.total,
            tone=BAD if bad else PAST,
            words=f"{run.get_status_display().lower()}: {run.sent:,} of {run.total:,} sent",
            run=run.pk,
            kinds=run.kinds,
        )
        # One that was shared stands with each account that sent for it.
        yield from (replace(entry, account=pk) for pk in {run.account_id, *run.lanes} & set(accounts))


# --- capacity --------------------------------------------------------------------------------------------


def _count(
    account: Account,
    ahead: Ahead,
    snapshot: AccountSnapshot,
    cells: Cells,
    days: Sequence[date],
    zone: str,
    now: datetime,
    idle_days: bool,
) -> None:
    """Fill in what is planned and free on each day: by the cap, and by the time that is left at the account's pace."""
    planned: Counter[date] = Counter()
    capped: Counter[date] = Counter()  # by the account's day, which its caps count
    busy: defaultdict[date, list[tuple[datetime, datetime]]] = defaultdict(list)
    for outlook in ahead.lanes[account.pk].outlook.runs:
        for plan in outlook.days:
            for day, begins, ends, messages in _by_day(plan, zone):
                planned[day] += messages
                busy[day].append((begins, ends))
            for day, _, _, messages in _by_day(plan, snapshot.hours.timezone):
                capped[day] += messages
    pace = slowest(snapshot.pace_settings, 1, snapshot.concurrency, snapshot.latency, snapshot.jitter)[1]
    today = _day(now, zone)
    for day in days:
        if not planned[day] and not idle_days:
            continue
        cell = cells[account.pk, day]
        cell.planned, cell.busy = planned[day], _merged(busy[day])
        cell.used = snapshot.used if day == today else 0
        cell.gaps = list(_gaps(snapshot, cell.busy, day, zone, now))
        cap = snapshot.caps[""].on(day)
        cell.capped = cap is not None
        free = _free(snapshot, cell.gaps, capped, pace, now)
        cell.down = "" if account.status == Account.Status.ACTIVE else account.get_status_display().lower()
        cell.free = 0 if cell.down else free
        cell.over = now >= Window(zone, *USUAL_HOURS).closes_on(_starts(day, zone) + timedelta(hours=12))
        tomorrow = _starts(day + timedelta(days=1), zone)
        cell.closed = not cell.planned and snapshot.hours.next_open(_starts(day, zone)) >= tomorrow
        if not cell.free:
            cell.gaps = []


def _by_day(plan: DayPlan, zone: str) -> Iterator[tuple[date, datetime, datetime, int]]:
    """Yield the calendar days of a window's day in this timezone: each with begin, end and share of the messages."""
    begins, left = plan.begins_at, plan.messages
    while (midnight := _starts(_day(begins, zone) + timedelta(days=1), zone)) < plan.ends_at:
        share = int(left * ((midnight - begins) / (plan.ends_at - begins)))
        yield _day(begins, zone), begins, midnight, share
        begins, left = midnight, left - share
    yield _day(begins, zone), begins, plan.ends_at, left


def _free(
    snapshot: AccountSnapshot,
    gaps: Sequence[tuple[datetime, datetime]],
    planned: Mapping[date, int],
    pace: float,
    now: datetime,
) -> int:
    """Count the messages that fit into the gaps and below the caps of the account's days."""
    zone = snapshot.hours.timezone
    seconds: defaultdict[date, float] = defaultdict(float)
    for begin, end in gaps:
        while begin < end:
            until = min(end, _starts(_day(begin, zone) + timedelta(days=1), zone))
            seconds[_day(begin, zone)] += (until - begin).total_seconds()
            begin = until
    free = 0.0
    for day, time_left in seconds.items():
        cap, used = snapshot.caps[""].on(day), snapshot.used if day == _day(now, zone) else 0
        by_cap = math.inf if cap is None else cap - used - planned.get(day, 0)
        free += max(0.0, min(time_left / max(pace, 1e-3), by_cap))
    return int(free)


def _merged(spans: list[tuple[datetime, datetime]]) -> list[tuple[datetime, datetime]]:
    """Return the times as they follow each other; those with a short time between them as one."""
    merged: list[tuple[datetime, datetime]] = []
    for begin, end in sorted(spans):
        if merged and begin - merged[-1][1] < WORTH_OFFERING:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    return merged


def _gaps(
    snapshot: AccountSnapshot, busy: Sequence[tuple[datetime, datetime]], day: date, zone: str, now: datetime
) -> Iterator[tuple[datetime, datetime]]:
    """Yield the times of the day, within the usual delivery hours, in which the account may send and has nothing to
    send."""
    noon = _starts(day, zone) + timedelta(hours=12)
    usual = Window(zone, *USUAL_HOURS)
    at, ends = max(usual.opens_on(noon), now), usual.closes_on(noon)
    while at < ends:
        at = snapshot.hours.next_open(at)
        closes = min(snapshot.hours.closes_at(at) or ends, ends)
        for begin, end in [*busy, (closes, closes)]:
            free_until = min(max(begin, at), closes)
            if free_until - at >= WORTH_OFFERING:
                yield at, free_until
            at = max(at, min(end, closes))
        at = max(at, closes) + timedelta(seconds=1)


def gap_in_words(begin: datetime, end: datetime, zone: str) -> str:
    return f"{begin.astimezone(ZoneInfo(zone)):%H:%M}–{closing_time(end, zone)}"
