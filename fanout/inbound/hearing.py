"""Works on what came in: one worker for the whole database at a time, so that events are worked on in order.

Each event has a transaction of its own: its effect, and the note of it. What raises is tried again later, and after
five tries it is `failed` with the reason; meanwhile only events of the same address wait behind it. Receipts are most
of the volume: they are worked on in batches, and the order does not matter to them (fanout.inbound.receipts).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta

from django.db import DatabaseError, InterfaceError, connection, transaction
from django.utils import timezone

from fanout.inbound import receipts
from fanout.inbound.effects import EFFECTS
from fanout.inbound.not_yet import NotYet, look_again
from fanout.lanes.statements import execute
from fanout.models import InboundEvent

log = logging.getLogger("crier.hearing")

State = InboundEvent.State

LOCK = 0x435248  # "CRH", beside those of fanout.engine.sql
PAUSE = 0.2  # seconds between two looks: a person who replied waits for Message 2
BATCH = 100
#: before each further try; after the last one it is failed
BACK_OFF = (5, 30, 120, 600)
MOST_ATTEMPTS = len(BACK_OFF) + 1
EFFECT_LENGTH = 500


def listen(seconds: float, stop_asked: Callable[[], bool]) -> bool:
    """Work on events as they come, for one slice. False: somebody else is at it."""
    with alone() as mine:
        # Django opens a new session where an error cost it the old one, and the lock went with that.
        session, ends = connection.connection, time.monotonic() + seconds
        while mine and connection.connection is session and time.monotonic() < ends and not stop_asked():
            if not step(timezone.now()):
                time.sleep(PAUSE)
    return mine


HELD = """
SELECT 1 AS held FROM pg_locks l JOIN pg_database d ON d.oid = l.database
 WHERE l.locktype = 'advisory' AND l.classid = %(lock)s AND l.objid = 0 AND d.datname = current_database()
"""


def somebody_listens() -> bool:
    return bool(execute(HELD, {"lock": LOCK}))


@contextmanager
def alone() -> Iterator[bool]:
    """Whether this session got the lock. It also does the work: a session that is lost can finish nothing."""
    (row,) = execute("SELECT pg_try_advisory_lock(%(lock)s, 0) AS mine", {"lock": LOCK})
    if not row["mine"]:
        yield False
        return
    try:
        # What a crash of PostgreSQL takes back is new again and worked on again, so no commit waits for the disk.
        execute("SET synchronous_commit = off", {})
        yield True
    finally:
        with suppress(DatabaseError, InterfaceError):
            execute("RESET synchronous_commit", {})
            execute("SELECT pg_advisory_unlock(%(lock)s, 0)", {"lock": LOCK})


def step(now: datetime) -> int:
    """One round: what is ready, in order, then a batch of receipts. How many there were."""
    return work_on_ready(now) + work_on_receipts(now)


# --- one event after the other ----------------------------------------------------------------------------

# What must happen in order: what one person did, and what became of one account.
LINE = "CASE {0}.kind WHEN 'session' THEN {0}.account_id::text ELSE {0}.address END"
# An event waits while an earlier one of its line waits for another try, not while that only looks again (`not_yet`).
READY = f"""
SELECT e.id, {LINE.format("e")} AS line FROM fanout_inboundevent e
 WHERE e.state = 'new' AND e.kind NOT IN ('delivered', 'read')
   AND (e.next_attempt_at IS NULL OR e.next_attempt_at <= %(now)s)
   AND NOT EXISTS (SELECT FROM fanout_inboundevent w
                    WHERE w.state = 'new' AND w.kind NOT IN ('delivered', 'read') AND w.next_attempt_at > %(now)s
                      AND w.attempts > 0
                      AND {LINE.format("w")} = {LINE.format("e")} AND {LINE.format("w")} <> '' AND w.id < e.id)
 ORDER BY e.id LIMIT {BATCH}
"""


def work_on_ready(now: datetime) -> int:
    rows = execute(READY, {"now": now})
    held_up: set[str] = set()
    for row in rows:
        if row["line"] not in held_up and not work_on(row["id"], now) and row["line"]:
            held_up.add(row["line"])
    return len(rows)


# Before the work: an event that kills its worker must not do so for ever.
BEGIN = """
UPDATE fanout_inboundevent SET attempts = attempts + 1 WHERE id = %(id)s AND state = 'new' RETURNING attempts
"""


def work_on(pk: int, now: datetime) -> bool:
    """False: it is tried again later, and what came after it waits. Nothing waits for one that only looks again."""
    begun = execute(BEGIN, {"id": pk})
    if not begun:
        return True
    if begun[0]["attempts"] > MOST_ATTEMPTS:
        return _put_off(pk, MOST_ATTEMPTS, f"its worker ended {MOST_ATTEMPTS} times while it worked on this", now)
    try:
        _do(pk, now)
    except NotYet:
        look_again(pk, now)
    except Exception as error:
        log.exception("an event could not be worked on", extra={"event": pk})
        return _put_off(pk, begun[0]["attempts"], f"{type(error).__name__}: {error}", now)
    return True


@transaction.atomic
def _do(pk: int, now: datetime) -> None:
    rows = InboundEvent.objects.filter(pk=pk, state=State.NEW)
    for event in rows.select_for_update(of=("self",)).select_related("account"):
        effect = EFFECTS[event.kind](event, now)
        rows.update(state=State.DONE, effect=effect[:EFFECT_LENGTH], next_attempt_at=None)


def _put_off(pk: int, attempts: int, reason: str, now: datetime) -> bool:
    """True: it was the last try, and nothing waits for it any more."""
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


def again(events: list[int]) -> int:
    """Failed events are new again, as if they had just come. How many they were."""
    return InboundEvent.objects.filter(pk__in=events, state=State.FAILED).update(
        state=State.NEW, attempts=0, next_attempt_at=None, effect=""
    )
