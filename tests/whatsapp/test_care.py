"""Care for a number: what it reports of itself, messages written on its phone, and its groups over a restart."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from accounts.channels.whatsapp.bridge.conditions import State
from accounts.channels.whatsapp.bridge.library import Limits
from accounts.channels.whatsapp.bridge.scripted import group_address
from tests.whatsapp.running import InThread, wait_for

GROUP = group_address("1", 0)
ORDER = {"kind": "text", "message_id": "crier-1-0", "text": "At 8"}


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[InThread]:
    with InThread(tmp_path, 1, hidden={"77": "4915299999999"}) as running:
        running.wait_state(1, "connected")
        yield running


@pytest.mark.parametrize(
    ("what", "reported"),
    [
        pytest.param({"in": GROUP, "say": "Hi all"}, [("", GROUP)], id="group"),
        pytest.param({"in": "4915211111111@s.whatsapp.net", "say": "Hi"}, [("+4915211111111", "")], id="person"),
        pytest.param({"in": "77@lid", "say": "Hi"}, [("+4915299999999", "")], id="hidden, and known"),
        pytest.param({"in": "78@lid", "say": "Hi"}, [("", "")], id="hidden"),
        pytest.param({"in": GROUP, "say": ""}, [], id="nothing that a person wrote"),
        pytest.param({"in": "status@broadcast", "say": "My day"}, [], id="status"),
    ],
)
def test_what_is_written_on_the_phone_is_reported_without_its_words(
    what: dict[str, Any], reported: list[tuple[str, str]], bridge: InThread
) -> None:
    for _ in range(2):  # WhatsApp may deliver it twice
        bridge.happen(1, id="PHONE1", from_me=True, **what)
    bridge.happen(1, id="LAST", say="STOP", **{"in": "4915222222222@s.whatsapp.net", "from": "4915222222222"})
    wait_for(lambda: bridge.of_kind("reply"))

    written = {event.key: event for event in bridge.of_kind("written")}
    assert [(event.address, event.group) for event in written.values()] == reported
    assert not any(event.text for event in written.values())
    assert bridge.bridge.sessions[1].journal.message_id_of("PHONE1") == ""


def test_typing_is_shown_before_texts_only(bridge: InThread) -> None:
    limits = bridge.bridge.limits
    assert bridge.ask("POST", "/accounts/1/messages", ORDER | {"to": GROUP, "typing": True})["outcome"] == "sent"
    (typing,), (message,) = bridge.book.lines("typing"), bridge.delivered()
    assert message["t"] - typing["t"] >= limits.typing("At 8")

    picture = {"kind": "image", "message_id": "crier-2-0", "text": "", "to": GROUP, "typing": True}
    bridge.ask("POST", "/accounts/1/messages", ORDER | picture)
    assert len(bridge.book.lines("typing")) == 1


def test_typing_takes_two_seconds_at_most() -> None:
    assert [Limits().typing("x" * n) for n in (0, 30, 10_000)] == [0.5, 1.0, 2.0]


def test_the_first_message_after_a_restart_does_not_wait_for_the_list_of_groups(tmp_path: Path) -> None:
    """WhatsApp may take seconds to list a thousand groups, and may refuse it."""
    with InThread(tmp_path, 1, announce=[group_address("1", 1)]) as before:
        before.wait_state(1, "connected")
        wait_for(lambda: before.state(1)["groups"])

    with InThread(tmp_path, 1, list_groups={"error": "info query returned status 429"}) as after:
        after.wait_state(1, "connected")
        send = [after.ask("POST", "/accounts/1/messages", ORDER | {"to": group_address("1", n)}) for n in (0, 1)]

    assert [answer["outcome"] for answer in send] == ["sent", "not_sent"]
    assert send[1]["kind"] == "not_writable"


def test_an_unpaired_number_takes_its_groups_along(tmp_path: Path) -> None:
    """The next number has groups of its own."""
    with InThread(tmp_path, 1) as bridge:
        bridge.wait_state(1, "connected")
        wait_for(lambda: bridge.state(1)["groups"])
        bridge.ask("POST", "/accounts/1/logout")
    with InThread(tmp_path, 1, pair=False, pair_after=None) as again:
        again.ask("POST", "/accounts/1/pair")
        assert again.state(1)["groups"] is None


def test_groups_are_compared_after_each_list_but_the_first(tmp_path: Path) -> None:
    with InThread(tmp_path, 1, groups=2) as bridge:
        wait_for(lambda: bridge.feed.groups)
        assert bridge.feed.compared == {}
        bridge.script(groups=3)
        bridge.ask("GET", "/accounts/1/groups")
        wait_for(lambda: bridge.feed.compared)

        assert [group.jid for group in bridge.feed.compared[1]] == [group_address("1", n) for n in range(3)]


def test_the_bridge_reports_how_its_numbers_are(tmp_path: Path) -> None:
    with InThread(tmp_path, 1, pair=False, pair_after=0) as bridge:
        bridge.ask("POST", "/accounts/1/pair")
        bridge.wait_state(1, "connected")
        wait_for(lambda: bridge.feed.health.get(1) and bridge.feed.health[1].state is State.CONNECTED)
        paired_at = bridge.feed.health[1].paired_at
        assert isinstance(paired_at, datetime)

        bridge.happen(1, event="TemporaryBan", fields={"Code": 1, "Expire": 600})
        wait_for(lambda: bridge.feed.health[1].state is State.BANNED)
        assert bridge.feed.health[1].paired_at == paired_at
