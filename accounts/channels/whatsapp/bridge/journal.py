"""Durable notes of an account's bridge: sends without an answer, ids of sent messages, waiting receipts, events.

One SQLite file beside the account's session, written before the thing it notes happens. A bridge that is killed leaves
it whole, and the next one continues with it. Changes that belong together are written in one transaction.

A message that the journal does not know was never handed over, and is sent again (`review.py`). So a try is on disk
before its message leaves, and each journal has an id of its own: one that was lost, or that of another machine, is
recognised and proves nothing.
"""

from __future__ import annotations

import json
import math
import sqlite3
import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from accounts.channels.http import as_moment
from accounts.channels.provider_events import EventKind, ProviderEvent

#: WhatsApp keeps a message for 30 days for a phone that is away, so its receipt may come as late. While it may, its id
#: must be known, and a send without an answer must be counted: or its receipt would be taken for that of another one.
KEEP_SECONDS = 35 * 86_400
#: So long may receipts of messages come that a journal never had, because it is new or was restored from a copy.
RECEIPTS_COME_FOR = 30 * 86_400
#: A receipt settles a send without an answer that is not older than this.
UNCERTAIN_SECONDS = 3 * 86_400
#: Receipts have whole seconds, and the two clocks differ a little.
CLOCKS_DIFFER = 5
#: Numbers change hands, and personal data is kept no longer than needed.
PEOPLE_SECONDS = 30 * 86_400

