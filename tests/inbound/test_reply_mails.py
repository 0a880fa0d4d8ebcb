"""Replies by mail: only what names our message and comes from whom it went to."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta

import pytest

from fanout.inbound import mails, worker
from fanout.inbound.events import MOST_WORDS
from fanout.models import InboundEvent, RunTarget
from reminders.models import Recipient, Suppression
from tests.factories import RunFactory, RunTargetFactory
from tests.inbound.mails import ORDINARY, id_of

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
def test_what_is_nobodys_reply(target: RunTarget, name: str) -> None:
    assert mails.take_in_reply(mail(target, **NO_REPLIES[name]), NOW) == (False, False)
    assert not InboundEvent.objects.exists()


def test_somebody_else_has_not_replied(target: RunTarget) -> None:
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


def test_html_alone(target: RunTarget) -> None:
    raw = mail(target).replace(b"text/plain", b"text/html")
    raw = raw[: raw.index(b"\n\n")] + b"\n\n<div>Yes</div><blockquote>Doors open at nine</blockquote>"
    reply = mails.parse_reply(raw)
    assert reply is not None
    assert dataclasses.astuple(reply)[3] == "Yes"


@pytest.mark.parametrize("sender", ["(" * 5_000, "a:" * 5_000])
def test_a_sender_that_cannot_be_read_is_nobody(target: RunTarget, sender: str) -> None:
    raw = mail(target)
    line = next(line for line in raw.splitlines() if line.startswith(b"From: "))
    assert mails.parse_reply(raw.replace(line, f"From: {sender}".encode())) is None


def test_a_long_reply_is_stored_shortened(target: RunTarget) -> None:
    mails.take_in_reply(mail(target, "Yes! " * 3_000), NOW)
    assert InboundEvent.objects.get().text == ("Yes! " * 3_000)[:MOST_WORDS]
