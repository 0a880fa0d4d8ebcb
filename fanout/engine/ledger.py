"""The only code that writes run-target states, activity and lane state while sending.

Claims and results of all lanes of a driver are written together: whatever has gathered while the last write
was under way goes out as one transaction. A slow lane's result is written at once; a thousand busy lanes
share a commit.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any, NamedTuple

import psycopg

from fanout.engine import sql
from fanout.engine.connection import Call, Link, Row
from fanout.rules.pace import PaceState
from fanout.runs import follow_ups

log = logging.getLogger("crier.ledger")

TIMES_EVERY = 10.0  # seconds
WRITER_PATIENCE = 5.0  # seconds that the last write has before its connection is closed under it
WRITTEN_AT_ONCE = 500  # late results in one transaction
CAUSES = ("pacing", "provider", "media", "retries", "waiting")


class LedgerLost(Exception):
    """The connection that held the locks is gone, and with it the right to claim."""


@dataclass(slots=True)
class LaneWrite:
    """A lane's durable state, as of one claim or result."""

    account_id: int
    epoch: int
    pace: PaceState
    sample: str
    sample_run: int | None
    probing: bool
    at: datetime
    claimed_at: datetime | None = None
    delivered: bool = False


@dataclass(slots=True)
class Claim:
    target_id: int
    run_id: int
    account_id: int
    epoch: int
    at: datetime
    mono: float = 0.0  # the same moment, for durations
    # Of a follow-up that begins: to whom. Nobody gets two at once.
    follow_up_to: str = ""


@dataclass(slots=True)
class Result:
    """What came of one claimed part."""

    target_id: int
    run_id: int
    account_id: int
    epoch: int
    claimed_at: datetime
    status: str
    parts_sent: int
    attempts: int
    at: datetime
    action: str = ""
    part: int = 0
    activity: str = ""
    retry_at: datetime | None = None
    latency_ms: int | None = None
    provider_id: str = ""
    kind: str = ""
    error: str = ""
    suppress: str = ""
    # Of a follow-up that went out whole: whose attempts it counts.
    follow_up_to: str = ""


class Skip(NamedTuple):
    """A target that gets nothing, and why."""

    target_id: int
    run_id: int
    why: str
    at: datetime


@dataclass(slots=True)
class Batch:
    """What has gathered for the next commit."""

    claims: list[tuple[list[Claim], asyncio.Future[set[int]]]] = field(default_factory=list)
    results: list[tuple[Result, asyncio.Future[None] | None]] = field(default_factory=list)
    skips: list[Skip] = field(default_factory=list)
    lanes: dict[int, LaneWrite] = field(default_factory=dict)
    times: dict[int, list[float]] = field(default_factory=dict)
    written: asyncio.Event = field(default_factory=asyncio.Event)

    def __bool__(self) -> bool:
        return bool(self.claims or self.results or self.skips or self.lanes or self.times)

    def runs(self) -> list[int]:
        """The runs whose counters this batch changes, in the order in which everybody locks them."""
        ids = {claim.run_id for claims, _ in self.claims for claim in claims}
        ids.update(result.run_id for result, _ in self.results)
        ids.update(skip.run_id for skip in self.skips)
        return sorted(ids.union(self.times))

    def people(self) -> list[str]:
        """The addresses of whose attempts this batch asks or tells."""
        people = {claim.follow_up_to for claims, _ in self.claims for claim in claims}
        people.update(result.follow_up_to for result, _ in self.results)
        return sorted(people - {""})


class Outbox:
    """What providers answered and nobody could write yet. It outlives connections and slices: one per process."""

    def __init__(self) -> None:
        self._results: deque[Result] = deque()

    def __len__(self) -> int:
        return len(self._results)

    def put(self, results: list[Result]) -> None:
        self._results.extend(results)

    async def write(self, ledger: Ledger) -> list[Result]:
        """A bounded number, taken out only when they are durable. Returns what was written."""
        results = list(islice(self._results, WRITTEN_AT_ONCE))
        if results:
            await self._write(ledger, results)
        for _ in results:
            self._results.popleft()
        return results

    async def _write(self, ledger: Ledger, results: list[Result]) -> None:
        try:
            await ledger.write_late(results)
        except psycopg.OperationalError:
            raise  # it may work later
        except psycopg.Error as error:
            if len(results) == 1:  # the database will never take it, and must not keep the others waiting
                log.error("a result was refused: %s", error, extra={"target": results[0].target_id})
                return
            for result in results:
                await self._write(ledger, [result])


