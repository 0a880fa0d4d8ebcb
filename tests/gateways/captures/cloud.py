"""Answers and webhooks in the shapes of Meta's documentation, each with the page that describes it.

All names, numbers and ids are invented. Pages are below developers.facebook.com.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from accounts.channels.base import Kind

PLATFORM = "documentation/business-messaging/whatsapp"
ERROR_CODES = f"{PLATFORM}/support/error-codes"
GRAPH_ERRORS = "docs/graph-api/guides/error-handling"
RATE_LIMITS = "docs/graph-api/overview/rate-limiting"
GROUPS = f"{PLATFORM}/groups/error-codes"


class ErrorCapture(NamedTuple):
    """An answer to a send, and its meaning; None stands for an unknown outcome."""

    page: str
    status: int
    code: int
    title: str
    kind: Kind | None
    #: words of the sentence that tells the operator what to do; empty where Meta's own words say it
    advice: str = ""
    wait: float | None = None

    def body(self) -> dict[str, Any]:
        return {
            "error": {
                "message": f"(#{self.code}) {self.title}",
                "type": "OAuthException",
                "code": self.code,
                "error_data": {"messaging_product": "whatsapp", "details": f"Details about {self.title.lower()}."},
                "fbtrace_id": "AbCdEfGhIjK",
            }
        }


ERRORS = (
    # the account
    ErrorCapture(ERROR_CODES, 401, 0, "AuthException", Kind.AUTH, "new access token"),
    ErrorCapture(ERROR_CODES, 401, 190, "Access token has expired", Kind.AUTH, "new access token"),
    ErrorCapture(ERROR_CODES, 500, 3, "API Method", Kind.AUTH, "whatsapp_business_messaging"),
    ErrorCapture(ERROR_CODES, 403, 10, "Permission Denied", Kind.AUTH, "whatsapp_business_messaging"),
    ErrorCapture(ERROR_CODES, 403, 200, "API Permission", Kind.AUTH, "whatsapp_business_messaging"),
    ErrorCapture(ERROR_CODES, 403, 131005, "Access denied", Kind.AUTH, "whatsapp_business_messaging"),
    ErrorCapture(ERROR_CODES, 400, 33, "Parameter value is not valid", Kind.AUTH, "phone number ID"),
    ErrorCapture(ERROR_CODES, 400, 131037, "Display name approval needed", Kind.AUTH, "display name"),
    ErrorCapture(ERROR_CODES, 400, 131042, "Business eligibility payment issue", Kind.AUTH, "means of payment"),
    ErrorCapture(ERROR_CODES, 500, 131045, "Incorrect certificate", Kind.AUTH, "register it"),
    ErrorCapture(ERROR_CODES, 400, 133010, "Phone number not registered", Kind.AUTH, "register it"),
    ErrorCapture(ERROR_CODES, 403, 368, "Temporarily blocked for policies violations", Kind.BANNED, "restricted"),
    ErrorCapture(ERROR_CODES, 403, 131031, "Business account has been locked", Kind.BANNED, "restricted"),
    ErrorCapture(ERROR_CODES, 400, 131048, "Spam rate limit hit", Kind.BANNED, "blocked or reported"),
    # too fast, or Meta is down
    ErrorCapture(ERROR_CODES, 400, 4, "API Too Many Calls", Kind.RATE_LIMITED, "slows down"),
    ErrorCapture(GRAPH_ERRORS, 400, 17, "User request limit reached", Kind.RATE_LIMITED, "slows down"),
    ErrorCapture(RATE_LIMITS, 400, 613, "Calls to this API have exceeded the limit", Kind.RATE_LIMITED, "slows down"),
    ErrorCapture(ERROR_CODES, 400, 80007, "Rate limit issues", Kind.RATE_LIMITED, "slows down"),
    ErrorCapture(RATE_LIMITS, 400, 80008, "Too many calls to this account", Kind.RATE_LIMITED, "slows down"),
    ErrorCapture(ERROR_CODES, 429, 130429, "Rate limit hit", Kind.RATE_LIMITED, "slows down"),
    ErrorCapture(ERROR_CODES, 400, 131064, "Account is throttled", Kind.RATE_LIMITED, "slows down"),
    ErrorCapture(ERROR_CODES, 503, 2, "API Service", Kind.UNAVAILABLE),
    ErrorCapture(ERROR_CODES, 500, 131016, "Service unavailable", Kind.UNAVAILABLE),
    ErrorCapture(ERROR_CODES, 500, 131057, "Account in maintenance mode", Kind.UNAVAILABLE),
    ErrorCapture(ERROR_CODES, 500, 1, "API Unknown", None),
    ErrorCapture(ERROR_CODES, 500, 131000, "Something went wrong", None),
    # this person
    ErrorCapture(
        ERROR_CODES, 400, 131049, "Meta chose not to deliver", Kind.RECIPIENT_LIMITED, "a day later", wait=86_400.0
    ),
    ErrorCapture(
        ERROR_CODES, 400, 131056, "Pair rate limit hit", Kind.RECIPIENT_LIMITED, "Too many messages", wait=6.0
    ),
    ErrorCapture(ERROR_CODES, 403, 130497, "Restricted in this country", Kind.NOT_WRITABLE, "this person's country"),
    ErrorCapture(ERROR_CODES, 400, 131030, "Recipient not in allowed list", Kind.NOT_WRITABLE, "test numbers"),
    ErrorCapture(ERROR_CODES, 400, 131026, "Message undeliverable", Kind.RECIPIENT_GONE),
    ErrorCapture(ERROR_CODES, 400, 131050, "User has stopped marketing", Kind.OPTED_OUT, "stopped marketing"),
    ErrorCapture(ERROR_CODES, 400, 130472, "User is part of an experiment", Kind.RECIPIENT_GONE, "experiment"),
    ErrorCapture(GROUPS, 403, 131207, "Group is suspended", Kind.RECIPIENT_GONE),
    # the content
    ErrorCapture(ERROR_CODES, 400, 100, "Invalid parameter", Kind.CONTENT_REJECTED),
    ErrorCapture(ERROR_CODES, 400, 131047, "Re-engagement message", Kind.NOT_WRITABLE, "Only a template"),
    ErrorCapture(ERROR_CODES, 400, 131051, "Unsupported message type", Kind.CONTENT_REJECTED),
    ErrorCapture(ERROR_CODES, 400, 131063, "Marketing is disabled", Kind.CONTENT_REJECTED, "utility template"),
    ErrorCapture(ERROR_CODES, 404, 132001, "Template does not exist", Kind.CONTENT_REJECTED),
    ErrorCapture(ERROR_CODES, 400, 132015, "Template is paused", Kind.CONTENT_REJECTED),
)


# -- webhooks ---------------------------------------------------------------------------------------------


WEBHOOKS = f"{PLATFORM}/webhooks/reference"
MESSAGES = f"{WEBHOOKS}/messages"
NUMBER_ID, BUSINESS_ID = "10200", "20400"
PERSON = "4917612345678"
AT = 1_780_000_000


class HookCapture(NamedTuple):
    """A change that Meta reports, and the events in it: kind, text, and the values of `detail` that matter."""

    name: str
    page: str
    field: str
    value: dict[str, Any]
    events: tuple[tuple[str, str, dict[str, Any]], ...] = ()

    def body(self, business: str = BUSINESS_ID) -> dict[str, Any]:
        entry = {"id": business, "time": AT, "changes": [{"field": self.field, "value": self.value}]}
        return {"object": "whatsapp_business_account", "entry": [entry]}


def of_number(number: str = NUMBER_ID, **more: Any) -> dict[str, Any]:
    metadata = {"display_phone_number": "4930123456", "phone_number_id": number}
    contacts = [{"profile": {"name": "Ana"}, "wa_id": PERSON}]
    return {"messaging_product": "whatsapp", "metadata": metadata, "contacts": contacts, **more}


def message(name: str, page: str, kind: str, *events: tuple[str, str, dict[str, Any]], **content: Any) -> HookCapture:
    one = {"from": PERSON, "id": f"wamid.{name}", "timestamp": str(AT), "type": kind, **content}
    return HookCapture(name, f"{MESSAGES}/{page}", "messages", of_number(messages=[one]), events)


def reply(text: str = "") -> tuple[str, str, dict[str, Any]]:
    return "reply", text, {}


def preference(value: str, **detail: Any) -> HookCapture:
    words = f"The person asked to {value} marketing messages"
    wish = {"wa_id": PERSON, "detail": words, "category": "marketing_messages", "value": value, "timestamp": AT}
    events = (("unsubscribe", words, detail),)
    return HookCapture(
        value, f"{WEBHOOKS}/user_preferences", "user_preferences", of_number(user_preferences=[wish]), events
    )


def account(name: str, state: str = "", words: str = "", until: str | None = None, **value: Any) -> HookCapture:
    detail = {"state": state} | ({"until": until} if until else {})
    events = (("session", words, detail),) if state else ()
    return HookCapture(name, f"{WEBHOOKS}/account_update", "account_update", {"event": name, **value}, events)


def status(name: str, *events: tuple[str, str, dict[str, Any]], **more: Any) -> HookCapture:
    one = {"id": "wamid.ours", "status": name, "timestamp": str(AT), "recipient_id": PERSON, **more}
    return HookCapture(name, f"{MESSAGES}/status", "messages", of_number(statuses=[one]), events)


CONTEXT = {"from": "4930123456", "id": "wamid.ours"}
UNSUPPORTED = [{"code": 131051, "title": "Message type unknown", "error_data": {"details": "Not supported."}}]
MEDIA = {"id": "900", "mime_type": "image/jpeg", "sha256": "c2hh"}

HOOKS = (
    # a person says something
    message("text", "text", "text", reply("Yes"), text={"body": "Yes"}),
    message("quoting", "text", "text", reply("Yes"), text={"body": "Yes"}, context=CONTEXT),
    message("forwarded", "text", "text", reply("See this"), text={"body": "See this"}, context={"forwarded": True}),
    message("image", "image", "image", reply("Look"), image={**MEDIA, "caption": "Look"}),
    message("video", "video", "video", reply(), video=MEDIA),
    message("document", "document", "document", reply(), document={**MEDIA, "filename": "a.pdf"}),
    message("voice", "audio", "audio", reply(), audio={**MEDIA, "voice": True}),
    message("sticker", "sticker", "sticker", reply(), sticker={**MEDIA, "animated": False}),
    message("location", "location", "location", reply(), location={"latitude": 52.5, "longitude": 13.4}),
    message("card", "contacts", "contacts", reply(), contacts=[{"name": {"formatted_name": "Ben"}}]),
    message("order", "order", "order", reply(), order={"catalog_id": "7", "product_items": []}),
    message("button", "button", "button", reply("Coming"), button={"text": "Coming", "payload": "c"}, context=CONTEXT),
    message(
        "reply_button",
        "interactive",
        "interactive",
        reply("Stop"),
        interactive={"type": "button_reply", "button_reply": {"id": "b1", "title": "Stop"}},
    ),
    message(
        "list",
        "interactive",
        "interactive",
        reply("Stop"),
        interactive={"type": "list_reply", "list_reply": {"id": "r1", "title": "Stop", "description": "Nothing more"}},
    ),
    message(
        "flow",
        "interactive",
        "interactive",
        reply(),
        interactive={"type": "nfm_reply", "nfm_reply": {"name": "flow", "body": "Sent", "response_json": "{}"}},
    ),
    # the button that Meta adds to marketing templates
    message(
        "stop_promotions",
        "button",
        "button",
        ("unsubscribe", "Stop promotions", {}),
        button={"text": "Stop promotions", "payload": "Stop promotions"},
        context=CONTEXT,
    ),
    # messages to Meta that are no replies
    message("reaction", "reaction", "reaction", reaction={"message_id": "wamid.ours", "emoji": "\N{THUMBS UP SIGN}"}),
    message("reaction_removed", "reaction", "reaction", reaction={"message_id": "wamid.ours"}),
    message(
        "edit",
        "edit",
        "edit",
        ("reply", "No", {"edited": True}),
        edit={"original_message_id": "wamid.text", "message": {"type": "text", "text": {"body": "No"}}},
    ),
    message("revoke", "revoke", "revoke", revoke={"original_message_id": "wamid.text"}),
    message("poll", "unsupported", "unsupported", errors=UNSUPPORTED, unsupported={"type": "poll"}),
    message("unreadable", "errors", "interactive", errors=UNSUPPORTED),
    message(
        "new_number",
        "system",
        "system",
        system={"body": "Ana changed her number", "type": "user_changed_number", "wa_id": "4917600000000"},
    ),
    message(
        "new_identity",
        "system",
        "system",
        system={"body": "Ana has a new phone", "type": "customer_identity_changed"},
        identity={"acknowledged": True, "created_timestamp": str(AT), "hash": "h"},
    ),
    message("welcome", "request_welcome", "request_welcome"),
    message(
        "call_permission",
        "interactive",
        "interactive",
        interactive={"type": "call_permission_reply", "call_permission_reply": {"response": "accept"}},
    ),
    # receipts
    status("sent"),
    status("delivered", ("delivered", "", {})),
    status("read", ("read", "", {})),
    status("played", ("read", "", {})),
    status(
        "failed",
        ("bounce", "Message undeliverable: No app (131026)", {"kind": "recipient_gone", "certain": True}),
        errors=[{"code": 131026, "title": "Message undeliverable", "error_data": {"details": "No app"}}],
    ),
    # WhatsApp's own opt-out of marketing
    preference("stop"),
    preference("resume", resumed=True),
    # the business account
    account(
        "DISABLED_UPDATE",
        "banned",
        "Meta reports for the business account: DISABLE.",
        ban_info={"waba_ban_state": "DISABLE", "waba_ban_date": "May 28, 2026"},
    ),
    account(
        "ACCOUNT_RESTRICTION",
        "banned",
        "Meta restricts messages: RESTRICTED_BIZ_INITIATED_MESSAGING, RESTRICTED_CUSTOMER_INITIATED_MESSAGING.",
        until="2026-05-29T20:26:40+00:00",
        restriction_info=[
            {"restriction_type": "RESTRICTED_ADD_PHONE_NUMBER_ACTION", "expiration": AT + 999_999},
            {"restriction_type": "RESTRICTED_BIZ_INITIATED_MESSAGING", "expiration": AT + 86_400},
            {"restriction_type": "RESTRICTED_CUSTOMER_INITIATED_MESSAGING", "expiration": AT + 3_600},
        ],
    ),
    account(
        "ACCOUNT_RESTRICTION",
        restriction_info=[{"restriction_type": "RESTRICTED_ADD_PHONE_NUMBER_ACTION", "expiration": AT}],
    ),
    account("ACCOUNT_DELETED", "banned", "Meta reports that the business account was deleted."),
    account(
        "ACCOUNT_OFFBOARDED",
        "unpaired",
        "Meta reports that the number is disconnected from the Cloud API, because its phone was changed or registered "
        "again. It is used again when Meta reports that it is reconnected.",
    ),
    account("ACCOUNT_RECONNECTED", "active", "Meta reports that the number is reconnected."),
    account("ACCOUNT_VIOLATION", violation_info={"violation_type": "SPAM"}),
    account("PARTNER_ADDED", waba_info={"waba_id": BUSINESS_ID, "owner_business_id": "1"}),
    # fields that are not about people or sending
    HookCapture(
        "template", f"{WEBHOOKS}/message_template_status_update", "message_template_status_update", {"event": "PAUSED"}
    ),
    HookCapture(
        "echo", f"{WEBHOOKS}/smb_message_echoes", "smb_message_echoes", of_number(message_echoes=[{"id": "w"}])
    ),
    HookCapture("call", f"{WEBHOOKS}/calls", "calls", of_number(calls=[{"id": "wacid.a", "event": "connect"}])),
)


# -- templates --------------------------------------------------------------------------------------------


TEMPLATE_LIST = f"{PLATFORM}/reference/whatsapp-business-account/template-api"
TEMPLATE_SHAPES = f"{PLATFORM}/templates/components"


class TemplateCapture(NamedTuple):
    """An item of `message_templates`, values for its variables, and the message that they make."""

    name: str
    page: str
    item: dict[str, Any]
    values: dict[str, str]
    components: list[dict[str, Any]]
    preview: str
    #: the kind of file in its header
    file: str = ""


def listed(name: str, *components: dict[str, Any], **more: Any) -> dict[str, Any]:
    item = {"name": name, "language": "en", "status": "APPROVED", "category": "UTILITY", "id": "77"}
    return {**item, "parameter_format": "POSITIONAL", "components": list(components), **more}


def text(value: str, **more: str) -> dict[str, str]:
    return {"type": "text", "text": value, **more}


TEMPLATES = (
    TemplateCapture(
        "no variables",
        TEMPLATE_SHAPES,
        listed("rehearsal", {"type": "BODY", "text": "Rehearsal is at eight."}),
        {},
        [],
        "Rehearsal is at eight.",
    ),
    TemplateCapture(
        "numbered",
        TEMPLATE_SHAPES,
        listed(
            "concert",
            {"type": "HEADER", "format": "TEXT", "text": "Concert in {{1}}", "example": {"header_text": ["Bonn"]}},
            {
                "type": "BODY",
                "text": "Hello {{1}}, doors open at {{2}}. See you, {{1}}!",
                "example": {"body_text": [["Ana", "nine"]]},
            },
            {"type": "FOOTER", "text": "The choir"},
            {
                "type": "BUTTONS",
                "buttons": [
                    {"type": "QUICK_REPLY", "text": "Coming"},
                    {
                        "type": "URL",
                        "text": "Tickets",
                        "url": "https://example.org/t/{{1}}",
                        "example": ["https://example.org/t/7"],
                    },
                    {"type": "PHONE_NUMBER", "text": "Call", "phone_number": "+4930123456"},
                ],
            },
        ),
        {"header.1": "Berlin", "body.1": "Ben", "body.2": "ten", "button.1": "42"},
        [
            {"type": "header", "parameters": [text("Berlin")]},
            {"type": "body", "parameters": [text("Ben"), text("ten")]},
            {"type": "button", "sub_type": "url", "index": "1", "parameters": [text("42")]},
        ],
        "Concert in Berlin\n\nHello Ben, doors open at ten. See you, Ben!\n\nThe choir\n\n[Coming] [Tickets] [Call]",
    ),
    TemplateCapture(
        "named",
        TEMPLATE_SHAPES,
        listed(
            "named",
            {
                "type": "BODY",
                "text": "Dear {{first_name}},\nyour seat is {{ seat }}.",
                "example": {
                    "body_text_named_params": [
                        {"param_name": "first_name", "example": "Ana"},
                        {"param_name": "seat", "example": "12"},
                    ]
                },
            },
            parameter_format="NAMED",
        ),
        {"body.first_name": "Ben", "body.seat": "13"},
        [
            {
                "type": "body",
                "parameters": [text("Ben", parameter_name="first_name"), text("13", parameter_name="seat")],
            }
        ],
        "Dear Ben,\nyour seat is 13.",
    ),
    TemplateCapture(
        "picture",
        TEMPLATE_SHAPES,
        listed(
            "poster",
            {"type": "HEADER", "format": "IMAGE", "example": {"header_handle": ["https://example.org/poster.jpg"]}},
            {"type": "BODY", "text": "The poster for {{1}} is here.", "example": {"body_text": [["May"]]}},
        ),
        {"body.1": "June"},
        [
            {"type": "header", "parameters": [{"type": "image", "image": {"id": "h"}}]},
            {"type": "body", "parameters": [text("June")]},
        ],
        "[image]\n\nThe poster for June is here.",
        file="image",
    ),
    TemplateCapture(
        "document",
        TEMPLATE_SHAPES,
        listed("score", {"type": "HEADER", "format": "DOCUMENT"}, {"type": "BODY", "text": "Your score."}),
        {},
        [{"type": "header", "parameters": [{"type": "document", "document": {"id": "h", "filename": "poster.png"}}]}],
        "[document]\n\nYour score.",
        file="document",
    ),
)
