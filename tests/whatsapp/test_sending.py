"""What a session does with a message, judged by the book of the scripted WhatsApp."""

from __future__ import annotations

import asyncio
import hashlib
import io
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from accounts.channels.base import AccountConfig, Kind, Media, NotSent, Outcome, Part, Sent, Unknown, UploadFailed
from accounts.channels.paired import Jid
from accounts.channels.provider_events import EventKind
from accounts.channels.whatsapp import wire
from accounts.channels.whatsapp.bridge.api import Api
from accounts.channels.whatsapp.bridge.conditions import Condition, State, utc_now
from accounts.channels.whatsapp.bridge.journal import PAIRED_AT, Journal, Receipt, SentMessage
from accounts.channels.whatsapp.bridge.library import Limits
from accounts.channels.whatsapp.bridge.messages import thumbnail
from accounts.channels.whatsapp.bridge.roster import Roster
from accounts.channels.whatsapp.bridge.scripted import group_address
from accounts.channels.whatsapp.channel import CHANNEL
from accounts.channels.whatsapp.transport import WhatsAppTransport
from tests.whatsapp.running import IMPATIENT, QUICK, InThread, wait_for

GROUP = group_address("1", 0)
OTHER = group_address("1", 1)
PERSON = "+4915200000001"
TEXT = Part(key="1:0", index=0, kind="text", text="Doors open at nine @4915200000001")


@pytest.fixture
def bridge(tmp_path: Path, settings: Any) -> Iterator[InThread]:
    with InThread(tmp_path, 1) as running:
        settings.WHATSAPP_BRIDGE_URL = running.url
        running.wait_state(1, "connected")
        wait_for(lambda: running.state(1)["groups"])
        yield running


@pytest.fixture
def impatient(tmp_path: Path, settings: Any) -> Iterator[InThread]:
    """A bridge that waits for a moment only."""
    with InThread(tmp_path, 1, limits=IMPATIENT) as running:
        settings.WHATSAPP_BRIDGE_URL = running.url
        running.wait_state(1, "connected")
        wait_for(lambda: running.state(1)["groups"])
        yield running


def transport(**config: Any) -> WhatsAppTransport:
    return WhatsAppTransport(AccountConfig(1, "whatsapp", "Line", "", config))


def send(address: str, part: Part = TEXT, message_id: str = "crier-1-0", **config: Any) -> Outcome:
    async def go() -> Outcome:
        one = transport(**config)
        try:
            return await one.send(address, part, message_id)
        finally:
            await one.close()

    return asyncio.run(go())


def picture(mime: str = "image/png", name: str = "poster.png", kind: str = "image") -> Media:
    content = b"not really a picture"
    return Media(hashlib.sha256(content).hexdigest(), name, mime, len(content), lambda: content, kind)


def refusal(outcome: Outcome) -> NotSent:
    assert isinstance(outcome, NotSent)
    return outcome


# -- kinds of message -------------------------------------------------------------------------------------


def test_text_goes_out_as_it_is_without_mentions(bridge: InThread) -> None:
    outcome = send(GROUP)

    (line,) = bridge.delivered()
    assert isinstance(outcome, Sent)
    assert (line["to"], line["kind"], line["text"], line["id"]) == (GROUP, "text", TEXT.text, outcome.provider_id)


@pytest.mark.parametrize(
    ("kind", "mime", "seen"),
    [
        ("image", "image/png", "image"),
        ("video", "video/mp4", "video"),
        ("document", "application/pdf", "document"),
        # A picture, a film and a sound that are to arrive as files.
        ("document", "image/png", "document"),
        ("document", "video/quicktime", "document"),
        ("document", "audio/x-wav", "document"),
        # WhatsApp's audio has no caption.
        ("audio", "audio/ogg", "document"),
    ],
)
def test_a_file_with_a_caption(bridge: InThread, kind: str, mime: str, seen: str) -> None:
    async def go() -> Outcome:
        one = transport()
        media = picture(mime, kind=CHANNEL.uploaded_as(kind, "The poster"))
        handle = (await one.prepare(media)).value
        part = Part(key="1:1", index=1, kind=kind, text="The poster", media=media, handle=handle)
        try:
            return await one.send(GROUP, part, "crier-1-1")
        finally:
            await one.close()

    assert isinstance(asyncio.run(go()), Sent)
    (line,) = bridge.delivered()
    assert (line["kind"], line["text"], line["mime"]) == (seen, "The poster", mime)


