"""Exports of runs, recipients and suppressions as CSV and JSON."""

from __future__ import annotations

import csv
import io
import re
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fanout.models import Run
from fanout.ops import exports
from reminders import imports
from reminders.models import Recipient, Suppression
from tests.commands.calling import bad_input, data, not_done, text, written
from tests.factories import (
    RecipientFactory,
    RunFactory,
    RunTargetFactory,
    SuppressionFactory,
)

pytestmark = pytest.mark.django_db


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
        ("＝1+1", "'＝1+1"),
        ("x;＠SUM(1)", "x;'＠SUM(1)"),
        ("\u200b=1", "\u200b'=1"),
        ("\x01\ufeff\u202e-1", "\x01\ufeff\u202e'-1"),
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


@given(st.text(alphabet="=+-@';,| \t\nab＝＠\x00\x01\u200b\ufeff\u202e", max_size=12))
def test_guarded_cells_are_recognised_by_the_import(typed):
    guarded = exports.cell(typed)
    assert imports.unguarded(guarded) == typed
    assert not re.search(r"(^|[;,|\t\r\n])[\s\x00\x01\u200b\ufeff\u202e]*[=+@＝＠-]", guarded)


def test_export_to_a_file_and_as_json(tmp_path):
    run = RunFactory.create(targets={"pending": 2})
    assert data("export_run", str(run.pk), "--out", str(tmp_path / "x.csv"))["targets"] == 2
    assert len((tmp_path / "x.csv").read_text().splitlines()) == 3
    assert [target["status"] for target in data("export_run", str(run.pk))["targets"]] == ["pending"] * 2
    assert "cannot be written" in not_done("export_run", str(run.pk), "--out", "/nowhere/x.csv")
    assert "There is no run" in bad_input("export_run", "999999")


def test_a_report_has_the_planned_time_and_the_slip():
    run = RunFactory.create(status="queued")
    RunTargetFactory(run=run, planned_at=run.scheduled_for - timedelta(hours=1))
    delay = {"from": (run.scheduled_for - timedelta(hours=1)).isoformat(), "to": run.scheduled_for.isoformat()}
    Run.objects.update(delays={str(run.account_id): delay | {"why": "outside the account's business hours"}})
    (row,) = csv.DictReader(io.StringIO(text("export_run", str(run.pk))))
    assert row["planned_for"] == run.scheduled_for.isoformat(timespec="milliseconds")
    assert row["delay_reason"] == "outside the account's business hours"
    (line,) = data("why", "--run", str(run.pk))["why"]
    assert (line["planned_for"], line["delay_reason"]) == (
        run.scheduled_for.isoformat(),
        "outside the account's business hours",
    )


def test_an_export_can_be_imported_again(tmp_path, owner):
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
