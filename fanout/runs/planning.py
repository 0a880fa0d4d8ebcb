"""When each message of a lane will go out, by the lane's own rules: window, hours, caps, rate, gaps, batches.

`walk` runs a lane ahead of time. The plan stores what it yields with the run's targets; the forecast counts
it. A plan grants nothing: the gates decide again when the target is sent.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from itertools import islice, repeat

from django.db import connection, transaction

from fanout.models import Run
from fanout.rules.caps import local_date
from fanout.rules.pace import Bucket, PaceSettings, PaceState, recovered
from reminders.window import LOOK_AHEAD, BusinessHours, Window, local_day_bounds

FRESH = PaceState()
Planned = tuple[int, datetime]  # account and moment
CapOn = Callable[[date], int | None]


@dataclass(frozen=True, slots=True)
class AccountPlan:
    """What the plan needs to know of an account."""

    account_id: int
    pace: PaceSettings
    hours: BusinessHours
    state: PaceState = FRESH
    cap: int | CapOn | None = None
    used: int = 0
    concurrency: int = 3
    latency: float = 0.2
    jitter: tuple[float, float] = (0.2, 0.5)
    # Messages of earlier runs that go out first.
    queued_before: int = 0

    def cap_on(self, day: date) -> int | None:
        return self.cap(day) if callable(self.cap) else self.cap


@dataclass(frozen=True, slots=True)
class Stretch:
    """A time without a break in which the lane may send, and what ends it."""

    starts: float
    ends: float
    day: date  # whose window it belongs to
    ended_by: str  # "window", "hours" or "day": the account's calendar day, with its cap
    account_day: date | None


# --- the calendar ---------------------------------------------------------------------------------------


def stretches(window: Window, hours: BusinessHours, now: datetime, by_day: bool = False) -> Iterator[Stretch]:
    """Where window and hours overlap, from `now` on; split at the account's midnight where a cap counts."""
    at = now
    while True:
        opens = window.meets(hours, at)
        if opens is None:
            return
        ends = _ends(window, hours, opens, by_day)
        ended_by, at = min(ends, key=lambda end: end[1])
        account_day = local_date(hours.timezone, opens) if by_day else None
        day = local_date(window.timezone, opens)
        yield Stretch(opens.timestamp(), at.timestamp(), day, ended_by, account_day)


def _ends(window: Window, hours: BusinessHours, at: datetime, by_day: bool) -> list[tuple[str, datetime]]:
    ends = [("window", window.closes_on(at))]
    closes = hours.closes_at(at)
    if closes is not None:
        ends.append(("hours", closes))
    if by_day:
        ends.append(("day", local_day_bounds(hours.timezone, at)[1]))
    return ends


# --- the lane, ahead of time ----------------------------------------------------------------------------


class Even(random.Random):
    """Draws that cover their range evenly (by the golden ratio): few of them have the mean that many have."""

    def __init__(self) -> None:
        super().__init__(0)
        self.last = 0.5

    def random(self) -> float:
        self.last = (self.last + 0.6180339887498949) % 1
        return self.last


class LaneAhead:
    """The targets of a lane in its slots: as many at once as its concurrency, each target's parts in order.

    Answers take from half to one and a half times the usual latency.
    """

    def __init__(self, account: AccountPlan, parts: Iterable[int], now: datetime, rng: random.Random) -> None:
        self.bucket = Bucket(account.state, account.pace)
        self.gaps = rng
        self.latency = (account.latency / 2, account.latency * 1.5)
        self.jitter = account.jitter
        # A sequence each, so that no slot always gets the short draws of one and the long ones of the other.
        self.latencies, self.jitters = Even(), Even()
        self.waiting = iter(parts)  # how many parts each further target gets
        # Slots by the moment they are ready, with the parts left: targets that wait for their first part, and
        # targets between two parts, which go first.
        self.fresh: list[tuple[float, int]] = []
        self.begun: list[tuple[float, int]] = []
        for _ in range(account.concurrency):
            self._fill(now.timestamp())

    def _fill(self, at: float) -> None:
        parts = next(self.waiting, 0)
        if parts:
            heapq.heappush(self.fresh, (at, parts))

    @property
    def done(self) -> bool:
        return not self.fresh and not self.begun

    def next_at(self, now: float) -> float:
        fresh, begun = self.fresh, self.begun
        first = min(fresh[0], begun[0]) if fresh and begun else (fresh or begun)[0]
        return max(self.bucket.next_slot(now), first[0])

    def send(self, at: float) -> tuple[bool, bool]:
        """One message goes out. Says whether it was its target's first, and its last."""
        first = not (self.begun and self.begun[0][0] <= at)
        _, parts = heapq.heappop(self.fresh if first else self.begun)
        self._spend(at)
        landed = at + self.latencies.uniform(*self.latency)
        if parts > 1:
            heapq.heappush(self.begun, (landed + self.jitters.uniform(*self.jitter), parts - 1))
        else:
            self._fill(landed)
        return first, parts == 1

    def _spend(self, at: float) -> None:
        bucket = self.bucket
        bucket.spend(at, self.gaps)
        if bucket.factor > 1:
            # Sending is expected to go well from here on, and a slow-down is then taken back.
            bucket.slow_down(recovered(bucket.factor))


