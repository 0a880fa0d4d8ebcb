"""Suppressions: which one wins where an address has one already, and lists of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from reminders import suppressions
from reminders.models import Suppression
from reminders.suppressions import NewSuppression, in_force, lift, suppress, suppress_all
from tests.factories import SuppressionFactory, UserFactory

NOW = datetime(2026, 7, 1, 12, 0, tzinfo=UTC)
ANN = "ann@example.org"
WEEK, MONTH = NOW + timedelta(days=7), NOW + timedelta(days=30)


def new(address: str = ANN, reason: str = "manual", **more: Any) -> NewSuppression:
    return NewSuppression(address, reason, "operator", "", NOW, **more)


@pytest.mark.parametrize(
    ("until", "then", "wins"),
    [
        pytest.param(None, None, False, id="for ever stays"),
        pytest.param(None, WEEK, False, id="for ever beats a week"),
        pytest.param(MONTH, WEEK, False, id="a month beats a week"),
        pytest.param(WEEK, WEEK, False, id="the same"),
        pytest.param(WEEK, MONTH, True, id="a week gives way to a month"),
        pytest.param(WEEK, None, True, id="a week gives way to for ever"),
        pytest.param(NOW, WEEK, True, id="one that has expired"),
    ],
)
@pytest.mark.django_db
def test_the_one_that_holds_longer_wins(until: datetime | None, then: datetime | None, wins: bool) -> None:
    SuppressionFactory.create(address=ANN, reason="unsubscribed", expires_at=until)
    user = UserFactory.create()

    assert suppress(new(expires_at=then, added_by=user.pk)) is wins

    row = Suppression.objects.get()
    expected = ("manual", "operator", then, user) if wins else ("unsubscribed", "provider", until, None)
    assert (row.reason, row.source, row.expires_at, row.added_by) == expected


@pytest.mark.django_db
def test_one_statement_may_name_an_address_twice() -> None:
    """Two accounts of one driver whose mail to the same address is refused in the same moment."""
    assert suppress_all([new(expires_at=WEEK), new(reason="complaint"), new("bob@example.org")]) == 2
    assert Suppression.objects.get(address=ANN).reason == "complaint"


@pytest.mark.django_db
def test_nothing_to_suppress() -> None:
    assert suppress_all([]) == 0


@pytest.mark.django_db
def test_expired_suppressions_have_no_effect() -> None:
    for address, until in (("a@example.org", None), ("b@example.org", WEEK), ("c@example.org", NOW)):
        SuppressionFactory.create(address=address, expires_at=until)
    rows = Suppression.objects.filter(in_force(NOW)).order_by("address")
    assert list(rows.values_list("address", flat=True)) == ["a@example.org", "b@example.org"]


@pytest.mark.django_db
def test_lifting_returns_the_addresses() -> None:
    SuppressionFactory.create(address=ANN)
    assert lift([ANN, "bob@example.org"]) == [ANN]
    assert not Suppression.objects.exists()


# --- lists ------------------------------------------------------------------------------------------------


def read(text: str) -> suppressions.SuppressionList:
    return suppressions.read_list(text, None, NOW)


def test_an_address_per_line_in_any_spelling() -> None:
    listed = read("Ann@Example.ORG\n\n# friends\n+49 176 1234 5678\nann@example.org\n")

    assert [entry.address for entry in listed.entries] == [ANN, "+4917612345678"]
    assert {(entry.reason, entry.source, entry.expires_at) for entry in listed.entries} == {("manual", "import", None)}
    assert listed.problems == []


def test_columns_in_any_order() -> None:
    listed = read(
        "\ufeffReason,address,expires_at,detail,other\n"
        'complaint,ann@example.org,2026-12-31,"called, twice",x\n'
        ",'+4917612345678,2026-12-31T12:00:00+02:00\n"
    )

    first, second = listed.entries
    assert (first.reason, first.detail, first.expires_at) == (
        "complaint",
        "called, twice",
        datetime(2026, 12, 31, tzinfo=UTC),
    )
    assert (second.address, second.reason, second.expires_at) == (
        "+4917612345678",
        "manual",
        datetime(2026, 12, 31, 10, tzinfo=UTC),
    )


def test_each_line_has_its_own_problem() -> None:
    listed = read(
        "address,reason,expires_at\n"
        "nobody,,\n"
        "ann@example.org,angry,\n"
        "bob@example.org,,tomorrow\n"
        "cem@example.org,,0001-01-01T00:00:00+14:00\n"
        "\x00,,\n"
        "dan@example.org,,\n"
    )

    assert [entry.address for entry in listed.entries] == ["dan@example.org"]
    assert [problem.split(" (")[0] for problem in listed.problems] == [f"line {n}" for n in range(2, 7)]
    assert "“angry” is not one of hard_bounce, soft_bounces," in listed.problems[1]
    assert listed.problems[2].endswith("“tomorrow” is not a time; write it like 2026-12-31.")
