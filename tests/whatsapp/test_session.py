"""Pairing, coming back, bans and log-outs of a session, and what the account is told of them."""

from __future__ import annotations

import asyncio
import json
import stat
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest

from accounts.channels.base import Kind
from accounts.channels.paired import Jid
from accounts.channels.whatsapp.bridge.library import Library, Limits
from accounts.channels.whatsapp.bridge.scripted import group_address
from tests.whatsapp.running import PATIENCE, QUICK, InThread, session_of, wait_for

GROUP = group_address("1", 0)


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[InThread]:
    with InThread(tmp_path, 1) as running:
        running.wait_state(1, "connected")
        yield running


@pytest.fixture
def unpaired(tmp_path: Path) -> Iterator[InThread]:
    with InThread(tmp_path, 1, pair=False, codes=[0.6, 0.4, 0.4]) as running:
        yield running


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[InThread]:
    """Not paired, with a first code that is soon over and a second one that lasts."""
    limits = QUICK | {"next_code": 60}
    with InThread(tmp_path, 1, pair=False, codes=[0.6, 60], limits=limits) as running:
        yield running


def sessions(bridge: InThread) -> list[tuple[Any, Any]]:
    return [(event.detail["state"], event.text) for event in bridge.of_kind("session")]


def clients_that_live(bridge: InThread) -> Callable[[], list[Any]]:
    """The session's clients, the present one and those to come, whose connection nobody has ended. Connecting and
    stopping take a moment, as in life."""
    session = bridge.bridge.sessions[1]
    library = session.library
    clients = [slow(session.client)]

    def client(name: str, **options: Any) -> Any:
        clients.append(slow(library.client(name, **options)))
        return clients[-1]

    session.library = replace(library, client=client)
    return lambda: [one for one in clients if one.loop_task and not one.loop_task.done()]


def slow(client: Any) -> Any:
    client.connect, client.stop = slowly(client.connect), slowly(client.stop)
    return client


def slowly(step: Callable[[], Awaitable[Any]]) -> Callable[[], Awaitable[Any]]:
    async def go() -> Any:
        await asyncio.sleep(0.05)
        return await step()

    return go


# -- pairing ----------------------------------------------------------------------------------------------


def test_a_code_renews_itself_until_the_phone_has_scanned_it(patient: InThread) -> None:
    patient.ask("POST", "/accounts/1/pair")
    wait_for(lambda: patient.state(1)["qr"])
    first = patient.state(1)
    wait_for(lambda: patient.state(1)["qr"] not in ("", first["qr"]))

    assert first["qr"].startswith("2@")
    assert datetime.fromisoformat(first["code_expires_at"]) > datetime.now(UTC) - timedelta(seconds=1)
    patient.happen(1, scan=True)
    state = patient.wait_state(1, "connected")

    assert (state["address"], state["qr"]) == ("+4915100000001", "")
    wait_for(lambda: 1 in patient.feed.groups)
    assert len(patient.feed.groups[1]) == 12
    wait_for(lambda: ("active", "") in sessions(patient))


def test_after_the_last_code_nothing_comes_until_somebody_asks_again(unpaired: InThread) -> None:
    unpaired.ask("POST", "/accounts/1/pair")
    state = unpaired.wait_state(1, "expired")

    assert "Pair again" in state["detail"]
    assert state["qr"] == ""
    unpaired.ask("POST", "/accounts/1/pair")
    wait_for(lambda: unpaired.state(1)["qr"])
    unpaired.happen(1, scan=True)
    unpaired.wait_state(1, "connected")


def test_a_pairing_code_for_a_number(patient: InThread) -> None:
    patient.ask("POST", "/accounts/1/pair", {"phone": "+4915100000001"})
    wait_for(lambda: patient.state(1)["letters"])

    assert patient.state(1)["letters"] == "KBDT-FC2M"


