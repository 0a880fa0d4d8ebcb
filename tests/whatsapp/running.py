"""A bridge to work with: in a thread of the test, or as the process that it is in production.

Both talk to a scripted WhatsApp whose book says what really went out.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from aiohttp import web
from django.db import connection

from accounts.channels.provider_events import ProviderEvent
from accounts.channels.whatsapp import wire
from accounts.channels.whatsapp.bridge.api import Api
from accounts.channels.whatsapp.bridge.bridge import Bridge, Compared
from accounts.channels.whatsapp.bridge.conditions import utc_now
from accounts.channels.whatsapp.bridge.journal import NotedMessage
from accounts.channels.whatsapp.bridge.library import Library, Limits
from accounts.channels.whatsapp.bridge.review import Judged, UncertainSend
from accounts.channels.whatsapp.bridge.roster import WhatsAppGroup
from accounts.channels.whatsapp.bridge.scripted import ScriptedBook, ScriptedWhatsApp
from accounts.channels.whatsapp.bridge.session import Health, Session
from config.local.children import Child, wait_until
from tests.crier_processes import MANAGE, environment

PATIENCE = 180.0
#: A journal that a test begins with counts as old enough to know all ids.
USED_FOR = timedelta(days=40)
#: Short, so that tests need not wait for what takes a minute in life.
QUICK = {
    "first_code": 0.6,
    "next_code": 0.4,
    "first_retry": 0.1,
    "worth_telling": 0.0,
    "watch": 0.05,
    "stop": 0.2,
    "begin": 0.1,
    "review": 0.1,
    "report": 0.1,
    "shortest_typing": 0.05,
}
#: For tests of what takes too long.
IMPATIENT = QUICK | {"answer": 0.3, "turn": 0.2, "upload": 0.3}


def paired(folder: Path, account: int) -> None:
    """As if the number had been paired earlier."""
    from accounts.channels.whatsapp.bridge.journal import JOURNAL_FILE, PAIRED_AS, SESSION_FILE, Journal

    own = folder / str(account)
    own.mkdir(parents=True, exist_ok=True)
    (own / SESSION_FILE).write_text("number")
    journal = Journal(own / JOURNAL_FILE)
    journal.note(PAIRED_AS, f"49151{account:08d}@s.whatsapp.net")
    journal.close()


def session_of(account: int, library: Library, folder: Path, limits: Limits) -> Session:
    """A session without a bridge, whose journal has been in use for ever."""

    async def use_journal(session: Session, replace: bool = True) -> bool:
        session.in_use_since = datetime(2000, 1, 1, tzinfo=UTC)
        return True

    def on_news() -> None:
        for session in made:
            if asked := session.incoming.asked:
                session.incoming.learn(asked, {})

    made: list[Session] = []
    made.append(Session(account, library, folder, limits, on_news, lambda: None, use_journal))
    return made[0]


def wait_for(condition: Callable[[], object], patience: float = PATIENCE) -> None:
    assert wait_until(lambda: bool(condition()), patience), "waited too long"


def others_rest() -> bool:
    """Whether no other session is in the middle of a transaction: emptying the tables would meet it in a deadlock."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND backend_type = 'client backend' AND state <> 'idle'"
        )
        return bool(cursor.fetchone()[0])


class Answers:
    """The bridge's API, asked from a test."""

    url: str
    folder: Path

    @property
    def book(self) -> ScriptedBook:
        return ScriptedBook(self.folder / "script" / "book.jsonl")

    def delivered(self) -> list[dict[str, Any]]:
        """What went out; each file of it must be one that its recipients can open."""
        lines = self.book.lines()
        assert all(line.get("opens", True) for line in lines), lines
        return lines

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        data = json.dumps(body or {}).encode() if method != "GET" else None
        request = Request(f"{self.url}{path}", data, {wire.TOKEN_HEADER: wire.token()}, method=method)
        try:
            with urlopen(request, timeout=PATIENCE) as response:
                return json.load(response)
        except HTTPError as error:
            return {"status": error.code, **json.load(error)}

    def state(self, account: int) -> dict[str, Any]:
        answer = self.ask("GET", f"/accounts/{account}")
        assert isinstance(answer, dict)
        return answer

    def wait_state(self, account: int, state: str, patience: float = PATIENCE) -> dict[str, Any]:
        wait_for(lambda: self.state(account).get("state") == state, patience)
        return self.state(account)

    def happen(self, account: int, **what: Any) -> None:
        assert self.ask("POST", f"/script/{account}", what) == {}

    def script(self, **rules: Any) -> None:
        write_script(self.folder, **rules)


