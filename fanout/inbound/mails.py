"""Read bounce mails, and find which of our messages they are about. Replies are read by fanout.inbound.reply_mails.

A standard report (RFC 3464) names the recipient, the status and, in the returned headers, our Message-ID, which names
the run target. Any other bounce is left to flufl.bounce, which knows many servers' dialects.
"""

from __future__ import annotations

import email
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email import policy
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from email.message import Message
from email.utils import parsedate_to_datetime
from io import BytesIO
from typing import Any, NamedTuple

from flufl.bounce import all_failures

from accounts.addresses import MAILBOX, AddressError, normalise
from accounts.channels import faults, refusals
from accounts.channels.base import Kind
from accounts.channels.reply_text import text_of_html
from fanout.inbound import notices
from fanout.rules.message_ids import Named, named_in

#: A report with a returned message is seldom above a few hundred KB; more is not looked at.
MAX_BYTES = 10_000_000
MAX_RECIPIENTS = notices.MOST_RECIPIENTS
#: characters of a notice that are read for one recipient of a report
LONGEST_SECTION = 5_000
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
    #: it carries an id that cannot be guessed; otherwise it was matched by recipient, account and time
    authentic: bool = True

    @property
    def hard(self) -> bool:
        return self.kind is Kind.HARD_BOUNCE


def parse_bounce(raw: bytes) -> list[Bounce]:
    """Return the bounces that a mail reports; empty for an ordinary mail. Raises TooLarge."""
    message = read_mail(raw)
    about = message_of(message, raw)
    notice = Notice.of(message)
    reports = list(status_reports(message))[:MAX_RECIPIENTS]
    recipients = [address for fields in reports if (address := recipient_of(fields))]
    if recipients:
        words = notices.sections(notice.words, list(dict.fromkeys(recipients)))
        bounces = [bounce for fields in reports if (bounce := from_report(fields, about, words))]
    else:
        bounces = from_notice(message, about, notice)
    return list(dict.fromkeys(bounces))[:MAX_RECIPIENTS]


def status_reports(message: Message) -> Iterator[Message]:
    """Yield the blocks of a delivery status that are about one recipient."""
    return (one for one in blocks_of_status(message) if one["Final-Recipient"] or one["Original-Recipient"])


def blocks_of_status(message: Message) -> Iterator[Message]:
    for part in message.walk():
        if part.get_content_type() == "message/delivery-status":
            yield from blocks_in(part)


def recipient_of(fields: Message) -> str:
    """Return the address that we wrote to, where the report names it; the final one may be behind a forwarding."""
    return mailbox(text(fields, "Original-Recipient")) or mailbox(text(fields, "Final-Recipient"))


def from_report(fields: Message, about: Named | None, words: Mapping[str, str]) -> Bounce | None:
    """Return the bounce that one block of a report describes. `words`: what the notice beside it says about each
    recipient."""
    action, address = ACTIONS.match(text(fields, "Action")), recipient_of(fields)
    if action is None or not address:
        return None
    if action["failed"] is None:
        return Bounce(address, Kind.SOFT_BOUNCE, text(fields, "Diagnostic-Code")[:DETAIL_LENGTH], about, final=False)
    kind, detail = verdict(
        text(fields, "Status"), text(fields, "Diagnostic-Code"), words.get(address, "")[:LONGEST_SECTION]
    )
    return Bounce(address, kind, detail, about, final=True)


def verdict(status: str, diagnostic: str, notice: str = "") -> tuple[Kind, str]:
    """Return the kind and the words of a final failure. Where the fields say nothing, the text beside them does."""
    match = STATUS.match(status.strip())
    enhanced = match[0] if match else ""
    answer = diagnostic.partition(";")[2].strip() if ";" in diagnostic else diagnostic.strip()
    reply = SMTP_REPLY.match(answer)
    # Without a server's reply only the status counts; 554 says no more than that it was final.
    code = int(reply[1]) if reply else 554 if enhanced.startswith("5") else 450
    words = reply[2] if reply else answer
    if enhanced and not STATUS.match(words.lstrip("#(")):
        words = f"{enhanced} {words}".strip()
    found = refusals.reported(code, words, refusals.stage_in(f"{words} {notice}"))
    if found is faults.UNCLEAR or (not reply and enhanced == "5.0.0"):
        found = refusals.reported(*(notices.reply_in(f"{answer}\n\n{notice}") or (0, f"{answer} {notice}")))
    return faults.kind_of(found), f"{code} {words}".strip()[:DETAIL_LENGTH]


