"""Tables from ordinary files, and from files made to do harm."""

from __future__ import annotations

import io
import sys
import threading
import tracemalloc
import zipfile
from datetime import date, datetime
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from reminders import excel as limits
from reminders.excel import UnusableFile
from reminders.tables import MOST_BYTES, has_more_lines, read, read_text


def excel(*rows: tuple[Any, ...]) -> bytes:
    book = openpyxl.Workbook()
    for row in rows:
        book.worksheets[0].append(row)
    file = io.BytesIO()
    book.save(file)
    return file.getvalue()


def repacked(content: bytes, **members: bytes) -> bytes:
    """The Excel file with some of its members replaced: `sheet1` is that sheet."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            stem = name.rsplit("/", 1)[-1].removesuffix(".xml")
            new.writestr(name, members.get(stem, old.read(name)))
    return file.getvalue()


SHEET = b'<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>%s</sheetData></worksheet>'


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        pytest.param(b"a,b\n1,2\n", [["a", "b"], ["1", "2"]], id="comma"),
        pytest.param(b"a;b\n1;2,5\n", [["a", "b"], ["1", "2,5"]], id="semicolon"),
        pytest.param(b"a\tb\r\n1\t2\r\n", [["a", "b"], ["1", "2"]], id="tab"),
        pytest.param(b'a,b\n"x, y","two\nlines"\n', [["a", "b"], ["x, y", "two\nlines"]], id="quoted"),
        pytest.param("\ufeffname\nZoë\n".encode(), [["name"], ["Zoë"]], id="utf-8 with its mark"),
        pytest.param("name\nZoë\n".encode("utf-16"), [["name"], ["Zoë"]], id="utf-16"),
        pytest.param("name\nZoë\n".encode("cp1252"), [["name"], ["Zoë"]], id="windows"),
        pytest.param(b"a\n\nb,,\n,\n\n", [["a"], [], ["b"]], id="empty rows and cells"),
    ],
)
def test_csv(content: bytes, rows: list[list[str]]) -> None:
    assert read(content).rows == rows


@pytest.mark.parametrize("limit", ["MOST_UNPACKED", "MOST_MEMBERS", "MOST_TAGS", "MOST_OTHER_TAGS"])
def test_a_file_may_be_as_large_as_a_limit_and_no_larger(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    content = excel(("x",))
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    of_cells = {name for name in members if "/worksheets/" in name or "sharedstrings" in name.lower()}
    size = {
        "MOST_UNPACKED": sum(map(len, members.values())),
        "MOST_MEMBERS": len(members),
        "MOST_TAGS": max(members[name].count(b"<") for name in of_cells),
        "MOST_OTHER_TAGS": max(members[name].count(b"<") for name in members.keys() - of_cells),
    }[limit]
    monkeypatch.setattr(limits, limit, size)
    limits.check_sizes(content)
    monkeypatch.setattr(limits, limit, size - 1)
    with pytest.raises(UnusableFile):
        limits.check_sizes(content)


def test_a_row_keeps_its_number() -> None:
    assert list(read_text("# friends\n\nann@example.com\n").filled()) == [(3, ["ann@example.com"])]


def test_excel_values_as_a_person_would_write_them() -> None:
    row = (
        "Ann",
        4917612345678,
        4917612345678.0,
        1.5,
        date(2026, 3, 1),
        datetime.fromisoformat("2026-03-01T09:30"),
        True,
        None,
        "x",
    )
    written = ["Ann", "4917612345678", "4917612345678", "1.5", "2026-03-01", "2026-03-01T09:30:00", "yes", "", "x"]
    assert read(excel(row)).rows == [written]


def test_a_formula_has_its_last_value() -> None:
    cell = b'<row r="1"><c r="A1" t="str"><f>CONCAT(1,2)</f><v>12</v></c><c r="B1"><f>SUM(1)</f></c></row>'
    assert read(repacked(excel(("x",)), sheet1=SHEET % cell)).rows == [["12"]]


def bomb(size: int) -> bytes:
    return repacked(excel(("x",)), sheet1=b"<" + b" " * size)


ENTITIES = (
    b'<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'
    + SHEET % b'<row r="1"><c r="A1" t="inlineStr"><is><t>&b;</t></is></c></row>'
)


STYLES = (
    b'<styleSheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><cellXfs>%s</cellXfs></styleSheet>'
)


def with_texts(strings: bytes, sheet: bytes) -> bytes:
    """An Excel file as Excel itself writes it: cells name texts that they share."""
    kind = b"application/vnd.openxmlformats-officedocument.spreadsheetml.sharedStrings+xml"
    part = b'<Override PartName="/xl/sharedStrings.xml" ContentType="%s"/></Types>' % kind
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(excel(("x",)))) as old, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as new:
        for name in set(old.namelist()) - {"xl/worksheets/sheet1.xml", "xl/sharedStrings.xml"}:
            content = old.read(name)
            new.writestr(name, content.replace(b"</Types>", part) if name == "[Content_Types].xml" else content)
        new.writestr("xl/worksheets/sheet1.xml", SHEET % sheet)
        new.writestr("xl/sharedStrings.xml", STRINGS % strings)
    return file.getvalue()


STRINGS = b'<sst xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main">%s</sst>'
ROW_OF_TEXTS = b"<row>" + b'<c t="s"><v>0</v></c>' * 60 + b"</row>"


def test_texts_that_cells_share() -> None:
    row = b'<row r="1"><c r="A1" t="s"><v>1</v></c><c r="B1" t="s"><v>0</v></c></row>'
    assert read(with_texts(b"<si><t>Ann</t></si><si><t>Bob</t></si>", row)).rows == [["Bob", "Ann"]]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param(b"", "is empty", id="nothing"),
        pytest.param(b"\n ,\n", "is empty", id="nothing in it"),
        pytest.param(b"a" * (MOST_BYTES + 1), "larger than 5 MB", id="large"),
        pytest.param(b"a\n" * (limits.MOST_ROWS + 2), "beyond 50,000 rows", id="long"),
        pytest.param(b"a\n" + b"x" * 200_000, "Row 2 cannot be read", id="an endless cell"),
        pytest.param(b'a\n"' + b"x\n" * 100_000, "quotation mark is not closed", id="open quote"),
        pytest.param(b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "neither text nor an Excel file", id="picture"),
        pytest.param(b"\xd0\xcf\x11\xe0 old", "save it as .xlsx", id="old Excel"),
        pytest.param(b"PK\x03\x04 broken", "cannot be read", id="no archive"),
        pytest.param(bomb(limits.MOST_UNPACKED), "too large when it is unpacked", id="zip bomb"),
        pytest.param(
            repacked(excel(("x",)), sheet1=SHEET % (b"<row>" + b"<c/>" * 7_000_000 + b"</row>")),
            "too many cells",
            id="millions of empty cells in 30 KB",
        ),
        pytest.param(
            repacked(excel(("x",)), styles=STYLES % (b"<xf/>" * 5_000_000)),
            "too many cells, texts or styles",
            id="styles",
        ),
        pytest.param(with_texts(b"<si/>" * 5_000_000, b""), "too many cells, texts", id="millions of texts"),
        pytest.param(
            with_texts(b"<si><t>" + b"a" * 1_000_000 + b"</t></si>", ROW_OF_TEXTS * 1_000),
            "too long altogether",
            id="one long text in many cells",
        ),
        pytest.param(repacked(excel(("x",)), sheet1=ENTITIES), "cannot be read", id="entities"),
        pytest.param(repacked(excel(("x",)), workbook=b"<x/>"), "cannot be read", id="no workbook"),
    ],
)
def test_files_that_are_refused(content: bytes, words: str) -> None:
    with pytest.raises(UnusableFile, match=words):
        read(content)


def test_a_member_that_understates_its_size_is_refused() -> None:
    """The size in the archive's directory is a claim; what is read never exceeds it."""
    content = bytearray(bomb(2_000_000))
    at = content.rindex(b"PK\x01\x02", 0, content.rindex(b"sheet1.xml"))
    content[at + 24 : at + 28] = (100).to_bytes(4, "little")
    with pytest.raises(UnusableFile, match="cannot be read"):
        read(bytes(content))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit", "most", "content"),
    [
        pytest.param("CPU_SECONDS", 1, repacked(excel(("x",)), sheet1=SHEET % (b"<row>" * 1_000_000)), id="time"),
        pytest.param("MEMORY", 70_000_000, with_texts(b"<si><t>" + b"a" * 25_000_000 + b"</t></si>", b""), id="memory"),
    ],
)
def test_a_file_that_passes_the_checks_is_read_with_little_time_and_memory(
    limit: str, most: int, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, limit, most)
    # The XML parser reports a lack of memory as broken XML.
    with pytest.raises(UnusableFile, match=r"too much time or memory|cannot be read"):
        read(content)


