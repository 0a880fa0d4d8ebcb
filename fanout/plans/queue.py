"""What accounts owe already, and how fast they send: read from the database for everything that plans or forecasts.

However many accounts are asked about, it takes a handful of queries.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from django.db import connection
from django.db.models import Count, Exists, Func, IntegerField, OuterRef, Q, QuerySet, Sum

from accounts.addresses import PERSON
from accounts.channels.registry import channel
from accounts.models import Account, DailyLimit
from fanout.lanes import account_limits, new_chats
from fanout.lanes.account_limits import business_hours, pace_settings, pace_state, part_jitter
from fanout.models import LaneState, Run, RunTarget
from fanout.models.run import in_sql
from fanout.plans.owed import AccountPlan, CapOn, DailyCap, Queued, Work
from fanout.rules.gates import local_date
from fanout.rules.pace import PaceState, held
from reminders.models import Recipient, ReminderTarget
from reminders.senders import shares
from reminders.targets import count_kinds
from reminders.window import local_day_bounds

#: what a provider takes to answer while nothing of the account has been measured
USUAL_LATENCY = 0.2
MEASURED = 50  # answers that make a measurement


def account_plan(account: Account, now: datetime, action: str = "") -> AccountPlan:
    return account_plans([account], now, action)[account.pk]


def account_plans(
    accounts: Sequence[Account], now: datetime, action: str | Mapping[int, str] = ""
) -> dict[int, AccountPlan]:
    """The accounts as plan and forecast see them, each with all it owes. `action`: what a run would do, or each of the
    accounts, where a channel's provider counts several."""
    ids = [account.pk for account in accounts]
    counted = {a.pk: channel(a.channel).counts(_of(action, a)) for a in accounts}
    lanes = {lane.account_id: lane for lane in LaneState.objects.filter(account__in=ids)}
    limits = _caps(accounts, now)
    chats = new_chats.new_chats_of(accounts, lanes, now)
    queues = queues_of(ids, {pk for pk, one in chats.items() if one.limited(now)})
    latencies = measured_latencies(counted)
    return {
        a.pk: replace(
            _plain_plan(a, lanes.get(a.pk)),
            cap=limits[a.pk][counted[a.pk]].cap,
            used=limits[a.pk][counted[a.pk]].used,
            others={action: limit for action, limit in limits[a.pk].items() if action != counted[a.pk]},
            latency=latencies.get(a.pk, USUAL_LATENCY),
            new_chats=chats[a.pk],
            queued_before=tuple(queues.get(a.pk, ())),
        )
        for a in accounts
    }


class Senders(NamedTuple):
    """Accounts, and each as plans see it."""

    accounts: Mapping[int, Account]
    plans: Mapping[int, AccountPlan]


def read_senders(which: Q, now: datetime, action: str | Mapping[int, str] = "") -> Senders:
    accounts = Account.objects.filter(which).in_bulk()
    return Senders(accounts, account_plans(list(accounts.values()), now, action))


def _plain_plan(account: Account, lane: LaneState | None) -> AccountPlan:
    effective = {name: setting.value for name, setting in account.settings().items()}
    state = pace_state(lane.__dict__) if lane else PaceState()
    if account.status == Account.Status.SUSPENDED and account.status_until is not None:
        state = held(state, account.status_until)
    return AccountPlan(
        account_id=account.pk,
        channel=account.channel,
        pace=pace_settings(effective),
        hours=business_hours(account.__dict__),
        state=state,
        concurrency=int(effective["group_concurrency"]),
        jitter=part_jitter(effective),
        pressed_above=account_limits.queue_limits().threshold,
    )


# --- caps -------------------------------------------------------------------------------------------------


def _of(action: str | Mapping[int, str], account: Account) -> str:
    return action if isinstance(action, str) else action.get(account.pk, "")


def _caps(accounts: Sequence[Account], now: datetime) -> dict[int, dict[str, DailyCap]]:
    """Of every action that each account's channel counts, with what is used of it today."""
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


# --- how fast the provider answers --------------------------------------------------------------------------

# The mean time of each account's latest answers, whichever runs they belong to.
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


