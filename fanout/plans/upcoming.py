"""List the firings of the next day, or until a moment: when each begins and ends, and how much of it fits."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from heapq import merge
from itertools import chain, islice, takewhile
from typing import NamedTuple

from django.db.models import Count, QuerySet, prefetch_related_objects

from accounts.models import Account
from fanout.lanes.account_state import calendar_of
from fanout.plans.audience import kinds_by_reminder, new_chats
from fanout.plans.follow_up_steps import PlannedStep, step_title, steps_of_firing, steps_of_runs
from fanout.plans.outlook import MOST_PROJECTED, LaneOutlook, RunOutlook, combined, look_ahead
from fanout.plans.projection import Queued, Work, as_datetime, outside_hours
from fanout.plans.queue import Senders, new_share, queue_order
from fanout.rules.gates import BUSINESS_HOURS, local_date
from reminders.models import Reminder
from reminders.moments import TimeWords, about, closing_time
from reminders.targets import shares

DAY = timedelta(hours=24)
#: messages of all lanes together that are looked at one by one, and those of each lane at least
PROJECTED_IN_ALL, PROJECTED_EACH = 2_000, 20
MOST_FIRINGS = 20
LATE = timedelta(minutes=2)  # a shorter delay is not worth showing


@dataclass(frozen=True)
class Firing:
    """One firing, with the outlook and the number of targets of its share in each lane. `account`: set for the share of
    one lane."""

    reminder: Reminder
    at: datetime
    targets: int
    lanes: Mapping[int, RunOutlook]
    shares: Mapping[int, int] = field(default_factory=dict)
    account: Account | None = None
    kinds: Collection[str] = ()  # of its recipients' addresses
    # The number of a follow-up that goes to those who have not replied by then; 0: the reminder itself.
    step: int = 0

    @cached_property
    def title(self) -> str:
        return step_title(self.reminder.title, self.step) if self.step else self.reminder.title

    def share(self, account: Account) -> Firing:
        """Return the share of one account."""
        lanes = {pk: lane for pk, lane in self.lanes.items() if pk == account.pk}
        return replace(self, targets=self.shares.get(account.pk, 0), lanes=lanes, account=account)

    @cached_property
    def starts_at(self) -> datetime | None:
        return as_datetime(min(firsts)) if (firsts := [lane.first for lane in self._begun if lane.first]) else None

    @cached_property
    def ends_at(self) -> datetime | None:
        return as_datetime(max(lane.last or 0.0 for lane in self._begun)) if self._begun else None

    @cached_property
    def _begun(self) -> list[RunOutlook]:
        return [lane for lane in self.lanes.values() if lane.first is not None]

    @cached_property
    def fits_count(self) -> int:
        """Number of targets that are done before the window closes."""
        if self.too_late:
            return 0
        today = local_date(self.reminder.timezone, self.at)
        return sum(day.targets for lane in self._begun for day in lane.days if day.date == today)

    @cached_property
    def account_down(self) -> Account | None:
        """A sender, where none of them is active and everything waits until one is."""
        senders = [self.account] if self.account else self.reminder.senders
        return None if any(account.status == Account.Status.ACTIVE for account in senders) else senders[0]

    @cached_property
    def too_late(self) -> bool:
        return self.reminder.window.closes_on(self.at) <= self.at

    @cached_property
    def late_by(self) -> timedelta:
        """Delay after the window's opening, because the account is busy."""
        opens = self.reminder.window.next_opening(self.at)
        return max(self.starts_at - opens, timedelta()) if self.starts_at else timedelta()

    @cached_property
    def fits(self) -> bool:
        return self.fits_count >= self.targets and self.account_down is None

    @cached_property
    def collides(self) -> bool:
        """Return whether it begins late or is not done in time, because the account has too much to send."""
        if not self.targets or self.account_down or self.too_late:
            return False
        return not self.fits or self.late_by >= LATE

    @cached_property
    def _outside_hours(self) -> bool:
        account = self.account or self.reminder.account
        return outside_hours(calendar_of(account.__dict__), self.reminder.window, self.at)

    def verdict(self, zone: str, now: datetime) -> str:
        """Return in words whether it fits, by the reader's clock."""
        if not self.targets:
            return "everyone has replied" if self.step else "has no recipients"
        if self.account_down:
            return f"waits: {self.account_down} is {self.account_down.get_status_display().lower()}"
        if self.too_late:
            return "fires after its delivery hours: nothing would be sent"
        if not self.fits:
            left = f"won't fit: {self.targets - self.fits_count:,} of {self.targets:,} are left"
            closes = closing_time(self.reminder.window.closes_on(self.at), zone)
            return f"{left}, {BUSINESS_HOURS.sentence}" if self._outside_hours else f"{left} at {closes}"
        late = f"starts {about(self.late_by.total_seconds())} late, " if self.late_by >= LATE else ""
        done = TimeWords(self.reminder.timezone, zone)(self.ends_at, now) if self.ends_at else ""
        return f"{late}{'done' if late else 'fits, done'} {done}"


def due_reminders(
    reminders: QuerySet[Reminder], now: datetime, until: datetime | None = None, most: int = MOST_FIRINGS
) -> list[Reminder]:
    """Return the reminders that fire within the next day, or until then, the soonest first, with their senders and
    number of parts."""
    due = reminders.filter(enabled=True, next_fire_at__gt=now, next_fire_at__lte=until or now + DAY).order_by(
        "next_fire_at", "pk"
    )
    counted = due.annotate(part_count=Count("messages")).select_related("account", "owner", "segment")
    found: list[Reminder] = list(counted.prefetch_related("further_senders")[:most])
    prefetch_related_objects([reminder for reminder in found if reminder.follow_up_days], "follow_up_parts")
    return found


