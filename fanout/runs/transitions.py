"""Every change of a run's status: one conditional statement each, with its words. Engine and controls share them.

A transition returns whether it took place: the statement names the state it expects.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from fanout.database import LOCK_RUNS, Row, Statement, Steps
from fanout.lanes.lane_rows import probe_statement, wake_statement
from fanout.lanes.telling import AUDIENCE, add_event
from fanout.models.run import PauseReason, Run, in_sql, window_of
from fanout.rules.gates import AccountFacts, Close, Wait, goes_on_at, goes_on_by_itself
from fanout.runs import texts

Status = Run.Status
LIVE = in_sql(Run.LIVE)
UNFINISHED = in_sql(Run.UNFINISHED)
CANCELABLE = in_sql((*Run.UNDER_WAY, Status.PAUSED))
JUDGED = in_sql((Status.SUCCESS, Status.PARTIAL, Status.FAILED))

#: of a run that has nothing pending and nothing in flight
VERDICT = "CASE WHEN sent = total AND total > 0 THEN 'success' WHEN sent > 0 THEN 'partial' ELSE 'failed' END"

NOTE_LENGTH = 200

#: targets that one statement changes at most: a statement that grows with a run stops every lane beside it
CHUNK = 5_000


# --- lanes ------------------------------------------------------------------------------------------------

# The accounts that run `r` has pending targets for. Account by account: each of them is one look into the index,
# however many targets there are.
PENDING_ACCOUNTS = """
WITH RECURSIVE pending_account(id) AS (
  (SELECT t.account_id FROM fanout_runtarget t WHERE t.run_id = r.id AND t.status = 'pending'
    ORDER BY t.account_id LIMIT 1)
  UNION ALL
  SELECT (SELECT t.account_id FROM fanout_runtarget t
           WHERE t.run_id = r.id AND t.status = 'pending' AND t.account_id > pending_account.id
           ORDER BY t.account_id LIMIT 1)
    FROM pending_account WHERE pending_account.id IS NOT NULL
)
SELECT pending_account.id FROM pending_account WHERE pending_account.id IS NOT NULL
"""

# Those, and the accounts with something in flight.
SENDERS = f"""
SELECT s.id FROM fanout_run r CROSS JOIN LATERAL (
  ({PENDING_ACCOUNTS}) UNION SELECT t.account_id FROM fanout_runtarget t WHERE t.run_id = r.id AND t.status = 'sending'
) AS s WHERE r.id = %(run)s ORDER BY s.id
"""

# A lane that stepped aside is left out on purpose: its plan has no time (STEP_ASIDE, DELAY) until the run is resumed.
FORGOTTEN_LANES = f"""
SELECT r.id AS run, lane.id AS account FROM fanout_run r CROSS JOIN LATERAL ({PENDING_ACCOUNTS}) AS lane
 WHERE r.id = ANY(%(runs)s) AND r.status IN {UNFINISHED} AND r.pending > 0 AND NOT lane.id = ANY(r.lanes)
   AND NOT coalesce(r.delays -> lane.id::text -> 'to' = 'null', false)
 ORDER BY 1, 2
"""

ADD_LANES = """
UPDATE fanout_run r
   SET lanes = r.lanes || ARRAY(SELECT a.id FROM unnest(%(accounts)s::bigint[]) AS a(id) WHERE NOT a.id = ANY(r.lanes))
 WHERE r.id = %(run)s AND NOT r.lanes @> %(accounts)s::bigint[]
