"""What all mail channels have in common, as a description to start from."""

from __future__ import annotations

from accounts.actions import Action
from accounts.addresses import MAILBOX
from accounts.channels.base import TIMEOUT, Channel
from accounts.channels.fields import Field, FieldKind

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
    own_kind=MAILBOX,
    subject=True,
    fields=(
        Field(name="from_name", label="Sender's name", help="What recipients see beside the address."),
        Field(
            name="reply_to",
            label="Reply to",
            kind=FieldKind.MAILBOX,
            help="Where answers go. Empty: to the sender.",
        ),
        Field(
            name="from_address",
            label="Sender address",
            kind=FieldKind.MAILBOX,
            advanced=True,
            help="The address in From. Empty: the account's own.",
        ),
        TIMEOUT,
    ),
)
