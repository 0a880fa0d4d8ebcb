"""Complaints by mail: who is suppressed, what is counted, and when the account is warned or paused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from accounts.models import Account
from fanout.inbound import worker
from fanout.inbound.complaints import parse_complaint, take_in_complaint
from fanout.lanes.reputation import mail_health
from fanout.models import Activity, Event, InboundEvent, Notification, RunTarget
from fanout.rules import breaker
from fanout.rules.message_ids import Named
from reminders.models import Recipient, Suppression
from tests.factories import AccountFactory, RunFactory, RunTargetFactory
from tests.inbound.mails import id_of

NOW = datetime(2026, 7, 1, 12, 0, tzinfo=UTC)
SENT_AT = NOW - timedelta(hours=2)
ANN = "ann@example.org"
ARF = """\
From: Feedback <feedback@isp.example>
To: abuse@example.com
Subject: Fw: Reminder
MIME-Version: 1.0
Content-Type: multipart/report; report-type=feedback-report; boundary="b"

--b
Content-Type: text/plain

This is an email abuse report for a message received from 192.0.2.1.

--b
Content-Type: message/feedback-report

Feedback-Type: {kind}
User-Agent: ISP/1.0
Version: 1
{fields}

--b
Content-Type: message/rfc822

From: mailer@example.com
To: {to}
Date: Wed, 01 Jul 2026 10:01:00 +0000
Message-ID: <{named}>
Subject: Reminder

Doors open at nine
--b--
"""
JMRP = """\
From: staff@hotmail.com
To: abuse@example.com
Subject: complaint about message from 192.0.2.1
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="b"

--b
Content-Type: message/rfc822

X-HmXmrOriginalRecipient: {to}
From: mailer@example.com
To: {to}
Message-ID: <{named}>
Subject: Reminder

