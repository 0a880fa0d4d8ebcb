"""Send for one account: claim, call the provider, record the answer, and do what follows from it.

The order is always the same: durable `sending` before the provider is called, durable outcome after it, and the pace
stored with the claim.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Coroutine
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, cast

from django.conf import settings

from accounts.addresses import NEW_CHAT_KINDS, guess_kind
from accounts.channels.base import Kind, NotSent, Outcome, Part, Sent, Transport, Unknown
from fanout.engine import closing
from fanout.engine.clock import Clock, TimeLimit
from fanout.engine.commit import Claim, LaneWrite, Result
from fanout.engine.ledger import Ledger
from fanout.engine.loading import LaneAccount, LaneLoad, LaneRun, Target
from fanout.engine.uploads import Uploads
from fanout.lanes import status
from fanout.models.run import PauseReason
from fanout.rules import breaker, gates
from fanout.rules.gates import Close, Open, Refuse, Wait
from fanout.rules.message_ids import message_id
from fanout.rules.new_chat_limits import NewChats, may_begin, refused, wait_for_new_chats, went_through
from fanout.rules.outcomes import Consequence, after_timeout, consequence, next_part, parts_out, timed_out
from fanout.rules.pace import adapted, after_claim, called_late, debt, earliest_send, held, moved
from fanout.runs import texts
from reminders.placeholders import rendered, with_link

log = logging.getLogger("crier.lane")

SLOW_CALL = 1.0  # seconds: at the end of a slice such a lane is asked to stop before the others
REFUSED_SKIPS_PAUSE = timedelta(seconds=1)  # a lane whose skips the database did not take looks again
STALE_CLAIM = 2.0  # seconds between claim and call: a process that slept asks again first
SEND_LIMIT = 12.0  # seconds for one call, so that a slice always ends within the task's time limit

MOST_TIMEOUTS = 30_000  # counted: the column is small

NEVER_CALLED = NotSent(Kind.NETWORK, "not sent: the lane was lost or the window closed before the call")


class Dispatcher:
    """Talks to one account's provider. The lane decides when; the dispatcher sends and learns from the answers."""

    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        load: LaneLoad,
        transport: Transport,
        rng: random.Random,
        slice_ends_at: float | None = None,
    ) -> None:
        self.ledger = ledger
        self.clock = clock
        self.transport = transport
        self.rng = rng
        self.learning = Learning(load.account)
        self.new_chats = ChatsInFlight(self.learning)
        self.uploads = Uploads(ledger, clock, transport, self.account_id, load.handles, slice_ends_at)
        self.calls: dict[asyncio.Task[None], float] = {}  # under way, with when each began (monotonic)
        self.last_latency = 0.0
        self.limit = TimeLimit(SEND_LIMIT)
        self.open = OpenTargets()
        self.stale = False  # something changed in the database that the lane must read
        self.failure: BaseException | None = None
        self.wake = asyncio.Event()
        self.dozing = False  # the lane naps until its pace allows the next send: a delivery is no news to it

    @property
    def account(self) -> LaneAccount:
        return self.learning.account

    @property
    def account_id(self) -> int:
        return self.account.config.id

    @property
    def busy(self) -> bool:
        return bool(self.calls or self.open.being_written) or self.uploads.began is not None

    @property
    def only_uploads(self) -> bool:
        return self.uploads.began is not None and not self.calls

    def slow(self) -> bool:
        """Return whether a call or an upload under way is slow, or probably will be because the last answer was."""
        began = [*self.calls.values(), *([self.uploads.began] if self.uploads.began is not None else [])]
        return bool(began) and max(self.last_latency, self.clock.monotonic() - min(began)) > SLOW_CALL

    def ready(self, run: LaneRun, now: datetime) -> Target | None:
        """Return a target between two parts whose next part may go."""
        return next((t for t in run.queue.between_parts if t.ready_at is None or t.ready_at <= now), None)

    def stop_run(self, run: LaneRun) -> None:
        """Claim nothing more of this run."""
        run.queue.buffer.clear()
        self.release_between_parts(run)
        run.over = True

    def release_between_parts(self, run: LaneRun) -> None:
        """Release the targets between two parts: they are pending like others, and go on at their next part when they
        are fetched again."""
        for target in run.queue.between_parts:
            self.open.remove(run, target)
        run.queue.between_parts.clear()

    async def finish_calls(self) -> None:
        """Wait until the calls under way have ended and are recorded."""
        while self.calls or self.open.being_written:
            await (asyncio.wait(set(self.calls)) if self.calls else self.ledger.flushed())
        if self.learning.unstored:
            self.ledger.leave_lane(self.learning.lane_write(self.clock.now()))

    def shift(self, step: timedelta) -> None:
        """Move what is kept in memory after the wall clock was set by `step`."""
        self.account.pace = moved(self.account.pace, step)
        if self.learning.held is not None:
            self.learning.held = replace(self.learning.held, until=self.learning.held.until + step)

    # --- media ------------------------------------------------------------------------------------------

    async def media_ready(self, run: LaneRun, now: datetime) -> bool:
        """Upload the run's next missing file. Returns False when something was uploaded or failed: the clock must be
        read and the gates asked again."""
        missing = self.uploads.missing(run, now)
        if missing is None:
            return True
        began = self.clock.monotonic()
        failure = await self.uploads.upload(missing)
        took = self.clock.monotonic() - began
        self.ledger.spent(run.id, "media", took)
        if failure is not None:
            await self._upload_failed(run, missing.filename, failure, took)
        return False

    async def _upload_failed(self, run: LaneRun, filename: str, why: NotSent, took: float) -> None:
        """Act on a failed upload without touching the recipients: change the account, hold the lane or close the
        run."""
        now = self.clock.now()
        self.learning.judge_by(run)
        verdict = consequence(
            why,
            retries=(),
            attempts=self.uploads.tries,
            base=self.account.retry_base,
            sample=self.learning.recent,
            repeatable=False,
            now=now,
        )
        if timed_out(why, took):
            verdict = self.learning.timed_out(verdict, now)
        if verdict.account is not None:
            await self._change_account(verdict, now)
        elif verdict.retry_at is not None:
            self.learning.hold(verdict, verdict.hold_until or verdict.retry_at)
        else:
            run.closing = Close(PauseReason.MEDIA, f"“{filename}” could not be uploaded: {why.detail or why.kind}")

    # --- claim and send ---------------------------------------------------------------------------------

    async def claim_and_send(self, run: LaneRun, now: datetime) -> None:
        picked = self._pick(run, now)
        if not picked:
            # All targets at hand were refused. Flushed before the next look, or the same ones would be fetched again.
            if not await self.ledger.flushed():
                run.queue.dry_until = now + REFUSED_SKIPS_PAUSE
            return
        claims = [claim for _, claim, _ in picked]
        lane = self.learning.lane_write(now)
        lane.claimed_at = now
        granted = await self.ledger.claim(claims, lane)
        run.attempted = run.attempted or bool(granted)
        for target, claim, debt_at_claim in picked:
            if claim.target_id in granted:
                self._spawn(self._deliver(run, target, claim, debt_at_claim))
            else:
                # It was settled, moved or paused meanwhile: look again.
                self._use(run, -1)
                self.new_chats.end(target, counts=False)
                self.open.remove(run, target)
                self.stale = True

    def _pick(self, run: LaneRun, now: datetime) -> list[tuple[Target, Claim, timedelta]]:
        """Return the targets to claim now, each with the bucket's debt before it."""
        picked: list[tuple[Target, Claim, timedelta]] = []
        account, mono = self.account, self.clock.monotonic()
        while earliest_send(account.pace, account.pace_settings, now) <= now and self._below_cap(run):
            target = self._pick_one(run, now)
            if target is None:
                break
            debt_at_claim = debt(account.pace, now)
            account.pace = after_claim(account.pace, account.pace_settings, now, self.rng, run.under_backpressure)
            self._use(run, 1)
            self.new_chats.begin(target)
            person = target.address if run.follow_up and not target.parts_sent else ""
            claim = Claim(
                target.id,
                run.id,
                self.account_id,
                account.epoch,
                now,
                mono,
                person,
                target.parts_sent,
                next_part(target.parts_sent, target.part_ids) - target.parts_sent - 1,
                target.address,
                run.origin,
            )
            picked.append((target, claim, debt_at_claim))
            if account.probing:
                break
        return picked

    def _below_cap(self, run: LaneRun) -> bool:
        limits = self.account.facts[run.action]
        return limits.cap is None or limits.used < limits.cap

    def _use(self, run: LaneRun, messages: int) -> None:
        """Add messages to the cap's use. In flight counts as sent; a certain failure gives it back. A run that has left
        the lane may have been the only one of its action: then nothing is counted."""
        limits = self.account.facts.get(run.action)
        if limits is not None and limits.cap is not None:
            self.account.facts[run.action] = replace(limits, used=limits.used + messages)

    def _pick_one(self, run: LaneRun, now: datetime) -> Target | None:
        ready = self.ready(run, now)
        if ready is not None:
            run.queue.between_parts.remove(ready)
            return ready
        while run.queue.buffer and self.open.in_flight < self.account.concurrency:
            target = run.queue.buffer.popleft()
            if target.new_chat and not self.new_chats.may_begin(now):
                continue  # it stays pending, and is fetched again when new chats may begin
            gate = gates.may_receive(target.facts, self.account.follow_up_limits, now, gates.late_words(run.collects))
            if isinstance(gate, Open) and (why := self._unfit(run, target, now)):
                gate = Refuse(why)
            if isinstance(gate, Open):
                self.open.add(run, target)
                return target
            if isinstance(gate, Refuse):
                self.ledger.skip(target.id, run.id, gate.why, now)
        return None

    def _unfit(self, run: LaneRun, target: Target, now: datetime) -> str:
        """Return why the provider would not take a part of it for this person, or "": half a message is none. Each
        part is judged with this person's words."""
        if self.transport.channel.free_for is None:
            return ""
        left = [n for n in range(target.parts_sent, len(run.parts)) if str(n) not in target.part_ids]
        fitted = (self._fit(self._part(run, target, n), target, now) for n in left)
        return next((part.detail for part in fitted if isinstance(part, NotSent)), "")

    def _fit(self, part: Part, target: Target, now: datetime) -> Part | NotSent:
        """Return the part as the provider takes it for this person at this moment. Groups get it as it is."""
        if self.transport.channel.free_for is None:
            return part
        if guess_kind(target.address) in NEW_CHAT_KINDS:
            fitted = self.transport.fit(part, target.last_wrote_at, now)
            if isinstance(fitted, NotSent):
                return fitted
            part = fitted
        return self.transport.unfit(part) or part

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self.calls[task] = self.clock.monotonic()
        task.add_done_callback(self._call_ended)

    def _call_ended(self, task: asyncio.Task[None]) -> None:
        if self.calls.pop(task, None) is None:
            return  # handed in: the lane knows
        if not task.cancelled() and task.exception() is not None:
            self.failure = task.exception()
            self.wake.set()
        else:
            self._tell_lane()

    def _tell_lane(self) -> None:
        if not self.dozing or self.stale:
            self.wake.set()

    async def _deliver(self, run: LaneRun, target: Target, claim: Claim, debt_at_claim: timedelta) -> None:
        """Send one part of a claimed target and record what came of it."""
        part = self._part(run, target, target.parts_sent)
        outcome, latency = await self._call(run, target, part, claim, debt_at_claim)
        await self._settle(run, target, part, claim, outcome, latency)

    def _part(self, run: LaneRun, target: Target, index: int) -> Part:
        part = run.parts[index]
        link = self.account.config.unsubscribe_url(target.address) if part.personal or self.account.adds_link else None
        if part.personal:
            part = rendered(part, target.values or {}, target.id, link)
        if self.account.adds_link and link:
            part = with_link(part, link, settings.UNSUBSCRIBE_TEXT, target.id)
        if part.media is not None and part.media.key in self.uploads.handles:
            return replace(part, handle=self.uploads.handles[part.media.key].handle)
        return part

    async def _call(
        self, run: LaneRun, target: Target, part: Part, claim: Claim, debt_at_claim: timedelta
    ) -> tuple[Outcome, float]:
        """Call the provider. Returns its answer and the seconds it took."""
        began, now = self.clock.monotonic(), self.clock.now()
        # By both clocks: in a virtual machine that was paused, only the wall clock jumps.
        if max(began - claim.mono, (now - claim.at).total_seconds()) > STALE_CLAIM:
            if not await self.ledger.still_mine(self.account_id, claim.epoch):
                return NEVER_CALLED, 0
            began, now = self.clock.monotonic(), self.clock.now()
        if now >= run.closes_at:
            return NEVER_CALLED, 0
        fitted = self._fit(part, target, now)
        if isinstance(fitted, NotSent):
            return fitted, 0
        part = fitted
        self.account.pace = called_late(self.account.pace, debt_at_claim, timedelta(seconds=began - claim.mono))
        self.transport.epoch = claim.epoch
        try:
            outcome = await self.limit.keep(
                self.transport.send(target.address, part, message_id(target.id, part.index))
            )
        except TimeoutError:
            outcome = Unknown(f"no answer within {SEND_LIMIT:g} s")
        except asyncio.CancelledError:
            if cast("asyncio.Task[None]", asyncio.current_task()).cancelling():
                raise
            outcome = Unknown("the call was broken off")  # by the transport itself: this task was not cancelled
        except Exception as error:  # a transport's bug: the message may have gone out
            log.exception("the %s transport raised", self.transport.channel.key, extra={"target": target.id})
            outcome = Unknown(f"{type(error).__name__}: {error}")
        self.last_latency = self.clock.monotonic() - began
        return outcome, self.last_latency

    async def _settle(
        self, run: LaneRun, target: Target, part: Part, claim: Claim, outcome: Outcome, latency: float
    ) -> None:
        now = self.clock.now()
        target.attempts += 1
        self.learning.judge_by(run)
        verdict = self._verdict(outcome, target.attempts, now)
        if timed_out(outcome, latency):
            verdict = self.learning.timed_out(verdict, now)
        next_part_at = self._next_part_at(run, target, now) if isinstance(outcome, Sent) else None
        result = result_of(run, target, part, claim, outcome, verdict, latency, next_part_at, now)
        self.learning.learn(run, verdict)
        self.new_chats.learn(target, result, verdict, now)
        if result.status == "sent" and self.learning.changed_nothing() and run.closing is None and not run.over:
            self._hand_in(run, target, result)
            return
        await self.ledger.record(result, self.learning.lane_after(outcome, now))
        if not isinstance(outcome, Sent) and result.status != "unconfirmed":
            self._use(run, -1)
        self.new_chats.end(target, counts=not isinstance(outcome, NotSent))
        if verdict.retry_at is not None and run.queue.dry_until is not None:
            run.queue.dry_until = min(run.queue.dry_until, verdict.retry_at)
        self._go_on_or_close(run, target, result)
        await self._protect(run, verdict, now)
        if not self.open.of(run):
            self._nothing_in_flight(run)
        if verdict.status == "failed" and verdict.kind in (Kind.HARD_BOUNCE, Kind.SOFT_BOUNCE, Kind.SENDER_REJECTED):
            await self._bounced(target, verdict, now)

    def _next_part_at(self, run: LaneRun, target: Target, now: datetime) -> datetime | None:
        """Return when the target's next part may go; None after the last one."""
        if next_part(target.parts_sent, target.part_ids) >= len(run.parts):
            return None
        return now + timedelta(seconds=self.rng.uniform(*self.account.jitter))

    def _hand_in(self, run: LaneRun, target: Target, result: Result) -> None:
        """Hand in a plain delivery. Its room is free at once: the next claim goes out in the same commit, behind the
        result."""
        self.new_chats.end(target, counts=True)
        self.open.release(target)
        self.ledger.hand_in(result, None, partial(self._written, run, target))
        # The call must be over before the lane looks for work.
        self.calls.pop(cast("asyncio.Task[None]", asyncio.current_task()), None)
        self._tell_lane()

    def _written(self, run: LaneRun, target: Target, error: BaseException | None) -> None:
        if target.id not in self.open.of(run):
            return
        self.open.remove(run, target)
        if not self.open.of(run):
            self._nothing_in_flight(run)
            self._tell_lane()
        if error is not None:
            self.failure = error
            self.wake.set()

    def _nothing_in_flight(self, run: LaneRun) -> None:
        """Let the lane check whether the run is done."""
        run.queue.dry_until = None
        if run.over:
            self._spawn(closing.describe_again(self.ledger, run.id, self.clock.now()))

    def _verdict(self, outcome: Outcome, attempts: int, now: datetime) -> Consequence:
        if outcome is NEVER_CALLED:
            return Consequence("pending", spends_attempt=False, kind="network", error=NEVER_CALLED.detail)
        return consequence(
            outcome,
            retries=self.account.retries,
            attempts=attempts,
            base=self.account.retry_base,
            sample=self.learning.recent,
            repeatable=self.transport.recognises_repeats,
            now=now,
        )

    def _go_on_or_close(self, run: LaneRun, target: Target, result: Result) -> None:
        """Keep the target for its next part, or release it."""
        if result.status == "pending" and result.parts_sent > target.parts_sent and not run.closing and not run.over:
            target.parts_sent = result.parts_sent
            target.attempts = 0
            target.ready_at = result.retry_at
            run.queue.between_parts.append(target)
        else:
            self.open.remove(run, target)

    async def _protect(self, run: LaneRun, verdict: Consequence, now: datetime) -> None:
        """Pause the account or the run when its outcomes are bad."""
        if verdict.account is not None:
            await self._change_account(verdict, now)
        elif verdict.letter is None or verdict.letter not in breaker.JUDGED:
            return
        elif why := self.learning.too_many_bounces():
            await self._pause_account(why, now)
        elif tripped := self.learning.probe_or_trip(verdict.letter):
            run.closing = run.closing or tripped
            self.wake.set()

    async def _bounced(self, target: Target, verdict: Consequence, now: datetime) -> None:
        """Judge the account's whole day, with bounces reported later, and the address's last outcomes."""
        (day,) = await self.ledger.read(*status.bounces_of_day(self.account_id, self.account.day[0]))
        if why := breaker.too_many_bounces(day["bounced"], day["sends"], self.account.bounces_at):
            await self._pause_account(why, now)
        if verdict.kind == Kind.SOFT_BOUNCE:
            await closing.judge_address(self.ledger, target.address, verdict.error, now)

    async def _pause_account(self, why: str, now: datetime) -> None:
        await closing.pause_account(self.ledger, self.account_id, why, now)
        self.stale = True

    async def _change_account(self, verdict: Consequence, now: datetime) -> None:
        assert verdict.account is not None
        await closing.change_account(self.ledger, self.account_id, verdict.account, now)
        self.stale = True


