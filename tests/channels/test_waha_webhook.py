"""What WAHA reports, with the samples of its documentation."""

from __future__ import annotations

import hashlib
import hmac
from datetime import UTC, datetime
from typing import Any

import pytest

from accounts.channels.base import AccountConfig
from accounts.channels.provider_events import EventKind, ProviderEvent
from tests.channels.hooks import WebhookContract

LID, NUMBER = "999888777@lid", "4917612345678@s.whatsapp.net"
GROUP = "120363025246125486@g.us"
AT = datetime.fromtimestamp(1_780_000_000, UTC)


def envelope(event: str, payload: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "id": "evt_01k",
        "timestamp": 1_780_000_000_123,
        "event": event,
        "session": "acme",
        "me": {"id": "4930123456@c.us"},
        "payload": payload,
        **more,
    }


def message(ident: str = "false_4917612345678@c.us_3EB0AA", **more: Any) -> dict[str, Any]:
    payload = {"id": ident, "timestamp": 1_780_000_000, "from": "4917612345678@c.us", "fromMe": False, "body": "hi"}
    return envelope("message", {**payload, **more})


def ack(number: int, ident: str = "true_4917612345678@c.us_3EB0CC", **more: Any) -> dict[str, Any]:
    payload = {"id": ident, "from": "4917612345678@c.us", "fromMe": True, "participant": None, "ack": number}
    return envelope("message.ack", {**payload, **more})


def status(name: str, at: int = 1_780_000_000_000) -> dict[str, Any]:
    return envelope("session.status", {"status": name, "statuses": [{"status": name, "timestamp": at}], "data": None})


