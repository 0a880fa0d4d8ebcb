"""Bounces while sending: the account's whole day counts, an address wears out, and an expired suppression is over."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from accounts.channels.sandbox.script import Script
from fanout.models import RunTarget
from reminders.models import Recipient, Suppression
from tests.engine.stage import Stage, fresh
from tests.factories import ActivityFactory, RunFactory, SuppressionFactory


def bouncing(stage: Stage, match: dict[str, Any], effect: str) -> None:
    stage.provider.set_script(Script({"*": {"faults": [{"match": match, "effect": effect}]}}))


def earlier(stage: Stage, account: Any, bounced: int) -> None:
    """Messages that the account sent this morning, and bounces among them."""
    over = {"status": "failed", "finished_at": stage.now, "targets": {"failed": bounced}}
    run = RunFactory.create(account=account, reminder=stage.reminder(account, groups=0), **over)
    for target in run.targets.all():
        ActivityFactory.create(account=account, run_target=target, outcome="failed", kind="hard_bounce", at=stage.now)
    for _ in range(40):
        ActivityFactory.create(account=account, at=stage.now)


def test_one_refusal_more_than_the_day_allows_pauses_the_account(stage: Stage) -> None:
    """The run's own sample is far too small to say anything."""
    account = stage.account(group_concurrency=1)
    earlier(stage, account, bounced=2)
    bouncing(stage, {"first": 1}, "hard_bounce")
    run = stage.fire(stage.reminder(account, groups=5))

    stage.play(60)

    account.refresh_from_db()
    assert (account.status, account.status_reason) == ("paused", "bounce rate 7%: 3 of 43 messages came back")
    assert (fresh(run).status, run.failed, run.pending) == ("paused", 1, 4)


def test_a_soft_bounce_counts_when_it_is_final(stage: Stage) -> None:
    """A mailbox that is full for a moment, or greylisting, does not count as a bounce."""
    account = stage.account(retry_base_seconds=1, circuit_breaker=1)
    earlier(stage, account, bounced=2)
    bouncing(stage, {"address": "120363000000000000@g.us", "first": 3}, "soft_bounce")
    stage.fire(stage.reminder(account, groups=1))
    stage.play()
    account.refresh_from_db()
    assert account.status == "active"

    bouncing(stage, {"address": "120363000000000050@g.us"}, "soft_bounce")
    stage.fire(stage.reminder(account, groups=1, first=50))
    stage.play()

    account.refresh_from_db()
    assert account.status_reason == "bounce rate 7%: 3 of 44 messages came back"


def test_the_third_soft_bounce_suppresses_the_address_for_a_while(stage: Stage) -> None:
    account = stage.account(retry_base_seconds=1, circuit_breaker=1)
    bouncing(stage, {"address": "120363000000000000@g.us"}, "soft_bounce")
    for n in range(3):
        assert not Suppression.objects.exists()
        stage.fire(stage.reminder(account, groups=1, title=f"{n}"))
        stage.play()

    row = Suppression.objects.get()
    assert (row.address, row.reason, row.source) == ("120363000000000000@g.us", "soft_bounces", "provider")
    assert row.expires_at is not None
    assert timedelta(days=29) < row.expires_at - stage.now <= timedelta(days=30)

    run = stage.fire(stage.reminder(account, groups=1))
    stage.play()
    assert RunTarget.objects.get(run=run).error == "suppressed: soft_bounces"


def test_an_address_whose_suppression_is_over_has_its_retries(stage: Stage) -> None:
    """Its past is judged anew only when it has failed again, not when it is tried once more."""
    account = stage.account(retry_base_seconds=1, circuit_breaker=1)
    bouncing(stage, {"address": "120363000000000000@g.us"}, "soft_bounce")
    for n in range(3):
        stage.fire(stage.reminder(account, groups=1, title=f"{n}"))
        stage.play()
    over = stage.now
    Suppression.objects.update(expires_at=over)
    bouncing(stage, {"address": "120363000000000000@g.us", "first": 1}, "soft_bounce")
    run = stage.fire(stage.reminder(account, groups=1))
    stage.play()
    assert fresh(run).sent == 1
    assert Suppression.objects.get().expires_at == over


def test_an_expired_suppression_does_not_count_and_is_renewed_by_a_refusal(stage: Stage) -> None:
    account = stage.account()
    stage.recipients(0, 2)
    for person in Recipient.objects.all():
        SuppressionFactory.create(address=person.address, reason="soft_bounces", expires_at=stage.now)
    bouncing(stage, {"address": "120363000000000000@g.us"}, "hard_bounce")

    run = stage.fire(stage.reminder(account, groups=2))
    stage.play()

    assert (fresh(run).sent, run.failed) == (1, 1)
    renewed = Suppression.objects.get(address="120363000000000000@g.us")
    assert (renewed.reason, renewed.expires_at) == ("hard_bounce", None)
