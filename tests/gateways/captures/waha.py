"""What WAHA 2026 answers and reports, in its own shapes.

Written from its documentation, its code and its users' reports; all data is invented. `source` names where a shape is
documented. WAHA has several engines: GOWS is whatsmeow, NOWEB is Baileys, WEBJS is WhatsApp Web in a browser.
"""

from __future__ import annotations

from typing import Any

from accounts.channels.base import Kind, Sent, Unknown
from tests.gateways.captures.shapes import CapturedAnswer, CapturedReport

DOCS = "waha.devlike.pro/docs/how-to"
SENDING = f"{DOCS}/send-messages"
EVENTS = f"{DOCS}/events"
ENGINES = "waha: src/core/engines"
ISSUES = "devlikeapro/waha"
EXCEPTION = "waha: src/nestjs/AllExceptionsFilter.ts"
WHATSMEOW = "whatsmeow: send.go and errors.go"
RESTRICTION = f"{ENGINES}/noweb/restriction.ts"
INTERACTIVE = f"{ENGINES}/noweb/session.noweb.core.ts, formatInteractiveResponseBody"

PERSON, HIDDEN = "4917612345678@c.us", "104876543210987@lid"
NUMBER = "4917612345678@s.whatsapp.net"
GROUP = "120363025246125486@g.us"


def exception(message: str, **more: Any) -> dict[str, Any]:
    """The body of a 500. It repeats our request."""
    return {
        "statusCode": 500,
        "timestamp": "2026-05-28T20:26:40.000Z",
        "exception": {"message": message, "name": "Error", **more},
        "request": {"path": "/api/sendText", "method": "POST", "body": {"chatId": PERSON, "text": "Doors open"}},
        "version": {"version": "2026.7.1", "engine": "GOWS", "tier": "PLUS", "browser": None},
    }


def grpc(details: str, code: int = 2, name: str = "UNKNOWN") -> dict[str, Any]:
    """The body of a 500 of GOWS, which asks whatsmeow over gRPC."""
    return exception(f"{code} {name}: {details}", code=code, details=details, metadata={})