def test_a_file_is_uploaded_once_for_all_groups_and_the_handle_outlives_the_client(bridge: InThread) -> None:
    async def go() -> list[Outcome]:
        one = transport()
        handle = (await one.prepare(picture())).value
        await one.close()
        other = transport()
        part = Part(key="1:1", index=0, kind="image", media=picture(), handle=handle)
        try:
            return [await other.send(to, part, f"crier-{n}-0") for n, to in enumerate((GROUP, OTHER))]
        finally:
            await other.close()

    assert all(isinstance(outcome, Sent) for outcome in asyncio.run(go()))
    assert len(bridge.book.lines("upload")) == 1
    assert len({line["file"] for line in bridge.delivered()}) == 1


def test_typing_is_shown_where_the_account_asks_for_it(bridge: InThread) -> None:
    send(GROUP)
    assert bridge.book.lines("typing") == []

    send(GROUP, message_id="crier-2-0", typing=True)
    assert [line["to"] for line in bridge.book.lines("typing")] == [GROUP]


# -- where an account may write ---------------------------------------------------------------------------


def test_a_group_that_the_account_left_is_not_written_to(bridge: InThread) -> None:
    outcome = refusal(send("120363999999999999@g.us"))

    assert outcome.kind is Kind.NOT_WRITABLE
    assert "not in the group" in outcome.detail
    assert bridge.delivered() == []


def test_a_group_where_only_admins_write_is_not_written_to(tmp_path: Path, settings: Any) -> None:
    with InThread(tmp_path, 1, announce=[GROUP]) as bridge:
        settings.WHATSAPP_BRIDGE_URL = bridge.url
        bridge.wait_state(1, "connected")
        wait_for(lambda: bridge.state(1)["groups"])

        outcome = refusal(send(GROUP))

        assert outcome.kind is Kind.NOT_WRITABLE
        assert "only admins" in outcome.detail
        assert isinstance(send(OTHER), Sent)
        assert [line["to"] for line in bridge.delivered()] == [OTHER]


def test_without_a_list_of_groups_whatsapp_decides(tmp_path: Path, settings: Any) -> None:
    with InThread(tmp_path, 1, list_groups={"error": "info query returned status 429: rate-overlimit"}) as bridge:
        settings.WHATSAPP_BRIDGE_URL = bridge.url
        bridge.wait_state(1, "connected")

        assert isinstance(send(GROUP), Sent)


def test_a_list_of_groups_that_was_refused_is_not_asked_for_again_at_once(tmp_path: Path, settings: Any) -> None:
    """Neither by the watch nor by the sends: who asks too often is refused for longer."""
    with InThread(tmp_path, 1, list_groups={"error": "info query returned status 429: rate-overlimit"}) as bridge:
        settings.WHATSAPP_BRIDGE_URL = bridge.url
        bridge.wait_state(1, "connected")
        wait_for(lambda: bridge.book.lines("list"))

        for n in range(3):
            assert isinstance(send(GROUP, message_id=f"crier-{n}-0"), Sent)
        time.sleep(10 * QUICK["watch"])

        assert len(bridge.book.lines("list")) == 1
        assert bridge.ask("GET", "/accounts/1/groups")["kind"] == "rate_limited"
        assert len(bridge.book.lines("list")) == 1


