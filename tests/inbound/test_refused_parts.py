"""Parts of one message that a provider refuses, at once or later: the message stops there, says which parts went out,
and a retry sends only what is missing."""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta
from typing import Any

import pytest

from accounts.channels.provider_events import EventKind, ProviderEvent
from accounts.channels.sandbox.script import Script
from fanout.inbound import worker
from fanout.inbound.event_store import store
from fanout.models import InboundEvent, Run, RunTarget
from fanout.rules.message_ids import message_id
from fanout.runs import controls
from tests.engine.stage import Stage, fresh

KEYS = itertools.count()
#: between two parts, so that a report may come in between
PAUSE = {"part_jitter_min_ms": 10_000, "part_jitter_max_ms": 10_000}


def sent_parts(stage: Stage) -> list[int]:
    """Return the parts that the provider took, in their order."""
    return [delivery.part for delivery in stage.book.deliveries()]


def id_of(stage: Stage, part: int) -> str:
    """Return the provider's id of the last try of a part: it counts what it accepts."""
    return f"sbx-{max(n for n, sent in enumerate(sent_parts(stage), 1) if sent == part)}"


def the_target(run: Run) -> RunTarget:
    return run.targets.get()


def refuse(stage: Stage, run: Run, part: int, kind: str = "content_rejected", named: str = "", **detail: Any) -> None:
    """Let the provider report that it refused a part after it had accepted it.

    `named`: only by the provider's own id, with the person's address.
    """
    target = the_target(run)
    event = ProviderEvent(
        key=f"refused {next(KEYS)}",
        kind=EventKind.BOUNCE,
        at=stage.now,
        message_id="" if named else message_id(target.pk, part),
        provider_id=id_of(stage, part),
        text="Meta's words",
        group=target.address,
        detail={"kind": kind, "certain": True, **detail},
    )
    assert store(target.account_id, [event], stage.now) == 1
    process_inbound(stage.now)


def process_inbound(now: datetime) -> None:
    while worker.step(now):
        pass


def fire(stage: Stage, parts: int, **fields: Any) -> Run:
    return stage.fire(stage.reminder(stage.account(**fields), groups=1, parts=("text",) * parts))


def retry(stage: Stage, run: Run) -> None:
    assert controls.retry_failed(fresh(run), stage.user, stage.now).ok
    stage.play()


def test_a_part_that_is_refused_at_once_ends_the_message_and_a_retry_goes_on_there(stage: Stage) -> None:
    stage.provider.set_script(Script({"*": {"faults": [{"match": {"part": 1}, "effect": "content_rejected"}]}}))
    run = fire(stage, 3)
    stage.play()

    target = the_target(run)
    assert sent_parts(stage) == [0]
    assert (target.status, target.parts_sent) == ("failed", 1)
    assert target.error == "Part 2 of 3 was refused; part 1 went out: This content is not allowed"

    stage.provider.set_script(Script({}))
    retry(stage, run)
    assert sent_parts(stage) == [0, 1, 2]
    assert the_target(run).status == "sent"


@pytest.mark.parametrize("named", ["", "by the provider's id"])
def test_a_part_that_is_refused_between_two_parts_ends_the_message(stage: Stage, named: str) -> None:
    run = fire(stage, 2, **PAUSE)
    stage.play(4)
    refuse(stage, run, 0, named=named)
    stage.play()

    target = the_target(run)
    assert sent_parts(stage) == [0]
    assert (target.status, target.parts_sent, target.error_kind) == ("failed", 0, "content_rejected")
    assert target.error == "Part 1 of 2 was refused: Meta's words"
    assert fresh(run).status == "failed"

    retry(stage, run)
    assert sent_parts(stage) == [0, 0, 1]
    assert the_target(run).status == "sent"


def test_a_person_who_is_limited_between_two_parts_gets_both_later(stage: Stage) -> None:
    run = fire(stage, 2, **PAUSE)
    stage.play(4)
    refuse(stage, run, 0, "recipient_limited", retry_after=600)
    stage.play(300)
    assert sent_parts(stage) == [0]

    stage.play()
    assert sent_parts(stage) == [0, 0, 1]
    assert the_target(run).status == "sent"


@pytest.mark.parametrize("named", ["", "by the provider's id"])
def test_a_part_that_is_refused_after_the_next_one_went_out_is_sent_alone_by_a_retry(stage: Stage, named: str) -> None:
    run = fire(stage, 3)
    stage.play()
    refuse(stage, run, 1, named=named)

    target = the_target(run)
    assert (target.status, target.parts_sent) == ("failed", 1)
    assert target.error == "Part 2 of 3 was refused; parts 1 and 3 went out: Meta's words"
    assert fresh(run).status == "failed"

    retry(stage, run)
    assert sent_parts(stage) == [0, 1, 2, 1]
    assert (the_target(run).status, the_target(run).parts_sent) == ("sent", 3)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_parts_that_are_all_refused_are_all_sent_again(stage: Stage, order: tuple[int, int]) -> None:
    run = fire(stage, 2)
    stage.play()
    for part in order:
        refuse(stage, run, part, "recipient_limited", retry_after=600)
    stage.play()

    assert sent_parts(stage) == [0, 1, 0, 1]
    assert the_target(run).status == "sent"
    assert fresh(run).status == "success"


