"""Read what accounts have to send already and how fast they send, for everything that plans or forecasts.

However many accounts are asked about, it takes a handful of queries.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

from django.db import connection
from django.db.models import Count, Func, IntegerField, Q, QuerySet, Sum

from accounts.addresses import NEW_CHAT_KINDS
from accounts.channels.registry import channel
from accounts.models import Account, DailyLimit
from fanout.lanes import account_limits, chats
from fanout.lanes.account_state import read_counts
from fanout.models import LaneState, Run, RunTarget
from fanout.models.run import in_sql
from fanout.plans.audience import new_chats, uncopied
from fanout.plans.projection import AccountSnapshot, CapOn, DailyCap, Queued, Work
from fanout.rules.gates import local_date
from reminders.targets import count_kinds, shares
from reminders.window import local_day_bounds

#: a provider's latency while nothing of the account has been measured
USUAL_LATENCY = 0.2
MEASURED = 50  # latest sends that make a measurement


def account_snapshot(account: Account, now: datetime, action: str = "") -> AccountSnapshot:
    return account_snapshots([account], now, action)[account.pk]


def account_snapshots(
    accounts: Sequence[Account], now: datetime, action: str | Mapping[int, str] = ""
) -> dict[int, AccountSnapshot]:
    """Return the accounts as plan and forecast see them, each with its queue. `action`: what a run would do, or each of
    the accounts, where a channel's provider counts several."""
    ids = [account.pk for account in accounts]
    counted = {a.pk: channel(a.channel).counts(_of(action, a)) for a in accounts}
    lanes = {lane.account_id: lane for lane in LaneState.objects.filter(account__in=ids)}
    limits = _caps(accounts, now)
    latencies = measured_latencies(counted)
    snapshots = {
        a.pk: AccountSnapshot.of(
            a,
            lanes.get(a.pk),
            now,
            cap=limits[a.pk][counted[a.pk]].cap,
            used=limits[a.pk][counted[a.pk]].used,
            others={action: limit for action, limit in limits[a.pk].items() if action != counted[a.pk]},
            latency=latencies.get(a.pk, USUAL_LATENCY),
            backpressure_above=account_limits.queue_limits().threshold,
        )
        for a in accounts
    }
    read_counts(snapshots.values())
    queues = queues_of(ids, {pk for pk, snapshot in snapshots.items() if snapshot.new_chats.limited(now)})
    for a in accounts:
        snapshots[a.pk].queued_before = tuple(queues.get(a.pk, ()))
    return snapshots


class Senders(NamedTuple):
    """Accounts with their snapshots."""

    accounts: Mapping[int, Account]
    snapshots: Mapping[int, AccountSnapshot]


def read_senders(which: Q, now: datetime, action: str | Mapping[int, str] = "") -> Senders:
    accounts = Account.objects.filter(which).in_bulk()
    return Senders(accounts, account_snapshots(list(accounts.values()), now, action))


# --- caps -------------------------------------------------------------------------------------------------


def _of(action: str | Mapping[int, str], account: Account) -> str:
    return action if isinstance(action, str) else action.get(account.pk, "")


def _caps(accounts: Sequence[Account], now: datetime) -> dict[int, dict[str, DailyCap]]:
    """Return the cap of every action that each account's channel counts, with what is used of it today."""
    own = {(limit.account_id, limit.action): limit for limit in DailyLimit.objects.filter(account__in=list(accounts))}
    pairs = [(a, str(action)) for a in accounts for action in channel(a.channel).actions]
    on = {(a.pk, action): account_limits.caps_by_day(a, action, own.get((a.pk, action))) for a, action in pairs}
    capped = [(a, action) for a, action in pairs if on[a.pk, action](local_date(a.timezone, now)).limit is not None]
    used = account_limits.used_on(
        [account_limits.day_of(a.pk, a.channel, action, local_day_bounds(a.timezone, now)) for a, action in capped]
    )
    limits: dict[int, dict[str, DailyCap]] = {a.pk: {} for a in accounts}
    for pk, action in on:
        so_far = used.get((pk, action))
        limits[pk][action] = DailyCap() if so_far is None else DailyCap(_limits(on[pk, action]), so_far)
    return limits


