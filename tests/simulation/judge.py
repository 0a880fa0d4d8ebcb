"""The invariants, asked at every call to the provider, whenever a process has died, and at the end.

What was delivered is what the provider's book says.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from accounts.channels.sandbox.book import MemoryBook
from fanout.engine import holding
from fanout.engine.clock import VirtualClock
from tests.engine.sessions import SESSIONS
from tests.simulation.processes import Process
from tests.simulation.schedule import Schedule

AT_THE_CALL = """
SELECT t.status, t.parts_sent, t.claimed_at, t.address, t.run_id, r.window_closes_at,
       (SELECT count(*) FROM fanout_runtarget o
         WHERE o.account_id = t.account_id AND o.status = 'sending') AS in_flight,
       ARRAY(SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND classid = %(space)s
                AND objid = t.account_id AND objsubid = 2
                AND database = (SELECT oid FROM pg_database WHERE datname = current_database())) AS holders
  FROM fanout_runtarget t JOIN fanout_run r ON r.id = t.run_id WHERE t.id = %(target)s
"""

# The row of a run and the changes that were appended since.
BOOKS = """
SELECT r.id, r.account_id, r.status, r.pending + c.pending AS n_pending, r.sending + c.sending AS n_sending,
       (r.total, r.pending + c.pending, r.sending + c.sending, r.sent + c.sent, r.failed + c.failed,
        r.skipped + c.skipped, r.unconfirmed + c.unconfirmed)
     = (t.total, t.pending, t.sending, t.sent, t.failed, t.skipped, t.unconfirmed) AS balanced
  FROM fanout_run r
  CROSS JOIN LATERAL (
    SELECT coalesce(sum(pending), 0) AS pending, coalesce(sum(sending), 0) AS sending, coalesce(sum(sent), 0) AS sent,
           coalesce(sum(failed), 0) AS failed, coalesce(sum(skipped), 0) AS skipped,
           coalesce(sum(unconfirmed), 0) AS unconfirmed
      FROM fanout_runchange WHERE run_id = r.id AND id > r.counted_to) AS c
  CROSS JOIN LATERAL (
    SELECT count(*) AS total, count(*) FILTER (WHERE status = 'pending') AS pending,
           count(*) FILTER (WHERE status = 'sending') AS sending, count(*) FILTER (WHERE status = 'sent') AS sent,
           count(*) FILTER (WHERE status = 'failed') AS failed, count(*) FILTER (WHERE status = 'skipped') AS skipped,
           count(*) FILTER (WHERE status = 'unconfirmed') AS unconfirmed
      FROM fanout_runtarget WHERE run_id = r.id) AS t
 WHERE r.account_id = ANY(%(accounts)s) AND t.total > 0
"""

DUE_AND_FREE = """
SELECT l.account_id FROM fanout_lanestate l
 WHERE l.account_id = ANY(%(accounts)s) AND l.due_at <= %(now)s AND l.holder = ''
   AND EXISTS (SELECT FROM fanout_runtarget t JOIN fanout_run r ON r.id = t.run_id
                WHERE t.account_id = l.account_id AND t.status = 'pending' AND l.account_id = ANY(r.lanes)
                  AND r.status IN ('queued', 'running', 'waiting'))
"""
STANDSTILL = 60.0  # virtual seconds
JUDGING = "judges a play"

TARGETS = """
SELECT t.id, t.account_id, t.status, t.parts_sent, t.in_doubt
  FROM fanout_runtarget t WHERE t.account_id = ANY(%(accounts)s)
