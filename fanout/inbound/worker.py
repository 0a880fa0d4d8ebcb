"""The inbound worker: works on stored events, one worker for the whole database at a time, so that they stay in order.

Opt-outs come first, also before what the same person said earlier: their address was suppressed when they came
(event_store.py), and the worker does the rest. Each event has a transaction of its own: its effect, and the note
of it. An effect that raises is tried again later, and after five tries the event is `failed` with the reason; meanwhile
only events of the same address wait behind it. Receipts are most of the volume: they are worked on in batches, and
their order does not matter (fanout.inbound.receipts).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta

from django.db import DatabaseError, InterfaceError, connection, transaction
from django.db.models import F
from django.db.models.functions import Greatest
from django.utils import timezone

from fanout.database import Row, execute
from fanout.inbound import bounces, complaints, known_ids, receipts, replies, sessions
from fanout.inbound.event_store import NotYet, ServerNotAccepted, look_again, put_off_while_held
from fanout.models import InboundEvent

log = logging.getLogger("crier.inbound")

State = InboundEvent.State

LOCK = 0x435248  # "CRH", beside those of fanout.engine.holding
PAUSE = 0.2  # seconds between two looks: a person who replied waits for Message 2
BATCH = 100
#: before each further try; after the last one it is failed
BACK_OFF = (5, 30, 120, 600)
MOST_ATTEMPTS = len(BACK_OFF) + 1
EFFECT_LENGTH = 500
#: How long a provider is asked for the sender of a message, and how often.
ASK_FOR, ASK_AGAIN = timedelta(days=3), timedelta(minutes=1)
#: how long an event waits for a row that another session has locked; then it is tried again later, behind the others
LOCK_TIMEOUT = "3s"


def run(seconds: float, stop_asked: Callable[[], bool]) -> bool:
    """Work on events as they come, for one slice. Returns False if another worker has the lock."""
    with worker_lock() as mine:
        # Django opens a new session where an error cost it the old one, and the lock went with that.
        session, ends = connection.connection, time.monotonic() + seconds
        while mine and connection.connection is session and time.monotonic() < ends and not stop_asked():
            if not step(timezone.now()):
                time.sleep(PAUSE)
    return mine


LOCK_IS_HELD = """
SELECT 1 AS held FROM pg_locks l JOIN pg_database d ON d.oid = l.database
 WHERE l.locktype = 'advisory' AND l.classid = %(lock)s AND l.objid = 0 AND d.datname = current_database()
"""


def is_running() -> bool:
    return bool(execute(LOCK_IS_HELD, {"lock": LOCK}))


@contextmanager
def worker_lock() -> Iterator[bool]:
    """Take the worker's lock and yield whether this session got it. The same session does the work: a session that is
    lost can finish nothing."""
    (row,) = execute("SELECT pg_try_advisory_lock(%(lock)s, 0) AS mine", {"lock": LOCK})
    if not row["mine"]:
        yield False
        return
    try:
        # What a crash of PostgreSQL takes back is new again and worked on again, so no commit waits for the disk.
        execute("SET synchronous_commit = off", {})
        execute(f"SET lock_timeout = '{LOCK_TIMEOUT}'", {})
        yield True
    finally:
        with suppress(DatabaseError, InterfaceError):
            execute("RESET synchronous_commit", {})
            execute("RESET lock_timeout", {})
            execute("SELECT pg_advisory_unlock(%(lock)s, 0)", {"lock": LOCK})


def step(now: datetime) -> int:
    """Do one round: opt-outs, what else is ready, in order, then a batch of receipts. Returns how many there were."""
    return work_on_opt_outs(now) + work_on_ready(now) + work_on_receipts(now)


# --- opt-outs ---------------------------------------------------------------------------------------------

OPT_OUTS = f"""
SELECT id FROM fanout_inboundevent
 WHERE state = 'new' AND opts_out AND (next_attempt_at IS NULL OR next_attempt_at <= %(now)s)
 ORDER BY id LIMIT {BATCH}
"""


def work_on_opt_outs(now: datetime) -> int:
    rows = execute(OPT_OUTS, {"now": now})
    for row in rows:
        work_on(row["id"], now)
    return len(rows)


# --- one event after the other ----------------------------------------------------------------------------

# Events of one line stay in order: those of one person, and those about one account.
LINE = "CASE kind WHEN 'session' THEN account_id::text ELSE address END"
# The lines in which an event waits for another try, and since which event; not those that only look again
# (`look_again`). They are few and have an index of their own. An opt-out holds up what came before it too.
WAITING_LINES = f"""
SELECT coalesce(jsonb_object_agg(line, since), '{{}}') AS waiting_lines
  FROM (SELECT {LINE} AS line, min(CASE WHEN opts_out THEN 0 ELSE id END) AS since FROM fanout_inboundevent
         WHERE state = 'new' AND kind NOT IN ('delivered', 'read') AND next_attempt_at IS NOT NULL
           AND next_attempt_at > %(now)s AND attempts > 0
         GROUP BY line) AS waiting
 WHERE line <> ''
"""
# What came behind such an event waits with it. Not a join: with the statistics of a minute ago it read all new events
# again for every single one. Each line is looked up in the object instead, independent of the planner.
READY = f"""
SELECT id, {LINE} AS line FROM fanout_inboundevent
 WHERE state = 'new' AND kind NOT IN ('delivered', 'read') AND NOT opts_out
   AND (next_attempt_at IS NULL OR next_attempt_at <= %(now)s)
   AND coalesce((%(waiting_lines)s::jsonb ->> ({LINE}))::bigint > id, true)
 ORDER BY id LIMIT {BATCH}
