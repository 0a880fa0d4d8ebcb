"""Videos and voice messages in WhatsApp's format, converted once by the gateway.

A conversion may take minutes, and neither a send nor a lane waits so long: it goes on in a thread of its own, with its
own time limit, while the lane looks again now and then. The result is a file beside the originals, so that all
processes, the next run and a restart find it. A thread that dies with its process has reached no recipient.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import threading
import time
from collections.abc import Callable, Container, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import aiohttp
from django.conf import settings

from accounts.channels.base import Kind, NotSent, Refused
from accounts.channels.gateway import Base64, call
from accounts.channels.http import FAILURES, Answer, as_object, connector, words_of

#: Longer than any file of 16 MB needs; a gateway that hangs must not hold it for good.
CONVERT_SECONDS = 300.0
#: Seconds that a lane waits for a conversion, and after which it looks again.
PATIENCE, LOOK_AGAIN = 5.0, 10.0
#: Seconds for which a failure waits for a lane to look again. Later it says nothing about the next try.
FAILURE_KEPT = 120.0
#: Seconds until a conversion that did not end is tried again.
ASK_AGAIN = 60.0
LARGEST = 100_000_000
#: Days after which a file that no run has used is removed.
KEPT_DAYS = 30
TOO_SLOW = (
    "WAHA did not finish converting “{name}” within {minutes:g} minutes; it is asked again. If WAHA is well and this "
    "repeats, shorten it, or convert it before you upload it: videos to MP4 (H.264 and AAC), voice messages to "
    "OGG (Opus)."
)


class Format(NamedTuple):
    name: str  # in the path
    mime: str
    suffix: str


FORMATS = {
    "video": Format("video", "video/mp4", ".mp4"),
    "audio": Format("voice", "audio/ogg; codecs=opus", ".ogg"),
}


@dataclass(frozen=True, slots=True)
class Order:
    """One file to be converted: where to ask, what with, and what an unsuccessful answer means."""

    url: str
    headers: Mapping[str, str]
    body: Mapping[str, str | Base64]
    filename: str
    path: Path
    #: returns None where the server converts only while sending
    judge: Callable[[Answer], NotSent | None]


@dataclass(slots=True)
class Job:
    began: float  # monotonic
    result: Future[bool] = field(default_factory=Future)
    ended: float = 0.0

    def is_over(self) -> bool:
        """Return whether its result is of no use any more: its file was made and removed, or it failed long ago."""
        if not self.result.done():
            return False
        made = self.result.exception() is None and self.result.result()
        return made or time.monotonic() - self.ended > FAILURE_KEPT


#: Conversions of this process that are under way, by the file that they make.
UNDER_WAY: dict[Path, Job] = {}


def path_of(base: str, sha256: str, kind: str) -> Path:
    """Return where the converted form of a file is kept. Servers differ in how they convert."""
    server = hashlib.sha256(base.encode()).hexdigest()[:16]
    return Path(settings.MEDIA_ROOT, "converted", f"{sha256}-{server}{FORMATS[kind].suffix}")


async def convert(order: Order, patience: float = PATIENCE) -> bool:
    """Have the file made, unless it is there. Returns False where the server converts only while sending.

    Raises Refused with the reason, also while the conversion goes on.
    """
    job = UNDER_WAY.get(order.path)
    if job is not None and job.is_over():
        UNDER_WAY.pop(order.path, None)
        job = None
    try:
        os.utime(order.path)  # in use
    except OSError:
        pass
    else:
        return True
    try:
        job = job or _start(order)
        waiting = asyncio.wrap_future(job.result)
        # A failure that comes after the patience ended is told by the next look: asyncio need not log it.
        waiting.add_done_callback(lambda future: future.cancelled() or future.exception())
        made = await asyncio.wait_for(asyncio.shield(waiting), patience)
    except TimeoutError:
        raise _under_way(order, time.monotonic() - job.began if job else 0) from None
    except OSError as error:  # a full disk, or a file that another process has moved: not the recipients' fault
        UNDER_WAY.pop(order.path, None)
        words = f"The converted form of “{order.filename}” cannot be stored: {error.strerror or error}"
        raise Refused(NotSent(Kind.UNAVAILABLE, words, ASK_AGAIN)) from error
    except BaseException:
        if job is not None and job.result.done():
            UNDER_WAY.pop(order.path, None)
        raise
    UNDER_WAY.pop(order.path, None)
    return made


def encoded(path: Path, filename: str) -> Base64:
    """Return a converted file in base64; raises Refused where it was removed at this moment."""
    try:
        return Base64(base64.b64encode(path.read_bytes()))
    except OSError as error:
        words = f"The converted form of “{filename}” cannot be read: {error.strerror or error}"
        raise Refused(NotSent(Kind.UNAVAILABLE, words, LOOK_AGAIN)) from error


def _under_way(order: Order, seconds: float) -> Refused:
    words = f"WAHA is converting “{order.filename}”, since {seconds:.0f} s; sending goes on when it is done."
    return Refused(NotSent(Kind.UNAVAILABLE, words, LOOK_AGAIN))


def _start(order: Order) -> Job:
    """Start a conversion in a thread; raises Refused while another process has one under way."""
    order.path.parent.mkdir(parents=True, exist_ok=True)
    remove_unused()
    part = order.path.with_suffix(".part")
    try:
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        age = time.time() - part.stat().st_mtime
        if age < CONVERT_SECONDS + LOOK_AGAIN:
            raise _under_way(order, max(age, 0)) from None
        os.utime(part)  # its process died
    job = Job(time.monotonic())
    UNDER_WAY[order.path] = job
    # A daemon: a process that stops does not wait for it.
    threading.Thread(target=_work, args=(order, part, job), name="waha-convert", daemon=True).start()
    return job


def unused(originals: Container[str] | None = None) -> list[Path]:
    """Return the files that no run has used for long; with the SHA-256 of all originals, also those without one."""
    folder, oldest = Path(settings.MEDIA_ROOT, "converted"), time.time() - KEPT_DAYS * 86_400
    files = []
    for file in folder.iterdir() if folder.is_dir() else ():
        with suppress(FileNotFoundError):  # another process has renamed or removed it
            without_original = originals is not None and file.name.partition("-")[0] not in originals
            if without_original or file.stat().st_mtime < oldest:
                files.append(file)
    return files


def remove_unused(originals: Container[str] | None = None) -> int:
    """Remove such files; return how many."""
    files = unused(originals)
    for file in files:
        file.unlink(missing_ok=True)
    return len(files)


def _work(order: Order, part: Path, job: Job) -> None:
    try:
        made = asyncio.run(_ask(order, part))
        if made:
            part.replace(order.path)
        part.unlink(missing_ok=True)
        job.ended = time.monotonic()
        job.result.set_result(made)
    except BaseException as error:
        part.unlink(missing_ok=True)
        job.ended = time.monotonic()
        job.result.set_exception(error)


async def _ask(order: Order, part: Path) -> bool:
    limit = aiohttp.ClientTimeout(total=CONVERT_SECONDS)
    try:
        async with aiohttp.ClientSession(headers=order.headers, connector=connector(limit=1), timeout=limit) as session:
            content = call(order.url, dict(order.body))
            headers = {"Content-Type": content.mime}
            request = session.post(order.url, data=content.content, headers=headers, allow_redirects=False)
            async with request as response:
                return await _answered(order, part, response)
    except TimeoutError as error:
        words = TOO_SLOW.format(name=order.filename, minutes=CONVERT_SECONDS / 60)
        raise Refused(NotSent(Kind.UNAVAILABLE, words, ASK_AGAIN)) from error
    except FAILURES as error:
        raise Refused(NotSent(Kind.NETWORK, words_of(error))) from error


async def _answered(order: Order, part: Path, response: aiohttp.ClientResponse) -> bool:
    """Store the converted file; returns False where the server converts only while sending."""
    if response.status not in (200, 201):
        reason = order.judge(Answer(response.status, as_object(await response.content.read(LARGEST))))
        if reason is None:
            return False
        raise Refused(reason)
    size = 0
    with part.open("wb") as file:
        async for chunk in response.content.iter_any():
            size += len(chunk)
            if size > LARGEST:
                words = f"“{order.filename}” is larger than {LARGEST // 1_000_000} MB after WAHA converted it."
                raise Refused(NotSent(Kind.CONTENT_REJECTED, words))
            file.write(chunk)
    if not size:
        raise Refused(
            NotSent(Kind.UNAVAILABLE, f"WAHA answered with nothing when it should convert “{order.filename}”.")
        )
    return True
