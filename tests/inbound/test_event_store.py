"""Stored events, and events that came before our own record of their message."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from fanout.inbound import event_store
from tests.factories import (
    InboundEventFactory,
)

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
case = pytest.param


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("detail", "attempts", "after"),
    [
        case({}, 0, (2, 1), id="the-first-time"),
        case({"looks": 1}, 0, (15, 2), id="the-second"),
        case({"looks": 2}, 3, (120, 3), id="the-third"),
        case({}, 4, (2, 1), id="after-errors"),
    ],
)
def test_a_look_is_no_try(detail: dict[str, int], attempts: int, after: tuple[int, int]) -> None:
    event = InboundEventFactory.create(kind="bounce", detail={**detail, "kind": "x"}, attempts=attempts)
    assert event_store.may_look_again(event)
    assert event_store.look_again([event], NOW) == []
    event.refresh_from_db()
    seconds, looks = after
    assert (event.attempts, event.next_attempt_at) == (attempts, NOW + timedelta(seconds=seconds))
    assert event.detail == {"kind": "x", "looks": looks}
    assert event_store.may_look_again(event) is (looks < 3)


@pytest.mark.django_db
def test_what_is_done_does_not_look_again() -> None:
    event = InboundEventFactory.create(kind="bounce", state="done")
    event_store.look_again([event], NOW)
    event.refresh_from_db()
    assert (event.next_attempt_at, event.detail) == (None, {})
