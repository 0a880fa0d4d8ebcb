"""What Evolution API 2.3 answers and reports, in its own shapes.

Written from its code and its users' reports; all data is invented. `source` names where a shape is documented.
"""

from __future__ import annotations

from typing import Any

from accounts.channels.base import Kind, Sent, Unknown
from tests.gateways.captures.shapes import CapturedAnswer, CapturedReport

BAILEYS = "evolution-api: src/api/integrations/channel/whatsapp/whatsapp.baileys.service.ts"
SENDING = f"{BAILEYS}, sendMessageWithTyping: its catch answers 400 with the exception as text"
LOOK_UP = f"{BAILEYS}, whatsappNumber: runs outside that try, so what it raises is a 500"
PREPARING = f"{BAILEYS}, prepareMediaMessage: answers 500 with the exception as text, before the send"
UPSERT = f"{BAILEYS}, messages.upsert: passes on every message that the library reports"
KEYS = f"{BAILEYS}, prepareMessage: the key of the message as the library has it"
PROTOCOL = "Baileys: WAProto/WAProto.proto, message Message"
CLOSING = f"{BAILEYS}, connectionUpdate: does not reconnect after 401, 402, 403 and 406"

PERSON, HIDDEN = "4917612345678@s.whatsapp.net", "104876543210987@lid"
GROUP = "120363025246125486@g.us"


def failed(status: int, *messages: Any) -> dict[str, Any]:
    names = {400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 500: "Internal Server Error"}
    return {"status": status, "error": names[status], "response": {"message": list(messages)}}


def failed_at_look_up(words: str) -> dict[str, Any]:
    return {"status": 500, "error": "Internal Server Error", "response": {"message": words}}


ANSWERS = [
    CapturedAnswer(
        "accepted",
        f"{BAILEYS}, prepareMessage",
        201,
        {
            "key": {"remoteJid": PERSON, "fromMe": True, "id": "3EB0C767D097B7C0A1"},
            "pushName": "",
            "status": "PENDING",
            "message": {"conversation": "Doors open at nine"},
            "messageType": "conversation",
            "messageTimestamp": 1780000000,
            "instanceId": "5f1c6b6e-6a0c-4f0f-8f0f-1d5b4a2f0c11",
            "source": "web",
        },
        Sent("3EB0C767D097B7C0A1"),
    ),
    CapturedAnswer(
        "a number that is not on WhatsApp",
        LOOK_UP,
        400,
        failed(400, {"jid": PERSON, "exists": False, "number": "4917612345678"}),
        Kind.RECIPIENT_GONE,
    ),
    CapturedAnswer(
        "an exception of its database after the send",
        SENDING,
        400,
        failed(400, "PrismaClientKnownRequestError: \nInvalid `this.prismaRepository.message.create()` invocation"),
        Unknown,
    ),
    CapturedAnswer(
        "an exception of another service after the send",
        SENDING,
        400,
        failed(400, "AxiosError: Request failed with status code 502"),
        Unknown,
    ),
    CapturedAnswer(
        "a connection that closed while sending", SENDING, 400, failed(400, "Error: Connection Closed"), Unknown
    ),
    CapturedAnswer("a time-out while sending", SENDING, 400, failed(400, "Error: Timed Out"), Unknown),
    CapturedAnswer(
        "too many questions while sending", SENDING, 400, failed(400, "Error: rate-overlimit"), Kind.RATE_LIMITED
    ),
    CapturedAnswer(
        "too many questions at the look-up", LOOK_UP, 500, failed_at_look_up("rate-overlimit"), Kind.RATE_LIMITED
    ),
    CapturedAnswer(
        "too many questions, in a list", LOOK_UP, 500, failed(500, "Error: rate-overlimit"), Kind.RATE_LIMITED
    ),
    CapturedAnswer(
        "a connection that closed at the look-up",
        LOOK_UP,
        500,
        failed_at_look_up("Connection Closed"),
        Kind.UNAVAILABLE,
    ),
    CapturedAnswer(
        "a file that WhatsApp's servers did not take",
        PREPARING,
        500,
        failed(500, "Error: Media upload failed on all hosts"),
        Kind.NETWORK,
        with_file=True,
    ),
    CapturedAnswer(
        "a file whose upload took too long",
        PREPARING,
        500,
        failed(500, "Error: Timed Out"),
        Kind.NETWORK,
        with_file=True,
    ),
    CapturedAnswer(
        "a file that cannot be fetched",
        PREPARING,
        500,
        failed(500, "AxiosError: Request failed with status code 404"),
        Kind.CONTENT_REJECTED,
        with_file=True,
    ),
    CapturedAnswer(
        "a link that its validator refuses",
        f"{BAILEYS}, mediaMessage: class-validator's isURL and isBase64",
        400,
        failed(400, "Owned media must be a url or base64"),
        Kind.CONTENT_REJECTED,
        with_file=True,
    ),
    CapturedAnswer("a wrong key", "evolution-api: src/api/guards/auth.guard.ts", 401, failed(401), Kind.AUTH),
    CapturedAnswer(
        "no such instance",
        "evolution-api: src/api/guards/instance.guard.ts",
        404,
        failed(404, 'The "acme" instance does not exist'),
        Kind.AUTH,
    ),
]


