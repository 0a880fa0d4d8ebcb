"""Lists of recipients, pasted or in a file."""

from __future__ import annotations

import pytest

from reminders import imports, tables
from reminders.imports import ADDRESS, FIELD, GUESS_ALL, NAME, NOTHING, TAGS, Defaults, Layout, read
from reminders.tables import read_text
from tests.reminders.test_tables import excel


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
        pytest.param("name,phone,city\nAnn,+49 176 12345678,Bonn", ["+4917612345678"], 0, id="usual headings"),
        pytest.param("# ours\n\nName;E-Mail\nAnn;ann@example.com", ["ann@example.com"], 0, id="semicolons"),
        pytest.param(
            "Lee, Ann, ann@example.com\nBo, bo@example.com", ["ann@example.com", "bo@example.com"], 0, id="no-csv"
        ),
    ],
)
def test_lines_hold_an_address_and_perhaps_a_name(text, addresses, problems):
    result = read(text)
    assert [entry.address for entry in result.entries] == addresses
    assert len(result.problems) == problems


@pytest.mark.parametrize(
    ("text", "header", "uses"),
    [
        pytest.param("+4917612345678", False, (ADDRESS,), id="addresses only"),
        pytest.param("Ann;+4917612345678", False, (NAME, ADDRESS), id="name first"),
        pytest.param("Ann;0176 12345678", False, (NAME, ADDRESS), id="without country code"),
        pytest.param("+4917612345678;Ann;x", False, (ADDRESS, NAME, NOTHING), id="name second"),
        pytest.param("Phone,Full name,Tags\n+4917612345678,Ann,a", True, (ADDRESS, NAME, TAGS), id="by their headings"),
        pytest.param("E-Mail,Mobile\n,+4917612345678", True, (FIELD, ADDRESS), id="the one with addresses in it"),
        pytest.param("Flat,Where\n12 B,ann@example.com", True, (FIELD, ADDRESS), id="by its cells"),
        pytest.param("Address,Tags\nann@example.com,a", True, (ADDRESS, TAGS), id="tags are no name"),
        pytest.param("Name,Phone,\nAnn,+4917612345678,x", True, (NAME, ADDRESS, NOTHING), id="without a heading"),
    ],
)
def test_guess_of_the_columns(text: str, header: bool, uses: tuple[str, ...]) -> None:
    assert imports.guess_layout(read_text(text)) == Layout(header, uses)


def test_an_excel_file_reads_like_the_same_list_as_text() -> None:
    rows = (
        ("First name", "Name", "Mail", "Phone"),
        ("Ann", "Lee,\nAnn", "a@example.com", 4917612345678),
        ("Bo", "", "x", ""),
    )
    listed = read(imports.file_text(excel(*rows)))
    table = tables.read(excel(*rows))
    same = imports.read_table(table, imports.guess_layout(table), GUESS_ALL)
    assert [entry.fields for entry in listed.entries] == [entry.fields for entry in same.entries]
    assert [(e.line, e.address, e.name) for e in listed.entries] == [(2, "a@example.com", "Lee, Ann")]
    assert len(listed.problems) == len(same.problems) == 1


def test_own_fields_are_named_as_placeholders_can_be() -> None:
    table = read_text("Phone,Flat No.,Flat no,Address,2nd")
    assert imports.column_keys(table, Layout(True, (ADDRESS, FIELD, FIELD, FIELD, FIELD))) == [
        "address",
        "flat_no",
        "flat_no_3",
        "address_4",
        "_2nd",
    ]


def test_columns_with_the_same_use_are_joined() -> None:
    table = read_text("First,Last,Phone,A,B\nAnn,Lee,+4917612345678,choir,parents")
    listed = imports.read_table(table, Layout(True, (NAME, NAME, ADDRESS, TAGS, TAGS)), Defaults(tags=["new"]))
    (entry,) = listed.entries
    assert (entry.name, entry.tags, entry.line) == ("Ann Lee", ["choir", "new", "parents"], 2)


def test_every_row_that_cannot_be_used_is_named() -> None:
    text = "name,phone\nAnn,+4917612345678\nBob,\nCid,0176 1\nDan,4.91761E+12\nEve,1\x002\nAnn,0049 176 12345678"
    table = read_text(text)
    listed = imports.read_table(table, imports.guess_layout(table), GUESS_ALL)
    assert [entry.name for entry in listed.entries] == ["Ann"]
    assert listed.repeated == 1
    beginnings = [
        "line 3 (Bob",
        "line 4 (Cid 0176 1): ",
        "line 5 (Dan 4.91761E+12): A spreadsheet has rounded",
        "line 6",
    ]
    assert [problem.startswith(begin) for problem, begin in zip(listed.problems, beginnings)] == [True] * 4
    assert "NUL" in listed.problems[3]


def test_the_country_of_numbers_without_one() -> None:
    table = read_text("012-345 6789")
    listed = imports.read_table(table, Layout(False, (ADDRESS,)), Defaults(region="MY"))
    assert [entry.address for entry in listed.entries] == ["+60123456789"]
