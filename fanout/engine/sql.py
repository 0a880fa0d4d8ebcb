"""The ledger's SQL. Every statement on the hot path takes arrays and touches rows by primary key."""

from fanout.database import lock_in_order
from fanout.lanes.new_chats import BEGIN_CHATS, HOLD_NEW_CHATS, NEW_CHAT
from fanout.models.run import Run, in_sql, lane_order
from fanout.runs import texts
from fanout.runs.follow_ups import COUNTED, LOCK_PEOPLE
from fanout.runs.transitions import START
from reminders.models import Recipient
from reminders.suppressions import SUPPRESS_ALL

# Two-key advisory locks: the first key is the namespace, the second the account or the slot.
LANE_LOCKS = 0x43524C  # "CRL"
SLOT_LOCKS = 0x435253  # "CRS"

# The connection that holds the locks runs only the statements below. Stale statistics once made the planner scan the
# in-flight index on every flush (4,009 sends/s fell to 975), so it is told to go by key.
BY_KEY = (
    "SET enable_seqscan = off",
    "SET enable_hashjoin = off",
    "SET enable_mergejoin = off",
    "SET jit = off",
    "SET plan_cache_mode = force_generic_plan",
)
SESSION = (
    *BY_KEY,
    "SET enable_bitmapscan = off",
    "SET idle_in_transaction_session_timeout = '20s'",
    # A locked row must not stop every lane: entries that need it wait, the rest goes on.
    "SET lock_timeout = '3s'",
)

# First in every batch: counters change under these locks.
LOCK_RUNS = lock_in_order("fanout_run", "id", "%s::bigint[]")

# After a lock timeout: which of these runs another session has locked.
LOCKED_RUNS = """
WITH free AS MATERIALIZED (SELECT id FROM fanout_run WHERE id = ANY(%(runs)s) FOR NO KEY UPDATE SKIP LOCKED)
SELECT id FROM fanout_run WHERE id = ANY(%(runs)s) AND id NOT IN (SELECT id FROM free)
"""

# Before a batch writes to lanes twice.
LOCK_LANE_STATES = lock_in_order("fanout_lanestate", "account_id", "%s::bigint[]")

# --- the claim ------------------------------------------------------------------------------------------
#
# A claim is granted only while everything it rests on still holds, so that pause, cancel, suspend, suppress and hold
# take effect at the very next claim. The conditions speak of a claim c, its target t, the target's recipient p and its
# run r. NEW_CHAT is the only one that stands elsewhere (fanout/lanes/new_chats.py): the budget of new chats is counted
# with it.
#
# They are scalar subqueries on purpose: each is one look-up by key. As joins the planner reordered them and met every
# running run with every claim.

# A plain comparison fits the index of pending targets. While the statistics do not know a run that was frozen a moment
# ago, the planner took that index to be empty and met all of it with every claim.
PENDING = "(SELECT t.status) = 'pending'"

# `rules.follow_ups.refusal`: true where it has nothing to say. A cooldown that has expired counts as cleared.
MAY_GET = f"""(p.status NOT IN {in_sql(Recipient.GETS_NOTHING)} AND (NOT r.follow_up OR
              CASE WHEN p.cooldown_until IS NULL THEN p.status = 'active' AND p.follow_up_attempts < %s::int
                   ELSE p.cooldown_until <= c.at
                        AND (p.status = 'active' OR (p.limited AND p.status = 'not_interested')) END))"""

# Attempts are counted when they have gone out, so a person gets one follow-up at a time: of several at once, all would
# find the attempts as they were. A follow-up of which an earlier part was sent goes on.
ANOTHER_UNDER_WAY = """(t.parts_sent = 0 AND EXISTS (
      SELECT FROM reminders_recipient q JOIN fanout_runtarget o ON o.recipient_id = q.id
       WHERE q.address = t.address AND o.id <> t.id
         AND (o.status = 'sending' OR (o.status = 'pending' AND o.parts_sent > 0))
         AND (SELECT r.follow_up AND (o.status = 'sending' OR r.status = 'running')
                FROM fanout_run r WHERE r.id = o.run_id)))"""

