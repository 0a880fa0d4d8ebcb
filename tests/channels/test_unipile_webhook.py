"""What Unipile reports, for mail and LinkedIn."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import time_machine

from accounts.channels.base import AccountConfig
from accounts.channels.provider_events import EventKind, ProviderEvent
from tests.channels.hooks import WebhookContract

AT = datetime(2026, 6, 1, 10, tzinfo=UTC)
NOW = datetime(2026, 6, 1, 10, 20, tzinfo=UTC)


def message(**more: Any) -> dict[str, Any]:
    return {
        "event": "message_received",
        "account_id": "a1",
        "account_type": "LINKEDIN",
        "account_info": {"user_id": "me1"},
        "chat_id": "c1",
        "message_id": "m1",
        "message": "hi",
        "timestamp": "2026-06-01T10:00:00.000Z",
        "sender": {
            "attendee_provider_id": "ACoAAA1bCdEfGhIjKlMnOpQrStUv",
            "attendee_name": "Ana",
            "attendee_profile_url": "https://www.linkedin.com/in/ana-silva/",
        },
        "attendees": [],
        **more,
    }


def mail(**more: Any) -> dict[str, Any]:
    sender = {"identifier": "Ana@X.org", "display_name": "Ana"}
    base = {"event": "mail_received", "email_id": "e1", "account_id": "a1", "from_attendee": sender}
    return {**base, "subject": "Re", "message_id": "<1@x>", "date": "2026-06-01T10:00:00.000Z", **more}


def status(name: str) -> dict[str, Any]:
    return {"AccountStatus": {"account_id": "a1", "account_type": "LINKEDIN", "message": name}}


def receipt(name: str) -> dict[str, Any]:
    return {"event": name, "account_id": "a1", "message_id": "m1", "timestamp": "2026-06-01T10:00:00.000Z"}


class TestWebhook(WebhookContract):
    channel = "unipile"
    account = AccountConfig(1, "unipile", "Line", "", {"account_id": "a1"}, {"webhook_secret": "k3y"})
    samples = (message(), mail(), receipt("message_read"), receipt("message_delivered"), status("CREDENTIALS"))
    future = (
        {"event": "new_relation", "account_id": "a1", "user_provider_id": "ACo1"},
        {"event": "mail_opened", "account_id": "a1"},
        status("HIBERNATING"),
    )
    covers_body = False

    @pytest.fixture(autouse=True)
    def clock(self) -> Iterator[time_machine.Traveller]:
        with time_machine.travel(NOW, tick=False) as traveller:
            yield traveller

    def headers(self, body: bytes) -> dict[str, str]:
        return {"x-crier-token": "k3y"}

    def one(self, body: dict[str, Any]) -> ProviderEvent:
        (event,) = self.parse(body)
        return event

    def test_a_reply_on_linkedin(self) -> None:
        event = self.one(message())

        assert (event.kind, event.key, event.at) == (EventKind.REPLY, "message_received:m1", AT)
        assert (event.address, event.text) == ("linkedin.com/in/ana-silva", "hi")
        assert event.detail == {"seen_as": "Ana", "member": "ACoAAA1bCdEfGhIjKlMnOpQrStUv"}

    def test_a_sender_without_a_profile_is_named_by_the_members_id(self) -> None:
        event = self.one(message(sender={"attendee_provider_id": "ACoAAA1bCdEfGhIjKlMnOpQrStUv"}))

        assert event.address == "linkedin.com/in/ACoAAA1bCdEfGhIjKlMnOpQrStUv"

    def test_our_own_messages_are_no_replies(self) -> None:
        assert self.parse(message(sender={"attendee_provider_id": "me1"})) == []

    def test_a_mail(self) -> None:
        event = self.one(mail())

        assert (event.kind, event.key, event.address) == (EventKind.REPLY, "mail_received:<1@x>", "ana@x.org")

    def test_what_a_mail_quotes_is_not_what_was_said(self) -> None:
        quoted = "STOP\n\nOn Mon, 1 Jun 2026 at 10:00, Bob <bob@x.org> wrote:\n> Hello Ana\n"
        assert self.one(mail(body_plain=quoted)).text == "STOP"
        assert self.one(mail(body_plain="")).text == "Re"

    @pytest.mark.parametrize(
        ("subject", "text", "until"),
        [
            ("Automatic reply: Choir", "I'm on vacation until 12 June.", "12 June"),
            ("Abwesenheitsnotiz: Probe", "Bin bis 12.06. im Urlaub.", "12.06"),
            ("Out of office", "Back on Monday.", "Monday"),
            ("Out of office until 12 June", "", "12 June"),
            ("Automatic reply: Choir", "", ""),
            ("Read: Choir", "", ""),
        ],
    )
    def test_a_programs_mail_is_told_by_its_subject_however_short(self, subject: str, text: str, until: str) -> None:
        event = self.one(mail(subject=subject, body_plain=text))
        assert (event.kind, event.detail["away_until"], event.text) == (EventKind.AUTOMATIC, until, text or subject)

    @pytest.mark.parametrize(
        ("name", "kind"), [("message_delivered", EventKind.DELIVERED), ("message_read", EventKind.READ)]
    )
    def test_receipts(self, name: str, kind: EventKind) -> None:
        event = self.one(receipt(name))

        assert (event.kind, event.provider_id, event.key, event.at) == (kind, "m1", f"{name}:m1", AT)

    @pytest.mark.parametrize(
        ("name", "state"), [("OK", "active"), ("CREDENTIALS", "unpaired"), ("ERROR", "disconnected")]
    )
    def test_the_account(self, name: str, state: str) -> None:
        event = self.one(status(name))

        assert (event.kind, event.detail) == (EventKind.SESSION, {"state": state})

    def test_the_same_state_counts_anew_after_an_hour(self, clock: time_machine.Traveller) -> None:
        first = self.one(status("CREDENTIALS")).key
        clock.shift(60)
        repeated = self.one(status("CREDENTIALS")).key
        clock.shift(3600)

        assert first == repeated != self.one(status("CREDENTIALS")).key

    def test_another_account_is_not_ours(self) -> None:
        assert self.parse(message(account_id="a2")) == []

    # -- whole events, and what is none ------------------------------------------------------------------

    @pytest.mark.parametrize(
        ("sender", "address"),
        [
            ({"attendee_public_identifier": "ana", "attendee_profile_url": "x"}, "linkedin.com/in/ana"),
            ({"attendee_public_identifier": "", "attendee_profile_url": "linkedin.com/in/ana"}, "linkedin.com/in/ana"),
            ({}, ""),
        ],
        ids=["by name", "by address", "by nothing"],
    )
    def test_who_wrote(self, sender: dict[str, str], address: str) -> None:
        assert self.one(message(sender={"attendee_provider_id": "???", **sender})).address == address

    @pytest.mark.parametrize(
        "body",
        [
            message(message_id=""),
            message(sender={"attendee_name": "Ana"}),
            message(sender={"attendee_name": "Ana"}, account_info={"user_id": "me1"}),
            mail(from_attendee={"identifier": "no address"}),
            mail(message_id="", email_id=""),
            receipt("message_read") | {"message_id": ""},
            receipt("message_received") | {"sender": None},
        ],
        ids=[
            "no id",
            "nobody wrote",
            "nobody wrote to us",
            "no address",
            "a mail without an id",
            "a receipt without an id",
            "a message without a sender",
        ],
    )
    def test_what_says_too_little_is_passed_over(self, body: dict[str, Any]) -> None:
        assert self.parse(body) == []

    def test_a_mail_without_an_id_of_its_own_has_theirs(self) -> None:
        assert self.one(mail(message_id="")).key == "mail_received:e1"

    def test_a_whole_mail(self) -> None:
        assert self.one(mail(body_plain="STOP")) == ProviderEvent(
            key="mail_received:<1@x>",
            kind=EventKind.REPLY,
            at=AT,
            address="ana@x.org",
            text="STOP",
            detail={"seen_as": "Ana"},
        )

    @pytest.mark.parametrize(
        ("name", "state"),
        [
            *((name, "active") for name in ("OK", "CREATION_SUCCESS", "RECONNECTED", "SYNC_SUCCESS")),
            *((name, "unpaired") for name in ("CREDENTIALS", "PERMISSIONS", "DELETED")),
            *((name, "disconnected") for name in ("STOPPED", "ERROR", "CONNECTING")),
        ],
    )
    def test_a_state_in_words(self, name: str, state: str) -> None:
        assert self.one(status(name)) == ProviderEvent(
            key=f"status:{name}:{int(NOW.timestamp()) // 3600}",
            kind=EventKind.SESSION,
            text=f"Unipile says that the account is {name}.",
            detail={"state": state},
        )

    def test_another_accounts_state_is_not_ours(self) -> None:
        assert self.parse({"AccountStatus": {"account_id": "a2", "message": "OK"}}) == []