# --- results ----------------------------------------------------------------------------------------------


#: The activity's outcome for messages that were not sent, where it is not "failed"; empty: no activity.
NOT_FAILED: dict[str, str] = {
    Kind.RATE_LIMITED: "rate_limited",
    Kind.NETWORK: "",
    Kind.NOT_WRITABLE: "",
    Kind.OPTED_OUT: "",
}


def result_of(
    run: LaneRun,
    target: Target,
    part: Part,
    claim: Claim,
    outcome: Outcome,
    verdict: Consequence,
    latency: float,
    next_part_at: datetime | None,
    now: datetime,
) -> Result:
    """Return the outcome of one claimed part as the ledger writes it. `next_part_at`: when the target's next part may
    go; None: it was the last one."""
    sent, more = isinstance(outcome, Sent), next_part_at is not None
    activity = "sent" if sent else NOT_FAILED.get(verdict.kind, "failed")
    return Result(
        target_id=target.id,
        run_id=run.id,
        account_id=claim.account_id,
        epoch=claim.epoch,
        claimed_at=claim.at,
        status="pending" if more else verdict.status,
        parts_sent=next_part(target.parts_sent, target.part_ids) if sent else target.parts_sent,
        # Attempts count the tries at the current part.
        attempts=0 if more else target.attempts - (not verdict.spends_attempt),
        at=now,
        action=run.action,
        part=part.index,
        activity="" if verdict.status == "unconfirmed" else activity,
        retry_at=next_part_at or verdict.retry_at,
        latency_ms=int(latency * 1000) if sent else None,
        provider_id="" if isinstance(outcome, NotSent) else outcome.provider_id,
        known_as=outcome.known_as if isinstance(outcome, Sent) else "",
        kind=verdict.kind,
        error=_error(run, target, verdict),
        suppress=target.address if verdict.suppress else "",
        suppress_as=verdict.suppress or "hard_bounce",
        follow_up_to=target.address if run.follow_up and sent and not more else "",
        hold_until=verdict.hold_until,
    )


