"""import_recipients, export_run, runs."""

from __future__ import annotations

import csv
import io
import re
from datetime import timedelta

import pytest
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from fanout.models import Run, TrailEntry
from fanout.ops import exports
from reminders import imports
from reminders.models import Recipient, Suppression
from tests.commands.calling import bad_input, data, not_done, text
from tests.factories import (
    AccountFactory,
    RecipientFactory,
    RunFactory,
    RunTargetFactory,
    SuppressionFactory,
    UserFactory,
)
from tests.reminders.test_tables import excel

pytestmark = pytest.mark.django_db


@pytest.fixture
def owner():
    return UserFactory.create(username="admin", is_superuser=True)


def written(tmp_path, content: str) -> str:
    path = tmp_path / "list.csv"
    path.write_text(content)
    return str(path)


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


def test_what_is_there_stays_as_it_is(owner, tmp_path):
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


# --- export -------------------------------------------------------------------------------------------------


def test_export_has_a_line_per_target():
    run = RunFactory.create(targets={"sent": 2, "failed": 1})
    rows = list(csv.DictReader(io.StringIO(text("export_run", str(run.pk)))))
    assert [row["status"] for row in rows] == ["sent", "sent", "failed"]
    assert rows[0]["address"] == run.targets.all()[0].address


def test_export_takes_no_formulas_along():
    run = RunFactory.create()
    RunTargetFactory(run=run, recipient__name="=cmd|' /C calc'!A0", error="@evil")
    (row,) = csv.DictReader(io.StringIO(text("export_run", str(run.pk))))
    assert (row["name"], row["error"]) == ("'=cmd|' /C calc'!A0", "'@evil")


@pytest.mark.parametrize(
    ("typed", "written"),
    [
        ("x;=cmd()", "x;'=cmd()"),
        ("x;  +1+1", "x;  '+1+1"),
        ("a\t@SUM(1)", "a\t'@SUM(1)"),
        (" =1", " '=1"),
        ("+4917612345678", "+4917612345678"),
        ("a-b = c; d", "a-b = c; d"),
    ],
)
def test_exported_cells_are_neutral_after_any_separator(typed, written):
    run = RunFactory.create(targets={"pending": 1})
    Recipient.objects.update(name=typed)
    (row,) = csv.DictReader(io.StringIO(text("export_run", str(run.pk))))
    assert row["name"] == written


@pytest.mark.parametrize("typed", ["x;=cmd()", "=1;=2", "'=1", "''=1", "a|\t=1", "it's, '-1", "a;b"])
def test_recipients_are_neutral_too_and_come_back_as_they_were(typed, tmp_path, owner):
    facts = {"name": typed, "tags": ["=2", "a"], "fields": {"flat": typed}}
    RecipientFactory.create(owner=owner, kind="person", address="+4917612345678", **facts)
    exported = text("export_recipients")
    assert not re.search(r"[;,|\t]\s*[=@]", exported)
    assert "'+4917612345678" in exported  # or a spreadsheet would take it for a number
    Recipient.objects.all().delete()
    text("import_recipients", written(tmp_path, exported))
    (back,) = Recipient.objects.all()
    assert (back.name, back.fields, back.tags) == (typed, {"flat": typed}, ["=2", "a"])


def test_suppressions_are_neutral_too(tmp_path):
    SuppressionFactory.create(address="ann@example.com", reason="manual", detail="x;=cmd()")
    exported = text("suppress", "export")
    assert "x;'=cmd()" in exported
    Suppression.objects.all().delete()
    text("suppress", "import", written(tmp_path, exported))
    assert Suppression.objects.get().detail == "x;=cmd()"


@given(st.text(alphabet="=+-@';,| \t\nab", max_size=12))
def test_what_is_guarded_is_found_again(typed):
    guarded = exports.cell(typed)
    assert imports.unguarded(guarded) == typed
    assert not re.search(r"(^|[;,|\t\r\n])\s*[=+@-]", guarded)


def test_export_to_a_file_and_as_json(tmp_path):
    run = RunFactory.create(targets={"pending": 2})
    assert data("export_run", str(run.pk), "--out", str(tmp_path / "x.csv"))["targets"] == 2
    assert len((tmp_path / "x.csv").read_text().splitlines()) == 3
    assert [target["status"] for target in data("export_run", str(run.pk))["targets"]] == ["pending"] * 2
    assert "cannot be written" in not_done("export_run", str(run.pk), "--out", "/nowhere/x.csv")
    assert "There is no run" in bad_input("export_run", "999999")


# --- runs ---------------------------------------------------------------------------------------------------


