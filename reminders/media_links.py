"""Links under which a gateway fetches a file itself, so that it does not travel inside every message.

A link is signed, holds for one file, and expires. It is the same all day long: a gateway that caches fetches it once.
"""

from __future__ import annotations

import math
import time
from datetime import datetime

from django.conf import settings
from django.core import signing

from accounts.channels.base import Media
from reminders.models import MediaFile

SALT = "crier.media"
DAY = 86_400
CACHE_SECONDS = 3_600


class NoSuchFile(LookupError):
    """The link is not ours, has expired, or its file is gone."""


def url_for(media: Media) -> str | None:
    """None while the site has no public address: then the file goes into the message."""
    if not settings.PUBLIC_URL:
        return None
    return f"{settings.PUBLIC_URL}/files/{token(media.sha256, time.time())}"


def token(sha256: str, now: float) -> str:
    """Valid until the end of tomorrow (UTC), so that no run outlives its links."""
    until = (math.floor(now / DAY) + 2) * DAY
    return signing.Signer(salt=SALT).sign_object([sha256, until])


def file_of(token: str, now: datetime) -> MediaFile:
    """Raises NoSuchFile."""
    try:
        sha256, until = signing.Signer(salt=SALT).unsign_object(token)
    except (signing.BadSignature, ValueError):
        raise NoSuchFile from None
    file = MediaFile.objects.filter(sha256=sha256).first() if now.timestamp() < until else None
    if file is None:
        raise NoSuchFile
    return file
