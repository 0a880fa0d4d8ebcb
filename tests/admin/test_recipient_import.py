"""The import of recipients in the browser: a preview first, then the import."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from django.contrib.messages import get_messages
from django.core import signing
from django.core.files.uploadedfile import SimpleUploadedFile
from django.urls import reverse
from django.utils import timezone

from fanout.admin import recipient_import
from fanout.models import TrailEntry
from reminders import erasure
from reminders.models import Recipient
from tests.admin.conftest import login
from tests.factories import RecipientFactory, SuppressionFactory
from tests.reminders.test_tables import excel

pytestmark = pytest.mark.django_db
IMPORT = reverse("admin:reminders_recipient_import")
LIST = reverse("admin:reminders_recipient_changelist")
CSV = "Name,Phone,Flat No.\nAnn,+49 176 12345678,12 B\nBob,nonsense,\nCid,+49 176 12345679,\n"


def upload(user: Any, content: bytes | str = CSV, name: str = "list.csv") -> Any:
    content = content.encode() if isinstance(content, str) else content
    return login(user).post(IMPORT, {"file": SimpleUploadedFile(name, content)})


def hidden(page: Any, name: str) -> str:
    match = re.search(rf'name="{name}" value="([^"]*)"', page.content.decode())
    assert match, page.content.decode()
    return html.unescape(match[1])


def choices(page: Any, **changed: str) -> dict[str, str]:
    """Return the data of the preview's form, with some values changed."""
    form = page.context["choices"]
    initial = {f"column-{n}": use for n, use in enumerate(form.layout.uses)} | {"tag_present": "on"}
    header = {"header": "on"} if form.layout.header else {}
    return initial | header | {"rows": hidden(page, "rows"), "previewed": hidden(page, "previewed")} | changed


def done(user: Any, page: Any, **changed: str) -> Any:
    return login(user).post(IMPORT, choices(page, **changed) | {"import": "yes"})


def said(answer: Any) -> list[str]:
    return [str(message) for message in get_messages(answer.wsgi_request)]


def test_nothing_is_stored_before_the_preview(operator: Any) -> None:
    page = upload(operator)
    text = page.content.decode()
    assert "line 3 (Bob nonsense): This is not a phone number." in text
    assert "Import 2 recipients" in text
    assert "+4917612345678" in text
    assert "in texts: &#123;flat_no&#125;" in text
    assert not Recipient.objects.exists()


def test_the_previewed_list_is_imported(operator: Any) -> None:
    answer = done(operator, upload(operator))
    assert answer.url == LIST
    assert said(answer) == ["2 recipients added. Left out because they cannot be used: 1 row."]
    ann = Recipient.objects.get(name="Ann")
    assert (ann.owner, ann.address, ann.kind, ann.fields) == (operator, "+4917612345678", "person", {"flat_no": "12 B"})
    entry = TrailEntry.objects.get(verb="imported recipients")
    assert (entry.actor_id, entry.detail) == (operator.pk, "2 recipients")


def test_excel(operator: Any) -> None:
    page = upload(operator, excel(("Name", "Mobile"), ("Ann", 4917612345678)), "list.xlsx")
    done(operator, page)
    assert Recipient.objects.get().address == "+4917612345678"


def test_pasted_rows(operator: Any) -> None:
    page = login(operator).post(IMPORT, {"paste": "Ann\tann@example.com\nBob\tbob@example.com"})
    done(operator, page)
    assert set(Recipient.objects.values_list("name", flat=True)) == {"Ann", "Bob"}


def test_other_choices_are_previewed_again_before_they_count(operator: Any) -> None:
    page = done(operator, upload(operator), **{"column-2": ""})
    assert "You changed something since the last preview" in page.content.decode()
    assert not Recipient.objects.exists()
    done(operator, page)
    assert Recipient.objects.get(name="Ann").fields == {}


@pytest.mark.parametrize("uses", [{"column-1": ""}, {"column-0": "address"}], ids=["no address", "two"])
def test_exactly_one_column_is_the_address(operator: Any, uses: dict[str, str]) -> None:
    page = done(operator, upload(operator), **uses)
    assert "Choose exactly one column that is the address." in page.content.decode()
    assert not Recipient.objects.exists()


def test_tags_are_added_to_existing_recipients_too(operator: Any) -> None:
    RecipientFactory.create(owner=operator, kind="person", address="+4917612345678", name="Ann Lee", tags=["old"])
    page = login(operator).post(IMPORT, choices(upload(operator), tags="choir, spring"))
    assert "<b>1</b> already in your list" in page.content.decode()
    answer = done(operator, page, tags="choir, spring")
    assert said(answer)[0].startswith("1 recipient added. Already in your list: 1.")
    assert answer.url == f"{LIST}?tag=choir"
    ann = Recipient.objects.get(name="Ann Lee")
    assert ann.tags == ["old", "choir", "spring"]
    assert Recipient.objects.get(name="Cid").tags == ["choir", "spring"]


def test_the_country_is_asked_for_once_for_all(operator: Any) -> None:
    page = upload(operator, "Ann;012-345 6789\nBob;019-345 6789")
    assert "needs its country code" in page.content.decode()
    page = login(operator).post(IMPORT, choices(page, region="MY"))
    done(operator, page, region="MY")
    assert Recipient.objects.filter(address="+60123456789").exists()


def test_suppressed_rows_are_counted_and_erased_ones_refused(operator: Any) -> None:
    SuppressionFactory.create(address="+4917612345678")
    erasure.remember("+4917612345679", timezone.now())
    text = upload(operator).content.decode()
    assert "<b>1</b> suppressed" in text
    assert f"line 4: {erasure.REFUSED}" in text


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"x" * 5_000_001], ids=["empty", "broken", "large"])
def test_invalid_files_are_refused(operator: Any, content: bytes) -> None:
    page = upload(operator, content)
    assert page.status_code == 200
    assert "errorlist" in page.content.decode()


def test_cells_are_shown_as_text(operator: Any) -> None:
    text = upload(operator, "name,phone\n<script>alert(1)</script>,+4917612345678\n=1+1,<img>\n").content.decode()
    assert "<script>alert" not in text
    assert "<img>" not in text


def test_rows_of_another_person_or_of_yesterday_are_not_taken(operator: Any, colleague: Any) -> None:
    page = upload(operator)
    assert done(colleague, page).url == IMPORT
    forged = signing.dumps({"user": operator.pk, "rows": [["ann@example.com"]]}, salt="another", compress=True)
    answer = done(operator, page, rows=forged)
    assert said(answer) == ["The preview has expired: choose the file again."]
    assert not Recipient.objects.exists()


def test_a_list_that_does_not_fit_into_a_form(operator: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipient_import, "MOST_SIGNED", 100)
    assert "too long for one import" in upload(operator).content.decode()


@pytest.mark.slow
def test_five_thousand_rows_in_few_statements(operator: Any, django_assert_max_num_queries: Any) -> None:
    lines = "\n".join(f"P {n},p{n}@example.com" for n in range(5_000))
    page = upload(operator, f"name,email\n{lines}")
    client, data = login(operator), choices(page, tags="big") | {"import": "yes", "tags": "big"}
    page = client.post(IMPORT, data)
    with django_assert_max_num_queries(30):
        client.post(IMPORT, choices(page, tags="big") | {"import": "yes"})
    assert Recipient.objects.filter(owner=operator, tags=["big"]).count() == 5_000


def test_a_viewer_does_not_import(viewer: Any) -> None:
    assert login(viewer).get(IMPORT).status_code == 403
    assert "Import a list" not in login(viewer).get(LIST).content.decode()
