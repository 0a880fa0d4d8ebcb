"""The person behind an address: one recipient in each list that has it. Groups are no people."""

from __future__ import annotations

from fanout.database import execute

WITH_ADDRESS = "SELECT id FROM reminders_recipient WHERE address = %(address)s AND kind <> 'group'"


def with_address(address: str) -> list[int]:
    """Their ids."""
    return [row["id"] for row in execute(WITH_ADDRESS, {"address": address})]


def lock(address: str) -> list[int]:
    """The ids of all of them, locked in one order."""
    return [row["id"] for row in execute(f"{WITH_ADDRESS} ORDER BY id FOR NO KEY UPDATE", {"address": address})]
