"""The list of suppressions: by hand, with an expiry, and as a file."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.urls import reverse
from django.utils import timezone

from fanout.models import TrailEntry
from reminders.models import Suppression
from tests.admin.conftest import login
from tests.factories import SuppressionFactory

pytestmark = pytest.mark.django_db
LIST = reverse("admin:reminders_suppression_changelist")
ADD = reverse("admin:reminders_suppression_add")
IMPORT = reverse("admin:reminders_suppression_import")
ANN = {"address": "Ann@Example.org", "reason": "manual", "detail": "by phone"}


def until(days: int) -> dict[str, str]:
    moment = timezone.now() + timedelta(days=days)
    return {"expires_at_0": f"{moment:%Y-%m-%d}", "expires_at_1": f"{moment:%H:%M:%S}"}


def test_the_list_shows_who_added_it_and_until_when(operator: Any) -> None:
    assert login(operator).post(ADD, ANN | until(10)).status_code == 302

    row = Suppression.objects.get()
    assert (row.address, row.source, row.added_by, row.detail) == ("ann@example.org", "operator", operator, "by phone")
    assert row.expires_at is not None


def test_an_end_in_the_past_is_refused(operator: Any) -> None:
    answer = login(operator).post(ADD, ANN | until(-1))

    assert "This moment has passed." in answer.content.decode()
    assert not Suppression.objects.exists()


def test_one_that_has_expired_can_be_added_again(operator: Any) -> None:
    old = SuppressionFactory.create(address="ann@example.org", reason="soft_bounces", expires_at=timezone.now())

    assert login(operator).post(ADD, ANN).status_code == 302

    row = Suppression.objects.get()
    assert (row.reason, row.source, row.expires_at, row.added_by) == ("manual", "operator", None, operator)
    assert row.created_at > old.created_at


def test_one_that_holds_cannot(operator: Any) -> None:
    SuppressionFactory.create(address="ann@example.org", reason="unsubscribed")

    assert "already exists" in login(operator).post(ADD, ANN).content.decode()
    assert Suppression.objects.get().reason == "unsubscribed"


@pytest.mark.parametrize(("holding", "shown"), [("", "ab"), ("yes", "a"), ("no", "b"), ("nonsense", "ab")])
def test_the_list_shows_what_has_expired(operator: Any, holding: str, shown: str) -> None:
    SuppressionFactory.create(address="a@example.org")
    SuppressionFactory.create(address="b@example.org", expires_at=timezone.now())

    page = login(operator).get(LIST, {"holding": holding} if holding else {}).content.decode()

    assert [letter for letter in "ab" if f"{letter}@example.org" in page] == list(shown)
    assert ("expired</span>" in page) == ("b" in shown)


def test_export(operator: Any) -> None:
    SuppressionFactory.create(address="+4917612345678")

    answer: Any = login(operator).get(reverse("admin:reminders_suppression_export"))

    assert b"".join(answer.streaming_content).decode().splitlines()[1].startswith("'+4917612345678,manual,")
    assert TrailEntry.objects.filter(verb="exported the suppressions", actor_id=operator.pk).exists()


def upload(operator: Any, content: bytes, **fields: str) -> Any:
    return login(operator).post(IMPORT, {"file": SimpleUploadedFile("list.csv", content), **fields}, follow=True)


def test_import(operator: Any) -> None:
    answer = upload(operator, b"address,reason\nann@example.org,complaint\nbob@example.org,\n")

    assert "2 addresses suppressed. Already suppressed: 0." in answer.content.decode()
    row = Suppression.objects.get(address="ann@example.org")
    assert (row.reason, row.source, row.added_by) == ("complaint", "import", operator)


def test_a_faulty_line_is_named_and_nothing_is_imported(operator: Any) -> None:
    content = b"ann@example.org\nnobody\n<script>\n"
    page = upload(operator, content).content.decode()

    assert "2 unusable lines; nothing was imported." in page
    assert "line 2 (nobody): " in page
    assert "line 3 (&lt;script&gt;): " in page
    assert not Suppression.objects.exists()

    page = upload(operator, content, skip_invalid="on").content.decode()
    assert "Skipped: line 2 (nobody): " in page
    assert Suppression.objects.count() == 1


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"a" * 5_000_001], ids=["empty", "not text", "large"])
def test_invalid_files_are_refused(operator: Any, content: bytes) -> None:
    assert upload(operator, content).status_code == 200
    assert not Suppression.objects.exists()


def test_a_viewer_reads_only(viewer: Any) -> None:
    assert login(viewer).get(IMPORT).status_code == 403
    assert "Import a list" not in login(viewer).get(LIST).content.decode()


def test_a_suppression_is_stored_in_one_spelling(operator):
    data = {"address": "Ann@Example.com", "reason": "manual", "detail": ""}
    login(operator).post(reverse("admin:reminders_suppression_add"), data)
    assert Suppression.objects.get().address == "ann@example.com"
