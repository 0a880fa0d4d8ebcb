"""Bounce mail: what a report says."""

from __future__ import annotations

import time

import pytest

from accounts.channels.base import Kind
from fanout.inbound.mails import MAX_BYTES, Bounce, TooLarge, mailbox, parse_bounce, verdict
from fanout.rules.message_ids import Named
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


@pytest.mark.parametrize(
    "words",
    [
        pytest.param("".join(f"a{n}@b{n}.org\n" for n in range(3_000)), id="thousands of recipients"),
        pytest.param(" ".join(f"a{n}@b{n}.org" for n in range(50)) + "\n" + "550 a\n" * 5_000, id="one section"),
    ],
)
def test_a_notice_about_many_recipients_is_read_at_once(words: str) -> None:
    began = time.process_time()
    parse_bounce(f"From: mailer-daemon@x.org\nSubject: failure notice\n\n{words}".encode())
    assert time.process_time() - began < 2