def test_a_further_file_waits_only_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TURN_SECONDS", 0.01)
    monkeypatch.setattr(limits, "_turns", threading.BoundedSemaphore(1))
    with limits._turn(), pytest.raises(UnusableFile, match="try again in a minute"):
        read(excel(("x",)))
    assert read(excel(("x",))).rows == [["x"]]


def test_the_child_has_none_of_our_secrets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    spy = tmp_path / "python"
    spy.write_text(f"#!{sys.executable}\nimport json, os\nprint(json.dumps(dict(rows=[sorted(os.environ)])))\n")
    spy.chmod(0o755)
    monkeypatch.setenv("SECRET_KEY", "x")
    monkeypatch.setattr(sys, "executable", str(spy))
    (names,) = limits.read_excel(b"")
    assert "PATH" in names
    assert "SECRET_KEY" not in names


@pytest.mark.parametrize("break_", ["\n", "\r\n", "\u2028"])
def test_lines_are_counted(break_: str) -> None:
    lines = break_.join("abc")
    assert [has_more_lines(text, 3) for text in (lines, lines + "\n", lines + break_ + "d")] == [False, False, True]
    assert has_more_lines(lines, 2)


def test_lines_take_no_memory_before_they_are_read() -> None:
    text = "a\n" * (MOST_BYTES // 2)
    tracemalloc.start()
    try:
        with pytest.raises(UnusableFile, match="beyond 50,000 rows"):
            read_text(text)
        assert tracemalloc.get_traced_memory()[1] < 50 * limits.MB
    finally:
        tracemalloc.stop()


def test_cells_far_out_are_not_read() -> None:
    row = b'<row r="1"><c r="A1"><v>1</v></c><c r="XFD1"><v>1</v></c></row>'
    assert read(repacked(excel(("x",)), sheet1=SHEET % row)).rows == [["1"]]
    row += b'<row r="1048576"><c r="A1048576"><v>2</v></c></row>'
    with pytest.raises(UnusableFile, match="beyond 50,000 rows"):
        read(repacked(excel(("x",)), sheet1=SHEET % row))


def test_a_huge_cell_is_cut_but_still_too_long_for_every_use() -> None:
    assert len(read(excel(("x" * 30_000,))).rows[0][0]) == limits.MOST_CELL
