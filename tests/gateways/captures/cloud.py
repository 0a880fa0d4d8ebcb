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
    ErrorCapture(ERROR_CODES, 400, 131050, "User has stopped marketing", Kind.RECIPIENT_GONE, "stopped marketing"),
    ErrorCapture(ERROR_CODES, 400, 130472, "User is part of an experiment", Kind.RECIPIENT_GONE, "experiment"),
    ErrorCapture(GROUPS, 403, 131207, "Group is suspended", Kind.RECIPIENT_GONE),
    # the content
    ErrorCapture(ERROR_CODES, 400, 100, "Invalid parameter", Kind.CONTENT_REJECTED),
    ErrorCapture(ERROR_CODES, 400, 131047, "Re-engagement message", Kind.CONTENT_REJECTED, "template"),
    ErrorCapture(ERROR_CODES, 400, 131051, "Unsupported message type", Kind.CONTENT_REJECTED),
    ErrorCapture(ERROR_CODES, 400, 131063, "Marketing is disabled", Kind.CONTENT_REJECTED, "utility template"),
    ErrorCapture(ERROR_CODES, 404, 132001, "Template does not exist", Kind.CONTENT_REJECTED),
    ErrorCapture(ERROR_CODES, 400, 132015, "Template is paused", Kind.CONTENT_REJECTED),
)