"""


def ready(now: datetime) -> list[Row]:
    """Return the next events, in order, each with its line."""
    (waiting,) = execute(WAITING_LINES, {"now": now})
    return execute(READY, {"now": now, **waiting})


def work_on_ready(now: datetime) -> int:
    rows = ready(now)
    waiting_lines: set[str] = set()
    for row in rows:
        # A batch may take seconds, and an opt-out that comes meanwhile must not wait for its end.
        work_on_opt_outs(now)
        if row["line"] not in waiting_lines and not work_on(row["id"], now) and row["line"]:
            waiting_lines.add(row["line"])
    return len(rows)


# Before the work: an event that kills its worker must not do so for ever.
BEGIN = """
UPDATE fanout_inboundevent SET attempts = attempts + 1 WHERE id = %(id)s AND state = 'new'
RETURNING attempts, address = '' AND detail ? 'jid' AS unnamed
"""


def work_on(pk: int, now: datetime) -> bool:
    """Work on one event. Returns False if it is tried again later, and what came after it waits. Nothing waits for an
    event that only looks again."""
    begun = execute(BEGIN, {"id": pk})
    if not begun:
        return True
    if begun[0]["attempts"] > MOST_ATTEMPTS:
        return _put_off(pk, MOST_ATTEMPTS, f"its worker ended {MOST_ATTEMPTS} times while it worked on this", now)
    try:
        if begun[0]["unnamed"]:
            known_ids.name_sender(pk, now)
        _do(pk, now)
    except known_ids.NotTold as problem:
        return _ask_later(pk, str(problem), now)
    except Exception as error:
        log.exception("an event could not be worked on", extra={"event": pk})
        return _put_off(pk, begun[0]["attempts"], f"{type(error).__name__}: {error}", now)
    return True


# One function per kind of event: it takes the stored event and returns in words what it did. It is called inside a
# transaction, in the order in which events of one address came, perhaps more than once for the same event (a worker may
# die after the effect and before the note of it): a second time must change nothing.
Kind = InboundEvent.Kind
Effect = Callable[[InboundEvent, datetime], str]

EFFECTS: dict[str, Effect] = {
    Kind.BOUNCE: bounces.bounced,
    Kind.REPLY: replies.reply,
    Kind.UNSUBSCRIBE: replies.unsubscribe,
    Kind.COMPLAINT: complaints.complained,
    Kind.AUTOMATIC: replies.automatic,
    Kind.WRITTEN: sessions.written_on_phone,
    Kind.SESSION: sessions.session_changed,
}

TAKE = "SELECT * FROM fanout_inboundevent WHERE id = %(id)s AND state = 'new' FOR UPDATE"
DONE = """
UPDATE fanout_inboundevent SET state = 'done', effect = %(effect)s, next_attempt_at = NULL
 WHERE id = %(id)s AND state = 'new'
"""


@transaction.atomic
def _do(pk: int, now: datetime) -> None:
    for event in InboundEvent.objects.raw(TAKE, {"id": pk}):
        try:
            effect = EFFECTS[event.kind](event, now)
        except NotYet:
            # In the same transaction: what the effect has done so far stays. The try that was begun does not count.
            InboundEvent.objects.filter(pk=pk).update(attempts=Greatest(F("attempts") - 1, 0))
            look_again([event], now)
            return
        except ServerNotAccepted:
            put_off_while_held(pk, now)
            return
        execute(DONE, {"id": pk, "effect": effect[:EFFECT_LENGTH]})


def _ask_later(pk: int, reason: str, now: datetime) -> bool:
    """Put off an event whose sender the provider did not tell. It may be a STOP: it is tried for days, and the tries do
    not count. Nothing waits for it."""
    event = InboundEvent.objects.filter(pk=pk, state=State.NEW)
    asked = {"attempts": Greatest(F("attempts") - 1, 0), "effect": reason.replace("\x00", "")[:EFFECT_LENGTH]}
    event.filter(came_at__gt=now - ASK_FOR).update(next_attempt_at=now + ASK_AGAIN, **asked)
    event.filter(came_at__lte=now - ASK_FOR).update(state=State.FAILED, next_attempt_at=None, **asked)
    return True


def _put_off(pk: int, attempts: int, reason: str, now: datetime) -> bool:
    """Put the event off; returns True after the last try, when nothing waits for it any more."""
    last = attempts >= MOST_ATTEMPTS
    until = None if last else now + timedelta(seconds=BACK_OFF[attempts - 1])
    InboundEvent.objects.filter(pk=pk, state=State.NEW).update(
        state=State.FAILED if last else State.NEW,
        next_attempt_at=until,
        effect=reason.replace("\x00", "")[:EFFECT_LENGTH],
    )
    return last


# --- receipts ---------------------------------------------------------------------------------------------


def work_on_receipts(now: datetime) -> int:
    events = receipts.ready(now)
    try:
        receipts.apply(events, now)
    except Exception:
        log.exception("receipts could not be worked on together: one by one")
        for event in events:
            _apply_alone(event, now)
    return len(events)


def _apply_alone(event: InboundEvent, now: datetime) -> None:
    try:
        receipts.apply([event], now)
    except Exception as error:
        InboundEvent.objects.filter(pk=event.pk).update(attempts=event.attempts + 1)
        _put_off(event.pk, event.attempts + 1, f"{type(error).__name__}: {error}", now)


# --- failed ones ------------------------------------------------------------------------------------------


def try_again(events: list[int]) -> int:
    """Make failed events new again, as if they had just come. Returns how many."""
    return InboundEvent.objects.filter(pk__in=events, state=State.FAILED).update(
        state=State.NEW, attempts=0, next_attempt_at=None, effect=""
    )
