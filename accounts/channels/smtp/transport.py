"""SMTP: a few long-lived connections per account, and a clear word about every message.

The message is written here rather than by aiosmtplib's `sendmail`, because two things depend on it: the bytes
are already encoded, and we must know whether the final dot left. Without the dot a server throws the message
away; from the dot on, only its answer tells.
"""

from __future__ import annotations

import asyncio
import functools
import re
import socket
import ssl
import time
from dataclasses import dataclass, field
from typing import Any

import aiosmtplib
from aiosmtplib import SMTPResponseException
from aiosmtplib.errors import SMTPConnectError, SMTPException, SMTPServerDisconnected, SMTPTimeoutError

from accounts.channels.base import AccountConfig, CheckFailed, Kind, NotSent, Outcome, Part, Sent, Transport, Unknown
from accounts.channels.mime import BadContent, BadHeader, Encoded, Envelope, not_writable
from accounts.channels.sandbox.transport import readable
from accounts.channels.smtp.replies import Stage, refusal

PORTS = {"starttls": 587, "tls": 465, "plain": 25}
#: Below the lane's own limit for a call (12 s), so that it is we who say whether the dot had left. A setting above
#: it counts as this.
LONGEST_TIMEOUT = 11.0
#: A dot written in the last moments would only become an unknown: with less time left it is not written.
TIME_FOR_AN_ANSWER = 0.1  # of the time-out
IDLE_SECONDS = 60.0
MESSAGES_PER_CONNECTION = 100
GOODBYE_SECONDS = 1.0

HOST = re.compile(r"[\x21-\x7e]{1,253}")
QUEUED_AS = re.compile(r"(?i)queued as[ :<]*([^\s>]+)")


class Refused(Exception):
    """The server, or a setting, said no; `reason` says what that means."""

    def __init__(self, reason: NotSent) -> None:
        super().__init__(reason.detail)
        self.reason = reason


class Gone(Exception):
    """A kept connection that the server has left: nothing was sent on it."""


@dataclass(frozen=True, slots=True)
class Settings:
    """An account's configuration, checked."""

    host: str
    port: int
    security: str
    verify: bool
    ca_file: str | None
    helo: str
    username: str
    password: str = field(repr=False)
    timeout: float = LONGEST_TIMEOUT
    idle_seconds: float = IDLE_SECONDS
    messages_per_connection: int = MESSAGES_PER_CONNECTION

    @classmethod
    def of(cls, account: AccountConfig) -> Settings:
        """Raises Refused: a wrong setting is the account's trouble, like a wrong password."""
        config = account.config
        host, security = str(config.get("host") or ""), str(config.get("security") or "starttls")
        if not HOST.fullmatch(host):
            raise misconfigured("“host” is missing or not a host name")
        if config.get("helo") and not HOST.fullmatch(str(config["helo"])):
            raise misconfigured("“helo” is not a host name")
        if security not in PORTS:
            raise misconfigured(f"“security” is {security!r}; choose starttls, tls or plain")
        return cls(
            host=host,
            port=int(number(config, "port", PORTS[security], 1, 65535)),
            security=security,
            verify=config.get("verify", True) is not False,
            ca_file=str(config["ca_file"]) if config.get("ca_file") else None,
            helo=str(config.get("helo") or ""),
            username=str(config.get("username") or ""),
            password=str(account.credentials.get("password") or ""),
            timeout=min(number(config, "timeout", LONGEST_TIMEOUT, 0.05, 3600), LONGEST_TIMEOUT),
            idle_seconds=number(config, "idle_seconds", IDLE_SECONDS, 0, 86_400),
            messages_per_connection=int(
                number(config, "messages_per_connection", MESSAGES_PER_CONNECTION, 0, 1_000_000)
            ),
        )


def misconfigured(problem: str) -> Refused:
    return Refused(NotSent(Kind.AUTH, f"Account setting {problem}."))


def number(config: dict[str, Any], name: str, default: float, low: float, high: float) -> float:
    value = config.get(name)
    if value is None or value == "":
        return default
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = float("nan")
    if not low <= found <= high:
        raise misconfigured(f"“{name}” is {value!r}; it must be a number from {low:g} to {high:g}")
    return found


class SmtpTransport(Transport):
    channel = "smtp"

    def __init__(self, account: AccountConfig) -> None:
        super().__init__(account)
        self.envelope = Envelope(account)
        self.pool = Pool(account)

    async def check(self) -> str:
        try:
            settings = Settings.of(self.account)
            self.envelope.full_id("check")
            async with asyncio.timeout(settings.timeout):
                connection = await Connection.open(settings)
                try:
                    return connection.introduction()
                finally:
                    await connection.quit()
        except Refused as error:
            raise CheckFailed(error.reason.kind, error.reason.detail) from None
        except BadHeader as error:
            raise CheckFailed(Kind.AUTH, str(error)) from None
        except TimeoutError:
            raise CheckFailed(Kind.NETWORK, f"no answer from {settings.host} in time") from None

    async def send(self, address: str, part: Part, message_id: str) -> Outcome:
        delivery = Delivery(self.envelope.sender, address)
        try:
            settings = self.pool.settings()
            delivery.deadline = time.monotonic() + settings.timeout
            delivery.reserve = settings.timeout * TIME_FOR_AN_ANSWER
            # Over writing and sending together: the lane's own limit would not know whether the dot had left.
            async with asyncio.timeout(settings.timeout):
                await self._fill(delivery, part, message_id)
                return await self.pool.deliver(delivery)
        except Refused as error:
            return error.reason
        except TimeoutError as error:
            return delivery.lost(words_of(error, "no answer in time"))

    async def _fill(self, delivery: Delivery, part: Part, message_id: str) -> None:
        try:
            delivery.headers = self.envelope.headers(delivery.address, message_id)
            delivery.encoded = await self.envelope.encode(part)
        except (BadHeader, BadContent, OSError) as error:
            raise Refused(not_writable(error)) from error

    async def close(self) -> None:
        await self.pool.close()