def write_script(folder: Path, **rules: Any) -> None:
    (folder / "script").mkdir(parents=True, exist_ok=True)
    path = folder / "script" / "script.json"
    path.with_suffix(".part").write_text(json.dumps({"limits": QUICK} | rules))
    path.with_suffix(".part").replace(path)


class Locks:
    """A shard without a database. Bridges that share `held` share the accounts, and `journals` where each is paired."""

    def __init__(
        self, accounts: set[int], held: dict[int, Locks], journals: dict[int, tuple[str, datetime]] | None = None
    ) -> None:
        self.ids, self.held = accounts, held
        self.journals = {} if journals is None else journals
        self.used_for = USED_FOR
        self.address = ""
        self.behind = False
        self.gone: set[int] = set()
        self.ended: dict[int, int] = {}
        self.asked = 0

    async def accounts(self) -> set[int]:
        return self.ids

    async def take(self, account_id: int) -> bool:
        return self.held.setdefault(account_id, self) is self

    async def give_back(self, account_id: int) -> None:
        del self.held[account_id]

    async def use_journal(self, account_id: int, journal: str, page: int, replace: bool) -> tuple[datetime, int] | None:
        owner, since = self.journals.setdefault(account_id, (journal, utc_now() - self.used_for))
        if owner != journal and replace:
            owner, since = self.journals[account_id] = journal, utc_now()
        return (since, page) if owner == journal else None

    async def is_behind(self, account_id: int, journal: str, page: int) -> bool:
        return self.behind

    async def end_journal(self, account_id: int, journal: str, page: int) -> int | None:
        self.ended[account_id] = page + 5  # a move has counted it on
        return self.ended[account_id]

    async def moved_away(self) -> set[int]:
        self.asked += 1
        return self.gone

    async def owner(self, account_id: int) -> str:
        return self.held[account_id].address if account_id in self.held else ""

    def close(self) -> None:
        for account_id in [number for number, holder in self.held.items() if holder is self]:
            del self.held[account_id]


class Kept:
    """A feed that keeps what it gets."""

    def __init__(self) -> None:
        self.events: list[ProviderEvent] = []
        self.groups: dict[int, Sequence[WhatsAppGroup]] = {}
        self.open_uncertain: dict[int, list[UncertainSend]] = {}
        self.judged: list[Judged] = []
        self.woken: Counter[int] = Counter()
        self.health: dict[int, Health] = {}
        self.compared: dict[int, Sequence[WhatsAppGroup]] = {}
        self.decided: set[str] = set()
        self.broken = False
        self.restored_knows: set[str] = set()
        self.owned: dict[str, str] = {}

    async def store(self, account_id: int, events: Sequence[ProviderEvent]) -> None:
        if self.broken:
            raise ConnectionError("no database")
        self.events.extend(events)

    async def store_groups(self, account_id: int, address: str, groups: Sequence[WhatsAppGroup]) -> None:
        self.groups[account_id] = groups

    async def wake(self, accounts: Sequence[int]) -> None:
        self.woken.update(accounts)

    async def report(self, sessions: Mapping[int, Health]) -> None:
        self.health.update(sessions)

    async def compare_groups(self, account_id: int, groups: Sequence[WhatsAppGroup]) -> None:
        self.compared[account_id] = groups

    async def uncertain_sends(
        self, accounts: Sequence[int], oldest: timedelta, newest: timedelta
    ) -> dict[int, list[UncertainSend]]:
        return self.open_uncertain

    async def settle(self, account_id: int, judged: Sequence[Judged]) -> None:
        self.judged.extend(judged)

    async def compare(self, account_id: int, messages: Sequence[NotedMessage]) -> Compared:
        return Compared(self.restored_knows, 0)

    async def owners(self, account_id: int, asked: Mapping[str, str]) -> dict[str, str]:
        if self.broken:
            raise ConnectionError("no database")
        return {provider_id: self.owned[provider_id] for provider_id in asked if provider_id in self.owned}

    async def settled(self, messages: Sequence[str]) -> set[str]:
        return self.decided & set(messages)


