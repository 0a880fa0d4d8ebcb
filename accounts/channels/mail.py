"""Mail: the description that mail channels start from, and parts as MIME messages.

Building a message costs three times as much as sending it, so the stdlib builds it once per part. The headers that
differ between recipients (To, Date, Message-ID, the unsubscribe link) are plain ASCII; they are checked here and put
in front of the finished bytes.
"""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import Callable
from dataclasses import dataclass
from email.errors import MessageError
from email.header import Header
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate
from urllib.parse import quote

from accounts.actions import Action
from accounts.addresses import MAILBOX
from accounts.channels.base import TIMEOUT, AccountConfig, Channel, Kind, Media, NotSent, Part
from accounts.channels.settings import Field, FieldKind

MAIL = Channel(
    key="mail",
    label="mail",
    kinds=frozenset({MAILBOX}),
    actions=(Action.EMAIL,),
    capped=True,
    # One mail after the other: several at once look like spam to the receiving servers.
    knobs={"group_concurrency": 1},
    retries=(60.0, 300.0, 900.0),  # 1, 5, 15 minutes, then failed
    needs_sender=True,
    own_kind=MAILBOX,
    subject=True,
    fields=(
        Field(name="from_name", label="Sender's name", help="Shown to recipients beside the address."),
        Field(
            name="reply_to",
            label="Reply to",
            kind=FieldKind.MAILBOX,
            help="Where answers go. Empty: to the sender.",
        ),
        Field(
            name="from_address",
            label="Sender address",
            kind=FieldKind.MAILBOX,
            advanced=True,
            help="The address in From. Empty: the account's own.",
        ),
        TIMEOUT,
    ),
)


# -- parts as mail ----------------------------------------------------------------------------------------


#: Encoded parts kept per account. A lane works on few runs at once, and an attachment may be large.
CACHED_PARTS = 8
SUBJECT_LIMIT = 200
NAME_LIMIT = 120
#: RFC 5322, 2.1.1: a line has at most 998 characters; the name of the header needs some.
HEADER_LIMIT = 900

# An address as it stands in envelope and header: no space, bracket, comma, quote or control character.
ADDRESS = re.compile(r"[^\s\x00-\x20\x7f<>()\[\],;:\\\"@]+@[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?")
TOKEN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
URL = re.compile(r"https?://[\x21\x23-\x3b\x3d\x3f-\x7e]+")
MIME_TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+")
CONTROLS = re.compile(r"[\x00-\x1f\x7f\u0085\u2028\u2029]+")
LINE_STARTS_WITH_DOT = re.compile(rb"(?m)^\.")


class BadHeader(ValueError):
    """Raised for a value that must not stand in a header, with a sentence that says which."""


class BadRecipient(BadHeader):
    """Raised where the recipient's address is the bad value: no other recipient is concerned."""


class BadContent(ValueError):
    """Raised for a part that cannot be written as mail."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """A finished part. `fixed` has its headers without the empty line, `body` what follows it."""

    fixed: bytes
    body: bytes
    # For SMTP's DATA: lines that start with a dot have a second one.
    stuffed: bytes
    # Has bytes beyond ASCII, which SMTP must announce.
    eight_bit: bool = False


class Envelope:
    """Encodes an account's parts and gives each recipient its own headers."""

    def __init__(self, account: AccountConfig) -> None:
        self.account = account
        self._parts: dict[str, Encoded] = {}
        self._encoding = asyncio.Lock()

    @property
    def sender(self) -> str:
        return str(self.account.config.get("from_address") or self.account.address)

    async def encode(self, part: Part) -> Encoded:
        """Return the part's bytes.

        Twenty sends that start together encode it, and read its file, once. A personal part is encoded for its
        recipient and not kept.
        """
        if part.personal:
            return await asyncio.to_thread(encode, self.account, self.sender, part)
        encoded = self._parts.get(part.key)
        if encoded is not None:
            return encoded
        async with self._encoding:
            if part.key not in self._parts:
                # In a thread: a large file takes a while, and other lanes share the loop.
                self._keep(part.key, await asyncio.to_thread(encode, self.account, self.sender, part))
            return self._parts[part.key]

    def _keep(self, key: str, encoded: Encoded) -> None:
        while len(self._parts) >= CACHED_PARTS:
            del self._parts[next(iter(self._parts))]
        self._parts[key] = encoded

    def headers(self, address: str, message_id: str) -> bytes:
        """Return the headers that only this recipient's copy has."""
        lines = [
            f"To: {checked_recipient(address)}",
            f"Date: {formatdate()}",
            f"Message-ID: {self.full_id(message_id)}",
        ]
        url = self.account.unsubscribe_url(address)
        if url:
            lines.append(f"List-Unsubscribe: <{checked(URL, url, 'unsubscribe address')}>")
            lines.append("List-Unsubscribe-Post: List-Unsubscribe=One-Click")
        return "".join(f"{line}\r\n" for line in lines).encode()

    def full_id(self, message_id: str) -> str:
        """Return the Message-ID: the same for every try at the same part, so that a receiver can recognise a repeat."""
        domain = checked(ADDRESS, self.sender, "sender's address").rpartition("@")[2]
        return f"<{checked(TOKEN, message_id, 'message id')}@{domain}>"


def checked(pattern: re.Pattern[str], value: str, what: str) -> str:
    """Return the value if all of it has the form that the header allows; raises BadHeader."""
    if len(value) > HEADER_LIMIT or not pattern.fullmatch(value):
        raise BadHeader(f"The {what} {value[:80]!r} cannot stand in a mail header.")
    return value


