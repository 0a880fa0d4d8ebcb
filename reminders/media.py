"""Files of a reminder's parts: which are accepted, how they are stored, and the links by which gateways fetch them."""

from __future__ import annotations

import asyncio
import hashlib
import math
import mimetypes
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from datetime import datetime
from typing import Any

from django.conf import settings
from django.core import signing
from django.core.exceptions import ValidationError
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils.http import content_disposition_header

from accounts.channels.base import CaptionedAudio, Channel, Media
from reminders.models import MediaFile, ReminderMessage

Kind = ReminderMessage.Kind
MB = 1024 * 1024
MOST_MB = 100
LINK_SALT = "crier.media"
DAY = 86_400
CACHE_SECONDS = 3_600
#: bytes of a file that are in memory for a client that downloads it
CHUNK = 128 * 1024

#: types that recipients' apps can show, and their largest size in MB
TYPES: dict[str, tuple[tuple[str, ...], int]] = {
    Kind.IMAGE: (("image/png", "image/jpeg", "image/gif", "image/webp"), 16),
    Kind.VIDEO: (("video/mp4", "video/3gpp"), 64),
    Kind.AUDIO: (("audio/ogg", "audio/mpeg", "audio/mp4", "audio/aac", "audio/amr"), 16),
    Kind.DOCUMENT: ((), MOST_MB),
}
#: refused as documents too: a browser or a desktop would run them
REFUSED = {
    "text/html",
    "image/svg+xml",
    "application/x-msdownload",
    "application/x-sh",
    "text/javascript",
    "application/javascript",
}
#: The same by file extension: files that a desktop or a phone runs, installs or mounts have many types or none.
#: By group: programs, packages, disk images, scripts, shortcuts, documents with macros, pages.
REFUSED_NAMES = frozenset(
    {
        *("app", "bat", "cmd", "com", "cpl", "dll", "exe", "gadget", "pif", "scr", "sys", "xbap"),
        *("apk", "appimage", "appref-ms", "appx", "appxbundle", "deb", "dmg", "ipa", "jar", "jnlp"),
        *("msi", "msix", "msixbundle", "msp", "mst", "pkg", "rpm"),
        *("img", "iso", "udf", "vhd", "vhdx"),
        *("bash", "command", "csh", "hta", "js", "jse", "ksh", "mjs", "ps1", "ps1xml", "ps2", "psc1", "psd1"),
        *("psm1", "py", "pyc", "pyw", "scpt", "sct", "sh", "vb", "vbe", "vbs", "ws", "wsc", "wsf"),
        *("wsh", "zsh"),
        *("diagcab", "inf", "ins", "isp", "library-ms", "lnk", "msc", "reg", "scf", "search-ms", "searchconnector-ms"),
        *("settingcontent-ms", "themepack", "url"),
        *("accde", "ade", "adp", "chm", "docm", "dotm", "hlp", "iqy", "mdb", "mde", "potm", "ppam", "ppsm"),
        *("pptm", "sldm", "slk", "xla", "xlam", "xll", "xlm", "xlsb", "xlsm", "xltm"),
        *("htm", "html", "mht", "mhtml", "shtml", "svg", "svgz", "swf", "xht", "xhtml"),
    }
)
#: first bytes of pictures
SIGNATURES = {
    "image/png": (b"\x89PNG\r\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
    "image/webp": (b"RIFF",),
}


def kind_of(filename: str) -> str:
    """Return the kind of part for this file; types that apps cannot show in place are documents."""
    mime = mime_of(filename)
    return next((kind for kind, (allowed, _) in TYPES.items() if mime in allowed), Kind.DOCUMENT)


def mime_of(filename: str) -> str:
    return mimetypes.guess_type(filename)[0] or "application/octet-stream"


def most_mb(kind: str, channels: Iterable[Channel] = ()) -> int:
    """Return the size limit of a file of this kind that all of these channels accept."""
    return min(TYPES[kind][1], settings.MEDIA_MAX_MB, *(channel.file_mb.get(kind, MOST_MB) for channel in channels))


def limits_in_words(channels: Iterable[Channel] = ()) -> str:
    """ "image up to 16 MB (png, jpeg, gif, webp), video up to 64 MB (mp4, 3gpp), …" """
    channels = list(channels)
    return ", ".join(f"{kind} up to {most_mb(kind, channels)} MB{_endings(kind)}" for kind in TYPES)


def _endings(kind: str) -> str:
    allowed = TYPES[kind][0]
    return f" ({', '.join(name.split('/')[1] for name in allowed)})" if allowed else ""


def check(kind: str, file: Any, channels: Iterable[Channel] = ()) -> None:
    """Raise ValidationError if the file cannot be a part of this kind on these channels."""
    mime, allowed, most = mime_of(file.name), TYPES[kind][0], most_mb(kind, channels)
    if file.size > most * MB:
        raise ValidationError(f"The file has {file.size / MB:.1f} MB; for a part of this kind {most} MB is the limit.")
    if (allowed and mime not in allowed) or mime in REFUSED:
        wanted = ", ".join(name.split("/")[1] for name in allowed) or "another type"
        raise ValidationError(f"{file.name} is of the type {mime}; this part takes {wanted}.")
    if refused := REFUSED_NAMES & set(file.name.lower().rstrip(". ").split(".")[1:]):
        raise ValidationError(f"{file.name}: files that a computer runs (.{min(refused)}) are not sent.")
    if mime in SIGNATURES and not _first_bytes(file).startswith(SIGNATURES[mime]):
        raise ValidationError(f"{file.name} is not a valid {mime.split('/')[1]} file.")


def caption_problem(kind: str, text: str, channels: Iterable[Channel]) -> str:
    """Return why these channels cannot send a file of this kind with this text, or nothing."""
    refusing = [one.label for one in channels if one.captioned_audio is CaptionedAudio.REFUSED]
    if kind != Kind.AUDIO or not text.strip() or not refusing:
        return ""
    return f"{refusing[0]} sends audio without a text: remove it here, and add a part with the text alone."


def _first_bytes(file: Any) -> bytes:
    file.seek(0)
    first = bytes(file.read(16))
    file.seek(0)
    return first


def keep(file: Any, owner: Any, team: Any = None) -> MediaFile:
    """Store a file and return it. The same content is stored once per owner."""
    digest = hashlib.sha256()
    for chunk in file.chunks():
        digest.update(chunk)
    stored = MediaFile.objects.filter(owner=owner, sha256=digest.hexdigest()).first()
    if stored is not None:
        return stored
    file.seek(0)
    return MediaFile.objects.create(
        file=file, filename=file.name[:200], mime=mime_of(file.name), owner=owner, team=team
    )


def answer_with(request: HttpRequest, media: MediaFile, mime: str, *, download: bool) -> HttpResponseBase:
    """Return a response with the file, read as fast as the client takes it; raise FileNotFoundError."""
    size = media.file.size
    if request.method == "HEAD":
        answer: HttpResponseBase = HttpResponse(content_type=mime)
    else:
        content = _chunks_later(media, size) if isinstance(request, ASGIRequest) else _chunks(media, size)
        answer = StreamingHttpResponse(content, content_type=mime)
    answer["Content-Length"] = str(size)
    answer["Content-Disposition"] = content_disposition_header(download, media.filename) or "inline"
    return answer


def _chunks(media: MediaFile, size: int) -> Iterator[bytes]:
    for start in range(0, size, CHUNK):
        yield _chunk(media, start)


async def _chunks_later(media: MediaFile, size: int) -> AsyncIterator[bytes]:
    """Read on other threads. An ASGI server would read a plain iterator to its end before sending."""
    for start in range(0, size, CHUNK):
        yield await asyncio.to_thread(_chunk, media, start)


def _chunk(media: MediaFile, start: int) -> bytes:
    """Read one chunk. The file is closed in between: a client that stops reading must not hold anything."""
    with media.file.storage.open(str(media.file.name), "rb") as file:
        file.seek(start)
        return bytes(file.read(CHUNK))


# --- links ----------------------------------------------------------------------------------------------------
# A gateway fetches a file itself under such a link, so that the file does not travel inside every message. A link is
# signed, holds for one file, and expires. It is the same all day long: a gateway that caches fetches it once.


class NoSuchFile(LookupError):
    """The link is forged or has expired, or its file is gone."""


def link_url(media: Media) -> str | None:
    """Return a link, or None while the site has no public address: then the file goes into the message."""
    if not settings.PUBLIC_URL:
        return None
    return f"{settings.PUBLIC_URL}/files/{link_token(media.sha256, time.time())}"


def link_token(sha256: str, now: float) -> str:
    """Return a token that is valid until the end of tomorrow (UTC), so that no run outlives its links."""
    until = (math.floor(now / DAY) + 2) * DAY
    return signing.Signer(salt=LINK_SALT).sign_object([sha256, until])


def linked_file(token: str, now: datetime) -> MediaFile:
    """Return the file of a link. Raises NoSuchFile."""
    try:
        sha256, until = signing.Signer(salt=LINK_SALT).unsign_object(token)
    except (signing.BadSignature, ValueError):
        raise NoSuchFile from None
    file = MediaFile.objects.filter(sha256=sha256).first() if now.timestamp() < until else None
    if file is None:
        raise NoSuchFile
    return file
