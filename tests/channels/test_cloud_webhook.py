"""What Meta reports, with the samples of its documentation."""

from __future__ import annotations

import hashlib
import hmac
from datetime import UTC, datetime
from typing import Any

import pytest

from accounts.channels.base import AccountConfig
from accounts.channels.provider_events import EventKind, HookRequest, ProviderEvent
from tests.channels.hooks import WebhookContract
from tests.gateways.cloud import GROUP_ID

AT = datetime.fromtimestamp(1_780_000_000, UTC)


def change(field: str, value: dict[str, Any]) -> dict[str, Any]:
    entry = {"id": "W", "time": 1_780_000_000, "changes": [{"field": field, "value": value}]}
    return {"object": "whatsapp_business_account", "entry": [entry]}


def value(number: str = "10200", **more: Any) -> dict[str, Any]:
    metadata = {"display_phone_number": "4930123456", "phone_number_id": number}
    return change("messages", {"messaging_product": "whatsapp", "metadata": metadata, **more})


def message(**more: Any) -> dict[str, Any]:
    text = {"type": "text", "text": {"body": "hi"}}
    base = {"from": "4917612345678", "id": "wamid.a", "timestamp": "1780000000", **text, **more}
    return value(contacts=[{"profile": {"name": "Ana"}, "wa_id": "4917612345678"}], messages=[base])


def status(name: str, **more: Any) -> dict[str, Any]:
    base = {"id": "wamid.x", "status": name, "timestamp": "1780000000", "recipient_id": "4917612345678"}
    return value(statuses=[{**base, "biz_opaque_callback_data": "crier-7-0", **more}])


def failed(code: int = 131026) -> dict[str, Any]:
    return status("failed", errors=[{"code": code, "title": "Undeliverable", "error_data": {"details": "No app"}}])


def preference(value: Any, **more: Any) -> dict[str, Any]:
    wish = {"wa_id": "4917612345678", "category": "marketing_messages", "value": value, "timestamp": 1_780_000_000}
    metadata = {"display_phone_number": "4930123456", "phone_number_id": "10200"}
    return change("user_preferences", {"metadata": metadata, "user_preferences": [wish | more]})


def restricted(*limits: Any) -> dict[str, Any]:
    return change("account_update", {"event": "ACCOUNT_RESTRICTION", "restriction_info": list(limits)})


def limit(expiration: Any) -> dict[str, Any]:
    return {"restriction_type": "RESTRICTED_BIZ_INITIATED_MESSAGING", "expiration": expiration}


def account_update(state: Any) -> dict[str, Any]:
    return change("account_update", {"event": "DISABLED_UPDATE", "ban_info": {"waba_ban_state": state}})