ANSWERS = [
    CapturedAnswer(
        "accepted by GOWS",
        SENDING,
        201,
        {"id": f"true_{PERSON}_3EB0C767D097B7C0A1", "_data": {"Info": {"ID": "3EB0C767D097B7C0A1", "IsFromMe": True}}},
        Sent("3EB0C767D097B7C0A1"),
    ),
    CapturedAnswer(
        "accepted by NOWEB",
        f"{ISSUES}#1615",
        201,
        {"key": {"remoteJid": NUMBER, "fromMe": True, "id": "3EB0C767D097B7C0A1"}, "status": "PENDING"},
        Sent("3EB0C767D097B7C0A1"),
    ),
    CapturedAnswer(
        "accepted by WEBJS",
        f"{ISSUES}#760",
        201,
        {"_data": {"id": {"fromMe": True, "remote": PERSON, "_serialized": f"true_{PERSON}_3EB0C767D097B7C0A1"}}},
        Sent("3EB0C767D097B7C0A1"),
    ),
    CapturedAnswer("accepted with an empty body", f"{ISSUES}#1087", 201, {}, Unknown),
    CapturedAnswer("a wrong key", SENDING, 401, {"message": "Unauthorized", "statusCode": 401}, Kind.AUTH),
    CapturedAnswer(
        "a session that waits for its code",
        "waha: src/nestjs/pipes/SessionPipe.ts",
        422,
        {
            "error": "Session status is not as expected",
            "session": "default",
            "status": "SCAN_QR_CODE",
            "expected": ["WORKING"],
        },
        Kind.UNAVAILABLE,
    ),
    CapturedAnswer(
        "a group that the account has left",
        WHATSMEOW,
        500,
        grpc("failed to get group members: you're not participating in that group"),
        Kind.NOT_WRITABLE,
    ),
    CapturedAnswer(
        "a group that is gone",
        WHATSMEOW,
        500,
        grpc("failed to get group members: that group does not exist"),
        Kind.RECIPIENT_GONE,
    ),
    CapturedAnswer(
        "a person without WhatsApp",
        WHATSMEOW,
        500,
        grpc("no LID found for 4917612345678@s.whatsapp.net from server"),
        Kind.RECIPIENT_GONE,
    ),
    CapturedAnswer(
        "a person without WhatsApp, in the browser",
        f"{ISSUES}#1471",
        500,
        exception("No LID for user"),
        Kind.RECIPIENT_GONE,
    ),
    CapturedAnswer(
        "no connection, of Baileys",
        "Baileys: src/Socket/socket.ts, sendRawMessage",
        500,
        exception("Connection Closed", data=None, isBoom=True),
        Kind.UNAVAILABLE,
    ),
    CapturedAnswer(
        "no connection, of whatsmeow",
        WHATSMEOW,
        500,
        grpc("failed to send message node: websocket not connected"),
        Kind.UNAVAILABLE,
    ),
    CapturedAnswer(
        "no connection at its second try: the first may have arrived",
        f"{WHATSMEOW}, retryFrame",
        500,
        grpc("websocket not connected"),
        Unknown,
    ),
    CapturedAnswer(
        "too many questions, of Baileys", f"{ISSUES}#619", 500, exception("rate-overlimit", data=429), Kind.RATE_LIMITED
    ),
    CapturedAnswer(
        "too many questions, of whatsmeow",
        WHATSMEOW,
        500,
        grpc("failed to get device list: failed to send usync query: info query returned status 429: rate-overlimit"),
        Kind.RATE_LIMITED,
    ),
    CapturedAnswer(
        "new chats are blocked", f"{ISSUES}#2118", 500, grpc("server returned error 463"), Kind.NEW_CHATS_BLOCKED
    ),
    CapturedAnswer(
        "a refusal without a meaning of ours", f"{ISSUES}#1560", 500, grpc("server returned error 479"), Kind.UNKNOWN
    ),
    CapturedAnswer(
        "an error before the send",
        WHATSMEOW,
        500,
        grpc("failed to encrypt group message to send: no sender key"),
        Kind.UNKNOWN,
    ),
    CapturedAnswer(
        "an answer that did not come in time",
        f"{ISSUES}#2044",
        500,
        grpc("Deadline exceeded after 30.001s", 4, "DEADLINE_EXCEEDED"),
        Unknown,
    ),
    CapturedAnswer("a time-out of Baileys", f"{ISSUES}#413", 500, exception("Timed Out"), Unknown),
    CapturedAnswer(
        "an exception after the send",
        f"{EXCEPTION}; the engines store the message after sending it",
        500,
        exception("Cannot read properties of undefined (reading 'id')"),
        Unknown,
    ),
]


def envelope(event: str, payload: dict[str, Any], engine: str) -> dict[str, Any]:
    return {
        "id": "evt_01jx8k2m3n4p5q6r7s8t9v0w1x",
        "timestamp": 1_780_000_000_123,
        "event": event,
        "session": "default",
        "metadata": {},
        "me": {"id": "49301234567@c.us", "pushName": "Choir office", "lid": "111222333444555@lid"},
        "payload": payload,
        "engine": engine,
        "environment": {"version": "2026.7.1", "engine": engine, "tier": "PLUS", "browser": None},
    }


def payload(data: dict[str, Any], body: str | None, **more: Any) -> dict[str, Any]:
    return {
        "id": f"false_{PERSON}_3A5F0E1B2C",
        "timestamp": 1_780_000_000,
        "from": PERSON,
        "fromMe": False,
        "source": "app",
        "to": None,
        "participant": None,
        "body": body,
        "hasMedia": False,
        "media": None,
        "ack": 2,
        "ackName": "DEVICE",
        "replyTo": None,
        "_data": data,
        **more,
    }


def of_noweb(content: Any) -> dict[str, Any]:
    return {"key": {"remoteJid": NUMBER, "fromMe": False, "id": "3A5F0E1B2C"}, "pushName": "Ana", "message": content}


def of_gows(content: Any) -> dict[str, Any]:
    return {"Info": {"Chat": NUMBER, "Sender": NUMBER, "ID": "3A5F0E1B2C", "PushName": "Ana"}, "Message": content}


