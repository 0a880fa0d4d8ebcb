"""Counting up to a cap."""

from __future__ import annotations

from fanout.admin.model_admin import CappedPaginator, capped_counts
from fanout.admin.widgets import capped_number
from fanout.models import RunTarget
from tests.factories import RunFactory


def test_counts_stop_at_the_cap(db, django_assert_num_queries):
    RunFactory.create(targets={"pending": 5, "sent": 2})
    rows = RunTarget.objects.all()
    with django_assert_num_queries(1):
        counts = capped_counts({"all": rows, "sent": rows.filter(status="sent")}, 3)
    assert counts == {"all": 4, "sent": 2}
    assert [capped_number(n, 3) for n in counts.values()] == ["3+", "2"]
    assert capped_counts({}, 3) == {}


def test_the_paginator_takes_lists_too():
    assert CappedPaginator([1, 2, 3], 2).num_pages == 2
