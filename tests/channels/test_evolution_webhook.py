"""What Evolution reports, with the shapes of its code."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from accounts.channels.base import AccountConfig
from accounts.channels.paired import ENDINGS
from accounts.channels.provider_events import EventKind, ProviderEvent
from tests.channels.hooks import WebhookContract

PERSON = "4917612345678@s.whatsapp.net"
GROUP = "120363025246125486@g.us"


def envelope(event: str, data: dict[str, Any]) -> dict[str, Any]:
    return {"event": event, "instance": "acme", "data": data, "date_time": "2026-06-01T10:00:00.000Z", "apikey": None}


def upsert(message: dict[str, Any] | None = None, **key: Any) -> dict[str, Any]:
    return envelope(
        "messages.upsert",
        {
            "key": {"remoteJid": PERSON, "fromMe": False, "id": "3EB0AA", **key},
            "pushName": "Ana",
            "message": message or {"conversation": "hi"},
            "messageTimestamp": 1_780_000_000,
        },
    )


def update(status: str, **more: Any) -> dict[str, Any]:
    data = {"keyId": "3EB0CC", "remoteJid": PERSON, "fromMe": True, "status": status, "messageId": "dbid"}
    return envelope("messages.update", {**data, **more})


def connection(state: str, reason: int | None = None) -> dict[str, Any]:
    return envelope("connection.update", {"instance": "acme", "state": state, "statusReason": reason})


class TestWebhook(WebhookContract):
    channel = "evolution"
    account = AccountConfig(1, "evolution", "Line", "", {"instance": "acme"}, {"webhook_secret": "k3y"})
    samples = (
        upsert({"ephemeralMessage": {"message": {"interactiveResponseMessage": {"nativeFlowResponseMessage": {}}}}}),
        update("READ"),
        update("ERROR"),
        connection("close", 401),
    )
    future = (envelope("labels.edit", {"id": "x"}), update("HUMMED"), connection("hibernating"))
    covers_body = False

    def headers(self, body: bytes) -> dict[str, str]:
        return {"x-crier-token": "k3y"}

    def one(self, body: dict[str, Any]) -> ProviderEvent:
        (event,) = self.parse(body)
        return event

    def test_a_reply(self) -> None:
        event = self.one(upsert())

        assert (event.kind, event.key) == (EventKind.REPLY, "message:3EB0AA")
        assert event.at == datetime.fromtimestamp(1_780_000_000, UTC)
        assert (event.address, event.group, event.text) == ("+4917612345678", "", "hi")
        assert event.detail == {"seen_as": "Ana", "jid": PERSON}

    @pytest.mark.parametrize("named", [{"remoteJidAlt": PERSON}, {"senderPn": PERSON}, {}])
    def test_a_hidden_id_is_told_beside_the_number_too(self, named: dict[str, Any]) -> None:
        assert self.one(upsert(remoteJid="999@lid", **named)).detail["jid"] == "999@lid"

    @pytest.mark.parametrize(
        "message", [{"extendedTextMessage": {"text": "hi"}}, {"imageMessage": {"caption": "hi", "url": "x"}}]
    )
    def test_where_the_text_may_be(self, message: dict[str, Any]) -> None:
        assert self.one(upsert(message)).text == "hi"

    @pytest.mark.parametrize(
        ("message", "beside"),
        [
            ({"conversation": "hi"}, {"contextInfo": {"stanzaId": "3EB0QQ"}}),
            ({"extendedTextMessage": {"text": "hi", "contextInfo": {"stanzaId": "3EB0QQ"}}}, {}),
            ({"imageMessage": {"caption": "hi", "contextInfo": {"stanzaId": "3EB0QQ"}}}, {"contextInfo": None}),
        ],
        ids=["beside", "inside", "with a picture"],
    )
    def test_a_reply_that_quotes(self, message: dict[str, Any], beside: dict[str, Any]) -> None:
        body = upsert(message)
        assert self.one(body).provider_id == ("" if beside.get("contextInfo") else "3EB0QQ")
        assert self.one(body | {"data": body["data"] | beside}).provider_id == "3EB0QQ"

    def test_a_reply_in_a_group_by_a_hidden_sender(self) -> None:
        event = self.one(upsert(remoteJid=GROUP, participant="999@lid"))

        assert (event.address, event.group) == ("", GROUP)

    @pytest.mark.parametrize(
        ("key", "address"),
        [
            pytest.param({"remoteJid": "999@lid", "remoteJidAlt": PERSON}, "+4917612345678", id="newer"),
            pytest.param({"remoteJid": "999@lid", "senderPn": PERSON}, "+4917612345678", id="older"),
            pytest.param({"remoteJid": "999@lid", "senderPn": "4917612345678"}, "+4917612345678", id="only digits"),
            pytest.param(
                {"remoteJid": "999@lid", "remoteJidAlt": "", "senderPn": PERSON}, "+4917612345678", id="empty"
            ),
            pytest.param({"remoteJid": GROUP, "participant": "999@lid", "participantAlt": PERSON}, "+4917612345678"),
            pytest.param({"remoteJid": GROUP, "participant": "999@lid", "participantPn": PERSON}, "+4917612345678"),
            pytest.param({"remoteJid": GROUP, "participant": "999@lid", "senderPn": PERSON}, "+4917612345678"),
            pytest.param({"remoteJid": GROUP, "participant": "999@lid", "remoteJidAlt": PERSON}, "", id="the group's"),
            pytest.param({"remoteJid": "999@lid", "senderPn": "999@lid"}, "", id="hidden twice"),
            pytest.param({"remoteJid": "999@lid"}, "", id="nowhere"),
            pytest.param({"remoteJid": "status@broadcast", "senderPn": PERSON}, "", id="a status update"),
        ],
    )
    def test_the_number_of_a_hidden_sender(self, key: dict[str, Any], address: str) -> None:
        # The envelope's `sender` is the instance's own number.
        assert self.one(upsert(**key) | {"sender": "4930123456@s.whatsapp.net"}).address == address

    def test_the_number_of_a_hidden_chat_in_a_receipt(self) -> None:
        assert self.one(update("READ", remoteJid="999@lid", remoteJidAlt=PERSON)).address == "+4917612345678"

    def test_our_own_messages_are_no_replies(self) -> None:
        assert self.parse(upsert(fromMe=True)) == []

    @pytest.mark.parametrize(
        ("status", "kind"),
        [
            ("DELIVERY_ACK", EventKind.DELIVERED),
            ("READ", EventKind.READ),
            ("PLAYED", EventKind.READ),
            ("ERROR", EventKind.BOUNCE),
        ],
    )
    def test_receipts_name_whatsapps_id_and_not_the_gateways_row(self, status: str, kind: EventKind) -> None:
        event = self.one(update(status))

        assert (event.kind, event.provider_id, event.key) == (kind, "3EB0CC", f"update:3EB0CC:{status}")
        # date_time claims to be UTC and is not.
        assert event.at is None

    @pytest.mark.parametrize("status", ["PENDING", "SERVER_ACK", "DELETED"])
    def test_on_its_way_is_no_news(self, status: str) -> None:
        assert self.parse(update(status)) == []

    def test_reading_what_others_wrote_is_no_receipt(self) -> None:
        assert self.parse(update("READ", fromMe=False)) == []

    @pytest.mark.parametrize(
        ("state", "reason", "expected"),
        [
            ("open", None, "active"),
            ("connecting", None, "disconnected"),
            ("close", 401, "unpaired"),
            ("close", 402, "banned"),
            ("close", 403, "banned"),
            ("close", 428, "disconnected"),
            ("refused", None, "unpaired"),
        ],
    )
    def test_the_connection(self, state: str, reason: int | None, expected: str) -> None:
        event = self.one(connection(state, reason))

        assert (event.kind, event.detail) == (EventKind.SESSION, {"state": expected})

    def test_another_instance_is_not_ours(self) -> None:
        assert self.parse({**upsert(), "instance": "other"}) == []

    # -- whole events, and what is none ------------------------------------------------------------------

    @pytest.mark.parametrize("kind", ["videoMessage", "documentMessage"])
    def test_captions_are_texts_too(self, kind: str) -> None:
        event = self.one(upsert({kind: {"caption": "hi", "contextInfo": {"stanzaId": "3EB0QQ"}}}))

        assert (event.text, event.provider_id) == ("hi", "3EB0QQ")

    def test_a_reply_in_a_group_names_its_sender(self) -> None:
        event = self.one(upsert(remoteJid=GROUP, participant=PERSON, remoteJidAlt="49301234567@s.whatsapp.net"))

        assert (event.address, event.group) == ("+4917612345678", GROUP)

    def test_a_hidden_sender_in_a_group_is_named_beside_it(self) -> None:
        event = self.one(upsert(remoteJid=GROUP, participant="999@lid", participantAlt=PERSON))

        assert event.address == "+4917612345678"

    @pytest.mark.parametrize(
        ("chat", "address", "group"), [(PERSON, "+4917612345678", ""), (GROUP, "", GROUP)], ids=["person", "group"]
    )
    def test_a_receipt(self, chat: str, address: str, group: str) -> None:
        assert self.one(update("READ", remoteJid=chat)) == ProviderEvent(
            key="update:3EB0CC:READ",
            kind=EventKind.READ,
            address=address,
            group=group,
            provider_id="3EB0CC",
            detail={"by_device": True},
        )

    @pytest.mark.parametrize(
        ("ident", "from_me", "by_device"),
        [("3EB0CC", True, True), ("BAE5CC", True, True), ("3A00CC", True, False), ("3EB0CC", None, False)],
        ids=["a device", "another device", "the phone", "nobody says"],
    )
    def test_whether_a_device_of_the_account_wrote_it(self, ident: str, from_me: Any, by_device: bool) -> None:
        assert self.one(update("READ", keyId=ident, fromMe=from_me)).detail == {"by_device": by_device}

    def test_a_late_refusal_says_so(self) -> None:
        event = self.one(update("ERROR"))

        assert event.detail == {"kind": "unknown"}
        assert event.text == "WhatsApp refused the message after the gateway had accepted it."

    @pytest.mark.parametrize(
        "body",
        [upsert(id=""), upsert(fromMe=None), update("READ", keyId="")],
        ids=["no id", "nobody says whose", "a receipt without an id"],
    )
    def test_what_says_too_little_is_passed_over(self, body: dict[str, Any]) -> None:
        assert self.parse(body) == []

    def test_a_webhook_that_names_no_instance_is_ours(self) -> None:
        body = upsert()
        del body["instance"]

        assert len(self.parse(body)) == 1

    @pytest.mark.parametrize(
        ("state", "reason", "expected", "key", "words"),
        [
            ("open", 200, "active", "open:200", "The instance is open (200)."),
            ("open", 401, "active", "open:401", "The instance is open (401)."),
            ("close", 406, "banned", "close:406", ENDINGS[406].words),
            ("close", 428, "disconnected", "close:428", "The instance is close (428)."),
            ("close", None, "disconnected", "close:", "The instance is close."),
            ("close", "401", "disconnected", "close:401", "The instance is close (401)."),
        ],
        ids=["open", "open in spite of it", "banned", "lost", "no reason", "a reason in words"],
    )
    def test_a_connection_in_words(self, state: str, reason: Any, expected: str, key: str, words: str) -> None:
        assert self.one(connection(state, reason)) == ProviderEvent(
            key=f"connection:{key}:2026-06-01T10:00:00.000Z",
            kind=EventKind.SESSION,
            text=words,
            detail={"state": expected},
        )
