"""Transport of WhatsApp's Cloud API, and the meaning of Meta's answers.

A file is uploaded once, and its id is valid for 30 days. There is no idempotency key, but the message id that we send
comes back with the receipts. Meta's error code decides what an answer means, because the HTTP status says little.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
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
from accounts.channels.paired import address_of, version_warning
from accounts.channels.templates import (
    WINDOW_CLOSED,
    Template,
    Unfit,
    Way,
    content,
    own_template,
    template_in,
    template_of,
    way_to,
    with_text,
)

#: A day less than Meta keeps it: a run that begins today may continue tomorrow.
HANDLE_LIFE = timedelta(days=29)
UPLOAD_SECONDS = 120.0
SENDING_STATES = (None, "CONNECTED", "FLAGGED")
PAGE = 500
MOST_PAGES = 20
MOST_BUSINESSES = 10
#: The version whose answers are in tests/gateways/captures/cloud.py.
TESTED = "v23.0"
TEMPLATE_PAGE = 250
TEMPLATE_FIELDS = "name,language,status,category,parameter_format,components"
NO_BUSINESS = "Enter the WhatsApp Business account ID among the account's settings: its templates are read from there."
#: Characters of a text and of a caption (developers.facebook.com/documentation/business-messaging/whatsapp/messages).
MOST_TEXT, MOST_CAPTION = 4096, 1024
#: The error of a free text to a person who has not written within 24 hours, and what it means: as before the call.
TOO_LATE = 131047
OUTSIDE = NotSent(Kind.NOT_WRITABLE, WINDOW_CLOSED)
NO_CAPTION = "Meta's audio has no caption: send the text as a part of its own"


class CloudTransport(Gateway):
    channel = CHANNEL

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.secrets['access_token']}"}

    @property
    def number(self) -> str:
        """Return the path of the number; most other paths are below it."""
        return f"{self.version}/{quote(self.values['phone_number_id'], safe='')}"

    @property
    def version(self) -> str:
        return f"/{quote(self.values['version'], safe='')}"

    async def check(self) -> str:
        fields = "verified_name,display_phone_number,status,quality_rating"
        answer = await self.ask(self.number, {"fields": fields})
        body, version = answer.body, answer.version or self.values["version"]
        if body.get("status") not in SENDING_STATES:
            raise CheckFailed(Kind.UNAVAILABLE, f"Meta says that this number is {body.get('status')}.")
        name, number = body.get("verified_name"), as_text(body.get("display_phone_number"))
        return f"WhatsApp Cloud API {version} as {name} {number}".strip() + version_warning("version", version, TESTED)

    async def learn(self) -> dict[str, str]:
        """Return the id of the business account that has this number, where the settings lack it."""
        if self.values["business_account_id"]:
            return {}
        for business in await self._businesses():
            params = {"fields": "id", "limit": str(PAGE)}
            try:
                numbers = (await self.ask(f"{self.version}/{quote(business, safe='')}/phone_numbers", params)).body
            except CheckFailed:
                continue
            if any(as_text(dig(number, "id")) == self.values["phone_number_id"] for number in listed(numbers, "data")):
                return {"business_account_id": business}
        return {}

    async def _businesses(self) -> list[str]:
        """Return the business accounts that the access token is for."""
        params = {"input_token": self.secrets["access_token"]}
        scopes = listed((await self.ask(f"{self.version}/debug_token", params)).body.get("data"), "granular_scopes")
        ours = [scope for scope in scopes if as_text(dig(scope, "scope")).startswith("whatsapp_business_")]
        ids = [as_text(target) for scope in ours for target in listed(scope, "target_ids")]
        return list(dict.fromkeys(filter(None, ids)))[:MOST_BUSINESSES]

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

    def fit(self, part: Part, last_wrote_at: datetime | None, now: datetime) -> Part | NotSent:
        if last_wrote_at is None and not self.secrets["app_secret"]:
            # Webhooks are refused without it, so that the account gets no message: Meta has to judge.
            return part
        way = way_to(last_wrote_at, self._template_for(part) is not None, now)
        if way is Way.FREE:
            return replace(part, free=True)
        return part if way is Way.TEMPLATE else OUTSIDE

    def unfit(self, part: Part) -> NotSent | None:
        try:
            self._content(part)
        except Refused as refused:
            return refused.reason
        return None

    def _template_for(self, part: Part) -> tuple[Template, Mapping[str, str] | None] | None:
        """Return the part's template with its values, or for a text the account's, whose only variable it becomes: then
        there are no values."""
        if part.free:
            return None
        if part.template:
            return template_in(part.template), part.template.get("values", {})
        own = own_template(self.values, self.account.own_template) if part.kind == "text" else None
        return (own, None) if own else None

    def _content(self, part: Part) -> dict[str, Any]:
        if chosen := self._template_for(part):
            file = None if part.media is None else file_of(replace(part, text=""), part.media)
            template, values = chosen
            try:
                return content(template, with_text(template, part.text) if values is None else values, file)
            except Unfit as reason:
                raise Refused(NotSent(Kind.CONTENT_REJECTED, str(reason))) from reason
        if problem := text_problem(part):
            raise Refused(NotSent(Kind.CONTENT_REJECTED, problem))
        if part.media is not None:
            return {"type": part.kind, part.kind: file_of(part, part.media)}
        return {"type": "text", "text": {"body": part.text}}

    def outcome_of(self, answer: Answer, part: Part) -> Outcome:
        if code_of(answer) == TOO_LATE and self._template_for(part) is None and not part.template:
            return OUTSIDE
        return outcome_of(answer)

    def known_as(self, address: str, answer: Answer) -> str:
        contacts = answer.body.get("contacts")
        return address_of(dig(contacts[0], "wa_id")) if isinstance(contacts, list) and contacts else ""

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

    async def templates(self) -> list[Template]:
        """Return the templates of the business account, also those that cannot be used (`Template.unusable`)."""
        business = self.values["business_account_id"]
        if not business:
            raise CheckFailed(Kind.AUTH, NO_BUSINESS)
        path = f"{self.version}/{quote(business, safe='')}/message_templates"
        found: list[Template] = []
        params = {"fields": TEMPLATE_FIELDS, "limit": str(TEMPLATE_PAGE)}
        for _ in range(MOST_PAGES):
            body = (await self.ask(path, params)).body
            page = body.get("data")
            found += filter(None, map(template_of, page if isinstance(page, list) else []))
            after = as_text(dig(body, "paging", "cursors", "after"))
            # The address of the next page has the token in it: only the cursor is taken from there.
            if not after or not dig(body, "paging", "next"):
                break
            params["after"] = after
        return found


def listed(value: Any, name: str) -> list[Any]:
    items = dig(value, name)
    return items if isinstance(items, list) else []


def text_problem(part: Part) -> str:
    """Return why Meta would not take a text or a caption, in a sentence, or ""."""
    if part.kind == "audio":
        return NO_CAPTION if part.text else ""
    what, most = ("text", MOST_TEXT) if part.media is None else ("caption", MOST_CAPTION)
    if part.media is None and not part.text.strip():
        return "The text is empty for this person: Meta takes no empty messages."
    if len(part.text) > most:
        return f"The {what} has {len(part.text):,} characters for this person; Meta takes at most {most:,}."
    return ""


def file_of(part: Part, media: Media) -> dict[str, Any]:
    """Return an uploaded file with the fields that its kind takes."""
    file: dict[str, Any] = {"id": part.handle}
    if part.text:
        file["caption"] = part.text
    return file | ({"filename": media.filename} if part.kind == "document" else {})


def group_of(item: Any) -> Group:
    return Group(as_text(dig(item, "id")), as_text(dig(item, "subject")))


# -- meaning of the answers -------------------------------------------------------------------------------


class Meaning(NamedTuple):
    """What one of Meta's error codes says: the kind, advice for the operator, and seconds to wait where it has none."""

    kind: Kind
    advice: str = ""
    wait: float | None = None


