"""Transport of LinkedIn through Unipile: messages, InMail, and connection requests with a note.

LinkedIn's id of a member is valid for one account only, so it is looked up before the first message to a profile.
The type of an error decides what an answer means.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from urllib.parse import quote, urlsplit

from accounts.actions import Action
from accounts.addresses import MEMBER_ID, PROFILE_PREFIX
from accounts.channels.base import (
    AccountConfig,
    CheckFailed,
    Kind,
    Media,
    NotSent,
    Outcome,
    Part,
    Refused,
    Sent,
    Unknown,
)
from accounts.channels.gateway import Call, Gateway, call, content_of
from accounts.channels.http import Answer, File, as_number, as_text, dig, multipart
from accounts.channels.unipile.channel import CHANNEL, LARGEST_FILE_MB

LONGEST_NOTE = 300
LARGEST_FILE = LARGEST_FILE_MB * 1024 * 1024
#: Version 2 of the API has one address for all customers, other paths and other webhooks.
VERSION_2 = "api.unipile.com"
WRONG_VERSION = (
    "This is the address of version 2 of Unipile's API, and Crier uses version 1. Enter your DSN from Unipile's "
    "dashboard with https://, for example https://api8.unipile.com:13851."
)


class Unipile(Gateway):
    """Base of Unipile's two channels."""

    @property
    def headers(self) -> dict[str, str]:
        return {"X-API-KEY": self.secrets["api_key"], "Accept": "application/json"}

    @property
    def account_id(self) -> str:
        return str(self.values["account_id"])

    async def check(self) -> str:
        if urlsplit(self.base).hostname == VERSION_2:
            raise CheckFailed(Kind.AUTH, WRONG_VERSION)
        body = (await self.ask(f"/api/v1/accounts/{quote(self.account_id, safe='')}")).body
        states = [as_text(dig(source, "status")) for source in listed(body.get("sources"))]
        if wrong := [state for state in states if state != "OK"]:
            kind = Kind.AUTH if "CREDENTIALS" in wrong else Kind.UNAVAILABLE
            raise CheckFailed(kind, f"Unipile says that this account is {wrong[0]}.")
        return f"{self.channel.label} API v1 as {as_text(body.get('name')) or self.account_id}"

    def refusal(self, answer: Answer) -> NotSent:
        return refusal(answer)


class LinkedInTransport(Unipile):
    channel = CHANNEL

    def __init__(self, account: AccountConfig) -> None:
        super().__init__(account)
        self._members: dict[str, str] = {}
        #: the last person who must wait, since something was sent
        self._waiting = ""

    async def send(self, address: str, part: Part, message_id: str) -> Outcome:
        outcome = await super().send(address, part, message_id)
        if isinstance(outcome, Sent):
            self._waiting = ""
        if not isinstance(outcome, NotSent) or outcome.kind is not Kind.RECIPIENT_LIMITED:
            return outcome
        before, self._waiting = self._waiting, address
        # Unipile answers the same about a person and about an account over its limit. A second person in a row means
        # the account.
        about_person = before in ("", address)
        return outcome if about_person else replace(outcome, kind=Kind.RATE_LIMITED, retry_after=LIMIT_SECONDS)

    async def message(self, address: str, part: Part, message_id: str) -> Call:
        if part.action == Action.CONNECTION_REQUEST:
            return await self._invitation(address, part)
        fields = [("account_id", self.account_id), ("text", part.text)]
        if part.action == Action.INMAIL:
            fields += self._inmail(part)
        fields.append(("attendees_ids", await self._member(address)))
        return Call("/api/v1/chats", *multipart(fields, await attachments(part.media)))

    def _inmail(self, part: Part) -> list[tuple[str, str]]:
        """Return the fields that make a message an InMail; raises Refused. Each one costs a credit."""
        if part.index:
            raise Refused(NotSent(Kind.CONTENT_REJECTED, "An InMail is one message: put everything into one part."))
        subject = [("subject", part.subject)] if part.subject else []
        return [*subject, ("linkedin[api]", self.values["product"]), ("linkedin[inmail]", "true")]

    async def _invitation(self, address: str, part: Part) -> Call:
        if part.media is not None or part.index or len(part.text) > LONGEST_NOTE:
            words = f"A connection request takes one text of at most {LONGEST_NOTE} characters, and no file."
            raise Refused(NotSent(Kind.CONTENT_REJECTED, words))
        member = await self._member(address)
        body = {"account_id": self.account_id, "provider_id": member, "message": part.text}
        return call("/api/v1/users/invite", body)

    async def _member(self, address: str) -> str:
        """Return the member's id for this account; raises Refused."""
        name = address.removeprefix(PROFILE_PREFIX)
        if MEMBER_ID.fullmatch(name):
            return name
        if name not in self._members:
            answer = await self.get(f"/api/v1/users/{quote(name, safe='')}", {"account_id": self.account_id})
            self._members[name] = member_of(answer)
        return self._members[name]

    def known_as(self, address: str, answer: Answer) -> str:
        """Return the profile by its member's id, which is all that some reports name."""
        member = self._members.get(address.removeprefix(PROFILE_PREFIX), "")
        return f"{PROFILE_PREFIX}{member}" if member else ""

    def outcome_of(self, answer: Answer, part: Part) -> Outcome:
        if part.action == Action.CONNECTION_REQUEST:
            return outcome_of(answer, "invitation_id", repeatable=True)
        return outcome_of(answer, "message_id", "chat_id")


