"""The groups that a number is in, where it may write, and when WhatsApp is asked for them."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from contextlib import suppress
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any

from accounts.channels.base import Kind, NotSent
from accounts.channels.paired import Jid
from accounts.channels.whatsapp.bridge import conditions
from accounts.channels.whatsapp.bridge.incoming import plain
from accounts.channels.whatsapp.bridge.journal import ROSTER
from accounts.channels.whatsapp.bridge.library import Limits

if TYPE_CHECKING:
    from accounts.channels.whatsapp.bridge.session import Session


LEFT = "this number is not in the group, or no longer"
ADMINS_ONLY = "only admins may write in this group, and this number is not one"


@dataclass(frozen=True, slots=True)
class WhatsAppGroup:
    jid: str
    name: str
    size: int
    announce_only: bool
    may_write: bool


class Roster:
    """The last answer of `get_joined_groups`, also one that an earlier bridge got: the first message after a restart
    does not wait for the list. Without one nothing is refused, and WhatsApp itself decides.

    Listing all groups is expensive, and WhatsApp refuses numbers that ask too often. So the time of the last question
    counts, answered or not, and after a failed one the next waits longer each time.
    """

    def __init__(self, limits: Limits, stored: str = "") -> None:
        self.limits = limits
        self.groups: dict[str, WhatsAppGroup] | None = None
        if stored:
            self.groups = {row[0]: WhatsAppGroup(*row) for row in json.loads(stored)}
        #: whether it was read since it was last compared with what Crier has stored
        self.is_news = False
        self.asked_at = float("-inf")
        self.failures = 0
        self.failed: NotSent | None = None
        #: groups that have changed since
        self.changed: set[str] = set()

    def asking(self) -> None:
        self.asked_at = time.monotonic()
        self.changed.clear()

    def read(self, answer: Any, me: Any) -> None:
        self.failures, self.failed = 0, None
        self.groups = {group.jid: group for group in (group_of(info, me) for info in answer)}
        self.is_news = True

    def stored(self) -> str:
        """Return the list as text, for the constructor."""
        return json.dumps([astuple(group) for group in (self.groups or {}).values()])

    def refused(self, why: NotSent) -> NotSent:
        self.failures, self.failed = self.failures + 1, why
        return why

    def resting(self) -> NotSent | None:
        """Return why the list was refused, while it is too early to ask again."""
        return self.failed if not self._asked_before(self.limits.groups_retry(self.failures)) else None

    def due(self) -> bool:
        """Return whether it is time to ask."""
        if self.failed is not None:
            return self.resting() is None
        return self._asked_before(self.limits.groups_changed if self.changed else self.limits.groups)

    def should_ask(self, chat: Jid) -> bool:
        """Return whether to ask because a group is not on the list and may be new; not for every message."""
        unheard_of = self.groups is None or str(chat) not in self.groups
        return unheard_of and self.resting() is None and self._asked_before(self.limits.groups_unheard)

    def _asked_before(self, seconds: float) -> bool:
        return time.monotonic() - self.asked_at > seconds

    def refusal(self, chat: Jid) -> NotSent | None:
        if self.groups is None or not chat.is_group or str(chat) in self.changed:
            return None
        group = self.groups.get(str(chat))
        if group is None:
            return NotSent(Kind.NOT_WRITABLE, LEFT)
        return None if group.may_write else NotSent(Kind.NOT_WRITABLE, ADMINS_ONLY)


def group_of(info: Any, me: Any) -> WhatsAppGroup:
    announce = bool(info.GroupAnnounce.IsAnnounce)
    return WhatsAppGroup(
        jid=str(plain(info.JID)),
        name=info.GroupName.Name,
        size=len(info.Participants),
        announce_only=announce,
        may_write=not announce or is_admin(info, me),
    )


def is_admin(info: Any, me: Any) -> bool:
    """Return whether this number is an admin. Members are listed by number or by hidden id, and so are we."""
    mine = {jid.User for jid in (me.JID, me.LID) if jid.User}
    return any(
        member.IsAdmin or member.IsSuperAdmin
        for member in info.Participants
        if mine & {member.JID.User, member.LID.User, member.PhoneNumber.User}
    )


class Listing:
    """Asks WhatsApp for the groups of a session, one question at a time."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.under_way: asyncio.Task[NotSent | None] | None = None

    def list_if_due(self) -> None:
        if self.session.roster.due():
            self._list()

    async def ask_for_groups(self) -> NotSent | None:
        """Read the list of groups; return the reason where WhatsApp refuses it, or has just refused it."""
        if (refused := self.session.roster.resting()) is not None:
            return refused
        listing = self._list()
        await asyncio.wait({listing})
        if listing.cancelled():
            return NotSent(Kind.UNAVAILABLE, conditions.CLOSING, conditions.RETRY_WHEN_OFFLINE)
        return listing.result()

    def _list(self) -> asyncio.Task[NotSent | None]:
        """Return the question under way, or begin one."""
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
            return roster.refused(NotSent(Kind.UNAVAILABLE, words, conditions.RETRY_WHEN_OFFLINE))
        except self.session.library.error as error:
            return roster.refused(conditions.question_failed(str(error)))
        with suppress(sqlite3.Error):  # the next bridge asks WhatsApp then
            self.session.journal.note(ROSTER, roster.stored())
        self.session.on_news()
        return None
