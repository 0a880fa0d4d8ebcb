"""Pairing of a number with its phone: the codes, the result, and unpairing it again."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from accounts.channels.paired import PEOPLE
from accounts.channels.whatsapp.bridge import conditions
from accounts.channels.whatsapp.bridge.conditions import Condition, State, utc_now
from accounts.channels.whatsapp.bridge.journal import (
    GROUPS_STORED,
    PAIRED_AS,
    PAIRED_AT,
    ROSTER,
    SESSION_FILE,
    is_paired,
)
from accounts.channels.whatsapp.bridge.roster import Roster

if TYPE_CHECKING:
    from accounts.channels.whatsapp.bridge.session import Session

log = logging.getLogger("crier.bridge")

#: neonize's number for a pairing that did not succeed.
REFUSED_TO_PAIR = 1


@dataclass(frozen=True, slots=True)
class Code:
    """A code to show: the QR code's text, and the letters to type where a number was given."""

    qr: str
    expires_at: datetime
    letters: str = ""


class Pairing:
    def __init__(self, session: Session) -> None:
        self.session = session
        self.was_paired = is_paired(session.folder, session.journal)
        self.requested = False  # an operator asked for codes
        self.phone = ""
        self.code: Code | None = None
        self.codes = 0

    async def pair(self, phone: str = "") -> None:
        """Show codes to the phone, from the first; with its number, letters to type instead."""
        session = self.session
        async with session.opening:
            if session.condition.state is State.CONNECTED:
                return
            self.phone, self.code, self.codes = phone.lstrip("+"), None, 0
            self.requested, session.logins = True, 0
            session.condition = Condition(State.PAIRING, utc_now(), "Waiting for a code from WhatsApp …")
            await session.open_client()

    def code_handler(self, client: Any) -> Callable[[Any, bytes], Coroutine[Any, Any, None]]:
        async def show(_: Any, text: bytes) -> None:
            if client is self.session.client:
                self.session.begun.set()
                await self._new_code(client, text.decode())

        return show

    async def _new_code(self, client: Any, text: str) -> None:
        session = self.session
        if not self.requested:
            # A stored session that WhatsApp no longer knows gets a code instead of a login.
            session.set_condition(Condition(State.UNPAIRED, utc_now(), conditions.ENDED_BY_WHATSAPP))
            self.unpaired()
            await session.drop_client()
            return
        self.codes += 1
        session.retry_at = None  # a client with a code waits for the phone
        lasts = session.limits.first_code if self.codes == 1 else session.limits.next_code
        letters = self.code.letters if self.code else ""
        if self.phone and not letters:
            letters = await self._letters(client)
        self.code = Code(text, utc_now() + timedelta(seconds=lasts), letters)
        session.condition = Condition(State.PAIRING, utc_now())

    async def _letters(self, client: Any) -> str:
        try:
            return str(await client.PairPhone(self.phone, True))
        except self.session.library.error as error:
            self.phone = ""
            log.warning("WhatsApp gave no pairing code: %s", error, extra={"account": self.session.account_id})
            return ""

    def waits_for_phone(self) -> bool:
        return self.requested and not is_paired(self.session.folder, self.session.journal)

    def failed(self, words: str) -> None:
        """End a pairing that did not work. It is not tried again by itself: the operator may have left by then."""
        self.code, self.requested, self.session.retry_at = None, False, None
        self.session.condition = Condition(State.EXPIRED, utc_now(), f"{words.rstrip('.')}. Press “Pair again”.")

    def ended(self, event: Any) -> None:
        if event.Status == REFUSED_TO_PAIR:
            self.failed(f"WhatsApp refused to pair ({event.Error or 'without a reason'})")
        else:
            # neonize has stored the device: a bridge that dies before the first login connects it when it is back.
            self.note_paired(event.ID)
            self.session.journal.note(PAIRED_AT, utc_now().isoformat())
            self.session.condition = Condition(State.CONNECTING, utc_now(), "Paired; connecting …")
            self.session.expect_login()

    def note_paired(self, me: Any) -> None:
        self.was_paired = True
        self.session.journal.note(PAIRED_AS, f"{me.User}@{PEOPLE}")
        for path in self.session.folder.glob(f"{SESSION_FILE}*"):
            os.chmod(path, 0o600)

    def codes_are_over(self) -> bool:
        """Return whether the codes have run out. After the last one there is no event and no error."""
        since, limits = self.session.condition.since, self.session.limits
        last = self.code.expires_at if self.code else since + timedelta(seconds=limits.first_code)
        return utc_now() > last + timedelta(seconds=min(3.0, limits.next_code))

    async def expire(self) -> None:
        self.code, self.requested, self.session.retry_at = None, False, None
        self.session.condition = Condition(State.EXPIRED, utc_now(), conditions.EXPIRED)
        await self.session.drop_client()

    async def log_out(self) -> None:
        """Delete the stored session; the session's condition says whether WhatsApp confirmed it."""
        session = self.session
        async with session.opening:
            confirmed = session.condition.state is State.CONNECTED
            if confirmed:
                async with asyncio.timeout(session.limits.question):
                    await session.client.logout()
            await session.drop_client()
            self.unpaired()
            session.set_condition(Condition(State.UNPAIRED, utc_now(), conditions.unpaired_by_operator(confirmed)))

    def unpaired(self) -> None:
        session = self.session
        session.journal.note(PAIRED_AS, "")
        for fact in (GROUPS_STORED, ROSTER, PAIRED_AT):
            session.journal.note(fact, "")
        session.roster = Roster(session.limits)  # the next number has groups of its own
        self.requested, self.code = False, None
        session.me, session.retry_at = None, None
        for path in session.folder.glob(f"{SESSION_FILE}*"):
            path.unlink()
