"""Keep a machine's own record of what its drivers claimed, outside the database.

PostgreSQL may lose commits: an asynchronous standby is promoted, a backup is restored. Then a message that has gone out
is `pending` again. The journal is what a machine still knows: every claim before its provider is called, every answer,
and the last heartbeat of each driver slot, which serves as a witness: a database without it lacks commits.

Files are in `claims/` of the data directory, one per process, in lines of tab-separated fields:

    g  generation of the database (KnownServer)     b  a heartbeat that is durable
    c  a claim that is durable                       r  the provider's answer to a claim

A line reaches the operating system before the provider is called, so it survives a killed process; not a power failure,
after which the journal does not count as complete. While lines cannot be written, nothing is claimed.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import socket
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import psutil

from fanout.engine.commit import Claim, Result

log = logging.getLogger("crier.journal")

FILE_SIZE = 8_000_000  # bytes, about 40,000 messages; then a new file begins
ALL_FILES = 8 * FILE_SIZE
KEPT_FOR = 7 * 86_400.0  # seconds: addresses of people are in it


def boot() -> str:
    """Return what distinguishes this run of the machine from the one before a restart."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return str(int(psutil.boot_time()))


@dataclass(frozen=True, slots=True)
class Beat:
    """The last heartbeat of a slot that is known to be durable."""

    host: str
    slot: int
    at: datetime
    generation: int
    boot: str


@dataclass(frozen=True, slots=True)
class NotedClaim:
    target_id: int
    run_id: int
    account_id: int
    epoch: int
    part: int
    at: datetime
    address: str
    reminder_id: int
    scheduled_for: datetime
    action: str

    @property
    def key(self) -> tuple[int, int, datetime]:
        return self.target_id, self.epoch, self.at


@dataclass(slots=True)
class Compared:
    """What a journal knows that may be missing in a database. `certain`: the database is older than these claims."""

    claims: dict[int, NotedClaim] = field(default_factory=dict)  # the last one of each target
    certain: set[int] = field(default_factory=set)
    results: dict[tuple[int, int, datetime], Result] = field(default_factory=dict)
    generation: int = 0  # the highest that is named
    target_id: int = 0
    # Read up to here, by file.
    sizes: dict[str, int] = field(default_factory=dict)
    # The server that it was compared with, how many claims that has lost (None: no commits at all), and from when on.
    server: tuple[int, ...] = ()
    lost: int | None = None
    lost_since: datetime | None = None
    # The journal no longer has what was claimed from the loss until then.
    unknown_until: datetime | None = None
    reported: bool = False


