"""The sandbox channel: the contract over HTTP and in memory, its book, and the edge of what was sent."""

from __future__ import annotations

import argparse
import asyncio
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from accounts.channels import registry
from accounts.channels.base import AccountConfig, Kind, NotSent, Outcome, Part, Sent, Transport, Unknown
from accounts.channels.sandbox.book import Book, FileBook, MemoryBook
from accounts.channels.sandbox.provider import Provider
from accounts.channels.sandbox.script import Script, ScriptError
from accounts.channels.sandbox.transport import MemorySandboxTransport, SandboxTransport
from fanout.management.commands.sandbox_provider import Command
from tests.channels.contract import TEXT, Received, Rig, TransportContract, media, send, use, with_media
from tests.sandbox_server import ROOT, SandboxServer

ALL_KINDS = (
    Kind.RATE_LIMITED,
    Kind.HARD_BOUNCE,
    Kind.SOFT_BOUNCE,
    Kind.RECIPIENT_LIMITED,
    Kind.OPTED_OUT,
    Kind.AUTH,
    Kind.BANNED,
    Kind.UNAVAILABLE,
    Kind.CONTENT_REJECTED,
    Kind.RECIPIENT_GONE,
    Kind.NEW_CHATS_BLOCKED,
    Kind.NETWORK,
)


def account(name: str = "alice", **config: Any) -> AccountConfig:
    return AccountConfig(1, "sandbox", name, name, config)


def always(effect: str, **more: Any) -> dict[str, Any]:
    return {"*": {"faults": [{"effect": effect, **more}]}}


class SandboxRig(Rig):
    """Both variants are told to misbehave by the same scripts."""

    earlier = 0  # lines of other tests in the book

    def set_script(self, script: dict[str, Any]) -> None:
        raise NotImplementedError

    def book(self) -> Book:
        raise NotImplementedError

    def fail(self, kind: Kind) -> None:
        self.set_script(always("refused" if kind is Kind.NETWORK else kind.value))

    def drop_after_accept(self) -> None:
        self.set_script(always("drop_after_accept"))

    def stay_silent(self) -> None:
        self.set_script(always("hang"))

    def refuse_login(self, words: str) -> None:
        self.set_script(always("auth", on="check", message=words))

    def fail_upload(self) -> None:
        self.set_script(always("content_rejected", on="media"))

    def received(self) -> list[Received]:
        lines = self.book().lines()[self.earlier :]
        taken = [line for line in lines if "provider_id" in line and not line.get("repeat")]
        return [Received(line["to"], line["text"], line["message_id"]) for line in taken]


class HttpRig(SandboxRig):
    def __init__(self, server: SandboxServer) -> None:
        self.server = server
        self.is_down = False

    def transport(self, timeout: float = 5) -> Transport:
        return SandboxTransport(account(url=self.server.url, timeout=timeout))

    def set_script(self, script: dict[str, Any]) -> None:
        self.server.set_script(script)

    def go_down(self) -> None:
        self.server.kill()
        self.is_down = True

    def book(self) -> Book:
        return self.server.book()


class MemoryRig(SandboxRig):
    def __init__(self) -> None:
        self.memory = MemoryBook()
        self.provider = Provider(self.memory, rng=random.Random(1))

    def transport(self, timeout: float = 5) -> Transport:
        return MemorySandboxTransport(account(timeout=timeout), self.provider)

    def set_script(self, script: dict[str, Any]) -> None:
        self.provider.set_script(Script(script))

    def go_down(self) -> None:
        self.provider.down = True

    def book(self) -> Book:
        return self.memory


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SandboxServer]:
    with SandboxServer(tmp_path) as running:
        yield running


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxServer]:
    """One provider for the whole contract: starting one takes longer than any test of it."""
    with SandboxServer(tmp_path_factory.mktemp("sandbox")) as running:
        yield running


@pytest.mark.processes
class TestHttpContract(TransportContract):
    kinds = ALL_KINDS

    @pytest.fixture
    def rig(self, shared: SandboxServer) -> Iterator[Rig]:
        rig = HttpRig(shared)
        rig.set_script({})
        rig.earlier = len(rig.book().lines())
        yield rig
        if rig.is_down:
            shared.start()


class TestMemoryContract(TransportContract):
    kinds = ALL_KINDS

    @pytest.fixture
    def rig(self) -> Rig:
        return MemoryRig()


# -- the provider's answers, in memory --------------------------------------------------------------------


