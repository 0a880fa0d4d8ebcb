"""Gmail's API, described."""

from __future__ import annotations

from dataclasses import replace

from accounts.channels.fields import Field, FieldKind
from accounts.channels.mail import MAIL

CHANNEL = replace(
    MAIL,
    key="gmail",
    label="Gmail",
    transport="accounts.channels.gmail.transport:GmailTransport",
    fields=(
        Field(name="subject", label="Mailbox", help="The mailbox it acts for. Empty: the account's own address."),
        Field(
            name="service_account",
            label="Service account key",
            kind=FieldKind.OBJECT,
            secret=True,
            required=True,
            help="The JSON key file of a service account with domain-wide delegation.",
        ),
        *MAIL.fields,
        Field(
            name="base_url",
            label="Address of the API",
            kind=FieldKind.URL,
            default="https://gmail.googleapis.com",
            help="Google's own, unless a proxy stands in between.",
        ),
        Field(name="token_url", label="Address for tokens", kind=FieldKind.URL, help="Empty: as the key file says."),
    ),
)
