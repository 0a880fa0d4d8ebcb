"""Log lines: ids in full, addresses shortened, secrets never."""

from __future__ import annotations

import ast
import json
import logging
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.urls import get_resolver

from config import logs
from config.logs import Json, Line, bounded, redacted


@pytest.mark.parametrize(
    ("said", "written"),
    [
        pytest.param("sent to +4917612345678", "sent to +491…78", id="phone"),
        pytest.param("120363025246125486@g.us is gone", "1203…86@g.us is gone", id="group"),
        pytest.param("1234567@lid and 123456@lid", "1234…67@lid and …@lid", id="short ids"),
        pytest.param("4917612345678:12@s.whatsapp.net", "4917…12@s.whatsapp.net", id="device"),
        pytest.param("bounce of ann.smith@example.com.", "bounce of a…@example.com.", id="mailbox"),
        pytest.param("Ann <ann@example.com>", "Ann <a…@example.com>", id="mailbox with a name"),
        pytest.param("password=hunter2 port=25", "password=*** port=25", id="password"),
        pytest.param("{'password': 'two words'}", "{'password': ***}", id="dict"),
        pytest.param('{"access_token": "abc", "n": 1}', '{"access_token": ***, "n": 1}', id="JSON"),
        pytest.param("Authorization: Bearer abc.def-123", "Authorization: ***", id="header"),
        pytest.param("got Bearer abcdefgh12345", "got Bearer ***", id="bare token"),
        pytest.param("POST /hooks/sandbox/0a1b-2c HTTP/1.1", "POST /hooks/sandbox/*** HTTP/1.1", id="webhook"),
        pytest.param("GET /files/0a1b:2c-_d HTTP/1.1", "GET /files/*** HTTP/1.1", id="file"),
        pytest.param("GET /admin/invitation/MQ/c1-2d/ HTTP", "GET /admin/invitation/*** HTTP", id="invitation"),
        pytest.param("GET /admin/calendar/0a-_b.ics HTTP", "GET /admin/calendar/*** HTTP", id="calendar"),
        pytest.param("GET /admin/calendar/address/ HTTP", "GET /admin/calendar/address/ HTTP", id="page"),
        pytest.param("postgresql://crier:pw@db/crier", "postgresql://crier:***@db/crier", id="URL"),
        pytest.param("to:4917612345678@lid", "to:4917…78@lid", id="hidden id"),
        pytest.param("refresh_token=abc&n=1", "refresh_token=***&n=1", id="at the end of a longer name"),
        pytest.param(r'{"password": "a\"b", "n": 1}', '{"password": ***, "n": 1}', id="escaped quote"),
        pytest.param('cut off: password="hunter2', "cut off: password=***", id="open quote"),
        pytest.param("run 12: 340 of 1000 sent", "run 12: 340 of 1000 sent", id="nothing to hide"),
        pytest.param("at 2026-11-16 03:21:09,123", "at 2026-11-16 03:21:09,123", id="time"),
    ],
)
def test_addresses_are_shortened_and_secrets_left_out(said, written):
    assert redacted(said) == written


def _routes(patterns: list[Any], before: str = "/") -> Iterator[str]:
    for pattern in patterns:
        route = before + str(pattern.pattern)
        yield from _routes(pattern.url_patterns, route) if hasattr(pattern, "url_patterns") else [route]


def test_no_address_with_a_token_is_written_out():
    """In the web server's log, and in that of nginx as in deploy/."""
    routes = [route for route in _routes(get_resolver().url_patterns) if "token>" in route]
    sample = (Path(settings.BASE_DIR) / "deploy" / "nginx.conf").read_text()
    shortened = [line.split()[0].removeprefix("~") for line in sample.splitlines() if line.endswith("***;")]
    assert len(routes) >= 4
    for route in routes:
        path = re.sub(r"<[^>]+>", "half-of-a-secret", route)
        assert "half-of" not in redacted(f"GET {path} HTTP/1.1"), route
        assert any(re.match(pattern.replace("(?<", "(?P<"), path) for pattern in shortened), route


