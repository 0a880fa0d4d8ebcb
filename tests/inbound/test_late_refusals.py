"""Refusals that a provider reports after it had accepted the message: for the account they mean the same as at once."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from accounts.channels.provider_events import EventKind, ProviderEvent
from accounts.channels.sandbox.script import Script
from accounts.models import Account
from fanout.database import carry_out
from fanout.inbound import worker
from fanout.inbound.event_store import store
from fanout.lanes import status
from fanout.models import Event, InboundEvent, KnownChat, LaneState, Notification, Run, RunTarget
from fanout.rules.message_ids import message_id
from fanout.rules.pace import SLOW
from reminders.models import Recipient, Suppression
from tests.engine.stage import Stage, fresh
from tests.factories import RunFactory, RunTargetFactory
from tests.inbound.people import phone, remind

NOW = datetime(2026, 7, 1, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
KEYS = itertools.count()
LAST_TRY = "wamid.last"


@pytest.fixture
def target(db: None) -> RunTarget:
    """One of two sent targets of a run that was a success, in a window that is open."""
    hours = {"timezone": "UTC", "window_start_hour": 0, "window_end_hour": 24}
    run = RunFactory.create(
        targets={"sent": 1}, parts=[{"kind": "text", "text": "a"}], window_closes_at=NOW + timedelta(hours=12), **hours
    )
    target = RunTargetFactory.create(
        run=run,
        status="sent",
        recipient__kind="person",
        recipient__address=phone(1),
        claimed_at=NOW,
        parts_sent=1,
        attempts=1,
        provider_id=LAST_TRY,
    )
    Run.objects.filter(pk=run.pk).update(status="success", finished_at=NOW)
    LaneState.objects.create(account_id=target.account_id)
    return target


def report(target: RunTarget, kind: str, at: datetime = NOW, part: int = 0, **detail: Any) -> InboundEvent:
    """Store a report about the target; `group` and `address` are the event's."""
    chat = {name: detail.pop(name) for name in ("group", "address") if name in detail}
    provider_id = detail.pop("provider_id", LAST_TRY)
    event = ProviderEvent(
        key=f"late {next(KEYS)}",
        kind=EventKind.BOUNCE,
        at=at,
        message_id=message_id(target.pk, part),
        provider_id=provider_id,
        text="Meta's words",
        detail={"kind": kind, "certain": True, **detail},
        **chat,
    )
    assert store(target.account_id, [event], at) == 1
    return InboundEvent.objects.latest("pk")


def process_inbound(target: RunTarget, at: datetime = NOW) -> None:
    while worker.step(at):
        pass
    target.refresh_from_db()


# --- the account ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["banned", "auth"])
@pytest.mark.parametrize("certain", [True, False])
def test_a_ban_that_is_reported_late_stops_the_account(target: RunTarget, kind: str, certain: bool) -> None:
    report(target, kind, certain=certain)
    process_inbound(target)

    account = Account.objects.get(pk=target.account_id)
    assert (account.status, account.status_reason) == ("suspended", "Meta's words")
    assert Notification.objects.filter(title="Account suspended").exists()
    assert LaneState.objects.get(account=account).wake_count > 0


def test_a_temporary_ban_ends(target: RunTarget) -> None:
    report(target, "banned", until=(NOW + timedelta(hours=2)).isoformat())
    process_inbound(target)

    assert Account.objects.get(pk=target.account_id).status_until == NOW + timedelta(hours=2)


def test_the_lane_stops_before_our_record_of_the_message_is_there(target: RunTarget) -> None:
    Run.objects.filter(pk=target.run_id).update(status="running", finished_at=None)
    RunTarget.objects.filter(pk=target.pk).update(status="sending", parts_sent=0)
    report(target, "banned")
    process_inbound(target)

    assert Account.objects.get(pk=target.account_id).status == "suspended"
    assert InboundEvent.objects.get().state == "new"


@pytest.mark.parametrize(
    ("kind", "detail", "seconds"),
    [("rate_limited", {}, 60), ("rate_limited", {"retry_after": 600}, 600), ("unavailable", {}, 20)],
)
def test_a_limit_that_is_reported_late_holds_and_slows_the_lane(
    target: RunTarget, kind: str, detail: dict[str, Any], seconds: int
) -> None:
    report(target, kind, **detail)
    process_inbound(target)

    lane = LaneState.objects.get(account=target.account_id)
    assert (lane.next_send_at, lane.probing) == (NOW + timedelta(seconds=seconds), True)
    assert lane.wake_count > 0
    assert lane.slow_factor == (SLOW if kind == "rate_limited" else 1.0)
    assert Account.objects.get(pk=target.account_id).status == "active"


