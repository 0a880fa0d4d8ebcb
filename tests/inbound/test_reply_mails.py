"""Replies by mail: whose they are, what was written, and what no person wrote."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta

import pytest

from fanout.inbound import bounces, worker
from fanout.inbound.event_store import MOST_WORDS
from fanout.inbound.reply_mails import parse_reply, take_in_reply
from fanout.models import InboundEvent, Run, RunTarget
from fanout.rules.message_ids import message_id
from reminders.models import Recipient, Suppression
from tests.factories import RunFactory, RunTargetFactory
from tests.inbound.mails import ORDINARY, id_of

case = pytest.param
NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
SENT_AT = NOW - timedelta(hours=2)
MAIL = """\
From: Ann Example <Ann@Example.org>
To: mailer@example.com
Subject: {subject}
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
    return MAIL.format(
        **{"named": id_of(target), "text": text, "more": more, "subject": "Re: Reminder"} | fields
    ).encode()


def test_a_reply_is_stored_and_worked_on_like_any_other(target: RunTarget) -> None:
    assert take_in_reply(mail(target), NOW) == (True, True)
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
    assert [take_in_reply(mail(target), NOW) for _ in range(2)] == [(True, True), (True, False)]
    assert InboundEvent.objects.count() == 1


def test_an_opt_out_above_the_quotation(target: RunTarget) -> None:
    take_in_reply(mail(target, "STOP"), NOW)
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
    take_in_reply(mail(target), NOW)
    worker.step(NOW)
    assert later.pk != InboundEvent.objects.get().run_target_id == target.pk


MACHINES = {
    "RFC 3834": {"more": "Auto-Submitted: auto-replied\n"},
    "an old absence note": {"more": "X-Autoreply: yes\n"},
    "Exchange": {"more": "X-Auto-Response-Suppress: All\n"},
    "a program": {"more": "Precedence: bulk\n"},
    "a list": {"more": "List-Id: <all.example.org>\n"},
    "no return path": {"more": "Return-Path: <>\n"},
    "by the subject": {"subject": "Automatische Antwort: Reminder"},
    "by an encoded subject": {"subject": "=?utf-8?q?R=C3=A9ponse_automatique_=3A_Reminder?="},
}


@pytest.mark.parametrize("name", MACHINES)
def test_what_a_program_wrote_is_kept_and_changes_nothing(target: RunTarget, name: str) -> None:
    raw = mail(target, "I am away until 12 June 2026.", **MACHINES[name])
    assert [take_in_reply(raw, NOW) for _ in range(2)] == [(False, True), (False, False)]
    before = Recipient.objects.values("replied_at", "status").get(pk=target.recipient_id)
    worker.step(NOW)
    event = InboundEvent.objects.get()
    assert (event.kind, event.state, event.text) == ("automatic", "done", "I am away until 12 June 2026.")
    assert event.effect.startswith("kept: ")
    assert event.effect.endswith(", away until 12 June 2026")
    target.refresh_from_db()
    assert target.replied_at is None
    assert Recipient.objects.values("replied_at", "status").get(pk=target.recipient_id) == before
    assert not Run.objects.filter(answers__isnull=False).exists(), "no Message 2"


@pytest.mark.parametrize("subject", ["Re: Out of office", "Out of office"])
def test_a_reply_about_an_absence_is_a_reply(target: RunTarget, subject: str) -> None:
    Run.objects.filter(pk=target.run_id).update(parts=[{"kind": "text", "subject": "Out of office", "text": "Hello"}])
    assert take_in_reply(mail(target, subject=subject), NOW) == (True, True)


@pytest.mark.parametrize("subject", ["Re: Automatic reply", "AW: Abwesenheitsnotiz", "Urlaub"])
def test_a_note_with_a_title_of_its_own_is_no_reply(target: RunTarget, subject: str) -> None:
    assert take_in_reply(mail(target, "Bin ab 15.6. wieder da", subject=subject), NOW) == (False, True)
    worker.step(NOW)
    assert InboundEvent.objects.get().effect.endswith("away until 15.6")


def test_the_end_of_an_absence_in_the_subject(target: RunTarget) -> None:
    take_in_reply(mail(target, "I am away.", subject="Out of office until 12 June"), NOW)
    assert InboundEvent.objects.get().detail["away_until"] == "12 June"


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("text", ["STOP", "Please remove me from your list.\n\nAnn Example"])
def test_a_person_who_says_only_stop_is_heard_with_any_headers(target: RunTarget, name: str, text: str) -> None:
    assert take_in_reply(mail(target, text, **MACHINES[name]), NOW) == (True, True)
    assert Suppression.objects.filter(address="ann@example.org").exists()