# --- what they owe ------------------------------------------------------------------------------------------

OPEN = (RunTarget.Status.PENDING, RunTarget.Status.SENDING)
OWED = f"""
SELECT t.run_id, t.account_id, count(*), sum(t.parts_sent) FROM fanout_runtarget t
 WHERE t.run_id = ANY(%s) AND t.account_id = ANY(%s) AND t.status IN {in_sql(OPEN)} GROUP BY 1, 2
"""


def queues_of(accounts: Sequence[int], limited: Collection[int] = ()) -> dict[int, list[Queued]]:
    """What each account owes in the lane's order: to live runs, to paused ones that go on by themselves and to those
    that are being prepared. `limited`: the accounts whose new chats have limits; with those a run stands in the queue
    twice."""
    runs = {run.pk: run for run in _owing(accounts)}
    owed = {(run, pk): (targets, had) for run, pk, targets, had in _owed(runs, accounts) if pk in runs[run].lanes}
    new = new_chats.pending_new_chats([pair for pair in owed if pair[1] in limited])
    to_come = _to_come(runs.values(), accounts, limited)
    queues: dict[int, list[Queued]] = {}
    for run_id, account_id in owed | to_come:
        targets, had = owed.get((run_id, account_id), (0, 0))
        more, more_new = to_come.get((run_id, account_id), (0, 0))
        first = new_chats.scaled_to_all(new.get((run_id, account_id), 0), targets)
        queued = _queued(runs[run_id], targets + more, had)
        queues.setdefault(account_id, []).extend(queued.split(first + more_new))
    for queue in queues.values():
        queue.sort(key=lane_order)
    return queues


def _to_come(
    runs: Iterable[Run], accounts: Collection[int], limited: Collection[int]
) -> dict[tuple[int, int], tuple[int, int]]:
    """What runs that are being prepared have not got yet: the targets of each account, and the new chats among them."""
    to_come = {}
    for run in runs:
        if run.status != Run.Status.PREPARING:
            continue
        senders = run.reminder.senders
        kinds = count_kinds(Recipient.objects.filter(pk__in=uncopied(run).values("recipient")))
        for account, targets in zip(senders, shares(kinds, senders)):
            if account.pk in accounts and targets:
                new = _new_to_come(run, account, senders, kinds) if account.pk in limited else 0
                to_come[run.pk, account.pk] = targets, new
    return to_come


def _new_to_come(run: Run, account: Account, senders: Sequence[Account], kinds: Mapping[str, int]) -> int:
    pair = run.reminder_id, account.pk
    return new_share(account, senders, kinds, new_chats.new_in_reminders([pair])[pair])


def new_share(account: Account, senders: Sequence[Account], kinds: Mapping[str, int], new: int) -> int:
    """How many new chats an account begins, where so many of the persons are new to it and others share them."""
    persons = kinds.get(PERSON, 0)
    mine = shares({PERSON: persons}, senders)[senders.index(account)]
    return math.ceil(new_chats.scaled_to_all(new, persons) * mine / persons) if mine else 0


ByLane = Mapping[tuple[int, int], int]  # how many targets, by run and account


def new_chats_left(left: ByLane, plans: Mapping[int, AccountPlan], now: datetime) -> ByLane:
    """How many of the targets that are left are new chats; only where those have limits."""
    limited = [(run, pk) for run, pk in left if pk in plans and plans[pk].new_chats.limited(now)]
    counted = new_chats.pending_new_chats(limited)
    return {pair: new_chats.scaled_to_all(new, left[pair]) for pair, new in counted.items()}


def uncopied(run: Run) -> QuerySet[ReminderTarget]:
    """The targets that the reminder has and the run has not."""
    has = RunTarget.objects.filter(run=run, recipient=OuterRef("recipient"))
    return run.reminder.targets.filter(~Exists(has))


def lanes_of(run: Run) -> list[int]:
    """The accounts that send it; while it is being prepared, all that may get a share."""
    senders = run.reminder.senders if run.status == Run.Status.PREPARING else []
    return [*dict.fromkeys([*run.lanes, *(account.pk for account in senders)])]


