"""A paired number: its health, as the account's page and `manage.py account health` show it, and moving it to another
machine by an operator's decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from accounts.channels.registry import channel
from accounts.models import Account, BridgeBeat, PairedSession
from fanout.database import execute
from fanout.lanes import account_limits
from fanout.models import Activity, Event
from fanout.rules.gates import local_date
from reminders.moments import duration
from reminders.window import local_day_bounds

#: Receipts of the last days, and of so many messages at most: the newest say enough.
SPAN = timedelta(days=7)
MOST_LOOKED_AT = 2_000
UNPAIRED = "unpaired"
#: A message has so long to arrive before it counts as not delivered.
ARRIVES_WITHIN = timedelta(minutes=10)
#: Bridges report every 15 seconds (accounts.channels.whatsapp.bridge.library).
SILENT_AFTER = timedelta(seconds=60)
HOST_LENGTH = 200
#: State of a session that its machine has ended, because the number was moved.
ENDED = "ended"
#: A number of which so few messages arrive is perhaps restricted, or its recipients have blocked it.
FEW_ARRIVE, ENOUGH_MESSAGES = 0.5, 20

RECEIPTS = """
SELECT count(*) FILTER (WHERE v.at < %(judged)s) AS sent,
       count(t.delivered_at) FILTER (WHERE v.at < %(judged)s) AS delivered,
       count(t.read_at) FILTER (WHERE v.at < %(judged)s) AS read,
       count(*) FILTER (WHERE v.at >= %(judged)s) AS just_sent,
       max(greatest(t.delivered_at, t.read_at)) AS last_receipt_at
  FROM (SELECT a.run_target_id, a.at FROM fanout_activity a
         WHERE a.account_id = %(account)s AND a.action = %(action)s AND a.at >= %(since)s
           AND a.outcome = 'sent' AND a.part = 0 AND a.run_target_id IS NOT NULL
         ORDER BY a.at DESC LIMIT %(most)s) AS v,
       LATERAL (SELECT * FROM fanout_runtarget t WHERE t.id = v.run_target_id OFFSET 0) AS t
