"""Learn from a provider's answers: how runs are judged, how fast the lane may go, when it must rest."""

from __future__ import annotations

from datetime import datetime

from accounts.channels.base import Outcome, Sent
from fanout.engine.batch import LaneWrite
from fanout.engine.loading import LaneAccount, LaneRun
from fanout.models.run import PauseReason
from fanout.rules import breaker
from fanout.rules.gates import Close, Wait
from fanout.rules.outcomes import Consequence
from fanout.rules.pace import adapted, held


class Learning:
    """An account as its lane knows it, changed by every outcome."""

    def __init__(self, account: LaneAccount) -> None:
        self.account = account
        self.samples: dict[int, str] = {}  # of runs other than the one judged now
        self.recent = account.sample  # of the lane, across runs
        self.unstored = False  # the sample has grown since it was last handed to the ledger
        self.held: Wait | None = None  # a provider asked for a break
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

    def hold(self, verdict: Consequence, until: datetime) -> None:
        """Hold the lane for a break that the provider asked for."""
        self.account.pace = held(self.account.pace, until)
        self.account.probing = True  # one message at a time until one goes through, also for later drivers
        self.held = Wait(until, f"{verdict.kind.replace('_', ' ')}: {verdict.error}")

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

    def lesson(self, outcome: Outcome, now: datetime) -> LaneWrite | None:
        """Return the lane's state to be stored with a result. None: it can wait for the next claim. Trouble is written
        at once, and so is the first delivery, which clears the lane of the suspicion of crashing its drivers."""
        delivered = isinstance(outcome, Sent)
        if delivered and self.cleared and not self.account.probing:
            return None
        lane = self.lane_write(now)
        lane.delivered = delivered
        self.cleared = self.cleared or delivered
        return lane

    def lane_write(self, now: datetime) -> LaneWrite:
        """Return the lane's state as it is stored."""
        self.unstored = False
        account = self.account
        return LaneWrite(
            account.config.id, account.epoch, account.pace, account.sample, account.sample_run, account.probing, now
        )
