"""Which recipients a channel can reach."""

from __future__ import annotations

from accounts.addresses import MAILBOX
from accounts.models import MAIL_CHANNELS


def reaches(channel: str, kind: str) -> bool:
    """Mail goes to mailboxes, messages to numbers and groups; the sandbox takes all."""
    if channel == "sandbox":
        return True
    return (kind == MAILBOX) == (channel in MAIL_CHANNELS)