def test_a_pairing_that_whatsapp_refuses_can_be_tried_again(patient: InThread) -> None:
    patient.ask("POST", "/accounts/1/pair")
    wait_for(lambda: patient.state(1)["qr"])
    patient.happen(1, event="PairStatus", fields={"Status": 1, "Error": "too many devices"})

    assert "too many devices" in patient.wait_state(1, "expired")["detail"]


@pytest.mark.parametrize(
    "offline", [{"fail": "no route to host"}, {"event": "ConnectFailure", "fields": {"Reason": 400, "Message": "no"}}]
)
def test_a_pairing_without_a_connection_can_be_tried_again(tmp_path: Path, offline: dict[str, Any]) -> None:
    with InThread(tmp_path, 1, pair=False, connect=offline, codes=[]) as bridge:
        bridge.ask("POST", "/accounts/1/pair")
        wait_for(lambda: bridge.state(1)["state"] == "expired")
        assert "Pair again" in bridge.state(1)["detail"]

        bridge.script(pair_after=0.2)
        bridge.ask("POST", "/accounts/1/pair")
        bridge.wait_state(1, "connected")


def test_a_double_click_on_pair_leaves_one_client(patient: InThread) -> None:
    patient.ask("POST", "/accounts/1/pair")
    wait_for(lambda: patient.state(1)["qr"])
    alive = clients_that_live(patient)

    with ThreadPoolExecutor(2) as clicks:
        list(clicks.map(lambda _: patient.ask("POST", "/accounts/1/pair"), range(2)))
    wait_for(lambda: patient.state(1)["qr"])

    assert alive() == [patient.bridge.sessions[1].client]
    patient.happen(1, scan=True)
    patient.wait_state(1, "connected")
    assert len(patient.book.lines("login")) == 1


def test_a_double_click_on_connect_again_leaves_one_client(bridge: InThread) -> None:
    bridge.happen(1, event="StreamReplaced")
    bridge.wait_state(1, "replaced")
    alive = clients_that_live(bridge)

    with ThreadPoolExecutor(2) as clicks:
        list(clicks.map(lambda _: bridge.ask("POST", "/accounts/1/connect"), range(2)))
    bridge.wait_state(1, "connected")

    assert alive() == [bridge.bridge.sessions[1].client]


def test_an_account_that_was_never_paired_says_so(unpaired: InThread) -> None:
    state = unpaired.state(1)

    assert state["state"] == "unpaired"
    assert "Pair" in state["detail"]


def test_keys_are_for_this_user_only(unpaired: InThread) -> None:
    unpaired.script(pair_after=0)
    unpaired.ask("POST", "/accounts/1/pair")
    unpaired.wait_state(1, "connected")

    folder = unpaired.folder / "sessions" / "1"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "session.db").stat().st_mode) == 0o600


# -- coming back ------------------------------------------------------------------------------------------


def test_a_restart_needs_no_new_code(tmp_path: Path) -> None:
    for logins in (1, 2):
        with InThread(tmp_path, 1) as bridge:
            assert bridge.wait_state(1, "connected")["address"] == "+4915100000001"
            assert len(bridge.book.lines("login")) == logins
    # Told once: nothing has changed for the account.
    assert sessions(bridge) == []


def test_a_lost_connection_is_noted_and_comes_back(bridge: InThread) -> None:
    bridge.happen(1, event="Disconnected")
    bridge.wait_state(1, "disconnected")
    wait_for(lambda: any(state == "disconnected" for state, _ in sessions(bridge)))

    bridge.happen(1, event="Connected")
    bridge.wait_state(1, "connected")


def test_a_first_connection_that_fails_is_tried_again_by_us(tmp_path: Path) -> None:
    with InThread(tmp_path, 1, connect={"fail": "dial tcp: connection refused"}) as bridge:
        state = bridge.wait_state(1, "refused")
        assert "connection refused" in state["detail"]

        bridge.script()
        bridge.wait_state(1, "connected")


