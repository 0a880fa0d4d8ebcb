"""Holders of lanes, live drivers and changed lanes: the conditions of the statements that drivers use."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.utils import timezone

from fanout.database import conninfo
from fanout.engine import holding, ledger
from fanout.engine.connection import Row
from fanout.lanes import lane_rows
from fanout.models import Driver
from tests.engine.ledgers import EPOCH, NOW, ledger_in_test, with_ledger
from tests.factories import DriverFactory, LaneStateFactory, UserFactory

__all__ = ["ledger_in_test"]
pytestmark = pytest.mark.usefixtures("ledger_in_test")
case = pytest.param

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)


def read(statement: str, parameters: Any = None) -> list[Row]:
    return with_ledger(lambda ledger: ledger.read(statement, parameters))


def driver(token: str, **fields: Any) -> Driver:
    """It beats, and its session is there: this one."""
    (row,) = read("SELECT pg_backend_pid() AS pid")
    made: Driver = DriverFactory.create(**{"token": token, "backend_pid": row["pid"]} | fields)
    return made


def lane(holder: str, due_at: datetime | None = NOW) -> int:
    account: int = LaneStateFactory.create(holder=holder, due_at=due_at).account_id
    return account


def drivers_of_every_kind() -> None:
    driver("alive")
    driver("ended", ended_at=timezone.now())
    driver("silent", beat_at=timezone.now() - HOUR)
    driver("no session", backend_pid=0)


def orphaned(limit: int = 10) -> list[int]:
    asked = {"now": NOW, "token": "me", "limit": limit, "silent_after": 60 * SECOND}
    return [row["account_id"] for row in read(holding.ORPHANED_LANES, asked)]


def test_a_lane_is_orphaned_when_its_holder_is_dead() -> None:
    drivers_of_every_kind()
    lane("alive")
    lane("me")
    lane("")
    dead = [lane(holder) for holder in ("unknown", "ended", "silent", "no session")]
    assert orphaned() == dead


def test_orphans_that_are_due_are_taken_the_longest_waiting_first() -> None:
    late, later = lane("dead"), lane("dead", NOW - SECOND)
    lane("dead", NOW + SECOND)
    lane("dead", None)
    assert orphaned() == [later, late]
    assert orphaned(limit=1) == [later]


def test_due_lanes_are_shared_among_live_drivers() -> None:
    drivers_of_every_kind()
    driver("second")
    for due_at in (NOW, NOW - SECOND, NOW + SECOND, None):
        lane("alive", due_at)
    asked = {"now": NOW, "silent_after": 60 * SECOND, "successor_within": timedelta(0)}
    assert read(holding.SHARE, asked) == [{"due": 2, "drivers": 2}]


@pytest.fixture
def another_session() -> Iterator[psycopg.Connection[Any]]:
    session = psycopg.connect(conninfo(connection.settings_dict), autocommit=True)
    yield session
    session.close()


def free_stuck(silent_after: timedelta = 0 * SECOND) -> list[int]:
    """The slots whose sessions were ended."""
    asked = {"silent_after": silent_after, "mine": "me"}
    return [row["slot"] for row in with_ledger(lambda ledger: ledger.write(holding.FREE_STUCK, asked))]


@pytest.mark.parametrize(
    ("fields", "silent_after", "freed"),
    [
        case({}, 0 * SECOND, True, id="silent"),
        case({}, HOUR, False, id="it-beats"),
        case({"ended_at": NOW}, 0 * SECOND, False, id="ended"),
        case({"token": "me"}, 0 * SECOND, False, id="mine"),
        case({"beat_at": NOW}, 0 * SECOND, False, id="the-session-began-after-its-last-beat"),
        case({"backend_pid": 0}, 0 * SECOND, False, id="no-session"),
    ],
)
def test_a_driver_that_falls_silent_loses_its_session(
    another_session: psycopg.Connection[Any], fields: dict[str, Any], silent_after: timedelta, freed: bool
) -> None:
    DriverFactory.create(**{"token": "stuck", "slot": 7, "backend_pid": another_session.info.backend_pid} | fields)
    assert free_stuck(silent_after) == [7] * freed
    if freed:
        with pytest.raises(psycopg.OperationalError):
            another_session.execute("SELECT 1")
    else:
        assert another_session.execute("SELECT 1").fetchone() == (1,)


def test_a_session_that_began_at_the_last_beat_is_another_one(another_session: psycopg.Connection[Any]) -> None:
    pid = another_session.info.backend_pid
    (row,) = read("SELECT backend_start FROM pg_stat_activity WHERE pid = %s", (pid,))
    DriverFactory.create(token="stuck", backend_pid=pid, beat_at=row["backend_start"])
    assert free_stuck() == []


def test_a_session_of_another_database_is_no_live_driver() -> None:
    """The pid of a process that ended is given to another."""
    with psycopg.connect(conninfo(connection.settings_dict | {"NAME": "postgres"}), autocommit=True) as elsewhere:
        DriverFactory.create(token="gone", backend_pid=elsewhere.info.backend_pid)
        assert free_stuck() == []
        assert elsewhere.execute("SELECT 1").fetchone() == (1,)
        orphan = lane("gone")
        assert orphaned() == [orphan]


@pytest.mark.parametrize(
    ("wake_count", "epoch", "news", "mine"),
    [
        case(5, EPOCH, False, True, id="as-it-was"),
        case(6, EPOCH, True, True, id="woken"),
        case(5, EPOCH + 1, True, False, id="taken"),
    ],
)
def test_only_lanes_that_changed_come_back(wake_count: int, epoch: int, news: bool, mine: bool) -> None:
    account = LaneStateFactory.create(wake_count=wake_count, epoch=epoch).account_id
    LaneStateFactory.create(wake_count=9, epoch=9)  # another account's
    changed = read(lane_rows.CHANGED_LANES, ([account], [5], [EPOCH]))
    assert changed == [{"account_id": account, "wake_count": wake_count, "epoch": epoch}] * news
    assert read(ledger.STILL_MINE, ([account], [EPOCH])) == [{"account_id": account, "epoch": EPOCH}] * mine


def test_a_beat_is_the_drivers_own() -> None:
    mine, other = (driver(token, beat_at=NOW, slot=slot) for slot, token in enumerate(("me", "other"), start=1))
    assert with_ledger(lambda ledger: ledger.write(holding.BEAT, (3, "me")))[0]["slot"] == 1
    mine.refresh_from_db()
    other.refresh_from_db()
    assert (mine.lanes, mine.beat_at > NOW, other.lanes, other.beat_at) == (3, True, 0, NOW)
    with_ledger(lambda ledger: ledger.write(holding.END_DRIVER, ("me",)))
    mine.refresh_from_db()
    other.refresh_from_db()
    assert (mine.lanes, mine.ended_at is None, other.ended_at) == (0, False, None)


# --- places among owners ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("held", "waiting", "ending", "freed"),
    [
        case({1: 8}, {1: 30}, 0, {}, id="one-owner-has-all-there-is"),
        case({1: 8}, {1: 30, 2: 1}, 0, {1: 1}, id="a-second-one-wants-one"),
        case({1: 8}, {2: 30}, 0, {1: 4}, id="never-more-than-its-share"),
        case({1: 8}, {2: 30}, 3, {1: 1}, id="some-are-ending"),
        case({1: 4, 2: 4}, {1: 9, 2: 9}, 0, {}, id="fair-already"),
        case({1: 6, 2: 2}, {3: 5}, 0, {1: 2}, id="from-the-one-with-the-most"),
        case({1: 4, 2: 4}, {3: 5}, 0, {1: 2}, id="of-two-alike-from-the-first"),
        case(dict.fromkeys(range(8), 1), {9: 1}, 0, {}, id="more-owners-than-places-take-turns"),
        case({}, {1: 1}, 0, {}, id="nothing-held"),
    ],
)
def test_places_are_freed_for_owners_with_less_than_their_share(
    held: dict[int, int], waiting: dict[int, int], ending: int, freed: dict[int, int]
) -> None:
    assert holding.places_to_free(held, waiting, 8, ending) == freed


def test_the_owner_with_the_fewest_places_comes_first() -> None:
    many, few = UserFactory.create(), UserFactory.create()
    theirs = [lane_of(many, NOW - n * SECOND) for n in (5, 4, 3)]
    late = [lane_of(few, NOW - n * SECOND) for n in (1, 0)]
    lane_of(few, NOW + SECOND)
    lane_of(few, NOW - 9 * SECOND, holder="another driver")

    def in_turn(limit: int, **places: Any) -> list[int]:
        asked = {"now": NOW, "limit": limit, "owners": [], "held": []} | places
        return [row["account_id"] for row in read(lane_rows.DUE_LANES_IN_TURN, asked)]

    assert in_turn(9) == [theirs[0], late[0], theirs[1], late[1], theirs[2]]
    assert in_turn(2, owners=[many.pk], held=[1]) == [late[0], theirs[0]]
    waiting = {row["owner_id"]: row["lanes"] for row in read(lane_rows.WAITING_OWNERS, {"now": NOW})}
    assert waiting == {many.pk: 3, few.pk: 2}


def lane_of(owner: User, due_at: datetime, holder: str = "") -> int:
    account: int = LaneStateFactory.create(account__owner=owner, holder=holder, due_at=due_at).account_id
    return account
