"""Lists of recipients as people have them: pasted text, CSV and tables.

`read` takes text with one address per line, or CSV with a header; `read_posted` takes it from a form, and `file_text`
from a file. `read_table` takes a table whose columns were guessed (`guess_layout`) or chosen by a person. All name each
line that cannot be used. Pure.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from io import StringIO
from itertools import islice
from typing import TypeVar

from django.http import HttpRequest

from accounts.addresses import CHOICES, KINDS, AddressError, guess_kind, looks_like_an_address, normalise
from reminders import tables
from reminders.excel import MOST_COLUMNS, MOST_ROWS, UnusableFile
from reminders.tables import Table

MOST_TAG = 60
MOST_NAME = 200
MOST_FIELD = 500
#: tags that a form accepts at once: each costs a query
MOST_TAGS = 50
#: unusable lines after which a form refuses a list without reading the rest
MOST_PROBLEMS = 1_000
#: pieces of a line that are tried as the address
MOST_PIECES = 10
NUL = "The line contains a NUL character."
COLUMNS = ("address", "name", "kind", "tags")
ADDRESS, NAME, KIND, TAGS = COLUMNS
FIELD, NOTHING = "field", ""
#: rows that a guess of the columns looks at
SAMPLE = 50
#: usual headings, as `field_name` writes them
HEADINGS = {
    "address": ADDRESS,
    **{heading: ADDRESS for kind in KINDS.values() for heading in kind.headings},
    **dict.fromkeys(("name", "full_name", "fullname", "display_name", "group_name", "group", "contact"), NAME),
    "kind": KIND,
    **dict.fromkeys(("tags", "tag", "labels", "label"), TAGS),
}
# Signs that begin a formula in a spreadsheet, also full-width and small ones, and characters that do not show before
# them: white space, controls, zero-width characters, marks of direction, fillers, variation selectors and tags.
FORMULA_SIGNS = "=+\\-@＝＋－＠﹦﹢﹣﹫"
UNSEEN = (
    "\\x00-\\x08\\x0e-\\x1f\\x7f-\\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff"
)
# Where a cell may begin, with the blanks before its text: at the start, behind a separator, or behind white space that
# has a tab or a line break in it. White space is read only from its beginning: from each tab it would be quadratic.
CELL_BEGINS = (
    rf"((?:^|[;,|])[\s{UNSEEN}]*+|"
    rf"(?<![\s{UNSEEN}])(?:[^\S\t\r\n]|[{UNSEEN}])*+[\t\r\n][\s{UNSEEN}]*+)"
)
GUARD = re.compile(rf"{CELL_BEGINS}'('*+[{FORMULA_SIGNS}])")
SEPARATOR = re.compile(r"[\t;,]")
TAG_SEPARATOR = re.compile(r"[;,]")
# A long number that a spreadsheet has rounded: 1.20363E+17, or 1.20363025246125e+17.
ROUNDED = re.compile(r"[0-9][.,]?[0-9]*[eE]\+?[0-9]{1,3}")
NOT_IN_A_NAME = re.compile(r"\W+")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Entry:
    line: int
    kind: str
    address: str
    name: str = ""
    tags: list[str] = field(default_factory=list)
    fields: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class RecipientList:
    """Usable entries in their order, each address once, and a problem for each other line."""

    entries: list[Entry] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    repeated: int = 0
    #: lines beyond `most`
    unread: int = 0


@dataclass(frozen=True, slots=True)
class Defaults:
    """Values for lines that do not have their own: kind (None: guessed), country, tags."""

    kind: str | None = None
    region: str | None = None
    tags: Sequence[str] = ()


GUESS_ALL = Defaults()


def read(
    text: str, defaults: Defaults = GUESS_ALL, most: int | None = None, most_problems: int | None = None
) -> RecipientList:
    """Read a list. Stops after `most` lines, and after `most_problems` unusable ones, which take longer to read."""
    rows = ((n, line.strip(), line) for n, line in enumerate(text.splitlines(), start=1) if _is_filled(line))
    header = _header(text)
    if header is not None:
        next(rows)
    listed = gathered(islice(rows, most), lambda number, line: _entry(number, line, header, defaults), most_problems)
    listed.unread = sum(1 for _ in rows)
    return listed


def read_posted(request: HttpRequest, name: str, most: int = MOST_ROWS) -> RecipientList:
    """Return the list in this field of a posted form, read once per request: 50,000 lines take two seconds."""
    lists: dict[tuple[str, int], RecipientList] = request.__dict__.setdefault("_crier_lists", {})
    if (name, most) not in lists:
        text = "\n".join(request.POST.getlist(name)).strip()
        lists[name, most] = read(text, most=most, most_problems=MOST_PROBLEMS)
    return lists[name, most]


def split_tags(text: str) -> list[str]:
    return list(dict.fromkeys(tag.strip() for tag in text.split(",") if tag.strip()))


def gathered(
    rows: Iterable[tuple[int, str, T]], entry: Callable[[int, T], Entry], most_problems: int | None = None
) -> RecipientList:
    """Collect entries and problems. A row is its number, its beginning (for the problem) and the entry's source."""
    result, seen = RecipientList(), set()
    for number, beginning, row in rows:
        try:
            one = entry(number, row)
        except (AddressError, csv.Error) as problem:
            result.problems.append(f"line {number} ({beginning[:40]}): {problem}")
            if len(result.problems) == most_problems:
                break
            continue
        result.repeated += one.address in seen
        if one.address not in seen:
            seen.add(one.address)
            result.entries.append(one)
    return result