def test_groups_that_change_often_are_listed_now_and_then(tmp_path: Path, settings: Any) -> None:
    with InThread(tmp_path, 1, limits=QUICK | {"groups_changed": 1.0}) as bridge:
        settings.WHATSAPP_BRIDGE_URL = bridge.url
        bridge.wait_state(1, "connected")
        wait_for(lambda: bridge.state(1)["groups"])

        for _ in range(20):
            bridge.happen(1, event="GroupInfoEvent", fields={})
        assert len(bridge.book.lines("list")) == 1
        wait_for(lambda: len(bridge.book.lines("list")) == 2)
        time.sleep(10 * QUICK["watch"])
        assert len(bridge.book.lines("list")) == 2


def test_who_asks_while_the_groups_are_listed_gets_that_answer(bridge: InThread) -> None:
    session = bridge.bridge.sessions[1]

    async def both() -> tuple[NotSent | None, NotSent | None]:
        first, second = await asyncio.gather(session.listing.ask_for_groups(), session.listing.ask_for_groups())
        return first, second

    assert asyncio.run_coroutine_threadsafe(both(), bridge.loop).result(10) == (None, None)
    assert len(bridge.book.lines("list")) == 2  # with the one at the start


def test_the_list_is_asked_for_less_often_each_time_it_fails() -> None:
    limits = Limits()

    assert [limits.groups_retry(failures) for failures in (1, 2, 3, 6, 7, 50)] == [90, 180, 360, 2880, 3600, 3600]


def test_a_group_that_just_changed_is_not_refused_by_the_old_list() -> None:
    roster = Roster(Limits())
    roster.read([], None)
    chat = Jid(*GROUP.split("@"))
    assert refusal(roster.refusal(chat)).kind is Kind.NOT_WRITABLE  # type: ignore[arg-type]

    roster.changed.add(GROUP)
    assert roster.refusal(chat) is None


def test_a_person_is_looked_up_before_the_first_message_only(bridge: InThread) -> None:
    assert isinstance(send(PERSON), Sent)
    bridge.script(no_whatsapp=[PERSON, "+4915200000002"])

    assert isinstance(send(PERSON, message_id="crier-2-0"), Sent)
    gone = refusal(send("+4915200000002", message_id="crier-3-0"))

    assert (gone.kind, gone.detail) == (Kind.RECIPIENT_GONE, "this person has no WhatsApp")
    assert [line["to"] for line in bridge.delivered()] == ["4915200000001@s.whatsapp.net"] * 2


def test_a_reply_has_the_number_that_was_written_to(bridge: InThread) -> None:
    """WhatsApp knows older Brazilian numbers without their ninth digit."""
    bridge.script(ids={"+5531987654321": "553187654321"})
    assert isinstance(send("+5531987654321"), Sent)
    assert [line["to"] for line in bridge.delivered()] == ["553187654321@s.whatsapp.net"]

    for n, sender in enumerate(("553187654321", "553188887777")):
        chat = f"{sender}@s.whatsapp.net"
        bridge.happen(1, say="STOP", id=f"A{n}", **{"in": chat, "from": chat})
    wait_for(lambda: len(bridge.of_kind("reply")) == 2)

    assert {event.address for event in bridge.of_kind("reply")} == {"+5531987654321", "+553188887777"}


# -- answers that come late or not at all -----------------------------------------------------------------


def test_a_late_answer_settles_the_message_through_the_events(impatient: InThread) -> None:
    impatient.script(sends={GROUP: {"late": 0.8}}, receipts=None)

    assert isinstance(send(GROUP), Unknown)
    wait_for(lambda: impatient.of_kind("delivered"))

    (event,) = impatient.of_kind("delivered")
    (line,) = impatient.delivered()
    assert (event.message_id, event.provider_id, event.group) == ("crier-1-0", line["id"], GROUP)
    assert event.detail == {"by": "server"}


