"""Hold lanes for one slice and drive them.

A driver takes the advisory locks of accounts that have work due, drives their lanes in one asyncio loop, and hands over
after a slice of about 40 seconds. It never waits for a lock: a lane that another driver holds is not taken.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple, TypeVar

import psycopg

from accounts.channels.base import AccountConfig, Transport
from fanout.engine import closing, holding, loading, lost_commits
from fanout.engine.clock import Clock
from fanout.engine.commit import Result, columns, plain
from fanout.engine.connection import CONNECT_LIMIT, Row, may_work_later
from fanout.engine.dispatcher import Dispatcher
from fanout.engine.lane_loop import UNSTORED, Lane, Sleep
from fanout.engine.ledger import LOCKED_PAUSE, WRITER_PATIENCE, Ledger, LedgerLost
from fanout.engine.outbox import Outbox
from fanout.lanes import lane_rows
from fanout.lanes.lane_rows import wake_statement
from fanout.rules.liveness import DRIVER_SILENT_AFTER

log = logging.getLogger("crier.driver")

TICK = 0.25  # seconds between two looks at what is due
# Lanes are taken a little ahead, so that thousands that become due in the same second send in it. At least half of the
# capacity stays free for lanes that are due at once.
AHEAD = timedelta(seconds=3)
TAKEN_AT_ONCE = 250  # lanes: the first of them send while the others are being taken
BEAT_EVERY = 1.0
RECONNECT_PAUSE = 0.2
STORE_AGAIN_AFTER = 1.0  # seconds between two tries while the database refuses the results in the outbox
SUCCESSOR_WITHIN = timedelta(seconds=3)  # a driver's way through the queue: until then its slot has a share
FREE_FOR_ALL_AFTER = SUCCESSOR_WITHIN  # a due lane that no driver took for so long is taken beyond our share
FAILED_DRIVER_PAUSE = 1.0
FAILED_LANE_PAUSE = timedelta(seconds=5)
REFUSED_LANE_PAUSE = timedelta(seconds=1)  # one that could not be taken over because a row was locked
# For a lane whose results could not be stored. The process that has them stores them and wakes the lane.
UNSTORED_LANE_PAUSE = timedelta(seconds=15)
# After the slice, lanes with a slow provider end first, while the others go on and lanes that become due are taken.
# Then all lanes stop, and the last calls have their 12 seconds.
WIND_DOWN = 35.0
GIVE_UP_AFTER = 13.0  # a call may take 12 s
LOCKED_RESULTS_FOR = 3.0  # seconds that the end of a slice waits for results whose rows are locked
LOCKED_LANES_FOR = 1.0  # seconds that the end of a slice waits for lanes whose rows another session has locked
TAKE_LANES_FOR = WIND_DOWN - GIVE_UP_AFTER  # a lane taken by then can end within the wind-down, however slow it is
CLOSE_LIMIT = 1.0  # seconds for closing all transports
LAST_WRITES = 15.0  # seconds at the end for reaching a database that is away, to store known results
# The longest that a driver takes when it is asked to stop, and at the end of its slice. The time limits of its task and
# of the processes that stop a cluster are longer (tests/engine/test_time_limits.py).
LONGEST_STOP = GIVE_UP_AFTER + 2 * WRITER_PATIENCE + LAST_WRITES + CONNECT_LIMIT + CLOSE_LIMIT
LONGEST_END = WIND_DOWN + LONGEST_STOP

Answer = TypeVar("Answer")
OpenLedger = Callable[[Outbox], Awaitable[Ledger]]
MakeTransport = Callable[[AccountConfig], Transport]


@dataclass(frozen=True, slots=True)
class LockSpaces:
    """The namespaces of a driver's advisory locks. A simulation has its own: its account 1 is not the site's."""

    lanes: int = holding.LANE_LOCKS
    slots: int = holding.SLOT_LOCKS


@dataclass(frozen=True, slots=True)
class Options:
    capacity: int
    slice_seconds: float
    slots: int
    spaces: LockSpaces
    seed: int | None
    tick_seconds: float
    silent_after: timedelta  # by the database's clock, also where ours is a virtual one


@dataclass(slots=True)
class Identity:
    """The slot of its machine that a driver holds, and the token that it writes into the lanes it holds."""

    host: str = field(default_factory=socket.gethostname)
    slot: int = -1
    token: str = ""


@dataclass(slots=True)
class Slice:
    ends_at: float = 0.0
    handing_over: bool = False
    wound_down: set[int] = field(default_factory=set)  # given back after the slice: they are the successor's


class GivenBack(NamedTuple):
    due_at: datetime
    why: str


@dataclass(slots=True)
class Timers:
    beaten: float = float("-inf")
    store_at: float = float("-inf")  # when to try the outbox again


class Driver:
    def __init__(
        self,
        clock: Clock,
        open_ledger: OpenLedger,
        make_transport: MakeTransport,
        *,
        capacity: int,
        slice_seconds: float,
        slots: int = 1,
        spaces: LockSpaces | None = None,
        seed: int | None = None,
        stop_asked: Callable[[], bool] = lambda: False,
        tick: float = TICK,
        silent_after: timedelta = DRIVER_SILENT_AFTER,
        outbox: Outbox | None = None,
    ) -> None:
        self.clock = clock
        self.open_ledger = open_ledger
        self.stop_asked = stop_asked
        self.options = Options(capacity, slice_seconds, slots, spaces or LockSpaces(), seed, tick, silent_after)
        self.outbox = outbox if outbox is not None else Outbox()
        self.identity = Identity()
        self.slice = Slice()
        self.timers = Timers()
        self.stopping = False
        self.ticks = 0
        self.share = 0
        self.waiting: dict[int, int] = {}  # lanes that found no place, by owner, while places are scarce
        self.ledger: Ledger
        self.lanes: dict[int, Lane] = {}
        self.tasks: dict[int, asyncio.Task[None]] = {}
        self.leaving: list[tuple[Lane, Sleep, BaseException | None]] = []
        self.refused_to_leave: set[int] = set()  # of those, lanes whose rows another session has locked
        # Lanes that were taken and cannot be driven, until the database takes them back.
        self.giving_back: dict[int, GivenBack] = {}
        self.locked_until: dict[int, float] = {}  # lanes that could not be taken because a row of theirs was locked
        # Lanes of a lost connection, until their calls have ended, each with its account.
        self.unfinished: dict[asyncio.Task[None], int] = {}
        self.transports = Transports(make_transport)

    async def run(self) -> bool:
        """Drive for one slice. Returns False when all driver slots of this machine are taken."""
        self.slice.ends_at = self.clock.monotonic() + self.options.slice_seconds
        try:
            while not self._over():
                if not await self._connect():
                    return False
                await self._drive()
        finally:
            if self.unfinished:
                await asyncio.wait(self.unfinished, timeout=GIVE_UP_AFTER)
            await self._empty_outbox()
            await self.transports.close()
        return True

    def _over(self) -> bool:
        return self._must_stop() or self.clock.monotonic() >= self.slice.ends_at

    def _must_stop(self) -> bool:
        self.stopping = self.stopping or self.stop_asked()
        return self.stopping

    # --- a connection and its slot -----------------------------------------------------------------------

    async def _connect(self) -> bool:
        """Open a ledger and take one of this machine's slots. Tries again while PostgreSQL is away, so that a restart
        of it costs a second."""
        while True:
            try:
                self.ledger = await self.open_ledger(self.outbox)
                self.ledger.start()
                return await self._begin_or_disconnect()
            except (psycopg.OperationalError, psycopg.InternalError, LedgerLost) as error:  # internal: read-only
                log.warning("a driver waits for the database: %s", error, extra={"slot": self.identity.slot})
                if self._over():
                    return False
                await self.clock.sleep(RECONNECT_PAUSE)

    async def _begin_or_disconnect(self) -> bool:
        try:
            return await self._begin()
        except BaseException:
            await self.ledger.stop()
            raise

    async def _begin(self) -> bool:
        # First the results that the last connection could not write: they stand, even if another driver has the slot by
        # now. While they cannot be written, only their accounts are not taken.
        await self._or_next_tick(self._write_all_late)
        slot = await self.ledger.write(
            holding.LOCK_SLOT,
            {"slots": self.options.slots, "space": self.options.spaces.slots, "host": self.identity.host},
        )
        if not slot:
            await self.ledger.stop()
            return False
        self.slice.handing_over = False
        self.giving_back.clear()  # their locks are gone, and so is the token in their rows
        self.identity.slot = slot[0]["slot"]
        self.identity.token = f"{self.identity.host}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        await self.ledger.write(holding.START_DRIVER, asdict(self.identity) | {"pid": os.getpid()})
        return True

    async def _drive(self) -> None:
        try:
            while not self._over() and not self.ledger.lost.is_set():
                await self.tick()
                await self._tick_pause()
            await self._wind_down()
        except LedgerLost:
            pass
        except Exception:  # ours, not a lane's: the lanes end in order, and the next slice tries again
            log.exception("a driver failed", extra={"slot": self.identity.slot})
            await self.clock.sleep(FAILED_DRIVER_PAUSE)
        await self._hand_over()

    async def _tick_pause(self) -> None:
        """Wait until the next tick; return at once when the connection is lost."""
        try:
            async with asyncio.timeout(self.options.tick_seconds):
                await self.ledger.lost.wait()
        except TimeoutError:
            pass

    # --- one tick ----------------------------------------------------------------------------------------

    async def tick(self) -> None:
        self.ticks += 1
        await self._tend()
        await self._or_next_tick(self._notice)
        await self._or_next_tick(self._take)

    async def _tend(self) -> None:
        """Heartbeat, release finished lanes, flush late results."""
        if self.clock.monotonic() - self.timers.beaten >= BEAT_EVERY:
            self.timers.beaten = self.clock.monotonic()
            await self._or_next_tick(self._beat)
            await self._or_next_tick(self._look_around)
        await self._or_next_tick(self._leave)
        await self._or_next_tick(self.ledger.count_appended)
        await self._or_next_tick(self._return_lanes)
        await self._or_next_tick(self._try_to_write_late)

    async def _or_next_tick(self, duty: Callable[[], Awaitable[object]]) -> None:
        """Carry out a duty, or leave it for the next tick when the database refuses it for the moment (a deadlock, a
        row that is locked for long). The lanes go on meanwhile."""
        try:
            await duty()
        except psycopg.Error as error:
            if not may_work_later(error):
                raise
            log.warning("tried again at the next tick: %s", error, extra={"slot": self.identity.slot})

    async def _beat(self) -> None:
        rows = await self.ledger.write(holding.BEAT, (len(self.lanes), self.identity.token))
        if not rows:
            self.stopping = True  # another driver has the slot
        elif self.ledger.journal is not None:
            if not (rows[0]["held"] or self.ledger.held):  # until then the last beats are witnesses of what is compared
                self.ledger.journal.beaten(rows[0]["slot"], rows[0]["beat_at"])
            await self._check_server(rows[0]["held"])

    async def _check_server(self, held: bool) -> None:
        """Hold all lanes while the database may lack commits: an operator, or other machines, have to say more."""
        if not (held or self.ledger.held):
            return
        self.ledger.held = True
        for lane in self.lanes.values():
            lane.stop()
        self.ledger.held = await lost_commits.check(self.ledger)

    async def _beating(self, reading: Coroutine[Any, Any, Answer]) -> Answer:
        """Read while beating: look-ups of lanes may hold up this one, and a driver that waits for its turn must not
        look dead."""
        task = asyncio.create_task(reading)
        while not (await asyncio.wait({task}, timeout=BEAT_EVERY))[0]:
            await self._or_next_tick(self._beat)
        return task.result()

    async def _look_around(self) -> None:
        """Free silent drivers, compute this driver's share of the lanes, and take orphaned lanes."""
        now = self.clock.now()
        await holding.free_stuck(self.ledger, self.identity.token, self.options.silent_after)
        live = {"now": now, "silent_after": self.options.silent_after, "successor_within": SUCCESSOR_WITHIN}
        (all_lanes,) = await self._beating(self.ledger.read(holding.SHARE, live | {"now": now + AHEAD}))
        self.share = -(-all_lanes["due"] // max(1, all_lanes["drivers"]))
        await self._share_places(now)
        if self._takes_lanes():
            lanes = live | {"limit": self._room(), "token": self.identity.token}
            await self._take_due(await self._beating(self.ledger.read(holding.ORPHANED_LANES, lanes)), now)

    async def _share_places(self, now: datetime) -> None:
        """Note who waits for a place while they are scarce, and end lanes of owners that have more than their share
        where others have less: those with a slow provider first. A call under way ends within its limit."""
        self.waiting = {}
        if self.share <= self.options.capacity:
            return  # there are places for all lanes that are due, here or in other drivers
        rows = await self._beating(self.ledger.read(lane_rows.WAITING_OWNERS, {"now": now}))
        self.waiting = {row["owner_id"]: row["lanes"] for row in rows}
        if self._room() or not self._takes_lanes():
            return
        lanes = sorted((lane for lane in self.lanes.values() if not lane.stopping), key=_fast)
        held, ending = Counter(lane.account.owner_id for lane in lanes), len(self.lanes) - len(lanes)
        freed = holding.places_to_free(held, self.waiting, self.options.capacity, ending)
        for owner, places in freed.items():
            for lane in [lane for lane in lanes if lane.account.owner_id == owner][:places]:
                lane.stop()

    async def _notice(self) -> None:
        """Have lanes reload whose account or runs changed; stop those that another driver has taken."""
        if not self.lanes:
            return
        mine = [(lane.account_id, lane.account.wake_count, lane.account.epoch) for lane in self.lanes.values()]
        for row in await self._beating(self.ledger.read(lane_rows.CHANGED_LANES, columns(mine))):
            lane = self.lanes.get(row["account_id"])
            if lane is None:
                continue
            if row["epoch"] != lane.account.epoch:
                lane.stop()
            elif row["wake_count"] != lane.account.wake_count:
                lane.reload_soon()

    # --- taking lanes ------------------------------------------------------------------------------------

    async def _take(self) -> None:
        now = self.clock.now()
        if self._room() and self._takes_lanes():
            soon = {"now": now + AHEAD, "limit": self._room()}
            lanes = await self._beating(self.ledger.read(lane_rows.DUE_LANES, soon))
            if len(self.waiting) > 1 and sum(row["due_at"] <= now for row in lanes) >= self._room():
                lanes = await self._due_in_turn(now)
            await self._take_due(self._within_room(lanes, now), now)

    def _room(self) -> int:
        return max(0, self.options.capacity - len(self.lanes))

    def _takes_lanes(self) -> bool:
        if self.slice.handing_over or self.ledger.held or self._must_stop():
            return False
        return self.clock.monotonic() < self.slice.ends_at + TAKE_LANES_FOR

    async def _due_in_turn(self, now: datetime) -> list[Row]:
        """Return the lanes that are due, those first whose owner has the fewest places."""
        held = Counter(lane.account.owner_id for lane in self.lanes.values())
        asked = {"now": now, "limit": self._room(), "owners": [*held], "held": [*held.values()]}
        return await self._beating(self.ledger.read(lane_rows.DUE_LANES_IN_TURN, asked))

    def _within_room(self, lanes: list[Row], now: datetime) -> list[Row]:
        due = sum(row["due_at"] <= now for row in lanes)
        ahead = max(0, self._room() - due - self.options.capacity // 2)
        return lanes[: due + ahead]

    async def _take_due(self, due: list[Row], now: datetime) -> None:
        unfinished = set(self.unfinished.values())
        due = [row for row in due if self._may_take(row["account_id"]) and row["account_id"] not in unfinished]
        wanted = self._without_most_suspects(self._fair_share(due, now))
        for first in range(0, len(wanted), TAKEN_AT_ONCE):
            if not self._takes_lanes():
                return
            lanes = wanted[first : first + TAKEN_AT_ONCE]
            locked = [
                row["id"]
                for row in await self.ledger.write(lane_rows.TRY_LANE_LOCKS, (lanes, self.options.spaces.lanes))
            ]
            if locked:
                await self._take_over_or_give_back(locked, now)
            await self._beat()  # a driver that takes thousands must not look dead meanwhile

    def _may_take(self, account_id: int) -> bool:
        # A lane that was freed because it stood still may still be ours: it is stopped (`_notice`) and given back
        # first. The same session would get its lock a second time, and one lane would release the other's.
        if account_id in self.slice.wound_down or account_id in self.lanes or account_id in self.giving_back:
            return False
        if self.locked_until.get(account_id, 0.0) > self.clock.monotonic():
            return False
        return not self.outbox.holds(account_id)  # unstored results count against the account's concurrency

    def _fair_share(self, due: list[Row], now: datetime) -> list[Row]:
        """Return the lanes within our share, and beyond it those that no driver has taken for a moment."""
        left = self.share - len(self.lanes)
        return [row for n, row in enumerate(due) if n < left or now - row["due_at"] > FREE_FOR_ALL_AFTER]

    def _without_most_suspects(self, due: list[Row]) -> list[int]:
        suspects = [row["account_id"] for row in due if row["crashes"] >= holding.SUSPECT_AFTER]
        left_out = set(suspects[holding.suspects_allowed(len(suspects)) :])
        return [row["account_id"] for row in due if row["account_id"] not in left_out]

    async def _take_over_or_give_back(self, locked: list[int], now: datetime) -> None:
        """Take over locked lanes, or give back those that cannot be taken over now: a lane with a holder and no task
        would be driven by no one."""
        try:
            await self._take_over(locked, now)
        except psycopg.Error as error:
            if not may_work_later(error):
                raise
            log.warning("lanes could not be taken over: %s", error, extra={"slot": self.identity.slot})
            waiting = await holding.behind_locked_rows(self.ledger, locked) or set(locked)
            await self._give_back(waiting, now + REFUSED_LANE_PAUSE, _refused(error))
            if others := [account_id for account_id in locked if account_id not in waiting]:
                await self._take_over_or_give_back(others, now)

    async def _give_back(self, accounts: Iterable[int], until: datetime, why: str) -> None:
        self.giving_back |= dict.fromkeys(accounts, GivenBack(until, why))
        await self._return_lanes()

    async def _return_lanes(self) -> None:
        """Give back lanes that cannot be driven. Those that the database does not take back now are kept, with their
        locks: they name this driver as their holder."""
        if not self.giving_back:
            return
        ids = sorted(self.giving_back)
        until, why = zip(*(self.giving_back[account_id] for account_id in ids))
        lanes = {"accounts": ids, "until": list(until), "why": list(why), "token": self.identity.token}
        returned = [row["account_id"] for row in await self.ledger.write(lane_rows.GIVE_BACK, lanes)]
        await self.ledger.write(lane_rows.GIVE_LANE_LOCKS_BACK, (self.options.spaces.lanes, returned))
        for account_id in returned:
            del self.giving_back[account_id]

    async def _take_over(self, locked: list[int], now: datetime) -> None:
        locked = await self._put_off(locked, await holding.behind_locked_rows(self.ledger, locked))
        await holding.settle_crashes(self.ledger, locked, self.identity.token, now)
        rows = await self.ledger.write(lane_rows.TAKE_LANES, (locked, self.identity.token))
        taken = {row["account_id"] for row in rows}
        locked = await self._put_off(locked, {account_id for account_id in locked if account_id not in taken})
        loads = await self._beating(self._load(locked, now))
        repeatable = [account_id for account_id in loads if self.transports[account_id].recognises_repeats]
        rescued = await holding.settle_in_flight(self.ledger, list(loads), repeatable)
        if rescued.unsettled:
            await self._give_back(rescued.unsettled, now + UNSTORED_LANE_PAUSE, UNSTORED)
            loads = {key: load for key, load in loads.items() if key not in rescued.unsettled}
        if rescued.targets:
            loads = await self._load(list(loads), now)  # caps count what was in flight
        await holding.end_paused_runs(self.ledger, list(loads), now)
        for account_id, load in loads.items():
            lane = self.lanes[account_id] = self._lane(account_id, load)
            self.tasks[account_id] = asyncio.create_task(self._drive_lane(lane))

    async def _put_off(self, locked: list[int], waiting: set[int]) -> list[int]:
        """Release lanes that cannot be taken now because another session has locked a row of theirs. Nothing was
        written yet, so nothing is given back. Returns the others."""
        if waiting:
            accounts = {"accounts": sorted(waiting)}
            log.warning("rows of %d lanes are locked by another session", len(waiting), extra=accounts)
            again = self.clock.monotonic() + REFUSED_LANE_PAUSE.total_seconds()
            self.locked_until |= dict.fromkeys(waiting, again)
            await self.ledger.write(lane_rows.GIVE_LANE_LOCKS_BACK, (self.options.spaces.lanes, sorted(waiting)))
        return [account_id for account_id in locked if account_id not in waiting]

    async def _load(self, accounts: list[int], now: datetime) -> dict[int, loading.LaneLoad]:
        """Load the accounts together; if that fails, one by one, so that an unreadable account stops only itself."""
        try:
            return await self._load_ready(accounts, now)
        except (LedgerLost, psycopg.OperationalError):
            raise
        except Exception:
            log.exception("some of %d accounts could not be read", len(accounts))
        loads: dict[int, loading.LaneLoad] = {}
        for account_id in accounts:
            try:
                loads |= await self._load_ready([account_id], now)
            except (LedgerLost, psycopg.OperationalError):
                raise
            except Exception as error:
                await self._leave_unread(account_id, error, now)
        return loads

    async def _load_ready(self, accounts: list[int], now: datetime) -> dict[int, loading.LaneLoad]:
        loads = await loading.load(self.ledger, accounts, now)
        for account_id, load in loads.items():
            await self.transports.make_ready(account_id, load.account.config)
        return loads

    async def _leave_unread(self, account_id: int, error: Exception, now: datetime) -> None:
        (row,) = await self.ledger.write(
            lane_rows.LEAVE_UNREAD, {"account": account_id, "until": now + FAILED_LANE_PAUSE}
        )
        await holding.lane_failed(self.ledger, account_id, row["crashes"], error, now)
        if row["crashes"] >= holding.SUSPEND_AFTER:
            await closing.abandon(self.ledger, account_id, str(error), now)
            await self.ledger.write(lane_rows.NOTHING_DUE, (account_id,))
        await self.ledger.write(lane_rows.GIVE_LANE_LOCKS_BACK, (self.options.spaces.lanes, [account_id]))

    def _lane(self, account_id: int, load: loading.LaneLoad) -> Lane:
        # With the epoch: a lane that parks between two sends must not draw the same gap again and again.
        seed = (
            None
            if self.options.seed is None
            else (self.options.seed * 1_000_003 + account_id) * 1_009 + load.account.epoch
        )
        rng, transport = random.Random(seed), self.transports[account_id]
        return Lane(Dispatcher(self.ledger, self.clock, load, transport, rng, self.slice.ends_at), load.runs)

    # --- one lane, and giving it back --------------------------------------------------------------------

    async def _drive_lane(self, lane: Lane) -> None:
        try:
            sleep, failure = await lane.drive(), None
        except LedgerLost:
            self._drop(lane)
            return
        except Exception as error:
            sleep, failure = self._rest(lane, error)
        finally:
            if self.tasks.get(lane.account_id) is asyncio.current_task():
                del self.tasks[lane.account_id]
        # A lane that outlived its connection has lost its lock: there is nothing to give back.
        if self.lanes.get(lane.account_id) is lane:
            self.leaving.append((lane, sleep, failure))

    def _rest(self, lane: Lane, error: Exception) -> tuple[Sleep, Exception | None]:
        """Return how long a lane rests after an error, and the error if it is the lane's own. A lane that keeps failing
        is suspended; a database that is busy or refuses writes is not the lane's fault."""
        until = self.clock.now() + FAILED_LANE_PAUSE
        if may_work_later(error):
            log.warning("a lane rests: %s", error, extra={"account": lane.account_id})
            return Sleep(until, _refused(error)), None
        log.error("a lane failed", exc_info=error, extra={"account": lane.account_id})
        return Sleep(until, f"failed: {error}"), error

    async def _leave(self) -> None:
        """Give back the lanes that ended, together, once everything of them is durable. Lanes that the database refuses
        to take back stay in `leaving`."""
        if not self.leaving:
            return
        await self.ledger.flushed()
        # In the order in which lanes are locked. A lane whose last state could not be written yet stays.
        leaving = sorted(
            (one for one in self.leaving if not self.ledger.lane_waits(one[0].account_id)),
            key=lambda one: one[0].account_id,
        )
        ready = {lane.account_id for lane, _, _ in leaving}
        self.refused_to_leave = {lane.account_id for lane, _, _ in self.leaving} - ready
        if not leaving:
            return
        now = self.clock.now()
        rows = [_leaving_row(lane, self._until_stored(lane, sleep), failure, now) for lane, sleep, failure in leaving]
        answers = await self.ledger.write(lane_rows.LEAVE_LANES, [list(column) for column in zip(*rows)])
        crashes = {row["account_id"]: row["crashes"] for row in answers if not row["locked"]}
        self.refused_to_leave.update(row["account_id"] for row in answers if row["locked"])
        leaving = [one for one in leaving if one[0].account_id in crashes]
        left = {id(lane) for lane, _, _ in leaving}
        self.leaving = [one for one in self.leaving if id(one[0]) not in left]  # others may have ended meanwhile
        for lane, _, _ in leaving:
            self._drop(lane)
        await self.ledger.write(lane_rows.GIVE_LANE_LOCKS_BACK, (self.options.spaces.lanes, sorted(crashes)))
        if self._over():
            self.slice.wound_down.update(lane.account_id for lane, _, _ in leaving if lane.stopping)
        for lane, _, failure in leaving:
            if failure is not None:
                count = crashes[lane.account_id]
                await holding.lane_failed(self.ledger, lane.account_id, count, failure, self.clock.now())

    def _until_stored(self, lane: Lane, sleep: Sleep) -> Sleep:
        """Return when the lane is due. A lane with results in our outbox stays due: should this process die, the next
        holder settles its targets in flight."""
        soon = self.clock.now() + UNSTORED_LANE_PAUSE
        if not self.outbox.holds(lane.account_id) or (sleep.until is not None and sleep.until <= soon):
            return sleep
        return Sleep(soon, UNSTORED)

    def _drop(self, lane: Lane) -> None:
        if self.lanes.get(lane.account_id) is lane:
            del self.lanes[lane.account_id]

    # --- the end of a slice ------------------------------------------------------------------------------

    async def _wind_down(self) -> None:
        """Stop lanes with a slow provider first. Until they have ended, the others go on and lanes that become due are
        taken: on a machine with a single slot, no other driver could take them."""
        until = self.clock.monotonic() + WIND_DOWN
        while not self._must_stop() and self.clock.monotonic() < until:
            for lane in self.lanes.values():
                if lane.dispatcher.slow():
                    lane.stop()
            if not any(lane.stopping for lane in self.lanes.values()):
                return
            await self._tick_pause()
            await self.tick()

    async def _hand_over(self) -> None:
        """Stop claiming, let in-flight sends end, write, release. Each lane is given back as soon as it has ended. An
        error here must not end the calls under way: they finish, and their results are kept."""
        self.slice.handing_over = True
        for lane in self.lanes.values():
            lane.stop()
        try:
            await self._until_lanes_ended()
            await self.ledger.write(holding.END_DRIVER, (self.identity.token,))
        except LedgerLost:
            pass
        except Exception:
            log.exception("a driver could not hand over in order", extra={"slot": self.identity.slot})
        self._leave_unfinished()
        await self.ledger.stop()

    async def _until_lanes_ended(self) -> None:
        """Wait until every lane has ended and was given back. A lane that goes on with nothing under way, or beyond its
        time limit, is given up."""
        began = self.clock.monotonic()
        hard_limit = max(began, self.slice.ends_at + WIND_DOWN) + GIVE_UP_AFTER
        await self._tend()
        while (self.tasks or self.leaving) and not self.ledger.lost.is_set():
            if self.tasks:
                await asyncio.wait(self.tasks.values(), timeout=self.options.tick_seconds)
            else:
                await self._tick_pause()
            await self._tend()
            now = self.clock.monotonic()
            if not self.tasks and now > began + (LOCKED_LANES_FOR if self._only_locked() else GIVE_UP_AFTER):
                return  # the database takes no lane back: their locks go with the connection
            for lane in [self.lanes[account_id] for account_id in self.tasks if account_id in self.lanes]:
                # An upload has no recipients yet: a stop does not wait for it.
                if lane.dispatcher.only_uploads and self._must_stop():
                    self._give_up(lane, None)
                    continue
                waits_for_calls = lane.dispatcher.busy and not self._must_stop()
                if now > (hard_limit if waits_for_calls else began + GIVE_UP_AFTER):
                    log.error("a lane did not end and is given up", extra={"account": lane.account_id})
                    self._give_up(lane, TimeoutError("the lane did not end"))

    def _only_locked(self) -> bool:
        """Return whether only lanes are left whose rows another session has locked. They are free when this driver has
        ended: the next one must not wait for that session."""
        return self.refused_to_leave.issuperset(lane.account_id for lane, _, _ in self.leaving)

    def _give_up(self, lane: Lane, failure: BaseException | None) -> None:
        self.tasks.pop(lane.account_id).cancel()
        pause = FAILED_LANE_PAUSE if failure is not None else timedelta(0)
        self.leaving.append((lane, Sleep(self.clock.now() + pause, "did not end"), failure))

    def _leave_unfinished(self) -> None:
        """Leave the lanes of a lost connection: their calls end in their own time, and the results go through the
        outbox. Uploads are cancelled."""
        for account_id, task in self.tasks.items():
            lane = self.lanes.get(account_id)
            if lane is not None and lane.dispatcher.only_uploads:
                task.cancel()
            self.unfinished[task] = account_id
            task.add_done_callback(lambda task: self.unfinished.pop(task, None))
        self.tasks.clear()
        self.lanes.clear()
        self.leaving.clear()

    # --- late results ------------------------------------------------------------------------------------

    async def _try_to_write_late(self) -> None:
        """Write late results, but not at every tick while the database refuses them."""
        if self.clock.monotonic() >= self.timers.store_at:
            self.timers.store_at = self.clock.monotonic() + STORE_AGAIN_AFTER
            try:
                await self._write_late()
            except psycopg.errors.LockNotAvailable:
                self.timers.store_at = self.clock.monotonic() + LOCKED_PAUSE  # all lanes waited for it
                raise
            if not len(self.outbox):
                self.timers.store_at = float("-inf")

    async def _write_all_late(self) -> None:
        while await self._write_late():
            pass

    async def _write_late(self) -> list[Result]:
        """Write one bounded part of the outbox, judge the runs concerned again and wake their lanes. Returns the
        results."""
        outbox = self.outbox
        await outbox.write_stops(partial(closing.stop_account, self.ledger))
        locked = await self.ledger.locked()
        now = self.clock.now()
        results = await outbox.write(partial(closing.store_late, self.ledger, now=now), locked)
        for run_id in sorted(outbox.changed_runs - locked.runs):
            await closing.rejudge(self.ledger, run_id, now)
            outbox.changed_runs.discard(run_id)
        if outbox.changed_accounts:
            rows = await self.ledger.write(holding.LOCKED_LANES, {"lanes": sorted(outbox.changed_accounts)})
            free = outbox.changed_accounts - {int(row["key"]) for row in rows}
            await self.ledger.write(*wake_statement(free, now))
            outbox.changed_accounts -= free
        return results

    async def _empty_outbox(self) -> None:
        """Write the outbox after a slice that ended with the connection lost, so that known results do not stay
        unconfirmed. Results that still cannot be stored stay in the outbox for this process's next slice."""
        began = self.clock.monotonic()
        while self.outbox:
            try:
                self.ledger = await self.open_ledger(self.outbox)
                self.ledger.start()
                try:
                    await self._write_all_late()
                    if not self._must_stop() and self.clock.monotonic() >= began + LOCKED_RESULTS_FOR:
                        return  # what is left needs locked rows: this process's next slice writes it when they are free
                finally:
                    await self.ledger.stop()
            except (psycopg.Error, LedgerLost) as error:
                log.warning("the last results wait for the database: %s", error, extra={"slot": self.identity.slot})
            if self.outbox and self.clock.monotonic() >= began + LAST_WRITES:
                log.error("the last results could not be stored", extra={"slot": self.identity.slot})
                return
            if self.outbox:
                await self.clock.sleep(RECONNECT_PAUSE)


def _fast(lane: Lane) -> bool:
    return not lane.dispatcher.slow()


def _refused(error: Exception) -> str:
    """Return what PostgreSQL said, without its hints."""
    return plain(f"the database refused: {error}".split("\n", 1)[0], 300)


def _leaving_row(lane: Lane, sleep: Sleep, failure: BaseException | None, now: datetime) -> tuple[Any, ...]:
    account = lane.account
    parked = lane.account_id, account.epoch, account.wake_count, sleep.until, plain(sleep.why, 300), failure is not None
    return *parked, account.written_elsewhere, account.interval, now


class Transports:
    """The transports of the accounts that a driver has had, open until its slice is over."""

    def __init__(self, make: MakeTransport) -> None:
        self.make = make
        self._by_account: dict[int, Transport] = {}

    def __getitem__(self, account_id: int) -> Transport:
        return self._by_account[account_id]

    async def make_ready(self, account_id: int, config: AccountConfig) -> None:
        """Make the account's transport, or make it anew when its settings changed."""
        transport = self._by_account.get(account_id)
        if transport is not None and transport.account == config:
            return
        if transport is not None:
            await transport.close()
        self._by_account[account_id] = self.make(config)

    async def close(self) -> None:
        """Close all at once, within a time limit, so that a slow one does not hold up the end of the slice."""
        closing = [asyncio.create_task(transport.close()) for transport in self._by_account.values()]
        self._by_account.clear()
        if not closing:
            return
        done, late = await asyncio.wait(closing, timeout=CLOSE_LIMIT)
        for task in late:
            task.cancel()
        for task in done:
            if error := task.exception():
                log.warning("a transport did not close: %s", error)
