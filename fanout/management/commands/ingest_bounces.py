"""`manage.py ingest_bounces`: turn bounce mail into suppressions and target states, and replies into replies."""

from __future__ import annotations

import imaplib
import logging
import ssl
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser
from django.db import OperationalError
from django.utils import timezone

from fanout.inbound import bounces, complaints
from fanout.inbound.mails import MAX_BYTES, TooLarge
from fanout.inbound.reply_mails import take_in_reply
from fanout.management.base import BadInput, CrierCommand, NotDone, in_range

log = logging.getLogger("crier.bounces")

PASSWORD = "BOUNCE_IMAP_PASSWORD"
TIMEOUT = 30.0
MOST = 1_000_000


class Command(CrierCommand):
    help = (
        "Read bounces, and replies to what Crier sent, from an IMAP folder (only unseen mail; use a folder of its own) "
        f"or from files. The password comes from {PASSWORD}."
    )

    example = "ingest_bounces --imap mail.example.com --user bounces@example.com --folder INBOX"

    def arguments(self, parser: CommandParser) -> None:
        source = parser.add_mutually_exclusive_group(required=True)
        source.add_argument("--imap", metavar="HOST[:PORT]", help="read over IMAP with TLS")
        source.add_argument("--file", nargs="+", metavar="PATH", help="raw mails; - for standard input")
        parser.add_argument("--user", default="", help="the mailbox's user name")
        parser.add_argument("--folder", default="INBOX")
        parser.add_argument("--limit", type=int, default=500, help="most mails to read [500]")

    def handle(self, *args: Any, **options: Any) -> None:
        self.bounces = self.complaints = self.applied = self.replies = self.others = self.unreadable = 0
        in_range("--limit", options["limit"], 1, MOST)
        mails = self._from_imap(options) if options["imap"] else self._from_files(options["file"])
        total = sum(1 for _ in mails)
        counts = {"bounces": self.bounces, "new": self.applied, "replies": self.replies, "complaints": self.complaints}
        counts |= {"neither": self.others, "unreadable": self.unreadable}
        data = {"mails": total} | {name.replace(" ", "_"): n for name, n in counts.items()}
        self.answer(data, f"{total} mails: {', '.join(f'{n} {name}' for name, n in counts.items())}.")

    def _take(self, raw: bytes) -> bool:
        """Process a mail and return whether it was a bounce; others are left for a person to look at."""
        try:
            now = timezone.now()
            complained, matched = complaints.take_in_complaint(raw, now)
            count, applied = (0, matched) if complained else bounces.take_in(raw, now)
            is_reply, new = (False, False) if count or complained else take_in_reply(raw, now)
        except OperationalError:
            raise  # it will work later, and the mail stays unseen until then
        except Exception as problem:
            # One unreadable mail must not block all others for ever.
            if not isinstance(problem, TooLarge):
                log.exception("a mail could not be read as a bounce or a reply")
            self.unreadable += 1
            return False
        self.bounces += count
        self.applied += applied + new
        self.complaints += complained
        self.replies += is_reply
        self.others += not count and not is_reply and not complained
        return bool(count) or complained

    # -- files --------------------------------------------------------------------------------------------

    def _from_files(self, paths: list[str]) -> Iterator[None]:
        for path in paths:
            try:
                with nullcontext(sys.stdin.buffer) if path == "-" else Path(path).open("rb") as file:
                    raw = file.read(MAX_BYTES + 1)
            except OSError as error:
                raise BadInput(f"{path}: {error.strerror or error}") from None
            self._take(raw)
            yield

    # -- IMAP ---------------------------------------------------------------------------------------------

    def _from_imap(self, options: dict[str, Any]) -> Iterator[None]:
        password = settings.BOUNCE_IMAP_PASSWORD
        if not options["user"] or not password:
            raise BadInput(f"--imap needs --user and the password in {PASSWORD}.")
        try:
            box = connect(options["imap"])
            try:
                box.login(options["user"], password)
                yield from self._unseen(box, options["folder"], options["limit"])
            finally:
                box.shutdown()
        except (imaplib.IMAP4.error, OSError) as error:
            raise NotDone(f"{options['imap']}: {words_of(error)}") from None

    def _unseen(self, box: imaplib.IMAP4, folder: str, limit: int) -> Iterator[None]:
        expect(box.select(quoted(folder)))
        for uid in expect(box.uid("SEARCH", "UNSEEN"))[0].split()[:limit]:
            data = expect(box.uid("FETCH", uid.decode(), f"(BODY.PEEK[]<0.{MAX_BYTES}>)"))
            raw = next((item[1] for item in data if isinstance(item, tuple)), None)
            if raw is None:
                continue
            # Marked only after it is stored: after a crash it is read again, which does no harm. Mails that are not
            # bounces are flagged as well, for a person to find: a reply may need an answer.
            flags = r"(\Seen)" if self._take(raw) else r"(\Seen \Flagged)"
            expect(box.uid("STORE", uid.decode(), "+FLAGS", flags))
            yield


def connect(place: str) -> imaplib.IMAP4:
    host, _, port = place.partition(":")
    if port and not (port.isdecimal() and len(port) <= 5 and 0 < int(port) < 65536):
        raise BadInput(f"{place!r} is not HOST or HOST:PORT.")
    context = ssl.create_default_context()
    return imaplib.IMAP4_SSL(host, int(port or 993), ssl_context=context, timeout=TIMEOUT)


def expect(answer: tuple[str, list[Any]]) -> list[Any]:
    status, data = answer
    if status != "OK":
        raise imaplib.IMAP4.error(data[0] if data else status)
    return data


def quoted(folder: str) -> str:
    escaped = folder.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def words_of(error: BaseException) -> str:
    first = error.args[0] if error.args else ""
    return first.decode("utf-8", "replace") if isinstance(first, bytes) else str(error)
