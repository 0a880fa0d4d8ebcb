"""`ingest_bounces`: bounce mail from files, and from Dovecot over IMAP."""

from __future__ import annotations

import imaplib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import OperationalError

from fanout.inbound import bounces
from fanout.management.commands import ingest_bounces
from fanout.models import InboundEvent, RunTarget
from reminders.models import Suppression
from tests.factories import RunFactory, RunTargetFactory
from tests.inbound.imap_server import DOVECOT, PASSWORD, ImapServer
from tests.inbound.mails import NO_TARGET, ORDINARY, QMAIL, id_of, recipient, report


@pytest.fixture
def target(db: None) -> RunTarget:
    return RunTargetFactory.create(
        run=RunFactory.create(status="running"),
        status="sent",
        recipient__kind="mailbox",
        recipient__address="ann@example.org",
    )


def ingest(*args: str) -> str:
    out = io.StringIO()
    call_command("ingest_bounces", *args, stdout=out)
    return out.getvalue()


def test_files(target: RunTarget, tmp_path: Path) -> None:
    bounce, answer = tmp_path / "bounce.eml", tmp_path / "answer.eml"
    bounce.write_bytes(report(returned=id_of(target)))
    answer.write_bytes(ORDINARY)

    assert (
        ingest("--file", str(bounce), str(answer))
        == "2 mails: 1 bounces, 1 new, 0 replies, 0 complaints, 1 neither, 0 unreadable.\n"
    )
    assert ingest("--file", str(bounce)).startswith("1 mails: 1 bounces, 0 new")


def test_scripts_get_the_counts_as_json(target: RunTarget, tmp_path: Path) -> None:
    bounce = tmp_path / "bounce.eml"
    bounce.write_bytes(report(returned=id_of(target)))

    counts = {"mails": 1, "bounces": 1, "new": 1, "replies": 0, "complaints": 0, "neither": 0, "unreadable": 0}
    assert json.loads(ingest("--file", str(bounce), "--json")) == counts


def test_a_missing_file_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="No such file") as caught:
        ingest("--file", str(tmp_path / "none"))
    assert caught.value.returncode == 2


class Mailbox:
    """As much of an IMAP server as the command talks to."""

    def __init__(self, mails: list[bytes]) -> None:
        self.mails = dict(enumerate(mails, 1))
        self.flags: dict[int, str] = {}
        self.closed = False
        self.fail_on: int | None = None

    def login(self, user: str, password: str) -> tuple[str, list[bytes]]:
        if password != "open sesame":
            raise imaplib.IMAP4.error(b"[AUTHENTICATIONFAILED] Invalid credentials")
        return "OK", [b""]

    def select(self, folder: str) -> tuple[str, list[bytes]]:
        return ("OK", [b"1"]) if folder == '"INBOX"' else ("NO", [b"No such folder"])

    def uid(self, command: str, *args: str) -> tuple[str, list[Any]]:
        if command == "SEARCH":
            return "OK", [" ".join(str(n) for n in self.mails if n not in self.flags).encode()]
        number = int(args[0])
        if command == "FETCH":
            assert args[1] == "(BODY.PEEK[]<0.10000000>)"
            if number == self.fail_on:
                raise OSError("connection reset")
            return "OK", [(b"1 (UID 1 BODY[] {3}", self.mails[number]), b")"]
        self.flags[number] = args[2]
        return "OK", [b""]

    def shutdown(self) -> None:
        self.closed = True


@pytest.fixture
def box(monkeypatch: pytest.MonkeyPatch) -> Mailbox:
    box = Mailbox([ORDINARY, report(), QMAIL])
    monkeypatch.setattr(ingest_bounces, "connect", lambda place: box)
    monkeypatch.setattr(settings, "BOUNCE_IMAP_PASSWORD", "open sesame")
    return box


IMAP = ("--imap", "mail.example.com", "--user", "bounces")


def test_imap_marks_what_was_applied(db: None, box: Mailbox) -> None:
    assert ingest(*IMAP) == "3 mails: 2 bounces, 0 new, 0 replies, 0 complaints, 1 neither, 0 unreadable.\n"

    assert box.flags == {1: r"(\Seen \Flagged)", 2: r"(\Seen)", 3: r"(\Seen)"}
    assert box.closed
    assert ingest(*IMAP).startswith("0 mails")


def test_imap_is_bounded(db: None, box: Mailbox) -> None:
    assert ingest(*IMAP, "--limit", "2").startswith("2 mails")
    assert ingest(*IMAP, "--limit", "2").startswith("1 mails")


def test_a_mail_that_was_not_applied_stays_unseen(db: None, box: Mailbox) -> None:
    box.fail_on = 3

    with pytest.raises(CommandError, match="connection reset"):
        ingest(*IMAP)
    assert set(box.flags) == {1, 2}
    assert box.closed


def test_imap_errors_are_told_in_the_servers_words(box: Mailbox, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CommandError, match="No such folder"):
        ingest(*IMAP, "--folder", "Nowhere")
    monkeypatch.setattr(settings, "BOUNCE_IMAP_PASSWORD", "open barley")
    with pytest.raises(CommandError, match=r"AUTHENTICATIONFAILED") as caught:
        ingest(*IMAP)
    assert "barley" not in str(caught.value)


def test_imap_needs_user_and_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "BOUNCE_IMAP_PASSWORD", "")

    with pytest.raises(CommandError, match="BOUNCE_IMAP_PASSWORD") as caught:
        ingest(*IMAP)
    assert caught.value.returncode == 2


