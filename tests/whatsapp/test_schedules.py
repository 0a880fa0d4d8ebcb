"""Bridge, journal and lane in any order of steps, crashes and decisions, judged by what really went out.

The journal, the verdicts and the matching of receipts are the real ones. Lane, network and WhatsApp are a few lines
each, so that two thousand schedules take seconds.
"""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from accounts.channels.provider_events import EventKind
from accounts.channels.whatsapp.bridge import incoming, review
from accounts.channels.whatsapp.bridge.incoming import Incoming
from accounts.channels.whatsapp.bridge.journal import Journal, SentMessage
from accounts.channels.whatsapp.bridge.review import TURN_PAGE_AFTER, UncertainSend, judge
from accounts.channels.whatsapp.bridge.scripted import group_address
from accounts.channels.whatsapp.bridge.stand_ins import EVENTS, JID, MessageSource

START = datetime(2026, 11, 18, 12, tzinfo=UTC)
SCHEDULES = 2_000
STEPS = 100
PAUSES = [0] * 12 + [1, 3, 40]  # seconds between two steps
ANSWER, CALL, REVIEW_AFTER = 10, 12, 30  # seconds: of the bridge, of the lane, and of Limits.review_after
CHATS = [group_address("1", n) for n in range(2)]


@dataclass
class Target:
    number: int
    chat: str
    status: str = "pending"
    epoch: int = 0
    claimed_at: datetime = START
    provider_id: str = ""
    by_operator: bool = False

    @property
    def name(self) -> str:
        return f"crier-{self.number}-0"


@dataclass
class Order:
    target: Target
    epoch: int
    claimed_at: datetime
    came_at: datetime | None = None
    begun: int | None = None  # its try in the journal
    provider_id: str = ""
    driver_waits: bool = True


