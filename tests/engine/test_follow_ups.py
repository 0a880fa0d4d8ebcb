"""Follow-ups on the engine: attempts by what went out, refusals at the claim, a longer pace under backpressure."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import Any

from fanout.models import LaneState
from fanout.runs import hygiene
from fanout.runs.why import why_run
from reminders.models import Recipient
from tests.engine.stage import Stage, books_balance, fresh

HOUR = timedelta(hours=1)


def test_three_attempts_then_a_cooldown_then_active_again(stage: Stage) -> None:
    """Two accounts share the attempts; an ordinary reminder goes out all the while."""
    one, two = stage.account(), stage.account()
    follow_up = {"follow_up": True, "parts": ("text", "text")}
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
    assert fresh(refused).status == "failed"
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
    """What it skips is not sent, the rest is, and the books balance."""
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
    stage.play(seconds=20)
    line = str(why_run(fresh(run), stage.now))
    assert line.startswith("pace 60/min, 20–40 % longer: more than 20 follow-ups are queued; next send ")
    stage.play()
    sent = sorted(delivery.t for delivery in stage.book.deliveries())
    waits = [after - before for before, after in pairwise(sent)]
    assert len(sent) == 60
    assert all(1.1 <= wait <= 1.6 for wait in waits[:8]), waits[:8]
    assert all(wait < 1.2 for wait in waits[-8:]), "once the queue is short again, the usual pace"
    assert LaneState.objects.get(account=account).slow_factor == 1
