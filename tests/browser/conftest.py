"""A real Chromium against a real ASGI server on the tests' database.

Each worker starts one Chromium and one server for all its browser tests, because starting them takes longer than most
tests; every test has a context of its own, with its own cookies and storage.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from django.conf import settings as django_settings
from django.contrib.auth.models import Group, User
from django.db import connections
from django.test import Client, override_settings

from accounts.access import OPERATORS, ensure_roles
from tests.factories import UserFactory

#: The first has no windows and menus of its own, which cost the others two thirds of their time.
BROWSERS = [Path("/usr/bin", name) for name in ("chromium-headless-shell", "chromium", "google-chrome")]
CHROMIUM = next((path for path in BROWSERS if path.exists()), BROWSERS[0])
FLAGS = [
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    # A page is open for a second or two: optimising its scripts takes longer than they run.
    "--js-flags=--no-opt --no-maglev",
]
PASSWORD = "a long enough word"
PATIENCE = 180.0  # never waited for in vain: a page of half a second takes twenty beside twenty busy processes


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = pytest.mark.skip(reason=f"no Chromium at {CHROMIUM}: browser stories are not told")
    for item in items:
        if "tests/browser" in str(item.path):
            item.add_marker(pytest.mark.browser)
            if not CHROMIUM.exists():
                item.add_marker(missing)


#: Files as they lie in the apps, found once when the server starts: no test needs collectstatic.
STATIC_FILES = {"WHITENOISE_USE_FINDERS": True}


@pytest.fixture(autouse=True)
def browser_settings(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # Playwright's loop runs in this thread, beside our queries.
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    for name, value in STATIC_FILES.items():
        setattr(settings, name, value)
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

    def wait_until_idle(self) -> None:
        """Wait for requests of tabs that were closed: their queries must not meet the next test's rows."""
        tasks = self.server.server_state.tasks
        wait_for(lambda: not tasks, lambda: "; ".join(" > ".join(awaits(task.get_coro())) for task in list(tasks)))

    def url(self, path: str = "/admin/") -> str:
        return f"http://127.0.0.1:{self.port}{path}"


def awaits(coroutine: Any) -> Iterator[str]:
    """Yield where a coroutine waits, from the outermost call to the innermost."""
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "ag_frame", None)
        scope = frame.f_locals.get("self") if frame is not None else None
        path = getattr(scope, "scope", {}).get("path", "") if scope is not None else ""
        yield f"{frame.f_code.co_qualname}:{frame.f_lineno} {path}" if frame is not None else repr(coroutine)
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "ag_await", None)


def wait_for(condition: Callable[[], object], what_is_left: Callable[[], str] = str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited too long: {what_is_left()}"
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


@pytest.fixture(scope="package")
def running_server(django_db_setup: None) -> Iterator[Server]:
    with override_settings(**STATIC_FILES):
        server = Server()
    with server:
        yield server


@pytest.fixture
def server(running_server: Server, transactional_db: None) -> Server:
    return running_server


@pytest.fixture(scope="package")
def running_chromium() -> Iterator[tuple[Any, asyncio.AbstractEventLoop]]:
    from playwright.sync_api import expect, sync_playwright

    # Without a fixed limit: other tests use the machine, too.
    expect.set_options(timeout=PATIENCE * 1000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        loop = asyncio.get_running_loop()
        asyncio._set_running_loop(None)
        yield browser, loop
        asyncio._set_running_loop(loop)
        browser.close()


@pytest.fixture
def chromium(
    running_chromium: tuple[Any, asyncio.AbstractEventLoop], running_server: Server, transactional_db: None
) -> Iterator[Any]:
    """The browser. Playwright's loop counts as running only during a test that uses it: elsewhere Django's queries and
    `asyncio.run` refuse to work beside a loop."""
    browser, loop = running_chromium
    asyncio._set_running_loop(loop)
    yield browser
    for context in browser.contexts:
        context.close()
    running_server.wait_until_idle()
    # While the loop runs in this thread, the test's queries have a connection of their own.
    connections.close_all()
    asyncio._set_running_loop(None)


class Complaints(list[str]):
    """Collect script errors, blocked content and requests to other hosts."""

    def watch(self, page: Any, server: Server) -> None:
        page.on("console", lambda message: self._on_console(message))
        page.on("pageerror", lambda error: self.append(str(error)))
        page.on("request", lambda request: self._own(request.url, server))

    def _on_console(self, message: Any) -> None:
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
    """A tab whose operator is logged in; it is empty."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    logged_in(context, server, operator)
    tab = context.new_page()
    tab.set_default_timeout(PATIENCE * 1000)
    complaints.watch(tab, server)
    yield tab
    context.close()


def logged_in(context: Any, server: Server, user: User) -> None:
    """Give the context a session of this user: the form to log in is a test of its own."""
    client = Client()
    client.force_login(user)
    name = django_settings.SESSION_COOKIE_NAME
    context.add_cookies([{"name": name, "value": client.cookies[name].value, "url": server.url("/")}])


def open_live(tab: Any, url: str) -> None:
    """Open a page and wait for its stream: from then on news come by themselves."""
    with tab.expect_response("**/admin/live/**"):
        tab.goto(url)


def assert_it_fits(tab: Any, path: str) -> None:
    """Nothing on the open page is wider than a phone, a tablet or a desktop, in either theme."""
    for width in (375, 390, 820, 1280):
        for scheme in ("light", "dark"):
            tab.set_viewport_size({"width": width, "height": 844})
            tab.emulate_media(color_scheme=scheme)
            wide = tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 1, f"{path} is {wide} px too wide for {width} px, {scheme}"


def log_in(tab: Any, server: Server, name: str, password: str) -> None:
    tab.goto(server.url())
    tab.fill("#id_username", name)
    tab.fill("#id_password", password)
    tab.click("input[type=submit]")
    tab.wait_for_selector("#bell")
