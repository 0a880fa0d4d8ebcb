"""A real Chromium against a real ASGI server on the tests' database."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from django.contrib.auth.models import Group, User
from django.db import connections

from accounts.access import OPERATORS, ensure_roles
from tests.factories import UserFactory

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
PASSWORD = "a long enough word"
PATIENCE = 60.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = pytest.mark.skip(reason=f"no Chromium at {CHROMIUM}: browser stories are not told")
    for item in items:
        if "tests/browser" in str(item.path):
            item.add_marker(pytest.mark.browser)
            if not CHROMIUM.exists():
                item.add_marker(missing)


@pytest.fixture(autouse=True)
def browser_settings(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # Playwright's loop runs in this thread, beside our queries.
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    settings.STORAGES = settings.STORAGES | {
        "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
    }
    settings.WHITENOISE_USE_FINDERS = True
    settings.WHITENOISE_AUTOREFRESH = True
    # Connections of the server's threads end with their request, or the tests' database could not be dropped.
    for name in connections:
        connections.settings[name]["CONN_MAX_AGE"] = 0


class Server:
    """uvicorn in a thread. pytest-django's live server is WSGI, which cannot stream events."""

    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        from django.core.asgi import get_asgi_application

        config = uvicorn.Config(
            get_asgi_application(), port=self.port, log_level="warning", timeout_graceful_shutdown=1, lifespan="off"
        )
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, daemon=True)

    def __enter__(self) -> Server:
        self.thread.start()
        wait_for(lambda: self.server.started)
        return self

    def __exit__(self, *exception: object) -> None:
        self.server.should_exit = True
        self.thread.join(10)

    def url(self, path: str = "/admin/") -> str:
        return f"http://127.0.0.1:{self.port}{path}"


def wait_for(condition: Callable[[], object], patience: float = PATIENCE) -> None:
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


@pytest.fixture
def operator(transactional_db: None) -> User:
    from django.apps import apps

    # The flush between these tests also empties the groups.
    for label in ("accounts", "reminders", "fanout"):
        ensure_roles(apps.get_app_config(label))
    user = UserFactory.create(username="mei", first_name="Mei", email="mei@example.com")
    user.set_password(PASSWORD)
    user.save()
    user.groups.add(Group.objects.get(name=OPERATORS))
    return user


@pytest.fixture
def server(transactional_db: None) -> Iterator[Server]:
    with Server() as running:
        yield running


@pytest.fixture
def chromium() -> Iterator[Any]:
    from playwright.sync_api import expect, sync_playwright

    # Without a fixed limit: other tests use the machine, too.
    expect.set_options(timeout=PATIENCE * 1000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield browser
        browser.close()
        # While Playwright's loop runs in this thread, the test's queries have a connection of their own.
        connections.close_all()


class Complaints(list[str]):
    """Collect script errors, blocked content and requests to other hosts."""

    def watch(self, page: Any, server: Server) -> None:
        page.on("console", lambda message: self._heard(message))
        page.on("pageerror", lambda error: self.append(str(error)))
        page.on("request", lambda request: self._own(request.url, server))

    def _heard(self, message: Any) -> None:
        # A story may cut the line on purpose.
        if message.type == "error" and "ERR_INTERNET_DISCONNECTED" not in message.text:
            self.append(message.text)

    def _own(self, url: str, server: Server) -> None:
        if not url.startswith((server.url("/"), "data:", "blob:")):
            self.append(f"request to {url}")


@pytest.fixture
def complaints() -> Iterator[Complaints]:
    found = Complaints()
    yield found
    assert not found


@pytest.fixture
def page(chromium: Any, server: Server, operator: User, complaints: Complaints) -> Iterator[Any]:
    """A tab, logged in through the form."""
    tab = chromium.new_context(viewport={"width": 1280, "height": 900}).new_page()
    tab.set_default_timeout(PATIENCE * 1000)
    complaints.watch(tab, server)
    log_in(tab, server, "mei", PASSWORD)
    yield tab
    tab.context.close()


def log_in(tab: Any, server: Server, name: str, password: str) -> None:
    tab.goto(server.url())
    tab.fill("#id_username", name)
    tab.fill("#id_password", password)
    tab.click("input[type=submit]")
    tab.wait_for_selector("#bell")
