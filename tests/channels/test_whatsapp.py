"""The whatsapp transport keeps the contract, against a bridge with a scripted WhatsApp."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from accounts.channels.base import LONGEST_TIMEOUT, AccountConfig, Kind, NotSent
from accounts.channels.http import Answer
from accounts.channels.whatsapp.bridge.scripted import group_address
from accounts.channels.whatsapp.transport import WhatsAppTransport, checked
from tests.channels.contract import TEXT, Received, Rig, TransportContract, send
from tests.whatsapp.running import InThread

WORDS = {
    Kind.RATE_LIMITED: "server returned error 429",
    Kind.NEW_CHATS_BLOCKED: "server returned error 463",
    Kind.UNAVAILABLE: "failed to send message node: websocket not connected",
    Kind.RECIPIENT_GONE: "no LID found for 4915200000001@s.whatsapp.net from server",
    Kind.NOT_WRITABLE: "failed to get group members: you're not participating in that group",
    Kind.UNKNOWN: "server returned error 479",
}


class WhatsAppRig(Rig):
    address = group_address("1", 0)

    def __init__(self, bridge: InThread, settings: Any) -> None:
        self.bridge, self.settings = bridge, settings
        settings.WHATSAPP_BRIDGE_URL = bridge.url

    def transport(self, timeout: float = 5) -> WhatsAppTransport:
        transport = WhatsAppTransport(AccountConfig(1, "whatsapp", "Line", "", {}))
        transport.bridge.timeout = min(timeout, LONGEST_TIMEOUT)
        return transport

    def fail(self, kind: Kind) -> None:
        self.bridge.script(sends={"*": {"error": WORDS[kind]}})

    def drop_after_accept(self) -> None:
        self.bridge.script(sends={"*": {"drop": True}})

    def stay_silent(self) -> None:
        self.bridge.script(sends={"*": {"hang": True}})

    def go_down(self) -> None:
        self.bridge.stop()

    def refuse_login(self, words: str) -> None:
        self.bridge.happen(1, event="ConnectFailure", fields={"Reason": 1, "Message": words})

    def received(self) -> list[Received]:
        journal = self.bridge.bridge.sessions[1].journal
        ids = dict(journal.db.execute("SELECT provider_id, message_id FROM sent"))
        return [Received(line["to"], line["text"], ids.get(line["id"], "")) for line in self.bridge.delivered()]

    def fail_upload(self) -> None:
        self.bridge.script(upload={"error": "upload failed with status code 500"})


class TestWhatsApp(TransportContract):
    kinds = tuple(WORDS)

    @pytest.fixture
    def rig(self, tmp_path: Path, settings: Any) -> Iterator[Rig]:
        with InThread(tmp_path, 1, latency_ms=[1, 2]) as bridge:
            bridge.wait_state(1, "connected")
            yield WhatsAppRig(bridge, settings)

    def test_a_refused_connection_is_not_sent(self, rig: Rig) -> None:
        """A bridge that is down is nobody's fault but its own: the lane waits."""
        rig.go_down()

        outcome = send(rig, TEXT, "m-1")

        assert isinstance(outcome, NotSent)
        assert outcome.kind is Kind.UNAVAILABLE


@pytest.mark.parametrize(
    ("library", "words"),
    [
        ("", "WhatsApp +4917612345678"),
        ("0.5.2", "WhatsApp +4917612345678 by neonize 0.5.2"),
        (
            "0.6.0",
            "WhatsApp +4917612345678 by neonize 0.6.0. Crier is tested with neonize 0.5; what version 0.6.0 answers "
            "may be misread.",
        ),
    ],
)
def test_the_version_is_told_and_compared(library: str, words: str) -> None:
    assert checked(Answer(200, {"connected": True, "address": "+4917612345678", "library": library})) == words
