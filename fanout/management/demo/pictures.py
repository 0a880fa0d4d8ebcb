"""A small real picture, drawn here so that no binary file lies in the repository."""

from __future__ import annotations

import struct
import zlib

WIDTH, HEIGHT = 320, 180
SIGNATURE = b"\x89PNG\r\n\x1a\n"
EIGHT_BIT_RGB = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 2, 0, 0, 0)


def png(hue: int) -> bytes:
    """An evening sky: the hue (0–255) sets the colour at the horizon, so that each picture differs."""
    rows = b"".join(_row(y, hue) for y in range(HEIGHT))
    chunks = ((b"IHDR", EIGHT_BIT_RGB), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return SIGNATURE + b"".join(_chunk(name, data) for name, data in chunks)


def _row(y: int, hue: int) -> bytes:
    depth = 255 * y // HEIGHT
    pixel = bytes(((hue * depth) // 255, 70 + depth // 3, 150 - depth // 4))
    # Every row starts with its filter: none.
    return b"\x00" + pixel * WIDTH


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