Doors open at nine
--b--
"""


def arf(named: str, kind: str = "abuse", to: str = ANN, fields: str = "") -> bytes:
    fields = fields or f"Original-Rcpt-To: {to}"
    return ARF.format(named=named, kind=kind, to=to, fields=fields).encode()


def delivery(account: Account, number: int = 0, **more: Any) -> RunTarget:
    address = f"person{number}@example.org" if number else ANN
    made: RunTarget = RunTargetFactory.create(
        run=RunFactory.create(account=account),
        account=account,
        recipient__kind="mailbox",
        recipient__address=address,
        **{"status": "sent", "parts_sent": 1, "claimed_at": SENT_AT} | more,
    )
    return made


@pytest.fixture
def account(db: None) -> Account:
    made: Account = AccountFactory.create(
        channel="smtp", address="mailer@example.com", config={"host": "mail.example.com"}, status_changed_at=None
    )
    return made


def sent(account: Account, messages: int) -> None:
    Activity.objects.bulk_create(
        Activity(account=account, action="email", outcome="sent", part=0, at=SENT_AT) for _ in range(messages)
    )


# --- reading ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "address"),
    [
        pytest.param(arf(id_of(7)), ANN, id="ARF"),
        pytest.param(arf(id_of(7), to="undisclosed-recipients:;", fields="Source-IP: 192.0.2.1"), "", id="redacted"),
        pytest.param(JMRP.format(to=ANN, named=id_of(7)).encode(), ANN, id="Microsoft's"),
        pytest.param(arf(id_of(7), kind="fraud"), ANN, id="fraud"),
        pytest.param(arf(id_of(7), kind="opt-out"), ANN, id="opt-out"),
    ],
)
def test_reports_in_their_forms(raw: bytes, address: str) -> None:
    complaint = parse_complaint(raw)

    assert complaint is not None
    assert (complaint.address, complaint.message) == (address, Named(7, 0))


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(arf(id_of(7), kind="not-spam"), id="a false alarm"),
        pytest.param(arf(id_of(7), kind="auth-failure"), id="about DMARC"),
        pytest.param(b"Subject: complaint\n\nI complain", id="a person's letter"),
        pytest.param(b"", id="empty"),
    ],
)
def test_what_is_no_complaint(raw: bytes) -> None:
    assert parse_complaint(raw) is None


# --- the person -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("to", [ANN, "undisclosed-recipients:;"], ids=["named", "redacted"])
def test_a_complaint_suppresses_and_the_same_report_again_changes_nothing(account: Account, to: str) -> None:
    target = delivery(account)
    raw = arf(id_of(target), to=to, fields="Version: 1")

    assert [take_in_complaint(raw, NOW) for _ in range(2)] == [(True, True), (True, False)]
    for _ in range(2):
        worker.step(NOW)

    suppression = Suppression.objects.get()
    assert (suppression.address, suppression.reason, suppression.expires_at) == (ANN, "complaint", None)
    assert Recipient.objects.get(pk=target.recipient_id).status == "opted_out"
    event = InboundEvent.objects.get()
    assert (event.kind, event.state, event.run_target_id) == ("complaint", "done", target.pk)
    assert Event.objects.filter(run=target.run_id, verb="complained").count() == 1


@pytest.mark.parametrize(
    ("raw", "received"),
    [
        pytest.param(arf("rewritten@isp.example"), True, id="recipient, sender and time"),
        pytest.param(arf("rewritten@isp.example", to="ben@example.org"), False, id="another recipient"),
        pytest.param(arf("x@y").replace(b"10:01:00", b"15:01:00"), False, id="another time"),
        pytest.param(arf("x@y").replace(b"mailer@", b"other@"), False, id="another sender"),
        pytest.param(arf(id_of(1_000_000)), False, id="no delivery of ours"),
    ],
)
def test_without_our_id_it_must_fit_a_delivery(account: Account, raw: bytes, received: bool) -> None:
    delivery(account)
    assert take_in_complaint(raw, NOW) == (True, received)
    assert not Suppression.objects.exists(), "only the worker suppresses for what anyone could have written"
    worker.step(NOW)
    assert Suppression.objects.filter(address=ANN).exists() is received


def test_what_anyone_could_have_written_suppresses_for_a_while_and_counts_nothing(account: Account) -> None:
    target = delivery(account)
    take_in_complaint(arf("rewritten@isp.example"), NOW)
    worker.step(NOW)
    suppression = Suppression.objects.get()
    assert (suppression.reason, suppression.expires_at) == ("complaint", NOW + timedelta(days=30))
    assert Recipient.objects.get(pk=target.recipient_id).status == "active"
    health = mail_health(account, NOW)
    assert health is not None
    assert health.complaints == 0
    assert Event.objects.filter(run=target.run_id, verb="complained").count() == 1


def test_the_proven_report_behind_one_that_anyone_could_have_written_does_the_rest(account: Account) -> None:
    target = delivery(account)
    reports = [arf("rewritten@isp.example"), arf(id_of(target)), arf(id_of(target)), arf("rewritten@isp.example")]
    taken = []
    for raw in reports:
        taken.append(take_in_complaint(raw, NOW))
        worker.step(NOW)

    assert taken == [(True, True), (True, True), (True, False), (True, False)]
    assert Suppression.objects.get().expires_at is None
    assert Recipient.objects.get(pk=target.recipient_id).status == "opted_out"
    health = mail_health(account, NOW)
    assert health is not None
    assert health.complaints == 1


def test_two_deliveries_that_fit_a_complaint_without_our_id(account: Account) -> None:
    delivery(account)
    delivery(account, recipient=Recipient.objects.get(address=ANN))
    assert take_in_complaint(arf("rewritten@isp.example"), NOW) == (True, False)


def test_by_the_webhook_for_mails(account: Account, client: Client, settings: Any) -> None:
    settings.BOUNCE_TOKEN = "s3cret"
    raw = arf(id_of(delivery(account)))
    answers = [
        client.post("/hooks/bounces", raw, content_type="message/rfc822", headers={"X-Crier-Token": "s3cret"}).json()
        for _ in range(2)
    ]
    told = {"bounces": 0, "complaints": 1, "replies": 0}
    assert answers == [told | {"applied": 1}, told | {"applied": 0}]


# --- the account ------------------------------------------------------------------------------------------


def complain(account: Account, people: int) -> None:
    for number in range(1, people + 1):
        assert take_in_complaint(arf(id_of(delivery(account, number))), NOW) == (True, True)
    worker.step(NOW)
    account.refresh_from_db()


@pytest.mark.parametrize(
    ("messages", "people", "status", "title"),
    [
        pytest.param(1000, 3, "active", "", id="0.3 % is allowed"),
        pytest.param(900, 3, "active", "People complain", id="above 0.3 %"),
        pytest.param(200, 3, "paused", "Account paused", id="above 1 %"),
        pytest.param(50, 1, "active", "People complain", id="one person alone"),
        pytest.param(19, 2, "active", "", id="too few messages"),
    ],
)
def test_the_rate_warns_and_then_pauses(account: Account, messages: int, people: int, status: str, title: str) -> None:
    sent(account, messages)
    complain(account, people)

    assert account.status == status
    assert [one.title for one in Notification.objects.filter(account=account)] == [title] * bool(title)


def test_the_account_has_its_own_threshold(account: Account) -> None:
    Account.objects.filter(pk=account.pk).update(complaint_rate_pause=0.5)
    sent(account, 100)
    complain(account, 20)
    assert account.status == "active"
    assert Event.objects.filter(account=account, verb="complaints").count() == 1


def test_what_an_operator_has_seen_does_not_pause_it_again(account: Account) -> None:
    sent(account, 100)
    complain(account, 2)
    assert account.status_reason == "complaint rate 2.0%: 2 complaints about 100 messages"
    Account.objects.filter(pk=account.pk).update(status="active", status_changed_at=NOW - timedelta(minutes=1))
    take_in_complaint(arf(id_of(delivery(account, 9))), NOW)
    worker.step(NOW)
    account.refresh_from_db()
    assert account.status == "active"


def test_rates_of_complaints() -> None:
    assert breaker.complaint_rate(1, 19) == 0.0
    assert breaker.complaint_rate(1, 20) == 0.05
    assert not breaker.warns_of_complaints(3, 1000)
    assert not breaker.too_many_complaints(1, 20, 0.01)
    assert breaker.too_many_complaints(2, 20, 0.01)


# --- its page ---------------------------------------------------------------------------------------------

DMARC = "550 5.7.26 Unauthenticated email from example.com is not accepted due to domain's DMARC policy"


def refused(account: Account, number: int, kind: str, error: str, counted: str = "") -> None:
    target = delivery(account, number, status="failed", error_kind=kind, error=error)
    at = NOW - timedelta(hours=1)
    Activity.objects.create(
        account=account, run_target=target, action="email", outcome="failed", kind=counted or kind, part=0, at=at
    )


def test_what_is_our_fault_and_what_to_do(account: Account) -> None:
    for number in (1, 2):
        refused(account, number, "sender_rejected", DMARC)
    refused(account, 3, "content_rejected", "554 5.7.1 Spam", counted="soft_bounce")
    refused(account, 4, "soft_bounce", "552 5.2.2 Mailbox full")

    health = mail_health(account, NOW)

    assert health is not None
    assert [(fault.cause.value, fault.count) for fault in health.faults] == [
        ("SPF, DKIM or DMARC", 2),
        ("looks like spam", 1),
    ]
    assert health.faults[0].answer == DMARC
    assert health.faults[0].advice.startswith("Fix the sender's domain: publish SPF and DKIM records")


def test_an_account_without_trouble_and_one_without_mail(account: Account) -> None:
    sent(account, 30)
    health = mail_health(account, NOW)
    assert health is not None
    assert (health.good, health.sends) == (True, 30)
    assert mail_health(AccountFactory.create(channel="waha"), NOW) is None