QUOTING = {
    "marked": "I am away until 12 June.",
    "nothing of its own": "",
    "not marked": "I am away.\n\nDoors open at nine. Reply STOP to unsubscribe.\nUnsubscribe from this list",
    "only our text": "Doors open at nine.\nReply STOP and we stop sending you messages.",
}


@pytest.mark.parametrize("name", QUOTING)
@pytest.mark.parametrize("more", ["Auto-Submitted: auto-replied\n", "Return-Path: <>\n", "Precedence: bulk\n"])
def test_an_absence_note_that_quotes_our_words_opts_no_one_out(target: RunTarget, name: str, more: str) -> None:
    Run.objects.filter(pk=target.run_id).update(parts=[{"kind": "text", "subject": "Stop", "text": "Stop"}])
    raw = mail(target, QUOTING[name], more, subject="Stop").replace(b"> Doors open at nine", b"> STOP")
    assert take_in_reply(raw, NOW) == (False, True)
    worker.step(NOW)
    assert not Suppression.objects.exists()


MDN = """\
From: Ann Example <ann@example.org>
To: mailer@example.com
Subject: Read: Reminder
Date: Mon, 1 Jun 2026 11:00:00 +0000
Message-ID: <receipt-1@example.org>
MIME-Version: 1.0
Content-Type: multipart/report; report-type=disposition-notification; boundary=b

--b
Content-Type: text/plain

Your message was read on 1 June 2026.

--b
Content-Type: message/disposition-notification

Reporting-UA: mail.example.org; Example 1.0
Final-Recipient: rfc822;ann@example.org
Original-Message-ID: <{named}>
Disposition: manual-action/MDN-sent-manually; {disposition}

--b--
"""


@pytest.mark.parametrize(
    ("disposition", "kind", "read"), [("displayed", "read", True), ("deleted", "automatic", False)]
)
def test_a_read_receipt_is_no_reply(target: RunTarget, disposition: str, kind: str, read: bool) -> None:
    raw = MDN.format(named=id_of(target), disposition=disposition).encode()
    assert bounces.take_in(raw, NOW) == (0, 0)
    assert take_in_reply(raw, NOW) == (False, True)
    worker.step(NOW)
    assert InboundEvent.objects.get().kind == kind
    target.refresh_from_db()
    assert (target.read_at is not None, target.replied_at) == (read, None)


@pytest.mark.parametrize("named", ["crier-1-0-00000000000000000000@example.com", "hello@example.org"])
def test_mail_about_no_message_of_ours_is_not_kept(target: RunTarget, named: str) -> None:
    assert take_in_reply(mail(target, named=named), NOW) == (False, False)
    assert not InboundEvent.objects.exists()


SENDERS = {
    "quoted": ('"Example, Ann" <ann@example.org>', "ann@example.org"),
    "an unquoted comma": ("Example, Ann <ann@example.org>", "ann@example.org"),
    "two commas": ("Example, Ann, Dr. <ann@example.org>", "ann@example.org"),
    "bare": ("ann@example.org", "ann@example.org"),
    "two senders": ("Ann <ann@example.org>, Ben <ben@example.org>", ""),
    "an address as a name": ("ben@example.org, Ann <ann@example.org>", ""),
    "none": ("Ann", ""),
}


@pytest.mark.parametrize("name", SENDERS)
def test_who_sent_it(target: RunTarget, name: str) -> None:
    sender, address = SENDERS[name]
    reply = parse_reply(mail(target).replace(b"Ann Example <Ann@Example.org>", sender.encode()))
    assert (reply.address if reply else "") == address


@pytest.mark.parametrize(
    ("subject", "text", "received"),
    [
        case("STOP", "", True, id="the word"),
        case("Re: unsubscribe me", "", True, id="a sentence"),
        case("=?utf-8?b?6YCA6K6i?=", "", True, id="encoded"),
        case("Re: Cancel", "", False, id="our own subject"),
        case("STOP", "Yes, I will come", False, id="with words below it"),
        case("Re: Reminder", "STOP\nAnn", True, id="with a name"),
        case("Re: Reminder", "STOP\nBenny", True, id="with a nickname"),
        case("Re: Reminder", "Cancel\nBenny", False, id="a word about something else, with a nickname"),
        case("Re: Reminder", "STOP\nthe music", False, id="with another line"),
        case("Re: Reminder", "Please stop.\n\nAnn Lee\nHead of Sales\nTel. 030 123456", True, id="with a signature"),
        case("Re: Reminder", "How do I unsubscribe?", False, id="a question"),
    ],
)
def test_an_opt_out_by_subject_or_with_a_name(target: RunTarget, subject: str, text: str, received: bool) -> None:
    Run.objects.filter(pk=target.run_id).update(parts=[{"kind": "text", "subject": "Cancel", "text": "Hello"}])
    assert take_in_reply(mail(target, text, subject=subject), NOW) == (True, True)
    worker.step(NOW)
    assert Suppression.objects.filter(address="ann@example.org").exists() is received


