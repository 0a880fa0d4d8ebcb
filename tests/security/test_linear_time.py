"""Texts that strangers choose cost time in proportion to their length: nothing backtracks or sorts quadratically."""

from __future__ import annotations

import email
import json
import math
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.contrib import admin
from django.urls import reverse
from django.utils import timezone
from django.utils.text import smart_split

from accounts.addresses import GROUP, MAILBOX, PERSON, PROFILE, guess_kind, normalise
from accounts.channels import http, machine_mail, mail, paired, provider_events, refusals, registry, reply_text
from accounts.channels import settings as channel_settings
from accounts.channels import templates as cloud_templates
from accounts.channels.base import AccountConfig, Part
from accounts.channels.evolution import transport as evolution
from accounts.channels.gmail import google_api as gmail
from accounts.channels.provider_events import HookRequest
from accounts.channels.settings import FieldKind
from accounts.channels.smtp.connection import QUEUED_AS
from accounts.channels.waha import transport as waha
from accounts.channels.whatsapp.bridge import conditions as whatsapp
from config import logs
from config.admin_site import MOST_SEARCHED
from fanout.admin.recipient_admin import as_in_addresses
from fanout.admin.reminder_draft import PART_KIND as PART_OF_DRAFT
from fanout.admin.reminder_draft import PART_TEXT as PART_OF_WORDS
from fanout.api.door import IN_CHUNKS, PREFIX
from fanout.inbound import complaints, mails, notices, origins, reply_mails, webhooks
from fanout.ops import exports
from fanout.rules import message_ids
from reminders import imports, opt_outs, placeholders, schedule, suppressions, tables
from reminders.models import MOST_TEXT
from tests.security import world as worlds
from tests.security.test_permission_matrix import client_of

SMALL, LARGE = 5_000, 50_000
#: Ten times the text may take so many times as long. Quadratic time would take a hundred times as long.
MOST_GROWTH = 40
#: seconds of a processor for LARGE: what is below needs no comparison, and nothing may be above
NOTHING, CEILING = 0.0125, 2.0
#: seconds of a processor for a request
MOST_OF_A_REQUEST = 4.0
TRIES = 4

Reader = Callable[[str], Any]


