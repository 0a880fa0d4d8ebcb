"""What Unipile's API v1 answers and reports, in its own shapes.

Written from its documentation (developer.unipile.com) and its users' code; all data is invented. `source` names where
a shape is documented.
"""

from __future__ import annotations

from typing import Any

from accounts.channels.base import Kind, Sent, Unknown
from accounts.channels.provider_events import EventKind
from tests.gateways.captures.shapes import CapturedAnswer, CapturedReport

CHATS = "developer.unipile.com/reference: POST /chats"
INVITE = "developer.unipile.com/reference: POST /users/invite"
ERRORS = "developer.unipile.com/reference: errors of POST /chats and /users/invite, by their type"
LIMITS = "developer.unipile.com/docs: provider limits and restrictions"
WEBHOOKS = "developer.unipile.com/docs: new messages webhook"
STATUS = "developer.unipile.com/docs: account status webhook"


def problem(status: int, name: str, title: str, detail: str = "") -> dict[str, Any]:
    return {"status": status, "type": f"errors/{name}", "title": title, "detail": detail or title}


def refused(status: int, name: str, title: str, means: Any, source: str = ERRORS) -> CapturedAnswer:
    return CapturedAnswer(name, source, status, problem(status, name, title), means)


ANSWERS = [
    CapturedAnswer(
        "a chat that began", CHATS, 201, {"object": "ChatStarted", "chat_id": "c1", "message_id": "m1"}, Sent("m1")
    ),
    CapturedAnswer(
        "a chat without a message id",
        CHATS,
        201,
        {"object": "ChatStarted", "chat_id": "c1", "message_id": None},
        Sent("c1"),
    ),
    refused(401, "disconnected_account", "Disconnected account", Kind.AUTH),
    refused(401, "expired_credentials", "Expired credentials", Kind.AUTH),
    refused(403, "account_restricted", "Account restricted", Kind.BANNED),
    refused(403, "subscription_required", "Subscription required", Kind.AUTH),
    refused(403, "resource_access_restricted", "Resource access restricted", Kind.AUTH),
    refused(422, "invalid_account", "Invalid account", Kind.AUTH),
    refused(422, "invalid_recipient", "Recipient cannot be reached", Kind.RECIPIENT_GONE),
    refused(422, "no_connection_with_recipient", "No connection with recipient", Kind.RECIPIENT_GONE),
    refused(422, "already_invited_recently", "Already invited recently", Kind.RECIPIENT_GONE),
    refused(422, "already_connected", "Already connected", Kind.RECIPIENT_GONE),
    refused(422, "cannot_invite_attendee", "Cannot invite attendee", Kind.RECIPIENT_GONE),
    refused(422, "not_allowed_inmail", "InMail is not allowed", Kind.RECIPIENT_GONE),
    refused(422, "insufficient_credits", "Insufficient credits", Kind.RATE_LIMITED),
    refused(422, "cannot_resend_yet", "Cannot resend yet", Kind.RECIPIENT_LIMITED, LIMITS),
    refused(422, "cannot_resend_within_24hrs", "Cannot resend within 24 hours", Kind.RECIPIENT_LIMITED, LIMITS),
    refused(422, "limit_exceeded", "Limit exceeded", Kind.RATE_LIMITED, LIMITS),
    refused(429, "too_many_requests", "Too many requests", Kind.RATE_LIMITED, LIMITS),
    refused(422, "invalid_message", "Invalid message", Kind.CONTENT_REJECTED),
    refused(400, "too_many_characters", "Too many characters", Kind.CONTENT_REJECTED),
    refused(503, "service_unavailable", "Service unavailable", Kind.UNAVAILABLE),
    refused(500, "unexpected_error", "Unexpected error", Unknown),
    refused(504, "request_timeout", "Request timeout", Unknown),
]


def message(**more: Any) -> dict[str, Any]:
    event = {
        "event": "message_received",
        "account_id": "a1",
        "account_type": "LINKEDIN",
        "account_info": {"type": "LINKEDIN", "feature": "classic", "user_id": "ACoAAAme"},
        "chat_id": "c1",
        "message_id": "m1",
        "message": "STOP",
        "timestamp": "2026-05-28T20:26:40.000Z",
        "sender": {
            "attendee_id": "t1",
            "attendee_name": "Ann Lee",
            "attendee_provider_id": "ACoAAAann",
            "attendee_profile_url": "https://www.linkedin.com/in/ann-lee",
        },
        "attendees": [],
    }
    return {**event, **more}


OWN = {"attendee_id": "t0", "attendee_name": "Me", "attendee_provider_id": "ACoAAAme"}

REPORTS = [
    CapturedReport(
        "a reply",
        WEBHOOKS,
        message(),
        {"kind": EventKind.REPLY, "address": "linkedin.com/in/ann-lee", "text": "STOP", "key": "message_received:m1"},
    ),
    CapturedReport("our own message", WEBHOOKS, message(sender=OWN), None),
    CapturedReport("another account", WEBHOOKS, message(account_id="a2"), None),
    CapturedReport("a reaction", WEBHOOKS, message(event="message_reaction", reaction="👍"), None),
    CapturedReport("an edit", WEBHOOKS, message(event="message_edited"), {"kind": EventKind.REPLY, "text": "STOP"}),
    CapturedReport("a deletion", WEBHOOKS, message(event="message_deleted"), None),
    CapturedReport("read", WEBHOOKS, message(event="message_read"), {"kind": EventKind.READ, "provider_id": "m1"}),
    CapturedReport(
        "credentials that expired",
        STATUS,
        {"AccountStatus": {"account_id": "a1", "account_type": "LINKEDIN", "message": "CREDENTIALS"}},
        {"kind": EventKind.SESSION, "detail": {"state": "unpaired"}},
    ),
]
