"""Transport of WAHA over its HTTP API, and the meaning of its answers.

The gateway has no media handles and no idempotency key. Videos and voice messages are converted once, before the first
send (`accounts.channels.waha.conversion`), because that takes longer than a send may. The gateway answers 201, or 500
for nearly everything else: the reason is in `exception.message`, in the words of the WhatsApp library behind it. The
body of a 500 repeats our request, so only that message is ever shown.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import quote

from accounts.channels.base import (
    AccountConfig,
    CheckFailed,
    Contact,
    Group,
    Handle,
    Kind,
    Media,
    NotSent,
    Outcome,
    Part,
    Refused,
    Sent,
    Unknown,
    UploadFailed,
)
from accounts.channels.gateway import Base64, Call, Gateway, call
from accounts.channels.http import FAILURES, Answer, as_number, as_text, dig
from accounts.channels.paired import (
    HIDDEN,
    address_of,
    chat_id,
    digits,
    is_group,
    is_hidden,
    number_of,
    version_warning,
)
from accounts.channels.waha import conversion
from accounts.channels.waha.channel import CHANNEL
from accounts.channels.whatsapp.bridge.conditions import outcome_of_error

#: The versions whose answers are in tests/gateways/captures/waha.py.
TESTED = "2026"
PERSON_SUFFIX = "@c.us"
#: Brazil, Argentina and Mexico: WhatsApp's id may have a digit more or less than the number, and WAHA warns that a
#: message to the number itself may fail.
IDS_DIFFER = ("+55", "+54", "+52")


#: Converted files in base64, by their path, so that each is read once; the oldest are dropped above the limit.
CONVERTED: dict[Path, Base64] = {}
MOST_CONVERTED = 100_000_000
#: Servers that convert only while sending, and until when that is believed (monotonic).
WHILE_SENDING: dict[str, float] = {}
#: A look at the file, which may be gone. The engine asks again five minutes before the end.
HANDLE_LIFE = timedelta(minutes=10)


class Version(NamedTuple):
    until: float  # monotonic: then it is asked again
    number: str = ""
    engine: str = ""


NO_VERSION = Version(0.0)
VERSIONS: dict[str, Version] = {}  # by server
VERSION_SECONDS = 600.0
#: Since then texts may bring an id of ours, which receipts name and by which the gateway can be asked.
TAKES_IDS_SINCE, TAKING_IDS = (2026, 4, 3), ("GOWS", "NOWEB")
SHORTEST_QUESTION = 1.0  # seconds left of a send
#: Servers of before 2025.6.2, and the free edition.
NO_CONVERSION = re.compile(r"^Cannot POST|\bPlus\b")
PATHS = {"image": "sendImage", "video": "sendVideo", "audio": "sendVoice", "document": "sendFile"}
#: Groups on a page. A server without paging lists all of them at once.
PAGE = 500
MOST_CONTACTS = 50_000


class WahaTransport(Gateway):
    channel = CHANNEL

    def __init__(self, account: AccountConfig) -> None:
        super().__init__(account)
        self._chats: dict[str, str] = {}

    @property
    def headers(self) -> dict[str, str]:
        return {"X-Api-Key": self.secrets["api_key"]}

    @property
    def session(self) -> str:
        return quote(self.values["session"], safe="")

    async def check(self) -> str:
        answer = await self.ask(f"/api/sessions/{self.session}")
        status = answer.body.get("status")
        if status != "WORKING":
            raise CheckFailed(Kind.UNAVAILABLE, f"The session “{self.values['session']}” is {status}, not WORKING.")
        number = address_of(dig(answer.body, "me", "id"))
        version, engine = await self._version()
        product = " ".join(filter(None, ["WAHA", version, f"({engine})" if engine else ""]))
        who = f"{product} as {dig(answer.body, 'me', 'pushName') or 'WhatsApp'} {number}".strip()
        return who + version_warning("WAHA", version, TESTED)

    async def _version(self) -> tuple[str, str]:
        """Return the server's version and engine; "" where it does not say them, for example to a session's key."""
        try:
            body = (await self.ask("/api/server/version")).body
        except CheckFailed:
            return "", ""
        return as_text(body.get("version")), as_text(body.get("engine"))

    async def send(self, address: str, part: Part, message_id: str) -> Outcome:
        began = time.monotonic()
        outcome = await super().send(address, part, message_id)
        own = own_id(message_id)
        if not isinstance(outcome, Unknown) or part.media is not None or not takes_ids(self.base):
            return outcome
        left = self.timeout - (time.monotonic() - began)
        went_out = left > SHORTEST_QUESTION and await self._has(await self._chat(address), own, left)
        return Sent(own) if went_out else replace(outcome, provider_id=own)

    async def _has(self, chat: str, own: str, seconds: float) -> bool:
        """Return whether the gateway has the message. That it has none proves nothing: it may be under way."""
        path = f"/api/{self.session}/chats/{quote(chat, safe='@')}/messages/true_{quote(chat, safe='@')}_{own}"
        try:
            async with asyncio.timeout(seconds):
                answer = await self.get(path, {"downloadMedia": "false"})
        except FAILURES:
            return False
        # An earlier try with the same id may have been refused.
        return answer.status == 200 and id_in(answer.body) == own and dig(answer.body, "ack") != -1

    async def message(self, address: str, part: Part, message_id: str) -> Call:
        chat: dict[str, Any] = {"session": self.values["session"], "chatId": await self._chat(address)}
        if part.media is None:
            await self._learn_version()
            own = {"id": own_id(message_id)} if takes_ids(self.base) else {}
            return call("/api/sendText", chat | {"text": part.text} | own)
        kind, body = self.channel.sends_as(part.kind, part.text), chat
        if kind in conversion.FORMATS:
            converted = await self._converted(part.media, kind, self.timeout / 2)
            # The field is required. Servers that convert only while sending still do that.
            body["convert"] = not converted
            body["file"] = file_of(part.media, kind, converted) if converted else await self._file(part.media)
        else:
            body["file"] = await self._file(part.media)
        if kind != "audio":
            body["caption"] = part.text
        return call(f"/api/{PATHS[kind]}", body)

    async def _learn_version(self) -> None:
        """Ask the server for its version, once in a while."""
        if VERSIONS.get(self.base, NO_VERSION).until > time.monotonic():
            return
        try:
            async with asyncio.timeout(self.timeout / 4):
                version, engine = await self._version()
        except TimeoutError:
            version, engine = "", ""
        VERSIONS[self.base] = Version(time.monotonic() + VERSION_SECONDS, version, engine)

    async def _chat(self, address: str) -> str:
        """Return the chat of a stored address; raises Refused for a number that is not on WhatsApp."""
        if not address.startswith(IDS_DIFFER):
            return chat_id(address, PERSON_SUFFIX)
        if address not in self._chats:
            # The send needs the rest of the time: one that ends without an answer may have gone out.
            async with asyncio.timeout(self.timeout / 2):
                self._chats[address] = await self._look_up(address)
        return self._chats[address]

    async def _look_up(self, address: str) -> str:
        params = {"phone": digits(address), "session": self.values["session"]}
        try:
            body = (await self.ask("/api/contacts/check-exists", params)).body
        except CheckFailed as failure:
            raise Refused(NotSent(failure.kind, failure.detail)) from failure
        if body.get("numberExists") is False:
            raise Refused(NotSent(Kind.RECIPIENT_GONE, "This number is not on WhatsApp."))
        return as_text(body.get("chatId")) or chat_id(address, PERSON_SUFFIX)

    async def number_behind(self, hidden: str) -> str:
        if not is_hidden(hidden):
            return ""
        lid = f"{hidden.partition('@')[0].partition(':')[0]}@{HIDDEN}"
        answer = await self.ask(f"/api/{self.session}/lids/{quote(lid, safe='@')}")
        return number_of(lid, answer.body.get("pn"))

    async def _file(self, media: Media) -> dict[str, str | Base64]:
        file: dict[str, str | Base64] = {"mimetype": media.mime, "filename": media.filename}
        link = self.link(media)
        return file | ({"url": link} if link else {"data": await self.encoded(media)})

    # -- videos and voice messages, converted once for all recipients -----------------------------------------

    async def prepare(self, media: Media) -> Handle:
        """Have a video or a voice message converted. Other files need nothing, because WAHA keeps no files.

        The handle is only a note that it was done: the file is kept by `conversion`.
        """
        if media.kind not in conversion.FORMATS:
            return Handle("")
        try:
            await self._converted(media, media.kind)
        except Refused as refused:
            raise UploadFailed(refused.reason) from refused
        return Handle(media.kind, datetime.now(UTC) + HANDLE_LIFE)

    async def _converted(self, media: Media, kind: str, patience: float = conversion.PATIENCE) -> Base64 | None:
        """Return the file in WhatsApp's format, in base64; None where this server converts only while sending."""
        path = conversion.path_of(self.base, media.sha256, kind)
        if WHILE_SENDING.get(self.base, 0.0) > time.monotonic():
            return None
        if path not in CONVERTED:
            link = self.link(media)
            order = conversion.Order(
                url=f"{self.base}/api/{self.session}/media/convert/{conversion.FORMATS[kind].name}",
                headers=self.headers | {"Accept": conversion.FORMATS[kind].mime},
                body={"url": link} if link else {"data": await self.encoded(media)},
                filename=media.filename,
                path=path,
                judge=partial(not_converted, media.filename),
            )
            if not await conversion.convert(order, patience):
                WHILE_SENDING[self.base] = time.monotonic() + VERSION_SECONDS
                return None
            CONVERTED[path] = await asyncio.to_thread(conversion.encoded, path, media.filename)
            while len(CONVERTED) > 1 and sum(map(len, CONVERTED.values())) > MOST_CONVERTED:
                CONVERTED.pop(next(iter(CONVERTED)))
        return CONVERTED[path]

    def outcome_of(self, answer: Answer, part: Part) -> Outcome:
        return outcome_of(answer)

    def known_as(self, address: str, answer: Answer) -> str:
        """Return the id from `check-exists`, which the message went to."""
        chat = self._chats.get(address, "")
        return chat if is_hidden(chat) else address_of(chat)

    def refusal(self, answer: Answer) -> NotSent:
        return refusal(answer)

    async def groups(self) -> list[Group]:
        listed: dict[str, Group] = {}
        while True:
            page = await self._page(len(listed))
            new = {group.address: group for group in page if group.address not in listed}
            listed |= new
            if len(page) < PAGE or not new:
                return list(listed.values())

    async def contacts(self) -> list[Contact]:
        listed: dict[str, Contact] = {}
        for offset in range(0, MOST_CONTACTS, PAGE):
            params = {"session": self.values["session"], "limit": str(PAGE), "offset": str(offset), "sortBy": "id"}
            items = (await self.ask("/api/contacts/all", params)).body.get("items", [])
            listed |= {contact.address: contact for contact in map(contact_of, items) if contact is not None}
            if len(items) != PAGE:
                break
        return list(listed.values())

    async def _page(self, offset: int) -> list[Group]:
        params = {"limit": str(PAGE), "offset": str(offset), "sortBy": "id", "exclude": "participants"}
        body = (await self.ask(f"/api/{self.session}/groups", params)).body
        # NOWEB of 2024 answered an object by JID.
        items = body["items"] if "items" in body else list(body.values())
        return [group_of(item) for item in items if isinstance(item, dict)]


