"""A form with files as bytes, so that a transport knows whether it left. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple


class File(NamedTuple):
    name: str  # of the form's field
    filename: str
    mime: str
    content: bytes


def multipart(fields: Iterable[tuple[str, str]], files: Iterable[File] = ()) -> tuple[bytes, str]:
    """The body and its content type. A field may come more than once."""
    pieces = [_head(name) + value.encode() for name, value in fields]
    pieces += [_head(file.name, file) + file.content for file in files]
    # Made from the content, so that no piece of it can be the boundary.
    boundary = hashlib.sha256(b"\x00".join(pieces)).hexdigest()
    line = f"--{boundary}".encode()
    body = b"".join(line + b"\r\n" + piece + b"\r\n" for piece in pieces) + line + b"--\r\n"
    return body, f"multipart/form-data; boundary={boundary}"


def _head(name: str, file: File | None = None) -> bytes:
    head = f'Content-Disposition: form-data; name="{name}"'
    if file is not None:
        head += f'; filename="{_quoted(file.filename)}"\r\nContent-Type: {_quoted(file.mime)}'
    return head.encode() + b"\r\n\r\n"


def _quoted(text: str) -> str:
    """As browsers write it: nothing in a file's name ends its header."""
    return text.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
