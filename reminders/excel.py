"""Read the first sheet of an Excel file, in a process of its own.

An Excel file is an archive of XML, and a small one can take minutes and gigabytes to read. So its sizes are checked
before it is parsed, and it is parsed by a child process (`python -m reminders.excel`) that has little memory, little
processor time and none of Crier's secrets. Without Django, which that process does not need.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import date, datetime, time
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any
from zipfile import ZipFile

MB = 1_000_000
#: rows of a list in a web request: reading them takes about two seconds
MOST_ROWS = 50_000
MOST_COLUMNS = 60
#: characters; more than is ever stored, so that later checks still see that a cell is too long
MOST_CELL = 1_000
#: characters of all cells: many cells may show the same long text
MOST_TEXT = 10 * MB
MOST_UNPACKED = 30 * MB
#: Angle brackets that open a tag: of the sheet and its texts, where a filled cell has four to six, and of every other
#: member, where a style has two to four and Excel allows 65,000 styles.
MOST_TAGS, MOST_OTHER_TAGS = 3_500_000, 300_000
MOST_MEMBERS = 1_000

#: Limits of the child process. The largest list of 30 MB unpacked takes 70 MB, and up to 15 s on a slow machine.
CPU_SECONDS = 20
MEMORY = 200 * MB
#: on a busy machine it gets less than a whole processor
PATIENCE_SECONDS = 60.0
#: children at the same time, and how long a further file waits for its turn
AT_ONCE, TURN_SECONDS = 2, 10.0
#: the only variables that the child gets: what Python needs to start
ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "PYTHONHOME", "PYTHONPATH", "LANG", "LC_ALL")
CHUNK = 65_536

TOO_LARGE = "The Excel file is too large when it is unpacked: save the list as CSV, or split it."
TOO_MANY = "The Excel file has too many cells, texts or styles: save the list as CSV, or copy it into a new file."
TOO_HARD = "The Excel file takes too much time or memory to read: save the list as CSV, or copy it into a new file."
TOO_LONG = "The texts of the Excel file are too long altogether: split the list."
BROKEN = "The Excel file cannot be read: open it, save it again, or save it as CSV."
BUSY = "Other Excel files are being read at the moment: try again in a minute, or save the list as CSV."

Rows = list[list[str]]

_turns = threading.BoundedSemaphore(AT_ONCE)


class UnusableFile(ValueError):
    """No table can be read from it; the sentence says what to do."""


# --- in Crier's process -------------------------------------------------------------------------------------


def read_excel(content: bytes) -> Rows:
    """Return the cells of the first sheet as texts; formulas have their last computed value. Raises UnusableFile."""
    with _turn():
        try:
            child = subprocess.run(
                [sys.executable, "-X", "utf8", "-m", "reminders.excel", str(CPU_SECONDS), str(MEMORY)],
                input=content,
                capture_output=True,
                timeout=PATIENCE_SECONDS,
                cwd=Path(__file__).resolve().parent.parent,
                env={name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise UnusableFile(TOO_HARD) from None
    if child.returncode != 0:
        raise UnusableFile(TOO_HARD)
    answer: dict[str, Any] = json.loads(child.stdout)
    if "problem" in answer:
        raise UnusableFile(answer["problem"])
    rows: Rows = answer["rows"]
    return rows


@contextmanager
def _turn() -> Iterator[None]:
    if not _turns.acquire(timeout=TURN_SECONDS):
        raise UnusableFile(BUSY)
    try:
        yield
    finally:
        _turns.release()


# --- in the child process -----------------------------------------------------------------------------------


def main() -> None:
    """Read a file from standard input and write its rows, or the problem, as JSON."""
    limit(*map(int, sys.argv[1:]))
    try:
        answer: dict[str, Any] = {"rows": rows_of(sys.stdin.buffer.read())}
    except UnusableFile as problem:
        answer = {"problem": str(problem)}
    except MemoryError:
        answer = {"problem": TOO_HARD}
    except Exception:  # openpyxl raises many kinds of exceptions for broken files
        answer = {"problem": BROKEN}
    json.dump(answer, sys.stdout)


def limit(cpu_seconds: int, memory: int) -> None:
    for name, most in (("CPU", cpu_seconds), ("AS", memory), ("FSIZE", 0), ("CORE", 0)):
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (most, most))


def rows_of(content: bytes) -> Rows:
    """Return the rows, one more than MOST_ROWS and a header where there are too many. Raises UnusableFile."""
    check_sizes(content)
    rows: Rows = []
    left = MOST_TEXT
    for row in _values(content):
        rows.append(texts(row))
        left -= sum(map(len, rows[-1]))
        if left < 0:
            raise UnusableFile(TOO_LONG)
    return rows


def check_sizes(content: bytes) -> None:
    """Raise UnusableFile if the file would take too long to parse. The members are unpacked in chunks."""
    with ZipFile(BytesIO(content)) as archive:
        members = archive.infolist()
        # A member larger than it claims is cut off at that size, and its checksum fails.
        if sum(member.file_size for member in members) > MOST_UNPACKED:
            raise UnusableFile(TOO_LARGE)
        if len(members) > MOST_MEMBERS:
            raise UnusableFile(TOO_MANY)
        for member in members:
            of_cells = "/worksheets/" in member.filename or "sharedstrings" in member.filename.lower()
            with archive.open(member) as file:
                tags = sum(chunk.count(b"<") for chunk in iter(lambda: file.read(CHUNK), b""))
            if tags > (MOST_TAGS if of_cells else MOST_OTHER_TAGS):
                raise UnusableFile(TOO_MANY)


def _values(content: bytes) -> Iterator[tuple[Any, ...]]:
    import openpyxl  # Crier's process does not need it.

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about formats and extensions that it leaves out
        book = openpyxl.load_workbook(BytesIO(content), read_only=True, data_only=True, keep_links=False)
        sheet = book.worksheets[0]
        yield from sheet.iter_rows(max_row=MOST_ROWS + 2, max_col=MOST_COLUMNS, values_only=True)


# --- in both ------------------------------------------------------------------------------------------------


def texts(row: Iterable[Any]) -> list[str]:
    """Return the cells as texts, without empty ones at the end."""
    cells = [_text(cell)[:MOST_CELL] for cell in islice(row, MOST_COLUMNS)]
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


if __name__ == "__main__":
    main()