def _error(run: LaneRun, target: Target, verdict: Consequence) -> str:
    """Return the error, and which parts of the message went out where it ends with this one."""
    if verdict.status not in ("failed", "skipped"):
        return verdict.error
    out = parts_out(target.parts_sent, target.part_ids)
    return texts.part_refused(target.parts_sent, len(run.parts), out, verdict.error)


# --- new chats --------------------------------------------------------------------------------------------


class ChatsInFlight:
    """The new chats that a lane has begun and has no answer for yet. They count as begun."""

    def __init__(self, learning: Learning) -> None:
        self.learning = learning
        self._targets: set[int] = set()

    @property
    def new_chats(self) -> NewChats:
        return self.learning.account.new_chats

    def may_begin(self, now: datetime) -> bool:
        return may_begin(self.new_chats, len(self._targets), now)

    def why_none(self, now: datetime) -> Wait | None:
        """Return why no new chat may begin now, and until when; None: one may."""
        return wait_for_new_chats(self.new_chats, now)

    def begin(self, target: Target) -> None:
        if target.new_chat:
            self._targets.add(target.id)
            self._count(1)

    def end(self, target: Target, counts: bool) -> None:
        """End a new chat once the provider has answered, or was never called. `counts`: the message went out, or may
        have."""
        if target.id in self._targets:
            self._targets.remove(target.id)
            if not counts:
                self._count(-1)

    def _count(self, chats: int) -> None:
        self.learning.account.new_chats = self.new_chats.begin(chats)

    def learn(self, target: Target, result: Result, verdict: Consequence, now: datetime) -> None:
        """Add to the result whether the chat has begun, and the hold of new chats that follows from the outcome."""
        hold = self.new_chats.hold
        if verdict.kind == Kind.NEW_CHATS_BLOCKED and verdict.retry_at is not None:
            hold = refused(hold, (verdict.retry_at - now).total_seconds(), verdict.error, now)
        elif target.new_chat and verdict.status == "sent":
            result.begins_chat, target.new_chat = True, False
            hold = went_through(hold, now)
        if hold != self.new_chats.hold:
            self.learning.account.new_chats = replace(self.new_chats, hold=hold)
            result.new_chat_hold = hold