def words_of(error: BaseException, otherwise: str = "") -> str:
    return str(error) or otherwise or type(error).__name__


# -- one message ------------------------------------------------------------------------------------------


NOTHING = Encoded(b"", b"", b"")


@dataclass(slots=True)
class Delivery:
    """One message to one recipient, and whether its final dot left."""

    sender: str
    address: str
    headers: bytes = b""
    encoded: Encoded = NOTHING
    dot_left: bool = False
    deadline: float = 0.0
    reserve: float = 0.0

    @property
    def size(self) -> int:
        return len(self.encoded.fixed) + len(self.headers) + len(self.encoded.stuffed) + 2

    def text(self) -> bytes:
        return b"".join((self.encoded.fixed, self.headers, b"\r\n", self.encoded.stuffed))

    def lost(self, words: str) -> Outcome:
        return Unknown(words) if self.dot_left else NotSent(Kind.NETWORK, words)

    def late(self) -> bool:
        return time.monotonic() > self.deadline - self.reserve


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
        smtp = client(settings, await asyncio.to_thread(own_name))
        try:
            await smtp.connect()
            if smtp.is_ehlo_or_helo_needed:
                await smtp.ehlo()
        except (SMTPException, OSError, ValueError) as error:
            smtp.close()
            raise Refused(no_connection(error)) from error
        except BaseException:
            smtp.close()
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
        if limit.isdigit() and 0 < int(limit) < delivery.size:
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
            found = QUEUED_AS.search(text)
            return Sent(found[1] if found else " ".join(text.split())[:200])
        if code == 421:
            self.smtp.close()
        if code // 100 in (4, 5):
            self.dirty = False
            return refusal(code, text, Stage.DATA)
        self.smtp.close()
        return Unknown(f"{code} {text}")

    async def quit(self) -> None:
        """Polite where that is quick; closed in any case."""
        try:
            if self.smtp.is_connected:
                await self.smtp.quit(timeout=GOODBYE_SECONDS)
        except (SMTPException, OSError):
            pass
        finally:
            self.smtp.close()


@functools.cache
def own_name() -> str:
    """For EHLO. Asked once: a slow name server would hold up every connection."""
    return socket.getfqdn()


def client(settings: Settings, name: str) -> aiosmtplib.SMTP:
    try:
        context = tls_context(settings) if settings.security != "plain" else None
    except OSError as error:
        raise misconfigured(f"“ca_file” cannot be read: {error.strerror or error}") from error
    return aiosmtplib.SMTP(
        hostname=settings.host,
        port=settings.port,
        username=settings.username or None,
        password=settings.password or None,
        use_tls=settings.security == "tls",
        start_tls=settings.security == "starttls",
        tls_context=context,
        timeout=settings.timeout,
        local_hostname=settings.helo or name,
    )


_contexts: dict[tuple[bool, str | None], ssl.SSLContext] = {}


def tls_context(settings: Settings) -> ssl.SSLContext:
    """Loading the system's certificates takes longer than a message does: once per process."""
    key = (settings.verify, settings.ca_file)
    if key not in _contexts:
        context = ssl.create_default_context(cafile=settings.ca_file)
        if not settings.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        _contexts[key] = context
    return _contexts[key]


def no_connection(error: Exception) -> NotSent:
    """Why there is no signed-in connection, in the server's words where it had any."""
    if isinstance(error, SMTPResponseException):
        login = isinstance(error, aiosmtplib.SMTPAuthenticationError)
        return refusal(error.code, error.message, Stage.LOGIN if login else Stage.CONNECT)
    cause = error.__cause__ if isinstance(error, SMTPConnectError) else error
    if isinstance(cause, ssl.SSLCertVerificationError):
        # Whoever answers may not be who he says he is. That does not pass by itself: an operator must look.
        return NotSent(Kind.AUTH, f"The server's certificate is refused: {cause.verify_message}.")
    if isinstance(error, (SMTPTimeoutError, OSError)):
        return NotSent(Kind.NETWORK, words_of(error))
    # STARTTLS or AUTH that the server does not offer.
    return NotSent(Kind.AUTH, words_of(error))


# -- the connections of an account ------------------------------------------------------------------------


class Pool:
    """Up to `concurrency` connections; the one used last is used next, so that the others can go idle."""

    def __init__(self, account: AccountConfig) -> None:
        self.account = account
        self._free = asyncio.Semaphore(max(1, account.concurrency))
        self._idle: list[Connection] = []
        self._settings: Settings | None = None

    def settings(self) -> Settings:
        if self._settings is None:
            self._settings = Settings.of(self.account)
        return self._settings

    async def deliver(self, delivery: Delivery) -> Outcome:
        async with self._free:
            connection = await self._take()
            try:
                return await self._with(connection, delivery)
            except Gone:
                # Nothing was handed over, so another connection is not another try.
                return await self._with(await Connection.open(self.settings()), delivery)

    async def _with(self, connection: Connection, delivery: Delivery) -> Outcome:
        kept = False
        try:
            outcome = await connection.deliver(delivery)
            kept = connection.smtp.is_connected
            return outcome
        finally:
            # After a time-out or a lost dialogue nobody knows whose answer comes next.
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
