"""Bounces: what a report says, what it changes, and the two ways in."""

from __future__ import annotations

import imaplib
import io
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.http import Http404
from django.test import RequestFactory

from accounts.channels.base import Kind
from fanout.inbound.bounces import MAX_BYTES, Bounce, TooLarge, apply_bounce, parse_bounce, take_in
from fanout.inbound.views import bounce_webhook
from fanout.management.commands import ingest_bounces
from fanout.models import Activity, Event, Run, RunTarget
from reminders.models import Suppression
from tests.factories import RunFactory, RunTargetFactory

NOW = datetime(2026, 7, 1, 12, 0, tzinfo=UTC)

REPORT = """\
From: MAILER-DAEMON@mx.example.org
To: mailer@example.com
Subject: Undelivered Mail Returned to Sender
MIME-Version: 1.0
Content-Type: multipart/report; report-type=delivery-status; boundary="b"

--b
Content-Type: text/plain

I'm sorry to have to inform you that your message could not be delivered.

--b
Content-Type: message/delivery-status

Reporting-MTA: dns; mx.example.org
Arrival-Date: Wed, 1 Jul 2026 11:00:00 +0000

{recipients}
--b
Content-Type: {returned_type}

From: mailer@example.com
To: ann@example.org
Message-ID: <{message_id}>
Subject: Reminder

{returned_text}
--b--
"""


def recipient(
    address: str = "Ann@Example.org",
    action: str = "failed",
    status: str = "5.1.1",
    code: str = "",
    original: str = "",
) -> str:
    lines = [f"Final-Recipient: rfc822; {address}"]
    if original:
        lines.append(f"Original-Recipient: rfc822;{original}")
    lines += [f"Action: {action}", f"Status: {status}"]
    if code:
        lines.append(f"Diagnostic-Code: {code}")
    return "\n".join(lines) + "\n"


def report(
    *recipients: str, message_id: str = "crier-7-0@example.com", returned_type: str = "text/rfc822-headers"
) -> bytes:
    body = REPORT.format(
        recipients="\n".join(recipients or (recipient(),)),
        message_id=message_id,
        returned_type=returned_type,
        returned_text="Doors open at nine" if returned_type == "message/rfc822" else "",
    )
    return body.replace("\n", "\r\n").encode()


QMAIL = b"""\
From: MAILER-DAEMON@mx.example.org
To: mailer@example.com
Subject: failure notice

Hi. This is the qmail-send program at mx.example.org.
I'm afraid I wasn't able to deliver your message to the following addresses.
This is a permanent error; I've given up. Sorry it didn't work out.

<bob@example.org>:
Sorry, no mailbox here by that name. (#5.1.1)

--- Below this line is a copy of the message.

Return-Path: <mailer@example.com>
Message-ID: <crier-9-0@example.com>
Subject: Reminder

Doors open at nine
"""

ORDINARY = b"""\
From: ann@example.org
To: mailer@example.com
Subject: Re: Reminder
In-Reply-To: <crier-7-0@example.com>

Thanks, 550 5.1.1 of us will come!
"""


# -- reading ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("returned_type", ["text/rfc822-headers", "message/rfc822"])
def test_a_standard_report(returned_type: str) -> None:
    (bounce,) = parse_bounce(report(recipient(code="smtp; 550 5.1.1 User unknown"), returned_type=returned_type))

    assert bounce == Bounce("ann@example.org", Kind.HARD_BOUNCE, "550 5.1.1 User unknown", 7, final=True)


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        pytest.param("5.1.1", "smtp; 550 5.1.1 User unknown", Kind.HARD_BOUNCE, id="no such user"),
        pytest.param("5.1.1", "", Kind.HARD_BOUNCE, id="status alone"),
        pytest.param("5.0.0", "smtp; 550 User unknown", Kind.HARD_BOUNCE, id="code alone"),
        pytest.param("5.1.1", "smtp; 550-5.1.1 No such 550-5.1.1 user", Kind.HARD_BOUNCE, id="several lines"),
        pytest.param("5.2.2", "smtp; 552 5.2.2 Mailbox full", Kind.SOFT_BOUNCE, id="full"),
        pytest.param("5.7.1", "smtp; 554 5.7.1 Looks like spam", Kind.CONTENT_REJECTED, id="spam"),
        pytest.param("4.4.7", "", Kind.SOFT_BOUNCE, id="given up"),
        pytest.param("4.4.1", "smtp; 451 see 550 5.1.1", Kind.SOFT_BOUNCE, id="a number in the text"),
        pytest.param("5.0.0", "x-unix; user unknown", Kind.CONTENT_REJECTED, id="final, no more known"),
        pytest.param("", "", Kind.SOFT_BOUNCE, id="nothing known"),
        pytest.param("5.1.1 (bad mailbox)", "", Kind.HARD_BOUNCE, id="with a comment"),
    ],
)
def test_what_a_failure_means(status: str, code: str, kind: Kind) -> None:
    (bounce,) = parse_bounce(report(recipient(status=status, code=code)))

    assert bounce.kind is kind
    assert bounce.final


