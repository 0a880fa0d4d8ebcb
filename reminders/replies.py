"""Whether a reminder that counts on replies can hear any."""

from __future__ import annotations

from django.conf import settings

from accounts.addresses import MAILBOX
from accounts.channels.registry import channel
from accounts.models import Account
from reminders.models import Reminder


def hears(account: Account) -> bool:
    """Replies come by its provider's webhook; those to a mailbox where somebody reads it for us (`ingest_bounces`)."""
    described = channel(account.channel)
    return described.inbound or (described.reaches(MAILBOX) and mailbox_is_read())


def mailbox_is_read() -> bool:
    return bool(settings.BOUNCE_IMAP_PASSWORD or settings.BOUNCE_TOKEN)


def not_heard(reminder: Reminder) -> str:
    """A warning, in a sentence; nothing where all is well, or where replies change nothing."""
    needs = {"Message 2 needs": reminder.reply_parts.exists(), "A follow-up needs": reminder.follow_up}
    counts_on = [what for what, so in needs.items() if so]
    deaf = [account.label for account in reminder.senders if not hears(account)]
    if not counts_on or not deaf:
        return ""
    return (
        f"{counts_on[0]} replies, and Crier hears none that come to {', '.join(deaf)}. "
        "Have their mailbox read by ingest_bounces: “When mail bounces” in docs/operations.md says how."
    )
