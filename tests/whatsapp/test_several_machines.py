"""Two bridges with a folder each, as on two machines: which one has an account, and which one must not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from accounts.channels.provider_events import EventKind, ProviderEvent
from accounts.channels.whatsapp.bridge.journal import JOURNAL_FILE, PAIRED_AS, SESSION_FILE, Journal
from accounts.channels.whatsapp.bridge.scripted import group_address
from tests.whatsapp.running import QUICK, InThread, Locks, paired, wait_for

ORDER = {"to": group_address("1", 0), "kind": "text", "message_id": "crier-1-0", "text": "At 8"}


@pytest.fixture
def held() -> dict[int, Locks]:
    return {}


@pytest.fixture
def home(tmp_path: Path, held: dict[int, Locks]) -> Iterator[InThread]:
    """Where the account is paired. Not started yet."""
    bridge = InThread(tmp_path / "home", 1, held=held)
    yield bridge
    bridge.stop()


@pytest.fixture
def other(tmp_path: Path, held: dict[int, Locks]) -> Iterator[InThread]:
    with InThread(tmp_path / "other", 1, pair=False, held=held, pair_after=0) as bridge:
        yield bridge


def test_no_request_makes_a_bridge_take_an_account_that_is_paired_elsewhere(
    home: InThread, other: InThread, held: dict[int, Locks]
) -> None:
    """The home bridge is down. It must find its account free when it is back."""
    state = other.state(1)
    assert (state["state"], state["address"]) == ("unpaired", "")
    assert "Pair" in state["detail"]
    for method, path, body in (
        ("GET", "groups", None),
        ("GET", "qr.png", None),
        ("POST", "connect", None),
        ("POST", "logout", None),
        ("POST", "messages", ORDER),
        ("POST", "media", None),
    ):
        answer = other.ask(method, f"/accounts/1/{path}", body)
        assert (answer["status"], answer["owner"]) == (421, ""), path
    assert held == {}

    with home:
        home.wait_state(1, "connected")
        answer = other.ask("GET", "/accounts/1")

        assert (answer["status"], answer["owner"]) == (421, home.url)
        assert home.state(1)["connected"]
    assert other.feed.events == []
    assert not (other.folder / "sessions" / "1").exists()


def test_the_state_of_nobody_has_the_same_words_as_any_other(other: InThread) -> None:
    nobody = other.state(1)
    other.ask("POST", "/accounts/1/pair")

    assert set(nobody) == set(other.wait_state(1, "connected"))


def test_pairing_takes_an_account_that_nobody_has(other: InThread, held: dict[int, Locks]) -> None:
    other.ask("POST", "/accounts/1/pair")

    assert other.wait_state(1, "connected")["address"] == "+4915100000001"
    assert held == {1: other.shard}


def test_pairing_through_another_bridge_is_sent_to_the_one_that_has_the_account(
    home: InThread, other: InThread
) -> None:
    with home:
        home.wait_state(1, "connected")
        answer = other.ask("POST", "/accounts/1/pair")

        assert (answer["status"], answer["owner"]) == (421, home.url)


def test_a_session_that_was_never_paired_here_tells_the_account_nothing(other: InThread) -> None:
    other.script(codes=[0.2])
    other.ask("POST", "/accounts/1/pair")
    other.wait_state(1, "expired")
    other.ask("POST", "/accounts/1/logout")

    assert other.state(1)["state"] == "unpaired"
    assert other.bridge.sessions[1].journal.waiting(9) == []
    assert other.feed.events == []


def test_the_end_of_a_session_is_told_by_the_next_bridge_where_this_one_could_not(tmp_path: Path) -> None:
    bridge = InThread(tmp_path, 1, pair=False)
    folder = tmp_path / "sessions" / "1"
    paired(tmp_path / "sessions", 1)
    journal = Journal(folder / JOURNAL_FILE)
    journal.note(PAIRED_AS, "")
    journal.add_event(ProviderEvent(key="session:unpaired", kind=EventKind.SESSION, detail={"state": "unpaired"}))
    journal.close()
    (folder / SESSION_FILE).unlink()

    with bridge:
        wait_for(lambda: bridge.of_kind("session"))

        assert bridge.state(1)["state"] == "unpaired"


def test_a_pairing_that_came_to_nothing_leaves_the_account_to_others(
    home: InThread, tmp_path: Path, held: dict[int, Locks]
) -> None:
    limits = QUICK | {"unused": 0.1}
    with InThread(tmp_path / "third", 1, pair=False, held=held, codes=[0.2], limits=limits) as third:
        third.ask("POST", "/accounts/1/pair")
        assert held == {1: third.shard}

        with home:
            home.wait_state(1, "connected")
            assert held == {1: home.shard}


def test_a_number_that_was_paired_anew_stays_on_its_new_machine(tmp_path: Path) -> None:
    """Its old machine comes back while the new one restarts; the number is there again when it is paired there."""
    held: dict[int, Locks] = {}
    shared: dict[str, Any] = {"held": held, "journals": {}}
    with InThread(tmp_path / "old", 1, **shared) as old:
        old.wait_state(1, "connected")
    with InThread(tmp_path / "new", 1, pair=False, pair_after=0, **shared) as new:
        new.ask("POST", "/accounts/1/pair")
        new.wait_state(1, "connected")

    with InThread(tmp_path / "old", 1, pair=False, **shared) as old:
        wait_for(lambda: old.bridge.moved == {1})
        assert held == {}
        with InThread(tmp_path / "new", 1, pair=False, **shared) as new:
            new.wait_state(1, "connected")
            assert old.ask("GET", "/accounts/1")["owner"] == new.url
        old.ask("POST", "/accounts/1/pair")
        old.wait_state(1, "connected")


def test_a_number_that_was_moved_away_is_left_until_it_is_paired_here_again(
    home: InThread, held: dict[int, Locks]
) -> None:
    with home:
        home.wait_state(1, "connected")
        home.shard.gone = {1}
        wait_for(lambda: held == {})
        assert home.bridge.moved == {1}
        logins = len(home.book.lines("login"))
        passes = home.shard.asked
        wait_for(lambda: home.shard.asked > passes + 2)
        assert held == {}
        assert len(home.book.lines("login")) == logins

        home.shard.gone = set()  # as the pairing does in the database
        home.ask("POST", "/accounts/1/pair")
        home.wait_state(1, "connected")


def test_a_number_that_is_moved_away_ends_its_send_its_events_and_its_page(
    home: InThread, held: dict[int, Locks]
) -> None:
    """A copy of the folder from before that proves nothing: this bridge could still send."""
    with home:
        home.wait_state(1, "connected")
        wait_for(lambda: home.state(1)["groups"])
        home.script(sends={ORDER["to"]: {"late": 0.5, "times": 1}}, receipts=None)
        before = home.bridge.sessions[1].journal.page()
        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(home.ask, "POST", "/accounts/1/messages", ORDER)
            wait_for(lambda: home.bridge.sessions[1].dispatcher.in_flight)
            home.shard.gone = {1}
            wait_for(lambda: home.bridge.sessions[1].ending)
            refused = home.ask("POST", "/accounts/1/messages", ORDER | {"message_id": "crier-2-0"})
            assert sending.result()["outcome"] == "sent"
        wait_for(lambda: held == {})

    assert refused["outcome"] == "not_sent" or refused["status"] == 421
    journal = Journal(home.folder / "sessions" / "1" / JOURNAL_FILE)
    assert journal.page() == home.shard.ended[1] > before
    assert (journal.provider_id_of("crier-1-0"), journal.has_begun("crier-2-0")) == (home.delivered()[0]["id"], False)
    assert journal.waiting(9) == []
    journal.close()


def test_pages_of_many_numbers_are_turned_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits for the disk: two hundred at once would stop the event loop."""
    turned: list[int] = []
    monkeypatch.setattr(Journal, "turn_page", lambda journal: turned.append(id(journal)))
    with InThread(tmp_path, *range(1, 13), limits=QUICK | {"review": 5.0}) as bridge:
        for number in range(1, 13):
            bridge.wait_state(number, "connected")

        async def rounds() -> list[int]:
            sessions, numbers = list(bridge.bridge.sessions.values()), []
            for session in sessions:
                session.turn_page_at = 0.0
            turned.clear()
            for _ in range(5):
                before = len(turned)
                await bridge.bridge._turn_pages(sessions)
                numbers.append(len(turned) - before)
            return numbers

        assert asyncio.run_coroutine_threadsafe(rounds(), bridge.loop).result(60) == [3, 3, 3, 3, 0]
    assert len(set(turned)) == 12