CLAIM = f"""
UPDATE fanout_runtarget t
   SET status = 'sending', claim_epoch = c.epoch, claimed_at = c.at,
       attempts = t.attempts + 1, next_attempt_at = NULL
  FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::timestamptz[], %s::int[])
    AS c(id, account_id, epoch, at, part)
 -- the target still waits for this part, from this account
 WHERE t.id = c.id AND t.account_id = c.account_id AND {PENDING} AND t.parts_sent = c.part
   -- this session drives the lane, and new chats are not held
   AND (SELECT l.epoch = c.epoch
               AND CASE WHEN l.new_chats_after > c.at
                        THEN (SELECT NOT {NEW_CHAT} FROM reminders_recipient p WHERE p.id = t.recipient_id)
                        ELSE true END
          FROM fanout_lanestate l WHERE l.account_id = c.account_id)
   -- the account may send
   AND (SELECT a.status FROM accounts_account a WHERE a.id = c.account_id) = 'active'
   -- the run may send, its window is open, and the person may get it
   AND (SELECT r.status = 'running' AND r.window_closes_at > c.at
               AND (SELECT {MAY_GET}
                      FROM reminders_recipient p WHERE p.id = t.recipient_id)
               AND CASE WHEN r.follow_up THEN NOT {ANOTHER_UNDER_WAY} ELSE true END
          FROM fanout_run r WHERE r.id = t.run_id)
   -- the address is not suppressed, and Message 2 is not too late
   AND NOT EXISTS (SELECT FROM reminders_suppression s
                    WHERE s.address = t.address AND (s.expires_at IS NULL OR s.expires_at > c.at))
   AND (t.expires_at IS NULL OR t.expires_at > c.at)
RETURNING t.id
"""

# --- results --------------------------------------------------------------------------------------------

# A provider's answer stands, also when the lane has changed hands: a result is accepted when it fits the claim it
# belongs to, even for a row marked unconfirmed (or already put back) meanwhile.
#
# A target of a run that was canceled meanwhile gets no further part: it is skipped like the others.
RECORDED = f"""
WITH answered AS (
  SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::timestamptz[], %s::text[], %s::int[], %s::int[],
                       %s::timestamptz[], %s::timestamptz[], %s::int[], %s::text[], %s::text[], %s::text[],
                       %s::bigint[], %s::text[], %s::int[], %s::text[])
    AS a(id, epoch, claimed_at, status, parts_sent, attempts, retry_at, at, latency_ms, provider_id, kind, error,
         account_id, action, part, activity)
), o AS MATERIALIZED (
  SELECT *, status = 'pending' AND (SELECT r.status FROM fanout_runtarget t JOIN fanout_run r ON r.id = t.run_id
                                     WHERE t.id = a.id) = 'canceled' AS canceled FROM answered a
), updated AS (
  UPDATE fanout_runtarget t
     SET status = CASE WHEN o.canceled THEN 'skipped' ELSE o.status END,
         next_attempt_at = CASE WHEN NOT o.canceled THEN o.retry_at END,
         -- -1: as before the claim, because the provider was never called
         parts_sent = CASE WHEN o.parts_sent < 0 THEN t.parts_sent ELSE o.parts_sent END,
         attempts = CASE WHEN o.attempts < 0 THEN greatest(t.attempts - 1, 0) ELSE o.attempts END,
         settled_at = CASE WHEN o.status <> 'pending' OR o.canceled THEN o.at END,
         latency_ms = coalesce(o.latency_ms, t.latency_ms), error_kind = o.kind,
         error = CASE WHEN o.canceled THEN '{texts.CANCELED}' ELSE o.error END,
         -- Until the part is known to have been sent, an unanswered try at it stays one.
         in_doubt = o.activity <> 'sent' AND (t.in_doubt OR o.kind = 'unknown'),
         provider_id = CASE WHEN o.provider_id = '' THEN t.provider_id ELSE o.provider_id END
    FROM o
   WHERE t.id = o.id AND t.claim_epoch = o.epoch AND t.claimed_at = o.claimed_at
     AND (t.status IN ('sending', 'unconfirmed') OR (t.status = 'pending' AND o.activity = 'sent'
                                                      AND t.parts_sent < o.parts_sent))
  RETURNING o.account_id, t.id, o.action, o.activity, o.kind, o.part, o.at, t.run_id, t.address, t.status, t.claimed_at
)"""
ADD_ACTIVITY = """
INSERT INTO fanout_activity (account_id, run_target_id, action, outcome, kind, part, at)
SELECT account_id, id, action, activity, kind, part, at FROM updated WHERE activity <> ''
"""
RECORD = RECORDED + ADD_ACTIVITY

