"""Read a file or a pasted text as a table of texts: CSV in any dialect, or the first sheet of an Excel file. Pure.

Files are untrusted: everything is bounded before it is unpacked.
"""

from __future__ import annotations

import codecs
import csv
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, time
from io import BytesIO
from typing import Any
from zipfile import ZipFile

import openpyxl

MB = 1_000_000
MOST_BYTES = 5 * MB
#: an Excel file is a compressed archive, and a small one may unpack to gigabytes
MOST_UNPACKED = 30 * MB
#: rows of a list in a web request: reading them takes about two seconds
MOST_ROWS = 50_000
MOST_COLUMNS = 60
#: characters; more than is ever stored, so that later checks still see that a cell is too long
MOST_CELL = 1_000
DELIMITERS = ",;\t"

EXCEL = b"PK\x03\x04"
OLD_EXCEL = b"\xd0\xcf\x11\xe0"
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class UnusableFile(ValueError):
    """No table can be read from it; the sentence says what to do."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells, including empty rows; the first has the number 1, as in a spreadsheet."""

    rows: list[list[str]]

    @property
    def width(self) -> int:
        return max((len(row) for row in self.rows), default=0)

    def filled(self) -> Iterator[tuple[int, list[str]]]:
        """Yield rows that are neither empty nor comments, with their numbers."""
        for number, row in enumerate(self.rows, start=1):
            if any(cell.strip() for cell in row) and not row[0].lstrip().startswith("#"):
                yield number, row


def read(content: bytes) -> Table:
    """Read a CSV or Excel file. Raises UnusableFile."""
    if len(content) > MOST_BYTES:
        raise UnusableFile(f"The file is larger than {MOST_BYTES // MB} MB: split it.")
    if content.startswith(OLD_EXCEL):
        raise UnusableFile("This is an Excel file of the old kind (.xls): save it as .xlsx or as CSV.")
    return _table(_sheet(content)) if content.startswith(EXCEL) else read_text(_decoded(content))


def read_text(text: str) -> Table:
    """Read pasted CSV. Raises UnusableFile."""
    lines = text.splitlines(keepends=True)
    reader = csv.reader(lines, delimiter=_delimiter(lines))
    try:
        return _table(reader)
    except csv.Error:
        raise UnusableFile(
            f"Row {reader.line_num} cannot be read: a cell is too long. Perhaps a quotation mark is not closed."
        ) from None


def _table(rows: Iterable[Iterable[Any]]) -> Table:
    """Return the rows without empty ones at the end. Raises UnusableFile."""
    texts: list[list[str]] = []
    for row in rows:
        texts.append(_texts(row))
        if len(texts) > MOST_ROWS + 1:  # one of them may be a header
            raise UnusableFile(f"The list goes beyond {MOST_ROWS:,} rows: split it, or delete the empty rows below it.")
    while texts and not texts[-1]:
        texts.pop()
    if not texts:
        raise UnusableFile("The list is empty.")
    return Table(texts)


def _texts(row: Iterable[Any]) -> list[str]:
    """Return the cells as texts, without empty ones at the end."""
    cells = [_text(cell)[:MOST_CELL] for cell in row][:MOST_COLUMNS]
    while cells and not cells[-1].strip():
        cells.pop()
    return cells


def _text(value: Any) -> str:
    """Return the value as a person would write it: phone numbers stored as numbers have no decimal point."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else str(value)
    if isinstance(value, datetime) and value.time() == time():
        return value.date().isoformat()
    return value.isoformat() if isinstance(value, date | time) else str(value)


# --- CSV ----------------------------------------------------------------------------------------------------


def _decoded(content: bytes) -> str:
    """Decode UTF-8, UTF-16 with a byte-order mark, or the encoding of Excel in western Europe."""
    for encoding in ("utf-16",) if content.startswith(UTF_16) else ("utf-8-sig", "cp1252"):
        try:
            text = content.decode(encoding)
        except UnicodeDecodeError:
            continue
        if encoding != "cp1252" or "\x00" not in text:
            return text
    raise UnusableFile("This is neither text nor an Excel file: save the list as CSV or .xlsx.")


def _delimiter(lines: list[str]) -> str:
    """Return the delimiter that cuts the first line into most cells."""
    first = next((line for line in lines if line.strip() and not line.startswith("#")), "")
    return max(DELIMITERS, key=lambda delimiter: _cells(first, delimiter))


def _cells(line: str, delimiter: str) -> int:
    try:
        return len(next(csv.reader([line], delimiter=delimiter), []))
    except csv.Error:
        return 0


# --- Excel --------------------------------------------------------------------------------------------------


def _sheet(content: bytes) -> list[tuple[Any, ...]]:
    """Return the values of the first sheet; formulas have their last computed value."""
    try:
        with ZipFile(BytesIO(content)) as archive:
            # A member larger than it claims is cut off at that size, and its checksum fails.
            unpacked = sum(member.file_size for member in archive.infolist())
        if unpacked > MOST_UNPACKED:
            raise UnusableFile("The Excel file is too large when it is unpacked: save the list as CSV, or split it.")
        return _values(content)
    except UnusableFile:
        raise
    except Exception:  # openpyxl raises many kinds of exceptions for broken files
        raise UnusableFile("The Excel file cannot be read: open it, save it again, or save it as CSV.") from None


def _values(content: bytes) -> list[tuple[Any, ...]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about formats and extensions that it leaves out
        book = openpyxl.load_workbook(BytesIO(content), read_only=True, data_only=True, keep_links=False)
        sheet = book.worksheets[0]
        rows = sheet.iter_rows(max_row=MOST_ROWS + 2, max_col=MOST_COLUMNS, values_only=True)
        return list(rows)
