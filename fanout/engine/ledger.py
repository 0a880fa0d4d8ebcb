"""Write claims, results and lane state of one driver: the only way from the engine to these rows.

Claims and results of all lanes of a driver are written together: those that have gathered while the last write was
under way go out as one transaction. A slow lane's result is written at once; a thousand busy lanes share a commit, or a
few: while PostgreSQL writes one commit, lanes work on the results of the last one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import psycopg

from fanout.database import Gathering, WriteAll
from fanout.engine.claim_journal import ClaimJournal
from fanout.engine.commit import (
    LOCKED_ROWS,
    Claim,
    ClaimEntry,
    Commit,
    LaneWrite,
    Locked,
    Result,
    Skip,
    Written,
    accounts_of,
    calls_of,
    columns,
    entries_of,
    ignore_written,
    never_sent,
    plain,
    recording,
)
from fanout.engine.connection import Link, Row, may_work_later
from fanout.engine.counters import FOLD, HotRuns
from fanout.engine.outbox import Outbox

log = logging.getLogger("crier.ledger")

Judge = Callable[[WriteAll], Awaitable[None]]
Question = TypeVar("Question")
Answer = TypeVar("Answer")

TIMES_EVERY = 10.0  # seconds
REFUSED_PAUSE = 1.0  # seconds after which a lane may try again to claim what the database could not grant
LOCKED_PAUSE = 5.0  # seconds for which an account waits that needs a locked row of a kind that we do not look up
#: entries of one commit that may meet a lock. Each takes the lock timeout, and the driver must beat in between.
MOST_LOCKED = 3
#: claims and results after which further lanes begin a new commit. Everything that 800 sends bring at once made lanes
#: and PostgreSQL wait for each other in turn; in parts of this size both work.
FULL = 200
WRITER_PATIENCE = 5.0  # seconds that the last write has before its connection is closed under it
CAUSES = ("pacing", "provider", "media", "retries", "waiting")


class LedgerLost(Exception):
    """The connection that held the locks is gone, and with it the right to claim."""


class Ledger:
    """Group-commits one driver's claims and results. `locks` holds the advisory locks and is the only connection that
    claims; `reads` serves look-ups, so that they never stand in the middle of a commit."""

    def __init__(
        self, locks: Link, reads: Link, outbox: Outbox | None = None, journal: ClaimJournal | None = None
    ) -> None:
        self.outbox = outbox if outbox is not None else Outbox()
        self.journal = journal  # None: commits of this database are never lost
        self.held = False  # nothing is claimed on this server until its history is accepted
        self.locks = locks
        self.reads = reads
        self.exclusive = asyncio.Lock()
        self.lost = asyncio.Event()
        self.commits = 0
        self._commit = Commit()  # what is handed in goes here
        self._full: deque[Commit] = deque()  # those before it, which wait for their turn
        self._commit_by_account: dict[int, Commit] = {}  # of lanes that have handed in something that waits
        self._gatherings: dict[Callable[..., Any], Gathering[Any, Any]] = {}
        self._times: dict[int, list[float]] = {}
        self._wake = asyncio.Event()
        self._in_hand: Commit | None = None  # being written right now
        self._hot = HotRuns()
        self._lanes: dict[int, LaneWrite] = {}  # as they were last stored
        self._locked = Locked()
        self._ending = False
        self._writer: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._writer = asyncio.create_task(self._write_commits())

    async def stop(self) -> None:
        """Write what is left, then close the connections. The writer ends by itself: cancelled inside a query on a
        dying connection, psycopg raises the server's error instead of the cancellation. Results that it could not write
        in time go to the outbox, and so do later ones."""
        if self._writer is not None:
            self._ending = True
            self._wake.set()
            await asyncio.wait({self._writer}, timeout=WRITER_PATIENCE)
            self._writer.cancel()
            await self._count_at_the_end()
        await self.close_connections()
        if self._writer is not None:
            await asyncio.wait({self._writer}, timeout=WRITER_PATIENCE)
        if not self.lost.is_set() or self._in_hand is not None:  # look-ups may have lost theirs while it was written
            self._keep_everything(self._in_hand or Commit())
            self._in_hand = None

    async def close_connections(self) -> None:
        for connection in (self.locks, self.reads):
            await connection.close()

    async def flushed(self) -> bool:
        """Wait until everything handed in so far is durable, or kept because the connection is lost. Returns False when
        some of it was refused."""
        # The commit that fills now is written after the one in hand, unless it is empty or the connection is lost.
        commit = self._commit if self._commit and not self.lost.is_set() else self._in_hand
        if commit is None:
            return True
        self._wake.set()
        await commit.written.wait()
        return not commit.refused

    # --- what lanes hand in -----------------------------------------------------------------------------

    async def claim(self, claims: list[Claim], lane: LaneWrite) -> set[int]:
        """Claim targets: durably `sending` when this returns. Returns the ids that were granted: none while results of
        the account are not stored, because those still count against its concurrency."""
        if self.lost.is_set():
            raise LedgerLost
        granted: asyncio.Future[set[int]] = asyncio.get_running_loop().create_future()
        commit = self._commit_of(lane.account_id)
        commit.claims.append((claims, granted))
        commit.hand_in_lane(lane)
        self._wake.set()
        return await granted

    async def record(self, result: Result, lane: LaneWrite | None = None) -> None:
        """Record a result: durable when this returns, or kept in the outbox until the database takes it."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.hand_in(result, lane, partial(_resolve, future))
        await future

    def hand_in(self, result: Result, lane: LaneWrite | None, written: Written) -> None:
        """Hand in a result: durable when `written` is called, or kept in the outbox. A claim that is made after this is
        never durable before it, and not granted while it is kept."""
        result.lane_after = lane
        if self.journal is not None:
            self.journal.answered(result)
        if self.lost.is_set():
            self.outbox.put([result])
            _tell(written, None)
            return
        self._put(result, lane, written)
        self._wake.set()

    def skip(self, target_id: int, run_id: int, why: str, at: datetime) -> None:
        self._commit.skips.append(Skip(target_id, run_id, plain(why), at))
        self._wake.set()

    def start_run(self, run_id: int, account_id: int, at: datetime) -> None:
        """Start a run. It is stored before the lane's next claim, in the same commit."""
        self._commit_of(account_id).starts[run_id] = at
        self._wake.set()

    def spent(self, run_id: int, cause: str, seconds: float) -> None:
        """Add seconds of a run by cause. They are only for a text, so they are not written every time."""
        times = self._times.setdefault(run_id, [0.0] * len(CAUSES))
        times[CAUSES.index(cause)] += seconds
        if sum(times) >= TIMES_EVERY:
            self.write_times(run_id)

    def write_times(self, run_id: int) -> None:
        """Hand in the run's seconds for the next commit."""
        if run_id in self._times:
            earlier = self._commit.times.get(run_id)
            times = self._times.pop(run_id)
            self._commit.times[run_id] = [a + b for a, b in zip(times, earlier)] if earlier else times

    def leave_lane(self, lane: LaneWrite) -> None:
        """Hand in what a lane has learnt since its last claim."""
        self._commit_of(lane.account_id).hand_in_lane(lane)
        self._wake.set()

    def _put(self, result: Result, lane: LaneWrite | None, written: Written) -> None:
        commit = self._commit_of(result.account_id)
        commit.results.append((result, written))
        if lane is not None:
            commit.hand_in_lane(lane)

    def _commit_of(self, account_id: int) -> Commit:
        """Return the commit for a lane: the one with its earlier entries while that waits and is not too large, so that
        its results and the claims that follow from them go out together."""
        commit = self._commit_by_account.get(account_id)
        if commit is None or commit.size >= 2 * FULL:
            if self._commit.size >= FULL:
                self._full.append(self._commit)
                self._commit = Commit()
            commit = self._commit_by_account[account_id] = self._commit
            commit.accounts.append(account_id)
        return commit

    # --- the group commit -------------------------------------------------------------------------------

    async def _write_commits(self) -> None:
        while not self.lost.is_set():
            if not self._ending:
                await self._wake.wait()
                await asyncio.sleep(0)  # lanes whose call has just ended claim the next target in this commit
            self._wake.clear()
            while (self._full or self._commit) and not self.lost.is_set():
                async with self.exclusive:
                    self._in_hand = self._next_commit()
                    await self._write_or_lose(self._in_hand)
                    self._in_hand.written.set()
                    self._in_hand = None
                if self._waits_for_a_lock():
                    break
                if not self._full:
                    # Lanes whose claims were granted just now claim again in this commit, not in the one after it.
                    await asyncio.sleep(0)
            if self._ending:
                return

    def _next_commit(self) -> Commit:
        if self._full:
            commit = self._full.popleft()
        else:
            commit, self._commit = self._commit, Commit()
        for account_id in commit.accounts:
            if self._commit_by_account[account_id] is commit:
                del self._commit_by_account[account_id]
        return commit

    async def _write_or_lose(self, commit: Commit) -> None:
        try:
            commit = await self._without_locked(commit)
            granted = await self._write(commit)
        except Exception as error:  # the writer goes on after any error: lanes wait for it
            if self.locks.closed:
                self._lose(commit, error)
            elif isinstance(error, psycopg.errors.LockNotAvailable):
                await self._write_unlocked(commit, error)
            else:
                log.warning(
                    "a commit was refused; writing its entries one by one: %s",
                    error,
                    exc_info=not may_work_later(error),
                )
                await self._write_one_by_one(commit)
        else:
            self._tell_claimers(commit, granted)

    async def _write_unlocked(self, commit: Commit, error: Exception) -> None:
        """Write a commit after a lock timeout: entries that need a locked row wait, the rest is written without
        them."""
        log.warning("a row is locked: %s", error)
        try:
            await self._look_for_locked(commit)
            commit = await self._without_locked(commit)
            self._tell_claimers(commit, await self._write(commit))
        except Exception as again:
            if self.locks.closed:
                self._lose(commit, again)
            else:
                await self._write_one_by_one(commit)

    async def _look_for_locked(self, commit: Commit | None = None) -> None:
        """Look which rows of the commit are locked, and which of those known to be locked still are."""
        known = self._locked
        rows = {
            "runs": [*known.runs, *(commit.runs() if commit else ())],
            "lanes": [*known.lanes, *(commit.lanes if commit else ())],
            "targets": [*known.targets, *(commit.targets() if commit else ())],
            "people": [*known.people, *(commit.people() if commit else ())],
        }
        known.update(await self.locks.query(LOCKED_ROWS, rows), time.monotonic())

    async def _without_locked(self, commit: Commit) -> Commit:
        """Return the part of a commit that can be written now. Of what needs rows that are still locked, results are
        kept, starts and lane states go with the next commit, and claims are refused after a moment: their lanes ask
        again."""
        if self._locked:
            await self._look_for_locked()
        if not self._locked:
            return commit
        free, held_up = commit.parted(self._locked)
        _refuse(held_up.claims)
        self._keep_results(held_up)
        if (held_up.starts or held_up.lanes) and not self._ending:
            held_up.go_before(self._full[0] if self._full else self._commit)
            asyncio.get_running_loop().call_later(REFUSED_PAUSE, self._wake.set)
        return free

    def _waits_for_a_lock(self) -> bool:
        """Return whether only entries of locked rows are left: they go with the next commit, or are tried after a
        pause. At once, the database would be asked without end."""
        return not self._full and self._commit.only_waits(self._locked)

    async def locked(self) -> Locked:
        """Return the rows that could not be locked in time and still cannot."""
        if self._locked and not self.lost.is_set():
            async with self.exclusive:
                await self._look_for_locked()
        return self._locked

    def unclaimable(self) -> set[int]:
        """Return targets that cannot be claimed at the moment, because another session has locked them or their
        person."""
        return self._locked.unclaimable()

    def lane_waits(self, account_id: int) -> bool:
        """Return whether the lane's state could not be written yet, because another session has locked it."""
        if account_id not in self._locked.lanes:
            return False
        return any(account_id in commit.lanes for commit in (*self._full, self._commit))

    async def _write(self, commit: Commit) -> set[int]:
        """Write a commit in one round trip and one transaction: results first, because they make room for claims."""
        self._refuse_claims_beside_unstored_results(commit)
        if commit.claims and not self.notes_claims():
            _refuse(commit.claims)
            commit.claims = []
        runs, now = commit.runs(), asyncio.get_running_loop().time()
        hot = self._hot.among(runs, now)
        same = {pk for pk, lane in commit.lanes.items() if lane.adds_nothing_to(self._lanes.get(pk))}
        calls = calls_of(commit, hot, same)
        if not calls:
            return set()
        self.commits += 1
        answers = await self.locks.call(calls)
        self._hot.written(runs, hot, now)
        self._lanes.update((pk, lane) for pk, lane in commit.lanes.items() if pk not in same)
        for (name, _), rows in zip(calls, answers):
            if name == "claim":
                return {row["id"] for row in rows}
        return set()

    def _refuse_claims_beside_unstored_results(self, commit: Commit) -> None:
        """Refuse claims of accounts whose results wait in the outbox. The database may refuse those and still take the
        claim: on a full disk only some tables have room."""
        if self.outbox:
            _refuse([entry for entry in commit.claims if self._waits(entry)])
            commit.claims = [entry for entry in commit.claims if not self._waits(entry)]

    def _waits(self, entry: ClaimEntry) -> bool:
        return any(self.outbox.holds(claim.account_id) for claim in entry[0])

    def notes_claims(self) -> bool:
        """Return whether this machine can note what it claims. Otherwise nothing is claimed: after lost commits it
        would be sent twice."""
        return self.journal is None or self.journal.can_write()

    def _tell_claimers(self, commit: Commit, granted: set[int]) -> None:
        if granted and self.journal is not None:  # before the providers are called
            noted = [c for claims, _ in commit.claims for c in claims if c.target_id in granted]
            if not self.journal.claimed(noted):
                self.outbox.put([never_sent(claim, "this machine could not note the claim") for claim in noted])
                granted = set()
        for claims, future in commit.claims:
            if not future.done():
                future.set_result({c.target_id for c in claims} & granted)
        for _, written in commit.results:
            _tell(written, None)

    def _lose(self, commit: Commit, error: BaseException) -> None:
        log.warning("lost the database connection: %s", error)
        self._keep_everything(commit)

    def _keep_everything(self, commit: Commit) -> None:
        self.lost.set()
        commits = (commit, *self._full, self._commit)
        self._full.clear()
        self._commit = Commit()
        for one in commits:
            self._keep(one)
            one.written.set()
            for _, future in one.claims:
                if not future.done():
                    future.set_exception(LedgerLost())

    def _keep(self, commit: Commit) -> None:
        """Keep a commit that may or may not have happened: results go to the outbox, and so do claims, as never
        sent. A claim that was granted already, because entries were written one by one, may be at its provider."""
        for claims, granted in commit.claims:
            if not granted.done() or granted.cancelled():
                self.outbox.put([never_sent(claim) for claim in claims])
        self._keep_results(commit)

    def _keep_results(self, commit: Commit) -> None:
        for result, written in commit.results:
            if not self.lost.is_set():
                result.lane_after = None  # the lane is still ours and writes its state itself
            self.outbox.put([result])
            _tell(written, None)

    async def _write_one_by_one(self, commit: Commit) -> None:
        """Write the entries of a commit one by one, so that a refused entry does not take the others with it."""
        locked = 0
        for entry in entries_of(commit):
            if locked and (locked >= MOST_LOCKED or not self._locked.accounts.keys().isdisjoint(accounts_of(entry))):
                self._put_off(entry)
                continue
            try:
                granted = await self._write(entry)
            except Exception as error:
                if isinstance(error, psycopg.errors.LockNotAvailable):
                    locked += 1
                    self._let_wait(accounts_of(entry))
                if self._in_hand is not None:
                    self._in_hand.refused = True
                self._not_written(entry, error)
            else:
                self._tell_claimers(entry, granted)

    def _let_wait(self, accounts: Iterable[int]) -> None:
        """Let accounts wait for a lock that we do not know: the rows that we look up are free."""
        self._locked.accounts |= dict.fromkeys(accounts, time.monotonic() + LOCKED_PAUSE)

    def _put_off(self, entry: Commit) -> None:
        self._keep_results(entry)
        _refuse(entry.claims)
        if self._in_hand is not None:
            self._in_hand.refused = True

    def _not_written(self, entry: Commit, error: Exception) -> None:
        if self.locks.closed:
            self._lose(entry, error)
        elif may_work_later(error):
            self._put_off(entry)
        else:
            for _, written in entry.results:
                _tell(written, error)
            for _, granted in entry.claims:
                if not granted.done():
                    granted.set_exception(error)

    async def count_appended(self) -> None:
        """Bring the counters of runs up to date whose changes were appended."""
        now = asyncio.get_running_loop().time()
        if runs := self._hot.due(now):
            for row in await self.write(FOLD, {"runs": runs}):
                self._hot.counted(row["ids"], now)

    async def _count_at_the_end(self) -> None:
        if runs := self._hot.uncounted:
            try:
                await asyncio.wait_for(self.write(FOLD, {"runs": sorted(runs)}), WRITER_PATIENCE)
            except (LedgerLost, psycopg.Error, TimeoutError) as error:
                log.warning("counters are brought up to date by the next driver, or within a minute: %s", error)

    async def write_late(self, results: list[Result], judge: Judge | None = None) -> bool:
        """Write results of an earlier connection. `judge` writes what follows from them, in the same transaction.
        Returns whether there was one."""
        lanes_after = {result.account_id: result.lane_after for result in results if result.lane_after is not None}
        commit = Commit(results=[(result, ignore_written) for result in results], lanes=lanes_after)
        try:
            async with self.together() as write:
                await self.locks.call(calls_of(commit))
                if judge is not None:
                    await judge(write)
        except psycopg.errors.LockNotAvailable:
            async with self.exclusive:
                await self._look_for_locked(commit)
            if judge is None and len(results) == 1 and not self._locked.holds_up(results[0]):
                self._let_wait(accounts_of(commit))
            raise
        return judge is not None

    # --- single statements, off the hot path ------------------------------------------------------------

    async def write(self, statement: str, parameters: Any = None) -> list[Row]:
        """Execute a rare statement in order with claims and results."""
        return await self._run(self.locks, statement, parameters)

    async def read(self, statement: str, parameters: Any = None) -> list[Row]:
        return await self._run(self.reads, statement, parameters)

    async def gathered(
        self, ask_all: Callable[[Ledger, list[Question]], Awaitable[list[Answer]]], question: Question
    ) -> Answer:
        """Return the answer of `ask_all`, which is asked for all lanes together. See `Gathering`."""
        gathering = self._gatherings.get(ask_all)
        if gathering is None:
            gathering = self._gatherings[ask_all] = Gathering(partial(ask_all, self))
        answer: Answer = await gathering(question)
        return answer

    async def _run(self, link: Link, statement: str, parameters: Any) -> list[Row]:
        if self.lost.is_set():
            raise LedgerLost
        try:
            if link is not self.locks:
                return await link.query(statement, parameters)
            async with self.exclusive:
                return await link.query(statement, parameters)
        except psycopg.OperationalError as error:
            if not link.closed:
                raise
            self._lose(Commit(), error)
            raise LedgerLost from error

    @asynccontextmanager
    async def together(self) -> AsyncIterator[WriteAll]:
        """Open a transaction, in order with claims and results, and yield the function that writes statements in it."""
        if self.lost.is_set():
            raise LedgerLost
        async with self.exclusive:
            try:
                await self.locks.query("BEGIN")
                yield self.locks.script
                await self.locks.query("COMMIT")
            except BaseException as error:
                if self.locks.closed:
                    self._lose(Commit(), error)
                    raise LedgerLost from error
                await self.locks.query("ROLLBACK")
                raise

    async def rehearse(self, results: list[Result]) -> None:
        """Store results and take them back, inside `together`. Raises the database's error if it refuses them for its
        own state; bad data it would refuse at any time."""
        await self.locks.query("SAVEPOINT rehearsal")
        try:
            await self.locks.call([recording(results)])
        except psycopg.Error as error:
            if may_work_later(error):
                raise
            log.warning("a result could not be stored: %s", error)
        await self.locks.query("ROLLBACK TO SAVEPOINT rehearsal")

    async def still_mine(self, account_id: int, epoch: int) -> bool:
        """Return whether the lane is still ours, on the connection that holds the lock: a process that slept learns
        here that it lost it."""
        try:
            return await self.gathered(_still_mine, (account_id, epoch))
        except LedgerLost:
            return False


def _tell(written: Written, error: BaseException | None) -> None:
    """Call `written`. An error in it must not stop the writer, for which all lanes wait."""
    try:
        written(error)
    except Exception:
        log.exception("a lane could not be told that a result was written")


def _resolve(future: asyncio.Future[None], error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)


def _refuse(claims: Iterable[ClaimEntry]) -> None:
    """Refuse claims after a moment: their lanes ask again at once."""
    for _, granted in claims:
        asyncio.get_running_loop().call_later(REFUSED_PAUSE, _answer_claim, granted)


def _answer_claim(granted: asyncio.Future[set[int]]) -> None:
    if not granted.done():
        granted.set_result(set())


STILL_MINE = """
SELECT l.account_id, l.epoch FROM unnest(%s::bigint[], %s::bigint[]) AS mine(account_id, epoch)
  JOIN fanout_lanestate l ON l.account_id = mine.account_id AND l.epoch = mine.epoch
"""


async def _still_mine(ledger: Ledger, lanes: list[tuple[int, int]]) -> list[bool]:
    rows = await ledger.write(STILL_MINE, columns(lanes))
    mine = {(row["account_id"], row["epoch"]) for row in rows}
    return [lane in mine for lane in lanes]
