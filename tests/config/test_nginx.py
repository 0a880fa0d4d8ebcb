"""The web server as it is deployed: uvicorn behind nginx with the sample of deploy/, and uvicorn alone."""

from __future__ import annotations

import http.client
import json
import os
import re
import select
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest
from axes.models import AccessAttempt
from django.conf import settings
from django.contrib.auth.hashers import make_password
from django.utils import timezone

from accounts import tokens
from config.local.children import wait_until
from config.web import FOR_ANYBODY, MB
from tests.channels.mail_server import certificate
from tests.config.test_up import free_port
from tests.crier_processes import Web, ask, environment
from tests.factories import UserFactory

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]

NGINX = shutil.which("nginx", path="/usr/sbin:/usr/bin")
SAMPLE = Path(settings.BASE_DIR) / "deploy" / "nginx.conf"
PATIENCE = 60.0
needs_nginx = pytest.mark.skipif(NGINX is None, reason="needs nginx (apt install nginx-light)")


@pytest.fixture(scope="module")
def started_web(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    """One for all tests here: starting it takes seconds."""
    with Web(tmp_path_factory.mktemp("web"), LOG_FORMAT="json") as started:
        yield started


class Logged(NamedTuple):
    """The web server, and how long its log was when the test began."""

    web: Web
    start: int

    def text(self) -> str:
        return self.web.log.read_text()[self.start :]

    def lines(self) -> list[dict[str, Any]]:
        """Return what it logged, without uvicorn's first lines, which come before Django's settings."""
        return [json.loads(line) for line in self.text().splitlines() if line.startswith("{")]


@pytest.fixture
def web(started_web: Web, transactional_db: None) -> Web:
    return started_web


@pytest.fixture
def logged(web: Web) -> Logged:
    return Logged(web, len(web.log.read_text()))


@pytest.mark.parametrize("path", ["/" + "a" * 60_000, "/" + "a@" * 30_000, "/" + "1." * 30_000], ids=["a", "a@", "1."])
def test_no_path_freezes_the_web_server(web, logged, path):
    web.ask("GET", "/healthz")
    began = time.monotonic()
    assert web.ask("GET", path).status == 404
    assert web.ask("GET", "/healthz").status == 200
    assert time.monotonic() - began < PATIENCE  # a frozen one answers after minutes
    found = [line for line in logged.lines() if line["logger"] in ("django.request", "uvicorn.access")]
    assert any("characters left out" in line["message"] for line in found)
    assert all(len(line["message"]) < 13_000 for line in found)


def test_the_access_log_has_neither_addresses_nor_tokens(web, logged):
    web.ask("GET", "/admin/reminders/recipient/?q=ann.smith@example.com")
    web.ask("GET", "/x/ann.smith%40example.com")
    web.ask("GET", "/unsubscribe/ImFubkBleGFtcGxlLmNvbSI:1abc:signature")
    web.ask("GET", "/x%0aERROR%20forged")
    assert wait_until(lambda: "forged" in logged.text(), PATIENCE)
    log = logged.text()
    assert all(secret not in log for secret in ("smith", "q=", "signature", "ImFubkBl"))
    access = [line["message"] for line in logged.lines() if line["logger"] == "uvicorn.access"]
    assert any('"GET /admin/reminders/recipient/ HTTP/1.1" 302' in message for message in access)
    assert any("/unsubscribe/***" in message for message in access)
    assert any('"GET /…@example.com HTTP' in message for message in access)


def test_logs_are_for_one_user_only(web):
    assert web.log.stat().st_mode & 0o077 == 0
    assert web.log.parent.stat().st_mode & 0o077 == 0


def test_a_stranger_who_announces_a_large_body_is_refused_before_it_comes(web):
    with closing(http.client.HTTPConnection("127.0.0.1", web.port, timeout=60)) as connection:
        connection.putrequest("POST", "/admin/login/")
        connection.putheader("Content-Length", str(FOR_ANYBODY + 1))
        connection.putheader("Cookie", "sessionid=made-up")
        connection.endheaders()
        assert connection.getresponse().status == 413


def test_a_stranger_who_does_not_announce_it_is_cut_off(web, logged):
    sent: list[int] = []

    def chunks() -> Iterator[bytes]:
        for _ in range(10 * FOR_ANYBODY // 65536):
            sent.append(65536)
            yield b"x" * 65536

    status = None
    with suppress(BrokenPipeError, ConnectionResetError):  # it hangs up while we are still sending
        status = web.ask("POST", "/admin/login/", body=chunks()).status
    assert status in (413, None)
    assert web.ask("GET", "/healthz").status == 200

    def refused() -> bool:
        return any(line["logger"] == "uvicorn.access" and "413" in line["message"] for line in logged.lines())

    assert wait_until(refused, PATIENCE)


# --- behind nginx -----------------------------------------------------------------------------------------


class Proxy:
    """nginx with the sample, on ports and with files of its own."""

    def __init__(self, place: Path, upstream: int) -> None:
        self.port, self.plain_port = free_port(), free_port()
        pem = certificate(place)
        text = SAMPLE.read_text()
        for old, new in {
            "listen 80;": f"listen 127.0.0.1:{self.plain_port};",
            "listen [::]:80;": "",
            "listen 443 ssl http2;": f"listen 127.0.0.1:{self.port} ssl http2;",
            "listen [::]:443 ssl http2;": "",
            "/etc/ssl/crier.pem": str(pem),
            "/etc/ssl/crier.key": str(pem),
            "/var/log/nginx/crier.log": str(place / "access.log"),
            "/var/log/nginx/crier-error.log": str(place / "crier-error.log"),
            "127.0.0.1:8000": f"127.0.0.1:{upstream}",
        }.items():
            assert old in text, old
            text = text.replace(old, new)
        temporary = "".join(
            f"{name}_temp_path {place / name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        user = "user root;" if os.getuid() == 0 else ""
        self.conf = place / "nginx.conf"
        self.conf.write_text(
            f"{user}\ndaemon off;\nerror_log {place}/error.log;\npid {place}/nginx.pid;\nevents {{}}\n"
            f"http {{\n{temporary}{text}\n}}\n"
        )
        self.place, self.access_log = place, place / "access.log"

    def __enter__(self) -> Proxy:
        assert NGINX
        self.process = subprocess.Popen([NGINX, "-c", str(self.conf)])
        assert wait_until(self._listens, PATIENCE)
        return self

    def _listens(self) -> bool:
        assert self.process.poll() is None
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def __exit__(self, *args: object) -> None:
        self.process.terminate()
        self.process.wait(10)

    def ask(self, method: str, path: str, **options: Any) -> Any:
        context = ssl._create_unverified_context()
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=60, context=context)
        options.setdefault("headers", {}).setdefault("Host", "localhost")
        return ask(connection, method, path, **options)

    def log_in(self, name: str, password: str, **headers: str) -> int:
        return int(self.logged_in(name, password, **headers).status)

    def logged_in(self, name: str, password: str, **headers: str) -> Any:
        page = self.ask("GET", "/admin/login/")
        token = page.headers["Set-Cookie"].split("csrftoken=")[1].split(";")[0]
        form = urlencode({"username": name, "password": password, "csrfmiddlewaretoken": token})
        sent = {
            "Content-Type": "application/x-www-form-urlencoded",
            "Referer": "https://localhost/admin/login/",
            "Cookie": f"csrftoken={token}",
            **headers,
        }
        return self.ask("POST", "/admin/login/", body=form, headers=sent)


@pytest.fixture(scope="module")
def started_proxy(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    place = tmp_path_factory.mktemp("proxy")
    variables = {"HTTPS": "yes", "METRICS_TOKEN": "open", "CRIER_VAR": str(place / "var")}
    collect = [sys.executable, "manage.py", "collectstatic", "--noinput", "--verbosity", "0"]
    subprocess.run(collect, cwd=settings.BASE_DIR, env=environment() | variables, check=True)
    with Web(place, **variables) as web, Proxy(place, web.port) as started:
        yield started


@pytest.fixture
def proxy(started_proxy: Proxy, transactional_db: None) -> Proxy:
    return started_proxy


@needs_nginx
def test_a_forged_forwarded_address_does_not_avoid_the_lockout(proxy):
    UserFactory.create(username="mei").set_password("x")
    claims = [{"X-Forwarded-For": f"203.0.113.{n}", "X-Real-IP": f"203.0.113.{n}"} for n in range(6)]
    statuses = [proxy.log_in("mei", "wrong", **claim) for claim in claims]
    assert statuses == [200] * 4 + [429] * 2
    assert set(AccessAttempt.objects.values_list("ip_address", flat=True)) == {"127.0.0.1"}


@needs_nginx
def test_metrics_want_their_token_and_pages_https(proxy):
    assert proxy.ask("GET", "/metrics").status == 403
    assert proxy.ask("GET", "/metrics", headers={"Authorization": "Bearer open"}).status == 200
    # No redirect to HTTPS in a circle: X-Forwarded-Proto got through.
    assert proxy.ask("GET", "/admin/login/").status == 200
    proxy.ask("GET", "/unsubscribe/token?q=ann@example.com")
    assert wait_until(lambda: "/unsubscribe/***" in proxy.access_log.read_text(), PATIENCE)
    proxy.ask("POST", "/hooks/wassenger/half-of-a-secret")
    proxy.ask("GET", "/admin/invitation/MQ/sets-a-password/")
    proxy.ask("GET", "/admin/calendar/what-is-planned.ics")
    proxy.ask("GET", "/files/signed-link")
    assert wait_until(lambda: "/files/***" in proxy.access_log.read_text(), PATIENCE)
    log = proxy.access_log.read_text()
    assert all(path in log for path in ("/hooks/wassenger/***", "/admin/invitation/***", "/admin/calendar/***"))
    assert all(secret not in log for secret in ("ann@", "half-of", "signed-link", "sets-a", "planned"))


@needs_nginx
def test_cookies_and_addresses_are_for_https_and_this_name_only(proxy):
    forged = {
        "X-Forwarded-Proto": "http",
        "X-Forwarded-Host": "evil.example",
        "Forwarded": "host=evil.example;proto=http",
    }
    page = proxy.ask("GET", "/admin/login/", headers=forged)
    assert page.status == 200  # a believed “http” would be redirected
    assert "; Secure" in page.headers["Set-Cookie"]
    assert page.headers["Strict-Transport-Security"].startswith("max-age=31536000")
    assert "evil.example" not in str(page.headers)
    # A name that a stranger lets point to this server.
    assert proxy.ask("GET", "/admin/login/", headers={"Host": "evil.example"}).status == 400
    # A form that a page of another site sends, with the visitor's cookie.
    token = page.headers["Set-Cookie"].split("csrftoken=")[1].split(";")[0]
    form = urlencode({"username": "mei", "password": "x", "csrfmiddlewaretoken": token})
    sent = {
        "Content-Type": "application/x-www-form-urlencoded",
        "Cookie": f"csrftoken={token}",
        "Origin": "https://evil.example",
    }
    assert proxy.ask("POST", "/admin/login/", body=form, headers=sent).status == 403


@needs_nginx
def test_plain_http_leads_to_https(proxy):
    with closing(http.client.HTTPConnection("127.0.0.1", proxy.plain_port, timeout=30)) as connection:
        connection.request("GET", "/admin/?q=1", headers={"Host": "crier.example.com"})
        answer = connection.getresponse()
        assert (answer.status, answer.headers["Location"]) == (301, "https://crier.example.com/admin/?q=1")


@needs_nginx
def test_static_files_are_cached_for_ever(proxy):
    page = proxy.ask("GET", "/admin/login/")
    path = re.search(r"/static/admin/css/base\.[0-9a-f]+\.css", page.content.decode())
    assert path
    answer = proxy.ask("GET", path[0], headers={"Accept-Encoding": "gzip"})
    assert (answer.status, answer.headers["Content-Encoding"]) == (200, "gzip")
    assert "immutable" in answer.headers["Cache-Control"]


@needs_nginx
def test_the_live_stream_comes_at_once(proxy):
    UserFactory.create(username="mei", is_superuser=True, password=make_password("right horse"))
    cookies = proxy.logged_in("mei", "right horse").headers.get_all("Set-Cookie") or []
    session = next(cookie.split(";")[0] for cookie in cookies if cookie.startswith("sessionid="))
    context = ssl._create_unverified_context()
    with closing(http.client.HTTPSConnection("127.0.0.1", proxy.port, timeout=30, context=context)) as connection:
        connection.request("GET", "/admin/live/", headers={"Host": "localhost", "Cookie": session})
        answer = connection.getresponse()
        assert (answer.status, answer.headers["Content-Type"]) == (200, "text/event-stream")
        # A buffer would keep it until the stream ends.
        assert answer.readline().startswith(b"retry:")


@needs_nginx
def test_an_upload_passes_and_that_of_a_stranger_is_neither_stored_nor_awaited(proxy):
    user = UserFactory.create(username="mei", is_superuser=True)
    _, secret = tokens.issue(user, "upload", ["send"], None, None, timezone.now())
    bearer = {"Authorization": f"Bearer {secret}", "Content-Type": "multipart/form-data; boundary=cut"}
    head = b'--cut\r\nContent-Disposition: form-data; name="file"; filename="plan.pdf"\r\n'
    form = head + b"Content-Type: application/pdf\r\n\r\n%PDF-1.4\n" + bytes(20 * MB) + b"\r\n--cut--\r\n"
    answer = proxy.ask("POST", "/api/v1/media", body=form, headers=bearer)
    assert (answer.status, json.loads(answer.content)["size"]) == (200, 20 * MB + 9)

    for path in ("/api/v1/media", "/admin/login/", "/hooks/wassenger/token", "/hooks/bounces", "/unsubscribe/token"):
        sent, status = _send_slowly(proxy, path, 200 * MB)
        # nginx says 502 where it notices the hang-up before the answer.
        assert status in (413, 502, None), path
        assert sent < 50 * MB, path
    assert not list((proxy.place / "client_body").iterdir())
    assert proxy.ask("GET", "/healthz").status == 200


def _send_slowly(proxy: Proxy, path: str, size: int) -> tuple[int, int | None]:
    """Announce a body and send it until there is an answer. Returns how much went, and the status if it arrived."""
    context = ssl._create_unverified_context()
    sent, status = 0, None
    with closing(http.client.HTTPSConnection("127.0.0.1", proxy.port, timeout=30, context=context)) as connection:
        connection.putrequest("POST", path, skip_host=True)
        connection.putheader("Host", "localhost")
        connection.putheader("Content-Length", str(size))
        connection.endheaders()
        with suppress(OSError, http.client.HTTPException):
            while sent < size and not select.select([connection.sock], [], [], 0.01)[0]:
                connection.send(bytes(MB))
                sent += MB
            status = connection.getresponse().status
    return sent, status


@needs_nginx
def test_no_log_has_a_secret_address_while_the_web_server_is_away(tmp_path):
    with Proxy(tmp_path, free_port()) as proxy:
        assert proxy.ask("POST", "/hooks/wassenger/half-of-a-secret", body=b"x").status == 502
        assert proxy.ask("POST", "/hooks/wassenger/half-of-a-secret", body=bytes(9 * MB)).status == 413
        assert wait_until(lambda: proxy.access_log.read_text().count("/hooks/wassenger/***") == 2, PATIENCE)
        assert all("half-of" not in log.read_text() for log in tmp_path.glob("*.log"))