"""


def add_lanes(run: int, accounts: list[int], now: datetime) -> Steps[None]:
    """Make the accounts lanes of the run and wake them, in the transaction that gives them something to send: a resume
    in between would not know of them. The caller has locked the run."""
    yield ADD_LANES, {"run": run, "accounts": accounts}
    yield wake_statement(accounts, now)


def name_lanes(run: int, now: datetime) -> Steps[list[int]]:
    """Add the accounts that have something to send for the run and that are not among its lanes. Returns them."""
    yield LOCK_RUNS, {"runs": [run]}
    rows = yield FORGOTTEN_LANES, {"runs": [run]}
    accounts = [row["account"] for row in rows]
    if accounts:
        yield from add_lanes(run, accounts, now)
    return accounts


# Lanes of a run that have something to send, and that no driver has or would take.
ASLEEP = f"""
SELECT l.account_id AS account FROM fanout_run r JOIN fanout_lanestate l ON l.account_id = ANY(r.lanes)
 WHERE r.id = %(run)s AND r.status IN {LIVE} AND l.due_at IS NULL AND l.holder = ''
   AND EXISTS (SELECT FROM fanout_runtarget t
                WHERE t.run_id = r.id AND t.account_id = l.account_id AND t.status = 'pending')
 ORDER BY 1
"""


def wake_again(run: int, now: datetime) -> Steps[None]:
    """Wake the lanes of a run that was finished, and got something to send by a late result."""
    rows = yield ASLEEP, {"run": run}
    if rows:
        yield wake_statement([row["account"] for row in rows], now)


# --- under way --------------------------------------------------------------------------------------------

# Of many runs at once: it goes out with the first claims of their lanes.
START = """
UPDATE fanout_run r SET status = 'running', started_at = coalesce(r.started_at, s.at), waiting_until = NULL,
       waiting_why = ''
  FROM unnest(%s::bigint[], %s::timestamptz[]) AS s(id, at)
 WHERE r.id = s.id AND r.status IN ('queued', 'waiting')
"""

WAIT = f"""
UPDATE fanout_run SET status = 'waiting', waiting_until = %(until)s, waiting_why = %(why)s,
       started_at = coalesce(started_at, %(now)s),
       seconds_waiting = seconds_waiting
                       + greatest(0, extract(epoch FROM %(until)s::timestamptz - %(now)s::timestamptz)) * %(counts)s
 WHERE id = %(run)s AND status IN {LIVE}
   AND (status <> 'waiting' OR waiting_until IS DISTINCT FROM %(until)s OR waiting_why <> %(why)s)
RETURNING id
"""

# A delayed plan: what is pending keeps its spacing and starts when the wait is over, or has no time while that is
# unknown. Noted with the run, one entry per account: see `fanout.plans.plan`.
DELAY = """
UPDATE fanout_run r SET delays = r.delays || coalesce((
    SELECT jsonb_object_agg(a.id::text, jsonb_build_object(
             'from', (SELECT t.planned_at FROM fanout_runtarget t
                       WHERE t.run_id = %(run)s AND t.account_id = a.id AND t.status = 'pending'
                       ORDER BY t.position LIMIT 1),
             'to', %(until)s::timestamptz, 'why', %(why)s::text))
      FROM unnest(%(accounts)s::bigint[]) AS a(id)), '{}')
 WHERE r.id = %(run)s
"""


def wait(run: int, account: int, gate: Wait, now: datetime, counts: bool = True) -> Steps[bool]:
    """Let the run wait for a limit of this account. `counts`: the wait is added to the time spent waiting."""
    why = gate.why[:NOTE_LENGTH]
    rows = yield WAIT, {"run": run, "until": gate.until, "why": why, "now": now, "counts": int(counts)}
    yield DELAY, {"run": run, "accounts": [account], "until": gate.until, "why": why}
    return bool(rows)


# A run of several lanes goes on without the one that cannot send any more. Its targets stay pending.
STEP_ASIDE = f"""
UPDATE fanout_run r SET lanes = array_remove(r.lanes, %(account)s::bigint)
 WHERE r.id = %(run)s AND r.status IN {LIVE}
   -- lane by lane, each one look into an index, however many targets there are
   AND EXISTS (SELECT FROM unnest(r.lanes) AS l(id)
                WHERE l.id <> %(account)s
                  AND (EXISTS (SELECT FROM fanout_runtarget t
                                WHERE t.run_id = r.id AND t.account_id = l.id AND t.status = 'pending')
                    OR EXISTS (SELECT FROM fanout_runtarget t
                                WHERE t.run_id = r.id AND t.account_id = l.id AND t.status = 'sending')))
