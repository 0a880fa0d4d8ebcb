"""Wassenger's API as far as it is known: the calls that its public bot makes (wassengerhq/whatsapp-chatgpt-bot:
actions.js) and the shape of errors that integrators agree on. tests/gateways/captures/wassenger.py has its answers and
reports one by one.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

from aiohttp import web

from accounts.channels.http import Answer
from accounts.channels.sandbox.book import Line
from tests.gateways.server import GROUPS, Dialect, Hooked, Malformed, hidden_id


def error(status: int, **more: Any) -> tuple[int, str]:
    return status, json.dumps({"status": status, "message": "%s", **more})


class Wassenger(Dialect):
    refusals = {
        "auth": error(401),
        "rate_limited": error(429),
        "unavailable": error(503),
        "recipient_gone": error(400, errors=[{"path": "phone", "message": "not on WhatsApp"}]),
        "error_after_accept": error(500),
        "content_rejected": error(400, errors=[{"path": "message", "message": "too long"}]),
    }
    device = "d1"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.files: dict[str, str] = {}

    async def reply(self, request: web.BaseRequest, path: str) -> Answer:
        key = request.headers.get("Token")
        if path == "/v1/messages":
            return await self.one_message(json.loads(await request.read()), key)
        if path == "/v1/files":
            return await self.file(request, key)
        if path.endswith("/groups"):
            items: Any = [{"wid": g["id"], "name": g["name"], "totalParticipants": g["size"]} for g in GROUPS]
            return Answer(200, items if request.query["page"] == "0" else [])
        answer = await self.provider.status(path.rpartition("/")[2], key)
        if answer.status != 200:
            return self.refused(answer)
        return Answer(
            200, {"status": "operative", "session": {"status": "online"}, "alias": "Choir", "phone": "+4917612345678"}
        )

    async def one_message(self, body: dict[str, Any], key: str | None) -> Answer:
        if not ("phone" in body) ^ ("group" in body) or body.get("enqueue") != "never":
            raise Malformed(400, {"status": 400, "message": "Bad Request"})
        to, media = body.get("phone") or body["group"], body.get("media", {}).get("file")
        kind = "file" if media else "text"
        return await self.deliver(body["device"], to, kind, body.get("message", ""), media, body["reference"], key)

    async def file(self, request: web.BaseRequest, key: str | None) -> Answer:
        """The same file again has the id that it had."""
        content = (await request.post())["file"] if "multipart" in request.content_type else await request.read()
        raw = content.file.read() if isinstance(content, web.FileField) else bytes(content)  # type: ignore[arg-type]
        digest = hashlib.sha256(raw).hexdigest()
        if digest in self.files:
            return Answer(409, {"status": 409, "message": "Conflict", "meta": {"file": self.files[digest]}})
        answer = await self.provider.upload(self.device, digest, len(raw), key)
        if answer.status != 200:
            return self.refused(answer)
        self.files[digest] = answer.body["handle"]
        items: Any = [{"id": answer.body["handle"]}]
        return Answer(201, items)

    async def replace_script(self, request: web.BaseRequest) -> web.Response:
        self.files.clear()
        return await super().replace_script(request)

    def accepted(self, provider_id: str, to: str) -> Answer:
        return Answer(201, {"id": f"w-{provider_id}", "waId": provider_id, "status": "queued"})

    def incoming(self, line: Line, text: str, hidden: str, key: str) -> Hooked:
        """`hidden`: "fromNumber" has the number beside a hidden id, "nested" is the other shape, by number."""
        digits, ident = line["to"].removeprefix("+"), f"3EB0{line['provider_id']}"
        chat = hidden_id(digits) if hidden in ("fromNumber", "nowhere") else f"{digits}@c.us"
        device, written = line["account"], {"id": ident, "type": "text", "body": text}
        if hidden == "nested":
            message = {**written, "chat": chat, "from": digits, "fromMe": False}
            told: Any = {"device": device, "data": {"message": message, "chat": {"id": chat}}}
        else:
            number = "" if hidden == "nowhere" else line["to"]
            message = {**written, "flow": "inbound", "from": chat, "fromNumber": number, "chat": {"id": chat}}
            told = {"device": {"id": device}, "data": {**message, "timestamp": int(self.provider.now())}}
        return self.signed({"id": f"evt-{ident}", "event": "message:in:new", **told}, key)

    def reaction(self, line: Line, emoji: str, key: str) -> Hooked:
        digits = line["to"].removeprefix("+")
        ident, chat = f"3EB1{line['provider_id']}", {"id": f"{digits}@c.us"}
        said = {"id": ident, "type": "reaction", "body": emoji, "flow": "inbound", "fromNumber": line["to"]}
        data = {**said, "from": chat["id"], "chat": chat, "timestamp": int(self.provider.now())}
        told = {"device": {"id": line["account"]}, "data": data}
        return self.signed({"id": f"evt-{ident}", "event": "message:in:new", **told}, key)

    def late_refusal(self, line: Line, key: str) -> Hooked:
        sent = {"id": f"w-{line['provider_id']}", "waId": line["provider_id"], "reference": line["message_id"]}
        data = {**sent, "status": "failed", "error": {"message": "Number is not on WhatsApp"}}
        told = {"device": {"id": line["account"]}, "data": data}
        return self.signed({"id": f"evt-failed-{line['provider_id']}", "event": "message:out:failed", **told}, key)

    def signed(self, event: dict[str, Any], key: str) -> Hooked:
        body = json.dumps(event).encode()
        return Hooked({"X-Wassenger-Signature": f"sha256={hmac.new(key.encode(), body, 'sha256').hexdigest()}"}, body)


DIALECT = Wassenger
