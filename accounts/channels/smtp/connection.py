"""SMTP connections of an account: opening one, the dialogue of one delivery, and a pool that reuses them.

The message is written here rather than by aiosmtplib's `sendmail` for two reasons: the bytes are already encoded, and
we must know whether the final dot left. Without the dot a server discards the message; from the dot on, only its
answer tells whether it was accepted.
"""

from __future__ import annotations

import asyncio
import functools
import re
import socket
import ssl
import time
from dataclasses import dataclass
from typing import Any

import aiosmtplib
from aiosmtplib import SMTPResponseException
from aiosmtplib.errors import SMTPConnectError, SMTPException, SMTPServerDisconnected, SMTPTimeoutError

from accounts.channels.base import AccountConfig, Kind, NotSent, Outcome, Refused, Sent, Unknown
from accounts.channels.http import ForbiddenAddress, connect_socket, readable, words_of
from accounts.channels.mail import Encoded
from accounts.channels.refusals import Stage, refusal
from accounts.channels.smtp.channel import SmtpSettings

GOODBYE_SECONDS = 1.0
QUEUED_AS = re.compile(r"(?i)queued as[ :<]*([^\s>]+)")
NOTHING = Encoded(b"", b"", b"")


@dataclass(slots=True)
class OutgoingMail:
    """One mail to one recipient, and whether its final dot left."""

    sender: str
    address: str
    headers: bytes = b""
    encoded: Encoded = NOTHING
    dot_left: bool = False
    deadline: float = 0.0
    reserve: float = 0.0
    #: Our id for the message. A server that knows RFC 3461 names it in its reports.
    message_id: str = ""

    @property
    def size(self) -> int:
        return len(self.encoded.fixed) + len(self.headers) + len(self.encoded.stuffed) + 2

    def text(self) -> bytes:
        return b"".join((self.encoded.fixed, self.headers, b"\r\n", self.encoded.stuffed))

    def lost(self, words: str) -> Outcome:
        return Unknown(words) if self.dot_left else NotSent(Kind.NETWORK, words)

    def late(self) -> bool:
        return time.monotonic() > self.deadline - self.reserve


