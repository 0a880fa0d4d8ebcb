"""What the sandbox provider reports: by its script and by the buttons of its page, until the webhook takes it."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest

from accounts.channels.base import AccountConfig
from accounts.channels.provider_events import HookRequest, ProviderEvent
from accounts.channels.sandbox.reports import story
from accounts.channels.sandbox.script import Reports, Script, ScriptError
from accounts.channels.sandbox.webhook import SandboxWebhook
from tests.channels.mail_server import wait_until
from tests.sandbox_server import SandboxServer

KEY = "a shared key"
PERSON, GROUP = "+4917612345678", "120363025246125486@g.us"
LINE = {"provider_id": "sbx-1", "message_id": "crier-1-0", "to": PERSON}


class Hook(ThreadingHTTPServer):
    """A webhook that keeps what it gets, and refuses what `refuse` counts down."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.requests: list[HookRequest] = []
        self.refuse = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"

    def events(self, count: int) -> list[ProviderEvent]:
        """As soon as there are so many authentic ones."""
        account = AccountConfig(1, "sandbox", "alice", "alice", {}, {"key": KEY})
        webhook, ends = SandboxWebhook(), time.monotonic() + 60
        while True:
            authentic = [request for request in list(self.requests) if webhook.authentic(request, account)]
            events = [event for request in authentic for event in webhook.parse(request, account)]
            if len(events) >= count:
                return events
            assert time.monotonic() < ends, f"{len(events)} of {count} came"
            time.sleep(0.05)


