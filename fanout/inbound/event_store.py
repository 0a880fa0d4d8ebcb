"""Store provider events, once each, suppress people who opt out with them, and put off events that came before our own
record of their message."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F
from django.db.models.functions import Greatest

from accounts import crypto
from accounts.addresses import spellings_of
from accounts.channels.paired import is_hidden
from accounts.channels.provider_events import EventKind, ProviderEvent
from fanout.database import Statement, execute
from fanout.models import InboundEvent
from fanout.runs import server
from reminders.erasure import digests_of
from reminders.models import Suppression
from reminders.opt_outs import decide_by_words, essence
from reminders.suppressions import REPORTED

KEY_LENGTH = 200
#: providers report times in whole seconds
WHOLE_SECOND = timedelta(seconds=1)
#: characters kept of a person's message
MOST_WORDS = 10_000
#: Kinds that have a further effect where they name a person.
PERSONAL = (EventKind.REPLY, EventKind.DELIVERED, EventKind.READ)

Reason, Source = Suppression.Reason, Suppression.Source
#: noted with the suppression of a person who wrote an opt-out word
WROTE_IT = "wrote an opt-out word"
#: how each kind of wish suppresses an address
SUPPRESSED_AS = {
    EventKind.REPLY: (Reason.OPTED_OUT, Source.RECIPIENT, WROTE_IT),
    EventKind.UNSUBSCRIBE: (Reason.UNSUBSCRIBED, Source.RECIPIENT, REPORTED),
    EventKind.COMPLAINT: (Reason.COMPLAINT, Source.PROVIDER, REPORTED),
}

# A repeated delivery of the same event changes nothing, also one at the same moment: the constraint decides which of
# them was first.
#
# A person who opts out is suppressed by the statement that stores their wish: thousands of other events, or a worker
# that does not run, must not let a message through in between. The worker does the rest. A suppression that holds
# stays as it is until then, and so does an erased person's address, of which only the hash is kept; an opt-out that
# the provider reports late, after the person took it back, suppresses no one. Where the provider calls the person by an
# id that it told before (fanout_knownid), the address behind it is suppressed. Mail that only its subject calls
# automatic is a reply if it opts out: no program says only “STOP”.
#
# Wishes are compared with erased people and later events by key, one by one: NOT EXISTS would let the planner read all
# events instead, and without OFFSET 0 it compares all wishes with all events. They are stored in the order of their
# addresses, so that two statements cannot deadlock.
STORE = """
WITH news AS (
  SELECT e.*, coalesce(own.opts_out, e.by_words) AS opts_out
    FROM unnest(%(account)s::bigint[], %(key)s::text[], %(kind)s::text[], %(address)s::text[], %(group)s::text[],
                %(provider_id)s::text[], %(message_id)s::text[], %(words)s::text[], %(detail)s::jsonb[],
                %(happened_at)s::timestamptz[], %(said)s::text[], %(by_words)s::boolean[])
         AS e(account_id, key, kind, address, "group", provider_id, message_id, words, detail, happened_at,
              said, by_words)
    LEFT JOIN reminders_optoutphrase own ON e.said <> '' AND own.essence = e.said
), stored AS (
  INSERT INTO fanout_inboundevent (account_id, key, kind, address, "group", provider_id, message_id, words, detail,
                                   happened_at, came_at, state, attempts, effect, opts_out)
  SELECT account_id, key, CASE WHEN kind = 'automatic' AND opts_out THEN 'reply' ELSE kind END, address, "group",
         provider_id, message_id, words, detail, happened_at, %(now)s, 'new', 0, '', opts_out
    FROM news
  ON CONFLICT (account_id, key) DO NOTHING
  RETURNING id, account_id, key, happened_at, opts_out
), silenced AS (
  INSERT INTO reminders_suppression AS s (address, reason, source, detail, created_at)
  SELECT DISTINCT ON (w.address) w.address, w.reason, w.source, w.why, %(now)s
    FROM (SELECT w.account_id, w.digests, w.reason, w.source, w.why, stored.happened_at,
                 coalesce((SELECT k.address FROM fanout_knownid k
                            WHERE k.account_id = w.account_id AND k.known_as = w.known_as), w.address) AS address
            FROM unnest(%(wish_account)s::bigint[], %(wish_key)s::text[], %(wish_known_as)s::text[],
                        %(wish_address)s::text[], %(wish_digests)s::text[], %(wish_reason)s::text[],
                        %(wish_source)s::text[], %(wish_why)s::text[])
                 AS w(account_id, key, known_as, address, digests, reason, source, why)
            JOIN stored ON stored.account_id = w.account_id AND stored.key = w.key AND stored.opts_out
          OFFSET 0) AS w
   WHERE w.address <> ''
     AND (SELECT count(*) FROM reminders_erasedaddress e WHERE e.digest = ANY(string_to_array(w.digests, ' '))) = 0
     AND CASE WHEN w.reason = 'unsubscribed' THEN
           (SELECT count(*) FROM fanout_inboundevent later
             WHERE later.address = w.address AND later.address <> '' AND later.happened_at > w.happened_at
               AND later.kind = 'unsubscribe' AND later.account_id = w.account_id
               AND later.detail @> '{"resumed": true}') = 0
         ELSE true END
   ORDER BY w.address
  ON CONFLICT (address) DO UPDATE
     SET reason = excluded.reason, source = excluded.source, detail = excluded.detail, expires_at = NULL,
         created_at = excluded.created_at, added_by_id = NULL
   WHERE s.expires_at <= %(now)s
)
SELECT id FROM stored
"""

COLUMNS = (
    *("account", "key", "kind", "address", "group", "provider_id", "message_id", "words", "detail", "happened_at"),
    *("said", "by_words"),
)
WISH_COLUMNS = ("account", "key", "known_as", "address", "digests", "reason", "source", "why")


def store(account_id: int, events: Sequence[ProviderEvent], now: datetime) -> int:
    """Store the events and return how many were new. A repeated delivery of the same event changes nothing."""
    return len(execute(*storing([(account_id, event) for event in events], now)))


def store_report(account_id: int, event: ProviderEvent, now: datetime) -> InboundEvent | None:
    """Store what a mail reports, and return it; None if it is not new. A report that anyone could have written has a
    key of its own: it must not keep out the proven one that follows, and changes nothing after it."""
    known = InboundEvent.objects.filter(account_id=account_id)
    if event.detail.get("authentic") is False:
        if known.filter(key=event.key).exists():
            return None
        event = replace(event, key=f"{event.key}:unproven")
    return known.get(key=event.key) if store(account_id, [event], now) else None


def storing(events: Iterable[tuple[int, ProviderEvent]], now: datetime) -> Statement:
    """Return one statement that stores the events with their accounts, suppresses the people who opt out with them, and
    returns a row for each event that was new."""
    rows = [_row(account_id, event, now) for account_id, event in events]
    wishes = [wish for row in rows if row["said"] or row["by_words"] for wish in _wishes(row)]
    columns = {name: [row[name] for row in rows] for name in COLUMNS}
    columns |= {f"wish_{name}": [wish[n] for wish in wishes] for n, name in enumerate(WISH_COLUMNS)}
    return STORE, columns | {"now": now}


def _row(account_id: int, event: ProviderEvent, now: datetime) -> dict[str, Any]:
    text = event.text[:MOST_WORDS]
    said, by_words = _wish(event, text)
    return {
        "account": account_id,
        # A key longer than the column keeps its end: ids begin alike and end differently.
        "key": _key(event)[-KEY_LENGTH:],
        "kind": str(event.kind),
        "address": _plain(event.address)[:254],
        "group": _plain(event.group)[:254],
        "provider_id": _plain(event.provider_id)[:200],
        "message_id": _plain(event.message_id)[:200],
        "words": crypto.encrypt({"text": _plain(text)}) if text else "",
        "detail": json.dumps(_plain_values(event.detail)),
        # A provider's clock may be ahead of ours: nothing happened after it came.
        "happened_at": min(event.at or now, now),
        "said": _plain(said),
        "by_words": by_words,
        "known_as": bare_id(_plain(_hidden_id(event) or event.address)),
    }


def _wish(event: ProviderEvent, text: str) -> tuple[str, bool]:
    """Return what a person says in short, for the site's list of opt-out phrases, and whether the event opts out
    without that list."""
    if event.group or not (event.address or _hidden_id(event)):
        return "", False
    if event.kind is EventKind.REPLY or (event.kind is EventKind.AUTOMATIC and event.detail.get("subject")):
        said = essence(text)
        return said, decide_by_words(text).opts_out
    # A complaint that anyone could have written is left to the worker.
    proven = event.detail.get("authentic") is not False
    return "", event.kind in SUPPRESSED_AS and proven and not event.detail.get("resumed")


def _hidden_id(event: ProviderEvent) -> str:
    """Return the id of a person whose number the provider does not tell; "" where it does."""
    hidden = str(event.detail.get("jid") or "")
    return hidden if not event.address and is_hidden(hidden) else ""


def bare_id(known_as: str) -> str:
    """Return a hidden id without its device: "382:12@lid" is the same person as "382@lid"."""
    user, at, server = known_as.partition("@")
    return f"{user.partition(':')[0]}@{server}" if at else known_as


def _wishes(row: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    """Yield the suppression of each spelling of the person's address."""
    spellings = spellings_of(row["address"]) if row["address"] else [""]
    # The person may have been erased under another spelling.
    digests = " ".join(digest for address in spellings for digest in digests_of(address))
    how = SUPPRESSED_AS.get(EventKind(row["kind"]), SUPPRESSED_AS[EventKind.REPLY])
    for address in spellings:
        yield row["account"], row["key"], row["known_as"], address, digests, *how