# The same where a follow-up may have gone out whole: the person's attempts are counted in the same statement.
# LOCK_PEOPLE goes before it, because two drivers may write to the same people.
RECORD_FOLLOW_UPS = f"""{RECORDED}, went_out AS (
  SELECT u.account_id, u.address, u.claimed_at AS at FROM updated u
   WHERE u.status = 'sent' AND (SELECT r.follow_up FROM fanout_run r WHERE r.id = u.run_id)
), {COUNTED}
{ADD_ACTIVITY}"""

SKIP = f"""
UPDATE fanout_runtarget t SET status = 'skipped', error = s.why, settled_at = s.at
  FROM unnest(%s::bigint[], %s::text[], %s::timestamptz[]) AS s(id, why, at)
 WHERE t.id = s.id AND {PENDING}
"""

# A break that a provider asked for, where the lane has another holder by now, which reads it when it is woken. It is
# never shortened.
HOLD_LANES = """
UPDATE fanout_lanestate l SET next_send_at = greatest(l.next_send_at, h.until), probing = true
  FROM unnest(%s::bigint[], %s::bigint[], %s::timestamptz[]) AS h(account_id, epoch, until)
 WHERE l.account_id = h.account_id AND l.epoch <> h.epoch
"""

# True where the stored break is one that the lane does not know of yet (HOLD_LANES).
UNKNOWN_BREAK = "coalesce(l.probing AND NOT p.probing AND l.next_send_at > p.at, false)"

# The pace goes out with the claim it was computed for, in the same transaction.
PACE = f"""
UPDATE fanout_lanestate l
   SET tat = p.tat, batch_sent = p.batch_sent, slow_factor = p.slow_factor,
       next_send_at = CASE WHEN {UNKNOWN_BREAK} THEN greatest(l.next_send_at, p.next_send_at) ELSE p.next_send_at END,
       sample = p.sample, sample_run = p.sample_run, probing = p.probing OR {UNKNOWN_BREAK},
       last_claim_at = coalesce(p.claimed_at, l.last_claim_at), progress_at = p.at,
       crashes = CASE WHEN p.delivered THEN 0 ELSE l.crashes END
  FROM unnest(%s::bigint[], %s::bigint[], %s::timestamptz[], %s::timestamptz[], %s::int[], %s::float8[],
              %s::text[], %s::bigint[], %s::bool[], %s::timestamptz[], %s::timestamptz[], %s::bool[])
    AS p(account_id, epoch, tat, next_send_at, batch_sent, slow_factor, sample, sample_run, probing, claimed_at, at,
         delivered)
 WHERE l.account_id = p.account_id AND l.epoch = p.epoch
"""

TIMES = """
UPDATE fanout_run r
   SET seconds_pacing = seconds_pacing + t.pacing, seconds_provider = seconds_provider + t.provider,
       seconds_media = seconds_media + t.media, seconds_retries = seconds_retries + t.retries,
       seconds_waiting = seconds_waiting + t.waiting
  FROM unnest(%s::bigint[], %s::float8[], %s::float8[], %s::float8[], %s::float8[], %s::float8[])
    AS t(id, pacing, provider, media, retries, waiting)
 WHERE r.id = t.id
"""

# Prepared on every connection that claims.
HOT = {
    "lock_runs": LOCK_RUNS,
    "skip": SKIP,
    "record": RECORD,
    "suppress": SUPPRESS_ALL,
    "begin_chats": BEGIN_CHATS,
    "lock_people": LOCK_PEOPLE,
    "record_follow_ups": RECORD_FOLLOW_UPS,
    "start": START,
    "claim": CLAIM,
    "pace": PACE,
    "times": TIMES,
    "lock_lane_states": LOCK_LANE_STATES,
    "hold_new_chats": HOLD_NEW_CHATS,
    "hold_lanes": HOLD_LANES,
}

