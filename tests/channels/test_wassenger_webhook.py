"""What Wassenger reports in the flat shape; both shapes are in test_wassenger_captures.py."""

from __future__ import annotations

import hashlib
import hmac
from datetime import UTC, datetime
from typing import Any

import pytest

from accounts.channels.base import AccountConfig
from accounts.channels.provider_events import EventKind, HookRequest, ProviderEvent
from tests.channels.hooks import WebhookContract
from tests.gateways.captures.wassenger import receipt_nested, written_nested

AT = datetime.fromtimestamp(1_780_000_000, UTC)
GROUP = "120363025246125486@g.us"


def event(name: str, data: dict[str, Any]) -> dict[str, Any]:
    device = {"id": "d1", "phone": "+4930123456"}
    return {"id": "e1", "object": "message", "event": name, "created": 1_780_000_000, "device": device, "data": data}


def message(**more: Any) -> dict[str, Any]:
    data = {
        "id": "3EB0AA",
        "type": "text",
        "flow": "inbound",
        "from": "4917612345678@c.us",
        "fromNumber": "+4917612345678",
        "timestamp": 1_780_000_000,
        "body": "hi",
        "chat": {"id": "4917612345678@c.us", "type": "chat", "lid": "999@lid"},
        "meta": {"isGroup": False},
    }
    return event("message:in:new", {**data, **more})


def ack(name: str, **more: Any) -> dict[str, Any]:
    return event("message:out:ack", {"id": "w1", "waId": "3EB0CC", "reference": "crier-7-0", "ack": name, **more})


def failed(**more: Any) -> dict[str, Any]:
    return event("message:out:failed", {"id": "w1", "reference": "crier-7-0", **more})


def session(status: str) -> dict[str, Any]:
    return event("number:session", {"session": {"status": status}})


