"""A message as WhatsApp wants it, and a file as it was uploaded."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

from accounts.channels.whatsapp.bridge.library import Library
from accounts.channels.whatsapp.wire import Order

#: neonize's name for the kind of an upload, and the field of a message that carries it. The two must fit: WhatsApp
#: derives a file's keys from the kind, and nobody could open what was uploaded as another.
UPLOAD_AS = {"image": "MediaImage", "video": "MediaVideo", "audio": "MediaAudio"}
DOCUMENT = "MediaDocument"
CARRIED_BY = {
    "MediaImage": ("imageMessage", "ImageMessage"),
    "MediaVideo": ("videoMessage", "VideoMessage"),
    "MediaAudio": ("audioMessage", "AudioMessage"),
    DOCUMENT: ("documentMessage", "DocumentMessage"),
}
THUMBNAIL_SIDE = 200


class BadHandle(ValueError):
    """Not a handle of ours, or of a file that was uploaded to be sent differently."""


def upload_type(kind: str) -> str:
    """By the kind of part, and not by the file's own type: a picture may be sent as a document."""
    return UPLOAD_AS.get(kind, DOCUMENT)


def handle_of(upload: Any, media_type: str, thumbnail: bytes) -> str:
    """All that a message about the file needs. It is good after a restart of the bridge, too."""
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
    """One message. As an object and not as text: neonize would look for mentions in a text."""
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
    """A small JPEG of a picture, shown until the recipient has loaded it; nothing where it cannot be made."""
    if not mime.startswith("image/"):
        return b""
    try:
        from PIL import Image

        with Image.open(io.BytesIO(content)) as picture:
            picture.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE))
            small = io.BytesIO()
            picture.convert("RGB").save(small, format="jpeg")
    except Exception:  # no Pillow, or a picture that it cannot read: WhatsApp may read it all the same
        return b""
    return small.getvalue()


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text)
