"""Apply receipts: when a message was delivered and read, as its provider reports it.

They come late, repeatedly and in any order. The first time stands, and a message that was read was also delivered, so
the order does not change the outcome. They are worked on in batches, and nothing waits for them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Q

from accounts.addresses import spellings_of
from fanout.database import LOCK_RUNS, Row, execute
from fanout.inbound import known_ids
from fanout.inbound.event_store import look_again
from fanout.models import InboundEvent, Run
from fanout.rules.message_ids import named_in
from fanout.runs import corrections, erasing
from reminders.erasure import FACELESS

Kind, State = InboundEvent.Kind, InboundEvent.State

KINDS = (Kind.DELIVERED, Kind.READ)
BATCH = 500


def ready(now: datetime) -> list[InboundEvent]:
    """Return the next batch, in the order in which they came."""
    due = Q(next_attempt_at=None) | Q(next_attempt_at__lte=now)
    rows = InboundEvent.objects.filter(due, state=State.NEW, kind__in=KINDS).order_by("id")
    return list(rows.defer("words")[:BATCH])


@transaction.atomic
def apply(events: Sequence[InboundEvent], now: datetime) -> None:
    """Store the times and settle unconfirmed targets; events that name no settled target wait."""
    messages = {row["event"]: row for row in execute(FIND, _questions(events))} if events else {}
    messages |= _unconfirmed_in_chats([event for event in events if event.pk not in messages])
    if messages:
        # Before their targets: the trigger of a statement about several runs locks them too, and that is too late.
        execute(LOCK_RUNS, {"runs": sorted({row["run"] for row in messages.values()})})
    _settle(messages.values(), now)
    about = [event for event in events if event.pk in messages]
    if about:
        targets = [messages[event.pk]["target"] for event in about]
        _note_times([event for event in about if not _only_taken(event)], messages)
        named = [event for event in about if not messages[event.pk]["faceless"]]
        names = {"target": [messages[event.pk]["target"] for event in named]}
        execute(NAME, names | {"provider_id": _all(named, "provider_id")})
        effects = ["confirmed that it was sent" if messages[e.pk]["was_unconfirmed"] else "noted" for e in about]
        execute(DONE, {"event": _all(about, "pk"), "target": targets, "effect": effects})
        for event in about:
            if messages[event.pk]["faceless"]:
                erasing.forget(event)
    _look_again([event for event in events if event.pk not in messages], now)


# Only settled targets. A pending or sending one belongs to a lane, and says later what this receipt was about. A
# provider's id that another target has is not about a target without one, even if the report says so.
FIND = """
SELECT r.event, t.id AS target, t.run_id AS run,
       -- An unconfirmed first part has a provider's id only where we chose it, so that the receipt is about that part.
       t.status = 'unconfirmed' AND t.parts_sent = coalesce(r.part, 0) AS was_unconfirmed,
       t.address LIKE %(faceless)s AS faceless
  FROM unnest(%(event)s::bigint[], %(account)s::bigint[], %(target)s::bigint[], %(part)s::int[],
              %(provider_id)s::text[]) AS r(event, account_id, target, part, provider_id)
 CROSS JOIN LATERAL (
   SELECT * FROM fanout_runtarget t WHERE t.id = r.target AND t.account_id = r.account_id
    UNION ALL
   (SELECT * FROM fanout_runtarget t
     WHERE r.target IS NULL AND t.provider_id = r.provider_id AND t.provider_id <> '' AND t.account_id = r.account_id
     ORDER BY t.id DESC LIMIT 1)) AS t
 WHERE t.status NOT IN ('pending', 'sending') AND t.claimed_at IS NOT NULL
   AND (t.provider_id <> '' OR r.provider_id = ''
        OR NOT EXISTS (SELECT FROM fanout_runtarget k
                        WHERE k.provider_id = r.provider_id AND k.provider_id <> '' AND k.account_id = r.account_id
                          AND k.id <> t.id))
"""

# An unconfirmed send has no provider id that we know. A receipt with an unknown id, later than the claim, is about it
# where nothing else of the account in that chat can be meant: nothing else is in flight or unconfirmed there, and no
# message has an id that we do not know, as all but the last part of one with several.
UNCONFIRMED_IN_CHAT = """
SELECT r.event, min(t.id) AS target, min(t.run_id) AS run, true AS was_unconfirmed, false AS faceless
  FROM unnest(%(event)s::bigint[], %(account)s::bigint[], %(chat)s::text[], %(provider_id)s::text[],
              %(at)s::timestamptz[]) AS r(event, account_id, chat, provider_id, at)
  JOIN fanout_runtarget t
    ON t.account_id = r.account_id AND t.address = r.chat AND t.status IN ('sending', 'unconfirmed')
 WHERE NOT EXISTS (SELECT FROM fanout_runtarget k
                    WHERE k.provider_id = r.provider_id AND k.provider_id <> '' AND k.account_id = r.account_id)
 GROUP BY r.event, r.at
HAVING count(*) = 1 AND bool_and(
         t.status = 'unconfirmed' AND r.at BETWEEN t.claimed_at AND t.claimed_at + %(longest)s
         AND (t.parts_sent = 0 OR (t.parts_sent = 1 AND t.provider_id <> ''))
         AND NOT EXISTS (SELECT FROM fanout_runtarget o JOIN reminders_recipient p ON p.id = o.recipient_id
                          WHERE p.address = t.address AND o.account_id = t.account_id AND o.id <> t.id
                            AND o.claimed_at > t.claimed_at - %(kept)s
                            AND (o.parts_sent > 1 OR (o.parts_sent = 1 AND o.provider_id = '') OR o.in_doubt)))
