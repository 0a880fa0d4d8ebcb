"""A web process has a bounded number of threads and database connections, however many requests arrive at once."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from http.client import HTTPConnection
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import aiohttp
import psycopg
import pytest
from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection, connections
from django.test import Client, RequestFactory

from config import web as layers
from config.local.children import wait_until
from config.web import BoundedRequests, client_address
from fanout.ops import exports
from fanout.ops.exports import LINES_AT_ONCE, _in_chunks
from tests.crier_processes import Web, database_url, environment
from tests.factories import SuppressionFactory, UserFactory
from tests.inbound.test_bounces import report

THREADS = 4
MOST_CONNECTIONS = THREADS + layers.FURTHER_CONNECTIONS
PATIENCE = 60


# --- a real web server ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def var(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A data directory with the static files that pages name."""
    directory = str(tmp_path_factory.mktemp("var"))
    collect = [sys.executable, "manage.py", "collectstatic", "--noinput", "--verbosity", "0"]
    subprocess.run(collect, cwd=settings.BASE_DIR, env=environment() | {"CRIER_VAR": directory}, check=True)
    return directory


@pytest.fixture
def web(tmp_path: Path, transactional_db: None, var: str) -> Iterator[Web]:
    with Web(tmp_path, WEB_THREADS=str(THREADS), BOUNCE_TOKEN="open", CRIER_VAR=var) as started:
        yield started


@pytest.fixture
def cookie(transactional_db: None) -> dict[str, str]:
    return logged_in(UserFactory.create(is_staff=True, is_superuser=True))


def logged_in(user: User) -> dict[str, str]:
    client = Client()
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    return {"sessionid": client.cookies["sessionid"].value}


COUNT = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s AND pid <> pg_backend_pid()"


class Connections:
    """Those of one process, counted twenty times a second by PostgreSQL."""

    def __init__(self, web: Web) -> None:
        self.name, self.most = f"crier:{web.child.pid}", 0
        self.link = psycopg.connect(database_url(), autocommit=True)
        self.lock = threading.Lock()

    def now(self) -> int:
        with self.lock:
            counted = self.link.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s", [self.name]
            )
            (number,) = counted.fetchone() or (0,)
        self.most = max(self.most, number)
        return number

    @contextmanager
    def watched(self) -> Iterator[None]:
        done = threading.Event()

        def watch() -> None:
            while not done.wait(0.05):
                self.now()

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


@pytest.fixture
def used(web: Web) -> Iterator[Connections]:
    counted = Connections(web)
    with closing(counted.link):
        yield counted


def together(web: Web, *stories: Callable[[aiohttp.ClientSession], Awaitable[list[int]]]) -> list[Counter[int]]:
    """The statuses that each of these stories saw; they run at the same time."""

    async def run() -> list[list[int]]:
        everywhere = aiohttp.TCPConnector(limit=0)
        patience = aiohttp.ClientTimeout(total=2 * PATIENCE)
        async with aiohttp.ClientSession(web.url, connector=everywhere, timeout=patience) as session:
            return list(await asyncio.gather(*(story(session) for story in stories)))

    return [Counter(statuses) for statuses in asyncio.run(run())]


async def get(session: aiohttp.ClientSession, path: str, **options: Any) -> int:
    async with session.get(path, allow_redirects=False, **options) as answer:
        await answer.read()
        return answer.status


async def get_often(session: aiohttp.ClientSession, path: str, times: int, **options: Any) -> list[int]:
    return [await get(session, path, **options) for _ in range(times)]


@pytest.mark.processes
def test_250_readiness_checks_at_once_leave_pages_and_drivers_their_connections(web, used, cookie):
    async def check(session: aiohttp.ClientSession) -> list[int]:
        return list(await asyncio.gather(*(get(session, "/readyz") for _ in range(250))))

    async def work(session: aiohttp.ClientSession) -> list[int]:
        return await get_often(session, "/admin/", 5, cookies=cookie)

    with used.watched():
        checked, worked = together(web, check, work)
    assert (set(checked), worked) == ({503}, {200: 5})  # no cluster is running
    assert 0 < used.most <= MOST_CONNECTIONS


