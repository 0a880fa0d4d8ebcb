"""The conditions of a segment: reading, checking, and their words."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import DataError, IntegrityError, transaction

from reminders.models import Segment
from reminders.segments import FieldCondition, read_conditions, stored_conditions
from tests.factories import ReminderFactory, SegmentFactory, UserFactory


@pytest.mark.parametrize(
    ("line", "condition"),
    [
        ("city = Penang", FieldCondition("city", "=", "Penang")),
        ("City=Penang", FieldCondition("city", "=", "Penang")),
        ("city != Penang", FieldCondition("city", "!=", "Penang")),
        ("Flat no. = 12 = B", FieldCondition("flat_no", "=", "12 = B")),
        ("sum = a != b", FieldCondition("sum", "=", "a != b")),
        ("city =", FieldCondition("city", "=", "")),
        ("city !=", FieldCondition("city", "!=", "")),
    ],
)
def test_a_line_is_read(line: str, condition: FieldCondition) -> None:
    assert read_conditions(f"\n {line} \n") == [condition]


@pytest.mark.parametrize("text", ["Penang", "= Penang", "!!! = x", "\n".join(f"a{n} = 1" for n in range(11))])
def test_a_line_that_is_no_comparison_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"such as city = Penang|at most 10"):
        read_conditions(text)


@pytest.mark.parametrize(
    "stored",
    [
        {"city": "Penang"},
        [["city", "="]],
        [["city", "LIKE", "x"]],
        [["city'; DROP TABLE x", "=", "x"]],
        [["city", "=", 3]],
        [["city", "=", "x" * 501]],
        [["city", "=", "\x00"]],
        [["city", "=", "x"]] * 11,
        "text",
    ],
)
def test_stored_conditions_that_cannot_be_used_are_refused(stored: Any) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        stored_conditions(stored)
    with pytest.raises(ValidationError):
        Segment(name="x", fields=stored).clean()


@pytest.mark.django_db
def test_the_database_refuses_what_clean_refuses() -> None:
    owner = UserFactory.create()
    refused: list[dict[str, Any]] = [{"tags": []}, {"not_contacted_days": 4000}, {"fields": [["a", "=", "b"]] * 11}]
    for fields in refused:
        with pytest.raises((IntegrityError, DataError)), transaction.atomic():
            Segment.objects.create(**{"owner": owner, "name": "x", "tags": ["a"]} | fields)
    SegmentFactory.create(owner=owner, name="x")
    with pytest.raises(IntegrityError), transaction.atomic():
        SegmentFactory.create(owner=owner, name="x")


@pytest.mark.django_db
def test_in_words() -> None:
    segment = SegmentFactory.create(
        tags=["choir", "north"],
        without_tags=["vip"],
        fields=[["city", "=", "Penang"], ["flat", "=", ""], ["floor", "!=", ""]],
        not_replied_to=ReminderFactory.create(title="Market"),
        not_contacted_days=30,
    )
    assert segment.words == (
        "tagged choir or north, not tagged vip, city is Penang, flat is empty, floor is filled in, "
        "got “Market” and did not reply, not contacted for 30 days"
    )