def test_a_late_refusal_settles_it_too(impatient: InThread) -> None:
    impatient.script(sends={GROUP: {"late": 0.8, "drop": True, "error": "server returned error 429"}}, receipts=None)

    assert isinstance(send(GROUP), Unknown)
    wait_for(lambda: impatient.of_kind("bounce"))

    (event,) = impatient.of_kind("bounce")
    assert (event.message_id, event.detail) == ("crier-1-0", {"kind": "rate_limited", "certain": True})


@pytest.mark.slow
def test_the_same_message_is_not_sent_beside_itself(impatient: InThread) -> None:
    """An operator may ask for it again while the first try still waits."""
    impatient.script(sends={GROUP: {"late": 2.5, "times": 1}}, receipts=None)

    assert isinstance(send(GROUP), Unknown)
    assert refusal(send(GROUP)).kind is Kind.UNAVAILABLE
    wait_for(lambda: impatient.of_kind("delivered"))

    assert send(GROUP) == Sent(impatient.delivered()[0]["id"])
    assert len(impatient.delivered()) == 1


def test_behind_a_message_without_an_answer_nothing_is_sent_and_that_is_certain(impatient: InThread) -> None:
    impatient.script(sends={GROUP: {"hang": True}})

    assert isinstance(send(GROUP), Unknown)
    behind = refusal(send(OTHER, message_id="crier-2-0"))

    assert behind.kind is Kind.UNAVAILABLE
    assert impatient.delivered() == []


def test_a_receipt_settles_what_had_no_answer(bridge: InThread) -> None:
    """WhatsApp's id of such a message is not known: the chat and the time tell."""
    bridge.script(sends={GROUP: {"drop": True, "times": 1}})

    assert isinstance(send(GROUP), Unknown)
    wait_for(lambda: bridge.of_kind("delivered"))

    (event,) = bridge.of_kind("delivered")
    assert (event.message_id, event.provider_id) == ("crier-1-0", bridge.delivered()[0]["id"])


def test_only_a_receipt_that_can_be_meant_settles_it(bridge: InThread) -> None:
    bridge.script(sends={GROUP: {"error": "timed out waiting for message send response", "times": 1}})
    assert isinstance(send(GROUP), Unknown)
    bridge.happen(1, say="typed on the desktop", id="3EB0DESK", **{"in": GROUP, "from_me": True})

    for receipt in (
        {"id": "3EB0DESK"},  # a person's message, which was received of
        {"id": "AC00PHONE"},  # a phone's message: its ids look different
        {"id": "3EB0X", "type": 4},  # read, perhaps an old one
        {"id": "3EB0X", "in": OTHER},
        {"id": "3EB0X", "ago": 3600},
    ):
        bridge.happen(1, receipt=receipt, **{"in": receipt.get("in", GROUP)})
    bridge.happen(1, say="Thank you", id="LAST")
    wait_for(lambda: bridge.of_kind("reply"))
    assert bridge.of_kind("delivered") == bridge.of_kind("read") == []

    bridge.happen(1, receipt={"id": "3EB0X"}, **{"in": GROUP})
    wait_for(lambda: bridge.of_kind("delivered"))
    assert bridge.of_kind("delivered")[0].message_id == "crier-1-0"


def test_an_id_of_another_message_that_the_journal_has_lost_settles_nothing(bridge: InThread) -> None:
    """The database knows whose it is. Without the database the receipt waits."""
    bridge.script(sends={GROUP: {"error": "timed out waiting for message send response", "times": 1}})
    assert isinstance(send(GROUP), Unknown)
    bridge.feed.broken, bridge.feed.owned = True, {"3EB0OLD": "crier-9-0"}
    journal = bridge.bridge.sessions[1].journal

    bridge.happen(1, receipt={"id": "3EB0OLD"}, **{"in": GROUP})
    wait_for(journal.held)
    bridge.feed.broken = False
    wait_for(lambda: bridge.of_kind("delivered"))
    bridge.happen(1, receipt={"id": "3EB0X"}, **{"in": GROUP})
    wait_for(lambda: len(bridge.of_kind("delivered")) == 2)

    told = [(event.message_id, event.provider_id) for event in bridge.of_kind("delivered")]
    assert told == [("crier-9-0", "3EB0OLD"), ("crier-1-0", "3EB0X")]