# --- a real server ----------------------------------------------------------------------------------------


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ImapServer]:
    if DOVECOT is None:
        pytest.skip("dovecot is not installed (Debian package dovecot-imapd)")
    with ImapServer() as server:
        monkeypatch.setenv("SSL_CERT_FILE", str(server.certificate))
        monkeypatch.setattr(settings, "BOUNCE_IMAP_PASSWORD", PASSWORD)
        yield server


def fetch(server: ImapServer, *words: str) -> dict[str, Any]:
    place = f"127.0.0.1:{server.port}"
    counts: dict[str, Any] = json.loads(ingest("--imap", place, "--user", "bounces", "--json", *words))
    return counts


def about(target: RunTarget) -> bytes:
    return report(recipient("ann@example.org"), returned=id_of(target))


@pytest.mark.slow
def test_unseen_mail_is_read_once_and_marked(target: RunTarget, server: ImapServer) -> None:
    server.put(about(target), ORDINARY, b"\xff\x00 garbage", QMAIL)

    counts = {
        "mails": 4,
        "bounces": 2,
        "new": 1,
        "replies": 0,
        "complaints": 0,
        "neither": 2,
        "unreadable": 0,
    }
    assert fetch(server) == counts

    target.refresh_from_db()
    assert target.status == "failed"
    assert Suppression.objects.get().address == "ann@example.org"
    # What is no bounce is starred, for a person to find.
    assert server.flags() == ["S", "FS", "FS", "S"]
    assert fetch(server)["mails"] == 0
    server.put(about(target))
    counts = {
        "mails": 1,
        "bounces": 1,
        "new": 0,
        "replies": 0,
        "complaints": 0,
        "neither": 0,
        "unreadable": 0,
    }
    assert fetch(server) == counts


@pytest.mark.slow
def test_only_the_beginning_of_a_huge_mail_is_fetched(target: RunTarget, server: ImapServer) -> None:
    server.put(about(target).replace(b"--b--", (b"x" * 76 + b"\n") * 150_000 + b"--b--"))
    none = dict.fromkeys(("replies", "complaints", "neither", "unreadable"), 0)
    assert fetch(server) == {"mails": 1, "bounces": 1, "new": 1, **none}
    assert server.flags() == ["S"]


@pytest.mark.slow
def test_a_reply_is_processed_and_stays_flagged_for_a_person(target: RunTarget, server: ImapServer) -> None:
    server.put(ORDINARY.replace(id_of(NO_TARGET).encode(), id_of(target).encode()))
    counts = {
        "mails": 1,
        "bounces": 0,
        "new": 1,
        "replies": 1,
        "complaints": 0,
        "neither": 0,
        "unreadable": 0,
    }
    assert fetch(server) == counts
    assert server.flags() == ["FS"]
    event = InboundEvent.objects.get()
    assert (event.kind, event.address, event.account_id) == ("reply", "ann@example.org", target.account_id)


@pytest.mark.slow
def test_a_mail_that_breaks_us_does_not_block_the_others(
    target: RunTarget, server: ImapServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    really = bounces.take_in
    monkeypatch.setattr(bounces, "take_in", lambda raw, now: 1 // 0 if b"poison" in raw else really(raw, now))
    server.put(b"Subject: poison\r\n\r\n", about(target))

    counts = {
        "mails": 2,
        "bounces": 1,
        "new": 1,
        "replies": 0,
        "complaints": 0,
        "neither": 0,
        "unreadable": 1,
    }
    assert fetch(server) == counts
    assert server.flags() == ["FS", "S"]
    assert "could not be read as a bounce" in caplog.text


@pytest.mark.slow
def test_while_the_database_is_away_mail_stays_unseen(
    target: RunTarget, server: ImapServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(raw: bytes, now: Any) -> Any:
        raise OperationalError("the connection is closed")

    with monkeypatch.context() as context:
        context.setattr(bounces, "take_in", away)
        server.put(about(target))
        with pytest.raises((CommandError, OperationalError)):
            fetch(server)
    assert server.flags() == [""]
    assert fetch(server)["new"] == 1


@pytest.mark.slow
def test_a_connection_that_drops_in_the_middle_loses_nothing(
    target: RunTarget, server: ImapServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first mail was applied and could not be marked: it is read again and changes nothing."""
    really = bounces.take_in

    def drop(raw: bytes, now: Any) -> tuple[int, int]:
        counts = really(raw, now)
        server.stop()
        return counts

    server.put(about(target), ORDINARY)
    with monkeypatch.context() as context:
        context.setattr(bounces, "take_in", drop)
        with pytest.raises(CommandError, match=r"127\.0\.0\.1") as caught:
            fetch(server)
    assert caught.value.returncode == 1
    assert server.flags() == ["", ""]
    target.refresh_from_db()
    assert target.status == "failed"

    server.start()
    counts = {
        "mails": 2,
        "bounces": 1,
        "new": 0,
        "replies": 0,
        "complaints": 0,
        "neither": 1,
        "unreadable": 0,
    }
    assert fetch(server) == counts
    assert server.flags() == ["S", "FS"]


@pytest.mark.slow
def test_the_servers_own_words(db: None, server: ImapServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CommandError, match="Mailbox doesn't exist"):
        fetch(server, "--folder", "Nowhere")
    monkeypatch.setattr(settings, "BOUNCE_IMAP_PASSWORD", "barley")
    with pytest.raises(CommandError, match="AUTHENTICATIONFAILED"):
        fetch(server)


@pytest.mark.slow
def test_an_unknown_certificate_gets_no_password(db: None, server: ImapServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")

    with pytest.raises(CommandError, match=r"(?i)certificate verify failed"):
        fetch(server)