def _limits(cap_on: account_limits.CapsByDay) -> CapOn:
    return lambda day: cap_on(day).limit


# --- the provider's latency ---------------------------------------------------------------------------------

# Mean latency of each account's latest sends, of all runs.
LATENCIES = """
SELECT a.id, avg(t.latency_ms) / 1000.0
  FROM unnest(%s::bigint[], %s::varchar[]) AS a(id, action)
 CROSS JOIN LATERAL (SELECT s.run_target_id FROM fanout_activity s
                      WHERE s.account_id = a.id AND s.action = a.action AND s.outcome = 'sent'
                      ORDER BY s.at DESC LIMIT %s) AS latest
  JOIN fanout_runtarget t ON t.id = latest.run_target_id
 WHERE t.latency_ms IS NOT NULL
 GROUP BY a.id
"""


def measured_latencies(counted: Mapping[int, str]) -> dict[int, float]:
    with connection.cursor() as cursor:
        cursor.execute(LATENCIES, [[*counted], [*counted.values()], MEASURED])
        return {account: float(seconds) for account, seconds in cursor.fetchall()}


# --- their queues -------------------------------------------------------------------------------------------

OPEN = (RunTarget.Status.PENDING, RunTarget.Status.SENDING)
OPEN_BY_RUN = f"""
SELECT t.run_id, t.account_id, count(*), sum(t.parts_sent), count(t.next_attempt_at),
       coalesce(sum(t.parts_sent) FILTER (WHERE t.next_attempt_at IS NOT NULL), 0), max(t.next_attempt_at)
  FROM fanout_runtarget t
 WHERE t.run_id = ANY(%s) AND t.account_id = ANY(%s) AND t.status IN {in_sql(OPEN)} GROUP BY 1, 2
"""


def queues_of(accounts: Sequence[int], limited: Collection[int] = ()) -> dict[int, list[Queued]]:
    """Return each account's queue in the lane's order: live runs, paused ones that go on by themselves, and those that
    are being prepared. `limited`: accounts whose new chats have limits; there a run stands in the queue twice."""
    runs = {run.pk: run for run in _unfinished_runs(accounts)}
    open_targets = {
        (run, pk): (targets, had, retries)
        for run, pk, targets, had, *retries in _open_targets(runs, accounts)
        if pk in runs[run].lanes
    }
    new = chats.pending_new_chats([pair for pair in open_targets if pair[1] in limited])
    uncopied_targets = _still_to_copy(runs.values(), accounts, limited)
    queues: dict[int, list[Queued]] = {}
    for run_id, account_id in open_targets | uncopied_targets:
        targets, had, retries = open_targets.get((run_id, account_id), (0, 0, (0, 0, None)))
        more, more_new = uncopied_targets.get((run_id, account_id), (0, 0))
        first = chats.scaled_to_all(new.get((run_id, account_id), 0), targets)
        run = runs[run_id]
        queued = queued_for(run, work_left(run, targets + more, had), starts_at(run))
        at_once, later = _without_retries(run, queued, had, *retries)
        queues.setdefault(account_id, []).extend([*at_once.split(first + more_new), *later])
    for queue in queues.values():
        queue.sort(key=queue_order)
    return queues


def _without_retries(
    run: Run, queued: Queued, had: int, retries: int, had_by_retries: int, last_retry: datetime | None
) -> tuple[Queued, list[Queued]]:
    """Return a run without the targets that wait for another try, and those: they go out after the last of their
    times. Tests and Message 2 are not split: their place in the queue follows from their start."""
    if not retries or last_retry is None or queued.due is None:
        return queued, []
    others = queued.work.targets - retries
    later = replace(
        queued,
        work=work_left(run, retries, had_by_retries),
        starts=max(last_retry, queued.starts),
        retries=True,
    )
    if not others:
        return later, []
    return replace(queued, work=work_left(run, others, had - had_by_retries)), [later]