def upserted(message: Any, kind: str, **key: Any) -> dict[str, Any]:
    return {
        "event": "messages.upsert",
        "instance": "acme",
        "data": {
            "key": {"remoteJid": PERSON, "fromMe": False, "id": "3A5F0E1B2C", **key},
            "pushName": "Ana",
            "status": "DELIVERY_ACK",
            "message": message,
            "contextInfo": None,
            "messageType": kind,
            "messageTimestamp": 1780000000,
            "instanceId": "5f1c6b6e-6a0c-4f0f-8f0f-1d5b4a2f0c11",
            "source": "android",
        },
        "destination": "https://crier.example.org/hooks/evolution/token",
        "date_time": "2026-05-28T20:26:40.000Z",
        "sender": "49301234567@s.whatsapp.net",
        "server_url": "https://evolution.example.org",
        "apikey": None,
    }


def message(name: str, content: Any, text: str | None) -> CapturedReport:
    """A message of one kind, and its text; None where it is not a reply."""
    kind = next(iter(content), "unknown") if content else "unknown"
    event = None if text is None else {"kind": "reply", "address": "+4917612345678", "text": text}
    return CapturedReport(name, f"{UPSERT}; {PROTOCOL}", upserted(content, kind), event)


OUR_KEY = {"remoteJid": PERSON, "fromMe": True, "id": "3EB0C767D097B7C0A1"}
WITH_EXPIRY = {"messageContextInfo": {"deviceListMetadataVersion": 2}}

