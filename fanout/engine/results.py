"""What came of one claimed part, as the ledger writes it."""

from __future__ import annotations

from datetime import datetime

from accounts.channels.base import Kind, Outcome, Part, Sent
from fanout.engine.batch import Claim, Result
from fanout.engine.loading import LaneRun, Target
from fanout.rules.outcomes import Consequence

#: What the activity says of a message that was not sent, where it is not "failed"; empty: nothing.
NOT_FAILED: dict[str, str] = {Kind.RATE_LIMITED: "rate_limited", Kind.NETWORK: "", Kind.NOT_WRITABLE: ""}


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
    """`next_part_at`: the target gets another part after this one, then."""
    sent, more = isinstance(outcome, Sent), next_part_at is not None
    activity = "sent" if sent else NOT_FAILED.get(verdict.kind, "failed")
    return Result(
        target_id=target.id,
        run_id=run.id,
        account_id=claim.account_id,
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
        retry_at=next_part_at or verdict.retry_at,
        latency_ms=int(latency * 1000) if sent else None,
        provider_id=outcome.provider_id if isinstance(outcome, Sent) else "",
        kind=verdict.kind,
        error=verdict.error,
        suppress=target.address if verdict.suppress else "",
        follow_up_to=target.address if run.follow_up and sent and not more else "",
        hold_until=verdict.hold_until,
    )