RETURNING r.id
"""


def step_aside(run: int, account: int, label: str, why: str, now: datetime) -> Steps[bool]:
    """Remove this account from the run's lanes while other lanes still send for it. Returns whether it was removed."""
    rows = yield STEP_ASIDE, {"run": run, "account": account}
    if rows:
        yield DELAY, {"run": run, "accounts": [account], "until": None, "why": why[:NOTE_LENGTH]}
        yield add_event(now, "stepped aside", f"{label}: {why}", run=run)
    return bool(rows)


# --- paused, and going on ---------------------------------------------------------------------------------

# A gate pauses a run once nothing of it is in flight. An operator's pause does not wait for that, and takes back a
# planned resume.
PAUSE = f"""
UPDATE fanout_run SET status = 'paused', pause_reason = %(reason)s, waiting_until = NULL, waiting_why = '',
       resume_at = NULL, finished_at = CASE WHEN status = 'paused' THEN finished_at ELSE %(now)s END
 WHERE id = %(run)s
   AND CASE WHEN %(at_once)s::boolean THEN status IN {LIVE} OR status = 'paused' AND resume_at IS NOT NULL
            ELSE status IN {LIVE} AND pending > 0 AND sending = 0 END
RETURNING *
"""


def pause(run: int, gate: Close, facts: Mapping[str, AccountFacts], now: datetime) -> Steps[bool]:
    """Pause the run because a gate has closed. `facts`: the account's limits by action, for the moment at which it
    goes on by itself."""
    rows = yield PAUSE, {"run": run, "reason": gate.reason.value, "now": now, "at_once": False}
    for row in rows:
        resume_at = _resume_at(row, gate, facts, now)
        yield DELAY, {"run": run, "accounts": row["lanes"], "until": resume_at, "why": gate.why[:NOTE_LENGTH]}
        yield _tell(row, texts.paused(row, gate.why), now, resume_at)
    return bool(rows)


def _resume_at(row: Row, gate: Close, facts: Mapping[str, AccountFacts], now: datetime) -> datetime | None:
    if not facts or not goes_on_by_itself(row, gate.reason):
        return None
    # In a run of several channels this account's provider may count another action than the run's.
    account = facts.get(row["action"]) or next(iter(facts.values()))
    return goes_on_at(window_of(row), account, now, gate.until)


def pause_by_operator(run: int, actor: int | None, now: datetime) -> Steps[bool]:
    """Pause the run: no claim after this; what is in flight ends and is recorded, and its lane describes the run
    again."""
    rows = yield PAUSE, {"run": run, "reason": PauseReason.OPERATOR.value, "now": now, "at_once": True}
    for row in rows:
        yield _summarise(row, texts.paused(row))
        yield add_event(now, "paused", run=run, actor=actor)
    return bool(rows)


PAUSED_BY_OPERATOR = """
SELECT * FROM fanout_run
 WHERE id = %(run)s AND status = 'paused' AND pause_reason = 'operator' AND sending = 0
"""


def describe_again(run: int, now: datetime) -> Steps[None]:
    """Write the final counts of a run that an operator paused while something was in flight, now that its result is
    stored. If that was its last message, finish it."""
    if (yield from finish(run, now)):
        return
    for row in (yield PAUSED_BY_OPERATOR, {"run": run}):
        yield _summarise(row, texts.paused(row))


RESUME = """
UPDATE fanout_run SET status = 'queued', lanes = %(lanes)s::bigint[], window_closes_at = %(closes_at)s,
       pause_reason = '', error_summary = '', finished_at = NULL, resume_at = NULL, delays = '{}'
 WHERE id = %(run)s AND status = 'paused'
RETURNING id
"""