def test_all_refused_for_good_are_sent_by_a_retry_in_their_order(stage: Stage) -> None:
    run = fire(stage, 2)
    stage.play()
    refuse(stage, run, 0)
    refuse(stage, run, 1)

    target = the_target(run)
    assert (target.status, target.parts_sent, target.part_ids) == ("failed", 0, {})
    retry(stage, run)
    assert sent_parts(stage) == [0, 1, 0, 1]


def test_a_receipt_of_a_part_keeps_it_from_being_sent_again(stage: Stage) -> None:
    run = fire(stage, 2)
    stage.play()
    receipt = ProviderEvent(key="receipt", kind=EventKind.DELIVERED, at=stage.now, provider_id=id_of(stage, 0))
    store(the_target(run).account_id, [receipt], stage.now)
    refuse(stage, run, 0, "recipient_limited", retry_after=600)
    stage.play()

    assert sent_parts(stage) == [0, 1]
    assert the_target(run).status == "failed"


def test_a_report_about_an_earlier_try_of_a_part_changes_nothing(stage: Stage) -> None:
    run = fire(stage, 2)
    stage.play()
    RunTarget.objects.update(part_ids={"0": "a later try", "1": the_target(run).provider_id})
    stage.now += timedelta(minutes=1)
    refuse(stage, run, 0)

    assert the_target(run).status == "sent"
    assert InboundEvent.objects.get().effect == "nothing: it is about an earlier try"


def test_a_doubtful_part_is_not_sent_again_with_one_that_was_refused(stage: Stage) -> None:
    stage.provider.set_script(Script({"*": {"faults": [{"match": {"part": 1}, "effect": "error_after_accept"}]}}))
    run = fire(stage, 2)
    stage.play()
    assert the_target(run).status == "unconfirmed"
    refuse(stage, run, 0)

    target = the_target(run)
    assert (target.status, target.parts_sent) == ("failed", 0)
    assert target.error == "Part 1 of 2 was refused; part 2 may have gone out: Meta's words"
    stage.provider.set_script(Script({}))
    retry(stage, run)
    assert sent_parts(stage) == [0, 1, 0]


def test_the_part_in_doubt_is_told_by_its_own_id(stage: Stage) -> None:
    """Where we choose the id, it is known before the answer: the first part is not taken for it."""
    stage.provider.set_script(Script({"*": {"faults": [{"match": {"part": 1}, "effect": "drop_after_accept"}]}}))
    run = fire(stage, 2)
    stage.play()
    RunTarget.objects.update(provider_id=id_of(stage, 1))
    assert (the_target(run).status, the_target(run).part_ids) == ("unconfirmed", {"0": id_of(stage, 0)})
    refuse(stage, run, 1, named="by the provider's id")

    target = the_target(run)
    assert (target.status, target.parts_sent, target.part_ids) == ("failed", 1, {"0": id_of(stage, 0)})
    stage.provider.set_script(Script({}))
    retry(stage, run)
    assert sent_parts(stage) == [0, 1, 1]


def test_a_part_that_is_refused_while_its_lane_waits_with_an_earlier_one_is_not_lost(stage: Stage) -> None:
    """The lane has fetched the targets while the second part counted as sent."""
    run = stage.fire(stage.reminder(stage.account(), groups=20, parts=("text", "text")))
    stage.play()
    targets = list(run.targets.order_by("position"))
    for target in targets:
        refuse_late(target, 0, stage.now, 60)
    late = []

    def refuse_the_rest(now: datetime) -> None:
        for target in targets:
            target.refresh_from_db()
            if target.status == "pending" and target.parts_sent == 0:
                refuse_late(target, 1, now, 5)
                late.append(target.address)

    stage.play(None, [(stage.now + timedelta(seconds=75), refuse_the_rest)])
    assert late
    assert set(run.targets.values_list("status", "parts_sent")) == {("sent", 2)}
    parts = [[sent.part for sent in stage.book.deliveries() if sent.to == address] for address in late]
    assert parts == [[0, 1, 0, 1]] * len(late)


def refuse_late(target: RunTarget, part: int, now: datetime, retry_after: int) -> None:
    target.refresh_from_db()
    event = ProviderEvent(
        key=f"refused {next(KEYS)}",
        kind=EventKind.BOUNCE,
        at=now,
        message_id=message_id(target.pk, part),
        provider_id=target.part_ids[str(part)],
        group=target.address,
        detail={"kind": "recipient_limited", "certain": True, "retry_after": retry_after},
    )
    assert store(target.account_id, [event], now) == 1
    process_inbound(now)