def test_a_delay_is_soft_whatever_its_status() -> None:
    (bounce,) = parse_bounce(report(recipient(action="delayed", status="5.1.1")))

    assert (bounce.kind, bounce.final) == (Kind.SOFT_BOUNCE, False)


@pytest.mark.parametrize(
    ("action", "final"),
    [
        ("Failed", True),
        ("failure", True),
        ("error", True),
        ("failed (Bad destination mailbox address)", True),
        ("failed; no such user", True),
        ("delayed (will retry)", False),
    ],
)
def test_actions_as_servers_write_them(action: str, final: bool) -> None:
    (bounce,) = parse_bounce(report(recipient(action=action)))

    assert (bounce.address, bounce.final, bounce.hard) == ("ann@example.org", final, final)


@pytest.mark.parametrize("action", ["delivered", "relayed", "expanded", "", "FAILEDx"])
def test_other_actions_are_no_bounces(action: str) -> None:
    assert parse_bounce(report(recipient(action=action, status="2.0.0"))) == []


def test_the_original_recipient_counts() -> None:
    (bounce,) = parse_bounce(report(recipient("behind@other.org", original="Ann@example.org")))

    assert bounce.address == "ann@example.org"


def test_several_recipients() -> None:
    found = parse_bounce(report(recipient("a@example.org"), recipient("b@example.org", status="4.2.2")))

    assert [(b.address, b.hard) for b in found] == [("a@example.org", True), ("b@example.org", False)]


def test_a_dialect_is_read_by_flufl() -> None:
    (bounce,) = parse_bounce(QMAIL)

    assert bounce == Bounce("bob@example.org", Kind.HARD_BOUNCE, "failure notice", 9, final=True)


def test_reading_a_dialect_writes_no_log(caplog: pytest.LogCaptureFixture) -> None:
    parse_bounce(QMAIL)
    parse_bounce(ORDINARY)

    assert caplog.records == []


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x00\xff\xfe",
        ORDINARY,
        b"Content-Type: multipart/report; report-type=delivery-status\r\n\r\nno parts",
        b"Content-Type: message/delivery-status\r\n\r\n",
        b"Content-Type: message/delivery-status\r\n\r\nFinal-Recipient: rfc822; \r\nAction: failed\r\n",
        report(recipient("not an address")),
        report()[:300],
    ],
    ids=["empty", "bytes", "an answer", "no parts", "no blocks", "no address", "bad address", "cut off"],
)
def test_what_is_no_bounce(raw: bytes) -> None:
    assert parse_bounce(raw) == []


@pytest.mark.parametrize(
    "message_id",
    ["crier-x-0@example.com", "other-7-0@example.com", "crier-7@example.com", "crier-test-7f@a.b"],
)
def test_a_foreign_id_names_no_target(message_id: str) -> None:
    (bounce,) = parse_bounce(report(message_id=message_id))

    assert bounce.target_id is None


def test_the_reference_serves_when_nothing_was_returned() -> None:
    raw = report(message_id="other@example.com").replace(
        b"Subject: Undelivered", b"In-Reply-To: <crier-8-1@example.com>\r\nSubject: Undelivered"
    )

    assert parse_bounce(raw)[0].target_id == 8


def test_too_large_is_refused() -> None:
    with pytest.raises(TooLarge):
        parse_bounce(b"x" * (MAX_BYTES + 1))


# -- applying ---------------------------------------------------------------------------------------------


@pytest.fixture
def target(db: None) -> RunTarget:
    """One of two sent targets of a run that was a success."""
    run: Any = RunFactory(targets={"sent": 1})
    target: Any = RunTargetFactory(
        run=run, status="sent", recipient__kind="mailbox", recipient__address="ann@example.org"
    )
    Run.objects.filter(pk=run.pk).update(status="success", finished_at=NOW)
    found: RunTarget = target
    return found