def resume(run: int, lanes: list[int], closes_at: datetime, now: datetime, probe: bool = False) -> Steps[bool]:
    """Put the run back into the queue, with the window of today. `probe`: each lane begins with a single trial
    message."""
    rows = yield RESUME, {"run": run, "lanes": lanes, "closes_at": closes_at}
    if rows:
        yield DELAY, {"run": run, "accounts": lanes, "until": now, "why": "resumed"}
        yield (probe_statement if probe else wake_statement)(lanes, now)
    return bool(rows)


# Message 2 goes on with every reply: once finished it is queued again, in the window that is open or opens next, and so
# is one that waits for that opening. What a limit, trouble or an operator stopped stays so. Every account that has
# something pending is a lane of it, the new one among them.
REOPEN_FOR_ACCOUNT = f"""
UPDATE fanout_run r
   SET status = CASE WHEN %(paused)s THEN 'paused' ELSE 'queued' END,
       pause_reason = CASE WHEN %(paused)s THEN 'operator' ELSE '' END,
       finished_at = CASE WHEN %(paused)s THEN %(now)s::timestamptz END,
       window_closes_at = %(closes_at)s, resume_at = NULL, error_summary = '', delays = '{{}}',
       lanes = ARRAY(({PENDING_ACCOUNTS}) UNION SELECT %(account)s::bigint ORDER BY 1)
 WHERE r.id = %(run)s AND (r.status IN {JUDGED} OR (r.status = 'paused' AND r.pause_reason = 'window_closed'))
RETURNING lanes
"""

# The earlier window: another account's hours may have chosen tomorrow's. An account that cannot send today steps aside.
JOIN = """
UPDATE fanout_run
   SET lanes = CASE WHEN lanes @> ARRAY[%(account)s::bigint] THEN lanes ELSE lanes || %(account)s::bigint END,
       window_closes_at = least(window_closes_at, %(closes_at)s)
 WHERE id = %(run)s
RETURNING lanes
"""


def reopen_for_account(run: int, account: int, closes_at: datetime, paused: bool, now: datetime) -> Steps[list[int]]:
    """Let the account send for this run again; returns the run's lanes. `paused`: an operator paused what it belongs
    to."""
    parameters = {"run": run, "account": account, "closes_at": closes_at, "paused": paused, "now": now}
    rows = (yield REOPEN_FOR_ACCOUNT, parameters) or (yield JOIN, parameters)
    return [lane for row in rows for lane in row["lanes"]]


# A finished run that gets something to send becomes running at once, so it is paused first. One that is going on stays
# as it is: its lanes are told.
REOPEN = f"""
UPDATE fanout_run SET status = 'paused', pause_reason = 'operator', waiting_until = NULL, waiting_why = '',
       finished_at = %(now)s
 WHERE id = %(run)s AND status IN {JUDGED}
RETURNING id
"""

# A mail that bounced later had all its parts taken: the last one goes again. An operator who sends it again has
# checked whether it arrived.
REOPEN_TARGETS = f"""
UPDATE fanout_runtarget
   SET status = 'pending', attempts = 0, next_attempt_at = NULL, settled_at = NULL, error = '', error_kind = '',
       parts_sent = least(parts_sent, %(last_part)s), reopened_at = %(now)s, in_doubt = false
 WHERE id = ANY(%(targets)s) AND status IN ('failed', 'unconfirmed')
   AND EXISTS (SELECT FROM fanout_run r WHERE r.id = %(run)s AND r.status IN {UNFINISHED})
RETURNING account_id
"""


def reopen(run: int, now: datetime) -> Steps[bool]:
    """Pause a finished run, so that it may have pending targets again. Returns False if it was not finished."""
    rows = yield REOPEN, {"run": run, "now": now}
    return bool(rows)


def reopen_targets(run: int, targets: list[int], parts: int, now: datetime) -> Steps[tuple[int, bool]]:
    """Set settled targets back to pending; their accounts become lanes of the run. Returns how many, and whether the
    run was finished and is paused now. Targets of a canceled run are not reopened."""
    yield LOCK_RUNS, {"runs": [run]}
    paused = yield from reopen(run, now)  # it may have ended since its first targets were reopened
    changes = {"run": run, "targets": targets, "last_part": max(0, parts - 1), "now": now}
    rows = yield REOPEN_TARGETS, changes
    if rows:
        yield from add_lanes(run, sorted({row["account_id"] for row in rows}), now)
    return len(rows), paused


