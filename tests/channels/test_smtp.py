"""SMTP against servers nobody here wrote: aiosmtpd with scripted faults, and Debian's smtp-sink."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from accounts.channels import registry
from accounts.channels.base import (
    LONGEST_TIMEOUT,
    AccountConfig,
    CheckFailed,
    Kind,
    Media,
    NotSent,
    Outcome,
    Part,
    Sent,
    Transport,
    Unknown,
)
from accounts.channels.refusals import Stage, refusal
from accounts.channels.smtp.channel import SmtpSettings
from accounts.channels.smtp.transport import SmtpTransport, return_path
from fanout.engine.dispatcher import SEND_LIMIT
from tests.channels.contract import TEXT, Received, Rig, TransportContract
from tests.channels.mail_server import DROP, HANG, SMTP_SINK, ScriptedServer, Sink, certificate, free_port, server_tls

T = TypeVar("T")
WHO = "someone@example.org"

needs_sink = pytest.mark.skipif(SMTP_SINK is None, reason="smtp-sink is missing: apt-get install postfix")


def account(_port: int, *, concurrency: int = 3, password: str = "", **config: Any) -> AccountConfig:
    given = {"host": "127.0.0.1", "port": _port, "security": "plain", **config}
    credentials = {"password": password} if password else {}
    return AccountConfig(1, "smtp", "Mailer", "mailer@example.com", given, credentials, concurrency)


def with_transport(config: AccountConfig, work: Callable[[SmtpTransport], Awaitable[T]]) -> T:
    async def go() -> T:
        transport = SmtpTransport(config)
        try:
            return await work(transport)
        finally:
            await transport.close()

    return asyncio.run(go())


def send_to(config: AccountConfig, part: Part = TEXT, address: str = WHO) -> Outcome:
    return with_transport(config, lambda transport: transport.send(address, part, "m-1"))


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as running:
        yield running


@pytest.fixture
def guarded() -> Iterator[ScriptedServer]:
    """One that wants a password."""
    with ScriptedServer(auth=True) as running:
        yield running


# -- the contract -----------------------------------------------------------------------------------------

REFUSALS = {
    Kind.HARD_BOUNCE: ("rcpt", "550 5.1.1 No such user here"),
    Kind.SOFT_BOUNCE: ("rcpt", "552 5.2.2 Mailbox full"),
    Kind.AUTH: ("login", "535 5.7.8 Authentication credentials invalid"),
    Kind.RATE_LIMITED: ("mail", "450 4.7.1 Too many messages, slow down"),
    Kind.UNAVAILABLE: ("banner", "421 4.3.2 Service not available"),
    Kind.CONTENT_REJECTED: ("dot", "554 5.7.1 Message looks like spam"),
    Kind.NETWORK: ("data", DROP),
}


class SmtpRig(Rig):
    def __init__(self, server: ScriptedServer) -> None:
        self.server = server

    def transport(self, timeout: float = 5) -> Transport:
        config = account(self.server.port, password="open sesame", username="mailer", timeout=timeout)
        return registry.transport_for(config)

    def fail(self, kind: Kind) -> None:
        stage, answer = REFUSALS[kind]
        setattr(self.server.script, stage, answer)

    def drop_after_accept(self) -> None:
        self.server.script.dot = DROP

    def stay_silent(self) -> None:
        self.server.script.dot = HANG

    def go_down(self) -> None:
        self.server.stop()

    def refuse_login(self, words: str) -> None:
        self.server.script.login = f"535 5.7.8 {words}"

    def received(self) -> list[Received]:
        return [
            Received(mail.to[0], body_of(mail.message), mail.message["Message-ID"].strip("<>").split("@")[0])
            for mail in self.server.mails
        ]


def body_of(message: Any) -> str:
    return str(message.get_body(("plain",)).get_content())


class TestSmtpContract(TransportContract):
    kinds = tuple(REFUSALS)

    @pytest.fixture
    def rig(self, guarded: ScriptedServer) -> Rig:
        return SmtpRig(guarded)


# -- what a refusal means ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "stage", "kind"),
    [
        pytest.param(
            "450 4.1.1 <ann@example.org>: Recipient address rejected: unverified address: connection timed out",
            Stage.RCPT,
            Kind.SOFT_BOUNCE,
            id="the address could not be verified in time",
        ),
        pytest.param(
            "550 5.1.1 <ann@example.org>: Temporary lookup failure", Stage.RCPT, Kind.SOFT_BOUNCE, id="no look-up now"
        ),
        pytest.param("550 5.1.1 User unknown; try again later", Stage.RCPT, Kind.SOFT_BOUNCE, id="asked to come back"),
        pytest.param("550 5.1.1 Greylisted, user unknown", Stage.RCPT, Kind.SOFT_BOUNCE, id="greylisted"),
        pytest.param(
            "550 5.1.1 The address couldn't be found. Check for typos and try again.",
            Stage.RCPT,
            Kind.HARD_BOUNCE,
            id="gone, and advice to people",
        ),
        pytest.param("421 Service not available", Stage.CONNECT, Kind.UNAVAILABLE, id="closed at the door"),
        pytest.param("421 4.7.0 Try again later", Stage.CONNECT, Kind.RATE_LIMITED, id="421 by policy"),
        pytest.param("421 Too many connections", Stage.CONNECT, Kind.RATE_LIMITED, id="421, rate words"),
        pytest.param("454 4.3.0 Later", Stage.CONNECT, Kind.UNAVAILABLE, id="4xx at the door"),
        pytest.param("554 5.7.1 Your host is listed", Stage.CONNECT, Kind.AUTH, id="554 at the door"),
        pytest.param("535 5.7.8 Bad credentials", Stage.LOGIN, Kind.AUTH, id="bad password"),
        pytest.param("535 Bad credentials", Stage.LOGIN, Kind.AUTH, id="bad password, no status"),
        pytest.param("534 5.7.9 App password needed", Stage.LOGIN, Kind.AUTH, id="app password"),
        pytest.param("454 4.7.0 Temporary failure", Stage.LOGIN, Kind.UNAVAILABLE, id="login later"),
        pytest.param("454 4.7.0 Too many login attempts", Stage.LOGIN, Kind.RATE_LIMITED, id="login limit"),
        pytest.param("530 5.7.0 Authentication required", Stage.MAIL, Kind.AUTH, id="auth required"),
        pytest.param("530 Log in first", Stage.MAIL, Kind.AUTH, id="530 without status"),
        pytest.param("550 5.7.1 Sender not allowed", Stage.MAIL, Kind.AUTH, id="sender by policy"),
        pytest.param("553 5.1.8 Bad sender domain", Stage.MAIL, Kind.AUTH, id="sender's domain"),
        pytest.param("550 Go away", Stage.MAIL, Kind.AUTH, id="550 at MAIL"),
        pytest.param("552 5.3.4 Message too big", Stage.MAIL, Kind.CONTENT_REJECTED, id="too big at MAIL"),
        pytest.param("552 Too big", Stage.MAIL, Kind.CONTENT_REJECTED, id="552 at MAIL"),
        pytest.param("451 4.3.0 Try again", Stage.MAIL, Kind.SOFT_BOUNCE, id="451 at MAIL"),
        pytest.param("452 4.3.1 Disk full", Stage.MAIL, Kind.UNAVAILABLE, id="server's disk full"),
        pytest.param("503 5.5.1 Bad sequence", Stage.MAIL, Kind.UNKNOWN, id="out of order"),
        pytest.param("550 5.1.1 No such user", Stage.RCPT, Kind.HARD_BOUNCE, id="no such user"),
        pytest.param("550 5.1.2 No such domain", Stage.RCPT, Kind.HARD_BOUNCE, id="no such domain"),
        pytest.param("550 5.1.10 Null MX", Stage.RCPT, Kind.HARD_BOUNCE, id="null MX"),
        pytest.param("550 5.1.8 Sender unknown", Stage.RCPT, Kind.AUTH, id="sender, said late"),
        pytest.param("550 5.2.1 Mailbox disabled", Stage.RCPT, Kind.SOFT_BOUNCE, id="disabled"),
        pytest.param("552 5.2.2 Mailbox full", Stage.RCPT, Kind.SOFT_BOUNCE, id="full"),
        pytest.param("452 4.2.2 Over quota", Stage.RCPT, Kind.SOFT_BOUNCE, id="over quota"),
        pytest.param("450 4.2.1 Receives mail too quickly", Stage.RCPT, Kind.SOFT_BOUNCE, id="their rate"),
        pytest.param("552 5.2.3 Too long for it", Stage.RCPT, Kind.CONTENT_REJECTED, id="too long"),
        pytest.param("450 4.7.1 Greylisted, come back", Stage.RCPT, Kind.SOFT_BOUNCE, id="greylisted"),
        pytest.param("450 4.7.1 Too many messages", Stage.RCPT, Kind.RATE_LIMITED, id="too many"),
        pytest.param("451 4.7.1 Rate limit exceeded", Stage.RCPT, Kind.RATE_LIMITED, id="rate limit"),
        pytest.param("421 4.7.0 Try later", Stage.RCPT, Kind.RATE_LIMITED, id="421 by policy at RCPT"),
        pytest.param("421 4.4.2 Closing", Stage.RCPT, Kind.UNAVAILABLE, id="421 at RCPT"),
        pytest.param("450 Mailbox busy", Stage.RCPT, Kind.SOFT_BOUNCE, id="450"),
        pytest.param("451 Local error", Stage.RCPT, Kind.SOFT_BOUNCE, id="451"),
        pytest.param("452 No storage", Stage.RCPT, Kind.SOFT_BOUNCE, id="452"),
        pytest.param("550 5.4.5 Daily sending limit", Stage.RCPT, Kind.RATE_LIMITED, id="Gmail's day"),
        pytest.param("550 5.1.90 Daily limit reached", Stage.RCPT, Kind.RATE_LIMITED, id="Outlook's day"),
        pytest.param("550 5.4.4 No route", Stage.RCPT, Kind.SOFT_BOUNCE, id="no route"),
        pytest.param("554 5.7.1 Relay access denied", Stage.RCPT, Kind.AUTH, id="no relay"),
        pytest.param("550 relay not permitted", Stage.RCPT, Kind.AUTH, id="no relay, no status"),
        pytest.param("550 Unable to relay for a@b.org", Stage.RCPT, Kind.AUTH, id="unable to relay"),
        pytest.param("550 authentication required", Stage.RCPT, Kind.AUTH, id="auth required at RCPT"),
        pytest.param("553 not in my list of allowed rcpthosts", Stage.RCPT, Kind.AUTH, id="qmail's rcpthosts"),
        pytest.param("551 we do not relay", Stage.RCPT, Kind.AUTH, id="we do not relay"),
        pytest.param("550 Relaying disabled", Stage.RCPT, Kind.AUTH, id="relaying disabled"),
        pytest.param("550 not authorized to relay", Stage.RCPT, Kind.AUTH, id="not authorised to relay"),
        pytest.param("550 5.1.0 Authentication required", Stage.RCPT, Kind.AUTH, id="5.1.0 with words"),
        pytest.param("550 5.7.54 Unable to relay", Stage.RCPT, Kind.AUTH, id="Exchange's relay"),
        pytest.param("452 Quota exceeded", Stage.RCPT, Kind.SOFT_BOUNCE, id="452, words of a quota"),
        pytest.param("452 Quota exceeded", Stage.MAIL, Kind.RATE_LIMITED, id="452 at MAIL, words of a quota"),
        pytest.param("550 5.7.1 Blocked by policy", Stage.RCPT, Kind.CONTENT_REJECTED, id="policy"),
        pytest.param("550 5.7.26 Unauthenticated mail", Stage.RCPT, Kind.SENDER_REJECTED, id="DMARC"),
        pytest.param("550 No such user", Stage.RCPT, Kind.HARD_BOUNCE, id="550 at RCPT"),
        pytest.param("551 Not here", Stage.RCPT, Kind.HARD_BOUNCE, id="551 at RCPT"),
        pytest.param("553 Name not allowed", Stage.RCPT, Kind.HARD_BOUNCE, id="553 at RCPT"),
        pytest.param("552 Over quota", Stage.RCPT, Kind.SOFT_BOUNCE, id="552, a full mailbox"),
        pytest.param("552 Requested action aborted", Stage.RCPT, Kind.CONTENT_REJECTED, id="bare 552"),
        pytest.param("554 Failed", Stage.RCPT, Kind.CONTENT_REJECTED, id="554 at RCPT"),
        pytest.param("501 Syntax", Stage.RCPT, Kind.UNKNOWN, id="501 at RCPT"),
        pytest.param("550 5.0.0 No", Stage.RCPT, Kind.HARD_BOUNCE, id="5.0.0 says nothing"),
        pytest.param("554 5.7.1 Spam", Stage.DATA, Kind.CONTENT_REJECTED, id="spam"),
        pytest.param("550 Refused", Stage.DATA, Kind.CONTENT_REJECTED, id="550 at DATA"),
        pytest.param("552 5.3.4 Too big", Stage.DATA, Kind.CONTENT_REJECTED, id="too big at DATA"),
        pytest.param("552 5.2.2 Full", Stage.DATA, Kind.SOFT_BOUNCE, id="full at DATA"),
        pytest.param("550 5.1.1 No such user", Stage.DATA, Kind.HARD_BOUNCE, id="no such user at DATA"),
        pytest.param("451 4.7.1 Later", Stage.DATA, Kind.SOFT_BOUNCE, id="451 at DATA"),
        pytest.param("535 5.7.8 Session expired", Stage.DATA, Kind.AUTH, id="login expired"),
        pytest.param("451 see 550 5.1.1 in our FAQ", Stage.RCPT, Kind.SOFT_BOUNCE, id="a 550 in the text"),
        pytest.param("554 policy 5.1.1 says no", Stage.DATA, Kind.CONTENT_REJECTED, id="status in the text"),
        pytest.param("451 5.1.1 contradicts itself", Stage.RCPT, Kind.SOFT_BOUNCE, id="contradiction"),
        pytest.param("250 5.1.1 yes?", Stage.RCPT, Kind.NETWORK, id="a yes at the wrong moment"),
        pytest.param("550 5.1.90 Nobody", Stage.RCPT, Kind.HARD_BOUNCE, id="5.1.90 without words of a limit"),
        pytest.param("550 5.1.91 Limit reached", Stage.RCPT, Kind.HARD_BOUNCE, id="5.1.91 is no limit"),
        pytest.param("550 5.2.90 Limit reached", Stage.RCPT, Kind.CONTENT_REJECTED, id="5.2.90 is no limit"),
        pytest.param("550 5.4.6 Limit reached", Stage.RCPT, Kind.SOFT_BOUNCE, id="5.4.6 is no limit"),
        pytest.param("450 4.3.1 Later", Stage.RCPT, Kind.UNAVAILABLE, id="4.3.1 at RCPT"),
        pytest.param("450 4.3.2 Later", Stage.RCPT, Kind.UNAVAILABLE, id="4.3.2 at RCPT"),
        pytest.param("450 4.3.3 Later", Stage.RCPT, Kind.SOFT_BOUNCE, id="4.3.3 at RCPT"),
        pytest.param("450 4.4.1 Later", Stage.RCPT, Kind.SOFT_BOUNCE, id="4.4.1 at RCPT"),
        pytest.param("450 4.4.2 Later", Stage.RCPT, Kind.SOFT_BOUNCE, id="4.4.2 without a 421"),
        pytest.param("422 Later", Stage.RCPT, Kind.SOFT_BOUNCE, id="422 closes nothing"),
        pytest.param("450 Later", Stage.CONNECT, Kind.UNAVAILABLE, id="450 at the door"),
        pytest.param("450 Later", Stage.LOGIN, Kind.UNAVAILABLE, id="450 at the login"),
        pytest.param("451 Too many mails", Stage.RCPT, Kind.RATE_LIMITED, id="451, words of a rate"),
        pytest.param("453 Quota exceeded", Stage.RCPT, Kind.RATE_LIMITED, id="453 is no full mailbox"),
        pytest.param("450 4.3.2 Too many connections", Stage.RCPT, Kind.RATE_LIMITED, id="4.3.2, words of a rate"),
        pytest.param("452 4.5.3 Too many recipients", Stage.RCPT, Kind.RATE_LIMITED, id="4.5.3, words of a rate"),
        pytest.param("452 4.5.3 No", Stage.RCPT, Kind.SOFT_BOUNCE, id="4.5.3 without them"),
        pytest.param("450 4.5.4 Too many", Stage.RCPT, Kind.SOFT_BOUNCE, id="4.5.4, words of a rate"),
        pytest.param("450 4.6.3 Too many", Stage.RCPT, Kind.SOFT_BOUNCE, id="4.6.3, words of a rate"),
        pytest.param("450 4.3.0 Too many", Stage.RCPT, Kind.SOFT_BOUNCE, id="4.3.0, words of a rate"),
        pytest.param("450 4.3.3 Too many", Stage.RCPT, Kind.SOFT_BOUNCE, id="4.3.3, words of a rate"),
        pytest.param("450 4.4.2 Too many", Stage.RCPT, Kind.SOFT_BOUNCE, id="4.4.2, words of a rate"),
        pytest.param("450 4.8.1 Too many", Stage.RCPT, Kind.SOFT_BOUNCE, id="4.8.1, words of a rate"),
        pytest.param("530 No", Stage.RCPT, Kind.AUTH, id="530 at RCPT"),
        pytest.param("534 No", Stage.RCPT, Kind.AUTH, id="534 at RCPT"),
        pytest.param("535 No", Stage.RCPT, Kind.AUTH, id="535 at RCPT"),
        pytest.param("538 No", Stage.RCPT, Kind.AUTH, id="538 at RCPT"),
        pytest.param("531 No", Stage.RCPT, Kind.HARD_BOUNCE, id="531 at RCPT"),
        pytest.param("536 No", Stage.RCPT, Kind.HARD_BOUNCE, id="536 at RCPT"),
        pytest.param("539 No", Stage.RCPT, Kind.HARD_BOUNCE, id="539 at RCPT"),
        pytest.param("550 5.1.1 No", Stage.CONNECT, Kind.AUTH, id="5.1.1 at the door"),
        pytest.param("550 5.1.1 No", Stage.LOGIN, Kind.AUTH, id="5.1.1 at the login"),
        pytest.param("554 5.1.0 No", Stage.RCPT, Kind.HARD_BOUNCE, id="5.1.0 says whom"),
        pytest.param("550 5.0.1 No", Stage.RCPT, Kind.CONTENT_REJECTED, id="5.0.1 says something"),
        pytest.param("553 5.1.6 No", Stage.DATA, Kind.HARD_BOUNCE, id="5.1.6 at DATA"),
        pytest.param("553 5.1.7 No", Stage.DATA, Kind.AUTH, id="5.1.7 at DATA"),
        pytest.param("553 5.1.8 No", Stage.DATA, Kind.AUTH, id="5.1.8 at DATA"),
        pytest.param("553 5.1.9 No", Stage.DATA, Kind.HARD_BOUNCE, id="5.1.9 at DATA"),
        pytest.param("550 5.1.1 No", Stage.MAIL, Kind.AUTH, id="5.1.1 at MAIL"),
        pytest.param("550 5.1.1 Authentication required", Stage.RCPT, Kind.HARD_BOUNCE, id="5.1.1, words of a login"),
        pytest.param("550 5.2.1 No", Stage.MAIL, Kind.AUTH, id="5.2.1 at MAIL"),
        pytest.param("550 5.2.0 No", Stage.RCPT, Kind.CONTENT_REJECTED, id="5.2.0 at RCPT"),
        pytest.param("550 5.3.0 No", Stage.RCPT, Kind.CONTENT_REJECTED, id="5.3.0 at RCPT"),
        pytest.param("550 5.4.1 No", Stage.DATA, Kind.SOFT_BOUNCE, id="5.4.1 at DATA"),
        pytest.param("550 5.5.1 No", Stage.RCPT, Kind.UNKNOWN, id="5.5.1 at RCPT"),
        pytest.param("550 5.6.1 No", Stage.RCPT, Kind.CONTENT_REJECTED, id="5.6.1 at RCPT"),
        pytest.param("550 5.8.8 No", Stage.RCPT, Kind.CONTENT_REJECTED, id="5.8.8 at RCPT"),
        pytest.param("550 5.7.8 No", Stage.DATA, Kind.AUTH, id="5.7.8 at DATA"),
        pytest.param("550 5.7.9 No", Stage.DATA, Kind.AUTH, id="5.7.9 at DATA"),
        pytest.param("550 5.7.11 No", Stage.DATA, Kind.AUTH, id="5.7.11 at DATA"),
        pytest.param("550 5.7.14 No", Stage.DATA, Kind.AUTH, id="5.7.14 at DATA"),
        pytest.param("550 5.7.7 No", Stage.DATA, Kind.CONTENT_REJECTED, id="5.7.7 at DATA"),
        pytest.param("550 5.7.10 No", Stage.DATA, Kind.CONTENT_REJECTED, id="5.7.10 at DATA"),
        pytest.param("550 5.7.12 No", Stage.DATA, Kind.CONTENT_REJECTED, id="5.7.12 at DATA"),
        pytest.param("550 5.7.15 No", Stage.DATA, Kind.CONTENT_REJECTED, id="5.7.15 at DATA"),
        pytest.param("550 5.7.0 Not authenticated", Stage.DATA, Kind.AUTH, id="5.7.0, words of a login"),
        pytest.param("550 5.7.1 Not authenticated", Stage.DATA, Kind.AUTH, id="5.7.1, words of a login"),
        pytest.param("550 5.7.54 Not authenticated", Stage.DATA, Kind.AUTH, id="5.7.54, words of a login"),
        pytest.param("550 5.7.60 Not authenticated", Stage.DATA, Kind.AUTH, id="5.7.60, words of a login"),
        pytest.param(
            "550 5.7.2 Not authenticated", Stage.DATA, Kind.CONTENT_REJECTED, id="5.7.2 in spite of the words"
        ),
        pytest.param(
            "550 5.7.55 Not authenticated", Stage.DATA, Kind.CONTENT_REJECTED, id="5.7.55 in spite of the words"
        ),
        pytest.param(
            "550 5.7.61 Not authenticated", Stage.DATA, Kind.CONTENT_REJECTED, id="5.7.61 in spite of the words"
        ),
        pytest.param("550 5.7.60 No", Stage.DATA, Kind.CONTENT_REJECTED, id="5.7.60 without them"),
        pytest.param("509 No", Stage.RCPT, Kind.UNKNOWN, id="509 at RCPT"),
        pytest.param("510 No", Stage.RCPT, Kind.HARD_BOUNCE, id="510 at RCPT"),
        pytest.param("511 No", Stage.RCPT, Kind.HARD_BOUNCE, id="511 at RCPT"),
        pytest.param("553 No", Stage.MAIL, Kind.AUTH, id="553 at MAIL"),
        pytest.param("554 No", Stage.MAIL, Kind.AUTH, id="554 at MAIL"),
        pytest.param("552 Authentication required", Stage.DATA, Kind.CONTENT_REJECTED, id="552 at DATA"),
        pytest.param("555 No", Stage.RCPT, Kind.HARD_BOUNCE, id="555 at RCPT"),
        pytest.param("550 Mailbox is full", Stage.RCPT, Kind.SOFT_BOUNCE, id="550, a full mailbox"),
        pytest.param(
            "550 5.4.1 Recipient address rejected: Access denied", Stage.RCPT, Kind.HARD_BOUNCE, id="Exchange"
        ),
        pytest.param(
            "550 5.1.1 Denied: listed at spamhaus.org", Stage.RCPT, Kind.SENDER_REJECTED, id="5.1.1, a blocklist"
        ),
        pytest.param("550 Blocked IP 192.0.2.1", Stage.RCPT, Kind.SENDER_REJECTED, id="550, a blocked address"),
        pytest.param("550 5.7.1 Listed by spamhaus.org", Stage.DATA, Kind.SENDER_REJECTED, id="a blocklist at DATA"),
        pytest.param("550 5.1.1 over quota", Stage.RCPT, Kind.SOFT_BOUNCE, id="5.1.1, a full mailbox"),
        pytest.param("550 Virus detected", Stage.RCPT, Kind.CONTENT_REJECTED, id="550, a virus"),
        pytest.param("600 No", Stage.RCPT, Kind.NETWORK, id="no SMTP at all"),
        pytest.param("354 Go on", Stage.RCPT, Kind.NETWORK, id="a go-ahead at the wrong moment"),
        pytest.param("450 4.2.2.1 Too many", Stage.RCPT, Kind.RATE_LIMITED, id="a status that is none"),
        pytest.param("550   5.1.1 No", Stage.DATA, Kind.HARD_BOUNCE, id="a status behind blanks"),
    ],
)
def test_refusals(reply: str, stage: Stage, kind: Kind) -> None:
    code, _, text = reply.partition(" ")

    found = refusal(int(code), text, stage)

    assert found.kind is kind
    assert found.detail == " ".join(reply.split())


def test_a_daily_limit_is_asked_about_once_an_hour() -> None:
    assert refusal(550, "5.4.5 Daily user sending limit exceeded", Stage.DATA).retry_after == 3600
    assert refusal(550, "5.1.90 Daily limit reached", Stage.DATA).retry_after == 3600
    assert refusal(450, "4.7.1 Too many messages", Stage.DATA).retry_after is None


# -- bounces that are recognised ----------------------------------------------------------------------------


def test_each_message_has_a_return_path_of_its_own(server: ScriptedServer) -> None:
    assert isinstance(send_to(account(server.port, return_path="bounces@example.com")), Sent)
    assert isinstance(send_to(account(server.port)), Sent)

    assert [mail.sender for mail in server.mails] == ["bounces+m-1@example.com", "mailer@example.com"]
    assert [mail.message["From"] for mail in server.mails] == ["mailer@example.com"] * 2


def test_a_return_path_is_never_too_long() -> None:
    assert return_path("b@example.com", "x" * 62) == f"b+{'x' * 62}@example.com"
    assert return_path("b@example.com", "x" * 63) == "b@example.com"
    assert return_path("", "m-1") == ""


@pytest.mark.parametrize("dsn", [True, False])
def test_the_envelope_has_our_id_where_the_server_takes_one(server: ScriptedServer, dsn: bool) -> None:
    server.script.dsn = dsn
    assert isinstance(send_to(account(server.port)), Sent)

    assert server.book.envelope_ids == (["ENVID=m-1"] if dsn else [])


# -- the edge of what was sent ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stage", "answer", "expected"),
    [
        pytest.param("banner", DROP, NotSent, id="at the door"),
        pytest.param("mail", DROP, NotSent, id="at MAIL"),
        pytest.param("rcpt", DROP, NotSent, id="at RCPT"),
        pytest.param("data", DROP, NotSent, id="at DATA"),
        pytest.param("dot", DROP, Unknown, id="after the dot"),
        pytest.param("dot", HANG, Unknown, id="silence after the dot"),
    ],
)
def test_a_drop(server: ScriptedServer, stage: str, answer: str, expected: type) -> None:
    setattr(server.script, stage, answer)

    outcome = send_to(account(server.port, timeout=0.5))

    assert isinstance(outcome, expected)
    assert len(server.mails) == (1 if expected is Unknown else 0)
    if isinstance(outcome, NotSent):
        assert outcome.kind is Kind.NETWORK


def test_a_drop_while_a_large_text_is_under_way_is_not_sent(server: ScriptedServer) -> None:
    """More than the sockets hold: the dot is still here when the server leaves."""
    server.script.text = DROP
    large = Media("0" * 64, "video.mp4", "video/mp4", 0, lambda: b"x" * 12_000_000)

    outcome = send_to(account(server.port), replace(TEXT, kind="video", media=large))

    assert isinstance(outcome, NotSent)
    assert outcome.kind is Kind.NETWORK


def slow_to_read(seconds: float) -> Media:
    def read() -> bytes:
        time.sleep(seconds)
        return b"x"

    return Media("0" * 64, "video.mp4", "video/mp4", 0, read)


def test_writing_and_sending_share_one_time_out(server: ScriptedServer) -> None:
    outcome = send_to(account(server.port, timeout=0.2), replace(TEXT, kind="video", media=slow_to_read(0.5)))

    assert outcome == NotSent(Kind.NETWORK, "no answer in time")
    assert server.book.commands == []


def test_no_time_out_is_above_the_lanes() -> None:
    assert SmtpSettings.of(account(25, timeout=60)).timeout == LONGEST_TIMEOUT < SEND_LIMIT


@pytest.mark.parametrize(("text", "options"), [("Żółw", ["BODY=8BITMIME"]), ("Turtle", [])])
def test_bytes_beyond_ascii_are_announced(server: ScriptedServer, text: str, options: list[str]) -> None:
    assert isinstance(send_to(account(server.port), replace(TEXT, text=text)), Sent)
    assert server.book.options == [options]


def test_a_server_that_leaves_after_354_gets_no_dot() -> None:
    """Its end lies in the socket, not yet read, when the text has been written."""

    async def leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in (b"220 hello", b"250 hello", b"250 ok", b"250 ok", b"354 go on"):
            writer.write(answer + b"\r\n")
            if not answer.startswith(b"354"):
                await reader.readline()
        writer.close()

    async def go() -> Outcome:
        server = await asyncio.start_server(leave, "127.0.0.1", 0)
        async with server:
            transport = SmtpTransport(account(server.sockets[0].getsockname()[1]))
            return await transport.send(WHO, TEXT, "m-1")

    outcome = asyncio.run(go())

    assert isinstance(outcome, NotSent)
    assert outcome.kind is Kind.NETWORK


def test_a_server_that_never_greets_is_not_sent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        outcome = send_to(account(listener.getsockname()[1], timeout=0.3))

    assert isinstance(outcome, NotSent)
    assert outcome.kind is Kind.NETWORK


def test_a_cancelled_send_leaves_no_connection_behind(server: ScriptedServer) -> None:
    server.script.dot = HANG

    async def go(transport: SmtpTransport) -> Outcome:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await transport.send(WHO, TEXT, "m-1")
        assert transport.pool._idle == []
        server.script.dot = None
        return await transport.send(WHO, TEXT, "m-2")

    assert isinstance(with_transport(account(server.port, concurrency=1), go), Sent)


# -- connections ------------------------------------------------------------------------------------------


async def send_many(transport: Transport, count: int) -> list[Outcome]:
    return [await transport.send(WHO, TEXT, f"m-{n}") for n in range(count)]


def test_one_connection_serves_many_sends(server: ScriptedServer) -> None:
    found = with_transport(account(server.port), lambda transport: send_many(transport, 10))

    assert all(isinstance(outcome, Sent) for outcome in found)
    assert len(server.book.sessions) == 1
    assert found[0] == Sent("Q1")


def test_never_more_connections_than_the_accounts_concurrency(server: ScriptedServer) -> None:
    async def go(transport: Transport) -> list[Outcome]:
        return await asyncio.gather(*(transport.send(WHO, TEXT, f"m-{n}") for n in range(12)))

    found = with_transport(account(server.port, concurrency=2), go)

    assert all(isinstance(outcome, Sent) for outcome in found)
    assert len(server.book.sessions) == 2


def test_a_connection_is_replaced_after_so_many_messages(server: ScriptedServer) -> None:
    with_transport(account(server.port, messages_per_connection=4), lambda t: send_many(t, 10))

    assert len(server.mails) == 10
    assert len(server.book.sessions) == 3


def test_zero_means_no_limit(server: ScriptedServer) -> None:
    with_transport(account(server.port, messages_per_connection=0), lambda t: send_many(t, 110))

    assert len(server.book.sessions) == 1


def test_an_idle_connection_is_replaced(server: ScriptedServer) -> None:
    async def go(transport: Transport) -> None:
        await transport.send(WHO, TEXT, "m-1")
        await asyncio.sleep(0.1)
        await transport.send(WHO, TEXT, "m-2")

    with_transport(account(server.port, idle_seconds=0.05), go)

    assert len(server.mails) == 2
    assert len(server.book.sessions) == 2


@pytest.mark.parametrize("read_the_end", [True, False], ids=["the loop saw it", "the loop was busy"])
def test_a_connection_the_server_closed_while_idle(read_the_end: bool) -> None:
    async def go(transport: Transport) -> Outcome:
        assert isinstance(await transport.send(WHO, TEXT, "m-1"), Sent)
        if read_the_end:
            await asyncio.sleep(0.5)
        else:
            time.sleep(0.5)  # noqa: ASYNC251  the loop must not read the goodbye
        return await transport.send(WHO, TEXT, "m-2")

    with ScriptedServer(timeout=0.2) as server:
        outcome = with_transport(account(server.port), go)

    assert isinstance(outcome, Sent)
    assert len(server.mails) == 2


@pytest.mark.parametrize("answer", [DROP, "421 4.4.2 idle for too long"])
def test_a_goodbye_at_mail_opens_a_new_connection_once(server: ScriptedServer, answer: str) -> None:
    async def go(transport: Transport) -> Outcome:
        assert isinstance(await transport.send(WHO, TEXT, "m-1"), Sent)
        server.script.mail, server.script.once = answer, True
        return await transport.send(WHO, TEXT, "m-2")

    assert isinstance(with_transport(account(server.port), go), Sent)
    assert len(server.mails) == 2
    assert len(server.book.sessions) == 2


def test_a_goodbye_at_mail_on_a_new_connection_too_is_an_answer(server: ScriptedServer) -> None:
    async def go(transport: Transport) -> Outcome:
        assert isinstance(await transport.send(WHO, TEXT, "m-1"), Sent)
        server.script.mail = "421 4.3.2 closing for the night"
        return await transport.send(WHO, TEXT, "m-2")

    outcome = with_transport(account(server.port), go)

    assert isinstance(outcome, NotSent)
    assert outcome.kind is Kind.UNAVAILABLE
    assert server.book.commands.count("MAIL") == 3


def test_a_refused_recipient_costs_no_connection(server: ScriptedServer) -> None:
    server.script.rcpt, server.script.once = "550 5.1.1 nobody", True

    found = with_transport(account(server.port), lambda transport: send_many(transport, 3))

    assert [type(outcome) for outcome in found] == [NotSent, Sent, Sent]
    assert server.book.commands == ["MAIL", "RSET", "MAIL", "MAIL"]
    assert len(server.book.sessions) == 1


def test_each_message_is_its_own_transaction_with_one_recipient(server: ScriptedServer) -> None:
    async def go(transport: Transport) -> None:
        for name in ("ann", "bob"):
            await transport.send(f"{name}@example.org", TEXT, f"m-{name}")

    with_transport(account(server.port), go)

    assert [mail.to for mail in server.mails] == [["ann@example.org"], ["bob@example.org"]]
    assert [mail.message["To"] for mail in server.mails] == ["ann@example.org", "bob@example.org"]
    assert {mail.sender for mail in server.mails} == {"mailer@example.com"}


# -- limits of a server -----------------------------------------------------------------------------------


def test_a_message_above_the_servers_size_is_not_even_begun() -> None:
    with ScriptedServer(data_size_limit=1000) as server:
        outcome = send_to(account(server.port), replace(TEXT, text="x" * 2000))

    assert isinstance(outcome, NotSent)
    assert outcome.kind is Kind.CONTENT_REJECTED
    assert server.book.commands == []


def test_an_address_beyond_ascii_needs_smtputf8(server: ScriptedServer) -> None:
    assert isinstance(send_to(account(server.port), address="żółw@example.org"), Sent)
    assert server.mails[0].to == ["żółw@example.org"]


@needs_sink
@pytest.mark.processes
def test_an_address_beyond_ascii_without_smtputf8_is_refused_here() -> None:
    with Sink() as sink:
        outcome = send_to(account(sink.port), address="żółw@example.org")

    assert isinstance(outcome, NotSent)
    assert outcome.kind is Kind.CONTENT_REJECTED


@pytest.mark.parametrize(
    "address",
    ["a@b.org\r\nBcc: c@d.org", "a@b.org>\r\nRCPT TO:<c@d.org", "a b@c.org", "a@b.org,c@d.org", "nobody", ""],
)
def test_an_address_that_is_none_never_reaches_a_server(server: ScriptedServer, address: str) -> None:
    outcome = send_to(account(server.port), address=address)

    assert isinstance(outcome, NotSent)
    assert outcome.kind is Kind.RECIPIENT_GONE
    assert server.book.commands == []


# -- settings ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"host": ""},
        {"host": "a b"},
        {"security": "maybe"},
        {"port": "http"},
        {"port": 0},
        {"idle_seconds": -1},
        {"helo": "two words"},
        {"reply_to": "a@b.org\r\nBcc: c@d.org"},
        {"from_address": "not an address"},
    ],
    ids=str,
)
def test_a_wrong_setting_is_the_accounts_trouble(server: ScriptedServer, wrong: dict[str, Any]) -> None:
    outcome = send_to(account(server.port, **wrong))

    assert isinstance(outcome, NotSent)
    assert outcome.kind is Kind.AUTH
    assert server.mails == []


def test_an_unreadable_file_is_told(server: ScriptedServer, tmp_path: Path) -> None:
    gone = Media("0" * 64, "a.png", "image/png", 1, (tmp_path / "gone.png").read_bytes)

    outcome = send_to(account(server.port), replace(TEXT, kind="image", media=gone))

    assert isinstance(outcome, NotSent)
    assert "cannot be read" in outcome.detail


def test_check_names_server_and_user(guarded: ScriptedServer) -> None:
    config = account(guarded.port, username="mailer", password="open sesame")

    words = with_transport(config, lambda transport: transport.check())

    assert words == f"127.0.0.1:{guarded.port}, not encrypted, signed in as mailer"
    assert "sesame" not in words


def test_a_wrong_password_is_told_in_the_servers_words(guarded: ScriptedServer) -> None:
    config = account(guarded.port, username="mailer", password="open barley")

    with pytest.raises(CheckFailed) as caught:
        with_transport(config, lambda transport: transport.check())
    assert caught.value.kind is Kind.AUTH
    assert caught.value.detail.startswith("535 5.7.8")
    assert "barley" not in caught.value.detail
    assert "barley" not in repr(config)


# -- TLS --------------------------------------------------------------------------------------------------


@pytest.fixture(params=["starttls", "tls"])
def secured(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, ScriptedServer, Path]]:
    path = certificate(tmp_path)
    with ScriptedServer(tls=server_tls(path), implicit_tls=request.param == "tls") as server:
        yield request.param, server, path


def test_a_self_signed_certificate_is_refused(secured: tuple[str, ScriptedServer, Path]) -> None:
    security, server, _ = secured

    outcome = send_to(account(server.port, security=security))

    assert isinstance(outcome, NotSent)
    assert outcome.kind is Kind.AUTH
    assert "certificate" in outcome.detail
    assert server.mails == []


@pytest.mark.parametrize("how", ["the right authority", "verification off"])
def test_a_self_signed_certificate_is_taken_when_told(secured: tuple[str, ScriptedServer, Path], how: str) -> None:
    security, server, path = secured
    more: dict[str, Any] = {"verify": False} if how == "verification off" else {"ca_pem": path.read_text()}

    async def go(transport: Transport) -> tuple[str, list[Outcome]]:
        return await transport.check(), await send_many(transport, 3)

    words, found = with_transport(account(server.port, security=security, **more), go)

    assert f"TLSv1.3 by {security}" in words
    assert all(isinstance(outcome, Sent) for outcome in found)
    assert len(server.mails) == 3


def test_a_closed_connection_does_not_wait_for_the_servers_end_of_tls(
    secured: tuple[str, ScriptedServer, Path],
) -> None:
    security, server, _ = secured
    server.script.quit = HANG

    async def go() -> int:
        transport = SmtpTransport(account(server.port, security=security, verify=False))
        await transport.send(WHO, TEXT, "m-1")
        (idle,) = transport.pool._idle
        used = idle.smtp.get_transport_info("socket")
        await transport.close()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return int(used.fileno())

    assert asyncio.run(go()) == -1


def test_a_certificate_for_another_name_is_refused(tmp_path: Path) -> None:
    path = certificate(tmp_path, "mail.example.com")
    with ScriptedServer(tls=server_tls(path)) as server:
        outcome = send_to(account(server.port, security="starttls", ca_pem=path.read_text()))

    assert isinstance(outcome, NotSent)
    assert outcome.kind is Kind.AUTH


def test_starttls_is_never_left_out_when_the_server_lacks_it(guarded: ScriptedServer) -> None:
    config = account(guarded.port, security="starttls", username="mailer", password="open sesame")

    outcome = send_to(config)

    assert isinstance(outcome, NotSent)
    assert outcome.kind is Kind.AUTH
    assert "STARTTLS" in outcome.detail
    assert guarded.mails == []


# -- smtp-sink --------------------------------------------------------------------------------------------


@needs_sink
@pytest.mark.processes
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param(("-f", "rcpt", "-B", "550 5.1.1 nobody"), Kind.HARD_BOUNCE, id="550 5.1.1"),
        pytest.param(("-f", "rcpt", "-B", "552 5.2.2 full"), Kind.SOFT_BOUNCE, id="552 5.2.2"),
        pytest.param(("-r", "data", "-b", "451 4.7.1 too many"), Kind.RATE_LIMITED, id="451 4.7.1"),
        pytest.param(("-r", "connect", "-b", "421 4.3.2 closed"), Kind.UNAVAILABLE, id="421"),
        pytest.param(("-q", "rcpt"), Kind.NETWORK, id="drop at RCPT"),
        pytest.param(("-q", "data"), Kind.NETWORK, id="drop at DATA"),
    ],
)
def test_sink_faults(options: tuple[str, ...], expected: Kind) -> None:
    with Sink(*options) as sink:
        outcome = send_to(account(sink.port))

    assert isinstance(outcome, NotSent)
    assert outcome.kind is expected


@needs_sink
@pytest.mark.processes
def test_sink_drop_after_the_dot_is_unknown() -> None:
    with Sink("-q", ".") as sink:
        assert isinstance(send_to(account(sink.port)), Unknown)


@needs_sink
@pytest.mark.processes
def test_sink_load(tmp_path: Path) -> None:
    text = "A line of the newsletter.\n" * 800

    async def go(transport: Transport) -> list[Outcome]:
        part = replace(TEXT, text=text)
        return await asyncio.gather(*(transport.send(f"u{n}@example.org", part, f"m-{n}") for n in range(1000)))

    with Sink("-c") as sink:
        found = with_transport(account(sink.port, concurrency=10, messages_per_connection=0), go)

    assert sum(isinstance(outcome, Sent) for outcome in found) == 1000


def test_a_port_where_nobody_listens_is_not_sent() -> None:
    outcome = send_to(account(free_port()))

    assert isinstance(outcome, NotSent)
    assert outcome.kind is Kind.NETWORK