class TestWebhook(WebhookContract):
    channel = "cloud"
    account = AccountConfig(
        1,
        "cloud",
        "Line",
        "",
        {"phone_number_id": "10200", "business_account_id": "W"},
        {"app_secret": "k3y", "verify_token": "v3rify"},
    )
    samples = (
        message(),
        status("delivered"),
        status("read"),
        failed(),
        preference("stop"),
        preference("resume"),
        account_update(["DISABLE"]),
        restricted(limit(1_780_086_400)),
    )
    future = (
        change("flows", {"event": "x"}),
        status("hummed"),
        status("sent"),
        message(type="hologram", text=None, hologram={"id": "1"}),
        preference("sometimes"),
        preference("stop", category="chess"),
        restricted({"restriction_type": "RESTRICTED_DAYDREAMING", "expiration": 1_780_086_400}),
        account_update("SCHEDULE_FOR_DISABLE"),
        {"object": "x", "entry": []},
    )

    def headers(self, body: bytes) -> dict[str, str]:
        return {"x-hub-signature-256": "sha256=" + hmac.new(b"k3y", body, hashlib.sha256).hexdigest()}

    def one(self, body: dict[str, Any]) -> ProviderEvent:
        (event,) = self.parse(body)
        return event

    def test_a_reply(self) -> None:
        event = self.one(message())

        assert (event.kind, event.key, event.at) == (EventKind.REPLY, "message:wamid.a", AT)
        assert (event.address, event.group, event.text) == ("+4917612345678", "", "hi")
        assert event.provider_id == ""

    def test_a_reply_that_quotes(self) -> None:
        assert self.one(message(context={"from": "49301234", "id": "wamid.x"})).provider_id == "wamid.x"

    @pytest.mark.parametrize(
        "said",
        [
            {"type": "button", "text": None, "button": {"text": "hi"}},
            {"type": "image", "text": None, "image": {"id": "1", "caption": "hi"}},
            {"type": "interactive", "text": None, "interactive": {"button_reply": {"title": "hi"}}},
        ],
    )
    def test_where_the_text_may_be(self, said: dict[str, Any]) -> None:
        assert self.one(message(**said)).text == "hi"

    def test_a_reply_in_a_group(self) -> None:
        event = self.one(message(group_id=GROUP_ID))

        assert (event.address, event.group) == ("+4917612345678", GROUP_ID)

    def test_a_person_with_a_user_name_has_no_number(self) -> None:
        for name in ("user_id", "from_user_id"):
            event = self.one(message(**{"from": "", name: "DE.13491208655302741918"}))

            assert (event.address, event.detail["user_id"]) == ("", "DE.13491208655302741918")

    @pytest.mark.parametrize(
        ("name", "kind"), [("delivered", EventKind.DELIVERED), ("read", EventKind.READ), ("played", EventKind.READ)]
    )
    def test_receipts_name_both_ids(self, name: str, kind: EventKind) -> None:
        event = self.one(status(name))

        assert (event.kind, event.provider_id, event.message_id) == (kind, "wamid.x", "crier-7-0")
        assert (event.address, event.at, event.key) == ("+4917612345678", AT, f"status:wamid.x:{name}")

    @pytest.mark.parametrize(
        ("code", "detail"), [(131026, {"kind": "recipient_gone", "certain": True}), (999_999, {"kind": "unknown"})]
    )
    def test_a_late_refusal_has_its_kind_and_metas_words(self, code: int, detail: dict[str, Any]) -> None:
        event = self.one(failed(code))

        assert (event.kind, event.detail) == (EventKind.BOUNCE, detail)
        assert event.text == f"Undeliverable: No app ({code})"

    def test_a_late_limit_of_one_person_says_how_long(self) -> None:
        event = self.one(failed(131049))

        assert event.detail == {"kind": "recipient_limited", "certain": True, "retry_after": 86_400.0}
        assert event.text.startswith("Undeliverable: No app (131049). WhatsApp limits how many marketing messages")

    def test_members_of_a_group_have_receipts_of_their_own(self) -> None:
        member = {"recipient_id": GROUP_ID, "recipient_type": "group"}
        events = [
            self.one(status("read", recipient_participant_id=number, **member))
            for number in ("4917612345678", "4917612345679")
        ]

        assert {event.group for event in events} == {GROUP_ID}
        assert len({event.key for event in events}) == 2

    def test_another_number_of_the_same_app_is_not_ours(self) -> None:
        assert self.parse(value("999", messages=[{"id": "wamid.a", "from": "4917612345678"}])) == []

    @pytest.mark.parametrize(
        ("body", "named"),
        [
            (message(), set()),
            (status("read"), set()),
            (value("999", messages=[]), {("phone_number_id", "999")}),
            (account_update("DISABLE"), {("business_account_id", "W")}),
            (change("flows", {"event": "x"}), set()),
        ],
        ids=["ours", "a receipt of ours", "another number", "a business account", "neither"],
    )
    def test_which_other_accounts_a_report_is_about(self, body: dict[str, Any], named: set[tuple[str, str]]) -> None:
        assert self.webhook.about_others(self.request(body), self.account) == named

    @pytest.mark.parametrize(("state", "expected"), [("DISABLE", "banned"), (["REINSTATE"], "active")])
    def test_a_business_account_is_disabled_or_back(self, state: Any, expected: str) -> None:
        event = self.one(account_update(state))

        assert (event.kind, event.detail, event.at) == (EventKind.SESSION, {"state": expected}, AT)

    def test_a_restriction_without_an_end_is_for_an_operator(self) -> None:
        assert self.one(restricted(limit(1_780_086_400), limit(None))).detail == {"state": "banned"}

    @pytest.mark.parametrize("label", ["Stop promotions", " STOP  Promotions ", "Parar promoções"])
    @pytest.mark.parametrize("place", ["text", "payload"])
    def test_metas_own_button_opts_out(self, label: str, place: str) -> None:
        event = self.one(message(type="button", text=None, button={"text": "x", "payload": "y"} | {place: label}))

        assert (event.kind, event.address) == (EventKind.UNSUBSCRIBE, "+4917612345678")

    def test_a_preference_that_is_taken_back_is_another_event(self) -> None:
        stop, resume = self.one(preference("stop")), self.one(preference("resume"))

        assert stop.key != resume.key
        assert (stop.detail, resume.detail) == ({}, {"resumed": True})

    def test_several_events_in_one_body(self) -> None:
        both = message()
        both["entry"] += status("read")["entry"]

        assert [event.kind for event in self.parse(both)] == [EventKind.REPLY, EventKind.READ]

    @pytest.mark.parametrize(
        ("query", "answer"),
        [
            ({"hub.mode": "subscribe", "hub.verify_token": "v3rify", "hub.challenge": "42"}, "42"),
            ({"hub.mode": "subscribe", "hub.verify_token": "wrong", "hub.challenge": "42"}, None),
            ({"hub.mode": "unsubscribe", "hub.verify_token": "v3rify", "hub.challenge": "42"}, None),
            ({"hub.mode": "subscribe", "hub.challenge": "42"}, None),
            ({}, None),
        ],
        ids=["ours", "wrong token", "another mode", "no token", "nothing"],
    )
    def test_the_challenge_is_answered_only_for_our_token(self, query: dict[str, str], answer: str | None) -> None:
        assert self.webhook.greeting(HookRequest("GET", {}, query, b""), self.account) == answer
        nobody = AccountConfig(1, "cloud", "Line", "", {}, {})
        assert self.webhook.greeting(HookRequest("GET", {}, query, b""), nobody) is None

    # -- whole events, and what is none ------------------------------------------------------------------

    @pytest.mark.parametrize("kind", ["video", "document"])
    def test_captions_are_texts_too(self, kind: str) -> None:
        assert self.one(message(type=kind, text=None, **{kind: {"caption": "hi"}})).text == "hi"

    def test_a_receipt_of_a_groups_member(self) -> None:
        member = {"recipient_id": GROUP_ID, "recipient_type": "group", "recipient_participant_id": "4917612345678"}

        assert self.one(status("read", **member)) == ProviderEvent(
            key="status:wamid.x:read:4917612345678",
            kind=EventKind.READ,
            at=AT,
            address="+4917612345678",
            group=GROUP_ID,
            provider_id="wamid.x",
            message_id="crier-7-0",
        )

    def test_a_receipt_of_a_person_has_no_group(self) -> None:
        event = self.one(status("read", recipient_type="individual", errors=[{"code": 1, "title": "x"}]))

        assert (event.group, event.text, event.detail) == ("", "", {})

    def test_a_refusal_without_a_reason_is_one(self) -> None:
        event = self.one(status("failed"))

        assert (event.kind, event.text, event.detail) == (EventKind.BOUNCE, "", {"kind": "unknown"})

    @pytest.mark.parametrize(
        "body",
        [
            message(id=""),
            status("read", id=""),
            value(messages="x", statuses={"id": "y"}),
            account_update(None),
            account_update([["DISABLE"], "x"]),
        ],
        ids=["no id", "a receipt without an id", "no lists", "no state", "odd states"],
    )
    def test_what_says_too_little_is_passed_over(self, body: dict[str, Any]) -> None:
        assert self.parse(body) == []

    def test_a_ban_in_words(self) -> None:
        assert self.one(account_update(["x", "DISABLE"])) == ProviderEvent(
            key="account:DISABLE:1780000000",
            kind=EventKind.SESSION,
            at=AT,
            text="Meta reports for the business account: DISABLE.",
            detail={"state": "banned"},
        )

    def test_a_signature_names_how_it_was_made(self) -> None:
        good = self.request(message())
        bare = good.headers["x-hub-signature-256"].removeprefix("sha256=")

        assert not self.webhook.authentic(
            HookRequest("POST", {"x-hub-signature-256": bare}, {}, good.body), self.account
        )