def checked_recipient(address: str) -> str:
    try:
        return checked(ADDRESS, address, "recipient")
    except BadHeader as error:
        raise BadRecipient(str(error)) from None


def not_writable(error: Exception) -> NotSent:
    """Return the refusal for a recipient, content or settings that cannot be written. Nothing was sent."""
    if isinstance(error, BadRecipient):
        return NotSent(Kind.RECIPIENT_GONE, str(error))
    if isinstance(error, BadHeader):
        return NotSent(Kind.AUTH, str(error))
    if isinstance(error, OSError):
        return NotSent(Kind.UNKNOWN, f"The file cannot be read: {error.strerror or error}")
    return NotSent(Kind.CONTENT_REJECTED, str(error))


# -- building ---------------------------------------------------------------------------------------------


def encode(account: AccountConfig, sender: str, part: Part) -> Encoded:
    headers = fixed_headers(account, sender, part)
    message = EmailMessage(policy=SMTP)
    try:
        fill(message, part)
        described, _, body = message.as_bytes().partition(b"\r\n\r\n")
    except (MessageError, UnicodeError, ValueError) as error:
        raise BadContent(f"The message cannot be written as mail: {error}") from error
    if not body.endswith(b"\r\n"):
        body += b"\r\n"
    stuffed = LINE_STARTS_WITH_DOT.sub(b"..", body)
    return Encoded(headers + described + b"\r\n", body, stuffed, eight_bit=not body.isascii())


def fixed_headers(account: AccountConfig, sender: str, part: Part) -> bytes:
    """Return the headers that every recipient's copy has."""
    name = str(account.config.get("from_name") or "")
    reply_to = str(account.config.get("reply_to") or "")
    lines = [f"From: {mailbox(name, sender)}", f"Subject: {words('Subject', subject_of(part))}"]
    if reply_to:
        lines.append(f"Reply-To: {checked_own(reply_to, 'reply_to')}")
    return "".join(f"{line}\r\n" for line in lines).encode("ascii")


def mailbox(name: str, address: str) -> str:
    checked_own(address, "sender's address")
    name = one_line(name)[:NAME_LIMIT]
    if not name:
        return address
    if name.isascii():
        # Quoted, because a comma or a bracket would otherwise end the name.
        name = '"' + re.sub(r'(["\\])', r"\\\1", name) + '"'
    return f"{words('From', name)} <{address}>"


def words(header: str, text: str) -> str:
    """Return plain text as it is, anything else as encoded words.

    The older Header class does it: the newer policies of Python 3.11 lose blanks between two encoded words.
    """
    if text.isascii() and "=?" not in text:
        return text
    try:
        return Header(text, "utf-8", header_name=header).encode(linesep="\r\n")
    except UnicodeError as error:
        raise BadContent(f"The {header.lower()} cannot be written as mail: {error}") from error


def checked_own(address: str, what: str) -> str:
    if not address.isascii():
        raise BadHeader(f"The {what} {address[:80]!r} must be plain ASCII.")
    return checked(ADDRESS, address, what)


def subject_of(part: Part) -> str:
    """Return the subject. A mail always has one: without its own, the first line of the text."""
    lines = (one_line(line) for line in part.text.splitlines())
    return (one_line(part.subject) or next(filter(None, lines), ""))[:SUBJECT_LIMIT]


def one_line(text: str) -> str:
    """Return the text without line breaks, so that nothing in a subject or a name can start a header."""
    return " ".join(CONTROLS.sub(" ", text).split())


def fill(message: EmailMessage, part: Part) -> None:
    """Add the text, HTML beside it, and the file: inside the HTML where that shows it, else attached."""
    media = part.media
    inline = media is not None and shows(part.html, media.filename)
    fill_text(message, part, content_id(media.filename) if media else "")
    if media is None:
        return
    if inline:
        body = message.get_body(("html",))
        assert body is not None
        add_file(body.add_related, media, "inline", cid=f"<{content_id(media.filename)}>")
    else:
        add_file(message.add_attachment, media, "attachment")


def fill_text(message: EmailMessage, part: Part, cid: str) -> None:
    if not part.html:
        message.set_content(part.text)
        return
    markup = with_content_id(part.html, part.media.filename, cid) if part.media and cid else part.html
    if part.text:
        message.set_content(part.text)
        message.add_alternative(markup, subtype="html")
    else:
        message.set_content(markup, subtype="html")


def add_file(add: Callable[..., None], media: Media, disposition: str, **more: str) -> None:
    mime = media.mime if MIME_TYPE.fullmatch(media.mime) else "application/octet-stream"
    maintype, _, subtype = mime.partition("/")
    if maintype in ("message", "multipart"):
        # These types need an inner structure, which an opaque file does not have.
        maintype, subtype = "application", "octet-stream"
    name = one_line(media.filename) or "file"
    add(media.read(), maintype, subtype, disposition=disposition, filename=name, **more)


# -- pictures inside the HTML -----------------------------------------------------------------------------


def content_id(filename: str) -> str:
    return quote(one_line(filename), safe="")


def spellings(filename: str) -> list[str]:
    """Return the ways in which people write a file's name after "cid:", longest first."""
    forms = {filename, html.escape(filename), quote(filename), quote(filename, safe="")}
    return sorted(forms, key=len, reverse=True)


def reference(filename: str) -> re.Pattern[str]:
    names = "|".join(re.escape(form) for form in spellings(filename))
    return re.compile(rf"(?i:cid:)(?:{names})(?=[\"'\s>);]|$)")


def shows(markup: str, filename: str) -> bool:
    return bool(reference(filename).search(markup))


def with_content_id(markup: str, filename: str, cid: str) -> str:
    return reference(filename).sub(lambda _: f"cid:{cid}", markup)
