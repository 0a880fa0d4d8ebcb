"""Description of LinkedIn through Unipile: messages, connection requests and InMail from an account connected there."""

from __future__ import annotations

from accounts.actions import Action
from accounts.addresses import PROFILE
from accounts.channels.base import TIMEOUT, Channel
from accounts.channels.settings import UNIPILE_ID, Field, FieldKind

LARGEST_FILE_MB = 15
UNIPILE_FILES = dict.fromkeys(("image", "video", "audio", "document"), LARGEST_FILE_MB)

#: fields of both of Unipile's channels
UNIPILE_FIELDS = (
    Field(
        name="url",
        label="Address of the API",
        kind=FieldKind.URL,
        required=True,
        destination=True,
        hosts=("unipile.com",),
        help="Your DSN with https://, for example https://api8.unipile.com:13851: version 1 of the API.",
    ),
    Field(
        name="account_id",
        label="Account ID",
        required=True,
        destination=True,
        form=UNIPILE_ID,
        help="Unipile's id of the connected account, from the list of accounts in its dashboard.",
    ),
    Field(name="api_key", label="API key", secret=True, required=True),
    Field(
        name="webhook_secret",
        label="Webhook secret",
        secret=True,
        help="Set it at Unipile as the webhook's header X-Crier-Token. Empty: webhooks are refused.",
    ),
    TIMEOUT,
)

CHANNEL = Channel(
    key="unipile",
    label="LinkedIn (Unipile)",
    transport="accounts.channels.unipile.transport:LinkedInTransport",
    webhook="accounts.channels.unipile.webhook:UnipileWebhook",
    kinds=frozenset({PROFILE}),
    actions=(Action.MESSAGE, Action.CONNECTION_REQUEST, Action.INMAIL),
    capped=True,
    # A person's pace: LinkedIn closes accounts that are faster.
    knobs={
        "max_send_per_minute": 1,
        "send_burst": 1,
        "group_concurrency": 1,
        "min_gap_seconds": 60,
        "max_gap_seconds": 300,
    },
    receipts=True,
    inbound=True,
    file_mb=UNIPILE_FILES,
    fields=(
        *UNIPILE_FIELDS,
        Field(
            name="product",
            label="LinkedIn product",
            kind=FieldKind.CHOICE,
            choices=("classic", "sales_navigator", "recruiter"),
            default="classic",
            advanced=True,
            help="The product whose credits an InMail uses; classic is LinkedIn Premium.",
        ),
    ),
)
