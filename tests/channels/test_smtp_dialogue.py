"""One SMTP connection, line by line: what is said to a server, and what each of its answers does to the connection."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from accounts.channels.base import AccountConfig, CheckFailed, Kind, NotSent, Outcome, Part, Sent, Transport, Unknown
from accounts.channels.http import connect_socket
from accounts.channels.mail import Encoded
from accounts.channels.smtp.channel import CHANNEL, SmtpSettings
from accounts.channels.smtp.connection import Connection, OutgoingMail
from accounts.channels.smtp.transport import SmtpTransport
from tests.channels.contract import TEXT

T = TypeVar("T")
WHO = "someone@example.org"
DROP = ""
HELLO = "250-hello\r\n250-SIZE 100000\r\n250-8BITMIME\r\n250 SMTPUTF8"
USUAL = {
    "EHLO": HELLO,
    "MAIL": "250 ok",
    "RCPT": "250 ok",
    "DATA": "354 go on",
    ".": "250 queued as Q1",
    "QUIT": "221 bye",
}


class Server:
    """Answers every command as it was told, in turn; the last answer for ever. The lines it received are its book."""

    def __init__(self, **answers: str | list[str]) -> None:
        told = {**USUAL, **{verb.replace("dot", "."): answer for verb, answer in answers.items()}}
        self.banner = str(told.pop("banner", "220 hello"))
        self.answers = {verb: [answer] if isinstance(answer, str) else list(answer) for verb, answer in told.items()}
        self.lines: list[str] = []
        self.texts: list[str] = []
        self.connections = 0
        self.tasks: list[Any] = []

    def answer(self, verb: str) -> str:
        answers = self.answers.get(verb, ["502 what?"])
        return answers.pop(0) if len(answers) > 1 else answers[0]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.tasks.append(asyncio.current_task())
        try:
            await self.talk(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client left in the middle of a line
        finally:
            writer.close()

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said = self.banner
        while said:
            writer.write(f"{said}\r\n".encode())
            if said.startswith("354"):
                self.texts.append((await reader.readuntil(b"\r\n.\r\n")).decode())
                said = self.answer(".")
                continue
            line = (await reader.readline()).decode().strip()
            if not line:
                break
            self.lines.append(line)
            said = self.answer(line.partition(" ")[0].upper())

    def use(self, work: Callable[[SmtpTransport], Awaitable[T]], **config: Any) -> T:
        async def go() -> T:
            server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
            async with server:
                transport = SmtpTransport(account(server.sockets[0].getsockname()[1], **config))
                try:
                    return await work(transport)
                finally:
                    await transport.close()
                    await asyncio.gather(*self.tasks)

        return asyncio.run(go())

    def send(self, *parts: Part, to: str = WHO, **config: Any) -> list[Outcome]:
        async def go(transport: Transport) -> list[Outcome]:
            return [await transport.send(to, part, f"m-{n}") for n, part in enumerate(parts)]

        return self.use(go, **config)

    @property
    def verbs(self) -> list[str]:
        return [line.partition(" ")[0].upper() for line in self.lines]


def account(_port: int, *, password: str = "", **config: Any) -> AccountConfig:
    given = {"host": "127.0.0.1", "port": _port, "security": "plain", "timeout": 2, "helo": "crier.example", **config}
    credentials = {"password": password} if password else {}
    return AccountConfig(1, "smtp", "Mailer", "mailer@example.com", given, credentials)


# -- what is said -----------------------------------------------------------------------------------------


def test_a_mail_from_hello_to_goodbye() -> None:
    server = Server()

    assert server.send(TEXT) == [Sent("Q1")]
    assert server.lines == [
        "EHLO crier.example",
        "MAIL FROM:<mailer@example.com>",
        f"RCPT TO:<{WHO}>",
        "DATA",
        "QUIT",
    ]
    assert "Message-ID: <m-0@example.com>\r\n" in server.texts[0]


def test_without_a_name_of_its_own_it_is_this_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accounts.channels.smtp.connection.own_name", lambda: "machine.example")
    server = Server()

    server.send(TEXT, helo="")
    assert server.lines[0] == "EHLO machine.example"


@pytest.mark.parametrize(
    ("hello", "text", "to", "mail"),
    [
        (HELLO, "Turtle", WHO, ""),
        (HELLO, "Żółw", WHO, " BODY=8BITMIME"),
        ("250 hello", "Żółw", WHO, ""),
        (HELLO, "Turtle", "żółw@example.org", " SMTPUTF8"),
        (HELLO, "Żółw", "żółw@example.org", " SMTPUTF8 BODY=8BITMIME"),
    ],
    ids=["plain", "a text beyond ASCII", "a server that knows nothing of it", "an address", "both"],
)
def test_what_is_beyond_ascii_is_announced_where_the_server_knows_it(hello: str, text: str, to: str, mail: str) -> None:
    server = Server(EHLO=hello)

    assert server.send(replace(TEXT, text=text), to=to) == [Sent("Q1")]
    assert server.lines[1] == f"MAIL FROM:<mailer@example.com>{mail}"


def test_an_address_beyond_ascii_is_refused_here_where_the_server_does_not_know_it() -> None:
    server = Server(EHLO="250-hello\r\n250 8BITMIME")

    (outcome,) = server.send(TEXT, to="żółw@example.org")

    assert outcome == NotSent(Kind.CONTENT_REJECTED, "The server takes only addresses of plain ASCII (no SMTPUTF8).")
    assert "MAIL" not in server.verbs


@pytest.mark.parametrize(
    ("less", "outcome"),
    [(0, Sent), (1, Kind.CONTENT_REJECTED), (None, Sent)],
    ids=["it fits", "a byte less", "no limit"],
)
def test_a_server_takes_what_it_says_and_no_more(less: int | None, outcome: Any) -> None:
    first = Server()
    first.send(TEXT)
    size = len(first.texts[0].encode()) - 3  # without the dot and its line
    limit = 0 if less is None else size - less

    server = Server(EHLO=f"250-hello\r\n250 SIZE {limit}")
    (found,) = server.send(TEXT)

    if outcome is Sent:
        assert found == Sent("Q1")
    else:
        words = f"The message has {size} bytes; the server takes {limit}."
        assert found == NotSent(Kind.CONTENT_REJECTED, words)
        assert "MAIL" not in server.verbs


@pytest.mark.parametrize("size", ["", " lots", " -1", " ²"])
def test_a_size_that_is_no_number_is_no_limit(size: str) -> None:
    assert Server(EHLO=f"250-hello\r\n250 SIZE{size}").send(TEXT) == [Sent("Q1")]


# -- what the answers do ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "outcome", "connections"),
    [
        ("250 2.0.0 Ok: queued as 4XyZ", Sent("4XyZ"), 1),
        ("250 OK QUEUED AS: <a@b>", Sent("a@b"), 1),
        ("250  2.0.0   Ok  1234 ", Sent("2.0.0 Ok 1234"), 1),
        ("250 " + "x" * 300, Sent("x" * 200), 1),
        ("299 fine", Sent("fine"), 1),
        ("450 4.7.1 greylisted", NotSent(Kind.SOFT_BOUNCE, "450 4.7.1 greylisted"), 1),
        ("554 5.7.1 spam", NotSent(Kind.CONTENT_REJECTED, "554 5.7.1 spam"), 1),
        ("421 4.3.2 closing", NotSent(Kind.UNAVAILABLE, "421 4.3.2 closing"), 2),
        ("355 go on?", Unknown("355 go on?"), 2),
        ("600 what?", Unknown("600 what?"), 2),
    ],
    ids=["queued", "in capitals", "no id", "long", "any 2xx", "later", "no", "closing", "out of step", "garbage"],
)
def test_the_answer_to_the_dot(answer: str, outcome: Outcome, connections: int) -> None:
    """What leaves the connection in order is followed by another mail on it, without a RSET."""
    server = Server(dot=[answer, "250 queued as Q2"])

    assert server.send(TEXT, TEXT) == [outcome, Sent("Q2")]
    assert server.connections == connections
    assert "RSET" not in server.verbs


@pytest.mark.parametrize("code", [250, 251, 252, 259])
def test_a_recipient_with_a_remark_is_accepted(code: int) -> None:
    assert Server(RCPT=f"{code} will forward").send(TEXT) == [Sent("Q1")]


@pytest.mark.parametrize("code", [260, 240, 220])
def test_any_other_yes_is_out_of_step(code: int) -> None:
    server = Server(RCPT=[f"{code} yes?", "250 ok"])

    first, second = server.send(TEXT, TEXT)

    assert first == NotSent(Kind.NETWORK, f"{code} yes?")
    assert (second, server.connections) == (Sent("Q1"), 2)


@pytest.mark.parametrize(
    ("mail", "kind"),
    [("251 ok", Kind.NETWORK), ("550 5.7.1 not you", Kind.AUTH), ("450 4.3.0 later", Kind.SOFT_BOUNCE)],
)
def test_a_sender_is_accepted_by_250_alone(mail: str, kind: Kind) -> None:
    (outcome,) = Server(MAIL=mail).send(TEXT)

    assert isinstance(outcome, NotSent)
    assert (outcome.kind, outcome.detail) == (kind, mail)


@pytest.mark.parametrize(
    ("rset", "connections"),
    [("250 ok", 1), ("251 ok", 2), ("500 what?", 2), (DROP, 2)],
    ids=["yes", "odd", "no", "gone"],
)
def test_a_broken_transaction_is_reset_or_the_connection_replaced(rset: str, connections: int) -> None:
    server = Server(RCPT=["550 5.1.1 nobody", "250 ok"], RSET=rset)

    first, second, third = server.send(TEXT, TEXT, TEXT)

    assert isinstance(first, NotSent)
    assert (second, third) == (Sent("Q1"), Sent("Q1"))
    assert server.connections == connections
    assert server.verbs.count("RSET") == 1


def test_a_refusal_after_a_delivery_leaves_the_connection() -> None:
    server = Server(RCPT=["250 ok", "550 5.1.1 nobody", "250 ok"], RSET="250 ok")

    first, second, third = server.send(TEXT, TEXT, TEXT)

    assert (first, third) == (Sent("Q1"), Sent("Q1"))
    assert isinstance(second, NotSent)
    assert server.connections == 1


def test_a_new_connection_that_is_refused_too_is_an_answer() -> None:
    server = Server(MAIL=["250 ok", "421 4.3.2 closing", "421 4.3.2 closing", "250 ok"])

    first, second, third = server.send(TEXT, TEXT, TEXT)

    assert (first, third) == (Sent("Q1"), Sent("Q1"))
    assert second == NotSent(Kind.UNAVAILABLE, "421 4.3.2 closing")


def test_a_server_that_leaves_a_new_connection_at_mail_is_lost_once() -> None:
    server = Server(MAIL=DROP)

    (outcome,) = server.send(TEXT)

    assert isinstance(outcome, NotSent)
    assert (outcome.kind, server.connections) == (Kind.NETWORK, 1)


@pytest.fixture
def sockets(monkeypatch: pytest.MonkeyPatch) -> list[socket.socket]:
    """Every one that was connected."""
    made: list[socket.socket] = []
    real = connect_socket

    async def connect(host: str, port: int) -> socket.socket:
        made.append(await real(host, port))
        return made[-1]

    monkeypatch.setattr("accounts.channels.smtp.connection.connect_socket", connect)
    return made


@pytest.mark.parametrize(
    ("banner", "kind"),
    [("554 5.7.1 not you", Kind.AUTH), ("421 4.3.2 full", Kind.UNAVAILABLE), (DROP, Kind.NETWORK)],
)
def test_a_door_that_stays_shut_leaves_no_socket_behind(banner: str, kind: Kind, sockets: list[socket.socket]) -> None:
    (outcome,) = Server(banner=banner).send(TEXT)

    assert isinstance(outcome, NotSent)
    assert outcome.kind is kind
    assert [one.fileno() for one in sockets] == [-1]


def test_a_send_that_is_given_up_at_the_door_leaves_no_socket_behind(sockets: list[socket.socket]) -> None:
    async def impatient() -> None:
        async with asyncio.timeout(0.2):
            await Connection.open(SmtpSettings.of(account(silent.getsockname()[1], timeout=5)))

    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(TimeoutError):
        asyncio.run(impatient())
    assert [one.fileno() for one in sockets] == [-1]


# -- connections that are kept ----------------------------------------------------------------------------


def test_a_mail_uses_the_connection_up_by_one_and_makes_it_young() -> None:
    server = Server()

    async def go(transport: SmtpTransport) -> tuple[int, float, bool]:
        before = time.monotonic()
        await transport.send(WHO, TEXT, "m-1")
        (kept,) = transport.pool._idle
        return kept.messages, kept.used_at - before, kept.usable()

    messages, age, usable = server.use(go)
    assert (messages, usable) == (1, True)
    assert 0 <= age < 2


@pytest.mark.parametrize(
    ("changed", "usable"),
    [
        ({}, True),
        ({"messages": 99}, True),
        ({"messages": 100}, False),
        ({"messages": 101}, False),
        ({"used_at": -59.0}, True),
        ({"used_at": -61.0}, False),
    ],
    ids=["new", "one left", "used up", "used up long ago", "idle", "idle for too long"],
)
def test_when_a_kept_connection_is_used_again(changed: dict[str, Any], usable: bool) -> None:
    async def go(transport: SmtpTransport) -> bool:
        connection = await Connection.open(transport.pool.settings())
        for name, value in changed.items():
            setattr(connection, name, value + (time.monotonic() if name == "used_at" else 0))
        try:
            return connection.usable()
        finally:
            await connection.quit()

    assert Server().use(go) is usable


def test_one_at_a_time_unless_the_account_may_do_more() -> None:
    server = Server()

    async def many(transport: Transport) -> list[Outcome]:
        return await asyncio.gather(*(transport.send(WHO, TEXT, f"m-{n}") for n in range(5)))

    assert server.use(many) == [Sent("Q1")] * 5
    assert server.connections == 1


def test_a_connection_that_is_used_up_is_told_goodbye() -> None:
    server = Server()

    assert server.send(TEXT, TEXT, messages_per_connection=1) == [Sent("Q1")] * 2
    assert (server.connections, server.verbs.count("QUIT")) == (2, 2)


def test_a_closed_transport_says_goodbye_and_closes() -> None:
    server = Server(QUIT="500 never")

    async def go(transport: SmtpTransport) -> bool:
        await transport.send(WHO, TEXT, "m-1")
        (kept,) = transport.pool._idle
        await transport.close()
        assert transport.pool._idle == []
        return bool(kept.smtp.is_connected)

    assert server.use(go) is False
    assert server.verbs[-1] == "QUIT"


def test_a_check_says_how_it_is_connected() -> None:
    server = Server()

    assert server.use(lambda transport: transport.check()).endswith("not encrypted, without signing in")
    assert server.verbs == ["EHLO", "QUIT"]


def test_a_check_that_is_refused_says_why() -> None:
    with pytest.raises(CheckFailed) as caught:
        Server(banner="421 4.3.2 full").use(lambda transport: transport.check())
    assert (caught.value.kind, caught.value.detail) == (Kind.UNAVAILABLE, "421 4.3.2 full")


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (replace(account(25), address="nobody"), "The sender's address 'nobody' cannot stand in a mail header."),
        (account(25, security="maybe"), "Account setting “security” is 'maybe'; it must be starttls or tls or plain."),
    ],
    ids=["a wrong sender", "a wrong setting"],
)
def test_a_check_of_an_account_that_is_wrong_asks_nobody(config: AccountConfig, words: str) -> None:
    with pytest.raises(CheckFailed) as caught:
        asyncio.run(SmtpTransport(config).check())
    assert (caught.value.kind, caught.value.detail) == (Kind.AUTH, words)


def test_a_check_that_takes_too_long_names_the_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        transport = SmtpTransport(account(silent.getsockname()[1], timeout=0.2))
        with pytest.raises(CheckFailed) as caught:
            asyncio.run(transport.check())
    assert caught.value.kind is Kind.NETWORK


# -- one delivery -----------------------------------------------------------------------------------------


def test_a_delivery_counts_and_writes_the_same_bytes() -> None:
    delivery = OutgoingMail("a@b.org", WHO, b"To: x\r\n", Encoded(b"From: y\r\n", b".\r\n", b"..\r\n"))

    assert delivery.text() == b"From: y\r\nTo: x\r\n\r\n..\r\n"
    assert delivery.size == len(delivery.text())


def test_before_its_dot_a_delivery_was_not_sent() -> None:
    delivery = OutgoingMail("a@b.org", WHO)

    assert delivery.lost("gone") == NotSent(Kind.NETWORK, "gone")
    delivery.dot_left = True
    assert delivery.lost("gone") == Unknown("gone")


@pytest.mark.parametrize(
    ("left", "reserve", "late"), [(0.5, None, False), (None, None, True), (5.0, 6.0, True), (5.0, 1.0, False)]
)
def test_a_delivery_is_late_when_there_is_no_time_for_an_answer(
    left: float | None, reserve: float | None, late: bool
) -> None:
    delivery = OutgoingMail("a@b.org", WHO)
    if left is not None:
        delivery.deadline = time.monotonic() + left
    if reserve is not None:
        delivery.reserve = reserve

    assert delivery.late() is late


# -- settings ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("security", "port"), [("starttls", 587), ("tls", 465), ("plain", 25)])
def test_the_usual_port(security: str, port: int) -> None:
    config = AccountConfig(1, "smtp", "Mailer", "mailer@example.com", {"host": "h", "security": security})

    assert SmtpSettings.of(config) == SmtpSettings(
        host="h",
        port=port,
        security=security,
        verify=True,
        ca_pem=None,
        helo="",
        username="",
        password="",
        timeout=11.0,
        idle_seconds=60.0,
        messages_per_connection=100,
        return_path="",
    )


def test_settings_of_its_own() -> None:
    made = SmtpSettings.of(account(2525, username="me", password="pw", timeout=3, verify=False, idle_seconds=5))

    assert (made.port, made.username, made.password, made.timeout) == (2525, "me", "pw", 3)
    assert (made.verify, made.idle_seconds, made.helo) == (False, 5, "crier.example")


@pytest.mark.parametrize("provider", CHANNEL.providers, ids=lambda provider: provider.name)
def test_a_well_known_provider_is_a_good_start(provider: Any) -> None:
    config = AccountConfig(1, "smtp", "Mailer", "mailer@example.com", dict(provider.settings))
    made = SmtpSettings.of(config)

    assert (made.security, made.port) in {("starttls", 587), ("tls", 465)}
    assert CHANNEL.setting_problems(provider.settings) == []
