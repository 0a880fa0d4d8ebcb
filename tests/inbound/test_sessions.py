"""Session reports of a provider change an account as the engine does."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from accounts.models import Account
from fanout.inbound import sessions, worker
from fanout.lanes.account_limits import used_today
from fanout.lanes.account_state import new_chats_now
from fanout.models import Event, InboundEvent, KnownChat, LaneState, Notification
from fanout.ops.audit import over_cap
from tests.factories import (
    AccountFactory,
    DailyLimitFactory,
    EventFactory,
    InboundEventFactory,
    LaneStateFactory,
    RunFactory,
)

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def report(account: Account, state: str, at: datetime = NOW, text: str = "", **detail: Any) -> InboundEvent:
    words = {"text": text} if text else {}
    event = InboundEventFactory.create(
        account=account, kind="session", happened_at=at, words=words, detail={"state": state} | detail
    )
    worker.step(NOW)
    event.refresh_from_db()
    account.refresh_from_db()
    return event


def test_a_logged_out_account_stops_and_its_targets_stay():
    run = RunFactory.create(status="running", targets={"pending": 3})
    event = report(run.account, "unpaired", text="Logged out from the phone")
    assert (run.account.status, run.account.status_reason) == ("unpaired", "Logged out from the phone")
    assert event.effect == "unpaired: Logged out from the phone"
    run.refresh_from_db()
    assert run.pending == 3
    assert Event.objects.filter(account=run.account, verb="unpaired").exists()
    assert Notification.objects.filter(user=run.account.owner, title="Account unpaired").exists()
    assert LaneState.objects.get(account=run.account).wake_count == 1


def test_it_comes_back_with_a_probe():
    account = AccountFactory.create(status="unpaired")
    assert report(account, "active").effect == "active again"
    assert account.status == "active"
    assert LaneState.objects.get(account=account).probing


@pytest.mark.parametrize("status", ["paused", "suspended"])
def test_what_an_operator_must_decide_stays(status):
    account = AccountFactory.create(status=status)
    assert report(account, "active").effect == "changed nothing"
    assert report(account, "unpaired").effect == "noted: the account was not active"
    assert account.status == status
    assert Event.objects.filter(account=account, verb="reported").count() == 1


@pytest.mark.parametrize(
    ("until", "ends"),
    [
        pytest.param((NOW + timedelta(days=1)).isoformat(), NOW + timedelta(days=1), id="told"),
        pytest.param((NOW - timedelta(days=1)).isoformat(), NOW + timedelta(minutes=10), id="over by our clock"),
        pytest.param("2026-01-06T09:00:00", NOW + timedelta(days=1), id="without a zone"),
        pytest.param("soon", None, id="unreadable"),
        pytest.param(None, None, id="for good"),
    ],
)
def test_a_ban(until, ends):
    account = AccountFactory.create()
    report(account, "banned", until=until)
    assert (account.status, account.status_until) == ("suspended", ends)


def test_a_lost_connection_is_only_noted_and_not_every_time():
    account = AccountFactory.create()
    report(account, "disconnected"), report(account, "disconnected")
    assert account.status == "active"
    assert Event.objects.filter(account=account, verb="disconnected").count() == 1


def test_a_report_that_comes_late_does_not_undo_a_newer_one():
    account = AccountFactory.create()
    report(account, "unpaired")
    event = report(account, "active", at=NOW - timedelta(minutes=1))
    assert (account.status, event.effect) == ("unpaired", "active: a later report was worked on before")


def test_an_unknown_state_is_shown_as_failed():
    account = AccountFactory.create()
    event = report(account, "levitating")
    for hours in range(1, 6):
        worker.step(NOW + timedelta(hours=hours))
    event.refresh_from_db()
    assert event.state == "failed"
    assert "'levitating' is not a valid SessionState" in event.effect


HOUR, MINUTE, SECOND = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)
PHONE = "+4915112345000"
case = pytest.param


def reply(address: str = PHONE, **fields: Any) -> InboundEvent:
    event: InboundEvent = InboundEventFactory.create(**{"kind": "reply", "address": address} | fields)
    return event


@pytest.mark.parametrize(
    ("until", "ends"),
    [
        case("2026-01-06T09:00:00+00:00", NOW + timedelta(days=1), id="with-a-zone"),
        case("2026-01-06T09:00:00", NOW + timedelta(days=1), id="without-one"),
        case("soon", None, id="unreadable"),
        case(None, None, id="not-said"),
    ],
)
def test_until_when_a_ban_lasts(until: str | None, ends: datetime | None) -> None:
    assert sessions.until(InboundEvent(detail={"until": until})) == ends


@pytest.mark.parametrize(
    ("fields", "overtaken"),
    [
        case({}, True, id="a-later-one-was-worked-on"),
        case({"happened_at": NOW}, False, id="of-the-same-moment"),
        case({"state": "new"}, False, id="not-yet"),
        case({"kind": "reply"}, False, id="of-another-kind"),
        case({"account": "another"}, False, id="of-another-account"),
    ],
)
def test_which_report_is_overtaken(fields: dict[str, Any], overtaken: bool) -> None:
    event = reply("", kind="session", happened_at=NOW)
    if "account" in fields:
        fields = {"account": AccountFactory.create()}
    later = {"kind": "session", "account": event.account, "happened_at": NOW + SECOND, "state": "done"}
    reply("", **later | fields)
    assert sessions.overtaken(event) is overtaken


@pytest.mark.parametrize(
    ("ago", "lines"), [case(HOUR, 1, id="an-hour"), case(HOUR + SECOND, 2, id="longer"), case(MINUTE, 1, id="a-minute")]
)
def test_a_lost_connection_is_noted_once_an_hour(ago: timedelta, lines: int) -> None:
    account = AccountFactory.create()
    EventFactory.create(run=None, account=account, verb="disconnected", at=NOW - ago)
    EventFactory.create(run=None, account=AccountFactory.create(), verb="disconnected", at=NOW)
    EventFactory.create(run=None, account=account, verb="reported", at=NOW)
    assert sessions.note_disconnection(account.pk, "lost", NOW) == "noted"
    assert Event.objects.filter(account=account, verb="disconnected").count() == lines
    assert not LaneState.objects.filter(account=account).exists()


# --- messages written on the phone -------------------------------------------------------------------------


def write_on_phone(account: Account, at: datetime = NOW, address: str = "") -> None:
    InboundEventFactory.create(account=account, kind="written", happened_at=at, address=address)
    worker.step(NOW)


@pytest.mark.parametrize(
    ("holder", "at", "theoretical_arrival", "wake_count"),
    [
        pytest.param("", NOW - SECOND, NOW + 3 * SECOND, 1, id="free"),
        pytest.param("driver", NOW - SECOND, NOW + 2 * SECOND, 1, id="its driver spends it"),
        pytest.param("", NOW - timedelta(hours=1), NOW + 2 * SECOND, 0, id="long ago"),
    ],
)
def test_what_is_written_on_the_phone_counts(
    holder: str, at: datetime, theoretical_arrival: datetime, wake_count: int
) -> None:
    account = AccountFactory.create(channel="whatsapp", config={}, max_send_per_minute=60)
    LaneStateFactory.create(account=account, holder=holder, theoretical_arrival=NOW + 2 * SECOND)
    write_on_phone(account, at)

    assert used_today(account, "message", NOW) == 1
    lane = LaneState.objects.get(account=account)
    assert (lane.theoretical_arrival, lane.wake_count, lane.written_elsewhere) == (
        theoretical_arrival,
        wake_count,
        wake_count,
    )


def test_many_written_on_the_phone_hold_a_slow_number_for_a_minute_in_total() -> None:
    account = AccountFactory.create(channel="whatsapp", config={}, max_send_per_minute=2)
    LaneStateFactory.create(account=account, holder="")
    for n in range(20):
        write_on_phone(account, NOW - timedelta(seconds=20 - n))
    lane = LaneState.objects.get(account=account)
    assert lane.theoretical_arrival is not None
    assert NOW < lane.theoretical_arrival <= NOW + timedelta(seconds=60)


def test_it_begins_a_chat_like_ours() -> None:
    account = AccountFactory.create(channel="whatsapp", config={})
    for _ in range(2):
        write_on_phone(account, address="+4915211111111")
    write_on_phone(account, address="120363000000000001@g.us")

    assert new_chats_now(account, NOW).begun == 1
    assert KnownChat.objects.count() == 1


def test_people_may_write_more_than_the_cap() -> None:
    """The lane stops there; what people do is no mistake of ours."""
    account = DailyLimitFactory.create(limit=1, account__channel="whatsapp", account__config={}).account
    for _ in range(3):
        write_on_phone(account)
    assert used_today(account, "message", NOW) == 3
    assert over_cap(NOW - timedelta(days=1), NOW) == []
