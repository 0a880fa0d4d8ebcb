"""The SMTP client that a connection starts with: its TLS, its name, and why there is none."""

from __future__ import annotations

import functools
import socket
import ssl

import aiosmtplib
from aiosmtplib import SMTPResponseException
from aiosmtplib.errors import SMTPConnectError, SMTPTimeoutError

from accounts.channels import guard
from accounts.channels.base import Kind, NotSent
from accounts.channels.http import words_of
from accounts.channels.replies import Stage, refusal
from accounts.channels.smtp.settings import Settings


@functools.cache
def own_name() -> str:
    """For EHLO. Asked once: a slow name server would hold up every connection."""
    return socket.getfqdn()


def client(settings: Settings, name: str, connected: socket.socket) -> aiosmtplib.SMTP:
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
    """Loading the system's certificates takes longer than a message does: once per process."""
    context = ssl.create_default_context(cadata=authority)
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def no_connection(error: Exception) -> NotSent:
    """Why there is no signed-in connection, in the server's words where it had any."""
    if isinstance(error, SMTPResponseException):
        login = isinstance(error, aiosmtplib.SMTPAuthenticationError)
        return refusal(error.code, error.message, Stage.LOGIN if login else Stage.CONNECT)
    cause = error.__cause__ if isinstance(error, SMTPConnectError) else error
    if isinstance(cause, ssl.SSLCertVerificationError):
        # Whoever answers may not be who he says he is. That does not pass by itself: an operator must look.
        return NotSent(Kind.AUTH, f"The server's certificate is refused: {cause.verify_message}.")
    if isinstance(error, guard.Forbidden):
        return NotSent(Kind.AUTH, f"{error}.")
    if isinstance(error, (SMTPTimeoutError, OSError)):
        return NotSent(Kind.NETWORK, words_of(error))
    # STARTTLS or AUTH that the server does not offer.
    return NotSent(Kind.AUTH, words_of(error))
