"""`manage.py import_recipients`: lists of addresses become recipients."""

from __future__ import annotations

import pytest

from fanout.models import TrailEntry
from reminders.models import Recipient
from tests.commands.calling import bad_input, data, not_done, text, written
from tests.factories import (
    RecipientFactory,
    UserFactory,
)
from tests.reminders.test_tables import excel

pytestmark = pytest.mark.django_db


def test_one_address_per_line_in_any_spelling(owner, tmp_path):
    path = written(
        tmp_path, "# friends\n+49 176 12345678\n\n0049-176-12345678\n120363025246125486@g.us\nAnn@Example.com\n"
    )
    found = data("import_recipients", path, "--tag", "new")
    assert (found["read"], found["added"], found["known"], found["repeated"]) == (3, 3, 0, 1)
    kinds = dict(Recipient.objects.values_list("address", "kind"))
    assert kinds == {"+4917612345678": "person", "120363025246125486@g.us": "group", "ann@example.com": "mailbox"}
    assert Recipient.objects.filter(tags=["new"]).count() == 3
    assert data("import_recipients", path)["known"] == 3


def test_csv_with_names_and_tags(owner, tmp_path):
    path = written(tmp_path, 'Address,Name,Tags\nann@example.com,"Ann, the first",choir;parents\n')
    text("import_recipients", path, "--tag", "spring")
    ann = Recipient.objects.get()
    assert (ann.name, ann.tags) == ("Ann, the first", ["choir", "parents", "spring"])


def test_an_excel_file(owner, tmp_path):
    path = tmp_path / "list.xlsx"
    path.write_bytes(excel(("Name", "Mobile", "Flat"), ("Ann", 4917612345678, "12 B")))
    assert data("import_recipients", str(path))["added"] == 1
    ann = Recipient.objects.get()
    assert (ann.name, ann.address, ann.fields) == ("Ann", "+4917612345678", {"flat": "12 B"})
    path.write_bytes(b"PK\x03\x04 no archive")
    assert "The Excel file cannot be read" in bad_input("import_recipients", str(path))


def test_existing_recipients_keep_their_name_and_tags(owner, tmp_path):
    RecipientFactory(owner=owner, kind="mailbox", address="ann@example.com", name="Ann", status="opted_out")
    assert data("import_recipients", written(tmp_path, "ANN@example.com\n"))["added"] == 0
    assert Recipient.objects.get().status == "opted_out"


def test_a_faulty_line_stops_the_whole_list(owner, tmp_path):
    path = written(tmp_path, "ann@example.com\nnonsense\n")
    assert "line 2 (nonsense): This is not a phone number." in bad_input("import_recipients", path)
    assert not Recipient.objects.exists()
    found = data("import_recipients", path, "--skip-invalid")
    assert (found["added"], len(found["invalid"])) == (1, 1)


def test_a_region_completes_numbers(owner, tmp_path):
    text("import_recipients", written(tmp_path, "0176 12345678\n"), "--region", "de")
    assert Recipient.objects.get().address == "+4917612345678"


def test_dry_run_reads_only(owner, tmp_path):
    assert data("import_recipients", written(tmp_path, "ann@example.com\n"), "--dry-run")["read"] == 1
    assert not Recipient.objects.exists()


@pytest.mark.parametrize(
    ("content", "words", "says"),
    [
        pytest.param("", (), "no addresses in it", id="empty"),
        pytest.param("a@b.c\n", ("--region", "XX"), "is not a country", id="country"),
        pytest.param("a@b.cd\n", ("--owner", "nobody"), "There is no user", id="owner"),
        pytest.param("address,kind\nx,pigeon\n", (), "is not one of", id="kind"),
        pytest.param("address,name\na@b.cd,An\x00n\n", (), "The line contains a NUL", id="NUL"),
        pytest.param(f"address,name\na@b.cd,{'x' * 200_000}\n", (), "field larger than", id="200 KB in CSV"),
        pytest.param(f"{'x' * 200_000}\n", (), "The address is too long", id="200 KB in a line"),
        pytest.param(f"address,tags\na@b.cd,{'x' * 61}\n", (), "A tag has at most 60", id="long tag"),
        pytest.param("a@b.cd\n", ("--tag", "x" * 61), "A --tag has at most 60", id="long tag for all"),
    ],
)
def test_bad_lists_are_one_sentence(owner, tmp_path, content, words, says):
    assert says in bad_input("import_recipients", written(tmp_path, content), *words)
    assert not Recipient.objects.exists()


def test_a_missing_file_and_no_owner():
    assert "--owner" in bad_input("import_recipients", "nowhere.csv")
    UserFactory(is_superuser=True)
    assert "cannot be read" in bad_input("import_recipients", "nowhere.csv")


# --- fields, and addresses that were erased -------------------------------------------------------------------


def test_an_import_is_in_the_audit_trail_as_the_admin_s_is(tmp_path, owner):
    text("import_recipients", written(tmp_path, "ann@example.com\n"), "--dry-run")
    assert not TrailEntry.objects.exists()
    text("import_recipients", written(tmp_path, "ann@example.com\n"))
    entry = TrailEntry.objects.get()
    assert (entry.verb, entry.detail, entry.actor_id) == ("imported recipients", "1 recipient", None)


def test_an_erased_address_is_named_by_its_line(tmp_path, owner):
    path = written(tmp_path, "bob@example.com\nann@example.com\n")
    text("import_recipients", path)
    Recipient.objects.filter(address="ann@example.com").update(status="opted_out")
    assert "--yes" in bad_input("erase", "Ann@example.com")
    assert data("erase", "Ann@example.com", "--yes")["text"].startswith("Erased: recipients 1, ")
    assert "nothing about this address" in not_done("erase", "ann@example.com", "--yes")
    assert "not a" in bad_input("erase", "nonsense", "--yes")
    assert "line 2: This address was erased" in bad_input("import_recipients", path)
    assert data("import_recipients", path, "--skip-invalid")["known"] == 1