def _key(event: ProviderEvent) -> str:
    """Return the event's key. A copy that names no person, because WhatsApp hid the number, must not keep out the one
    that does."""
    anonymous = event.kind in PERSONAL and not event.address and not event.group
    return _plain(event.key) + (":nobody" if anonymous else "")


def _plain_values(detail: Mapping[str, Any]) -> dict[str, Any]:
    return {_plain(str(name)): _plain_value(value) for name, value in detail.items()}


def _plain_value(value: Any) -> Any:
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return _plain(str(value))


def _plain(text: str) -> str:
    """Return what PostgreSQL can store: one strange character must not refuse all events that came with it."""
    return text.encode("utf-8", "replace").decode().replace("\x00", "")


# --- events that are faster than our own record ----------------------------------------------------------

#: Seconds before each further look for the message. A provider may report before our own record of the send is stored,
#: and what a dead driver left in flight is settled by the next one; others are about messages that Crier did not send.
LOOK_AGAIN = (2, 15, 120)


class NotYet(Exception):
    """The target of the event is not settled yet, or not found. The event has not failed, and what was done stays."""


class ServerNotAccepted(Exception):
    """Sending is held up until an operator confirms a server that may lack commits (fanout/runs/recovery.py). The event
    waits for that, and what was done stays."""


