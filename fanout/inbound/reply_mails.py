"""Read mails that people or their programs wrote back, and find which of our messages they are about.

A reply counts only if it is certain: our Message-ID carries a keyed hash that cannot be guessed, and the sender must be
the recipient of that message. Mail that a program wrote does not count as a reply: an absence note is kept as such, and
a read receipt (RFC 8098) is a receipt.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from email.message import Message
from email.utils import getaddresses
from itertools import islice

from accounts.channels import machine_mail
from accounts.channels.mail import one_line
from accounts.channels.provider_events import EventKind, ProviderEvent
from accounts.channels.reply_text import own_words, text_of_html, written
from fanout.inbound.event_store import store
from fanout.inbound.mails import blocks_in, decoded, decoded_words, mailbox, parsed_time, read_mail
from fanout.models import RunTarget
from fanout.rules.message_ids import Named, message_id, named_in
from reminders.opt_outs import bare, decide_by_words, essence

#: of a From that no standard allows, such as “Doe, Ann <ann@example.org>”
BRACKETED = re.compile(r"<([^<>\s@]{1,100}@[^<>\s@]{1,200})>")
SUBJECT_LENGTH = 1_000
#: fields of a message part of which one is the subject of the mail
SUBJECTS = ("subject", "text")
#: parts among which the text of a reply is looked for, and characters read of an HTML text
MOST_PARTS, LONGEST_HTML = 100, 300_000


@dataclass(frozen=True, slots=True)
class ReplyMail:
    key: str
    message: Named
    address: str
    #: what the person wrote; of a mail in which they only quote, the quotation
    text: str
    at: datetime | None
    kind: EventKind = EventKind.REPLY
    #: without “Re:”
    subject: str = ""
    #: the person wrote something in the text of the mail
    wrote: bool = True
    #: only the subject says that a program wrote it
    by_subject: bool = False
    detail: Mapping[str, str] = field(default_factory=dict)


def take_in_reply(raw: bytes, now: datetime) -> tuple[bool, bool]:
    """Store the mail if it came back for one of ours. Returns whether it is a person's reply, and whether it is new.
    The inbound worker works on it later."""
    reply = parse_reply(raw)
    target = RunTarget.objects.select_related("run").filter(pk=reply.message.target_id).first() if reply else None
    if reply is None or target is None or target.address != reply.address:
        return False, False
    ours = bare(reply.subject) in our_subjects(target)
    if reply.by_subject and ours:
        # Our own message is about an absence, and this replies to it.
        reply = replace(reply, kind=EventKind.REPLY, detail={})
    # A reply cannot be older than the message: the sender's clock is wrong.
    at = reply.at if reply.at and target.claimed_at and reply.at >= target.claimed_at else None
    event = ProviderEvent(
        key=reply.key,
        kind=reply.kind,
        at=at,
        address=reply.address,
        message_id=message_id(*reply.message),
        # The words of the subject, if the mail has no others and the subject is not ours.
        text=reply.text if reply.wrote or not reply.subject or ours else reply.subject,
        detail=reply.detail,
    )
    return reply.kind is EventKind.REPLY, bool(store(target.account_id, [event], now))


def our_subjects(target: RunTarget) -> set[str]:
    """Return the subjects that the message may have had, in bare words; without one, its first line is the subject."""
    lines = (str(part.get(name) or "").strip().partition("\n")[0] for part in target.run.parts for name in SUBJECTS)
    return {bare(machine_mail.without_prefix(one_line(line))) for line in lines}


def parse_reply(raw: bytes) -> ReplyMail | None:
    """Return what a person, or their program, sent back for a message of ours; None for everything else."""
    mail = read_mail(raw)
    receipt = _receipt(mail)
    original = _header(receipt, "Original-Message-ID") if receipt is not None else ""
    named = named_in(original) or named_in(_header(mail, "In-Reply-To")) or named_in(_header(mail, "References"))
    name, address = _sender(mail)
    if named is None or not address:
        return None
    key = f"mail-reply-{hashlib.sha256(_header(mail, 'Message-ID').encode() or raw).hexdigest()}"
    at = parsed_time(_header(mail, "Date"))
    if receipt is not None:
        return _as_receipt(receipt, ReplyMail(key, named, address, "", at))
    body, subject = _text(mail), _subject(mail)
    text, wrote = _without_name(own_words(body), name), bool(written(body))
    reply = ReplyMail(key, named, address, text, at, subject=machine_mail.without_prefix(subject), wrote=wrote)
    return _judged(reply, subject, lambda header: _header(mail, header))


def _judged(reply: ReplyMail, subject: str, header: machine_mail.Header) -> ReplyMail:
    """Return the mail as a person's reply or as a program's. Servers and lists change headers, and no program says only
    “STOP”: a person who says only that is heard with any headers."""
    wish = decide_by_words(reply.text if reply.wrote else reply.subject).opts_out
    by_headers = machine_mail.by_headers(header)
    if wish and (not by_headers or (reply.wrote and essence(reply.text))):
        return reply
    what = by_headers or machine_mail.weakly(header, subject)
    if not what:
        return reply
    until = machine_mail.away_until(reply.text) or machine_mail.away_until(subject)
    return replace(
        reply,
        kind=EventKind.AUTOMATIC,
        by_subject=not by_headers and bool(machine_mail.by_subject(subject)),
        detail={"what": what} | ({"away_until": until} if until else {}),
    )


# -- read receipts ----------------------------------------------------------------------------------------


def _receipt(mail: Message) -> Message | None:
    """Return the fields of a read receipt, where the mail is one."""
    for part in islice(mail.walk(), MOST_PARTS):
        if part.get_content_type() == "message/disposition-notification":
            for fields in blocks_in(part):
                return fields
    return None


def _as_receipt(fields: Message, mail: ReplyMail) -> ReplyMail:
    disposition = _header(fields, "Disposition").lower()
    # “deleted” or “denied” says nothing about reading.
    kind = EventKind.READ if "displayed" in disposition else EventKind.AUTOMATIC
    return ReplyMail(mail.key, mail.message, mail.address, "", mail.at, kind, detail={"what": machine_mail.READ})


# -- headers and text -------------------------------------------------------------------------------------


def _sender(mail: Message) -> tuple[str, str]:
    """Return the one sender's name and address as stored; no address where there is none, or more than one."""
    value = _header(mail, "From")
    try:
        senders = [(name, mailbox(one)) for name, one in getaddresses([value])]
    except RecursionError:  # brackets within brackets, thousands deep
        return "", ""
    found = {address: name for name, address in senders if address}
    if len(senders) > 1 or not found:
        # A comma in a name without quotation marks makes two senders of one: the address in brackets counts.
        bracketed = {mailbox(one) for one in BRACKETED.findall(value)} - {""}
        if value.count("@") != 1 or len(bracketed) != 1:
            return "", ""
        return value.partition("<")[0].strip(' "'), bracketed.pop()
    (address,) = found
    return decoded_words(found[address]), address


def _header(mail: Message, name: str) -> str:
    return str(mail[name] or "")


def _subject(mail: Message) -> str:
    return decoded_words(_header(mail, "Subject")[:SUBJECT_LENGTH])


def _without_name(text: str, name: str) -> str:
    """Return an opt-out without the name that its sender put below it; any other text stays as it is."""
    above, _, last = text.strip().rpartition("\n")
    if above and bare(last) in {bare(name), bare(name.split(" ")[0])} and decide_by_words(above).opts_out:
        return above.strip()
    return text


def _text(mail: Message) -> str:
    """Return the first text that is not an attachment; plain before HTML."""
    texts = {"text/plain": "", "text/html": ""}
    for part in islice(mail.walk(), MOST_PARTS):
        kind = part.get_content_type()
        if not texts.get(kind, "-") and part.get_content_disposition() != "attachment":
            texts[kind] = decoded(part)
    return texts["text/plain"].strip() or text_of_html(texts["text/html"][:LONGEST_HTML])
