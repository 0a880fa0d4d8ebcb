"""Transport of WhatsApp through a paired number: asks the bridge that has the account's session.

The bridge answers before the lane's limit, even where WhatsApp has not. It then keeps waiting, and a late answer
settles the target through the events (accounts.channels.provider_events).
"""

from __future__ import annotations

import asyncio
import json
from urllib.parse import quote

from accounts.channels.base import (
    LONGEST_TIMEOUT,
    AccountConfig,
    CheckFailed,
    Group,
    Handle,
    Kind,
    Media,
    NotSent,
    Outcome,
    Part,
    Transport,
    Unknown,
    UploadFailed,
)
from accounts.channels.http import FAILURES, Answer, Body, as_moment, as_text, words_of
from accounts.channels.paired import version_warning
from accounts.channels.whatsapp import wire
from accounts.channels.whatsapp.bridge.conditions import RETRY_WHEN_OFFLINE
from accounts.channels.whatsapp.channel import CHANNEL
from accounts.channels.whatsapp.wire import BridgeClient

#: The versions of neonize that the bridge is tested with.
TESTED = "0.5"
#: Both the lane and the bridge end an upload earlier than this.
UPLOAD_TIMEOUT = 600.0


class WhatsAppTransport(Transport):
    channel = CHANNEL

    def __init__(self, account: AccountConfig) -> None:
        super().__init__(account)
        self.typing: bool = CHANNEL.read_settings(account.config)["typing"]
        self.bridge = BridgeClient(account.id, LONGEST_TIMEOUT)
        self.uploads = BridgeClient(account.id, UPLOAD_TIMEOUT)

    async def check(self) -> str:
        try:
            answer = await self.bridge.get()
        except FAILURES as error:
            raise CheckFailed(Kind.NETWORK, words_of(error)) from error
        return checked(answer)

    async def prepare(self, media: Media) -> Handle:
        body = Body(await asyncio.to_thread(media.read))
        facts = {"X-Mime": quote(media.mime), "X-Kind": media.kind, "X-Sha256": media.sha256}
        try:
            answer = await self.uploads.post("media", body, **facts)
        except FAILURES as error:
            raise UploadFailed(NotSent(Kind.UNAVAILABLE, words_of(error), RETRY_WHEN_OFFLINE)) from error
        return handle_of(answer)

    async def send(self, address: str, part: Part, message_id: str) -> Outcome:
        body = Body(json.dumps(self._order(address, part, message_id).as_json()).encode())
        try:
            answer = await self.bridge.post("messages", body)
        except FAILURES as error:
            return lost(body, error)
        return outcome_of(answer)

    async def groups(self) -> list[Group]:
        try:
            answer = await self.bridge.get("groups")
        except FAILURES as error:
            raise CheckFailed(Kind.NETWORK, words_of(error)) from error
        if answer.status != 200:
            raise CheckFailed(wire.read_refusal(answer.body).kind, refusal(answer).detail)
        return [
            Group(one["jid"], one["name"], one["size"], one["announce_only"], one["may_write"])
            for one in answer.body["groups"]
        ]

    async def close(self) -> None:
        await self.bridge.close()
        await self.uploads.close()

    def _order(self, address: str, part: Part, message_id: str) -> wire.Order:
        return wire.Order(
            to=address,
            kind=(part.media.kind if part.media else "") or part.kind,
            message_id=message_id,
            text=part.text,
            handle=part.handle or "",
            filename=part.media.filename if part.media else "",
            mime=part.media.mime if part.media else "",
            typing=self.typing,
            epoch=self.epoch,
        )


# -- meaning of the bridge's answers ----------------------------------------------------------------------


def lost(body: Body, error: BaseException) -> Outcome:
    """Return the outcome without an answer: in doubt once the order had left, and before that the bridge's trouble,
    never the recipient's."""
    if body.left:
        return Unknown(words_of(error))
    return NotSent(Kind.UNAVAILABLE, words_of(error), RETRY_WHEN_OFFLINE)


def outcome_of(answer: Answer) -> Outcome:
    if answer.status == 200:
        return wire.read_outcome(answer.body)
    if 400 <= answer.status < 500:
        return refusal(answer)
    return Unknown(f"the bridge failed with HTTP {answer.status}")


def refusal(answer: Answer) -> NotSent:
    """Return the refusal of a bridge that did not take the request: another token, an unknown account, an unreadable
    order."""
    words = str(answer.body.get("detail") or f"the bridge answered HTTP {answer.status}")
    return NotSent(Kind.UNAVAILABLE, words, RETRY_WHEN_OFFLINE)


def handle_of(answer: Answer) -> Handle:
    handle = answer.body.get("handle")
    if answer.status == 200 and isinstance(handle, str):
        return Handle(handle, as_moment(answer.body.get("expires_at")))
    raise UploadFailed(wire.read_refusal(answer.body) if answer.status == 200 else refusal(answer))


def checked(answer: Answer) -> str:
    if answer.status != 200:
        raise CheckFailed(Kind.UNAVAILABLE, refusal(answer).detail)
    if not answer.body.get("connected"):
        raise CheckFailed(Kind.AUTH, str(answer.body.get("detail") or answer.body.get("state")))
    version = as_text(answer.body.get("library"))
    who = f"WhatsApp {answer.body.get('address')}" + (f" by neonize {version}" if version else "")
    return who + version_warning("neonize", version, TESTED)
