"""Checks that compare the books with each other: activity, targets, caps, counters, lanes and plans.

What follows from other rows can be repaired; evidence is never deleted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import groupby
from typing import Any

from django.db import connection, transaction
from django.db.models import Q

from accounts.channels.registry import channel
from accounts.models import Account
from fanout.database import LOCK_RUNS, carry_out, execute, lock_in_order
from fanout.lanes import account_limits, results
from fanout.lanes.lane_rows import wake_lanes
from fanout.models import Event, Run, RunTarget
from fanout.plans.plan import PLANNED_AT
from fanout.rules.gates import local_date
from fanout.runs import transitions
from fanout.runs.planning import plan_anew
from fanout.runs.transitions import JUDGED, LIVE, VERDICT

COUNTERS = ("pending", "sending", "sent", "failed", "skipped", "unconfirmed")
IN_FLIGHT_AT_MOST = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Violation:
    check: str
    subject: str
    text: str
    repairable: bool
    key: Any = None

    def as_dict(self) -> dict[str, Any]:
        return {
            "check": self.check,
            "subject": self.subject,
            "text": self.text,
            "repairable": self.repairable,
        }


@dataclass(frozen=True, slots=True)
class Check:
    """A check; `repair` fixes what `find` found, if the truth can be derived from other rows."""

    name: str
    find: Callable[[datetime, datetime], list[Violation]]
    repair: Callable[[list[Violation], datetime], None] | None = None
    # In one transaction; a repair of many rows commits in chunks instead, so that no lane waits for it.
    at_once: bool = True


def _rows(statement: str, parameters: Any = None) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return list(cursor.fetchall())


def _run(statement: str, parameters: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)


# --- counters ---------------------------------------------------------------------------------------------

COUNT = ", ".join(f"count(*) FILTER (WHERE t.status = '{word}')::int AS {word}" for word in COUNTERS)
REAL = ", ".join(f"c.{word}" for word in COUNTERS)
# The row and the changes that were appended since, as a trigger does (fanout/migrations/version_1_0/counters.py).
STORED = ", ".join(f"r.{word} + o.{word}" for word in COUNTERS)
APPENDED = ", ".join(f"coalesce(sum(d.{word}), 0)::int AS {word}" for word in COUNTERS)
REAL_COUNTS = f"""
SELECT r.id, r.title, ARRAY[{STORED}], ARRAY[{REAL}] FROM fanout_run r
 CROSS JOIN LATERAL (SELECT {APPENDED} FROM fanout_runchange d WHERE d.run_id = r.id AND d.id > r.counted_to) o
 CROSS JOIN LATERAL (SELECT {COUNT} FROM fanout_runtarget t WHERE t.run_id = r.id) c
 WHERE r.scheduled_for >= %s AND ({STORED}) <> ({REAL}) ORDER BY r.id
"""

SET_COUNTS = f"""
WITH c AS (
  SELECT r.id, n.* FROM fanout_run r
   CROSS JOIN LATERAL (SELECT count(*) AS total, {COUNT} FROM fanout_runtarget t WHERE t.run_id = r.id) n
   WHERE r.id = ANY(%s) ORDER BY r.id FOR NO KEY UPDATE OF r)
UPDATE fanout_run r
   SET (total, {", ".join(COUNTERS)}) = (c.total, {REAL}),
       status = CASE WHEN r.status IN {JUDGED} AND c.pending + c.sending > 0
                     THEN 'running' ELSE r.status END
  FROM c WHERE r.id = c.id
