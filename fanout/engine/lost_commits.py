"""Recognise a database that lacks commits, before anything is claimed there.

An asynchronous standby that is promoted lacks what had not reached it, and a restored backup lacks what came after it:
messages that have gone out are `pending` there. A session cannot outlive a promotion or a restore, so drivers check
when they connect (`check`), before they write anything:

1. Is it the history that we know (KnownServer), and has it the last heartbeats of this machine? Then all is well.
2. Otherwise the machine compares its claim journal. Lost claims are repeated as `unconfirmed`, the safe assumption, and
   the answers that the journal or the outbox has are stored on top of that.
3. The history is accepted when every machine that drove lanes has compared and none has lost anything. If one has, or
   does not come back, nothing is claimed until an operator confirms (fanout/runs/recovery.py).

The point at which timelines part is readable only for superusers. Heartbeats are ordinary rows and say the same.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from psycopg.types.json import Jsonb

from fanout.database import LOCK_RUNS, carry_out_with
from fanout.engine.claim_journal import Beat, ClaimJournal, Compared, NotedClaim, pruned_until
from fanout.engine.commit import columns
from fanout.engine.connection import Row
from fanout.engine.ledger import Ledger
from fanout.runs.recovery import (
    EPOCHS_APART,
    judge,
    next_generation,
    tell_all,
)
from fanout.runs.server import History, server_history
from fanout.runs.texts import MAY_HAVE_GONE_OUT

log = logging.getLogger("crier.lost_commits")

AT_ONCE = 1_000  # claims that are repeated in one transaction

IDS_APART = 10_000
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)

KNOWN = "SELECT * FROM fanout_knownserver WHERE id = 1"
FIRST = "INSERT INTO fanout_knownserver (id, why, machines) VALUES (1, '', '{}') ON CONFLICT DO NOTHING"
LOCK_KNOWN = f"{KNOWN} FOR UPDATE"
# One statement: another driver that accepts a new installation meanwhile beats right after that.
KNOWN_AND_BEATEN = "SELECT k.*, EXISTS (SELECT FROM fanout_driver) AS beaten FROM fanout_knownserver k WHERE id = 1"
BEATS = "SELECT host, slot, beat_at FROM fanout_driver WHERE host = ANY(%(hosts)s)"

# Machines that drove lanes when the history ended: the beats of all of them are from then.
EXPECTED = """
WITH latest AS (SELECT max(beat_at) AS at FROM fanout_driver)
SELECT d.host, bool_and(d.synchronous) AS synchronous FROM fanout_driver d, latest
 WHERE CASE WHEN d.ended_at IS NULL THEN d.beat_at > latest.at - interval '1 minute'
            ELSE d.ended_at > latest.at - interval '10 seconds' END
 GROUP BY d.host