# --- finished ---------------------------------------------------------------------------------------------

# A run that ends without a single try, because every person opted out or the like meanwhile, did what it should: it is
# skipped, as if all had been left out when it was made. Not where its window has closed: then no one was asked. Message
# 2 and runs of single messages go on with the next reply or message, which a skipped run does not.
LEFT_ALL_OUT = f"""status IN {UNFINISHED} AND skipped = total AND total > 0 AND first_attempt_at IS NULL
       AND window_closes_at > %(now)s::timestamptz AND answers_id IS NULL AND collects = '' AND NOT is_test"""
END = f"CASE WHEN {LEFT_ALL_OUT} THEN %(untried)s::varchar ELSE {VERDICT} END"

# Only when pending and sending are both zero. The same rule judges a finished run again when one of its targets was
# settled differently.
FINISH = f"""
UPDATE fanout_run
   SET status = {END},
       finished_at = CASE WHEN status IN {JUDGED} THEN finished_at ELSE %(now)s END,
       pause_reason = '', waiting_until = NULL, waiting_why = '', resume_at = NULL
 WHERE id = %(run)s AND pending = 0 AND sending = 0
   AND (status IN {UNFINISHED} OR status IN {JUDGED}) AND status <> {END}
RETURNING *
"""


def finish(run: int, now: datetime) -> Steps[bool]:
    rows = yield FINISH, {"run": run, "now": now, "untried": Status.SKIPPED.value}
    for row in rows:
        summary = yield from finished(row)
        # Message 2 is finished after every reply, and a run of single messages after each of them, which is not worth a
        # notification each time.
        yield _summarise(row, summary) if row["answers_id"] or row["collects"] else _tell(row, summary, now)
    return bool(rows)


# Of so many targets of each kind: the statement must not grow with the run.
CAUSES = f"""
SELECT status, cause, count(*) FROM (
  (SELECT status, error_kind AS cause FROM fanout_runtarget
    WHERE run_id = %(run)s AND status = 'failed' LIMIT {CHUNK})
  UNION ALL
  (SELECT status, error FROM fanout_runtarget WHERE run_id = %(run)s AND status = 'skipped' LIMIT {CHUNK})
) AS left_out GROUP BY status, cause ORDER BY count(*) DESC, cause
"""


def finished(row: Row) -> Steps[str]:
    """Return the summary of a finished run, with the causes of what was not delivered."""
    if row["status"] == Status.SKIPPED:
        return texts.none_queued(row, (yield from reasons_left_out(row["id"])))
    causes: dict[str, list[str]] = {"failed": [], "skipped": []}
    if row["failed"] or row["skipped"]:
        for group in (yield CAUSES, {"run": row["id"]}):
            words = texts.error(group["cause"]) if group["status"] == "failed" else texts.left_out(group["cause"])
            if words not in causes[group["status"]]:
                causes[group["status"]].append(words)
    return texts.finished(row, causes)


def reasons_left_out(run: int) -> Steps[dict[str, int]]:
    """Return why targets were skipped, and how many each."""
    rows = yield CAUSES, {"run": run}
    return {row["cause"]: row["count"] for row in rows if row["status"] == "skipped"}


FINISHED = f"SELECT * FROM fanout_run WHERE id = %(run)s AND status IN {JUDGED}"


def rejudge(run: int, now: datetime) -> Steps[None]:
    """Judge a finished run again after a late result or a settled target; where the verdict stays, the counts have
    changed."""
    if not (yield from finish(run, now)):
        for row in (yield FINISHED, {"run": run}):
            yield _summarise(row, (yield from finished(row)))


