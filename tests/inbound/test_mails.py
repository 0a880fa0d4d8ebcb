"""Bounce mail: what a report says."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta

import pytest

from accounts.channels.base import Kind
from fanout.inbound import mails, worker
from fanout.inbound.events import MOST_WORDS
from fanout.inbound.mails import MAX_BYTES, Bounce, TooLarge, mailbox, parse_bounce, verdict
from fanout.models import InboundEvent, RunTarget
from fanout.rules.message_ids import Named, message_id
from reminders.models import Recipient, Suppression
from tests.factories import RunFactory, RunTargetFactory
from tests.inbound.mails import ORDINARY, QMAIL, id_of, recipient, report


@pytest.mark.parametrize("returned_type", ["text/rfc822-headers", "message/rfc822"])
def test_a_standard_report(returned_type: str) -> None:
    (bounce,) = parse_bounce(report(recipient(code="smtp; 550 5.1.1 User unknown"), returned_type=returned_type))

    assert bounce == Bounce("ann@example.org", Kind.HARD_BOUNCE, "550 5.1.1 User unknown", Named(7, 0), final=True)


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        pytest.param("5.1.1", "smtp; 550 5.1.1 User unknown", Kind.HARD_BOUNCE, id="no such user"),
        pytest.param("5.1.1", "", Kind.HARD_BOUNCE, id="status alone"),
        pytest.param("5.0.0", "smtp; 550 User unknown", Kind.SOFT_BOUNCE, id="a bare 550, perhaps of a filter"),
        pytest.param(
            "5.0.0", "smtp; 550 User unknown (in reply to RCPT TO command)", Kind.HARD_BOUNCE, id="a bare 550 to RCPT"
        ),
        pytest.param(
            "5.1.1", "smtp; 550 5.1.1 No such user (in reply to end of DATA command)", Kind.SOFT_BOUNCE, id="after DATA"
        ),
        pytest.param("5.1.1", "smtp; 550-5.1.1 No such 550-5.1.1 user", Kind.HARD_BOUNCE, id="several lines"),
        pytest.param("5.2.2", "smtp; 552 5.2.2 Mailbox full", Kind.SOFT_BOUNCE, id="full"),
        pytest.param("5.7.1", "smtp; 554 5.7.1 Looks like spam", Kind.CONTENT_REJECTED, id="spam"),
        pytest.param("4.4.7", "", Kind.SOFT_BOUNCE, id="given up"),
        pytest.param("4.4.1", "smtp; 451 see 550 5.1.1", Kind.SOFT_BOUNCE, id="a number in the text"),
        pytest.param("5.0.0", "x-unix; user unknown", Kind.HARD_BOUNCE, id="the server's own words"),
        pytest.param("5.0.0", "x-unix; no", Kind.SOFT_BOUNCE, id="final, no more known"),
        pytest.param("5.7.26", "smtp; 550 5.7.26 DMARC", Kind.SENDER_REJECTED, id="our domain"),
        pytest.param("", "", Kind.SOFT_BOUNCE, id="nothing known"),
        pytest.param("5.1.1 (bad mailbox)", "", Kind.HARD_BOUNCE, id="with a comment"),
    ],
)
def test_what_a_failure_means(status: str, code: str, kind: Kind) -> None:
    (bounce,) = parse_bounce(report(recipient(status=status, code=code)))

    assert bounce.kind is kind
    assert bounce.final


def test_a_delay_is_soft_with_any_status() -> None:
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


def test_a_report_that_names_only_the_original_recipient_is_one() -> None:
    original = recipient("behind@other.org", original="Ann@example.org").partition("\n")[2]
    (bounce,) = parse_bounce(report(original))

    assert (bounce.address, bounce.final) == ("ann@example.org", True)


def test_several_recipients() -> None:
    bounces = parse_bounce(report(recipient("a@example.org"), recipient("b@example.org", status="4.2.2")))

    assert [(b.address, b.hard) for b in bounces] == [("a@example.org", True), ("b@example.org", False)]


def test_a_notice_without_a_report() -> None:
    (bounce,) = parse_bounce(QMAIL)

    assert bounce == Bounce(
        "bob@example.org",
        Kind.HARD_BOUNCE,
        "554 5.1.1 <bob@example.org>: Sorry, no mailbox here by that name. (#5.1.1)",
        Named(9, 0),
        final=True,
    )


def test_long_lines_behind_a_notice_change_nothing() -> None:
    for behind in (b"x" * 100_000, b"x" * 60 + b"\r\n", b"\r\n" * 100_000):
        assert parse_bounce(QMAIL + behind) == parse_bounce(QMAIL)


def test_reading_a_notice_writes_no_log(caplog: pytest.LogCaptureFixture) -> None:
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
    "returned",
    [
        "crier-x-0@example.com",
        "other-7-0@example.com",
        "crier-test-7f@a.b",
        "crier-7-0@example.com",
        id_of(7).replace("crier-7-", "crier-8-"),
    ],
    ids=["no number", "other", "test", "without a hash", "another's hash"],
)
def test_an_id_that_we_did_not_make_names_no_target(returned: str) -> None:
    (bounce,) = parse_bounce(report(returned=returned))

    assert bounce.message is None


def test_the_reference_serves_when_nothing_was_returned() -> None:
    raw = report(returned="other@example.com").replace(
        b"Subject: Undelivered", f"In-Reply-To: <{id_of(8, 1)}>\r\nSubject: Undelivered".encode()
    )

    assert parse_bounce(raw)[0].message == Named(8, 1)


def test_too_large_is_refused() -> None:
    with pytest.raises(TooLarge):
        parse_bounce(b"x" * (MAX_BYTES + 1))


def test_a_returned_mail_of_any_length_and_depth_leaves_the_report_readable() -> None:
    inner = b"".join(b"Content-Type: multipart/mixed; boundary=x%d\n\n--x%d\n" % (n, n) for n in range(2_000))
    (bounce,) = parse_bounce(report().replace(b"--b--", inner + b"x\n" * 50_000 + b"--b--"))

    assert (bounce.address, bounce.message) == ("ann@example.org", Named(7, 0))


case = pytest.param


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("status", "diagnostic", "kind", "detail"),
    [
        case("5.1.1", "smtp; 550 5.1.1 unknown", "hard_bounce", "550 5.1.1 unknown", id="both"),
        case("5.1.1", "smtp; 550 unknown", "hard_bounce", "550 5.1.1 unknown", id="a-status-of-its-own"),
        case("5.1.1", "x-unix; unknown", "hard_bounce", "554 5.1.1 unknown", id="no-reply"),
        case("4.2.2", "full", "soft_bounce", "450 4.2.2 full", id="no-kind-of-diagnostic"),
        case("", "smtp; 452 full", "soft_bounce", "452 full", id="no-status"),
    ],
)
def test_what_a_report_means(status: str, diagnostic: str, kind: str, detail: str) -> None:
    found = verdict(status, diagnostic)
    assert found[0].value == kind
    assert found[1].split() == detail.split()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("value", "address"),
    [
        ("rfc822; Ann@Example.org", "Ann@example.org"),
        ("ann@example.org", "ann@example.org"),
        ("UTF-8;ann@example.org", "ann@example.org"),
        ("smtp; ann@example.org", "ann@example.org"),
        ("x400; ann@example.org", ""),
        ("rfc822; nobody", ""),
    ],
)
def test_the_mailbox_of_a_report(value: str, address: str) -> None:
    assert mailbox(value).lower() == address.lower()


NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
SENT_AT = NOW - timedelta(hours=2)
MAIL = """\
From: Ann Example <Ann@Example.org>
To: mailer@example.com
Subject: Re: Reminder
Date: Mon, 1 Jun 2026 11:00:00 +0000
Message-ID: <answer-1@example.org>
In-Reply-To: <{named}>
{more}Content-Type: text/plain; charset=utf-8

