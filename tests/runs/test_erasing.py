"""A person who is erased leaves every table; the counts stay."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import Group
from django.contrib.contenttypes.models import ContentType
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts import tokens
from accounts.access import OPERATORS, VIEWERS, NotYours
from accounts.channels.base import Kind
from accounts.channels.provider_events import EventKind, ProviderEvent
from fanout.inbound import bounces, worker
from fanout.inbound.event_store import store
from fanout.inbound.mails import Bounce
from fanout.models import (
    Event,
    InboundEvent,
    KeptAnswer,
    KnownChat,
    LaneState,
    Notification,
    Run,
    RunTarget,
    TrailEntry,
    WebhookDelivery,
    WebhookEndpoint,
    WebhookEvent,
)
from fanout.rules.message_ids import Named, message_id
from fanout.runs import follow_ups, self_test
from fanout.runs.erasing import IN_FLIGHT, KEPT, NOT_YOURS, STRANGER, erase
from reminders import erasure, imports, suppressions, targets
from reminders.models import ErasedAddress, Recipient, Reminder, ReminderTarget, Suppression
from tests.api.conftest import Api
from tests.factories import (
    AccountFactory,
    InboundEventFactory,
    RecipientFactory,
    ReminderFactory,
    ReminderTargetFactory,
    RunFactory,
    RunTargetFactory,
    SegmentFactory,
    TeamFactory,
    UserFactory,
)

pytestmark = pytest.mark.django_db
PHONE = "+60123456789"
MAIL = "ann.lee@example.com"
NAME = "Annabel Leequist"


def tables_with(word: str) -> list[str]:
    """Every row of every table as text: columns that are added later are included."""
    with connection.cursor() as cursor:
        names = connection.introspection.table_names(cursor)
        with_it = []
        for name in names:
            cursor.execute(f'SELECT count(*) FROM "{name}" t WHERE t::text ILIKE %s', [f"%{word}%"])
            with_it += [name] if cursor.fetchone()[0] else []
    return with_it


def known(address: str, owner: Any = None, kind: str = "person") -> Recipient:
    """A person who is in every table that can hold an address."""
    now = timezone.now()
    recipient = RecipientFactory.create(
        kind=kind,
        address=address,
        name=NAME,
        fields={"flat": "12 Bx", "mail": address},
        owner=owner or UserFactory.create(),
    )
    reminder = ReminderFactory.create(account__owner=recipient.owner)
    ReminderTargetFactory.create(reminder=reminder, recipient=recipient)
    run = RunFactory.create(reminder=reminder, error_summary=f"{address} refused", waiting_why=f"for {address}")
    common = {"recipient": recipient, "address": address, "values": {"flat": "12 Bx"}}
    RunTargetFactory.create(
        run=run, status="failed", error=f"550 <{address.upper()}> gone", provider_id=f"true_{address}_1", **common
    )
    RunTargetFactory.create(run=RunFactory.create(reminder=reminder), status="pending", **common)
    RunTargetFactory.create(run=RunFactory.create(reminder=reminder), status="sent", **common)
    account = reminder.account
    KnownChat.objects.create(account=account, address=address)
    account.status_reason = f"complaint of {address}"
    account.save(update_fields=["status_reason"])
    LaneState.objects.update_or_create(account=account, defaults={"why": f"no answer for {address}"})
    Event.objects.create(run=run, at=now, verb="test sent", detail=f"to {address.lstrip('+')}")
    Notification.objects.create(user=recipient.owner, title=f"{address} replied", body=f"{address}: hi", created_at=now)
    for key in ("event-1", f"wamid.{address.lstrip('+')}"):
        InboundEvent.objects.create(
            account=account,
            key=key,
            kind="reply",
            address=address,
            provider_id=address,
            message_id="crier-1-0",
            words={"text": "my secret words"},
            detail={"from": address},
            effect=f"{address} replied",
            happened_at=now,
            came_at=now,
        )
    told_to_programs(run.targets.get(), recipient)
    Suppression.objects.get_or_create(address=address, defaults={"reason": "manual", "detail": f"{address} asked"})
    LogEntry.objects.create(
        user=recipient.owner,
        content_type=ContentType.objects.get_for_model(Recipient),
        object_id=str(recipient.pk),
        object_repr=NAME,
        action_flag=CHANGE,
        change_message=f"{address} changed",
    )
    return recipient


def told_to_programs(target: RunTarget, recipient: Recipient) -> None:
    """What webhooks have sent and will send about the person, and answers of the API."""
    now, address = timezone.now(), recipient.address
    endpoint = WebhookEndpoint.objects.create(owner=recipient.owner, url="https://example.com/", kinds=["reply"])
    about = {"account": target.account_id, "target": target.pk, "run": target.run_id}
    for text, data in (
        (f"{address}: my secret words", about | {"address": address, "message": "my secret words"}),
        (f"Run: partial. {address} refused", {"run": target.run_id, "summary": f"{address} refused"}),
        ("my secret words", about | {"address": "+4990000000", "message": "my secret words"}),  # an earlier address
    ):
        WebhookDelivery.objects.create(
            endpoint=endpoint,
            message_id=f"msg_{uuid4().hex}",
            kind="reply",
            payload={"type": "reply", "timestamp": "2026-01-05T09:00:00Z", "text": text, "data": data},
            created_at=now,
        )
    WebhookEvent.objects.create(
        kind="target.failed",
        owner_id=recipient.owner_id,
        run_id=target.run_id,
        target_id=target.pk,
        at=now,
        facts={"status": "failed", "error": f"550 <{address}> gone"},
    )
    token, _ = tokens.issue(recipient.owner, "n8n", ["read"], None, now + timedelta(days=1), now)
    for key, answer in (
        ("recipient", {"id": recipient.pk, "name": NAME, "address": address, "fields": {"flat": "12 Bx"}}),
        ("forecast", {"examples": [{"to": NAME, "parts": [{"text": "Flat 12 Bx"}]}]}),
    ):
        KeptAnswer.objects.create(token=token, key=key, digest="d", status=201, body=json.dumps(answer), began_at=now)


@pytest.mark.parametrize(("address", "kind", "trace"), [(PHONE, "person", "60123456789"), (MAIL, "mailbox", MAIL)])
def test_nothing_of_the_person_is_left_in_any_table(address, kind, trace):
    recipient = known(address, kind=kind)
    assert len(tables_with(trace)) >= 12
    answer = erase(address, None, timezone.now())
    assert answer.ok, answer.text
    assert answer.text.startswith("Erased: recipients 1, deliveries 3, events 2.")
    for word in (trace, NAME, "Annabel", "12 Bx", "secret words"):
        assert tables_with(word) == []
    assert [event.text for event in InboundEvent.objects.all()] == [""]
    assert InboundEvent.objects.get().key == "event-1"
    reply, finished, earlier = WebhookDelivery.objects.order_by("pk").values_list("payload", flat=True)
    for said in (reply, earlier):
        assert (said["type"], said["text"], said["data"]["address"], said["data"]["message"]) == (
            "reply",
            "erased",
            "",
            "",
        )
        assert said["data"]["target"]
    assert finished["text"] == "Run: partial. erased refused"
    assert WebhookEvent.objects.get(kind="target.failed").facts == {"status": "failed", "error": ""}
    assert set(KeptAnswer.objects.values_list("status", "body")) == {(201, KEPT)}
    assert TrailEntry.objects.filter(verb="erased", subject=f"recipient {recipient.pk}").exists()
    assert str(Recipient.objects.get()) == f"erased-{recipient.pk}"


@pytest.mark.parametrize(
    ("address", "kind"), [("jörg@example.com", "mailbox"), ("linkedin.com/in/zoë", "profile"), (PHONE, "person")]
)
def test_a_kept_answer_is_blanked_however_its_address_is_written(address, kind):
    """Letters with accents are escapes in JSON."""
    user = UserFactory.create(is_staff=True)
    user.groups.add(Group.objects.get(name=OPERATORS))
    api = Api(user)
    pk = api.post("/recipients", {"address": address, "kind": kind}, Idempotency_Key="a").json()["id"]
    assert api.post(f"/recipients/{pk}/erase").status_code == 200
    assert KeptAnswer.objects.get().body == KEPT


def test_counts_stay_and_what_was_pending_is_skipped():
    recipient = known(PHONE)
    before = Run.objects.values_list("total", flat=True)
    assert sum(before) == 3
    erase(PHONE, None, timezone.now())
    assert sorted(RunTarget.objects.values_list("status", "error")) == [
        ("failed", "the recipient was erased"),
        ("sent", ""),
        ("skipped", "the recipient was erased"),
    ]
    assert sum(Run.objects.values_list("total", flat=True)) == 3
    waiting = RunTarget.objects.get(status="skipped").run
    assert (waiting.pending, waiting.skipped, waiting.status) == (0, 1, Run.Status.SKIPPED)
    assert not ReminderTarget.objects.filter(recipient=recipient).exists()


def test_a_person_without_deliveries_is_deleted():
    RecipientFactory.create(kind="mailbox", address=MAIL)
    assert erase(MAIL, None, timezone.now()).ok
    assert not Recipient.objects.exists()
    assert erase(MAIL, None, timezone.now()).text == STRANGER


def test_a_message_on_its_way_comes_first():
    recipient = known(PHONE)
    RunTargetFactory.create(recipient=recipient, status="sending")
    answer = erase(PHONE, None, timezone.now())
    assert (answer.ok, answer.text) == (False, IN_FLIGHT)
    recipient.refresh_from_db()
    assert recipient.address == PHONE
    assert RunTarget.objects.filter(status="pending").count() == 1


def test_others_with_a_similar_address_are_untouched():
    known(PHONE)
    now = timezone.now()
    longer = Event.objects.create(at=now, verb="x", detail=f"to {PHONE}9 and 1{PHONE[1:]}, not {PHONE}.")
    joann = Event.objects.create(at=now, verb="x", detail=f"to jo{MAIL}, {MAIL}.my and {MAIL}.")
    RecipientFactory.create(kind="mailbox", address=MAIL)
    erase(PHONE, None, now)
    erase(MAIL, None, now)
    longer.refresh_from_db()
    joann.refresh_from_db()
    assert longer.detail == f"to {PHONE}9 and 1{PHONE[1:]}, not erased."
    assert joann.detail == f"to jo{MAIL}, {MAIL}.my and erased."


def sent_to(address: str) -> RunTarget:
    return RunTarget.objects.filter(address=address, status="sent").select_related("account").get()


def test_an_event_that_points_at_the_persons_message_is_erased_too():
    known(PHONE)
    target = sent_to(PHONE)
    event = InboundEventFactory.create(
        account=target.account,
        key="b-1",
        kind="bounce",
        address="+5491199999999",
        run_target_id=target.pk,
        words={"text": "no"},
    )
    other = InboundEventFactory.create(account=target.account, key="b-2", kind="bounce", address="+5491188888888")
    assert "events 3." in erase(PHONE, None, timezone.now()).text
    event.refresh_from_db()
    other.refresh_from_db()
    assert (event.address, event.text, event.effect) == ("", "", "erased")
    assert other.address == "+5491188888888"


def test_what_was_said_in_a_group_goes_with_the_group():
    group = RecipientFactory.create(kind="group", address="120363025246125486@g.us")
    event = InboundEventFactory.create(kind="reply", address=PHONE, group=group.address, words={"text": "hi all"})
    assert erase(group.address, None, timezone.now()).ok
    event.refresh_from_db()
    assert (event.group, event.text) == ("", "")


# --- what comes back afterwards ---------------------------------------------------------------------------------


def test_a_report_about_an_erased_person_is_not_stored():
    known(MAIL, kind="mailbox")
    target = sent_to(MAIL)
    erase(MAIL, None, timezone.now())
    bounce = Bounce(MAIL, Kind.HARD_BOUNCE, f"<{MAIL}> unknown", Named(target.pk, 0), final=True)
    assert not bounces.record_bounce(bounce, timezone.now())
    assert tables_with(MAIL) == []


@pytest.mark.parametrize("key", ["event-7", f"message:{PHONE.removeprefix('+')}"])
@pytest.mark.parametrize("kind", [EventKind.REPLY, EventKind.UNSUBSCRIBE, EventKind.COMPLAINT])
def test_who_had_opted_out_and_writes_again_leaves_nothing(kind, key):
    account = AccountFactory.create()
    known(PHONE)
    Recipient.objects.update(status="opted_out")
    erase(PHONE, None, timezone.now())
    store(account.pk, [ProviderEvent(key, kind, address=PHONE, text="stop")], timezone.now())
    worker.step(timezone.now())
    assert tables_with(PHONE) == []
    assert not InboundEvent.objects.filter(state="new").exists()


def test_a_link_of_an_erased_person_stores_nothing():
    known(MAIL, kind="mailbox")
    Recipient.objects.update(status="opted_out")
    erase(MAIL, None, timezone.now())
    suppressions.unsubscribe(MAIL, timezone.now())
    assert tables_with(MAIL) == []


@pytest.mark.parametrize("kind", [EventKind.BOUNCE, EventKind.DELIVERED])
@pytest.mark.parametrize("key", ["event-7", "ack:60123456789"])
def test_an_event_about_an_erased_person_leaves_nothing(kind, key):
    known(PHONE)
    target = sent_to(PHONE)
    RunTarget.objects.filter(pk=target.pk).update(claimed_at=timezone.now())
    erase(PHONE, None, timezone.now())
    reported: dict[str, Any] = {
        "address": PHONE,
        "provider_id": f"true_{PHONE}",
        "text": f"{PHONE} is gone",
        "detail": {"to": PHONE},
    }
    event = ProviderEvent(key, kind, message_id=message_id(target.pk, 0), **reported)
    store(target.account_id, [event], timezone.now())
    worker.step(timezone.now())
    assert tables_with("60123456789") == []
    assert not InboundEvent.objects.filter(state="new").exists()
    target.refresh_from_db()
    assert (target.status, target.provider_id) == ("sent", "")


# --- beside other sessions --------------------------------------------------------------------------------------


def test_nothing_big_is_read_while_runs_are_locked():
    known(PHONE)
    with CaptureQueriesContext(connection) as captured:
        assert erase(PHONE, None, timezone.now()).ok
    queries = [query["sql"] for query in captured]
    locks = [number for number, sql in enumerate(queries) if "FOR NO KEY UPDATE" in sql]
    tables = [queries[number].partition('FROM "')[2].partition('"')[0] for number in locks[:4]]
    assert tables == ["reminders_reminder", "fanout_run", "reminders_recipient", "fanout_runtarget"]
    (ends, *_) = [n for n, sql in enumerate(queries) if sql.startswith("RELEASE SAVEPOINT") and n > locks[3]]
    held = queries[locks[1] : ends]
    assert not [sql for sql in held if "~*" in sql or "inboundevent" in sql or '"fanout_runtarget"."address" =' in sql]


@pytest.mark.django_db(transaction=True)
def test_it_waits_for_a_run_without_holding_the_person():
    """The ledger locks runs and then people: the other way round would be a deadlock."""
    known(PHONE)
    answers = []

    def erasing() -> None:
        answers.append(erase(PHONE, None, timezone.now()))
        connection.close()

    thread = threading.Thread(target=erasing)
    with transaction.atomic(), connection.cursor() as cursor:
        list(Run.objects.select_for_update(no_key=True).order_by("pk"))
        thread.start()
        wait_until(lambda: a_session_waits(cursor))
        cursor.execute(follow_ups.LOCK_PEOPLE.replace("UPDATE", "UPDATE NOWAIT"), [[PHONE]])
    thread.join(30)
    assert [answer.ok for answer in answers] == [True]


@pytest.mark.django_db(transaction=True)
def test_it_waits_for_a_firing_by_segment_that_copies_the_address():
    person = known(PHONE)
    reminder = ReminderFactory.create(owner=person.owner, segment=SegmentFactory.create(owner=person.owner))
    answers = []

    def erasing() -> None:
        answers.append(erase(PHONE, None, timezone.now()))
        connection.close()

    thread = threading.Thread(target=erasing)
    with transaction.atomic(), connection.cursor() as cursor:
        Reminder.objects.select_for_update(no_key=True).get(pk=reminder.pk)
        RunTargetFactory.create(run=RunFactory.create(reminder=reminder), recipient=person, address=PHONE)
        thread.start()
        wait_until(lambda: a_session_waits(cursor))
    thread.join(30)
    assert [answer.ok for answer in answers] == [True]
    assert tables_with(PHONE) == []


def a_session_waits(cursor: Any) -> bool:
    here = "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"  # other tests use the same server
    cursor.execute(f"SELECT count(*) FROM pg_locks WHERE NOT granted AND pid IN ({here})")
    return bool(cursor.fetchone()[0])


def wait_until(true: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not true():
        assert time.monotonic() < until, "no session waits for the run"
        time.sleep(0.02)


# --- whose ----------------------------------------------------------------------------------------------------


def test_an_operator_erases_what_is_theirs():
    mine, theirs = known(PHONE), known(PHONE, UserFactory.create())
    assert erase(PHONE, mine.owner, timezone.now()).ok
    assert Recipient.objects.filter(address=PHONE).get() == theirs
    assert RunTarget.objects.filter(address=PHONE).count() == 3
    assert Suppression.objects.filter(address=PHONE).exists()  # it protects the person in the other list
    assert InboundEvent.objects.filter(address=PHONE).count() == 2
    assert Notification.objects.get(user=theirs.owner).body == f"{PHONE}: hi"
    of_others = WebhookDelivery.objects.filter(endpoint__owner=theirs.owner).order_by("pk")
    assert [delivery.payload["text"] for delivery in of_others][:1] == [f"{PHONE}: my secret words"]
    assert WebhookEvent.objects.get(kind="target.failed", owner_id=theirs.owner_id).facts["error"]


def test_an_administrator_erases_it_everywhere():
    known(PHONE)
    known(PHONE, UserFactory.create())
    assert erase(PHONE, UserFactory.create(is_superuser=True), timezone.now()).ok
    assert tables_with("60123456789") == []


def test_a_stranger_and_a_viewer_erase_nothing():
    recipient = known(PHONE)
    assert erase(PHONE, UserFactory.create(), timezone.now()).text == NOT_YOURS
    team = TeamFactory.create()
    Recipient.objects.update(team=team)
    viewer = UserFactory.create()
    viewer.groups.add(team, Group.objects.get(name=VIEWERS))
    with pytest.raises(NotYours):
        erase(PHONE, viewer, timezone.now())
    recipient.refresh_from_db()
    assert recipient.address == PHONE


# --- coming back ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["opted_out", "blacklisted", "do_not_disturb"])
def test_who_asked_for_silence_does_not_come_back(status):
    owner = RecipientFactory.create(kind="mailbox", address=MAIL, status=status).owner
    erase(MAIL, owner, timezone.now())
    assert tables_with(MAIL) == []
    listed = erasure.refuse(imports.read(f"bob@example.com\nAnn <{MAIL.upper()}>"))
    assert listed.problems == [f"line 2: {erasure.REFUSED}"]
    assert [entry.address for entry in listed.entries] == ["bob@example.com"]
    assert targets.store_recipients(imports.read(MAIL).entries, owner) == 0
    reminder = ReminderFactory.create(account=AccountFactory.create(owner=owner, channel="smtp"))
    assert targets.add_listed(reminder, owner, imports.read(MAIL).entries) == 0
    assert self_test.send_test(reminder, MAIL, owner, timezone.now()).text == erasure.REFUSED
    assert not Recipient.objects.exists()


def test_a_suppressed_address_does_not_come_back():
    RecipientFactory.create(kind="mailbox", address=MAIL)
    Suppression.objects.create(address=MAIL, reason="hard_bounce")
    erase(MAIL, None, timezone.now())
    assert erasure.erased([MAIL, "bob@example.com"]) == {MAIL}


def test_who_never_objected_may_come_back():
    owner = RecipientFactory.create(kind="mailbox", address=MAIL).owner
    erase(MAIL, None, timezone.now())
    assert not ErasedAddress.objects.exists()
    assert targets.store_recipients(imports.read(MAIL).entries, owner) == 1


def test_the_hash_needs_the_key_and_an_earlier_key_still_counts(settings):
    erasure.remember(MAIL, timezone.now())
    old = settings.SECRET_KEY
    settings.SECRET_KEY = "another key that is long enough"
    assert erasure.erased([MAIL]) == set()
    settings.SECRET_KEY_FALLBACKS = [old]
    assert erasure.erased([MAIL]) == {MAIL}