DAY = 86_400.0
TOKEN = Meaning(Kind.AUTH, "Create a new access token and enter it among the account's credentials.")
PERMISSION = Meaning(
    Kind.AUTH, "The access token lacks a permission: give the system user whatsapp_business_messaging and a new token."
)
RESTRICTED = Meaning(Kind.BANNED, "Meta has restricted the business account: its Business Support Home says why.")
TOO_FAST = Meaning(Kind.RATE_LIMITED, "Meta limits how often this app or account may call: sending slows down.")
DOWN = Meaning(Kind.UNAVAILABLE)
GONE = Meaning(Kind.RECIPIENT_GONE)
CONTENT = Meaning(Kind.CONTENT_REJECTED)
UNREGISTERED = Meaning(Kind.AUTH, "The number is not registered with the Cloud API: register it in WhatsApp Manager.")

#: Documented at developers.facebook.com/documentation/business-messaging/whatsapp/support/error-codes; 17 and 613 in
#: Graph API's own list, 80008 in that of the rate limits.
MEANINGS = {
    # the account
    0: TOKEN,
    190: TOKEN,
    3: PERMISSION,
    10: PERMISSION,
    131005: PERMISSION,
    33: Meaning(Kind.AUTH, "Meta does not know this number, or it was deleted: check the account's phone number ID."),
    131037: Meaning(Kind.AUTH, "Meta has not approved the number's display name: request it in WhatsApp Manager."),
    131042: Meaning(Kind.AUTH, "Meta has no valid means of payment: add one to the business account."),
    131045: UNREGISTERED,
    133010: UNREGISTERED,
    368: RESTRICTED,
    131031: RESTRICTED,
    131048: Meaning(
        Kind.BANNED, "Too many people blocked or reported this number: WhatsApp Manager shows its quality."
    ),
    # too fast, or Meta is down
    4: TOO_FAST,
    17: TOO_FAST,
    613: TOO_FAST,
    80007: TOO_FAST,
    80008: TOO_FAST,
    130429: TOO_FAST,
    131064: TOO_FAST,
    131208: TOO_FAST,
    133016: TOO_FAST,
    2: DOWN,
    131016: DOWN,
    131057: DOWN,
    # this person
    131049: Meaning(
        Kind.RECIPIENT_LIMITED,
        "WhatsApp limits how many marketing messages one person gets: the next try is a day later.",
        DAY,
    ),
    131056: Meaning(Kind.RECIPIENT_LIMITED, "Too many messages to this person within seconds.", 6.0),
    130497: Meaning(Kind.NOT_WRITABLE, "This business account may not write to people in this person's country."),
    131030: Meaning(
        Kind.NOT_WRITABLE,
        "Meta's test numbers reach only the numbers on their list: add this person there, or use a number of your own.",
    ),
    131020: GONE,
    131021: GONE,  # it is the sender itself
    131026: GONE,
    131041: GONE,
    131207: GONE,
    130472: Meaning(
        Kind.RECIPIENT_GONE, "Meta leaves this person out of marketing messages, as part of an experiment."
    ),
    131050: Meaning(Kind.OPTED_OUT, "This person has stopped marketing messages of this business in WhatsApp."),
    # the content
    100: CONTENT,
    131008: CONTENT,
    131009: CONTENT,
    TOO_LATE: Meaning(Kind.NOT_WRITABLE, "Only a template reaches people who have not written within 24 hours."),
    131051: CONTENT,
    131052: CONTENT,
    131053: CONTENT,
    131063: Meaning(
        Kind.CONTENT_REJECTED, "Meta takes no marketing templates from this account: use a utility template."
    ),
    131215: CONTENT,
}
#: Errors on Meta's side that may have come before or after the message was sent.
UNCERTAIN_CODES = (1, 131000)
#: Everything about templates: missing, paused, wrong variables.
TEMPLATE_CODES = range(132000, 133000)
#: Permissions of the app.
PERMISSION_CODES = range(200, 300)


