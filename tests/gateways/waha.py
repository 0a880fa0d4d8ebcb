"""WAHA's API as its documentation and its code describe it.

Calls, their bodies and webhooks: waha.devlike.pro/docs/how-to (send-messages, events, contacts). Errors: its
AllExceptionsFilter.ts and the threads named in tests/gateways/captures/waha.py, where each shape is tested by itself.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from typing import Any

from aiohttp import web

from accounts.channels.http import Answer
from accounts.channels.sandbox.book import Line
from tests.gateways.server import (
    GROUPS,
    NINTH_DIGIT,
    Dialect,
    Hooked,
    Malformed,
    hidden_id,
    number_behind,
    whatsapp_id,
)

KINDS = {
    "/api/sendText": "text",
    "/api/sendImage": "image",
    "/api/sendVideo": "video",
    "/api/sendVoice": "audio",
    "/api/sendFile": "document",
}
EXCEPTION = '{"statusCode":500,"exception":{"message":"%s","code":2},"request":{"body":"echo"},"version":{}}'
NUMBER = "{}@s.whatsapp.net"
MESSAGE = re.compile(r"/api/[^/]+/chats/[^/]+/messages/true_[^_]+_([0-9A-Za-z-]+)")
LID = re.compile(r"/api/[^/]+/lids/([0-9]+@lid)")


class Waha(Dialect):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.own_ids: dict[str, str] = {}

    refusals = {
        "auth": (401, '{"message":"%s","statusCode":401}'),
        "rate_limited": (500, EXCEPTION.replace("%s", "rate-overlimit")),
        "new_chats_blocked": (500, EXCEPTION.replace("%s", "2 UNKNOWN: server returned error 463")),
        "recipient_gone": (500, EXCEPTION.replace("%s", "2 UNKNOWN: no LID found for 49176 from server")),
        "unavailable": (
            422,
            '{"error":"%s","session":"default","status":"SCAN_QR_CODE","expected":["WORKING"]}',
        ),
        "error_after_accept": (500, EXCEPTION.replace("%s", "4 DEADLINE_EXCEEDED: Deadline exceeded after 30.002s")),
        "content_rejected": (500, EXCEPTION.replace("%s", "PayloadTooLargeError: request entity too large")),
    }

    async def reply(self, request: web.BaseRequest, path: str) -> Answer:
        key = request.headers.get("X-Api-Key")
        if path.startswith("/api/sessions/"):
            return await self.session(path.rpartition("/")[2], key)
        if path == "/api/server/version":
            return Answer(200, {"version": "2026.7.1", "engine": "GOWS", "tier": "PLUS", "browser": None})
        if path == "/api/contacts/check-exists":
            number = request.query["phone"]
            return Answer(200, {"numberExists": True, "chatId": f"{whatsapp_id(number)}@c.us"})
        if hidden := LID.fullmatch(path):
            return Answer(200, {"lid": hidden[1], "pn": f"{number_behind(hidden[1])}@c.us"})
        if asked := MESSAGE.fullmatch(path):
            return self.found(asked[1])
        if path == "/api/contacts/all":
            return self.contacts(request)
        if path.endswith("/groups"):
            return self.groups(request)
        if path.rpartition("/")[0].endswith("/media/convert"):
            return await self.converted(path.split("/")[2], await request.read(), key)
        if path not in KINDS:
            return Answer(404, {"message": f"Cannot {request.method} {path}", "statusCode": 404})
        body = json.loads(await request.read())
        kind = KINDS[path]
        self.check_file(kind, body)
        if NINTH_DIGIT.match(body["chatId"]):
            return Answer(500, json.loads(EXCEPTION.replace("%s", "2 UNKNOWN: no LID found for 5531 from server")))
        text = body.get("text") or body.get("caption") or ""
        to = as_stored(body["chatId"])
        if "id" in body:
            self.own_ids[request.headers["X-Request-Id"]] = body["id"]
        return await self.deliver(body["session"], to, kind, text, None, request.headers["X-Request-Id"], key)

    def check_file(self, kind: str, body: dict[str, Any]) -> None:
        if kind == "text":
            return
        file = body["file"]
        if not ("url" in file) ^ ("data" in file) or (kind in ("video", "audio") and "convert" not in body):
            raise Malformed(400, {"message": ["file or convert is missing"], "statusCode": 400})

    async def session(self, name: str, key: str | None) -> Answer:
        answer = await self.provider.status(name, key)
        if answer.status != 200:
            return self.refused(answer)
        me = {"id": "4917612345678@c.us", "pushName": "Choir office"}
        return Answer(200, {"name": name, "status": "WORKING", "me": me})

    async def converted(self, session: str, body: bytes, key: str | None) -> Answer:
        """As JSON; to programs that do not ask for that, WAHA gives the bytes."""
        answer = await self.provider.upload(session, hashlib.sha256(body).hexdigest(), len(body), key)
        return Answer(201, {"mimetype": "video/mp4", "data": "AAAA"}) if answer.status == 200 else self.refused(answer)

    def groups(self, request: web.BaseRequest) -> Answer:
        first = int(request.query.get("offset", "0"))
        page = GROUPS[first : first + int(request.query["limit"])]
        items: Any = [{"JID": g["id"], "Name": g["name"], "ParticipantCount": g["size"]} for g in page]
        return Answer(200, items)

    def contacts(self, request: web.BaseRequest) -> Answer:
        """Everybody whom GOWS has seen; only one of three is in the address book, and has a name there."""
        people: Any = [
            {"id": f"4917612345{n}@c.us", "name": f"Person {n}" if n % 3 == 0 else "", "pushname": f"Nick {n}"}
            for n in range(100, 112)
        ]
        lists: Any = [{"id": "999@lid", "name": "Hidden"}, {"id": "1203@g.us", "name": "Choir"}]
        return Answer(200, people + lists if request.query["offset"] == "0" else [])

    def accepted(self, provider_id: str, to: str) -> Answer:
        line = next(line for line in reversed(self.provider.latest) if line["provider_id"] == provider_id)
        ident = self.name_of(line)
        return Answer(201, {"id": f"true_{to}_{ident}", "_data": {"Info": {"ID": ident}}})

    def name_of(self, line: Line) -> str:
        """WhatsApp's id of a message: the one that came with it, or the server's own."""
        return self.own_ids.get(line["message_id"]) or str(line["provider_id"])

    def found(self, ident: str) -> Answer:
        if any(self.name_of(line) == ident for line in self.provider.latest):
            return Answer(200, {"id": f"true_x@c.us_{ident}", "ack": 1})
        return Answer(404, {"message": "Message not found", "statusCode": 404})

    def incoming(self, line: Line, text: str, hidden: str, key: str) -> Hooked:
        chat, payload = self.written(line, hidden_id(line["to"]) if hidden else "")
        number, ident = NUMBER.format(digits(line["to"])), f"3EB0{line['provider_id']}"
        payload |= {"body": text, "_data": DATA_OF_ENGINE[hidden](chat, number, ident)}
        return self.hooked(line, "message", payload, key)

    def reaction(self, line: Line, emoji: str, key: str) -> Hooked:
        """As older versions of NOWEB pass it on, among the messages; newer ones only as message.reaction."""
        chat, payload = self.written(line, "")
        ours = {"remoteJid": chat, "fromMe": True, "id": self.name_of(line)}
        content = {"reactionMessage": {"key": ours, "text": emoji, "senderTimestampMs": "1780000000000"}}
        payload |= {"body": None, "_data": {"key": {"remoteJid": chat, "fromMe": False}, "message": content}}
        return self.hooked(line, "message", payload, key)

    def late_refusal(self, line: Line, key: str) -> Hooked:
        """As newer versions of NOWEB report it; others without the error."""
        chat = f"{digits(line['to'])}@c.us"
        payload = {
            "id": f"true_{chat}_{self.name_of(line)}",
            "from": chat,
            "fromMe": True,
            "ack": -1,
            "ackName": "ERROR",
        }
        payload["error"] = {"code": "463", "blocked": True, "reason": "account_restricted", "until": None}
        return self.hooked(line, "message.ack", payload, key)

    def written(self, line: Line, hidden: str) -> tuple[str, dict[str, Any]]:
        """The chat, and what every message in it has."""
        chat = hidden or f"{digits(line['to'])}@c.us"
        payload = {"id": f"false_{chat}_3EB0{line['provider_id']}", "from": chat, "fromMe": False, "to": None}
        return chat, payload | {"participant": None, "timestamp": int(self.provider.now()), "replyTo": None}

    def hooked(self, line: Line, event: str, payload: dict[str, Any], key: str) -> Hooked:
        envelope = {"id": f"evt_{line['provider_id']}", "event": event, "session": line["account"], "payload": payload}
        body = json.dumps(envelope | {"timestamp": int(self.provider.now() * 1000)}).encode()
        return Hooked({"X-Webhook-Hmac": hmac.new(key.encode(), body, hashlib.sha512).hexdigest()}, body)


#: What each engine passes on beside a hidden id: chat, the number's id and the message's id → `_data`.
DATA_OF_ENGINE: dict[str, Any] = {
    "": lambda chat, number, ident: {},
    "GOWS": lambda chat, number, ident: {
        "Info": {
            "Chat": chat,
            "Sender": chat,
            "IsFromMe": False,
            "IsGroup": False,
            "AddressingMode": "lid",
            "SenderAlt": number,
            "RecipientAlt": "",
            "ID": ident,
        }
    },
    "NOWEB": lambda chat, number, ident: {
        "key": {"remoteJid": chat, "remoteJidAlt": number, "fromMe": False, "id": ident, "addressingMode": "lid"}
    },
    "NOWEB of 2025": lambda chat, number, ident: {
        "key": {"remoteJid": chat, "fromMe": False, "id": ident, "senderPn": number}
    },
    "WEBJS": lambda chat, number, ident: {"id": {"fromMe": False, "remote": chat, "id": ident}, "from": chat},
}


def digits(address: str) -> str:
    return address.removeprefix("+")


def as_stored(chat: str) -> str:
    return chat if chat.endswith("@g.us") else "+" + chat.removesuffix("@c.us")


DIALECT = Waha