class Answering(BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        refused, self.server.refuse = self.server.refuse > 0, self.server.refuse - 1
        if not refused:
            headers = {name.lower(): value for name, value in self.headers.items()}
            self.server.requests.append(HookRequest("POST", headers, {}, body))
        self.send_response(503 if refused else 200)
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def hook() -> Iterator[Hook]:
    server = Hook()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def server(tmp_path: Any, hook: Hook) -> Iterator[SandboxServer]:
    with SandboxServer(tmp_path) as started:
        call(started, "PUT", "/hooks", json.dumps({"alice": {"url": hook.url, "key": KEY}}))
        yield started


def call(server: SandboxServer, method: str, path: str, body: str) -> str:
    with urlopen(Request(f"{server.url}{path}", body.encode(), method=method), timeout=60) as answer:
        text: str = answer.read().decode()
        return text


def send(server: SandboxServer, to: str = PERSON, number: int = 1) -> None:
    message = {"to": to, "part": 0, "kind": "text", "text": "Hello", "message_id": f"crier-{number}-0"}
    call(server, "POST", "/v1/alice/messages", json.dumps(message))


def always(**reports: Any) -> dict[str, Any]:
    return {"*": {"reports": {"delay_ms": 0} | reports}}


def test_the_script_tells_the_story_of_a_message(server, hook):
    server.set_script(always(delivered=1, read=1, reply=1, replies=["yes"]))
    send(server)
    delivered, read, reply = hook.events(3)
    assert [event.kind for event in (delivered, read, reply)] == ["delivered", "read", "reply"]
    assert (delivered.provider_id, delivered.message_id, delivered.address) == ("sbx-1", "crier-1-0", PERSON)
    assert (reply.address, reply.group, reply.text, reply.provider_id) == (PERSON, "", "yes", "sbx-1")
    wait_until(lambda: [report.kind for report in server.book().reports()] == ["delivered", "read", "reply"])


def test_in_a_group_somebody_speaks(server, hook):
    server.set_script(always(delivered=1, reply=1, replies=["hi all"]))
    send(server, GROUP)
    reply = hook.events(2)[1]
    assert reply.group == GROUP
    assert reply.address.startswith("+")


def test_a_report_is_repeated_until_it_is_taken_and_is_the_same(server, hook):
    hook.refuse = 1
    server.set_script(always(bounce=1))
    send(server)
    (bounce,) = hook.events(1)
    assert (bounce.kind, bounce.detail["kind"], bounce.key) == ("bounce", "hard_bounce", "ev-sbx-1-bounce")
    # The book has the answer a moment after the hook has given it.
    wait_until(lambda: [report.status for report in server.book().reports("bounce")] == [503, 200])


def test_the_buttons_of_the_page(server, hook):
    send(server)
    assert "“STOP”" in call(server, "GET", "/", "")
    for kind, text in (("reply", "STOP"), ("complaint", ""), ("session", "unpaired"), ("junk", "")):
        call(server, "POST", "/report", urlencode({"account": "alice", "message": "sbx-1", "kind": kind, "text": text}))
    events = {event.kind: event for event in hook.events(3)}
    assert (events["reply"].text, events["session"].detail["state"]) == ("STOP", "unpaired")
    assert events["complaint"].address == PERSON


def test_a_restarted_provider_knows_the_hooks_and_shows_nobody_the_key(server, hook):
    server.restart()
    server.set_script(always(delivered=1))
    send(server)
    assert hook.events(1)
    assert KEY not in call(server, "GET", "/book", "")


def test_junk_is_nothing_that_the_webhook_believes_or_can_read(server, hook):
    server.set_script(always(junk=1))
    for number in range(6):
        send(server, number=number)
    ends = time.monotonic() + 60
    while len(hook.requests) < 6 and time.monotonic() < ends:
        time.sleep(0.05)
    account = AccountConfig(1, "sandbox", "alice", "alice", {}, {"key": KEY})
    assert len(hook.requests) == 6
    for request in hook.requests:
        if SandboxWebhook().authentic(request, account):
            with pytest.raises(ValueError, match="not events of the sandbox provider"):
                SandboxWebhook().parse(request, account)


def test_without_a_script_nothing_is_reported():
    assert list(story(LINE, Reports(), random.Random(1))) == []


@pytest.mark.parametrize(
    "reports", [{"delivered": 2}, {"levitated": 1}, {"delay_ms": "soon"}, []], ids=["rate", "kind", "delay", "shape"]
)
def test_a_script_that_makes_no_sense_is_refused(reports):
    with pytest.raises(ScriptError):
        Script({"*": {"reports": reports}})


# --- pages of other sites -----------------------------------------------------------------------------------


#: what a browser sends for a page: the Host that it was asked for, the page's Origin, and whether it is answered
CALLERS = {
    "Crier": ({}, 303),
    "the provider's own page": ({"Origin": "http://{own}"}, 303),
    "by the name localhost": ({"Host": "localhost:1234", "Origin": "http://localhost:1234"}, 303),
    "a container by its name": ({"Host": "sandbox:8765"}, 303),
    "a page of another site": ({"Origin": "https://evil.example"}, 403),
    "another site with this machine's address": (
        {"Host": "evil.example:8765", "Origin": "http://evil.example:8765"},
        403,
    ),
    "without its origin": ({"Host": "evil.example"}, 403),
    "a page in a frame or a file": ({"Origin": "null"}, 403),
    "another port of this machine": ({"Origin": "http://127.0.0.1:1"}, 403),
}


def test_pages_of_other_sites_are_refused(server, hook):
    form = urlencode({"account": "alice", "kind": "session", "text": "banned"})
    answers = {}
    for caller, (headers, _) in CALLERS.items():
        sent = {name: value.format(own=f"127.0.0.1:{server.port}") for name, value in headers.items()}
        with closing(HTTPConnection("127.0.0.1", server.port, timeout=10)) as connection:
            connection.request("POST", "/report", form, sent | {"Content-Type": "application/x-www-form-urlencoded"})
            answers[caller] = connection.getresponse().status
    assert answers == {caller: status for caller, (_, status) in CALLERS.items()}
    answered = list(answers.values()).count(303)
    assert [event.kind for event in hook.events(answered)] == ["session"] * answered


def test_a_past_is_added_once_and_kept(server):
    line = {"t": 1.0, "account": "alice", "to": PERSON, "part": 0, "message_id": "crier-9-0", "provider_id": "demo-1"}
    past = json.dumps({"name": "run 1", "lines": [line | {"kind": "text", "text": "Hello", "media": None}]})
    assert json.loads(call(server, "PUT", "/past", past)) == {"added": True}
    assert json.loads(call(server, "PUT", "/past", past)) == {"added": False}
    server.restart()
    assert json.loads(call(server, "PUT", "/past", past)) == {"added": False}
    assert [delivery.message_id for delivery in server.book().deliveries()] == ["crier-9-0"]
    assert server.get("/stats")["accepted"] == 1


def test_the_book_has_no_webhook_and_no_key(server, hook):
    """Neither a new book nor one that was written when they were part of it."""
    server.stop()
    with server.book_path.open("a") as book:
        book.write(json.dumps({"t": 1, "account": "bob", "hook": hook.url, "key": "bobs-key"}) + "\n")
    server.start()
    text = server.book_path.read_text()
    assert KEY not in text
    assert "bobs-key" not in text
    assert hook.url not in text
    kept = server.book_path.with_suffix(".hooks")
    assert kept.stat().st_mode & 0o077 == 0
    assert set(json.loads(kept.read_text())) == {"alice", "bob"}
    server.set_script(always(delivered=1))
    send(server)
    assert [event.kind for event in hook.events(1)] == ["delivered"]
