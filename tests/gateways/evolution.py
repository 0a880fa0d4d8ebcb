"""Evolution API v2 as its code describes it.

Answers and reports: whatsapp.baileys.service.ts of evolution-api. Where each shape comes from is in
tests/gateways/captures/evolution.py, which tests them one by one.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web

from accounts.channels.http import Answer
from accounts.channels.sandbox.book import Line
from tests.gateways.server import GROUPS, Dialect, Hooked, Malformed, hidden_id


def bad_request(message: str) -> tuple[int, str]:
    return 400, '{"status":400,"error":"Bad Request","response":{"message":[' + message + "]}}"


class Evolution(Dialect):
    refusals = {
        "auth": (401, '{"status":401,"error":"Unauthorized","response":{"message":"%s"}}'),
        "recipient_gone": bad_request('{"jid":"49@s.whatsapp.net","exists":false,"number":"49"}'),
        "content_rejected": bad_request('"Owned media must be a url or base64"'),
        "unavailable": (
            500,
            '{"status":500,"error":"Internal Server Error","response":{"message":"Connection Closed"}}',
        ),
        # It sends first and writes to its database then, inside one try: the text is whatever exception came out.
        "error_after_accept": bad_request('"%s"'),
        # Evolution itself has no limit; what stands in front of it may.
        "rate_limited": (429, '{"message":"%s"}'),
    }

    async def front_page(self, request: web.BaseRequest) -> web.Response:
        """Evolution welcomes programs here with its version; people see what the gateway got."""
        if "apikey" not in request.headers:
            return await super().front_page(request)
        return web.json_response({"status": 200, "message": "Welcome to the Evolution API", "version": "2.3.7"})

    async def reply(self, request: web.BaseRequest, path: str) -> Answer:
        key, (_, room, verb, *rest) = request.headers.get("apikey"), path.split("/")
        if room == "instance":
            return await self.instance(verb, rest, key)
        if room == "group":
            return self.groups(request)
        body = json.loads(await request.read())
        kind, text = self.read(verb, body)
        number = body["number"]
        to = number if number.endswith("@g.us") else f"+{number}"
        return await self.deliver(rest[0], to, kind, text, None, request.headers["X-Request-Id"], key)

    def read(self, verb: str, body: dict[str, Any]) -> tuple[str, str]:
        if (link := body.get("media", "")).startswith("http") and "." not in str(urlsplit(link).hostname):
            message = ["Owned media must be a url or base64"]
            raise Malformed(400, {"status": 400, "error": "Bad Request", "response": {"message": message}})
        if verb == "sendText" and "text" in body:
            return "text", body["text"]
        if verb == "sendMedia" and body.get("media") and body.get("fileName"):
            return body["mediatype"], body["caption"]
        if verb == "sendWhatsAppAudio" and body.get("audio"):
            return "audio", ""
        raise Malformed(400, {"status": 400, "error": "Bad Request", "response": {"message": [["requires property"]]}})

    async def instance(self, verb: str, rest: list[str], key: str | None) -> Answer:
        if verb == "fetchInstances":
            items: Any = [{"name": "acme", "ownerJid": "4917612345678@s.whatsapp.net"}]
            return Answer(200, items)
        answer = await self.provider.status(rest[0], key)
        if answer.status != 200:
            return self.refused(answer)
        return Answer(200, {"instance": {"instanceName": rest[0], "state": "open"}})

    def groups(self, request: web.BaseRequest) -> Answer:
        if request.query.get("getParticipants") not in ("true", "false"):
            return Answer(400, {"status": 400, "error": "Bad Request", "response": {"message": ["getParticipants"]}})
        items: Any = [{"id": g["id"], "subject": g["name"], "size": g["size"], "owner": None} for g in GROUPS]
        return Answer(200, items)

    def accepted(self, provider_id: str, to: str) -> Answer:
        return Answer(201, {"key": {"remoteJid": to, "fromMe": True, "id": provider_id}, "status": "PENDING"})

    def incoming(self, line: Line, text: str, hidden: str, key: str) -> Hooked:
        """`hidden`: the field of the message's key that has the number; any other word for none."""
        number = f"{line['to'].removeprefix('+')}@s.whatsapp.net"
        names = {"remoteJid": hidden_id(line["to"]), hidden: number} if hidden else {"remoteJid": number}
        return self.upserted(line, names, {"conversation": text}, key)

    def reaction(self, line: Line, emoji: str, key: str) -> Hooked:
        chat = f"{line['to'].removeprefix('+')}@s.whatsapp.net"
        ours = {"remoteJid": chat, "fromMe": True, "id": line["provider_id"]}
        return self.upserted(line, {"remoteJid": chat}, {"reactionMessage": {"key": ours, "text": emoji}}, key)

    def late_refusal(self, line: Line, key: str) -> Hooked:
        """WhatsApp's code stays in the server's log."""
        chat = f"{line['to'].removeprefix('+')}@s.whatsapp.net"
        data = {"keyId": line["provider_id"], "remoteJid": chat, "fromMe": True, "status": "ERROR", "messageId": "row"}
        return self.hooked(line, "messages.update", data, key)

    def upserted(self, line: Line, names: dict[str, str], message: dict[str, Any], key: str) -> Hooked:
        data = {
            "key": {**names, "fromMe": False, "id": f"3EB0{line['provider_id']}"},
            "pushName": "Ana",
            "status": "DELIVERY_ACK",
            "message": message,
            "messageType": next(iter(message)),
            "messageTimestamp": int(self.provider.now()),
        }
        return self.hooked(line, "messages.upsert", data, key)

    def hooked(self, line: Line, event: str, data: dict[str, Any], key: str) -> Hooked:
        # The number at the end is the instance's own.
        envelope = {"event": event, "instance": line["account"], "data": data, "sender": "4930@c.us"}
        return Hooked({"X-Crier-Token": key}, json.dumps(envelope).encode())


DIALECT = Evolution
