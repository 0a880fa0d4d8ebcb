"""Files that are written while they are downloaded."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import islice

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, StreamingHttpResponse

LINES_AT_ONCE = 500


def csv_download(request: HttpRequest, lines: Iterator[str], filename: str) -> StreamingHttpResponse:
    """A table as an attachment. An ASGI server would read a plain iterator to its end before it sends anything."""
    content = _in_chunks(lines) if isinstance(request, ASGIRequest) else lines
    response = StreamingHttpResponse(content, content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{filename}"'
    return response


async def _in_chunks(lines: Iterator[str]) -> AsyncIterator[str]:
    while chunk := await sync_to_async(_chunk)(lines):
        yield chunk


def _chunk(lines: Iterator[str]) -> str:
    return "".join(islice(lines, LINES_AT_ONCE))
