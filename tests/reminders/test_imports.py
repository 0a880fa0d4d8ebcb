"""Lists of recipients, pasted or in a file."""

from __future__ import annotations

import pytest

from reminders.imports import read


@pytest.mark.parametrize(
    ("text", "addresses", "problems"),
    [
        pytest.param("ann@example.com", ["ann@example.com"], 0, id="plain"),
        pytest.param("Ann Lee <ann@example.com>", ["ann@example.com"], 0, id="display-name"),
        pytest.param("Ann;+49 176 12345678", ["+4917612345678"], 0, id="name-first"),
        pytest.param("+49 176 12345678\tAnn", ["+4917612345678"], 0, id="name-last"),
        pytest.param("\n\n", [], 0, id="empty-lines"),
        pytest.param("nonsense\nann@example.com", ["ann@example.com"], 1, id="one-wrong"),
        pytest.param("ann@example.com\nANN@example.com", ["ann@example.com"], 0, id="twice"),
        pytest.param("address,name\nann@example.com,Ann", ["ann@example.com"], 0, id="csv"),
    ],
)
def test_lines_hold_an_address_and_perhaps_a_name(text, addresses, problems):
    result = read(text)
    assert [entry.address for entry in result.entries] == addresses
    assert len(result.problems) == problems
