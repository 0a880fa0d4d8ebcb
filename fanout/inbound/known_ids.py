"""People as an account's provider calls them: remember what it told, and ask it who hides behind an id.

WhatsApp names people by ids that may spell a number in another way, or hide it (…@lid). Providers tell the id that they
used for a message, or the number beside a hidden id; each is remembered per account. Where a report names only a hidden
id, the worker asks the provider, before the event's transaction begins.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from datetime import datetime

from asgiref.sync import async_to_sync

from accounts.channels.paired import is_hidden
from accounts.models import Account
from accounts.signin import NoAnswer, number_behind
from fanout.database import execute
from fanout.inbound.event_store import bare_id
from fanout.models import InboundEvent, KnownId

log = logging.getLogger("crier.inbound")

Kind = InboundEvent.Kind
#: What is said by a person; receipts are found by the message they name.
SAID = (Kind.REPLY, Kind.UNSUBSCRIBE)
#: Seconds for which an account that did not answer is not asked again, so that the worker is not held up by each event.
REST = 30.0
#: And for which no account is: many silent ones would keep the worker from everything else.
REST_OF_OTHERS = 10.0
EVERY_ACCOUNT = 0
_silent_until: dict[int, float] = {}  # by account, monotonic

REMEMBER = """
INSERT INTO fanout_knownid AS k (account_id, known_as, address) VALUES (%(account)s, %(known_as)s, %(address)s)
ON CONFLICT (account_id, known_as) DO UPDATE SET address = excluded.address WHERE k.address <> excluded.address
"""


class NotTold(Exception):
    """Raised where the provider could not be asked who wrote: the event is tried again later."""


def remember(account: int, known_as: str, address: str) -> None:
    execute(REMEMBER, {"account": account, "known_as": bare_id(known_as), "address": address})


def known_address(account: int, known_as: str) -> str:
    """Return the address that lists have for an id of the account's provider; "" where it never told one."""
    rows = KnownId.objects.filter(account=account, known_as=bare_id(known_as))
    return rows.values_list("address", flat=True).first() or ""


def addresses_of_ids(ids: Collection[tuple[int, str]]) -> dict[tuple[int, str], str]:
    """Return the addresses of ids, by account and id, in one query."""
    rows = KnownId.objects.filter(account__in={account for account, _ in ids}, known_as__in={one for _, one in ids})
    return {(row.account_id, row.known_as): row.address for row in rows}


def name_sender(pk: int, now: datetime) -> None:
    """Name the person in a stored event that has only a hidden id, by what was told before or by asking the provider.

    Raises NotTold where the provider could not be asked. It is called outside any transaction.
    """
    events = InboundEvent.objects.filter(pk=pk, state=InboundEvent.State.NEW, kind__in=SAID, address="", group="")
    for event in events.defer("words").select_related("account"):
        hidden = str(event.detail.get("jid") or "")
        if not is_hidden(hidden) or _told_in_a_copy(event):
            return
        address = known_address(event.account_id, hidden) or _ask(event.account, hidden)
        if address:
            remember(event.account_id, hidden, address)
            InboundEvent.objects.filter(pk=pk, address="").update(address=address)


def _told_in_a_copy(event: InboundEvent) -> bool:
    """Return whether the same message also came with its number (fanout.inbound.event_store)."""
    named = event.key.removesuffix(":nobody")
    return named != event.key and InboundEvent.objects.filter(account=event.account_id, key=named).exists()


def _ask(account: Account, hidden: str) -> str:
    if max(_silent_until.get(account.pk, 0.0), _silent_until.get(EVERY_ACCOUNT, 0.0)) > time.monotonic():
        raise NotTold("the provider did not tell who wrote this, and is asked again later")
    try:
        return async_to_sync(number_behind)(account, hidden)
    except NoAnswer as problem:
        _silent_until[account.pk] = time.monotonic() + REST
        _silent_until[EVERY_ACCOUNT] = time.monotonic() + REST_OF_OTHERS
        log.warning("a provider did not tell who wrote: %s", problem, extra={"account": account.pk})
        raise NotTold(f"the provider did not tell who wrote this: {problem}") from problem
