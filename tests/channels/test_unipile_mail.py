"""Mail by Unipile against a scripted server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from accounts.channels.base import AccountConfig, Kind, Outcome, Part, Sent, Unknown
from accounts.channels.http import Answer
from accounts.channels.unipile_mail.transport import UnipileMailTransport, body_of
from tests.channels.contract import CONTENT, TEXT, Received, Rig, TransportContract, media, use
from tests.gateways.fake_gateway import FakeGateway
from tests.gateways.process import GatewayRig, GatewayServer


class MailRig(GatewayRig):
    channel = "unipile_mail"
    address = "ann@example.org"

    def settings(self) -> dict[str, Any]:
        return {"account_id": "a1"}

    def secrets(self) -> dict[str, Any]:
        return {"api_key": "k"}

    def received(self) -> list[Received]:
        """The body is HTML; the text is what a reader sees."""
        return [r._replace(text=r.text.replace("&lt;", "<").replace("&amp;", "&")) for r in super().received()]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayServer]:
    with GatewayServer(tmp_path_factory.mktemp("unipile"), "unipile") as running:
        yield running


@pytest.mark.processes
class TestContract(TransportContract):
    kinds = (Kind.AUTH, Kind.BANNED, Kind.RATE_LIMITED, Kind.RECIPIENT_GONE, Kind.UNAVAILABLE)

    @pytest.fixture
    def rig(self, server: GatewayServer) -> Rig:
        return MailRig(server)

    def test_check_names_the_account(self, rig: Rig) -> None:
        assert use(rig, lambda transport: transport.check()) == "Mail (Unipile) API v1 as Ann Lee"


def test_a_mail_has_recipient_subject_body_and_file() -> None:
    settings = {"url": "https://api8.unipile.com:13851", "account_id": "a1"}
    transport = UnipileMailTransport(AccountConfig(1, "unipile_mail", "Line", "", settings, {"api_key": "k"}))
    part = Part("1:0", 0, "image", "The poster", "Come!", media=media())

    made = asyncio.run(transport.message("ann@example.org", part, "m-1"))

    assert made.path == "/api/v1/emails"
    assert b'[{"display_name": "ann@example.org", "identifier": "ann@example.org"}]' in made.content
    assert b'name="subject"\r\n\r\nCome!\r\n' in made.content
    assert b'name="attachments"; filename="poster.png"\r\nContent-Type: image/png\r\n\r\n' + CONTENT in made.content


@pytest.mark.parametrize(
    ("part", "body"),
    [
        (TEXT, TEXT.text),
        (Part("1:0", 0, "text", "a < b\nc"), "a &lt; b<br>\nc"),
        (Part("1:0", 0, "text", '"so" they\'re'), '"so" they\'re'),
        (Part("1:0", 0, "text", "plain", html="<b>rich</b>"), "<b>rich</b>"),
    ],
    ids=["plain", "escaped, with its lines", "quotes stay", "HTML of its own"],
)
def test_a_plain_text_keeps_its_lines(part: Part, body: str) -> None:
    assert body_of(part) == body


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        ({"object": "EmailSent", "tracking_id": "t", "provider_id": "p"}, Sent("t")),
        ({"object": "EmailSent", "provider_id": "p"}, Sent("p")),
        ({"object": "EmailSent"}, Sent("")),
        ({"message_id": "m"}, Unknown("accepted without an id")),
    ],
    ids=["whole", "not tracked", "without ids", "nothing of theirs"],
)
def test_a_mail_that_was_sent_has_the_id_that_its_receipts_name(body: dict[str, Any], outcome: Outcome) -> None:
    gateway = FakeGateway("unipile_mail", {"/api/v1/emails": Answer(201, body)})

    assert gateway.use(lambda transport: transport.send("ann@example.org", TEXT, "m-1")) == outcome
    assert b'name="account_id"\r\n\r\na 1\r\n' in gateway.requests[0].body