@pytest.mark.parametrize("young", ["journal", "pairing"])
def test_for_a_month_a_new_journal_takes_no_unknown_id_for_its_own(young: str, bridge: InThread) -> None:
    """It may be that of a message from before: WhatsApp keeps messages for 30 days."""
    session, new = bridge.bridge.sessions[1], utc_now() - timedelta(days=29, hours=23)
    if young == "journal":
        session.in_use_since, session.turn_page_at = new, float("inf")
    else:
        session.journal.note(PAIRED_AT, new.isoformat())
    bridge.script(sends={GROUP: {"error": "timed out waiting for message send response", "times": 1}})
    assert isinstance(send(GROUP), Unknown)

    bridge.happen(1, receipt={"id": "3EB0OLD"}, **{"in": GROUP})
    bridge.happen(1, say="Thank you", id="LAST")
    wait_for(lambda: bridge.of_kind("reply"))

    assert bridge.of_kind("delivered") == []
    assert [name for _, name in session.journal.open_tries(time.time() + 60)] == ["crier-1-0"]
    assert session.journal.message_id_of("3EB0OLD") == "", "nor later, when the journal is old enough"


def test_a_receipt_that_is_faster_than_the_acknowledgement_belongs_to_its_own_message(bridge: InThread) -> None:
    """Also where an earlier message without an answer is open in the chat."""
    bridge.script(sends={GROUP: {"error": "timed out waiting for message send response", "times": 1}})
    assert isinstance(send(GROUP, message_id="crier-1-0"), Unknown)
    bridge.script(sends={GROUP: {"late": 0.5, "times": 1}}, receipts=0.05)

    outcome = send(GROUP, message_id="crier-2-0")

    (line,) = bridge.delivered()
    assert outcome == Sent(line["id"])
    wait_for(lambda: bridge.of_kind("delivered"))
    assert [(event.message_id, event.provider_id) for event in bridge.of_kind("delivered")] == [
        ("crier-2-0", line["id"])
    ]


def test_a_receipt_under_a_hidden_id_settles_what_was_sent_to_a_number(bridge: InThread) -> None:
    timed_out = {"error": "timed out waiting for message send response", "times": 1}
    bridge.script(sends={"4915200000001@s.whatsapp.net": timed_out}, hidden={"77": "4915200000001"})
    assert isinstance(send(PERSON), Unknown)

    bridge.happen(1, receipt={"id": "3EB0X"}, **{"in": "77@lid"})
    wait_for(lambda: bridge.of_kind("delivered"))

    (event,) = bridge.of_kind("delivered")
    assert (event.message_id, event.provider_id, event.address) == ("crier-1-0", "3EB0X", PERSON)


# -- the bridge's own trouble -----------------------------------------------------------------------------


def test_an_upload_that_never_ends_is_given_up(impatient: InThread) -> None:
    impatient.script(upload={"hang": True})

    async def go() -> None:
        one = transport()
        try:
            await one.prepare(picture())
        finally:
            await one.close()

    with pytest.raises(UploadFailed) as caught:
        asyncio.run(go())
    assert caught.value.reason.kind is Kind.UNAVAILABLE
    assert "did not end" in caught.value.reason.detail
    # Its thread is lost: the client is replaced.
    logins = len(impatient.book.lines("login"))
    wait_for(lambda: len(impatient.book.lines("login")) > logins or impatient.state(1)["connected"])


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("upload failed with status code 413", Kind.CONTENT_REJECTED),
        ("upload failed with status code 503", "unavailable"),
    ],
)
def test_a_refused_upload_says_why(bridge: InThread, words: str, kind: Kind) -> None:
    bridge.script(upload={"error": words})

    async def go() -> None:
        one = transport()
        try:
            await one.prepare(picture())
        finally:
            await one.close()

    with pytest.raises(UploadFailed) as caught:
        asyncio.run(go())
    assert (caught.value.reason.kind, caught.value.reason.detail) == (kind, words)


