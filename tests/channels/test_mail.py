"""Parts as mail, header by header, and the own words of a reply."""

from __future__ import annotations

import asyncio
import email
from dataclasses import replace
from email import policy
from email.header import decode_header, make_header
from email.message import EmailMessage
from email.utils import parseaddr
from typing import Any

import pytest

from accounts.channels.base import AccountConfig, Kind, Media, NotSent, Part
from accounts.channels.mail import (
    CACHED_PARTS,
    BadContent,
    BadHeader,
    BadRecipient,
    Encoded,
    Envelope,
    checked_recipient,
    content_id,
    not_writable,
    shows,
    with_content_id,
)

TEXT = Part(key="1:0", index=0, kind="text", text="Doors open at nine", subject="Reminder")
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 20
WHO = "ann@example.org"


def account(unsubscribe: str | None = None, **config: Any) -> AccountConfig:
    return AccountConfig(1, "smtp", "Mailer", "mailer@example.com", config, unsubscribe_url=lambda address: unsubscribe)


def file(content: bytes = PNG, name: str = "poster.png", mime: str = "image/png") -> Media:
    return Media("0" * 64, name, mime, len(content), lambda: content)


def encoded(part: Part, config: AccountConfig | None = None) -> tuple[bytes, Encoded]:
    async def go() -> tuple[bytes, Encoded]:
        envelope = Envelope(config or account())
        return envelope.headers(WHO, "crier-7-0"), await envelope.encode(part)

    return asyncio.run(go())


def raw(part: Part, config: AccountConfig | None = None) -> bytes:
    headers, found = encoded(part, config)
    return found.fixed + headers + b"\r\n" + found.body


def mail(part: Part, config: AccountConfig | None = None) -> EmailMessage:
    message = email.message_from_bytes(raw(part, config), policy=policy.default)
    assert isinstance(message, EmailMessage)
    assert not any(piece.defects for piece in message.walk())
    return message


def text_of(message: EmailMessage, kind: str = "plain") -> str:
    body = message.get_body((kind,))
    assert body is not None
    return str(body.get_content())


# -- headers ----------------------------------------------------------------------------------------------


def test_the_headers_of_a_plain_mail() -> None:
    message = mail(TEXT, account(from_name="Anna Müller, Events", reply_to="office@example.com"))

    assert message["From"] == '"Anna Müller, Events" <mailer@example.com>'
    assert message["From"].addresses[0].addr_spec == "mailer@example.com"
    assert message["To"] == WHO
    assert message["Reply-To"] == "office@example.com"
    assert message["Subject"] == "Reminder"
    assert message["Message-ID"] == "<crier-7-0@example.com>"
    assert message["Date"].datetime is not None
    assert message["MIME-Version"] == "1.0"
    assert message["List-Unsubscribe"] is None
    for header in ("From", "To", "Date", "Message-ID", "Subject", "MIME-Version", "Content-Type"):
        assert len(message.get_all(header, [])) == 1