def _still_to_copy(
    runs: Iterable[Run], accounts: Collection[int], limited: Collection[int]
) -> dict[tuple[int, int], tuple[int, int]]:
    """Return what runs that are being prepared lack: the targets of each account, and the new chats among them."""
    lacking = {}
    for run in runs:
        if run.status != Run.Status.PREPARING:
            continue
        senders = run.reminder.senders
        kinds = count_kinds(uncopied(run))
        for account, targets in zip(senders, shares(kinds, senders)):
            if account.pk in accounts and targets:
                new = _new_still_to_copy(run, account, senders, kinds) if account.pk in limited else 0
                lacking[run.pk, account.pk] = targets, new
    return lacking


def _new_still_to_copy(run: Run, account: Account, senders: Sequence[Account], kinds: Mapping[str, int]) -> int:
    counted = new_chats([(run.reminder, account.pk)], run.scheduled_for)
    return new_share(account, senders, kinds, counted[run.reminder_id, account.pk])


def new_share(account: Account, senders: Sequence[Account], kinds: Mapping[str, int], new: int) -> int:
    """Return how many new chats an account begins, where `new` of the persons are new to it and others share them."""
    counts = {kind: kinds.get(kind, 0) for kind in NEW_CHAT_KINDS}
    persons, mine = sum(counts.values()), shares(counts, senders)[senders.index(account)]
    return math.ceil(chats.scaled_to_all(new, persons) * mine / persons) if mine else 0


ByLane = Mapping[tuple[int, int], int]  # targets by run and account


def new_chats_left(left: ByLane, snapshots: Mapping[int, AccountSnapshot], now: datetime) -> ByLane:
    """Count the new chats among the targets that are left, only where those have limits."""
    limited = [(run, pk) for run, pk in left if pk in snapshots and snapshots[pk].new_chats.limited(now)]
    counted = chats.pending_new_chats(limited)
    return {pair: chats.scaled_to_all(new, left[pair]) for pair, new in counted.items()}


def lanes_of(run: Run) -> list[int]:
    """Return the accounts that send it; while it is being prepared, all that may get a share."""
    senders = run.reminder.senders if run.status == Run.Status.PREPARING else []
    return [*dict.fromkeys([*run.lanes, *(account.pk for account in senders)])]


def queue_order(queued: Queued) -> tuple[bool, tuple[datetime, int]]:
    """Sort key of a lane: Message 2 goes first, then runs in the order in which they were due."""
    return queued.due is not None, queued.due or (queued.starts, 0)


def _unfinished_runs(accounts: Sequence[int]) -> QuerySet[Run]:
    mine = Q(lanes__overlap=list(accounts))
    # Written out for each status, because each has its own index.
    live, resuming = mine & Q(status__in=Run.LIVE), mine & Q(status=Run.Status.PAUSED, resume_at__isnull=False)
    # The lanes of these few are not known yet.
    preparing = Q(status=Run.Status.PREPARING)
    return with_part_count(Run.objects.filter(live | resuming | preparing))


def with_part_count(runs: QuerySet[Run]) -> QuerySet[Run]:
    """Read only the number of the frozen parts, which may be long."""
    counted = Func("parts", function="jsonb_array_length", output_field=IntegerField())
    return runs.defer("parts").annotate(part_count=counted)


def part_count(run: Run) -> int:
    counted = run.__dict__.get("part_count")
    return max(1, len(run.parts) if counted is None else counted)


def _open_targets(runs: Collection[int], accounts: Sequence[int]) -> list[tuple[Any, ...]]:
    if not runs:
        return []
    with connection.cursor() as cursor:
        cursor.execute(OPEN_BY_RUN, [list(runs), list(accounts)])
        return list(cursor.fetchall())


def starts_at(run: Run) -> datetime:
    """Return when it is due, or when a paused run goes on by itself."""
    return run.resume_at if run.status == Run.Status.PAUSED and run.resume_at else run.scheduled_for


