"""How Crier's processes and a bridge talk: JSON over HTTP, on loopback or inside the site's own network.

A bridge proves nothing to a caller, and a caller proves with a token that it belongs to the site: both know SECRET_KEY.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from django.conf import settings

from accounts.channels.base import Kind, NotSent, Outcome, Sent, Unknown
from accounts.channels.http import as_moment, as_number

TOKEN_HEADER = "X-Crier-Bridge"  # noqa: S105 - a header's name
#: Answers to a caller who came to the wrong bridge: `owner` is the address of the right one, where there is one.
NOT_MINE = 421


@dataclass(frozen=True, slots=True)
class Order:
    """A message for a bridge to send."""

    to: str
    kind: str
    message_id: str
    text: str = ""
    handle: str = ""
    filename: str = ""
    mime: str = ""
    typing: bool = False

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def read(cls, body: dict[str, Any]) -> Order:
        """Raises TypeError or ValueError for a body that is no order."""
        order = cls(**body)
        if not all(isinstance(value, str) for name, value in body.items() if name != "typing"):
            raise ValueError("an order is made of texts")
        return order


def token() -> str:
    return hmac.new(settings.SECRET_KEY.encode(), b"whatsapp bridge", hashlib.sha256).hexdigest()


def folder() -> Path:
    """Where the bridges of this machine keep sessions, and where they leave their address."""
    return Path(settings.VAR_DIR) / "whatsapp"


def bridge_url() -> str:
    """The bridge of this machine: as the site says, else as the bridge wrote down; empty where there is none."""
    if settings.WHATSAPP_BRIDGE_URL:
        return str(settings.WHATSAPP_BRIDGE_URL).rstrip("/")
    try:
        return (folder() / "bridge.url").read_text().strip()
    except OSError:
        return ""


# -- outcomes ---------------------------------------------------------------------------------------------


def outcome_as_json(outcome: Outcome) -> dict[str, Any]:
    if isinstance(outcome, Sent):
        return {"outcome": "sent", "id": outcome.provider_id}
    if isinstance(outcome, Unknown):
        return {"outcome": "unknown", "detail": outcome.detail}
    return {
        "outcome": "not_sent",
        "kind": outcome.kind.value,
        "detail": outcome.detail,
        "retry_after": outcome.retry_after,
        "until": outcome.until.isoformat() if outcome.until else None,
    }


def read_outcome(body: dict[str, Any]) -> Outcome:
    """Whatever is not one of the three words leaves in doubt what happened."""
    said = body.get("outcome")
    if said == "sent" and isinstance(body.get("id"), str):
        return Sent(body["id"])
    if said == "not_sent":
        return read_refusal(body)
    return Unknown(str(body.get("detail") or "the bridge's answer is not readable"))


def read_refusal(body: dict[str, Any]) -> NotSent:
    kind = body.get("kind")
    known = Kind(kind) if kind in list(Kind) else Kind.UNKNOWN
    detail = str(body.get("detail") or known)
    return NotSent(known, detail, as_number(body.get("retry_after")), moment(body.get("until")))


def moment(value: Any) -> datetime | None:
    return as_moment(value) if value else None
