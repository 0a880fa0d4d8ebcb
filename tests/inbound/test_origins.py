"""Reports without our message id: by return path, envelope id, queue id, or recipient, account and time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from accounts.models import Account
from fanout.inbound import worker
from fanout.inbound.bounces import take_in
from fanout.inbound.mails import parse_bounce
from fanout.inbound.origins import ids_in, origin_of
from fanout.models import Activity, Event, InboundEvent, RunTarget
from fanout.rules.message_ids import Named, message_id
from reminders.models import Suppression
from tests.factories import RunFactory, RunTargetFactory

NOW = datetime(2026, 7, 1, 12, 0, tzinfo=UTC)
SENT_AT = NOW - timedelta(hours=1)
ANN = "ann@example.org"
QUEUE_ID = "4BfC2x1Hz9zQ"


def delivery(account: Account | None = None, at: datetime = SENT_AT, queue_id: str = "", **more: Any) -> RunTarget:
    """A mail that went out to Ann."""
    run = RunFactory.create(**({"account": account} if account else {}))
    Account.objects.filter(pk=run.account_id).update(address="mailer@example.com", config={})
    made: RunTarget = RunTargetFactory.create(
        run=run,
        account=run.account,
        status="sent",
        parts_sent=1,
        claimed_at=at,
        settled_at=at,
        provider_id=queue_id,
        recipient__kind="mailbox",
        recipient__address=ANN,
        **more,
    )
    return made


def report(
    to: str = "mailer@example.com", fields: str = "", returned: str = "", address: str = ANN, status: str = "5.1.1"
) -> bytes:
    return f"""\
From: MAILER-DAEMON@mx.example.com
To: {to}
Subject: Undelivered Mail Returned to Sender
Message-ID: <notice@mx.example.com>
Content-Type: multipart/report; report-type=delivery-status; boundary="b"

--b
Content-Type: text/plain

Your message could not be delivered.

--b
Content-Type: message/delivery-status

Reporting-MTA: dns; mx.example.com
{fields}

Final-Recipient: rfc822; {address}
Action: failed
Status: {status}
Diagnostic-Code: smtp; 550 {status} No

--b
Content-Type: text/rfc822-headers

From: mailer@example.com
Subject: Reminder
{returned}

