"""Transport of WhatsApp's Cloud API, and the meaning of Meta's answers.

A file is uploaded once, and its id is valid for 30 days. There is no idempotency key, but the message id that we send
comes back with the receipts. Meta's error code decides what an answer means, because the HTTP status says little.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from accounts.channels.base import (
    CheckFailed,
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
from accounts.channels.cloud.channel import CHANNEL
from accounts.channels.gateway import Call, Gateway, call, content_of
from accounts.channels.http import Answer, File, as_number, as_text, dig, multipart

#: A day less than Meta keeps it: a run that begins today may continue tomorrow.
HANDLE_LIFE = timedelta(days=29)
UPLOAD_SECONDS = 120.0
SENDING_STATES = (None, "CONNECTED", "FLAGGED")
PAGE = 500
MOST_PAGES = 20
NO_CAPTION = "Meta's audio has no caption: send the text as a part of its own"


class CloudTransport(Gateway):
    channel = CHANNEL

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.secrets['access_token']}"}

    @property
    def number(self) -> str:
        """Return the path of the number; all other paths are below it."""
        return f"/{quote(self.values['version'], safe='')}/{quote(self.values['phone_number_id'], safe='')}"

    async def check(self) -> str:
        fields = "verified_name,display_phone_number,status,quality_rating"
        body = (await self.ask(self.number, {"fields": fields})).body
        if body.get("status") not in SENDING_STATES:
            raise CheckFailed(Kind.UNAVAILABLE, f"Meta says that this number is {body.get('status')}.")
        return f"WhatsApp as {body.get('verified_name')} {as_text(body.get('display_phone_number'))}".strip()

    async def prepare(self, media: Media) -> Handle:
        try:
            file = File("file", media.filename, media.mime, await content_of(media))
        except Refused as refused:
            raise UploadFailed(refused.reason) from refused
        content, mime = multipart([("messaging_product", "whatsapp"), ("type", media.mime)], [file])
        answer = await self.upload(f"{self.number}/media", content, mime, UPLOAD_SECONDS)
        handle = as_text(answer.body.get("id"))
        if answer.status != 200 or not handle:
            raise UploadFailed(refusal(answer))
        return Handle(handle, datetime.now(UTC) + HANDLE_LIFE)

    async def message(self, address: str, part: Part, message_id: str) -> Call:
        to = {"recipient_type": "individual" if address.startswith("+") else "group", "to": address}
        common = {"messaging_product": "whatsapp", "biz_opaque_callback_data": message_id}
        return call(f"{self.number}/messages", common | to | self._content(part))

    def _content(self, part: Part) -> dict[str, Any]:
        if part.kind == "audio" and part.text:
            raise Refused(NotSent(Kind.CONTENT_REJECTED, NO_CAPTION))
        if part.media is not None:
            return {"type": part.kind, part.kind: file_of(part, part.media)}
        if not self.values["template"]:
            return {"type": "text", "text": {"body": part.text}}
        language = {"code": self.values["template_language"]}
        body = {"type": "body", "parameters": [{"type": "text", "text": part.text}]}
        template = {"name": self.values["template"], "language": language, "components": [body]}
        return {"type": "template", "template": template}

    def outcome_of(self, answer: Answer, part: Part) -> Outcome:
        return outcome_of(answer)

    def refusal(self, answer: Answer) -> NotSent:
        return refusal(answer)

    async def groups(self) -> list[Group]:
        """Return the groups. Meta lists only those that were made with the API."""
        listed: list[Group] = []
        params = {"limit": str(PAGE)}
        for _ in range(MOST_PAGES):
            body = (await self.ask(f"{self.number}/groups", params)).body
            page = dig(body, "data", "groups")
            listed += [group_of(item) for item in page] if isinstance(page, list) else []
            after = as_text(dig(body, "paging", "cursors", "after"))
            if not page or not after:
                break
            params["after"] = after
        return listed


def file_of(part: Part, media: Media) -> dict[str, Any]:
    """Return an uploaded file with the fields that its kind takes."""
    file: dict[str, Any] = {"id": part.handle}
    if part.text:
        file["caption"] = part.text
    return file | ({"filename": media.filename} if part.kind == "document" else {})


def group_of(item: Any) -> Group:
    return Group(as_text(dig(item, "id")), as_text(dig(item, "subject")))


# -- meaning of the answers -------------------------------------------------------------------------------


KIND_OF_CODE = {
    # the account
    3: Kind.AUTH,
    10: Kind.AUTH,
    190: Kind.AUTH,  # the token has expired
    131005: Kind.AUTH,
    131042: Kind.AUTH,  # no means of payment
    133010: Kind.AUTH,  # the number is not registered
    368: Kind.BANNED,
    131031: Kind.BANNED,
    131048: Kind.BANNED,  # too many people blocked or reported it
    131064: Kind.BANNED,
    # too fast, or Meta is down
    4: Kind.RATE_LIMITED,
    80007: Kind.RATE_LIMITED,
    130429: Kind.RATE_LIMITED,
    131208: Kind.RATE_LIMITED,
    133016: Kind.RATE_LIMITED,
    131016: Kind.UNAVAILABLE,
    131057: Kind.UNAVAILABLE,
    131056: Kind.SOFT_BOUNCE,  # too many to this one recipient; others go on
    # the recipient
    131026: Kind.RECIPIENT_GONE,
    131021: Kind.RECIPIENT_GONE,  # it is the sender itself
    131050: Kind.RECIPIENT_GONE,  # refuses marketing from us
    130472: Kind.RECIPIENT_GONE,
    131020: Kind.RECIPIENT_GONE,
    131041: Kind.RECIPIENT_GONE,
    131207: Kind.RECIPIENT_GONE,
    131049: Kind.NEW_CHATS_BLOCKED,
    # the content
    100: Kind.CONTENT_REJECTED,
    131008: Kind.CONTENT_REJECTED,
    131009: Kind.CONTENT_REJECTED,
    131047: Kind.CONTENT_REJECTED,  # more than 24 hours since the recipient wrote
    131051: Kind.CONTENT_REJECTED,
    131052: Kind.CONTENT_REJECTED,
    131053: Kind.CONTENT_REJECTED,
    131215: Kind.CONTENT_REJECTED,
}
#: Errors on Meta's side that may have come before or after the message was sent.
UNCERTAIN_CODES = (1, 2, 131000)
#: Everything about templates: missing, paused, wrong variables.
TEMPLATE_CODES = range(132000, 133000)
#: Permissions of the app.
PERMISSION_CODES = range(200, 300)
PAIR_SECONDS = 6.0
TEMPLATE_HINT = " Set a template on the account to reach people who have not written within 24 hours."


def outcome_of(answer: Answer) -> Outcome:
    if answer.status == 200:
        messages = answer.body.get("messages")
        message = as_text(dig(messages[0], "id")) if isinstance(messages, list) and messages else ""
        return Sent(message) if message else Unknown("accepted without an id")
    if kind_of(code_of(answer)) or (400 <= answer.status < 500 and not is_uncertain(answer)):
        return refusal(answer)
    return Unknown(words(answer))


def is_uncertain(answer: Answer) -> bool:
    """Return whether a 4xx leaves open what became of the message: a time-out, or an error without a cause."""
    return answer.status == 408 or code_of(answer) in UNCERTAIN_CODES


def refusal(answer: Answer) -> NotSent:
    """Return the meaning of an answer which certainly says that nothing was sent."""
    code = code_of(answer)
    kind = kind_of(code) or (Kind.UNAVAILABLE if answer.status >= 500 else Kind.UNKNOWN)
    wait = as_number(answer.retry_after)
    if code == 131056 and wait is None:
        wait = PAIR_SECONDS
    return NotSent(kind, words(answer) + (TEMPLATE_HINT if code == 131047 else ""), wait)


def kind_of(code: Any) -> Kind | None:
    if not isinstance(code, int):
        return None
    if code in TEMPLATE_CODES:
        return Kind.CONTENT_REJECTED
    return Kind.AUTH if code in PERMISSION_CODES else KIND_OF_CODE.get(code)


def code_of(answer: Answer) -> Any:
    return dig(answer.body, "error", "code")


def words(answer: Answer) -> str:
    error = answer.body.get("error")
    return f"HTTP {answer.status} {words_of(error)}".strip()


def words_of(error: Any) -> str:
    """Return Meta's own words: the message and its details."""
    message = as_text(dig(error, "message")) or as_text(dig(error, "title"))
    details = as_text(dig(error, "error_data", "details"))
    code = as_text(dig(error, "code"))
    said = ": ".join(filter(None, [message, details if details != message else ""]))
    return f"{said} ({code})" if code and code not in said else said