def plain(text: str, limit: int = 500) -> str:
    """A provider's words, fit for a column: PostgreSQL takes no NUL and no half characters."""
    if text.isascii() and "\x00" not in text:
        return text[:limit]
    return text.replace("\x00", "")[:limit].encode("utf-8", "replace").decode()


class Ledger:
    """One driver's hand on the books. `locks` holds the advisory locks and is the only connection that
    claims; `reads` serves look-ups, so that they never stand in the middle of a commit."""

    def __init__(self, locks: Link, reads: Link, outbox: Outbox | None = None) -> None:
        self.outbox = outbox if outbox is not None else Outbox()
        self.locks = locks
        self.reads = reads
        self.exclusive = asyncio.Lock()
        self.lost = asyncio.Event()
        self.commits = 0
        self._batch = Batch()
        self._times: dict[int, list[float]] = {}
        self._wake = asyncio.Event()
        self._in_hand: Batch | None = None  # being written right now
        self._ending = False
        self._writer: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._writer = asyncio.create_task(self._write_batches())

    async def stop(self) -> None:
        """Write what is left, then let go of the connections. The writer ends by itself: cancelled inside a query on
        a dying connection, psycopg raises the server's error instead of the cancellation."""
        if self._writer is not None:
            await self.settled()
            self._ending = True
            self._wake.set()
            await asyncio.wait({self._writer}, timeout=WRITER_PATIENCE)
            self._writer.cancel()
        await self.close_connections()
        if self._writer is not None:
            await asyncio.wait({self._writer}, timeout=WRITER_PATIENCE)

    async def close_connections(self) -> None:
        for connection in (self.locks, self.reads):
            await connection.close()

    async def settled(self) -> None:
        """Returns when everything handed in so far is durable (or the connection is lost)."""
        if self.lost.is_set():
            return
        batch = self._batch or self._in_hand
        if batch is not None:
            self._wake.set()
            await batch.written.wait()

    # --- what lanes hand in -----------------------------------------------------------------------------

    async def claim(self, claims: list[Claim], lane: LaneWrite) -> set[int]:
        """Durably `sending` when this returns; the ids that were granted."""
        if self.lost.is_set():
            raise LedgerLost
        granted: asyncio.Future[set[int]] = asyncio.get_running_loop().create_future()
        self._batch.claims.append((claims, granted))
        self._hand_in_lane(lane)
        self._wake.set()
        return await granted

    async def record(self, result: Result, lane: LaneWrite | None = None) -> None:
        """Durable when this returns. With the connection lost it is kept for the next one."""
        if self.lost.is_set():
            self.outbox.put([result])
            return
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._batch.results.append((result, written))
        if lane is not None:
            self._hand_in_lane(lane)
        self._wake.set()
        await written

    def skip(self, target_id: int, run_id: int, why: str, at: datetime) -> None:
        self._batch.skips.append(Skip(target_id, run_id, plain(why), at))
        self._wake.set()

    def spent(self, run_id: int, cause: str, seconds: float) -> None:
        """Seconds of a run by cause. They are for a text, so they are written only now and then."""
        times = self._times.setdefault(run_id, [0.0] * len(CAUSES))
        times[CAUSES.index(cause)] += seconds
        if sum(times) >= TIMES_EVERY:
            self.write_times(run_id)

    def write_times(self, run_id: int) -> None:
        """With the next commit."""
        if run_id in self._times:
            earlier = self._batch.times.get(run_id)
            times = self._times.pop(run_id)
            self._batch.times[run_id] = [a + b for a, b in zip(times, earlier)] if earlier else times

    def leave_lane(self, lane: LaneWrite) -> None:
        """What a lane has learnt since its last claim."""
        self._hand_in_lane(lane)
        self._wake.set()

    def _hand_in_lane(self, lane: LaneWrite) -> None:
        earlier = self._batch.lanes.get(lane.account_id)
        if earlier is not None:
            lane.claimed_at = lane.claimed_at or earlier.claimed_at
            lane.delivered = lane.delivered or earlier.delivered
        self._batch.lanes[lane.account_id] = lane

    # --- the group commit -------------------------------------------------------------------------------

    async def _write_batches(self) -> None:
        while not self.lost.is_set() and not self._ending:
            await self._wake.wait()
            self._wake.clear()
            if not self._batch:
                continue
            async with self.exclusive:
                self._in_hand, self._batch = self._batch, Batch()
                await self._write_or_lose(self._in_hand)
                self._in_hand.written.set()
                self._in_hand = None

    async def _write_or_lose(self, batch: Batch) -> None:
        try:
            granted = await self._write(batch)
        except Exception as error:  # whatever it is, the writer goes on: lanes wait for it
            if self.locks.closed:
                self._lose(batch, error)
            else:
                log.exception("a batch was refused; writing its entries one by one")
                await self._write_one_by_one(batch)
        else:
            self._answer(batch, granted)

    async def _write(self, batch: Batch) -> set[int]:
        """One round trip, one transaction: results first, because a slot they free may be claimed below."""
        self.commits += 1
        calls = _calls(batch)
        answers = await self.locks.call(calls)
        for (name, _), rows in zip(calls, answers):
            if name == "claim":
                return {row["id"] for row in rows}
        return set()

    def _answer(self, batch: Batch, granted: set[int]) -> None:
        for claims, future in batch.claims:
            if not future.done():
                future.set_result({c.target_id for c in claims} & granted)
        for _, written in batch.results:
            if written is not None and not written.done():
                written.set_result(None)

    def _lose(self, batch: Batch, error: BaseException) -> None:
        """The connection is gone, and with it the right to claim."""
        log.warning("lost the database connection: %s", error)
        self.lost.set()
        batches = (batch, self._batch)
        self._batch = Batch()
        for one in batches:
            self._keep(one)
            one.written.set()
            for _, future in one.claims:
                if not future.done():
                    future.set_exception(LedgerLost())

    def _keep(self, batch: Batch) -> None:
        """The commit may or may not have happened. What the provider answered waits in the outbox; a claim whose
        commit is in doubt was never sent, and that waits there too."""
        for claims, _ in batch.claims:
            self.outbox.put([never_sent(claim) for claim in claims])
        for result, written in batch.results:
            self.outbox.put([result])
            if written is not None and not written.done():
                written.set_result(None)

    async def _write_one_by_one(self, batch: Batch) -> None:
        """One entry that the database refuses must not take the others with it."""
        for entry in _entries(batch):
            try:
                granted = await self._write(entry)
            except Exception as error:
                if self.locks.closed:
                    self._lose(entry, error)
                elif isinstance(error, psycopg.OperationalError):  # a deadlock, a full disk: it may work later
                    self._keep(entry)
                for _, future in [*entry.claims, *entry.results]:
                    if future is not None and not future.done():
                        future.set_exception(error)
            else:
                self._answer(entry, granted)

    async def write_late(self, results: list[Result]) -> None:
        """Results of an earlier connection."""
        if self.lost.is_set():
            raise LedgerLost
        try:
            async with self.exclusive:
                await self.locks.call(_calls(Batch(results=[(result, None) for result in results])))
        except psycopg.OperationalError as error:
            if not self.locks.closed:
                raise
            self._lose(Batch(), error)
            raise LedgerLost from error

    # --- single statements, off the hot path ------------------------------------------------------------

    async def write(self, statement: str, parameters: Any = None) -> list[Row]:
        """A rare statement that must be in order with claims and results."""
        return await self._run(self.locks, statement, parameters)

    async def read(self, statement: str, parameters: Any = None) -> list[Row]:
        return await self._run(self.reads, statement, parameters)

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
            self._lose(Batch(), error)
            raise LedgerLost from error

    @asynccontextmanager
    async def together(self) -> AsyncIterator[Callable[..., Awaitable[list[Row]]]]:
        """Rare statements that must happen all or not at all."""
        if self.lost.is_set():
            raise LedgerLost
        async with self.exclusive:
            try:
                await self.locks.query("BEGIN")
                yield self.locks.query
                await self.locks.query("COMMIT")
            except BaseException as error:
                if self.locks.closed:
                    self._lose(Batch(), error)
                    raise LedgerLost from error
                await self.locks.query("ROLLBACK")
                raise

    async def still_mine(self, account_id: int, epoch: int) -> bool:
        """Asked on the connection that holds the lock: a process that slept learns here that it lost it."""
        try:
            return bool(await self.write(sql.STILL_MINE, (account_id, epoch)))
        except LedgerLost:
            return False