"""


async def check(ledger: Ledger) -> bool:
    """Return whether sending is held up on this server."""
    journal = ledger.journal
    if journal is None:
        return False
    noted = journal.last_beats()  # before the rows are read: other drivers of this machine go on
    async with ledger.together() as write:
        (history,) = await carry_out_with(write, [server_history()])
        rows, beats = await write([(KNOWN, {}), (BEATS, {"hosts": _hosts(journal, noted)})])
    known = rows[0] if rows else None
    if known is None or not _is_known(known, history) or not journal.is_up_to_date(known["generation"]):
        return await _compare(ledger, journal, history)
    if _lost(noted, known["generation"], beats):
        return await _compare(ledger, journal, history)
    journal.now_in(known["generation"])
    return False


def _hosts(journal: ClaimJournal, noted: Sequence[Beat]) -> list[str]:
    return sorted({journal.host, *(beat.host for beat in noted)})


def _is_known(known: Row, history: History) -> bool:
    same = (known["system_identifier"], known["timeline"]) == history
    return same and not known["held"] and known["new_timeline"] is None


def _lost(noted: Sequence[Beat], generation: int, rows: Sequence[Row]) -> list[Beat]:
    """Return the heartbeats of this machine that the database has lost."""
    there = {(row["host"], row["slot"]): row["beat_at"] for row in rows}
    return [
        beat
        for beat in noted
        if beat.generation > generation
        or (beat.generation == generation and there.get((beat.host, beat.slot), LONG_AGO) < beat.at)
    ]


async def _compare(ledger: Ledger, journal: ClaimJournal, history: History) -> bool:
    """Compare the journal, report what was found and decide. Several drivers of a machine may do it, and each reports
    every second until there is a decision."""
    await ledger.write(FIRST)
    (known,) = await ledger.write(KNOWN_AND_BEATEN)
    is_new = known["timeline"] is None and known["new_timeline"] is None and not known["held"]
    # A journal that knows of a generation, and drivers that have beaten here: a backup from before the upgrade.
    if is_new and not (known["beaten"] and journal.latest_generation()):
        return await _accept_first(ledger, journal, history)
    if journal.compared is None or journal.compared.server != (*history, known["generation"]):
        journal.compared = await _compare_journal(ledger, journal, known["generation"])
        journal.compared.server = (*history, known["generation"])
    reported = await _report(ledger, journal, history, journal.compared)
    if reported is None:
        return True
    journal.settle(journal.compared, reported)
    journal.now_in(reported)
    journal.compared = None
    return False


async def _compare_journal(ledger: Ledger, journal: ClaimJournal, generation: int) -> Compared:
    noted = journal.last_beats()
    rows = await ledger.write(BEATS, {"hosts": _hosts(journal, noted)})
    lost_beats = _lost(noted, generation, rows)
    durable: dict[int, datetime] = {}
    for row in rows:
        durable[row["slot"]] = max(row["beat_at"], durable.get(row["slot"], row["beat_at"]))
    compared = journal.compare(generation, durable)
    lost = await _repeat(ledger, journal, compared, absent_too=bool(lost_beats))
    compared.lost = len(lost) if lost or lost_beats else None
    compared.unknown_until = _unknown_until(journal, lost_beats, rows)
    compared.lost_since = min([beat.at for beat in lost_beats] + [claim.at for claim in lost], default=None)
    return compared


def _unknown_until(journal: ClaimJournal, lost: Sequence[Beat], rows: Sequence[Row]) -> datetime | None:
    """Return until when the database lacks commits that the journal no longer has, either; None: it reaches back."""
    there = {(row["host"], row["slot"]): row["beat_at"] for row in rows}
    pruned = pruned_until(journal.folder)
    since = min((there.get((beat.host, beat.slot), LONG_AGO) for beat in lost), default=None)
    return pruned if pruned is not None and since is not None and since < pruned else None


async def _accept_first(ledger: Ledger, journal: ClaimJournal, history: History) -> bool:
    """Accept the history of a new installation, or after the upgrade to this version."""
    accept = (
        "UPDATE fanout_knownserver SET system_identifier = %s, timeline = %s, generation = 1"
        " WHERE id = 1 AND timeline IS NULL AND NOT held RETURNING generation"
    )
    await ledger.write(accept, (history.system_identifier, history.timeline))
    journal.now_in(1)
    return False


# --- lost claims ------------------------------------------------------------------------------------------

CLAIMS = """
  FROM unnest(%(targets)s::bigint[], %(runs)s::bigint[], %(accounts)s::bigint[], %(epochs)s::bigint[],
              %(parts)s::int[], %(times)s::timestamptz[], %(addresses)s::text[])
    AS c(target_id, run_id, account_id, epoch, part, at, address)
"""

# The epoch of a lane only grows, so it tells which of two claims of one lane came later.
HAS_CLAIM = """coalesce(CASE WHEN t.account_id = c.account_id THEN (t.claim_epoch, t.claimed_at) >= (c.epoch, c.at)
                             ELSE t.claimed_at >= c.at END, false)"""

# Of these claims, those that the database has lost. A target that was erased or deleted is not among them.
LOST = f"""
SELECT c.target_id, t.id IS NOT NULL AS found {CLAIMS}
  LEFT JOIN fanout_runtarget t ON t.id = c.target_id AND (t.address = c.address OR t.run_id = c.run_id)
 WHERE t.id IS NULL OR (t.status IN ('pending', 'sending') AND t.address = c.address AND NOT {HAS_CLAIM})
"""

# As the claim would have left it, and uncertain. An answer that comes later fits this claim and settles it.
REPEAT = f"""
UPDATE fanout_runtarget t
   SET status = 'unconfirmed', claim_epoch = c.epoch, claimed_at = c.at, parts_sent = greatest(t.parts_sent, c.part),
       attempts = t.attempts + 1, next_attempt_at = NULL, settled_at = NULL, error_kind = 'unknown', in_doubt = true,
       error = %(why)s
{CLAIMS}
 WHERE t.id = c.target_id AND t.address = c.address AND t.status IN ('pending', 'sending') AND NOT {HAS_CLAIM}