# Kept up to date until it is passed on: one bounce seldom comes alone. See fanout.ops.passing_on.
TELL_AGAIN = f"""
WITH audience AS ({AUDIENCE}), renewed AS (
  UPDATE fanout_notification n SET body = %(body)s::text, read_at = a.read_at FROM audience a
   WHERE n.user_id = a.id AND n.run_id = %(run)s AND n.title = %(title)s::varchar AND n.passed_on_at IS NULL
  RETURNING n.user_id
)
INSERT INTO fanout_notification (user_id, run_id, title, body, level, created_at, read_at)
SELECT a.id, %(run)s, %(title)s::varchar, %(body)s::text, 'warning', %(now)s::timestamptz, a.read_at
  FROM audience a WHERE a.id NOT IN (SELECT user_id FROM renewed)
"""


def came_back(run: int, cause: str, now: datetime) -> Steps[None]:
    """Record that a delivered message bounced. A finished run is judged and told again; the others say so when they
    end."""
    rows = yield FINISH, {"run": run, "now": now, "untried": Status.SKIPPED.value}
    for row in rows or (yield FINISHED, {"run": run}):
        summary = yield from finished(row)
        if rows:
            yield add_event(now, row["status"], summary, run=run)
        yield _summarise(row, summary)
        words = {"title": texts.CAME_BACK, "body": texts.came_back(row, summary, cause)}
        yield TELL_AGAIN, {"run": run, "now": now} | _audience(row) | words


SKIP_RUN = """
UPDATE fanout_run SET status = 'skipped', finished_at = %(now)s
 WHERE id = %(run)s AND status = 'queued' AND pending = 0 AND skipped = total AND total > 0
RETURNING *
"""


def skip(run: int, now: datetime) -> Steps[bool]:
    """Skip a new run of which every target was left out, because each is suppressed, in its cooldown or the like. Its
    owner is not told: it did what it should."""
    rows = yield SKIP_RUN, {"run": run, "now": now}
    for row in rows:
        summary = texts.none_queued(row, (yield from reasons_left_out(run)))
        yield _summarise(row, summary)
        yield add_event(now, Status.SKIPPED, summary, run=run)
    return bool(rows)


SKIP_UNSTARTED = f"""
UPDATE fanout_runtarget SET status = 'skipped', error = %(why)s, settled_at = %(now)s
 WHERE id = ANY(ARRAY(SELECT id FROM fanout_runtarget WHERE run_id = %(run)s AND status = 'pending' LIMIT {CHUNK}))
   AND EXISTS (SELECT FROM fanout_run r WHERE r.id = %(run)s AND r.status IN {LIVE}
                                          AND r.sending = 0 AND r.first_attempt_at IS NULL)
RETURNING id
"""


def skip_unstarted(run: int, now: datetime) -> Steps[bool]:
    """Skip a chunk of the targets of a run whose window closed before the first attempt. Returns whether there may be
    more."""
    yield LOCK_RUNS, {"runs": [run]}
    rows = yield SKIP_UNSTARTED, {"run": run, "why": texts.WINDOW_CLOSED_UNSTARTED, "now": now}
    return len(rows) == CHUNK


def fail_unstarted(run: int, now: datetime) -> Steps[bool]:
    """Fail a run whose window closed before the first attempt: all targets are skipped, and nothing can be resumed."""
    while (yield from skip_unstarted(run, now)):
        pass
    rows = yield FINISH, {"run": run, "now": now, "untried": Status.FAILED.value}
    for row in rows:
        yield _tell(row, texts.closed_before_start(row), now)
    return bool(rows)


TAKE_OUT = """
UPDATE fanout_runtarget SET status = 'skipped', error = %(why)s, settled_at = %(now)s
 WHERE id = ANY(%(targets)s) AND status = 'pending'
RETURNING run_id
"""


def take_out(targets: list[int], why: str, now: datetime) -> Steps[int]:
    """Skip pending targets that are not to be sent after all; a run that has nothing else left is finished. The caller
    has locked their runs. Returns how many were skipped."""
    rows = (yield TAKE_OUT, {"targets": targets, "why": why, "now": now}) if targets else []
    for run in sorted({row["run_id"] for row in rows}):
        yield from finish(run, now)
    return len(rows)


