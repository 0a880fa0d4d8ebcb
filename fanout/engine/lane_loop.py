"""One account's queue: choose the next run, ask its gates, and wait or send.

A lane makes one step at a time: close the runs that must close, wait where a gate is shut, else let the dispatcher
claim as many targets as pace and concurrency allow. The loop only repeats it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from fanout.database import Steps
from fanout.engine import closing, loading
from fanout.engine.commit import array, plain
from fanout.engine.dispatcher import Dispatcher
from fanout.engine.ledger import Ledger
from fanout.engine.loading import LaneAccount, LaneRun
from fanout.models.run import PauseReason
from fanout.rules import gates
from fanout.rules.gates import OPEN, Close, Wait, reason_recorded
from fanout.rules.new_chat_limits import later
from fanout.rules.pace import PaceState, earliest_send, held, spent_elsewhere
from fanout.runs import transitions

PARK_AFTER = timedelta(seconds=10)  # a longer wait gives the lane back
LOOK_AGAIN = timedelta(seconds=5)  # the longest nap
EMPTY_LOOK_FACTOR = 20  # looks that find nothing take at most a twentieth of the time
FIRST_TARGETS = 20  # of a run: lanes that are taken together do not wait for each other's hundreds
UNSTORED = "the database does not take results"
UNNOTED = "a machine cannot write its claim journal: look at its disk (`manage.py doctor`)"
UNNOTED_PAUSE = timedelta(seconds=15)  # long enough to give the lane back, perhaps to another machine
CLOCK_STEP = timedelta(seconds=1)  # the wall clock may drift by less, but not between two steps


@dataclass(frozen=True, slots=True)
class Sleep:
    """Nothing to do before `until` (None: until the lane is woken)."""

    until: datetime | None
    why: str = ""
    cause: str = "waiting"
    run_id: int | None = None


UNTIL_WOKEN = Sleep(None)


class Lane:
    def __init__(self, dispatcher: Dispatcher, runs: list[LaneRun]) -> None:
        self.dispatcher = dispatcher
        self.ledger = dispatcher.ledger
        self.clock = dispatcher.clock
        self.runs = runs
        self.stopping = False
        self._clock_offset = self._offset(self.clock.now())

    @property
    def account(self) -> LaneAccount:
        return self.dispatcher.account

    @property
    def account_id(self) -> int:
        return self.dispatcher.account_id

    # --- the loop ---------------------------------------------------------------------------------------

    async def drive(self) -> Sleep:
        """Make steps until there is nothing to do for a while, or the driver stops the lane. Nothing is in flight when
        it returns."""
        sleep = Sleep(self.clock.now())
        try:
            while not self.stopping:
                sleep = await self.step()
                if self._may_park(sleep):
                    self._account_for(sleep)
                    break
                await self._nap(sleep)
        finally:
            await self.dispatcher.finish_calls()
        if self.dispatcher.failure is not None:  # a result was refused while the lane did something else
            raise self.dispatcher.failure
        return sleep if not self.stopping else Sleep(self.clock.now())

    async def step(self) -> Sleep:
        """Make one step. Returns when there may be something to do again."""
        dispatcher = self.dispatcher
        if dispatcher.failure is not None:
            raise dispatcher.failure
        if dispatcher.stale:
            await self.reload()
        if self.stopping:
            return Sleep(self.clock.now())
        now = self.clock.now()
        self._notice_clock_step(now)
        await self._reload_if_outdated(now)
        run, sleep = await self._next_run(now)
        if run is None:
            return sleep
        if self.ledger.outbox.holds(self.account_id):
            return Sleep(now + LOOK_AGAIN, UNSTORED, run_id=run.id)  # the process that stores them wakes the lane
        if not self.ledger.notes_claims():
            return Sleep(now + UNNOTED_PAUSE, UNNOTED, run_id=run.id)
        if self.account.probing and dispatcher.calls:
            return Sleep(None, "waiting for the probe", "provider", run.id)
        if not self._make_room(run, now):
            # Targets between two parts, perhaps of another run, use up the concurrency: only their next parts free it.
            between = self._between_parts(now)
            if between is None:
                return Sleep(self._next_part(*self.runs), "waiting for the provider", "provider", run.id)
            run = between
        earliest = earliest_send(self.account.pace, self.account.pace_settings, now)
        if earliest > now:
            return await self._wait_for(earliest, run, now)
        if dispatcher.uploads.must_be_left(run, now):
            self.stop()
        elif await dispatcher.media_ready(run, now):
            await dispatcher.claim_and_send(run, now)
        return Sleep(now)

    async def _wait_for(self, earliest: datetime, run: LaneRun, now: datetime) -> Sleep:
        """Wait for the pace. A break that the provider asked for is shown to operators."""
        until, held = min(earliest, run.closes_at), self.dispatcher.learning.held
        if held is None or held.until <= now:
            return Sleep(until, "pace", "pacing", run.id)
        if not self.dispatcher.open:
            await self._hold(run, Wait(until, held.why), now, counts=False)
        return Sleep(until, held.why, "retries", run.id)

    def reload_soon(self) -> None:
        """Have the lane read its account and runs again."""
        self.dispatcher.stale = True
        self.dispatcher.wake.set()

    def stop(self) -> None:
        """Claim nothing more; in-flight sends end."""
        self.stopping = True
        self.dispatcher.wake.set()

    def _may_park(self, sleep: Sleep) -> bool:
        if self.dispatcher.calls or self.dispatcher.open or self.dispatcher.stale:
            return False
        return sleep.until is None or sleep.until - self.clock.now() > PARK_AFTER

    def _account_for(self, sleep: Sleep) -> None:
        """Count a parked lane's wait in advance; the time of a waiting run is counted with its status."""
        if sleep.run_id is not None and sleep.until is not None and sleep.cause in ("pacing", "retries"):
            self.ledger.spent(sleep.run_id, sleep.cause, (sleep.until - self.clock.now()).total_seconds())
            self.ledger.write_times(sleep.run_id)

    async def _nap(self, sleep: Sleep) -> None:
        now, wake = self.clock.now(), self.dispatcher.wake
        seconds = (min(sleep.until or now + LOOK_AGAIN, now + LOOK_AGAIN) - now).total_seconds()
        if seconds > 0 and not wake.is_set():
            began = self.clock.monotonic()
            timer = asyncio.get_running_loop().call_later(seconds, wake.set)
            self.dispatcher.dozing = (
                sleep.cause == "pacing" and sleep.until is not None and sleep.until - now <= LOOK_AGAIN
            )
            await wake.wait()
            self.dispatcher.dozing = False
            timer.cancel()
            if sleep.run_id is not None:
                self.ledger.spent(sleep.run_id, sleep.cause, self.clock.monotonic() - began)
        wake.clear()

    # --- the wall clock ---------------------------------------------------------------------------------

    def _offset(self, now: datetime) -> datetime:
        """Return the wall clock's time when the monotonic clock showed zero."""
        return now - timedelta(seconds=self.clock.monotonic())

    def _notice_clock_step(self, now: datetime) -> None:
        """Move the moments kept in memory when the clock was set: set back an hour, a retry in five seconds would be an
        hour away."""
        step = self._offset(now) - self._clock_offset
        if abs(step) < CLOCK_STEP:
            return
        self._clock_offset += step
        self.dispatcher.shift(step)
        for run in self.runs:
            run.queue.dry_until = None
            for target in run.queue.between_parts:
                target.ready_at = target.ready_at and target.ready_at + step

    # --- what there is to do ----------------------------------------------------------------------------

    async def reload(self) -> None:
        """Read account, pace settings and live runs again. The pace itself stays ours. With another server or password
        the lane ends: the driver takes it again at once, with a transport for them."""
        dispatcher, ours = self.dispatcher, self.account
        dispatcher.stale = False
        fresh = await self.ledger.gathered(loading.load_again, (self.account_id, self.clock.now()))
        dispatcher.learning.account = replace(
            fresh.account,
            pace=_with_news(ours, fresh.account, self.clock.now()),
            sample=ours.sample,
            sample_run=ours.sample_run,
            epoch=ours.epoch,
            timeouts=ours.timeouts,
            probing=fresh.account.probing or ours.probing,
            new_chats=replace(fresh.account.new_chats, hold=later(ours.new_chats.hold, fresh.account.new_chats.hold)),
        )
        if fresh.account.written_elsewhere > ours.written_elsewhere:
            dispatcher.learning.unstored = True  # the lane may be left before its next claim, which stores the pace
        if fresh.account.config != dispatcher.transport.account:
            self.stop()
        if fresh.account.on_trial and not dispatcher.calls:
            dispatcher.learning.begin_trial()
        kept = {run.id: run for run in self.runs}
        self.runs = [_merged(kept.pop(run.id, None), run) for run in fresh.runs]
        for gone in kept.values():
            dispatcher.stop_run(gone)
            if not dispatcher.open.of(gone):
                await closing.describe_again(self.ledger, gone.id, self.clock.now())
        dispatcher.uploads.handles = fresh.handles

    async def _reload_if_outdated(self, now: datetime) -> None:
        """Read the account again on a new calendar day, which has a new cap, and when a temporary ban is over."""
        if not self.runs:
            return
        over = gates.suspension_over(self.account.facts[self.runs[0].action], now)
        if over:
            await closing.end_suspension(self.ledger, self.account_id, now)
        if over or now >= self.account.day[1]:
            await self.reload()

    async def _next_run(self, now: datetime) -> tuple[LaneRun | None, Sleep]:
        """Return the first run with something to send now, in lane order, and else how long to sleep."""
        sleep = UNTIL_WOKEN
        for run in list(self.runs):
            if (
                run.scheduled_for > now and not run.attempted
            ):  # a run that has begun stays due when the clock is set back
                sleep = _sooner(sleep, Sleep(run.scheduled_for, "not due yet"))
                continue
            gate = self._gate(run, now)
            if isinstance(gate, Close):
                await self._close(run, gate, now)
            elif isinstance(gate, Wait):
                await self._hold(run, gate, now)
                sleep = _sooner(sleep, Sleep(min(gate.until, run.closes_at), gate.why, run_id=run.id))
            elif await self._has_work(run, now):
                if run.status != "running":
                    self._start(run, now)
                return run, sleep
            elif run in self.runs:
                sleep = _sooner(sleep, self._idle(run))
        return None, sleep

    def _idle(self, run: LaneRun) -> Sleep:
        """Return when a run without work at hand may have some again."""
        if self.dispatcher.open.of(run):
            return Sleep(self._next_part(run), "waiting for the provider", "provider", run.id)
        until = min(run.queue.dry_until or run.closes_at, run.closes_at)
        if run.queue.held is not None:
            return Sleep(until, run.queue.held.why, run_id=run.id)
        return Sleep(until, "waiting to try again", "retries", run.id)

    def _make_room(self, run: LaneRun, now: datetime) -> bool:
        """Return whether something of the run can be claimed. If the concurrency is used up, blocked runs first release
        their targets that are between two parts: those would count until the run goes on, and a run that is about to be
        closed never does."""
        if self._full() and not self.dispatcher.ready(run, now):
            for other in self.runs:
                if other.queue.between_parts and self._gate(other, now) != OPEN:
                    self.dispatcher.release_between_parts(other)
        return not self._full() or self.dispatcher.ready(run, now) is not None

    def _full(self) -> bool:
        return self.dispatcher.open.in_flight >= self.account.concurrency

    def _gate(self, run: LaneRun, now: datetime) -> gates.Gate:
        return run.closing or gates.may_run(self.account.facts[run.action], run.facts, now)

    def _between_parts(self, now: datetime) -> LaneRun | None:
        """Return a run with a target whose next part may go now."""
        return next((run for run in self.runs if self.dispatcher.ready(run, now)), None)

    def _next_part(self, *runs: LaneRun) -> datetime | None:
        return min((t.ready_at for run in runs for t in run.queue.between_parts if t.ready_at), default=None)

    async def _has_work(self, run: LaneRun, now: datetime) -> bool:
        if run.queue.buffer or self.dispatcher.ready(run, now):
            return True
        if run.queue.dry_until is not None and now < run.queue.dry_until:
            return False
        await self._fetch(run, now)
        if run.queue.buffer:
            return True
        if not self.dispatcher.open.of(run):
            await self._run_dry(run, now)
        return False

    async def _fetch(self, run: LaneRun, now: datetime) -> None:
        wanted = loading.Wanted(
            run=run.id,
            account=self.account_id,
            now=now,
            open=array(self.dispatcher.open.of(run) | self.ledger.unclaimable()),
            earlier=array(self._earlier(run)),
            follow_up=run.follow_up,
            no_new_chats=not self.dispatcher.new_chats.may_begin(now),
            message_1=run.message_1,
            follows=run.follows,
            most=self._chunk(run),
        )
        began = self.clock.monotonic()
        targets = await self.ledger.gathered(loading.next_targets, wanted)
        took = timedelta(seconds=self.clock.monotonic() - began)
        queue = run.queue
        queue.held, queue.fetched = None, True
        queue.buffer.extend(targets)
        if run.follow_up and targets:
            run.under_backpressure = await self.ledger.gathered(loading.under_backpressure, self.account_id)
        if not targets:
            # Where an earlier run holds all recipients, every one of them was looked at: the longer that takes, the
            # longer the pause before the next look.
            queue.next_look = queue.dry_until = now + max(LOOK_AGAIN, took * EMPTY_LOOK_FACTOR)

    def _earlier(self, run: LaneRun) -> list[int]:
        """Return the runs that this one does not overtake. Message 2 is sent first of all, but never before its Message
        1."""
        earlier = [other.id for other in self.runs[: self.runs.index(run)] if other.message_1 != run.id]
        return [*earlier, run.message_1] if run.message_1 is not None else earlier

    def _chunk(self, run: LaneRun) -> int:
        """Return how many targets to fetch: half a minute's worth, so that changes are noticed, and only a few at
        first."""
        per_minute = self.account.pace_settings.per_minute
        chunk = int(min(500, max(10, per_minute / 2))) if per_minute else 500
        return chunk if run.queue.fetched else min(FIRST_TARGETS, chunk)

    async def _run_dry(self, run: LaneRun, now: datetime) -> None:
        """Finish a run of which nothing is left to send now, or note when its next retry is due."""
        no_new_chats = self.dispatcher.new_chats.why_none(now)
        remaining = loading.Remaining(run.id, self.account_id, no_new_chats is not None)
        left = await self.ledger.gathered(loading.next_retries, remaining)
        if left["pending"] and not left["free"] and no_new_chats is not None:
            await self._hold_new_chats(run, no_new_chats, now)
            return
        if left["pending"]:
            # Due, and still not fetched: an earlier run must send to that recipient first. Look again later, not at
            # once.
            retry_at = left["at"]
            in_future = retry_at is not None and retry_at > now
            run.queue.dry_until = retry_at if in_future else run.queue.next_look or now + LOOK_AGAIN
            if no_new_chats is not None:
                run.queue.dry_until = min(run.queue.dry_until, no_new_chats.until)
            return
        self.ledger.write_times(run.id)
        await end_run(self.ledger, run.id, self.account, now)
        self.runs.remove(run)

    async def _hold_new_chats(self, run: LaneRun, gate: Wait, now: datetime) -> None:
        """Wait for new chats, the only thing left of the run, or pause it if its window ends first."""
        if gate.until >= run.closes_at:
            await self._close(run, Close(gates.NEW_CHAT_HOLD.reason, gate.why, gate.until), now)
            return
        await self._hold(run, gate, now)
        run.queue.dry_until, run.queue.held = gate.until, gate

    # --- a run's course ---------------------------------------------------------------------------------

    def _start(self, run: LaneRun, now: datetime) -> None:
        self.ledger.start_run(run.id, self.account_id, now)
        run.status = "running"

    async def _hold(self, run: LaneRun, gate: Wait, now: datetime, counts: bool = True) -> None:
        """Store that the run waits and why, unless it is only for a moment."""
        if gate.until - now <= PARK_AFTER and run.status == "running":
            return
        if run.status != "waiting" or run.waiting_until != gate.until:
            gate = replace(gate, why=plain(gate.why))
            await self.ledger.flushed()  # a start that is still to be written would end the wait
            await hold_run(self.ledger, run.id, self.account_id, gate, now, counts)
        run.status, run.waiting_until = "waiting", gate.until

    async def _close(self, run: LaneRun, gate: Close, now: datetime) -> None:
        """Stop the run once nothing of it is in flight here. A failure in flight gives its part of the cap back, so
        the account's limits are asked again then."""
        dispatcher = self.dispatcher
        if gate.reason not in gates.ASKED_AGAIN:
            run.closing = gate
        dispatcher.stop_run(run)
        if dispatcher.open.of(run):
            return
        if gate.reason == PauseReason.CIRCUIT_BREAKER:
            dispatcher.learning.begin_trial(run)
            self.ledger.leave_lane(dispatcher.learning.lane_write(now))
        self.ledger.write_times(run.id)
        await self.ledger.flushed()
        await close_run(self.ledger, run, gate, self.account, now)
        self.runs.remove(run)


