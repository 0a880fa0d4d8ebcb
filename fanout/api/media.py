"""Files for the parts of reminders and messages: uploaded once, found again by their checksum."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from django.db import transaction
from django.http import HttpRequest
from django.utils import timezone
from ninja import Field, File, Query, Router, UploadedFile

from fanout.api.conventions import Answer, Needs, PageQuery, Problem, Scope, Text, caller_of, page_of
from fanout.models.trail import note
from reminders import media
from reminders.models import MediaFile

router = Router()
READS = Needs(Scope.READ, "reminders.view_mediafile")
ADDS = Needs(Scope.SEND, "reminders.add_mediafile")


class MediaOut(Answer):
    id: int
    filename: str
    kind: str = Field(description="The kind of part that it is: image, video, audio or document")
    mime: str
    size: int
    sha256: str
    created_at: datetime


class MediaPage(Answer):
    items: list[MediaOut]
    next: str | None


def media_out(file: MediaFile) -> dict[str, Any]:
    same = ("filename", "mime", "size", "sha256", "created_at")
    return {"id": file.pk, "kind": media.kind_of(file.filename), **{name: getattr(file, name) for name in same}}


class MediaQuery(PageQuery):
    sha256: Annotated[Text, Field(max_length=64)] = Field("", description="Only the file with this checksum")


@router.get("", response=MediaPage, auth=READS)
def list_media(request: HttpRequest, query: Query[MediaQuery]) -> Any:
    """List files, newest first. Ask for a checksum before you upload a large file."""
    rows = caller_of(request).visible(MediaFile.objects.all())
    if query.sha256:
        rows = rows.filter(sha256=query.sha256.lower())
    items, following = page_of(rows, query)
    return {"items": [media_out(file) for file in items], "next": following}


@router.get("/{int:media_id}", response=MediaOut, auth=READS)
def get_media(request: HttpRequest, media_id: int) -> Any:
    """Return one file's description."""
    return media_out(caller_of(request).find(MediaFile.objects.all(), media_id, "file"))


@router.post("", response=MediaOut, auth=ADDS)
def upload(request: HttpRequest, file: File[UploadedFile]) -> Any:
    """Upload a file. The same content is stored once: uploading it again returns the first."""
    caller = caller_of(request)
    name = str(file.name or "")
    if not name or not name.isprintable():
        raise Problem(422, "The file needs a name with an ending, such as poster.png.", {"file": "no usable name"})
    media.check(media.kind_of(name), file)
    now = timezone.now()
    with transaction.atomic():
        stored = media.keep(file, caller.user, caller.token.team)
        if stored.created_at >= now:
            note("added", stored, caller.user, now)
    if caller.token.team_id and stored.team_id != caller.token.team_id:
        words = "You have this file already, and it is not shared with the team of this token."
        raise Problem(409, words, {"file": words})
    return media_out(stored)