class ClaimJournal:
    """Belongs to one process, which opens its file with the first line."""

    def __init__(self, folder: Path, host: str = "") -> None:
        self.folder = folder
        self.host = host or socket.gethostname()
        self.boot = boot()
        self.generation = 0
        self.failures: dict[str, OSError] = {}  # what cannot be written: "claims", "beats"
        self.compared: Compared | None = None  # with the server that is not accepted yet
        self._file = -1
        self._size = 0
        self._waiting: list[str] = []
        self._slots: dict[int, int] = {}

    # --- writing ----------------------------------------------------------------------------------------

    def claimed(self, claims: Iterable[Claim]) -> bool:
        """Note claims that are durable. Returns whether that succeeded: only then may their providers be called."""
        before = len(self._waiting)
        self._waiting += [
            f"c\t{c.target_id}\t{c.run_id}\t{c.account_id}\t{c.epoch}\t{c.part}\t{c.at.isoformat()}\t{c.address}\t{c.origin}\n"
            for c in claims
        ]
        noted = self._write()
        if not noted:
            del self._waiting[before:]
        return noted

    def can_write(self) -> bool:
        """Return whether claims can be noted. After a failure, tries again."""
        if "claims" in self.failures:
            self._write()
        return not self.failures

    def answered(self, result: Result) -> None:
        """Note an answer, with the next write: losing the line with the process only leaves the outcome open."""
        r = result
        self._waiting.append(
            f"r\t{r.target_id}\t{r.run_id}\t{r.account_id}\t{r.epoch}\t{r.claimed_at.isoformat()}\t{r.status}\t"
            f"{r.parts_sent}\t{r.attempts}\t{r.at.isoformat()}\t{r.action}\t{r.part}\t{r.activity}\t{r.kind}\t"
            f"{_plain(r.provider_id)}\n"
        )

    def beaten(self, slot: int, at: datetime) -> None:
        """Note a heartbeat that is durable, in the journal and as the last one of its slot."""
        self.can_write()
        if "claims" not in self.failures:
            self._waiting.append(f"b\t{slot}\t{at.isoformat()}\n")
            self._write()
        line = f"{self.host}\t{slot}\t{at.isoformat()}\t{self.generation}\t{self.boot}\n".encode()
        try:
            if slot not in self._slots:
                path = self.folder / f"slot-{self.host}-{slot}"
                self._slots[slot] = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
            if os.pwrite(self._slots[slot], line, 0) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.ftruncate(self._slots[slot], len(line))
        except OSError as error:
            self._fail("beats", error)
        else:
            self._succeed("beats")

    def now_in(self, generation: int) -> None:
        """Note the generation of the database that later lines belong to."""
        if generation != self.generation or self._file < 0:
            self.generation = generation
            self._waiting.append(f"g\t{generation}\n")

    def _write(self) -> bool:
        """Write what waits. Returns False when it could not be written: then it waits on."""
        if not self._waiting and "claims" not in self.failures:
            return True
        text = "".join(self._waiting).encode()
        try:
            # A file without a name was deleted: what we write would be lost with it.
            if self._file < 0 or self._size > FILE_SIZE or not os.fstat(self._file).st_nlink:
                self._open()
                text = f"g\t{self.generation}\n".encode() + text
            elif "claims" in self.failures:  # a part of a line, or of the first ones, may be there
                text = f"\ng\t{self.generation}\n".encode() + text
            self._size += _write_all(self._file, text)
        except OSError as error:
            self._fail("claims", error)
            return False
        self._succeed("claims")
        self._waiting.clear()
        return True

    def _open(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        prune(self.folder)
        path = self.folder / f"{time.time_ns():020}-{os.getpid()}.claims"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # no process prunes it while we write it
        self._size = 0

    def _fail(self, what: str, error: OSError) -> None:
        if what not in self.failures:
            log.error("%s cannot be noted on this machine, so that nothing is claimed: %s", what, error)
        self.failures[what] = error

    def _succeed(self, what: str) -> None:
        if self.failures.pop(what, None) is not None:
            log.info("%s can be noted again", what)

    def close(self) -> None:
        self._write()
        for file in (self._file, *self._slots.values()):
            if file >= 0:
                os.close(file)
        self._file = -1
        self._slots.clear()

    # --- reading ----------------------------------------------------------------------------------------

    def last_beats(self) -> list[Beat]:
        """Return the last heartbeat of every slot of this machine."""
        beats = []
        for path in sorted(self.folder.glob("slot-*")):
            try:
                host, slot, at, generation, boot = path.read_text().strip().split("\t")
                beats.append(Beat(host, int(slot), datetime.fromisoformat(at), int(generation), boot))
            except (OSError, ValueError):
                continue  # being written, or cut off
        return beats

    def compare(self, generation: int, durable: dict[int, datetime]) -> Compared:
        """Return what may be missing in a database of this generation. `durable`: the heartbeat of each slot that it
        has. Everything that came before such a heartbeat is there; answers are returned for what may not be."""
        self._write()
        compared_in, settled = self._settled()
        # Once compared with this generation, the rows of the slots may be of later drivers.
        is_first = compared_in < generation
        compared = Compared()
        for path in files(self.folder):
            done = settled.get(path.name, 0) if compared_in <= generation else 0
            self._compare(path, generation, durable, is_first, done, compared)
        return compared

    def _compare(
        self,
        path: Path,
        generation: int,
        durable: dict[int, datetime],
        is_first: bool,
        done: int,
        compared: Compared,
    ) -> None:
        in_doubt: dict[int, NotedClaim] = {}
        results: dict[tuple[int, int, datetime], Result] = {}
        noted_in, position = 0, 0
        for line in _lines(path):
            position += len(line)
            kind, *fields = line.decode("utf-8", "replace").rstrip("\n").split("\t")
            try:
                if kind == "g":
                    noted_in = int(fields[0])
                    compared.generation = max(compared.generation, noted_in)
                elif kind == "b" and (noted_in == generation or (is_first and noted_in < generation)):
                    slot, at = int(fields[0]), datetime.fromisoformat(fields[1])
                    if slot in durable and at <= durable[slot]:
                        in_doubt.clear()
                        results.clear()
                elif kind == "c":
                    claim = _claim(fields)
                    compared.target_id = max(compared.target_id, claim.target_id)
                    if noted_in >= generation or position > done:
                        in_doubt[claim.target_id] = claim
                        if noted_in > generation:
                            compared.certain.add(claim.target_id)
                elif kind == "r":
                    result = _result(fields)
                    if result.target_id in in_doubt:
                        results[result.target_id, result.epoch, result.claimed_at] = result
            except (ValueError, IndexError):
                continue  # cut off when its process was killed
        for target_id, claim in in_doubt.items():
            earlier = compared.claims.get(target_id)
            if earlier is None or earlier.at <= claim.at:
                compared.claims[target_id] = claim
        compared.results |= results
        compared.sizes[path.name] = position

    def is_up_to_date(self, generation: int) -> bool:
        """Return whether everything noted under earlier generations of the database has been compared."""
        if self.generation:
            return self.generation == generation
        return self._settled()[0] >= generation or all(beat.generation == generation for beat in self.last_beats())

    def latest_generation(self) -> int:
        """Return the highest generation of a database that this machine has beaten in or compared with; 0: none."""
        return max([self._settled()[0], *(beat.generation for beat in self.last_beats())])

    @property
    def survived(self) -> bool:
        """Return whether the journal of a machine that sent is complete: it is there, and the machine has not lost its
        power since the last heartbeat."""
        beats = [beat for beat in self.last_beats() if beat.host == self.host]
        return bool(beats) and max(beats, key=lambda beat: beat.at).boot == self.boot

    def settle(self, compared: Compared, generation: int) -> None:
        """Note that the files were compared up to these sizes, with a database that has this generation now."""
        lines = [f"generation\t{generation}\n", *(f"{name}\t{size}\n" for name, size in compared.sizes.items())]
        fresh = self.folder / f"settled.{os.getpid()}"
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            fresh.write_text("".join(lines))
            fresh.replace(self.folder / "settled")
        except OSError as error:
            log.warning("this machine's claims will be compared again: %s", error)

    def _settled(self) -> tuple[int, dict[str, int]]:
        """Return the generation that the journals were last compared with, and the size of each then."""
        try:
            rows = [line.split("\t") for line in (self.folder / "settled").read_text().splitlines()]
            sizes = {name: int(number) for name, number in rows}
            return sizes.pop("generation"), sizes
        except (OSError, ValueError, KeyError):
            return 0, {}


def files(folder: Path) -> list[Path]:
    """Return the journals of this machine, the oldest first."""
    return sorted(folder.glob("*.claims"))


def prune(folder: Path) -> None:
    """Delete the oldest files beyond a size, and those that are too old; none that a live process writes. Notes until
    when lines are gone."""
    total, now = 0, time.time()
    for path in reversed(files(folder)):
        try:
            found = path.stat()
            total += found.st_size
            if total > ALL_FILES or now - found.st_mtime > KEPT_FOR:
                with path.open("rb") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    _note_pruned(folder, found.st_mtime)
                    path.unlink()
        except OSError:
            continue  # its process writes it, or another one deletes, too


def pruned_until(folder: Path) -> datetime | None:
    """Return the moment of the last line that was deleted."""
    try:
        return datetime.fromisoformat((folder / "pruned").read_text())
    except (OSError, ValueError):
        return None


def _note_pruned(folder: Path, seconds: float) -> None:
    until, before = datetime.fromtimestamp(seconds, UTC), pruned_until(folder)
    if before is None or before < until:
        fresh = folder / f"pruned.{os.getpid()}"
        fresh.write_text(until.isoformat())
        fresh.replace(folder / "pruned")


def _write_all(file: int, text: bytes) -> int:
    """Write the whole text. Returns its length."""
    written = 0
    while written < len(text):
        written += os.write(file, text[written:])
    return written


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            yield from (line for line in file if line.endswith(b"\n"))
    except OSError:
        return


def _claim(fields: list[str]) -> NotedClaim:
    target, run, account, epoch, part, at, address, reminder, scheduled_for, action = fields
    return NotedClaim(
        int(target),
        int(run),
        int(account),
        int(epoch),
        int(part),
        datetime.fromisoformat(at),
        address,
        int(reminder),
        datetime.fromisoformat(scheduled_for),
        action,
    )


def _result(fields: list[str]) -> Result:
    target, run, account, epoch, claimed_at, status, parts_sent, attempts, at, action, part, activity, kind, name = (
        fields
    )
    return Result(
        int(target),
        int(run),
        int(account),
        int(epoch),
        datetime.fromisoformat(claimed_at),
        status,
        int(parts_sent),
        int(attempts),
        datetime.fromisoformat(at),
        action=action,
        part=int(part),
        activity=activity,
        kind=kind,
        provider_id=name,
    )


def _plain(text: str) -> str:
    return text if text.isprintable() else "".join(letter for letter in text if letter.isprintable())
