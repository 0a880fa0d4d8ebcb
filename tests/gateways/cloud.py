"""WhatsApp's Cloud API as Meta documents it.

Errors: developers.facebook.com/documentation/business-messaging/whatsapp/support/error-codes. Bodies of answers: Meta's
OpenAPI description of the Cloud API (facebook/openapi, v23.0).
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from aiohttp import web

from accounts.channels.http import Answer
from tests.gateways.server import Dialect, Malformed

GROUP_ID = "Y2FwaV9ncm91cDoxNzA1NTU1MDEzOToxMjAzNjM0MDQ2OTQyMzM4MjAZD"


def error(status: int, code: int) -> tuple[int, str]:
    text = f"(#{code}) %s"
    return status, json.dumps({"error": {"message": text, "type": "OAuthException", "code": code, "fbtrace_id": "A"}})


class Cloud(Dialect):
    refusals = {
        "auth": error(401, 190),
        "banned": error(403, 131031),
        "rate_limited": error(429, 130429),
        "recipient_limited": error(400, 131049),
        "not_writable": error(403, 130497),
        "unavailable": error(503, 2),
        "recipient_gone": error(400, 131026),
        "content_rejected": error(400, 131047),
        "error_after_accept": error(500, 131000),
    }

    async def reply(self, request: web.BaseRequest, path: str) -> Answer:
        key = request.headers.get("Authorization", "").removeprefix("Bearer ")
        _, version, number, *rest = path.split("/")
        if version != "v23.0":
            raise Malformed(400, {"error": {"message": "Unknown path components", "code": 2500}})
        if rest == ["media"]:
            return await self.media_id(number, key, request)
        if rest == ["groups"]:
            return self.page(request.query.get("after"))
        if rest == ["messages"]:
            return await self.one_message(number, key, json.loads(await request.read()))
        return await self.phone(number, key)

    async def one_message(self, number: str, key: str, body: dict[str, Any]) -> Answer:
        kind = body["type"]
        content = body[kind]
        text = content.get("body") or content.get("caption") or template_text(content)
        is_group = body["recipient_type"] == "group"
        if body["messaging_product"] != "whatsapp" or is_group == body["to"].startswith("+"):
            raise Malformed(400, {"error": {"message": "Invalid parameter", "code": 100}})
        message_id = body["biz_opaque_callback_data"]
        return await self.deliver(number, body["to"], kind, text, content.get("id"), message_id, key)

    async def media_id(self, number: str, key: str, request: web.BaseRequest) -> Answer:
        form = await request.post()
        file = form["file"]
        assert isinstance(file, web.FileField)
        assert (form["messaging_product"], form["type"]) == ("whatsapp", file.content_type)
        content = file.file.read()
        answer = await self.provider.upload(number, hashlib.sha256(content).hexdigest(), len(content), key)
        return Answer(200, {"id": answer.body["handle"]}) if answer.status == 200 else self.refused(answer)

    async def phone(self, number: str, key: str) -> Answer:
        answer = await self.provider.status(number, key)
        if answer.status != 200:
            return self.refused(answer)
        return Answer(
            200, {"verified_name": "Choir", "display_phone_number": "+49 176 12345678", "status": "CONNECTED"}
        )

    def page(self, after: str | None) -> Answer:
        first = [{"id": GROUP_ID, "subject": "Choir", "created_at": "1"}]
        groups = first if after is None else [{"id": GROUP_ID[:-3] + "2ZD", "subject": "Board", "created_at": "2"}]
        paging = {"cursors": {"after": "next"}} if after is None else {}
        return Answer(200, {"data": {"groups": groups}, "paging": paging})

    def accepted(self, provider_id: str, to: str) -> Answer:
        contacts = [{"input": to, "wa_id": to.removeprefix("+")}]
        return Answer(200, {"contacts": contacts, "messages": [{"id": provider_id, "message_status": "accepted"}]})


def template_text(content: dict[str, Any]) -> str:
    components = content.get("components")
    return components[0]["parameters"][0]["text"] if components else ""


DIALECT = Cloud