"""


class Violated(AssertionError):
    """An invariant does not hold."""


class Judge:
    def __init__(self, info: str, clock: VirtualClock, book: MemoryBook, schedules: Mapping[int, Schedule]) -> None:
        self.info = info
        self.connection, _ = SESSIONS.take(info, JUDGING)
        self.connection.prepare_threshold = 5
        self.clock = clock
        self.book = book
        self.schedules = schedules
        self.calls: dict[int, list[float]] = {account: [] for account in schedules}
        #: runs, accounts and addresses that must not be sent for, and since when
        self.stopped: dict[tuple[str, Any], datetime] = {}
        self.violations: list[str] = []
        self.due_since: dict[int, float] = {}  # lanes with work that no process has, and since when
        self.lost_some = False  # a process died or was cut off: what it had in flight is uncertain

    def close(self) -> None:
        SESSIONS.give_back(self.connection, self.info, JUDGING)

    def _complain(self, account: int, what: str) -> None:
        self.violations.append(f"account {account} at {self.clock.now():%H:%M:%S.%f}: {what}")

    def _rows(self, statement: str, **parameters: Any) -> list[dict[str, Any]]:
        return self.connection.execute(statement, parameters).fetchall()

    # --- at a call --------------------------------------------------------------------------------------

    def witness(self, process: Process, account: int, message_id: str, part: int) -> None:
        (row,) = self._rows(AT_THE_CALL, space=holding.LANE_LOCKS, target=int(message_id.split("-")[1]))
        self._the_window_is_open(account, row)
        self._nobody_stopped_it(account, row)
        self._the_pace_holds(account)
        self._places_are_free(account, row)
        if process.locks is not None and not process.locks.closed:
            # Without its connection a process may still begin what it was granted a moment ago.
            self._it_is_claimed(account, row, part)
            self._one_sender(account, row, process.locks.connection.info.backend_pid)

    def _the_window_is_open(self, account: int, row: dict[str, Any]) -> None:
        if self.clock.now() >= row["window_closes_at"]:
            self._complain(account, "a call began after the window had closed")

    def _nobody_stopped_it(self, account: int, row: dict[str, Any]) -> None:
        for what in (("run", row["run_id"]), ("account", account), ("address", row["address"])):
            if what in self.stopped and row["claimed_at"] > self.stopped[what]:
                self._complain(account, f"claimed although the {what[0]} was stopped")

    def _the_pace_holds(self, account: int) -> None:
        """Check that between any two calls there are no more than the rate allows, a full bucket and one more, because
        the process may crash after a late call, before that is stored."""
        schedule, calls = self.schedules[account], self.calls[account]
        now = self.clock.monotonic()
        calls.append(now)
        for n, began in enumerate(calls):
            if len(calls) - n > schedule.burst + 1 + schedule.rate * (now - began) / 60 + 0.001:
                self._complain(account, f"{len(calls) - n} calls in {now - began:.1f} s")

    def _places_are_free(self, account: int, row: dict[str, Any]) -> None:
        places = self.schedules[account].concurrency
        if row["in_flight"] > places:
            self._complain(account, f"{row['in_flight']} in flight on {places} places")

    def _it_is_claimed(self, account: int, row: dict[str, Any], part: int) -> None:
        if row["status"] != "sending":
            self._complain(account, f"a call for a target that is {row['status']}")
        # Where repeats are recognised, what was in flight is tried again although its answer may still come in.
        if part > row["parts_sent"] or (part < row["parts_sent"] and not self.schedules[account].repeats):
            self._complain(account, f"part {part} although {row['parts_sent']} are sent")

    def _one_sender(self, account: int, row: dict[str, Any], mine: int) -> None:
        if row["holders"] != [mine]:
            self._complain(account, "a call without the account's lock")

    # --- when something has happened --------------------------------------------------------------------

    def look(self) -> None:
        accounts = list(self.schedules)
        self._the_books_balance(self._rows(BOOKS, accounts=accounts))
        self._never_twice()
        received = self._received()
        for target in self._rows(TARGETS, accounts=accounts):
            self._never_lost(target, received.get(target["id"], set()))

    def _the_books_balance(self, runs: list[dict[str, Any]]) -> None:
        for run in runs:
            if not run["balanced"]:
                self._complain(run["account_id"], "the books do not balance")
            if run["status"] in ("success", "partial", "failed") and run["n_pending"] + run["n_sending"]:
                self._complain(run["account_id"], "finished with something to send")

    def _never_twice(self) -> None:
        # Across accounts: what is moved to another one must not be sent by both.
        for (message_id,) in self.book.duplicates("message_id"):
            self._complain(0, f"{message_id} was delivered twice")

    def _received(self) -> dict[int, set[int]]:
        """The parts that the provider has, by target."""
        received: dict[int, set[int]] = {}
        for delivery in self.book.deliveries():
            _, target, part, _ = delivery.message_id.split("-")
            received.setdefault(int(target), set()).add(int(part))
        return received

    def _never_lost(self, target: dict[str, Any], parts: set[int]) -> None:
        sure = set(range(target["parts_sent"]))
        doubt = (
            {target["parts_sent"]} if target["in_doubt"] or target["status"] in ("sending", "unconfirmed") else set()
        )
        if not sure <= parts <= sure | doubt:
            self._complain(
                target["account_id"], f"{target['status']} with {len(sure)} parts; the provider has {sorted(parts)}"
            )

    # --- at the end -------------------------------------------------------------------------------------

    def look_for_standstill(self) -> None:
        """Check that no lane with something to send is due for a minute while no process drives it."""
        now = self.clock.monotonic()
        rows = self._rows(DUE_AND_FREE, now=self.clock.now(), accounts=list(self.schedules))
        due = {row["account_id"] for row in rows}
        self.due_since = {account: self.due_since.get(account, now) for account in due}
        for account, since in self.due_since.items():
            if now - since > STANDSTILL:
                self._complain(account, "has had work for a minute, and no process drives it")

    def at_the_end(self, undriven: list[str]) -> None:
        self.look()
        for what in undriven:
            self._complain(0, f"no lane drives it: {what}")
        for run in self._rows(BOOKS, accounts=list(self.schedules)):
            if run["status"] == "paused" and not run["n_pending"] + run["n_sending"]:
                self._complain(run["account_id"], "paused with nothing left to send")
        for target in self._rows(TARGETS, accounts=list(self.schedules)):
            if target["status"] == "sending":
                self._complain(target["account_id"], "still in flight when everybody has left")
            if target["status"] == "unconfirmed" and not self._may_be_uncertain(target["account_id"]):
                self._complain(target["account_id"], "unconfirmed although the provider always answered")

    def _may_be_uncertain(self, account: int) -> bool:
        effects = {fault["effect"] for fault in self.schedules[account].provider["faults"]}
        return self.lost_some or bool(effects & {"drop_after_accept", "hang"})
