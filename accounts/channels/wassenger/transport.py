"""Wassenger. A file is uploaded once and has an id; one that it already has is answered 409, with its id."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from accounts.channels.base import (
    CheckFailed,
    Group,
    Handle,
    Kind,
    Media,
    NotSent,
    Outcome,
    Part,
    Refused,
    UploadFailed,
)
from accounts.channels.gateway import JSON, Call, Gateway, call, content_of
from accounts.channels.http import Answer, as_text, dig
from accounts.channels.jids import is_group
from accounts.channels.multipart import File, multipart
from accounts.channels.wassenger import answers
from accounts.channels.wassenger.channel import CHANNEL

#: How long Wassenger keeps a file is not documented. Asking for its id again costs one call a day.
HANDLE_LIFE = timedelta(days=1)
UPLOAD_SECONDS = 120.0
PAGE = 500


class WassengerTransport(Gateway):
    channel = CHANNEL

    @property
    def headers(self) -> dict[str, str]:
        return {"Token": self.secrets["token"]}

    @property
    def device(self) -> str:
        return f"/v1/devices/{quote(self.values['device'], safe='')}"

    async def check(self) -> str:
        body = (await self.ask(self.device)).body
        session = as_text(dig(body, "session", "status"))
        if body.get("status") != "operative" or session not in ("", "online"):
            states = " and ".join(filter(None, [as_text(body.get("status")), session]))
            raise CheckFailed(Kind.UNAVAILABLE, f"The device is {states}, not operative and online.")
        return f"Wassenger as {as_text(body.get('alias'))} {as_text(body.get('phone'))}".replace("  ", " ").strip()

    async def prepare(self, media: Media) -> Handle:
        answer = await self._upload(media)
        items = answer.body.get("items")
        handle = as_text(dig(items[0], "id")) if isinstance(items, list) and items else as_text(answer.body.get("id"))
        if answer.status == 409:
            handle = as_text(dig(answer.body, "meta", "file"))
        if answer.status not in (200, 201, 409) or not handle:
            raise UploadFailed(answers.refusal(answer))
        return Handle(handle, datetime.now(UTC) + HANDLE_LIFE)

    async def _upload(self, media: Media) -> Answer:
        """By a link of ours where there is one, else the file itself."""
        if link := self.link(media):
            return await self.upload("/v1/files", json.dumps({"url": link}).encode(), JSON, UPLOAD_SECONDS)
        try:
            file = File("file", media.filename, media.mime, await content_of(media))
        except Refused as refused:
            raise UploadFailed(refused.reason) from refused
        content, mime = multipart([], [file])
        return await self.upload("/v1/files", content, mime, UPLOAD_SECONDS)

    async def message(self, address: str, part: Part, message_id: str) -> Call:
        body: dict[str, Any] = {
            "group" if is_group(address) else "phone": address,
            "device": self.values["device"],
            "reference": message_id,
            # Crier is the queue: what Wassenger holds back could go out after the window.
            "enqueue": "never",
        }
        if part.text:
            body["message"] = part.text
        if part.handle is not None:
            body["media"] = {"file": part.handle}
        return call("/v1/messages", body)

    def outcome_of(self, answer: Answer, part: Part) -> Outcome:
        return answers.outcome_of(answer)

    def refusal(self, answer: Answer) -> NotSent:
        return answers.refusal(answer)

    async def groups(self) -> list[Group]:
        listed: dict[str, Group] = {}
        for page in range(100):
            answer = await self.ask(f"{self.device}/groups", {"size": str(PAGE), "page": str(page)})
            items = answer.body.get("items")
            groups = [group_of(item) for item in items] if isinstance(items, list) else []
            new = {group.address: group for group in groups if group.address not in listed}
            listed |= new
            if len(groups) < PAGE or not new:
                break
        return list(listed.values())


def group_of(item: Any) -> Group:
    participants = dig(item, "participants")
    size = len(participants) if isinstance(participants, list) else dig(item, "totalParticipants")
    address = as_text(dig(item, "wid")) or as_text(dig(item, "id"))
    return Group(address, as_text(dig(item, "name")), size if isinstance(size, int) else None)
