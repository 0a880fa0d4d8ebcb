"""Uploads of a run's files before it is sent."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest

from accounts.channels.registry import channel
from accounts.channels.sandbox.script import Script
from fanout.engine.loading import LaneRun, Uploaded, read_part
from fanout.engine.uploads import Uploads
from tests.engine.stage import Stage

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SONG = {"sha256": "a" * 64, "filename": "song.ogg", "mime": "audio/ogg", "size": 4}
#: the song by itself, with a caption, as a document, and by itself again
PARTS: list[dict[str, Any]] = [
    {"kind": "audio", "text": "", "media": SONG},
    {"kind": "audio", "text": "Hello {name}", "media": SONG, "personal": True},
    {"kind": "document", "text": "", "media": SONG},
    {"kind": "audio", "text": "", "media": SONG},
]


def uploads(channel_key: str) -> list[tuple[str, str]]:
    """The keys of the uploads that a lane makes before it sends."""
    parts = [read_part(1, n, part, "message", channel(channel_key)) for n, part in enumerate(PARTS)]
    run = cast(LaneRun, SimpleNamespace(parts=parts))
    transport: Any = SimpleNamespace(uploads_media=True)
    account: Any = Uploads(cast(Any, None), cast(Any, None), transport, 1, {}, None)
    while (file := account.missing(run, NOW)) is not None:
        account.handles[file.key] = Uploaded("handle", None)
    return list(account.handles)


@pytest.mark.parametrize(("key", "kinds"), [("whatsapp", ["audio", "document"]), ("cloud", [""]), ("wassenger", [""])])
def test_a_file_is_uploaded_once_for_each_way_it_is_sent(key: str, kinds: list[str]) -> None:
    assert uploads(key) == [("a" * 64, kind) for kind in kinds]


def test_an_upload_does_not_eat_the_gap(stage: Stage) -> None:
    account = stage.account(min_gap_seconds=5, max_gap_seconds=6)
    stage.provider.set_script(Script({"*": {"latency_ms": [80, 200], "upload_latency_ms": 15000}}))
    stage.fire(stage.reminder(account, groups=5, parts=("image",)))
    stage.play(60)
    assert min(b - a for a, b in pairwise(d.t for d in stage.book.deliveries())) > 4.5
