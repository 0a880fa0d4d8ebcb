"""An SMTP server in a process of its own that keeps a book: each mail is written down before it is answered.

python -m tests.transports.booking_server PORT BOOK
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

from aiosmtpd.smtp import SMTP, Envelope, Session

from tests.channels.mail_server import free_port, wait_until

ROOT = Path(__file__).resolve().parents[2]
MESSAGE_ID = re.compile(rb"(?im)^message-id:\s*<([^>]+)>")


class Book:
    """aiosmtpd's handler. A single write to an append-only file survives kill -9."""

    def __init__(self, path: str) -> None:
        self.file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        content = envelope.original_content or b""
        found = MESSAGE_ID.search(content.partition(b"\r\n\r\n")[0])
        assert found is not None
        os.write(self.file, b"%b %b\n" % (found[1], ",".join(envelope.rcpt_tos).encode()))
        return "250 2.0.0 Ok"


async def serve(port: int, path: str) -> None:
    book = Book(path)
    server = await asyncio.get_running_loop().create_server(lambda: SMTP(book), "127.0.0.1", port)
    await server.serve_forever()


class BookingServer:
    """Starts, kills and restarts it on the same port, with the same book."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "book"
        self.path.touch()
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", __name__, str(self.port), str(self.path)]
        self.process = subprocess.Popen(command, cwd=ROOT)
        wait_until(self._listens, 60)

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    def __enter__(self) -> BookingServer:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()

    def deliveries(self) -> Counter[str]:
        """How often each recipient has it."""
        return Counter(line.split()[1] for line in self.path.read_text().splitlines())

    def message_ids(self) -> Counter[str]:
        return Counter(line.split()[0] for line in self.path.read_text().splitlines())

    def _listens(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, "the booking server did not start"
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), sys.argv[2]))
