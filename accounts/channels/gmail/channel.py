"""Description of the Gmail API."""

from __future__ import annotations

from dataclasses import replace

from accounts.actions import Action
from accounts.channels.mail import MAIL
from accounts.channels.settings import Field, FieldKind

GOOGLE = ("googleapis.com",)
TOKEN_URL = Field(
    name="token_url",
    label="Address for tokens",
    kind=FieldKind.URL,
    destination=True,
    hosts=GOOGLE,
    advanced=True,
    help="Empty: as the key file says.",
)

CHANNEL = replace(
    MAIL,
    key="gmail",
    label="Gmail",
    address_signs_in=True,
    transport="accounts.channels.gmail.transport:GmailTransport",
    # One mail every 400 ms, and Google's daily limit of a free mailbox. A Workspace mailbox may send 2,000: its
    # operator raises the account's own cap (the help of “Mailbox” says so).
    knobs={**MAIL.knobs, "max_send_per_minute": 150, "send_burst": 1},
    daily_caps={Action.EMAIL: 500},
    fields=(
        Field(
            name="subject",
            label="Mailbox",
            kind=FieldKind.MAILBOX,
            destination=True,
            help="The mailbox to send from. Empty: the account's own address. "
            "Google lets a free mailbox send 500 mails a day, which is the cap here, and a Workspace mailbox 2,000: "
            "give a Workspace account a daily cap of its own.",
        ),
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
            destination=True,
            hosts=GOOGLE,
            advanced=True,
            help="Google's own.",
        ),
        TOKEN_URL,
    ),
)