"""

NOTE_LOST = """
INSERT INTO fanout_lostclaim (account_id, target_id, run_id, reminder_id, scheduled_for, address, part, claimed_at,
                              host, answer, target_found, noticed_at)
SELECT l.account_id, l.target_id, l.run_id, l.reminder_id, l.scheduled_for, l.address, l.part, l.claimed_at,
       %(host)s, a.answer, a.found, clock_timestamp()
  FROM unnest(%(accounts)s::bigint[], %(targets)s::bigint[], %(runs)s::bigint[], %(reminders)s::bigint[],
              %(moments)s::timestamptz[], %(addresses)s::text[], %(parts)s::int[], %(times)s::timestamptz[])
       WITH ORDINALITY AS l(account_id, target_id, run_id, reminder_id, scheduled_for, address, part, claimed_at, n)
  JOIN unnest(%(answers)s::text[], %(found)s::bool[]) WITH ORDINALITY AS a(answer, found, n) USING (n)
ON CONFLICT DO NOTHING
"""


async def _repeat(ledger: Ledger, journal: ClaimJournal, compared: Compared, absent_too: bool) -> list[NotedClaim]:
    """Repeat the claims that the database has lost, as unconfirmed, and hand the known answers to the outbox. Returns
    the lost claims. Targets that the database does not know count only where it is known to lack commits
    (`absent_too`): otherwise they were deleted."""
    lost: list[NotedClaim] = []
    for chunk in _chunks(sorted(compared.claims.values(), key=lambda claim: claim.target_id)):
        rows = {row["target_id"]: row["found"] for row in await ledger.write(LOST, _parameters(chunk))}
        # Also where only the answer is lost. One that is stored already matches nothing.
        answers = [compared.results[claim.key] for claim in chunk if claim.key in compared.results]
        ledger.outbox.put([answer for answer in answers if rows.get(answer.target_id, True)])
        missing = [
            claim
            for claim in chunk
            if rows.get(claim.target_id) is True
            or (claim.target_id in rows and (absent_too or claim.target_id in compared.certain))
        ]
        if not missing:
            continue
        found = [claim for claim in missing if rows[claim.target_id]]
        async with ledger.together() as write:
            repeated = _parameters(found) | {"why": MAY_HAVE_GONE_OUT}
            await write([(LOCK_RUNS, repeated), (REPEAT, repeated)])
            await write([(NOTE_LOST, _lost_rows(missing, rows, compared, journal.host))])
        lost += missing
    return lost


def _chunks(claims: Sequence[NotedClaim]) -> Iterator[Sequence[NotedClaim]]:
    for first in range(0, len(claims), AT_ONCE):
        yield claims[first : first + AT_ONCE]


def _parameters(claims: Sequence[NotedClaim]) -> dict[str, Any]:
    rows = [(c.target_id, c.run_id, c.account_id, c.epoch, c.part, c.at, c.address) for c in claims]
    names = ("targets", "runs", "accounts", "epochs", "parts", "times", "addresses")
    return dict(zip(names, columns(rows) if rows else ["{}"] * len(names)))


def _lost_rows(claims: Sequence[NotedClaim], found: dict[int, bool], compared: Compared, host: str) -> dict[str, Any]:
    more = [(c.reminder_id, c.scheduled_for, _answer(compared, c), found[c.target_id]) for c in claims]
    return _parameters(claims) | dict(zip(("reminders", "moments", "answers", "found"), columns(more))) | {"host": host}


def _answer(compared: Compared, claim: NotedClaim) -> str:
    result = compared.results.get(claim.key)
    if result is None:
        return ""
    return "sent" if result.activity == "sent" else result.status


# --- the decision -----------------------------------------------------------------------------------------

UPDATE = """
UPDATE fanout_knownserver
   SET system_identifier = %(system_identifier)s, timeline = %(timeline)s, generation = %(generation)s,
       new_system_identifier = %(new_system_identifier)s, new_timeline = %(new_timeline)s, noticed_at = %(noticed_at)s,
       machines = %(machines)s, held = %(held)s, why = %(why)s, lost_since = %(lost_since)s
 WHERE id = 1
"""

# Ids that were given away before must not be given to other targets: providers recognise repeats by them.
SKIP_IDS = """
SELECT setval(sequence, greatest(%(latest)s, nextval(sequence)) + %(apart)s)
  FROM pg_get_serial_sequence('fanout_runtarget', 'id') AS sequence
