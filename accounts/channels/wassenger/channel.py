"""Description of Wassenger: a hosted gateway to a paired WhatsApp number."""

from __future__ import annotations

import math
from dataclasses import replace

from accounts.channels.base import CaptionedAudio
from accounts.channels.paired import PAIRED
from accounts.channels.settings import OBJECT_ID, Field, FieldKind

CHANNEL = replace(
    PAIRED,
    key="wassenger",
    # Text and file go in one request; Wassenger decides how they arrive.
    captioned_audio=CaptionedAudio.AS_AUDIO,
    label="Wassenger",
    transport="accounts.channels.wassenger.transport:WassengerTransport",
    webhook="accounts.channels.wassenger.webhook:WassengerWebhook",
    uploads=True,
    # One message every 3 s, and a pause of 30 s after 75: 1,000 messages in 57 minutes. For numbers that have long been
    # in use, so there is no limit of new chats.
    knobs={**PAIRED.knobs, "batch_size": 75, "batch_pause_seconds": 30, "new_chats_per_day": math.inf},
    fields=(
        Field(
            name="device",
            label="Device",
            required=True,
            destination=True,
            form=OBJECT_ID,
            help="The id of the device, 24 characters, from the device's page at Wassenger.",
        ),
        Field(name="token", label="API token", secret=True, required=True),
        Field(
            name="webhook_secret",
            label="Webhook secret",
            secret=True,
            help="The secret that Wassenger shows for the webhook. With it, nothing is accepted without Wassenger's "
            "signature (X-Wassenger-Signature). Empty: the webhook's address itself is the secret.",
        ),
        Field(
            name="url",
            label="Address of the API",
            kind=FieldKind.URL,
            default="https://api.wassenger.com",
            destination=True,
            hosts=("wassenger.com",),
            advanced=True,
            help="Wassenger's own.",
        ),
        *PAIRED.fields,
    ),
)