def test_one_click_unsubscribe() -> None:
    message = mail(TEXT, account("https://crier.example.com/u/abc?x=1"))

    assert message["List-Unsubscribe"] == "<https://crier.example.com/u/abc?x=1>"
    assert message["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"


@pytest.mark.parametrize(
    ("subject", "text", "expected"),
    [
        pytest.param("Hello", "Body", "Hello", id="its own"),
        pytest.param("", "\n  First line \nSecond", "First line", id="first line of the text"),
        pytest.param("", "", "", id="nothing to say"),
        pytest.param("Ünïcödé 🎉 " * 12, "x", ("Ünïcödé 🎉 " * 12).strip(), id="long and not ASCII"),
        pytest.param("a\r\nBcc: c@d.org", "x", "a Bcc: c@d.org", id="line break"),
        pytest.param("a\x00b\x0bc\u2028d", "x", "a b c d", id="control characters"),
        pytest.param("x" * 300, "x", "x" * 200, id="too long"),
    ],
)
def test_subjects(subject: str, text: str, expected: str) -> None:
    message = mail(replace(TEXT, subject=subject, text=text))

    assert message["Subject"] == expected
    assert message["Bcc"] is None


@pytest.mark.parametrize(
    "address",
    [
        "ann@example.org\r\nBcc: bob@example.org",
        "ann@example.org\nX: y",
        "ann@example.org\x00",
        "ann@example.org, bob@example.org",
        "Ann <ann@example.org>",
        "ann@exa mple.org",
        "ann@",
        "@example.org",
        "a@b@c.org",
        "ann@example.org\u2028X: y",
        "a" * 1000 + "@example.org",
        "",
    ],
)
def test_no_recipient_can_add_a_header(address: str) -> None:
    with pytest.raises(BadRecipient):
        Envelope(account()).headers(address, "crier-7-0")


@pytest.mark.parametrize("message_id", ["a b", "a>\r\nX: y", "", "a@b", "<a"])
def test_no_message_id_can_add_a_header(message_id: str) -> None:
    with pytest.raises(BadHeader):
        Envelope(account()).headers(WHO, message_id)


@pytest.mark.parametrize("url", ["https://a.org/>\r\nX: y", "javascript:x", "https://a.org/ b", "https://a.org/<"])
def test_no_unsubscribe_address_can_add_a_header(url: str) -> None:
    with pytest.raises(BadHeader):
        Envelope(account(url)).headers(WHO, "crier-7-0")


@pytest.mark.parametrize(
    "config",
    [{"reply_to": "a@b.org\r\nBcc: c@d.org"}, {"reply_to": "żółw@b.org"}, {"from_address": "nobody"}],
    ids=str,
)
def test_no_setting_can_add_a_header(config: dict[str, Any]) -> None:
    with pytest.raises(BadHeader):
        encoded(TEXT, account(**config))


@pytest.mark.parametrize(
    "name",
    ["Ann\r\nBcc: c@d.org", 'Ann "the" Boss', "Müller, Łukasz <x@y.org> (Events) " * 3, "Ann\\", "a.b", "@"],
)
def test_no_display_name_can_add_a_header_or_change_the_sender(name: str) -> None:
    message = mail(TEXT, account(from_name=name))

    assert [a.addr_spec for a in message["From"].addresses] == ["mailer@example.com"]
    assert display_name(TEXT, account(from_name=name)) == " ".join(name.split())
    assert message["Bcc"] is None


def display_name(part: Part, config: AccountConfig) -> str:
    """By the older parser: the newer one of Python 3.11 adds blanks between two encoded words."""
    name, _ = parseaddr(email.message_from_bytes(raw(part, config))["From"])
    return str(make_header(decode_header(name)))


# -- bodies -----------------------------------------------------------------------------------------------


def test_text_and_html_are_alternatives() -> None:
    message = mail(replace(TEXT, html="<p>Doors open at <b>nine</b></p>"))

    assert message.get_content_type() == "multipart/alternative"
    assert text_of(message).strip() == TEXT.text
    assert "<b>nine</b>" in text_of(message, "html")


def test_html_alone() -> None:
    message = mail(replace(TEXT, text="", html="<p>Hi</p>"))

    assert message.get_content_type() == "text/html"


def test_a_file_is_attached() -> None:
    message = mail(replace(TEXT, kind="image", media=file()))

    assert message.get_content_type() == "multipart/mixed"
    (attached,) = message.iter_attachments()
    assert attached.get_filename() == "poster.png"
    assert attached.get_content_type() == "image/png"
    assert attached.get_content() == PNG
    assert text_of(message).strip() == TEXT.text


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("poster.png", "cid:poster.png"),
        ("my poster (1).png", "cid:my poster (1).png"),
        ("my poster (1).png", "cid:my%20poster%20%281%29.png"),
        ("Zażółć & co.png", "cid:Zażółć &amp; co.png"),
    ],
)
def test_a_picture_the_html_shows_goes_inside(name: str, written: str) -> None:
    part = replace(TEXT, kind="image", html=f'<img src="{written}">', media=file(name=name))

    message = mail(part)

    html = message.get_body(("html",))
    assert html is not None
    related = next(p for p in message.walk() if p.get_content_type() == "multipart/related")
    picture = next(p for p in message.walk() if p.get_content_type() == "image/png")
    assert picture in related.get_payload()
    assert picture.get_content_disposition() == "inline"
    cid = picture["Content-ID"].strip().strip("<>")
    assert f'src="cid:{cid}"' in html.get_content()
    assert text_of(message).strip() == TEXT.text


def test_a_picture_the_html_does_not_show_is_attached() -> None:
    message = mail(replace(TEXT, kind="image", html='<img src="cid:poster.png.old">', media=file()))

    assert [p.get_filename() for p in message.iter_attachments()] == ["poster.png"]


