"""LinkedIn by Unipile: messages, and connection requests with a note.

LinkedIn has an id for a member that holds for one account only: it is looked up before the first message to a profile.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from accounts.actions import Action
from accounts.addresses import MEMBER_ID, PROFILE_PREFIX
from accounts.channels.base import AccountConfig, CheckFailed, Kind, Media, NotSent, Outcome, Part, Refused
from accounts.channels.gateway import Call, Gateway, call, content_of
from accounts.channels.http import Answer, as_text, dig
from accounts.channels.multipart import File, multipart
from accounts.channels.unipile import answers
from accounts.channels.unipile.channel import CHANNEL, LARGEST_FILE_MB

LONGEST_NOTE = 300
LARGEST_FILE = LARGEST_FILE_MB * 1024 * 1024


class Unipile(Gateway):
    """What both of its channels share."""

    @property
    def headers(self) -> dict[str, str]:
        return {"X-API-KEY": self.secrets["api_key"], "Accept": "application/json"}

    @property
    def account_id(self) -> str:
        return str(self.values["account_id"])

    async def check(self) -> str:
        body = (await self.ask(f"/api/v1/accounts/{quote(self.account_id, safe='')}")).body
        states = [as_text(dig(source, "status")) for source in listed(body.get("sources"))]
        if wrong := [state for state in states if state != "OK"]:
            kind = Kind.AUTH if "CREDENTIALS" in wrong else Kind.UNAVAILABLE
            raise CheckFailed(kind, f"Unipile says that this account is {wrong[0]}.")
        return f"{self.channel.label} as {as_text(body.get('name')) or self.account_id}"

    def refusal(self, answer: Answer) -> NotSent:
        return answers.refusal(answer)


class LinkedInTransport(Unipile):
    channel = CHANNEL

    def __init__(self, account: AccountConfig) -> None:
        super().__init__(account)
        self._members: dict[str, str] = {}

    async def message(self, address: str, part: Part, message_id: str) -> Call:
        if part.action == Action.CONNECTION_REQUEST:
            return await self._invitation(address, part)
        fields = [("account_id", self.account_id), ("text", part.text)]
        fields.append(("attendees_ids", await self._member(address)))
        return Call("/api/v1/chats", *multipart(fields, await attachments(part.media)))

    async def _invitation(self, address: str, part: Part) -> Call:
        if part.media is not None or part.index or len(part.text) > LONGEST_NOTE:
            words = f"A connection request takes one text of at most {LONGEST_NOTE} characters, and no file."
            raise Refused(NotSent(Kind.CONTENT_REJECTED, words))
        member = await self._member(address)
        body = {"account_id": self.account_id, "provider_id": member, "message": part.text}
        return call("/api/v1/users/invite", body)

    async def _member(self, address: str) -> str:
        """The member's id for this account; raises Refused."""
        name = address.removeprefix(PROFILE_PREFIX)
        if MEMBER_ID.fullmatch(name):
            return name
        if name not in self._members:
            answer = await self.get(f"/api/v1/users/{quote(name, safe='')}", {"account_id": self.account_id})
            self._members[name] = member_of(answer)
        return self._members[name]

    def outcome_of(self, answer: Answer, part: Part) -> Outcome:
        if part.action == Action.CONNECTION_REQUEST:
            return answers.outcome_of(answer, "invitation_id", repeatable=True)
        return answers.outcome_of(answer, "message_id", "chat_id")


def member_of(answer: Answer) -> str:
    member = as_text(answer.body.get("provider_id"))
    if answer.status == 200 and member:
        return member
    if answer.status in (404, 422):
        raise Refused(NotSent(Kind.RECIPIENT_GONE, f"There is no such profile: {answers.words(answer)}"))
    if answer.status == 200:
        raise Refused(NotSent(Kind.UNKNOWN, "The profile came without its id."))
    raise Refused(answers.refusal(answer))


async def attachments(media: Media | None) -> list[File]:
    if media is None:
        return []
    if media.size > LARGEST_FILE:
        raise Refused(NotSent(Kind.CONTENT_REJECTED, f"{media.filename} is larger than {LARGEST_FILE_MB} MB."))
    return [File("attachments", media.filename, media.mime, await content_of(media))]


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