def test_a_break_counts_from_when_it_was_asked_for(target: RunTarget) -> None:
    report(target, "rate_limited")
    process_inbound(target, NOW + 5 * MINUTE)

    lane = LaneState.objects.get(account=target.account_id)
    assert (lane.next_send_at, lane.probing) == (None, False)


def test_new_chats_are_held_as_long_as_the_provider_says(target: RunTarget) -> None:
    KnownChat.objects.create(account_id=target.account_id, address=target.address, begun_at=NOW)
    report(target, "new_chats_blocked", retry_after=7200)
    process_inbound(target)

    lane = LaneState.objects.get(account=target.account_id)
    assert (lane.new_chats_after, lane.new_chat_refusals) == (NOW + timedelta(hours=2), 1)
    assert (target.status, target.next_attempt_at) == ("pending", NOW + timedelta(hours=2))
    assert not KnownChat.objects.exists()


def test_a_report_from_before_the_account_was_resumed_stops_nothing(target: RunTarget) -> None:
    """The messages of one minute are refused one by one, and an operator is faster than the last report."""
    account = target.account_id
    report(target, "auth")
    process_inbound(target)
    assert carry_out(status.reactivate(account, None, NOW + MINUTE))
    other = RunTarget.objects.exclude(pk=target.pk).get()
    RunTarget.objects.filter(pk=other.pk).update(claimed_at=NOW, parts_sent=1, provider_id="wamid.other")

    report(other, "auth", NOW + 2 * MINUTE, provider_id="wamid.other")
    process_inbound(other, NOW + 2 * MINUTE)

    assert Account.objects.get(pk=account).status == "active"
    assert (other.status, other.parts_sent) == ("pending", 0)
    assert Event.objects.filter(verb="suspended").count() == 1


def test_a_message_that_went_out_after_it_was_resumed_stops_it_again(target: RunTarget) -> None:
    Account.objects.filter(pk=target.account_id).update(status_changed_at=NOW - MINUTE)
    report(target, "auth")
    process_inbound(target)

    assert Account.objects.get(pk=target.account_id).status == "suspended"


def test_settings_that_were_corrected_are_not_blamed_for_the_old_ones(target: RunTarget) -> None:
    Account.objects.filter(pk=target.account_id).update(untested_since=NOW + MINUTE)
    report(target, "auth", NOW + 2 * MINUTE)
    process_inbound(target, NOW + 2 * MINUTE)

    assert Account.objects.get(pk=target.account_id).status == "active"


def test_the_same_report_in_another_copy_changes_nothing(target: RunTarget) -> None:
    report(target, "banned")
    process_inbound(target)
    carry_out(status.reactivate(target.account_id, None, NOW + MINUTE))
    report(target, "banned")
    for seconds in (120, 122, 137, 257):
        process_inbound(target, NOW + timedelta(seconds=seconds))

    assert Account.objects.get(pk=target.account_id).status == "active"
    assert target.status == "pending"
    assert not InboundEvent.objects.filter(state="new").exists()


# --- the target -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["auth", "banned", "rate_limited", "recipient_limited"])
def test_what_certainly_did_not_arrive_is_sent_again(target: RunTarget, kind: str) -> None:
    detail: dict[str, Any] = {"retry_after": 86_400} if kind == "recipient_limited" else {}
    report(target, kind, **detail)
    process_inbound(target)

    assert (target.status, target.parts_sent) == ("pending", 0)
    run = Run.objects.get(pk=target.run_id)
    assert (run.pending, run.sent, run.failed) == (1, 1, 0)
    assert run.status not in Run.FINISHED


def receipt(target: RunTarget) -> None:
    """Store a receipt that is worked on after the report."""
    event = ProviderEvent(key="receipt", kind=EventKind.DELIVERED, at=NOW, provider_id=LAST_TRY)
    store(target.account_id, [event], NOW)


NOT_AGAIN: dict[str, Callable[[RunTarget], Any]] = {
    "a receipt that is not worked on yet": receipt,
    "a reply": lambda target: RunTarget.objects.filter(pk=target.pk).update(replied_at=NOW),
    "the window is over": lambda target: Run.objects.filter(pk=target.run_id).update(window_closes_at=NOW),
    "every try has the same id": lambda target: Account.objects.update(channel="waha"),
    "an operator said that it arrived": lambda target: RunTarget.objects.filter(pk=target.pk).update(provider_id=""),
}


@pytest.mark.parametrize("why", NOT_AGAIN)
def test_what_may_have_arrived_is_never_sent_again(target: RunTarget, why: str) -> None:
    NOT_AGAIN[why](target)
    report(target, "rate_limited")
    process_inbound(target)
    assert target.status != "pending"


