"""Description of WhatsApp through a paired number."""

from __future__ import annotations

import importlib.util

from django.conf import settings

from accounts.actions import Action
from accounts.addresses import PERSON
from accounts.channels.base import CaptionedAudio, Channel
from accounts.channels.settings import Field, FieldKind
from accounts.channels.whatsapp.bridge.library import NotInstalled


def bridge_problem() -> str:
    """Return why the bridge cannot run here; "" with neonize installed, or with a script that stands in for
    WhatsApp."""
    ready = settings.WHATSAPP_SCRIPT or importlib.util.find_spec("neonize") is not None
    return "" if ready else str(NotInstalled())


CHANNEL = Channel(
    key="whatsapp",
    label="WhatsApp (paired number)",
    transport="accounts.channels.whatsapp.transport:WhatsAppTransport",
    actions=(Action.MESSAGE,),
    own_kind=PERSON,
    uploads=True,
    uploads_by_kind=True,
    captioned_audio=CaptionedAudio.AS_DOCUMENT,
    receipts=True,
    inbound=True,
    lists_groups=True,
    pairing="accounts.channels.whatsapp.wire:ask",
    bridge="whatsapp_bridge",
    bridge_problem=bridge_problem,
    # A client sends one message after the other, even to different chats: more would only wait in the bridge.
    # WhatsApp blocks numbers that write to many strangers (error 463).
    knobs={"group_concurrency": 1, "new_chats_per_day": 30},
    fields=(
        Field(
            name="typing",
            label="Show “typing…”",
            kind=FieldKind.YES_NO,
            default=False,
            help="Before each text, for half a second to two by its length. It costs one more request, and leaves room "
            "for 20 to 30 messages a minute at most.",
        ),
    ),
)