def hard(target: RunTarget, address: str = "ann@example.org", kind: Kind = Kind.HARD_BOUNCE) -> Bounce:
    return Bounce(address, kind, "550 5.1.1 User unknown", target.pk, final=kind is not Kind.SOFT_BOUNCE)


def test_a_hard_bounce_suppresses_fails_and_rejudges(target: RunTarget) -> None:
    assert apply_bounce(hard(target), NOW)

    target.refresh_from_db()
    assert (target.status, target.error_kind, target.error) == (
        "failed",
        "hard_bounce",
        "550 5.1.1 User unknown",
    )
    run = Run.objects.get(pk=target.run_id)
    assert (run.status, run.sent, run.failed) == ("partial", 1, 1)
    suppression = Suppression.objects.get(address="ann@example.org")
    assert (suppression.reason, suppression.detail) == ("hard_bounce", "550 5.1.1 User unknown")
    event = Event.objects.get(run=run, verb="bounced")
    assert "ann@example.org" in event.detail


def test_the_same_bounce_again_changes_nothing(target: RunTarget) -> None:
    apply_bounce(hard(target), NOW)

    assert not apply_bounce(hard(target), NOW)
    assert Event.objects.filter(run=target.run_id, verb="bounced").count() == 1
    assert Suppression.objects.count() == 1


def test_a_soft_bounce_is_only_noted(target: RunTarget) -> None:
    assert apply_bounce(hard(target, kind=Kind.SOFT_BOUNCE), NOW)
    assert not apply_bounce(hard(target, kind=Kind.SOFT_BOUNCE), NOW)

    target.refresh_from_db()
    assert target.status == "sent"
    assert not Suppression.objects.exists()
    assert Event.objects.filter(run=target.run_id, verb="bounce noted").count() == 1


@pytest.mark.parametrize("status", ["4.4.7", "5.2.2", "5.4.4"])
def test_a_mail_that_was_given_up_fails_the_target_and_spares_the_address(target: RunTarget, status: str) -> None:
    raw = report(recipient(status=status), message_id=f"crier-{target.pk}-0@example.com")

    assert take_in(raw, NOW) == (1, 1)
    target.refresh_from_db()
    assert (target.status, target.error_kind) == ("failed", "soft_bounce")
    assert Run.objects.get(pk=target.run_id).status == "partial"
    assert not Suppression.objects.exists()


def test_a_bounce_settles_what_was_in_doubt_and_the_cap_still_counts_it(target: RunTarget) -> None:
    rows = RunTarget.objects.filter(pk=target.pk)
    rows.update(status="unconfirmed", claimed_at=NOW, parts_sent=0)

    assert apply_bounce(hard(target), NOW)

    target.refresh_from_db()
    assert (target.status, target.parts_sent, target.settled_at) == ("failed", 1, NOW)
    assert Suppression.objects.filter(address="ann@example.org").exists()
    activity = Activity.objects.get(run_target=target)
    assert (activity.outcome, activity.part, activity.at) == ("sent", 0, NOW)
    assert not apply_bounce(hard(target), NOW)


def test_a_refused_content_fails_the_target_and_spares_the_address(target: RunTarget) -> None:
    apply_bounce(hard(target, kind=Kind.CONTENT_REJECTED), NOW)

    target.refresh_from_db()
    assert (target.status, target.error_kind) == ("failed", "content_rejected")
    assert not Suppression.objects.exists()


def test_somebody_behind_the_recipient_does_not_fail_it(target: RunTarget) -> None:
    """One member of a list: the list took the mail."""
    apply_bounce(hard(target, "member@other.org"), NOW)

    target.refresh_from_db()
    assert target.status == "sent"
    assert not Suppression.objects.exists()
    assert Event.objects.filter(run=target.run_id, verb="bounced").exists()


@pytest.mark.parametrize("target_id", [None, 999_999_999])
def test_a_report_about_no_mail_of_ours_changes_nothing(db: None, target_id: int | None) -> None:
    assert not apply_bounce(Bounce("bob@example.org", Kind.HARD_BOUNCE, "gone", target_id, final=True), NOW)

    assert not Suppression.objects.exists()
    assert not Event.objects.exists()


@pytest.mark.parametrize("status", ["pending", "skipped", "failed"])
def test_only_a_target_that_went_out_changes(target: RunTarget, status: str) -> None:
    Run.objects.filter(pk=target.run_id).update(status="running", finished_at=None)
    RunTarget.objects.filter(pk=target.pk).update(status=status)

    apply_bounce(hard(target), NOW)

    target.refresh_from_db()
    assert target.status == status