def never_sent(claim: Claim) -> Result:
    return Result(
        claim.target_id,
        claim.run_id,
        claim.account_id,
        claim.epoch,
        claim.at,
        "pending",
        -1,
        -1,
        claim.at,
        kind="network",
        error="the database went away before the provider was called",
    )


def columns(rows: Iterable[tuple[Any, ...]]) -> list[str]:
    """Rows turned into the arrays that unnest takes, spelled out here: psycopg takes half a millisecond to find
    out what is in them."""
    return ["{" + ",".join([_SPELL[type(value)](value) for value in column]) + "}" for column in zip(*rows)]


def _quoted(text: str) -> str:
    if not text:
        return '""'
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


_SPELL: dict[type, Callable[[Any], str]] = {
    int: str,
    float: repr,
    bool: lambda value: "t" if value else "f",
    datetime: datetime.isoformat,
    str: _quoted,
    type(None): lambda value: "NULL",
}


def _calls(batch: Batch) -> list[Call]:
    """The batch as prepared statements, in the order in which they must happen."""
    # Two drivers may share runs, and operators lock a run before its targets: everybody takes them in this order.
    runs = batch.runs()
    calls: list[Call] = [("lock_runs", [f"{{{','.join(map(str, runs))}}}"])] if runs else []
    if people := batch.people():
        calls.append(("lock_people", columns((address,) for address in people)))
    if batch.skips:
        calls.append(("skip", columns((skip.target_id, skip.why, skip.at) for skip in batch.skips)))
    if batch.results:
        results = [result for result, _ in batch.results]
        calls.append(_recording(results))
        suppress = [(plain(r.suppress), plain(r.error), r.at) for r in results if r.suppress]
        if suppress:
            calls.append(("suppress", columns(suppress)))
    if batch.claims:
        rows = [(c.target_id, c.account_id, c.epoch, c.at) for c in _one_to_each(batch)]
        calls.append(("claim", [*columns(rows), str(follow_ups.limits().attempts)]))
    # Runs before lanes, as the controls lock them; each in the order of their ids.
    if batch.times:
        calls.append(("times", columns((run_id, *batch.times[run_id]) for run_id in sorted(batch.times))))
    if batch.lanes:
        calls.append(("pace", columns(_lane_row(batch.lanes[account]) for account in sorted(batch.lanes))))
    return calls


