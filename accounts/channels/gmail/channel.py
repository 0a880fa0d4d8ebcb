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
    # One mail every 400 ms, and Google's daily limit of a Workspace mailbox (support.google.com/a/answer/166852):
    # domain-wide delegation exists only there, so no free mailbox, which may send 500, can be used here.
    knobs={**MAIL.knobs, "max_send_per_minute": 150, "send_burst": 1},
    daily_caps={Action.EMAIL: 2000},
    fields=(
        Field(
            name="subject",
            label="Mailbox",
            kind=FieldKind.MAILBOX,
            destination=True,
            help="The mailbox of Google Workspace to send from. Empty: the account's own address. Google lets it send "
            "2,000 mails a day, which is the cap here, and 500 while the Workspace is on trial: give the account a "
            "daily cap of its own then. A free Gmail mailbox sends through SMTP with an app password instead.",
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
