"""Read a file or a pasted text as a table of texts: CSV in any dialect, or the first sheet of an Excel file. Pure.

Files are untrusted: everything is bounded before it is unpacked.
"""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import StringIO
from itertools import islice
from typing import Any

from reminders.excel import MB, MOST_ROWS, UnusableFile, read_excel, texts

MOST_BYTES = 5 * MB
DELIMITERS = ",;\t"
#: characters of the first line that tell the delimiter
LONGEST_HEADER = 10_000
LINE_BREAK = re.compile("\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")

EXCEL = b"PK\x03\x04"
OLD_EXCEL = b"\xd0\xcf\x11\xe0"
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


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
    return _table(read_excel(_bounded(content))) if is_excel(content) else read_text(decoded(content))


def is_excel(content: bytes) -> bool:
    return content.startswith(EXCEL)


def _bounded(content: bytes) -> bytes:
    if len(content) > MOST_BYTES:
        raise UnusableFile(f"The file is larger than {MOST_BYTES // MB} MB: split it.")
    return content


def read_text(text: str) -> Table:
    """Read pasted CSV. Raises UnusableFile."""
    # Line by line: a list of all lines of a file that is nothing but line breaks would be fifty times its size.
    reader = csv.reader(StringIO(text, newline=""), delimiter=_delimiter(text))
    try:
        return _table(reader)
    except csv.Error:
        raise UnusableFile(
            f"Row {reader.line_num} cannot be read: a cell is too long. Perhaps a quotation mark is not closed."
        ) from None


def has_more_lines(text: str, most: int) -> bool:
    """Return whether the text has more than so many lines, without splitting all of it."""
    return next(islice(LINE_BREAK.finditer(text.removesuffix("\n")), most - 1, None), None) is not None


def _table(rows: Iterable[Iterable[Any]]) -> Table:
    """Return the rows without empty ones at the end. Raises UnusableFile."""
    found: list[list[str]] = []
    for row in rows:
        found.append(texts(row))
        if len(found) > MOST_ROWS + 1:  # one of them may be a header
            raise UnusableFile(f"The list goes beyond {MOST_ROWS:,} rows: split it, or delete the empty rows below it.")
    while found and not found[-1]:
        found.pop()
    if not found:
        raise UnusableFile("The list is empty.")
    return Table(found)


# --- CSV ----------------------------------------------------------------------------------------------------


def decoded(content: bytes) -> str:
    """Decode UTF-8, UTF-16 with a byte-order mark, or the encoding of Excel in western Europe. Raises UnusableFile."""
    if _bounded(content).startswith(OLD_EXCEL):
        raise UnusableFile("This is an Excel file of the old kind (.xls): save it as .xlsx or as CSV.")
    for encoding in ("utf-16",) if content.startswith(UTF_16) else ("utf-8-sig", "cp1252"):
        try:
            text = content.decode(encoding)
        except UnicodeDecodeError:
            continue
        if encoding != "cp1252" or "\x00" not in text:
            return text
    raise UnusableFile("This is neither text nor an Excel file: save the list as CSV or .xlsx.")


def _delimiter(text: str) -> str:
    lines = StringIO(text, newline="")
    return delimiter_of(next((line for line in lines if line.strip() and not line.startswith("#")), ""))


def delimiter_of(line: str) -> str:
    """Return the delimiter that cuts the line into most cells."""
    return max(DELIMITERS, key=lambda delimiter: len(cells_of(line[:LONGEST_HEADER], delimiter)))


def cells_of(line: str, delimiter: str) -> list[str]:
    """Return the cells of a line; none if it cannot be read as CSV."""
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return []