class TestWebhook(WebhookContract):
    channel = "wassenger"
    account = AccountConfig(1, "wassenger", "Line", "", {"device": "d1"}, {"webhook_secret": "k3y"})
    samples = (
        message(),
        ack("delivered"),
        ack("read"),
        failed(error="No"),
        session("offline"),
        message(id="3EB0DD", quoted={"wid": "true_4917612345678@c.us_3EB0CC"}),
        written_nested(),
        receipt_nested("delivered", waId="3EB0EE"),
        receipt_nested("failed", waId="3EB0FF", error={"message": "No"}),
    )
    future = (event("label:new", {"id": "x"}), ack("hummed"), session("hibernating"))

    def headers(self, body: bytes) -> dict[str, str]:
        return {"x-wassenger-signature": hmac.new(b"k3y", body, hashlib.sha256).hexdigest()}

    def test_a_forged_one_is_not_authentic(self) -> None:
        """Where a secret was entered, one without a signature is forged too."""
        good = self.request(self.samples[0])
        signature = good.headers["x-wassenger-signature"]
        forged = [
            HookRequest("POST", {"x-wassenger-signature": value}, {}, good.body)
            for value in ("", "0" * 64, signature[:-1], "é")
        ]
        forged.append(HookRequest("POST", good.headers, {}, good.body + b" "))
        forged.append(HookRequest("POST", {}, {}, good.body))

        assert not any(self.webhook.authentic(request, self.account) for request in forged)
        prefixed = HookRequest("POST", {"x-wassenger-signature": f"sha256={signature}"}, {}, good.body)
        assert self.webhook.authentic(prefixed, self.account)

    def test_without_a_secret_of_ours_nothing_is_authentic(self) -> None:
        """Here the address itself is the secret, so it is the other way round."""
        nobody = AccountConfig(1, "wassenger", "Line", "", {"device": "d1"}, {})

        assert self.webhook.authentic(HookRequest("POST", {}, {}, b"{}"), nobody)

    def one(self, body: dict[str, Any]) -> ProviderEvent:
        (only,) = self.parse(body)
        return only

    def test_a_reply(self) -> None:
        said = self.one(message())

        assert (said.kind, said.key, said.at) == (EventKind.REPLY, "message:3EB0AA", AT)
        assert (said.address, said.group, said.text) == ("+4917612345678", "", "hi")

    def test_a_reply_in_a_group(self) -> None:
        said = self.one(message(meta={"isGroup": True}, chat={"id": GROUP}, author="4917612345678@c.us"))

        assert (said.address, said.group) == ("+4917612345678", GROUP)

    def test_a_group_without_a_sender_says_the_group_at_least(self) -> None:
        said = self.one(message(meta={"isGroup": True}, chat={"id": GROUP}, fromNumber=GROUP))

        assert (said.address, said.group) == ("", GROUP)

    def test_our_own_messages_are_no_replies(self) -> None:
        assert self.parse(message(flow="outbound")) == []

    @pytest.mark.parametrize(
        ("name", "kind"), [("delivered", EventKind.DELIVERED), ("read", EventKind.READ), ("played", EventKind.READ)]
    )
    def test_receipts_name_both_ids(self, name: str, kind: EventKind) -> None:
        receipt = self.one(ack(name))

        assert (receipt.kind, receipt.provider_id, receipt.message_id) == (kind, "3EB0CC", "crier-7-0")
        assert receipt.key == f"{name}:3EB0CC"

    @pytest.mark.parametrize("reason", [{"failureReason": "Not on WhatsApp"}, {"error": "Not on WhatsApp"}])
    def test_a_late_refusal_has_its_words(self, reason: dict[str, str]) -> None:
        bounce = self.one(failed(**reason))

        assert (bounce.kind, bounce.text, bounce.message_id) == (EventKind.BOUNCE, "Not on WhatsApp", "crier-7-0")
        assert bounce.detail == {"kind": "unknown"}

    @pytest.mark.parametrize(("status", "state"), [("online", "active"), ("timeout", "disconnected")])
    def test_the_session(self, status: str, state: str) -> None:
        assert self.one(session(status)).detail == {"state": state}

    def test_another_device_is_not_ours(self) -> None:
        assert self.parse({**message(), "device": {"id": "d2"}}) == []

    # -- whole events, and what is none ------------------------------------------------------------------

    def test_a_sender_without_a_number_of_their_own_is_found_by_the_chat(self) -> None:
        assert self.one(message(fromNumber=None)).address == "+4917612345678"
        assert self.one(message(fromNumber="+49301234567")).address == "+49301234567"

    @pytest.mark.parametrize(
        ("more", "address"),
        [
            ({"fromNumber": "+4917612345678"}, "+4917612345678"),
            ({"fromNumber": None, "chat": {"id": "4917612345678@c.us"}}, "+4917612345678"),
            ({"fromNumber": "+491601234567", "from": "491601234567@lid", "chat": {"id": "491601234567@lid"}}, ""),
            ({"fromNumber": None, "chat": {"id": "999@lid"}}, ""),
        ],
        ids=["beside it", "the chat", "the hidden id's digits", "nowhere"],
    )
    def test_the_number_of_a_hidden_sender(self, more: dict[str, Any], address: str) -> None:
        assert self.one(message(**{"from": "999@lid"} | more)).address == address

    @pytest.mark.parametrize(
        ("more", "told"),
        [
            ({}, {"jid": "999@lid"}),
            ({"from": "998@lid", "chat": {"id": "4917612345678@c.us"}}, {"jid": "998@lid"}),
            ({"chat": {"id": "4917612345678@c.us"}}, {}),
        ],
        ids=["beside the chat", "the sender", "none"],
    )
    def test_a_hidden_id_is_told_beside_the_number(self, more: dict[str, Any], told: dict[str, str]) -> None:
        event = self.one(message(**more))
        assert (event.address, event.detail) == ("+4917612345678", told)

    @pytest.mark.parametrize(
        "more",
        [{"meta": {"isGroup": True}}, {"meta": None, "chat": {"id": GROUP}}, {"meta": {"isGroup": "yes"}}],
        ids=["a group without its id", "nobody says so", "odd"],
    )
    def test_what_is_not_clearly_a_group_is_none(self, more: dict[str, Any]) -> None:
        assert self.one(message(**more)).group == ""

    def test_a_receipt(self) -> None:
        assert self.one(ack("read")) == ProviderEvent(
            key="read:3EB0CC", kind=EventKind.READ, at=AT, provider_id="3EB0CC", message_id="crier-7-0"
        )

    def test_before_whatsapps_id_is_known_it_is_theirs(self) -> None:
        assert self.one(ack("read", waId=None)).provider_id == "w1"

    def test_a_reason_goes_before_an_error(self) -> None:
        assert self.one(failed(failureReason="Not there", error="x")).text == "Not there"
        assert self.one(failed()).key == "failed:w1"

    @pytest.mark.parametrize(
        "body",
        [message(id=""), ack("read", id="", waId=""), failed(id=None), session(""), ack("sent")],
        ids=["no id", "a receipt without an id", "a refusal without one", "no status", "on its way"],
    )
    def test_what_says_too_little_is_passed_over(self, body: dict[str, Any]) -> None:
        assert self.parse(body) == []

    @pytest.mark.parametrize(
        "data", [{"session": {"status": "offline"}, "status": "online"}, {"session": {}, "status": "offline"}]
    )
    def test_a_session_in_words(self, data: dict[str, Any]) -> None:
        assert self.one(event("number:session", data)) == ProviderEvent(
            key="session:offline:1780000000",
            kind=EventKind.SESSION,
            at=AT,
            text="The device is offline.",
            detail={"state": "disconnected"},
        )

    @pytest.mark.parametrize("device", [None, {"phone": "+4930123456"}])
    def test_a_webhook_that_names_no_device_is_ours(self, device: Any) -> None:
        assert len(self.parse({**message(), "device": device})) == 1
