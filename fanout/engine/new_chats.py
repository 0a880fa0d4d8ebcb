"""The new chats of a lane: may one begin, which of them are in flight, and what their outcomes mean for the others."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from accounts.channels.base import Kind
from fanout.engine.batch import Result
from fanout.engine.learning import Learning
from fanout.engine.loading import Target
from fanout.rules.gates import Wait
from fanout.rules.new_chats import NewChats, may_begin, refused, wait_for_new_chats, went_through
from fanout.rules.outcomes import Consequence


class ChatsInFlight:
    """The new chats that a lane has begun and has no answer for yet. They count as begun."""

    def __init__(self, learning: Learning) -> None:
        self.learning = learning
        self._targets: set[int] = set()

    @property
    def new_chats(self) -> NewChats:
        return self.learning.account.new_chats

    def may_begin(self, now: datetime) -> bool:
        return may_begin(self.new_chats, len(self._targets), now)

    def why_none(self, now: datetime) -> Wait | None:
        """What keeps another one from beginning, and until when."""
        return wait_for_new_chats(self.new_chats, now)

    def begin(self, target: Target) -> None:
        if target.new_chat:
            self._targets.add(target.id)
            self._count(1)

    def end(self, target: Target, counts: bool) -> None:
        """The provider has answered, or was never asked. `counts`: the message went out, or may have."""
        if target.id in self._targets:
            self._targets.remove(target.id)
            if not counts:
                self._count(-1)

    def _count(self, chats: int) -> None:
        self.learning.account.new_chats = self.new_chats.begin(chats)

    def learn(self, target: Target, result: Result, verdict: Consequence, now: datetime) -> None:
        """What the outcome means for this chat and for the others that have not begun; it goes into the result."""
        hold = self.new_chats.hold
        if verdict.kind == Kind.NEW_CHATS_BLOCKED and verdict.retry_at is not None:
            hold = refused(hold, (verdict.retry_at - now).total_seconds(), verdict.error, now)
        elif target.new_chat and verdict.status == "sent":
            result.begins_chat, target.new_chat = True, False
            hold = went_through(hold, now)
        if hold != self.new_chats.hold:
            self.learning.account.new_chats = replace(self.new_chats, hold=hold)
            result.new_chat_hold = hold
