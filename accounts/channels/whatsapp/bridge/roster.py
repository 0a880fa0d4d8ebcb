"""The groups that a number is in, and where it may write."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from accounts.channels.base import Kind, NotSent
from accounts.channels.jids import Jid
from accounts.channels.whatsapp.bridge.reading import plain

#: A group that is not on the list may be new: asked again, but not for every message.
ASK_AGAIN_AFTER = 60.0

LEFT = "this number is not in the group (any more)"
ADMINS_ONLY = "only admins may write in this group, and this number is none"


@dataclass(frozen=True, slots=True)
class Group:
    jid: str
    name: str
    size: int
    announce_only: bool
    may_write: bool


class Roster:
    """What `get_joined_groups` said last. Without an answer nothing is refused: WhatsApp itself decides then."""

    def __init__(self) -> None:
        self.groups: dict[str, Group] | None = None
        self.asked_at = float("-inf")

    def read(self, answer: Any, me: Any) -> None:
        self.asked_at = time.monotonic()
        self.groups = {group.jid: group for group in (group_of(info, me) for info in answer)}

    def stale(self, limit: float) -> bool:
        return time.monotonic() - self.asked_at > limit

    def should_ask(self, chat: Jid) -> bool:
        unheard_of = self.groups is None or str(chat) not in self.groups
        return unheard_of and self.stale(ASK_AGAIN_AFTER)

    def refusal(self, chat: Jid) -> NotSent | None:
        if self.groups is None or not chat.is_group:
            return None
        group = self.groups.get(str(chat))
        if group is None:
            return NotSent(Kind.NOT_WRITABLE, LEFT)
        return None if group.may_write else NotSent(Kind.NOT_WRITABLE, ADMINS_ONLY)


def group_of(info: Any, me: Any) -> Group:
    announce = bool(info.GroupAnnounce.IsAnnounce)
    return Group(
        jid=str(plain(info.JID)),
        name=info.GroupName.Name,
        size=len(info.Participants),
        announce_only=announce,
        may_write=not announce or is_admin(info, me),
    )


def is_admin(info: Any, me: Any) -> bool:
    """Members are listed by number or by hidden id, and so are we."""
    mine = {jid.User for jid in (me.JID, me.LID) if jid.User}
    return any(
        member.IsAdmin or member.IsSuperAdmin
        for member in info.Participants
        if mine & {member.JID.User, member.LID.User, member.PhoneNumber.User}
    )
