"""An account's known chats, the new ones it has begun today, and what holds them, in the database."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Exists, OuterRef, QuerySet

from accounts.addresses import KINDS, NEW_CHAT_KINDS, guess_kind, sql_list
from fanout.database import execute
from fanout.lanes.lane_rows import wake_lanes
from fanout.models import KnownChat, LaneState, RunTarget
from fanout.rules.new_chat_limits import NewChatHold, refused

# The kinds of address where a first message counts as a new chat.
COUNTED_KINDS = sql_list(NEW_CHAT_KINDS)
# The address of a target t may be of these kinds, by its first letters: so no recipient of a group is looked up.
MAY_BEGIN_CHAT = " OR ".join(f"starts_with(t.address, '{KINDS[kind].prefix}')" for kind in NEW_CHAT_KINDS)

# For a target t and its recipient p: a person who never wrote to the account and never got a message from it.
NEW_CHAT = f"""(p.kind IN {COUNTED_KINDS} AND NOT EXISTS (SELECT FROM fanout_knownchat k
                                       WHERE k.account_id = t.account_id AND k.address = t.address))"""

# When the person of a target t last wrote to its account.
LAST_WROTE_AT = f"""CASE WHEN p.kind IN {COUNTED_KINDS}
            THEN (SELECT k.heard_at FROM fanout_knownchat k
                   WHERE k.account_id = t.account_id AND k.address = t.address) END"""

# Chats of targets that have got a message. A chat that was begun before keeps its day. An erased target has no claim.
BEGIN_CHATS = f"""
INSERT INTO fanout_knownchat (account_id, address, begun_at)
SELECT DISTINCT ON (t.account_id, t.address) t.account_id, t.address, t.claimed_at
  FROM fanout_runtarget t JOIN reminders_recipient p ON p.id = t.recipient_id
 WHERE t.id = ANY(%s::bigint[]) AND p.kind IN {COUNTED_KINDS} AND t.claim_epoch > 0
 ORDER BY t.account_id, t.address, t.claimed_at
ON CONFLICT DO NOTHING
"""

# Returns whether the chat is new. An older message that comes later changes nothing.
BEGUN_ON_PHONE = """
INSERT INTO fanout_knownchat (account_id, address, begun_at) VALUES (%(account)s, %(address)s, %(at)s)
ON CONFLICT (account_id, address) DO NOTHING
"""
NOTE_MESSAGE = """
INSERT INTO fanout_knownchat AS k (account_id, address, heard_at) VALUES (%(account)s, %(address)s, %(at)s)
ON CONFLICT (account_id, address) DO UPDATE SET heard_at = excluded.heard_at
 WHERE k.heard_at IS NULL OR k.heard_at < excluded.heard_at
RETURNING xmax = 0 AS new
"""

# The provider's refusal holds for later holders of the lane too. A hold that ends later is not shortened.
HOLD_NEW_CHATS = """
WITH held AS (
  UPDATE fanout_lanestate l
     SET new_chats_after = h.until, new_chats_why = h.why, new_chat_refusals = h.refusals
    FROM unnest(%s::bigint[], %s::timestamptz[], %s::text[], %s::int[], %s::timestamptz[])
      AS h(account_id, until, why, refusals, at)
   WHERE l.account_id = h.account_id AND (l.new_chats_after IS NULL OR l.new_chats_after <= h.until)
  RETURNING h.*
)
INSERT INTO fanout_event (account_id, at, verb, detail)
SELECT account_id, at, 'new chats held', why FROM held WHERE until > at
"""

# Chats begun today; in flight and unconfirmed count as begun.
BEGUN_TODAY = f"""
SELECT d.account_id,
       (SELECT count(*) FROM fanout_knownchat k
         WHERE k.account_id = d.account_id AND k.begun_at >= d.starts AND k.begun_at < d.ends)
     + (SELECT count(DISTINCT t.address) FROM fanout_runtarget t JOIN reminders_recipient p ON p.id = t.recipient_id
         WHERE t.account_id = d.account_id AND t.status IN ('sending', 'unconfirmed')
           AND t.claimed_at >= d.starts AND t.claimed_at < d.ends AND {NEW_CHAT}) AS begun
  FROM unnest(%(accounts)s::bigint[], %(starts)s::timestamptz[], %(ends)s::timestamptz[]) AS d(account_id, starts, ends)