"""
# A lane that another session has locked must not keep drivers from connecting: it is raised later. Returns those.
RAISE_EPOCHS = """
WITH free AS (
  SELECT account_id FROM fanout_lanestate WHERE %(lanes)s::bigint[] IS NULL OR account_id = ANY(%(lanes)s)
   ORDER BY account_id FOR NO KEY UPDATE SKIP LOCKED
), raised AS (
  UPDATE fanout_lanestate l SET epoch = epoch + %(apart)s FROM free WHERE l.account_id = free.account_id
  RETURNING l.account_id
)
SELECT account_id FROM fanout_lanestate
 WHERE (%(lanes)s::bigint[] IS NULL OR account_id = ANY(%(lanes)s)) AND account_id NOT IN (TABLE raised)
"""
NOW = "SELECT clock_timestamp() AS now"


async def _report(ledger: Ledger, journal: ClaimJournal, history: History, compared: Compared) -> int | None:
    """Report what this machine has found, under the lock of the only row. Returns the new generation when sending may
    go on."""
    async with ledger.together() as write:
        (known,), (clock,), expected = await write([(LOCK_KNOWN, {}), (NOW, {}), (EXPECTED, {})])
        lacking = compared.lost is not None
        if _is_known(known, history) and (not lacking or compared.reported):
            return int(known["generation"])  # another machine or driver was the last to answer
        now = clock["now"]
        if (known["new_system_identifier"], known["new_timeline"]) != history:
            known |= {"new_system_identifier": history.system_identifier, "new_timeline": history.timeline}
            # What an earlier fail-over has lost is still to be confirmed.
            lost_before = {host: found for host, found in known["machines"].items() if found["lost"] is not None}
            known |= {"noticed_at": now, "machines": {row["host"]: _silent(row) for row in expected} | lost_before}
            log.warning("another history of the database: timeline %s of %s", history.timeline, history[0])
        earlier = known["machines"].get(journal.host)
        known["machines"] = known["machines"] | {journal.host: _found(journal, compared, earlier)}
        began = [at for at in (compared.lost_since, known["lost_since"]) if at is not None]
        known["lost_since"] = min(began, default=None)
        complete, why = judge(known["machines"], now - known["noticed_at"])
        accepted = _accepted(known, history) if complete else None
        if complete is False and not known["held"]:
            await write([tell_all(why, now)])
            log.error("nothing is sent until an operator confirms: %s", why)
        if lacking and not compared.reported:
            latest = {"latest": compared.target_id, "apart": IDS_APART}
            _, locked = await write([(SKIP_IDS, latest), (RAISE_EPOCHS, {"apart": EPOCHS_APART, "lanes": None})])
            known["machines"][journal.host]["locked"] = [row["account_id"] for row in locked]
        elif lanes := known["machines"][journal.host]["locked"]:
            (locked,) = await write([(RAISE_EPOCHS, {"apart": EPOCHS_APART, "lanes": lanes})])
            known["machines"][journal.host]["locked"] = [row["account_id"] for row in locked]
        known |= {"held": complete is False, "why": why} | (accepted or {})
        await write([(UPDATE, {**known, "machines": Jsonb(known["machines"])})])
    compared.reported = True
    return known["generation"] if accepted else None


def _silent(row: Row) -> dict[str, Any]:
    return {"answered": False, "lost": None, "synchronous": row["synchronous"], "generation": 0}


def _found(journal: ClaimJournal, compared: Compared, earlier: dict[str, Any] | None) -> dict[str, Any]:
    """Return this machine's answer. A journal with gaps proves that something is missing, and never that nothing is."""
    before = earlier or {"answered": not journal.last_beats()}  # not awaited: perhaps a new machine
    counts = [n for n in (compared.lost, before.get("lost")) if n is not None]
    counted = max(counts, default=None)
    unknown = compared.unknown_until
    return {
        "answered": before["answered"] or journal.survived or counted is not None,
        "lost": counted,
        "synchronous": bool(before.get("synchronous")),
        "generation": compared.generation,
        "locked": before.get("locked", []),
        "unknown_until": unknown.isoformat() if unknown is not None else before.get("unknown_until"),
    }


def _accepted(known: Row, history: History) -> Row:
    return {
        "system_identifier": history.system_identifier,
        "timeline": history.timeline,
        "generation": next_generation(known["generation"], known["machines"]),
        "new_system_identifier": None,
        "new_timeline": None,
        "noticed_at": None,
        "machines": {},
        "lost_since": None,
    }