def _with_news(ours: LaneAccount, fresh: LaneAccount, now: datetime) -> PaceState:
    """Return our pace, with a break of the provider that an earlier holder or the inbound worker learnt of late and its
    slow-down, and without what a person has written with the account's phone since."""
    pace, until = ours.pace, fresh.pace.next_send_at
    if fresh.probing and not ours.probing and until is not None:
        pace = replace(held(pace, until), slow_factor=max(pace.slow_factor, fresh.pace.slow_factor))
    written = fresh.written_elsewhere - ours.written_elsewhere
    return spent_elsewhere(pace, fresh.pace_settings, written, now)


def _merged(kept: LaneRun | None, fresh: LaneRun) -> LaneRun:
    """Return the fresh run; one that was under way keeps its targets."""
    if kept is None:
        return fresh
    kept.status, kept.facts = fresh.status, fresh.facts
    kept.queue.dry_until, kept.over = None, False
    return kept


def _sooner(one: Sleep, other: Sleep) -> Sleep:
    """Return the sleep that ends first. One without an end waits for an event; of two such, the one of a run, because
    it says what the lane waits for."""
    if other.until is None:
        return one if one.until is not None or one.run_id is not None else other
    return other if one.until is None or other.until < one.until else one


# --- the end of a run, as transitions on the connection that claims -----------------------------------------