def member_of(answer: Answer) -> str:
    member = as_text(answer.body.get("provider_id"))
    if answer.status == 200 and member:
        return member
    if answer.status in (404, 422):
        raise Refused(NotSent(Kind.RECIPIENT_GONE, f"There is no such profile: {words(answer)}"))
    if answer.status == 200:
        raise Refused(NotSent(Kind.UNKNOWN, "The profile came without its id."))
    raise Refused(refusal(answer))


async def attachments(media: Media | None) -> list[File]:
    if media is None:
        return []
    if media.size > LARGEST_FILE:
        raise Refused(NotSent(Kind.CONTENT_REJECTED, f"{media.filename} is larger than {LARGEST_FILE_MB} MB."))
    return [File("attachments", media.filename, media.mime, await content_of(media))]


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


# -- meaning of the answers -------------------------------------------------------------------------------


KIND_OF_TYPE = {
    "disconnected_account": Kind.AUTH,
    "expired_credentials": Kind.AUTH,
    "checkpoint_error": Kind.AUTH,
    "invalid_account": Kind.AUTH,
    "payment_error": Kind.AUTH,
    "account_restricted": Kind.BANNED,
    "invalid_recipient": Kind.RECIPIENT_GONE,
    "user_unreachable": Kind.RECIPIENT_GONE,
    "blocked_recipient": Kind.RECIPIENT_GONE,
    "recipient_rejected": Kind.RECIPIENT_GONE,
    "no_connection_with_recipient": Kind.RECIPIENT_GONE,
    "already_invited_recently": Kind.RECIPIENT_GONE,
    "already_connected": Kind.RECIPIENT_GONE,
    "cannot_invite_attendee": Kind.RECIPIENT_GONE,
    "not_allowed_inmail": Kind.RECIPIENT_GONE,
    # The last invitation of this person was withdrawn, or is too recent.
    "cannot_resend_yet": Kind.RECIPIENT_LIMITED,
    "cannot_resend_within_24hrs": Kind.RECIPIENT_LIMITED,
    "insufficient_credits": Kind.RATE_LIMITED,  # of InMail
    "limit_exceeded": Kind.RATE_LIMITED,
    "too_many_requests": Kind.RATE_LIMITED,
    "too_many_characters": Kind.CONTENT_REJECTED,
    "content_too_large": Kind.CONTENT_REJECTED,
}
KIND_OF_STATUS = {
    400: Kind.CONTENT_REJECTED,
    401: Kind.AUTH,
    403: Kind.AUTH,
    404: Kind.AUTH,  # there is no such account
    413: Kind.CONTENT_REJECTED,
    422: Kind.CONTENT_REJECTED,
    429: Kind.RATE_LIMITED,
    503: Kind.UNAVAILABLE,
}
#: A limit of LinkedIn lasts for hours; asking every minute makes it last for days.
LIMIT_SECONDS = 3600.0
DAY_SECONDS = 86_400.0
#: Types of errors that last for a day or more.
DAY_LONG = {"cannot_resend_yet", "cannot_resend_within_24hrs", "insufficient_credits"}


def outcome_of(answer: Answer, *id_names: str, repeatable: bool = False) -> Outcome:
    """Return the outcome. `repeatable`: the provider refuses a second one, so an unclear failure may be tried again."""
    if answer.status in (200, 201):
        ids = [as_text(answer.body.get(name)) for name in id_names]
        named = next(filter(None, ids), "")
        return Sent(named) if named or "object" in answer.body else Unknown("accepted without an id")
    if kind_of(answer) is not None:
        return refusal(answer)
    if answer.status == 500 and repeatable:
        # Over its limit, LinkedIn answers 429 or 500.
        return NotSent(Kind.RATE_LIMITED, words(answer), LIMIT_SECONDS)
    return Unknown(words(answer))


def refusal(answer: Answer) -> NotSent:
    """Return the meaning of an answer which certainly says that nothing was sent."""
    kind = kind_of(answer) or Kind.UNAVAILABLE
    wait = as_number(answer.retry_after)
    if kind in (Kind.RATE_LIMITED, Kind.RECIPIENT_LIMITED) and wait is None:
        wait = DAY_SECONDS if type_of(answer) in DAY_LONG else LIMIT_SECONDS
    return NotSent(kind, words(answer), wait)


def kind_of(answer: Answer) -> Kind | None:
    return KIND_OF_TYPE.get(type_of(answer)) or KIND_OF_STATUS.get(answer.status)


def type_of(answer: Answer) -> str:
    return as_text(answer.body.get("type")).removeprefix("errors/")


def words(answer: Answer) -> str:
    said = [as_text(answer.body.get("title")), as_text(answer.body.get("detail"))]
    return f"HTTP {answer.status} {': '.join(filter(None, said))}".strip()