def test_a_server_that_falls_silent_is_no_connection(bridge: InThread) -> None:
    bridge.happen(1, event="KeepAliveTimeout", fields={"ErrorCount": 1})
    assert "does not answer" in bridge.wait_state(1, "disconnected")["detail"]

    bridge.happen(1, event="KeepAliveRestored")
    bridge.wait_state(1, "connected")


@pytest.mark.slow
def test_after_a_ban_a_login_that_takes_its_time_is_left_alone(bridge: InThread) -> None:
    bridge.script(connect={"after": 3})
    bridge.happen(1, event="TemporaryBan", fields={"Code": 1, "Expire": 1})
    bridge.wait_state(1, "banned")
    bridge.wait_state(1, "connected")

    assert len(bridge.book.lines("connect")) == 2


def test_a_login_that_hangs_is_tried_again_later_each_time(tmp_path: Path) -> None:
    limits = QUICK | {"disconnected": 0.1, "login": 0.3}
    with InThread(tmp_path, 1, limits=limits) as bridge:
        bridge.wait_state(1, "connected")
        bridge.script(connect={"hang": True}, limits=limits)
        bridge.happen(1, event="Disconnected")
        wait_for(lambda: len(bridge.book.lines("connect")) >= 4)

        first, second, third = (line["t"] for line in bridge.book.lines("connect")[1:4])
        assert second - first >= 0.3
        assert third - second >= 0.6
        bridge.script()
        bridge.wait_state(1, "connected")


def test_a_login_has_ten_seconds_and_more_after_each_that_hung() -> None:
    assert [Limits().login_limit(earlier) for earlier in (0, 1, 2, 3, 9)] == [10, 20, 40, 80, 80]


def test_the_lane_of_a_number_that_is_back_is_woken_for_a_while(tmp_path: Path) -> None:
    """And only then: a lane that WhatsApp itself holds back must wait."""
    with InThread(tmp_path, 1, 2, limits=QUICK | {"wake": 0.4}) as bridge:
        for account in (1, 2):
            bridge.wait_state(account, "connected")
        wait_for(lambda: all(bridge.feed.woken[account] for account in (1, 2)))
        wait_for(lambda: not any(session.is_back() for session in bridge.bridge.sessions.values()))
        bridge.happen(1, event="Disconnected")
        bridge.wait_state(1, "disconnected")
        before = dict(bridge.feed.woken)
        bridge.happen(1, event="Connected")
        wait_for(lambda: bridge.feed.woken[1] > before[1])
        assert bridge.feed.woken[2] == before[2]


def test_a_client_that_never_begins_keeps_nobody_waiting_and_its_login_counts_from_its_turn(tmp_path: Path) -> None:
    client = MagicMock(connect=asyncio.Event().wait, stop=AsyncMock())
    library = Library(lambda *_, **__: client, None, {}, RuntimeError)

    async def open_behind_another() -> tuple[int, float | None]:
        session = session_of(1, library, tmp_path, replace(Limits(), connect=0.05))
        async with library.turn:
            opening = asyncio.create_task(session.open_client())
            for _ in range(20):
                await asyncio.sleep(0)
            before = session.logins, session.retry_at
        await opening
        assert "did not begin to connect" in session.condition.detail
        assert session.retry_at is not None
        assert not library.turn.locked()
        await session.close()
        return before

    assert asyncio.run(open_behind_another()) == (0, None)


def test_a_client_that_shows_a_code_lets_the_next_one_begin(tmp_path: Path) -> None:
    client = MagicMock(connect=AsyncMock(return_value=MagicMock()), stop=AsyncMock())
    library = Library(lambda *_, **__: client, None, {}, RuntimeError)

    async def pair() -> bool:
        session = session_of(1, library, tmp_path, replace(Limits(), begin=PATIENCE))
        opening = asyncio.create_task(session.open_client())
        while not client.event.qr.called:  # noqa: ASYNC110
            await asyncio.sleep(0)
        show = client.event.qr.call_args.args[0]
        while not library.turn.locked():  # noqa: ASYNC110
            await asyncio.sleep(0)
        await show(client, b"2@code")
        await asyncio.wait_for(opening, PATIENCE / 2)
        await session.close()
        return library.turn.locked()

    assert asyncio.run(pair()) is False