# --- taking and leaving lanes ---------------------------------------------------------------------------

# Four times a second: lanes that are due and free.
DUE_LANES = """
SELECT account_id, crashes, due_at FROM fanout_lanestate
 WHERE due_at <= %(now)s AND holder = '' ORDER BY due_at, account_id LIMIT %(limit)s
"""

# Drivers that hold their locks: the session is there. One that has not beaten for long is about to lose it. Beats are
# written and judged by the database's clock alone: machines whose clocks differ would end each other's sessions.
LIVE_DRIVERS = """
SELECT d.* FROM fanout_driver d
  JOIN pg_stat_activity a ON a.pid = d.backend_pid AND a.datname = current_database()
 WHERE d.ended_at IS NULL AND d.beat_at > clock_timestamp() - %(silent_after)s
"""

# Once a second: lanes whose holder is dead. Our own are never among them: the same session would get the same lock a
# second time.
ORPHANED_LANES = f"""
SELECT account_id, crashes, due_at FROM fanout_lanestate
 WHERE due_at <= %(now)s AND holder <> '' AND holder <> %(token)s
   AND NOT holder IN (SELECT token FROM ({LIVE_DRIVERS}) AS live)
 ORDER BY due_at, account_id LIMIT %(limit)s
"""

# How many lanes are due, and how many drivers share them. A slot whose driver has just ended counts: its successor is
# on its way.
SHARE = f"""
SELECT (SELECT count(*) FROM fanout_lanestate WHERE due_at <= %(now)s) AS due,
       (SELECT count(*) FROM ({LIVE_DRIVERS}) AS live)
     + (SELECT count(*) FROM fanout_driver WHERE ended_at > clock_timestamp() - %(successor_within)s) AS drivers
"""

LOCK_LANES = "SELECT id FROM unnest(%s::int[]) AS id WHERE pg_try_advisory_lock(%s, id)"
UNLOCK_LANES = "SELECT pg_advisory_unlock(%s, id) FROM unnest(%s::int[]) AS id"

# Taking a lane fences all earlier holders.
TAKE_LANES = """
UPDATE fanout_lanestate SET epoch = epoch + 1, holder = %s WHERE account_id = ANY(%s)
RETURNING account_id
"""

# Before RESCUE: runs are locked before their targets. In flight is at most the lanes' concurrency, however large the
# runs are.
LOCK_IN_FLIGHT = lock_in_order(
    "fanout_run",
    "id",
    "ARRAY(SELECT run_id FROM fanout_runtarget WHERE account_id = ANY(%(taken)s) AND status = 'sending')",
)

# Lanes that cannot be rescued now, because another session has locked a run of theirs.
BEHIND_LOCKED_RUNS = """
WITH in_flight AS MATERIALIZED (
  SELECT DISTINCT account_id, run_id FROM fanout_runtarget WHERE account_id = ANY(%(taken)s) AND status = 'sending'
), free AS MATERIALIZED (
  SELECT id FROM fanout_run WHERE id = ANY(ARRAY(SELECT run_id FROM in_flight)) FOR NO KEY UPDATE SKIP LOCKED
)
SELECT DISTINCT account_id FROM in_flight WHERE run_id NOT IN (SELECT id FROM free)
"""

# Targets that a dead holder left in flight may have gone out, unless the provider drops repeats.
RESCUE = """
UPDATE fanout_runtarget t
   SET status = CASE WHEN t.account_id = ANY(%(repeatable)s) THEN 'pending' ELSE 'unconfirmed' END,
       next_attempt_at = NULL, settled_at = NULL, error_kind = 'unknown', in_doubt = true,
       error = CASE WHEN t.account_id = ANY(%(repeatable)s) THEN 'worker died while sending; repeated under the same id'
                    ELSE 'worker died while sending: it may have been delivered' END
 WHERE t.account_id = ANY(%(taken)s) AND t.status = 'sending'
RETURNING t.id, t.run_id, t.account_id, t.claim_epoch, t.claimed_at, t.parts_sent, t.attempts
"""

