"""Description of the SMTP channel: well-known providers, its settings, and an account's settings in their types."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from accounts.channels.base import LONGEST_TIMEOUT, AccountConfig, Kind, KnownProvider, NotSent, Refused
from accounts.channels.mail import MAIL
from accounts.channels.settings import BadSetting, Field, FieldKind


def _starttls(host: str) -> dict[str, str | int]:
    return {"host": host, "port": 587, "security": "starttls"}


def _tls(host: str) -> dict[str, str | int]:
    return {"host": host, "port": 465, "security": "tls"}


PROVIDERS = (
    KnownProvider(
        "google",
        "Gmail or Google Workspace",
        _starttls("smtp.gmail.com"),
        "The user is the mail address, the password an app password from the Google account's security page.",
    ),
    KnownProvider(
        "microsoft365",
        "Microsoft 365",
        _starttls("smtp.office365.com"),
        "The user is the mailbox. An administrator must allow “Authenticated SMTP” for it.",
    ),
    KnownProvider(
        "ses",
        "Amazon SES",
        _starttls("email-smtp.eu-west-1.amazonaws.com"),
        "Write your own region into the server's name. User and password are SMTP credentials, not access keys.",
    ),
    KnownProvider(
        "mailgun",
        "Mailgun",
        _starttls("smtp.mailgun.org"),
        "For a domain in the EU the server is smtp.eu.mailgun.org. The user is postmaster@ and your domain.",
    ),
    KnownProvider(
        "sendgrid",
        "SendGrid",
        _starttls("smtp.sendgrid.net") | {"username": "apikey"},
        "The user is the word apikey, the password an API key.",
    ),
    KnownProvider(
        "postmark",
        "Postmark",
        _starttls("smtp.postmarkapp.com"),
        "User and password are both the server's API token.",
    ),
    KnownProvider(
        "brevo", "Brevo", _starttls("smtp-relay.brevo.com"), "The password is an SMTP key, not the one of the login."
    ),
    KnownProvider(
        "fastmail", "Fastmail", _tls("smtp.fastmail.com"), "The password is an app password with access to SMTP."
    ),
    KnownProvider("zoho", "Zoho Mail", _tls("smtp.zoho.com"), "In the EU the server is smtp.zoho.eu."),
    KnownProvider(
        "icloud", "iCloud Mail", _starttls("smtp.mail.me.com"), "The password is an app-specific one from Apple's page."
    ),
)


# -- the description --------------------------------------------------------------------------------------


#: the ways to secure a connection, with their usual ports
PORTS = {"starttls": 587, "tls": 465, "plain": 25}

CHANNEL = replace(
    MAIL,
    key="smtp",
    label="SMTP",
    transport="accounts.channels.smtp.transport:SmtpTransport",
    # One mail every 200 ms: a safe start with a self-hosted server.
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
            name="return_path",
            label="Return path",
            kind=FieldKind.MAILBOX,
            advanced=True,
            help="Where bounces go, with the message's id behind a plus sign (bounces+…@example.com), so that each is "
            "recognised. Needs a mailbox that takes such addresses. Empty: to the sender.",
        ),
        Field(
            name="verify",
            label="Verify the certificate",
            kind=FieldKind.YES_NO,
            default=True,
            destination=True,
            advanced=True,
            help="Without it any server is trusted: only for your own network.",
        ),
        Field(
            name="ca_pem",
            label="Certificate authority",
            kind=FieldKind.PEM,
            destination=True,
            advanced=True,
            help="The authority that signed the server's certificate, as text. Empty: those that this machine trusts.",
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


# -- an account's settings --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SmtpSettings:
    host: str
    port: int
    security: str
    verify: bool
    ca_pem: str | None
    helo: str
    username: str
    password: str = field(repr=False)
    timeout: float
    idle_seconds: float
    messages_per_connection: int
    return_path: str

    @classmethod
    def of(cls, account: AccountConfig) -> SmtpSettings:
        """Read an account's settings. Raises Refused: a wrong setting is the account's trouble, like a wrong
        password."""
        try:
            values = CHANNEL.read_settings(account.config) | CHANNEL.read_credentials(account.credentials)
        except BadSetting as problem:
            raise misconfigured(str(problem)) from None
        return cls(
            host=values["host"],
            port=values["port"] or PORTS[values["security"]],
            security=values["security"],
            verify=values["verify"],
            ca_pem=values["ca_pem"],
            helo=values["helo"] or "",
            username=values["username"] or "",
            password=values["password"] or "",
            timeout=min(values["timeout"], LONGEST_TIMEOUT),
            idle_seconds=values["idle_seconds"],
            messages_per_connection=values["messages_per_connection"],
            return_path=values["return_path"] or "",
        )


def misconfigured(problem: str) -> Refused:
    return Refused(NotSent(Kind.AUTH, f"Account setting {problem}"))