def test_a_strange_token_is_refused_before_anything_is_sent(bridge: InThread, settings: Any) -> None:
    settings.SECRET_KEY = "of another site, which has bridges of its own"

    outcome = refusal(send(GROUP))

    assert outcome.kind is Kind.UNAVAILABLE
    assert "SECRET_KEY" in outcome.detail
    assert bridge.delivered() == []


def test_a_handle_that_nobody_can_read_is_said(bridge: InThread) -> None:
    part = replace(TEXT, kind="image", media=picture(), handle="{}")

    assert "not readable" in refusal(send(GROUP, part)).detail


def test_a_handle_of_another_kind_is_never_sent(bridge: InThread) -> None:
    async def go() -> Outcome:
        one = transport()
        handle = (await one.prepare(picture(kind="image"))).value
        part = replace(TEXT, kind="document", media=picture(kind="document"), handle=handle)
        try:
            return await one.send(GROUP, part, "crier-1-0")
        finally:
            await one.close()

    assert "not for this kind of part" in refusal(asyncio.run(go())).detail
    assert bridge.delivered() == []


def full(*values: Any) -> None:
    raise sqlite3.OperationalError("database or disk is full")


def test_without_a_journal_nothing_is_sent(bridge: InThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge.bridge.sessions[1].journal, "begin", full)

    outcome = refusal(send(GROUP))

    assert outcome.kind is Kind.UNAVAILABLE
    assert "disk is full" in outcome.detail
    assert bridge.delivered() == []


def test_what_goes_wrong_before_the_hand_over_is_certain(bridge: InThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge.bridge.sessions[1].journal, "person", full)

    outcome = refusal(send(PERSON))

    assert outcome.kind is Kind.UNAVAILABLE
    assert "disk is full" in outcome.detail
    assert bridge.delivered() == []


def test_a_session_that_ends_while_whatsapp_is_asked_sends_nothing(bridge: InThread) -> None:
    session = bridge.bridge.sessions[1]
    ask = session.client.is_on_whatsapp

    async def ban_and_ask(*numbers: str) -> Any:
        session.condition = Condition(State.BANNED, datetime.now(UTC), "banned")
        return await ask(*numbers)

    session.client.is_on_whatsapp = ban_and_ask

    assert refusal(send(PERSON)).kind is Kind.BANNED
    assert bridge.delivered() == []


def test_what_whatsapp_answered_stands_without_its_note(bridge: InThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge.bridge.sessions[1].journal, "sent", full)

    assert isinstance(send(GROUP), Sent)
    assert len(bridge.delivered()) == 1


def test_a_certain_refusal_stands_without_its_note(bridge: InThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge.bridge.sessions[1].journal, "not_sent", full)
    bridge.script(sends={GROUP: {"error": "server returned error 429"}})

    assert refusal(send(GROUP)).kind is Kind.RATE_LIMITED


def test_a_person_is_written_to_where_the_lookup_cannot_be_noted(
    bridge: InThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bridge.bridge.sessions[1].journal, "remember_person", full)

    assert isinstance(send(PERSON), Sent)


# -- what the journal keeps -------------------------------------------------------------------------------