"""


def wrong_counters(since: datetime, now: datetime) -> list[Violation]:
    return [
        Violation("counters", f"run {pk}", f"{title}: says {_counts(stored)}, has {_counts(real)}.", True, pk)
        for pk, title, stored, real in _rows(REAL_COUNTS, [since])
    ]


def _counts(values: list[int]) -> str:
    return ", ".join(f"{n} {word}" for word, n in zip(COUNTERS, values) if n) or "nothing"


def set_counters(violations: list[Violation], now: datetime) -> None:
    runs = [violation.key for violation in violations]
    with transaction.atomic():
        _run(lock_in_order("fanout_run", "id", "%s"), [runs])
        # Without counting the appended changes, which may be wrong themselves.
        _run("DELETE FROM fanout_runchange WHERE run_id = ANY(%s)", [runs])
        _run(SET_COUNTS, [runs])


# --- day counters -----------------------------------------------------------------------------------------

OF_A_DAY = """
SELECT r.id, r.title, ARRAY[{stored}], ARRAY[{real}] FROM fanout_run r
  LEFT JOIN (SELECT run_id, {sums} FROM fanout_day GROUP BY 1) AS d ON d.run_id = r.id
 CROSS JOIN LATERAL (SELECT {counts} FROM fanout_runtarget t WHERE t.run_id = r.id) AS c
 WHERE r.scheduled_for >= %s AND ({stored}) <> ({real}) ORDER BY r.id
"""
SENT = "t.status = 'sent' AND"
#: which targets each number of a day counts; the triggers of fanout/migrations/version_1_0/days.py count the same
COUNTED_WHERE = {
    "sent": f"{SENT} coalesce(t.settled_at, t.claimed_at) IS NOT NULL",
    "failed": "t.status = 'failed' AND coalesce(t.settled_at, t.claimed_at) IS NOT NULL",
    "received": f"{SENT} t.delivered_at IS NOT NULL",
    "read": f"{SENT} t.read_at IS NOT NULL",
    "replied": f"{SENT} t.replied_at IS NOT NULL",
    "opted_out": f"{SENT} t.opted_out_at IS NOT NULL",
}
WRONG_DAYS = OF_A_DAY.format(
    stored=", ".join(f"coalesce(d.{name}, 0)" for name in COUNTED_WHERE),
    real=", ".join(f"c.{name}" for name in COUNTED_WHERE),
    sums=", ".join(f"sum({name}) AS {name}" for name in COUNTED_WHERE),
    counts=", ".join(f"count(*) FILTER (WHERE {which}) AS {name}" for name, which in COUNTED_WHERE.items()),
)


def wrong_days(since: datetime, now: datetime) -> list[Violation]:
    """Find runs whose results per day do not add up to what their targets say."""
    return [
        Violation("days", f"run {pk}", f"{title}: its days say {_listed(stored)}, it has {_listed(real)}.", True, pk)
        for pk, title, stored, real in _rows(WRONG_DAYS, [since])
    ]


def _listed(values: list[int]) -> str:
    return ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in zip(COUNTED_WHERE, values) if n) or "nothing"


def count_days(violations: list[Violation], now: datetime) -> None:
    results.recount([violation.key for violation in violations])


# --- activity against targets -----------------------------------------------------------------------------

MISSING_ACTIVITY = """
SELECT t.id, t.run_id, sent.part FROM fanout_runtarget t
 CROSS JOIN LATERAL generate_series(0, t.parts_sent - 1) AS sent(part)
 WHERE t.claimed_at >= %s AND t.parts_sent > 0 AND t.status <> 'sending'
   AND NOT EXISTS (SELECT FROM fanout_activity a
                    WHERE a.run_target_id = t.id AND a.outcome = 'sent' AND a.part = sent.part)
 ORDER BY t.id, sent.part
"""

ADD_ACTIVITY = """
INSERT INTO fanout_activity (account_id, run_target_id, action, outcome, kind, part, at)
SELECT t.account_id, t.id, m.action, 'sent', 'repaired', m.part, coalesce(t.settled_at, t.claimed_at)
  FROM unnest(%s::bigint[], %s::int[], %s::text[]) AS m(id, part, action) JOIN fanout_runtarget t ON t.id = m.id
