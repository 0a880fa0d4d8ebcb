"""Files that an operator uploads: how large, of what type, and stored once."""

from __future__ import annotations

import hashlib
import mimetypes
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError

from reminders.models import MediaFile, ReminderMessage

Kind = ReminderMessage.Kind
MB = 1024 * 1024

#: what recipients' apps can show, and how large they take it
TYPES: dict[str, tuple[tuple[str, ...], int]] = {
    Kind.IMAGE: (("image/png", "image/jpeg", "image/gif", "image/webp"), 16),
    Kind.VIDEO: (("video/mp4", "video/3gpp"), 64),
    Kind.AUDIO: (("audio/ogg", "audio/mpeg", "audio/mp4", "audio/aac", "audio/amr"), 16),
    Kind.DOCUMENT: ((), 100),
}
#: never as a document either: a browser or a desktop would run it
REFUSED = {
    "text/html",
    "image/svg+xml",
    "application/x-msdownload",
    "application/x-sh",
    "text/javascript",
    "application/javascript",
}
#: how a picture's bytes begin, whatever its name says
SIGNATURES = {
    "image/png": (b"\x89PNG\r\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
    "image/webp": (b"RIFF",),
}


def check_upload(kind: str, upload: Any) -> str:
    """The file's type; ValidationError says what is wrong with it."""
    mime = mimetypes.guess_type(upload.name)[0] or "application/octet-stream"
    allowed, most = TYPES[kind]
    most = min(most, settings.MEDIA_MAX_MB)
    if upload.size > most * MB:
        raise ValidationError(
            f"The file has {upload.size / MB:.1f} MB; for a part of this kind {most} MB is the limit."
        )
    if (allowed and mime not in allowed) or mime in REFUSED:
        wanted = ", ".join(name.split("/")[1] for name in allowed) or "another type"
        raise ValidationError(f"{upload.name} is of the type {mime}; this part takes {wanted}.")
    if mime in SIGNATURES and not _begin(upload).startswith(SIGNATURES[mime]):
        raise ValidationError(f"{upload.name} is not really a {mime.split('/')[1]} file.")
    return mime


def _begin(upload: Any) -> bytes:
    upload.seek(0)
    begin = bytes(upload.read(16))
    upload.seek(0)
    return begin


def keep(upload: Any, mime: str, owner: Any, team: Any) -> MediaFile:
    """The same content is stored once per owner, and uploaded once per account."""
    digest = hashlib.sha256()
    for chunk in upload.chunks():
        digest.update(chunk)
    known = MediaFile.objects.filter(owner=owner, sha256=digest.hexdigest()).first()
    if known is not None:
        return known
    upload.seek(0)
    return MediaFile.objects.create(file=upload, filename=upload.name[:200], mime=mime, owner=owner, team=team)
