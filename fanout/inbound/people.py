"""The person behind an address: one recipient in each list that has it. Groups are no people."""

from __future__ import annotations

from accounts.addresses import spellings_of
from fanout.lanes.statements import execute
from fanout.models import InboundEvent

# The account's own correspondent first, then the spelling of the event.
STORED_AS = """
SELECT s.address FROM unnest(%(spellings)s::text[]) WITH ORDINALITY AS s(address, place)
  JOIN reminders_recipient p ON p.address = s.address AND p.kind <> 'group'
 ORDER BY EXISTS (SELECT FROM fanout_runtarget t WHERE t.recipient_id = p.id AND t.account_id = %(account)s
                                                   AND t.claimed_at IS NOT NULL) DESC, s.place
 LIMIT 1
"""


def recognise(event: InboundEvent) -> None:
    """Change the event's address to the spelling in which lists have the person, where theirs is another one."""
    if len(spellings := spellings_of(event.address)) > 1:
        for row in execute(STORED_AS, {"spellings": list(spellings), "account": event.account_id}):
            event.address = row["address"]
            event.save(update_fields=["address"])


WITH_ADDRESS = "SELECT id FROM reminders_recipient WHERE address = ANY(%(addresses)s::text[]) AND kind <> 'group'"


def with_address(address: str) -> list[int]:
    """Their ids."""
    return [row["id"] for row in execute(WITH_ADDRESS, {"addresses": [address]})]


def lock(address: str) -> list[int]:
    """The ids of all of them, in every spelling of the address, locked in one order."""
    addresses = list(spellings_of(address))
    return [row["id"] for row in execute(f"{WITH_ADDRESS} ORDER BY id FOR NO KEY UPDATE", {"addresses": addresses})]