def _recording(results: list[Result]) -> Call:
    rows = columns(map(_result_row, results))
    if not any(result.follow_up_to for result in results):
        return "record", rows
    return "record_follow_ups", [*rows, *follow_ups.limits_in_sql()]


def _one_to_each(batch: Batch) -> Iterator[Claim]:
    """The claims, of several follow-ups to one person only the first: one statement sees none of its own grants."""
    people: set[str] = set()
    for claim in (claim for claims, _ in batch.claims for claim in claims):
        if claim.follow_up_to not in people:
            yield claim
        if claim.follow_up_to:
            people.add(claim.follow_up_to)


def _lane_row(lane: LaneWrite) -> tuple[Any, ...]:
    pace = lane.pace
    return (
        lane.account_id,
        lane.epoch,
        pace.tat,
        pace.next_send_at,
        pace.batch_sent,
        pace.slow_factor,
        lane.sample,
        lane.sample_run,
        lane.probing,
        lane.claimed_at,
        lane.at,
        lane.delivered,
    )


def _result_row(r: Result) -> tuple[Any, ...]:
    return (
        r.target_id,
        r.epoch,
        r.claimed_at,
        r.status,
        r.parts_sent,
        r.attempts,
        r.retry_at,
        r.at,
        r.latency_ms,
        plain(r.provider_id, 200),
        r.kind,
        plain(r.error),
        r.account_id,
        r.action,
        r.part,
        r.activity,
    )


def _entries(batch: Batch) -> list[Batch]:
    return [
        *(Batch(skips=[skip]) for skip in batch.skips),
        *(Batch(results=[result]) for result in batch.results),
        # A claim never goes without the pace it was computed for.
        *(
            Batch(claims=[entry], lanes={c.account_id: batch.lanes[c.account_id] for c in entry[0]})
            for entry in batch.claims
        ),
        *(Batch(lanes={key: lane}) for key, lane in batch.lanes.items()),
        *(Batch(times={key: seconds}) for key, seconds in batch.times.items()),
    ]
