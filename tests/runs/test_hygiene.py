from __future__ import annotations

import logging
from dataclasses import asdict
from datetime import UTC, datetime, timedelta

import pytest

from fanout.models import Event, LaneState, Run, Tally
from fanout.rules.follow_ups import Person, after_cooldown
from fanout.runs import hygiene
from reminders.models import Recipient
from tests.factories import RecipientFactory, RunFactory, RunTargetFactory, SuppressionFactory

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
LIMITED = Person("not_interested", 3, None, NOON + 5 * HOUR, limited=True)


def queued(people: list[Person], **fields: object) -> Run:
    run = RunFactory.create(**{"follow_up": True, "status": "running"} | fields)
    for position, person in enumerate(people, 1):
        target = RunTargetFactory.create(run=run, position=position)
        Recipient.objects.filter(pk=target.recipient_id).update(**asdict(person))
    return run


def errors(run: Run) -> list[str]:
    return list(run.targets.order_by("position").values_list("error", flat=True))


def test_who_may_no_longer_get_it_is_skipped(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(hygiene, "BATCH", 2)
    run = queued([Person(), Person("opted_out"), LIMITED, Person("converted"), Person(follow_up_attempts=2)])
    SuppressionFactory.create(address=run.targets.get(position=1).address, reason="complaint")
    with caplog.at_level(logging.INFO, "crier.hygiene"):
        hygiene.clean_up(NOON)
    assert errors(run) == ["suppressed: complaint", "opted_out", "cooldown_active_5h", "converted", ""]
    run.refresh_from_db()
    assert (run.pending, run.skipped) == (1, 4)
    reasons = "1 converted, 1 cooldown_active_5h, 1 opted_out, 1 suppressed: complaint"
    assert caplog.messages == [f"5 queued follow-ups looked at, 4 skipped ({reasons}), 0 cooldowns over"]
    assert Event.objects.get(account=run.account).detail == f"4 skipped: {reasons}"
    assert dict(Tally.objects.filter(what="removed").values_list("why", "n"))["cooldown_active"] == 1
    assert LaneState.objects.get(account=run.account).due_at == NOON, "a lane must look whether the run is done"


@pytest.mark.parametrize(
    "fields", [{"follow_up": False}, {"status": "paused", "pause_reason": "operator"}], ids=["ordinary", "paused"]
)
def test_what_is_not_queued_as_a_follow_up_stays(fields: dict[str, object]) -> None:
    run = queued([Person("converted")], **fields)
    hygiene.clean_up(NOON)
    assert errors(run) == [""]
    assert not Event.objects.exists()


def test_cooldowns_that_are_over_are_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hygiene, "BATCH", 1)
    before = (
        LIMITED,
        Person("not_interested", 3, None, NOON, limited=True),
        Person("converted", 3, None, NOON - HOUR),
    )
    recipients = [RecipientFactory.create(**asdict(person)) for person in before]
    assert hygiene.clean_up(NOON).cooldowns_over == 2
    for recipient, person in zip(recipients, before):
        after = Person(**Recipient.objects.values(*asdict(person)).get(pk=recipient.pk))
        assert after == after_cooldown(person, NOON)
    assert hygiene.clean_up(NOON).cooldowns_over == 0