class Clock:
    """Time that passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.t = 1_800_000_000.0

    def now(self) -> float:
        return self.t

    async def sleep(self, seconds: float) -> None:
        self.t += seconds


def provider_with(script: dict[str, Any], seed: int = 1) -> tuple[Provider, MemoryBook, Clock]:
    book, clock = MemoryBook(), Clock()
    return Provider(book, Script(script), clock.now, random.Random(seed), clock.sleep), book, clock


def outcomes(provider: Provider, addresses: list[str], name: str = "alice") -> list[Outcome]:
    transport = MemorySandboxTransport(account(name), provider)

    async def go() -> list[Outcome]:
        return [await transport.send(to, TEXT, f"{to}/{n}") for n, to in enumerate(addresses)]

    return asyncio.run(go())


def hits(found: list[Outcome]) -> list[int]:
    return [n for n, outcome in enumerate(found) if not isinstance(outcome, Sent)]


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        pytest.param({}, [0, 1, 2, 3, 4, 5], id="nothing set: always"),
        pytest.param({"address": "c@x"}, [2], id="address"),
        pytest.param({"suffix": "@y"}, [3, 4, 5], id="suffix"),
        pytest.param({"every": 3}, [2, 5], id="every third"),
        pytest.param({"first": 2}, [0, 1], id="first two"),
        pytest.param({"suffix": "@y", "every": 2}, [4], id="every second among those"),
        pytest.param({"after_accepted": 4}, [4, 5], id="after four accepted"),
        pytest.param({"after_accepted": 2, "first": 1}, [2], id="once after two accepted"),
        pytest.param({"between": [2, 4]}, [1, 2], id="seconds since the script began"),
        pytest.param({"part": 1}, [], id="another part"),
    ],
)
def test_match(match: dict[str, Any], expected: list[int]) -> None:
    script = {"*": {"latency_ms": 1000, "faults": [{"match": match, "effect": "soft_bounce"}]}}
    provider, book, _ = provider_with(script)

    found = outcomes(provider, ["a@x", "b@x", "c@x", "d@y", "e@y", "f@y"])

    # A call is decided after its second of latency: the first at second 1.
    assert hits(found) == expected
    assert len(book.refused("soft_bounce")) == len(expected)


def test_an_interval_in_iso_moments() -> None:
    start = datetime.fromtimestamp(Clock().t + 2, UTC).isoformat()
    end = datetime.fromtimestamp(Clock().t + 3, UTC).isoformat()
    match = {"between": [start, end]}
    provider, _, _ = provider_with({"*": {"latency_ms": 1000, "faults": [{"match": match, "effect": "auth"}]}})

    assert hits(outcomes(provider, ["a", "b", "c"])) == [1]


def test_faults_by_probability_depend_on_the_seed_and_not_on_the_order() -> None:
    def failed(seed: int, addresses: list[str]) -> set[str]:
        fault = {"match": {"probability": 0.3, "seed": seed}, "effect": "soft_bounce"}
        provider, _, _ = provider_with({"*": {"faults": [fault]}})
        return {addresses[n] for n in hits(outcomes(provider, addresses))}

    addresses = [f"{n}@g.us" for n in range(200)]

    assert failed(7, addresses) == failed(7, addresses[::-1])
    assert failed(7, addresses) != failed(8, addresses)
    assert 30 <= len(failed(7, addresses)) <= 90


def test_a_retry_is_a_new_draw() -> None:
    fault = {"match": {"probability": 0.5, "seed": 3}, "effect": "soft_bounce"}
    provider, _, _ = provider_with({"*": {"faults": [fault]}})

    assert 5 < len(hits(outcomes(provider, ["same@g.us"] * 40))) < 35


def test_latency_is_reproducible() -> None:
    def times(seed: int) -> list[float]:
        provider, book, _ = provider_with({"*": {"latency_ms": [10, 500]}}, seed)
        outcomes(provider, ["a", "b", "c"])
        return [d.t for d in book.deliveries()]

    assert times(1) == times(1) != times(2)


def test_an_accounts_settings_lie_over_the_default() -> None:
    script = {"*": {"latency_ms": 100, "faults": [{"effect": "auth"}]}, "bob": {"faults": []}}
    provider, book, clock = provider_with(script)
    began = clock.t

    assert hits(outcomes(provider, ["a"], "alice")) == [0]
    assert hits(outcomes(provider, ["a"], "bob")) == []
    assert clock.t - began == pytest.approx(0.2)
    assert [d.account for d in book.deliveries()] == ["bob"]


def test_slow_adds_its_time_and_lets_the_next_fault_decide() -> None:
    script = {"*": {"faults": [{"effect": "slow", "ms": 3000}, {"effect": "unavailable"}]}}
    provider, _, clock = provider_with(script)
    began = clock.t

    (outcome,) = outcomes(provider, ["a"])

    assert outcome == NotSent(Kind.UNAVAILABLE, "The device is not connected", 20.0)
    assert clock.t - began == 3


def test_a_ban_has_an_end_and_is_given_once() -> None:
    fault = {"match": {"after_accepted": 1}, "effect": "banned", "seconds": 2.5}
    provider, _, clock = provider_with({"*": {"latency_ms": 1000, "faults": [fault]}})
    began = clock.t

    found = outcomes(provider, ["a", "b", "c", "d", "e", "f"])

    assert hits(found) == [1, 2, 3]
    first = found[1]
    assert isinstance(first, NotSent)
    assert first.until == datetime.fromtimestamp(began + 2 + 2.5, UTC)


def test_the_providers_own_limit_says_when_to_come_back() -> None:
    provider, book, _ = provider_with({"*": {"latency_ms": 1000, "limit": {"count": 2, "seconds": 10}}})

    found = outcomes(provider, ["a"] * 11)

    assert hits(found) == [2, 3, 4, 5, 6, 7, 8, 9]
    assert found[2] == NotSent(Kind.RATE_LIMITED, "Too many messages", 8.0)
    assert book.peak("alice", 9.9) == 2


def test_retry_after_is_the_scripts() -> None:
    provider, _, _ = provider_with(always("rate_limited", retry_after=3.5))

    (outcome,) = outcomes(provider, ["a"])

    assert isinstance(outcome, NotSent)
    assert outcome.retry_after == 3.5


def test_an_outage_accepts_nothing_but_the_sender_cannot_know() -> None:
    provider, book, _ = provider_with(always("outage"))

    assert isinstance(outcomes(provider, ["a"])[0], Unknown)
    assert book.deliveries() == []
    assert len(book.refused("outage")) == 1


@pytest.mark.parametrize("accept", [False, True])
def test_silence_costs_the_senders_timeout(accept: bool) -> None:
    provider, book, clock = provider_with(always("hang", accept=accept))
    began = clock.t

    assert isinstance(outcomes(provider, ["a"])[0], Unknown)
    assert clock.t - began == 10
    assert len(book.deliveries()) == accept


@pytest.mark.parametrize(
    ("script", "words"),
    [
        pytest.param({"*": {"faults": [{"effect": "explode"}]}}, "Unknown effect", id="effect"),
        pytest.param({"*": {"latency": 5}}, "unknown settings: latency", id="setting"),
        pytest.param({"*": {"latency_ms": [5, 1]}}, "latency_ms must be", id="range"),
        pytest.param({"*": {"faults": [{"effect": "auth", "match": {"evry": 2}}]}}, "evry", id="match"),
        pytest.param({"*": {"faults": [{"effect": "auth", "match": {"every": 0}}]}}, "every", id="every 0"),
        pytest.param({"*": {"faults": [{"effect": "auth", "match": {"probability": 2}}]}}, "range", id="chance"),
        pytest.param({"*": {"faults": [{"effect": "auth", "match": {"between": ["x", 1]}}]}}, "ISO", id="moment"),
        pytest.param({"*": {"faults": [{"effect": "auth", "on": "tuesdays"}]}}, "tuesdays", id="on"),
        pytest.param({"*": {"limit": {}}}, "not complete", id="limit"),
        pytest.param({"*": []}, "must be a JSON object", id="shape"),
    ],
)
def test_a_wrong_script_is_refused_with_a_sentence(script: dict[str, Any], words: str) -> None:
    with pytest.raises(ScriptError, match=words):
        Script(script)


# -- repeats and media, both variants ---------------------------------------------------------------------


@pytest.fixture(params=["http", "memory"])
def rig(request: pytest.FixtureRequest) -> SandboxRig:
    if request.param == "http":
        return HttpRig(request.getfixturevalue("server"))
    return MemoryRig()


def test_repeats_are_recognised_where_the_script_says_so(rig: SandboxRig) -> None:
    rig.set_script({"*": {"recognises_repeats": True}})

    first, second = send(rig, TEXT, "m-1"), send(rig, TEXT, "m-1")

    assert first == second
    assert isinstance(first, Sent)
    assert len(rig.book().deliveries()) == 1
    assert len(rig.book().repeats()) == 1
    assert rig.book().duplicates() == {}


def test_repeats_are_delivered_twice_otherwise(rig: SandboxRig) -> None:
    assert send(rig, TEXT, "m-1") != send(rig, TEXT, "m-1")
    assert rig.book().duplicates() == {(rig.address, "m-1"): 2}
    assert rig.book().duplicates("to", "part") == {(rig.address, 0): 2}


def test_a_repeat_after_a_drop_gets_the_first_ones_id(rig: SandboxRig) -> None:
    drop = {"match": {"first": 1}, "effect": "drop_after_accept"}
    rig.set_script({"*": {"recognises_repeats": True, "faults": [drop]}})

    assert isinstance(send(rig, TEXT, "m-1"), Unknown)
    assert send(rig, TEXT, "m-1") == Sent("sbx-1")
    assert len(rig.book().deliveries()) == 1


def test_an_error_after_acceptance_is_unknown(rig: SandboxRig) -> None:
    rig.set_script(always("error_after_accept", message="Storing it failed"))

    assert send(rig, TEXT, "m-1") == Unknown("HTTP 500 Storing it failed")
    assert len(rig.book().deliveries()) == 1


def test_an_upload_is_in_the_book_and_its_handle_is_the_accounts_own(rig: SandboxRig) -> None:
    async def upload_and_send(transport: Transport) -> Part:
        return await with_media(transport)

    part = use(rig, upload_and_send)

    (upload,) = rig.book().uploads()
    assert (upload.sha256, upload.size, upload.handle) == (media().sha256, media().size, part.handle)
    assert send(rig, replace(part, handle="media-99"), "m-1") == NotSent(
        Kind.CONTENT_REJECTED, "The media handle is unknown or has expired"
    )


def test_a_handle_expires_where_the_script_says_so() -> None:
    provider, _, clock = provider_with({"*": {"media_ttl": 60}})
    transport = MemorySandboxTransport(account(), provider)

    async def go() -> tuple[Outcome, Outcome]:
        handle = await transport.prepare(media())
        assert handle.expires_at == datetime.fromtimestamp(clock.t + 60, UTC)
        part = replace(TEXT, handle=handle.value)
        early = await transport.send("a", part, "m-1")
        await clock.sleep(60)
        return early, await transport.send("a", part, "m-2")

    early, late = asyncio.run(go())
    assert isinstance(early, Sent)
    assert isinstance(late, NotSent)


def test_a_wrong_key_is_an_auth_failure(rig: SandboxRig) -> None:
    rig.set_script({"*": {"key": "open sesame"}})

    outcome = send(rig, TEXT, "m-1")

    assert isinstance(outcome, NotSent)
    assert outcome.kind is Kind.AUTH
    transport = rig.transport()
    assert transport.account.credentials == {}


@pytest.mark.processes
def test_the_right_key_opens(server: SandboxServer) -> None:
    server.set_script({"*": {"key": "open sesame"}})
    config = replace(account(url=server.url), credentials={"key": "open sesame"})

    async def go() -> str:
        transport = registry.transport_for(config)
        try:
            return await transport.check()
        finally:
            await transport.close()

    assert asyncio.run(go()) == "sandbox account alice"


# -- the book ---------------------------------------------------------------------------------------------


def test_peak_counts_a_closed_window() -> None:
    book = MemoryBook()
    for t in (0, 10, 60, 60.5, 200):
        book.append(line_at(t, "alice"))
    book.append(line_at(30, "bob"))

    assert book.peak("alice") == 3
    assert book.peak("alice", seconds=0.5) == 2
    assert book.peak("bob") == 1
    assert book.peak() == 3
    assert book.peak("nobody") == 0


def line_at(t: float, name: str) -> dict[str, Any]:
    return {"t": t, "account": name, "to": "x", "part": 0, "message_id": str(t), "provider_id": str(t)}


def test_a_torn_line_does_not_count_and_does_not_spoil_the_next(tmp_path: Path) -> None:
    path = tmp_path / "book.jsonl"
    path.write_bytes(b'{"t": 1, "account": "al')

    book = FileBook(path)
    book.append(line_at(2, "alice"))
    book.close()

    assert [d.t for d in Book.read(path).deliveries()] == [2]


@pytest.mark.processes
def test_the_book_survives_kill_9_and_agrees_with_every_outcome(server: SandboxServer) -> None:
    """The heart of the matter: Sent is in the book, NotSent is not, and only Unknown may be either."""
    server.set_script({"*": {"latency_ms": [0, 20]}})
    found: dict[str, Outcome] = {}

    halfway = asyncio.Event()

    async def lane(transport: Transport, name: str) -> None:
        for n in range(60):
            found[f"{name}-{n}"] = await transport.send(f"{name}@g.us", TEXT, f"{name}-{n}")
            if len(found) > 400:
                halfway.set()

    async def go() -> None:
        transport = SandboxTransport(account(url=server.url))
        lanes = [asyncio.create_task(lane(transport, f"l{n}")) for n in range(20)]
        await halfway.wait()
        await asyncio.to_thread(server.kill)
        await asyncio.gather(*lanes)
        await transport.close()

    asyncio.run(go())

    written = {d.message_id for d in server.book().deliveries()}
    sent = {m for m, outcome in found.items() if isinstance(outcome, Sent)}
    not_sent = {m for m, outcome in found.items() if isinstance(outcome, NotSent)}
    assert sent
    assert not_sent
    assert sent <= written
    assert not not_sent & written
    assert server.book().duplicates() == {}


@pytest.mark.processes
def test_a_restart_on_the_same_book_remembers_ids_handles_and_counts(server: SandboxServer) -> None:
    rig = HttpRig(server)
    server.set_script({"*": {"recognises_repeats": True}})

    async def upload(transport: Transport) -> Part:
        return await with_media(transport)

    part = use(rig, upload)
    first = send(rig, part, "m-1")
    server.kill()
    server.start()

    assert send(rig, part, "m-1") == first
    assert send(rig, part, "m-2") == Sent("sbx-2")
    assert server.get("/stats")["accepted"] == 2
    assert server.get("/v1/alice/status")["accepted"] == 2


@pytest.mark.processes
def test_the_server_answers_people_and_tests(server: SandboxServer) -> None:
    rig = HttpRig(server)
    send(rig, replace(TEXT, text="<script>alert(1)</script>"), "m-1")

    (line,) = server.get("/book?account=alice&since=1")
    assert line["message_id"] == "m-1"
    assert server.get("/book?account=bob") == []
    assert server.get(f"/book?since={time.time() + 60}") == []
    assert server.get("/healthz")["pid"] == server.pid
    assert "&lt;script&gt;" in page(server, "/")
    assert page(server, "/nowhere").startswith("HTTP 404")
    assert "not a number" in page(server, "/book?since=x")


def page(server: SandboxServer, path: str) -> str:
    """The body, or "HTTP <status> <body>" for an error."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as sock:
        sock.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        head, _, body = b"".join(iter(lambda: sock.recv(65536), b"")).partition(b"\r\n\r\n")
    status = head.split()[1].decode()
    return body.decode() if status == "200" else f"HTTP {status} {body.decode()}"


