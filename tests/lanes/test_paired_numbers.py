"""The health of a paired number, as its page and the shell show it."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import psycopg
import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.utils import timezone

from accounts.channels.base import Group
from accounts.channels.whatsapp.bridge.conditions import State
from accounts.channels.whatsapp.bridge.session import Health
from accounts.models import Account, BridgeBeat, PairedSession
from fanout import bridge
from fanout.database import conninfo, execute
from fanout.lanes import paired_numbers
from fanout.lanes.paired_numbers import BRIDGE_LOCKS, ENDED, CannotMove, machines, move, number_health
from fanout.models import ClusterBeat
from reminders.groups import changes, note_changes, synchronise
from tests.admin.conftest import login
from tests.commands.calling import data, not_done, text
from tests.factories import AccountFactory, ActivityFactory, RunFactory, RunTargetFactory
from tests.whatsapp.test_account_pairing import confirm

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@pytest.fixture
def number() -> Account:
    account = AccountFactory.create(channel="whatsapp", config={}, label="Choir")
    PairedSession.objects.create(account=account, journal="j1", journal_since=NOW - 40 * DAY, host="mars")
    return account


def report(account: Account, at: datetime = NOW, journal: str = "j1", **facts: Any) -> None:
    health = Health(journal, State.CONNECTED, NOW - 3 * HOUR, NOW - 12 * DAY)
    bridge._report({account.pk: health._replace(**facts)}, at)


def lines(account: Account) -> list[str]:
    health = number_health(account, NOW)
    assert health is not None
    return health.lines(NOW)


def sent(account: Account, at: datetime = NOW - DAY, **receipts: Any) -> None:
    run = RunFactory.create(account=account, owner=account.owner)
    target = RunTargetFactory.create(run=run, account=account, status="sent", **receipts)
    ActivityFactory.create(account=account, run_target=target, at=at)


def test_a_number_that_is_well(number: Account) -> None:
    report(number)
    for receipts in ({"delivered_at": NOW - HOUR, "read_at": NOW - HOUR / 2}, {"delivered_at": NOW - 2 * HOUR}, {}, {}):
        sent(number, **receipts)
    ActivityFactory.create(account=number, kind="phone", at=NOW - HOUR)
    Account.objects.filter(pk=number.pk).update(warmup_started_on=date(2026, 1, 3), warmup_days=14)
    number.refresh_from_db()

    assert lines(number) == [
        "Connected for 3 h on mars",
        "Last receipt 30 min ago; 50% received, 25% read of 4 messages in seven days",
        "Paired 12 days ago; warm-up day 3 of 14, 10 messages today; 1 message written on the phone today",
    ]
    assert number_health(number, NOW).is_good(NOW)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        pytest.param({"state": State.BANNED}, "Banned for 3 h on mars", id="banned"),
        pytest.param(
            {"at": NOW - HOUR}, "No bridge has reported this number for 1 h; it was connected on mars", id="silent"
        ),
        pytest.param(
            {"journal": "another"}, "No bridge has reported this number yet; it was paired on mars", id="old machine"
        ),
    ],
)
def test_a_connection_that_is_not_well(facts: dict[str, Any], words: str, number: Account) -> None:
    report(number, **facts)
    assert lines(number)[0] == words
    assert not number_health(number, NOW).is_good(NOW)  # type: ignore[union-attr]


def test_a_number_of_which_little_arrives(number: Account) -> None:
    report(number)
    for n in range(20):
        sent(number, delivered_at=NOW if n < 9 else None)
    assert "few arrive, so the number may be restricted" in lines(number)[1]
    assert not number_health(number, NOW).is_good(NOW)  # type: ignore[union-attr]


def test_a_session_from_before_its_pairing_was_noted(number: Account) -> None:
    report(number, paired_at=None)
    assert lines(number)[1:] == ["Nothing sent in seven days", "Paired at least 40 days ago; no warm-up"]


def test_messages_that_were_just_sent_are_not_judged(number: Account) -> None:
    report(number)
    for _ in range(3):
        sent(number, at=NOW - timedelta(minutes=5))
    assert lines(number)[1] == "No receipt yet of 3 messages of the last ten minutes"


def test_a_number_that_is_not_paired_any_more(number: Account) -> None:
    report(number, state=State.UNPAIRED, paired_at=None)
    assert lines(number)[2] == "Not paired; no warm-up"


def test_of_many_messages_the_newest_count(number: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paired_numbers, "MOST_LOOKED_AT", 3)
    report(number)
    for _ in range(4):
        sent(number, delivered_at=NOW)
    assert "100% received, 0% read of the last 3 messages" in lines(number)[1]


def test_a_number_on_its_way_to_another_machine(number: Account) -> None:
    report(number)
    page = PairedSession.objects.get(account=number).journal_page
    assert "Wait until its page" in move(number, "venus", None, NOW)
    assert lines(number)[0] == "Moved to venus; mars has not ended it yet, so do not copy its folder now"
    assert use_journal(number, "mars", replace=False) is None

    facts = {"account": number.pk, "journal": "j1", "page": page, "host": "mars", "state": ENDED}
    (ended,) = execute(bridge.END_JOURNAL, facts)
    assert lines(number)[0] == "Moved to venus; mars has ended it, so copy its folder now or pair it on venus"
    since = PairedSession.objects.get(account=number).journal_since
    copy = use_journal(number, "venus", replace=False, page=page)
    assert (copy["journal_since"] > since, copy["journal_page"]) == (True, ended["journal_page"] + 1)
    PairedSession.objects.filter(account=number).update(journal_since=since, journal_page=ended["journal_page"])
    assert use_journal(number, "venus", replace=False, page=ended["journal_page"])["journal_since"] == since
    assert execute(bridge.END_JOURNAL, facts | {"host": "venus"}) == [], "it was not moved away from there"


def test_other_accounts_have_none(number: Account) -> None:
    assert number_health(AccountFactory.create(), NOW) is None


# --- groups -----------------------------------------------------------------------------------------------


def group(n: int, name: str, **facts: Any) -> Group:
    return Group(f"12036300000000000{n}@g.us", name, **{"size": 3, "announce_only": False, "may_write": True} | facts)


def test_groups_since_the_last_synchronisation(number: Account) -> None:
    report(number)
    synchronise(number, [group(1, "Altos"), group(2, "Basses"), group(3, "Board"), group(4, "Same")], NOW)
    now_in = [group(2, "Bass"), group(3, "Board", may_write=False), group(4, "Same", size=9), group(5, "Tenors")]
    note_changes(number, now_in)

    assert lines(number)[-1] == (
        "Groups since the last synchronisation: 1 joined (Tenors); 1 left (Altos); "
        "2 changed (Basses is now Bass, Board: only admins write now)"
    )
    assert not any(changes(number, []).values())
    synchronise(number, now_in, NOW)
    assert not lines(number)[-1].startswith("Groups")
    note_changes(number, [group(4, "Same"), *(group(n, f"New {n}") for n in (6, 7, 8, 9))])
    assert "4 joined" in lines(number)[-1]


def test_many_groups_are_counted_and_some_named(number: Account) -> None:
    note_changes(number, [Group(f"1203630000000{n:05d}@g.us", f"Group {n:02d}", 3, False, True) for n in range(12)])
    assert lines(number)[-1].endswith("Group 09 and 2 more)")


# --- moving it --------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("reported", "ended"), [(NOW, False), (NOW - HOUR, True)], ids=["alive", "gone"])
def test_a_number_is_moved_and_the_lock_of_a_dead_machine_freed(
    reported: datetime, ended: bool, number: Account
) -> None:
    report(number, at=reported)
    with psycopg.connect(conninfo(connection.settings_dict), autocommit=True) as dead:
        dead.execute("SELECT pg_advisory_lock(%s, %s)", (BRIDGE_LOCKS, number.pk))
        words = move(number, " venus ", None, NOW)
        if ended:
            with pytest.raises(psycopg.OperationalError):
                dead.execute("SELECT 1")
        else:
            dead.execute("SELECT 1")

    assert f"var/whatsapp/{number.pk}" in words
    assert number.events.get().detail == "from mars to venus"
    assert use_journal(number, "mars", replace=False) is None
    assert use_journal(number, "venus", replace=False) is not None
    assert use_journal(number, "mars", replace=False) is None
    assert use_journal(number, "mars", replace=True) is not None, "paired anew there"
    assert use_journal(number, "mars", replace=False) is not None


@pytest.mark.django_db(transaction=True)
def test_a_repeated_move_frees_the_lock_of_a_machine_that_had_just_lost_its_power(number: Account) -> None:
    report(number, at=NOW - timedelta(seconds=40))
    with psycopg.connect(conninfo(connection.settings_dict), autocommit=True) as dead:
        dead.execute("SELECT pg_advisory_lock(%s, %s)", (BRIDGE_LOCKS, number.pk))
        assert "if mars is off, move the number once more in a minute" in move(number, "venus", None, NOW)
        assert "once more in a minute" in move(number, "venus", None, NOW + timedelta(seconds=10))
        dead.execute("SELECT 1")
        assert "mars has not reported it" in move(number, "venus", None, NOW + timedelta(seconds=30))
        with pytest.raises(psycopg.OperationalError):
            dead.execute("SELECT 1")

    assert number.events.get().detail == "from mars to venus"
    assert use_journal(number, "venus", replace=False) is not None
    report(number, at=NOW + HOUR)
    with psycopg.connect(conninfo(connection.settings_dict), autocommit=True) as alive:
        alive.execute("SELECT pg_advisory_lock(%s, %s)", (BRIDGE_LOCKS, number.pk))
        with pytest.raises(CannotMove, match="on venus already"):
            move(number, "venus", None, NOW + HOUR)
        alive.execute("SELECT 1")


def use_journal(account: Account, host: str, replace: bool, page: int = 0) -> Any:
    facts = {"account": account.pk, "journal": "j1", "page": page, "replace": replace, "host": host}
    return next(iter(execute(bridge.USE_JOURNAL, facts)), None)


@pytest.mark.parametrize(
    ("host", "words"), [("", "Give the name"), ("x" * 201, "Give the name"), ("mars", "on mars already")]
)
def test_where_it_cannot_be_moved(host: str, words: str, number: Account) -> None:
    with pytest.raises(CannotMove, match=words):
        move(number, host, None, NOW)
    with pytest.raises(CannotMove, match="not paired"):
        move(AccountFactory.create(), "venus", None, NOW)


def test_the_machines_to_choose_from(number: Account) -> None:
    report(number)
    for host, ago in (("venus", 1), ("mars", 1), ("pluto", 300)):
        BridgeBeat.objects.create(host=host, beat_at=NOW - timedelta(seconds=ago))
    ClusterBeat.objects.create(cluster="main", host="a1b2c3", pid=1, beat_at=NOW)  # a container without a bridge
    assert machines(number, NOW) == ["venus"]


@pytest.mark.django_db(transaction=True)
def test_a_machine_that_lost_its_power_and_is_back_gets_its_numbers(number: Account) -> None:
    """PostgreSQL keeps the lock of its last run for hours."""
    report(number, at=NOW - HOUR)
    with psycopg.connect(conninfo(connection.settings_dict), autocommit=True) as dead:
        dead.execute("SELECT pg_advisory_lock(%s, %s)", (BRIDGE_LOCKS, number.pk))
        assert "within seconds" in move(number, "mars", None, NOW)
        with pytest.raises(psycopg.OperationalError):
            dead.execute("SELECT 1")
    assert use_journal(number, "mars", replace=False) is not None
    with pytest.raises(CannotMove, match="on mars already"):
        move(number, "mars", None, NOW)


def test_the_shell_and_the_page_move_it(number: Account, admin_user: User) -> None:
    assert data("account", "move", "Choir", "--to", "venus")["moved_to"] == "venus"
    assert "on venus already" in not_done("account", "move", "Choir", "--to", "venus")

    BridgeBeat.objects.create(host="jupiter", beat_at=timezone.now())
    client = login(admin_user)
    confirm(client)
    page = f"/admin/accounts/account/{number.pk}/pair/"
    assert "<option>jupiter</option>" in client.get(page).content.decode()
    client.post(page, {"step": "move", "host": "jupiter"})
    assert PairedSession.objects.get(account=number).moved_to == "jupiter"


# --- for people -------------------------------------------------------------------------------------------


def test_the_shell_and_the_page_show_it(number: Account, admin_user: User) -> None:
    report(number)
    AccountFactory.create(label="other")
    shown = data("account", "health")
    assert [row["label"] for row in shown["numbers"]] == ["Choir"]
    assert shown["numbers"][0]["paired_at"] == (NOW - 12 * DAY).isoformat()
    assert data("account", "health", "Choir") == shown
    assert "Choir: No bridge has reported this number for" in text("account", "health")
    assert "no paired number" in not_done("account", "health", "other")

    page = login(admin_user).get(f"/admin/accounts/account/{number.pk}/change/").content.decode()
    assert "Health of the number" in page
    assert "it was connected on mars" in page