class Notice(NamedTuple):
    """What a mail server wrote for people, above the message that came back."""

    words: str
    subject: str
    sender: str
    #: addresses that are no failed recipients: ours, and the daemon's
    own: frozenset[str]
    #: recipients of the message that came back, by its headers
    returned_to: tuple[str, ...]

    @classmethod
    def of(cls, message: Message) -> Notice:
        texts, returned = [], []
        for part in message.walk():
            returned += returned_messages(part)
            if returned:
                break
            # A multipart without its boundary is one text.
            broken = part.get_content_maintype() == "multipart" and not part.is_multipart()
            if broken or part.get_content_maintype() == "text" or part.get_content_type() == "message/delivery-status":
                texts.append(readable(part))
        own = frozenset(addresses_in(message, "To", "From", "Delivered-To", "Reply-To")).union(
            *(addresses_in(mail, "From", "Sender", "Return-Path", "Reply-To") for mail in returned)
        )
        return cls(
            words=notices.notice_of("\n".join(texts), own),
            subject=decoded_words(text(message, "Subject")),
            sender=text(message, "From"),
            own=own,
            returned_to=tuple(address for mail in returned for address in addresses_in(mail, "To")),
        )


def from_notice(message: Message, about: Named | None, notice: Notice) -> list[Bounce]:
    """Return the bounces of a notice without a usable report: recipients as flufl.bounce or our rules find them, and
    what its words mean."""
    certain = notices.is_notice(notice.sender, notice.subject)
    if not certain and text(message, "Return-Path") != "<>":
        return []
    known = addresses_in(message, "X-Failed-Recipients") or from_dialect(message)
    found = notices.failures(notice.words, notice.own, known)
    if not found and len(notice.returned_to) == 1:
        found = notices.failures(notice.words, (), notice.returned_to)
    late = notices.is_only_late(notice.subject, notice.words)
    bounces = []
    for failure in found:
        if not certain and not failure.code:
            continue  # an absence note has no return path either
        meant = refusals.reported(failure.code, failure.words, failure.stage)
        if meant.cause is faults.Cause.FILTERED and (judged := faults.said(notices.judgement_in(notice.words))):
            # A bare "550 user unknown" may be a filter's; the reporter's own words say whether it is.
            meant = judged
        kind = Kind.SOFT_BOUNCE if late else faults.kind_of(meant)
        detail = f"{failure.code or ''} {failure.words}".strip()[:DETAIL_LENGTH] or notice.subject[:200]
        if address := mailbox(failure.address):
            bounces.append(Bounce(address, kind, detail, about, final=not late))
    return bounces


def from_dialect(message: Message) -> list[str]:
    """Return the failed recipients that flufl.bounce finds. Its verdict is not used: every form is "permanent"."""
    try:
        shorten(message)
        temporary, permanent = all_failures(message)
    except Exception:  # its detectors were written for many servers' garbage, not for all of it
        return []
    return sorted(one.decode("utf-8", "replace") for one in {*temporary, *permanent})


def readable(part: Message) -> str:
    """Return the text of a part; of a delivery status its blocks as they stand there."""
    if part.is_multipart():
        return "\n\n".join(block.as_string(policy=LENIENT) for block in blocks_in(part))
    content = decoded(part)
    return text_of_html(content) if part.get_content_subtype() == "html" else content


def blocks_in(part: Message) -> list[Message]:
    """Return the messages that a part consists of. Its text is not touched, which may be in an encoding that fails."""
    payload: Any = part.get_payload() if part.is_multipart() else []
    return list(payload)


def decoded(part: Message) -> str:
    """Return the text of a part, in any encoding."""
    content = part.get_payload(decode=True)
    if not isinstance(content, bytes):
        return ""
    try:
        return content.decode(part.get_content_charset() or "utf-8", "replace")
    except (LookupError, ValueError):  # an unknown encoding, or one that does not replace what it cannot read
        return content.decode("utf-8", "replace")


def decoded_words(value: str) -> str:
    """Return a header without its encoding (RFC 2047), as it is where that is broken."""
    try:
        return str(make_header(decode_header(value)))
    except (ValueError, LookupError, HeaderParseError):
        return value


def address_in(message: Message, name: str) -> str:
    """Return the first address in a header, as stored; empty where there is none."""
    return next((mailbox(address) for address in addresses_in(message, name)), "")


def addresses_in(message: Message, *names: str) -> list[str]:
    """Return the addresses in headers, in lower case."""
    values = " ".join(str(value) for name in names for value in message.get_all(name) or ())
    return [match[0].lower() for match in notices.ADDRESS.finditer(values[:LONGEST_HEADER])]


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
    # The envelope of our message: a return path of its own (VERP) or the id that RFC 3461 lets us give.
    for header in ("To", "Delivered-To", "X-Original-To", "Envelope-To", "X-Envelope-To"):
        yield from map(str, message.get_all(header) or ())
    for fields in blocks_of_status(message):
        yield text(fields, "Original-Envelope-Id")


def returned_messages(part: Message) -> list[Message]:
    if part.get_content_type() == "message/rfc822" and part.is_multipart():
        return blocks_in(part)
    if part.get_content_type() in ("text/rfc822-headers", "message/rfc822-headers"):
        content = part.get_payload(decode=True)
        return [read_mail(content)] if isinstance(content, bytes) else []
    return []


def parsed_time(value: str) -> datetime | None:
    """Return the time of a Date header in UTC; None where it is not one."""
    try:
        found = parsedate_to_datetime(value)
        return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except (ValueError, TypeError, OverflowError):
        return None