"""


def missing_activity(since: datetime, now: datetime) -> list[Violation]:
    """Find sent parts without activity, which no cap counts."""
    return [
        Violation(
            "activity",
            f"target {pk}",
            f"Part {part} of run {run} was sent, but no cap counts it.",
            True,
            (pk, part),
        )
        for pk, run, part in _rows(MISSING_ACTIVITY, [since])
    ]


def add_activity(violations: list[Violation], now: datetime) -> None:
    targets = RunTarget.objects.select_related("account", "run").in_bulk([v.key[0] for v in violations])
    rows = [(pk, part, targets[pk].action) for pk, part in (v.key for v in violations)]
    _run(ADD_ACTIVITY, [list(column) for column in zip(*rows)])


# Parts sent before an operator asked to send again do not count.
FORGOTTEN_PARTS = """
SELECT t.id, t.run_id, t.parts_sent, max(a.part) + 1 FROM fanout_runtarget t
  JOIN fanout_activity a ON a.run_target_id = t.id AND a.outcome = 'sent'
                        AND (t.reopened_at IS NULL OR a.at > t.reopened_at)
 WHERE t.claimed_at >= %s AND t.status IN ('pending', 'failed', 'skipped')
 GROUP BY t.id HAVING max(a.part) + 1 > t.parts_sent ORDER BY t.id
"""

REMEMBER_PARTS = """
UPDATE fanout_runtarget t SET parts_sent = p.parts FROM unnest(%s::bigint[], %s::int[]) AS p(id, parts)
 WHERE t.id = p.id AND t.parts_sent < p.parts
"""


def forgotten_parts(since: datetime, now: datetime) -> list[Violation]:
    """Find targets with fewer parts sent than their activity says: a part would be sent twice."""
    return [
        Violation("parts", f"target {pk}", f"Run {run} remembers {stored} parts, {done} were sent.", True, (pk, done))
        for pk, run, stored, done in _rows(FORGOTTEN_PARTS, [since])
    ]


@transaction.atomic
def remember_parts(violations: list[Violation], now: datetime) -> None:
    targets = [v.key[0] for v in violations]
    runs = RunTarget.objects.filter(pk__in=targets).order_by().values_list("run_id", flat=True).distinct()
    execute(LOCK_RUNS, {"runs": list(runs)})  # runs are locked before their targets
    _run(REMEMBER_PARTS, [targets, [v.key[1] for v in violations]])


SENT_TWICE = """
SELECT a.run_target_id, a.part, count(*) FROM fanout_activity a
  LEFT JOIN fanout_runtarget t ON t.id = a.run_target_id
 WHERE a.at >= %s AND a.outcome = 'sent' AND a.run_target_id IS NOT NULL
   AND (t.reopened_at IS NULL OR a.at > t.reopened_at)
 GROUP BY 1, 2 HAVING count(*) > 1 ORDER BY 1, 2
"""


def sent_twice(since: datetime, now: datetime) -> list[Violation]:
    return [
        Violation("twice", f"target {pk}", f"Part {part} was sent {n} times.", False)
        for pk, part, n in _rows(SENT_TWICE, [since])
    ]


# --- caps and plans ---------------------------------------------------------------------------------------


# What people write on the phone counts towards the cap, but they may exceed it.
SENT_BY_DAY = """
SELECT v.account_id, v.action, (v.at AT TIME ZONE a.timezone)::date AS day,
       count(*) FILTER (WHERE v.kind <> 'phone'), count(*) FILTER (WHERE v.kind = 'phone')
  FROM fanout_activity v JOIN accounts_account a ON a.id = v.account_id
 WHERE v.outcome = 'sent' AND v.at >= %s GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
"""


def over_cap(since: datetime, now: datetime) -> list[Violation]:
    """Find days with more sends than the cap allowed. Earlier caps are not known: days before a change are skipped."""
    accounts, changed = Account.objects.in_bulk(), _caps_changed()
    violations = []
    for pk, action, day, sent, on_phone in _rows(SENT_BY_DAY, [since]):
        account, cap = accounts[pk], account_limits.cap_on(accounts[pk], action, day).limit
        today = day == local_date(account.timezone, now)
        if today and cap is not None:
            sent = account_limits.used_today(account, action, now) - on_phone
        if cap is not None and sent > cap and (today or day > changed.get(pk, date.min)):
            text = f"{account.label}: {sent} × {action} on {day}, and the cap is {cap}."
            violations.append(Violation("cap", f"account {pk}", text, False))
    return violations


def _caps_changed() -> dict[int, date]:
    """Return the day of the last change of each account's caps or warm-up."""
    changes = Event.objects.filter(Q(verb="tuned", detail__contains="daily_limit_") | Q(detail__contains="warmup_"))
    rows = changes.filter(account__isnull=False).order_by("at").values_list("account_id", "account__timezone", "at")
    return {pk: local_date(timezone, at) for pk, timezone, at in rows}


