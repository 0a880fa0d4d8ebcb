"""Judge by the journal what became of a message that Crier is not sure of. Pure, apart from reading the journal.

A driver or a bridge that dies leaves messages in doubt: they may have gone out. The journal is written before a message
leaves. So a message that it does not know never left and is sent again, one that WhatsApp acknowledged was sent, and
only one that was begun and not answered stays in doubt.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from accounts.channels.whatsapp.bridge.journal import KEEP_SECONDS, Journal

#: Clocks of two machines differ by less: a journal that was taken into use shortly before a claim proves nothing.
CLOCK_MARGIN = timedelta(minutes=1)
#: The journal forgets older messages, so that it proves nothing about them.
OLDEST = timedelta(seconds=KEEP_SECONDS) - timedelta(days=5)


#: Seconds between two pages of a journal. A copy that was made earlier, and is used again, proves nothing.
TURN_PAGE_AFTER = 30.0


@dataclass(frozen=True, slots=True)
class UncertainSend:
    """An unconfirmed target. Names of messages are their ids without the hash, which changes with the site's key."""

    target_id: int
    run_id: int
    name: str
    claimed_at: datetime
    #: of the claim, and of the lane by now
    claim_epoch: int
    lane_epoch: int
    #: The account's last message before this one that WhatsApp has acknowledged; empty where there is none. A journal
    #: that does not know it was restored from a copy, and may have lost this one too.
    witness: str = ""


class Judged(NamedTuple):
    """An uncertain send that is settled. `provider_id` is WhatsApp's id of the message; empty: it never left."""

    uncertain: UncertainSend
    provider_id: str


def judge(
    uncertain_sends: Collection[UncertainSend],
    journal: Journal,
    in_use_since: datetime,
    at_hand: Collection[str],
    now: datetime,
) -> list[Judged]:
    """Return the uncertain sends that the journal settles.

    Orders of earlier holders of the lane are refused from now on: one of them may be on its way to this bridge, from a
    driver that was stopped. `at_hand`: ids of messages that this bridge is working on.
    """
    if uncertain_sends:
        journal.fence(max(uncertain.lane_epoch for uncertain in uncertain_sends))
    judged = []
    for uncertain in uncertain_sends:
        if any(_is(message_id, uncertain.name) for message_id in at_hand):
            continue
        if provider_id := journal.provider_id_of(uncertain.name):
            judged.append(Judged(uncertain, provider_id))
        elif not journal.has_begun(uncertain.name) and proves(uncertain, journal, in_use_since, now):
            judged.append(Judged(uncertain, ""))
    return judged


def proves(uncertain: UncertainSend, journal: Journal, in_use_since: datetime, now: datetime) -> bool:
    """Return whether a message that is not in the journal never left: it would have been noted there, and would still
    be."""
    was_in_use = in_use_since + CLOCK_MARGIN <= uncertain.claimed_at
    is_kept = uncertain.claimed_at > now - OLDEST
    return was_in_use and is_kept and (not uncertain.witness or journal.has_begun(uncertain.witness))


def _is(message_id: str, name: str) -> bool:
    return message_id == name or message_id.startswith(f"{name}-")