CANCEL = f"""
UPDATE fanout_run SET status = 'canceled', pause_reason = '', waiting_until = NULL, waiting_why = '',
       resume_at = NULL, finished_at = %(now)s, error_summary = %(summary)s
 WHERE id = %(run)s AND status IN {CANCELABLE}
RETURNING lanes, pending + skipped AS left_out
"""

# Not what a claim has locked at this moment: its result is recorded, and the next sweep takes the rest.
#
# An array, because it is read once: PostgreSQL may read a list behind IN again for every row, and then finds more rows
# than its limit says.
SKIP_CANCELED = f"""
UPDATE fanout_runtarget SET status = 'skipped', error = %(why)s, settled_at = %(now)s
 WHERE id = ANY(ARRAY(SELECT t.id FROM fanout_runtarget t JOIN fanout_run r ON r.id = t.run_id
                       WHERE t.run_id = %(run)s AND t.status = 'pending' AND r.status = 'canceled'
                       LIMIT {CHUNK} FOR UPDATE OF t SKIP LOCKED))
RETURNING id
"""


def cancel(run: int, actor: int | None, now: datetime) -> Steps[bool]:
    """Cancel the run: no claim after this. Its targets are skipped by `skip_canceled`, chunk by chunk: a run may have a
    million, and locking it for that long would stop every lane that shares a commit with it."""
    rows = yield CANCEL, {"run": run, "now": now, "summary": texts.CANCELED_RUN}
    for row in rows:
        yield wake_statement(row["lanes"], now)
        yield add_event(now, "canceled", f"{row['left_out']} skipped", run=run, actor=actor)
    return bool(rows)


def skip_canceled(run: int, now: datetime) -> Steps[bool]:
    """Skip a chunk of a canceled run's targets. Returns whether there may be more."""
    yield LOCK_RUNS, {"runs": [run]}
    rows = yield SKIP_CANCELED, {"run": run, "why": texts.CANCELED, "now": now}
    return len(rows) == CHUNK


# --- the words --------------------------------------------------------------------------------------------

SUMMARISE = "UPDATE fanout_run SET error_summary = %(summary)s WHERE id = %(run)s AND status = %(status)s"

TELL = f"""
WITH described AS (
  UPDATE fanout_run SET error_summary = %(summary)s::text, resume_at = %(resume_at)s
   WHERE id = %(run)s AND status = %(status)s::varchar
), noted AS (
  INSERT INTO fanout_event (run_id, at, verb, detail)
  VALUES (%(run)s, %(now)s::timestamptz, %(status)s::varchar, %(summary)s::text)
)
INSERT INTO fanout_notification (user_id, run_id, title, body, level, created_at, read_at)
SELECT a.id, %(run)s, %(title)s::varchar, %(body)s, %(level)s, %(now)s::timestamptz, a.read_at
  FROM ({AUDIENCE}) AS a WHERE %(title)s::varchar <> ''
"""


def _summarise(row: Row, summary: str) -> Statement:
    return SUMMARISE, {"run": row["id"], "status": row["status"], "summary": summary}


def _tell(row: Row, summary: str, now: datetime, resume_at: datetime | None = None) -> Statement:
    """Write the summary, the line in the timeline and the notification, in one statement."""
    title, body = texts.notification(row | {"error_summary": summary}) or ("", "")
    level = "warning" if row["status"] in (Status.PAUSED, Status.FAILED, Status.PARTIAL) else "info"
    return TELL, {
        "run": row["id"],
        "status": row["status"],
        "summary": summary,
        "now": now,
        "resume_at": resume_at,
        "title": title,
        "body": body,
        "level": level,
    } | _audience(row)


def _audience(row: Row) -> Row:
    """Return the parameters of `AUDIENCE`: the owner and the team; for a test only the person who sent it."""
    return {"owner": row["owner_id"], "team": None if row["is_test"] else row["team_id"]}
