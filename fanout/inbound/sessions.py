"""Apply what a provider reports about an account itself: logged out, banned, connected again, used on its phone.

It changes the account as the engine does: only an active account is stopped, its owner is told, and its targets stay
pending. Only an unpaired account comes back by itself: a ban ends when its time is over or when an operator says so,
and what an operator paused stays paused.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django.db.models import Q

from accounts.channels.provider_events import ANOTHERS, SessionState
from accounts.channels.registry import channel
from accounts.models import Account
from fanout.database import carry_out, execute
from fanout.lanes import status
from fanout.lanes.account_state import AccountState
from fanout.lanes.chats import begun_on_phone
from fanout.lanes.lane_rows import spend_elsewhere, wake_lanes
from fanout.lanes.telling import add_event
from fanout.models import Activity, Event, InboundEvent
from fanout.rules.outcomes import AccountChange, ban_end

WORDS = {
    SessionState.ACTIVE: "The provider reports that it is connected.",
    SessionState.UNPAIRED: "The provider reports that it was logged out: pair it again.",
    SessionState.BANNED: "The provider reports that it is banned.",
    SessionState.DISCONNECTED: "The provider reports that it lost its connection; it comes back by itself.",
}
STATUS = {
    SessionState.UNPAIRED: status.Status.UNPAIRED,
    SessionState.BANNED: status.Status.SUSPENDED,
}
MAYBE_ANOTHERS = (
    "The account's own id at the provider is not known yet, so this may be about another one and changes nothing. Test "
    "the account: that reads the id."
)
REASON_LENGTH = 500
#: The pace limits any 60 seconds: an older message, reported late, changes nothing in it.
PACED = timedelta(seconds=60)
#: A gateway on a bad line reports every reconnection.
NOTE_AGAIN_AFTER = timedelta(hours=1)


def session_changed(event: InboundEvent, now: datetime) -> str:
    """Apply a session event and return its effect in words."""
    state = SessionState(event.detail.get("state", ""))
    if ANOTHERS.items() <= event.detail.items():
        words = f"{(event.text or WORDS[state])[:REASON_LENGTH]} {MAYBE_ANOTHERS}"
        execute(*add_event(now, "reported", words, account=event.account_id))
        return "noted: it may be about another account"
    if overtaken(event):
        return f"{state.value}: a later report was worked on before"
    if state is SessionState.ACTIVE:
        return "active again" if carry_out(status.pair_again(event.account_id, now)) else "changed nothing"
    words = (event.text or WORDS[state])[:REASON_LENGTH]
    if state is SessionState.DISCONNECTED:
        return note_disconnection(event.account_id, words, now)
    return stop(event.account_id, AccountChange(STATUS[state], words, ban_end(until(event), now)), now)


def overtaken(event: InboundEvent) -> bool:
    """Return whether a newer report was worked on before: reports may come out of order, and the newest stands."""
    later = InboundEvent.objects.filter(account=event.account_id, kind=event.kind, happened_at__gt=event.happened_at)
    return later.filter(~Q(detail__contains=ANOTHERS), state=InboundEvent.State.DONE).exists()


def until(event: InboundEvent) -> datetime | None:
    """Return when a ban ends, where the provider says so in a readable way."""
    try:
        moment = datetime.fromisoformat(str(event.detail.get("until")))
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def stop(account: int, change: AccountChange, now: datetime) -> str:
    if not carry_out(status.stop(account, change, now)):
        execute(*add_event(now, "reported", f"{change.reason} It was not active, so nothing changes.", account=account))
        return "noted: the account was not active"
    wake_lanes([account], now)
    return f"{change.status}: {change.reason}"


def written_on_phone(event: InboundEvent, now: datetime) -> str:
    """Count a message that a person wrote with the account's phone against its day, its new chats and its pace: the
    provider judges the number by all that it sends."""
    account = Account.objects.select_related("lane").get(pk=event.account_id)
    action, at = channel(account.channel).action, min(event.happened_at, now)
    Activity.objects.create(
        account=account, action=action, outcome=Activity.Outcome.SENT, kind=Activity.ON_PHONE, at=at
    )
    if event.address:
        begun_on_phone(account.pk, event.address, at)
    lane = getattr(account, "lane", None)
    if lane is not None and at > now - PACED:
        spend_elsewhere(account.pk, AccountState.of(account, lane, now).interval, at)
    return "counted against the day and the pace"


def note_disconnection(account: int, words: str, now: datetime) -> str:
    recent = Event.objects.filter(account=account, verb="disconnected", at__gte=now - NOTE_AGAIN_AFTER)
    if not recent.exists():
        execute(*add_event(now, "disconnected", words, account=account))
    return "noted"
