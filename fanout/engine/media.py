"""Upload once per account and file (per kind of part, where the provider tells them apart), and reuse it everywhere:
across targets, runs and restarts."""

from __future__ import annotations

import asyncio
from datetime import datetime

from accounts.channels.base import Kind, Media, NotSent, Transport, UploadFailed
from fanout.engine import sql
from fanout.engine.clock import Clock
from fanout.engine.ledger import Ledger
from fanout.engine.loading import LaneRun, Uploaded


def missing(run: LaneRun, handles: dict[tuple[str, str], Uploaded], now: datetime) -> Media | None:
    """The first file of the run without a usable handle."""
    for part in run.parts:
        if part.media is None:
            continue
        uploaded = handles.get(part.media.key)
        if uploaded is None or not uploaded.usable(now):
            return part.media
    return None


async def upload(
    ledger: Ledger, clock: Clock, transport: Transport, account_id: int, file: Media, limit: float
) -> Uploaded | NotSent:
    try:
        async with asyncio.timeout(limit):
            handle = await transport.prepare(file)
    except TimeoutError:
        return NotSent(Kind.UNAVAILABLE, f"the upload did not end within {limit:.0f} s")
    except UploadFailed as failed:
        return failed.reason
    except OSError as error:  # our own copy of the file is gone or unreadable
        return NotSent(Kind.CONTENT_REJECTED, f"cannot be read: {error.strerror or error}")
    columns = (account_id, *file.key, handle.value, file.size, clock.now(), handle.expires_at)
    await ledger.write(sql.REMEMBER_UPLOAD, columns)
    return Uploaded(handle.value, handle.expires_at)
