"""Upload a run's files to the account's provider before anything of the run is sent."""

from __future__ import annotations

import asyncio
from datetime import datetime

from accounts.channels.base import Kind, Media, NotSent, Transport, UploadFailed
from fanout.engine.clock import Clock
from fanout.engine.ledger import Ledger
from fanout.engine.loading import LaneRun, Uploaded

UPLOAD_LIMIT = 40.0  # seconds that an upload has after its slice; none begins then

REMEMBER_UPLOAD = """
INSERT INTO fanout_mediaupload (account_id, sha256, kind, handle, size, uploaded_at, expires_at)
VALUES (%s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (account_id, sha256, kind) DO UPDATE
   SET handle = excluded.handle, uploaded_at = excluded.uploaded_at, expires_at = excluded.expires_at
"""


class Uploads:
    """An account's files at its provider. A file is uploaded once per account (and kind of part, where the provider
    tells them apart) and reused across targets, runs and restarts."""

    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        transport: Transport,
        account_id: int,
        handles: dict[tuple[str, str], Uploaded],
        slice_ends_at: float | None,
    ) -> None:
        self.ledger = ledger
        self.clock = clock
        self.transport = transport
        self.account_id = account_id
        self.handles = handles  # by Media.key
        self.slice_ends_at = slice_ends_at  # monotonic
        self.began: float | None = None  # the upload under way, monotonic
        self.tries = 0  # in a row that failed

    def missing(self, run: LaneRun, now: datetime) -> Media | None:
        """Return the first file of the run without a usable handle: it is uploaded before anything of the run is
        sent."""
        if not self.transport.uploads_media:
            return None
        for part in run.parts:
            if part.media is None:
                continue
            uploaded = self.handles.get(part.media.key)
            if uploaded is None or not uploaded.usable(now):
                return part.media
        return None

    def must_be_left(self, run: LaneRun, now: datetime) -> bool:
        """Return whether the run needs a file and the slice is over: the next driver has more time for it."""
        over = self.slice_ends_at is not None and self.clock.monotonic() >= self.slice_ends_at
        return over and self.missing(run, now) is not None

    async def upload(self, file: Media) -> NotSent | None:
        """Upload a file. Returns why it failed, or None."""
        self.began = began = self.clock.monotonic()
        try:
            answer = await self._upload(file, self._limit(began))
        finally:
            self.began = None
        if isinstance(answer, NotSent):
            self.tries += 1
            return answer
        self.tries = 0
        self.handles[file.key] = answer
        return None

    def _limit(self, began: float) -> float:
        """Return the seconds an upload may take: the rest of the slice and a little more."""
        left = self.slice_ends_at - began if self.slice_ends_at is not None else 0.0
        return left + UPLOAD_LIMIT

    async def _upload(self, file: Media, limit: float) -> Uploaded | NotSent:
        try:
            async with asyncio.timeout(limit):
                handle = await self.transport.prepare(file)
        except TimeoutError:
            return NotSent(Kind.UNAVAILABLE, f"the upload did not end within {limit:.0f} s")
        except UploadFailed as failed:
            return failed.reason
        except OSError as error:  # our own copy of the file is gone or unreadable
            return NotSent(Kind.CONTENT_REJECTED, f"cannot be read: {error.strerror or error}")
        columns = (self.account_id, *file.key, handle.value, file.size, self.clock.now(), handle.expires_at)
        await self.ledger.write(REMEMBER_UPLOAD, columns)
        return Uploaded(handle.value, handle.expires_at)