# --- open targets -----------------------------------------------------------------------------------------


class OpenTargets:
    """Targets of an account that are at the provider, between two parts, or whose result is being written, by run. They
    are `in_flight`, and count against the concurrency, until only the result is left to be written."""

    def __init__(self) -> None:
        self._by_run: dict[int, set[int]] = {}
        self._in_flight: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._by_run)

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    @property
    def being_written(self) -> int:
        return sum(map(len, self._by_run.values())) - len(self._in_flight)

    def of(self, run: LaneRun) -> set[int]:
        return self._by_run.get(run.id, set())

    def add(self, run: LaneRun, target: Target) -> None:
        self._by_run.setdefault(run.id, set()).add(target.id)
        self._in_flight.add(target.id)

    def release(self, target: Target) -> None:
        self._in_flight.discard(target.id)

    def remove(self, run: LaneRun, target: Target) -> None:
        self._in_flight.discard(target.id)
        targets = self._by_run[run.id]
        targets.discard(target.id)
        if not targets:
            del self._by_run[run.id]


# --- what the answers teach -------------------------------------------------------------------------------


def _outage(account: LaneAccount) -> Wait | None:
    """Return the break of a lane that is taken again while its provider is away."""
    if not account.outage or not account.probing or account.pace.next_send_at is None:
        return None
    return Wait(account.pace.next_send_at, account.outage)