def test_runs_are_listed_and_filtered():
    live = RunFactory.create(targets={"pending": 2}, status="running", waiting_why="")
    paused = RunFactory.create(targets={"pending": 1}, status="paused", pause_reason="operator")
    RunFactory(archived=True, status="success")
    assert {run["run"] for run in data("runs")["runs"]} == {live.pk, paused.pk}
    assert [run["run"] for run in data("runs", "--live")["runs"]] == [live.pk]
    assert [run["run"] for run in data("runs", "--status", "paused")["runs"]] == [paused.pk]
    assert len(data("runs", "--archived")["runs"]) == 3
    assert [run["run"] for run in data("runs", "--account", live.account.label)["runs"]] == [live.pk]
    assert "paused (paused by an operator)" in text("runs")
    assert "--limit" in bad_input("runs", "--limit", "0")
    assert "--limit takes a whole number from 1 to 100000" in bad_input("runs", "--limit", "9" * 20)


def test_runs_say_when_they_are_done_and_what_they_wait_behind():
    account = AccountFactory.create(max_send_per_minute=1, send_burst=1)
    facts = {"account": account, "status": "running", "targets": {"pending": 30}}
    first = RunFactory.create(title="Rent", scheduled_for=timezone.now() - timedelta(minutes=2), **facts)
    RunFactory.create(title="Market", scheduled_for=timezone.now() - timedelta(minutes=1), **facts)
    later, sooner = data("runs", "--live")["runs"]
    assert (sooner["run"], sooner["per_minute"], sooner["waiting_why"]) == (first.pk, None, "")
    assert later["waiting_why"] == "waiting behind Rent (30 left, about 30 min)"
    assert sooner["expected_end"] < later["expected_end"]


def test_message_2_is_listed_by_itself():
    run = RunFactory.create(targets={"sent": 2}, status="success")
    child = RunFactory.create(answers=run, title="Rent (Message 2)", status="waiting")
    RunTargetFactory(run=child, recipient=run.targets.all()[0].recipient, status="pending")
    assert [row["run"] for row in data("runs")["runs"]] == [run.pk]
    assert [row["run"] for row in data("runs", "--live")["runs"]] == [child.pk]
    (row,) = data("runs", "--message-2")["runs"]
    assert (row["run"], row["answers"], row["pending"]) == (child.pk, run.pk, 1)
    assert [one["message_2"] for one in data("export_run", str(run.pk))["targets"]] == ["pending", None]
    assert len(data("export_run", str(child.pk))["targets"]) == 1
    assert data("why", "--run", str(child.pk))["why"][0]["label"] == "Rent (Message 2)"


def test_message_2_that_waits_for_a_hand_is_among_the_runs():
    run = RunFactory.create(status="success")
    child = RunFactory.create(answers=run, status="paused", pause_reason="circuit_breaker")
    assert {row["run"] for row in data("runs")["runs"]} == {run.pk, child.pk}
    Run.objects.filter(pk=child.pk).update(resume_at=run.scheduled_for)
    assert {row["run"] for row in data("runs")["runs"]} == {run.pk}


def test_a_report_has_the_planned_time_and_the_slip():
    run = RunFactory.create(status="queued")
    RunTargetFactory(run=run, planned_at=run.scheduled_for - timedelta(hours=1))
    slip = {"from": (run.scheduled_for - timedelta(hours=1)).isoformat(), "to": run.scheduled_for.isoformat()}
    Run.objects.update(slips={str(run.account_id): slip | {"why": "Outside send window"}})
    (row,) = csv.DictReader(io.StringIO(text("export_run", str(run.pk))))
    assert row["planned_for"] == run.scheduled_for.isoformat(timespec="milliseconds")
    assert row["slip_reason"] == "Outside send window"
    (line,) = data("why", "--run", str(run.pk))["why"]
    assert (line["planned_for"], line["slip_reason"]) == (run.scheduled_for.isoformat(), "Outside send window")


# --- fields, and addresses that were erased -------------------------------------------------------------------


def test_an_import_is_in_the_audit_trail_as_the_admin_s_is(tmp_path, owner):
    text("import_recipients", written(tmp_path, "ann@example.com\n"), "--dry-run")
    assert not TrailEntry.objects.exists()
    text("import_recipients", written(tmp_path, "ann@example.com\n"))
    entry = TrailEntry.objects.get()
    assert (entry.verb, entry.detail, entry.actor_id) == ("imported recipients", "1 recipient", None)


def test_what_is_exported_can_be_imported_again(tmp_path, owner):
    listed = 'address,name,tags,flat\n+60123456789,Ann,choir;soprano,"12, B"\nbob@example.com,=1+1,,\n'
    text("import_recipients", written(tmp_path, listed))
    out = str(tmp_path / "out.csv")
    assert data("export_recipients", "--out", out)["recipients"] == 2
    Recipient.objects.all().delete()
    assert data("import_recipients", out)["added"] == 2
    ann, bob = Recipient.objects.order_by("pk")
    assert (ann.address, ann.name, ann.tags, ann.fields) == (
        "+60123456789",
        "Ann",
        ["choir", "soprano"],
        {"flat": "12, B"},
    )
    assert (bob.name, bob.fields) == ("=1+1", {})
    assert [row["flat"] for row in data("export_recipients", "--tag", "choir")["recipients"]] == ["12, B"]
    assert "'=1+1" in text("export_recipients")
    assert "cannot be written" in not_done("export_recipients", "--out", str(tmp_path / "no" / "where.csv"))


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
