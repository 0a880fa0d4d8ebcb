"""Description of mail through Unipile: a mailbox that is connected there."""

from __future__ import annotations

from dataclasses import replace

from accounts.channels.mail import MAIL
from accounts.channels.unipile.channel import UNIPILE_FIELDS, UNIPILE_FILES

CHANNEL = replace(
    MAIL,
    key="unipile_mail",
    label="Mail (Unipile)",
    transport="accounts.channels.unipile_mail.transport:UnipileMailTransport",
    webhook="accounts.channels.unipile.webhook:UnipileWebhook",
    # The connected mailbox is the sender.
    needs_sender=False,
    inbound=True,
    file_mb=UNIPILE_FILES,
    fields=UNIPILE_FIELDS,
)
