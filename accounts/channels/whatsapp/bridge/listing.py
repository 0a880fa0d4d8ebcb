"""Asking WhatsApp for the groups that a number is in."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from accounts.channels.base import Kind, NotSent
from accounts.channels.whatsapp import answers
from accounts.channels.whatsapp.bridge import conditions
from accounts.channels.whatsapp.bridge.roster import Roster

if TYPE_CHECKING:
    from accounts.channels.whatsapp.bridge.session import Session


class Listing:
    def __init__(self, session: Session) -> None:
        self.session = session
        self.under_way: asyncio.Task[NotSent | None] | None = None

    def list_if_due(self) -> None:
        if self.session.roster.due():
            self._list()

    async def ask_for_groups(self) -> NotSent | None:
        """Read the list of groups; the reason where WhatsApp does not give it, or has just not given it."""
        if (refused := self.session.roster.resting()) is not None:
            return refused
        listing = self._list()
        await asyncio.wait({listing})
        if listing.cancelled():
            return NotSent(Kind.UNAVAILABLE, conditions.CLOSING, answers.RETRY_WHEN_OFFLINE)
        return listing.result()

    def _list(self) -> asyncio.Task[NotSent | None]:
        """One question at a time: who asks meanwhile gets its answer."""
        if self.under_way is None or self.under_way.done():
            self.session.roster.asking()
            self.under_way = self.session.spawn(self._read_groups(self.session.client, self.session.roster))
        return self.under_way

    async def _read_groups(self, client: Any, roster: Roster) -> NotSent | None:
        try:
            async with asyncio.timeout(self.session.limits.question):
                roster.read(await client.get_joined_groups(), self.session.me)
        except TimeoutError:
            words = "WhatsApp did not list the groups in time"
            return roster.refused(NotSent(Kind.UNAVAILABLE, words, answers.RETRY_WHEN_OFFLINE))
        except self.session.library.error as error:
            return roster.refused(answers.asked(str(error)))
        self.session.woken()
        return None
