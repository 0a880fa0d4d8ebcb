"""Mail from somebody whom we wrote to: it names our message, so it is a reply, and goes the way of all replies.

Only what cannot be mistaken: our Message-ID carries a keyed hash that nobody can guess, the sender must be the one whom
that message went to, and an absence note is nobody's reply.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import Message
from email.utils import getaddresses, parsedate_to_datetime

from accounts.channels.events import EventKind, ProviderEvent
from accounts.channels.mail import own_words, text_of_html
from fanout.inbound.bounce_mails import mailbox, read_mail
from fanout.inbound.events import store
from fanout.models import RunTarget
from fanout.rules.message_ids import Named, message_id, named_in

#: of lists and machines
NO_PERSON = frozenset({"bulk", "junk", "list", "auto_reply"})
AUTOMATIC = ("X-Autoreply", "X-Autorespond", "List-Id")


@dataclass(frozen=True, slots=True)
class ReplyMail:
    key: str
    message: Named
    address: str
    text: str
    at: datetime | None


def take_in(raw: bytes, now: datetime) -> tuple[bool, bool]:
    """Whether the mail is a reply to one of ours, and whether it is new. It is stored here and worked on elsewhere
    (fanout.inbound.hearing)."""
    reply = parse_reply(raw)
    target = RunTarget.objects.filter(pk=reply.message.target_id).first() if reply else None
    if reply is None or target is None or target.address != reply.address:
        return False, False
    # A clock that is wrong: nobody answers what was not sent yet.
    at = reply.at if reply.at and target.claimed_at and reply.at >= target.claimed_at else None
    event = ProviderEvent(
        key=reply.key,
        kind=EventKind.REPLY,
        at=at,
        address=reply.address,
        message_id=message_id(*reply.message),
        text=reply.text,
    )
    return True, bool(store(target.account_id, [event], now))


def parse_reply(raw: bytes) -> ReplyMail | None:
    """What a person answered to a message of ours; None for everything else."""
    mail = read_mail(raw)
    named = named_in(_header(mail, "In-Reply-To")) or named_in(_header(mail, "References"))
    address = _sender(mail)
    if named is None or not address or _automatic(mail):
        return None
    name = _header(mail, "Message-ID").encode() or raw
    key = f"mail-reply-{hashlib.sha256(name).hexdigest()}"
    return ReplyMail(key, named, address, own_words(_text(mail)), _date(mail))


def _sender(mail: Message) -> str:
    """The stored spelling of the one sender; empty where there is none, or more than one."""
    try:
        senders = getaddresses([_header(mail, "From")])
    except RecursionError:  # brackets within brackets, thousands deep
        return ""
    return mailbox(senders[0][1]) if len(senders) == 1 else ""


def _header(mail: Message, name: str) -> str:
    return str(mail[name] or "")


def _automatic(mail: Message) -> bool:
    """RFC 3834, and what programs did before it."""
    submitted = _header(mail, "Auto-Submitted").partition(";")[0].strip().lower()
    return (
        submitted not in ("", "no")
        or _header(mail, "Precedence").strip().lower() in NO_PERSON
        or _header(mail, "Return-Path").strip() == "<>"
        or any(mail[name] is not None for name in AUTOMATIC)
    )


def _text(mail: Message) -> str:
    """The first text that is no attachment; plain before HTML."""
    texts = {"text/plain": "", "text/html": ""}
    for part in mail.walk():
        kind = part.get_content_type()
        if not texts.get(kind, "-") and part.get_content_disposition() != "attachment":
            texts[kind] = _decoded(part)
    return texts["text/plain"].strip() or text_of_html(texts["text/html"])


def _decoded(part: Message) -> str:
    content = part.get_payload(decode=True)
    if not isinstance(content, bytes):
        return ""
    try:
        return content.decode(part.get_content_charset() or "utf-8", "replace")
    except LookupError:
        return content.decode("utf-8", "replace")


def _date(mail: Message) -> datetime | None:
    try:
        moment = parsedate_to_datetime(_header(mail, "Date"))
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, TypeError, OverflowError):
        return None
