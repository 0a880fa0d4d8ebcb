"""Hear complaints: read feedback reports (ARF, RFC 5965) and Microsoft's own form in mails, suppress the person as any
provider's complaint does, and judge the account that sent."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from email.message import Message
from typing import NamedTuple

from django.conf import settings

from accounts.channels.provider_events import EventKind, ProviderEvent
from accounts.models import Account
from fanout.database import carry_out
from fanout.inbound import bounces, mails, origins, replies
from fanout.inbound.event_store import store_report
from fanout.inbound.mails import MAX_BYTES, address_in, blocks_in, message_of, read_mail, returned_messages, text
from fanout.lanes import reputation
from fanout.lanes.lane_rows import wake_lanes
from fanout.models import Event, InboundEvent, RunTarget
from fanout.rules.message_ids import Named, message_id
from reminders import suppressions
from reminders.erasure import is_faceless
from reminders.models import Suppression

#: Feedback in which a person does not complain: a false alarm, or a report about SPF, DKIM and DMARC (RFC 6591).
NO_COMPLAINT = frozenset({"not-spam", "auth-failure", "dmarc", "tls"})


# --- from mails -------------------------------------------------------------------------------------------


def take_in_complaint(raw: bytes, now: datetime) -> tuple[bool, bool]:
    """Store the mail's complaint as an event of the account that sent. Returns whether it is one, and whether it is
    new; the inbound worker works on it."""
    complaint = parse_complaint(raw)
    if complaint is None:
        return False, False
    target, authentic = _target(complaint, raw, now)
    if target is None or is_faceless(target.address):
        return True, False
    event = ProviderEvent(
        # One message is complained about once, in however many reports.
        key=f"mail-complaint-{hashlib.sha256(f'{target.pk}'.encode()).hexdigest()}",
        kind=EventKind.COMPLAINT,
        address=target.address,
        message_id=message_id(target.pk, complaint.message.part if complaint.message else 0),
        text=complaint.detail,
        detail={"by": "mail", "authentic": authentic},
    )
    return True, store_report(target.account_id, event, now) is not None


def _target(complaint: Complaint, raw: bytes, now: datetime) -> tuple[RunTarget | None, bool]:
    """Return the delivery that is complained about, and whether the report proves it by our id or the queue's.
    Reporters may hide the recipient, and our id names it; without it exactly one delivery must fit."""
    if complaint.message is not None:
        return RunTarget.objects.filter(pk=complaint.message.target_id).first(), True
    origin = origins.origin_of(raw)
    origin = origin._replace(sent_at=origin.sent_at or mails.parsed_time(complaint.received))
    if not complaint.address or (origin.sent_at is None and not origin.ids):
        return None, False
    match = origins.deliveries(complaint.address, origin, now)
    return (match.targets[0] if len(match.targets) == 1 else None), match.by_queue_id


class Complaint(NamedTuple):
    """A person marked a message as spam. The address is empty where the reporter hides it."""

    address: str
    message: Named | None
    detail: str
    #: when the message had arrived, as the report writes it
    received: str = ""


def parse_complaint(raw: bytes) -> Complaint | None:
    """Return the complaint that a mail reports; None for other mails."""
    if len(raw) > MAX_BYTES:
        return None
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
    received = text(fields, "Received-Date") or text(fields, "Arrival-Date")
    return Complaint(next(filter(None, addresses), ""), message_of(mail, raw), kind, received)


def fields_of(report: Message) -> Message:
    """Return the fields of a feedback report, which Python reads as a text or as a message of its own."""
    for block in blocks_in(report):
        return block
    content = report.get_payload(decode=True)
    return read_mail(content.strip() + b"\n\n" if isinstance(content, bytes) else b"")


# --- from events ------------------------------------------------------------------------------------------


def complained(event: InboundEvent, now: datetime) -> str:
    """Apply a complaint and return its effect in words: the person is suppressed, the account judged."""
    target = bounces.target_of(event)
    if event.detail.get("authentic") is False:
        return _suppress_for_a_while(event, target, now)
    done = [replies.suppress_as_reported(event, "complained", now)]
    if target is not None:
        InboundEvent.objects.filter(pk=event.pk).update(run_target_id=target.pk)
        Event.objects.create(run_id=target.run_id, at=now, verb="complained", detail=target.address)
    account = Account.objects.get(pk=event.account_id)
    threshold = account.settings()["complaint_rate_pause"].value
    if words := carry_out(reputation.judge_complaints(account.pk, threshold, now)):
        done.append(words)
        wake_lanes([account.pk], now)
    return "; ".join(done)


def _suppress_for_a_while(event: InboundEvent, target: RunTarget | None, now: datetime) -> str:
    """Suppress a person for whom someone complains without our id, and count nothing: anyone who knows whom we wrote to
    and when could have written the report."""
    ends_at = now + timedelta(days=settings.SOFT_BOUNCE_SUPPRESS_DAYS)
    reason, source = Suppression.Reason.COMPLAINT, Suppression.Source.PROVIDER
    done = suppressions.suppress(
        suppressions.NewSuppression(event.address, reason, source, suppressions.REPORTED, now, ends_at)
    )
    if target is not None:
        InboundEvent.objects.filter(pk=event.pk).update(run_target_id=target.pk)
        Event.objects.create(run_id=target.run_id, at=now, verb="complained", detail=target.address)
    days = f"suppressed for {settings.SOFT_BOUNCE_SUPPRESS_DAYS} days, because the report carries no id of ours"
    return f"complained: {days}" if done else "nothing: the address is suppressed for as long"