# Without runs that are paused until an operator resumes them: their time is not known.
PLANNED = f"""
SELECT t.account_id, r.action, jsonb_array_length(r.parts) AS parts,
       ({PLANNED_AT} AT TIME ZONE a.timezone)::date AS day, sum(jsonb_array_length(r.parts) - t.parts_sent)
  FROM fanout_runtarget t JOIN fanout_run r ON r.id = t.run_id JOIN accounts_account a ON a.id = t.account_id
 WHERE t.status = 'pending' AND {PLANNED_AT} >= %s AND {PLANNED_AT} < %s
   AND (r.status IN {LIVE} OR (r.status = 'paused' AND r.resume_at IS NOT NULL))
 GROUP BY 1, 2, 3, 4 ORDER BY 1, 4
"""


def over_plan(since: datetime, now: datetime) -> list[Violation]:
    """Find days with more planned than the cap allows, as far ahead as `since` is in the past."""
    accounts = Account.objects.in_bulk()
    planned: Counter[tuple[int, str, date]] = Counter()
    for pk, action, parts, day, messages in _rows(PLANNED, [now, now + (now - since)]):
        # The last targets of a day may get their further parts on the next one.
        over_midnight = accounts[pk].settings()["group_concurrency"].value * (parts - 1)
        planned[pk, channel(accounts[pk].channel).counts(action), day] += max(0, messages - int(over_midnight))
    return [v for (pk, action, day), n in planned.items() if (v := _over_plan(accounts[pk], action, day, n, now))]


def _over_plan(account: Account, action: str, day: date, planned: int, now: datetime) -> Violation | None:
    cap = account_limits.cap_on(account, action, day).limit
    if cap is None:
        return None
    used = account_limits.used_today(account, action, now) if day == local_date(account.timezone, now) else 0
    if planned + used <= cap:
        return None
    sent = f" besides {used} sent" if used else ""
    text = f"{account.label}: {planned} × {action} planned for {day}{sent}, and the cap is {cap}."
    return Violation("plan", f"account {account.pk}", text, True, account.pk)


def replan(violations: list[Violation], now: datetime) -> None:
    for account in Account.objects.filter(pk__in={violation.key for violation in violations}):
        plan_anew(account, now)


# --- lanes and verdicts -----------------------------------------------------------------------------------


def forgotten_lanes(since: datetime, now: datetime) -> list[Violation]:
    """Find targets of an account that the run does not name: no lane would ever claim them."""
    runs = Run.objects.filter(status__in=Run.UNFINISHED, pending__gt=0).values_list("pk", flat=True)
    rows = execute(transitions.FORGOTTEN_LANES, {"runs": list(runs)})
    forgotten = {run: [row["account"] for row in group] for run, group in groupby(rows, lambda row: row["run"])}
    text = "Has targets of accounts {} that are not among its lanes."
    return [Violation("lanes", f"run {pk}", text.format(accounts), True, pk) for pk, accounts in forgotten.items()]


def name_lanes(violations: list[Violation], now: datetime) -> None:
    for violation in violations:
        with transaction.atomic():
            carry_out(transitions.name_lanes(violation.key, now))


# Lanes that are neither due nor driven: those with something to send, and all of a run that has no other lane. A lane
# whose gate closed while another had something in flight leaves the run's end to that one: it gets the time for it.
SLEEPING = f"""
SELECT r.id, array_agg(l.id ORDER BY l.id) FROM fanout_run r CROSS JOIN unnest(r.lanes) AS l(id)
  LEFT JOIN fanout_lanestate s ON s.account_id = l.id
 WHERE r.status IN {LIVE} AND r.scheduled_for <= %(now)s AND r.pending > 0
   AND s.due_at IS NULL AND coalesce(s.holder, '') = ''
   AND (coalesce(s.progress_at, '-infinity') < %(long_ago)s
        AND EXISTS (SELECT FROM fanout_runtarget t
                     WHERE t.run_id = r.id AND t.account_id = l.id AND t.status = 'pending')
        OR NOT EXISTS (SELECT FROM fanout_lanestate o
                        WHERE o.account_id = ANY(r.lanes) AND (o.due_at IS NOT NULL OR o.holder <> '')))
 GROUP BY r.id ORDER BY r.id
"""

