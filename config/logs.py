"""What goes into a log line: ids in full, addresses shortened, secrets never.

The last rule holds for tracebacks and for other people's messages too, so it is applied to the finished text.
"""

from __future__ import annotations

import logging
import re
from typing import Any
from urllib.parse import unquote

from pythonjsonlogger.json import JsonFormatter

from config.problems import first_line, is_away

#: what a line may be about: names for `extra=`, shown at the end of the line and as fields of the JSON object
THINGS = ("cluster", "slot", "account", "accounts", "reminder", "run", "target", "event", "notification")

#: of a longer text the beginning (what happened) and the end (where a traceback ends) are kept
MOST_AT_START, MOST_AT_END = 4_000, 8_000

HIDDEN = "***"

#: requests that leave no access line when they succeed
UNLOGGED = ("/hooks/", "/healthz", "/readyz")

# A request's path gets here, so nobody may choose a text that takes long: every pattern is linear. Each one starts
# only where its run of characters starts (a lookbehind), and does not give back what it took (++, *+).
USERINFO = re.compile(r"(?<=://)([^\s/:@]*+):[^\s/@]++@")
# name=value, name: value, "name": "value", whatever the quotes; also at the end of a longer name (refresh_token)
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


# Who has the link of somebody else's mail could unsubscribe them, who has a file's could fetch it; an account's webhook
# address is half of its secret.
TOKEN_IN_PATH = re.compile(r"(/unsubscribe/|/files/|/hooks/[a-z_]++/)[^\s\"'?]++")


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
    """WhatsApp ids are short already; the password of a URL stands where a name would."""
    if "…" in match[0] or HIDDEN in match[0]:
        return match[0]
    return f"{match[1][0]}…@{match[2]}"


def bounded(text: str) -> str:
    """After `redacted`, never before it: half an address is no longer recognised as one."""
    left_out = len(text) - MOST_AT_START - MOST_AT_END
    if left_out <= 0:
        return text
    return f"{text[:MOST_AT_START]} … ({left_out:,} characters left out) … {text[-MOST_AT_END:]}"


class Line(logging.Formatter):
    """For people: one line, and the traceback below it."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        things = (f" {name}={getattr(record, name)}" for name in THINGS if hasattr(record, name))
        return _on_one_line(super().formatMessage(record) + "".join(things))

    def format(self, record: logging.LogRecord) -> str:
        return bounded(redacted(super().format(record)))


def _on_one_line(text: str) -> str:
    """A line break in somebody's path must not begin a line of our own."""
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)


class NoQuery(logging.Filter):
    """An access line of uvicorn without the query string, and decoded, so that addresses in it are recognised. None for
    a webhook that was taken: there are hundreds a second, and each is a row of the table. None for a probe either."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple) and len(record.args) == 5:
            client, method, path, *rest = record.args
            if str(path).startswith(UNLOGGED) and rest[-1] == 200:
                return False
            record.args = (client, method, unquote(str(path).partition("?")[0]), *rest)
        return True


class AwayInOneLine(logging.Filter):
    """No traceback for a page that could not reach the database: there may be hundreds, and they all say the same."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and is_away(error):
            record.msg, record.args, record.exc_info = f"{record.getMessage()}: {first_line(error)}", (), None
        return True


class Json(JsonFormatter):
    """For machines: one object per line, with everything that `extra=` names."""

    def __init__(self) -> None:
        names = {"levelname": "level", "name": "logger", "exc_info": "error"}
        super().__init__(["levelname", "name", "message"], rename_fields=names, timestamp="at", json_ensure_ascii=False)

    def process_log_record(self, log_data: dict[str, Any]) -> dict[str, Any]:
        at = log_data.pop("at").isoformat(timespec="milliseconds")
        return {"at": at} | {name: _plain(value) for name, value in log_data.items()}


def _plain(value: Any) -> Any:
    return value if isinstance(value, int | float | None) else bounded(redacted(str(value)))