LOOK_AT_SERVER_AGAIN = timedelta(seconds=15)


def put_off_while_held(pk: int, now: datetime) -> None:
    """Put the event off for a while, as often as needed. These tries do not count, and nothing waits for the event."""
    InboundEvent.objects.filter(pk=pk, state=InboundEvent.State.NEW).update(
        attempts=Greatest(F("attempts") - 1, 0), next_attempt_at=now + LOOK_AT_SERVER_AGAIN, effect=server.NOT_ACCEPTED
    )


def may_look_again(event: InboundEvent) -> bool:
    return _looks(event) < len(LOOK_AGAIN)


def look_again(events: Sequence[InboundEvent], now: datetime) -> list[int]:
    """Put the events off until their next look, and return the ids of those that have no further one. A look is not a
    try: tries are for what fails."""
    early = [event.pk for event in events if may_look_again(event)]
    if early:
        execute(LOOK, {"events": early, "now": now, "seconds": list(LOOK_AGAIN)})
    return [event.pk for event in events if not may_look_again(event)]


LOOK = """
UPDATE fanout_inboundevent e
   SET next_attempt_at = %(now)s::timestamptz + make_interval(secs => (%(seconds)s::int[])[was.looks + 1]),
       detail = e.detail || jsonb_build_object('looks', was.looks + 1)
  FROM (SELECT id, coalesce((detail->>'looks')::int, 0) AS looks
          FROM fanout_inboundevent WHERE id = ANY(%(events)s::bigint[])) AS was
 WHERE e.id = was.id AND e.state = 'new'
"""


def _looks(event: InboundEvent) -> int:
    return int(event.detail.get("looks", 0))
