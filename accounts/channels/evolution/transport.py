"""Evolution API v2. The gateway has no media handles, and the id of a message cannot be chosen."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from accounts.channels.base import CheckFailed, Group, Kind, NotSent, Outcome, Part
from accounts.channels.evolution import answers
from accounts.channels.evolution.channel import CHANNEL
from accounts.channels.gateway import Call, Gateway, call
from accounts.channels.http import Answer, as_text, dig
from accounts.channels.jids import address_of, chat_id


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
        return f"Evolution instance {self.values['instance']} {await self._number()}".strip()

    async def _number(self) -> str:
        """The paired number; nothing where this server does not say it."""
        try:
            answer = await self.ask("/instance/fetchInstances", {"instanceName": self.values["instance"]})
        except CheckFailed:
            return ""
        owners = [address_of(dig(item, "ownerJid")) for item in answer.body.get("items", [])]
        return next(filter(None, owners), "")

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
        return answers.outcome_of(answer, part.media is not None)

    def refusal(self, answer: Answer) -> NotSent:
        return answers.refusal(answer)

    async def groups(self) -> list[Group]:
        # The parameter is mandatory. There are no pages.
        answer = await self.ask(f"/group/fetchAllGroups/{self.instance}", {"getParticipants": "false"})
        return [group_of(item) for item in answer.body.get("items", []) if isinstance(item, dict)]


def group_of(item: dict[str, Any]) -> Group:
    size, announce = item.get("size"), item.get("announce") is True
    return Group(
        as_text(item.get("id")), as_text(item.get("subject")), size if isinstance(size, int) else None, announce
    )