class TestWebhook(WebhookContract):
    channel = "waha"
    account = AccountConfig(1, "waha", "Line", "", {"session": "acme"}, {"hmac_key": "k3y"})
    samples = (
        message(_data={"type": "chat", "message": {"ephemeralMessage": {"message": {"conversation": "hi"}}}}),
        ack(2),
        ack(3),
        ack(-1, error={"code": "463", "blocked": True, "until": "2026-05-29T00:26:40.123Z"}),
        status("FAILED"),
    )
    future = (envelope("poll.vote", {"id": "x"}), ack(9), status("HIBERNATING"))

    def headers(self, body: bytes) -> dict[str, str]:
        return {"x-webhook-hmac": hmac.new(b"k3y", body, hashlib.sha512).hexdigest()}

    def one(self, body: dict[str, Any]) -> ProviderEvent:
        (event,) = self.parse(body)
        return event

    def test_a_reply(self) -> None:
        event = self.one(message())

        assert (event.kind, event.key, event.at) == (EventKind.REPLY, "message:3EB0AA", AT)
        assert (event.address, event.group, event.text) == ("+4917612345678", "", "hi")

    def test_a_reply_that_quotes(self) -> None:
        quoting = message(replyTo={"id": "true_4917612345678@c.us_3EB0QQ", "body": "Hello"})
        assert self.one(quoting).provider_id == "3EB0QQ"
        assert self.one(message(replyTo={"id": "3EB0QQ"})).provider_id == "3EB0QQ"
        assert self.one(message(replyTo=None)).provider_id == ""

    def test_a_reply_in_a_group(self) -> None:
        ident = "false_120363025246125486@g.us_3EB0BB_4917612345678@c.us"
        event = self.one(message(ident, **{"from": "120363025246125486@g.us", "participant": "4917612345678@c.us"}))

        assert (event.address, event.group) == ("+4917612345678", "120363025246125486@g.us")
        assert event.key == "message:3EB0BB"

    def test_a_hidden_sender_has_no_address(self) -> None:
        event = self.one(message(**{"from": "999888777@lid"}))

        assert (event.address, event.detail["jid"]) == ("", "999888777@lid")

    @pytest.mark.parametrize(
        ("chat", "participant", "data"),
        [
            pytest.param(LID, None, {"Info": {"Sender": LID, "SenderAlt": NUMBER}}, id="GOWS"),
            pytest.param(LID, None, {"Info": {"SenderAlt": "4917612345678:7@s.whatsapp.net"}}, id="GOWS, a device"),
            pytest.param(LID, None, {"key": {"remoteJid": LID, "remoteJidAlt": NUMBER}}, id="NOWEB"),
            pytest.param(LID, None, {"key": {"remoteJid": LID, "senderPn": NUMBER}}, id="older NOWEB"),
            pytest.param(GROUP, LID, {"Info": {"Sender": LID, "SenderAlt": NUMBER}}, id="GOWS, a group"),
            pytest.param(GROUP, LID, {"key": {"participant": LID, "participantAlt": NUMBER}}, id="NOWEB, a group"),
            pytest.param(GROUP, LID, {"key": {"participantPn": NUMBER}}, id="older NOWEB, a group"),
        ],
    )
    def test_the_number_of_a_hidden_sender(self, chat: str, participant: str | None, data: dict[str, Any]) -> None:
        event = self.one(message(f"false_{chat}_3EB0AA", **{"from": chat, "participant": participant, "_data": data}))

        assert (event.address, event.group) == ("+4917612345678", GROUP if participant else "")

    @pytest.mark.parametrize(
        ("chat", "data"),
        [
            pytest.param(LID, {}, id="WEBJS"),
            pytest.param(LID, {"Info": {"SenderAlt": "", "RecipientAlt": NUMBER}}, id="only our own number"),
            pytest.param(LID, {"Info": {"SenderAlt": "888@lid"}}, id="hidden twice"),
            pytest.param(LID, {"key": {"remoteJidAlt": GROUP}}, id="a group"),
            pytest.param(LID, {"key": {"participantAlt": NUMBER}}, id="a member of a group"),
            pytest.param("status@broadcast", {"Info": {"SenderAlt": NUMBER}}, id="a status update"),
        ],
    )
    def test_what_is_no_number_of_the_sender(self, chat: str, data: dict[str, Any]) -> None:
        assert self.one(message(f"false_{chat}_3EB0AA", **{"from": chat, "_data": data})).address == ""

    def test_the_number_of_a_hidden_chat_in_a_receipt(self) -> None:
        hidden = ack(2, f"true_{LID}_3EB0CC", **{"from": LID, "_data": {"key": {"remoteJidAlt": NUMBER}}})

        assert self.one(hidden).address == "+4917612345678"
        # Of a message of ours the sender is this account.
        ours = ack(2, f"true_{LID}_3EB0CC", **{"from": LID, "_data": {"Info": {"SenderAlt": NUMBER}}})
        assert self.one(ours).address == ""

    def test_our_own_messages_are_no_replies(self) -> None:
        assert self.parse(message(fromMe=True)) == []

    def test_the_copies_of_one_message_have_one_key(self) -> None:
        copies = [
            message(),
            message("false_999888777@lid_3EB0AA"),
            {**message(), "id": "evt_other", "event": "message.any"},
        ]

        assert {self.one(copy).key for copy in copies} == {"message:3EB0AA"}

    @pytest.mark.parametrize(
        ("number", "kind"), [(2, EventKind.DELIVERED), (3, EventKind.READ), (4, EventKind.READ), (-1, EventKind.BOUNCE)]
    )
    def test_receipts(self, number: int, kind: EventKind) -> None:
        event = self.one(ack(number))

        assert (event.kind, event.provider_id, event.address) == (kind, "3EB0CC", "+4917612345678")
        assert event.at == datetime.fromtimestamp(1_780_000_000.123, UTC)

    @pytest.mark.parametrize("number", [0, 1])
    def test_on_its_way_is_no_news(self, number: int) -> None:
        assert self.parse(ack(number)) == []

    def test_a_late_refusal_says_so(self) -> None:
        event = self.one(ack(-1))

        assert event.detail == {"kind": "unknown"}
        assert "refused" in event.text

    def test_a_second_try_with_the_same_id_may_be_refused_too(self) -> None:
        first, copy, second = ack(-1), ack(-1), ack(-1) | {"timestamp": 1_780_000_060_123}
        assert self.one(first).key == self.one(copy | {"id": "evt_02"}).key == "ack:3EB0CC:-1:1780000000123"
        assert self.one(second).key == "ack:3EB0CC:-1:1780000060123"
        assert self.one(ack(2) | {"timestamp": 1_780_000_060_123}).key == self.one(ack(2)).key == "ack:3EB0CC:2"

    def test_a_late_refusal_says_how_long_new_chats_are_blocked(self) -> None:
        event = self.one(ack(-1, error={"code": "463", "blocked": True, "until": "2026-05-29T00:26:40.123Z"}))

        assert event.text == (
            "WhatsApp refused the message after the gateway had accepted it (error 463): this number may not begin new "
            "chats until 2026-05-29 00:26 UTC."
        )

    def test_receipts_of_a_groups_members_count_once(self) -> None:
        chat = {"from": "120363025246125486@g.us"}
        members = [
            ack(2, f"true_120363025246125486@g.us_3EB0CC_{n}@lid", participant=f"{n}@lid", **chat) for n in (1, 2)
        ]

        assert {self.one(member).key for member in members} == {"ack:3EB0CC:2"}

    @pytest.mark.parametrize(
        ("name", "state"),
        [
            ("WORKING", "active"),
            ("STARTING", "disconnected"),
            ("STOPPED", "disconnected"),
            ("SCAN_QR_CODE", "unpaired"),
            ("FAILED", "unpaired"),
        ],
    )
    def test_the_session(self, name: str, state: str) -> None:
        event = self.one(status(name))

        assert (event.kind, event.detail, event.at) == (EventKind.SESSION, {"state": state}, AT)
        assert event.key == f"session:{name}:1780000000000"

    def test_another_session_is_not_ours(self) -> None:
        assert self.parse({**message(), "session": "other"}) == []

    def test_a_moment_beyond_all_calendars_is_none(self) -> None:
        assert self.one(message(timestamp=10**18)).at is None

    # -- whole events, and what is none ------------------------------------------------------------------

    def test_a_receipt_in_a_group_says_group_and_member(self) -> None:
        chat = {"from": "120363025246125486@g.us", "participant": "4917612345678@c.us"}

        assert self.one(ack(3, "true_120363025246125486@g.us_3EB0CC_4917612345678@c.us", **chat)) == ProviderEvent(
            key="ack:3EB0CC:3",
            kind=EventKind.READ,
            at=datetime.fromtimestamp(1_780_000_000.123, UTC),
            address="+4917612345678",
            group="120363025246125486@g.us",
            provider_id="3EB0CC",
            detail={"by_device": True},
        )

    @pytest.mark.parametrize(
        ("ident", "from_me", "by_device"),
        [
            ("true_49176@c.us_3EB0CC", True, True),
            ("true_49176@c.us_BAE5CC", True, True),
            ("true_49176@c.us_3A00CC", True, False),
            ("true_49176@c.us_3EB0CC", False, False),
            ("true_49176@c.us_3EB0CC", None, False),
        ],
        ids=["a device", "another device", "the phone", "somebody else", "nobody says"],
    )
    def test_whether_a_device_of_the_account_wrote_it(self, ident: str, from_me: Any, by_device: bool) -> None:
        event = self.one(ack(2, ident, fromMe=from_me))

        assert event.detail == {"by_device": by_device}
        assert event.text == ""

    @pytest.mark.parametrize(
        "body",
        [
            message(""),
            message(fromMe=None),
            ack(2, ""),
            ack("2"),  # type: ignore[arg-type]
            envelope("session.status", {}),
        ],
        ids=["no id", "nobody says whose", "a receipt without an id", "a receipt in words", "no status"],
    )
    def test_what_says_too_little_is_passed_over(self, body: dict[str, Any]) -> None:
        assert self.parse(body) == []

    @pytest.mark.parametrize(
        ("name", "received"), [(None, True), ("default", True), ("acme", False)], ids=["nobody says", "ours", "another"]
    )
    def test_an_account_without_a_session_has_waha_s_own(self, name: str | None, received: bool) -> None:
        account = AccountConfig(1, "waha", "Line", "", {}, {"hmac_key": "k3y"})

        assert bool(self.webhook.parse(self.request({**message(), "session": name}), account)) is received

    @pytest.mark.parametrize(
        ("statuses", "since"),
        [
            ([{"timestamp": 5000}, {"timestamp": 9000}, {"timestamp": 7000}], 9000),
            ([{"timestamp": "9000"}, {"timestamp": 5000}], 5000),
            ([], 1_780_000_000_123),
            (None, 1_780_000_000_123),
        ],
        ids=["the last change", "odd moments", "no changes", "none listed"],
    )
    def test_a_state_is_as_old_as_its_last_change(self, statuses: Any, since: int) -> None:
        event = self.one(envelope("session.status", {"status": "WORKING", "statuses": statuses}))

        assert event.key == f"session:WORKING:{since}"
        assert event.at == datetime.fromtimestamp(since / 1000, UTC)
        assert event.text == "The session is WORKING."

    @pytest.mark.parametrize("name", ["PASSKEY_REQUIRED", "PASSKEY_CONFIRMATION_REQUIRED"])
    def test_a_session_that_wants_a_passkey_is_not_paired(self, name: str) -> None:
        assert self.one(status(name)).detail == {"state": "unpaired"}

    def test_receipts_of_groups_have_an_event_of_their_own(self) -> None:
        assert self.one({**ack(2), "event": "message.ack.group"}).kind is EventKind.DELIVERED