# Counted up to a limit: a list needs to know whether it is much, not how much exactly.
PENDING_BY_ACCOUNT = """
SELECT a.id, (SELECT count(*) FROM (SELECT FROM fanout_runtarget t
                                     WHERE t.run_id = ANY(a.runs) AND t.account_id = a.id AND t.status = 'pending'
                                     LIMIT %s) AS first)
  FROM (SELECT l.id, array_agg(r.id) AS runs FROM fanout_run r CROSS JOIN unnest(r.lanes) AS l(id)
         WHERE r.status IN ('queued', 'running', 'waiting', 'paused') AND NOT r.archived
           AND r.lanes && %s::bigint[] AND l.id = ANY(%s) GROUP BY 1) AS a
"""
MOST_PENDING = 2_000


def pending_by_account(accounts: Sequence[int]) -> dict[int, int]:
    """Count the targets that wait for each account, in runs that are going on or paused, up to a limit."""
    if not accounts:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(PENDING_BY_ACCOUNT, [MOST_PENDING + 1, list(accounts), list(accounts)])
        return dict(cursor.fetchall())


def queued_for(run: Run, work: Work, starts: datetime) -> Queued:
    # Tests and Message 2 go ahead of everything else.
    due = None if run.is_test or run.answers_id is not None else (run.scheduled_for, run.pk)
    return Queued(work, run.window, starts, due, run.follow_up, run.pk, action=run.action)


def work_left(run: Run, targets: int, had: int) -> Work:
    """Return the work of so many targets. `had`: the parts that they have got already."""
    parts = part_count(run)
    return Work(targets * parts - had, parts, targets)


def work_by_account(run: Run) -> dict[int, Work]:
    """Return what is left of a run, by the account that sends it."""
    left = run.targets.order_by().values_list("account_id").annotate(n=Count("pk"), had=Sum("parts_sent"))
    return {account_id: work_left(run, targets, had) for account_id, targets, had in left.filter(status__in=OPEN)}


def movable(run: Run, account: Account) -> QuerySet[RunTarget]:
    """Return the targets that an offload moves to the account: pending ones of accounts of its channel. Not a target
    between two parts, whose recipient must not have two senders, and not one that may have gone out: only its own
    account can repeat it safely."""
    untouched = run.targets.filter(status=RunTarget.Status.PENDING, parts_sent=0, in_doubt=False)
    return untouched.filter(account__channel=account.channel).exclude(account=account)


# --- what each account sends of a run, before and after an offload ---------------------------------------

Status = RunTarget.Status
GOES_OUT = (Status.PENDING, Status.SENDING, Status.SENT, Status.FAILED, Status.UNCONFIRMED)


@dataclass(frozen=True, slots=True)
class Share:
    """One account's part of a run: `movable` of its `targets` may go to another account of its channel."""

    account_id: int
    label: str
    channel: str
    targets: int
    movable: int


def run_shares(run: Run) -> list[Share]:
    """Return all that the run sends and has sent, by account."""
    return _shares(run.targets.filter(status__in=GOES_OUT))


def pending_shares(runs: Sequence[Run]) -> list[Share]:
    """Return what is pending for these runs, by account."""
    return _shares(RunTarget.objects.filter(run__in=runs, status=Status.PENDING))


def _shares(targets: QuerySet[RunTarget]) -> list[Share]:
    rows = targets.order_by().values_list("account_id", "account__label", "account__channel")
    untouched = Q(status=Status.PENDING, parts_sent=0, in_doubt=False)
    return [Share(*row) for row in rows.annotate(n=Count("pk"), movable=Count("pk", filter=untouched))]


def shares_after_offload(shares: Sequence[Share], account: Account) -> list[Share]:
    """Return the shares once the account has taken over what it may."""
    givers = [share for share in shares if share.channel == account.channel and share.account_id != account.pk]
    moved = sum(share.movable for share in givers)
    kept = [replace(share, targets=share.targets - share.movable) if share in givers else share for share in shares]
    return [*kept, Share(account.pk, account.label, account.channel, moved, 0)]


def shares_in_words(shares: Sequence[Share]) -> str:
    """Return “200 via Office line, 150 via Community line”, the largest share first."""
    counted: Counter[str] = Counter()
    for share in shares:
        counted[share.label] += share.targets
    return ", ".join(f"{n:,} via {label}" for label, n in counted.most_common() if n)
