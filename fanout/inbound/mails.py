"""Read mails that came back, bounces and replies, and find which of our messages they are about.

A standard report (RFC 3464) names the recipient, the status and, in the returned headers, our Message-ID, which names
the run target. Any other bounce is left to flufl.bounce, which knows many servers' dialects. A reply counts only if it
is certain: our Message-ID carries a keyed hash that cannot be guessed, the sender must be the recipient of that
message, and an absence note is not a reply.
"""

from __future__ import annotations

import email
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email import policy
from email.message import Message
from email.utils import getaddresses, parsedate_to_datetime
from io import BytesIO
from itertools import islice
from typing import Any

from flufl.bounce import all_failures

from accounts.addresses import MAILBOX, AddressError, normalise
from accounts.channels.base import Kind
from accounts.channels.events import EventKind, ProviderEvent
from accounts.channels.mail import own_words, text_of_html
from accounts.channels.refusals import Stage, refusal
from fanout.inbound.events import store
from fanout.models import RunTarget
from fanout.rules.message_ids import Named, message_id, named_in

#: A report with a returned message is seldom above a few hundred KB; more is not looked at.
MAX_BYTES = 10_000_000
MAX_RECIPIENTS = 50
DETAIL_LENGTH = 500
#: Characters kept of a header. Python reads lists of addresses in quadratic time, and parameters (Content-Type …) too.
LONGEST_HEADER, LONGEST_PARAMETERS = 10_000, 1_000
#: How much of a mail's texts flufl.bounce reads: the report stands first. Its patterns are quadratic in the
#: length of a line, and RFC 5322 allows 998 characters.
DIALECT_BYTES, DIALECT_LINE = 50_000, 1_000
#: What is parsed of a mail: its report or its text stands at the beginning. Python's parser takes time for each line,
#: times the number of containers around it; a returned mail with attachments is in six of them.
MOST_PARSED, MOST_LINES, MOST_CONTAINERS = 2_000_000, 10_000, 50
#: lines kept of an attachment: the text may stand below it
MOST_ENCODED_LINES = 1_000

ENCODED_LINE = re.compile(rb"[A-Za-z0-9+/]{40,}={0,2}\s*")
CONTAINER = re.compile(rb"(?i)content-type:[\s\x1c-\x1f]*(?:multipart/|message/|\Z)")
RETURNED_ID = re.compile(rb"(?im)^[> \t]*message-id:[ \t]*(<[^<>\s]+>)")
STATUS = re.compile(r"[245]\.\d{1,3}\.\d{1,3}")
# The standard's words, those of servers that do not keep to it ("failure", OpenSMTPD's "error"), and a comment.
ACTIONS = re.compile(r"(?i)(?:(?P<failed>failed|failure|error)|delayed)\b")
SMTP_REPLY = re.compile(r"(?s)\s*([245]\d\d)[ -]?(.*)")


class TooLarge(ValueError):
    """The mail is larger than any bounce."""


class Lenient(policy.Compat32):
    """A policy that takes any garbage, where Python's newer policies raise, but only the beginning of long headers."""

    def header_source_parse(self, sourcelines: list[str]) -> tuple[str, str]:
        name, value = super().header_source_parse(sourcelines)
        return name, value[: LONGEST_PARAMETERS if name.lower().startswith("content-") else LONGEST_HEADER]


LENIENT = Lenient()


def read_mail(raw: bytes) -> Message:
    """Return the mail as far as it is parsed. Raises TooLarge."""
    return email.message_from_bytes(beginning(raw), policy=LENIENT)


