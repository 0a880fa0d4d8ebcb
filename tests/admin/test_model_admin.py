"""Counting up to a cap."""

from __future__ import annotations

from fanout.admin.model_admin import CappedPaginator, capped_counts, capped_kinds
from fanout.admin.widgets import capped_number
from fanout.models import RunTarget
from reminders.models import Recipient
from tests.factories import RecipientFactory, RunFactory


def test_counts_stop_at_the_cap(db, django_assert_num_queries):
    RunFactory.create(targets={"pending": 5, "sent": 2})
    rows = RunTarget.objects.all()
    with django_assert_num_queries(1):
        counts = capped_counts({"all": rows, "sent": rows.filter(status="sent")}, 3)
    assert counts == {"all": 4, "sent": 2}
    assert [capped_number(n, 3) for n in counts.values()] == ["3+", "2"]
    assert capped_counts({}, 3) == {}


def test_kinds_are_counted_up_to_the_cap(db, django_assert_num_queries):
    for kind, address in (("person", "+4917612345678"), ("mailbox", "a@example.com"), ("mailbox", "b@example.com")):
        RecipientFactory.create(kind=kind, address=address)
    rows = Recipient.objects.all()
    with django_assert_num_queries(1):
        kinds = capped_kinds({"all": rows, "mail": rows.filter(kind="mailbox"), "groups": rows.filter(kind="group")}, 5)
    assert kinds == {"all": {"person": 1, "mailbox": 2}, "mail": {"mailbox": 2}, "groups": {}}
    assert capped_kinds({"all": rows}, 1)["all"].total() == 2
    assert capped_kinds({}, 3) == {}


def test_the_paginator_takes_lists_too():
    assert CappedPaginator([1, 2, 3], 2).num_pages == 2
