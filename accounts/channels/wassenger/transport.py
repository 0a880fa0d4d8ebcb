"""Transport of Wassenger, and the meaning of its answers.

A file is uploaded once and gets an id; Wassenger answers 409 with the id for a file that it already has. Its reference
says little about errors: an answer that is not clearly a refusal counts as unknown.
"""

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
    Sent,
    Unknown,
    UploadFailed,
)
from accounts.channels.gateway import JSON, Call, Gateway, call, content_of
from accounts.channels.http import Answer, File, as_number, as_text, dig, multipart
from accounts.channels.paired import is_group
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
        return f"Wassenger API v1 as {as_text(body.get('alias'))} {as_text(body.get('phone'))}".replace(
            "  ", " "
        ).strip()

    async def prepare(self, media: Media) -> Handle:
        answer = await self._upload(media)
        items = answer.body.get("items")
        handle = as_text(dig(items[0], "id")) if isinstance(items, list) and items else as_text(answer.body.get("id"))
        if answer.status == 409:
            handle = as_text(dig(answer.body, "meta", "file"))
        if answer.status not in (200, 201, 409) or not handle:
            raise UploadFailed(refusal(answer))
        return Handle(handle, datetime.now(UTC) + HANDLE_LIFE)

    async def _upload(self, media: Media) -> Answer:
        """Upload by a link of ours where there is one, else the file itself."""
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
            # Crier is the queue: a message that Wassenger held back could go out after the window.
            "enqueue": "never",
        }
        if part.text:
            body["message"] = part.text
        if part.handle is not None:
            body["media"] = {"file": part.handle}
        return call("/v1/messages", body)

    def outcome_of(self, answer: Answer, part: Part) -> Outcome:
        return outcome_of(answer)

    def refusal(self, answer: Answer) -> NotSent:
        return refusal(answer)

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


# -- meaning of the answers -------------------------------------------------------------------------------


KIND_OF_STATUS = {
    400: Kind.CONTENT_REJECTED,
    401: Kind.AUTH,
    402: Kind.AUTH,  # the subscription has ended
    403: Kind.AUTH,
    404: Kind.RECIPIENT_GONE,
    413: Kind.CONTENT_REJECTED,
    415: Kind.CONTENT_REJECTED,
    422: Kind.CONTENT_REJECTED,
    429: Kind.RATE_LIMITED,
    503: Kind.UNAVAILABLE,  # the device is not connected
}
#: seconds to wait, where the answer gives none
WAITS = {429: 60.0, 503: 20.0}
#: a time-out, and a message that exists already
UNCERTAIN = {408, 409}
RECIPIENT_FIELDS = {"phone", "group", "channel", "user"}


def outcome_of(answer: Answer) -> Outcome:
    if answer.status in (200, 201):
        # Receipts name WhatsApp's id; Wassenger's own id is always in the answer.
        message = as_text(answer.body.get("waId")) or as_text(answer.body.get("id"))
        return Sent(message) if message else Unknown("accepted without an id")
    if answer.status == 503 or (400 <= answer.status < 500 and answer.status not in UNCERTAIN):
        return refusal(answer)
    return Unknown(words(answer))


def refusal(answer: Answer) -> NotSent:
    """Return the meaning of an answer which certainly says that nothing was sent."""
    wait = as_number(answer.retry_after)
    kind = KIND_OF_STATUS.get(answer.status, Kind.UNKNOWN if answer.status < 500 else Kind.UNAVAILABLE)
    if answer.status in (400, 422) and wrong_fields(answer) & RECIPIENT_FIELDS:
        kind = Kind.RECIPIENT_GONE
    if answer.status == 404 and "device" in words(answer).lower():
        kind = Kind.AUTH
    return NotSent(kind, words(answer), WAITS.get(answer.status) if wait is None else wait)


def wrong_fields(answer: Answer) -> set[str]:
    errors = answer.body.get("errors")
    return {as_text(dig(error, "path")) for error in errors} if isinstance(errors, list) else set()


def words(answer: Answer) -> str:
    errors = answer.body.get("errors")
    details = [as_text(dig(error, "message")) for error in errors] if isinstance(errors, list) else []
    said = ": ".join(filter(None, [as_text(answer.body.get("message")), *details]))
    return f"HTTP {answer.status} {said}".strip()
