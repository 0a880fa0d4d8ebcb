"""Incoming messages, and the message that a receipt belongs to, in every order of sends, answers, receipts and kills.

A scripted session plays histories step by step. The world knows whose id is whose, and judges what the session reports.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import random
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from accounts.channels.provider_events import EventKind, ProviderEvent
from accounts.channels.whatsapp.bridge import incoming, stand_ins
from accounts.channels.whatsapp.bridge.journal import Journal, Receipt, SentMessage, as_json
from accounts.channels.whatsapp.bridge.library import Limits
from accounts.channels.whatsapp.bridge.scripted import ScriptedClient, ScriptedWhatsApp, group_address
from accounts.channels.whatsapp.bridge.session import Session
from accounts.channels.whatsapp.wire import Order
from tests.whatsapp.running import paired, session_of

GROUP = group_address("1", 0)
PERSON, NUMBER, HIDDEN = "+4915200000001", "4915200000001@s.whatsapp.net", "77@lid"
KINDS = {1: "delivered", 4: "read"}
DELIVERED, READ = KINDS
#: Turns of the event loop within which a step has happened.
TICKS = 60
FOREVER = 10**9

#: How a try ends: with the words of the client's error, or none where WhatsApp acknowledged it; whether it went out.
FATES = {
    "acknowledged": ("", True),
    "cut": ("websocket disconnected before message send returned response", True),
    "lost": ("timed out waiting for message send response", False),
    "refused": ("server returned error 429", False),
}


@dataclass(frozen=True)
class Try:
    fate: str
    message: str = "crier-1-0"
    receipts: tuple[int, ...] = (DELIVERED,)


@dataclass(frozen=True)
class Step:
    """The `send` or the `answer` of a try, a `receipt` of it, what the receipt's chat is found to be (`look-up`), or a
    `kill` of the bridge with a new start."""

    what: str
    number: int = 0
    kind: int = 0


# -- histories --------------------------------------------------------------------------------------------


def lines_of(tries: list[Try], hidden: bool) -> list[list[Step]]:
    """What happens one after the other: a send waits for the answer before it; receipts are lines of their own."""
    lines = [[Step(what, n) for n in range(len(tries)) for what in ("send", "answer")]]
    for number, one in enumerate(tries):
        for kind in one.receipts if FATES[one.fate][1] else ():
            told = [Step("receipt", number, kind), Step("look-up", number, kind)]
            lines.append(told if hidden else told[:1])
    return lines


def orders(lines: list[list[Step]], so_far: tuple[Step, ...] = ()) -> Iterator[list[Step]]:
    """All orders in which the lines may happen beside each other."""
    if not any(lines):
        yield list(so_far)
    for n, line in enumerate(lines):
        if line and may_follow(line[0], so_far):
            yield from orders([*lines[:n], line[1:], *lines[n + 1 :]], (*so_far, line[0]))


def may_follow(step: Step, so_far: tuple[Step, ...]) -> bool:
    """A receipt comes after its send."""
    return step.what != "receipt" or Step("send", step.number) in so_far


def some_order(lines: list[list[Step]], rng: random.Random) -> list[Step]:
    steps: tuple[Step, ...] = ()
    while any(lines):
        line = rng.choice([line for line in lines if line and may_follow(line[0], steps)])
        steps = (*steps, line.pop(0))
    return list(steps)


def with_kills(steps: list[Step]) -> Iterator[list[Step]]:
    """The history as it is, and with a kill -9 after each of its steps."""
    yield steps
    for at in range(1, len(steps) + 1):
        yield [*steps[:at], Step("kill"), *steps[at:]]


# -- the world --------------------------------------------------------------------------------------------


class Stepped(ScriptedClient):
    """A client whose sends and look-ups are answered by the test."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.sending: asyncio.Future[Any] | None = None
        self.looking_up: list[asyncio.Future[None]] = []

    async def send_message(self, to: Any, message: Any) -> Any:
        self.sending = asyncio.get_running_loop().create_future()
        return await self.sending

    async def get_pn_from_lid(self, jid: Any) -> Any:
        self.looking_up.append(asyncio.get_running_loop().create_future())
        await self.looking_up[-1]
        return self.jid(NUMBER.partition("@")[0])

    async def get_joined_groups(self) -> list[Any]:
        return [self._group(0)]


class Killed(BaseException):
    """The bridge's process has ended."""


