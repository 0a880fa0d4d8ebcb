"""What all gateways to paired WhatsApp numbers have in common, as a description to start from."""

from __future__ import annotations

from accounts.actions import Action
from accounts.addresses import GROUP, PERSON
from accounts.channels.base import TIMEOUT, CaptionedAudio, Channel

PAIRED = Channel(
    key="paired",
    label="WhatsApp",
    kinds=frozenset({GROUP, PERSON}),
    actions=(Action.MESSAGE,),
    # One message every 3 s and one at a time: a paired number that sends like a machine is banned like one.
    # And one that approaches many strangers is not let through to them any more.
    knobs={"max_send_per_minute": 20, "send_burst": 1, "group_concurrency": 1, "new_chats_per_day": 30},
    delay=(2, 10),
    captioned_audio=CaptionedAudio.AS_DOCUMENT,
    receipts=True,
    inbound=True,
    lists_groups=True,
    own_kind=PERSON,
    fields=(TIMEOUT,),
)
