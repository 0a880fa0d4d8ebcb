"""Format log lines with full ids, shortened addresses and no secrets.

Tracebacks and messages of libraries are covered too, because the finished text is redacted.
"""

from __future__ import annotations

import logging
import re
from typing import Any
from urllib.parse import unquote

from django.core.exceptions import SuspiciousOperation
from pythonjsonlogger.json import JsonFormatter

from config.problems import first_line, is_away, is_locked

#: names for `extra=`, shown at the end of the line and as fields of the JSON object
THINGS = ("cluster", "slot", "account", "accounts", "reminder", "run", "target", "event", "notification")

#: characters kept of a longer text: the beginning (what happened) and the end (of a traceback)
MOST_AT_START, MOST_AT_END = 4_000, 8_000
#: the same of a message, without a traceback: strangers choose the paths in it
LINE_AT_START, LINE_AT_END = 600, 200

HIDDEN = "***"

#: requests that leave no access line when they succeed
UNLOGGED = ("/hooks/", "/healthz", "/readyz")

# Request paths are logged, so strangers choose the text: every pattern is linear. Each one starts only where its run of
# characters starts (a lookbehind), and its quantifiers are possessive (++, *+).
USERINFO = re.compile(r"(?<=://)([^\s/:@]*+):[^\s/@]++@")
# name=value, name: value, "name": "value", with any quotes; also at the end of a longer name (refresh_token)
SECRET = re.compile(
    r"(?i)(password|passwd|secret|secret_key|api_?key|token|credentials?|credential_keys|authorization|x-sandbox-key"
    r"|private_key)\b([\"']?\s*+[=:]\s*+)(?:bearer\s++|basic\s++)?"
    r"(?:\"(?:[^\"\\]++|\\.)*+\"|'(?:[^'\\]++|\\.)*+'|[\"']?[^\s,;&}\"']++)",
    re.DOTALL,
)
BEARER = re.compile(r"(?i)\b(bearer|basic) [\w.~+/=-]{8,}+")
WHATSAPP = re.compile(r"(?<![\d.:_-])([.:_-]*+)([\d.:_-]++)@(g\.us|s\.whatsapp\.net|c\.us|lid)\b")
PHONE = re.compile(r"\+(\d{3})\d{3,10}(\d{2})\b")
# The local part is everything up to white space or punctuation that cannot belong to it.
MAILBOX = re.compile(r"(?<![^\s@<>\"'(),;:=\[\]])([^\s@<>\"'(),;:=\[\]]++)@([\w-]++(?:\.[\w-]++)++)")


# Tokens in paths are secrets: an unsubscribe link works for anyone, a file's link fetches it, an account's webhook
# address is half of its secret, an invitation sets a password, and a calendar's address shows what is planned.
# deploy/nginx.conf leaves out the same.
TOKEN_IN_PATH = re.compile(
    r"(/unsubscribe/|/files/|/hooks/[a-z_]++/|/admin/invitation/|/admin/calendar/(?!address/))[^\s\"'?]++"
)


def redacted(text: str) -> str:
    text = TOKEN_IN_PATH.sub(rf"\1{HIDDEN}", text)
    text = USERINFO.sub(rf"\1:{HIDDEN}@", text)
    text = SECRET.sub(rf"\1\2{HIDDEN}", text)
    text = BEARER.sub(rf"\1 {HIDDEN}", text)
    text = WHATSAPP.sub(_short_number, text)
    text = PHONE.sub(r"+\1…\2", text)
    return MAILBOX.sub(_short_mailbox, text)


def _short_number(match: re.Match[str]) -> str:
    before, number, server = match.groups()
    ends = (number[:4], number[-2:]) if len(number) > 6 else ("", "")
    return f"{before}{'…'.join(ends)}@{server}"


def _short_mailbox(match: re.Match[str]) -> str:
    """Shorten a mailbox. WhatsApp ids are short already, and a URL's hidden password is not a mailbox."""
    if "…" in match[0] or HIDDEN in match[0]:
        return match[0]
    return f"{match[1][0]}…@{match[2]}"


def bounded(text: str, at_start: int = MOST_AT_START, at_end: int = MOST_AT_END) -> str:
    """Cut a long text. Call it after `redacted`: half an address would not be recognised."""
    left_out = len(text) - at_start - at_end
    if left_out <= 0:
        return text
    return f"{text[:at_start]} … ({left_out:,} characters left out) … {text[-at_end:]}"


def short_line(text: str) -> str:
    return bounded(redacted(text), LINE_AT_START, LINE_AT_END)


class Line(logging.Formatter):
    """Format for people: one line, and the traceback below it."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        things = (f" {name}={getattr(record, name)}" for name in THINGS if hasattr(record, name))
        return short_line(_on_one_line(super().formatMessage(record) + "".join(things)))

    def format(self, record: logging.LogRecord) -> str:
        return bounded(redacted(super().format(record)))


def _on_one_line(text: str) -> str:
    """Escape line breaks: a request's path must not forge a log line."""
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)


class NoQuery(logging.Filter):
    """Write uvicorn's access lines decoded and without the query string, so that addresses are recognised. Drop lines
    of probes and of accepted webhooks: there are hundreds a second, and each is a row of a table."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple) and len(record.args) == 5:
            client, method, path, *rest = record.args
            if str(path).startswith(UNLOGGED) and rest[-1] == 200:
                return False
            record.args = (client, method, unquote(str(path).partition("?")[0]), *rest)
        return True


class InOneLine(logging.Filter):
    """Log one line instead of a traceback for pages that could not reach the database, of which there may be hundreds,
    and for requests that Django refuses, such as those with an unknown Host, which any stranger can send."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, SuspiciousOperation):
            record.levelno, record.levelname, record.exc_info = logging.WARNING, "WARNING", None
        elif error is not None and (is_away(error) or is_locked(error)):
            record.msg, record.args, record.exc_info = f"{record.getMessage()}: {first_line(error)}", (), None
        return True


class Json(JsonFormatter):
    """Format for machines: one object per line, with everything that `extra=` names."""

    def __init__(self) -> None:
        names = {"levelname": "level", "name": "logger", "exc_info": "error"}
        super().__init__(["levelname", "name", "message"], rename_fields=names, timestamp="at", json_ensure_ascii=False)

    def process_log_record(self, log_data: dict[str, Any]) -> dict[str, Any]:
        at = log_data.pop("at").isoformat(timespec="milliseconds")
        return {"at": at} | {name: _plain(name, value) for name, value in log_data.items()}


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, int | float | None):
        return value
    return bounded(redacted(str(value))) if name == "error" else short_line(str(value))