@dataclass
class World:
    rng: random.Random
    now: datetime = START
    epoch: int = 1
    targets: list[Target] = field(default_factory=list)
    #: orders on their way to the bridge, those that it has, and the one that was handed over
    network: list[Order] = field(default_factory=list)
    at_hand: list[Order] = field(default_factory=list)
    flying: Order | None = None
    #: whose message WhatsApp has under an id, and the receipts that are on their way
    owners: dict[str, Target] = field(default_factory=dict)
    receipts: list[str] = field(default_factory=list)
    copy: sqlite3.Connection | None = None
    in_use_since: datetime = START - timedelta(days=40)
    #: the last page of the journal that the database knows of, and when the next one begins
    page: int = 0
    turns_at: datetime = START
    journal: Journal = field(init=False)
    proves_from: datetime = START - timedelta(days=1)

    def __post_init__(self) -> None:
        self.targets = [Target(n, self.rng.choice(CHATS)) for n in range(1, 6)]
        self.journal = Journal(Path(":memory:"))

    def play(self) -> None:
        steps: list[tuple[int, Callable[[], None]]] = [
            (8, self.claim),
            (8, self.arrive),
            (8, self.begin),
            (8, self.reach),
            (6, self.acknowledge),
            (2, self.refuse),
            (2, self.fall_silent),
            (6, self.receive),
            (2, self.kill_bridge),
            (2, self.lose_driver),
            (4, self.review),
            (1, self.operator),
            (1, self.back_up),
        ]
        if self.rng.random() < 0.2:
            steps.append((1, self.restore))
        if self.rng.random() < 0.2:
            steps.append((1, self.lose_journal))
        weights, acts = zip(*steps)
        try:
            for act in self.rng.choices(acts, weights, k=STEPS):
                act()
                self.now += timedelta(seconds=self.rng.choice(PAUSES))
                self.give_up()
                self.turn_page()
            self.end()
        finally:
            self.journal.close()
            self.forget_copy()

    # -- the lane -----------------------------------------------------------------------------------------

    def claim(self) -> None:
        """One message at a time, by the present driver."""
        pending = [one for one in self.targets if one.status == "pending"]
        if pending and not any(one.status == "sending" for one in self.targets):
            target = pending[0]
            target.status, target.epoch, target.claimed_at = "sending", self.epoch, self.now
            self.network.append(Order(target, self.epoch, self.now))

    def answer(self, order: Order, status: str, provider_id: str = "") -> None:
        """The driver's call ends. A result is accepted when it fits the claim."""
        target = order.target
        claim = (target.epoch, target.claimed_at) == (order.epoch, order.claimed_at)
        if order.driver_waits and claim and target.status in ("sending", "unconfirmed"):
            target.status, target.provider_id = status, provider_id or target.provider_id
        order.driver_waits = False

    def give_up(self) -> None:
        for order in [*self.network, *self.at_hand, *([self.flying] if self.flying else [])]:
            if order.driver_waits and self.now - order.claimed_at > timedelta(seconds=CALL):
                left = order.came_at is not None
                self.answer(order, "unconfirmed" if left else "pending")
                if not left:
                    self.network.remove(order)

    def lose_driver(self) -> None:
        """It is killed, or stopped and wakes up later: then its order is still on its way. Another gets the lane."""
        self.epoch += 1
        for target in self.targets:
            if target.status == "sending":
                target.status = "unconfirmed"
        for order in [*self.network, *self.at_hand, *([self.flying] if self.flying else [])]:
            order.driver_waits = False
        if self.rng.random() < 0.5:
            self.network.clear()

    # -- the bridge ---------------------------------------------------------------------------------------

    def arrive(self) -> None:
        if self.network:
            order = self.network.pop(0)
            order.came_at = self.now
            self.at_hand.append(order)

    def begin(self) -> None:
        """As `MessageDispatcher._hand_over`. A driver that was stopped waits again when it wakes up."""
        if not self.at_hand or self.flying:
            return
        order = self.at_hand.pop(0)
        assert order.came_at is not None
        too_late = self.now >= order.came_at + timedelta(seconds=ANSWER)
        if too_late or 0 < order.epoch < self.journal.epoch():
            self.answer(order, "pending")
            return
        chat = order.target.chat
        order.begun = self.journal.begin(f"{order.target.name}-{'ab' * 10}", chat, chat, self.now.timestamp())
        self.flying = order

    def reach(self) -> None:
        """WhatsApp has the message."""
        if self.flying and not self.flying.provider_id:
            order = self.flying
            order.provider_id = f"3EB0{len(self.owners):016d}"
            self.owners[order.provider_id] = order.target
            self.receipts.append(order.provider_id)

    def acknowledge(self) -> None:
        if self.flying and self.flying.provider_id:
            order, self.flying = self.flying, None
            assert order.begun is not None
            message = SentMessage(order.provider_id, f"{order.target.name}-{'ab' * 10}", order.target.chat)
            self.journal.sent(order.begun, message, self.now.timestamp())
            self.answer(order, "sent", order.provider_id)
            self.incoming.settle()

    def refuse(self) -> None:
        if self.flying and not self.flying.provider_id:
            order, self.flying = self.flying, None
            assert order.begun is not None
            self.journal.not_sent(order.begun)
            self.answer(order, "pending")
            self.incoming.settle()

    def fall_silent(self) -> None:
        """neonize's connection was cut: it may have gone out or not."""
        if self.flying:
            order, self.flying = self.flying, None
            self.answer(order, "unconfirmed")
            self.incoming.settle()

    def kill_bridge(self) -> None:
        """Its callers notice at once."""
        for order in [*self.at_hand, *([self.flying] if self.flying else [])]:
            self.answer(order, "unconfirmed")
        self.at_hand, self.flying = [], None
        self.incoming.settle()

    def receive(self) -> None:
        if self.receipts:
            provider_id = self.receipts[0] if self.rng.random() < 0.5 else self.rng.choice(self.receipts)
            if self.rng.random() < 0.7:
                self.receipts.remove(provider_id)  # otherwise another member of the group tells of it, too
            user, server = self.owners[provider_id].chat.split("@")
            source = MessageSource(Chat=JID(User=user, Server=server), IsGroup=True)
            at = int(self.now.timestamp())
            receipt = EVENTS["Receipt"](MessageSource=source, MessageIDs=[provider_id], Timestamp=at, Type=1)
            with pytest.raises(StopIteration):  # a group's chat needs no look-up, so it never waits
                self.incoming.receipt(None, receipt).send(None)
            self.process_inbound()

    @property
    def incoming(self) -> Incoming:
        session: Any = SimpleNamespace(
            journal=self.journal,
            dispatcher=SimpleNamespace(in_flight=self.flying is not None),
            restored=False,
            in_use_since=self.in_use_since,
            knows_ids_since=self.in_use_since,
        )
        handler = Incoming(session)
        session.on_news = lambda: self.ask_database(handler)
        return handler

    def ask_database(self, handler: Incoming) -> None:
        """As the bridge does. The database knows the ids that came with an answer or a receipt."""
        if asked := handler.asked:
            names = {one.provider_id: f"{one.name}-{'ab' * 10}" for one in self.targets if one.provider_id}
            handler.learn(asked, {one: names[one] for one in asked if one in names})

    def process_inbound(self) -> None:
        """Receipts settle targets, as fanout.inbound does."""
        for number, event in self.journal.waiting(99):
            target = self.owners[event.provider_id]
            assert event.kind is EventKind.DELIVERED
            assert event.message_id.startswith(f"{target.name}-"), "a receipt of another message"
            if target.status == "unconfirmed":
                target.status, target.provider_id = "sent", event.provider_id
            self.journal.acknowledge([number])

    # -- uncertain sends -------------------------------------------------------------------------------------------

    def uncertain_sends(self) -> list[UncertainSend]:
        """As fanout.bridge reads them."""
        return [
            UncertainSend(one.number, 1, one.name, one.claimed_at, one.epoch, self.epoch, self.witness(one))
            for one in self.targets
            if one.status == "unconfirmed" and one.claimed_at < self.now - timedelta(seconds=REVIEW_AFTER)
        ]

    def witness(self, target: Target) -> str:
        before = [
            one
            for one in self.targets
            if one.status == "sent" and not one.by_operator and one.claimed_at < target.claimed_at
        ]
        return max(before, key=lambda one: one.claimed_at).name if before else ""

    def review(self) -> None:
        orders = [*self.at_hand, *([self.flying] if self.flying else [])]
        at_hand = [f"{order.target.name}-{'ab' * 10}" for order in orders]
        for uncertain, provider_id in judge(self.uncertain_sends(), self.journal, self.in_use_since, at_hand, self.now):
            target = self.targets[uncertain.target_id - 1]
            target.status, target.provider_id = ("sent", provider_id) if provider_id else ("pending", "")
        for number, message in self.journal.open_tries(self.now.timestamp() - REVIEW_AFTER):
            target = self.targets[int(message.split("-")[1]) - 1]
            if target.status not in ("sending", "unconfirmed"):
                self.journal.decide(number)

    def turn_page(self) -> None:
        if self.now >= self.turns_at:
            self.page = self.journal.turn_page()
            self.turns_at = self.now + timedelta(seconds=TURN_PAGE_AFTER)

    def operator(self) -> None:
        """An operator looks at the phone, and decides what is true."""
        old = [
            one
            for one in self.targets
            if one.status == "unconfirmed"
            and one.claimed_at < self.now - timedelta(seconds=REVIEW_AFTER)
            and not self.is_moving(one)
        ]
        if old:
            target = self.rng.choice(old)
            delivered = target in self.owners.values()
            target.status, target.by_operator = ("sent", True) if delivered else ("pending", False)

    def is_moving(self, target: Target) -> bool:
        orders = (*self.network, *self.at_hand, *((self.flying,) if self.flying else ()))
        return any(order.target is target for order in orders)

    # -- the disk -----------------------------------------------------------------------------------------

    def forget_copy(self) -> None:
        if self.copy is not None:
            self.copy.close()

    def back_up(self) -> None:
        self.forget_copy()
        self.copy = sqlite3.connect(":memory:")
        self.journal.db.backup(self.copy)

    def restore(self) -> None:
        """The disk is lost, and the folder restored from a copy while the bridge is down."""
        if self.copy is None:
            return
        self.kill_bridge()
        kept = Journal(Path(":memory:"))
        self.copy.backup(kept.db)
        # The limit that docs/whatsapp.md names: nothing tells a copy of the last seconds from the journal.
        is_old = kept.page() < self.page
        unnoticed = not is_old and any(
            self.journal.has_begun(one.name) and not kept.has_begun(one.name) and self.is_trusted(kept, one)
            for one in self.targets
            if one.status in ("sending", "unconfirmed")
        )
        if unnoticed:
            kept.close()
            return
        self.journal.close()
        self.journal, self.proves_from = kept, self.now
        if is_old:
            self.in_use_since, self.page = self.now, kept.page()

    def is_trusted(self, journal: Journal, target: Target) -> bool:
        return not self.witness(target) or journal.has_begun(self.witness(target))

    def lose_journal(self) -> None:
        self.kill_bridge()
        self.journal.close()
        self.journal = Journal(Path(":memory:"))
        self.in_use_since = self.proves_from = self.now

    # -- what must hold -----------------------------------------------------------------------------------

    def end(self) -> None:
        """Nothing is on its way any more, and the bridge has looked at everything."""
        self.network.clear()
        self.kill_bridge()
        for target in self.targets:
            if target.status == "sending":
                target.status = "unconfirmed"
        self.now += timedelta(minutes=5)
        for _ in self.targets:  # one that is settled may be the witness of the next
            self.review()
        self.journal_ends_what_it_can()
        counts = Counter(target.number for target in self.owners.values())
        assert max(counts.values(), default=0) <= 1, "sent twice"
        for target in self.targets:
            if target.status == "sent":
                assert counts[target.number] == 1, "called sent, and lost"
                assert not target.provider_id or self.owners[target.provider_id] is target, "another message's id"
        self.journal.close()

    def journal_ends_what_it_can(self) -> None:
        for target in self.targets:
            witness = self.witness(target)
            if witness and not self.journal.has_begun(witness):
                continue  # restored from a copy
            if target.status == "unconfirmed" and target.claimed_at > self.proves_from + review.CLOCK_MARGIN:
                assert self.journal.has_begun(target.name), "in doubt, and the journal knows that it never left"
                assert not self.journal.provider_id_of(target.name), "in doubt, and the journal knows its id"


def play(seeds: range) -> None:
    for seed in seeds:
        try:
            World(random.Random(seed)).play()
        except AssertionError as error:
            raise AssertionError(f"schedule {seed}: {error}") from error


def test_two_thousand_schedules() -> None:
    play(range(SCHEDULES))


def no_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Journal, "epoch", lambda self: 0)


def any_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(review, "proves", lambda uncertain, journal, in_use_since, now: True)


def begun_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Journal, "begin", lambda self, *facts: 0)


def young_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming, "RECEIPTS_COME_FOR", 0)


PLANTED = [no_fence, any_journal, begun_late, young_journal]


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_the_schedules_notice(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """What they would find if the code were wrong."""
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        play(range(SCHEDULES))
