"""Nine faults that have no place in the engine. The simulation must find each of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from accounts.channels.base import Sent
from fanout.engine import dispatcher, holding, loading
from fanout.engine.dispatcher import Dispatcher
from fanout.engine.outbox import Outbox
from fanout.lanes import lane_rows
from fanout.rules.pace import PaceState
from fanout.runs import controls, corrections, transitions


def skip_the_lock(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lane_rows, "TRY_LANE_LOCKS", "SELECT id FROM unnest(%s::int[]) AS id WHERE %s::int IS NOT NULL")


def record_before_send(patch: pytest.MonkeyPatch) -> None:
    async def deliver(self: Any, run: Any, target: Any, claim: Any, debt: Any) -> None:
        part = self._part(run, target, target.parts_sent)
        await self._settle(run, replace(target), part, claim, Sent("guessed"), 0)
        await self._call(run, target, part, claim, debt)

    patch.setattr(Dispatcher, "_deliver", deliver)


def forget_parts_sent(patch: pytest.MonkeyPatch) -> None:
    original = dispatcher.result_of

    def result_of(run: Any, target: Any, *others: Any) -> Any:
        return replace(original(run, target, *others), parts_sent=target.parts_sent)

    patch.setattr(dispatcher, "result_of", result_of)


def refill_the_bucket_on_restart(patch: pytest.MonkeyPatch) -> None:
    original = loading.lane_account

    def lane_account(row: Any, now: datetime) -> Any:
        return replace(original(row, now), pace=PaceState())

    patch.setattr(loading, "lane_account", lane_account)


def ignore_the_window_after_an_upload(patch: pytest.MonkeyPatch) -> None:
    ready, call = Dispatcher.media_ready, Dispatcher._call

    async def media_ready(self: Any, run: Any, now: datetime) -> bool:
        await ready(self, run, now)
        return True

    async def uncaring(self: Any, run: Any, *others: Any) -> Any:
        facts = replace(run.facts, window_closes_at=datetime.max.replace(tzinfo=UTC))
        return await call(self, replace(run, facts=facts), *others)

    patch.setattr(Dispatcher, "media_ready", media_ready)
    patch.setattr(Dispatcher, "_call", uncaring)


def claim_beside_unstored_results(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Outbox, "holds", lambda self, account_id: False)


def resume_without_waking(patch: pytest.MonkeyPatch) -> None:
    def resume(run: int, lanes: list[int], closes_at: datetime, now: datetime, probe: bool = False) -> Any:
        rows = yield transitions.RESUME, {"run": run, "lanes": lanes, "closes_at": closes_at}
        return bool(rows)

    patch.setattr(transitions, "resume", resume)


def offload_what_may_have_gone_out(patch: pytest.MonkeyPatch) -> None:
    def movable(run: Any, account: Any) -> Any:
        return run.targets.filter(status="pending", account__channel=account.channel).exclude(account=account)

    patch.setattr(corrections, "movable", movable)
    patch.setattr(holding, "RESCUE", holding.RESCUE.replace("ELSE 'unconfirmed' END", "ELSE 'pending' END"))


def forget_lanes_with_reopened_targets(patch: pytest.MonkeyPatch) -> None:
    def add_lanes(run: int, accounts: list[int], now: datetime) -> Any:
        yield "SELECT 1", {}

    patch.setattr(transitions, "add_lanes", add_lanes)
    patch.setattr(controls, "senders", lambda run: [run.account_id])
    patch.setattr(corrections, "senders", lambda run: [run.account_id])


#: each with words of the complaint it must cause, and a seed that is known to cause it: it is played first
PLANTS = {
    "skip the lock": (skip_the_lock, "without the account's lock", 101),
    "record before send": (record_before_send, "a call for a target that is", 101),
    "forget parts_sent": (forget_parts_sent, "with 0 parts", 101),
    "refill the bucket on restart": (refill_the_bucket_on_restart, "calls in", 103),
    "ignore the window after an upload": (ignore_the_window_after_an_upload, "after the window had closed", 101),
    "claim beside unstored results": (claim_beside_unstored_results, "in flight on", 104),
    "resume without waking": (resume_without_waking, "no lane drives it", 103),
    "offload what may have gone out": (offload_what_may_have_gone_out, "was delivered twice", 101),
    "forget lanes with reopened targets": (forget_lanes_with_reopened_targets, "no lane drives it", 103),
}