@pytest.mark.parametrize(
    ("name", "mime", "expected"),
    [
        ("list.csv", "text/csv", "text/csv"),
        ("mail.eml", "message/rfc822", "application/octet-stream"),
        ("odd", "nonsense", "application/octet-stream"),
        ("odd", "a/b\r\nX: y", "application/octet-stream"),
        ("Übersicht 🎉.pdf", "application/pdf", "application/pdf"),
        ('a"b\r\nX: y.pdf', "application/pdf", "application/pdf"),
    ],
)
def test_any_file_arrives_whole(name: str, mime: str, expected: str) -> None:
    content = b"From me\r\n.\r\n..\nlone \r end" + bytes(range(256))
    part = replace(TEXT, kind="document", media=file(content, name, mime))

    message = mail(part)

    (attached,) = message.iter_attachments()
    assert attached.get_content_type() == expected
    assert attached.get_payload(decode=True) == content
    assert attached.get_filename() == " ".join(name.split())
    assert attached["X"] is None
    assert message["X"] is None


@pytest.mark.parametrize(
    "text",
    [
        "one\ntwo\n.\n..\n.hidden\n",
        "Zażółć gęślą jaźń 🎉\n",
        "x" * 5000 + "\n",
        "a\r\nb\n",
        "From the beginning\n",
        "trailing space \n\n\n",
    ],
)
def test_odd_texts_arrive_whole(text: str) -> None:
    message = mail(replace(TEXT, text=text))

    assert text_of(message).replace("\r\n", "\n") == text.replace("\r\n", "\n")


def test_the_bytes_are_fit_for_any_server() -> None:
    part = replace(TEXT, text="ż.\n.\n" + "x" * 3000, html="<p>ż</p>" * 500, kind="image", media=file())

    lines = raw(part).split(b"\r\n")

    assert all(len(line) <= 998 for line in lines)
    assert all(line.isascii() for line in lines)
    assert not any(b"\n" in line or b"\r" in line for line in lines)


def test_dots_are_doubled_for_smtp_only() -> None:
    _, found = encoded(replace(TEXT, text="one\n.\n.two\n"))

    assert b"\r\n.\r\n" in found.body
    assert b"\r\n..\r\n..two\r\n" in found.stuffed
    assert b"\r\n.\r\n" not in found.stuffed
    assert found.stuffed.endswith(b"\r\n")


def test_a_text_that_begins_with_the_dot() -> None:
    _, found = encoded(replace(TEXT, text=".\n"))

    assert found.stuffed == b"..\r\n"


# -- once -------------------------------------------------------------------------------------------------


def test_a_part_is_encoded_and_its_file_read_once() -> None:
    reads = []

    def read() -> bytes:
        reads.append(1)
        return PNG

    part = replace(TEXT, kind="image", media=Media("0" * 64, "a.png", "image/png", 1, read))

    async def go() -> list[Encoded]:
        envelope = Envelope(account())
        return await asyncio.gather(*(envelope.encode(part) for _ in range(20)))

    found = asyncio.run(go())

    assert len(reads) == 1
    assert all(one is found[0] for one in found)


def test_two_parts_are_two_messages_and_old_ones_are_forgotten() -> None:
    async def go() -> int:
        envelope = Envelope(account())
        bodies = {
            (await envelope.encode(replace(TEXT, key=f"1:{n}", text=f"part {n}"))).body for n in range(CACHED_PARTS + 5)
        }
        assert len(bodies) == CACHED_PARTS + 5
        return len(envelope._parts)

    assert asyncio.run(go()) == CACHED_PARTS


def test_only_the_recipients_headers_differ() -> None:
    envelope = Envelope(account("https://crier.example.com/u/abc"))

    first = envelope.headers("ann@example.org", "crier-1-0").split(b"\r\n")
    second = envelope.headers("bob@example.org", "crier-2-0").split(b"\r\n")

    differing = {a.split(b":")[0] for a, b in zip(first, second, strict=True) if a != b}
    assert differing - {b"Date"} == {b"To", b"Message-ID"}


def test_a_personal_part_is_encoded_for_its_recipient_and_not_kept() -> None:
    async def go() -> tuple[Encoded, dict[str, Encoded]]:
        envelope = Envelope(account())
        await envelope.encode(TEXT)
        for n in range(CACHED_PARTS + 1):
            part = replace(TEXT, key=f"1:0:{n}", text=f"Hi number {n}", personal=True)
            last = await envelope.encode(part)
        return last, envelope._parts

    last, kept = asyncio.run(go())
    assert b"Hi number 8" in last.body
    assert list(kept) == [TEXT.key]


# -- edges ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (BadRecipient("who?"), NotSent(Kind.RECIPIENT_GONE, "who?")),
        (BadHeader("what?"), NotSent(Kind.AUTH, "what?")),
        (FileNotFoundError(2, "No such file"), NotSent(Kind.UNKNOWN, "The file cannot be read: No such file")),
        (OSError("gone"), NotSent(Kind.UNKNOWN, "The file cannot be read: gone")),
        (BadContent("how?"), NotSent(Kind.CONTENT_REJECTED, "how?")),
    ],
    ids=["recipient", "setting", "file", "file without words", "content"],
)
def test_whose_fault_it_is_that_nothing_was_written(error: Exception, reason: NotSent) -> None:
    assert not_writable(error) == reason