def of_webjs(kind: str) -> dict[str, Any]:
    return {"id": {"fromMe": False, "remote": PERSON, "id": "3A5F0E1B2C"}, "type": kind, "notifyName": "Ana"}


def message(
    name: str, source: str, engine: str, data: dict[str, Any], body: str | None, text: str | None, **more: Any
) -> CapturedReport:
    """A message, and its text; None where it is not a reply."""
    event = None if text is None else {"kind": "reply", "address": "+4917612345678", "text": text}
    return CapturedReport(name, source, envelope("message", payload(data, body, **more), engine), event)


def ack(name: str, source: str, error: dict[str, Any] | None, **detail: Any) -> CapturedReport:
    """A message that WhatsApp refused after the gateway had accepted it."""
    told = {
        "id": f"true_{PERSON}_3EB0C767D097B7C0A1",
        "from": PERSON,
        "fromMe": True,
        "to": None,
        "participant": None,
        "ack": -1,
        "ackName": "ERROR",
    }
    told |= {"error": error} if error else {}
    event = {"kind": "bounce", "provider_id": "3EB0C767D097B7C0A1", "detail": detail}
    return CapturedReport(name, source, envelope("message.ack", told, "NOWEB"), event)


OUR_KEY = {"remoteJid": NUMBER, "fromMe": True, "id": "3EB0C767D097B7C0A1"}
BUTTON = {"buttonsResponseMessage": {"selectedButtonId": "b2", "selectedDisplayText": "STOP"}}
TEMPLATE = {"templateButtonReplyMessage": {"selectedId": "b2", "selectedDisplayText": "STOP", "selectedIndex": 1}}
CHOSEN = {"type": "button", "selectedId": "b2", "selectedText": "STOP", "params": {"id": "b2"}}

