"""What Wassenger answers and reports, in its own shapes.

Written from its public repositories and its users' code; all data is invented. `source` names where a shape is
documented. Its reference (app.wassenger.com/docs) says little about errors.
"""

from __future__ import annotations

from typing import Any

from accounts.channels.base import Kind, Sent, Unknown
from accounts.channels.provider_events import EventKind
from tests.gateways.captures.shapes import CapturedAnswer, CapturedReport

BOT = "wassengerhq/whatsapp-chatgpt-bot: bot.js and actions.js, the flat shape"
SKILLS = "wassengerhq/whatsapp-skills: wassenger-webhooks, step 4, the nested shape"
RECEIPTS = "wassengerhq/whatsapp-skills: wassenger-webhooks, step 1, an event for each kind of receipt"
USERS = "code of integrators, which agrees; not in Wassenger's own documents"

PERSON, GROUP = "4917612345678@c.us", "120363025246125486@g.us"


def failed(status: int, message: str, *errors: dict[str, str]) -> dict[str, Any]:
    return {"status": status, "message": message, **({"errors": list(errors)} if errors else {})}


ANSWERS = [
    CapturedAnswer(
        "accepted", BOT, 201, {"id": "65f0c1d2e3", "waId": "3EB0C767D0", "status": "queued"}, Sent("3EB0C767D0")
    ),
    CapturedAnswer(
        "accepted before WhatsApp has it", BOT, 201, {"id": "65f0c1d2e3", "status": "queued"}, Sent("65f0c1d2e3")
    ),
    CapturedAnswer("a bad token", USERS, 401, failed(401, "Unauthorized"), Kind.AUTH),
    CapturedAnswer("a subscription that has ended", USERS, 402, failed(402, "Payment Required"), Kind.AUTH),
    CapturedAnswer("a device that is not there", USERS, 404, failed(404, "Device not found"), Kind.AUTH),
    CapturedAnswer(
        "a number without WhatsApp",
        USERS,
        400,
        failed(400, "Bad request", {"path": "phone", "message": "The phone is not valid"}),
        Kind.RECIPIENT_GONE,
    ),
    CapturedAnswer(
        "a text that is too long",
        USERS,
        400,
        failed(400, "Bad request", {"path": "message", "message": "too long"}),
        Kind.CONTENT_REJECTED,
    ),
    CapturedAnswer("too many requests", USERS, 429, failed(429, "Too many requests"), Kind.RATE_LIMITED),
    CapturedAnswer("a device that is offline", USERS, 503, failed(503, "Device is not operative"), Kind.UNAVAILABLE),
    CapturedAnswer("a message that exists already", USERS, 409, failed(409, "Conflict"), Unknown),
    CapturedAnswer("an error of its server", USERS, 500, failed(500, "Internal server error"), Unknown),
]


def flat(name: str, data: dict[str, Any]) -> dict[str, Any]:
    device = {"id": "d1", "phone": "+4930123456", "alias": "Choir"}
    event = {"id": "wh-1", "object": "message", "event": name, "created": 1_780_000_000}
    return {**event, "device": device, "data": data}


def written(**more: Any) -> dict[str, Any]:
    data = {
        "id": "3EB0AA",
        "type": "text",
        "flow": "inbound",
        "from": PERSON,
        "fromNumber": "+4917612345678",
        "date": "2026-05-28T20:26:40.000Z",
        "timestamp": 1_780_000_000,
        "body": "STOP",
        "chat": {"id": PERSON, "type": "chat"},
        "meta": {"isGroup": False},
    }
    return flat("message:in:new", {**data, **more})


def nested(name: str, message: dict[str, Any], **more: Any) -> dict[str, Any]:
    chat = {"id": PERSON, "contact": {"name": "Ann Lee", "phone": "+4917612345678"}, "status": "active"}
    event = {"id": "evt_01HX", "event": name, "createdAt": "2026-05-28T20:26:41.218Z", "device": "d1"}
    return {**event, "data": {"message": message, "chat": chat}, **more}


def written_nested(**more: Any) -> dict[str, Any]:
    message = {
        "id": "msg_01HX",
        "chat": PERSON,
        "from": "4917612345678",
        "to": "4930123456",
        "fromMe": False,
        "type": "text",
        "body": "STOP",
        "timestamp": "2026-05-28T20:26:40.000Z",
    }
    return nested("message:in:new", {**message, **more})


def receipt_nested(name: str, **more: Any) -> dict[str, Any]:
    message = {"id": "65f0c1d2e3", "waId": "3EB0CC", "reference": "crier-7-0", "fromMe": True}
    return nested(f"message:out:{name}", {**message, **more})


STOP = {"kind": EventKind.REPLY, "address": "+4917612345678", "group": "", "text": "STOP"}
OURS = {"provider_id": "3EB0CC", "message_id": "crier-7-0"}
FAILED = {"kind": EventKind.BOUNCE, "message_id": "crier-7-0", "text": "Number is not on WhatsApp"}

REPORTS = [
    CapturedReport("a reply, flat", BOT, written(), {**STOP, "key": "message:3EB0AA"}),
    CapturedReport("a reply, nested", SKILLS, written_nested(), {**STOP, "key": "message:msg_01HX"}),
    CapturedReport("our own, nested", SKILLS, written_nested(fromMe=True), None),
    CapturedReport(
        "a group, nested",
        SKILLS,
        written_nested(chat=GROUP),
        {"kind": EventKind.REPLY, "group": GROUP},
    ),
    CapturedReport("another device, nested", SKILLS, {**written_nested(), "device": "d2"}, None),
    CapturedReport(
        "a quote by WhatsApp's id", USERS, written(quoted={"waId": "3EB0CC"}), {**STOP, "provider_id": "3EB0CC"}
    ),
    CapturedReport(
        "a quote by WhatsApp Web's id",
        USERS,
        written(quoted={"wid": "true_4917612345678@c.us_3EB0CC", "body": "Doors open at nine"}),
        {**STOP, "provider_id": "3EB0CC"},
    ),
    CapturedReport(
        "a quote, nested", USERS, written_nested(quoted={"id": "3EB0CC"}), {**STOP, "provider_id": "3EB0CC"}
    ),
    CapturedReport("a reaction", USERS, written(type="reaction", body="👍"), None),
    CapturedReport(
        "delivered, flat",
        BOT,
        flat("message:out:ack", {"id": "65f0c1d2e3", "waId": "3EB0CC", "reference": "crier-7-0", "ack": "delivered"}),
        {**OURS, "kind": EventKind.DELIVERED},
    ),
    CapturedReport("delivered, nested", RECEIPTS, receipt_nested("delivered"), {**OURS, "kind": EventKind.DELIVERED}),
    CapturedReport("read, nested", RECEIPTS, receipt_nested("read"), {**OURS, "kind": EventKind.READ}),
    CapturedReport("sent, nested", RECEIPTS, receipt_nested("sent"), None),
    CapturedReport(
        "failed, flat",
        USERS,
        flat(
            "message:out:failed", {"id": "65f0c1d2e3", "reference": "crier-7-0", "error": "Number is not on WhatsApp"}
        ),
        FAILED,
    ),
    CapturedReport(
        "failed with an error object",
        USERS,
        receipt_nested("failed", error={"code": 404, "message": "Number is not on WhatsApp"}),
        FAILED,
    ),
]
