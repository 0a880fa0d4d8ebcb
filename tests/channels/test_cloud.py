"""WhatsApp's Cloud API against a scripted server, and what each of Meta's codes means."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from accounts.channels.base import AccountConfig, Group, Kind, NotSent, Part, Refused, Sent, Transport, Unknown
from accounts.channels.cloud.answers import outcome_of
from accounts.channels.cloud.transport import CloudTransport
from accounts.channels.http import Answer
from accounts.channels.multipart import File, multipart
from tests.channels.contract import CONTENT, TEXT, Rig, TransportContract, media, send, use
from tests.gateways.cloud import GROUP_ID
from tests.gateways.process import GatewayRig, GatewayServer, judge


class CloudRig(GatewayRig):
    channel = "cloud"
    address = "+4917612345678"

    def settings(self) -> dict[str, Any]:
        return {"phone_number_id": "10200"}

    def secrets(self) -> dict[str, Any]:
        return {"access_token": "k"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayServer]:
    with GatewayServer(tmp_path_factory.mktemp("cloud"), "cloud") as running:
        yield running


@pytest.mark.processes
class TestContract(TransportContract):
    kinds = (
        Kind.AUTH,
        Kind.BANNED,
        Kind.RATE_LIMITED,
        Kind.SOFT_BOUNCE,
        Kind.UNAVAILABLE,
        Kind.RECIPIENT_GONE,
        Kind.NEW_CHATS_BLOCKED,
        Kind.CONTENT_REJECTED,
    )

    @pytest.fixture
    def rig(self, server: GatewayServer) -> CloudRig:
        return CloudRig(server)

    def test_check_names_the_number(self, rig: Rig) -> None:
        assert use(rig, lambda transport: transport.check()) == "WhatsApp as Choir +49 176 12345678"

    def test_groups_of_all_pages(self, rig: Rig) -> None:
        groups = use(rig, lambda transport: transport.groups())

        assert groups == [Group(GROUP_ID, "Choir"), Group(GROUP_ID[:-3] + "2ZD", "Board")]

    def test_an_uploaded_file_is_whole_and_its_id_holds_for_a_month(self, rig: CloudRig) -> None:
        handle = use(rig, lambda transport: transport.prepare(media()))

        (upload,) = rig.uploads()
        assert (upload.sha256, upload.size, upload.handle) == (media().sha256, len(CONTENT), handle.value)
        assert handle.expires_at is not None
        assert timedelta(days=28) < handle.expires_at - datetime.now(UTC) < timedelta(days=30)

    def test_a_group_is_addressed_by_metas_id(self, rig: CloudRig) -> None:
        rig.address = GROUP_ID

        assert isinstance(send(rig, TEXT, "m-1"), Sent)
        assert [r.to for r in rig.received()] == [GROUP_ID]

    def test_a_template_carries_the_text(self, rig: CloudRig) -> None:
        async def send_with(transport: Transport) -> Any:
            return await transport.send(rig.address, TEXT, "m-1")

        config = rig.account(template="reminder")
        rig.transport = lambda timeout=5: CloudTransport(config)  # type: ignore[method-assign]

        assert isinstance(use(rig, send_with), Sent)
        line = rig.server.book().lines()[-1]
        assert (line["kind"], line["text"]) == ("template", TEXT.text)


# -- what the answers mean --------------------------------------------------------------------------------


def error(code: int | None, details: str = "") -> dict[str, Any]:
    return {"error": {"message": "No", "type": "OAuthException", "code": code, "error_data": {"details": details}}}


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        *((code, Kind.AUTH) for code in (3, 10, 190, 200, 294, 131005, 131042, 133010)),
        *((code, Kind.BANNED) for code in (368, 131031, 131048, 131064)),
        *((code, Kind.RATE_LIMITED) for code in (4, 80007, 130429, 131208, 133016)),
        *((code, Kind.UNAVAILABLE) for code in (131016, 131057)),
        *((code, Kind.RECIPIENT_GONE) for code in (131026, 131050, 130472, 131020, 131041, 131207)),
        *((code, Kind.CONTENT_REJECTED) for code in (100, 131047, 131051, 131053, 131215, 132000, 132015)),
        (131049, Kind.NEW_CHATS_BLOCKED),
        (131056, Kind.SOFT_BOUNCE),
    ],
)
@pytest.mark.parametrize("status", [400, 500])
def test_every_documented_code_whatever_the_status(code: int, kind: Kind, status: int) -> None:
    judge(outcome_of(Answer(status, error(code))), kind)


@pytest.mark.parametrize(
    ("status", "body", "outcome"),
    [
        pytest.param(200, {"messages": [{"id": "wamid.x"}]}, Sent("wamid.x"), id="accepted"),
        pytest.param(
            200, {"messages": [{"id": "w", "message_status": "held_for_quality_assessment"}]}, Sent("w"), id="held"
        ),
        pytest.param(200, {"messages": []}, Unknown, id="without an id"),
        pytest.param(200, {}, Unknown, id="empty"),
        pytest.param(400, error(999_999), Kind.UNKNOWN, id="a code of tomorrow"),
        pytest.param(500, error(999_999), Unknown, id="a code of tomorrow, and their fault"),
        pytest.param(500, error(131000), Unknown, id="something went wrong"),
        pytest.param(404, {}, Kind.UNKNOWN, id="no JSON"),
        pytest.param(503, {}, Unknown, id="a proxy"),
        pytest.param(302, {}, Unknown, id="redirect"),
    ],
)
def test_other_answers(status: int, body: dict[str, Any], outcome: Any) -> None:
    judge(outcome_of(Answer(status, body)), outcome)


def test_a_pair_that_is_too_fast_waits_six_seconds() -> None:
    outcome = outcome_of(Answer(400, error(131056)))

    assert isinstance(outcome, NotSent)
    assert outcome.retry_after == 6.0


def test_a_closed_window_says_what_to_do() -> None:
    outcome = outcome_of(Answer(400, error(131047, "More than 24 hours")))

    assert isinstance(outcome, NotSent)
    assert "More than 24 hours" in outcome.detail
    assert "Set a template" in outcome.detail


# -- what is asked for ------------------------------------------------------------------------------------


def requested(part: Part) -> dict[str, Any]:
    config = AccountConfig(1, "cloud", "Line", "", {"phone_number_id": "10200"}, {"access_token": "k"})
    made = asyncio.run(CloudTransport(config).message("+4917612345678", part, "m-1"))
    assert made.path == "/v23.0/10200/messages"
    body: dict[str, Any] = json.loads(made.content)
    return body


def test_a_text_keeps_the_plus_of_its_number() -> None:
    """Meta puts the business's own country in front of a number without it."""
    assert requested(TEXT) == {
        "messaging_product": "whatsapp",
        "recipient_type": "individual",
        "to": "+4917612345678",
        "type": "text",
        "text": {"body": TEXT.text},
        "biz_opaque_callback_data": "m-1",
    }


@pytest.mark.parametrize(
    ("kind", "file"),
    [
        ("image", {"id": "h", "caption": "Hello"}),
        ("video", {"id": "h", "caption": "Hello"}),
        ("document", {"id": "h", "caption": "Hello", "filename": "poster.png"}),
    ],
)
def test_files(kind: str, file: dict[str, Any]) -> None:
    assert requested(Part("1:0", 0, kind, "Hello", media=media(), handle="h"))[kind] == file


def test_audio_goes_without_a_caption_or_not_at_all() -> None:
    audio = Part("1:0", 0, "audio", media=media(), handle="h")

    assert requested(audio)["audio"] == {"id": "h"}
    with pytest.raises(Refused, match="a part of its own"):
        requested(replace(audio, text="Hello"))


def test_nothing_in_a_files_name_ends_its_header() -> None:
    body, mime = multipart([("a", "1"), ("a", "2")], [File("file", 'x"\r\ny.png', "image/png", b"--\r\n")])

    assert body.count(b'name="a"') == 2
    assert b'filename="x%22%0D%0Ay.png"' in body
    assert body.endswith(f"--{mime.partition('boundary=')[2]}--\r\n".encode())
