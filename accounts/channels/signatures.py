"""What webhooks share: signatures compared in constant time, bodies that may hold anything, moments. Pure."""

from __future__ import annotations

import hashlib
import hmac
import json
from datetime import UTC, datetime
from typing import Any

from accounts.channels.events import HookRequest, Unreadable

#: The header that we ask gateways without signatures to send.
HEADER = "x-crier-token"


def signed(request: HookRequest, key: str | None, signature: str | None, digest: str = "sha256") -> bool:
    """Whether the signature (hex) fits the raw body. Without a key nothing is authentic."""
    if not key or not signature:
        return False
    expected = hmac.new(key.encode(), request.body, getattr(hashlib, digest)).hexdigest()
    return hmac.compare_digest(expected.encode(), signature.strip().lower().encode())


def same_secret(secret: str | None, presented: str | None) -> bool:
    """Whether a secret header is the one that we set. Without one nothing is authentic."""
    if not secret or not presented:
        return False
    return hmac.compare_digest(secret.encode(), presented.encode())


def json_object(request: HookRequest) -> dict[str, Any]:
    try:
        body = json.loads(request.body)
    except (ValueError, RecursionError):
        raise Unreadable("The body is not JSON.") from None
    if not isinstance(body, dict):
        raise Unreadable("The body is not a JSON object.")
    return body


def moment(seconds: Any, per_second: int = 1) -> datetime | None:
    """A moment from seconds since 1970, as a number or a text; None for what is no moment."""
    try:
        return datetime.fromtimestamp(float(seconds) / per_second, UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        return None


def milliseconds(value: Any) -> datetime | None:
    return moment(value, 1000) if isinstance(value, int) else None