def test_a_report_about_an_earlier_try_changes_nothing(target: RunTarget) -> None:
    report(target, "rate_limited", at=NOW + timedelta(seconds=7), provider_id="wamid.first")
    process_inbound(target, NOW + timedelta(seconds=7))
    assert (target.status, InboundEvent.objects.get().effect) == ("sent", "nothing: it is about an earlier try")


def test_an_old_report_stops_no_account(target: RunTarget) -> None:
    report(target, "banned")
    process_inbound(target, NOW + timedelta(days=2))
    assert Account.objects.get(pk=target.account_id).status == "active"


def test_a_limited_person_waits_for_the_end_of_the_limit_and_spends_a_try(target: RunTarget) -> None:
    report(target, "recipient_limited", retry_after=86_400)
    process_inbound(target, NOW + MINUTE)

    assert (target.next_attempt_at, target.attempts) == (NOW + timedelta(days=1), 1)
    assert Account.objects.get(pk=target.account_id).status == "active"
    assert LaneState.objects.get(account=target.account_id).next_send_at is None


def test_after_the_last_try_it_fails(target: RunTarget) -> None:
    RunTarget.objects.filter(pk=target.pk).update(attempts=4)
    report(target, "recipient_limited", retry_after=86_400)
    process_inbound(target)

    assert (target.status, target.error_kind) == ("failed", "recipient_limited")


@pytest.mark.parametrize(
    ("fields", "detail"),
    [
        pytest.param({}, {"certain": False}, id="not-certain"),
        pytest.param({"delivered_at": NOW}, {}, id="a-receipt-says-otherwise"),
        pytest.param({"parts_sent": 2}, {}, id="a-later-part-went-out"),
        pytest.param({}, {"group": "120363@g.us", "address": phone(9)}, id="one-member-of-a-group"),
    ],
)
def test_what_may_have_arrived_is_not_sent_again(
    target: RunTarget, fields: dict[str, Any], detail: dict[str, Any]
) -> None:
    Run.objects.filter(pk=target.run_id).update(parts=[{"kind": "text", "text": "a"}] * 2)
    RunTarget.objects.filter(pk=target.pk).update(**fields)
    report(target, "recipient_limited", retry_after=86_400, **detail)
    process_inbound(target)

    assert (target.status, target.error_kind) == ("failed", "recipient_limited")


def test_an_attempt_that_did_not_arrive_is_not_counted(target: RunTarget) -> None:
    Run.objects.filter(pk=target.run_id).update(follow_up=True)
    Recipient.objects.filter(address=target.address).update(
        follow_up_attempts=3, cooldown_until=NOW + timedelta(days=2), status="not_interested", limited=True
    )
    report(target, "recipient_limited", retry_after=86_400)
    process_inbound(target)

    whom = Recipient.objects.get(address=target.address)
    assert (whom.follow_up_attempts, whom.cooldown_until, whom.status, whom.limited) == (2, None, "active", False)


def test_an_attempt_from_before_a_reply_is_not_taken_back(target: RunTarget) -> None:
    Run.objects.filter(pk=target.run_id).update(follow_up=True)
    Recipient.objects.filter(address=target.address).update(follow_up_attempts=1, attempts_reset_at=NOW + MINUTE)
    report(target, "recipient_limited", retry_after=86_400)
    process_inbound(target)

    assert Recipient.objects.get(address=target.address).follow_up_attempts == 1


def test_an_opt_out_at_the_provider_suppresses_the_person(target: RunTarget) -> None:
    report(target, "opted_out")
    process_inbound(target)

    row = Suppression.objects.get()
    assert (row.address, row.reason, row.source) == (target.address, "unsubscribed", "recipient")
    assert target.status == "failed"


# --- the engine -------------------------------------------------------------------------------------------


def test_an_opt_out_in_the_answer_suppresses_the_person(stage: Stage) -> None:
    stage.provider.set_script(Script({"*": {"faults": [{"match": {}, "effect": "opted_out"}]}}))
    run = stage.fire(remind(stage, stage.account(), people=1))
    stage.play()

    row = Suppression.objects.get()
    assert (row.address, row.reason, row.detail) == (phone(0), "unsubscribed", "reported by the provider")
    assert (fresh(run).skipped, run.failed) == (1, 0)


def test_a_run_ends_early_when_its_account_is_banned_by_a_report(stage: Stage) -> None:
    account = stage.account(max_send_per_minute=60, send_burst=1, group_concurrency=1)
    run = stage.fire(stage.reminder(account, groups=30))
    stage.play(10)
    sent = run.targets.filter(status="sent").order_by("claimed_at")
    assert 5 < sent.count() < 15

    report(sent[0], "banned", stage.now, group=sent[0].address, provider_id=sent[0].provider_id)
    worker.step(stage.now)
    stage.play(120)

    assert fresh(run).status == "paused"
    assert run.pause_reason == "account_down"
    assert run.sent < 16