@dataclass(frozen=True, slots=True)
class Header:
    """What the cells of CSV lines are, by the first line."""

    keys: Sequence[str]
    delimiter: str


def _header(text: str) -> Header | None:
    """Return the columns of CSV whose first line names one for addresses.

    Without such a header each line is an address: a display name may hold a comma.
    """
    sample = list(islice((line for line in text.splitlines() if _is_filled(line)), SAMPLE + 1))
    if not sample:
        return None
    delimiter = tables.delimiter_of(sample[0])
    table = Table([tables.cells_of(line, delimiter)[:MOST_COLUMNS] for line in sample])
    if not table.width:
        return None
    layout = guess_layout(table)
    called = {HEADINGS.get(field_name(cell)) for cell in table.rows[0]} if layout.header else set()
    return Header(column_keys(table, layout), delimiter) if ADDRESS in called else None


def _is_filled(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def has_header(text: str) -> bool:
    return _header(text) is not None


def _entry(number: int, line: str, header: Header | None, defaults: Defaults) -> Entry:
    if header is not None:
        return from_row(number, _joined(header.keys, next(csv.reader([line], delimiter=header.delimiter))), defaults)
    if "\x00" in line:
        raise AddressError(NUL)
    kind, address, name = _from_line(line.strip(), defaults)
    return Entry(number, kind, address, name, sorted(defaults.tags))


def file_text(content: bytes) -> str:
    """Return the list in a text, CSV or Excel file as `read` takes it. Raises UnusableFile."""
    if not tables.is_excel(content):
        text = tables.decoded(content)
        if "\x00" in text:
            raise UnusableFile("This is neither text nor an Excel file: save the list as CSV or .xlsx.")
        return text
    table = tables.read(content)
    layout = guess_layout(table)
    names = column_keys(table, layout)
    columns = list(dict.fromkeys(filter(None, names)))
    columns.sort(key=lambda name: name != ADDRESS)  # among columns with addresses, the first is taken again
    cells = (_joined(names, row) for _, row in list(table.filled())[layout.header :])
    rows = ([" ".join(row.get(column, "").split()) for column in columns] for row in cells)
    written = StringIO()
    csv.writer(written, lineterminator="\n").writerows([columns, *rows])
    return written.getvalue()


def unguarded(cell: str) -> str:
    """Remove the apostrophes that an export puts in front of cells that look like formulas."""
    return GUARD.sub(r"\1\2", cell)


def from_row(number: int, cells: Mapping[str, str], defaults: Defaults) -> Entry:
    """Return the entry of a row with named cells; names that are not in COLUMNS become own fields."""
    row = {column: unguarded(cell) for column, cell in cells.items()}
    if any("\x00" in cell for cell in row.values()):
        raise AddressError(NUL)
    raw = row.get("address", "")
    if ROUNDED.fullmatch(raw.strip()):
        raise AddressError("A spreadsheet has rounded this number: format its column as text and enter it again.")
    kind = (row.get("kind") or "").strip() or defaults.kind or guess_kind(raw)
    if kind not in KINDS:
        raise AddressError(f"“{kind}” is not one of {', '.join(CHOICES)}.")
    tags = [tag.strip() for tag in TAG_SEPARATOR.split(row.get("tags") or "") if tag.strip()]
    if any(len(tag) > MOST_TAG for tag in tags):
        raise AddressError(f"A tag has at most {MOST_TAG} characters.")
    name = (row.get("name") or "").strip()[:MOST_NAME]
    address = normalise(kind, raw, defaults.region)
    return Entry(number, kind, address, name, sorted({*tags, *defaults.tags}), _fields(row))


def _fields(row: dict[str, str]) -> dict[str, str]:
    """Return the other columns under names that placeholders can have: "Flat no." becomes {flat_no}."""
    own = {field_name(column): value.strip() for column, value in row.items() if column not in COLUMNS}
    if any(len(value) > MOST_FIELD for value in own.values()):
        raise AddressError(f"A field has at most {MOST_FIELD} characters.")
    return {name: value for name, value in own.items() if name and value}


@lru_cache(maxsize=256)  # the same columns in every row
def field_name(words: str) -> str:
    """Return the name of a placeholder for this heading; empty if nothing usable is left of it."""
    name = NOT_IN_A_NAME.sub("_", words.strip().lower()).strip("_")
    return f"_{name}" if name[:1].isdigit() else name


def _from_line(line: str, defaults: Defaults) -> tuple[str, str, str]:
    """Return kind, address and name. The address is the whole line, or one of its pieces and the rest is the name."""
    try:
        return *_address(line, defaults), ""
    except AddressError as problem:
        pieces = [piece.strip() for piece in SEPARATOR.split(line, MOST_PIECES)]
        return _among(pieces, defaults, problem)


def _among(pieces: list[str], defaults: Defaults, problem: AddressError) -> tuple[str, str, str]:
    for piece in pieces if len(pieces) > 1 else ():
        try:
            kind, address = _address(piece, defaults)
        except AddressError:
            continue
        rest = " ".join(other for other in pieces if other and other != piece)
        return kind, address, rest[:MOST_NAME]
    raise problem


def _address(text: str, defaults: Defaults) -> tuple[str, str]:
    kind = defaults.kind or guess_kind(text)
    return kind, normalise(kind, text, defaults.region)


def first_problems(problems: Sequence[str], most: int) -> list[str]:
    """Shorten a list of problems for display."""
    more = len(problems) - most
    return [*problems[:most], *([f"and {more} more"] if more > 0 else [])]


# --- tables: which column is what ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Layout:
    """The use of each column, and whether the first row is a header."""

    header: bool
    uses: tuple[str, ...]


def guess_layout(table: Table) -> Layout:
    rows = [row for _, row in table.filled()][: SAMPLE + 1]
    header = bool(rows) and not any(looks_like_an_address(cell) for cell in rows[0])
    counts = [sum(looks_like_an_address(row[n]) for row in rows[header:] if n < len(row)) for n in range(table.width)]
    uses = _by_heading(rows[0], table.width) if header else [NOTHING] * table.width
    return Layout(header, tuple(_one_address(uses, counts)))


def _by_heading(headings: Sequence[str], width: int) -> list[str]:
    names = [field_name(heading) for heading in headings] + [""] * (width - len(headings))
    return [HEADINGS.get(name, FIELD if name else NOTHING) for name in names]


def _one_address(uses: list[str], counts: list[int]) -> list[str]:
    """Keep one address column: among those with such a heading, else among all, the one with most addresses."""
    called = [n for n, use in enumerate(uses) if use == ADDRESS] or list(range(len(uses)))
    best = max(called, key=lambda n: counts[n], default=0)
    uses = [FIELD if use == ADDRESS else use for use in uses]
    uses[best] = ADDRESS
    if len(uses) > 1 and not any(use for n, use in enumerate(uses) if n != best):
        uses[0 if best else 1] = NAME  # a list without a header: a name and an address
    return uses


def column_headings(table: Table, layout: Layout) -> list[str]:
    """Return the heading of each column, or "Column 3"."""
    first = next((row for _, row in table.filled()), []) if layout.header else []
    texts = [cell.strip() for cell in first] + [""] * (table.width - len(first))
    return [text or f"Column {n}" for n, text in enumerate(texts, start=1)]


def column_keys(table: Table, layout: Layout) -> list[str]:
    """Return what each column fills: a part of the recipient, an own field by its name, or nothing."""
    result: list[str] = []
    for n, (use, heading) in enumerate(zip(layout.uses, column_headings(table, layout)), start=1):
        name = field_name(heading) or f"column_{n}"
        taken = name in COLUMNS or name in result
        result.append((f"{name}_{n}" if taken else name) if use == FIELD else use)
    return result


def read_table(table: Table, layout: Layout, defaults: Defaults) -> RecipientList:
    """Read the recipients of a table. Columns with the same use are joined: first name and last name."""
    names = column_keys(table, layout)
    rows = list(table.filled())[layout.header :]

    def entry(number: int, row: list[str]) -> Entry:
        return from_row(number, _joined(names, row), defaults)

    return gathered(((number, " ".join(row), row) for number, row in rows), entry)


def _joined(names: Sequence[str], row: Sequence[str]) -> dict[str, str]:
    cells: dict[str, list[str]] = {}
    for name, cell in zip(names, row):
        if name and cell.strip():
            cells.setdefault(name, []).append(cell.strip())
    return {name: (";" if name == TAGS else " ").join(parts) for name, parts in cells.items()}