def upcoming_firings(reminders: Sequence[Reminder], senders: Senders, now: datetime) -> list[Firing]:
    """Return the firings of these reminders within the next day, in order, behind the queues of their accounts."""
    return look_ahead_until(reminders, senders, now, now + DAY).firings


class LaneAhead(NamedTuple):
    """An account's queue, firings to come included, and its outlook. A firing has a run id below zero."""

    queue: Sequence[Queued]
    outlook: LaneOutlook


class Ahead(NamedTuple):
    """Firings in order, and the lanes of the accounts by their ids."""

    firings: list[Firing]
    lanes: Mapping[int, LaneAhead]


def look_ahead_until(
    reminders: Sequence[Reminder],
    senders: Senders,
    now: datetime,
    until: datetime,
    most: int = MOST_FIRINGS,
    whole: bool = False,
) -> Ahead:
    """Return the firings of these reminders until then, and how the lanes of their accounts go on. `whole`: look
    through the queues of all senders to their ends, not only to the last firing."""
    kinds = kinds_by_reminder(reminders, now)
    # Each reminder's moments only as far as they are among the first: some fire every few minutes.
    in_order = merge(*(_moments(reminder, until) for reminder in reminders), key=lambda firing: firing[0])
    firings = list(islice(in_order, most))
    new = _new_chats(reminders, kinds, senders, now)
    queues: dict[int, list[Queued]] = defaultdict(list)
    each = {reminder.pk: _as_step(now, reminder, kinds[reminder.pk]) for reminder in reminders}
    planned = _with_follow_ups([each[reminder.pk]._replace(at=at) for at, reminder in firings], senders, until)
    for number, one in enumerate(planned, start=1):
        reminder, follow_up = one.reminder, one.reminder.follow_up or one.step > 0
        for account, targets in one.shares.items():
            if account not in senders.snapshots:
                continue
            work = Work.of(targets, max(one.parts, 1))
            # A number below zero, which no run has.
            queued = Queued(
                work, reminder.window, one.at, (one.at, -number), follow_up, -number, action=reminder.run_action
            )
            # At its second firing they are known chats, and so are those of a follow-up.
            queues[account].extend(queued.split(new.pop((reminder.pk, account), 0) if not one.step else 0))
    outlooks: dict[int, dict[int, RunOutlook]] = defaultdict(dict)
    accounts = senders.snapshots if whole else queues
    projected = min(MOST_PROJECTED, max(PROJECTED_EACH, PROJECTED_IN_ALL // max(len(accounts), 1)))
    lanes = {pk: _ahead(senders, pk, queues[pk], now, whole, projected) for pk in accounts}
    for pk, lane in lanes.items():
        for queued, outlook in zip(lane.queue, lane.outlook.runs):
            if queued.run_id < 0:
                before = outlooks[-queued.run_id].get(pk)
                outlooks[-queued.run_id][pk] = combined([before, outlook]) if before else outlook
    listed = [
        Firing(one.reminder, one.at, _size(one, kinds), outlooks[number], one.shares, step=one.step, kinds=one.kinds)
        for number, one in enumerate(planned, start=1)
    ]
    return Ahead(listed, lanes)


def _as_step(at: datetime, reminder: Reminder, kinds: Mapping[str, int]) -> PlannedStep:
    accounts = reminder.senders
    each = {account.pk: targets for account, targets in zip(accounts, shares(kinds, accounts))}
    return PlannedStep(at, reminder, 0, each, reminder.__dict__["part_count"], list(kinds))


def _with_follow_ups(firings: Sequence[PlannedStep], senders: Senders, until: datetime) -> list[PlannedStep]:
    """Return the firings with their follow-ups and those of earlier runs, in order. At most everyone gets them."""
    later = [step for one in firings for step in steps_of_firing(one.reminder, one.at, one.shares, until, one.kinds)]
    return sorted([*firings, *later, *steps_of_runs(senders.snapshots.keys(), until)], key=lambda one: one.at)


def _size(one: PlannedStep, kinds: Mapping[int, Counter[str]]) -> int:
    return sum(one.shares.values()) if one.step else kinds[one.reminder.pk].total()


def _ahead(
    senders: Senders, account: int, mine: Sequence[Queued], now: datetime, whole: bool, projected: int
) -> LaneAhead:
    snapshot = senders.snapshots[account]
    queue = sorted([*snapshot.queued_before, *(queued for queued in mine if _in_time(queued))], key=queue_order)
    positions = None if whole else [position for position, queued in enumerate(queue) if queued.run_id < 0]
    return LaneAhead(queue, look_ahead(snapshot, queue, now, positions, projected))


def _in_time(queued: Queued) -> bool:
    """Return False for a run made after its window has closed: it sends nothing at all."""
    return queued.window.closes_on(queued.starts) > queued.starts


def _moments(reminder: Reminder, until: datetime) -> Iterator[tuple[datetime, Reminder]]:
    first = reminder.next_fire_at
    if first is None:
        return
    for at in takewhile(lambda at: at <= until, chain([first], reminder.firings_after(first))):
        yield at, reminder


def _new_chats(
    reminders: Sequence[Reminder], kinds: Mapping[int, Counter[str]], senders: Senders, now: datetime
) -> dict[tuple[int, int], int]:
    """Count the new chats that each account begins for each reminder, where those have limits, in one query."""
    pairs = {
        (reminder.pk, account.pk): (account, reminder.senders)
        for reminder in reminders
        for account in reminder.senders
        if senders.snapshots[account.pk].new_chats.limited(now)
    }
    by_pk = {reminder.pk: reminder for reminder in reminders}
    counted = new_chats([(by_pk[reminder], account) for reminder, account in pairs], now)
    return {pair: new_share(*pairs[pair], kinds[pair[0]], new) for pair, new in counted.items()}