def record(message: str, *args: object, **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("crier.lane", logging.WARNING, __file__, 1, message, args, None)
    made.__dict__.update(extra)
    return made


@pytest.mark.parametrize(
    ("path", "status", "kept"),
    [("/hooks/sandbox/x", 200, False), ("/hooks/sandbox/x", 403, True), ("/admin/", 200, True)],
)
def test_webhooks_that_were_taken_have_no_access_line(path, status, kept):
    args = ("127.0.0.1:1", "POST", path, "1.1", status)
    record = logging.LogRecord("uvicorn.access", logging.INFO, "", 0, '%s - "%s %s HTTP/%s" %d', args, None)
    assert logs.NoQuery().filter(record) is kept


def test_a_json_line_names_what_it_is_about():
    entry = json.loads(Json().format(record("the lane of %s failed", "ann@example.com", account=7, run=3)))
    assert (entry["account"], entry["run"]) == (7, 3)
    assert (entry["level"], entry["logger"]) == ("WARNING", "crier.lane")
    assert entry["message"] == "the lane of a…@example.com failed"
    assert entry["at"].endswith("+00:00")


def test_what_others_attach_is_redacted_too():
    entry = json.loads(Json().format(record("Not Found", request=ValueError("/x?email=ann@example.com"))))
    assert entry["request"] == "/x?email=a…@example.com"


def test_a_line_ends_with_what_it_is_about():
    assert Line().format(record("the lane failed", run=3, account=7)).endswith("the lane failed account=7 run=3")


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


HOSTILE = {
    "letters": "a" * 60_000,
    "at signs": "@" * 60_000,
    "labels": "a." * 30_000,
    "digits": "1" * 60_000,
    "groups of digits": "1111." * 12_000,
    "mailboxes": "a@" * 30_000,
    "a long domain": "a@" + "a." * 30_000,
    "colons": "http://" + ":" * 60_000,
    "addresses": "://a:" * 12_000,
    "spaces": "token" + " " * 60_000,
    "names": "token : " * 7_500,
    "quotes": "token='" * 8_500,
    "an open quote": 'token="' + "\\" * 60_000,
    "plus signs": "+12345" * 10_000,
    "bearers": "bearer " * 8_500,
}
PATTERNS = {name: value for name, value in vars(logs).items() if isinstance(value, re.Pattern)}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_no_text_takes_long(text):
    assert PATTERNS
    for name, pattern in PATTERNS.items():
        began = time.thread_time()
        pattern.sub("", text)
        assert time.thread_time() - began < 1, name


def test_a_long_text_keeps_its_beginning_and_its_end():
    written = bounded("begin " + "x" * 60_000 + " end")
    assert written.startswith("begin x")
    assert written.endswith("x end")
    assert "(48,010 characters left out)" in written


@pytest.mark.parametrize("kept", [logs.MOST_AT_START, logs.LINE_AT_START])
def test_an_address_is_not_cut_before_it_is_shortened(kept):
    around = "x" * (kept - 60) + " ann.smith@example.com " + "y" * 60_000
    assert "smith" not in Line().format(record(around))


@pytest.mark.parametrize("formatter", [Line(), Json()], ids=["line", "json"])
def test_a_strangers_path_makes_a_short_line_and_a_traceback_stays(formatter):
    assert len(formatter.format(record("Not Found: %s", "/" + "a" * 60_000, request="/" + "a" * 60_000))) < 2_200
    failed = record("it failed")
    failed.exc_info = (RuntimeError, RuntimeError("x" * 5_000), None)
    assert len(formatter.format(failed)) > 5_000


# --- people ---------------------------------------------------------------------------------------------------

ROOT = Path(__file__).parents[2]
LEVELS = {"debug", "info", "warning", "error", "exception", "critical", "log"}
#: what is a person's own
PERSONAL = {"address", "name", "words", "values", "fields", "text", "html", "subject"}
#: a cluster's name, an operator's own mailbox, and sentences about the books, which are made of numbers
ALLOWED = {
    "accounts/channels/whatsapp/bridge/session.py": {"name"},  # of an event
    "fanout/management/commands/cluster.py": {"name"},
    "fanout/ops/passing_on.py": {"address"},
    "fanout/ops/tasks.py": {"violation.subject", "violation.text"},
}


def log_calls() -> list[tuple[str, ast.Call]]:
    files = (path for room in ("accounts", "reminders", "fanout", "config") for path in (ROOT / room).rglob("*.py"))
    calls = ((path, node) for path in files for node in ast.walk(ast.parse(path.read_text())))
    return [
        (f"{path.relative_to(ROOT)}:{node.lineno}", node)
        for path, node in calls
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in LEVELS
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id in ("log", "logger")
    ]


def personal(call: ast.Call) -> set[str]:
    arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
    nodes = [node for argument in arguments for node in ast.walk(argument)]
    attributes = {ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute) and node.attr in PERSONAL}
    return attributes | {node.id for node in nodes if isinstance(node, ast.Name) and node.id in PERSONAL}


def allowed(place: str) -> set[str]:
    return ALLOWED.get(place.partition(":")[0], set())


def test_no_log_call_names_a_person():
    """Redaction is the second line: nothing that is erased later may have been logged before."""
    calls = log_calls()
    assert len(calls) > 20
    assert {place: names for place, call in calls if (names := personal(call) - allowed(place))} == {}
    assert personal(ast.parse('log.info("to %s", target.address)').body[0].value) == {"target.address"}  # type: ignore[attr-defined]


def test_a_strangers_host_makes_one_line(client, caplog):
    """A traceback for each would fill the log, and look like a fault of ours."""
    assert client.get("/healthz", headers={"host": "evil.example"}).status_code == 400
    (record,) = [record for record in caplog.records if record.name == "django.security.DisallowedHost"]
    assert (record.levelname, record.exc_info) == ("WARNING", None)
    assert "evil.example" in record.getMessage()
