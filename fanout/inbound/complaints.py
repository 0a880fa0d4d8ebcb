"""Read complaints in mails: feedback reports (ARF, RFC 5965) and Microsoft's, which has a form of its own."""

from __future__ import annotations

from email.message import Message
from typing import NamedTuple

from fanout.inbound.mails import address_in, message_of, read_mail, returned_messages, text
from fanout.rules.message_ids import Named

#: Feedback that is no complaint of a person: a false alarm, or a report about SPF, DKIM and DMARC (RFC 6591).
NO_COMPLAINT = frozenset({"not-spam", "auth-failure", "dmarc", "tls"})


class Complaint(NamedTuple):
    """A person marked a message as spam. The address is empty where the reporter hides it."""

    address: str
    message: Named | None
    detail: str


def parse_complaint(raw: bytes) -> Complaint | None:
    """Return the complaint that a mail reports; None for other mails."""
    mail = read_mail(raw)
    returned = [one for part in mail.walk() for one in returned_messages(part)]
    report = next((part for part in mail.walk() if part.get_content_type() == "message/feedback-report"), None)
    if report is None:
        # Outlook.com's junk mail reporting: no report, only the message, with the recipient in a header of its own.
        recipient = next((address for one in returned if (address := address_in(one, "X-HmXmrOriginalRecipient"))), "")
        return Complaint(recipient, message_of(mail, raw), "marked as junk") if recipient else None
    fields = fields_of(report)
    kind = text(fields, "Feedback-Type").lower() or "abuse"
    if kind in NO_COMPLAINT:
        return None
    addresses = (address_in(fields, "Original-Rcpt-To"), *(address_in(one, "To") for one in returned[:1]))
    return Complaint(next(filter(None, addresses), ""), message_of(mail, raw), kind)


def fields_of(report: Message) -> Message:
    """Return the fields of a feedback report, which Python reads as a text or as a message of its own."""
    payload = report.get_payload()
    if isinstance(payload, list) and payload and isinstance(payload[0], Message):
        return payload[0]
    content = report.get_payload(decode=True)
    return read_mail(content.strip() + b"\n\n" if isinstance(content, bytes) else b"")