def test_mail_from_another_sender_is_not_a_reply(target: RunTarget) -> None:
    forwarded = mail(target).replace(b"Ann@Example.org", b"ben@example.org")
    assert take_in_reply(forwarded, NOW) == (False, False)
    assert take_in_reply(ORDINARY, NOW) == (False, False), "target 7 does not exist"


def test_by_the_references_where_nothing_else_names_it(target: RunTarget) -> None:
    raw = mail(target).replace(b"In-Reply-To", b"References")
    assert take_in_reply(raw, NOW) == (True, True)


def test_the_same_mail_by_another_way_is_the_same_reply(target: RunTarget) -> None:
    """A server that delivers it again adds lines of its own; another mail with the same words is another reply."""
    raw = mail(target)
    assert b"\nMessage-ID: <" in raw
    other = raw.replace(b"\nMessage-ID: <", b"\nMessage-ID: <another-", 1)
    ways = (raw, b"Received: from elsewhere\n" + raw, other)
    replies = [reply for way in ways if (reply := parse_reply(way))]
    assert len(replies) == 3
    assert replies[0].key == replies[1].key != replies[2].key


@pytest.mark.parametrize("date", [b"Mon, 1 Jun 1999 11:00:00 +0000", b"yesterday", b"Mon, 99 Jun 9999999 11:00:00"])
def test_a_wrong_clock_is_not_believed(target: RunTarget, date: bytes) -> None:
    take_in_reply(mail(target).replace(b"Mon, 1 Jun 2026 11:00:00 +0000", date), NOW)
    assert InboundEvent.objects.get().happened_at == NOW


@pytest.mark.parametrize("charset", ["utf-8", "iso-8859-1", "no-such-thing"])
def test_in_any_alphabet(target: RunTarget, charset: str) -> None:
    raw = mail(target, "Grüße").decode().replace("charset=utf-8", f"charset={charset}")
    reply = parse_reply(raw.encode(charset if charset == "iso-8859-1" else "utf-8"))
    assert reply is not None
    assert reply.text == "Grüße"


def test_html_alone(target: RunTarget) -> None:
    raw = mail(target).replace(b"text/plain", b"text/html")
    raw = raw[: raw.index(b"\n\n")] + b"\n\n<div>Yes</div><blockquote>Doors open at nine</blockquote>"
    reply = parse_reply(raw)
    assert reply is not None
    assert dataclasses.astuple(reply)[3] == "Yes"


@pytest.mark.parametrize("sender", ["(" * 5_000, "a:" * 5_000])
def test_an_unreadable_sender_is_ignored(target: RunTarget, sender: str) -> None:
    raw = mail(target)
    line = next(line for line in raw.splitlines() if line.startswith(b"From: "))
    assert parse_reply(raw.replace(line, f"From: {sender}".encode())) is None


def test_a_long_reply_is_stored_shortened(target: RunTarget) -> None:
    take_in_reply(mail(target, "Yes! " * 3_000), NOW)
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
    found = parse_reply(raw)
    assert found is not None
    assert (found.kind == "reply") is person
    if person:
        assert (found.address, found.message.target_id, found.text, found.at) == (
            "ann@example.org",
            7,
            "Yes, please",
            None,
        )


def test_the_text_below_a_large_attachment(target: RunTarget) -> None:
    picture = b"--b\nContent-Type: image/jpeg\nContent-Transfer-Encoding: base64\n\n" + (b"QUJD" * 19 + b"\n") * 60_000
    text = b"Content-Type: text/plain; charset=utf-8"
    mixed = b"Content-Type: multipart/mixed; boundary=b\n\n" + picture + b"--b\n" + text
    reply = parse_reply(mail(target, "STOP").replace(text, mixed))
    assert reply is not None
    assert reply.text == "STOP"