@pytest.mark.processes
def test_the_server_needs_no_django() -> None:
    code = "import sys, accounts.channels.sandbox.server; sys.exit('django' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_the_command_hands_its_options_to_the_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[argparse.Namespace] = []

    def run(options: argparse.Namespace) -> int:
        seen.append(options)
        return 1

    monkeypatch.setattr("accounts.channels.sandbox.server.run", run)

    with pytest.raises(SystemExit):
        call_command(Command(), "--port", "0", "--book", str(tmp_path / "book.jsonl"))
    assert (seen[0].port, seen[0].book, seen[0].host) == (0, tmp_path / "book.jsonl", "127.0.0.1")


@pytest.mark.processes
def test_a_busy_port_is_one_clear_sentence(server: SandboxServer, tmp_path: Path) -> None:
    other = SandboxServer(tmp_path / "other")
    other.directory.mkdir()
    other.port = server.port

    with pytest.raises(RuntimeError, match=r"did not start: .*address already in use"):
        other.start()


# -- the edge of what was sent ----------------------------------------------------------------------------

Behaviour = Callable[[socket.socket], None]
ACCEPTED = b'HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{"id": "x1"}'


class RawServer:
    """A provider of few words: runs one behaviour on each connection, and counts the requests it read."""

    def __init__(self, *behaviours: Behaviour) -> None:
        self.requests = 0
        self._behaviours = behaviours
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> RawServer:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        # Closing alone does not wake a thread that waits in accept().
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(5)
        self._listener.close()

    def _run(self) -> None:
        for behaviour in self._behaviours:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                behaviour(connection)

    def read_request(self, connection: socket.socket) -> None:
        data = b""
        while not data.endswith(b"}"):
            chunk = connection.recv(65536)
            if not chunk:
                return
            data += chunk
        self.requests += 1


