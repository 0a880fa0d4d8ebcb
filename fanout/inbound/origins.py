"""Find the delivery that a report without our message id is about.

Some servers give a message an id of their own, or return nothing of it. Then the report is matched by the queue id that
our server answered with (`RunTarget.provider_id`), or else by recipient, account and time. Anyone can send something
that looks like a report, so it must have come to the account's own sender address.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import NamedTuple

from accounts.models import Account
from fanout.inbound.mails import addresses_in, blocks_of_status, parsed_time, read_mail, returned_messages, text
from fanout.models import RunTarget

Status = RunTarget.Status

#: Servers give up after five days at most (RFC 5321, 4.5.4.1); their notice may wait for as long.
LONGEST_WAY = timedelta(days=10)
#: Between our claim and the date that the server notes: clocks differ, and the server may have been slow.
SAME_TIME = timedelta(minutes=15)
MOST_CANDIDATES = 50
# An id, as queues and Message-IDs have it; words, short numbers and names of hosts are none.
ID = re.compile(r"(?<![A-Za-z0-9.=-])(?=[A-Za-z-]{0,80}\d)[A-Za-z0-9][A-Za-z0-9-]{7,79}(?![A-Za-z0-9-]|\.[A-Za-z0-9])")
RECEIVED_ID = re.compile(r"(?i)\bid[ \t]{1,4}<?([^\s;>]{8,80})")


class Origin(NamedTuple):
    """What a report says about the message that came back."""

    #: addresses to which the report came, and from which the message was sent
    senders: frozenset[str]
    #: ids of queues and of the message
    ids: frozenset[str]
    sent_at: datetime | None
    #: the message carries an id that Crier did not give
    foreign: bool


class Match(NamedTuple):
    targets: list[RunTarget]
    by_queue_id: bool = False


def origin_of(raw: bytes) -> Origin:
    message = read_mail(raw)
    returned = [mail for part in message.walk() for mail in returned_messages(part)][:1]
    blocks = list(blocks_of_status(message))[:1]
    names = ("Message-ID", "X-Postfix-Queue-ID", "Original-Envelope-Id", "X-Original-Message-ID")
    texts = [text(mail, name) for mail in (*returned, *blocks) for name in names]
    received = [str(value)[:1_000] for mail in returned for value in (mail.get_all("Received") or ())[:20]]
    texts += [match[1] for value in received for match in RECEIVED_ID.finditer(value)]
    dates = [parsed_time(text(mail, "Date")) for mail in returned] + [
        parsed_time(text(one, "Arrival-Date")) for one in blocks
    ]
    return Origin(
        senders=frozenset(addresses_in(message, "To", "Delivered-To", "X-Original-To")).union(
            *(addresses_in(mail, "From", "Return-Path") for mail in returned)
        ),
        ids=frozenset(ids_in(" ".join(texts))),
        sent_at=next(filter(None, dates), None),
        foreign=any(text(mail, "Message-ID") for mail in returned),
    )


def deliveries(address: str, origin: Origin, now: datetime) -> Match:
    """Return the deliveries to an address that a report may be about, the newest first."""
    recent = _recent(address, now)
    if queued := [target for target in recent if origin.ids & ids_in(target.provider_id)]:
        return Match(queued, by_queue_id=True)
    ours = [target for target in recent if sender_of(target.account) in origin.senders]
    if origin.sent_at is not None:
        return Match([one for one in ours if one.claimed_at and abs(one.claimed_at - origin.sent_at) <= SAME_TIME])
    # Without a date another mail of the same mailbox may be meant, if it carried an id of its own.
    return Match([] if origin.foreign else ours)


def _recent(address: str, now: datetime) -> list[RunTarget]:
    # By the recipient: its address has an index, and its targets too.
    targets = RunTarget.objects.filter(recipient__address=address, address=address, claimed_at__gte=now - LONGEST_WAY)
    gone_out = targets.filter(status__in=(Status.SENT, Status.UNCONFIRMED, Status.FAILED))
    return list(gone_out.select_related("account").order_by("-claimed_at")[:MOST_CANDIDATES])


def sender_of(account: Account) -> str:
    return str(account.config.get("from_address") or account.address).lower()


def ids_in(words: str) -> set[str]:
    """Return the ids in a server's words, in lower case."""
    return {match[0].lower().strip(".-") for match in ID.finditer(words[:10_000])}