class InThread(Answers):
    """A bridge in a thread, without a database."""

    def __init__(
        self,
        folder: Path,
        *accounts: int,
        pair: bool = True,
        held: dict[int, Locks] | None = None,
        journals: dict[int, tuple[str, datetime]] | None = None,
        **rules: Any,
    ) -> None:
        self.folder = folder
        self.shard = Locks(set(accounts), {} if held is None else held, journals)
        self.feed = Kept()
        write_script(folder, **rules)
        for account in accounts if pair else ():
            paired(folder / "sessions", account)
        self.started = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self.thread.start()
        assert self.started.wait(PATIENCE)
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def stop(self) -> None:
        if self.thread.is_alive():
            self.loop.call_soon_threadsafe(self.stopping.set)
            self.thread.join(10)

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self.loop, self.stopping = asyncio.get_running_loop(), asyncio.Event()
        # The real classes are for bridges in a process of their own: they bring Go's runtime with them.
        provider = ScriptedWhatsApp(self.folder / "script", stand_ins=True)
        limits = Limits(**provider.script.of("0")["limits"])
        self.bridge = Bridge(provider.library, self.folder / "sessions", self.shard, self.feed, limits, 100)
        app = Api(self.bridge, wire.token()).application()
        provider.add_routes(app)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = self.shard.address = f"http://127.0.0.1:{runner.addresses[0][1]}"
        working = asyncio.create_task(self.bridge.run())
        self.started.set()
        await self.stopping.wait()
        await runner.cleanup()
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        await self.bridge.abandon()
        self.shard.close()

    def of_kind(self, kind: str) -> list[ProviderEvent]:
        return [event for event in self.feed.events if event.kind == kind]


class Process(Answers):
    """`manage.py whatsapp_bridge`, on the tests' database."""

    def __init__(self, folder: Path, name: str = "bridge", **variables: str) -> None:
        self.folder = folder
        self.var = folder / "var"
        (self.var / "whatsapp").mkdir(parents=True, exist_ok=True)
        command = [sys.executable, str(MANAGE), "whatsapp_bridge", "--script", str(folder / "script")]
        env = environment() | {"CRIER_VAR": str(self.var)} | variables
        # The kernel would end it with the thread that started it, which in a test may be a short-lived one.
        self.child = Child(name, command, folder / f"{name}.log", env, ends_with_us=False)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.child.kill_all()

    def start(self) -> None:
        (self.var / "whatsapp" / "bridge.url").unlink(missing_ok=True)
        self.child.start()
        wait_until(lambda: bool(self._address()) or not self.child.alive(), PATIENCE)
        assert self._address(), self.child.tail(30)
        self.url = self._address()

    def _address(self) -> str:
        path = self.var / "whatsapp" / "bridge.url"
        return path.read_text() if path.exists() else ""

    def kill(self) -> None:
        """kill -9."""
        self.child.kill_all()

    def freeze(self) -> None:
        assert self.child.pid is not None
        os.kill(self.child.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        assert self.child.pid is not None
        os.kill(self.child.pid, signal.SIGCONT)

    def pair_all(self, *accounts: int) -> None:
        for account in accounts:
            paired(self.var / "whatsapp", account)
