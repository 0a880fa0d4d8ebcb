"""What the bridge of an account must not forget: sends without an answer, ids of what it sent, and events on their way.

One SQLite file beside the account's session, written before the thing it notes happens. A bridge that is killed leaves
it whole; the next one goes on with it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from accounts.channels.events import EventKind, ProviderEvent
from accounts.channels.http import as_moment

KEEP_SECONDS = 14 * 86_400
DOUBT_SECONDS = 3 * 86_400
#: Numbers change hands, and nobody's number is kept for longer than it is of use.
PEOPLE_SECONDS = 30 * 86_400

# `people`, the table before `looked_up`, had no ages: its numbers stayed for ever.
SCHEMA = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS doubts (message_id TEXT PRIMARY KEY, chat TEXT NOT NULL, began REAL NOT NULL);
CREATE TABLE IF NOT EXISTS sent (
    provider_id TEXT PRIMARY KEY, message_id TEXT NOT NULL, chat TEXT NOT NULL, at REAL NOT NULL,
    reported TEXT NOT NULL DEFAULT ''
);
DROP TABLE IF EXISTS people;
CREATE TABLE IF NOT EXISTS looked_up (number TEXT PRIMARY KEY, jid TEXT NOT NULL, at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS events (id INTEGER PRIMARY KEY AUTOINCREMENT, body TEXT NOT NULL);
"""


@dataclass(frozen=True, slots=True)
class Message:
    """One of ours, by the id that WhatsApp knows."""

    provider_id: str
    message_id: str
    chat: str


class Journal:
    def __init__(self, path: Path) -> None:
        self.db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self.db.execute("PRAGMA journal_mode = WAL")
        # A kill -9 loses nothing of it; only a power cut could, and what is lost then is in doubt anyway.
        self.db.execute("PRAGMA synchronous = NORMAL")
        self.db.executescript(SCHEMA)

    def close(self) -> None:
        self.db.close()

    # -- facts --------------------------------------------------------------------------------------------

    def fact(self, name: str) -> str:
        row = self.db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return str(row[0]) if row else ""

    def note(self, name: str, value: str) -> None:
        self.db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))

    def forget(self, now: float) -> None:
        """Drop what nobody will ask for any more."""
        self.db.execute("DELETE FROM sent WHERE at < ?", (now - KEEP_SECONDS,))
        self.db.execute("DELETE FROM doubts WHERE began < ?", (now - DOUBT_SECONDS,))
        self.db.execute("DELETE FROM looked_up WHERE at < ?", (now - PEOPLE_SECONDS,))

    # -- sends --------------------------------------------------------------------------------------------

    def begin(self, message_id: str, chat: str, now: float) -> None:
        """In doubt from here on, until an answer is known."""
        self.db.execute("INSERT OR REPLACE INTO doubts VALUES (?, ?, ?)", (message_id, chat, now))

    def not_sent(self, message_id: str) -> None:
        self.db.execute("DELETE FROM doubts WHERE message_id = ?", (message_id,))

    def sent(self, message: Message, now: float) -> None:
        self.db.execute(
            "INSERT OR IGNORE INTO sent (provider_id, message_id, chat, at) VALUES (?, ?, ?, ?)",
            (message.provider_id, message.message_id, message.chat, now),
        )
        self.not_sent(message.message_id)

    def written_elsewhere(self, provider_id: str, chat: str, now: float) -> None:
        """A message that a person wrote on the phone: its receipts are not about ours."""
        self.sent(Message(provider_id, "", chat), now)

    def message_of(self, provider_id: str, chat: str) -> Message | None:
        """Which of our messages has this id; none of ours where a person wrote it."""
        row = self.db.execute("SELECT message_id FROM sent WHERE provider_id = ?", (provider_id,)).fetchone()
        return Message(provider_id, row[0], chat) if row and row[0] else None

    def doubt_in(self, names: tuple[str, str], at: float, besides: str) -> str:
        """The message without an answer in this chat, which has two names, that began before; empty where there is
        none, or several."""
        # Receipts have whole seconds, and the two clocks differ a little.
        rows = self.db.execute(
            "SELECT message_id FROM doubts WHERE chat IN (?, ?) AND began <= ? AND message_id <> ?",
            (*names, at + 5, besides),
        ).fetchall()
        return str(rows[0][0]) if len(rows) == 1 else ""

    def is_known(self, provider_id: str) -> bool:
        return self.db.execute("SELECT 1 FROM sent WHERE provider_id = ?", (provider_id,)).fetchone() is not None

    def first_report(self, message: Message, kind: str, now: float) -> bool:
        """Whether this is the first receipt of its kind: a group's members each send one."""
        self.sent(message, now)
        changed = self.db.execute(
            "UPDATE sent SET reported = reported || ? WHERE provider_id = ? AND instr(reported, ?) = 0",
            (f"{kind} ", message.provider_id, kind),
        )
        return changed.rowcount == 1

    # -- people -------------------------------------------------------------------------------------------

    def person(self, number: str) -> str:
        """The WhatsApp id of somebody whom this account has looked up; empty: not yet."""
        row = self.db.execute("SELECT jid FROM looked_up WHERE number = ?", (number,)).fetchone()
        return str(row[0]) if row else ""

    def remember_person(self, number: str, jid: str, now: float) -> None:
        self.db.execute("INSERT OR REPLACE INTO looked_up VALUES (?, ?, ?)", (number, jid, now))

    # -- events on their way ------------------------------------------------------------------------------

    def add_event(self, event: ProviderEvent) -> None:
        self.db.execute("INSERT INTO events (body) VALUES (?)", (json.dumps(as_json(event)),))

    def waiting(self, most: int) -> list[tuple[int, ProviderEvent]]:
        rows = self.db.execute("SELECT id, body FROM events ORDER BY id LIMIT ?", (most,)).fetchall()
        return [(number, from_json(json.loads(body))) for number, body in rows]

    def acknowledge(self, numbers: Sequence[int]) -> None:
        self.db.executemany("DELETE FROM events WHERE id = ?", [(number,) for number in numbers])


def as_json(event: ProviderEvent) -> dict[str, Any]:
    names = ("key", "address", "group", "provider_id", "message_id", "text")
    body: dict[str, Any] = {name: getattr(event, name) for name in names}
    at = event.at.isoformat() if event.at else None
    return body | {"kind": event.kind.value, "at": at, "detail": dict(event.detail)}


def from_json(body: dict[str, Any]) -> ProviderEvent:
    at: datetime | None = as_moment(body.pop("at"))
    return ProviderEvent(kind=EventKind(body.pop("kind")), at=at, **body)