# Park a lane with its wake-up time, unless it was woken since it last looked. A lane that hands over goes behind those
# that have waited longer: with more accounts than capacity, they take turns.
LEAVE_LANES = """
UPDATE fanout_lanestate l
   SET holder = '', crashes = CASE WHEN p.failed THEN l.crashes + 1 ELSE 0 END,
       due_at = CASE WHEN l.poke = p.poke THEN p.due_at ELSE l.due_at END, why = p.why
  FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::timestamptz[], %s::text[], %s::bool[])
    AS p(account_id, epoch, poke, due_at, why, failed)
 WHERE l.account_id = p.account_id AND l.epoch = p.epoch
RETURNING l.account_id, l.crashes
"""

# Give back lanes that were locked and cannot be driven. The next holder settles their targets in flight.
GIVE_BACK = """
UPDATE fanout_lanestate SET holder = '', due_at = greatest(due_at, %s), why = %s
 WHERE account_id = ANY(%s) AND holder = %s
"""

LEAVE_UNREAD = """
UPDATE fanout_lanestate SET holder = '', crashes = crashes + 1, due_at = %(until)s, why = 'the account cannot be read'
 WHERE account_id = %(account)s RETURNING crashes
"""

NOTHING_DUE = "UPDATE fanout_lanestate SET due_at = NULL, crashes = 0 WHERE account_id = %s"

# --- crashes --------------------------------------------------------------------------------------------

# Holders of lanes whose lock was free although they had not given them back: dead, or cut off from the database.
LEFT_BY = "SELECT DISTINCT holder FROM fanout_lanestate WHERE account_id = ANY(%s) AND holder NOT IN ('', %s)"

# Drivers that left lanes behind without a crash: PostgreSQL was restarted, or they ended in order and it took no lane
# back (a full disk).
NOT_CRASHED = "(d.beat_at < pg_postmaster_start_time() OR d.ended_at IS NOT NULL)"

# A driver carries many lanes and one of them may be what kills it. After two crashes in a row without a delivery in
# between, a lane is a suspect. Where a dead driver held suspects, only they are counted again. A crash counts only
# against a lane that had something in flight, or workers killed from outside would suspend accounts that had no time to
# deliver.
COUNT_CRASH = f"""
WITH held AS (
  SELECT l.account_id, l.crashes >= %(suspect)s AS suspect,
         -- in flight under this holder: what an earlier one left is not its doing
         EXISTS (SELECT FROM fanout_runtarget t WHERE t.account_id = l.account_id AND t.status = 'sending'
                                                  AND t.claim_epoch = l.epoch) AS busy,
         NOT EXISTS (SELECT FROM fanout_driver d WHERE d.token = l.holder AND {NOT_CRASHED}) AS crashed
    FROM fanout_lanestate l WHERE l.holder = %(holder)s
   ORDER BY l.account_id FOR NO KEY UPDATE OF l
), suspects AS (SELECT count(*) FILTER (WHERE suspect) AS n FROM held)
UPDATE fanout_lanestate l
   SET holder = '', crashes = l.crashes + CASE WHEN held.crashed AND held.busy AND (held.suspect OR suspects.n = 0)
                                               THEN 1 ELSE 0 END
  FROM held, suspects WHERE l.account_id = held.account_id
RETURNING l.account_id, l.crashes, suspects.n = 1 AND held.suspect AS alone
"""

# A driver that does not beat but still holds its connection (stopped, or stuck) keeps its locks: end the connection.
# The epoch keeps the driver from claiming.
FREE_STUCK = """
SELECT d.slot, d.token, pg_terminate_backend(a.pid) AS freed
  FROM fanout_driver d JOIN pg_stat_activity a ON a.pid = d.backend_pid AND a.datname = current_database()
 WHERE d.ended_at IS NULL AND d.beat_at < clock_timestamp() - %(silent_after)s AND d.token <> %(mine)s
   AND a.backend_start < d.beat_at AND a.usename = current_user
"""

