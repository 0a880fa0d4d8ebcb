"""Mail servers for tests: aiosmtpd with scripted faults, Debian's smtp-sink, and certificates for both."""

from __future__ import annotations

import asyncio
import datetime
import email
import ipaddress
import logging
import os
import shutil
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from email import policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

SMTP_SINK = shutil.which("smtp-sink") or shutil.which("/usr/sbin/smtp-sink")

logging.getLogger("mail.log").setLevel(logging.WARNING)  # aiosmtpd; connections end after their test

DROP = "drop"
HANG = "hang"


@dataclass
class Script:
    """What the server says at each stage; None is a yes. DROP ends the connection, HANG never answers."""

    ehlo: str | None = None
    login: str | None = None
    mail: str | None = None
    rcpt: str | None = None
    data: str | None = None  # in answer to DATA
    text: str | None = None  # DROP: after some of the text arrived, before its end
    dot: str | None = None
    banner: str | None = None
    quit: str | None = None
    password: str = "open sesame"
    # Offers RFC 3461: a message may have an id of its envelope.
    dsn: bool = False
    # Once: a fault that is over after it struck once.
    once: bool = False

    def take(self, stage: str) -> str | None:
        fault: str | None = getattr(self, stage)
        if fault is not None and self.once:
            setattr(self, stage, None)
        return fault


@dataclass
class Mail:
    sender: str
    to: list[str]
    raw: bytes
    peer: Any
    message: EmailMessage = field(init=False)

    def __post_init__(self) -> None:
        parsed = email.message_from_bytes(self.raw, policy=policy.default)
        assert isinstance(parsed, EmailMessage)
        self.message = parsed


def cut(server: SMTP) -> None:
    transport: Any = server.transport
    transport.abort()


class ScriptedSMTP(SMTP):
    """aiosmtpd, with faults where its handlers have no say."""

    def __init__(self, handler: Handler, script: Script, **more: Any) -> None:
        super().__init__(handler, **more)
        self.script = script

    def connection_made(self, transport: Any) -> None:
        fault = self.script.take("banner")
        if fault is None:
            super().connection_made(transport)
            return
        if fault != DROP:
            transport.write(f"{fault}\r\n".encode())
        transport.close()

    async def smtp_MAIL(self, arg: str) -> None:
        """aiosmtpd does not know RFC 3461: take its parameter out."""
        words = (arg or "").split(" ")
        self.event_handler.envelope_ids += [word for word in words if word.startswith("ENVID=")]
        await super().smtp_MAIL(" ".join(word for word in words if not word.startswith("ENVID=")))

    async def smtp_DATA(self, arg: str) -> None:
        fault = self.script.take("data")
        if fault == DROP:
            cut(self)
        elif fault is not None:
            await self.push(fault)
        elif self.script.take("text") == DROP:
            await self.push("354 go on")
            await self._reader.readline()
            cut(self)
        else:
            await super().smtp_DATA(arg)

    async def smtp_QUIT(self, arg: str) -> None:
        """HANG: it says goodbye and stays on the line."""
        if self.script.take("quit") == HANG:
            await self.push("221 Bye")
            await asyncio.sleep(3600)
        await super().smtp_QUIT(arg)


class Handler:
    def __init__(self, script: Script) -> None:
        self.script = script
        self.mails: list[Mail] = []
        self.sessions: set[Any] = set()
        self.commands: list[str] = []
        self.options: list[list[str]] = []
        self.envelope_ids: list[str] = []

    async def handle_EHLO(
        self, server: SMTP, session: Session, envelope: Envelope, hostname: str, responses: list[str]
    ) -> list[str]:
        session.host_name = hostname
        self.sessions.add(session.peer)
        fault = self.script.take("ehlo")
        if self.script.dsn:
            responses = [*responses[:-1], "250-DSN", responses[-1]]
        return [fault] if fault else responses

    async def handle_MAIL(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        self.commands.append("MAIL")
        self.options.append([word for word in options if not word.startswith("SIZE")])
        fault = self._fault(server, "mail")
        envelope.mail_from = None if fault else address
        return fault or "250 OK"

    async def handle_RCPT(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        fault = self._fault(server, "rcpt")
        if fault:
            return fault
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_RSET(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        self.commands.append("RSET")
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        fault = self.script.take("dot")
        if fault in (None, DROP, HANG):
            content = envelope.original_content or b""
            self.mails.append(Mail(envelope.mail_from or "", envelope.rcpt_tos, content, session.peer))
        if fault == HANG:
            await asyncio.sleep(3600)
        if fault == DROP:
            cut(server)
        return fault or f"250 2.0.0 Ok: queued as Q{len(self.mails)}"

    def _fault(self, server: SMTP, stage: str) -> str | None:
        fault = self.script.take(stage)
        if fault == DROP:
            cut(server)
        return fault


class ScriptedServer(Controller):
    """In a thread of its own, on a port of its own."""

    def __init__(
        self, tls: ssl.SSLContext | None = None, implicit_tls: bool = False, auth: bool = False, **more: Any
    ) -> None:
        self.script = Script()
        self.book = Handler(self.script)
        self.auth = auth
        self.starttls = None if implicit_tls else tls
        self.more = more
        super().__init__(self.book, hostname="127.0.0.1", port=free_port(), ssl_context=tls if implicit_tls else None)

    def __enter__(self) -> ScriptedServer:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if not self.loop.is_closed():
            self.stop(no_assert=True)

    def factory(self) -> ScriptedSMTP:
        return ScriptedSMTP(
            self.book,
            self.script,
            tls_context=self.starttls,
            auth_require_tls=False,
            authenticator=self._authenticate if self.auth else None,
            enable_SMTPUTF8=True,
            **self.more,
        )

    def _authenticate(
        self, server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any
    ) -> AuthResult:
        fault = self.script.take("login")
        if fault is not None:
            return AuthResult(success=False, handled=False, message=fault)
        good = isinstance(data, LoginPassword) and data.password.decode() == self.script.password
        return AuthResult(success=good, handled=good)

    @property
    def mails(self) -> list[Mail]:
        return self.book.mails


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


# -- smtp-sink --------------------------------------------------------------------------------------------


class Sink:
    """Debian's smtp-sink, with its own options for faults and load."""

    def __init__(self, *options: str) -> None:
        assert SMTP_SINK is not None
        self.port = free_port()
        # As root it wants to be told whom to run as; for anybody else the option is an error.
        user = ["-u", "nobody"] if os.getuid() == 0 else []
        command = [SMTP_SINK, *user, *options, f"127.0.0.1:{self.port}", "1000"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(self._listens)

    def _listens(self) -> bool:
        assert self.process.poll() is None, "smtp-sink did not start"
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def __enter__(self) -> Sink:
        return self

    def __exit__(self, *exc: object) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def wait_until(done: Callable[[], bool], seconds: float = 60) -> None:
    ends = time.monotonic() + seconds
    while not done():
        if time.monotonic() > ends:
            raise TimeoutError("it did not happen")
        time.sleep(0.01)


# -- certificates -----------------------------------------------------------------------------------------


def certificate(directory: Path, name: str = "127.0.0.1") -> Path:
    """A self-signed certificate and its key in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    alternative: x509.GeneralName
    try:
        alternative = x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        alternative = x509.DNSName(name)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=2))
        .add_extension(x509.SubjectAlternativeName([alternative]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = directory / f"{name}.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM) + private)
    return path


def server_tls(path: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context
