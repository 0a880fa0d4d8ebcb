"""Messages as WhatsApp wants them, and files: each is uploaded once, with a time limit that neonize does not have."""

from __future__ import annotations

import asyncio
import base64
import io
import json
from typing import TYPE_CHECKING, Any

from accounts.channels.base import Kind, NotSent
from accounts.channels.whatsapp.bridge import conditions
from accounts.channels.whatsapp.bridge.library import Library
from accounts.channels.whatsapp.wire import Order

if TYPE_CHECKING:
    from accounts.channels.whatsapp.bridge.session import Session


#: neonize's name for the kind of an upload, and the field of a message that carries it. The two must fit: WhatsApp
#: derives a file's keys from the kind, and a file that was uploaded as another kind cannot be opened.
UPLOAD_AS = {"image": "MediaImage", "video": "MediaVideo", "audio": "MediaAudio"}
DOCUMENT = "MediaDocument"
CARRIED_BY = {
    "MediaImage": ("imageMessage", "ImageMessage"),
    "MediaVideo": ("videoMessage", "VideoMessage"),
    "MediaAudio": ("audioMessage", "AudioMessage"),
    DOCUMENT: ("documentMessage", "DocumentMessage"),
}
THUMBNAIL_SIDE = 200
#: Pixels of a picture that gets a thumbnail: to read one takes 2 to 12 bytes per pixel, and a file of 1 MB may have two
#: hundred million. JPEG is read at an eighth of its size.
MOST_PIXELS = {"JPEG": 50_000_000, "PNG": 16_000_000, "GIF": 16_000_000, "WEBP": 16_000_000}


class BadHandle(ValueError):
    """Raised for a handle that is not ours, or of a file that was uploaded to be sent differently."""


def upload_type(kind: str) -> str:
    """Return the type of an upload by the kind of part, not by the file's own type: a picture may be sent as a
    document."""
    return UPLOAD_AS.get(kind, DOCUMENT)


def handle_of(upload: Any, media_type: str, thumbnail: bytes) -> str:
    """Return everything that a message about the file needs. It stays valid after a restart of the bridge."""
    facts = {
        "type": media_type,
        "url": upload.url,
        "path": upload.DirectPath,
        "key": _text(upload.MediaKey),
        "sealed": _text(upload.FileEncSHA256),
        "sha256": _text(upload.FileSHA256),
        "size": upload.FileLength,
        "thumbnail": _text(thumbnail),
    }
    return json.dumps(facts, separators=(",", ":"))


def build(library: Library, order: Order) -> Any:
    """Build one message. It is an object, because neonize would look for mentions in a text."""
    if not order.handle:
        return library.types.Content(conversation=order.text)
    try:
        facts = json.loads(order.handle)
        return _with_file(library, order, facts)
    except (KeyError, TypeError, ValueError) as error:
        raise BadHandle("the handle of the file is not readable, or not for this kind of part") from error


def _with_file(library: Library, order: Order, facts: dict[str, Any]) -> Any:
    media_type = facts["type"]
    if media_type != upload_type(order.kind):
        raise ValueError(media_type)
    field, name = CARRIED_BY[media_type]
    values: dict[str, Any] = {
        "URL": facts["url"],
        "directPath": facts["path"],
        "mediaKey": _bytes(facts["key"]),
        "fileEncSHA256": _bytes(facts["sealed"]),
        "fileSHA256": _bytes(facts["sha256"]),
        "fileLength": facts["size"],
        "mimetype": order.mime,
    }
    if media_type != "MediaAudio" and order.text:
        values["caption"] = order.text
    if media_type == DOCUMENT:
        values["fileName"] = values["title"] = order.filename
    if media_type == "MediaImage" and facts["thumbnail"]:
        values["JPEGThumbnail"] = _bytes(facts["thumbnail"])
    return library.types.Content(**{field: getattr(library.types, name)(**values)})


def thumbnail(content: bytes, mime: str) -> bytes:
    """Return a small JPEG of a picture, shown until the recipient has loaded it; nothing where it cannot be made."""
    if not mime.startswith("image/"):
        return b""
    try:
        from PIL import Image

        with Image.open(io.BytesIO(content), formats=list(MOST_PIXELS)) as picture:
            if picture.width * picture.height > MOST_PIXELS[picture.format or ""]:
                return b""
            picture.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE))
            small = io.BytesIO()
            picture.convert("RGB").save(small, format="jpeg")
    except Exception:  # no Pillow, or a picture that it cannot read: WhatsApp may still read it
        return b""
    return small.getvalue()


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text)


# -- uploading files --------------------------------------------------------------------------------------


#: WhatsApp keeps an uploaded file for about a month; the exact time is not documented.
HANDLE_DAYS = 10


class Uploads:
    """Uploads an account's files to WhatsApp, each once."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.under_way: dict[tuple[str, str], asyncio.Task[str | NotSent]] = {}

    async def upload(self, content: bytes, mime: str, kind: str, sha256: str) -> str | NotSent:
        """Return a handle for the file as this kind of part.

        A second request for the same file waits for the first upload.
        """
        if (refusal := self.session.refusal()) is not None:
            return refusal
        media_type = upload_type(kind)
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
                small = await asyncio.to_thread(thumbnail, content, mime)
                upload = await session.client.upload(content, getattr(session.library.types.MediaType, media_type))
        except TimeoutError:
            # neonize's thread may wait for ever: only a new client gets rid of it.
            session.renew("An upload did not end; connecting again.")
            return conditions.not_sent(Kind.UNAVAILABLE, f"the upload did not end within {limit:.0f} s")
        except session.library.error as error:
            return conditions.upload_failed(str(error))
        return handle_of(upload, media_type, small)