async def close_run(ledger: Ledger, run: LaneRun, gate: Close, lane: LaneAccount, now: datetime) -> None:
    """Stop the run, unless another lane still has something in flight for it: that lane does this then."""
    if gate.reason == PauseReason.WINDOW_CLOSED and not (run.attempted or run.collects):
        # In transactions of their own, so that the heartbeat and other lanes come in between.
        while await closing.carry_out(ledger, transitions.skip_unstarted(run.id, now)):
            pass
    await closing.change(ledger, run.id, partial(_close_steps, run, replace(gate, why=plain(gate.why)), lane, now))


def _close_steps(run: LaneRun, gate: Close, lane: LaneAccount, now: datetime) -> Steps[None]:
    if gate.reason == PauseReason.WINDOW_CLOSED and not (run.attempted or run.collects):
        yield from transitions.fail_unstarted(run.id, now)
    account = lane.config
    if gate.reason != PauseReason.WINDOW_CLOSED and (
        yield from transitions.step_aside(run.id, account.id, account.label, gate.why, now)
    ):
        return
    if not (yield from transitions.pause(run.id, gate, lane.facts, now)):
        yield from transitions.finish(run.id, now)


# Targets that a lane left when it stepped aside, once no other lane has anything to send. Account by account: each is
# one look into the index, however many targets there are.
LEFT_BEHIND = """
SELECT a.status, coalesce(r.delays -> a.id::text ->> 'why', '') AS why
  FROM fanout_run r, LATERAL jsonb_object_keys(r.delays) AS delayed(id), accounts_account a
 WHERE r.id = %(run)s AND r.sending = 0 AND a.id = delayed.id::bigint AND NOT a.id = ANY(r.lanes)
   AND EXISTS (SELECT FROM fanout_runtarget t WHERE t.run_id = r.id AND t.account_id = a.id AND t.status = 'pending')
   AND NOT EXISTS (SELECT FROM unnest(r.lanes) AS l(id), LATERAL (
                     SELECT FROM fanout_runtarget o
                      WHERE o.run_id = r.id AND o.account_id = l.id AND o.status = 'pending' LIMIT 1) AS more)
 LIMIT 1
"""


async def end_run(ledger: Ledger, run_id: int, lane: LaneAccount, now: datetime) -> None:
    """Finish the run if nothing of it is left. If what is left belongs to accounts that cannot send, pause it."""
    await closing.change(ledger, run_id, partial(_end_steps, run_id, lane, now))


def _end_steps(run_id: int, lane: LaneAccount, now: datetime) -> Steps[None]:
    if (yield from transitions.finish(run_id, now)):
        return
    for left in (yield LEFT_BEHIND, {"run": run_id}):
        down = left["status"] != "active"
        reason = PauseReason.ACCOUNT_DOWN if down else reason_recorded(left["why"])
        yield from transitions.pause(run_id, Close(reason, left["why"]), lane.facts, now)


async def hold_run(ledger: Ledger, run_id: int, account_id: int, gate: Wait, now: datetime, counts: bool) -> None:
    """Store that the run waits, and why."""
    await closing.change(ledger, run_id, partial(transitions.wait, run_id, account_id, gate, now, counts))