def repeated(piece: str, before: str = "", behind: str = "") -> Callable[[int], str]:
    return lambda length: before + piece * (length // len(piece)) + behind


#: Texts of any length that make a careless pattern try the same characters again and again.
ATTACKS: dict[str, Callable[[int], str]] = {
    "blanks": repeated(" ", behind="x"),
    "tabs": repeated("\t", behind="x"),
    "line breaks": repeated("\n", behind="x"),
    "carriage returns": repeated("\r", behind="x"),
    "letters": repeated("a", behind="!"),
    "digits": repeated("1", behind="!"),
    "words": repeated("a ", behind="!"),
    "brace, blanks": repeated(" ", before="{"),
    "brace, line breaks": repeated("\n", before="{"),
    "brace, letters": repeated("a", before="{"),
    "brace, words": repeated("a ", before="{"),
    "brace, numbers": repeated("1 ", before="{", behind="-"),
    "brace, hyphens": repeated("-", before="{a"),
    "braces": repeated("{"),
    "braces with blanks": repeated("{ "),
    "braces with names": repeated("{a"),
    "open defaults": repeated("{name|", behind="\n"),
    "doubled braces": repeated("{{name "),
    "doubled brace, blanks": repeated(" ", before="{{"),
    "one open default": repeated("x", before="{name|"),
    "placeholders": repeated("{name} "),
    "accents": repeated("\u0327\u0301", before="a"),
    "marks that come apart": repeated("\u0f73", before="a"),
    "ligatures": repeated("\ufdfa"),
    "direction marks": repeated("\u200f"),
    "tabs and direction marks": repeated("\t\u200f"),
    "apostrophes": repeated("'", before="\t"),
    "tabs and apostrophes": repeated("\t'"),
    "quotation marks": repeated('"', before="a"),
    "open cells": repeated('"a",'),
    "separators": repeated("a,b;c\t"),
    "at signs": repeated("@", before="a"),
    "mailboxes": repeated("a@a."),
    "dots": repeated("a.", behind="@"),
    "hyphens": repeated("1-"),
    "brackets": repeated("(", before="+"),
    "angle brackets": repeated("<"),
    "open tags": repeated("<a "),
    "closing tags": repeated("</a", before="<script>"),
    "comments": repeated("<!--"),
    "declarations": repeated("<!["),
    "attributes": repeated("a=' ", before="<a "),
    "entities": repeated("&#"),
    "quotes of mail": repeated("> "),
    "attributions": repeated("On 1 wrote "),
    "lines of attributions": repeated("On 1 wrote\n"),
    "forwarded headers": repeated("from: x\n"),
    "open announcements": repeated("On 1.1.2026 10:00 <a@b.c>\n"),
    "announcements": repeated("On 1.1.2026 10:00 <a@b.c> wrote:\n>\n"),
    "mailboxes before colons": repeated("a@a 2026:\n"),
    "open labels": repeated("from: a@a\nsent: 2026\n"),
    "dashes": repeated("-", behind=" original message"),
    "ids": repeated("message-id: <"),
    "our ids": repeated("crier-1-1-"),
    "rates": repeated("rate limit "),
    "secrets": repeated('token="'),
    "open secret": repeated("a\\", before='token="'),
    "paths": repeated("/hooks/a"),
    "users": repeated("://a:"),
    "certificates": repeated("-----BEGIN CERTIFICATE-----"),
    "semicolons": repeated(";", before='"'),
    "colons": repeated(":"),
    "encoded words": repeated("=?utf-8?q?"),
    "nested": repeated("["),
    "percents": repeated("%41"),
    "schemes": repeated("mailto:"),
    "cron": repeated("1,", before="* * * * "),
}

ACCOUNT = AccountConfig(1, "smtp", "Office", "office@example.com", {}, {})
OUR_ID = message_ids.message_id(1, 0)


def as_mail(head: str, text: str) -> bytes:
    """A mail with the text behind what is given: in a header, whose lines go on, or in the body."""
    folded = text if head.endswith("\n\n") else text.replace("\r", "").replace("\n", "\n ") + "\n\nHello"
    return f"{head}{folded}".encode()


def in_mail(read: Callable[[bytes], Any], head: str) -> Reader:
    return lambda text: read(as_mail(head, text))


def body_of_reply(raw: bytes) -> str:
    return reply_text.own_words(reply_mails._text(email.message_from_bytes(raw)))


def parsed(text: str) -> Any:
    placeholders.parse.cache_clear()
    return placeholders.render(text, {"name": "Ann"})


def of_kind(kind: FieldKind) -> Reader:
    field = channel_settings.Field(name="a", label="A", kind=kind)
    return lambda text: field.problem(text)


def reported(channel: str) -> Reader:
    """The channel's webhook, with the text in every place where a provider puts words of others."""
    webhook = registry.webhook(channel)
    assert webhook is not None

    def read(text: str) -> None:
        for body in (BODIES[channel](text), {"event": text, "data": {}}, text):
            request = HookRequest("POST", {}, {}, json.dumps(body).encode())
            with suppress(ValueError):
                webhook.parse(request, ACCOUNT)
                continue
        webhook.authentic(HookRequest("POST", {"x-hub-signature-256": text}, {}, text.encode()), ACCOUNT)

    return read


WAHA = {"event": "message", "session": "default"}
BODIES: dict[str, Callable[[str], Any]] = {
    "sandbox": lambda t: {"events": [{"id": t, "kind": "reply", "at": 1.0, "from": t, "text": t}]},
    "waha": lambda t: WAHA | {"payload": {"id": t, "from": t, "body": t, "fromMe": False}},
    "evolution": lambda t: {
        "event": "messages.upsert",
        "data": {"key": {"id": t, "remoteJid": t, "fromMe": False}, "message": {"conversation": t}, "pushName": t},
    },
    "cloud": lambda t: {
        "entry": [
            {
                "changes": [
                    {"value": {"messages": [{"id": t, "from": t, "type": "text", "text": {"body": t}}], "metadata": {}}}
                ]
            }
        ]
    },
    "wassenger": lambda t: {"event": "message:in:new", "data": {"id": t, "fromNumber": t, "body": t}},
    "unipile": lambda t: {
        "event": "mail_received",
        "email_id": t,
        "body_plain": t,
        "body": t,
        "from_attendee": {"identifier": t, "display_name": t},
    },
}

TEMPLATE = cloud_templates.Template("a", "en", body="News: {{1}}.")

READERS: dict[str, Reader] = {
    "placeholders": parsed,
    "is a template": placeholders.is_template,
    "doubled braces": lambda text: list(placeholders.DOUBLED.finditer(text)),
    "body of a template": cloud_templates.names_in,
    "value of a template": lambda text: cloud_templates.problems(TEMPLATE, {"body.1": text}),
    "name of a field": imports.field_name.__wrapped__,
    "person": lambda text: normalise(PERSON, text, "DE"),
    "group": lambda text: normalise(GROUP, text),
    "mailbox": lambda text: normalise(MAILBOX, text),
    "profile": lambda text: normalise(PROFILE, text),
    "kind of address": guess_kind,
    "jid": paired.address_of,
    "search for an address": as_in_addresses,
    "search words": lambda text: list(smart_split(text)),
    "list": lambda text: imports.read(text, most=5_000),
    "list with header": lambda text: imports.read(f"address,name,flat\n{text}", most=5_000),
    "header of a list": lambda text: imports.read(f"address,{text}\nann@example.com"),
    "table": tables.read_text,
    "file": lambda text: tables.read(text.encode()),
    "cell of an import": imports.unguarded,
    "cell of an export": exports.cell,
    "exact cell": exports.exact_cell,
    "suppressions": lambda text: suppressions.read_list(text, None, timezone.now()),
    "suppressions with header": lambda text: suppressions.read_list(f"address,detail\n{text}", None, timezone.now()),
    "cron": lambda text: schedule.cron_error(text) or schedule.describe(text),
    "opt-out": opt_outs.decide_by_words,
    "subject of a reply": lambda text: (machine_mail.by_subject(text), machine_mail.without_prefix(text)),
    "absence note": machine_mail.away_until,
    "name below an opt-out": in_mail(
        reply_mails.parse_reply, f"From: Ann <a@example.com>\nIn-Reply-To: {OUR_ID}\n\nSTOP\n"
    ),
    "coded subject": in_mail(reply_mails.parse_reply, f"From: a@example.com\nIn-Reply-To: {OUR_ID}\nSubject: "),
    "own words": reply_text.own_words,
    "text of HTML": reply_text.text_of_html,
    "reply": in_mail(reply_mails.parse_reply, f"From: a@example.com\nIn-Reply-To: {OUR_ID}\n\n"),
    "HTML reply": in_mail(body_of_reply, "Content-Type: text/html\n\n"),
    "sender of a reply": in_mail(reply_mails.parse_reply, f"In-Reply-To: {OUR_ID}\nFrom: "),
    "references of a reply": in_mail(reply_mails.parse_reply, "From: a@example.com\nReferences: "),
    "date of a reply": in_mail(reply_mails.parse_reply, f"From: a@example.com\nIn-Reply-To: {OUR_ID}\nDate: "),
    "charset of a reply": in_mail(
        reply_mails.parse_reply, f"From: a@example.com\nIn-Reply-To: {OUR_ID}\nContent-Type: text/plain; charset="
    ),
    "bounce": in_mail(mails.parse_bounce, "From: mailer-daemon@example.com\nSubject: Undelivered\n\n"),
    "boundary of a bounce": in_mail(mails.parse_bounce, "Content-Type: multipart/report; boundary="),
    "failed recipients": in_mail(mails.parse_bounce, "X-Failed-Recipients: "),
    "many failed recipients": lambda text: mails.parse_bounce(
        "".join(
            f"X-Failed-Recipients: {line}\n"
            for start in range(0, len(text), 900)
            for line in text[start : start + 900].split("\n")
        ).encode()
    ),
    "encoded bounce": lambda text: mails.parse_bounce(
        b"Content-Transfer-Encoding: quoted-printable\n\n"
        + b"".join(b"=%02X" % byte + b"=\n" * (n % 20 == 19) for n, byte in enumerate(text.encode()[: LARGE // 3]))
    ),
    "diagnosis": in_mail(
        mails.parse_bounce,
        "Content-Type: multipart/report; boundary=b\n\n--b\nContent-Type: message/delivery-status\n\nX: y\n\n"
        "Final-Recipient: rfc822; a@example.com\nAction: failed\nDiagnostic-Code: smtp; 550 ",
    ),
    "id of ours": message_ids.named_in,
    "refusal": lambda text: refusals.refusal(550, text, refusals.Stage.RCPT),
    "refusal for now": lambda text: refusals.refusal(421, f"4.7.0 {text}", refusals.Stage.RCPT),
    "refusal in a report": lambda text: refusals.reported(550, text, refusals.stage_in(text)),
    "notice of a server": lambda text: notices.failures(notices.notice_of(f"<a@example.com>: {text}")),
    "complaint": in_mail(
        complaints.parse_complaint,
        "Content-Type: multipart/report; boundary=b\n\n--b\nContent-Type: message/feedback-report\n\n"
        "Feedback-Type: abuse\nOriginal-Rcpt-To: ",
    ),
    "origin of a report": in_mail(
        origins.origin_of,
        "Content-Type: multipart/report; boundary=b\n\n--b\nContent-Type: text/rfc822-headers\n\nReceived: ",
    ),
    "dates of a report": in_mail(
        origins.origin_of,
        "Content-Type: multipart/report; boundary=b\n\n--b\nContent-Type: text/rfc822-headers\n\nDate: ",
    ),
    "queued as": QUEUED_AS.search,
    "answer of Gmail": lambda text: (gmail.RETRY_TIME.search(text), gmail.RECIPIENT_WORDS.search(text)),
    "answer of WAHA": waha.certain_kind,
    "answer of Evolution": evolution.EXCEPTION.match,
    "answer of the bridge": lambda text: (whatsapp.outcome_of_error(text), whatsapp.question_failed(text)),
    "answer in JSON": lambda text: (http.as_object(text.encode()), http.as_items(text.encode())),
    "moment": lambda text: (http.as_moment(text), provider_events.moment(text), http.as_number(text)),
    "address of a webhook": lambda text: (
        webhooks.ADDRESS.fullmatch(f"/hooks/{text}/{text}"),
        webhooks.TOKEN.match(text),
    ),
    "log line": logs.redacted,
    "path of the API": lambda text: (IN_CHUNKS.fullmatch(f"{PREFIX}runs/{text}"), IN_CHUNKS.fullmatch(text)),
    "certificates": channel_settings.certificates,
    **{
        f"setting: {kind}": of_kind(kind)
        for kind in channel_settings.FieldKind
        if kind is not channel_settings.FieldKind.CHOICE
    },
    "mail without a subject": lambda text: mail.encode(ACCOUNT, ACCOUNT.address, Part("1:0", 0, "text", text=text)),
    "mail with HTML": lambda text: mail.encode(ACCOUNT, ACCOUNT.address, Part("1:0", 0, "text", text="x", html=text)),
    "picture in HTML": lambda text: mail.shows(text, "a b.png"),
    "address in a mail": mail.checked_recipient,
    "name of a form's field": lambda text: (PART_OF_DRAFT.fullmatch(text), PART_OF_WORDS.fullmatch(text)),
    **{f"webhook of {channel}": reported(channel) for channel in BODIES},
}

#: Modules with patterns, normalisation or parsers of their own, and the readers above that lead there; or why no
#: stranger's text gets there.
MODULES: dict[str, tuple[str, ...] | str] = {
    "accounts/addresses.py": ("person", "group", "mailbox", "profile", "kind of address", "jid"),
    "accounts/channels/settings.py": ("setting: host", "setting: url", "certificates", "setting: certificates"),
    "accounts/channels/gmail/google_api.py": ("answer of Gmail",),
    "accounts/channels/machine_mail.py": ("subject of a reply", "absence note"),
    "accounts/channels/mail.py": ("mail with HTML", "address in a mail"),
    "accounts/channels/reply_text.py": ("own words", "text of HTML", "HTML reply"),
    "accounts/channels/templates.py": ("body of a template", "value of a template"),
    "accounts/channels/evolution/transport.py": ("answer of Evolution",),
    "accounts/channels/faults.py": ("refusal", "refusal in a report", "bounce"),
    "accounts/channels/refusals.py": ("refusal", "refusal in a report"),
    "accounts/channels/smtp/connection.py": ("queued as",),
    "accounts/channels/waha/transport.py": ("answer of WAHA",),
    "accounts/channels/waha/webhook.py": ("webhook of waha",),
    "accounts/channels/whatsapp/bridge/conditions.py": ("answer of the bridge",),
    "config/env.py": "Only the person who installs Crier writes the environment.",
    "config/logs.py": ("log line",),
    "fanout/api/door.py": ("path of the API",),
    "fanout/admin/recipient_admin.py": ("search for an address", "search words"),
    "fanout/admin/reminder_draft.py": ("name of a form's field",),
    "fanout/engine/connection.py": "The pattern reads Crier's own SQL.",
    "fanout/inbound/mails.py": (
        "bounce",
        "boundary of a bounce",
        "diagnosis",
        "encoded bounce",
    ),
    "fanout/inbound/reply_mails.py": (
        "reply",
        "sender of a reply",
        "references of a reply",
        "date of a reply",
        "coded subject",
        "name below an opt-out",
    ),
    "fanout/inbound/notices.py": ("bounce", "notice of a server", "failed recipients"),
    "fanout/inbound/origins.py": ("origin of a report", "dates of a report"),
    "fanout/inbound/webhooks.py": ("address of a webhook",),
    "fanout/management/commands/simulate.py": "Only a person with a shell on the server types these options.",
    "fanout/management/options.py": "Only a person with a shell on the server types these options.",
    "fanout/ops/exports.py": ("cell of an export", "exact cell"),
    "fanout/rules/message_ids.py": ("id of ours", "references of a reply"),
    "fanout/runs/erasing.py": "The pattern is one address of at most 254 characters, and PostgreSQL runs it.",
    "reminders/imports.py": ("list", "list with header", "cell of an import", "name of a field"),
    "reminders/opt_outs.py": ("opt-out",),
    "reminders/placeholders.py": ("placeholders", "is a template", "doubled braces"),
    "reminders/suppressions.py": ("suppressions", "suppressions with header"),
    "reminders/tables.py": ("table", "file"),
    "reminders/wording.py": ("doubled braces",),
}
SIGNS = ("import re\n", "import unicodedata\n", "csv.reader", "HTMLParser", "message_from_bytes", "getaddresses(")


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
def test_time_grows_with_the_length(reader: str) -> None:
    slow = {name: times for name, attack in ATTACKS.items() if (times := superlinear(READERS[reader], attack))}
    assert not slow, f"seconds for {SMALL:,} and {LARGE:,} characters"


def superlinear(reader: Reader, attack: Callable[[int], str]) -> tuple[float, float] | None:
    """The best times for the short and the long text, where the long one takes out of proportion longer. A busy machine
    has several tries to show that it does not."""
    small = large = math.inf
    for _ in range(TRIES):
        large = min(large, seconds(reader, attack(LARGE)))
        if large <= NOTHING:
            return None
        if large == math.inf:
            break
        small = min(small, seconds(reader, attack(SMALL)))
        if large <= small * MOST_GROWTH:
            return None
    return small, large


def seconds(reader: Reader, text: str) -> float:
    """Processor time, infinite beyond the ceiling: a quadratic pattern would hold the suite for minutes. Of the thread:
    while a timer is set, Linux may count the process's time in ticks of 4 ms only."""
    with ended_after(CEILING):
        begin = time.thread_time()
        try:
            reader(text)
        except TookTooLong:
            return math.inf
        except (ValueError, mails.TooLarge):
            pass  # a refusal, in a sentence of its own
        return time.thread_time() - begin


class TookTooLong(BaseException):
    """Not an Exception: some readers catch those."""


@contextmanager
def ended_after(limit: float) -> Iterator[None]:
    def end(*_: Any) -> None:
        raise TookTooLong

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, limit)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@pytest.mark.slow
def test_a_quadratic_reader_is_noticed() -> None:
    assert superlinear(re.compile(r"\s+$").search, ATTACKS["blanks"]) is not None
    assert superlinear(lambda text: [text.count(sign) for sign in text[:2_000]], ATTACKS["blanks"]) is None


def test_every_module_with_a_pattern_is_listed() -> None:
    root = Path(settings.BASE_DIR)
    ours = [path for app in ("accounts", "reminders", "fanout", "config") for path in (root / app).rglob("*.py")]
    found = {str(path.relative_to(root)) for path in ours if any(sign in path.read_text() for sign in SIGNS)}
    assert found == MODULES.keys()
    named = {reader for readers in MODULES.values() if isinstance(readers, tuple) for reader in readers}
    assert named <= READERS.keys()


# --- pages ------------------------------------------------------------------------------------------------


@pytest.fixture
def world(db: None) -> worlds.World:
    return worlds.build()


@pytest.mark.parametrize("attack", ["brace, blanks", "brace, words", "open defaults", "placeholders", "accents"])
def test_a_viewer_cannot_hold_up_the_site_with_a_text(attack: str, world: worlds.World) -> None:
    client, path = client_of(world.people["viewer"]), reverse("admin:reminders_reminder_forecast")
    form = {"timezone": "UTC", "messages-0-kind": "text", "delivery_window_start_hour": 6}
    assert client.post(path, form | {"messages-0-text": "Hi {name|you}"}).status_code == 200
    begin = time.process_time()
    for length in (MOST_TEXT - 10, 300_000):
        answer = client.post(path, form | {"messages-0-text": ATTACKS[attack](length)})
    assert time.process_time() - begin < MOST_OF_A_REQUEST
    assert answer.json()["wording"].startswith("In part 1: The text has ")
    assert "characters; at most 65,536 are sent." in answer.json()["wording"]


def test_a_search_has_a_limit(world: worlds.World) -> None:
    """All lists in one test: making a world takes longer than asking a list."""
    client = client_of(world.people["superuser"])
    for model in admin.site._registry:
        path = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
        client.get(path)
        begin = time.process_time()
        answer = client.get(path, {"q": "a " * 4_000}, follow=True)
        assert time.process_time() - begin < MOST_OF_A_REQUEST, path
        assert answer.status_code == 200, path
        assert f"Search for at most {MOST_SEARCHED} characters." in answer.content.decode(), path
        assert not answer.context["cl"].queryset.exists(), path
        assert client.get(path, {"q": "a " * (MOST_SEARCHED // 2)}, follow=True).status_code == 200, path