def takes_ids(base: str) -> bool:
    """Return whether the server takes ids of ours with texts, as far as its version is known."""
    version = VERSIONS.get(base, NO_VERSION)
    numbers = tuple(map(int, re.findall(r"[0-9]{1,6}", version.number)[:3]))
    return version.engine in TAKING_IDS and numbers >= TAKES_IDS_SINCE


def own_id(message_id: str) -> str:
    """Return the WhatsApp id of a message of ours, the same for every try, in the form that linked devices give."""
    return f"3EB0{hashlib.blake2s(message_id.encode(), digest_size=9).hexdigest().upper()}"


def file_of(media: Media, kind: str, converted: Base64) -> dict[str, str | Base64]:
    made = conversion.FORMATS[kind]
    return {
        "mimetype": made.mime,
        "filename": f"{PurePosixPath(media.filename).stem}{made.suffix}",
        "data": converted,
    }


def not_converted(filename: str, answer: Answer) -> NotSent | None:
    """Return why the gateway did not convert a file; None where it converts only while sending."""
    if NO_CONVERSION.search(words(answer)):
        return None
    if answer.status != 500:
        return refusal(answer)
    why = words(answer) or "HTTP 500"
    return NotSent(certain_kind(why) or Kind.UNKNOWN, f"WAHA could not convert “{filename}”: {why}")