REPORTS = [
    message("a text", EVENTS, "NOWEB", of_noweb({"conversation": "Yes"}), "Yes", "Yes"),
    message("a text of GOWS", EVENTS, "GOWS", of_gows({"extendedTextMessage": {"text": "Yes"}}), "Yes", "Yes"),
    message("a text of WEBJS", EVENTS, "WEBJS", of_webjs("chat"), "Yes", "Yes"),
    message("a text without the engine's data", EVENTS, "WEBJS", {}, "Yes", "Yes"),
    message("a picture without words", EVENTS, "NOWEB", of_noweb({"imageMessage": {}}), None, ""),
    message(
        "a message that disappears",
        EVENTS,
        "NOWEB",
        of_noweb({"ephemeralMessage": {"message": {"extendedTextMessage": {"text": "STOP"}}}}),
        "STOP",
        "STOP",
    ),
    message("a button", INTERACTIVE, "NOWEB", of_noweb(BUTTON), "STOP [b2]", "STOP", interactiveResponse=CHOSEN),
    message("a button, only in the engine's data", INTERACTIVE, "NOWEB", of_noweb(BUTTON), "STOP [b2]", "STOP"),
    message("a button of a template", INTERACTIVE, "GOWS", of_gows(TEMPLATE), "STOP [b2]", "STOP"),
    message(
        "a button, with the names of Go",
        INTERACTIVE,
        "GOWS",
        of_gows({"buttonsResponseMessage": {"selectedButtonID": "b2", "Response": {"SelectedDisplayText": "STOP"}}}),
        "[b2]",
        "STOP",
    ),
    message(
        "a row of a list",
        INTERACTIVE,
        "NOWEB",
        of_noweb({"listResponseMessage": {"title": "STOP", "singleSelectReply": {"selectedRowId": "r1"}}}),
        "[r1]",
        "STOP",
        interactiveResponse={"type": "list", "selectedId": "r1", "name": "single_select"},
    ),
    message("a button of WEBJS", EVENTS, "WEBJS", of_webjs("buttons_response"), "STOP", "STOP"),
    message(
        "a reaction of NOWEB",
        EVENTS,
        "NOWEB",
        of_noweb({"reactionMessage": {"key": OUR_KEY, "text": "👍"}}),
        None,
        None,
    ),
    message("a reaction of GOWS", EVENTS, "GOWS", of_gows({"reactionMessage": {"text": "👍"}}), None, None),
    message(
        "messages that begin to disappear",
        f"{ENGINES}/noweb/session.noweb.core.ts, shouldProcessIncomingMessage: lets this kind through",
        "NOWEB",
        of_noweb({"protocolMessage": {"type": 3, "ephemeralExpiration": 86400}}),
        None,
        None,
    ),
    message("a vote in a poll", EVENTS, "GOWS", of_gows({"pollUpdateMessage": {}}), None, None),
    message(
        "a pinned message", EVENTS, "NOWEB", of_noweb({"pinInChatMessage": {"key": OUR_KEY, "type": 1}}), None, None
    ),
    message("nothing that could be decrypted", EVENTS, "NOWEB", of_noweb(None), None, None),
    *(
        message(
            f"a notice of WhatsApp Web, {kind}",
            "whatsapp-web.js: src/util/Constants.js",
            "WEBJS",
            of_webjs(kind),
            "",
            None,
        )
        for kind in (
            "e2e_notification",
            "notification_template",
            "call_log",
            "ciphertext",
            "revoked",
            "protocol",
            "reaction",
        )
    ),
    CapturedReport(
        "a reaction as an event of its own",
        EVENTS,
        envelope(
            "message.reaction",
            {
                "id": f"false_{PERSON}_3A5F0E1B2C",
                "timestamp": 1_780_000_000.5,
                "from": PERSON,
                "fromMe": False,
                "reaction": {"text": "👍", "messageId": f"true_{PERSON}_3EB0C767D097B7C0A1"},
            },
            "WEBJS",
        ),
        None,
    ),
    CapturedReport(
        "a deletion as an event of its own",
        EVENTS,
        envelope("message.revoked", {"after": None, "before": None, "revokedMessageId": "3A5F0E1B2C"}, "NOWEB"),
        None,
    ),
    CapturedReport(
        "an edit as an event of its own",
        EVENTS,
        envelope("message.edited", payload(of_noweb({}), "No", editedMessageId="3A5F0E1B2C"), "NOWEB"),
        {"kind": "reply", "text": "No", "address": "+4917612345678"},
    ),
    CapturedReport(
        "a hidden sender of GOWS",
        f"{ISSUES}#1309",
        envelope(
            "message",
            payload({"Info": {"Sender": HIDDEN, "SenderAlt": NUMBER}, "Message": {"conversation": "STOP"}}, "STOP")
            | {"id": f"false_{HIDDEN}_3A5F0E1B2C", "from": HIDDEN},
            "GOWS",
        ),
        {"kind": "reply", "address": "+4917612345678", "text": "STOP"},
    ),
    CapturedReport(
        "a hidden sender of WEBJS, without a number",
        f"{ISSUES}#1309",
        envelope(
            "message",
            payload(of_webjs("chat"), "STOP") | {"id": f"false_{HIDDEN}_3A5F0E1B2C", "from": HIDDEN},
            "WEBJS",
        ),
        {"kind": "reply", "address": "", "text": "STOP", "detail": {"jid": HIDDEN}},
    ),
    ack("a refusal without a reason", EVENTS, None, kind="unknown"),
    ack(
        "new chats are blocked for a while",
        RESTRICTION,
        {
            "code": "463",
            "blocked": True,
            "reason": "account_restricted",
            "until": "2026-05-29T00:26:40.123Z",
            "enforcementType": "DEFAULT",
        },
        kind="new_chats_blocked",
        certain=True,
        retry_after=4 * 3600.0,
    ),
    ack(
        "new chats are blocked",
        RESTRICTION,
        {"code": "463", "blocked": True, "reason": "account_restricted", "until": None},
        kind="new_chats_blocked",
        certain=True,
    ),
    ack("a refusal by another code", RESTRICTION, {"code": "479", "blocked": False}, kind="unknown", certain=True),
    ack(
        "a refusal for sending too much",
        RESTRICTION,
        {"code": "429", "blocked": False},
        kind="rate_limited",
        certain=True,
    ),
    ack("a refusal with an empty code", RESTRICTION, {"code": None, "blocked": False}, kind="unknown"),
]
