"""Files of an account on WhatsApp's servers: each is uploaded once, with a time limit that neonize does not have."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from accounts.channels.base import Kind, NotSent
from accounts.channels.whatsapp import answers
from accounts.channels.whatsapp.bridge import messages

if TYPE_CHECKING:
    from accounts.channels.whatsapp.bridge.session import Session

#: WhatsApp keeps an uploaded file for a month or so; nobody says exactly how long.
HANDLE_DAYS = 10


class Uploads:
    def __init__(self, session: Session) -> None:
        self.session = session
        self.under_way: dict[tuple[str, str], asyncio.Task[str | NotSent]] = {}

    async def upload(self, content: bytes, mime: str, kind: str, sha256: str) -> str | NotSent:
        """A handle for the file as this kind of part. A second request for the same waits for the first upload."""
        if (refusal := self.session.refusal()) is not None:
            return refusal
        media_type = messages.upload_type(kind)
        key = (sha256, media_type)
        if key not in self.under_way:
            task = self.session.spawn(self._upload(content, mime, media_type))
            task.add_done_callback(lambda _: self.under_way.pop(key, None))
            self.under_way[key] = task
        return await asyncio.shield(self.under_way[key])

    async def _upload(self, content: bytes, mime: str, media_type: str) -> str | NotSent:
        session = self.session
        limit = session.limits.upload_limit(len(content))
        try:
            async with asyncio.timeout(limit):
                small = await asyncio.to_thread(messages.thumbnail, content, mime)
                upload = await session.client.upload(content, getattr(session.library.types.MediaType, media_type))
        except TimeoutError:
            # Its thread may wait for ever: only a new client is rid of it.
            session.renew("An upload did not end; connecting anew.")
            return answers.not_sent(Kind.UNAVAILABLE, f"the upload did not end within {limit:.0f} s")
        except session.library.error as error:
            return answers.upload_failed(str(error))
        return messages.handle_of(upload, media_type, small)