# -- ends -------------------------------------------------------------------------------------------------


def test_a_ban_has_its_end_and_ends_by_itself(bridge: InThread) -> None:
    bridge.happen(1, event="TemporaryBan", fields={"Code": 1, "Expire": 1})
    state = bridge.wait_state(1, "banned")

    assert "too many people" in state["detail"]
    assert datetime.fromisoformat(state["until"]) > datetime.now(UTC) - timedelta(seconds=2)
    wait_for(lambda: bridge.of_kind("session"))
    (event,) = [e for e in bridge.of_kind("session") if e.detail["state"] == "banned"]
    assert event.detail["until"] == state["until"]
    bridge.wait_state(1, "connected")


@pytest.mark.parametrize(
    ("event", "fields", "state", "told", "words"),
    [
        ("LoggedOut", {"OnConnect": False, "Reason": 2}, "unpaired", "unpaired", "removed on the phone"),
        ("LoggedOut", {"OnConnect": True, "Reason": 2}, "unpaired", "unpaired", "ended this session"),
        ("LoggedOut", {"OnConnect": True, "Reason": 4}, "unpaired", "banned", "has locked this account"),
        ("LoggedOut", {"OnConnect": True, "Reason": 5}, "unpaired", "banned", "has banned this number"),
        ("StreamReplaced", {}, "replaced", "banned", "Another program"),
        ("ClientOutdated", {}, "outdated", "banned", "newer"),
    ],
)
def test_what_needs_a_person_says_what_to_do(
    bridge: InThread, event: str, fields: dict[str, Any], state: str, told: str, words: str
) -> None:
    bridge.happen(1, event=event, fields=fields)

    assert words in bridge.wait_state(1, state)["detail"]
    wait_for(lambda: any(said == told and words in text for said, text in sessions(bridge)))


def test_after_a_log_out_the_stored_session_is_gone(bridge: InThread) -> None:
    bridge.happen(1, event="LoggedOut")
    bridge.wait_state(1, "unpaired")

    assert not (bridge.folder / "sessions" / "1" / "session.db").exists()
    assert bridge.state(1)["address"] == ""


def test_a_banned_number_is_refused_as_banned_until_it_is_paired_again(bridge: InThread) -> None:
    bridge.happen(1, event="LoggedOut", fields={"OnConnect": True, "Reason": 5})
    bridge.wait_state(1, "unpaired")

    refusal = bridge.bridge.sessions[1].refusal()
    assert refusal is not None
    assert refusal.kind is Kind.BANNED
    assert not (bridge.folder / "sessions" / "1" / "session.db").exists()


def test_replaced_does_not_come_back_by_itself_but_when_asked(bridge: InThread) -> None:
    bridge.happen(1, event="StreamReplaced")
    bridge.wait_state(1, "replaced")

    bridge.ask("POST", "/accounts/1/connect")
    bridge.wait_state(1, "connected")


def test_unpairing_logs_the_device_out(bridge: InThread) -> None:
    state = bridge.ask("POST", "/accounts/1/logout")

    assert state["state"] == "unpaired"
    assert "the device is logged out" in state["detail"]
    assert len(bridge.book.lines("logout")) == 1


def test_unpairing_without_a_connection_says_what_is_left_to_do(bridge: InThread) -> None:
    bridge.happen(1, event="Disconnected")
    bridge.wait_state(1, "disconnected")

    state = bridge.ask("POST", "/accounts/1/logout")

    assert state["state"] == "unpaired"
    assert "not confirmed" in state["detail"]
    assert "Linked devices" in state["detail"]
    assert bridge.book.lines("logout") == []
    assert not (bridge.folder / "sessions" / "1" / "session.db").exists()