# `people`, the predecessor of `looked_up`, had no dates: its numbers stayed for ever.
SCHEMA = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS tries (
    id INTEGER PRIMARY KEY AUTOINCREMENT, message_id TEXT NOT NULL, recipient TEXT NOT NULL, chat TEXT NOT NULL,
    began REAL NOT NULL, decided INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS sent (
    provider_id TEXT PRIMARY KEY, message_id TEXT NOT NULL, chat TEXT NOT NULL, at REAL NOT NULL,
    reported TEXT NOT NULL DEFAULT ''
);
CREATE INDEX IF NOT EXISTS sent_message ON sent (message_id);
CREATE TABLE IF NOT EXISTS held (
    id INTEGER PRIMARY KEY AUTOINCREMENT, provider_id TEXT NOT NULL, kind TEXT NOT NULL, told TEXT NOT NULL,
    chat TEXT NOT NULL, at REAL NOT NULL, named INTEGER NOT NULL, UNIQUE (provider_id, kind)
);
DROP TABLE IF EXISTS people;
CREATE TABLE IF NOT EXISTS looked_up (number TEXT PRIMARY KEY, jid TEXT NOT NULL, at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS events (
    id INTEGER PRIMARY KEY AUTOINCREMENT, body TEXT NOT NULL, hidden TEXT NOT NULL DEFAULT '',
    at REAL NOT NULL DEFAULT 0
);
"""

# All tries for the recipients of this chat, under any id that WhatsApp had for it at the time.
IN_CHAT = """
recipient IN (SELECT recipient FROM tries WHERE recipient IN (:one, :other) OR chat IN (:one, :other))
"""

# By name: the hash behind it changes with the site's key.
NAMED = "(message_id = :name OR message_id GLOB :name || '-*')"

# `doubts`, the predecessor of `tries`, had one row per message, even for one that was tried twice.
TAKE_OVER_OLD_TRIES = """
BEGIN;
INSERT INTO tries (message_id, recipient, chat, began) SELECT message_id, chat, chat, began FROM doubts;
DROP TABLE doubts;
COMMIT;
"""


@dataclass(frozen=True, slots=True)
class SentMessage:
    """One of our messages, by the id that WhatsApp knows."""

    provider_id: str
    message_id: str
    chat: str


class NotedMessage(NamedTuple):
    """One of our messages, by our id; `sent`: WhatsApp has acknowledged it."""

    message_id: str
    at: float
    sent: bool


@dataclass(frozen=True, slots=True)
class Receipt:
    """The news that a message arrived or was read, by WhatsApp's id of it.

    The chat has two names: as WhatsApp named it, and by number, which is looked up where WhatsApp hid it.
    """

    provider_id: str
    kind: EventKind
    named_as: str
    chat: str
    at: int


class Journal:
    def __init__(self, path: Path) -> None:
        self.db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            self._set_up()
        except BaseException:
            self.db.close()
            raise

    def _set_up(self) -> None:
        self.db.execute("PRAGMA journal_mode = WAL")
        # A kill -9 loses nothing. A power cut may lose the last notes, except those written `_durably`.
        self.db.execute("PRAGMA synchronous = NORMAL")
        self.db.executescript(SCHEMA)
        self._add_columns("tries", decided="INTEGER NOT NULL DEFAULT 0")
        self._add_columns("events", hidden="TEXT NOT NULL DEFAULT ''", at="REAL NOT NULL DEFAULT 0")
        if self.db.execute("SELECT 1 FROM sqlite_master WHERE name = 'doubts'").fetchone():
            self.db.executescript(TAKE_OVER_OLD_TRIES)

    def _add_columns(self, table: str, **columns: str) -> None:
        """Add the columns that a journal of an earlier version lacks."""
        present = {row[1] for row in self.db.execute(f"PRAGMA table_info({table})")}
        for name, definition in columns.items():
            if name not in present:
                self.db.execute(f"ALTER TABLE {table} ADD COLUMN {name} {definition}")

    def close(self) -> None:
        self.db.close()

    @contextmanager
    def _durably(self) -> Iterator[None]:
        """Have the next transaction on disk before it returns, so that it outlives a power cut."""
        self.db.execute("PRAGMA synchronous = FULL")
        try:
            yield
        finally:
            self.db.execute("PRAGMA synchronous = NORMAL")

    # -- facts --------------------------------------------------------------------------------------------

    def fact(self, name: str) -> str:
        row = self.db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return str(row[0]) if row else ""

    def note(self, name: str, value: str) -> None:
        self.db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))

    def id(self) -> str:
        """Return the journal's own id, by which one that was lost or left on another machine is told apart."""
        if not self.fact(JOURNAL_ID):
            with self._durably():
                self.db.execute("INSERT OR IGNORE INTO facts VALUES (?, ?)", (JOURNAL_ID, str(uuid.uuid4())))
        return self.fact(JOURNAL_ID)

    def page(self) -> int:
        """Return the number of the page, by which a copy is recognised: the database knows of a later one."""
        return int(self.fact(PAGE) or 0)

    def turn_page(self) -> int:
        """Begin the next page and return its number. The database is told afterwards, so that its number is never ahead
        of the journal's own."""
        with self._durably():
            self.note(PAGE, str(self.page() + 1))
        return self.page()

    def go_on_at(self, page: int) -> None:
        """Count on from the page that the database names: this is a copy, and the original must not pass for newer."""
        with self._durably():
            self.note(PAGE, str(page))

    def told(self, page: int) -> None:
        """Note a page that the database has stored: if it knows only an earlier one later, it was restored."""
        if page != self.page_told():
            self.note(TOLD, str(page))

    def page_told(self) -> int:
        return int(self.fact(TOLD) or 0)

    def found_restored(self) -> None:
        """Note that the database was restored from a backup. It does not know what was sent since, and may give the
        numbers of these messages to others."""
        with self._durably():
            self.note(RESTORED, "yes")

    def messages(self) -> list[NotedMessage]:
        """Return all our messages that were begun, answered or not, oldest first."""
        rows = self.db.execute(
            "SELECT message_id, at, 1 FROM sent WHERE message_id <> '' UNION ALL"
            " SELECT message_id, began, 0 FROM tries WHERE message_id <> '' ORDER BY 2"
        )
        return [NotedMessage(str(row[0]), float(row[1]), bool(row[2])) for row in rows.fetchall()]

    def begin_anew(self, known: Collection[str]) -> None:
        """Go on with a restored database, which knows these messages: the others belong to no
        target any more, and their numbers may be given again. The database's epochs have gone back as well."""
        gone = [(one.message_id,) for one in self.messages() if one.message_id not in known]
        with self._durably(), self.db:
            self.db.execute("BEGIN IMMEDIATE")
            self.db.executemany("UPDATE sent SET message_id = '' WHERE message_id = ?", gone)
            # Their receipts may still come, and must not be taken for those of later messages.
            self.db.executemany("UPDATE tries SET message_id = '', decided = 1 WHERE message_id = ?", gone)
            self.db.execute("DELETE FROM facts WHERE name IN (?, ?)", (RESTORED, LOWEST_EPOCH))

    def epoch(self) -> int:
        """Return the lowest epoch of the account's lane whose orders are carried out."""
        return int(self.fact(LOWEST_EPOCH) or 0)

    def fence(self, epoch: int) -> None:
        """Refuse the orders of earlier holders of the lane from now on: what they had claimed is judged, and may be
        claimed again."""
        if epoch > self.epoch():
            with self._durably():
                self.note(LOWEST_EPOCH, str(epoch))

    def forget(self, now: float) -> None:
        """Delete the rows that are no longer needed."""
        self.db.execute("DELETE FROM sent WHERE at < ?", (now - KEEP_SECONDS,))
        self.db.execute("DELETE FROM tries WHERE began < ?", (now - KEEP_SECONDS,))
        self.db.execute("DELETE FROM held WHERE at < ?", (now - KEEP_SECONDS,))
        self.db.execute("DELETE FROM looked_up WHERE at < ?", (now - PEOPLE_SECONDS,))

    # -- sends --------------------------------------------------------------------------------------------

    def begin(self, message_id: str, recipient: str, chat: str, now: float) -> int:
        """Note a try at a message, in doubt until its answer is known, and return its number.

        WhatsApp may have another id for the recipient's chat than the one that follows from the number. A message that
        an operator sends again has a row for each try: if the first try did go out, its id stays unknown, even when the
        second one is answered.
        """
        with self._durably():
            added = self.db.execute(
                "INSERT INTO tries (message_id, recipient, chat, began) VALUES (?, ?, ?, ?)",
                (message_id, recipient, chat, now),
            )
        return added.lastrowid or 0

    def not_sent(self, number: int) -> None:
        """End a try that certainly sent nothing."""
        self.db.execute("DELETE FROM tries WHERE id = ?", (number,))

    def sent(self, number: int, message: SentMessage, now: float) -> None:
        """End a try with WhatsApp's id of the message."""
        with self.db:
            self.db.execute("BEGIN IMMEDIATE")
            self._know(message, now)
            self.not_sent(number)

    def written_elsewhere(
        self, provider_id: str, chat: str, event: ProviderEvent | None, hidden: str, now: float
    ) -> None:
        """Note a message that a person wrote on another device: its receipts are not about ours. `event` is for the
        account, None where it does not count."""
        with self.db:
            self.db.execute("BEGIN IMMEDIATE")
            self._know(SentMessage(provider_id, "", chat), now)
            if event is not None:
                self.add_event(event, hidden, now)

    def learn(self, message: SentMessage, now: float) -> None:
        """Note a message that this journal has lost and the database knows."""
        self._know(message, now)

    def _know(self, message: SentMessage, now: float) -> None:
        self.db.execute(
            "INSERT OR IGNORE INTO sent (provider_id, message_id, chat, at) VALUES (?, ?, ?, ?)",
            (message.provider_id, message.message_id, message.chat, now),
        )

    def message_id_of(self, provider_id: str) -> str | None:
        """Return which of our messages has this id; "" where a person wrote it elsewhere, None for an unknown id."""
        row = self.db.execute("SELECT message_id FROM sent WHERE provider_id = ?", (provider_id,)).fetchone()
        return str(row[0]) if row else None

    def uncertain_in(self, names: tuple[str, str], at: float) -> tuple[int, str] | None:
        """Return the only try without an answer in a chat, which has two names: its number and its message.

        None where there are several, since their ids cannot be told apart, and where it cannot be meant by something
        that happened at this time: it began later, or too long ago.
        """
        rows = self.db.execute(
            f"SELECT id, message_id, began, decided FROM tries WHERE {IN_CHAT} LIMIT 2",  # noqa: S608
            {"one": names[0], "other": names[1]},
        ).fetchall()
        if len(rows) != 1:
            return None
        number, message_id, began, decided = rows[0]
        fits = began <= at + CLOCKS_DIFFER and began >= at - UNCERTAIN_SECONDS
        return (number, message_id) if fits and not decided else None

    def open_tries(self, before: float) -> list[tuple[int, str]]:
        """Return the tries without an answer, begun before this time, that an operator has not decided: number and
        message."""
        rows = self.db.execute("SELECT id, message_id FROM tries WHERE NOT decided AND began < ?", (before,))
        return [(int(number), str(message_id)) for number, message_id in rows.fetchall()]

    def decide(self, number: int) -> None:
        """Note that a try is settled, although its id is unknown: it no longer stands for a message in doubt.

        If it went out all the same, its receipt may still come, and must not be taken for that of a later message. So
        the next unknown id in its chat is taken for its own, unless a later message has arrived there before.
        """
        self.db.execute("UPDATE tries SET decided = 1 WHERE id = ?", (number,))

    def has_begun(self, name: str) -> bool:
        """Return whether a try at the message was noted, answered or not; `name` is its id without the hash."""
        found = f"SELECT 1 FROM tries WHERE {NAMED} UNION ALL SELECT 1 FROM sent WHERE {NAMED}"  # noqa: S608
        return self.db.execute(found, {"name": name}).fetchone() is not None

    def provider_id_of(self, name: str) -> str:
        """Return WhatsApp's id of the last try at a message that it acknowledged, or ""."""
        row = self.db.execute(
            f"SELECT provider_id FROM sent WHERE {NAMED} ORDER BY at DESC",  # noqa: S608
            {"name": name},
        ).fetchone()
        return str(row[0]) if row else ""

    # -- receipts -----------------------------------------------------------------------------------------

    def hold(self, receipts: Iterable[Receipt], named: bool) -> None:
        """Keep receipts until it is clear which message each is about; of the same kind and message the first one.

        `named`: the chat is known by number, or needs none.
        """
        with self.db:
            self.db.execute("BEGIN IMMEDIATE")
            self.db.executemany(
                "INSERT INTO held (provider_id, kind, told, chat, at, named) VALUES (?, ?, ?, ?, ?, ?)"
                " ON CONFLICT (provider_id, kind) DO UPDATE SET chat = excluded.chat, named = 1"
                " WHERE excluded.named AND NOT named",
                [(one.provider_id, one.kind.value, one.named_as, one.chat, one.at, named) for one in receipts],
            )

    def name_chat(self, named_as: str, chat: str) -> None:
        """Store the number, as far as it was found, of a chat that receipts named by a hidden id."""
        self.db.execute("UPDATE held SET chat = ?, named = 1 WHERE told = ? AND NOT named", (chat, named_as))

    def held(self) -> list[Receipt]:
        """Return the waiting receipts whose chat is named: each message's arrival before its reading."""
        return self._held("named")

    def unnamed(self) -> list[Receipt]:
        """Return the receipts whose chat must be looked up first."""
        return self._held("NOT named")

    def _held(self, condition: str) -> list[Receipt]:
        rows = self.db.execute(
            f"SELECT provider_id, kind, told, chat, at FROM held WHERE {condition} ORDER BY kind, id"  # noqa: S608
        )
        return [Receipt(row[0], EventKind(row[1]), row[2], row[3], int(row[4])) for row in rows.fetchall()]

    def drop_unknown(self, receipt: Receipt, now: float, ends_decided: bool = True) -> None:
        """Drop a receipt whose message cannot be determined.

        Where it may be about a try of its chat, it is never about a later one: the id counts as known from now on, and,
        with `ends_decided`, as that of a try that was decided.
        """
        names = {"one": receipt.chat, "other": receipt.named_as, "latest": receipt.at + CLOCKS_DIFFER}
        with self.db:
            self.db.execute("BEGIN IMMEDIATE")
            meant = f"FROM tries WHERE {IN_CHAT} AND began <= :latest"
            if receipt.kind is EventKind.DELIVERED and self.db.execute(f"SELECT 1 {meant}", names).fetchone():
                self._know(SentMessage(receipt.provider_id, "", receipt.chat), now)
                # One receipt is about one of them: the others keep taking the next ids.
                oldest = f"SELECT rowid {meant} AND decided ORDER BY began LIMIT 1"
                if ends_decided:
                    self.db.execute(f"DELETE FROM tries WHERE rowid IN ({oldest})", names)  # noqa: S608
            self.drop_receipt(receipt)

    def drop_receipt(self, receipt: Receipt) -> None:
        """Delete a receipt that is not about a message of ours."""
        self.db.execute(
            "DELETE FROM held WHERE provider_id = ? AND kind = ?", (receipt.provider_id, receipt.kind.value)
        )

    def was_reported(self, provider_id: str, kind: EventKind) -> bool:
        """Return whether a receipt of this kind was reported already."""
        row = self.db.execute("SELECT reported FROM sent WHERE provider_id = ?", (provider_id,)).fetchone()
        return bool(row) and kind.value in row[0].split()

    def confirm(
        self, receipt: Receipt, message: SentMessage, event: ProviderEvent, ended: int | None, now: float
    ) -> None:
        """Report a receipt of a message; `ended` is the try without an answer that it settles."""
        with self.db:
            self.db.execute("BEGIN IMMEDIATE")
            self._know(message, now)
            if ended is not None:
                self.not_sent(ended)
            self.db.execute(
                "UPDATE sent SET reported = reported || ? WHERE provider_id = ?",
                (f"{receipt.kind.value} ", message.provider_id),
            )
            # Messages arrive in order: if one before this had gone out, its receipt would have come.
            self.db.execute(
                f"DELETE FROM tries WHERE decided AND {IN_CHAT}"  # noqa: S608
                " AND began < (SELECT at FROM sent WHERE provider_id = :id)",
                {"one": receipt.chat, "other": receipt.named_as, "id": message.provider_id},
            )
            self.add_event(event)
            self.drop_receipt(receipt)

    # -- people -------------------------------------------------------------------------------------------

    def person(self, number: str) -> str:
        """Return the WhatsApp id of a number that this account has looked up, or ""."""
        row = self.db.execute("SELECT jid FROM looked_up WHERE number = ?", (number,)).fetchone()
        return str(row[0]) if row else ""

    def number_of(self, jid: str) -> str:
        """Return the number that this account looked up and found under this WhatsApp id, or ""; of several the one
        that the id itself is made of, then the latest."""
        row = self.db.execute(
            "SELECT number FROM looked_up WHERE jid = ? ORDER BY number = ? DESC, at DESC",
            (jid, f"+{jid.partition('@')[0]}"),
        ).fetchone()
        return str(row[0]) if row else ""

    def remember_person(self, number: str, jid: str, now: float) -> None:
        self.db.execute("INSERT OR REPLACE INTO looked_up VALUES (?, ?, ?)", (number, jid, now))

    # -- events on their way ------------------------------------------------------------------------------

    def add_event(self, event: ProviderEvent, hidden: str = "", now: float = 0.0) -> None:
        """Keep an event until it is stored; `hidden`: the id of its person, whose number is still looked up."""
        self.db.execute(
            "INSERT INTO events (body, hidden, at) VALUES (?, ?, ?)", (json.dumps(as_json(event)), hidden, now)
        )

    def hidden_people(self) -> list[str]:
        """Return the hidden ids of the people whose numbers events wait for."""
        return [str(row[0]) for row in self.db.execute("SELECT DISTINCT hidden FROM events WHERE hidden <> ''")]

    def name_person(self, hidden: str, address: str) -> None:
        """Put a person's address into the events that wait for it; where it was not found, they go as they are."""
        with self.db:
            self.db.execute("BEGIN IMMEDIATE")
            if address:
                self.db.execute(
                    "UPDATE events SET body = json_set(body, '$.address', ?) WHERE hidden = ?", (address, hidden)
                )
            self.db.execute("UPDATE events SET hidden = '' WHERE hidden = ?", (hidden,))

    def waiting(self, most: int, unnamed_before: float = 0.0) -> list[tuple[int, ProviderEvent]]:
        """Return the next events. Those that wait for a number are left out, unless they came before that time."""
        rows = self.db.execute(
            "SELECT id, body FROM events WHERE hidden = '' OR at < ? ORDER BY id LIMIT ?", (unnamed_before, most)
        ).fetchall()
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


# -- files of a session on this machine -------------------------------------------------------------------


SESSION_FILE = "session.db"
JOURNAL_FILE = "journal.db"
PAIRED_AS = "jid"
LAST_REPORT = "told"
JOURNAL_ID = "id"
LOWEST_EPOCH = "epoch"
PAGE = "page"
TOLD = "page told"
RESTORED = "database restored"
GROUPS_STORED = "groups listed"
ROSTER = "roster"
PAIRED_AT = "paired at"


def is_paired(folder: Path, journal: Journal) -> bool:
    return bool(journal.fact(PAIRED_AS)) and (folder / SESSION_FILE).exists()


def is_stored(folder: Path) -> bool:
    """Return whether this machine has the session, or news of its end that are not delivered yet."""
    if not (folder / JOURNAL_FILE).exists():
        return False
    try:
        journal = Journal(folder / JOURNAL_FILE)
    except sqlite3.Error:
        return False  # another bridge of this machine has it open, and with it the account
    try:
        return is_paired(folder, journal) or bool(journal.waiting(1, unnamed_before=math.inf))
    finally:
        journal.close()
