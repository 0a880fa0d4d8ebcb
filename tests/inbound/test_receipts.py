"""Receipts: late, repeated and in any order, the first time stands and nothing is sent twice."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fanout.inbound import worker
from fanout.models import Activity, Event, InboundEvent, Run, RunTarget
from fanout.rules.message_ids import message_id
from fanout.runs.progress import COUNTS, funnel
from tests.factories import AccountFactory, InboundEventFactory, RunFactory, RunTargetFactory

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
EARLY, LATE = NOW - timedelta(minutes=2), NOW - timedelta(minutes=1)


@pytest.fixture
def run() -> Run:
    return RunFactory.create(status="running", scheduled_for=NOW)


def target_of(run: Run, status: str = "sent", **fields: Any) -> RunTarget:
    values = {"provider_id": "sbx-1", "claimed_at": EARLY, "parts_sent": int(status == "sent"), "attempts": 1}
    return RunTargetFactory.create(run=run, status=status, **values | fields)


def receipt(target: RunTarget, kind: str = "delivered", at: datetime = LATE, **fields: Any) -> InboundEvent:
    values = {"account": target.account, "provider_id": target.provider_id, "address": target.address}
    return InboundEventFactory.create(kind=kind, happened_at=at, **values | fields)


def test_delivered_and_read_are_noted(run):
    target = target_of(run)
    events = [receipt(target, at=EARLY), receipt(target, "read")]
    worker.step(NOW)
    target.refresh_from_db()
    assert (target.delivered_at, target.read_at, target.status) == (EARLY, LATE, "sent")
    for event in events:
        event.refresh_from_db()
        assert (event.state, event.effect, event.run_target_id) == ("done", "noted", target.pk)


@pytest.mark.parametrize("order", list(itertools.permutations(["delivered", "read", "delivered again"])))
@pytest.mark.parametrize("together", [True, False])
def test_the_order_does_not_matter(run, order, together):
    target = target_of(run)
    times = {"delivered": EARLY, "read": LATE, "delivered again": NOW}
    for word in order:
        receipt(target, word.split()[0], times[word])
        if not together:
            worker.step(NOW)
    worker.step(NOW)
    target.refresh_from_db()
    assert target.read_at == LATE
    assert target.delivered_at == (EARLY if together else times[order[0]])


def test_read_means_delivered(run):
    target = target_of(run)
    receipt(target, "read")
    worker.step(NOW)
    target.refresh_from_db()
    assert (target.delivered_at, target.read_at) == (LATE, LATE)


def test_another_accounts_receipt_changes_nothing(run):
    target = target_of(run)
    receipt(target, account=AccountFactory.create())
    receipt(target, account=AccountFactory.create(), message_id=message_id(target.pk, 0))
    worker.step(NOW)
    target.refresh_from_db()
    assert target.delivered_at is None


@pytest.mark.parametrize("status", ["unconfirmed", "sent"])
def test_an_id_that_another_target_has_is_not_taken_over(run, status):
    """Even if the report names this target."""
    target_of(run, provider_id="3EB0OLD")
    other = target_of(run, status, provider_id="", parts_sent=0)
    receipt(other, message_id=message_id(other.pk, 0), provider_id="3EB0OLD")
    worker.step(NOW)
    other.refresh_from_db()
    assert (other.status, other.provider_id, other.delivered_at) == (status, "", None)


def test_a_receipt_that_is_faster_than_our_own_record_waits_for_it(run):
    target = target_of(run, "sending", provider_id="")
    event = receipt(target, provider_id="sbx-9")
    worker.step(NOW)
    RunTarget.objects.filter(pk=target.pk).update(status="sent", provider_id="sbx-9", parts_sent=1)
    worker.step(NOW + timedelta(seconds=1))
    event.refresh_from_db()
    assert event.state == "new"
    worker.step(NOW + timedelta(seconds=3))
    for row in (target, event):
        row.refresh_from_db()
    assert (target.delivered_at, event.state) == (LATE, "done")


def test_a_receipt_for_another_message_is_done_after_a_while_and_holds_up_no_reply(run, monkeypatch):
    monkeypatch.setitem(worker.EFFECTS, "reply", lambda event, now: "received")
    target = target_of(run)
    event = receipt(target, provider_id="by-hand")
    worker.step(NOW)
    reply = receipt(target, "reply", provider_id="")
    worker.step(NOW)
    reply.refresh_from_db()
    assert reply.effect == "received"
    for minutes in (1, 2, 10):
        worker.step(NOW + timedelta(minutes=minutes))
    event.refresh_from_db()
    assert (event.state, event.effect) == ("done", "names no message that this account sent for Crier")


# --- what was in doubt ------------------------------------------------------------------------------------


def made_unconfirmed(run: Run, **fields: Any) -> RunTarget:
    return target_of(run, "unconfirmed", **{"provider_id": "", "error_kind": "unknown", "parts_sent": 0} | fields)


def test_a_late_answer_of_the_server_settles_and_names_it_and_is_no_receipt(run):
    target = made_unconfirmed(run)
    receipt(target, message_id=message_id(target.pk, 0), provider_id="3EB0AA", detail={"by": "server"})
    worker.step(NOW)
    target.refresh_from_db()
    assert (target.status, target.provider_id, target.delivered_at) == ("sent", "3EB0AA", None)
    receipt(target, provider_id="3EB0AA")
    worker.step(NOW)
    target.refresh_from_db()
    assert target.delivered_at == LATE


def test_a_receipt_settles_what_was_unconfirmed(run):
    target_of(run), made_unconfirmed(run)
    target = run.targets.get(status="unconfirmed")
    Run.objects.filter(pk=run.pk).update(status="partial", finished_at=EARLY)
    event = receipt(target, message_id=message_id(target.pk, 0))
    worker.step(NOW)
    worker.step(NOW)
    for row in (target, run, event):
        row.refresh_from_db()
    assert (target.status, target.parts_sent, target.delivered_at) == ("sent", 1, LATE)
    assert (run.status, run.sent, run.unconfirmed) == ("success", 2, 0)
    assert event.effect == "confirmed that it was sent"
    assert Event.objects.filter(run=run, verb="settled").values_list("detail", flat=True)[0] == (
        "1 × confirmed by the provider"
    )
    # It counts against the cap of the day on which it went out, once.
    (activity,) = Activity.objects.filter(run_target=target)
    assert (activity.outcome, activity.at, activity.account_id) == ("sent", EARLY, target.account_id)


def by_device(target: RunTarget, provider_id: str = "3EB0NEW", **fields: Any) -> InboundEvent:
    return receipt(target, provider_id=provider_id, **{"detail": {"by_device": True}} | fields)


def test_a_receipt_with_an_unknown_id_settles_the_only_doubt_of_its_chat(run):
    target = made_unconfirmed(run)
    event = by_device(target)
    worker.step(NOW)
    for row in (target, event):
        row.refresh_from_db()
    assert (target.status, target.provider_id, target.delivered_at) == ("sent", "3EB0NEW", LATE)
    assert (event.state, event.effect) == ("done", "confirmed that it was sent")


def test_in_a_group_the_group_is_the_chat(run):
    target = made_unconfirmed(run)
    by_device(target, address="+4915200000009", group=target.address)
    worker.step(NOW)
    target.refresh_from_db()
    assert target.status == "sent"


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"detail": {}}, id="perhaps-by-hand"),
        pytest.param({"kind": "read"}, id="read-perhaps-an-old-one"),
        pytest.param({"address": "+4915200000009"}, id="another-chat"),
        pytest.param({"at": EARLY - timedelta(seconds=1)}, id="before-the-claim"),
        pytest.param({"at": EARLY + timedelta(days=4)}, id="too-late"),
        pytest.param({"provider_id": "sbx-other"}, id="another-message-of-ours"),
    ],
)
def test_only_a_receipt_that_can_be_meant_settles_a_doubt(run, fields):
    target = made_unconfirmed(run)
    target_of(run, provider_id="sbx-other")
    by_device(target, **fields)
    worker.step(NOW)
    target.refresh_from_db()
    assert target.status == "unconfirmed"


@pytest.mark.parametrize(
    ("status", "fields"),
    [
        ("unconfirmed", {"provider_id": "", "parts_sent": 0}),
        # Its answer may be on its way, with this id.
        ("sending", {"provider_id": "", "parts_sent": 0}),
        # The id of its first part is not known any more.
        ("sent", {"parts_sent": 2}),
        ("sent", {"provider_id": "", "parts_sent": 1}),
        # Sent again by an operator: its earlier try may have gone out.
        ("pending", {"provider_id": "", "parts_sent": 0, "in_doubt": True}),
    ],
)
def test_with_another_message_that_can_be_meant_nothing_is_settled(run, status, fields):
    target = made_unconfirmed(run)
    other = RunFactory.create(status="running", account=run.account, scheduled_for=NOW)
    target_of(other, status, recipient=target.recipient, address=target.address, account=target.account, **fields)
    by_device(target)
    worker.step(NOW)
    target.refresh_from_db()
    assert target.status == "unconfirmed"


def test_two_unknown_messages_in_one_chat_settle_nothing(run):
    target = made_unconfirmed(run)
    by_device(target)
    by_device(target, "3EB0OTHER")
    worker.step(NOW)
    target.refresh_from_db()
    assert target.status == "unconfirmed"


def test_a_receipt_for_an_earlier_part_does_not_settle_the_one_in_doubt():
    run = RunFactory.create(status="running", scheduled_for=NOW, parts=[{"kind": "text", "text": str(n)} for n in "ab"])
    target = made_unconfirmed(run, parts_sent=1, provider_id="sbx-1")
    receipt(target)
    receipt(target, message_id=message_id(target.pk, 0))
    worker.step(NOW)
    target.refresh_from_db()
    assert (target.status, target.parts_sent, target.delivered_at) == ("unconfirmed", 1, LATE)


def test_with_parts_left_it_goes_on_with_the_next_part(run):
    run = RunFactory.create(status="running", scheduled_for=NOW, parts=[{"kind": "text", "text": str(n)} for n in "ab"])
    target = made_unconfirmed(run)
    receipt(target, message_id=message_id(target.pk, 0))
    worker.step(NOW)
    for row in (target, run):
        row.refresh_from_db()
    assert (target.status, target.parts_sent, run.status) == ("pending", 1, "running")


@pytest.mark.parametrize("status", ["failed", "skipped"])
def test_a_receipt_never_revives_a_target(run, status):
    target = target_of(run, status, claimed_at=EARLY)
    receipt(target, message_id=message_id(target.pk, 0))
    worker.step(NOW)
    target.refresh_from_db()
    assert (target.status, target.delivered_at) == (status, LATE)


def test_a_receipt_for_what_was_never_sent_changes_nothing(run):
    target = target_of(run, "skipped", claimed_at=None)
    receipt(target, message_id=message_id(target.pk, 0))
    worker.step(NOW)
    target.refresh_from_db()
    assert target.delivered_at is None


# --- the funnel -------------------------------------------------------------------------------------------


def test_the_funnel_counts_what_came_back(run):
    target_of(run, delivered_at=EARLY), target_of(run), target_of(run, "failed", delivered_at=EARLY)
    target_of(run, delivered_at=EARLY, read_at=LATE, replied_at=NOW)
    run.refresh_from_db()
    counted = [run.targets.filter(status="sent").aggregate(**COUNTS)]
    assert [(step.word, step.n) for step in funnel(run, counted)] == [
        ("sent", 3),
        ("received", 2),
        ("read", 1),
        ("replied", 1),
        ("opted out", 0),
    ]


def test_a_channel_without_receipts_has_a_funnel_from_the_first_reply_on():
    run = RunFactory.create(reminder__account__channel="smtp", targets={"sent": 2})
    sent = run.targets.filter(status="sent")
    assert funnel(run, [sent.aggregate(**COUNTS)]) == []
    sent.filter(pk=sent[0].pk).update(replied_at=NOW)
    steps = funnel(run, [sent.aggregate(**COUNTS)])
    assert [(step.word, step.n) for step in steps] == [("sent", 2), ("replied", 1), ("opted out", 0)]