--b--
""".replace("\nReporting-MTA: dns; mx.example.com\n\n\n", "\nReporting-MTA: dns; mx.example.com\n\n").encode()


pytestmark = pytest.mark.django_db


def status_of(target: RunTarget) -> str:
    target.refresh_from_db()
    return target.status


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(report(to=f"bounces+{message_id(7, 1)}@example.com"), id="return path"),
        pytest.param(report(fields=f"Original-Envelope-Id: {message_id(7, 1)}"), id="envelope id"),
    ],
)
def test_the_envelope_names_our_message(raw: bytes) -> None:
    assert [bounce.message for bounce in parse_bounce(raw)] == [Named(7, 1)]
    assert [bounce.message for bounce in parse_bounce(raw.replace(b"crier-7", b"crier-8"))] == [None]


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(report(fields=f"X-Postfix-Queue-ID: {QUEUE_ID}"), id="of Postfix"),
        pytest.param(report(returned=f"Message-ID: <{QUEUE_ID}@email.amazonses.com>"), id="as its Message-ID"),
        pytest.param(report(returned=f"Received: from a by b (Exim) with ESMTP id {QUEUE_ID}; today"), id="Received"),
    ],
)
def test_the_queue_id_finds_one_of_several(raw: bytes) -> None:
    other = delivery(queue_id="4BfC2x1Hz9zX")
    ours = delivery(other.account, queue_id=f"Ok: {QUEUE_ID}")

    assert take_in(raw, NOW) == (1, 1)

    assert (status_of(ours), status_of(other)) == ("failed", "sent")
    assert Suppression.objects.get(address=ANN).expires_at is None
    assert take_in(raw, NOW) == (1, 0)
    assert InboundEvent.objects.count() == Event.objects.filter(verb="bounced").count() == 1


def test_another_persons_queue_id_is_not_believed() -> None:
    target = delivery(queue_id=QUEUE_ID, at=NOW - timedelta(days=1))
    raw = report(fields=f"X-Postfix-Queue-ID: {QUEUE_ID}", address="ben@example.org")

    assert take_in(raw, NOW) == (1, 0)
    assert status_of(target) == "sent"
    assert not InboundEvent.objects.exists()


DATE = "Date: Wed, 01 Jul 2026 11:04:00 +0000"


def test_by_recipient_account_and_time_for_a_while_only() -> None:
    """Anyone could write such a report, so it fails nothing, and suppresses for a month and not for good."""
    earlier = delivery(at=SENT_AT - timedelta(days=1))
    ours = delivery(earlier.account)

    assert take_in(report(returned=DATE), NOW) == (1, 1)

    assert (status_of(ours), status_of(earlier)) == ("sent", "sent")
    assert Suppression.objects.get(address=ANN).expires_at == NOW + timedelta(days=30)
    assert take_in(report(returned=DATE), NOW) == (1, 0)


@pytest.mark.parametrize(
    ("raw", "applied"),
    [
        pytest.param(report(), 1, id="no date, and only one delivery"),
        pytest.param(report(fields="Arrival-Date: Wed, 1 Jul 2026 11:01:00 +0000"), 1, id="date of the report"),
        pytest.param(report(to="other@example.com", returned="").replace(b"From: mailer@", b"From: x@"), 0, id="no"),
        pytest.param(report(returned=DATE.replace("11:04", "15:04")), 0, id="another time"),
        pytest.param(report(returned="Message-ID: <another@example.com>"), 0, id="another mail of the mailbox"),
        pytest.param(report(address="ben@example.org", returned=DATE), 0, id="another recipient"),
    ],
)
def test_only_what_fits_is_applied(raw: bytes, applied: int) -> None:
    target = delivery()
    assert take_in(raw, NOW) == (1, applied)
    # Anyone could write such a report: it fails nothing and does not count against the account.
    assert status_of(target) == "sent"
    assert Suppression.objects.filter(address=ANN).exists() is bool(applied)
    assert not Activity.objects.filter(outcome="failed").exists()


def test_an_old_delivery_is_not_meant() -> None:
    target = delivery(at=NOW - timedelta(days=11))
    assert take_in(report(), NOW) == (1, 0)
    assert status_of(target) == "sent"


def test_where_several_fit_nothing_is_applied_and_the_account_shows_it() -> None:
    first = delivery()
    second = delivery(first.account, at=SENT_AT + timedelta(minutes=5))

    assert take_in(report(returned=DATE), NOW) == (1, 0)
    assert take_in(report(returned=DATE), NOW) == (1, 0)
    worker.step(NOW)

    assert status_of(first) == status_of(second) == "sent"
    assert not Suppression.objects.exists()
    event = InboundEvent.objects.get()
    assert (event.account_id, event.state, event.address) == (first.account_id, "done", ANN)
    assert event.effect == "nothing: it carries no id of a message of ours, and 2 deliveries to this address fit"


def test_the_same_report_with_its_id_later_proves_it() -> None:
    """A report that anyone could have written must not keep out the real one."""
    target = delivery()
    named = report(returned=f"Message-ID: <{message_id(target.pk, 0)}@example.com>")
    assert take_in(report(returned=DATE), NOW) == (1, 1)

    assert take_in(named, NOW) == (1, 1)

    assert status_of(target) == "failed"
    assert Suppression.objects.get(address=ANN).expires_at is None
    assert take_in(named, NOW) == take_in(report(returned=DATE), NOW) == (1, 0)
    assert Activity.objects.filter(outcome="failed").count() == 1


def test_without_its_id_after_the_proven_report_it_changes_nothing() -> None:
    target = delivery()
    assert take_in(report(returned=f"Message-ID: <{message_id(target.pk, 0)}@example.com>"), NOW) == (1, 1)

    assert take_in(report(returned=DATE), NOW) == (1, 0)
    assert Event.objects.filter(verb="bounced").count() == 1


def test_ids_are_not_words_or_hosts() -> None:
    assert ids_in("2.0.0 Ok: queued as 4BfC2x1Hz9zQ") == {"4bfc2x1hz9zq"}
    assert ids_in("Ok 0100018f-1234-000000 on mx1-prod.example-2.com Hostname=AM6PR05MB1234 12:00:00 2 bytes") == {
        "0100018f-1234-000000"
    }
    assert origin_of(b"") == (frozenset(), frozenset(), None, False)