STUCK = """
SELECT t.id, t.account_id FROM fanout_runtarget t
 WHERE t.status = 'sending' AND t.claimed_at < %s
   AND NOT EXISTS (SELECT FROM fanout_lanestate l
                    WHERE l.account_id = t.account_id AND (l.holder <> '' OR l.due_at IS NOT NULL))
 ORDER BY t.id
"""


def sleeping(since: datetime, now: datetime) -> list[Violation]:
    """Find runs and targets with work whose lanes are neither due nor driven."""
    idle = [
        Violation(
            "asleep",
            f"run {pk}",
            f"Has something to send, but the lanes of accounts {lanes} are neither due nor driven.",
            True,
            lanes,
        )
        for pk, lanes in _rows(SLEEPING, {"now": now, "long_ago": now - IN_FLIGHT_AT_MOST})
    ]
    stuck = [
        Violation("asleep", f"target {pk}", "In flight, but no driver holds its lane.", True, [account])
        for pk, account in _rows(STUCK, [now - IN_FLIGHT_AT_MOST])
    ]
    return idle + stuck


def wake(violations: list[Violation], now: datetime) -> None:
    wake_lanes({account for violation in violations for account in violation.key}, now)


WRONG_VERDICT = f"""
SELECT id, status, sent, total FROM fanout_run
 WHERE status IN {JUDGED} AND pending = 0 AND sending = 0 AND scheduled_for >= %s
   AND status <> {VERDICT}
 ORDER BY id
"""


def wrong_verdicts(since: datetime, now: datetime) -> list[Violation]:
    return [
        Violation("verdict", f"run {pk}", f"Is {status} with {sent} of {total} sent.", True, pk)
        for pk, status, sent, total in _rows(WRONG_VERDICT, [since])
    ]


PAUSED_FOR_NOTHING = """
SELECT id, sent, total FROM fanout_run WHERE status = 'paused' AND pending = 0 AND sending = 0 ORDER BY id
"""


def paused_for_nothing(since: datetime, now: datetime) -> list[Violation]:
    """Find runs that are paused although nothing is left to send. The lane that settles the last message finishes
    them."""
    return [
        Violation("paused", f"run {pk}", f"Is paused with nothing left to send: {sent} of {total} sent.", True, pk)
        for pk, sent, total in _rows(PAUSED_FOR_NOTHING, [])
    ]


def judge_again(violations: list[Violation], now: datetime) -> None:
    for violation in violations:
        with transaction.atomic():
            carry_out(transitions.rejudge(violation.key, now))


# In this order: later checks read what earlier ones repair.
CHECKS = (
    Check("counters", wrong_counters, set_counters),
    Check("days", wrong_days, count_days),
    Check("activity", missing_activity, add_activity),
    Check("parts", forgotten_parts, remember_parts),
    Check("twice", sent_twice),
    Check("cap", over_cap),
    Check("plan", over_plan, replan, at_once=False),
    Check("lanes", forgotten_lanes, name_lanes, at_once=False),
    Check("asleep", sleeping, wake),
    Check("verdict", wrong_verdicts, judge_again),
    Check("paused", paused_for_nothing, judge_again),
)


def examine(since: datetime, now: datetime) -> list[Violation]:
    return [violation for check in CHECKS for violation in check.find(since, now)]


def repair(since: datetime, now: datetime) -> list[Violation]:
    """Repair what can be derived from other rows. Returns the repaired violations."""
    mended = []
    for check in CHECKS:
        if check.repair is None:
            continue
        with transaction.atomic() if check.at_once else nullcontext():
            violations = check.find(since, now)
            if violations:
                check.repair(violations, now)
                mended += violations
    return mended