REPORTS = [
    message("a text", {"conversation": "Yes"}, "Yes"),
    message("a text with a link", {"extendedTextMessage": {"text": "Yes", "contextInfo": {}}}, "Yes"),
    message("a text beside keys", {"senderKeyDistributionMessage": {"groupId": GROUP}, "conversation": "Yes"}, "Yes"),
    message("a picture without words", {"imageMessage": {"mimetype": "image/jpeg"}}, ""),
    message("a kind that is not known yet", {"hologramMessage": {"depth": 3}}, ""),
    message(
        "a message that disappears",
        WITH_EXPIRY | {"ephemeralMessage": {"message": {"extendedTextMessage": {"text": "STOP"}}}},
        "STOP",
    ),
    message(
        "a picture that is seen once",
        {"viewOnceMessageV2": {"message": {"imageMessage": {"caption": "STOP"}}}},
        "STOP",
    ),
    message(
        "a document with a caption",
        {"documentWithCaptionMessage": {"message": {"documentMessage": {"fileName": "a.pdf", "caption": "STOP"}}}},
        "STOP",
    ),
    message(
        "a document with a caption that disappears",
        {
            "ephemeralMessage": {
                "message": {"documentWithCaptionMessage": {"message": {"documentMessage": {"caption": "STOP"}}}}
            }
        },
        "STOP",
    ),
    message("a button", {"buttonsResponseMessage": {"selectedButtonId": "b2", "selectedDisplayText": "STOP"}}, "STOP"),
    message(
        "a button of a template",
        {"templateButtonReplyMessage": {"selectedId": "b2", "selectedDisplayText": "STOP", "selectedIndex": 1}},
        "STOP",
    ),
    message(
        "a row of a list",
        {"listResponseMessage": {"title": "STOP", "listType": 1, "singleSelectReply": {"selectedRowId": "r1"}}},
        "STOP",
    ),
    message(
        "a button of a flow",
        {
            "interactiveResponseMessage": {
                "body": {"text": "STOP"},
                "nativeFlowResponseMessage": {"name": "quick_reply", "paramsJson": '{"id":"b2"}'},
            }
        },
        "STOP",
    ),
    message(
        "a reaction", {"reactionMessage": {"key": OUR_KEY, "text": "👍", "senderTimestampMs": "1780000000000"}}, None
    ),
    message("a reaction that is taken back", {"reactionMessage": {"key": OUR_KEY, "text": ""}}, None),
    message(
        "an edit",
        {"protocolMessage": {"key": OUR_KEY, "type": 14, "editedMessage": {"conversation": "No"}, "timestampMs": "1"}},
        "No",
    ),
    message(
        "an edit in an envelope",
        {"editedMessage": {"message": {"protocolMessage": {"type": "MESSAGE_EDIT", "key": OUR_KEY}}}},
        None,
    ),
    message("a deletion", {"protocolMessage": {"key": OUR_KEY, "type": 0}}, None),
    message("messages that begin to disappear", {"protocolMessage": {"type": 3, "ephemeralExpiration": 86400}}, None),
    message(
        "a setting of the chat in an envelope",
        {"ephemeralMessage": {"message": {"protocolMessage": {"type": "EPHEMERAL_SETTING"}}}},
        None,
    ),
    message(
        "a vote in a poll",
        {"pollUpdateMessage": {"pollCreationMessageKey": OUR_KEY, "vote": {"encPayload": "…", "encIv": "…"}}},
        None,
    ),
    message("a pinned message", WITH_EXPIRY | {"pinInChatMessage": {"key": OUR_KEY, "type": 1}}, None),
    message("a kept message", {"keepInChatMessage": {"key": OUR_KEY, "keepType": 1}}, None),
    message("keys for a group", {"senderKeyDistributionMessage": {"groupId": GROUP}}, None),
    message("nothing that could be decrypted", None, None),
    CapturedReport(
        "a hidden sender",
        f"{KEYS}; the number in remoteJidAlt",
        upserted({"conversation": "STOP"}, "conversation", remoteJid=HIDDEN, remoteJidAlt=PERSON, addressingMode="lid"),
        {"kind": "reply", "address": "+4917612345678", "text": "STOP"},
    ),
    CapturedReport(
        "a hidden sender, as 2.3.0 names it",
        f"{KEYS}; the number in senderPn",
        upserted({"conversation": "STOP"}, "conversation", remoteJid=HIDDEN, senderPn=PERSON),
        {"kind": "reply", "address": "+4917612345678", "text": "STOP"},
    ),
    CapturedReport(
        "a hidden sender without a number",
        "EvolutionAPI/evolution-api#2466",
        upserted({"conversation": "STOP"}, "conversation", remoteJid=HIDDEN),
        {"kind": "reply", "address": "", "text": "STOP", "detail": {"seen_as": "Ana", "jid": HIDDEN}},
    ),
    CapturedReport(
        "a refusal after it was accepted",
        "EvolutionAPI/evolution-api#2626: WhatsApp's code stays in the server's log",
        {
            "event": "messages.update",
            "instance": "acme",
            "data": {
                "messageId": "cmbz0c7d9000108jt5s1c2xyz",
                "keyId": "3EB0C767D097B7C0A1",
                "remoteJid": PERSON,
                "fromMe": True,
                "participant": None,
                "status": "ERROR",
                "instanceId": "5f1c6b6e-6a0c-4f0f-8f0f-1d5b4a2f0c11",
            },
        },
        {"kind": "bounce", "address": "+4917612345678", "provider_id": "3EB0C767D097B7C0A1"},
    ),
    *(
        CapturedReport(
            f"a connection that closed for good, {reason}",
            CLOSING,
            {
                "event": "connection.update",
                "instance": "acme",
                "data": {"instance": "acme", "state": "close", "statusReason": reason},
                "date_time": "2026-05-28T20:26:40.000Z",
            },
            {"kind": "session", "detail": {"state": state}},
        )
        for reason, state in {401: "unpaired", 402: "banned", 403: "banned", 406: "banned"}.items()
    ),
]
