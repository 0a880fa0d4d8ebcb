"""WhatsApp's Cloud API. A file is uploaded once and its id holds for 30 days; there is no idempotency key, but what we
call a message comes back with its receipts."""

from __future__ import annotations

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
from accounts.channels.cloud import answers
from accounts.channels.cloud.channel import CHANNEL
from accounts.channels.gateway import Call, Gateway, call, content_of
from accounts.channels.http import Answer, as_text, dig
from accounts.channels.multipart import File, multipart

#: A day less than Meta keeps it: a run that begins today may go on tomorrow.
HANDLE_LIFE = timedelta(days=29)
UPLOAD_SECONDS = 120.0
SENDING_STATES = (None, "CONNECTED", "FLAGGED")
PAGE = 500
MOST_PAGES = 20
NO_CAPTION = "Meta's audio has no caption: send the text as a part of its own"


class CloudTransport(Gateway):
    channel = CHANNEL

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.secrets['access_token']}"}

    @property
    def number(self) -> str:
        """The path of the number, below which everything lies."""
        return f"/{quote(self.values['version'], safe='')}/{quote(self.values['phone_number_id'], safe='')}"

    async def check(self) -> str:
        fields = "verified_name,display_phone_number,status,quality_rating"
        body = (await self.ask(self.number, {"fields": fields})).body
        if body.get("status") not in SENDING_STATES:
            raise CheckFailed(Kind.UNAVAILABLE, f"Meta says that this number is {body.get('status')}.")
        return f"WhatsApp as {body.get('verified_name')} {as_text(body.get('display_phone_number'))}".strip()

    async def prepare(self, media: Media) -> Handle:
        try:
            file = File("file", media.filename, media.mime, await content_of(media))
        except Refused as refused:
            raise UploadFailed(refused.reason) from refused
        content, mime = multipart([("messaging_product", "whatsapp"), ("type", media.mime)], [file])
        answer = await self.upload(f"{self.number}/media", content, mime, UPLOAD_SECONDS)
        handle = as_text(answer.body.get("id"))
        if answer.status != 200 or not handle:
            raise UploadFailed(answers.refusal(answer))
        return Handle(handle, datetime.now(UTC) + HANDLE_LIFE)

    async def message(self, address: str, part: Part, message_id: str) -> Call:
        to = {"recipient_type": "individual" if address.startswith("+") else "group", "to": address}
        common = {"messaging_product": "whatsapp", "biz_opaque_callback_data": message_id}
        return call(f"{self.number}/messages", common | to | self._content(part))

    def _content(self, part: Part) -> dict[str, Any]:
        if part.kind == "audio" and part.text:
            raise Refused(NotSent(Kind.CONTENT_REJECTED, NO_CAPTION))
        if part.media is not None:
            return {"type": part.kind, part.kind: file_of(part, part.media)}
        if not self.values["template"]:
            return {"type": "text", "text": {"body": part.text}}
        language = {"code": self.values["template_language"]}
        body = {"type": "body", "parameters": [{"type": "text", "text": part.text}]}
        template = {"name": self.values["template"], "language": language, "components": [body]}
        return {"type": "template", "template": template}

    def outcome_of(self, answer: Answer, part: Part) -> Outcome:
        return answers.outcome_of(answer)

    def refusal(self, answer: Answer) -> NotSent:
        return answers.refusal(answer)

    async def groups(self) -> list[Group]:
        """Only groups that were made with the API are listed."""
        listed: list[Group] = []
        params = {"limit": str(PAGE)}
        for _ in range(MOST_PAGES):
            body = (await self.ask(f"{self.number}/groups", params)).body
            page = dig(body, "data", "groups")
            listed += [group_of(item) for item in page] if isinstance(page, list) else []
            after = as_text(dig(body, "paging", "cursors", "after"))
            if not page or not after:
                break
            params["after"] = after
        return listed


def file_of(part: Part, media: Media) -> dict[str, Any]:
    """An uploaded file with what its kind takes besides."""
    file: dict[str, Any] = {"id": part.handle}
    if part.text:
        file["caption"] = part.text
    return file | ({"filename": media.filename} if part.kind == "document" else {})


def group_of(item: Any) -> Group:
    return Group(as_text(dig(item, "id")), as_text(dig(item, "subject")))