Send = tuple[Stretch, float, bool, bool]  # stretch, moment, its target's first message, its last


def walk(
    account: AccountPlan, parts: Iterable[int], window: Window, now: datetime, rng: random.Random
) -> Iterator[Send]:
    """Every message in turn. Ends early where window and hours never meet, or the cap is zero for months."""
    lane = LaneAhead(account, parts, now, rng)
    today, used = local_date(account.hours.timezone, now), account.used
    day: date | None = None
    left = math.inf
    idle_since = now.timestamp()
    for stretch in stretches(window, account.hours, now, by_day=account.cap is not None):
        if stretch.account_day != day:
            day = stretch.account_day
            left = _left(account, day, used if day == today else 0)
        at = stretch.starts
        while left > 0 and not lane.done and (at := lane.next_at(at)) < stretch.ends:
            yield (stretch, at, *lane.send(at))
            left -= 1
            idle_since = at
        if lane.done or stretch.ends - idle_since > LOOK_AHEAD.total_seconds():
            return


def _left(account: AccountPlan, day: date | None, used: int) -> float:
    """What the cap of a day still allows: nothing where it was lowered below what was sent already."""
    cap = account.cap_on(day) if day is not None else None
    return math.inf if cap is None else max(0, cap - used)


# --- the plan -------------------------------------------------------------------------------------------


def plan(
    targets: int, accounts: Sequence[AccountPlan], window: Window, now: datetime, *,
    parts: int = 1, seed: int = 0,
) -> Iterator[Planned]:  # fmt: skip
    """Account and moment for every target in turn, round-robin over the accounts the operator chose.

    Ends early where some target could never be sent; what is left has no plan then.
    """
    moments = [
        _first_moments(account, _share(targets, len(accounts), turn), parts, window, now, seed)
        for turn, account in enumerate(accounts)
    ]
    for n in range(targets):
        turn = n % len(accounts)
        moment = next(moments[turn], None)
        if moment is None:
            return
        yield accounts[turn].account_id, moment


def _share(targets: int, accounts: int, turn: int) -> int:
    return (targets - turn + accounts - 1) // accounts


def _first_moments(
    account: AccountPlan, targets: int, parts: int, window: Window, now: datetime, seed: int
) -> Iterator[datetime]:
    rng = random.Random(f"{seed}:{account.account_id}")
    queue = (n for run in (repeat(1, account.queued_before), repeat(parts, targets)) for n in run)
    firsts = (at for _, at, first, _ in walk(account, queue, window, now, rng) if first)
    for at in islice(firsts, account.queued_before, None):
        yield datetime.fromtimestamp(at, UTC)


# --- kept with the run ----------------------------------------------------------------------------------

# At creation the plan goes in with the targets: rewriting 100,000 fresh rows took five seconds more. From `first` on,
# so that a large run is frozen chunk by chunk; positions go on where the last chunk ended.
FREEZE = """
INSERT INTO fanout_runtarget (run_id, account_id, recipient_id, position, address, status, parts_sent, attempts,
                              planned_at, claim_epoch, provider_id, error_kind, error)
SELECT %(run)s, coalesce(p.account_id, %(account)s), t.recipient_id, %(first)s + t.n, t.address, 'pending', 0, 0,
       p.at, 0, '', '', ''
  FROM (SELECT c.recipient_id, r.address, row_number() OVER (ORDER BY c.position, c.id) AS n
          FROM (SELECT id, recipient_id, position FROM reminders_remindertarget
                 WHERE reminder_id = %(reminder)s ORDER BY position, id OFFSET %(first)s LIMIT %(limit)s) AS c
          JOIN reminders_recipient r ON r.id = c.recipient_id) AS t
  LEFT JOIN unnest(%(accounts)s::bigint[], %(moments)s::timestamptz[]) WITH ORDINALITY AS p(account_id, at, n)
    ON p.n = t.n
ON CONFLICT DO NOTHING
"""


def freeze(run: Run, planned: Sequence[Planned], first: int = 0, limit: int | None = None) -> int:
    """The reminder's targets from `first` on, copied into the run with their plan. Returns how many; the accounts
    become lanes of the run."""
    accounts, moments = [account for account, _ in planned], [moment for _, moment in planned]
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            FREEZE,
            {
                "run": run.pk,
                "account": run.account_id,
                "reminder": run.reminder_id,
                "first": first,
                "limit": limit,
                "accounts": accounts,
                "moments": moments,
            },
        )
        copied: int = cursor.rowcount
        unplanned = {run.account_id} if copied > len(planned) or not planned else set()
        run.lanes = sorted({*accounts, *unplanned, *(run.lanes if first else ())})
        run.save(update_fields=["lanes"])
    return copied
