"""How a lane sends: upload, claim, call the provider, record, and learn from the answer.

Everything here follows one order: durable `sending` before the provider is called, durable outcome after it, and the
pace stored with the claim.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Coroutine
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from accounts.channels.base import Kind, NotSent, Outcome, Part, Sent, Transport, Unknown
from fanout.engine import closing, media
from fanout.engine.clock import Clock
from fanout.engine.facts import Loaded, RunView, Target, Uploaded
from fanout.engine.ledger import Claim, LaneWrite, Ledger, Result
from fanout.models.run import PauseReason
from fanout.rules import breaker, gates
from fanout.rules.gates import Close, Open, Refuse, Wait
from fanout.rules.outcomes import Consequence, consequence
from fanout.rules.pace import adapted, after_claim, called_late, held, next_slot

log = logging.getLogger("crier.lane")

STALE_CLAIM = timedelta(seconds=2)  # between claim and call: a process that slept asks again first
SEND_LIMIT = 12.0  # seconds for one call, so that a slice always ends within the task's time limit
UPLOAD_LIMIT = 17.0

NEVER_CALLED = NotSent(Kind.NETWORK, "not sent: the lane was lost or the window closed before the call")


class Sending:
    """The half of a lane that deals with the provider; `Lane` decides when."""

    def __init__(self, ledger: Ledger, clock: Clock, loaded: Loaded, transport: Transport, rng: random.Random) -> None:
        self.ledger = ledger
        self.clock = clock
        self.view = loaded.view
        self.runs = loaded.runs
        self.handles = loaded.handles
        self.transport = transport
        self.rng = rng
        self.in_flight: set[asyncio.Task[None]] = set()
        self.open = 0  # targets in flight or between two parts
        self.outcomes = 0
        self.upload_tries = 0
        self.held: Wait | None = None  # a provider asked for a break
        self.cleared = False  # has delivered since it was taken
        self.stale = False
        self.stopping = False
        self.slice_ends_at: datetime | None = None
        self.failure: BaseException | None = None
        self.wake = asyncio.Event()

    @property
    def account_id(self) -> int:
        return self.view.account.id

    def _ready(self, run: RunView, now: datetime) -> Target | None:
        """A target between two parts whose next part may go."""
        return next((t for t in run.continuing if t.ready_at is None or t.ready_at <= now), None)

    # --- media ------------------------------------------------------------------------------------------

    async def _media_ready(self, run: RunView, now: datetime) -> bool:
        """Upload what the run needs, once. False: something else must happen first."""
        if not self.transport.uploads_media:
            return True
        missing = media.missing(run, self.handles, now)
        if missing is None:
            return True
        began = self.clock.now()
        answer = await media.upload(
            self.ledger, self.clock, self.transport, self.account_id, missing, self._upload_limit(now)
        )
        self.ledger.spent(run.id, "media", (self.clock.now() - began).total_seconds())
        self.upload_tries += 1
        if isinstance(answer, Uploaded):
            self.upload_tries = 0
            self.handles[missing.sha256] = answer
            return False  # an upload takes its time: the next step reads the clock and asks the gates again
        await self._upload_failed(run, missing.filename, answer)
        return False

    def _upload_limit(self, now: datetime) -> float:
        """An upload may use what is left of the slice, and a little more."""
        left = (self.slice_ends_at - now).total_seconds() if self.slice_ends_at else 0.0
        return max(0.0, left) + UPLOAD_LIMIT

    async def _upload_failed(self, run: RunView, filename: str, why: NotSent) -> None:
        """The recipients have nothing to do with it: the account's trouble, a wait, or the file itself."""
        now = self.clock.now()
        verdict = consequence(
            why,
            retries=(),
            attempts=self.upload_tries, base=self.view.retry_base, sample=self.view.sample,
                              repeatable=False, now=now)  # fmt: skip
        if verdict.account is not None:
            await self._change_account(verdict, now)
        elif verdict.retry_at is not None:
            self._break(replace(verdict, hold_until=verdict.hold_until or verdict.retry_at))
        else:
            run.closing = Close(PauseReason.MEDIA, f"“{filename}” could not be uploaded: {why.detail or why.kind}")

    # --- claim and send ---------------------------------------------------------------------------------

    async def _claim_and_send(self, run: RunView, now: datetime) -> None:
        picked = self._pick(run, now)
        if not picked:
            return
        claims = [claim for _, claim, _ in picked]
        lane = self._write(now)
        lane.claimed_at = now
        granted = await self.ledger.claim(claims, lane)
        run.attempted = run.attempted or bool(granted)
        for target, claim, tat in picked:
            if claim.target_id in granted:
                self._spawn(self._deliver(run, target, claim, tat))
            else:
                # Somebody settled, moved or paused it meanwhile: look again.
                self._use(run, -1)
                self._forget(run, target)
                self.stale = True

    def _pick(self, run: RunView, now: datetime) -> list[tuple[Target, Claim, datetime | None]]:
        """The targets to claim now, each with the bucket as it stands after it."""
        picked: list[tuple[Target, Claim, datetime | None]] = []
        view = self.view
        while next_slot(view.pace, view.pace_settings, now) <= now and self._below_cap(run):
            target = self._pick_one(run, now)
            if target is None:
                break
            view.pace = after_claim(view.pace, view.pace_settings, now, self.rng)
            self._use(run, 1)
            picked.append((target, Claim(target.id, self.account_id, view.epoch, now), view.pace.tat))
            if view.probing:
                break
        return picked

    def _below_cap(self, run: RunView) -> bool:
        account = self.view.facts[run.action]
        return account.cap is None or account.used < account.cap

    def _use(self, run: RunView, messages: int) -> None:
        """What is in flight counts as if sent; a certain failure gives it back."""
        account = self.view.facts[run.action]
        if account.cap is not None:
            self.view.facts[run.action] = replace(account, used=account.used + messages)

    def _pick_one(self, run: RunView, now: datetime) -> Target | None:
        ready = self._ready(run, now)
        if ready is not None:
            run.continuing.remove(ready)
            return ready
        while run.buffer and self.open < self.view.concurrency:
            target = run.buffer.popleft()
            gate = gates.may_receive(target.facts, now)
            if isinstance(gate, Open):
                run.open.add(target.id)
                self.open += 1
                return target
            if isinstance(gate, Refuse):
                self.ledger.skip(target.id, gate.why, now)
        return None

    def _forget(self, run: RunView, target: Target) -> None:
        run.open.discard(target.id)
        self.open -= 1

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self.in_flight.add(task)
        task.add_done_callback(self._landed)

    def _landed(self, task: asyncio.Task[None]) -> None:
        self.in_flight.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.failure = task.exception()
        self.wake.set()

    async def _deliver(self, run: RunView, target: Target, claim: Claim, tat: datetime | None) -> None:
        """Send one part of a claimed target and record what came of it."""
        part = self._part(run, target)
        outcome, latency = await self._call(run, target, part, claim, tat)
        await self._settle(run, target, part, claim, outcome, latency)

    def _part(self, run: RunView, target: Target) -> Part:
        part = run.parts[target.parts_sent]
        if part.media is not None and part.media.sha256 in self.handles:
            return replace(part, handle=self.handles[part.media.sha256].handle)
        return part

    async def _call(
        self, run: RunView, target: Target, part: Part, claim: Claim, tat: datetime | None
    ) -> tuple[Outcome, float]:
        now = self.clock.now()
        if now - claim.at > STALE_CLAIM:
            if not await self.ledger.still_mine(self.account_id, claim.epoch):
                return NEVER_CALLED, 0
            now = self.clock.now()
        if now >= run.closes_at:
            return NEVER_CALLED, 0
        self.view.pace = called_late(self.view.pace, tat, now - claim.at)
        try:
            async with asyncio.timeout(SEND_LIMIT):
                outcome = await self.transport.send(target.address, part, message_id(target.id, part.index))
        except TimeoutError:
            outcome = Unknown(f"no answer within {SEND_LIMIT:g} s")
        except Exception as error:  # a transport's bug: nobody knows what went out
            log.exception("transport %s raised on target %s", self.transport.channel.key, target.id)
            outcome = Unknown(f"{type(error).__name__}: {error}")
        return outcome, (self.clock.now() - now).total_seconds()

    async def _settle(
        self, run: RunView, target: Target, part: Part, claim: Claim, outcome: Outcome, latency: float
    ) -> None:
        now = self.clock.now()
        target.attempts += 1
        verdict = self._verdict(outcome, target.attempts, now)
        result = self._result(run, target, part, claim, outcome, verdict, latency, now)
        self._learn(verdict, now)
        await self.ledger.record(result, self._lesson(outcome, now))
        if not isinstance(outcome, Sent) and result.status != "unconfirmed":
            self._use(run, -1)
        if verdict.retry_at is not None and run.dry_until is not None:
            run.dry_until = min(run.dry_until, verdict.retry_at)
        self._go_on_or_forget(run, target, result)
        if run.over and not run.open:
            await closing.describe_again(self.ledger, run.id)
        if not run.open:
            run.dry_until = None  # the last one landed: look whether the run is done
        await self._protect(run, verdict, now)

    def _lesson(self, outcome: Outcome, now: datetime) -> LaneWrite | None:
        """A delivery teaches nothing that cannot wait for the next claim; trouble is written at once, and so is
        the first delivery, which clears the lane of the suspicion of crashing its drivers."""
        delivered = isinstance(outcome, Sent)
        if delivered and self.cleared and not self.view.probing:
            return None
        lane = self._write(now)
        lane.delivered = delivered
        self.cleared = self.cleared or delivered
        return lane

    def _verdict(self, outcome: Outcome, attempts: int, now: datetime) -> Consequence:
        if outcome is NEVER_CALLED:
            return Consequence("pending", spends_attempt=False, kind="network", error=NEVER_CALLED.detail)
        return consequence(
            outcome, retries=self.view.retries, attempts=attempts, base=self.view.retry_base, sample=self.view.sample,
            repeatable=self.transport.recognises_repeats, now=now,
        )  # fmt: skip

    def _result(
        self, run: RunView, target: Target, part: Part, claim: Claim, outcome: Outcome,
        verdict: Consequence, latency: float, now: datetime,
    ) -> Result:  # fmt: skip
        sent = isinstance(outcome, Sent)
        more = sent and target.parts_sent + 1 < len(run.parts)
        if more:
            target.ready_at = now + timedelta(seconds=self.rng.uniform(*self.view.jitter))
        activity = "sent" if sent else {"rate_limited": "rate_limited", "network": ""}.get(verdict.kind, "failed")
        return Result(
            target_id=target.id,
            account_id=self.account_id,
            epoch=claim.epoch,
            claimed_at=claim.at,
            status="pending" if more else verdict.status,
            parts_sent=target.parts_sent + 1 if sent else target.parts_sent,
            # Attempts count the tries at the current part.
            attempts=0 if more else target.attempts - (not verdict.spends_attempt),
            at=now,
            action=run.action,
            part=part.index,
            activity="" if verdict.status == "unconfirmed" else activity,
            retry_at=target.ready_at if more else verdict.retry_at,
            latency_ms=int(latency * 1000) if sent else None,
            provider_id=outcome.provider_id if isinstance(outcome, Sent) else "",
            kind=verdict.kind,
            error=verdict.error,
            suppress=target.address if verdict.suppress else "",
        )

    def _learn(self, verdict: Consequence, now: datetime) -> None:
        """What the outcome means for the lane's pace."""
        view = self.view
        if verdict.letter is not None:
            view.sample = breaker.add(view.sample, verdict.letter)
            self.outcomes += 1
        if verdict.slow:
            view.pace = adapted(view.pace, 1.0, 0.0)
        elif verdict.letter is not None:
            view.pace = adapted(view.pace, breaker.slowdown_rate(view.sample), view.slowdown_at)
        if verdict.hold_until is not None:
            self._break(verdict)

    def _break(self, verdict: Consequence) -> None:
        assert verdict.hold_until is not None
        self.view.pace = held(self.view.pace, verdict.hold_until)
        self.view.probing = True  # one message at a time until one goes through, whoever drives the lane then
        self.held = Wait(verdict.hold_until, f"{verdict.kind.replace('_', ' ')}: {verdict.error}")

    def _go_on_or_forget(self, run: RunView, target: Target, result: Result) -> None:
        if result.status == "pending" and result.parts_sent > target.parts_sent and not run.closing and not run.over:
            target.parts_sent = result.parts_sent
            target.attempts = 0
            run.continuing.append(target)
        else:
            self._forget(run, target)

    async def _protect(self, run: RunView, verdict: Consequence, now: datetime) -> None:
        """Stop the lane or the run before it does harm."""
        view = self.view
        if verdict.account is not None:
            await self._change_account(verdict, now)
            return
        if verdict.letter is None:
            return
        if breaker.bounces(view.sample, view.bounces_at):
            rate = breaker.bounce_rate(view.sample)
            await closing.pause_account(self.ledger, self.account_id, f"bounce rate {rate:.0%}", now)
            self.stale = True
        elif view.probing or breaker.trips(view.sample, view.breaker_at):
            self._probe_or_trip(run, verdict)

    def _probe_or_trip(self, run: RunView, verdict: Consequence) -> None:
        if self.view.probing and verdict.letter == breaker.SENT:
            self.view.probing = False
            return
        # A probe after a breaker starts with an empty sample and must succeed. After a mere break the sample speaks;
        # and a provider that only wants more time has not failed.
        failed_probe = self.view.probing and len(self.view.sample) == 1
        if verdict.letter == breaker.LIMITED or not (
            failed_probe or breaker.trips(self.view.sample, self.view.breaker_at)
        ):
            return
        rate = breaker.error_rate(self.view.sample)
        run.closing = run.closing or Close(PauseReason.CIRCUIT_BREAKER, f"{rate:.0%} of the last sends failed")

    async def _change_account(self, verdict: Consequence, now: datetime) -> None:
        assert verdict.account is not None
        await closing.change_account(self.ledger, self.account_id, verdict.account, now)
        self.stale = True

    def _write(self, now: datetime) -> LaneWrite:
        view = self.view
        return LaneWrite(self.account_id, view.epoch, view.pace, view.sample, view.probing, now)


def message_id(target_id: int, part: int) -> str:
    """The same for every try at the same part, so that a receiver can recognise a repeat."""
    return f"crier-{target_id}-{part}"