def test_the_journal_forgets_each_thing_at_its_age(tmp_path: Path) -> None:
    day = 86_400
    journal = Journal(tmp_path / "journal.db")
    journal.remember_person(PERSON, "4915200000001@s.whatsapp.net", 0)
    journal.sent(journal.begin("crier-1-0", GROUP, GROUP, 0), SentMessage("3EB0A", "crier-1-0", GROUP), 0)
    journal.begin("crier-2-0", GROUP, GROUP, 0)
    journal.hold([Receipt("3EB0B", EventKind.DELIVERED, GROUP, GROUP, 0)], named=True)

    def kept(now: float) -> list[bool]:
        journal.forget(now)
        known = journal.message_id_of("3EB0A") == "crier-1-0"
        may_be_settled = journal.uncertain_in((GROUP, GROUP), now) is not None
        # While its receipt may come, an old try keeps another one from being settled by it.
        number = journal.begin("crier-3-0", GROUP, GROUP, now)
        counts = journal.uncertain_in((GROUP, GROUP), now) is None
        journal.not_sent(number)
        return [bool(journal.person(PERSON)), known, may_be_settled, counts, bool(journal.held())]

    assert [kept(days * day) for days in (2, 4, 31, 36)] == [
        [True, True, True, True, True],
        [True, True, False, True, True],
        [False, True, False, True, True],
        [False, False, False, False, False],
    ]
    journal.close()


def test_a_journal_of_an_earlier_version_keeps_its_sends_without_an_answer(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    old = sqlite3.connect(path)
    old.execute("CREATE TABLE doubts (message_id TEXT PRIMARY KEY, chat TEXT NOT NULL, began REAL NOT NULL)")
    old.execute("INSERT INTO doubts VALUES ('crier-1-0', ?, 1000)", (GROUP,))
    old.commit()
    old.close()

    for _ in range(2):
        journal = Journal(path)
        assert journal.uncertain_in((GROUP, GROUP), 1000) == (1, "crier-1-0")
        journal.close()


def test_a_bridge_that_runs_for_months_forgets_too(tmp_path: Path) -> None:
    with InThread(tmp_path, 1, limits=QUICK | {"forget": 0.1}) as bridge:
        bridge.wait_state(1, "connected")
        journal = bridge.bridge.sessions[1].journal
        journal.remember_person(PERSON, "4915200000001@s.whatsapp.net", 0)

        wait_for(lambda: not journal.person(PERSON))


def test_no_address_of_the_bridge_answers_without_the_token(bridge: InThread) -> None:
    """Neither a page that a browser on this machine shows, nor another user of the machine, gets through."""
    routes = Api(bridge.bridge, "").application().router.routes()
    asked = {(route.method, str(route.resource.canonical if route.resource else "")) for route in routes}
    assert len(asked) > 10
    before = bridge.delivered()
    for method, path in asked:
        for headers in ({}, {wire.TOKEN_HEADER: "guessed"}, {wire.TOKEN_HEADER: "", "Host": "evil.example"}):
            with closing(HTTPConnection("127.0.0.1", int(bridge.url.rpartition(":")[2]), timeout=10)) as connection:
                connection.request(method, path.replace("{account}", "1"), b"{}" * (method == "POST"), headers)
                answer = connection.getresponse()
                assert answer.status == 403, (method, path, headers)
                assert "Access-Control-Allow-Origin" not in answer.headers
    assert bridge.delivered() == before


@pytest.mark.parametrize(
    ("kind", "size", "shown"),
    [
        pytest.param("png", (1_000, 800), True, id="usual"),
        pytest.param("png", (8_000, 7_500), False, id="few bytes, many pixels"),
        pytest.param("jpeg", (6_000, 4_000), True, id="photo"),
        pytest.param("bmp", (10, 10), False, id="not of a kind that is sent"),
    ],
)
def test_a_thumbnail_takes_little_memory(kind: str, size: tuple[int, int], shown: bool) -> None:
    image = pytest.importorskip("PIL.Image")
    file = io.BytesIO()
    image.new("1" if kind == "png" else "RGB", size).save(file, kind)
    assert thumbnail(file.getvalue(), f"image/{kind}").startswith(b"\xff\xd8") is shown
