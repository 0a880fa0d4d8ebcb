"""Transport of Evolution API v2, and the meaning of its answers.

The gateway has no media handles, and the id of a message cannot be chosen. It sends and then writes to its database,
inside one `try`, and answers 400 with the text of any exception ("Error: …", "PrismaClientKnownRequestError: …"): the
message may have gone out. A 500 comes from its work before that: looking the number up, fetching and converting a file.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Any
from urllib.parse import quote, urlsplit

from django.conf import settings

from accounts.channels.base import CheckFailed, Group, Kind, Media, NotSent, Outcome, Part, Sent, Unknown
from accounts.channels.evolution.channel import CHANNEL
from accounts.channels.gateway import Call, Gateway, call
from accounts.channels.http import Answer, as_number, as_text, dig
from accounts.channels.paired import address_of, chat_id, is_hidden, version_warning

#: The versions whose answers are in tests/gateways/captures/evolution.py.
TESTED = "2.3"


class EvolutionTransport(Gateway):
    channel = CHANNEL

    @property
    def headers(self) -> dict[str, str]:
        return {"apikey": self.secrets["api_key"]}

    @property
    def instance(self) -> str:
        return quote(self.values["instance"], safe="")

    async def check(self) -> str:
        answer = await self.ask(f"/instance/connectionState/{self.instance}")
        state = dig(answer.body, "instance", "state")
        if state != "open":
            raise CheckFailed(Kind.UNAVAILABLE, f"The instance “{self.values['instance']}” is {state}, not open.")
        number, version = await self._number(), await self._version()
        product = f"Evolution {version}".strip()
        who = f"{product} instance {self.values['instance']} {number}".strip()
        return who + version_warning("Evolution", version, TESTED) + link_warning(settings.PUBLIC_URL)

    async def _number(self) -> str:
        """Return the paired number, or "" where this server does not say it."""
        try:
            answer = await self.ask("/instance/fetchInstances", {"instanceName": self.values["instance"]})
        except CheckFailed:
            return ""
        owners = [address_of(dig(item, "ownerJid")) for item in answer.body.get("items", [])]
        return next(filter(None, owners), "")

    async def _version(self) -> str:
        try:
            return as_text((await self.ask("/")).body.get("version"))
        except CheckFailed:
            return ""

    def link(self, media: Media) -> str | None:
        link = super().link(media)
        return link if link and is_fetched(link) else None

    async def message(self, address: str, part: Part, message_id: str) -> Call:
        number = chat_id(address, "")
        if part.media is None:
            return call(f"/message/sendText/{self.instance}", {"number": number, "text": part.text})
        content = self.link(part.media) or await self.encoded(part.media)
        kind = self.channel.sends_as(part.kind, part.text)
        if kind == "audio":
            return call(f"/message/sendWhatsAppAudio/{self.instance}", {"number": number, "audio": content})
        body = {
            "number": number,
            "mediatype": kind,
            "mimetype": part.media.mime,
            "fileName": part.media.filename,
            "caption": part.text,
            "media": content,
        }
        return call(f"/message/sendMedia/{self.instance}", body)

    def outcome_of(self, answer: Answer, part: Part) -> Outcome:
        return outcome_of(answer, part.media is not None)

    def known_as(self, address: str, answer: Answer) -> str:
        """Return the chat that it went to: Evolution spells Brazilian, Argentine and Mexican numbers in its own way."""
        chat = as_text(dig(answer.body, "key", "remoteJid"))
        return chat if is_hidden(chat) else address_of(chat)

    def refusal(self, answer: Answer) -> NotSent:
        return refusal(answer)

    async def groups(self) -> list[Group]:
        # The parameter is mandatory. There are no pages.
        answer = await self.ask(f"/group/fetchAllGroups/{self.instance}", {"getParticipants": "false"})
        return [group_of(item) for item in answer.body.get("items", []) if isinstance(item, dict)]


# -- links to files ---------------------------------------------------------------------------------------


#: A full domain name, as the validator of Evolution (class-validator's isURL) wants it; it also takes IP addresses.
DOMAIN = re.compile(r"(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+(?:[a-z]{2,}|xn[a-z0-9-]{2,})", re.IGNORECASE)


def is_fetched(link: str) -> bool:
    """Return whether Evolution would fetch the link. It takes one with a bare host name for broken base64."""
    host = urlsplit(link).hostname or ""
    return bool(DOMAIN.fullmatch(host)) or is_ip(host)


def is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def link_warning(public_url: str) -> str:
    """Return a warning about an address of ours that Evolution does not accept, as a further sentence, or ""."""
    if not public_url or is_fetched(public_url):
        return ""
    host = urlsplit(public_url).hostname
    return (
        f". Evolution fetches no files from “{host}”, which is not a full domain name: they travel inside each message "
        "until PUBLIC_URL has one."
    )


def group_of(item: dict[str, Any]) -> Group:
    size, announce = item.get("size"), item.get("announce") is True
    return Group(
        as_text(item.get("id")), as_text(item.get("subject")), size if isinstance(size, int) else None, announce
    )


# -- meaning of the answers -------------------------------------------------------------------------------


KIND_OF_STATUS = {
    400: Kind.CONTENT_REJECTED,
    401: Kind.AUTH,
    403: Kind.AUTH,
    404: Kind.AUTH,  # there is no such instance
    413: Kind.CONTENT_REJECTED,
    429: Kind.RATE_LIMITED,
}
#: How an exception's text begins. Node puts its code behind the name ("TypeError [ERR_INVALID_ARG_TYPE]: …"), and one
#: without a message is only its name. Evolution's own exceptions become "[object Object]".
EXCEPTION = re.compile(r"\s*(?:[\w.$]*(?:Error|Exception)\b|\[object )")
#: How the look-up of a number fails, which comes before the send.
KIND_OF_LOOKUP = {"Connection Closed": Kind.UNAVAILABLE, "rate-overlimit": Kind.RATE_LIMITED}
#: The only exception inside the `try` that is certain: WhatsApp's answer to a question that is asked before the send.
TOO_MANY_QUESTIONS = "Error: rate-overlimit"
#: How a 500 begins where WhatsApp did not take a file, which says nothing about the file.
UPLOAD_FAILED = re.compile(r"(?:Error: )?(?:Timed Out|Media upload failed on all hosts)")


def outcome_of(answer: Answer, with_file: bool) -> Outcome:
    if answer.status in (200, 201):
        message = as_text(dig(answer.body, "key", "id"))
        return Sent(message) if message else Unknown("accepted without an id")
    if answer.status == 500:
        return failed_before_sending(answer, with_file)
    if answer.status == 400 and words(answer) == TOO_MANY_QUESTIONS:
        return NotSent(Kind.RATE_LIMITED, detail(answer))
    if answer.status not in KIND_OF_STATUS or in_sending(answer):
        return Unknown(detail(answer))
    return refusal(answer)


def in_sending(answer: Answer) -> bool:
    """Return whether the 400 is an exception, which may have come after the message went out."""
    return answer.status == 400 and any(EXCEPTION.match(text) for text in texts(answer))


def failed_before_sending(answer: Answer, with_file: bool) -> Outcome:
    """Return the meaning of a 500. One without Evolution's own words comes from a proxy, and proves nothing."""
    for words_of_lookup, kind in KIND_OF_LOOKUP.items():
        if words_of_lookup in words(answer):
            return NotSent(kind, detail(answer))
    if not with_file or not entries(answer):
        return Unknown(detail(answer))
    uploading = any(UPLOAD_FAILED.match(text) for text in texts(answer))
    return NotSent(Kind.NETWORK if uploading else Kind.CONTENT_REJECTED, detail(answer))


def refusal(answer: Answer) -> NotSent:
    """Return the meaning of an answer which certainly says that nothing was sent."""
    if any(dig(entry, "exists") is False for entry in entries(answer)):
        return NotSent(Kind.RECIPIENT_GONE, "This number is not on WhatsApp.")
    kind = KIND_OF_STATUS.get(answer.status, Kind.UNAVAILABLE)
    return NotSent(kind, detail(answer), as_number(answer.retry_after))


def detail(answer: Answer) -> str:
    return f"HTTP {answer.status} {words(answer)}".strip()


def words(answer: Answer) -> str:
    return ", ".join(texts(answer))


def texts(answer: Answer) -> list[str]:
    """Return the texts of the answer, from the most exact of the places that have any."""
    said = [as_text(entry) for entry in flat(entries(answer))]
    return list(filter(None, said)) or [as_text(answer.body.get("message")) or as_text(answer.body.get("error"))]


def flat(entries: list[Any]) -> list[Any]:
    """Return the entries, with those of lists among them."""
    return [inner for entry in entries for inner in (entry if isinstance(entry, list) else [entry])]


def entries(answer: Answer) -> list[Any]:
    message = dig(answer.body, "response", "message")
    return message if isinstance(message, list) else [message] if message else []