def beginning(raw: bytes) -> bytes:
    """Return the lines of a mail that are parsed: not the rest of long attachments, and not what comes after too many
    lines or containers. Raises TooLarge."""
    if len(raw) > MAX_BYTES:
        raise TooLarge(f"The mail has {len(raw)} bytes; at most {MAX_BYTES} are read.")
    kept: list[bytes] = []
    size = encoded = containers = 0
    for line in BytesIO(raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n")):
        encoded = encoded + 1 if ENCODED_LINE.fullmatch(line) else 0
        if encoded > MOST_ENCODED_LINES:
            continue
        containers += CONTAINER.match(line) is not None
        if containers > MOST_CONTAINERS or len(kept) == MOST_LINES or size >= MOST_PARSED:
            break
        kept.append(line)
        size += len(line)
    return b"".join(kept)[:MOST_PARSED]


@dataclass(frozen=True, slots=True)
class Bounce:
    """One recipient that one message did not reach, or not yet."""

    address: str
    kind: Kind
    detail: str
    #: which of our messages it was; None: the report does not say, or is not authentic
    message: Named | None = None
    # The server has given up; otherwise the mail is only late.
    final: bool = False
    #: a mail server's report; otherwise a provider's event, which names the message and so the target
    by_mail: bool = True
    #: the provider says that nothing had gone out
    certain: bool = False

    @property
    def hard(self) -> bool:
        return self.kind is Kind.HARD_BOUNCE


def parse_bounce(raw: bytes) -> list[Bounce]:
    """Return the bounces that a mail reports; empty for an ordinary mail. Raises TooLarge."""
    message = read_mail(raw)
    reports = list(status_reports(message))
    about = message_of(message, raw)
    if reports:
        bounces = [bounce for fields in reports if (bounce := from_report(fields, about))]
    else:
        bounces = from_dialect(message, about)
    return list(dict.fromkeys(bounces))[:MAX_RECIPIENTS]


def status_reports(message: Message) -> Iterator[Message]:
    """Yield the blocks of a delivery status that are about one recipient."""
    for part in message.walk():
        if part.get_content_type() == "message/delivery-status" and part.is_multipart():
            blocks: Any = part.get_payload()
            yield from (fields for fields in blocks if fields["Final-Recipient"] or fields["Original-Recipient"])


def from_report(fields: Message, about: Named | None) -> Bounce | None:
    action = ACTIONS.match(text(fields, "Action"))
    if action is None:
        return None
    # The original is the address that we wrote to; the final one may be behind a forwarding.
    address = mailbox(text(fields, "Original-Recipient")) or mailbox(text(fields, "Final-Recipient"))
    if not address:
        return None
    kind, detail = verdict(text(fields, "Status"), text(fields, "Diagnostic-Code"))
    final = action["failed"] is not None
    return Bounce(address, kind if final else Kind.SOFT_BOUNCE, detail, about, final)


def verdict(status: str, diagnostic: str) -> tuple[Kind, str]:
    """Return the kind of a final failure, by the same rules as a refusal while sending."""
    match = STATUS.match(status.strip())
    enhanced = match[0] if match else ""
    answer = diagnostic.partition(";")[2].strip() if ";" in diagnostic else diagnostic.strip()
    reply = SMTP_REPLY.match(answer) if diagnostic.lower().startswith("smtp") else None
    # Without a server's reply only the status counts; 554 says no more than that it was final.
    code = int(reply[1]) if reply else 554 if enhanced.startswith("5") else 450
    words = reply[2] if reply else answer
    if enhanced and not STATUS.match(words):
        words = f"{enhanced} {words}".strip()
    reason = refusal(code, words, Stage.RCPT)
    return reason.kind, reason.detail[:DETAIL_LENGTH]


def from_dialect(message: Message, about: Named | None) -> list[Bounce]:
    try:
        shorten(message)
        temporary, permanent = all_failures(message)
    except Exception:  # its detectors were written for many servers' garbage, not for all of it
        return []
    failures = [(Kind.HARD_BOUNCE, one) for one in permanent] + [(Kind.SOFT_BOUNCE, one) for one in temporary]
    subject = " ".join(str(message["Subject"] or "returned mail").split())[:200]
    bounces = []
    for kind, one in failures:
        address = mailbox(one.decode("utf-8", "replace"))
        if address:
            bounces.append(Bounce(address, kind, subject, about, final=kind is Kind.HARD_BOUNCE))
    return bounces


def shorten(message: Message) -> None:
    """Cut the texts of the mail to DIALECT_BYTES in lines of DIALECT_LINE, and its lists of failed recipients to one of
    LONGEST_HEADER. A part that fits stays as it is, in its own encoding."""
    if failed := message.get_all("X-Failed-Recipients"):
        del message["X-Failed-Recipients"]
        message["X-Failed-Recipients"] = ", ".join(map(str, failed))[:LONGEST_HEADER]
    left = DIALECT_BYTES
    for part in message.walk():
        if part.is_multipart():
            continue
        encoded, decoded = str(part.get_payload()), part.get_payload(decode=True)
        content = decoded if isinstance(decoded, bytes) else b""
        longest = max(len(line) for line in (*encoded.split("\n"), *content.split(b"\n")))
        if longest > DIALECT_LINE or len(encoded) > left:
            del part["Content-Transfer-Encoding"]
            lines = (line[:DIALECT_LINE] for line in content[:left].split(b"\n"))
            part.set_payload(b"\n".join(lines).decode("ascii", "surrogateescape"))
        left = max(0, left - len(encoded))


def text(fields: Message, name: str) -> str:
    return " ".join(str(fields[name] or "").split())


def mailbox(value: str) -> str:
    """Return the address of "rfc822; Ann@Example.org" as stored; empty where it is none."""
    kind, separator, address = value.partition(";")
    if separator and kind.strip().lower() not in ("rfc822", "utf-8", "smtp"):
        return ""
    try:
        return normalise(MAILBOX, (address if separator else value).strip())
    except AddressError:
        return ""


def message_of(message: Message, raw: bytes) -> Named | None:
    """Return which of our messages came back, by the id of the returned one."""
    return next((named for value in ids(message, raw) if (named := named_in(value))), None)


def ids(message: Message, raw: bytes) -> Iterator[str]:
    for part in message.walk():
        for returned in returned_messages(part):
            yield str(returned["Message-ID"] or "")
    # Older servers quote the message in their text; some give only a reference.
    for quoted in RETURNED_ID.findall(raw):
        yield quoted.decode("ascii", "replace")
    for header in ("In-Reply-To", "References", "X-Failed-Message-ID"):
        yield str(message[header] or "")


def returned_messages(part: Message) -> list[Message]:
    payload: Any = part.get_payload()
    if part.get_content_type() == "message/rfc822" and isinstance(payload, list):
        return payload
    if part.get_content_type() in ("text/rfc822-headers", "message/rfc822-headers"):
        content = part.get_payload(decode=True)
        return [read_mail(content)] if isinstance(content, bytes) else []
    return []


# --- replies ---------------------------------------------------------------------------------------------

#: parts among which the text of a reply is looked for, and characters read of an HTML text
MOST_PARTS, LONGEST_HTML = 100, 300_000
#: Precedence of lists and programs
NO_PERSON = frozenset({"bulk", "junk", "list", "auto_reply"})
AUTOMATIC = ("X-Autoreply", "X-Autorespond", "List-Id")


@dataclass(frozen=True, slots=True)
class ReplyMail:
    key: str
    message: Named
    address: str
    text: str
    at: datetime | None


def take_in_reply(raw: bytes, now: datetime) -> tuple[bool, bool]:
    """Store the mail if it is a reply to one of ours. Returns whether it is one, and whether it is new; the inbound
    worker works on it later."""
    reply = parse_reply(raw)
    target = RunTarget.objects.filter(pk=reply.message.target_id).first() if reply else None
    if reply is None or target is None or target.address != reply.address:
        return False, False
    # A reply cannot be older than the message: the sender's clock is wrong.
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
    """Return a person's reply to a message of ours; None for everything else."""
    mail = read_mail(raw)
    named = named_in(_header(mail, "In-Reply-To")) or named_in(_header(mail, "References"))
    address = _sender(mail)
    if named is None or not address or _automatic(mail):
        return None
    name = _header(mail, "Message-ID").encode() or raw
    key = f"mail-reply-{hashlib.sha256(name).hexdigest()}"
    return ReplyMail(key, named, address, own_words(_text(mail)), _date(mail))


def _sender(mail: Message) -> str:
    """Return the one sender's address as stored; empty where there is none, or more than one."""
    try:
        senders = getaddresses([_header(mail, "From")])
    except RecursionError:  # brackets within brackets, thousands deep
        return ""
    return mailbox(senders[0][1]) if len(senders) == 1 else ""


def _header(mail: Message, name: str) -> str:
    return str(mail[name] or "")


def _automatic(mail: Message) -> bool:
    """Return whether a program sent it, by RFC 3834 and what programs did before it."""
    submitted = _header(mail, "Auto-Submitted").partition(";")[0].strip().lower()
    return (
        submitted not in ("", "no")
        or _header(mail, "Precedence").strip().lower() in NO_PERSON
        or _header(mail, "Return-Path").strip() == "<>"
        or any(mail[name] is not None for name in AUTOMATIC)
    )


def _text(mail: Message) -> str:
    """Return the first text that is not an attachment; plain before HTML."""
    texts = {"text/plain": "", "text/html": ""}
    for part in islice(mail.walk(), MOST_PARTS):
        kind = part.get_content_type()
        if not texts.get(kind, "-") and part.get_content_disposition() != "attachment":
            texts[kind] = _decoded(part)
    return texts["text/plain"].strip() or text_of_html(texts["text/html"][:LONGEST_HTML])


def _decoded(part: Message) -> str:
    content = part.get_payload(decode=True)
    if not isinstance(content, bytes):
        return ""
    try:
        return content.decode(part.get_content_charset() or "utf-8", "replace")
    except (LookupError, ValueError):  # an unknown encoding, or one that does not replace what it cannot read
        return content.decode("utf-8", "replace")


def _date(mail: Message) -> datetime | None:
    try:
        moment = parsedate_to_datetime(_header(mail, "Date"))
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, TypeError, OverflowError):
        return None
