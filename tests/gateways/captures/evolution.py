"""What Evolution API 2.3 answers and reports, in its own shapes.

Written from its code and its users' reports; all data is invented. `source` names the place where a shape is documented.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from accounts.channels.base import Kind, Sent, Unknown

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


class CapturedAnswer(NamedTuple):
    """An answer to a send, and the kind of refusal, the type of outcome or the outcome that it means."""

    name: str
    source: str
    status: int
    body: dict[str, Any]
    means: Any
    with_file: bool = False


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