@pytest.mark.processes
def test_250_pages_at_once_wait_for_each_other(web, used, cookie):
    async def open_pages(session: aiohttp.ClientSession) -> list[int]:
        return list(await asyncio.gather(*(get(session, "/admin/", cookies=cookie) for _ in range(250))))

    with used.watched():
        (statuses,) = together(web, open_pages)
    # Some find the queue full, or wait for too long where this machine is slow.
    assert set(statuses) <= {200, 503}
    assert statuses[200] > THREADS
    assert used.most <= MOST_CONNECTIONS


@pytest.mark.processes
def test_bounce_reports_of_20_clients_are_all_taken(web, used, cookie):
    async def post(session: aiohttp.ClientSession) -> list[int]:
        statuses = []
        for _ in range(10):
            async with session.post("/hooks/bounces", data=report(), headers={"X-Crier-Token": "open"}) as answer:
                statuses.append(answer.status)
        return statuses

    async def work(session: aiohttp.ClientSession) -> list[int]:
        return await get_often(session, "/admin/", 5, cookies=cookie)

    with used.watched():
        *posted, worked = together(web, *[post] * 20, work)
    assert sum(posted, Counter()) == {200: 200}
    assert worked == {200: 5}
    assert 0 < used.most <= MOST_CONNECTIONS


@pytest.mark.processes
def test_live_pages_have_one_connection_between_them_and_a_person_a_bounded_number(web, used):
    people = [logged_in(UserFactory.create(is_staff=True, is_superuser=True)) for _ in range(2)]
    streams: list[Any] = []

    def open_one(cookie: dict[str, str]) -> Any:
        link = HTTPConnection("127.0.0.1", web.port, timeout=PATIENCE)
        link.request("GET", "/admin/live/", headers={"Cookie": f"sessionid={cookie['sessionid']}"})
        answer = link.getresponse()
        assert (answer.status, answer.readline()) == (200, b"retry: 2000\n")
        streams.append(link)
        return answer

    first, *_ = [open_one(people[0]) for _ in range(10)]
    open_one(people[1])
    assert wait_until(lambda: used.now() <= 1 + THREADS, PATIENCE)
    # The eleventh of a person: the first is told, and ends.
    open_one(people[0])
    assert b"event: full" in first.read()
    for link in streams:
        link.close()


@pytest.mark.processes
def test_pages_survive_the_end_of_their_sessions(web, used, cookie):
    """As a restart of PostgreSQL ends them: each thread notices it by itself, at once."""
    together(web, *[lambda session: get_often(session, "/admin/", 5, cookies=cookie)] * THREADS)
    end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s"
    assert used.link.execute(end, [used.name]).fetchall()
    stories = [lambda session: get_often(session, "/admin/", 3, cookies=cookie)] * THREADS
    assert together(web, *stories) == [{200: 3}] * THREADS


@pytest.mark.processes
def test_without_a_database_pages_say_so(tmp_path):
    with Web(tmp_path, DATABASE_URL="postgresql://crier:secret@127.0.0.1:1/crier") as web:
        page = web.ask("GET", "/admin/", headers={"Cookie": "sessionid=" + "x" * 32})
        assert (page.status, page.headers["Retry-After"]) == (503, "5")
        assert b"The database cannot be reached" in page.content
        large = {"Cookie": "sessionid=x", "Content-Length": "900000000"}
        assert web.ask("POST", "/admin/login/", headers=large).status == 503
        ready = web.ask("GET", "/readyz")
        assert (ready.status, b"the database does not answer" in ready.content) == (503, True)
        assert web.ask("GET", "/healthz").status == 200
        log = web.log.read_text()
    assert "Service Unavailable: /admin/: " in log
    assert "Traceback" not in log


@pytest.mark.processes
def test_probes_need_no_https(tmp_path, transactional_db):
    with Web(tmp_path, HTTPS="yes") as web:
        assert web.ask("GET", "/healthz").status == 200
        assert web.ask("GET", "/readyz").status == 503
        assert web.ask("GET", "/admin/login/").status == 301


# --- the bounds themselves --------------------------------------------------------------------------------