@pytest.mark.parametrize("length", [900, 901])
def test_a_recipient_fits_into_a_header_or_is_none(length: int) -> None:
    address = "@example.org".rjust(length, "a")
    if length == 900:
        assert checked_recipient(address) == address
    else:
        with pytest.raises(BadRecipient, match=r"'a{80}' cannot stand in a mail header"):
            checked_recipient(address)


def test_the_sender_is_the_setting_or_the_accounts_address() -> None:
    assert Envelope(account()).sender == "mailer@example.com"
    assert Envelope(account(from_address="office@example.org")).sender == "office@example.org"
    assert mail(TEXT, account(from_address="office@example.org"))["Message-ID"] == "<crier-7-0@example.org>"


def test_a_name_is_cut_and_none_leaves_the_address_alone() -> None:
    assert mail(TEXT)["From"] == "mailer@example.com"
    assert display_name(TEXT, account(from_name="n" * 130)) == "n" * 120


@pytest.mark.parametrize("subject", ["=?utf-8?q?x?=", "Ü =?utf-8?q?x?="])
def test_a_subject_that_looks_encoded_arrives_as_it_was_written(subject: str) -> None:
    found = email.message_from_bytes(raw(replace(TEXT, subject=subject)))["Subject"]

    assert str(make_header(decode_header(found))) == subject


@pytest.mark.parametrize(
    "part", [replace(TEXT, subject="\ud800"), replace(TEXT, text="\ud800")], ids=["subject", "text"]
)
def test_what_is_no_text_cannot_be_written(part: Part) -> None:
    with pytest.raises(BadContent, match="cannot be written as mail"):
        encoded(part)


def test_a_mail_without_a_word_still_ends_its_line() -> None:
    _, found = encoded(replace(TEXT, text=""))

    assert found.stuffed == found.body == b"\r\n"


@pytest.mark.parametrize(("text", "eight_bit"), [("Turtle", False), ("Żółw", True)])
def test_whether_a_part_has_bytes_beyond_ascii(text: str, eight_bit: bool) -> None:
    _, found = encoded(replace(TEXT, text=text))

    assert found.eight_bit is (not found.body.isascii()) is eight_bit


@pytest.mark.parametrize(
    ("name", "mime", "expected"),
    [
        ("a.bin", "multipart/mixed", ("application/octet-stream", "a.bin")),
        ("", "image/png", ("image/png", "file")),
        ("\r\n", "image/png", ("image/png", "file")),
    ],
    ids=["a structure", "no name", "a name of line breaks"],
)
def test_a_file_has_a_type_and_a_name(name: str, mime: str, expected: tuple[str, str]) -> None:
    (attached,) = mail(replace(TEXT, media=file(b"x", name, mime))).iter_attachments()

    assert (attached.get_content_type(), attached.get_filename()) == expected


def test_a_picture_inside_html_without_a_text() -> None:
    message = mail(replace(TEXT, text="", html='<img src="cid:poster.png">', media=file()))

    assert message.get_content_type() == "multipart/related"
    assert f"cid:{content_id('poster.png')}" in text_of(message, "html")


@pytest.mark.parametrize(
    ("markup", "shown"),
    [
        ('<img src="cid:a&amp;amp">', '<img src="cid:X">'),
        ('<img src="cid:a&amp">', '<img src="cid:X">'),
        ("<img src=CID:a%26amp>", "<img src=cid:X>"),
        ("url(cid:a&amp)", "url(cid:X)"),
        ("cid:a&amp", "cid:X"),
    ],
    ids=["escaped", "as it is", "quoted", "in brackets", "at the end"],
)
def test_a_name_that_begins_like_its_own_spelling_is_replaced_whole(markup: str, shown: str) -> None:
    assert shows(markup, "a&amp")
    assert with_content_id(markup, "a&amp", "X") == shown


def test_without_html_nothing_is_shown() -> None:
    assert shows("", "poster.png") is False
    assert shows("cid:poster.pngx", "poster.png") is False


def test_the_last_eight_parts_are_kept() -> None:
    async def go() -> list[str]:
        envelope = Envelope(account())
        for n in range(10):
            await envelope.encode(replace(TEXT, key=f"1:{n}"))
        return list(envelope._parts)

    assert asyncio.run(go()) == [f"1:{n}" for n in range(2, 10)]
