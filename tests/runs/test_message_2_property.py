"""Message 2 is sent when a person replies within 24 hours of Message 1, once, and never otherwise: whatever is said,
when, and however the reports are ordered and repeated."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime, timedelta

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from fanout.models import InboundEvent, Run
from fanout.runs import controls, message_2
from reminders.models import Recipient, Suppression
from reminders.window import Window
from tests.engine.stage import Stage
from tests.inbound.people import phone, remind, stored, work_on

# Every example plays two days, so there are few of them; the same ones every time.
ON_THE_ENGINE = settings(
    max_examples=int(os.environ.get("MESSAGE_2_EXAMPLES", "4")),
    deadline=None,
    phases=(Phase.generate,),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)

MINUTE, DAY = timedelta(minutes=1), timedelta(hours=24)


@dataclass(frozen=True)
class Said:
    """One person's message, in minutes after Message 1, and how much later it is reported."""

    after: int
    text: str
    reported: int
    twice: bool


SAID = st.builds(
    Said,
    after=st.one_of(st.integers(-90, 1600), st.sampled_from([1, 1439, 1441])),
    text=st.sampled_from(["ok", "ok", "yes please", "STOP"]),
    reported=st.sampled_from([0, 0, 1, 600]),
    twice=st.booleans(),
)
PEOPLE = st.lists(st.lists(SAID, max_size=3, unique_by=lambda one: one.after + one.reported), min_size=3, max_size=3)


def expected(said: list[Said], settled_at: datetime, window: Window) -> bool:
    """By the rule itself, event by event in the order in which we get them."""
    waiting_until: datetime | None = None
    for one in sorted(said, key=lambda one: one.after + one.reported):
        reported_at = settled_at + (one.after + one.reported) * MINUTE
        if waiting_until is not None and waiting_until < reported_at:
            return True
        if one.text == "STOP":
            return False
        replied_at = settled_at + one.after * MINUTE
        opens = window.next_opening(reported_at)
        if waiting_until is None and 0 < one.after <= 1440:
            if opens >= replied_at + DAY:
                return False  # the one chance was too late
            waiting_until = opens
    return waiting_until is not None


@pytest.mark.slow
@pytest.mark.django_db
@given(PEOPLE, st.integers(6, 16), st.sampled_from([(0, 24), (6, 18), (5, 17)]))
@ON_THE_ENGINE
def test_who_replies_within_a_day_gets_it_once(
    stage: Stage, people: list[list[Said]], hour: int, hours: tuple[int, int]
) -> None:
    Suppression.objects.all().delete()
    Recipient.objects.update(status="active", replied_at=None)
    stage.now = (stage.now + 4 * DAY).replace(hour=hour, minute=1, second=0, microsecond=0)
    account = stage.account(max_send_per_minute=600)
    start, end = hours
    run = stage.fire(
        remind(stage, account, len(people), delivery_window_start_hour=start, delivery_window_end_hour=end)
    )
    stage.play(5)
    settled = {target.address: target.settled_at for target in run.targets.all()}
    events: list[tuple[datetime, InboundEvent | None]] = [
        (stage.now.replace(hour=start, minute=0, second=1) + day * DAY, None) for day in (1, 2, 3)
    ]
    for n, said in enumerate(people):
        for one in said:
            at = settled[phone(n)]
            assert at is not None
            said_at = at + one.after * MINUTE
            reply = stored(account, n, said_at, one.text, came_at=said_at + one.reported * MINUTE)
            events += [(reply.came_at, reply)] * (1 + one.twice)
    # What is reported at or before Message 1 is worked on first; the clock of the stage only goes forward.
    for moment, event in sorted(events, key=lambda pair: pair[0]):
        stage.now = max(stage.now, moment)
        if event is not None:
            work_on(event, stage.now)
        controls.resume_due(stage.now)
        message_2.skip_expired(stage.now)
        stage.play(3)
    child = Run.objects.filter(answers=run).first()
    thanked = set(child.targets.filter(status="sent").values_list("address", flat=True)) if child else set()
    model = {
        phone(n)
        for n, said in enumerate(people)
        if (at := settled[phone(n)]) and expected(said, at, Window("UTC", start, end))
    }
    assert thanked == model
    assert not stage.book.duplicates("message_id")
