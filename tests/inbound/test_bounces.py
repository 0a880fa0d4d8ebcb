"""Bounces: what they change, from a mail and from a provider's event alike, and the webhook for mails."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.http import Http404
from django.test import RequestFactory

from accounts.channels.base import Kind
from accounts.channels.provider_events import EventKind, ProviderEvent
from accounts.models import Account
from fanout.database import execute
from fanout.inbound import worker
from fanout.inbound.bounces import _about_last_try, _is_refusal, apply_bounce, cause, counted_as, record_bounce, take_in
from fanout.inbound.event_store import store
from fanout.inbound.mails import Bounce
from fanout.inbound.views import bounce_webhook
from fanout.inbound.worker import EFFECTS
from fanout.lanes import chats
from fanout.lanes.status import bounces_of_day
from fanout.models import (
    Activity,
    Event,
    InboundEvent,
    KnownChat,
    LaneState,
    Notification,
    Run,
    RunTarget,
    Subscription,
)
from fanout.ops import passing_on
from fanout.rules.message_ids import Named, message_id
from reminders.models import Suppression
from tests.engine.stage import Stage, fresh
from tests.factories import (
    RecipientFactory,
    RunFactory,
    RunTargetFactory,
    SuppressionFactory,
    UserFactory,
)
from tests.inbound.mails import ORDINARY, id_of, recipient, report

NOW = datetime(2026, 7, 1, 12, 0, tzinfo=UTC)
ANN = "ann@example.org"


@pytest.fixture
def target(db: None) -> RunTarget:
    """One of two sent targets of a run that was a success."""
    run = RunFactory.create(targets={"sent": 1})
    target = RunTargetFactory.create(run=run, status="sent", recipient__kind="mailbox", recipient__address=ANN)
    Run.objects.filter(pk=run.pk).update(status="success", finished_at=NOW)
    return target


def hard(target: RunTarget, address: str = ANN, kind: Kind = Kind.HARD_BOUNCE, final: bool = True) -> Bounce:
    return Bounce(address, kind, "550 5.1.1 User unknown", Named(target.pk, 0), final)


# --- the target and its address ---------------------------------------------------------------------------


def test_a_hard_bounce_suppresses_fails_and_rejudges(target: RunTarget) -> None:
    assert record_bounce(hard(target), NOW)

    target.refresh_from_db()
    assert (target.status, target.error_kind, target.error) == ("failed", "hard_bounce", "550 5.1.1 User unknown")
    run = Run.objects.get(pk=target.run_id)
    assert (run.status, run.sent, run.failed) == ("partial", 1, 1)
    assert run.error_summary == "Sent to 1 of 2 groups, 1 failed (address does not exist)."
    suppression = Suppression.objects.get(address=ANN)
    assert (suppression.reason, suppression.source, suppression.detail, suppression.expires_at) == (
        "hard_bounce",
        "provider",
        "550 5.1.1 User unknown",
        None,
    )
    assert ANN in Event.objects.get(run=run, verb="bounced").detail
    event = InboundEvent.objects.get()
    assert (event.kind, event.state, event.account_id, event.run_target_id) == (
        "bounce",
        "done",
        target.account_id,
        target.pk,
    )
    assert event.effect == "The target failed; the address is suppressed; noted in the run's timeline"


def test_the_same_bounce_again_changes_nothing(target: RunTarget) -> None:
    record_bounce(hard(target), NOW)

    assert not record_bounce(hard(target), NOW)
    assert apply_bounce(target, hard(target), NOW) == []
    assert Event.objects.filter(run=target.run_id, verb="bounced").count() == 1
    assert Activity.objects.filter(outcome="failed").count() == 1
    assert Suppression.objects.count() == InboundEvent.objects.count() == Notification.objects.count() == 1


def test_a_delay_is_only_noted(target: RunTarget) -> None:
    late = hard(target, kind=Kind.SOFT_BOUNCE, final=False)
    assert record_bounce(late, NOW)
    assert not record_bounce(late, NOW)
    assert apply_bounce(target, late, NOW) == []

    target.refresh_from_db()
    assert target.status == "sent"
    assert not Suppression.objects.exists()
    assert not Activity.objects.exists()
    assert Event.objects.filter(run=target.run_id, verb="bounce noted").count() == 1


@pytest.mark.parametrize("status", ["4.4.7", "5.2.2", "5.4.4"])
def test_a_mail_that_was_given_up_fails_the_target_and_spares_the_address(target: RunTarget, status: str) -> None:
    assert take_in(report(recipient(status=status), returned=id_of(target)), NOW) == (1, 1)
    target.refresh_from_db()
    assert (target.status, target.error_kind) == ("failed", "soft_bounce")
    assert Run.objects.get(pk=target.run_id).status == "partial"
    assert not Suppression.objects.exists()


def test_a_bounce_settles_what_was_in_doubt_and_the_cap_still_counts_it(target: RunTarget) -> None:
    rows = RunTarget.objects.filter(pk=target.pk)
    rows.update(status="unconfirmed", claimed_at=NOW, parts_sent=0)

    assert record_bounce(hard(target), NOW)

    target.refresh_from_db()
    assert (target.status, target.parts_sent, target.settled_at) == ("failed", 1, NOW)
    assert Suppression.objects.filter(address=ANN).exists()
    activity = Activity.objects.get(run_target=target, outcome="sent")
    assert (activity.part, activity.at) == (0, NOW)
    assert not record_bounce(hard(target), NOW)


def test_a_refused_content_fails_the_target_and_spares_the_address(target: RunTarget) -> None:
    record_bounce(hard(target, kind=Kind.CONTENT_REJECTED), NOW)

    target.refresh_from_db()
    assert (target.status, target.error_kind) == ("failed", "content_rejected")
    assert not Suppression.objects.exists()


def test_a_forwarding_address_does_not_fail_the_recipient(target: RunTarget) -> None:
    """One member of a list: the list took the mail."""
    record_bounce(hard(target, "member@other.org"), NOW)

    target.refresh_from_db()
    assert target.status == "sent"
    assert not Suppression.objects.exists()
    assert not Activity.objects.exists()
    assert Event.objects.filter(run=target.run_id, verb="bounced").exists()


@pytest.mark.parametrize("message", [None, Named(999_999_999, 0)])
def test_a_report_about_no_mail_of_ours_changes_nothing(db: None, message: Named | None) -> None:
    assert not record_bounce(Bounce("bob@example.org", Kind.HARD_BOUNCE, "gone", message, final=True), NOW)

    assert not Suppression.objects.exists()
    assert not Event.objects.exists()
    assert not InboundEvent.objects.exists()


def test_a_forged_report_changes_nothing(target: RunTarget) -> None:
    """A stranger who knows the address and has guessed the number of the target."""
    assert take_in(report(returned=f"crier-{target.pk}-0@example.com"), NOW) == (1, 0)
    assert take_in(report(returned=id_of(target.pk + 1).replace(f"{target.pk + 1}", f"{target.pk}")), NOW) == (1, 0)

    target.refresh_from_db()
    assert target.status == "sent"
    assert not Suppression.objects.exists()


@pytest.mark.parametrize("status", ["pending", "skipped", "failed"])
def test_only_a_target_that_went_out_changes(target: RunTarget, status: str) -> None:
    Run.objects.filter(pk=target.run_id).update(status="running", finished_at=None)
    RunTarget.objects.filter(pk=target.pk).update(status=status)

    record_bounce(hard(target), NOW)

    target.refresh_from_db()
    assert target.status == status
    assert not Activity.objects.exists()


def test_an_earlier_suppression_keeps_its_reason(target: RunTarget) -> None:
    SuppressionFactory.create(address=ANN, reason="unsubscribed")

    record_bounce(hard(target), NOW)

    assert Suppression.objects.get().reason == "unsubscribed"


def test_one_that_has_expired_gives_way(target: RunTarget) -> None:
    SuppressionFactory.create(address=ANN, reason="manual", expires_at=NOW)

    record_bounce(hard(target), NOW)

    suppression = Suppression.objects.get()
    assert (suppression.reason, suppression.expires_at) == ("hard_bounce", None)


def test_a_nul_does_not_upset_the_database(target: RunTarget) -> None:
    assert record_bounce(Bounce(ANN, Kind.HARD_BOUNCE, "a\x00b" * 400, Named(target.pk, 0), final=True), NOW)


def test_take_in_counts(target: RunTarget) -> None:
    raw = report(returned=id_of(target))

    assert take_in(raw, NOW) == (1, 1)
    assert take_in(raw, NOW) == (1, 0)
    assert take_in(ORDINARY, NOW) == (0, 0)


# --- a provider's event -----------------------------------------------------------------------------------


def event_of(target: RunTarget, account: Account | None = None, **fields: Any) -> InboundEvent:
    named = {"message_id": message_id(target.pk, 0)} if "provider_id" not in fields else {}
    event = ProviderEvent("e1", EventKind.BOUNCE, **{"address": ANN, "text": "full", **named, **fields})
    store((account or target.account).pk, [event], NOW)
    return InboundEvent.objects.latest("pk")


@pytest.mark.parametrize("named", ["message_id", "provider_id"])
def test_an_event_does_the_same(target: RunTarget, named: str) -> None:
    RunTarget.objects.filter(pk=target.pk).update(provider_id="wamid.1")
    name: dict[str, Any] = {"provider_id": "wamid.1"} if named == "provider_id" else {}
    event = event_of(target, detail={"kind": "hard_bounce"}, **name)

    assert EFFECTS["bounce"](event, NOW).startswith("The target failed; the address is suppressed")
    assert EFFECTS["bounce"](event, NOW) == "nothing new"

    target.refresh_from_db()
    event.refresh_from_db()
    assert (target.status, target.error_kind, target.error) == ("failed", "hard_bounce", "full")
    assert event.run_target_id == target.pk
    assert Activity.objects.filter(outcome="failed", kind="hard_bounce").count() == 1


@pytest.mark.parametrize("kind", [{}, {"kind": "nonsense"}, {"kind": None}, {"kind": "soft_bounce"}])
def test_without_a_kind_it_is_soft(target: RunTarget, kind: dict[str, Any]) -> None:
    EFFECTS["bounce"](event_of(target, address="", detail=kind), NOW)

    target.refresh_from_db()
    assert (target.status, target.error_kind) == ("failed", "soft_bounce")
    assert not Suppression.objects.exists()


@pytest.mark.parametrize("fields", [{"message_id": ""}, {"message_id": "crier-1-0"}])
def test_an_event_about_nothing_of_ours_says_so(target: RunTarget, fields: dict[str, Any]) -> None:
    assert EFFECTS["bounce"](event_of(target, **fields), NOW) == "It names no message that this account sent."


def test_another_accounts_provider_cannot_name_the_target(target: RunTarget) -> None:
    other = RunFactory.create().account

    assert EFFECTS["bounce"](event_of(target, account=other), NOW) == "It names no message that this account sent."
    target.refresh_from_db()
    assert target.status == "sent"


@pytest.mark.parametrize("spelling", ["+5491112345678", "", "member@other.org"])
def test_the_message_says_whom_it_was_for_however_the_provider_spells_it(target: RunTarget, spelling: str) -> None:
    EFFECTS["bounce"](event_of(target, address=spelling, detail={"kind": "hard_bounce"}), NOW)

    target.refresh_from_db()
    assert target.status == "failed"
    assert list(Suppression.objects.values_list("address", flat=True)) == [ANN]


# --- a provider that is faster than our record ---------------------------------------------------------------


def work_at(target: RunTarget, *seconds: float) -> InboundEvent:
    """One step of the worker at each of these moments after the event came."""
    for after in seconds:
        worker.step(NOW + timedelta(seconds=after))
    target.refresh_from_db()
    return InboundEvent.objects.get()


@pytest.mark.parametrize("status", ["sending", "sent"])
def test_a_bounce_waits_for_our_record_of_the_message(target: RunTarget, status: str) -> None:
    Run.objects.filter(pk=target.run_id).update(status="running", finished_at=None)
    rows = RunTarget.objects.filter(pk=target.pk)
    rows.update(status=status, provider_id="wamid.1" if status == "sending" else "")
    event_of(target, provider_id="wamid.1", detail={"kind": "hard_bounce"})

    event = work_at(target, 0, 1)
    assert (event.state, event.attempts, event.detail["looks"], target.status) == ("new", 0, 1, status)
    assert event.next_attempt_at == NOW + timedelta(seconds=2)
    assert not Suppression.objects.exists()

    rows.update(status="sent", provider_id="wamid.1")
    event = work_at(target, 2)
    assert (event.state, event.run_target_id, target.status) == ("done", target.pk, "failed")


def test_a_bounce_of_a_message_that_never_turns_up_is_done_and_not_failed(target: RunTarget) -> None:
    event_of(target, provider_id="wamid.2")

    assert work_at(target, 0, 2, 17).state == "new"
    event = work_at(target, 137)
    assert (event.state, event.effect) == ("done", "It names no message that this account sent.")


def test_nothing_waits_behind_a_bounce_that_looks_again(target: RunTarget) -> None:
    event_of(target, provider_id="wamid.2")
    store(target.account_id, [ProviderEvent("c1", EventKind.COMPLAINT, address=ANN)], NOW)

    worker.step(NOW)
    worker.step(NOW + timedelta(seconds=1))

    assert InboundEvent.objects.get(kind="complaint").state == "done"


def test_a_report_by_mail_waits_too(target: RunTarget) -> None:
    Run.objects.filter(pk=target.run_id).update(status="running", finished_at=None)
    rows = RunTarget.objects.filter(pk=target.pk)
    rows.update(status="sending")

    assert record_bounce(hard(target), NOW)
    assert not record_bounce(hard(target), NOW)
    rows.update(status="sent")

    assert work_at(target, 2).state == "done"
    assert target.status == "failed"


# --- refused late, for the account's own trouble --------------------------------------------------------------

TROUBLE = ["auth", "banned", "network", "new_chats_blocked", "rate_limited", "unavailable"]


def made_unconfirmed(target: RunTarget, **fields: Any) -> None:
    RunTarget.objects.filter(pk=target.pk).update(
        **{"status": "unconfirmed", "claimed_at": NOW, "parts_sent": 0, **fields}
    )


@pytest.mark.parametrize("kind", TROUBLE)
def test_what_was_in_doubt_is_sent_again(target: RunTarget, kind: str) -> None:
    made_unconfirmed(target)

    event_of(target, detail={"kind": kind, "certain": True})
    event = work_at(target, 0)

    assert (target.status, target.parts_sent, target.error_kind) == ("pending", 0, "")
    assert event.effect.startswith(f"It was not sent: {kind.replace('_', ' ')}. 1 targets will be sent.")
    assert not Activity.objects.exists()
    assert not Suppression.objects.exists()
    assert not Notification.objects.exclude(title="Account suspended").exists()
    assert Event.objects.get(run=target.run_id, verb="settled").detail == "1 × refused by the provider, send again"


def test_it_waits_as_after_a_refusal_while_sending(target: RunTarget) -> None:
    made_unconfirmed(target)

    event_of(target, detail={"kind": "rate_limited", "certain": True})
    work_at(target, 0)

    assert target.next_attempt_at == NOW + timedelta(seconds=60)


@pytest.mark.parametrize(
    ("fields", "effect"),
    [
        ({"parts_sent": 1}, "nothing: it does not name the part that is in doubt"),
        ({"claimed_at": NOW + timedelta(minutes=1)}, "nothing: it is about an earlier try"),
    ],
)
def test_what_may_have_arrived_is_not_sent_again(target: RunTarget, fields: dict[str, Any], effect: str) -> None:
    made_unconfirmed(target, **fields)

    event_of(target, detail={"kind": "rate_limited", "certain": True})

    assert work_at(target, 0).effect.startswith(effect)
    assert target.status == "unconfirmed"


def test_a_new_chat_that_is_refused_late_has_not_begun_and_holds_the_others(target: RunTarget) -> None:
    account = target.account_id
    LaneState.objects.create(account_id=account)
    RunTarget.objects.filter(pk=target.pk).update(claimed_at=NOW)
    KnownChat.objects.create(account_id=account, address=target.address, begun_at=NOW)

    event_of(target, detail={"kind": "new_chats_blocked"}, text="131049: not delivered")
    work_at(target, 0)

    lane = LaneState.objects.get(account=account)
    assert (lane.new_chats_after, lane.new_chat_refusals) == (NOW + timedelta(hours=1), 1)
    assert "131049" in lane.new_chats_why
    assert lane.wake_count > 0
    assert not KnownChat.objects.exists()


def test_of_refusals_that_come_late_together_the_first_is_noted(target: RunTarget) -> None:
    LaneState.objects.create(account_id=target.account_id)
    for _ in range(3):
        chats.refused_late(target, timedelta(hours=1), "131049", NOW)
    lane = LaneState.objects.get(account=target.account_id)
    assert (lane.new_chat_refusals, lane.wake_count) == (1, 1)
    assert Event.objects.filter(verb="new chats held").count() == 1


@pytest.mark.parametrize("kind", TROUBLE)
def test_what_was_accepted_and_then_refused_fails_and_is_no_bounce_of_the_address(target: RunTarget, kind: str) -> None:
    event_of(target, detail={"kind": kind})
    work_at(target, 0)

    assert (target.status, target.error_kind) == ("failed", kind)
    assert Run.objects.get(pk=target.run_id).status == "partial"
    assert Notification.objects.exclude(title="Account suspended").get().title == "Sent messages came back"
    (day,) = execute(*bounces_of_day(target.account_id, NOW - timedelta(hours=1)))
    assert day["bounced"] == 0
    assert not Suppression.objects.exists()


@pytest.mark.parametrize("kind", ["hard_bounce", "content_rejected"])
def test_a_refusal_that_is_certain_fails_without_having_gone_out(target: RunTarget, kind: str) -> None:
    made_unconfirmed(target)

    event_of(target, detail={"kind": kind, "certain": True})
    work_at(target, 0)

    assert (target.status, target.error_kind, target.parts_sent) == ("failed", kind, 0)
    assert Activity.objects.get().outcome == "failed"
    assert Run.objects.get(pk=target.run_id).status == "partial"
    assert not Notification.objects.filter(title="Sent messages came back").exists()


# --- the account's day ------------------------------------------------------------------------------------


def delivered(stage: Stage, groups: int, **fields: Any) -> tuple[Account, Run]:
    account = stage.account(max_send_per_minute=600, **fields)
    run = stage.fire(stage.reminder(account, groups=groups))
    stage.play()
    assert fresh(run).status == Run.Status.SUCCESS
    return account, run


def bounce(targets: Iterable[RunTarget], now: datetime, kind: Kind = Kind.HARD_BOUNCE) -> None:
    for target in targets:
        assert record_bounce(hard(target, target.address, kind), now)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Kind.HARD_BOUNCE, Kind.SOFT_BOUNCE, Kind.CONTENT_REJECTED])
def test_forty_of_sixty_that_bounce_later_pause_the_account_and_tell_the_owner(stage: Stage, kind: Kind) -> None:
    account, run = delivered(stage, 60)
    waiting = stage.fire(stage.reminder(account, groups=20, first=100, title="Next"))

    bounce(run.targets.all()[:40], stage.now, kind)

    account.refresh_from_db()
    assert account.status == "paused"
    # At the fourth of sixty: more than five per cent.
    assert account.status_reason == "bounce rate 7%: 4 of 60 messages came back"
    notification = Notification.objects.get(account=account)
    assert (notification.title, notification.user, notification.level) == ("Account paused", stage.user, "error")
    assert Event.objects.filter(account=account, verb="paused").count() == 1
    run = fresh(run)
    assert (run.status, run.sent, run.failed) == ("partial", 20, 40)
    stage.play()
    assert (fresh(waiting).status, waiting.pause_reason, waiting.pending) == ("paused", "account_down", 20)
    assert len(stage.book.deliveries()) == 60


def test_three_of_sixty_are_no_reason(stage: Stage) -> None:
    account, run = delivered(stage, 60)

    bounce(run.targets.all()[:3], stage.now)

    account.refresh_from_db()
    assert account.status == "active"


def test_a_rate_speaks_from_twenty_messages_on(stage: Stage) -> None:
    account, run = delivered(stage, 19)

    bounce(run.targets.all(), stage.now)

    account.refresh_from_db()
    assert account.status == "active"


def test_the_account_has_its_own_threshold(stage: Stage) -> None:
    account, run = delivered(stage, 60, bounce_rate_pause=0.5)

    bounce(run.targets.all()[:30], stage.now)
    account.refresh_from_db()
    assert account.status == "active"

    bounce(run.targets.all()[30:31], stage.now)
    account.refresh_from_db()
    assert account.status_reason == "bounce rate 52%: 31 of 60 messages came back"


def test_refusals_and_reports_count_together(stage: Stage) -> None:
    """Neither would be enough by itself."""
    fault = {"match": {"every": 25}, "effect": "hard_bounce"}
    stage.provider.set_script(type(stage.provider.script)({"*": {"faults": [fault]}}))
    account = stage.account(max_send_per_minute=600, circuit_breaker=1)
    run = stage.fire(stage.reminder(account, groups=60))
    stage.play()
    account.refresh_from_db()
    assert (account.status, fresh(run).failed) == ("active", 2)

    bounce(run.targets.filter(status="sent")[:2], stage.now)

    account.refresh_from_db()
    assert account.status_reason == "bounce rate 7%: 4 of 60 messages came back"


def test_a_bounce_counts_on_the_day_of_its_send(stage: Stage) -> None:
    """Twenty of five hundred are no reason, although nothing was sent on the day on which they are reported."""
    account, run = delivered(stage, 25)
    at = run.targets.all()[0].claimed_at
    assert at is not None
    tomorrow = stage.now + timedelta(days=1)
    Activity.objects.bulk_create(
        Activity(account=account, action="message", outcome="sent", at=at, part=0) for _ in range(475)
    )

    bounce(run.targets.all()[:20], tomorrow)
    account.refresh_from_db()
    assert account.status == "active"


def test_too_many_of_yesterday_pause_the_account_today(stage: Stage) -> None:
    account, run = delivered(stage, 40)
    tomorrow = stage.now + timedelta(days=1)
    # A day that is going well does not outweigh it.
    Activity.objects.bulk_create(
        Activity(account=account, action="message", outcome="sent", at=tomorrow, part=0) for _ in range(100)
    )

    bounce(run.targets.all()[:3], tomorrow)

    account.refresh_from_db()
    assert account.status_reason == "bounce rate 8%: 3 of 40 messages came back"


def test_what_an_operator_has_seen_does_not_pause_it_again(stage: Stage) -> None:
    account, run = delivered(stage, 60)
    bounce(run.targets.all()[:10], stage.now)
    later = stage.now + timedelta(minutes=10)
    Account.objects.filter(pk=account.pk).update(status="active", status_changed_at=later)

    bounce(run.targets.all()[10:50], later + timedelta(minutes=1))

    account.refresh_from_db()
    assert account.status == "active"
    assert fresh(run).failed == 50


def test_a_late_bounce_of_another_account_is_not_counted_here(stage: Stage) -> None:
    account, _ = delivered(stage, 60)
    other, run = delivered(stage, 25)

    bounce(run.targets.all(), stage.now)

    account.refresh_from_db()
    other.refresh_from_db()
    assert (account.status, other.status) == ("active", "paused")


# --- what the owner is notification -------------------------------------------------------------------------------


@pytest.mark.slow
def test_bounces_of_one_run_are_told_together_with_the_counts_of_now(stage: Stage) -> None:
    _, run = delivered(stage, 60, bounce_rate_pause=1)
    before = set(Notification.objects.values_list("pk", flat=True))

    bounce(run.targets.all()[:40], stage.now)

    notification = Notification.objects.exclude(pk__in=before).get()
    assert (notification.user, notification.run, notification.level) == (stage.user, run, "warning")
    assert notification.title == "Sent messages came back"
    assert notification.body == (
        "Rent: Sent to 20 of 60 groups, 40 failed (address does not exist). "
        "Messages that had been accepted came back, the last one with: "
        "hard bounce, 550 5.1.1 User unknown."
    )
    assert Event.objects.filter(run=run, verb="partial").count() == 1


def test_all_of_them_make_the_run_a_failure(stage: Stage) -> None:
    _, run = delivered(stage, 3)

    bounce(run.targets.all(), stage.now)

    assert (fresh(run).status, run.error_summary) == (
        "failed",
        "Sent to 0 of 3 groups, 3 failed (address does not exist).",
    )
    assert list(Event.objects.filter(run=run, verb__in=("partial", "failed")).values_list("verb", flat=True)) == [
        "partial",
        "failed",
    ]


def test_what_was_read_shows_up_again(target: RunTarget) -> None:
    record_bounce(hard(target), NOW)
    Notification.objects.update(read_at=NOW)
    other = Run.objects.get(pk=target.run_id).targets.get(status="sent")

    record_bounce(hard(other, other.address), NOW)

    notification = Notification.objects.get()
    assert notification.read_at is None
    assert "Sent to 0 of 2 groups, 2 failed" in notification.body


def test_the_cause_does_not_name_the_address(target: RunTarget) -> None:
    apply_bounce(target, Bounce(ANN, Kind.HARD_BOUNCE, f"<{ANN}>: unknown", final=True), NOW)

    assert "hard bounce, <…>: unknown." in Notification.objects.get().body


def test_mail_waits_until_the_bounces_have_gathered(target: RunTarget, mailoutbox: list[Any]) -> None:
    owner = Run.objects.get(pk=target.run_id).owner
    Subscription.objects.create(user=owner, email="mei@example.com")
    record_bounce(hard(target), NOW)

    assert passing_on.pass_on(NOW + timedelta(minutes=4)) == 0
    other = Run.objects.get(pk=target.run_id).targets.get(status="sent")
    record_bounce(hard(other, other.address), NOW + timedelta(minutes=4))
    assert passing_on.pass_on(NOW + timedelta(minutes=5)) == 1
    assert "2 failed" in mailoutbox[0].body
    assert passing_on.pass_on(NOW + timedelta(minutes=6)) == 0


def test_after_that_there_is_a_new_one(stage: Stage) -> None:
    _, run = delivered(stage, 60, bounce_rate_pause=1)
    bounce(run.targets.all()[:2], stage.now)
    passing_on.pass_on(stage.now + timedelta(minutes=5))

    bounce(run.targets.all()[2:4], stage.now + timedelta(minutes=6))

    bodies = Notification.objects.filter(title="Sent messages came back").order_by("pk").values_list("body")
    assert ["2 failed" in bodies[0][0], "4 failed" in bodies[1][0], len(bodies)] == [True, True, 2]


def test_a_run_that_is_not_over_says_it_when_it_ends(target: RunTarget) -> None:
    RunTargetFactory.create(run=target.run, status="pending")
    Run.objects.filter(pk=target.run_id).update(status="running", finished_at=None)

    record_bounce(hard(target), NOW)

    assert Run.objects.get(pk=target.run_id).status == "running"
    assert not Notification.objects.exists()


# --- soft bounces -----------------------------------------------------------------------------------------


def history(outcomes: str, address: str = ANN) -> list[RunTarget]:
    """Sent targets to one address, oldest first, of two operators; those with an s have bounced softly."""
    owners = [UserFactory.create(), UserFactory.create()]
    people = [RecipientFactory.create(owner=owner, kind="mailbox", address=address) for owner in owners]
    targets = []
    for n, letter in enumerate(outcomes):
        run = RunFactory.create(status="success", finished_at=NOW)
        failed = {"status": "failed", "error_kind": {"s": "soft_bounce", "c": "content_rejected"}.get(letter, "")}
        targets.append(
            RunTargetFactory.create(
                run=run,
                recipient=people[n % 2],
                settled_at=NOW + timedelta(days=n),
                **(failed if letter in "sc" else {"status": "sent"}),
            )
        )
    return targets


@pytest.mark.parametrize(
    ("past", "suppressed"),
    [
        ("ss", True),
        ("s.s.", True),
        ("ss..", True),
        ("s", False),
        ("s...", False),
        ("ss...", False),
        ("ssss....", False),
        ("cc..", False),
    ],
)
def test_three_soft_bounces_among_the_last_five_suppress_for_a_while(
    db: None, settings: Any, past: str, suppressed: bool
) -> None:
    settings.SOFT_BOUNCE_SUPPRESS_DAYS = 10
    target = history(f"{past}.")[-1]

    record_bounce(hard(target, kind=Kind.SOFT_BOUNCE), NOW)

    assert Suppression.objects.exists() == suppressed
    for row in Suppression.objects.all():
        assert (row.address, row.reason, row.source) == (ANN, "soft_bounces", "provider")
        assert row.expires_at == NOW + timedelta(days=10)


def test_other_addresses_have_their_own_past(db: None) -> None:
    history("ssss", "bob@example.org")

    record_bounce(hard(history(".")[0], kind=Kind.SOFT_BOUNCE), NOW)

    assert not Suppression.objects.exists()


# --- the webhook ------------------------------------------------------------------------------------------


def post(raw: bytes, token: str | None = "s3cret", method: str = "post") -> Any:
    headers = {"X-Crier-Token": token} if token is not None else {}
    return getattr(RequestFactory(), method)("/", data=raw, content_type="message/rfc822", headers=headers)


def test_the_webhook_takes_a_bounce(target: RunTarget, settings: Any) -> None:
    settings.BOUNCE_TOKEN = "s3cret"

    response = bounce_webhook(post(report(returned=id_of(target))))

    assert response.status_code == 200
    assert response.content == b'{"bounces": 1, "complaints": 0, "replies": 0, "applied": 1}'
    target.refresh_from_db()
    assert target.status == "failed"


@pytest.mark.parametrize("token", [None, "", "wrong", "s3cret ", "ş3cret"])
def test_the_webhook_wants_its_token(settings: Any, token: str | None) -> None:
    settings.BOUNCE_TOKEN = "s3cret"

    assert bounce_webhook(post(report(), token)).status_code == 403


@pytest.mark.parametrize("value", ["", None])
def test_the_webhook_is_not_there_without_a_token(settings: Any, value: str | None) -> None:
    settings.BOUNCE_TOKEN = value

    with pytest.raises(Http404):
        bounce_webhook(post(report(), ""))


def test_the_webhook_takes_posts_of_a_fair_size(settings: Any) -> None:
    settings.BOUNCE_TOKEN = "s3cret"
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 100

    assert bounce_webhook(post(b"", method="get")).status_code == 405
    assert bounce_webhook(post(b"x" * 200)).status_code == 413


SECOND = timedelta(seconds=1)
case = pytest.param


def bounce_of(kind: str = "hard_bounce", **fields: Any) -> Bounce:
    return Bounce("ann@example.org", Kind(kind), fields.pop("detail", "gone"), **fields)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("given", "refusal"),
    [
        case(bounce_of("rate_limited", by_mail=False), True, id="the-accounts-trouble"),
        case(bounce_of("rate_limited", by_mail=True), False, id="in-a-report"),
        case(bounce_of("hard_bounce", by_mail=False), False, id="of-the-address"),
        case(bounce_of("hard_bounce", by_mail=True, certain=True), True, id="certain"),
    ],
)
def test_what_answers_one_try(given: Bounce, refusal: bool) -> None:
    assert _is_refusal(given) is refusal


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("happened_at", "claimed_at", "last"),
    [
        case(NOW, None, True, id="never-claimed"),
        case(NOW, NOW, True, id="at-once"),
        case(NOW, NOW + SECOND, True, id="within-the-second"),
        case(NOW, NOW + 2 * SECOND, False, id="before-it"),
    ],
)
def test_whether_it_is_about_the_last_try(happened_at: datetime, claimed_at: datetime | None, last: bool) -> None:
    event, target = InboundEvent(happened_at=happened_at), RunTarget(claimed_at=claimed_at)
    assert _about_last_try(event, target, 0) is last


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("given", "counted"),
    [
        case(bounce_of("hard_bounce", by_mail=True), "hard_bounce", id="hard"),
        case(bounce_of("content_rejected", by_mail=True), "soft_bounce", id="any-other-mail"),
        case(bounce_of("content_rejected", by_mail=False), "content_rejected", id="an-event"),
        case(bounce_of("hard_bounce", by_mail=False), "hard_bounce", id="a-hard-event"),
    ],
)
def test_as_what_it_counts(given: Bounce, counted: str) -> None:
    assert counted_as(given) == counted


@pytest.mark.django_db
def test_the_cause_is_short_and_has_no_address() -> None:
    words = cause(bounce_of(detail=f"ann@example.org {'x' * 500}"))
    assert words == f"hard bounce, … {'x' * 148}"