def contact_of(item: Any) -> Contact | None:
    """Return a contact, or None for people outside the address book: WAHA also lists people seen in groups.

    WEBJS says which is which. GOWS and NOWEB do not, but only people in the address book have a name there; the name
    that people gave themselves is `pushname`.
    """
    address, name = address_of(dig(item, "id")), as_text(dig(item, "name"))
    if not address or is_group(address):
        return None
    saved = item["isMyContact"] is True if "isMyContact" in item else bool(name)
    return Contact(address, name or as_text(dig(item, "pushname"))) if saved else None


def group_of(item: dict[str, Any]) -> Group:
    """Return a group. Every engine has its own names for the fields."""
    jid = item.get("JID") or dig(item, "id", "_serialized") or item.get("id")
    name = item.get("Name") or item.get("subject") or item.get("name") or dig(item, "groupMetadata", "subject")
    size = item.get("ParticipantCount") or item.get("size")
    announce = item.get("IsAnnounce") or item.get("announce") or dig(item, "groupMetadata", "announce")
    return Group(as_text(jid), as_text(name), size if isinstance(size, int) else None, announce is True)


# -- meaning of the answers -------------------------------------------------------------------------------


#: Where an answer may have the message's id, by engine and version.
ID_PLACES = (("id",), ("key", "id"), ("_data", "id", "_serialized"), ("_data", "Info", "ID"), ("id", "_serialized"))