# Four times a second for all lanes held: returns only those that changed.
CHANGED_LANES = """
SELECT l.account_id, l.poke, l.epoch
  FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[]) AS mine(account_id, poke, epoch)
  JOIN fanout_lanestate l ON l.account_id = mine.account_id
 WHERE l.poke <> mine.poke OR l.epoch <> mine.epoch
"""
STILL_MINE = """
SELECT l.account_id, l.epoch FROM unnest(%s::bigint[], %s::bigint[]) AS mine(account_id, epoch)
  JOIN fanout_lanestate l ON l.account_id = mine.account_id AND l.epoch = mine.epoch
"""

# --- what a lane reads ----------------------------------------------------------------------------------

LANES = """
SELECT l.*, a.* FROM fanout_lanestate l JOIN accounts_account a ON a.id = l.account_id WHERE l.account_id = ANY(%s)
"""

# Account by account: with all of them in one array the planner compared it with every live run.
RUNS = f"""
SELECT r.* FROM fanout_run r
 WHERE r.id IN (SELECT live.id FROM unnest(%(accounts)s::bigint[]) AS a(id)
                 CROSS JOIN LATERAL (SELECT l.id FROM fanout_run l WHERE l.status IN {in_sql(Run.LIVE)}
                                                                    AND l.lanes && ARRAY[a.id]) AS live)
 ORDER BY {lane_order("r")}
"""

# The next targets of many lanes, each of one run: `w` is a lane's request, and `n` the request that a row is for.
#
# A run passes over recipients to whom an earlier live run still has to send: nothing overtakes. A follow-up also passes
# over people to whom another account is sending one at this moment. Message 2 follows only where something of Message 1
# has arrived (`answers`, null for every other run).
TARGETS = f"""
SELECT w.n, next.*
  FROM (SELECT run, account, now, open::bigint[], earlier::bigint[], follow_up, no_new_chats, answers, most, n
          FROM unnest(%s::bigint[], %s::bigint[], %s::timestamptz[], %s::text[], %s::text[], %s::bool[], %s::bool[],
                      %s::bigint[], %s::int[])
               WITH ORDINALITY
                 AS w(run, account, now, open, earlier, follow_up, no_new_chats, answers, most, n)) AS w
 CROSS JOIN LATERAL (
SELECT t.id, t.address, t.parts_sent, t.attempts, t.values, t.expires_at, p.status AS recipient_status,
       p.follow_up_attempts, p.cooldown_until, p.limited, {NEW_CHAT} AS new_chat,
       EXISTS (SELECT FROM fanout_runtarget f WHERE f.run_id = w.answers AND f.recipient_id = t.recipient_id
                                                AND f.parts_sent = 0) AS no_message_1,
       CASE WHEN s.expires_at IS NULL OR s.expires_at > w.now THEN coalesce(s.reason, '') ELSE '' END AS suppressed
  FROM fanout_runtarget t
  JOIN reminders_recipient p ON p.id = t.recipient_id
  LEFT JOIN reminders_suppression s ON s.address = t.address
 WHERE t.run_id = w.run AND t.account_id = w.account AND t.status = 'pending'
   AND (t.next_attempt_at IS NULL OR t.next_attempt_at <= w.now)
   AND NOT t.id = ANY(w.open)
   AND NOT EXISTS (SELECT FROM fanout_runtarget e
                    WHERE e.run_id = ANY(w.earlier) AND e.recipient_id = t.recipient_id
                      AND e.status IN ('pending', 'sending'))
   AND CASE WHEN w.follow_up THEN NOT {ANOTHER_UNDER_WAY} ELSE true END
   AND CASE WHEN w.no_new_chats THEN NOT {NEW_CHAT} ELSE true END
 ORDER BY t.position LIMIT w.most) AS next
"""

# The rest of a run when nothing was fetched: whether there is any, whether any of it is not held as a new chat, and
# when the first of that may be tried again.
REMAINING = "t.run_id = w.run AND t.account_id = w.account AND t.status = 'pending'"
FREE = f"""CASE WHEN w.no_new_chats THEN (SELECT NOT {NEW_CHAT} FROM reminders_recipient p WHERE p.id = t.recipient_id)
                  ELSE true END"""
