"""SMTP, described."""

from __future__ import annotations

from dataclasses import replace

from accounts.channels.fields import Field, FieldKind
from accounts.channels.mail import MAIL
from accounts.channels.smtp.providers import PROVIDERS

#: how a connection is secured, and the port that is usual for it
PORTS = {"starttls": 587, "tls": 465, "plain": 25}

CHANNEL = replace(
    MAIL,
    key="smtp",
    label="SMTP",
    transport="accounts.channels.smtp.transport:SmtpTransport",
    # One mail every 200 ms: what a server of one's own puts up with to begin with.
    knobs={**MAIL.knobs, "max_send_per_minute": 300, "send_burst": 1},
    providers=PROVIDERS,
    fields=(
        Field(
            name="host",
            label="Server",
            kind=FieldKind.HOST,
            required=True,
            destination=True,
            help="For example mail.example.com.",
        ),
        Field(
            name="port",
            label="Port",
            kind=FieldKind.WHOLE,
            low=1,
            high=65535,
            destination=True,
            help="Empty: " + ", ".join(f"{port} for {security}" for security, port in PORTS.items()) + ".",
        ),
        Field(
            name="security",
            label="Security",
            kind=FieldKind.CHOICE,
            choices=tuple(PORTS),
            default="starttls",
            destination=True,
            help="How the connection is encrypted; plain is not.",
        ),
        Field(name="username", label="User name", destination=True, help="Empty: without signing in."),
        Field(name="password", label="Password", secret=True),
        *MAIL.fields,
        Field(
            name="verify",
            label="Verify the certificate",
            kind=FieldKind.YES_NO,
            default=True,
            destination=True,
            advanced=True,
            help="Without it any server is believed: only for a network of your own.",
        ),
        Field(
            name="ca_pem",
            label="Certificate authority",
            kind=FieldKind.PEM,
            destination=True,
            advanced=True,
            help="Who signed the server's certificate: a certificate as text. Empty: whom this machine trusts.",
        ),
        Field(
            name="helo",
            label="Own host name",
            kind=FieldKind.HOST,
            advanced=True,
            help="For EHLO. Empty: this machine's name.",
        ),
        Field(
            name="idle_seconds",
            label="Idle time",
            kind=FieldKind.NUMBER,
            high=86_400,
            advanced=True,
            default=60.0,
            help="Seconds after which an unused connection is not used again.",
        ),
        Field(
            name="messages_per_connection",
            label="Messages per connection",
            kind=FieldKind.WHOLE,
            high=1_000_000,
            advanced=True,
            default=100,
            help="0: no limit.",
        ),
    ),
)
