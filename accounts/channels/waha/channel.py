"""Description of WAHA: a self-hosted gateway to a paired WhatsApp number."""

from __future__ import annotations

from dataclasses import replace

from accounts.channels.paired import PAIRED
from accounts.channels.settings import Field, FieldKind

#: WAHA's name for the only session of its free edition.
DEFAULT_SESSION = "default"

CHANNEL = replace(
    PAIRED,
    key="waha",
    label="WAHA",
    transport="accounts.channels.waha.transport:WahaTransport",
    webhook="accounts.channels.waha.webhook:WahaWebhook",
    lists_contacts=True,
    own_ids=True,
    uploads=True,
    uploads_by_kind=True,
    fields=(
        Field(
            name="url",
            label="Address",
            kind=FieldKind.URL,
            required=True,
            destination=True,
            help="Where WAHA listens, for example https://waha.example.com.",
        ),
        Field(
            name="session",
            label="Session",
            default=DEFAULT_SESSION,
            destination=True,
            help="The name of the session at WAHA. Empty: default.",
        ),
        Field(
            name="api_key",
            label="API key",
            secret=True,
            required=True,
            help="WAHA_API_KEY of the server, or a key of the session.",
        ),
        Field(
            name="hmac_key",
            label="Webhook HMAC key",
            secret=True,
            help="The same as hmac.key of the webhook at WAHA. Empty: webhooks are refused.",
        ),
        *PAIRED.fields,
    ),
)
