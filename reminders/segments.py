"""The conditions of a segment: read from text, checked, and put into words.

They are applied to the database in `fanout.plans.audience`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from django.utils.text import get_text_list

from reminders.imports import MOST_FIELD, MOST_TAG, MOST_TAGS, field_name

IS, IS_NOT = "=", "!="
COMPARISONS = {IS: "is", IS_NOT: "is not"}
MOST_CONDITIONS = 10
MOST_DAYS = 3650
NO_CONDITION = "Give the segment at least one condition: without any, it would be everyone."


class FieldCondition(NamedTuple):
    """A condition about one of a recipient's own fields. An empty value means that the field is not filled in."""

    name: str
    comparison: str
    value: str

    def __str__(self) -> str:
        return f"{self.name} {self.comparison} {self.value}".strip()

    @property
    def words(self) -> str:
        if not self.value:
            return f"{self.name} is {'empty' if self.comparison == IS else 'filled in'}"
        return f"{self.name} {COMPARISONS[self.comparison]} {self.value}"


def read_conditions(text: str) -> list[FieldCondition]:
    """Return the conditions of a text such as "city = Penang", one per line. Raises ValueError with a sentence."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) > MOST_CONDITIONS:
        raise ValueError(f"Name at most {MOST_CONDITIONS} conditions, one per line.")
    return list(dict.fromkeys(_read_condition(line) for line in lines))


def _read_condition(line: str) -> FieldCondition:
    # “!=” first: its second character is the other comparison.
    comparison = IS_NOT if IS_NOT in line.split(IS)[0] + IS else IS
    words, found, value = line.partition(comparison)
    name = field_name(words)
    if not found or not name:
        raise ValueError(f"Write “{line[:60]}” as a comparison, such as city = Penang or city != Penang.")
    return FieldCondition(name, comparison, value.strip())


def stored_conditions(stored: Any) -> list[FieldCondition]:
    """Return the conditions of a stored list. Raises ValueError with a sentence for one that cannot be used."""
    if not isinstance(stored, list) or len(stored) > MOST_CONDITIONS:
        raise ValueError(f"The conditions about fields are a list of at most {MOST_CONDITIONS}.")
    conditions = []
    for row in stored:
        if not (isinstance(row, list) and len(row) == 3 and all(isinstance(text, str) for text in row)):
            raise ValueError("A condition about a field has a name, a comparison and a value.")
        condition = FieldCondition(*row)
        if condition.comparison not in COMPARISONS:
            raise ValueError(f"A field is compared with {get_text_list(list(COMPARISONS), 'or')}.")
        if not condition.name or condition.name != field_name(condition.name):
            raise ValueError(f"“{condition.name[:60]}” is not the name of a field.")
        if max(len(condition.name), len(condition.value)) > MOST_FIELD or "\x00" in condition.value:
            raise ValueError(f"A field has at most {MOST_FIELD} characters, and only text.")
        conditions.append(condition)
    return conditions


def tags_problem(tags: Sequence[str]) -> str:
    """Return what is wrong with a segment's tags, in a sentence, or nothing."""
    if len(tags) > MOST_TAGS:
        return f"Name at most {MOST_TAGS} tags."
    return f"A tag has at most {MOST_TAG} characters." if any(len(tag) > MOST_TAG for tag in tags) else ""


def in_words(
    tags: Sequence[str],
    every_tag: bool,
    without_tags: Sequence[str],
    fields: Iterable[FieldCondition],
    not_replied_to: str,
    not_contacted_days: int | None,
) -> str:
    """Return the conditions in a sentence, such as "tagged choir, city is Penang, not contacted for 30 days"."""
    words = []
    if tags:
        words.append(f"tagged {get_text_list(list(tags), 'and' if every_tag else 'or')}")
    if without_tags:
        words.append(f"not tagged {get_text_list(list(without_tags), 'or')}")
    words += [condition.words for condition in fields]
    if not_replied_to:
        words.append(f"got “{not_replied_to}” and did not reply")
    if not_contacted_days:
        words.append(f"not contacted for {not_contacted_days} day{'' if not_contacted_days == 1 else 's'}")
    return ", ".join(words)
