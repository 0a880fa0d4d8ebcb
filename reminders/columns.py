"""Which column of a table is the address, the name, the tags: guessed from its header and its cells. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from accounts.addresses import PERSON, guess_kind
from reminders.imports import COLUMNS, Defaults, Entry, RecipientList, field_name, from_row, gathered
from reminders.tables import Table

ADDRESS, NAME, KIND, TAGS = COLUMNS
FIELD, NOTHING = "field", ""
#: rows that a guess looks at
SAMPLE = 50
#: of a phone number
FEWEST_DIGITS = 6
#: what people write above a column, without spaces and signs
HEADINGS = {
    **dict.fromkeys(
        (
            *("address", "phone", "phone_number", "phonenumber", "mobile", "mobile_number", "mobile_phone", "cell"),
            *("whatsapp", "whatsapp_number", "number", "tel", "telephone", "telefon", "handy", "nummer", "telefono"),
            *("e_mail", "email", "mail", "email_address", "e_mail_address", "mailbox"),
            *("group_id", "jid", "linkedin", "linkedin_url", "profile", "profile_url"),
        ),
        ADDRESS,
    ),
    **dict.fromkeys(("name", "full_name", "fullname", "display_name", "group_name", "group", "contact"), NAME),
    "kind": KIND,
    **dict.fromkeys(("tags", "tag", "labels", "label"), TAGS),
}


@dataclass(frozen=True, slots=True)
class Layout:
    """What each column is used for, and whether the first row is a header."""

    header: bool
    uses: tuple[str, ...]


def guess(table: Table) -> Layout:
    rows = [row for _, row in table.filled()][: SAMPLE + 1]
    header = bool(rows) and not any(_looks_like_an_address(cell) for cell in rows[0])
    counts = [sum(_looks_like_an_address(row[n]) for row in rows[header:] if n < len(row)) for n in range(table.width)]
    uses = _by_heading(rows[0], table.width) if header else [NOTHING] * table.width
    return Layout(header, tuple(_one_address(uses, counts)))


def _looks_like_an_address(cell: str) -> bool:
    """Also one that lacks its country code, or is mistyped: it is to be named as a problem, not taken for a heading."""
    return guess_kind(cell) != PERSON or sum(map(str.isdigit, cell)) >= FEWEST_DIGITS


def _by_heading(headings: Sequence[str], width: int) -> list[str]:
    names = [field_name(heading) for heading in headings] + [""] * (width - len(headings))
    return [HEADINGS.get(name, FIELD if name else NOTHING) for name in names]


def _one_address(uses: list[str], counts: list[int]) -> list[str]:
    """Of the columns that are called so, or else of all, the one with most addresses in it; then the rest is clear."""
    called = [n for n, use in enumerate(uses) if use == ADDRESS] or list(range(len(uses)))
    best = max(called, key=lambda n: counts[n], default=0)
    uses = [FIELD if use == ADDRESS else use for use in uses]
    uses[best] = ADDRESS
    if NAME not in uses and FIELD not in uses and len(uses) > 1:
        uses[0 if best else 1] = NAME  # a list without a header: a name and an address
    return uses


def headings(table: Table, layout: Layout) -> list[str]:
    """What stands above each column, or its letterless name."""
    first = next((row for _, row in table.filled()), []) if layout.header else []
    texts = [cell.strip() for cell in first] + [""] * (table.width - len(first))
    return [text or f"Column {n}" for n, text in enumerate(texts, start=1)]


def keys(table: Table, layout: Layout) -> list[str]:
    """What each column fills: a part of the recipient, an own field by its name, or nothing."""
    result: list[str] = []
    for n, (use, heading) in enumerate(zip(layout.uses, headings(table, layout)), start=1):
        name = field_name(heading) or f"column_{n}"
        taken = name in COLUMNS or name in result
        result.append((f"{name}_{n}" if taken else name) if use == FIELD else use)
    return result


def entries(table: Table, layout: Layout, defaults: Defaults) -> RecipientList:
    """The recipients of a table. Columns with the same use are joined: first name and last name are a name."""
    names = keys(table, layout)
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
