"""The SMTP client that a connection starts with: its TLS, its name, and why there is none."""

from __future__ import annotations

import functools
import socket
import ssl

import aiosmtplib
from aiosmtplib import SMTPResponseException
from aiosmtplib.errors import SMTPConnectError, SMTPTimeoutError

from accounts.channels.base import Kind, NotSent
from accounts.channels.http import words_of
from accounts.channels.replies import Stage, refusal
from accounts.channels.smtp.settings import Settings, misconfigured


@functools.cache
def own_name() -> str:
    """For EHLO. Asked once: a slow name server would hold up every connection."""
    return socket.getfqdn()


def client(settings: Settings, name: str) -> aiosmtplib.SMTP:
    try:
        context = tls_context(settings) if settings.security != "plain" else None
    except OSError as error:
        raise misconfigured(f"“ca_file” cannot be read: {error.strerror or error}.") from error
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
