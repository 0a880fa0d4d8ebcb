"""What all mail channels have in common, as a description to start from."""

from __future__ import annotations

from accounts.actions import Action
from accounts.addresses import MAILBOX
from accounts.channels.base import TIMEOUT, Channel
from accounts.channels.fields import Field

MAIL = Channel(
    key="mail",
    label="mail",
    noun="recipient",
    nouns="recipients",
    kinds=frozenset({MAILBOX}),
    actions=(Action.EMAIL,),
    capped=True,
    # One mail after the other: several at once look like spam to the receiving servers.
    knobs={"group_concurrency": 1},
    retries=(60.0, 300.0, 900.0),  # 1, 5, 15 minutes, then failed
    needs_sender=True,
    subject=True,
    fields=(
        Field(name="from_address", label="Sender", help="The address in From, where it is not the account's own."),
        Field(name="from_name", label="Sender's name", help="Shown beside the address."),
        Field(name="reply_to", label="Reply to", help="Where answers go, where it is not the sender."),
        TIMEOUT,
    ),
)
