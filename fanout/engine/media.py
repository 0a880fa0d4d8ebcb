"""Upload once per account and file, reuse everywhere: across targets, runs and restarts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from accounts.transports.base import Kind, Media, NotSent, Transport, UploadFailed
from fanout.engine import sql
from fanout.engine.clock import Clock
from fanout.engine.facts import RunView
from fanout.engine.ledger import Ledger

# A handle that is about to expire is not worth starting with.
EXPIRY_MARGIN = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Uploaded:
    handle: str
    expires_at: datetime | None

    def usable(self, now: datetime) -> bool:
        return self.expires_at is None or self.expires_at - EXPIRY_MARGIN > now


async def load(ledger: Ledger, account_id: int, runs: Iterable[RunView]) -> dict[str, Uploaded]:
    """The handles that the account already has for the files of its live runs."""
    wanted = list({part.media.sha256 for run in runs for part in run.parts if part.media})
    if not wanted:
        return {}
    rows = await ledger.read(sql.UPLOADS, (account_id, wanted))
    return {row["sha256"]: Uploaded(row["handle"], row["expires_at"]) for row in rows}


def missing(run: RunView, handles: dict[str, Uploaded], now: datetime) -> Media | None:
    """The first file of the run without a usable handle."""
    for part in run.parts:
        if part.media is None:
            continue
        uploaded = handles.get(part.media.sha256)
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
    given = (account_id, file.sha256, handle.value, file.size, clock.now(), handle.expires_at)
    await ledger.write(sql.REMEMBER_UPLOAD, given)
    return Uploaded(handle.value, handle.expires_at)
