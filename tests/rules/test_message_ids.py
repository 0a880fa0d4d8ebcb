"""Message ids: the same for every try, recognised in reports, and not to be made up."""

from __future__ import annotations

from typing import Any

import pytest

from fanout.rules.message_ids import Named, message_id, named_in

REAL = message_id(7, 1)


def test_the_same_for_every_try_and_another_for_every_part() -> None:
    assert message_id(7, 1) == REAL
    assert REAL.startswith("crier-7-1-")
    assert len({message_id(7, 0), message_id(7, 1), message_id(71, 0), message_id(8, 1)}) == 4


@pytest.mark.parametrize(
    "text",
    [REAL, f"<{REAL}@example.com>", f"<{REAL.upper()}@EXAMPLE.COM>", f"<other@a.b> <{REAL}@a.b>"],
    ids=["bare", "header", "shouted", "second"],
)
def test_ours_is_recognised(text: str) -> None:
    assert named_in(text) == Named(7, 1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<crier-7-1@example.com>",
        f"<{REAL.replace('crier-7-', 'crier-8-')}@example.com>",
        f"<{REAL.replace('crier-7-1', 'crier-7-0')}@example.com>",
        f"<{REAL.replace('crier-7-', 'crier-07-')}@example.com>",
        f"<{REAL.replace('crier-7-', 'crier-٧-')}@example.com>",
        f"<x{REAL}@example.com>",
        f"<{REAL}0@example.com>",
        f"<{REAL[:-1]}@example.com>",
        f"<crier-7-1-{'0' * 20}@example.com>",
    ],
    ids=["nothing", "old", "target", "part", "zero", "digits", "longer", "hash longer", "hash cut", "made up"],
)
def test_a_made_up_id_names_nothing(text: str) -> None:
    assert named_in(text) is None


def test_another_installation_has_other_ids(settings: Any) -> None:
    settings.SECRET_KEY = "of somebody else"
    assert message_id(7, 1) != REAL
    assert named_in(REAL) is None


def test_a_key_of_before_is_still_believed(settings: Any) -> None:
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "the next", [settings.SECRET_KEY]
    assert named_in(REAL) == Named(7, 1)


def test_the_hash_has_eighty_bits() -> None:
    *_, digits = REAL.split("-")
    assert (len(digits), set(digits) <= set("0123456789abcdef")) == (20, True)
