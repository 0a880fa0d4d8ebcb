"""The sandbox provider's treatment of a call, over HTTP or from the virtual clock: a development tool."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import NamedTuple

from accounts.channels.http import Answer
from accounts.channels.sandbox.book import Line, Writer, is_delivery
from accounts.channels.sandbox.script import EFFECTS, RETRY_AFTER, Attempt, Behaviour, Fault, Progress, Script

#: In place of an HTTP status: no answer leaves. The connection is closed, or stays open in silence.
CLOSED = 0
SILENT = -1
TEXT_KEPT = 80


class SandboxMessage(NamedTuple):
    account: str
    to: str
    part: int
    kind: str
    text: str
    media: str | None
    message_id: str


class Hook(NamedTuple):
    """The address for an account's reports, and the key that signs them."""

    url: str
    key: str


class Provider:
    """One provider with many accounts. Everything between two awaits is atomic: there is one event loop."""

    def __init__(
        self,
        book: Writer,
        script: Script | None = None,
        clock_now: Callable[[], float] = time.time,
        rng: random.Random | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.book = book
        self.now = clock_now
        self.sleep = sleep
        self.down = False  # as if no server listened: only for the in-memory transport
        # Called for every accepted message; the server then reports on it to the account's webhook.
        self.on_accepted: Callable[[Line, Behaviour], None] = lambda line, behaviour: None
        self.hooks = {account: Hook(**hook) for account, hook in book.hooks().items()}
        self.rng = rng or random.Random()
        self.stats: dict[str, int] = {"accepted": 0, "repeats": 0, "uploads": 0}
        self.refusals: dict[str, int] = {}
        self.latest: deque[Line] = deque(maxlen=50)
        self._accepted: dict[str, int] = {}
        self._recent: dict[str, deque[float]] = {}
        self._provider_ids: dict[tuple[str, str], str] = {}
        self._handles: dict[tuple[str, str], float | None] = {}
        self._pasts: set[str] = set()
        self.set_script(script or Script())
        for line in book.lines():
            self._remember(line)

    def set_script(self, script: Script) -> None:
        self.script = script
        self.progress = Progress(self.now())

    # -- the three calls ----------------------------------------------------------------------------------

    async def accept(
        self,
        account: str,
        to: str,
        part_index: int,
        kind: str,
        text: str,
        media_handle: str | None,
        message_id: str,
        key: str | None = None,
    ) -> Answer:
        behaviour = self.script.behaviour(account)
        await self._latency(behaviour.latency_ms)
        if not key_fits(behaviour, key):
            return self._refuse("auth", account, to, message_id)
        message = SandboxMessage(account, to, part_index, kind, text, media_handle, message_id)
        fault = await self._fault(behaviour, account, "messages", to, part_index)
        if fault is None:
            return self._deliver(message, behaviour)
        return self._fail(fault, message, behaviour)

    async def upload(self, account: str, sha256: str, size: int, key: str | None = None) -> Answer:
        behaviour = self.script.behaviour(account)
        await self._latency(behaviour.upload_latency_ms)
        if not key_fits(behaviour, key):
            return self._refuse("auth", account)
        fault = await self._fault(behaviour, account, "media")
        if fault is None:
            return self._store(account, sha256, size, behaviour)
        if fault.effect == "drop_after_accept":
            self._store(account, sha256, size, behaviour)
            return Answer(CLOSED, {})
        return self._answer(fault, account)

    async def status(self, account: str, key: str | None = None) -> Answer:
        behaviour = self.script.behaviour(account)
        if not key_fits(behaviour, key):
            return self._refuse("auth", account)
        fault = await self._fault(behaviour, account, "check")
        if fault is None:
            return Answer(200, {"account": account, "accepted": self._accepted.get(account, 0)})
        return self._answer(fault, account)

    # -- messages -----------------------------------------------------------------------------------------

    def _deliver(self, message: SandboxMessage, behaviour: Behaviour) -> Answer:
        provider_id = self._provider_ids.get((message.account, message.message_id))
        if provider_id is not None and behaviour.recognises_repeats:
            return self._repeat(message, provider_id)
        wait = self._over_limit(message.account, behaviour)
        if wait is not None:
            return self._refuse("rate_limited", message.account, message.to, message.message_id, retry_after=wait)
        if message.media is not None and not self._handle_valid(message.account, message.media):
            return self._refuse(
                "content_rejected",
                message.account,
                message.to,
                message.message_id,
                words="The media handle is unknown or has expired",
            )
        return self._accept(message, behaviour)

    def _accept(self, message: SandboxMessage, behaviour: Behaviour) -> Answer:
        provider_id = f"sbx-{self.stats['accepted'] + 1}"
        line = self._line(message, provider_id)
        self.book.append(line)
        self._remember(line)
        if behaviour.limit is not None:
            self._recent.setdefault(message.account, deque()).append(line["t"])
        self.on_accepted(line, behaviour)
        return Answer(200, {"id": provider_id})

    def _repeat(self, message: SandboxMessage, provider_id: str) -> Answer:
        line = {**self._line(message, provider_id), "repeat": True}
        self.book.append(line)
        self._remember(line)
        return Answer(200, {"id": provider_id, "repeat": True})

    def _line(self, message: SandboxMessage, provider_id: str) -> Line:
        return {
            "t": round(self.now(), 6),
            "account": message.account,
            "to": message.to,
            "part": message.part,
            "message_id": message.message_id,
            "provider_id": provider_id,
            "kind": message.kind,
            "text": message.text[:TEXT_KEPT],
            "media": message.media,
        }

    def _over_limit(self, account: str, behaviour: Behaviour) -> float | None:
        """Return the seconds to wait when the account has used up the provider's own limit, else None."""
        limit = behaviour.limit
        if limit is None:
            return None
        recent, now = self._recent.setdefault(account, deque()), self.now()
        while recent and recent[0] <= now - limit.seconds:
            recent.popleft()
        return recent[0] + limit.seconds - now if len(recent) >= limit.count else None

    # -- media --------------------------------------------------------------------------------------------

    def _store(self, account: str, sha256: str, size: int, behaviour: Behaviour) -> Answer:
        now = round(self.now(), 6)
        handle = f"media-{self.stats['uploads'] + 1}"
        expires = None if behaviour.media_ttl is None else now + behaviour.media_ttl
        line: Line = {
            "t": now,
            "account": account,
            "upload": sha256,
            "size": size,
            "handle": handle,
            "expires": expires,
        }
        self.book.append(line)
        self._remember(line)
        return Answer(200, {"handle": handle, "expires_at": None if expires is None else iso(expires)})

    def _handle_valid(self, account: str, handle: str) -> bool:
        expires = self._handles.get((account, handle), 0.0)
        return expires is None or self.now() < expires

    # -- faults -------------------------------------------------------------------------------------------

    async def _latency(self, bounds: tuple[float, float]) -> None:
        low, high = bounds
        if high > 0:
            await self.sleep(self.rng.uniform(low, high) / 1000)

    async def _fault(self, behaviour: Behaviour, account: str, on: str, to: str = "", part: int = 0) -> Fault | None:
        """Return the fault that decides this call, after waiting for the slow ones."""
        if not behaviour.faults:
            return None
        attempt = Attempt(account, self.now(), on, to, part, self._accepted.get(account, 0))
        decisive = None
        for fault in self.progress.faults_for(behaviour, attempt):
            if fault.effect == "slow":
                await self.sleep(fault.ms / 1000)
            else:
                decisive = fault
        return decisive

    def _fail(self, fault: Fault, message: SandboxMessage, behaviour: Behaviour) -> Answer:
        if fault.effect == "drop_after_accept" or (fault.effect == "hang" and fault.accept):
            self._deliver(message, behaviour)
            return Answer(CLOSED if fault.effect == "drop_after_accept" else SILENT, {})
        if fault.effect == "error_after_accept":
            self._deliver(message, behaviour)
            return error_of(fault.effect, fault.message)
        return self._answer(fault, message.account, message.to, message.message_id)

    def _answer(self, fault: Fault, account: str, to: str = "", message_id: str = "") -> Answer:
        if EFFECTS[fault.effect] is None:
            self._note_refusal(fault.effect, account, to, message_id)
            return Answer(SILENT if fault.effect == "hang" else CLOSED, {})
        return self._refuse(
            fault.effect,
            account,
            to,
            message_id,
            words=fault.message,
            retry_after=fault.retry_after,
            until=self.progress.ban_end(fault, account),
        )

    def _refuse(
        self,
        kind: str,
        account: str,
        to: str = "",
        message_id: str = "",
        words: str = "",
        retry_after: float | None = None,
        until: float | None = None,
    ) -> Answer:
        self._note_refusal(kind, account, to, message_id)
        answer = error_of(kind, words)
        wait = RETRY_AFTER.get(kind) if retry_after is None else retry_after
        if wait is not None:
            answer.body["retry_after"] = wait
        if until is not None:
            answer.body["until"] = iso(until)
        return answer

    def _note_refusal(self, kind: str, account: str, to: str, message_id: str) -> None:
        line = {
            "t": round(self.now(), 6),
            "refused": kind,
            "account": account,
            "to": to,
            "message_id": message_id,
        }
        self.book.append(line)
        self._remember(line)

    # -- addresses for reports --------------------------------------------------------------------------------

    def set_hook(self, account: str, hook: Hook) -> None:
        """Set and store a hook, so that the provider knows it after a restart."""
        if self.hooks.get(account) != hook:
            self.hooks[account] = hook
            self.book.keep_hooks({name: one._asdict() for name, one in self.hooks.items()})

    # -- a past -----------------------------------------------------------------------------------------------

    def add_past(self, name: str, lines: list[Line]) -> bool:
        """Add lines from before the provider was started, for a demo that begins in the middle of things. A second time
        under the same name does nothing."""
        if name in self._pasts:
            return False
        for line in lines:
            marked = {**line, "past": name}
            self.book.append(marked)
            self._remember(marked)
        return True

    # -- state that the book restores ----------------------------------------------------------------

    def _remember(self, line: Line) -> None:
        """Take one line of the book into account, just written or found there after a restart."""
        if "past" in line:
            self._pasts.add(line["past"])
        if is_delivery(line):
            account = line["account"]
            self.stats["accepted"] += 1
            self._accepted[account] = self._accepted.get(account, 0) + 1
            self._provider_ids.setdefault((account, line["message_id"]), line["provider_id"])
            self.latest.append(line)
        elif "upload" in line:
            self.stats["uploads"] += 1
            self._handles[line["account"], line["handle"]] = line.get("expires")
        elif line.get("repeat"):
            self.stats["repeats"] += 1
        elif "refused" in line:
            self.refusals[line["refused"]] = self.refusals.get(line["refused"], 0) + 1


def error_of(effect: str, words: str) -> Answer:
    """Return the provider's answer for an effect, in the script's words where it has some."""
    answer = EFFECTS[effect]
    assert answer is not None, effect
    return Answer(answer[0], {"code": effect, "message": words or answer[1]})


def key_fits(behaviour: Behaviour, key: str | None) -> bool:
    return behaviour.key is None or behaviour.key == key


def iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat()