def outcome_of(answer: Answer) -> Outcome:
    if answer.status == 200:
        messages = answer.body.get("messages")
        message = as_text(dig(messages[0], "id")) if isinstance(messages, list) and messages else ""
        return Sent(message) if message else Unknown("accepted without an id")
    if kind_of(code_of(answer)) or is_certain(answer):
        return refusal(answer)
    return Unknown(words(answer))


def is_certain(answer: Answer) -> bool:
    """Return whether an error without a documented code says that nothing was sent.

    A time-out and Meta's errors without a cause leave that open. 503 is Meta's answer while it takes no requests.
    """
    refused = 400 <= answer.status < 500 and answer.status != 408
    return (refused or answer.status == 503) and code_of(answer) not in UNCERTAIN_CODES


def refusal(answer: Answer) -> NotSent:
    """Return the meaning of an answer which certainly says that nothing was sent."""
    meaning = meaning_of(code_of(answer))
    if meaning is None:
        meaning = Meaning(Kind.UNAVAILABLE if answer.status >= 500 else Kind.UNKNOWN)
    wait = as_number(answer.retry_after)
    return NotSent(meaning.kind, words(answer), meaning.wait if wait is None else wait)


def kind_of(code: Any) -> Kind | None:
    meaning = meaning_of(code)
    return meaning.kind if meaning else None


def meaning_of(code: Any) -> Meaning | None:
    """Return the meaning of a documented code; None for any other value."""
    if not isinstance(code, int) or isinstance(code, bool):
        return None
    if code in TEMPLATE_CODES:
        return CONTENT
    return PERMISSION if code in PERMISSION_CODES else MEANINGS.get(code)


def code_of(answer: Answer) -> Any:
    return dig(answer.body, "error", "code")


def words(answer: Answer) -> str:
    error = answer.body.get("error")
    return f"HTTP {answer.status} {words_of(error)}".strip()


def words_of(error: Any) -> str:
    """Return Meta's own words, the message and its details, and the advice for this code."""
    message = as_text(dig(error, "message")) or as_text(dig(error, "title"))
    details = as_text(dig(error, "error_data", "details"))
    code = as_text(dig(error, "code"))
    said = ": ".join(filter(None, [message, details if details != message else ""]))
    meaning = meaning_of(dig(error, "code"))
    named = f"{said} ({code})" if code and code not in said else said
    return f"{named.rstrip('.')}. {meaning.advice}" if meaning and meaning.advice else named
