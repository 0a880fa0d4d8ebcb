"""Which lanes this worker holds, for one slice.

A driver takes the advisory locks of accounts that have work due, drives their lanes in one asyncio loop, and
after a slice of about 40 seconds hands over. Nobody waits for a lock while holding a worker: what another
driver holds is simply not taken.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from accounts.channels.base import AccountConfig, Transport
from fanout.engine import closing, facts, rescue, sql
from fanout.engine.clock import Clock
from fanout.engine.connection import Row
from fanout.engine.lane import Lane, Rest
from fanout.engine.ledger import Ledger, LedgerLost, Result, plain
from fanout.lanes.poke import poking

log = logging.getLogger("crier.driver")

TICK = 0.25
BEAT = timedelta(seconds=1)
RECONNECT = 0.2
LEFT_OVER = timedelta(seconds=1)
FAILED_DRIVER_RESTS = 1.0
FAILED_LANE_RESTS = timedelta(seconds=5)

OpenLedger = Callable[[], Awaitable[Ledger]]
MakeTransport = Callable[[AccountConfig], Transport]


class Driver:
    def __init__(
        self, slot: int, clock: Clock, open_ledger: OpenLedger, make_transport: MakeTransport, *,
        capacity: int, slice_seconds: float, slots: int = 1, lane_locks: int = sql.LANE_LOCKS, seed: int | None = None,
        orphaned: Callable[[], bool] = lambda: False, tick: float = TICK,
    ) -> None:  # fmt: skip
        self.slot = slot
        self.clock = clock
        self.open_ledger = open_ledger
        self.make_transport = make_transport
        self.capacity = capacity
        self.slice = timedelta(seconds=slice_seconds)
        self.slots = slots
        self.lane_locks = lane_locks
        self.seed = seed
        self.orphaned = orphaned
        self.tick_seconds = tick
        self.ticks = 0
        self.token = ""
        self.ledger: Ledger
        self.lanes: dict[int, Lane] = {}
        self.tasks: dict[int, asyncio.Task[None]] = {}
        self.transports: dict[int, Transport] = {}
        self.leaving: list[tuple[Lane, Rest, BaseException | None]] = []
        self.facts_to_write: list[Result] = []
        self.draining = False
        self.began = self.beaten = datetime.min.replace(tzinfo=UTC)

    async def run(self) -> bool:
        """Drive for one slice. False: another driver has this slot."""
        self.began = self.clock.now()
        try:
            while not self._over():
                if not await self._connect():
                    return False
                await self._drive()
        finally:
            await self._write_last_facts()
            await self._close_transports()
        return True

    def _over(self) -> bool:
        return self.draining or self.clock.now() - self.began >= self.slice

    # --- one connection's life --------------------------------------------------------------------------

    async def _connect(self) -> bool:
        """A ledger for this slot; retried while PostgreSQL is away, so that a restart costs a second."""
        while True:
            try:
                self.ledger = await self.open_ledger()
                self.ledger.start()
                return await self._begin()
            except (psycopg.OperationalError, LedgerLost) as error:
                log.warning("driver %s waits for the database: %s", self.slot, error)
                if self._over():
                    return False
                await self.clock.sleep(RECONNECT)

    async def _begin(self) -> bool:
        # First what the last connection could not write: facts stand, whoever has the slot by now.
        await self._write_facts()
        self.token = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        mine = (await self.ledger.write(sql.LOCK_SLOT, (sql.SLOT_LOCKS ^ self.lane_locks, self.slot)))[0]["mine"]
        if not mine:
            await self.ledger.stop()
            return False
        given = {"slot": self.slot, "token": self.token, "host": socket.gethostname(), "pid": os.getpid()}
        await self.ledger.write(sql.START_DRIVER, given | {"now": self.clock.now()})
        return True

    async def _write_facts(self) -> None:
        """What the provider did may change a verdict, or give a lane something to do."""
        results, self.facts_to_write = self.facts_to_write, []
        if not results:
            return
        await self.ledger.write_facts(results)
        now = self.clock.now()
        targets = [result.target_id for result in results]
        for row in await self.ledger.write(sql.RUNS_OF, (targets,)):
            await closing.rejudge(self.ledger, row["run_id"], now)
        await self.ledger.write(*poking([result.account_id for result in results], now))

    async def _write_last_facts(self) -> None:
        """The slice ended with the connection lost: one more try, so that nothing stays unconfirmed that we know."""
        if not self.facts_to_write:
            return
        try:
            self.ledger = await self.open_ledger()
            self.ledger.start()
            await self._write_facts()
            await self.ledger.stop()
        except (psycopg.OperationalError, LedgerLost) as error:
            log.error("driver %s could not record what it sent last: %s", self.slot, error)

    async def _drive(self) -> None:
        try:
            while not self._over() and not self.ledger.lost.is_set():
                await self.tick()
                await self._tick_pause()
        except LedgerLost:
            pass
        except Exception:  # ours, not a lane's: the lanes end in order, and the next slice tries again
            log.exception("driver %s failed", self.slot)
            await self.clock.sleep(FAILED_DRIVER_RESTS)
        await self._hand_over()

    async def _tick_pause(self) -> None:
        """Until the next tick, or at once when the connection is lost."""
        try:
            async with asyncio.timeout(self.tick_seconds):
                await self.ledger.lost.wait()
        except TimeoutError:
            pass

    async def _hand_over(self) -> None:
        """Stop claiming, let in-flight sends end, write, release."""
        for lane in self.lanes.values():
            lane.stop()
        while self.tasks:
            await asyncio.wait(self.tasks.values())
        try:
            if not self.ledger.lost.is_set():
                await self._leave()
                await self.ledger.write(sql.END_DRIVER, (self.clock.now(), self.slot, self.token))
        except LedgerLost:
            pass
        self.lanes.clear()
        self.leaving.clear()
        await self.ledger.stop()
        self.facts_to_write += self.ledger.take_unwritten()

    # --- one tick ---------------------------------------------------------------------------------------

    async def tick(self) -> None:
        self.ticks += 1
        now = self.clock.now()
        if now - self.beaten >= BEAT:
            self.beaten = now
            await self._beat(now)
        await self._leave()
        await self._notice(now)
        await self._take(now)

    async def _beat(self, now: datetime) -> None:
        rows = await self.ledger.write(sql.BEAT, (now, len(self.lanes), self.slot, self.token))
        if not rows or rows[0]["drain"] or self.orphaned():
            self.draining = True
        await rescue.free_stuck(self.ledger, self.token, now)

    async def _notice(self, now: datetime) -> None:
        """Poke the lanes for which something changed; drop those that somebody else has taken."""
        if not self.lanes:
            return
        for row in await self.ledger.read(sql.POKES, (list(self.lanes),)):
            lane = self.lanes.get(row["account_id"])
            if lane is None:
                continue
            if row["epoch"] != lane.view.epoch:
                lane.stop()
            elif row["poke"] != lane.view.poke:
                lane.poke()

    async def _take(self, now: datetime) -> None:
        free = self.capacity - len(self.lanes)
        if free <= 0:
            return
        given = {"now": now, "limit": free, "mine": list(self.lanes), "beating": now - rescue.BEAT_LIMIT}
        due = await self.ledger.read(sql.DUE_LANES, given)
        wanted = self._without_most_suspects(self._fair_share(due, now))
        if not wanted:
            return
        locked = [row["id"] for row in await self.ledger.write(sql.LOCK_LANES, (wanted, self.lane_locks))]
        if locked:
            await self._take_over(locked, now)

    def _fair_share(self, due: list[Row], now: datetime) -> list[Row]:
        """The other drivers get theirs: beyond our share we take only what nobody has wanted for a moment."""
        share = -(-due[0]["all_due"] // self.slots) - len(self.lanes) if due else 0
        return [row for n, row in enumerate(due) if n < share or now - row["due_at"] > LEFT_OVER]

    def _without_most_suspects(self, due: list[Row]) -> list[int]:
        suspects = [row["account_id"] for row in due if row["crashes"] >= rescue.SUSPECT_AFTER]
        left_out = set(suspects[rescue.suspects_allowed(len(suspects)) :])
        return [row["account_id"] for row in due if row["account_id"] not in left_out]

    async def _take_over(self, locked: list[int], now: datetime) -> None:
        await rescue.settle_crashes(self.ledger, locked, self.token, now)
        await self.ledger.write(sql.TAKE_LANES, (self.token, now, locked))
        loaded = await self._load(locked, now)
        repeatable = [account_id for account_id in loaded if self.transports[account_id].recognises_repeats]
        if await rescue.settle_in_flight(self.ledger, list(loaded), repeatable):
            loaded = await self._load(list(loaded), now)  # caps count what was in flight
        for account_id, known in loaded.items():
            lane = self.lanes[account_id] = self._lane(account_id, known)
            self.tasks[account_id] = asyncio.create_task(self._drive_lane(lane))

    async def _load(self, accounts: list[int], now: datetime) -> dict[int, facts.Loaded]:
        """All at once; if that fails, one by one, so that an account nobody can read stops only itself."""
        try:
            return await self._load_ready(accounts, now)
        except (LedgerLost, psycopg.OperationalError):
            raise
        except Exception:
            log.exception("some of %d accounts could not be read", len(accounts))
        loaded: dict[int, facts.Loaded] = {}
        for account_id in accounts:
            try:
                loaded |= await self._load_ready([account_id], now)
            except (LedgerLost, psycopg.OperationalError):
                raise
            except Exception as error:
                await self._leave_unread(account_id, error, now)
        return loaded

    async def _load_ready(self, accounts: list[int], now: datetime) -> dict[int, facts.Loaded]:
        loaded = await facts.load(self.ledger, accounts, now)
        for account_id, known in loaded.items():
            await self._make_ready(account_id, known.view.account)
        return loaded

    async def _leave_unread(self, account_id: int, error: Exception, now: datetime) -> None:
        (row,) = await self.ledger.write(sql.LEAVE_UNREAD, {"account": account_id, "until": now + FAILED_LANE_RESTS})
        await rescue.lane_failed(self.ledger, account_id, row["crashes"], error, now)
        if row["crashes"] >= rescue.SUSPEND_AFTER:
            await closing.abandon(self.ledger, account_id, str(error), now)
            await self.ledger.write(sql.NOTHING_DUE, (account_id,))
        await self.ledger.write(sql.UNLOCK_LANES, (self.lane_locks, [account_id]))

    async def _make_ready(self, account_id: int, account: AccountConfig) -> None:
        """The account's transport, anew when its settings changed."""
        transport = self.transports.get(account_id)
        if transport is not None and transport.account == account:
            return
        if transport is not None:
            await transport.close()
        self.transports[account_id] = self.make_transport(account)

    def _lane(self, account_id: int, known: facts.Loaded) -> Lane:
        # With the epoch: a lane that parks between two sends must not draw the same gap again and again.
        seed = None if self.seed is None else (self.seed * 1_000_003 + account_id) * 1_009 + known.view.epoch
        lane = Lane(self.ledger, self.clock, known, self.transports[account_id], random.Random(seed))
        lane.slice_ends_at = self.began + self.slice
        return lane

    # --- one lane ---------------------------------------------------------------------------------------

    async def _drive_lane(self, lane: Lane) -> None:
        try:
            rest = await lane.drive()
        except LedgerLost:
            self._drop(lane)
        except Exception as error:
            # A bug in one lane must not stop the others: it rests, and is suspended when it goes on like this.
            log.exception("lane of account %s failed", lane.account_id)
            self.leaving.append((lane, Rest(self.clock.now() + FAILED_LANE_RESTS, f"failed: {error}"), error))
        else:
            self.leaving.append((lane, rest, None))
        finally:
            self.tasks.pop(lane.account_id, None)

    async def _leave(self) -> None:
        """Give back the lanes that ended, all at once, when everything of them is durable."""
        leaving, self.leaving = self.leaving, []
        if not leaving:
            return
        await self.ledger.settled()
        rows = [_leaving_row(*one) for one in leaving]
        left = await self.ledger.write(sql.LEAVE_LANES, [list(column) for column in zip(*rows)])
        crashes = {row["account_id"]: row["crashes"] for row in left}
        for lane, _, error in leaving:
            if error is not None:
                await rescue.lane_failed(
                    self.ledger, lane.account_id, crashes.get(lane.account_id, 0), error, self.clock.now()
                )
        await self.ledger.write(sql.UNLOCK_LANES, (self.lane_locks, [lane.account_id for lane, _, _ in leaving]))
        for lane, _, _ in leaving:
            self._drop(lane)

    def _drop(self, lane: Lane) -> None:
        self.lanes.pop(lane.account_id, None)

    async def _close_transports(self) -> None:
        for transport in self.transports.values():
            await transport.close()
        self.transports.clear()


def _leaving_row(lane: Lane, rest: Rest, error: BaseException | None) -> tuple[Any, ...]:
    view = lane.view
    return lane.account_id, view.epoch, view.poke, rest.until, plain(rest.why, 300), error is not None
