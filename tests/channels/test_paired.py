"""WhatsApp's names for chats, and the spelling in which Crier stores them."""

from __future__ import annotations

from typing import Any

import pytest

from accounts.channels.paired import ENDINGS, Jid, address_of, chat_id, digits, is_group, jid_of, number_of
from accounts.channels.provider_events import SessionState

GROUP = "120363025246125486@g.us"


@pytest.mark.parametrize(
    ("jid", "address"),
    [
        ("4917612345678@s.whatsapp.net", "+4917612345678"),
        ("4917612345678@c.us", "+4917612345678"),
        ("4917612345678", "+4917612345678"),
        ("+4917612345678", "+4917612345678"),
        (GROUP, GROUP),
        ("999888777@lid", ""),
        ("", ""),
        (None, ""),
        (4917612345678, ""),
    ],
)
def test_the_stored_spelling_of_a_chat(jid: Any, address: str) -> None:
    assert address_of(jid) == address


@pytest.mark.parametrize(
    ("jids", "number"),
    [
        pytest.param(["4917612345678@c.us"], "+4917612345678", id="a number"),
        pytest.param(
            ["4917612345678@c.us", "49301234567@c.us"], "+4917612345678", id="a number with another beside it"
        ),
        pytest.param(["999@lid", "4917612345678@s.whatsapp.net"], "+4917612345678", id="hidden"),
        pytest.param(["999:3@lid", "4917612345678:12@s.whatsapp.net"], "+4917612345678", id="hidden, by device"),
        pytest.param(
            ["999@lid", None, "", "888@lid", GROUP, "+4917612345678"], "+4917612345678", id="the last of many"
        ),
        pytest.param(["4917612345678@lid", "+4917612345678"], "", id="the hidden id's digits"),
        pytest.param(["999@lid"], "", id="nothing beside it"),
        pytest.param(["999@lid", {"user": 1}, 4917612345678], "", id="odd"),
        pytest.param(["status@broadcast", "4917612345678@c.us"], "", id="a status update"),
        pytest.param(["120363@newsletter", "4917612345678@c.us"], "", id="a channel"),
        pytest.param([GROUP, "4917612345678@c.us"], "", id="a group"),
        pytest.param([None, "4917612345678@c.us"], "", id="no sender"),
    ],
)
def test_the_number_of_a_person(jids: list[Any], number: str) -> None:
    assert number_of(*jids) == number


@pytest.mark.parametrize(
    ("address", "jid", "group"),
    [("+4917612345678", Jid("4917612345678", "s.whatsapp.net"), False), (GROUP, Jid(GROUP[:-5], "g.us"), True)],
)
def test_the_chat_of_a_stored_address(address: str, jid: Jid, group: bool) -> None:
    assert jid_of(address) == jid
    assert jid.is_group is group
    assert jid.address == address


@pytest.mark.parametrize(("jid", "address"), [(Jid("999", "lid"), "999@lid"), (Jid("", "lid"), ""), (Jid("", ""), "")])
def test_of_a_hidden_id_the_id_itself_and_of_nobody_nothing(jid: Jid, address: str) -> None:
    assert jid.address == address


@pytest.mark.parametrize(("value", "group"), [(GROUP, True), ("4917612345678@c.us", False), (None, False), (7, False)])
def test_what_is_a_group(value: Any, group: bool) -> None:
    assert is_group(value) is group


def test_a_person_has_the_gateways_suffix_and_a_group_its_own() -> None:
    assert chat_id("+4917612345678", "@c.us") == "4917612345678@c.us"
    assert chat_id(GROUP, "@c.us") == GROUP
    assert digits("+4917612345678") == digits("4917612345678") == "4917612345678"


@pytest.mark.parametrize(
    ("code", "state", "word"),
    [
        (401, SessionState.UNPAIRED, "removed"),
        (402, SessionState.BANNED, "for a while"),
        (403, SessionState.BANNED, "locked"),
        (406, SessionState.BANNED, "banned"),
    ],
)
def test_the_end_of_a_session_by_its_code(code: int, state: SessionState, word: str) -> None:
    assert ENDINGS[code].state is state
    assert word in ENDINGS[code].words