"""

# Read up to the first target that is not a new chat; called only while new chats are held.
ONLY_NEW_CHATS = f"""
SELECT NOT EXISTS (
  SELECT FROM fanout_runtarget t JOIN reminders_recipient p ON p.id = t.recipient_id
   WHERE t.run_id = %(run)s AND t.account_id = %(account)s AND t.status = 'pending' AND NOT {NEW_CHAT}) AS only
"""

# New chats among the first pending targets of each run and account.
PENDING_NEW = f"""
SELECT w.run, w.account, (
  SELECT count(*) FROM (SELECT t.account_id, t.address, t.recipient_id FROM fanout_runtarget t
                         WHERE t.run_id = w.run AND t.account_id = w.account AND t.status = 'pending'
                         ORDER BY t.position LIMIT %s) AS t
    JOIN reminders_recipient p ON p.id = t.recipient_id
   WHERE ({MAY_BEGIN_CHAT}) AND {NEW_CHAT}) AS new
  FROM unnest(%s::bigint[], %s::bigint[]) AS w(run, account)
"""

# New chats among the first persons of each reminder, if the account wrote to them.
NEW_IN_REMINDERS = f"""
SELECT w.reminder, w.account, (
  SELECT count(*) FROM (SELECT r.recipient_id FROM reminders_remindertarget r JOIN reminders_recipient q
                            ON q.id = r.recipient_id AND q.kind IN {COUNTED_KINDS}
                         WHERE r.reminder_id = w.reminder LIMIT %s) AS r
    JOIN reminders_recipient p ON p.id = r.recipient_id
   WHERE NOT EXISTS (SELECT FROM fanout_knownchat k
                      WHERE k.account_id = w.account AND k.address = p.address)) AS new
  FROM unnest(%s::bigint[], %s::bigint[]) AS w(reminder, account)
"""

NEW_RECIPIENTS = f"""
SELECT p.id FROM unnest(%s::bigint[], %s::bigint[]) AS w(recipient, account)
  JOIN reminders_recipient p ON p.id = w.recipient
 WHERE p.kind IN {COUNTED_KINDS} AND NOT EXISTS (SELECT FROM fanout_knownchat k
                                          WHERE k.account_id = w.account AND k.address = p.address)
"""

# So many are counted, and their share is taken for the rest.
MOST_LOOKED_AT = 20_000

WHY_LENGTH = 300


def hold_of(lane: Mapping[str, Any]) -> NewChatHold:
    """Return the hold in a lane's row."""
    return NewChatHold(lane["new_chats_after"], lane["new_chats_why"], lane["new_chat_refusals"])


def budget_of(effective: Mapping[str, float]) -> int | None:
    """Return the new chats per day by the account's effective knobs; None: no limit."""
    budget = effective["new_chats_per_day"]
    return None if math.isinf(budget) else int(budget)


def hold_row(account_id: int, hold: NewChatHold, at: datetime) -> tuple[Any, ...]:
    """Return the row that HOLD_NEW_CHATS takes for one account."""
    return account_id, hold.until, hold.why[:WHY_LENGTH], hold.refusals, at


def pending_new_chats(pairs: Collection[tuple[int, int]]) -> dict[tuple[int, int], int]:
    """Return how many of the first pending targets of each run are new chats of the account beside it, in one query."""
    rows = execute(PENDING_NEW, _looked_up(pairs)) if pairs else []
    return {(row["run"], row["account"]): row["new"] for row in rows}


def new_in_reminders(pairs: Collection[tuple[int, int]]) -> dict[tuple[int, int], int]:
    """Return how many persons of each reminder are new chats of the account beside it, in one query."""
    rows = execute(NEW_IN_REMINDERS, _looked_up(pairs)) if pairs else []
    return {(row["reminder"], row["account"]): row["new"] for row in rows}