def test_an_unpaired_session_is_not_opened_again(tmp_path: Path) -> None:
    with InThread(tmp_path, 1, connect={"fail": "connection refused"}, limits=QUICK | {"first_retry": 0.5}) as bridge:
        bridge.wait_state(1, "refused")
        bridge.ask("POST", "/accounts/1/logout")
        connects = len(bridge.book.lines("connect"))
        time.sleep(1)

        assert len(bridge.book.lines("connect")) == connects
        assert bridge.state(1)["state"] == "unpaired"


# -- replies and receipts ---------------------------------------------------------------------------------


def test_a_hidden_sender_is_named_by_number_where_it_is_known_and_never_by_nothing(bridge: InThread) -> None:
    bridge.script(hidden={"77": "4915200000077"})

    for person in ("77@lid", "99@lid"):
        bridge.happen(1, say="STOP", id=f"A-{person}", **{"in": person, "from": person})
    wait_for(lambda: len(bridge.of_kind("reply")) == 2)

    assert [event.address for event in bridge.of_kind("reply")] == ["+4915200000077", "99@lid"]
    assert (Jid("", "").address, Jid("99", "lid").address) == ("", "99@lid")


def test_no_client_is_stopped_while_it_looks_something_up(bridge: InThread) -> None:
    """Go ends the whole process where such a question meets a client that is gone."""
    bridge.script(look_up=0.3)

    bridge.happen(1, say="Hello", id="A1", **{"in": "99@lid", "from": "99@lid"})
    bridge.happen(1, event="LoggedOut", fields={"OnConnect": False})
    bridge.wait_state(1, "unpaired")
    wait_for(lambda: bridge.of_kind("reply"))

    assert bridge.book.lines("crash") == []


def test_a_client_that_was_replaced_is_asked_nothing(bridge: InThread) -> None:
    session = bridge.bridge.sessions[1]
    former, session.client = session.client, object()

    looking = asyncio.run_coroutine_threadsafe(session.look_up(former, former.get_me), bridge.loop)
    with pytest.raises(session.library.error, match="being closed"):
        looking.result(10)
    session.client = former


def test_a_first_message_that_comes_twice_is_one_reply(bridge: InThread) -> None:
    for text in ("", "I am in!", "I am in!"):
        bridge.happen(1, say=text, id="A1", **{"in": GROUP})
    wait_for(lambda: bridge.of_kind("reply"))

    reply = bridge.of_kind("reply")[0]
    assert {event.key for event in bridge.of_kind("reply")} == {"message:A1"}
    assert (reply.address, reply.group, reply.text) == ("+4915200000000", GROUP, "I am in!")
    assert reply.detail == {"seen_as": "Ann"}
    assert reply.at is not None
    assert abs((reply.at - datetime.now(UTC)).total_seconds()) < 60


def test_events_wait_on_disk_while_nobody_takes_them(tmp_path: Path) -> None:
    with InThread(tmp_path, 1) as bridge:
        bridge.wait_state(1, "connected")
        bridge.feed.broken = True
        bridge.happen(1, say="STOP", id="B1")
        wait_for(lambda: bridge.bridge.sessions[1].journal.waiting(9))

    with InThread(tmp_path, 1) as again:
        wait_for(lambda: again.of_kind("reply"))
        assert [event.text for event in again.of_kind("reply")] == ["STOP"]
        wait_for(lambda: not again.bridge.sessions[1].journal.waiting(9))


def test_clients_begin_one_after_the_other(tmp_path: Path) -> None:
    """neonize's Go side ends the process when two begin at once: of 60 at once, one time in five."""
    limits = QUICK | {"begin": 30}
    with InThread(tmp_path, 1, 2, 3, 4, 5, connect={"after": 0.1}, limits=limits) as running:
        wait_for(lambda: len(running.book.lines("login")) == 5)

    lines = [json.loads(line) for line in running.book.path.read_text().splitlines()]
    begun = [(line["line"], line["account"]) for line in lines if line["line"] in ("connect", "login")]
    assert begun == [(word, str(account)) for account in range(1, 6) for word in ("connect", "login")]
