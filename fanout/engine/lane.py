"""One account's queue: gate, pace, claim, send, record.

A lane makes one step at a time: close what must close, wait for what must be waited for, else claim as many targets as
pace and concurrency allow and hand each to a task that sends one part (`sending.py`). The loop only repeats it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from fanout.engine import closing, facts, sql
from fanout.engine.facts import RunView
from fanout.engine.ledger import plain
from fanout.engine.sending import Sending
from fanout.models.run import PauseReason
from fanout.rules import gates
from fanout.rules.gates import Close, Wait
from fanout.rules.pace import next_slot
from fanout.runs import transitions

PARK_AFTER = timedelta(seconds=10)  # a longer wait gives the lane back and keeps nobody busy
LOOK_UP = timedelta(seconds=5)  # the longest nap: the wall clock may have been set meanwhile


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing to do before `until` (None: until somebody pokes the lane)."""

    until: datetime | None
    why: str = ""
    cause: str = "waiting"
    run_id: int | None = None


class Lane(Sending):
    # --- the loop ---------------------------------------------------------------------------------------

    async def drive(self) -> Rest:
        """Until there is nothing to do for a while, or the driver asks for the lane. Nothing is in flight
        when it returns."""
        rest = Rest(self.clock.now())
        try:
            while not self.stopping:
                rest = await self.step()
                if self._may_park(rest):
                    self._account_for(rest)
                    break
                await self._nap(rest)
        finally:
            await self._land()
        return rest if not self.stopping else Rest(self.clock.now())

    async def step(self) -> Rest:
        """One round. Returns when there may be something to do again."""
        if self.failure is not None:
            raise self.failure
        if self.stale:
            await self.reload()
        now = self.clock.now()
        await self._turn_the_page(now)
        run, rest = await self._next_run(now)
        if run is None:
            return rest
        if self.view.probing and self.in_flight:
            return Rest(None, "waiting for the probe", "provider", run.id)
        if self.open >= self.view.concurrency and not self._ready(run, now):
            return Rest(self._next_part(run), "waiting for the provider", "provider", run.id)
        slot = next_slot(self.view.pace, self.view.pace_settings, now)
        if slot > now:
            return await self._wait_for(slot, run, now)
        if not await self._media_ready(run, now):
            return Rest(now)
        await self._claim_and_send(run, now)
        return Rest(now)

    async def _wait_for(self, slot: datetime, run: RunView, now: datetime) -> Rest:
        """The pace, or a provider that asked for a break: that one the operator should see."""
        until = min(slot, run.closes_at)
        if self.held is None or self.held.until <= now:
            return Rest(until, "pace", "pacing", run.id)
        if not self.open:
            await self._hold(run, Wait(until, self.held.why), now, counts=False)
        return Rest(until, self.held.why, "retries", run.id)

    def poke(self) -> None:
        """Something changed in the database that this lane must see."""
        self.stale = True
        self.wake.set()

    def stop(self) -> None:
        """Claim nothing more; in-flight sends end."""
        self.stopping = True
        self.wake.set()

    def _may_park(self, rest: Rest) -> bool:
        if self.in_flight or self.open or self.stale:
            return False
        return rest.until is None or rest.until - self.clock.now() > PARK_AFTER

    def _account_for(self, rest: Rest) -> None:
        """A parked lane's wait is known in advance; that of a waiting run is counted with its status."""
        if rest.run_id is not None and rest.until is not None and rest.cause in ("pacing", "retries"):
            self.ledger.spent(rest.run_id, rest.cause, (rest.until - self.clock.now()).total_seconds())
            self.ledger.write_times(rest.run_id)

    async def _nap(self, rest: Rest) -> None:
        now = self.clock.now()
        until = min(rest.until or now + LOOK_UP, now + LOOK_UP)
        if until > now and not self.wake.is_set():
            timer = asyncio.get_running_loop().call_later((until - now).total_seconds(), self.wake.set)
            await self.wake.wait()
            timer.cancel()
            if rest.run_id is not None:
                spent = (self.clock.now() - now).total_seconds()
                self.ledger.spent(rest.run_id, rest.cause, spent)
        self.wake.clear()

    async def _land(self) -> None:
        """Sends that are under way end and are recorded, whatever else happens."""
        while self.in_flight:
            await asyncio.wait(set(self.in_flight))
        if self.outcomes:
            self.ledger.leave_lane(self._write(self.clock.now()))

    # --- what there is to do ----------------------------------------------------------------------------

    async def reload(self) -> None:
        """Account, pace settings and live runs as they are now. The pace itself is ours alone."""
        self.stale = False
        now = self.clock.now()
        fresh = (await facts.load(self.ledger, [self.account_id], now))[self.account_id]
        ours = self.view
        self.view = replace(fresh.view, pace=ours.pace, sample=ours.sample, epoch=ours.epoch,
                            probing=fresh.view.probing or ours.probing)  # fmt: skip
        if fresh.view.probing and not fresh.view.sample and not self.in_flight:
            self.view.sample = ""
        kept = {run.id: run for run in self.runs}
        self.runs = [_merged(kept.pop(run.id, None), run) for run in fresh.runs]
        for gone in kept.values():
            self._let_go(gone)
            if not gone.open:
                await closing.describe_again(self.ledger, gone.id)
        self.handles = fresh.handles

    async def _turn_the_page(self, now: datetime) -> None:
        """A new calendar day, a new cap; a temporary ban that is over."""
        if not self.runs:
            return
        over = gates.suspension_over(self.view.facts[self.runs[0].action], now)
        if over:
            await closing.end_suspension(self.ledger, self.account_id, now)
        if over or now >= self.view.day[1]:
            await self.reload()

    async def _next_run(self, now: datetime) -> tuple[RunView | None, Rest]:
        """The first run with something to send now; runs take turns in the order they were due."""
        rest = Rest(None)
        for run in list(self.runs):
            if run.scheduled_for > now:
                rest = _sooner(rest, Rest(run.scheduled_for, "not due yet"))
                continue
            gate = run.closing or gates.may_run(self.view.facts[run.action], run.facts, now)
            if isinstance(gate, Close):
                await self._close(run, gate, now)
            elif isinstance(gate, Wait):
                await self._hold(run, gate, now)
                rest = _sooner(rest, Rest(min(gate.until, run.closes_at), gate.why, run_id=run.id))
            elif await self._has_work(run, now):
                if run.status != "running":
                    await self._start(run, now)
                return run, rest
            elif run in self.runs:
                rest = _sooner(rest, self._idle(run))
        return None, rest

    def _idle(self, run: RunView) -> Rest:
        """When a run without work at hand may have some again."""
        if run.open:
            return Rest(self._next_part(run), "waiting for the provider", "provider", run.id)
        until = min(run.dry_until or run.closes_at, run.closes_at)
        return Rest(until, "waiting to try again", "retries", run.id)

    def _next_part(self, run: RunView) -> datetime | None:
        return min((t.ready_at for t in run.continuing if t.ready_at), default=None)

    async def _has_work(self, run: RunView, now: datetime) -> bool:
        if run.buffer or self._ready(run, now):
            return True
        if run.dry_until is not None and now < run.dry_until:
            return False
        await self._fetch(run, now)
        if run.buffer:
            return True
        if not run.open:
            await self._run_dry(run, now)
        return False

    async def _fetch(self, run: RunView, now: datetime) -> None:
        earlier = [other.id for other in self.runs[: self.runs.index(run)]]
        given = {
            "run": run.id, "account": self.account_id, "now": now, "open": list(run.open),
            "earlier": earlier, "limit": self._chunk(),
        }  # fmt: skip
        rows = await self.ledger.read(sql.TARGETS, given)
        run.buffer.extend(facts.target(row) for row in rows)
        if not rows:
            run.dry_until = now + LOOK_UP

    def _chunk(self) -> int:
        """Half a minute's worth: enough to be quick, little enough to notice what changes."""
        per_minute = self.view.pace_settings.per_minute
        return int(min(500, max(10, per_minute / 2))) if per_minute else 500

    async def _run_dry(self, run: RunView, now: datetime) -> None:
        """Nothing of this run is left to send at this moment: finished, or waiting for a retry."""
        (left,) = await self.ledger.read(sql.NEXT_RETRY, (run.id, self.account_id))
        if left["pending"]:
            run.dry_until = max(left["at"], now) if left["at"] else now + LOOK_UP
            return
        self.ledger.write_times(run.id)
        await closing.run_dry(self.ledger, run.id, self.view, now)
        self.runs.remove(run)

    def _let_go(self, run: RunView) -> None:
        """Nothing more of this run is claimed here; targets between two parts give their place back."""
        run.buffer.clear()
        self.open -= len(run.continuing)
        run.open -= {target.id for target in run.continuing}
        run.continuing.clear()
        run.over = True

    # --- a run's course ---------------------------------------------------------------------------------

    async def _start(self, run: RunView, now: datetime) -> None:
        await closing.carry_out(self.ledger, transitions.start(run.id, now))
        run.status = "running"

    async def _hold(self, run: RunView, gate: Wait, now: datetime, counts: bool = True) -> None:
        """The run waits and says for what; a wait of a moment is not worth a line."""
        if gate.until - now <= PARK_AFTER and run.status == "running":
            return
        if run.status != "waiting" or run.waiting_until != gate.until:
            gate = replace(gate, why=plain(gate.why))
            await closing.carry_out(self.ledger, transitions.wait(run.id, self.account_id, gate, now, counts))
        run.status, run.waiting_until = "waiting", gate.until

    async def _close(self, run: RunView, gate: Close, now: datetime) -> None:
        """Stop the run once nothing of it is in flight here. A failure in flight gives its place under the cap
        back, so that limit is asked again then."""
        if gate.reason != PauseReason.ACCOUNT_CAPACITY:
            run.closing = gate
        self._let_go(run)
        if run.open:
            return
        if gate.reason == PauseReason.CIRCUIT_BREAKER:
            # Whatever comes next on this account begins with a probe, and is judged by its own outcomes.
            self.view.probing, self.view.sample = True, ""
            self.ledger.leave_lane(self._write(now))
        self.ledger.write_times(run.id)
        await self.ledger.settled()
        await closing.close(self.ledger, run, gate, self.view, now)
        self.runs.remove(run)


def _merged(kept: RunView | None, fresh: RunView) -> RunView:
    """A run that was already under way keeps its targets; everything else is as the database says."""
    if kept is None:
        return fresh
    kept.status, kept.facts = fresh.status, fresh.facts
    kept.dry_until, kept.over = None, False
    return kept


def _sooner(one: Rest, other: Rest) -> Rest:
    if other.until is None:
        return one if one.until is not None or one.run_id is not None else other
    return other if one.until is None or other.until < one.until else one
