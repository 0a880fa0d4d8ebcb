"""Which uploads a run needs: one for each file, and for each kind of part where the provider keeps them apart."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from accounts.channels.registry import channel
from fanout.engine import dispatcher
from fanout.engine.loading import LaneRun, Uploaded, frozen_part

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
    parts = [frozen_part(1, n, part, "message", channel(channel_key)) for n, part in enumerate(PARTS)]
    run = cast(LaneRun, SimpleNamespace(parts=parts))
    transport: Any = SimpleNamespace(uploads_media=True)
    account: Any = dispatcher.Uploads(cast(Any, None), cast(Any, None), transport, 1, {}, None)
    while (file := account.missing(run, NOW)) is not None:
        account.handles[file.key] = Uploaded("handle", None)
    return list(account.handles)


@pytest.mark.parametrize(("key", "kinds"), [("whatsapp", ["audio", "document"]), ("cloud", [""]), ("wassenger", [""])])
def test_a_file_is_uploaded_once_for_each_way_it_is_sent(key: str, kinds: list[str]) -> None:
    assert uploads(key) == [("a" * 64, kind) for kind in kinds]