NEXT_RETRY = f"""
SELECT EXISTS (SELECT FROM fanout_runtarget t WHERE {REMAINING}) AS pending,
       EXISTS (SELECT FROM fanout_runtarget t WHERE {REMAINING} AND {FREE}) AS free,
       (SELECT min(t.next_attempt_at) FROM fanout_runtarget t
         WHERE {REMAINING} AND t.next_attempt_at IS NOT NULL AND {FREE}) AS at
  FROM unnest(%s::bigint[], %s::bigint[], %s::bool[]) WITH ORDINALITY AS w(run, account, no_new_chats, n)
 ORDER BY w.n
"""

LIMITS = 'SELECT account_id, action, "limit" FROM accounts_dailylimit WHERE account_id = ANY(%s)'

UPLOADS = """
SELECT account_id, sha256, kind, handle, expires_at FROM fanout_mediaupload
 WHERE account_id = ANY(%s) AND sha256 = ANY(%s)
"""

REMEMBER_UPLOAD = """
INSERT INTO fanout_mediaupload (account_id, sha256, kind, handle, size, uploaded_at, expires_at)
VALUES (%s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (account_id, sha256, kind) DO UPDATE
   SET handle = excluded.handle, uploaded_at = excluded.uploaded_at, expires_at = excluded.expires_at
"""

# --- a run's course -------------------------------------------------------------------------------------

# Targets that a lane left when it stepped aside, once no other lane has anything to send. Account by account: each is
# one look into the index, however many targets there are.
LEFT_BEHIND = """
SELECT a.status, coalesce(r.slips -> a.id::text ->> 'why', '') AS why
  FROM fanout_run r, LATERAL jsonb_object_keys(r.slips) AS slipped(id), accounts_account a
 WHERE r.id = %(run)s AND r.sending = 0 AND a.id = slipped.id::bigint AND NOT a.id = ANY(r.lanes)
   AND EXISTS (SELECT FROM fanout_runtarget t WHERE t.run_id = r.id AND t.account_id = a.id AND t.status = 'pending')
   AND NOT EXISTS (SELECT FROM unnest(r.lanes) AS l(id), LATERAL (
                     SELECT FROM fanout_runtarget o
                      WHERE o.run_id = r.id AND o.account_id = l.id AND o.status = 'pending' LIMIT 1) AS owed)
 LIMIT 1
"""

# --- drivers --------------------------------------------------------------------------------------------

# The first free slot of this machine. A machine's slots are its own, so that each takes its share of the lanes.
LOCK_SLOT = """
SELECT slot FROM generate_series(0, %(slots)s - 1) AS slot
 WHERE pg_try_advisory_lock(%(space)s, hashtext(%(host)s || ':' || slot)) LIMIT 1
"""

# The row of the slot's last driver is replaced, and with it what COUNT_CRASH needs. So lanes of drivers that did not
# crash are freed here.
START_DRIVER = f"""
WITH left_behind AS (
  UPDATE fanout_lanestate SET holder = ''
   WHERE account_id IN (SELECT account_id FROM fanout_lanestate
                         WHERE holder IN (SELECT d.token FROM fanout_driver d WHERE {NOT_CRASHED})
                         ORDER BY account_id FOR NO KEY UPDATE)
)
INSERT INTO fanout_driver (host, slot, token, pid, backend_pid, started_at, beat_at, lanes)
VALUES (%(host)s, %(slot)s, %(token)s, %(pid)s, pg_backend_pid(), clock_timestamp(), clock_timestamp(), 0)
ON CONFLICT (host, slot) DO UPDATE SET token = excluded.token, pid = excluded.pid, backend_pid = excluded.backend_pid,
   started_at = excluded.started_at, beat_at = excluded.beat_at, ended_at = NULL, lanes = 0
"""

BEAT = "UPDATE fanout_driver SET beat_at = clock_timestamp(), lanes = %s WHERE token = %s RETURNING slot"

END_DRIVER = "UPDATE fanout_driver SET ended_at = clock_timestamp(), lanes = 0 WHERE token = %s"