def against(raw: RawServer, work: Callable[[Transport], Awaitable[Outcome]], timeout: float = 2) -> Outcome:
    async def go() -> Outcome:
        transport = SandboxTransport(account(url=raw.url, timeout=timeout))
        try:
            return await work(transport)
        finally:
            await transport.close()

    return asyncio.run(go())


def answer_with(raw: bytes) -> Callable[[RawServer, socket.socket], None]:
    def behave(server: RawServer, connection: socket.socket) -> None:
        server.read_request(connection)
        connection.sendall(raw)

    return behave


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param(b"", Unknown, id="closed without a word"),
        pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n", Unknown, id="not HTTP"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Le", Unknown, id="cut in the headers"),
        pytest.param(b'HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"id":', Unknown, id="cut in the body"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", Unknown, id="200 and garbage"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", Unknown, id="200 and a list"),
        pytest.param(b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n", Unknown, id="500"),
        pytest.param(b"HTTP/1.1 504 Late\r\nContent-Length: 0\r\n\r\n", Unknown, id="504"),
        pytest.param(
            b"HTTP/1.1 307 Go\r\nLocation: /\r\nContent-Length: 0\r\n\r\n",
            Unknown,
            id="redirect is not followed",
        ),
        pytest.param(b"HTTP/1.1 418 Tea\r\nContent-Length: 0\r\n\r\n", NotSent, id="some other 4xx"),
        pytest.param(ACCEPTED, Sent, id="accepted"),
    ],
)
def test_answers_after_the_body_left(answer: bytes, expected: type) -> None:
    behave = answer_with(answer)
    raw = RawServer(lambda c: behave(raw, c), lambda c: behave(raw, c))

    with raw:
        outcome = against(raw, lambda transport: transport.send("a", TEXT, "m-1"))

    assert isinstance(outcome, expected)
    assert raw.requests == 1