def lane_order(queued: Queued) -> tuple[bool, tuple[datetime, int]]:
    """Message 2 goes ahead of everything else; then in the order in which the runs were due."""
    return queued.due is not None, queued.due or (queued.starts, 0)


def _owing(accounts: Sequence[int]) -> QuerySet[Run]:
    mine = Q(lanes__overlap=list(accounts))
    # Spelled out for each: they have an index each.
    live, resuming = mine & Q(status__in=Run.LIVE), mine & Q(status=Run.Status.PAUSED, resume_at__isnull=False)
    # Of these few the lanes are not known yet.
    preparing = Q(status=Run.Status.PREPARING)
    return with_part_count(Run.objects.filter(live | resuming | preparing))


def with_part_count(runs: QuerySet[Run]) -> QuerySet[Run]:
    """The frozen parts may be long, and here only their number matters."""
    counted = Func("parts", function="jsonb_array_length", output_field=IntegerField())
    return runs.defer("parts").annotate(part_count=counted)


def part_count(run: Run) -> int:
    counted = run.__dict__.get("part_count")
    return max(1, len(run.parts) if counted is None else counted)


def _owed(runs: Collection[int], accounts: Sequence[int]) -> list[tuple[int, int, int, int]]:
    if not runs:
        return []
    with connection.cursor() as cursor:
        cursor.execute(OWED, [list(runs), list(accounts)])
        return list(cursor.fetchall())


def _queued(run: Run, targets: int, had: int) -> Queued:
    return queued_for(run, work_left(run, targets, had), starts_at(run))


def starts_at(run: Run) -> datetime:
    """When it is due; of a paused run that goes on by itself, when it does."""
    return run.resume_at if run.status == Run.Status.PAUSED and run.resume_at else run.scheduled_for


# Of so many: a list needs to know whether it is much, not how much exactly.
OWED_BY = """
SELECT a.id, (SELECT count(*) FROM (SELECT FROM fanout_runtarget t
                                     WHERE t.run_id = ANY(a.runs) AND t.account_id = a.id AND t.status = 'pending'
                                     LIMIT %s) AS first)
  FROM (SELECT l.id, array_agg(r.id) AS runs FROM fanout_run r CROSS JOIN unnest(r.lanes) AS l(id)
         WHERE r.status IN ('queued', 'running', 'waiting', 'paused') AND NOT r.archived
           AND r.lanes && %s::bigint[] AND l.id = ANY(%s) GROUP BY 1) AS a
"""
MOST_OWED = 2_000


def owed_by(accounts: Sequence[int]) -> dict[int, int]:
    """The targets that wait for each account, in runs that are going on or paused; up to a limit."""
    if not accounts:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(OWED_BY, [MOST_OWED + 1, list(accounts), list(accounts)])
        return dict(cursor.fetchall())


def queued_for(run: Run, work: Work, starts: datetime) -> Queued:
    # Tests and Message 2 go ahead of everything else.
    due = None if run.is_test or run.answers_id is not None else (run.scheduled_for, run.pk)
    return Queued(work, run.window, starts, due, run.follow_up, run.pk, action=run.action)


def work_left(run: Run, targets: int, had: int) -> Work:
    """`had`: the parts that these targets have got already."""
    parts = part_count(run)
    return Work(targets * parts - had, parts, targets)


def work_by_account(run: Run) -> dict[int, Work]:
    """What is left of a run, by the account that sends it."""
    left = run.targets.order_by().values_list("account_id").annotate(n=Count("pk"), had=Sum("parts_sent"))
    return {account_id: work_left(run, targets, had) for account_id, targets, had in left.filter(status__in=OPEN)}


def movable(run: Run, account: Account) -> QuerySet[RunTarget]:
    """The targets that an offload moves to the account: pending ones of accounts of its channel. Not a target between
    two parts, whose recipient must not hear from two senders, and not one that may have gone out: only its own account
    can repeat it safely."""
    untouched = run.targets.filter(status=RunTarget.Status.PENDING, parts_sent=0, in_doubt=False)
    return untouched.filter(account__channel=account.channel).exclude(account=account)
