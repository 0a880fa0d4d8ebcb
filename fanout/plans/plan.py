"""Plan a run: which account sends to each target, and when; and read the plan back after it has moved.

A plan grants nothing: the gates decide again when the target is sent. It is stored with the targets once, when the run
is made. What moves it later is stored with the run, one entry per account (`Run.delays`): writing it to every target of
a large run would stop the lanes for that long.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice, tee
from typing import NamedTuple

from fanout.models import Run, RunTarget
from fanout.plans.projection import AccountSnapshot, Queued, Work, as_datetime, project_sends
from reminders.window import Window


class Planned(NamedTuple):
    """The account and the moment of a target: no moment where it could never be sent, no account where it is
    skipped."""

    account_id: int | None
    at: datetime | None
    why: str = ""


UNREACHABLE = "none of the reminder's senders reaches this address"
NO_SENDER = Planned(None, None, UNREACHABLE)
PlannedTarget = tuple[int, Planned]  # the recipient, and its plan


class Copied(NamedTuple):
    """The targets of a run that an account has already, and how many of them are new chats."""

    targets: int
    new: int = 0


NONE_COPIED = Copied(0)
Moments = Iterator[datetime]


def plan(
    turns: Sequence[int | None],
    accounts: Sequence[AccountSnapshot],
    window: Window,
    now: datetime,
    *,
    starts: datetime | None = None,
    parts: int = 1,
    seed: int = 0,
    copied: Mapping[int, Copied] | None = None,
    follow_up: bool = False,
    new: Collection[int] = (),
) -> Iterator[Planned]:
    """Yield account and moment for every target, behind the accounts' queues. `turns` has the index of each target's
    account; `copied` says how many targets of the run each account has already; `new` has the indexes of targets that
    are new chats of an account which limits them."""
    moments = []
    for position, account in enumerate(accounts):
        earlier = copied.get(account.account_id, NONE_COPIED) if copied else NONE_COPIED
        work = Work.of(earlier.targets + turns.count(position), parts)
        begins = earlier.new + sum(turns[n] == position for n in new)
        mine = Queued(work, window, starts or now, follow_up=follow_up).split(begins)
        moments.append(_after(earlier, *_apart(_first_moments(account, mine, now, seed), mine)))
    for n, turn in enumerate(turns):
        yield NO_SENDER if turn is None else Planned(accounts[turn].account_id, next(moments[turn][n in new], None))


def _first_moments(
    account: AccountSnapshot, mine: Sequence[Queued], now: datetime, seed: int
) -> Iterator[tuple[bool, datetime]]:
    """Yield the moment of each target, with whether it is a new chat."""
    rng = random.Random(f"{seed}:{account.account_id}")
    before = len(account.queued_before)
    for number, _, at, first, _ in project_sends(account, [*account.queued_before, *mine], now, rng):
        if first and number >= before:
            yield mine[number - before].new_chats, as_datetime(at)


def _apart(moments: Iterator[tuple[bool, datetime]], mine: Sequence[Queued]) -> tuple[Moments, Moments]:
    """Split the moments into those of other targets and those of new chats."""
    if len(mine) == 1:  # nothing is kept for the other kind
        one = (at for _, at in moments)
        return one, one
    others, new = tee(moments)
    return (at for is_new, at in others if not is_new), (at for is_new, at in new if is_new)


def _after(copied: Copied, others: Moments, new: Moments) -> tuple[Moments, Moments]:
    """Skip the moments of what was copied before."""
    if others is new:
        one = islice(others, copied.targets, None)
        return one, one
    return islice(others, copied.targets - copied.new, None), islice(new, copied.new, None)


# --- reading the plan ------------------------------------------------------------------------------------

#: the same as `planned_time` for SQL that joins fanout_runtarget t and fanout_run r
PLANNED_AT = """
CASE WHEN r.delays -> t.account_id::text IS NULL THEN t.planned_at
     ELSE t.planned_at + ((r.delays -> t.account_id::text ->> 'to')::timestamptz
                          - coalesce((r.delays -> t.account_id::text ->> 'from')::timestamptz, t.planned_at)) END
"""


def planned_time(target: RunTarget, run: Run) -> datetime | None:
    """Return when the target is planned; None: unknown, because the run waits for something without a known end."""
    moved = run.delays.get(str(target.account_id))
    if moved is None or target.planned_at is None or target.status != RunTarget.Status.PENDING:
        return target.planned_at
    if moved["to"] is None:
        return None
    begins = datetime.fromisoformat(moved["to"])
    return begins + (target.planned_at - datetime.fromisoformat(moved["from"])) if moved["from"] else begins


def delay_reason(target: RunTarget, run: Run) -> str:
    """Return why the plan moved; empty while it holds."""
    moved = run.delays.get(str(target.account_id))
    return str(moved["why"]) if moved and target.status == RunTarget.Status.PENDING else ""