"""
#: After a longer time a receipt by chat is no longer certain.
LONGEST_UNCONFIRMED = timedelta(days=3)
#: WhatsApp keeps a message so long for a phone that is switched off, and its receipt may still come.
KEPT = timedelta(days=30)

NOTE_TIMES = """
UPDATE fanout_runtarget t
   SET delivered_at = coalesce(t.delivered_at, r.delivered_at), read_at = coalesce(t.read_at, r.read_at)
  FROM (SELECT target, min(at) AS delivered_at, min(at) FILTER (WHERE kind = 'read') AS read_at
          FROM unnest(%(target)s::bigint[], %(kind)s::text[], %(at)s::timestamptz[]) AS r(target, kind, at)
         GROUP BY target) AS r
 WHERE t.id = r.target AND (t.delivered_at IS NULL OR (t.read_at IS NULL AND r.read_at IS NOT NULL))
"""

# A receipt may be the first to name the provider's id, if the send itself timed out.
NAME = """
UPDATE fanout_runtarget t SET provider_id = r.provider_id
  FROM unnest(%(target)s::bigint[], %(provider_id)s::text[]) AS r(target, provider_id)
 WHERE t.id = r.target AND t.provider_id = '' AND r.provider_id <> ''
"""

DONE = """
UPDATE fanout_inboundevent e SET state = 'done', effect = d.effect, run_target_id = d.target, next_attempt_at = NULL
  FROM unnest(%(event)s::bigint[], %(target)s::bigint[], %(effect)s::text[]) AS d(event, target, effect)
 WHERE e.id = d.event
"""


def _only_taken(event: InboundEvent) -> bool:
    """Return whether only the provider's server has the message, and not yet the person's phone."""
    return bool(event.detail.get("by") == "server")


def _note_times(events: Sequence[InboundEvent], messages: Mapping[int, Row]) -> None:
    if events:
        targets = [messages[event.pk]["target"] for event in events]
        execute(NOTE_TIMES, {"target": targets, "kind": _all(events, "kind"), "at": _all(events, "happened_at")})


def _questions(events: Sequence[InboundEvent]) -> dict[str, Any]:
    """Return the parameters of FIND: the message that each event names, by our id or the provider's."""
    ours = [named_in(event.message_id) for event in events]
    return {
        "event": _all(events, "pk"),
        "account": _all(events, "account_id"),
        "target": [named.target_id if named else None for named in ours],
        "part": [named.part if named else None for named in ours],
        "provider_id": _all(events, "provider_id"),
        "faceless": f"{FACELESS}%",
    }


def _unconfirmed_in_chats(events: Sequence[InboundEvent]) -> dict[int, Row]:
    """Return the unconfirmed targets that receipts with unknown ids are about, by chat."""
    by_chat = defaultdict(list)
    for event in events:
        if event.kind == Kind.DELIVERED and event.detail.get("by_device") and (event.group or event.address):
            by_chat[event.account_id, event.group or event.address].append(event)
    # Of two unknown messages in one chat it is uncertain which is ours.
    asked = [one for same in by_chat.values() for one in same if len(set(_all(same, "provider_id"))) == 1]
    if not asked:
        return {}
    told = known_ids.addresses_of_ids([(event.account_id, event.address) for event in asked if event.address])
    in_chats = [(event, chat) for event in asked for chat in _chats_of(event, told)]
    asked = [event for event, _ in in_chats]
    facts = {"event": _all(asked, "pk"), "account": _all(asked, "account_id"), "at": _all(asked, "happened_at")}
    chats = {"chat": [chat for _, chat in in_chats], "provider_id": _all(asked, "provider_id")}
    return {
        row["event"]: row
        for row in execute(UNCONFIRMED_IN_CHAT, facts | chats | {"longest": LONGEST_UNCONFIRMED, "kept": KEPT})
    }


def _chats_of(event: InboundEvent, told: Mapping[tuple[int, str], str]) -> set[str]:
    """Return the stored addresses that the event's chat can mean: as the provider told them, or by the rules."""
    known = told.get((event.account_id, event.address))
    return {*spellings_of(event.group or event.address), *([known] if known else [])}


def _all(events: Iterable[InboundEvent], name: str) -> list[Any]:
    return [getattr(event, name) for event in events]


def _settle(messages: Iterable[Row], now: datetime) -> None:
    """Settle unconfirmed targets as delivered: the provider's word counts like an operator's."""
    by_run = defaultdict(set)
    for row in messages:
        if row["was_unconfirmed"]:
            by_run[row["run"]].add(row["target"])
    for run in Run.objects.filter(pk__in=by_run).order_by("pk"):
        corrections.settle(run, by_run[run.pk], True, None, now, by_provider=True)


def _look_again(events: Sequence[InboundEvent], now: datetime) -> None:
    if late := look_again(events, now):
        InboundEvent.objects.filter(pk__in=late).update(
            state=State.DONE, next_attempt_at=None, effect="names no message that this account sent for Crier"
        )
