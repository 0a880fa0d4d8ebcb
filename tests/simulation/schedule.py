"""The events of one play, drawn from its seed before it begins."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

ACCOUNTS = 40  # schedules that one play carries out
PROCESSES = 2

#: what operators and recipients do
ACTIONS = ("pause", "resume", "cancel", "suppress", "opt out", "stop account", "reactivate", "settle", "retry failed")
#: the controls of runs; two of them may come at the same moment
CONTROLS = ("pause", "resume", "cancel", "retry failed", "settle", "offload", "archive", "edit", "retention")
PAIRS = tuple(product(CONTROLS, CONTROLS))
#: provider faults, by how often they are drawn; those of the account as a whole are rare
FAULTS = {
    "rate_limited": 4,
    "soft_bounce": 4,
    "unavailable": 3,
    "refused": 3,
    "drop_after_accept": 5,
    "hang": 2,
    "hard_bounce": 2,
    "recipient_gone": 2,
    "content_rejected": 1,
    "not_writable": 1,
    "auth": 1,
    "banned": 1,
}


@dataclass(frozen=True, slots=True)
class Schedule:
    """One account's part of a play. Moments are seconds after it began."""

    targets: int
    parts: tuple[str, ...]
    rate: int
    burst: int
    concurrency: int
    repeats: bool
    closes_after: float
    provider: dict[str, Any]
    actions: tuple[tuple[float, str], ...]
    lanes: int = 1  # accounts that send the run: its own, and those after it
    pairs: tuple[Pair, ...] = ()


@dataclass(frozen=True, slots=True)
class Pair:
    """Two controls at the same moment: the second before a transaction of the first."""

    at: float
    first: str
    second: str
    point: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """A time in which the database refuses some statements, or all that write. Seconds after the play began."""

    what: str
    begins: float
    ends: float


@dataclass(frozen=True, slots=True)
class Play:
    seed: int
    schedules: tuple[Schedule, ...]
    #: of one process after the other: after how many awaits it dies, or loses its connections
    deaths: tuple[int, ...]
    cuts: tuple[int, ...]
    refusal: Refusal | None
    tick: float
    slice_seconds: float
    rng: random.Random = field(compare=False)


def play_of(seed: int, accounts: int = ACCOUNTS) -> Play:
    rng = random.Random(seed)
    schedules = [_schedule(rng) for _ in range(accounts)]
    if seed % 4 == 3:
        schedules = [_shared(schedule, seed * accounts + n) for n, schedule in enumerate(schedules)]
    return Play(
        seed=seed,
        schedules=tuple(schedules),
        deaths=tuple(rng.randrange(2, 30 * accounts) for _ in range(rng.randrange(1, 5))),
        cuts=tuple(rng.randrange(2, 30 * accounts) for _ in range(rng.randrange(0, 3))),
        refusal=_refusal(random.Random(f"what the database refuses in play {seed}")),
        tick=rng.choice((1.0, 2.0)),
        slice_seconds=rng.choice((8.0, 20.0, 40.0)),
        rng=rng,
    )


def _shared(schedule: Schedule, number: int) -> Schedule:
    """Return the schedule with several lanes and with two controls at the same moment: in one of four plays. Every pair
    has its turn, and then again at other points. Drawn apart from the rest, so that it changes no other draw."""
    rng = random.Random(f"the lanes and pairs of schedule {number}")
    first, second = PAIRS[number % len(PAIRS)]
    return replace(
        schedule,
        targets=schedule.targets + 3,
        lanes=rng.choice((2, 3)),
        pairs=(Pair(rng.uniform(0.5, 25), first, second, rng.randrange(1, 7)),),
    )


def _refusal(rng: random.Random) -> Refusal | None:
    """In one of three plays. Drawn apart from the rest, so that it changes no other draw."""
    if rng.random() > 1 / 3:
        return None
    begins = rng.uniform(0.2, 5)
    return Refusal(rng.choice(("results", "results", "claims", "everything")), begins, begins + rng.uniform(1, 12))


def _schedule(rng: random.Random) -> Schedule:
    repeats = rng.random() < 0.3
    return Schedule(
        targets=rng.randrange(1, 4),
        parts=rng.choice((("text",), ("text", "text"), ("image",), ("text", "image"))),
        rate=rng.choice((30, 60, 240)),
        burst=rng.choice((1, 2, 3)),
        concurrency=rng.choice((1, 2, 3)),
        repeats=repeats,
        closes_after=rng.choice((3.0, 6.0, 12.0, 3600.0, 3600.0, 3600.0)) + rng.random(),
        provider=_provider(rng, repeats),
        actions=tuple(sorted((rng.uniform(0, 20), rng.choice(ACTIONS)) for _ in range(rng.choice((0, 0, 1, 2, 3))))),
    )


def _provider(rng: random.Random, repeats: bool) -> dict[str, Any]:
    fastest = rng.choice((20, 200, 1500))
    return {
        "latency_ms": [fastest, 2 * fastest],
        "upload_latency_ms": [100, rng.choice((200, 6000))],
        "recognises_repeats": repeats,
        "faults": [_fault(rng) for _ in range(rng.choice((0, 0, 1, 1, 2)))],
    }


def _fault(rng: random.Random) -> dict[str, Any]:
    effect = rng.choices(list(FAULTS), list(FAULTS.values()))[0]
    fault: dict[str, Any] = {"effect": effect}
    fault["match"] = rng.choice(({"first": 1}, {"first": 2}, {"every": 3}, {"part": 1, "first": 1}))
    if effect in ("rate_limited", "unavailable"):
        fault["retry_after"] = rng.choice((1, 3))
    if effect == "banned":
        fault["seconds"] = 5
    if effect == "hang":
        fault["accept"] = rng.random() < 0.5
    return fault
