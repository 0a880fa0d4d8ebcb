from __future__ import annotations

import logging
from collections import Counter
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fanout.models import Event, LaneState, Run, Tally
from fanout.rules.follow_up_limits import Prospect, after_cooldown, under_lower_limit
from fanout.runs import follow_ups, hygiene
from reminders.models import Recipient
from tests.factories import (
    RecipientFactory,
    RunFactory,
    RunTargetFactory,
    SuppressionFactory,
)

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
HOUR, SECOND = timedelta(hours=1), timedelta(seconds=1)
LIMITED = Prospect("not_interested", 3, None, NOON + 5 * HOUR, limited=True)


def queued(people: list[Prospect], **fields: object) -> Run:
    run = RunFactory.create(**{"follow_up": True, "status": "running"} | fields)
    for position, person in enumerate(people, 1):
        target = RunTargetFactory.create(run=run, position=position)
        Recipient.objects.filter(pk=target.recipient_id).update(**asdict(person))
    return run


def errors(run: Run) -> list[str]:
    return list(run.targets.order_by("position").values_list("error", flat=True))


def test_who_may_no_longer_get_it_is_skipped(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(hygiene, "BATCH", 2)
    run = queued(
        [
            Prospect(),
            Prospect("opted_out"),
            LIMITED,
            Prospect("converted"),
            Prospect(follow_up_attempts=2),
        ]
    )
    SuppressionFactory.create(address=run.targets.get(position=1).address, reason="complaint")
    with caplog.at_level(logging.INFO, "crier.hygiene"):
        hygiene.clean_up(NOON)
    assert errors(run) == ["suppressed: complaint", "opted_out", "cooldown_active_5h", "converted", ""]
    run.refresh_from_db()
    assert (run.pending, run.skipped) == (1, 4)
    reasons = "1 converted, 1 opted out, 1 still in the cooldown, 1 suppressed: complaint"
    assert caplog.messages == [f"5 queued follow-ups looked at, 4 skipped ({reasons}), 0 cooldowns over"]
    assert Event.objects.get(account=run.account).detail == f"4 skipped: {reasons}"
    assert dict(Tally.objects.filter(what="removed").values_list("why", "n"))["cooldown_active"] == 1
    assert LaneState.objects.get(account=run.account).due_at == NOON, "a lane must look whether the run is done"


def test_what_is_settled_is_not_looked_at() -> None:
    run = queued([Prospect("converted"), Prospect("converted"), Prospect()])
    run.targets.filter(position=1).update(status="sent")
    this = hygiene.clean_up(NOON)
    assert (this.looked_at, this.skipped.total()) == (2, 1)


def test_a_paused_run_is_cleaned_up_and_ends_where_no_target_is_left() -> None:
    """Its targets count in the account's queue, and a resume must not find people who said no weeks ago."""
    paused = {"status": "paused", "pause_reason": "operator"}
    some, none = (
        queued([Prospect("converted"), Prospect()], **paused),
        queued([Prospect("converted")], **paused),
    )
    hygiene.clean_up(NOON)
    assert (errors(some), errors(none)) == (["converted", ""], ["converted"])
    for run in (some, none):
        run.refresh_from_db()
    assert (some.status, none.status) == ("paused", "skipped")


def test_what_is_no_follow_up_stays() -> None:
    run = queued([Prospect("converted")], follow_up=False)
    hygiene.clean_up(NOON)
    assert errors(run) == [""]
    assert not Event.objects.exists()


def test_a_lower_limit_begins_the_cooldown_of_who_has_had_so_many(settings: Any) -> None:
    settings.BOT_FOLLOW_UP_MAX_ATTEMPTS = 2
    before = [Prospect(follow_up_attempts=n) for n in (1, 2, 3)]
    before += [Prospect("converted", 2), Prospect("not_interested", 2), LIMITED]
    recipients = [RecipientFactory.create(**asdict(person)) for person in before]
    assert str(hygiene.clean_up(NOON)).endswith("0 cooldowns over, 4 begun")
    for recipient, person in zip(recipients, before):
        after = Prospect(**Recipient.objects.values(*asdict(person)).get(pk=recipient.pk))
        assert after == under_lower_limit(person, follow_ups.limits(), NOON)
    assert hygiene.clean_up(NOON + 49 * HOUR).cooldowns_over == 5, "and one day it is over"
    assert Recipient.objects.filter(follow_up_attempts__gte=2).count() == 0


def test_cooldowns_that_are_over_are_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hygiene, "BATCH", 1)
    before = (
        LIMITED,
        Prospect("not_interested", 3, None, NOON, limited=True),
        Prospect("converted", 3, None, NOON - HOUR),
        Prospect("converted", 3, None, NOON - HOUR, limited=True),
    )
    recipients = [RecipientFactory.create(**asdict(person)) for person in before]
    assert hygiene.clean_up(NOON).cooldowns_over == 3
    for recipient, person in zip(recipients, before):
        after = Prospect(**Recipient.objects.values(*asdict(person)).get(pk=recipient.pk))
        assert after == after_cooldown(person, NOON)
    assert hygiene.clean_up(NOON).cooldowns_over == 0


NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)  # a Monday
case = pytest.param


@pytest.mark.parametrize(
    ("run", "target", "suppression", "skipped"),
    [
        case({}, {}, {}, True, id="suppressed"),
        case({"status": "queued"}, {}, {}, True, id="queued"),
        case({"status": "waiting"}, {}, {}, True, id="waiting"),
        case({"status": "canceled"}, {}, {}, False, id="canceled"),
        case({"follow_up": False}, {}, {}, False, id="no-follow-up"),
        case({}, {"status": "sending"}, {}, False, id="in-flight"),
        case({}, {"position": 0}, {}, True, id="the-very-first"),
        case({}, {}, {"expires_at": NOW + SECOND}, True, id="for-a-while"),
        case({}, {}, {"expires_at": NOW}, False, id="no-longer"),
        case({}, {}, {"address": "somebody@example.com"}, False, id="another-address"),
    ],
)
def test_which_targets_hygiene_skips(
    run: dict[str, Any], target: dict[str, Any], suppression: dict[str, Any], skipped: bool
) -> None:
    made = RunFactory.create(**{"follow_up": True, "status": "running"} | run)
    gone, beside = RunTargetFactory.create(run=made, **target), RunTargetFactory.create(run=made)
    SuppressionFactory.create(**{"address": gone.address, "reason": "manual"} | suppression)
    found = hygiene.clean_up(NOW)
    for row in (gone, beside):
        row.refresh_from_db()
    assert (gone.status == "skipped", gone.error) == (skipped, "suppressed: manual" if skipped else "")
    assert (beside.status, sum(found.skipped.values())) == ("pending", int(skipped))
    assert LaneState.objects.filter(account=made.account_id, due_at=NOW).exists() is skipped
    assert Tally.objects.filter(what="removed").count() == int(skipped)


@pytest.mark.parametrize(
    ("fields", "over"),
    [
        case({"cooldown_until": NOW}, 1, id="over"),
        case({"cooldown_until": NOW + SECOND}, 0, id="not-yet"),
        case({}, 0, id="none"),
    ],
)
def test_which_cooldowns_are_over(fields: dict[str, Any], over: int) -> None:
    person = RecipientFactory.create()
    Recipient.objects.filter(pk=person.pk).update(follow_up_attempts=2, **fields)
    assert hygiene.clean_up(NOW).cooldowns_over == over
    person.refresh_from_db()
    assert person.follow_up_attempts == (0 if over else 2)


def test_a_round_in_words() -> None:
    this = hygiene.Round()
    assert str(this) == "0 queued follow-ups looked at, 0 skipped, 0 cooldowns over"
    this = hygiene.Round(9, 2, 3, Counter({(1, "opted_out"): 2, (2, "opted_out"): 1}))
    assert str(this) == "9 queued follow-ups looked at, 3 skipped (3 opted out), 2 cooldowns over, 3 begun"
