"""Numbers that strangers write."""

from __future__ import annotations

import pytest

from accounts.inputs import as_id


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("7", 7),
        ("9223372036854775807", 2**63 - 1),
        ("", None),
        ("²", None),
        ("٣", None),
        ("-1", None),
        ("1.5", None),
        (" 1", None),
        ("9223372036854775808", None),
        ("9" * 5000, None),
    ],
)
def test_a_key_or_nothing(text: str, number: int | None) -> None:
    assert as_id(text) == number
