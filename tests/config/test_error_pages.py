"""Error pages, which need neither a session nor the database."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from django.contrib.staticfiles import finders
from django.core.exceptions import PermissionDenied
from django.db import OperationalError
from django.test import Client, RequestFactory
from django.views import csrf, defaults
from psycopg import errors

REQUEST = RequestFactory().get("/admin/")


@pytest.mark.parametrize(
    ("answer", "status", "words"),
    [
        pytest.param(lambda: defaults.page_not_found(REQUEST, Exception("x")), 404, "There is no such page", id="404"),
        pytest.param(
            lambda: defaults.permission_denied(REQUEST, PermissionDenied()), 403, "Ask an administrator", id="403"
        ),
        pytest.param(
            lambda: defaults.permission_denied(REQUEST, PermissionDenied("Only <b>.")),
            403,
            "Only &lt;b&gt;.",
            id="403 why",
        ),
        pytest.param(
            lambda: defaults.bad_request(REQUEST, Exception("x")), 400, "could not use this request", id="400"
        ),
        pytest.param(lambda: csrf.csrf_failure(REQUEST), 403, "This page had expired", id="csrf"),
        pytest.param(lambda: defaults.server_error(REQUEST), 500, "Something went wrong here", id="500"),
    ],
)
def test_every_error_has_a_page_without_the_database(answer: Any, status: int, words: str) -> None:
    page = answer()
    assert page.status_code == status
    assert words in page.content.decode()
    assert "/static/crier/error.css" in page.content.decode()


def test_what_the_pages_load_exists() -> None:
    assert finders.find("crier/error.css")
    assert finders.find("crier/icon.svg")


@pytest.mark.parametrize(
    ("cause", "status", "words"),
    [
        pytest.param(psycopg.OperationalError("connection refused"), 503, "database cannot be reached", id="refused"),
        pytest.param(errors.AdminShutdown("terminated"), 503, "database cannot be reached", id="shutdown"),
        pytest.param(errors.TooManyConnections("too many"), 503, "database cannot be reached", id="full"),
        pytest.param(errors.DeadlockDetected("deadlock"), 500, "Sending does not depend on these pages", id="deadlock"),
    ],
)
def test_a_page_without_its_database_is_an_error_page(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, cause: Exception, status: int, words: str
) -> None:
    def away(*args: Any, **kwargs: Any) -> None:
        raise OperationalError("the database is away") from cause

    monkeypatch.setattr("django.contrib.sessions.backends.db.SessionStore.load", away)
    client = Client(raise_request_exception=False)
    client.cookies["sessionid"] = "x" * 32
    page = client.get("/admin/")
    assert page.status_code == status
    assert words in page.content.decode()
    (logged,) = [record for record in caplog.records if record.name == "django.request"]
    assert bool(logged.exc_info) == (status == 500)
    assert (page.headers.get("Retry-After") == "5") == (status == 503)
