"""`suppress`: addresses in and out, from the shell."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from fanout.models import TrailEntry
from reminders.models import Suppression
from tests.commands.calling import bad_input, data, not_done, text
from tests.factories import SuppressionFactory, UserFactory

pytestmark = pytest.mark.django_db


def test_add_and_remove() -> None:
    words = ("--reason", "complaint", "--detail", "by phone", "--days", "30")
    assert data("suppress", "add", "Ann@Example.org", "+49 176 12345678", *words) == {"added": 2, "known": 0}

    row = Suppression.objects.get(address="ann@example.org")
    assert (row.reason, row.source, row.detail) == ("complaint", "operator", "by phone")
    assert row.expires_at is not None
    assert abs(row.expires_at - timezone.now() - timedelta(days=30)) < timedelta(minutes=1)
    assert text("suppress", "add", "ann@example.org", "--days", "1").startswith("0 of 1 addresses")

    assert data("suppress", "remove", "ANN@example.org", "bob@example.org") == {"removed": ["ann@example.org"]}
    assert not_done("suppress", "remove", "ann@example.org") == "None of these addresses is suppressed."
    noted = TrailEntry.objects.order_by("pk").values_list("verb", "detail")
    assert list(noted) == [
        ("suppressed", "2 addresses"),
        ("suppressed", "0 addresses"),
        ("lifted suppressions", "1 address"),
    ]


@pytest.mark.parametrize(
    "words",
    [("add", "nobody"), ("add", "ann@example.org", "--days", "0"), ("remove", "nobody"), ("import", "/no/such/file")],
)
def test_bad_input(words: tuple[str, ...]) -> None:
    assert bad_input("suppress", *words)
    assert not Suppression.objects.exists()


def test_an_export_can_be_imported_again(tmp_path: Path) -> None:
    """Though a spreadsheet gets no formulas from it."""
    user, path = UserFactory.create(username="mei"), tmp_path / "list.csv"
    SuppressionFactory.create(address="+4917612345678", detail="=1+1, really", added_by=user)
    SuppressionFactory.create(address="ann@example.org", reason="soft_bounces", expires_at=timezone.now())
    before = list(Suppression.objects.order_by("pk").values_list("address", "reason", "detail", "expires_at"))

    assert text("suppress", "export", "--out", str(path)) == "2 suppressions exported.\n"
    lines = path.read_text().splitlines()
    assert lines[0] == "address,reason,source,detail,created_at,expires_at,added_by"
    assert lines[1].startswith("'+4917612345678,manual,provider,\"'=1+1, really\",")
    assert lines[1].endswith(",,mei")
    assert text("suppress", "export").splitlines() == lines
    assert data("suppress", "export")["suppressions"][0]["address"] == "+4917612345678"

    Suppression.objects.all().delete()
    assert data("suppress", "import", str(path)) == {"read": 2, "added": 2, "invalid": []}
    after = Suppression.objects.order_by("pk").values_list("address", "reason", "detail", "expires_at")
    assert [row[:3] for row in after] == [row[:3] for row in before]
    assert set(Suppression.objects.values_list("source", flat=True)) == {"import"}


def test_a_faulty_line_stops_the_whole_list(tmp_path: Path) -> None:
    path = tmp_path / "list.csv"
    path.write_text("ann@example.org\nnobody\n")

    assert "line 2 (nobody)" in bad_input("suppress", "import", str(path))
    assert not Suppression.objects.exists()
    assert data("suppress", "import", str(path), "--skip-invalid")["added"] == 1