KIND_OF_STATUS = {
    400: Kind.CONTENT_REJECTED,
    401: Kind.AUTH,
    403: Kind.AUTH,
    404: Kind.AUTH,  # there is no such session
    413: Kind.CONTENT_REJECTED,
    422: Kind.CONTENT_REJECTED,
    429: Kind.RATE_LIMITED,
}
#: The words of GOWS without the status of its gRPC call: they are whatsmeow's, as in the paired channel.
GRPC_STATUS = re.compile(r"\b\d{1,4} [A-Z_]{1,40}: (?:batch \d{1,9}: )?")
#: Words of the other engines for what certainly did not go out.
CERTAIN = (
    (re.compile(r"rate-overlimit"), Kind.RATE_LIMITED),
    (re.compile(r"No LID for user"), Kind.RECIPIENT_GONE),
    (re.compile(r"PayloadTooLargeError"), Kind.CONTENT_REJECTED),
    # Baileys says so before it writes anything. Without "failed to …" GOWS lost the connection again in its own second
    # try, and the first may have arrived.
    (re.compile(r"^Connection Closed$|failed to .*: websocket not connected"), Kind.UNAVAILABLE),
)


def outcome_of(answer: Answer) -> Outcome:
    if answer.status in (200, 201):
        message = id_in(answer.body)
        # WEBJS has answered 201 with an empty body and sent the message.
        return Sent(message) if message else Unknown("accepted without an id")
    if answer.status in KIND_OF_STATUS:
        return refusal(answer)
    kind = certain_kind(words(answer)) if answer.status == 500 else None
    return NotSent(kind, words(answer)) if kind else Unknown(f"HTTP {answer.status} {words(answer)}".strip())


def refusal(answer: Answer) -> NotSent:
    """Return the meaning of an answer which certainly says that nothing was sent."""
    wait = as_number(answer.retry_after)
    if answer.status == 422 and "expected" in answer.body:
        return NotSent(Kind.UNAVAILABLE, f"The session is {answer.body.get('status')}, not WORKING.", wait)
    kind = KIND_OF_STATUS.get(answer.status) or certain_kind(words(answer)) or Kind.UNAVAILABLE
    return NotSent(kind, f"HTTP {answer.status} {words(answer)}".strip(), wait)


def certain_kind(message: str) -> Kind | None:
    """Return the kind, or None where the message may have gone out, as after a time-out of the library."""
    for pattern, kind in CERTAIN:
        if pattern.search(message):
            return kind
    outcome = outcome_of_error(GRPC_STATUS.sub("", message, count=1))
    return outcome.kind if isinstance(outcome, NotSent) else None


def words(answer: Answer) -> str:
    message = dig(answer.body, "exception", "message") or answer.body.get("message") or answer.body.get("error")
    return ", ".join(map(str, message)) if isinstance(message, list) else as_text(message)


def id_in(body: Any) -> str:
    """Return WhatsApp's own id of a message, however the engine wraps it."""
    return next((short_id(value) for place in ID_PLACES if (value := as_text(dig(body, *place)))), "")


def short_id(serialised: str) -> str:
    """Return the third part of true_<chat>_<id>_<participant>: receipts name it, with chats written in two ways."""
    parts = serialised.split("_")
    return parts[2] if len(parts) >= 3 and parts[0] in ("true", "false") else serialised
