"""Log lines: ids in full, addresses shortened, secrets never."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from config.logs import Json, Line, redacted


@pytest.mark.parametrize(
    ("said", "written"),
    [
        pytest.param("sent to +4917612345678", "sent to +491…78", id="phone"),
        pytest.param("120363025246125486@g.us is gone", "1203…86@g.us is gone", id="group"),
        pytest.param("4917612345678:12@s.whatsapp.net", "4917…12@s.whatsapp.net", id="device"),
        pytest.param("bounce of ann.smith@example.com.", "bounce of a…@example.com.", id="mailbox"),
        pytest.param("Ann <ann@example.com>", "Ann <a…@example.com>", id="mailbox with a name"),
        pytest.param("password=hunter2 port=25", "password=*** port=25", id="password"),
        pytest.param("{'password': 'two words'}", "{'password': ***}", id="dict"),
        pytest.param('{"access_token": "abc", "n": 1}', '{"access_token": ***, "n": 1}', id="JSON"),
        pytest.param("Authorization: Bearer abc.def-123", "Authorization: ***", id="header"),
        pytest.param("got Bearer abcdefgh12345", "got Bearer ***", id="bare token"),
        pytest.param("postgresql://crier:pw@db/crier", "postgresql://crier:***@db/crier", id="URL"),
        pytest.param("run 12: 340 of 1000 sent", "run 12: 340 of 1000 sent", id="nothing to hide"),
        pytest.param("at 2026-11-16 03:21:09,123", "at 2026-11-16 03:21:09,123", id="time"),
    ],
)
def test_addresses_are_shortened_and_secrets_left_out(said, written):
    assert redacted(said) == written


def record(message: str, *args: object, **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("crier.lane", logging.WARNING, __file__, 1, message, args, None)
    made.__dict__.update(extra)
    return made


def test_a_json_line_names_what_it_is_about():
    entry = json.loads(Json().format(record("lane of account %s failed", 7, run=3, target=99)))
    assert (entry["account"], entry["run"], entry["target"]) == (7, 3, 99)
    assert (entry["level"], entry["logger"], entry["message"]) == ("WARNING", "crier.lane", "lane of account 7 failed")
    assert entry["at"].endswith("+00:00")


@pytest.mark.parametrize("formatter", [Line(), Json()], ids=["line", "json"])
def test_tracebacks_are_redacted_too(formatter):
    try:
        raise RuntimeError("login of ann@example.com with password=hunter2 failed")
    except RuntimeError:
        failed = record("it failed")
        failed.exc_info = sys.exc_info()
    written = formatter.format(failed)
    assert "RuntimeError" in written
    assert "hunter2" not in written
    assert "login of a…@example.com with password=*** failed" in written


def test_a_json_line_is_one_line():
    assert "\n" not in Json().format(record("first\nsecond"))