"""


@dataclass(frozen=True, slots=True)
class NumberHealth:
    """A paired number as its bridge last reported it, and its last seven days."""

    host: str
    moved_to: str
    state: str
    state_since: datetime | None
    reported_at: datetime | None
    #: when it was paired; an older session is known to be paired since `paired_by` at the latest
    paired_at: datetime | None
    paired_by: datetime
    sent: int
    delivered: int
    read: int
    #: so lately that they are not judged
    just_sent: int
    last_receipt_at: datetime | None
    on_phone: int
    warmup: str
    groups: Mapping[str, Any] = field(default_factory=dict)

    def is_silent(self, now: datetime) -> bool:
        """Return whether no bridge has reported it lately."""
        return self.reported_at is None or now - self.reported_at > SILENT_AFTER

    @property
    def few_arrive(self) -> bool:
        return self.sent >= ENOUGH_MESSAGES and self.delivered < FEW_ARRIVE * self.sent

    def is_good(self, now: datetime) -> bool:
        return self.state == "connected" and not self.is_silent(now) and not self.few_arrive

    def lines(self, now: datetime) -> list[str]:
        """Return the health in sentences for operators."""
        return [self._connection(now), self._receipts(now), self._age(now), *self._groups()]

    def _connection(self, now: datetime) -> str:
        if is_moving(self):
            return moving_words(self, now)
        if self.reported_at is None:
            return f"No bridge has reported this number yet; it was paired on {self.host}"
        if self.is_silent(now):
            ago = duration((now - self.reported_at).total_seconds())
            return f"No bridge has reported this number for {ago}; it was {self.state} on {self.host}"
        since = f" for {duration((now - self.state_since).total_seconds())}" if self.state_since else ""
        return f"{self.state.capitalize()}{since} on {self.host}"

    def _receipts(self, now: datetime) -> str:
        if self.last_receipt_at is None and not self.sent and not self.just_sent:
            return "Nothing sent in seven days"
        words = "No receipt yet"
        if not self.sent and self.last_receipt_at is None:
            words += f" of {self.just_sent:,} message{'' if self.just_sent == 1 else 's'} of the last ten minutes"
        if self.last_receipt_at is not None:
            words = f"Last receipt {duration((now - self.last_receipt_at).total_seconds())} ago"
        if self.sent:
            rates = f"{self.delivered / self.sent:.0%} received, {self.read / self.sent:.0%} read"
            all_of_them = self.sent + self.just_sent < MOST_LOOKED_AT
            words += f"; {rates} of " + (
                f"{self.sent:,} messages in seven days" if all_of_them else f"the last {self.sent:,} messages"
            )
        if self.few_arrive:
            words += ": few arrive, so the number may be restricted. Pause it and ask recipients whether they get it"
        return words

    def _age(self, now: datetime) -> str:
        paired = self.paired_at or self.paired_by
        days = (now - paired).days
        least = "" if self.paired_at else "at least "
        age = f"Paired {least}{days} day{'' if days == 1 else 's'} ago" if self.state != UNPAIRED else "Not paired"
        words = f"{age}; {self.warmup}"
        if self.on_phone:
            words += f"; {self.on_phone} message{'' if self.on_phone == 1 else 's'} written on the phone today"
        return words

    def _groups(self) -> list[str]:
        if not self.groups:
            return []
        kinds = [(what, self.groups[what]) for what in ("joined", "left", "changed") if what in self.groups]
        changes = [f"{one['count']} {what} ({_named(one)})" for what, one in kinds]
        return [f"Groups since the last synchronisation: {'; '.join(changes)}"]


def _named(change: Mapping[str, Any]) -> str:
    names = ", ".join(change["names"])
    more = change["count"] - len(change["names"])
    return f"{names} and {more} more" if more else names


def is_moving(session: NumberHealth | PairedSession) -> bool:
    """Return whether the number was moved, and is not on its new machine yet."""
    return session.moved_to not in ("", session.host)


def moving_words(session: NumberHealth | PairedSession, now: datetime) -> str:
    """Return how far the move of a number is, and what to do next."""
    moved = f"Moved to {session.moved_to}"
    if session.state == ENDED:
        return f"{moved}; {session.host} has ended it, so copy its folder now or pair it on {session.moved_to}"
    if session.reported_at is None or now - session.reported_at > SILENT_AFTER:
        return f"{moved}; {session.host} has not reported it for a while. Copy its folder, or pair it anew"
    return f"{moved}; {session.host} has not ended it yet, so do not copy its folder now"


def number_health(account: Account, now: datetime) -> NumberHealth | None:
    """Return the health of a paired number; None for other accounts, and for one that was never paired."""
    session = PairedSession.objects.filter(account=account).first()
    if session is None:
        return None
    action = channel(account.channel).action
    facts = {"account": account.pk, "action": action, "since": now - SPAN, "judged": now - ARRIVES_WITHIN}
    (receipts,) = execute(RECEIPTS, facts | {"most": MOST_LOOKED_AT})
    return NumberHealth(
        host=session.host,
        moved_to=session.moved_to,
        state=session.state,
        state_since=session.state_since,
        reported_at=session.reported_at,
        paired_at=session.paired_at,
        paired_by=session.journal_since,
        on_phone=_on_phone(account, action, now),
        warmup=warmup_stage(account, now),
        groups=session.group_changes,
        **receipts,
    )


def _on_phone(account: Account, action: str, now: datetime) -> int:
    starts, ends = local_day_bounds(account.timezone, now)
    rows = Activity.objects.filter(account=account, action=action, kind=Activity.ON_PHONE)
    return rows.filter(at__gte=starts, at__lt=ends).count()


def warmup_stage(account: Account, now: datetime) -> str:
    """Return where the account is in its warm-up, in words."""
    if not account.warmup_days or account.warmup_started_on is None:
        return "no warm-up"
    today = local_date(account.timezone, now)
    day = (today - account.warmup_started_on).days + 1
    if day < 1:
        return f"warm-up begins on {account.warmup_started_on}"
    if day > account.warmup_days:
        return "warm-up done"
    cap = account_limits.cap_on(account, channel(account.channel).action, today).limit
    return f"warm-up day {day} of {account.warmup_days}" + (f", {cap} messages today" if cap is not None else "")


# --- moving it to another machine -------------------------------------------------------------------------


BRIDGE_LOCKS = 0x435257  # "CRW", beside those of lanes and slots
# A machine that lost its power leaves a session with PostgreSQL behind, which keeps the lock for hours.
END_SESSION = """
SELECT pg_terminate_backend(l.pid) AS ended FROM pg_locks l
 WHERE l.locktype = 'advisory' AND l.classid = %(space)s AND l.objid = %(account)s AND l.objsubid = 2 AND l.granted
   AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


