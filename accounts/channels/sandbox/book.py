"""The sandbox provider's own book: the messages it accepted, the calls it refused, the files that were uploaded.

Tests and the demo judge deliveries by this book and never by Crier's own rows. It is append-only, one JSON object a
line; nothing here imports Django, so the provider runs without it.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

Line = dict[str, Any]
#: by account: the webhook's `url` and the `key` that signs reports to it
Hooks = dict[str, dict[str, str]]


class Delivery(NamedTuple):
    """One message that the provider accepted. `t` is in seconds since the epoch."""

    t: float
    account: str
    to: str
    part: int
    message_id: str


class Upload(NamedTuple):
    """One file that the provider took, with the handle it gave for it."""

    t: float
    account: str
    sha256: str
    size: int
    handle: str


class Refusal(NamedTuple):
    """One call that the provider refused, and why."""

    t: float
    account: str
    kind: str
    to: str
    message_id: str


class Report(NamedTuple):
    """One report that the provider sent to an account's webhook, and the status of the answer. `text`: of a reply."""

    t: float
    account: str
    kind: str
    id: str
    status: int
    text: str = ""


class Writer(Protocol):
    """The part of a book that the provider needs."""

    def append(self, line: Line) -> None: ...

    def lines(self) -> Iterable[Line]: ...

    def hooks(self) -> Hooks: ...

    def keep_hooks(self, hooks: Hooks) -> None: ...


class Book:
    """A book to read, with the questions that tests ask of the provider."""

    def __init__(self, lines: Iterable[Line] = ()) -> None:
        self._lines: list[Line] = list(lines)
        self._hooks: Hooks = {}

    @classmethod
    def read(cls, path: str | Path) -> Self:
        return cls(read_lines(path))

    def lines(self) -> list[Line]:
        return self._lines

    def deliveries(self, account: str | None = None) -> list[Delivery]:
        deliveries = (as_delivery(line) for line in self._lines if is_delivery(line))
        return [d for d in deliveries if account in (None, d.account)]

    def uploads(self, account: str | None = None) -> list[Upload]:
        uploads = (as_upload(line) for line in self._lines if "upload" in line)
        return [u for u in uploads if account in (None, u.account)]

    def refused(self, kind: str | None = None) -> list[Refusal]:
        refusals = (as_refusal(line) for line in self._lines if "refused" in line)
        return [r for r in refusals if kind in (None, r.kind)]

    def reports(self, kind: str | None = None) -> list[Report]:
        reports = (as_report(line) for line in self._lines if "report" in line)
        return [r for r in reports if kind in (None, r.kind)]

    def repeats(self) -> list[Line]:
        """Return the messages that came a second time under their id and were not delivered again."""
        return [line for line in self._lines if line.get("repeat")]

    def duplicates(self, *by: str) -> dict[tuple[Any, ...], int]:
        """Count what was delivered more than once, through any account.

        The default asks for the same message id to the same address. A test with a single run should also ask
        `duplicates("to", "part")`: it finds a part that was sent twice under two ids.
        """
        columns = by or ("to", "message_id")
        counts = Counter(tuple(getattr(d, c) for c in columns) for d in self.deliveries())
        return {key: count for key, count in counts.items() if count > 1}

    def peak(self, account: str | None = None, seconds: float = 60) -> int:
        """Return the most messages accepted in any closed window of that length; over all accounts, the highest of one
        account."""
        return max(self.peaks(seconds, account).values(), default=0)

    def peaks(self, seconds: float = 60, account: str | None = None) -> dict[str, int]:
        times: dict[str, list[float]] = {}
        for delivery in self.deliveries(account):
            times.setdefault(delivery.account, []).append(delivery.t)
        return {name: busiest(sorted(moments), seconds) for name, moments in times.items()}


class MemoryBook(Book):
    """The book on the virtual clock: it lives in memory and needs no file."""

    def append(self, line: Line) -> None:
        self._lines.append(line)

    def hooks(self) -> Hooks:
        return self._hooks

    def keep_hooks(self, hooks: Hooks) -> None:
        self._hooks = hooks


class FileBook:
    """The book of the provider's own process.

    Each line is a single write(2) on an O_APPEND descriptor: once `append` has returned, the kernel has it, so kill -9
    loses nothing that was answered. No fsync: it is not tested against power cuts. Webhook addresses and keys are in a
    file beside it, so that a book can be shown to others.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.hooks_path = self.path.with_suffix(".hooks")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._move_hooks_out()
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        self._end_torn_line()

    def _end_torn_line(self) -> None:
        size = os.fstat(self._fd).st_size
        if size and os.pread(self._fd, 1, size - 1) != b"\n":
            os.write(self._fd, b"\n")

    def append(self, line: Line) -> None:
        os.write(self._fd, json.dumps(line).encode() + b"\n")

    def lines(self) -> Iterator[Line]:
        return read_lines(self.path)

    def hooks(self) -> Hooks:
        try:
            hooks: Hooks = json.loads(self.hooks_path.read_text())
        except FileNotFoundError:
            return {}
        return hooks

    def keep_hooks(self, hooks: Hooks) -> None:
        _replace(self.hooks_path, json.dumps(hooks))

    def _move_hooks_out(self) -> None:
        """Take hooks and their keys out of a book that was written when they were part of it."""
        lines = list(read_lines(self.path)) if self.path.exists() else []
        old = {line["account"]: {"url": line["hook"], "key": line["key"]} for line in lines if "hook" in line}
        if old:
            self.keep_hooks(old | self.hooks())
            _replace(self.path, "".join(json.dumps(line) + "\n" for line in lines if "hook" not in line))

    def close(self) -> None:
        os.close(self._fd)


def _replace(path: Path, text: str) -> None:
    """Write a file for this user only, whole or not at all."""
    part = path.with_name(f"{path.name}.part")
    part.unlink(missing_ok=True)
    with open(part, "x", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(text)
    part.replace(path)


def read_lines(path: str | Path) -> Iterator[Line]:
    """Yield every whole line. One torn by a dying machine was never answered, so it does not count."""
    with open(path, encoding="utf-8", errors="replace") as file:
        for raw in file:
            line = parsed(raw)
            if line is not None:
                yield line


def parsed(raw: str) -> Line | None:
    try:
        line = json.loads(raw)
    except ValueError:
        return None
    return line if isinstance(line, dict) else None


def is_delivery(line: Line) -> bool:
    return "provider_id" in line and not line.get("repeat")


def as_delivery(line: Line) -> Delivery:
    return Delivery(line["t"], line["account"], line["to"], line["part"], line["message_id"])


def as_upload(line: Line) -> Upload:
    return Upload(line["t"], line["account"], line["upload"], line["size"], line["handle"])


def as_refusal(line: Line) -> Refusal:
    return Refusal(line["t"], line["account"], line["refused"], line.get("to", ""), line.get("message_id", ""))


def as_report(line: Line) -> Report:
    return Report(line["t"], line["account"], line["report"], line["id"], line["status"], line.get("text", ""))


def busiest(moments: list[float], seconds: float) -> int:
    """Return the most of the sorted moments that fit into one closed window."""
    most = left = 0
    for right, moment in enumerate(moments):
        while moment - moments[left] > seconds:
            left += 1
        most = max(most, right - left + 1)
    return most
