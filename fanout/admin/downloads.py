"""Files that are written while they are downloaded."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterator
from itertools import islice

from django.core.handlers.asgi import ASGIRequest
from django.db import connections
from django.http import HttpRequest, StreamingHttpResponse

from config.web import downloads

LINES_AT_ONCE = 500


def csv_download(request: HttpRequest, lines: Iterator[str], filename: str) -> StreamingHttpResponse:
    """A table as an attachment. An ASGI server would read a plain iterator to its end before it sends anything."""
    content = _in_chunks(lines) if isinstance(request, ASGIRequest) else lines
    response = StreamingHttpResponse(content, content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{filename}"'
    return response


async def _in_chunks(lines: Iterator[str]) -> AsyncIterator[str]:
    """Read on a thread of its own, which a slow reader may occupy: pages do not wait for it, only further downloads."""
    thread = await downloads.next_free()
    try:
        while chunk := await thread.run(_chunk, lines):
            yield chunk
    finally:
        thread.executor.submit(_end, lines)
        downloads.give_back(thread)


def _chunk(lines: Iterator[str]) -> str:
    return "".join(islice(lines, LINES_AT_ONCE))


def _end(lines: Iterator[str]) -> None:
    if isinstance(lines, Generator):
        lines.close()
    connections.close_all()