class CannotMove(ValueError):
    """Raised where a number cannot be moved, with a sentence for the operator."""


def machines(account: Account, now: datetime) -> list[str]:
    """Return the other machines whose bridge is running, which a number can be moved to."""
    beating = BridgeBeat.objects.filter(beat_at__gt=now - SILENT_AFTER).values_list("host", flat=True)
    own = PairedSession.objects.filter(account=account).values_list("host", flat=True)
    return sorted(set(beating) - set(own))


def move(account: Account, host: str, user: Any, now: datetime) -> str:
    """Move a number to another machine; return what happens next. Raises CannotMove.

    From now on only that machine's bridge may use the stored session. The bridge that has it ends it within seconds. If
    that is gone, its session with PostgreSQL is ended, and with it its locks; it leaves the number alone when it is
    back. A machine that lost its power a moment ago still counts as alive: then the move is repeated. A move to the
    machine that has it, and is silent, frees the lock that its last run left behind.
    """
    host = host.strip()
    with transaction.atomic():
        session = PairedSession.objects.select_for_update().filter(account=account).first()
        if session is None:
            raise CannotMove(f"{account.label} is not paired, so there is nothing to move.")
        if not host or len(host) > HOST_LENGTH:
            raise CannotMove("Give the name of the machine to move it to, as `hostname` prints it there.")
        gone = session.reported_at is None or now - session.reported_at > SILENT_AFTER
        repeated = host == (session.moved_to or session.host)
        if repeated and host == session.host and not gone:
            raise CannotMove(f"{account.label} is on {host} already.")
        session.moved_to = host
        if not repeated and not gone:
            # A copy of the folder that is made before the old bridge has ended the session must not pass for it.
            session.journal_page += 1
        session.save(update_fields=["moved_to", "journal_page"])
        if not repeated:
            words = f"from {session.host} to {host}"
            Event.objects.create(account=account, actor=user, at=now, verb="moved", detail=words)
    # After the commit: a bridge that is only slow must not take the number again.
    ended = execute(END_SESSION, {"space": BRIDGE_LOCKS, "account": account.pk}) if gone else []
    if repeated and gone and not ended:
        raise CannotMove(f"{account.label} is on {host} already.")
    if host == session.host:
        return f"The lock that {host} had left behind is free: its bridge takes {account.label} within seconds."
    folder = f"the folder var/whatsapp/{account.pk}"
    if gone:
        next_step = (
            f"{session.host} has not reported it for a while. Put {folder} there, from {session.host} or a backup"
        )
    else:
        next_step = (
            f"Wait until its page or `manage.py account health` says that {session.host} has ended it, then copy "
            f"{folder} there; if {session.host} is off, move the number once more in a minute"
        )
    return (
        f"{account.label} belongs to {host} now. {next_step}. Its bridge connects then; without the folder, pair the "
        "number again. Never leave a copy in use."
    )
