"""Description of Evolution API v2: a self-hosted gateway to a paired WhatsApp number."""

from __future__ import annotations

from dataclasses import replace

from accounts.channels.paired import PAIRED
from accounts.channels.settings import Field, FieldKind

CHANNEL = replace(
    PAIRED,
    key="evolution",
    label="Evolution API",
    transport="accounts.channels.evolution.transport:EvolutionTransport",
    webhook="accounts.channels.evolution.webhook:EvolutionWebhook",
    webhook_hint=(
        "Set it as the instance's own webhook (/webhook/set), with the header X-Crier-Token. Evolution's "
        "global webhook sends no headers, so its reports are refused."
    ),
    fields=(
        Field(
            name="url",
            label="Address",
            kind=FieldKind.URL,
            required=True,
            destination=True,
            help="Where Evolution API listens, for example https://evolution.example.com.",
        ),
        Field(
            name="instance",
            label="Instance",
            required=True,
            destination=True,
            help="The name of the instance.",
        ),
        Field(
            name="api_key",
            label="API key",
            secret=True,
            required=True,
            help="The instance's token, or the server's key.",
        ),
        Field(
            name="webhook_secret",
            label="Webhook secret",
            secret=True,
            help="Set it at the gateway as the webhook's header X-Crier-Token. Empty: webhooks are refused.",
        ),
        *PAIRED.fields,
    ),
)
