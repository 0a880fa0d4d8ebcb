"""The badge of every status; a test checks that none is missing."""

from __future__ import annotations

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from accounts.models import Account
from fanout.models import Run, RunTarget
from reminders.models import Recipient

#: status: its tone, which the theme gives a colour in light and dark
RUN = {
    Run.Status.PREPARING: "info",
    Run.Status.QUEUED: "info",
    Run.Status.RUNNING: "busy",
    Run.Status.WAITING: "info",
    Run.Status.PAUSED: "warn",
    Run.Status.SUCCESS: "good",
    Run.Status.PARTIAL: "part",
    Run.Status.FAILED: "bad",
    Run.Status.SKIPPED: "mute",
    Run.Status.CANCELED: "mute",
}
#: what an operator sees as waiting
WAITING = (Run.Status.WAITING, Run.Status.QUEUED)
TARGET = {
    RunTarget.Status.PENDING: "info",
    RunTarget.Status.SENDING: "busy",
    RunTarget.Status.SENT: "good",
    RunTarget.Status.FAILED: "bad",
    RunTarget.Status.SKIPPED: "mute",
    RunTarget.Status.UNCONFIRMED: "warn",
}
ACCOUNT = {
    Account.Status.ACTIVE: "good",
    Account.Status.PAUSED: "warn",
    Account.Status.SUSPENDED: "bad",
    Account.Status.UNPAIRED: "mute",
}
RECIPIENT = {
    Recipient.Status.ACTIVE: "good",
    Recipient.Status.NOT_INTERESTED: "mute",
    Recipient.Status.DO_NOT_DISTURB: "warn",
    Recipient.Status.OPTED_OUT: "warn",
    Recipient.Status.BLACKLISTED: "bad",
    Recipient.Status.CONVERTED: "info",
    Recipient.Status.CLOSED: "mute",
}


def tone(thing: Run | RunTarget | Account | Recipient) -> str:
    for model, tones in ((Run, RUN), (RunTarget, TARGET), (Account, ACCOUNT), (Recipient, RECIPIENT)):
        if isinstance(thing, model):
            return tones[thing.status]  # type: ignore[index]
    raise TypeError(f"{type(thing).__name__} has no badge.")


def untested(thing: Run | RunTarget | Account | Recipient) -> bool:
    """An account that may send, and that nothing has shown to work yet."""
    return isinstance(thing, Account) and thing.status == Account.Status.ACTIVE and thing.untested_since is not None


def badge(thing: Run | RunTarget | Account | Recipient) -> SafeString:
    return format_html('<span class="badge {}">{}</span>', *look(thing))


def look(thing: Run | RunTarget | Account | Recipient) -> tuple[str, str]:
    """The tone and the word of a badge."""
    if untested(thing):
        return "warn", "Not tested"
    if isinstance(thing, Run) and waits(thing):
        return RUN[Run.Status.WAITING], Run.Status.WAITING.label
    return tone(thing), thing.get_status_display()


def waits(run: Run) -> bool:
    """Whether it is held back by a limit or by its turn; nobody needs to tell the two apart by the badge. A run whose
    account sends another one first waits, whatever the lane last noted: where `going` has been read, it knows."""
    going = run.__dict__.get("going")
    return run.status in WAITING or bool(going and going.behind)


def recipient_badges(recipient: Recipient, suppressed: bool) -> SafeString:
    """Who is suppressed gets nothing, whatever the status says."""
    badges = [
        mark_safe('<span class="badge bad">Suppressed</span>') if suppressed else "",
        badge(recipient) if recipient.status != Recipient.Status.ACTIVE or not suppressed else "",
        mark_safe('<span class="badge mute">archived</span>') if recipient.archived else "",
    ]
    return format_html_join(" ", "{}", ((one,) for one in badges if one))
