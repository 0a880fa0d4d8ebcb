"""WhatsApp's Cloud API as Meta documents it.

Bodies of answers: Meta's OpenAPI description of the Cloud API (facebook/openapi, v23.0). The rest below
developers.facebook.com/documentation/business-messaging/whatsapp: support/error-codes, templates/components,
solution-providers/manage-accounts (what a token is for) and webhooks/reference (messages, user_preferences).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Iterator
from typing import Any

from aiohttp import web

from accounts.channels.http import Answer
from accounts.channels.sandbox.book import Line
from tests.gateways.captures.cloud import TEMPLATES
from tests.gateways.server import Dialect, Hooked, Malformed, whatsapp_id

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
        "content_rejected": error(400, 131051),
        "error_after_accept": error(500, 131000),
    }

    async def reply(self, request: web.BaseRequest, path: str) -> Answer:
        key = request.headers.get("Authorization", "").removeprefix("Bearer ")
        _, version, number, *rest = path.split("/")
        if version != "v23.0":
            raise Malformed(400, {"error": {"message": "Unknown path components", "code": 2500}})
        if number == "debug_token":
            scope = {"scope": "whatsapp_business_management", "target_ids": ["20300", "20400"]}
            return Answer(200, {"data": {"is_valid": True, "granular_scopes": [scope]}})
        if rest == ["phone_numbers"]:
            return Answer(200, {"data": [{"id": "10200"}] if number == "20400" else []})
        if rest == ["media"]:
            return await self.media_id(number, key, request)
        if rest == ["message_templates"]:
            return Answer(200, {"data": [capture.item for capture in TEMPLATES], "paging": {"cursors": {"after": "x"}}})
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
        if any(NOT_IN_A_VALUE.search(value) for value in values_in(content)):
            raise Malformed(400, {"error": {"message": NO_BREAKS, "code": 132018}})
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
        contacts = [{"input": to, "wa_id": whatsapp_id(to)}]
        return Answer(200, {"contacts": contacts, "messages": [{"id": provider_id, "message_status": "accepted"}]})

    def incoming(self, line: Line, text: str, hidden: str, key: str) -> Hooked:
        """Besides replies: "reaction", "failed 131049" (any code), and the preferences "stop" and "resume"."""
        number, at = whatsapp_id(line["to"]), str(int(self.provider.now()))
        said: dict[str, Any] = {"from": number, "id": f"wamid.{hidden}.{line['provider_id']}", "timestamp": at}
        said["context"] = {"id": line["provider_id"]}
        field, value = "messages", {}
        if hidden.startswith("failed "):
            errors = [{"code": int(hidden.removeprefix("failed ")), "title": text}]
            value["statuses"] = [{"id": line["provider_id"], "status": "failed", "timestamp": at, "errors": errors}]
            value["statuses"][0] |= {"recipient_id": number, "biz_opaque_callback_data": line["message_id"]}
        elif hidden in ("stop", "resume"):
            field, wish = "user_preferences", {"wa_id": number, "category": "marketing_messages", "value": hidden}
            value[field] = [wish | {"detail": text, "timestamp": int(at)}]
        elif hidden == "nowhere":
            value["messages"] = [said | {"from": "", "from_user_id": f"DE.{number}"} | CONTENT[""](text)]
        else:
            value["messages"] = [said | CONTENT[hidden](text)]
        metadata = {"display_phone_number": "4930123456", "phone_number_id": line["account"]}
        change = {"field": field, "value": {"messaging_product": "whatsapp", "metadata": metadata, **value}}
        entry = {"id": "20400", "time": int(at), "changes": [change]}
        body = json.dumps({"object": "whatsapp_business_account", "entry": [entry]}).encode()
        signature = hmac.new(key.encode(), body, hashlib.sha256).hexdigest()
        return Hooked({"X-Hub-Signature-256": f"sha256={signature}"}, body)

    def reaction(self, line: Line, emoji: str, key: str) -> Hooked:
        return self.incoming(line, emoji, "reaction", key)

    def late_refusal(self, line: Line, key: str) -> Hooked:
        return self.incoming(line, "Message undeliverable", "failed 131026", key)


#: What a person may send, with their words in it.
CONTENT: dict[str, Any] = {
    "": lambda text: {"type": "text", "text": {"body": text}},
    "button": lambda text: {"type": "button", "button": {"text": text, "payload": "p"}},
    "list": lambda text: {
        "type": "interactive",
        "interactive": {"type": "list_reply", "list_reply": {"id": "r1", "title": text, "description": "x"}},
    },
    "reaction": lambda text: {"type": "reaction", "reaction": {"message_id": "wamid.ours", "emoji": text}},
}
NOT_IN_A_VALUE = re.compile(r"[\n\t]| {5}")
NO_BREAKS = "(#132018) Param text cannot have new-line/tab characters or more than 4 consecutive spaces"


def values_in(content: dict[str, Any]) -> Iterator[str]:
    """Yield the texts of a template's parameters."""
    for component in content.get("components", ()):
        yield from (parameter["text"] for parameter in component["parameters"] if parameter["type"] == "text")


def template_text(content: dict[str, Any]) -> str:
    return " ".join(values_in(content))


DIALECT = Cloud
