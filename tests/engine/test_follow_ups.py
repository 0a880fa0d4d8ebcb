"""Follow-ups on the engine: attempts by what went out, refusals at the claim, a longer pace under backpressure."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from accounts.channels.sandbox.script import Script
from fanout.database import conninfo
from fanout.engine.commit import Claim, Commit, Result, calls_of, ignore_written
from fanout.engine.connection import BlockingLink, Row, prepare
from fanout.models import LaneState, RunTarget
from fanout.runs import hygiene
from fanout.runs.why import why_run
from reminders.models import Recipient
from tests.engine.stage import Stage, books_balance, fresh
from tests.factories import LaneStateFactory, RecipientFactory, RunFactory, RunTargetFactory

HOUR = timedelta(hours=1)


def test_three_attempts_then_a_cooldown_then_active_again(stage: Stage) -> None:
    """Two accounts share the attempts; an ordinary reminder goes out all the while."""
    one, two = stage.account(), stage.account()
    follow_up: dict[str, Any] = {"follow_up": True, "parts": ("text", "text")}
    for account in (one, two, one):
        stage.fire(stage.reminder(account, groups=1, **follow_up))
        stage.play()
        stage.now += HOUR
    person = Recipient.objects.get(owner=stage.user)
    assert (person.follow_up_attempts, person.status, person.limited) == (3, "not_interested", True)
    assert person.cooldown_until is not None
    assert timedelta(hours=46) < person.cooldown_until - stage.now < timedelta(hours=48)
    assert len(stage.book.deliveries()) == 6

    refused = stage.fire(stage.reminder(two, groups=1, **follow_up))
    stage.fire(stage.reminder(two, groups=1))
    stage.play()
    assert fresh(refused).status == "skipped"
    assert refused.targets.get().error == "cooldown_active_47h"
    assert len(stage.book.deliveries()) == 7, "the ordinary one"

    stage.now = person.cooldown_until
    stage.fire(stage.reminder(two, groups=1, follow_up=True))
    stage.play()
    person.refresh_from_db()
    assert (person.follow_up_attempts, person.status, person.limited) == (1, "active", False)
    assert person.cooldown_until is None
    assert len(stage.book.deliveries()) == 8


def test_tries_that_went_nowhere_are_no_attempts(stage: Stage) -> None:
    run = stage.fire(stage.reminder(stage.account(), groups=3, follow_up=True))
    Recipient.objects.filter(address__endswith="0001@g.us").update(status="opted_out")
    stage.play()
    assert fresh(run).sent == 2
    attempts = Recipient.objects.order_by("address").values_list("follow_up_attempts", flat=True)
    assert list(attempts) == [1, 0, 1]


def test_hygiene_during_a_live_run(stage: Stage) -> None:
    """Skipped targets are not sent, the rest is, and the counters balance."""
    run = stage.fire(stage.reminder(stage.account(max_send_per_minute=60), groups=40, follow_up=True))

    def convert(now: Any) -> None:
        Recipient.objects.filter(address__gte=f"{120363000000000020}").update(status="converted")
        hygiene.clean_up(now)

    stage.play(happenings=[(stage.now + timedelta(seconds=10), convert)])
    run = fresh(run)
    assert books_balance(run)
    assert (run.status, run.sent, run.skipped) == ("partial", 20, 20)
    assert len(stage.book.deliveries()) == 20
    assert set(run.targets.filter(status="skipped").values_list("error", flat=True)) == {"converted"}


def test_a_long_queue_is_sent_more_slowly(stage: Stage, settings: Any) -> None:
    settings.BOT_BACKPRESSURE_THRESHOLD = 20
    account = stage.account(max_send_per_minute=60, send_burst=1, group_concurrency=1)
    run = stage.fire(stage.reminder(account, groups=60, follow_up=True, urgency="high"))
    last = run.targets.latest("position").planned_at
    assert last is not None
    planned = last - stage.now
    stage.play(seconds=20)
    line = str(why_run(fresh(run), stage.now))
    assert line.startswith("pace 60/min, 20–40 % longer: more than 20 follow-ups are queued; next send ")
    stage.play()
    sent = sorted(delivery.t for delivery in stage.book.deliveries())
    waits = [after - before for before, after in pairwise(sent)]
    assert len(sent) == 60
    assert sent[-1] - sent[0] == pytest.approx(planned.total_seconds(), rel=0.1)
    assert all(1.1 <= wait <= 1.6 for wait in waits[:8]), waits[:8]
    assert all(wait < 1.2 for wait in waits[-8:]), "once the queue is short again, the usual pace"
    assert LaneState.objects.get(account=account).slow_factor == 1


def test_many_operators_at_the_same_moment_are_three_attempts(stage: Stage) -> None:
    """Each through an account of its own, all due at once, to the same person."""
    runs = [
        stage.fire(stage.reminder(stage.account(), groups=1, follow_up=True, parts=("text",) * n)) for n in (1, 2) * 4
    ]
    stage.play(drivers=2)
    assert sorted(fresh(run).sent for run in runs) == [0] * 5 + [1] * 3
    sent = [run for run in runs if run.sent]
    assert len(stage.book.deliveries()) == sum(len(run.parts) for run in sent)
    assert Recipient.objects.get().follow_up_attempts == 3
    refused = {target.error for run in runs if not run.sent for target in run.targets.all()}
    assert refused == {"cooldown_active_48h"}


def test_a_follow_up_that_failed_makes_room_for_the_next(stage: Stage) -> None:
    """A follow-up that waits for another one to the same person waits only for its outcome."""
    refusing = {"latency_ms": [3000, 3000], "faults": [{"effect": "content_rejected"}]}
    stage.provider.script = Script({"a0": refusing})
    one, two = (stage.reminder(stage.account(batch_size=50), groups=1, follow_up=True) for _ in range(2))
    first, began = stage.fire(one), stage.now.timestamp()
    Recipient.objects.update(follow_up_attempts=2)
    stage.play(happenings=[(stage.now + timedelta(seconds=1), lambda now: stage.fire(two, now))])
    assert fresh(first).failed == 1
    (delivery,) = stage.book.deliveries()
    assert delivery.t - began >= 3
    assert Recipient.objects.get().follow_up_attempts == 3
    assert LaneState.objects.get(account=two.account).batch_sent == 1, "it passed over the person, and spent nothing"


# --- two sessions ---------------------------------------------------------------------------------------


@pytest.fixture
def sessions(transactional_db: None) -> Iterator[list[BlockingLink]]:
    links = [BlockingLink.open(conninfo(connection.settings_dict)) for _ in range(2)]
    for link in links:
        asyncio.run(prepare(link))
        asyncio.run(link.query("SET lock_timeout = '60s'"))  # here the second one waits for the first
    yield links
    for link in links:
        link.connection.close()


def one_after_the_other(sessions: list[BlockingLink], batches: list[Commit]) -> list[list[list[Row]]]:
    """The second begins while the first has not committed yet."""
    first, second = sessions
    asyncio.run(first.query("BEGIN"))
    answers = [asyncio.run(first.call(calls_of(batches[0])))]
    with ThreadPoolExecutor(1) as pool:
        later = pool.submit(lambda: asyncio.run(second.call(calls_of(batches[1]))))
        time.sleep(0.5)
        asyncio.run(first.query("COMMIT"))
        return [*answers, later.result(timeout=90)]


def targets_to_one_person(**fields: Any) -> list[RunTarget]:
    runs = [RunFactory.create(follow_up=True, status="running") for _ in range(2)]
    people = [RecipientFactory.create(address="120363000000000001@g.us") for _ in runs]
    for run in runs:
        LaneStateFactory.create(account=run.account, epoch=1)
    return [RunTargetFactory.create(run=run, recipient=person, **fields) for run, person in zip(runs, people)]


def test_two_drivers_count_two_attempts(sessions: list[BlockingLink]) -> None:
    now = timezone.now()
    targets = targets_to_one_person(status="sending", claim_epoch=1, claimed_at=now)
    results = [
        Result(t.pk, t.run_id, t.account_id, 1, now, "sent", 1, 1, now, activity="sent", follow_up_to=t.address)
        for t in targets
    ]
    one_after_the_other(sessions, [Commit(results=[(result, ignore_written)]) for result in results])
    assert list(Recipient.objects.values_list("follow_up_attempts", flat=True)) == [2, 2]


def test_two_drivers_begin_one_follow_up(sessions: list[BlockingLink]) -> None:
    now = timezone.now()
    loop = asyncio.new_event_loop()
    batches = [
        Commit(claims=[([Claim(t.pk, t.run_id, t.account_id, 1, now, follow_up_to=t.address)], loop.create_future())])
        for t in targets_to_one_person()
    ]
    answers = one_after_the_other(sessions, batches)
    loop.close()
    assert [len(rows[-1]) for rows in answers] == [1, 0]