class Pool:
    """Up to `concurrency` connections; the one used last is used next, so that the others can go idle."""

    def __init__(self, account: AccountConfig) -> None:
        self.account = account
        self._free = asyncio.Semaphore(max(1, account.concurrency))
        self._idle: list[Connection] = []
        self._settings: SmtpSettings | None = None

    def settings(self) -> SmtpSettings:
        if self._settings is None:
            self._settings = SmtpSettings.of(self.account)
        return self._settings

    async def deliver(self, mail: OutgoingMail) -> Outcome:
        async with self._free:
            connection = await self._take()
            try:
                return await self._with(connection, mail)
            except Gone:
                # Nothing was handed over, so another connection is not another try.
                return await self._with(await Connection.open(self.settings()), mail)

    async def _with(self, connection: Connection, mail: OutgoingMail) -> Outcome:
        kept = False
        try:
            outcome = await connection.deliver(mail)
            kept = connection.smtp.is_connected
            return outcome
        finally:
            # After a time-out or a lost dialogue the next answer may belong to an earlier command.
            if kept:
                self._idle.append(connection)
            else:
                connection.smtp.close()

    async def _take(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable():
                return connection
            await connection.quit()
        return await Connection.open(self.settings())

    async def close(self) -> None:
        idle, self._idle = self._idle, []
        await asyncio.gather(*(connection.quit() for connection in idle))


class Gone(Exception):
    """Raised for a kept connection that the server has closed: nothing was sent on it."""


class Connection:
    """One signed-in connection, used by one delivery at a time."""

    def __init__(self, smtp: aiosmtplib.SMTP, settings: SmtpSettings) -> None:
        self.smtp = smtp
        self.settings = settings
        self.messages = 0
        self.used_at = time.monotonic()
        # A transaction was interrupted: the next one starts with RSET.
        self.dirty = False
        # The text is being written, so the server is not listening for commands.
        self.writing = False

    @classmethod
    async def open(cls, settings: SmtpSettings) -> Connection:
        name = await asyncio.to_thread(own_name)
        try:
            connected = await connect_socket(settings.host, settings.port)
        except OSError as error:
            raise Refused(no_connection(error)) from error
        smtp = smtp_client(settings, name, connected)
        try:
            await smtp.connect()
            if smtp.is_ehlo_or_helo_needed:
                await smtp.ehlo()
        except (SMTPException, OSError, ValueError) as error:
            _give_up(smtp, connected)
            raise Refused(no_connection(error)) from error
        except BaseException:
            _give_up(smtp, connected)
            raise
        return cls(smtp, settings)

    def introduction(self) -> str:
        tls = self.smtp.get_transport_info("cipher")
        secured = f"{tls[1]} by {self.settings.security}" if tls else "not encrypted"
        who = f"signed in as {self.settings.username}" if self.settings.username else "without signing in"
        return f"{self.settings.host}:{self.settings.port}, {secured}, {who}"

    def usable(self) -> bool:
        """Return False where the server has ended it, probably has, or wants a new one after so many messages."""
        limit = self.settings.messages_per_connection
        if not self.smtp.is_connected or (limit and self.messages >= limit):
            return False
        if time.monotonic() - self.used_at > self.settings.idle_seconds:
            return False
        # Between messages a server sends nothing, unless it says goodbye.
        return not readable(self.smtp.get_transport_info("socket").fileno())

    async def deliver(self, mail: OutgoingMail) -> Outcome:
        fresh = self.messages == 0
        self.messages += 1
        try:
            await self._reset()
            await self._mail(mail, fresh)
            await self._say(Stage.RCPT, b"RCPT", b"TO:<%b>" % mail.address.encode())
            await self._say(Stage.DATA, b"DATA", wanted=354)
            return await self._write(mail)
        except Refused as error:
            self._close_unless_usable(error.reason)
            return error.reason
        except (SMTPException, OSError) as error:
            self.smtp.close()
            return mail.lost(words_of(error))
        finally:
            self.used_at = time.monotonic()

    def _close_unless_usable(self, reason: NotSent) -> None:
        """Close the connection after a refusal while the text was under way or out of step. Otherwise it stays
        usable."""
        if self.writing or reason.kind is Kind.NETWORK:
            self.smtp.close()

    async def _reset(self) -> None:
        if not self.dirty:
            return
        try:
            code, _ = await self.smtp.execute_command(b"RSET")
        except (SMTPException, OSError) as error:
            raise Gone from error
        if code != 250:
            raise Gone
        self.dirty = False

    async def _mail(self, mail: OutgoingMail, fresh: bool) -> None:
        """Send MAIL, the first command, which shows whether a kept connection still lives."""
        self._fits(mail)
        command = [b"MAIL", b"FROM:<%b>" % mail.sender.encode()]
        if not mail.address.isascii():
            command.append(self._utf8())
        if mail.encoded.eight_bit and self.smtp.supports_extension("8bitmime"):
            command.append(b"BODY=8BITMIME")
        if mail.message_id and self.smtp.supports_extension("dsn"):
            command.append(b"ENVID=%b" % mail.message_id.encode())
        self.dirty = True
        try:
            code, text = await self.smtp.execute_command(*command)
        except SMTPServerDisconnected as error:
            if fresh:
                raise
            raise Gone from error
        if code == 421 and not fresh:
            raise Gone
        if code != 250:
            raise Refused(refusal(code, text, Stage.MAIL))

    def _fits(self, mail: OutgoingMail) -> None:
        limit = self.smtp.esmtp_extensions.get("size", "")
        if limit.isascii() and limit.isdecimal() and 0 < int(limit) < mail.size:
            words = f"The message has {mail.size} bytes; the server takes {limit}."
            raise Refused(NotSent(Kind.CONTENT_REJECTED, words))

    def _utf8(self) -> bytes:
        if not self.smtp.supports_extension("smtputf8"):
            words = "The server takes only addresses of plain ASCII (no SMTPUTF8)."
            raise Refused(NotSent(Kind.CONTENT_REJECTED, words))
        return b"SMTPUTF8"

    async def _say(self, stage: Stage, *command: bytes, wanted: int = 250) -> None:
        code, text = await self.smtp.execute_command(*command)
        # 251 and 252 mean yes, with a remark.
        if code // 10 != wanted // 10:
            raise Refused(refusal(code, text, stage))

    async def _write(self, mail: OutgoingMail) -> Outcome:
        protocol = self.smtp.protocol
        if protocol is None:
            raise SMTPServerDisconnected("Connection lost")
        self.writing = True
        protocol.write(mail.text())
        await self._flushed()
        if self._spoke_early():
            raise Refused(refusal(*await protocol.read_response(), Stage.DATA))
        if mail.late():
            raise SMTPTimeoutError("the server accepted the message so slowly that no time was left for its answer")
        if not self.smtp.is_connected:
            raise SMTPServerDisconnected("Connection lost")
        # Before the write, so that doubt always counts as sent.
        mail.dot_left = True
        protocol.write(b".\r\n")
        code, text = await protocol.read_response(timeout=self.settings.timeout)
        self.writing = False
        return self._answer(code, text)

    async def _flushed(self) -> None:
        """Wait until a message larger than the socket's buffer has left it: its dot must not leave earlier."""
        transport: Any = self.smtp.transport
        while transport is not None and transport.get_write_buffer_size():
            if transport.is_closing():
                raise SMTPServerDisconnected("Connection lost")
            await asyncio.sleep(0.005)

    def _spoke_early(self) -> bool:
        """Return whether the server spoke before the dot, to refuse the rest or to leave.

        Under TLS the socket also carries other data, so only a plain connection tells.
        """
        plain = self.smtp.is_connected and self.smtp.get_transport_info("sslcontext") is None
        return plain and readable(self.smtp.get_transport_info("socket").fileno())

    def _answer(self, code: int, text: str) -> Outcome:
        if code // 100 == 2:
            self.dirty = False
            queued = QUEUED_AS.search(text)
            return Sent(queued[1] if queued else " ".join(text.split())[:200])
        if code == 421:
            self.smtp.close()
        if code // 100 in (4, 5):
            self.dirty = False
            return refusal(code, text, Stage.DATA)
        self.smtp.close()
        return Unknown(f"{code} {text}")

    async def quit(self) -> None:
        """Say goodbye where that is quick; close in any case, without waiting for the server's end of TLS."""
        transport = self.smtp.transport
        try:
            if self.smtp.is_connected:
                await self.smtp.quit(timeout=GOODBYE_SECONDS)
        except (SMTPException, OSError):
            pass
        finally:
            self.smtp.close()
            if isinstance(transport, asyncio.WriteTransport):
                transport.abort()


# -- opening a connection ---------------------------------------------------------------------------------


@functools.cache
def own_name() -> str:
    """Return this machine's name for EHLO. It is asked once: a slow name server would delay every connection."""
    return socket.getfqdn()


def smtp_client(settings: SmtpSettings, name: str, connected: socket.socket) -> aiosmtplib.SMTP:
    return aiosmtplib.SMTP(
        hostname=settings.host,
        sock=connected,
        username=settings.username or None,
        password=settings.password or None,
        use_tls=settings.security == "tls",
        start_tls=settings.security == "starttls",
        tls_context=tls_context(settings.verify, settings.ca_pem) if settings.security != "plain" else None,
        timeout=settings.timeout,
        local_hostname=settings.helo or name,
    )


@functools.lru_cache(maxsize=256)
def tls_context(verify: bool, authority: str | None) -> ssl.SSLContext:
    """Return a TLS context, made once per process: loading the system's certificates takes longer than a message."""
    context = ssl.create_default_context(cadata=authority)
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _give_up(smtp: aiosmtplib.SMTP, connected: socket.socket) -> None:
    """Close the client, and the socket too while it does not belong to the client yet."""
    if smtp.transport is None:
        connected.close()
    smtp.close()


def no_connection(error: Exception) -> NotSent:
    """Return why there is no signed-in connection, in the server's words where it had any."""
    if isinstance(error, SMTPResponseException):
        login = isinstance(error, aiosmtplib.SMTPAuthenticationError)
        return refusal(error.code, error.message, Stage.LOGIN if login else Stage.CONNECT)
    cause = error.__cause__ if isinstance(error, SMTPConnectError) else error
    if isinstance(cause, ssl.SSLCertVerificationError):
        # Another server may be answering. That does not pass by itself: an operator must look.
        return NotSent(Kind.AUTH, f"The server's certificate is refused: {cause.verify_message}.")
    if isinstance(error, ForbiddenAddress):
        return NotSent(Kind.AUTH, f"{error}.")
    if isinstance(error, (SMTPTimeoutError, OSError)):
        return NotSent(Kind.NETWORK, words_of(error))
    # STARTTLS or AUTH that the server does not offer.
    return NotSent(Kind.AUTH, words_of(error))
