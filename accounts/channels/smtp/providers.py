"""Well-known mail providers: where their servers are, and what they want as user and password."""

from __future__ import annotations

from accounts.channels.base import Provider


def _starttls(host: str) -> dict[str, str | int]:
    return {"host": host, "port": 587, "security": "starttls"}


def _tls(host: str) -> dict[str, str | int]:
    return {"host": host, "port": 465, "security": "tls"}


PROVIDERS = (
    Provider(
        "google",
        "Gmail or Google Workspace",
        _starttls("smtp.gmail.com"),
        "The user is the mail address, the password an app password from the Google account's security page.",
    ),
    Provider(
        "microsoft365",
        "Microsoft 365",
        _starttls("smtp.office365.com"),
        "The user is the mailbox. An administrator must allow “Authenticated SMTP” for it.",
    ),
    Provider(
        "ses",
        "Amazon SES",
        _starttls("email-smtp.eu-west-1.amazonaws.com"),
        "Write your own region into the server's name. User and password are SMTP credentials, not access keys.",
    ),
    Provider(
        "mailgun",
        "Mailgun",
        _starttls("smtp.mailgun.org"),
        "For a domain in the EU the server is smtp.eu.mailgun.org. The user is postmaster@ and your domain.",
    ),
    Provider(
        "sendgrid",
        "SendGrid",
        _starttls("smtp.sendgrid.net") | {"username": "apikey"},
        "The user is the word apikey, the password an API key.",
    ),
    Provider(
        "postmark",
        "Postmark",
        _starttls("smtp.postmarkapp.com"),
        "User and password are both the server's API token.",
    ),
    Provider(
        "brevo", "Brevo", _starttls("smtp-relay.brevo.com"), "The password is an SMTP key, not the one of the login."
    ),
    Provider("fastmail", "Fastmail", _tls("smtp.fastmail.com"), "The password is an app password with access to SMTP."),
    Provider("zoho", "Zoho Mail", _tls("smtp.zoho.com"), "In the EU the server is smtp.zoho.eu."),
    Provider(
        "icloud", "iCloud Mail", _starttls("smtp.mail.me.com"), "The password is an app-specific one from Apple's page."
    ),
)
