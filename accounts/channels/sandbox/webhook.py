"""Webhook of the sandbox provider: reports that it signs with the account's key.

{"events": [{"id": "ev-1", "kind": "reply", "at": 1767603600.0, "from": "+4917612345678", "text": "yes", "message": …},
            {"id": "ev-2", "kind": "read", "at": …, "message": "sbx-7", "message_id": "crier-12-0", "to": …}]}
"""

from __future__ import annotations

import hashlib
import hmac
import json
from datetime import UTC, datetime
from typing import Any

from accounts.addresses import AddressError, guess_kind, normalise
from accounts.channels.base import AccountConfig
from accounts.channels.provider_events import EventKind, HookRequest, ProviderEvent, Unreadable, Webhook

SIGNATURE_HEADER = "X-Sandbox-Signature"


def signature(key: str, body: bytes) -> str:
    return hmac.new(key.encode(), body, hashlib.sha256).hexdigest()


class SandboxWebhook(Webhook):
    def authentic(self, request: HookRequest, account: AccountConfig) -> bool:
        """Return whether the account's key signed the body. Without a key nothing is authentic."""
        key = account.credentials.get("key")
        signed = request.headers.get(SIGNATURE_HEADER.lower(), "")
        return bool(key) and hmac.compare_digest(signed.encode(), signature(str(key), request.body).encode())

    def parse(self, request: HookRequest, account: AccountConfig) -> list[ProviderEvent]:
        try:
            listed = json.loads(request.body)["events"]
            return [event_of(dict(raw)) for raw in listed]
        except (ValueError, TypeError, KeyError, OverflowError, OSError, RecursionError) as problem:
            raise Unreadable(f"These are not events of the sandbox provider: {problem}") from None


def event_of(raw: dict[str, Any]) -> ProviderEvent:
    return ProviderEvent(
        key=str(raw["id"]),
        kind=EventKind(raw["kind"]),
        at=datetime.fromtimestamp(float(raw["at"]), UTC),
        address=stored_spelling(str(raw.get("from") or raw.get("to") or "")),
        group=stored_spelling(str(raw.get("group") or "")),
        provider_id=str(raw.get("message") or ""),
        message_id=str(raw.get("message_id") or ""),
        text=str(raw.get("text") or ""),
        detail=dict(raw.get("detail") or {}),
    )


def stored_spelling(address: str) -> str:
    """Return an address as recipients are stored. Text that is not an address is kept as it came."""
    try:
        return normalise(guess_kind(address), address) if address else ""
    except AddressError:
        return address