def test_retry_after_is_read_from_the_header_too() -> None:
    behave = answer_with(b"HTTP/1.1 429 Slow\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n")
    raw = RawServer(lambda c: behave(raw, c))

    with raw:
        outcome = against(raw, lambda transport: transport.send("a", TEXT, "m-1"))

    assert outcome == NotSent(Kind.RATE_LIMITED, "HTTP 429", 7.0)


def test_a_time_out_before_the_connection_stood_is_not_sent() -> None:
    """A listener whose queue is full lets nobody in: the body cannot have left."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        for sock in waiting:
            sock.setblocking(False)
            sock.connect_ex(listener.getsockname())

        async def go() -> Outcome:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            transport = SandboxTransport(account(url=url, timeout=0.3))
            try:
                return await transport.send("a", TEXT, "m-1")
            finally:
                await transport.close()

        outcome = asyncio.run(go())
        for sock in waiting:
            sock.close()

    assert isinstance(outcome, NotSent)
    assert outcome.kind is Kind.NETWORK


def test_a_connection_that_died_idle_is_found_before_anything_is_written() -> None:
    behave = answer_with(ACCEPTED)
    closed = threading.Event()

    def answer_once_then_close(connection: socket.socket) -> None:
        behave(raw, connection)
        connection.close()
        closed.set()

    raw = RawServer(answer_once_then_close)

    async def twice(transport: Transport) -> Outcome:
        assert isinstance(await transport.send("a", TEXT, "m-1"), Sent)
        # Holds up the loop on purpose: it must not have read the end of the connection yet.
        assert closed.wait(2)
        return await transport.send("a", TEXT, "m-2")

    with raw:
        outcome = against(raw, twice)

    assert isinstance(outcome, NotSent)
    assert outcome.kind is Kind.NETWORK


def test_a_kept_connection_that_dies_after_the_body_left_is_unknown_and_not_tried_again() -> None:
    behave = answer_with(ACCEPTED)

    def answer_then_read_and_close(connection: socket.socket) -> None:
        behave(raw, connection)
        raw.read_request(connection)

    raw = RawServer(answer_then_read_and_close, lambda c: behave(raw, c))

    async def twice(transport: Transport) -> Outcome:
        assert isinstance(await transport.send("a", TEXT, "m-1"), Sent)
        return await transport.send("a", TEXT, "m-2")

    with raw:
        outcome = against(raw, twice)

    assert isinstance(outcome, Unknown)
    assert raw.requests == 2
