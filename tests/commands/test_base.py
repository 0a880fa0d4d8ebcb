"""Exit codes, JSON errors and progress, as a shell sees them."""

from __future__ import annotations

import csv
import json
import sys
from io import StringIO
from typing import Any

import psycopg
import pytest
from django.core.exceptions import ValidationError
from django.core.management import get_commands, load_command_class
from django.db import DataError, OperationalError

from fanout.management.base import BadInput, CrierCommand, NotDone, Progress, table

NOT_UTF_8 = UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")


class Sample(CrierCommand):
    problem: BaseException | None = None

    def handle(self, *args: Any, **options: Any) -> None:
        if self.problem:
            raise self.problem
        self.answer({"done": True}, "Done.")


def call(problem: BaseException | None, *words: str) -> tuple[int, str, str]:
    command = Sample(stdout=StringIO(), stderr=StringIO())
    command.problem = problem
    try:
        command.run_from_argv(["manage.py", "sample", *words])
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    return code, command.stdout.getvalue().strip(), command.stderr.getvalue().strip()


@pytest.mark.parametrize(
    ("problem", "code", "says"),
    [
        pytest.param(BadInput("Not so."), 2, "Not so.", id="bad input"),
        pytest.param(NotDone("It rained."), 1, "It rained.", id="not done"),
        pytest.param(ValidationError(["One.", "Two."]), 2, "One. Two.", id="validation"),
        pytest.param(DataError("out of range\nLINE 1"), 2, "Unusable value: out of range.", id="database"),
        pytest.param(OverflowError("too large."), 2, "Unusable value: too large.", id="too large"),
        pytest.param(csv.Error("no row"), 2, "Unusable value: no row.", id="CSV"),
        pytest.param(NOT_UTF_8, 2, f"Unusable value: {NOT_UTF_8}.", id="no text"),
        pytest.param(OperationalError("gone\nhint"), 1, "The database is not available: gone.", id="no database"),
        pytest.param(psycopg.OperationalError("gone"), 1, "The database is not available: gone.", id="in the engine"),
        pytest.param(KeyboardInterrupt(), 130, "", id="Ctrl-C"),
    ],
)
def test_a_problem_is_a_sentence_and_a_code(problem, code, says):
    assert call(problem) == (code, "", says)


def test_a_script_gets_the_sentence_as_json():
    code, out, err = call(NotDone("It rained.", {"run": 3}), "--json")
    assert (code, json.loads(out), err) == (1, {"error": "It rained.", "run": 3}, "")


def test_a_script_hears_of_a_lost_database_as_json():
    code, out, err = call(OperationalError("gone"), "--json")
    assert (code, json.loads(out), err) == (1, {"error": "The database is not available: gone."}, "")


def test_success_is_code_zero_and_one_line():
    assert call(None) == (0, "Done.", "")
    assert call(None, "--json") == (0, '{"done": true}', "")


def ours() -> list[str]:
    apps = {name for name, app in get_commands().items() if app == "fanout"}
    return sorted(name for name in apps if isinstance(load_command_class("fanout", name), CrierCommand))


@pytest.mark.parametrize("name", ours())
def test_every_command_has_help_with_an_example(name):
    command = load_command_class("fanout", name)
    assert isinstance(command, CrierCommand)
    assert command.help
    assert command.example.split()[0] == name
    shown = command.create_parser("manage.py", name).format_help()
    assert f"manage.py {name}" in shown
    assert "--json" in shown


def test_all_of_the_table_is_there():
    wanted = "tune simulate forecast account reminder fire pause resume cancel retry_failed offload runs why limits"
    wanted += " import_recipients export_run doctor retention rotate_keys account_check ingest_bounces"
    assert set(wanted.split()) <= set(ours())


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True

    def write(self, text: str, ending: str = "") -> int:
        return super().write(text + ending)


def test_progress_is_a_bar_on_a_terminal():
    out = Terminal()
    progress = Progress(out, 10, "runs")
    progress.show(5, "half")
    progress.end()
    assert "█" * 15 + "·" * 15 in out.getvalue()
    assert "5/10 half" in out.getvalue()


def test_progress_is_a_line_now_and_then_elsewhere(monkeypatch):
    out = StringIO()
    progress = Progress(out, 10, "runs")
    progress.show(1)
    assert out.getvalue() == ""
    progress.said_at -= Progress.LINE_SECONDS
    progress.show(5)
    assert out.getvalue() == "runs: 5 of 10"


def test_a_table_is_as_wide_as_it_needs_to_be():
    assert table(("a", "long name"), [("wide cell", None), ("x", 1.5)]) == [
        "a          long name",
        "wide cell  –",
        "x          1.5",
    ]


def test_a_reader_that_has_seen_enough_is_no_error(monkeypatch, tmp_path):
    with (tmp_path / "out").open("w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        assert call(BrokenPipeError())[0] == 0