class Learning:
    """An account as its lane knows it, changed by every outcome."""

    def __init__(self, account: LaneAccount) -> None:
        self.account = account
        self.samples: dict[int, str] = {}  # of runs other than the one judged now
        self.recent = account.sample  # of the lane, across runs
        self.unstored = False  # the sample or the timeouts have grown since they were last handed to the ledger
        self.held = _outage(account)  # a provider asked for a break
        self.cleared = False  # has delivered since it was taken

    def judge_by(self, run: LaneRun) -> None:
        """Switch the sample to this run, which is judged by its own outcomes only: yesterday's failures must not pause
        today's run, and retries of one run must not hide failures of another. A run that interrupts adds to the sample
        at hand."""
        account = self.account
        if account.on_trial or account.sample_run == run.id or (run.interrupts and account.sample_run is not None):
            return
        if account.sample_run is not None:
            self.samples[account.sample_run] = account.sample
        account.sample, account.sample_run = self.samples.pop(run.id, ""), run.id

    def begin_trial(self, tripped: LaneRun | None = None) -> None:
        """Put the account on trial: its next message must go through, and is judged by its own outcome."""
        if tripped is not None:
            self.samples.pop(tripped.id, None)
        self.account.probing, self.account.sample, self.account.sample_run = True, "", None
        self.recent = ""

    def learn(self, run: LaneRun, verdict: Consequence) -> None:
        """Add an outcome to the sample and adapt the lane's pace."""
        account = self.account
        if verdict.letter == breaker.SENT:
            account.timeouts = 0
        if verdict.letter is not None:
            if account.on_trial and verdict.letter == breaker.SENT:
                account.sample, account.sample_run = self.samples.pop(run.id, ""), run.id  # passed
            account.sample = breaker.add(account.sample, verdict.letter)
            self.recent = breaker.add(self.recent, verdict.letter)
            self.unstored = True
        if verdict.slow:
            account.pace = adapted(account.pace, 1.0, 0.0)
        elif verdict.letter is not None and verdict.letter in breaker.JUDGED:
            account.pace = adapted(account.pace, breaker.slowdown_rate(account.sample), account.slowdown_at)
        if verdict.hold_until is not None:
            self.hold(verdict, verdict.hold_until)

    def timed_out(self, verdict: Consequence, now: datetime) -> Consequence:
        """Return the consequence of a call that had no answer in time, with a break that is longer each time. While
        others get through there is none. Calls that were under way together count as one."""
        if self.recent.endswith(breaker.SENT):
            return verdict
        if self.held is None or self.held.until <= now:
            self.account.timeouts = min(self.account.timeouts + 1, MOST_TIMEOUTS)
            self.unstored = True
        return after_timeout(verdict, self.account.timeouts, now)

    def hold(self, verdict: Consequence, until: datetime) -> None:
        """Hold the lane for a break that the provider asked for."""
        self.account.pace = held(self.account.pace, until)
        self.account.probing = True  # one message at a time until one goes through, also for later drivers
        self.held = Wait(until, verdict.hold_why or f"{verdict.kind.replace('_', ' ')}: {verdict.error}")

    def probe_or_trip(self, letter: str) -> Close | None:
        """End the probing after a delivery. After a failure, return why the run must pause: too many failed, or it was
        a trial."""
        account = self.account
        if letter == breaker.SENT:
            account.probing = False
        elif account.on_trial or breaker.trips(account.sample, account.breaker_at):
            return Close(
                PauseReason.CIRCUIT_BREAKER, f"{breaker.error_rate(account.sample):.0%} of the last sends failed"
            )
        return None

    def too_many_bounces(self) -> str:
        """Return why the account must pause, by its last outcomes; empty: it may go on."""
        return breaker.bounces(self.account.sample, self.account.bounces_at)

    def changed_nothing(self) -> bool:
        """Return whether a delivery changed nothing for the lane."""
        return self.cleared and not self.account.probing and not self.too_many_bounces()

    def lane_after(self, outcome: Outcome, now: datetime) -> LaneWrite | None:
        """Return the lane's state to be stored with a result. None: it can wait for the next claim. Trouble is written
        at once, and so is the first delivery, which clears the lane of the suspicion of crashing its drivers."""
        delivered = isinstance(outcome, Sent)
        if delivered and self.cleared and not self.account.probing:
            return None
        lane = self.lane_write(now)
        lane.clears_crashes = delivered
        self.cleared = self.cleared or delivered
        return lane

    def lane_write(self, now: datetime) -> LaneWrite:
        """Return the lane's state as it is stored."""
        self.unstored = False
        account = self.account
        return LaneWrite(
            account.account_id,
            account.epoch,
            account.pace,
            account.sample,
            account.sample_run,
            account.probing,
            now,
            timeouts=account.timeouts,
        )
