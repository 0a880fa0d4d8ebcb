"""Whatever a stranger, a colleague or a file sends: no error of the server, nothing half written, nothing slow."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from datetime import date
from itertools import product
from typing import Any

import pytest
from django.apps import apps
from django.contrib import admin
from django.core.exceptions import SuspiciousFileOperation, ValidationError
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import IntegrityError, connection, transaction
from django.test import Client, RequestFactory
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accounts import crypto
from accounts.addresses import GROUP, MAILBOX, PERSON, AddressError, guess_kind, normalise
from accounts.channels.settings import Field, FieldKind
from accounts.models import Account
from fanout.admin.account_form import KeyFile
from fanout.admin.account_page import warmup_chart
from fanout.inbound.mails import parse_bounce
from fanout.inbound.reply_mails import parse_reply
from fanout.models import TrailEntry
from fanout.rules.message_ids import message_id
from reminders import imports, media, schedule, suppressions
from reminders.models import ReminderMessage
from tests.factories import SuppressionFactory
from tests.security import world as worlds
from tests.security.test_confirming import account_form
from tests.security.test_permission_matrix import DATA, client_of
from tests.security.world import World

#: a request, or the reading of one input, may take this much of a processor
MOST_CPU_SECONDS = 3.0
KB_60 = 60_000

SAMPLES = {
    "empty": "",
    "nul": "a\x00b",
    "superscript": "²",
    "arabic digits": "١٢",
    "minus": "-1",
    "zero": "0",
    "beyond bigint": "9" * 30,
    "beyond int()": "9" * 5_000,
    "float": "1e999",
    "not a number": "NaN",
    "list": "1,²,3,,-4," * 50,
    "sql": "1' OR '1'='1'; --",
    "path": "../../../etc/passwd",
    "turned round": "\u202eabc\u2066",
    "astral": "\U0001f4a9" * 100,
    "nested json": "[" * 5_000,
    "json": '{"a": {"b": [1, null, true]}}',
    "line breaks": "a\r\nBcc: x@example.com",
    "end of the calendar": "9999-12-31T23:59",
    "begin of the calendar": "0001-01-01T00:00",
    "long": "a" * KB_60,
    "long mailbox": "a@" * (KB_60 // 2),
    "long spaces": " " * KB_60 + "x",
}
#: In every run of the suite a page meets every sample, and a field of it every fourth, or every second or third where
#: the page has so few fields. HOSTILE_EVERY=1: all in each.
EVERY = int(os.environ.get("HOSTILE_EVERY", "4"))


def met_by(fields: Collection[str]) -> Iterator[tuple[str, str]]:
    every = min(EVERY, len(fields))
    for n, field in enumerate(fields):
        for text in list(SAMPLES.values())[n % every :: every]:
            yield field, text[:6_000]


texts = st.one_of(st.sampled_from(list(SAMPLES.values())), st.text(max_size=300))
QUICK = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@contextmanager
def quick(what: object) -> Iterator[None]:
    started = time.thread_time()
    yield
    assert time.thread_time() - started < MOST_CPU_SECONDS, what


def row_counts() -> dict[str, int]:
    """The trail is left out: a refused login is an entry."""
    sql = " UNION ALL ".join(f"SELECT '{table}', count(*) FROM {table}" for table in tables())
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return dict(cursor.fetchall())


def tables() -> list[str]:
    configs = [apps.get_app_config(label) for label in ("accounts", "reminders", "fanout")]
    return [model._meta.db_table for app in configs for model in app.get_models() if model is not TrailEntry]


# --- pure readers -----------------------------------------------------------------------------------------


@QUICK
@given(texts)
def test_addresses(text: str) -> None:
    for kind in (PERSON, GROUP, MAILBOX, guess_kind(text)):
        with quick((kind, text[:80])):
            address = normalised(kind, text)
            assert address is None or normalised(kind, address) == address


def normalised(kind: str, text: str) -> str | None:
    try:
        return normalise(kind, text, "DE")
    except AddressError:
        return None


@QUICK
@given(st.lists(texts, max_size=6).map("\n".join), st.booleans())
def test_imports(text: str, header: bool) -> None:
    with quick(text[:80]):
        pasted = imports.read(("address,name,tags,kind\n" if header else "") + text)
    assert all(len(problem) < 1_000 for problem in pasted.problems)
    assert len({entry.address for entry in pasted.entries}) == len(pasted.entries)


@pytest.mark.parametrize(
    ("text", "entries", "problems"),
    [
        pytest.param("a,b;c\t" * 10_000, 0, 1, id="separators"),
        pytest.param('"' * KB_60, 0, 1, id="quotes"),
        pytest.param("address\n" + '"' + "x\n" * 20_000, 0, 20_000, id="open quote"),
        pytest.param("\n".join(f"ann{n}@example.com" for n in range(5_000)), 5_000, 0, id="five thousand lines"),
        pytest.param("\n".join(["x" * 600] * 1_000), 0, 1_000, id="long lines"),
        pytest.param("\n".join(["1" * 90] * 30_000), 0, 30_000, id="endless numbers"),
        pytest.param("\n".join(["a@" + "é.ü" * 12 + ".de"] * 30_000), 1, 0, id="international domains"),
    ],
)
def test_long_lists(text: str, entries: int, problems: int) -> None:
    with quick(text[:40]):
        pasted = imports.read(text)
    assert (len(pasted.entries), len(pasted.problems)) == (entries, problems)


@QUICK
@given(st.one_of(texts, st.lists(st.sampled_from([*"0123456789*/-,L# ?", "31", "JAN"]), max_size=40).map("".join)))
def test_cron(text: str) -> None:
    with quick(text[:80]):
        problem = schedule.cron_error(text)
        if problem is None:
            schedule.describe(text)
    assert problem is None or len(problem) < 600


@QUICK
@given(st.sampled_from(ReminderMessage.Kind.values), texts, st.binary(max_size=200))
def test_media(kind: str, name: str, content: bytes) -> None:
    if kind == ReminderMessage.Kind.TEXT:
        return
    try:
        upload = SimpleUploadedFile(name[:1_000] or "x", content)
    except SuspiciousFileOperation:
        return  # Django refuses names such as "/" before any of our code sees them
    with quick(name[:80]), suppress(ValidationError):
        media.check(kind, upload)


HEADERS = (
    b"From: MAILER-DAEMON@example.com\r\nSubject: Undelivered\r\nContent-Type: multipart/report; "
    b'report-type=delivery-status; boundary="b"\r\n\r\n'
)
STATUS = b"--b\r\nContent-Type: message/delivery-status\r\n\r\n"


def nested(depth: int) -> bytes:
    return b"".join(b'Content-Type: multipart/mixed; boundary="%d"\r\n\r\n--%d\r\n' % (n, n) for n in range(depth))


MAILS = {
    "empty": b"",
    "nul": b"\x00" * 1_000,
    "no end": HEADERS + STATUS,
    "thousands of recipients": HEADERS
    + STATUS
    + b"Final-Recipient: rfc822; a@example.com\r\nAction: failed\r\n\r\n" * 5_000,
    "nested": nested(300),
    "deeper than Python's recursion": nested(3_000),
    "messages in messages": b"Content-Type: message/rfc822\r\n\r\n" * 3_000,
    "lines in many containers": nested(90) + b"x\r\n" * 500_000,
    "thousands of parts": HEADERS + b"--b\r\n\r\n" * 250_000,
    "thousands of statuses": b"Content-Type: message/delivery-status\r\n\r\n" + b"a: b\r\n\r\n" * 200_000,
    "long header": b"Subject: " + b"a" * 2_000_000 + b"\r\n\r\n",
    "many headers": b"X: y\r\n" * 50_000 + b"\r\n",
    "many ids": b"\r\n" + b"Message-ID: <x\r\n" * 60_000,
    "quoted ids": b"\r\n" + b"> \t" * 300_000 + b"message-id:",
    "folded": b"Subject: a\r\n" + b" b\r\n" * 100_000,
    "encoded words": b"Subject: " + b"=?utf-8?b?/w==?= " * 20_000 + b"\r\n\r\n",
    "unknown charset": b"Content-Type: text/plain; charset=\xff\xfe\r\n\r\n\xff",
    "huge target": HEADERS + STATUS + b"Final-Recipient: rfc822; a@example.com\r\nAction: failed\r\n\r\n--b\r\n"
    b"Content-Type: text/rfc822-headers\r\n\r\nMessage-ID: <crier-999999999999999999-1-0123456789abcdef0123@x>\r\n"
    b"--b--\r\n",
}


@pytest.mark.parametrize("name", MAILS)
def test_recorded_mails(name: str) -> None:
    with quick(name):
        bounces = parse_bounce(MAILS[name])
        assert parse_reply(MAILS[name]) is None
    reported = ["a@example.com"] if name in ("thousands of recipients", "huge target") else []
    assert [(bounce.address, bounce.message) for bounce in bounces] == [(address, None) for address in reported]


REPLY = f"From: ann@example.com\nIn-Reply-To: <{message_id(1, 0)}@example.com>\n".encode()
REPLIES = {
    "opening brackets": b"Content-Type: text/html\n\n" + (b"<" * 900 + b"\n") * 9_000,
    "attributes": b"Content-Type: text/html\n\n<p " + (b"a " * 450 + b"\n") * 9_000 + b">",
    "parameters": b"Content-Type: multipart/mixed; boundary=b\n\n"
    + (b"--b\nContent-Type: text/plain; " + b"a=b;" * 240 + b"\n\n") * 9_000,
    "an encoding that is strict": b"Content-Type: text/plain; charset=idna\n\n\xff",
}


@pytest.mark.parametrize("name", REPLIES)
def test_replies_of_strangers(name: str) -> None:
    with quick(name):
        assert parse_reply(REPLY + REPLIES[name]) is not None


@QUICK
@given(st.binary(max_size=500), st.binary(max_size=500))
def test_mails(head: bytes, body: bytes) -> None:
    with quick(head):
        for mail in (head + b"\r\n\r\n" + body, HEADERS + head + b"\r\n" + STATUS + body):
            parse_bounce(mail)
            parse_reply(mail)


# --- requests ---------------------------------------------------------------------------------------------


@pytest.fixture
def world(db: None, settings: Any) -> World:
    settings.BOUNCE_TOKEN, settings.PUBLIC_URL = "a token", "https://crier.example.com"
    return worlds.build()


def ask(client: Client, method: str, path: str, *args: Any, **kwargs: Any) -> Any:
    """The answer; an error of the server raises here. Whatever was refused has changed nothing."""
    before = row_counts()
    with quick((path, str(args)[:200])):
        answer = getattr(client, method)(path, *args, **kwargs)
    assert answer.status_code < 500, path
    if method == "get" or answer.status_code >= 400:
        assert row_counts() == before, path
    return answer


@pytest.mark.parametrize("name", MAILS)
def test_the_bounce_webhook(name, db, settings):
    settings.BOUNCE_TOKEN = "a token"
    SuppressionFactory.create()
    before = row_counts()
    answer = ask(
        Client(),
        "post",
        reverse("bounce_webhook"),
        MAILS[name],
        content_type="message/rfc822",
        headers={"X-Crier-Token": "a token"},
    )
    assert answer.status_code in (200, 413)
    assert row_counts() == before  # none of them is about a mail of ours


def test_tokens(world):
    """All samples in one test: making a world takes longer than asking."""
    for sample in SAMPLES.values():
        text = sample.replace("/", "") or "x"
        for path in (f"/unsubscribe/{text[:3_000]}", f"/admin/fanout/run/{text[:3_000]}/change/"):
            ask(Client(), "get", path)
        headers = {"X-Crier-Token": text.encode("ascii", "ignore").decode().replace("\r", "").replace("\n", "")}
        answer = ask(Client(), "post", reverse("bounce_webhook"), b"", "text/plain", headers=headers)
        assert answer.status_code == 403, sample[:80]


#: page: the parameters that it reads
QUERIES = {
    "admin:fanout_run_changelist": ("q", "p", "o", "e", "all", "status", "_facets", "account__id__exact"),
    "admin:fanout_runtarget_changelist": ("q", "p", "status__exact", "run__id__exact", "result", "cause"),
    "admin:fanout_runtarget_export": ("q", "status__exact", "run__id__exact", "result", "cause"),
    "admin:fanout_run_offload": ("runs", "account"),
    "admin:fanout_notification_changelist": ("p", "q"),
    "admin:fanout_trailentry_changelist": ("q", "p", "kind"),
    "admin:accounts_account_changelist": ("q", "p", "health"),
    "admin:accounts_account_add": ("_changelist_filters", "label", "channel", "_popup", "team", "warmup_started_on"),
    "admin:reminders_reminder_changelist": ("q", "p", "state", "schedule__exact"),
    "admin:reminders_reminder_add": ("account", "fire_at", "timezone", "cron", "delivery_window_start_hour"),
    "admin:reminders_remindertarget_changelist": ("q", "reminder__id__exact"),
    "admin:reminders_recipient_changelist": ("q", "p", "kind__exact", "status__exact", "address__gt"),
    "admin:reminders_recipient_find": ("q",),
    "admin:reminders_suppression_changelist": ("q", "reason__exact", "source__exact", "holding"),
    "admin:reminders_optoutphrase_changelist": ("q", "p", "opts_out__exact"),
    "admin:reminders_mediafile_changelist": ("q", "p"),
    "admin:auth_user_changelist": ("q", "groups__id__exact", "is_active__exact"),
    "admin:live_stream": ("runs", "after"),
    "admin:results": ("weeks", "account", "reminder", "csv"),
    "admin:results_compare": ("a", "b"),
    "admin:replies": ("state", "account", "team", "run", "person", "before"),
    "admin:autocomplete": ("term", "app_label", "model_name", "field_name"),
    "admin:confirm": ("next",),
    "admin:second_factor_code": ("next",),
    "admin:login": ("next",),
}


#: no field of ours asks it, so it answers nobody
CLOSED = {"admin:autocomplete"}


def needed(name: str, world: World) -> dict[str, Any]:
    """What a page does not open without."""
    return DATA[name](world) if name in DATA else {}


@pytest.mark.parametrize("name", QUERIES)
def test_query_strings(name, world):
    client, path = client_of(world.people["superuser"]), world.path(worlds.pages()[name])
    good = needed(name, world)
    assert (client.get(path, good).status_code < 400) is (name not in CLOSED)  # and templates are read once
    for parameter, text in met_by(QUERIES[name]):
        ask(client, "get", path, good | {parameter: text})


#: at the edges of what Python, PostgreSQL and the calendar have
EDGES = ("-1", "9" * 30, "0001-01-01")
TRANSFORMED = ("regex", "year", "year__gt")


@pytest.mark.parametrize("model", admin.site._registry, ids=lambda model: model._meta.label_lower)
def test_a_list_is_narrowed_down_by_whole_values_only(model, world):
    """Django lets any transformation and any pattern of a field through, and some of them are errors of the server."""
    client, fields = client_of(world.people["superuser"]), model._meta.concrete_fields
    path = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
    request = RequestFactory().get(path)
    request.user = world.people["superuser"]
    for field, lookup in product(fields, TRANSFORMED):
        assert not admin.site._registry[model].lookup_allowed(f"{field.name}__{lookup}", "-1", request)
    # One field of each type stands for the others: a type has one reader.
    one_of_each = {type(field): field for field in fields}.values() if EVERY > 1 else fields
    for field in one_of_each:
        for lookup in TRANSFORMED:
            assert client.get(path, {f"{field.name}__{lookup}": "-1"}).status_code == 400
        for value in EDGES:
            assert client.get(path, {f"{field.name}__exact": value}).status_code < 500


DRAFT = {
    "account": "",
    "action": "message",
    "timezone": "UTC",
    "schedule": "cron",
    "cron": "0 9 * * *",
    "fire_at": "",
    "delivery_window_start_hour": "6",
    "delivery_window_end_hour": "18",
    "reminder": "",
    "paste": "",
    "tag": "",
    "messages-0-kind": "text",
    "clear": "",
}
PART = {"messages-TOTAL_FORMS": 1, "messages-INITIAL_FORMS": 0, "messages-0-text": "Hello", "messages-0-kind": "text"}
PART |= {"reply_parts-TOTAL_FORMS": 0, "reply_parts-INITIAL_FORMS": 0}
PART |= {"follow_up_parts-TOTAL_FORMS": 0, "follow_up_parts-INITIAL_FORMS": 0}
#: page: the fields of a post that is fine
POSTS: dict[str, dict[str, Any]] = {
    "admin:reminders_reminder_forecast": DRAFT,
    "admin:reminders_reminder_add": DRAFT | PART | {"title": "Town hall", "subject": "", "messages-0-html": ""},
    "admin:reminders_reminder_test": {"address": "+4917612345678"},
    "admin:fanout_run_settle": {"target": "1", "verdict": "delivered"},
    "admin:fanout_run_retry": {"kind": ""},
    "admin:fanout_run_offload": {"runs": "1", "account": "1"},
    "admin:reminders_recipient_add": {
        "kind": "person",
        "address": "+4917612345678",
        "name": "A",
        "tags": "a",
        "status": "active",
    },
    "admin:reminders_suppression_add": {
        "address": "ann@example.com",
        "reason": "manual",
        "detail": "",
        "expires_at_0": "",
        "expires_at_1": "",
    },
    "admin:reminders_suppression_import": {"file": "", "skip_invalid": ""},
    "admin:reminders_optoutphrase_try": {"text": "STOP"},
    "admin:my_notifications": {"email": "", "webhook": "", "only_problems": "", "bell": "on", "team": "on"},
    "admin:second_factor": {"step": "finish", "code": "123456"},
    "admin:second_factor_code": {"code": "123456"},
    "admin:fanout_run_changelist": {
        "action": "resume",
        "_selected_action": "1",
        "index": "0",
        "select_across": "0",
        "confirmed": "",
    },
    "admin:bell_read": {"from_list": "1", "id": "1"},
}

READ_BY_US = {"admin:reminders_reminder_add": ("paste", "cron", "timezone", "fire_at", "tag", "messages-0-kind")}


@pytest.mark.parametrize("name", POSTS)
def test_posts(name, world):
    client, path = client_of(world.people["operator"]), world.path(worlds.pages()[name])
    good = POSTS[name] | needed(name, world)
    assert client.post(path, good).status_code < 400  # and templates are read once
    for field, text in met_by(READ_BY_US.get(name, good)):
        ask(client, "post", path, good | {field: text})


def numbers(n: int) -> str:
    return "\n".join(f"+49176{10_000_000 + k}" for k in range(n))


def placeholders(n: int) -> str:
    return " ".join(f"{{a{k}}}" for k in range(n))


#: what is worth as much work as there is of it; as large as Django lets it in
MUCH: dict[str, dict[str, Any]] = {
    "tags": {"tag": ",".join(f"t{n}" for n in range(20_000))},
    "lines": {"paste": numbers(100_000)},
    "pieces in lines": {"paste": "\n".join([",".join(["+4917612"] * 50)] * 4_000)},
    "pieces in a line": {"paste": "1," * 500_000},
    "columns": {"paste": "address" + ",c" * 100_000 + "\n" + numbers(1)},
    "people": {"chosen": [numbers(10_000)] * 15},
    "placeholders": {"messages-0-text": placeholders(20_000)},
    "parts": {f"messages-{n}-text": placeholders(40) for n in range(900)},
}


@pytest.mark.parametrize("name", MUCH)
def test_much_of_it(name, world, django_assert_max_num_queries):
    client, account = client_of(world.people["operator"]), world.things["admin/accounts/account/"].pk
    path = reverse("admin:reminders_reminder_forecast")
    client.post(path, DRAFT)  # templates are read once
    with django_assert_max_num_queries(25), quick(name):
        answer = client.post(path, DRAFT | {"account": account} | MUCH[name])
    assert answer.status_code == 200


def test_the_preview_says_what_it_left_out(world):
    client, account = client_of(world.people["operator"]), world.things["admin/accounts/account/"].pk
    data = DRAFT | {"account": account, "tag": ",".join(f"t{n}" for n in range(51)), "paste": numbers(5_001)}
    answer = client.post(reverse("admin:reminders_reminder_forecast"), data).json()
    assert answer["review"].startswith("To 5,000 people")
    assert answer["partial"] == (
        "Only the first 50 tags are counted. Only the first 5,000 lines are counted: 1 more are read when it is saved."
    )
    assert len(answer["tags"]) == 50


REFUSED = {
    "tag": (MUCH["tags"]["tag"], "Name at most 50 tags."),
    "paste": (numbers(50_001), "The list has more than 50,000 lines"),
    "chosen": (numbers(50_001), "The list has more than 50,000 lines"),
    "messages-0-text": (placeholders(51), "There are 51 different placeholders: use at most 50."),
}


@pytest.mark.parametrize("field", REFUSED)
def test_nothing_is_left_out_silently_where_it_is_saved(field, world):
    text, sentence = REFUSED[field]
    client, path = client_of(world.people["operator"]), reverse("admin:reminders_reminder_add")
    data = POSTS["admin:reminders_reminder_add"] | {"account": world.things["admin/accounts/account/"].pk}
    assert sentence in ask(client, "post", path, data | {field: text}).content.decode()


def test_many_suppressions(world):
    client, path = client_of(world.people["operator"]), reverse("admin:reminders_suppression_import")
    upload = SimpleUploadedFile("list.csv", numbers(200_000).encode())
    assert "more than 50,000 lines" in ask(client, "post", path, {"file": upload}).content.decode()


def test_a_part_with_a_very_large_number(world):
    data = {
        f"{prefix}-{'9' * 5_000}-{name}": "x" for prefix in ("messages", "reply_parts") for name in ("text", "kind")
    }
    path, form = reverse("admin:reminders_reminder_forecast"), urlencode(DRAFT | data)
    client = client_of(world.people["operator"])
    assert client.post(path, form, content_type="application/x-www-form-urlencoded").status_code == 200


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kuala_Lumpur", "America/Los_Angeles"])
@pytest.mark.parametrize("moment", ["9999-12-31T23:59", "0001-01-01T00:00", "2199-12-31T23:59"])
def test_a_time_at_the_end_of_the_calendar(moment, zone, world):
    client, account = client_of(world.people["operator"]), world.things["admin/accounts/account/"].pk
    when = {
        "account": account,
        "schedule": "once",
        "cron": "",
        "fire_at": moment,
        "timezone": zone,
        "paste": "+491761234567",
    }
    answer = client.post(reverse("admin:reminders_reminder_forecast"), DRAFT | when).json()
    assert "no time" in answer["missing"]
    page = client.post(reverse("admin:reminders_reminder_add"), POSTS["admin:reminders_reminder_add"] | when)
    assert "Choose a time within the next 10 years." in page.content.decode()


@pytest.mark.parametrize("moment", ["9999-12-31", "2300-01-01"])
def test_a_suppression_until_the_end_of_the_calendar(moment, world):
    client = client_of(world.people["operator"])
    form = POSTS["admin:reminders_suppression_add"] | {"expires_at_0": moment, "expires_at_1": "23:59"}
    assert "never expires" in client.post(reverse("admin:reminders_suppression_add"), form).content.decode()
    listed = suppressions.read_list(f"address,expires_at\nann@example.com,{moment}", None, timezone.now())
    assert not listed.entries
    assert "never expires" in listed.problems[0]


ABSURD = {"warmup_days": (366, 30_000), "warmup_started_on": ("9999-12-31", "0001-01-01")}


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, values in ABSURD.items() for value in values])
def test_an_absurd_warm_up(field, value, world):
    account = world.things["admin/accounts/account/"]
    client, path = client_of(world.people["operator"]), reverse("admin:accounts_account_change", args=[account.pk])
    data = account_form(account) | {"warmup_days": 30, "warmup_started_on": "2026-01-01"}
    assert ask(client, "post", path, data | {field: value}).status_code == 200  # shown again, with a sentence
    with pytest.raises(IntegrityError), transaction.atomic():
        Account.objects.filter(pk=account.pk).update(**{field: value})


def test_the_account_page_survives_a_warm_up_from_elsewhere():
    account = Account(channel="smtp", warmup_started_on=date(9999, 12, 31), warmup_days=30_000)
    assert warmup_chart(account, timezone.now()) is None


@pytest.mark.parametrize("field", ["username", "password", "next"])
def test_logins(field, db, client, settings):
    settings.AXES_ENABLED = False
    for text in SAMPLES.values():
        data = {"username": "mei", "password": "x", "next": ""} | {field: text}
        # A request with a NUL is refused as a whole.
        assert ask(client, "post", reverse("admin:login"), data).status_code == (400 if "\0" in text else 200)


KEY_FILES = [
    "[" * 5_000,
    "{" * 5_000,
    '{"account": ' + "9" * 5_000 + "}",
    '{"account": 1e999}',
    '{"account": NaN}',
    "null",
    "[]",
    '"x"',
    '{"account": {"a": []}}',
    '{"account": "\\u0000"}',
    '{"account": "\\ud800"}',
    "x" * KB_60,
]


@pytest.mark.parametrize("text", [*KEY_FILES, *SAMPLES.values()], ids=lambda text: text[:20])
def test_key_files(text: str) -> None:
    """Refused, or an object that can be stored."""
    described = Field(name="key", label="Key", kind=FieldKind.OBJECT, secret=True)
    upload = SimpleUploadedFile("key.json", text.encode(errors="replace") or b"{}")
    with quick(text[:80]), suppress(ValidationError):
        assert isinstance(crypto.decrypt(crypto.encrypt(KeyFile(described).clean(upload))), dict)


def test_every_page_meets_every_sample() -> None:
    assert {text for _, text in met_by(["one"])} == {text for _, text in met_by("abcde")}
    assert len(list(met_by(["one"]))) == len(SAMPLES)


#: their own readers; Django's fields have theirs
FIELDS = (
    "setting_account",
    "setting_url",
    "setting_timeout",
    "secret_key",
    "daily_limit_message",
    "send_days",
    "timezone",
)


def test_account_forms(world):
    account = world.things["admin/accounts/account/"]
    client, path = client_of(world.people["operator"]), reverse("admin:accounts_account_change", args=[account.pk])
    page = client.get(path)  # and templates are read once
    form = type(page.context["adminform"].form)
    for field, text in product(FIELDS, SAMPLES.values()):
        with quick((field, text[:80])):
            form(account_form(account) | {field: text[:6_000]}, instance=Account.objects.get(pk=account.pk)).is_valid()
    for field, text in met_by(FIELDS):
        data = account_form(account) | {field: text}
        if ask(client, "post", path, data).status_code == 302:
            Account.objects.get(pk=account.pk).full_clean()