class Mortal:
    """A connection that ends with a statement, as that of a killed process does: what is not committed is gone."""

    def __init__(self, db: sqlite3.Connection, life: list[int]) -> None:
        self.db, self.life = db, life

    def execute(self, *statement: Any) -> Any:
        self._live()
        return self.db.execute(*statement)

    def executemany(self, *statement: Any) -> Any:
        self._live()
        return self.db.executemany(*statement)

    def executescript(self, script: str) -> Any:
        return self.db.executescript(script)

    def close(self) -> None:
        self.db.close()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *raised: Any) -> None:
        self._live()  # a commit may be the last thing, too
        self.db.__exit__(*raised)

    def _live(self) -> None:
        self.life[0] -= 1
        if self.life[0] <= 0:
            self.db.close()
            raise Killed


@dataclass
class World:
    """A chat of one account and what happens in it.

    `hidden`: WhatsApp tells of the chat by a hidden id. `patience`: how long the bridge's caller waits for an answer.
    `life`: statements until the bridge is killed.
    """

    folder: Path
    tries: list[Try]
    hidden: bool = False
    patience: float = 10.0
    life: list[int] = field(default_factory=lambda: [FOREVER])
    session: Session = field(init=False)
    #: the try that this bridge handed over and has no answer to
    flying: int | None = None
    #: tries at whose beginning the bridge was killed: they may be in its journal, and so in doubt
    begun: set[int] = field(default_factory=set)
    #: tries, their answers and receipts that happened, each taken by a bridge that lived on
    handed_over: set[int] = field(default_factory=set)
    answered: set[int] = field(default_factory=set)
    taken: set[tuple[int, int]] = field(default_factory=set)
    reported: list[ProviderEvent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.server = server = ScriptedWhatsApp(self.folder / "script", stand_ins=True)
        server.client = lambda name, **options: Stepped(server, name, **options)  # type: ignore[method-assign]
        paired(self.folder / "sessions", 1)

    @property
    def client(self) -> Stepped:
        client = self.session.client
        assert isinstance(client, Stepped)
        return client

    async def play(self, steps: list[Step]) -> None:
        await self._survive(self._start)
        for step in steps:
            await self._survive(lambda step=step: self._do(step))  # type: ignore[misc]
        await self._survive(self._end)

    async def _survive(self, work: Callable[[], Any]) -> None:
        """A bridge that is killed starts again; what it was at does not go on, except that the end is reached."""
        try:
            await work()
        except Killed:
            self.life[0], self.flying = FOREVER, None
            if hasattr(self, "session"):
                self.session.journal.close()
            await cancel_others()
            await self._start()
            if work == self._end:
                await self._end()

    async def _start(self) -> None:
        """As a bridge begins with a stored session."""
        folder = self.folder / "sessions" / "1"
        self.session = session_of(1, self.server.library, folder, Limits())
        if not self.patience:
            self.session.dispatcher._ends_within = self._gives_up  # type: ignore[method-assign]
        self.session.client = self.server.client("session.db", uuid="1-1")
        await self._receive("Connected", self.client.make("Connected"))

    async def _do(self, step: Step) -> None:
        if step.what == "send":
            await self._send(step.number)
        elif step.what == "answer" and self.flying == step.number:
            await self._answer(step.number)
            self.answered.add(step.number)
        elif step.what == "receipt" and step.number in self.handed_over:
            chat = HIDDEN if self.hidden else GROUP
            await self._receive("Receipt", self.client._receipt_for(chat, id_of(step.number), type=step.kind))
            self.taken.add((step.number, step.kind))
        elif step.what == "look-up":
            await self._find_chats()
        elif step.what == "kill":
            raise Killed

    async def _send(self, number: int) -> None:
        order = Order(PERSON if self.hidden else GROUP, "text", self.tries[number].message, text="Hello")
        self.client.sending = None
        self.begun.add(number)
        sending = asyncio.create_task(self.session.dispatcher.send(order))
        await self._until(
            lambda: self.client.sending is not None or (sending.done() and not self.session.dispatcher.tasks)
        )
        if self.client.sending is None:
            sending.result()
            self.begun.remove(number)
            # An earlier try at the same message was acknowledged late, and that is the answer.
            assert any(self._is_known(n) and self.tries[n].message == order.message_id for n in self.handed_over)
            return
        self.flying = number
        self.handed_over.add(number)
        await self._until(lambda: self.patience > 0 or sending.done())

    async def _gives_up(self, task: asyncio.Task[Any], seconds: float) -> bool:
        """As a caller does whose message was handed over and not answered."""
        await self._until(lambda: self.client.sending is not None or task.done())
        return task.done()

    async def _answer(self, number: int) -> None:
        words, self.flying = FATES[self.tries[number].fate][0], None
        assert self.client.sending is not None
        if words:
            self.client.sending.set_exception(self.server.library.error(words))
        else:
            self.client.sending.set_result(self.client.types.SendResponse(ID=id_of(number), Timestamp=0))
        tasks = list(self.session.dispatcher.tasks)
        await self._until(lambda: all(task.done() for task in tasks))
        for task in tasks:
            task.result()
        await self._until(lambda: False)  # what comes late is reported by a callback

    async def _receive(self, name: str, event: Any) -> None:
        task = asyncio.create_task(self.session._handler(self.client, name)(None, event))
        await self._until(task.done)
        if task.done():
            task.result()

    async def _find_chats(self) -> None:
        for look_up in self.client.looking_up:
            if not look_up.done():
                look_up.set_result(None)
        await self._until(lambda: False)

    async def _until(self, condition: Callable[[], object]) -> None:
        for _ in range(TICKS):
            if condition():
                return
            await asyncio.sleep(0)

    async def _end(self) -> None:
        for _ in range(3):
            await self._find_chats()
        self.reported = [event for _, event in self.session.journal.waiting(1000)]
        self.session.journal.close()
        await cancel_others()

    # -- what must hold -----------------------------------------------------------------------------------

    def judge(self) -> None:
        owners = {id_of(n): one.message for n, one in enumerate(self.tries) if FATES[one.fate][1]}
        events = [event for event in self.reported if event.provider_id]
        assert all(owners.get(event.provider_id) == event.message_id for event in events), events
        receipts = Counter((e.provider_id, e.kind.value) for e in events if e.detail.get("by") != "server")
        assert all(count == 1 for count in receipts.values()), events
        for number, kind in self.taken:
            if self._is_known(number) or (kind == DELIVERED and self._is_the_only_uncertain(number)):
                assert receipts[id_of(number), KINDS[kind]] == 1, (number, events)
        assert {event.address or event.group for event in events} <= {PERSON if self.hidden else GROUP}

    def _is_known(self, number: int) -> bool:
        return number in self.answered and self.tries[number].fate == "acknowledged"

    def _is_the_only_uncertain(self, number: int) -> bool:
        """Whether nothing else can be meant by a receipt with this id."""
        refused = {n for n in self.answered if self.tries[n].fate == "refused"}
        return {n for n in (self.handed_over | self.begun) - refused if not self._is_known(n)} == {number}


async def cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def id_of(number: int) -> str:
    return f"3EB0{number:016d}"


def play(world: World, steps: list[Step]) -> None:
    async def go() -> None:
        # Tasks of a killed bridge end with whatever they meet.
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        await world.play(steps)

    asyncio.run(go())
    try:
        world.judge()
    except AssertionError as error:
        raise AssertionError(f"{world.tries} {steps}") from error


@pytest.fixture
def folders() -> Iterator[Iterator[Path]]:
    """In memory where there is such a place: a history needs a few journals, and there are many histories."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield (Path(folder) / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that is killed complains about its journal."""
    monkeypatch.setattr(logging.getLogger("crier.bridge"), "disabled", True)


# -- the tests --------------------------------------------------------------------------------------------

PAIRS = list(itertools.product(FATES, repeat=2))


@pytest.mark.parametrize(("first", "second"), PAIRS, ids=[f"{first}, then {second}" for first, second in PAIRS])
def test_every_order_of_two_messages_with_a_kill_after_every_step(
    first: str, second: str, folders: Iterator[Path]
) -> None:
    tries = [Try(first, "crier-1-0"), Try(second, "crier-2-0")]
    for order in orders(lines_of(tries, hidden=False)):
        for steps in with_kills(order):
            play(World(next(folders), tries), steps)


@pytest.mark.parametrize("seed", range(6))
def test_some_orders_of_more_messages_with_all_that_may_happen(seed: int, folders: Iterator[Path]) -> None:
    """Three tries, some of them at one message, read and delivered, hidden chats, callers who gave up, and kills."""
    rng = random.Random(seed)
    for _ in range(40):
        hidden = rng.random() < 0.5
        receipts = [(DELIVERED,), (DELIVERED, READ), (READ, DELIVERED), (READ,)]
        messages = ["crier-1-0", rng.choice(["crier-1-0", "crier-2-0"]), "crier-3-0"]
        tries = [Try(rng.choice(list(FATES)), message, rng.choice(receipts)) for message in messages]
        steps = some_order(lines_of(tries, hidden), rng)
        for _ in range(rng.choice([0, 1, 1, 2])):
            steps.insert(rng.randrange(1, len(steps) + 1), Step("kill"))
        play(World(next(folders), tries, hidden, rng.choice([10.0, 0.0])), steps)


SEND, ANSWER = [Step("send", n) for n in range(2)], [Step("answer", n) for n in range(2)]
RECEIPT, LOOK_UP = [Step("receipt", n, DELIVERED) for n in range(2)], Step("look-up")


@pytest.mark.parametrize(
    ("first", "steps", "hidden"),
    [
        ("lost", [SEND[0], ANSWER[0], SEND[1], RECEIPT[1], ANSWER[1]], False),
        ("lost", [SEND[0], ANSWER[0], SEND[1], ANSWER[1], RECEIPT[1]], False),
        ("cut", [SEND[0], ANSWER[0], SEND[1], RECEIPT[0], RECEIPT[1], ANSWER[1]], False),
        ("cut", [SEND[0], ANSWER[0], RECEIPT[0], SEND[1], RECEIPT[1], ANSWER[1]], False),
        ("lost", [SEND[0], ANSWER[0], SEND[1], RECEIPT[1], LOOK_UP, ANSWER[1]], True),
        ("cut", [SEND[0], ANSWER[0], SEND[1], RECEIPT[1], ANSWER[1], RECEIPT[0], LOOK_UP], True),
    ],
    ids=[
        "the receipt first",
        "the acknowledgement first",
        "both receipts under way",
        "the first receipt in between",
        "looked up under way",
        "looked up at the end",
    ],
)
def test_a_kill_at_every_statement(
    first: str, steps: list[Step], hidden: bool, folders: Iterator[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = [Try(first, "crier-1-0"), Try("acknowledged", "crier-2-0")]
    connect = sqlite3.connect
    for statements in itertools.count(1):
        world = World(next(folders), tries, hidden)
        world.life[0] = statements
        with monkeypatch.context() as patch:
            patch.setattr(
                sqlite3, "connect", lambda *args, life=world.life, **more: Mortal(connect(*args, **more), life)
            )
            play(world, steps)
        if 0 < world.life[0] < FOREVER // 2:
            break  # it lived to the end
    assert statements > 20


@pytest.mark.parametrize(
    ("fate", "steps", "reported"),
    [
        ("acknowledged", [("read", 0), ("delivered", 0), "answer"], ["delivered", "read"]),
        ("acknowledged", ["answer", ("read", 0), ("delivered", 0)], ["read", "delivered"]),
        ("acknowledged", [("delivered", 0), ("delivered", 0), "answer", ("delivered", 0)], ["delivered"]),
        ("cut", [("read", 0), ("delivered", 0), "answer"], ["delivered", "read"]),
        ("cut", ["answer", ("read", 0)], []),
        ("cut", ["answer", ("delivered", 0), ("read", 0)], ["delivered", "read"]),
        ("cut", [("delivered", 0, 9), "answer"], []),
        ("cut", ["answer", ("delivered", 0, 9)], []),
        ("cut", [("delivered", 0), ("delivered", 9), "answer"], []),
        ("acknowledged", [("delivered", 0, 9), "answer"], ["delivered"]),
        ("refused", [("delivered", 9), "answer"], []),
    ],
    ids=[
        "read first, under way",
        "read first",
        "several members",
        "read first, in doubt",
        "only read",
        "in doubt",
        "two unknown ids under way",
        "two unknown ids",
        "two unknown ids, one after the other",
        "an unknown id beside a known one",
        "an unknown id and nothing in doubt",
    ],
)
def test_what_is_reported_of_one_message(
    fate: str, steps: list[Any], reported: list[str], folders: Iterator[Path]
) -> None:
    """A receipt may name several messages; number 9 is one that the journal has never received of."""
    world = World(next(folders), [Try(fate)])

    async def go() -> None:
        await world._start()
        await world._send(0)
        for step in steps:
            if step == "answer":
                await world._answer(0)
            else:
                name, *numbers = step
                receipt = world.client._receipt_for(GROUP, "", type=READ if name == "read" else DELIVERED)
                receipt.MessageIDs = [id_of(number) for number in numbers]
                await world._receive("Receipt", receipt)
        await world._end()

    asyncio.run(go())
    events = [event for event in world.reported if event.provider_id]
    assert [(event.kind.value, event.provider_id) for event in events] == [(kind, id_of(0)) for kind in reported]


@pytest.mark.parametrize(
    ("kind", "reported"), [(1, "delivered"), (9, "delivered"), (4, "read"), (6, "read"), (2, ""), (3, ""), (8, "")]
)
def test_the_kinds_of_receipt(kind: int, reported: str, folders: Iterator[Path]) -> None:
    """neonize's numbers: 9 is "inactive", a delivery to a device that is not in use; 2, 3 and 8 deliver nothing."""
    world = World(next(folders), [Try("acknowledged")])

    async def go() -> None:
        await world._start()
        await world._send(0)
        await world._answer(0)
        await world._receive("Receipt", world.client._receipt_for(GROUP, id_of(0), type=kind))
        await world._end()

    asyncio.run(go())
    assert [event.kind.value for event in world.reported if event.provider_id] == ([reported] if reported else [])


@pytest.mark.parametrize("acknowledged_first", [True, False])
def test_a_chat_that_is_told_by_number_needs_no_look_up_under_way(
    acknowledged_first: bool, folders: Iterator[Path]
) -> None:
    """Devices of one person tell of the chat in two ways; the second need not wait, and both are one receipt."""
    world = World(next(folders), [Try("acknowledged")], hidden=True)

    async def go() -> None:
        await world._start()
        await world._send(0)
        if acknowledged_first:
            await world._answer(0)
        for chat in (HIDDEN, NUMBER):
            await world._receive("Receipt", world.client._receipt_for(chat, id_of(0)))
        if not acknowledged_first:
            await world._answer(0)
        assert any(event.provider_id for _, event in world.session.journal.waiting(9))
        await world._end()

    asyncio.run(go())
    (event,) = [event for event in world.reported if event.provider_id]
    assert (event.message_id, event.address) == ("crier-1-0", PERSON)


def test_what_a_killed_bridge_had_kept_is_reported_without_a_connection(folders: Iterator[Path]) -> None:
    """Also by a bridge whose number was logged out meanwhile."""
    folder = next(folders)
    world = World(folder, [Try("acknowledged")])
    own = folder / "sessions" / "1"
    journal = Journal(own / "journal.db")
    journal.sent(journal.begin("crier-1-0", GROUP, GROUP, 0), SentMessage(id_of(0), "crier-1-0", GROUP), 0)
    journal.hold([Receipt(id_of(0), EventKind.DELIVERED, GROUP, GROUP, 1_780_000_000)], named=True)
    journal.close()

    async def start() -> list[ProviderEvent]:
        session = session_of(1, world.server.library, own, Limits())
        waiting = [event for _, event in session.journal.waiting(9)]
        session.journal.close()
        return waiting

    for _ in range(2):
        (event,) = asyncio.run(start())
        assert (event.kind, event.message_id, event.provider_id) == ("delivered", "crier-1-0", id_of(0))


@pytest.mark.parametrize(
    ("tries", "names", "settled"),
    [
        ([("a", NUMBER, NUMBER)], (NUMBER, HIDDEN), "a"),
        ([("a", NUMBER, HIDDEN)], (NUMBER, NUMBER), "a"),
        ([("a", NUMBER, HIDDEN)], (HIDDEN, HIDDEN), "a"),
        ([("a", NUMBER, "553187654321@s.whatsapp.net")], ("553187654321@s.whatsapp.net", HIDDEN), "a"),
        ([("a", NUMBER, NUMBER)], (GROUP, GROUP), None),
        ([("a", NUMBER, NUMBER), ("b", GROUP, GROUP)], (GROUP, GROUP), "b"),
        ([("a", NUMBER, NUMBER), ("b", NUMBER, NUMBER)], (NUMBER, NUMBER), None),
        ([("a", NUMBER, NUMBER), ("a", NUMBER, NUMBER)], (NUMBER, NUMBER), None),
        ([("a", NUMBER, NUMBER), ("b", NUMBER, HIDDEN)], (NUMBER, NUMBER), None),
        ([("a", NUMBER, NUMBER), ("b", NUMBER, HIDDEN)], (HIDDEN, HIDDEN), None),
    ],
    ids=[
        "by number",
        "sent to a hidden id, told by number",
        "sent to a hidden id, told by it",
        "another spelling of the number",
        "another chat",
        "one in each chat",
        "two messages",
        "two tries at one message",
        "two ids of one chat, told by number",
        "two ids of one chat, told by the hidden one",
    ],
)
def test_the_only_send_without_an_answer_in_a_chat(
    tries: list[tuple[str, str, str]], names: tuple[str, str], settled: str | None, tmp_path: Path
) -> None:
    journal = Journal(tmp_path / "journal.db")
    for message, recipient, chat in tries:
        journal.begin(message, recipient, chat, 1000)

    uncertain = journal.uncertain_in(names, 1000)

    assert (uncertain and uncertain[1]) == settled
    journal.close()


@pytest.mark.parametrize(
    ("at", "settled"), [(994, False), (995, True), (1000 + 3 * 86_400, True), (1001 + 3 * 86_400, False)]
)
def test_a_receipt_settles_what_began_before_it_and_not_long_ago(at: int, settled: bool, tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.db")
    journal.begin("a", GROUP, GROUP, 1000)

    assert (journal.uncertain_in((GROUP, GROUP), at) is not None) is settled
    journal.close()


# -- messages from hidden ids ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("killed", "paired_still", "address"),
    [(False, True, PERSON), (True, True, PERSON), (True, False, HIDDEN)],
    ids=["looked up", "killed meanwhile", "killed, and unpaired since"],
)
@pytest.mark.parametrize("from_me", [False, True], ids=["reply", "written on the phone"])
def test_a_message_is_kept_before_its_number_is_looked_up(
    killed: bool, paired_still: bool, address: str, from_me: bool, folders: Iterator[Path]
) -> None:
    """An opt-out must not be lost with the bridge."""
    world = World(next(folders), [])
    jid = stand_ins.JID(User=HIDDEN.split("@")[0], Server="lid")
    source = stand_ins.MessageSource(Chat=jid, Sender=jid, IsFromMe=from_me)
    event = stand_ins.EVENTS["Message"](
        Info=stand_ins.MessageInfo(ID="A1", MessageSource=source), Message=stand_ins.Content(conversation="STOP")
    )

    async def go() -> list[ProviderEvent]:
        await world._start()
        await world._receive("Message", event)
        journal = world.session.journal
        assert [one for _, one in journal.waiting(9) if one.kind is not EventKind.SESSION] == [], "it waits"
        if killed:
            journal.close()
            await cancel_others()
            if paired_still:
                await world._start()
            else:
                world.session = session_of(1, world.server.library, world.session.folder, Limits())
                world.session.pairing.was_paired = False
        for _ in range(3 if paired_still else 0):
            await world._find_chats()
        waiting = world.session.journal.waiting(9, world.session.unnamed_before)
        world.session.journal.close()
        await cancel_others()
        return [one for _, one in waiting if one.kind is not EventKind.SESSION]

    (told,) = asyncio.run(go())
    assert (told.kind, told.text) == (("written", "") if from_me else ("reply", "STOP"))
    assert told.address == ("" if from_me and address == HIDDEN else address)


def test_a_number_that_is_not_found_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.db")
    for n, hidden in enumerate(("1@lid", "2@lid")):
        journal.add_event(ProviderEvent(key=f"{n}", kind=EventKind.REPLY, address=hidden), hidden, now=1000)
    assert journal.waiting(9) == journal.waiting(9, unnamed_before=1000) == []

    journal.name_person("1@lid", "")
    assert [event.address for _, event in journal.waiting(9)] == ["1@lid"]
    assert [event.address for _, event in journal.waiting(9, unnamed_before=1001)] == ["1@lid", "2@lid"]
    assert journal.hidden_people() == ["2@lid"]
    journal.close()


def test_a_journal_of_an_earlier_version_keeps_its_events(tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / "journal.db")
    db.execute("CREATE TABLE events (id INTEGER PRIMARY KEY AUTOINCREMENT, body TEXT NOT NULL)")
    body = json.dumps(as_json(ProviderEvent(key="1", kind=EventKind.REPLY, text="STOP")))
    db.execute("INSERT INTO events (body) VALUES (?)", (body,))
    db.commit()
    db.close()
    for _ in range(2):
        journal = Journal(tmp_path / "journal.db")
        assert [event.text for _, event in journal.waiting(9)] == ["STOP"]
        journal.close()


# -- written on the phone ----------------------------------------------------------------------------------

TEXT_ONLY = stand_ins.Content(conversation="Hi")


@pytest.mark.parametrize(
    ("chat", "content", "counts"),
    [
        (GROUP, TEXT_ONLY, True),
        (GROUP, stand_ins.Content(locationMessage=stand_ins.LocationMessage(name="Hall")), True),
        (GROUP, stand_ins.Content(contactMessage=stand_ins.ContactMessage(displayName="Ann")), True),
        (GROUP, stand_ins.Content(pollCreationMessageV3=stand_ins.PollCreationMessage(name="When?")), True),
        ("1234@broadcast", TEXT_ONLY, True),
        ("status@broadcast", TEXT_ONLY, False),
        ("1234@newsletter", TEXT_ONLY, False),
        (GROUP, stand_ins.Content(), False),
        (GROUP, stand_ins.Content(reactionMessage=stand_ins.ReactionMessage(text="!")), False),
        (
            GROUP,
            stand_ins.Content(
                protocolMessage=stand_ins.ProtocolMessage(
                    editedMessage=type(stand_ins.Content().protocolMessage.editedMessage)(conversation="Hello")
                )
            ),
            False,
        ),
    ],
    ids=[
        "text",
        "location",
        "contact",
        "poll",
        "broadcast list",
        "status",
        "channel",
        "empty",
        "reaction",
        "edit",
    ],
)
def test_what_counts_as_written_on_the_phone(chat: str, content: Any, counts: bool) -> None:
    user, server = chat.split("@")
    source = stand_ins.MessageSource(Chat=stand_ins.JID(User=user, Server=server), IsFromMe=True)
    event = stand_ins.EVENTS["Message"](Info=stand_ins.MessageInfo(ID="A1", MessageSource=source), Message=content)
    written = incoming.written_event(event)
    assert (written is not None) is counts
    if written is not None:
        assert (written.address, written.group) == ("", GROUP if chat == GROUP else "")


# -- replies that quote -----------------------------------------------------------------------------------


CONTEXT = stand_ins.ContextInfo(stanzaID="3EB0QQ")
QUOTING = {
    "text": stand_ins.Content(extendedTextMessage=stand_ins.ExtendedTextMessage(text="yes", contextInfo=CONTEXT)),
    "picture": stand_ins.Content(imageMessage=stand_ins.ImageMessage(caption="yes", contextInfo=CONTEXT)),
    "voice": stand_ins.Content(audioMessage=stand_ins.AudioMessage(contextInfo=CONTEXT)),
}


@pytest.mark.parametrize("name", QUOTING)
def test_the_message_that_it_quotes(name: str) -> None:
    assert incoming.quoted(QUOTING[name]) == "3EB0QQ"


def test_most_only_follow() -> None:
    """Not the reply's own id: no message of ours has that."""
    event = stand_ins.EVENTS["Message"](
        Info=stand_ins.MessageInfo(ID="A1"), Message=stand_ins.Content(conversation="yes")
    )
    reply = incoming.reply_event(event, incoming.plain(stand_ins.JID(User="4917612345678", Server="s.whatsapp.net")))
    assert reply is not None
    assert (reply.key, reply.provider_id) == ("message:A1", "")


@pytest.mark.parametrize(("text", "key"), [("STOP", "edit:message:A1:"), ("", None)])
def test_an_edit_is_told_from_a_reply(text: str, key: str | None) -> None:
    edited = type(stand_ins.Content().protocolMessage.editedMessage)(conversation=text)
    event = stand_ins.EVENTS["Message"](
        Info=stand_ins.MessageInfo(ID="A1"),
        Message=stand_ins.Content(protocolMessage=stand_ins.ProtocolMessage(editedMessage=edited)),
    )
    reply = incoming.reply_event(event, incoming.plain(stand_ins.JID(User="4917612345678", Server="s.whatsapp.net")))
    assert (reply is None) is (key is None)
    if reply is not None:
        assert reply.key.startswith(str(key))
        assert (reply.text, reply.detail["edited"]) == (text, True)