{text}

On Mon, 1 Jun 2026 at 10:00, Bob <mailer@example.com> wrote:
> Doors open at nine
"""


@pytest.fixture
def target(db: None) -> RunTarget:
    made: RunTarget = RunTargetFactory.create(
        run=RunFactory.create(status="running", reply_parts=[{"kind": "text", "text": "Thank you!"}]),
        status="sent",
        parts_sent=1,
        claimed_at=SENT_AT,
        settled_at=SENT_AT,
        recipient__kind="mailbox",
        recipient__address="ann@example.org",
    )
    return made


def mail(target: RunTarget, text: str = "See you", more: str = "", **fields: str) -> bytes:
    return MAIL.format(**{"named": id_of(target), "text": text, "more": more} | fields).encode()


def test_a_reply_is_stored_and_worked_on_like_any_other(target: RunTarget) -> None:
    assert mails.take_in_reply(mail(target), NOW) == (True, True)
    event = InboundEvent.objects.get()
    assert (event.account_id, event.kind, event.address, event.text) == (
        target.account_id,
        "reply",
        "ann@example.org",
        "See you",
    )
    assert event.happened_at == NOW - timedelta(hours=1)
    worker.step(NOW)
    event.refresh_from_db()
    assert event.effect.startswith("noted; Message 2")
    assert event.run_target_id == target.pk
    assert Recipient.objects.get(pk=target.recipient_id).replied_at == NOW - timedelta(hours=1)


def test_the_same_mail_again_changes_nothing(target: RunTarget) -> None:
    assert [mails.take_in_reply(mail(target), NOW) for _ in range(2)] == [(True, True), (True, False)]
    assert InboundEvent.objects.count() == 1


def test_an_opt_out_above_the_quotation(target: RunTarget) -> None:
    mails.take_in_reply(mail(target, "STOP"), NOW)
    worker.step(NOW)
    assert Suppression.objects.get().address == "ann@example.org"
    assert Recipient.objects.get(pk=target.recipient_id).status == "opted_out"


def test_it_answers_the_message_that_it_names(target: RunTarget) -> None:
    """Not the latest one: a mail program says which."""
    later = RunTargetFactory.create(
        run=RunFactory.create(status="running", account=target.run.account),
        recipient=target.recipient,
        account=target.account,
        address=target.address,
        status="sent",
        parts_sent=1,
        claimed_at=SENT_AT + timedelta(minutes=10),
    )
    mails.take_in_reply(mail(target), NOW)
    worker.step(NOW)
    assert later.pk != InboundEvent.objects.get().run_target_id == target.pk


NO_REPLIES = {
    "an absence note": {"more": "Auto-Submitted: auto-replied\n"},
    "an old absence note": {"more": "X-Autoreply: yes\n"},
    "of a machine": {"more": "Precedence: bulk\n"},
    "of a list": {"more": "List-Id: <all.example.org>\n"},
    "without a return path": {"more": "Return-Path: <>\n"},
    "a wrong hash": {"named": "crier-1-0-00000000000000000000@example.com"},
    "no message of ours": {"named": "hello@example.org"},
}


@pytest.mark.parametrize("name", NO_REPLIES)
def test_automatic_mail_is_not_a_reply(target: RunTarget, name: str) -> None:
    assert mails.take_in_reply(mail(target, **NO_REPLIES[name]), NOW) == (False, False)
    assert not InboundEvent.objects.exists()


def test_mail_from_another_sender_is_not_a_reply(target: RunTarget) -> None:
    forwarded = mail(target).replace(b"Ann@Example.org", b"ben@example.org")
    assert mails.take_in_reply(forwarded, NOW) == (False, False)
    assert mails.take_in_reply(ORDINARY, NOW) == (False, False), "target 7 does not exist"


def test_by_the_references_where_nothing_else_names_it(target: RunTarget) -> None:
    raw = mail(target).replace(b"In-Reply-To", b"References")
    assert mails.take_in_reply(raw, NOW) == (True, True)


def test_the_same_mail_by_another_way_is_the_same_reply(target: RunTarget) -> None:
    """A server that delivers it again adds lines of its own; another mail with the same words is another reply."""
    raw = mail(target)
    assert b"\nMessage-ID: <" in raw
    other = raw.replace(b"\nMessage-ID: <", b"\nMessage-ID: <another-", 1)
    ways = (raw, b"Received: from elsewhere\n" + raw, other)
    replies = [reply for way in ways if (reply := mails.parse_reply(way))]
    assert len(replies) == 3
    assert replies[0].key == replies[1].key != replies[2].key


@pytest.mark.parametrize("date", [b"Mon, 1 Jun 1999 11:00:00 +0000", b"yesterday", b"Mon, 99 Jun 9999999 11:00:00"])
def test_a_wrong_clock_is_not_believed(target: RunTarget, date: bytes) -> None:
    mails.take_in_reply(mail(target).replace(b"Mon, 1 Jun 2026 11:00:00 +0000", date), NOW)
    assert InboundEvent.objects.get().happened_at == NOW


@pytest.mark.parametrize("charset", ["utf-8", "iso-8859-1", "no-such-thing"])
def test_in_any_alphabet(target: RunTarget, charset: str) -> None:
    raw = mail(target, "Grüße").decode().replace("charset=utf-8", f"charset={charset}")
    reply = mails.parse_reply(raw.encode(charset if charset == "iso-8859-1" else "utf-8"))
    assert reply is not None
    assert reply.text == "Grüße"


def test_the_text_below_a_large_attachment(target: RunTarget) -> None:
    picture = b"--b\nContent-Type: image/jpeg\nContent-Transfer-Encoding: base64\n\n" + (b"QUJD" * 19 + b"\n") * 60_000
    text = b"Content-Type: text/plain; charset=utf-8"
    mixed = b"Content-Type: multipart/mixed; boundary=b\n\n" + picture + b"--b\n" + text
    reply = mails.parse_reply(mail(target, "STOP").replace(text, mixed))
    assert reply is not None
    assert reply.text == "STOP"


def test_html_alone(target: RunTarget) -> None:
    raw = mail(target).replace(b"text/plain", b"text/html")
    raw = raw[: raw.index(b"\n\n")] + b"\n\n<div>Yes</div><blockquote>Doors open at nine</blockquote>"
    reply = mails.parse_reply(raw)
    assert reply is not None
    assert dataclasses.astuple(reply)[3] == "Yes"


@pytest.mark.parametrize("sender", ["(" * 5_000, "a:" * 5_000])
def test_an_unreadable_sender_is_ignored(target: RunTarget, sender: str) -> None:
    raw = mail(target)
    line = next(line for line in raw.splitlines() if line.startswith(b"From: "))
    assert mails.parse_reply(raw.replace(line, f"From: {sender}".encode())) is None


def test_a_long_reply_is_stored_shortened(target: RunTarget) -> None:
    mails.take_in_reply(mail(target, "Yes! " * 3_000), NOW)
    assert InboundEvent.objects.get().text == ("Yes! " * 3_000)[:MOST_WORDS]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("header", "person"),
    [
        case(b"X-Nothing: 1", True, id="a-person"),
        case(b"Auto-Submitted: no", True, id="says-so"),
        case(b"Auto-Submitted: auto-replied; x=1", False, id="rfc-3834"),
        case(b"Precedence: Bulk ", False, id="bulk"),
        case(b"Precedence: special", True, id="another-precedence"),
        case(b"Return-Path: <>", False, id="empty-path"),
        case(b"Return-Path: <ann@example.org>", True, id="a-path"),
        case(b"List-Id: x", False, id="a-list"),
        case(b"X-Autoreply: yes", False, id="autoreply"),
    ],
)
def test_what_a_person_writes(header: bytes, person: bool) -> None:
    named = f"In-Reply-To: <{message_id(7, 0)}@example.com>\r\n".encode()
    raw = b"From: ann@example.org\r\n" + named + header + b"\r\nMessage-ID: <1@x>\r\n\r\nYes, please\r\n"
    found = mails.parse_reply(raw)
    assert (found is not None) is person
    if found:
        assert (found.address, found.message.target_id, found.text, found.at) == (
            "ann@example.org",
            7,
            "Yes, please",
            None,
        )
