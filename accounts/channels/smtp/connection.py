"""One signed-in SMTP connection, and the dialogue of one delivery.

The message is written here rather than by aiosmtplib's `sendmail`, because two things depend on it: the bytes
are already encoded, and we must know whether the final dot left. Without the dot a server throws the message
away; from the dot on, only its answer tells.
"""

from __future__ import annotations

import asyncio
import re
import socket
import time
from typing import Any

import aiosmtplib
from aiosmtplib.errors import SMTPException, SMTPServerDisconnected, SMTPTimeoutError

from accounts.channels import guard
from accounts.channels.base import Kind, NotSent, Outcome, Refused, Sent, Unknown
from accounts.channels.http import readable, words_of
from accounts.channels.replies import Stage, refusal
from accounts.channels.smtp.client import client, no_connection, own_name
from accounts.channels.smtp.delivery import Delivery
from accounts.channels.smtp.settings import Settings

GOODBYE_SECONDS = 1.0
QUEUED_AS = re.compile(r"(?i)queued as[ :<]*([^\s>]+)")


def _give_up(smtp: aiosmtplib.SMTP, connected: socket.socket) -> None:
    """The socket belongs to the client from its first success on."""
    if smtp.transport is None:
        connected.close()
    smtp.close()


class Gone(Exception):
    """A kept connection that the server has left: nothing was sent on it."""


class Connection:
    """One signed-in connection. It is used by one delivery at a time."""

    def __init__(self, smtp: aiosmtplib.SMTP, settings: Settings) -> None:
        self.smtp = smtp
        self.settings = settings
        self.messages = 0
        self.used_at = time.monotonic()
        # A transaction was broken off: the next one starts with RSET.
        self.dirty = False
        # The text is being written, so the server is not listening for commands.
        self.writing = False

    @classmethod
    async def open(cls, settings: Settings) -> Connection:
        name = await asyncio.to_thread(own_name)
        try:
            connected = await guard.connect(settings.host, settings.port)
        except OSError as error:
            raise Refused(no_connection(error)) from error
        smtp = client(settings, name, connected)
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
        """False where a server has ended it, or probably has, or wants a new one after so many messages."""
        limit = self.settings.messages_per_connection
        if not self.smtp.is_connected or (limit and self.messages >= limit):
            return False
        if time.monotonic() - self.used_at > self.settings.idle_seconds:
            return False
        # Between messages a server has nothing to say, unless it says goodbye.
        return not readable(self.smtp.get_transport_info("socket").fileno())

    async def deliver(self, delivery: Delivery) -> Outcome:
        fresh = self.messages == 0
        self.messages += 1
        try:
            await self._reset()
            await self._mail(delivery, fresh)
            await self._say(Stage.RCPT, b"RCPT", b"TO:<%b>" % delivery.address.encode())
            await self._say(Stage.DATA, b"DATA", wanted=354)
            return await self._write(delivery)
        except Refused as error:
            self._stay(error.reason)
            return error.reason
        except (SMTPException, OSError) as error:
            self.smtp.close()
            return delivery.lost(words_of(error))
        finally:
            self.used_at = time.monotonic()

    def _stay(self, reason: NotSent) -> None:
        """A refusal leaves the connection usable, unless the text was already under way or out of step."""
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

    async def _mail(self, delivery: Delivery, fresh: bool) -> None:
        """The first command finds out whether a kept connection still lives."""
        self._fits(delivery)
        command = [b"MAIL", b"FROM:<%b>" % delivery.sender.encode()]
        if not delivery.address.isascii():
            command.append(self._utf8())
        if delivery.encoded.eight_bit and self.smtp.supports_extension("8bitmime"):
            command.append(b"BODY=8BITMIME")
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

    def _fits(self, delivery: Delivery) -> None:
        limit = self.smtp.esmtp_extensions.get("size", "")
        if limit.isascii() and limit.isdecimal() and 0 < int(limit) < delivery.size:
            words = f"The message has {delivery.size} bytes; the server takes {limit}."
            raise Refused(NotSent(Kind.CONTENT_REJECTED, words))

    def _utf8(self) -> bytes:
        if not self.smtp.supports_extension("smtputf8"):
            words = "The server takes only addresses of plain ASCII (no SMTPUTF8)."
            raise Refused(NotSent(Kind.CONTENT_REJECTED, words))
        return b"SMTPUTF8"

    async def _say(self, stage: Stage, *command: bytes, wanted: int = 250) -> None:
        code, text = await self.smtp.execute_command(*command)
        # 251 and 252 are a yes with a remark.
        if code // 10 != wanted // 10:
            raise Refused(refusal(code, text, stage))

    async def _write(self, delivery: Delivery) -> Outcome:
        protocol = self.smtp.protocol
        if protocol is None:
            raise SMTPServerDisconnected("Connection lost")
        self.writing = True
        protocol.write(delivery.text())
        await self._flushed()
        if self._spoke_early():
            raise Refused(refusal(*await protocol.read_response(), Stage.DATA))
        if delivery.late():
            raise SMTPTimeoutError("the server took the message too slowly to be asked for its answer")
        if not self.smtp.is_connected:
            raise SMTPServerDisconnected("Connection lost")
        # Before the write, so that doubt always counts as sent.
        delivery.dot_left = True
        protocol.write(b".\r\n")
        code, text = await protocol.read_response(timeout=self.settings.timeout)
        self.writing = False
        return self._answer(code, text)

    async def _flushed(self) -> None:
        """A message larger than the socket's buffer: while it is still here, its dot must not leave."""
        transport: Any = self.smtp.transport
        while transport is not None and transport.get_write_buffer_size():
            if transport.is_closing():
                raise SMTPServerDisconnected("Connection lost")
            await asyncio.sleep(0.005)

    def _spoke_early(self) -> bool:
        """Before the dot a server has nothing to say, unless it refuses the rest or leaves. Under TLS the
        socket also carries what is not an answer, so only a plain one tells."""
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
        """Polite where that is quick; closed in any case, without waiting for the server's end of TLS."""
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