class Site:
    """An application whose pages block until they are let go."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.threads: set[int] = set()
        self.gate = threading.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        while (message := await receive()).get("more_body"):
            pass
        if message["type"] == "http.disconnect":
            return
        await sync_to_async(self.work)(scope["path"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        if scope["path"] == "/stream":
            await asyncio.Event().wait()
        await send({"type": "http.response.body", "body": b""})

    def work(self, path: str) -> None:
        self.begun.append(path)
        self.threads.add(threading.get_ident())
        assert path != "/page" or self.gate.wait(PATIENCE)
        if path == "/query":
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1")


class Asking:
    """A client of the site, and what it was answered."""

    def __init__(self, site: BoundedRequests, path: str, address: str = "203.0.113.1", body: bool = True) -> None:
        self.messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        if body:
            self.messages.put_nowait({"type": "http.request", "body": b"", "more_body": False})
        self.answer: list[Any] = []
        scope = {"type": "http", "path": path, "headers": [], "client": (address, 1)}
        self.task = asyncio.create_task(site(scope, self.messages.get, self.send))

    async def send(self, message: Any) -> None:
        self.answer.append(message)

    @property
    def status(self) -> int | None:
        return self.answer[0]["status"] if self.answer else None

    def leave(self) -> None:
        self.messages.put_nowait({"type": "http.disconnect"})


@pytest.fixture
def threads(settings: Any) -> int:
    settings.WEB_THREADS = 2
    return 2


@asynccontextmanager
async def a_busy_site(threads: int) -> AsyncIterator[tuple[Site, BoundedRequests]]:
    """A site all of whose threads are at work."""
    site = Site()
    bounded = BoundedRequests(site)
    pages = [Asking(bounded, "/page") for _ in range(threads)]
    await until(lambda: len(site.begun) == threads)
    try:
        yield site, bounded
    finally:
        site.gate.set()
        await until(lambda: all(page.task.done() for page in pages))


async def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        await asyncio.sleep(0.01)


def test_further_pages_wait_their_turn(threads):
    async def story() -> None:
        async with a_busy_site(threads) as (site, bounded):
            further = [Asking(bounded, f"/{n}") for n in range(5)]
            await until(lambda: len(bounded.pages.waiting) == 5)
            assert site.begun == ["/page"] * threads
        await until(lambda: all(one.status == 200 for one in further))
        assert len(site.threads) == threads
        assert len(bounded.pages.free) == threads

    asyncio.run(story())


def test_a_full_queue_is_refused_at_once_and_one_client_does_not_fill_it(threads, monkeypatch):
    monkeypatch.setattr(layers, "MOST_WAITING", 5)
    monkeypatch.setattr(layers, "MOST_WAITING_EACH", 3)

    async def story() -> None:
        async with a_busy_site(threads) as (_, bounded):
            greedy = [Asking(bounded, f"/{n}", "203.0.113.1") for n in range(4)]
            others = [Asking(bounded, f"/{n}", f"203.0.113.{n}") for n in range(10, 13)]
            refused = [greedy[3], others[2]]
            await until(lambda: all(one.task.done() for one in refused))
            assert [one.status for one in refused] == [503, 503]
            assert (b"retry-after", b"5") in refused[0].answer[0]["headers"]
            assert b"Try again" in refused[0].answer[1]["body"]
        await until(lambda: all(one.status == 200 for one in (*greedy[:3], *others[:2])))

    asyncio.run(story())


def test_a_request_that_waited_too_long_is_refused(threads, monkeypatch):
    monkeypatch.setattr(layers, "WAIT_SECONDS", 0.05)

    async def story() -> None:
        async with a_busy_site(threads) as (site, bounded):
            late = Asking(bounded, "/late")
            await until(late.task.done)
            await until(lambda: not bounded.pages.waiting)
            assert late.status == 503
        assert "/late" not in site.begun
        assert len(bounded.pages.free) == threads

    asyncio.run(story())


def test_a_client_that_leaves_the_queue_occupies_no_thread(threads):
    async def story() -> None:
        async with a_busy_site(threads) as (site, bounded):
            gone, cancelled = Asking(bounded, "/gone"), Asking(bounded, "/cancelled")
            await until(lambda: len(bounded.pages.waiting) == 2)
            gone.leave()
            cancelled.task.cancel()
            await until(lambda: gone.task.done() and cancelled.task.done())
            assert not bounded.pages.waiting
        assert site.begun == ["/page"] * threads
        assert len(bounded.pages.free) == threads

    asyncio.run(story())


def test_a_slow_upload_and_a_live_page_occupy_no_thread(threads):
    async def story() -> None:
        site = Site()
        bounded = BoundedRequests(site)
        slow = [Asking(bounded, "/upload", body=False) for _ in range(5)]
        live = [Asking(bounded, "/stream") for _ in range(5)]
        await until(lambda: all(one.status == 200 for one in live))
        page = Asking(bounded, "/other")
        await until(lambda: page.status == 200)
        assert len(bounded.pages.free) == threads
        for one in (*slow, *live):
            one.task.cancel()

    asyncio.run(story())


def test_static_files_do_not_wait_for_pages(threads):
    async def story() -> None:
        async with a_busy_site(threads) as (_, bounded):
            file = Asking(bounded, "/static/crier/error.css")
            await until(lambda: file.status == 200)

    asyncio.run(story())


@pytest.mark.django_db(transaction=True)
def test_a_thread_keeps_its_connection_for_a_while_and_closes_it_then(threads, monkeypatch):
    monkeypatch.setattr(layers, "IDLE_SECONDS", 0.5)
    name = settings.DATABASES["default"]["OPTIONS"]["application_name"]

    async def story() -> None:
        bounded = BoundedRequests(Site())
        asked = [Asking(bounded, "/query") for _ in range(6)]
        await until(lambda: all(one.status == 200 for one in asked))
        thread = bounded.pages.free[-1]
        kept = await thread.run(lambda: connections["default"].connection is not None)
        assert kept
        await until(lambda: watcher.execute(COUNT, [name]).fetchone() == (0,))

    connections.close_all()
    with psycopg.connect(database_url(), autocommit=True) as watcher:
        asyncio.run(story())


@pytest.mark.django_db(transaction=True)
def test_readers_that_stop_hold_no_thread():
    SuppressionFactory.create_batch(LINES_AT_ONCE + 1)

    async def story() -> None:
        stopped = []
        for _ in range(2 * layers.DOWNLOAD_THREADS):
            stopped.append(_in_chunks(exports.suppression_lines()))
            assert (await anext(stopped[-1])).startswith("address,reason")
        assert len(layers.downloads.free) == layers.DOWNLOAD_THREADS
        lines = "".join([chunk async for chunk in _in_chunks(exports.suppression_lines())]).splitlines()
        assert len(lines) == LINES_AT_ONCE + 2
        for thread in list(layers.downloads.free):
            await thread.run(connections.close_all)

    asyncio.run(asyncio.wait_for(story(), PATIENCE))


def test_a_call_that_is_given_up_gives_its_thread_back():
    async def story() -> None:
        few = layers.Threads(1, "few")
        gate = threading.Event()
        busy = asyncio.create_task(few.run(gate.wait, PATIENCE))
        await until(lambda: not few.free)
        waiting = [asyncio.create_task(few.run(int)) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        gate.set()
        await busy
        assert await asyncio.gather(*waiting[1:]) == [0, 0]
        assert len(few.free) == 1

    asyncio.run(story())


# --- behind a proxy ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        pytest.param("203.0.113.9", "", "203.0.113.9", id="direct"),
        pytest.param("203.0.113.9", "198.51.100.1", "203.0.113.9", id="a stranger claims"),
        pytest.param("10.0.0.1", "198.51.100.1", "198.51.100.1", id="our proxy says"),
        pytest.param("10.0.0.1", "1.2.3.4, 198.51.100.1", "198.51.100.1", id="a claim through our proxy"),
        pytest.param("10.0.0.1", "1.2.3.4, 198.51.100.1, 10.0.0.2", "198.51.100.1", id="two proxies"),
        pytest.param("10.0.0.1", "10.0.0.3", "10.0.0.3", id="from inside"),
        pytest.param("10.0.0.1", "", "10.0.0.1", id="nothing said"),
        pytest.param("10.0.0.1", "1.2.3.4, garbage", "10.0.0.1", id="garbage"),
        pytest.param("", "1.2.3.4", "", id="no peer"),
    ],
)
def test_only_our_proxies_are_believed(settings: Any, peer: str, forwarded: str, client: str) -> None:
    settings.TRUSTED_PROXIES = [ip_network("10.0.0.0/8")]
    request = RequestFactory().get("/", REMOTE_ADDR=peer, headers={"X-Forwarded-For": forwarded})
    assert client_address(request) == client