def test_an_earlier_suppression_keeps_its_reason(target: RunTarget) -> None:
    Suppression.objects.create(address="ann@example.org", reason="unsubscribed")

    apply_bounce(hard(target), NOW)

    assert Suppression.objects.get().reason == "unsubscribed"


def test_a_nul_does_not_upset_the_database(target: RunTarget) -> None:
    assert apply_bounce(Bounce("ann@example.org", Kind.HARD_BOUNCE, "a\x00b" * 400, target.pk, final=True), NOW)


def test_take_in_counts(target: RunTarget) -> None:
    raw = report(message_id=f"crier-{target.pk}-0@example.com")

    assert take_in(raw, NOW) == (1, 1)
    assert take_in(raw, NOW) == (1, 0)
    assert take_in(ORDINARY, NOW) == (0, 0)


# -- the webhook ------------------------------------------------------------------------------------------


def post(raw: bytes, token: str | None = "s3cret", method: str = "post") -> Any:
    headers = {"X-Crier-Token": token} if token is not None else {}
    return getattr(RequestFactory(), method)("/", data=raw, content_type="message/rfc822", headers=headers)


def test_the_webhook_takes_a_bounce(target: RunTarget, settings: Any) -> None:
    settings.BOUNCE_TOKEN = "s3cret"

    response = bounce_webhook(post(report(message_id=f"crier-{target.pk}-0@example.com")))

    assert response.status_code == 200
    assert response.content == b'{"bounces": 1, "applied": 1}'
    target.refresh_from_db()
    assert target.status == "failed"


@pytest.mark.parametrize("token", [None, "", "wrong", "s3cret ", "ş3cret"])
def test_the_webhook_wants_its_token(settings: Any, token: str | None) -> None:
    settings.BOUNCE_TOKEN = "s3cret"

    assert bounce_webhook(post(report(), token)).status_code == 403


@pytest.mark.parametrize("value", ["", None])
def test_the_webhook_is_not_there_without_a_token(settings: Any, value: str | None) -> None:
    settings.BOUNCE_TOKEN = value

    with pytest.raises(Http404):
        bounce_webhook(post(report(), ""))


def test_the_webhook_takes_posts_of_a_fair_size(settings: Any) -> None:
    settings.BOUNCE_TOKEN = "s3cret"
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 100

    assert bounce_webhook(post(b"", method="get")).status_code == 405
    assert bounce_webhook(post(b"x" * 200)).status_code == 413


# -- the command ------------------------------------------------------------------------------------------


def ingest(*args: str) -> str:
    out = io.StringIO()
    call_command("ingest_bounces", *args, stdout=out)
    return out.getvalue()


def test_files(target: RunTarget, tmp_path: Path) -> None:
    bounce, answer = tmp_path / "bounce.eml", tmp_path / "answer.eml"
    bounce.write_bytes(report(message_id=f"crier-{target.pk}-0@example.com"))
    answer.write_bytes(ORDINARY)

    assert ingest("--file", str(bounce), str(answer)) == "2 mails: 1 bounces, 1 new, 1 not bounces, 0 unreadable.\n"
    assert ingest("--file", str(bounce)).startswith("1 mails: 1 bounces, 0 new")


def test_scripts_get_the_counts_as_json(target: RunTarget, tmp_path: Path) -> None:
    bounce = tmp_path / "bounce.eml"
    bounce.write_bytes(report(message_id=f"crier-{target.pk}-0@example.com"))

    counts = {"mails": 1, "bounces": 1, "new": 1, "not_bounces": 0, "unreadable": 0}
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
            assert args[1] == "(BODY.PEEK[])"
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
    monkeypatch.setenv("BOUNCE_IMAP_PASSWORD", "open sesame")
    return box


IMAP = ("--imap", "mail.example.com", "--user", "bounces")


def test_imap_marks_what_was_applied(db: None, box: Mailbox) -> None:
    assert ingest(*IMAP) == "3 mails: 2 bounces, 0 new, 1 not bounces, 0 unreadable.\n"

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
    monkeypatch.setenv("BOUNCE_IMAP_PASSWORD", "open barley")
    with pytest.raises(CommandError, match=r"AUTHENTICATIONFAILED") as caught:
        ingest(*IMAP)
    assert "barley" not in str(caught.value)


def test_imap_needs_user_and_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BOUNCE_IMAP_PASSWORD", raising=False)

    with pytest.raises(CommandError, match="BOUNCE_IMAP_PASSWORD") as caught:
        ingest(*IMAP)
    assert caught.value.returncode == 2
