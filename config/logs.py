"""What goes into a log line: ids in full, addresses shortened, secrets never.

The last rule holds for tracebacks and for other people's messages too, so it is applied to the finished text.
"""

from __future__ import annotations

import json
import logging
import re
from datetime import UTC, datetime
from typing import Any

#: things of ours that a line may be about; taken from `extra=`, else from the sentence ("account 12")
THINGS = ("run", "account", "target", "reminder", "driver")
MENTION = re.compile(rf"\b({'|'.join(THINGS)}) (\d+)\b")

WHATSAPP = re.compile(r"\b(\d{4})[\d.:_-]*(\d{2})@(g\.us|s\.whatsapp\.net|c\.us|lid)\b")
PHONE = re.compile(r"\+(\d{3})\d{3,10}(\d{2})\b")
MAILBOX = re.compile(r"([^\s@<>\"'(),;:=\[\]])[^\s@<>\"'(),;:=\[\]]*@((?:[\w-]+\.)+[\w-]{2,})", re.UNICODE)
# name=value, name: value, "name": "value", whatever the quotes
SECRET = re.compile(
    r"(?i)\b(password|passwd|secret|secret_key|api_?key|access_?token|token|credentials?|credential_keys|authorization"
    r"|x-sandbox-key|private_key)\b([\"']?\s*[=:]\s*)(?:bearer\s+|basic\s+)?(\"[^\"]*\"|'[^']*'|[^\s,;&}\"']+)"
)
BEARER = re.compile(r"(?i)\b(bearer|basic) [\w.~+/=-]{8,}")
USERINFO = re.compile(r"(\w+://[^\s/:@]*):[^\s/@]+@")
HIDDEN = "***"


def redacted(text: str) -> str:
    text = USERINFO.sub(rf"\1:{HIDDEN}@", text)
    text = SECRET.sub(rf"\1\2{HIDDEN}", text)
    text = BEARER.sub(rf"\1 {HIDDEN}", text)
    text = WHATSAPP.sub(r"\1…\2@\3", text)
    text = PHONE.sub(r"+\1…\2", text)
    return MAILBOX.sub(_short_mailbox, text)


def _short_mailbox(found: re.Match[str]) -> str:
    """WhatsApp ids are short already; the password of a URL stands where a name would."""
    if "…" in found[0] or HIDDEN in found[0]:
        return found[0]
    return f"{found[1]}…@{found[2]}"


class Line(logging.Formatter):
    """For people: one line, and the traceback below it."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        return redacted(super().format(record))


class Json(logging.Formatter):
    """For machines: one object per line."""

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        entry: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": redacted(message),
            **_things(record, message),
        }
        if record.exc_info:
            entry["error"] = redacted(self.formatException(record.exc_info))
        return json.dumps(entry, ensure_ascii=False, default=str)


def _things(record: logging.LogRecord, message: str) -> dict[str, int]:
    found = {name: int(number) for name, number in MENTION.findall(message)}
    given = {name: getattr(record, name) for name in THINGS if isinstance(getattr(record, name, None), int)}
    return found | given
