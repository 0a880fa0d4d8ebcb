"""What this machine has stored of a number's session: neonize's keys, and the journal with its facts."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from accounts.channels.whatsapp.bridge.journal import Journal

STORE = "session.db"
JOURNAL = "journal.db"
PAIRED = "jid"
TOLD = "told"
LISTED = "groups listed"


def is_paired(folder: Path, journal: Journal) -> bool:
    return bool(journal.fact(PAIRED)) and (folder / STORE).exists()


def is_stored(folder: Path) -> bool:
    """Whether this machine has the session, or news of its end that nobody has heard yet."""
    if not (folder / JOURNAL).exists():
        return False
    try:
        journal = Journal(folder / JOURNAL)
    except sqlite3.Error:
        return False  # another bridge of this machine has it open, and with it the account
    try:
        return is_paired(folder, journal) or bool(journal.waiting(1))
    finally:
        journal.close()