def _looked_up(pairs: Collection[tuple[int, int]]) -> list[Any]:
    return [MOST_LOOKED_AT, [first for first, _ in pairs], [account for _, account in pairs]]


def new_among(persons: QuerySet[Any], account_id: int) -> int:
    """Return how many of these persons, or of these targets, are new chats of the account."""
    first = persons.model._default_manager.filter(pk__in=persons.order_by().values("pk")[:MOST_LOOKED_AT])
    new: int = first.filter(~Exists(chats_with(account_id))).count()
    return new


def wrote_since(persons: QuerySet[Any], account_id: int, since: datetime) -> int:
    """Return how many of these persons have written to the account since then."""
    wrote = KnownChat.objects.filter(account=account_id, heard_at__gt=since).values("address")
    n: int = persons.filter(address__in=wrote).count()
    return n


def chats_with(account_id: int) -> QuerySet[KnownChat]:
    """Return, for a subquery, the account's chat with a row that has an address."""
    return KnownChat.objects.filter(account=account_id, address=OuterRef("address"))


def new_recipients(pairs: Collection[tuple[int, int]]) -> set[int]:
    """Return the recipients that are new chats of the account beside each."""
    columns = [[recipient for recipient, _ in pairs], [account for _, account in pairs]]
    return {row["id"] for row in execute(NEW_RECIPIENTS, columns)} if pairs else set()


def addresses_with_chat(account_id: int, addresses: Collection[str]) -> set[str]:
    """Return the addresses that the account has a chat with."""
    chats = KnownChat.objects.filter(account=account_id, address__in=addresses)
    return set(chats.values_list("address", flat=True))


def scaled_to_all(new: int, targets: int) -> int:
    """Scale a count among the first MOST_LOOKED_AT targets to all of them."""
    return new * targets // min(targets, MOST_LOOKED_AT) if targets else 0


def only_new_chats(run_id: int, account_id: int) -> bool:
    """Return whether only new chats are left for the account in the run."""
    (row,) = execute(ONLY_NEW_CHATS, {"run": run_id, "account": account_id})
    return bool(row["only"])


def begin_chats(targets: Collection[int]) -> None:
    """Note the chats of unconfirmed targets that turned out to be sent."""
    execute(BEGIN_CHATS, [list(targets)])


def note_message_from(account_id: int, address: str, at: datetime, now: datetime) -> None:
    """Note that a person wrote to the account at this moment: no longer a new chat, and messages held for them may
    go."""
    if guess_kind(address) not in NEW_CHAT_KINDS:
        return
    rows = execute(NOTE_MESSAGE, {"account": account_id, "address": address, "at": at})
    if any(row["new"] for row in rows):
        wake_lanes([account_id], now)


def begun_on_phone(account_id: int, address: str, at: datetime) -> None:
    """Note that a person wrote to this address with the account's phone: a chat that begins counts like ours."""
    if guess_kind(address) in NEW_CHAT_KINDS:
        execute(BEGUN_ON_PHONE, {"account": account_id, "address": address, "at": at})


def not_begun(target: RunTarget) -> None:
    """Forget a chat that began with this message, which did not arrive after all."""
    begun = KnownChat.objects.filter(account=target.account_id, address=target.address, begun_at=target.claimed_at)
    begun.filter(heard_at=None).delete()


def refused_late(target: RunTarget, wait: timedelta, why: str, now: datetime) -> None:
    """Note that the provider took a message and then refused the chat: it has not begun, and other new chats wait."""
    account = target.account_id
    not_begun(target)
    for lane in LaneState.objects.select_for_update(no_key=True).filter(account=account):
        before = hold_of(lane.__dict__)
        hold = refused(before, wait.total_seconds(), why, now)
        if hold != before:
            execute(HOLD_NEW_CHATS, [[value] for value in hold_row(account, hold, now)])
            wake_lanes([account], now)
