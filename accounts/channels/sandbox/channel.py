"""Description of the sandbox: a provider of our own for demonstrations and tests."""

from __future__ import annotations

from typing import Any

from django.conf import settings

from accounts.actions import Action
from accounts.addresses import GROUP, MAILBOX, PERSON
from accounts.channels.base import Channel
from accounts.channels.settings import Field, FieldKind


def defaults() -> dict[str, Any]:
    return {"url": settings.SANDBOX_URL}


CHANNEL = Channel(
    key="sandbox",
    label="Sandbox",
    demo=True,
    address_signs_in=True,
    transport="accounts.channels.sandbox.transport:SandboxTransport",
    webhook="accounts.channels.sandbox.webhook:SandboxWebhook",
    kinds=frozenset({GROUP, PERSON, MAILBOX}),
    actions=(Action.MESSAGE,),
    uploads=True,
    receipts=True,
    inbound=True,
    defaults=defaults,
    fields=(
        Field(
            name="url",
            label="Address",
            kind=FieldKind.URL,
            default="http://127.0.0.1:8765",
            destination=True,
            help="Where the provider listens. Empty: SANDBOX_URL.",
        ),
        Field(
            name="account",
            label="Account",
            destination=True,
            help="Its name in the provider's book. Empty: its address.",
        ),
        Field(name="key", label="Key", secret=True, help="Needed where the provider's script asks for one."),
        Field(name="timeout", label="Time-out", kind=FieldKind.NUMBER, low=0.01, high=3600, default=10.0),
        Field(
            name="recognises_repeats",
            label="Recognises repeats",
            kind=FieldKind.YES_NO,
            default=False,
            help="The provider drops a second message with the same id.",
        ),
    ),
)
