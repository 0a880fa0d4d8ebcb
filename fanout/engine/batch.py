"""Claims, results and lane states that lanes hand to the ledger, gathered for one commit and turned into statements."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple

from fanout.engine.connection import Call
from fanout.lanes.new_chats import hold_row
from fanout.rules.new_chats import NewChatHold
from fanout.rules.pace import PaceState
from fanout.runs import follow_ups


@dataclass(slots=True)
class LaneWrite:
    """A lane's durable state, as of one claim or result."""

    account_id: int
    epoch: int
    pace: PaceState
    sample: str
    sample_run: int | None
    probing: bool
    at: datetime
    claimed_at: datetime | None = None
    delivered: bool = False


@dataclass(slots=True)
class Claim:
    target_id: int
    run_id: int
    account_id: int
    epoch: int
    at: datetime
    mono: float = 0.0  # the same moment, for durations
    # The person, of a follow-up that begins: each gets only one at a time.
    follow_up_to: str = ""
    # The part it is for. A result of an earlier holder may come in after the target was read.
    part: int = 0


@dataclass(slots=True)
class Result:
    """The outcome of one claimed part."""

    target_id: int
    run_id: int
    account_id: int
    epoch: int
    claimed_at: datetime
    status: str
    parts_sent: int
    attempts: int
    at: datetime
    action: str = ""
    part: int = 0
    activity: str = ""
    retry_at: datetime | None = None
    latency_ms: int | None = None
    provider_id: str = ""
    kind: str = ""
    error: str = ""
    suppress: str = ""
    # The person, of a follow-up that went out whole: it counts as an attempt.
    follow_up_to: str = ""
    # The first message to this person went out: the chat is known from now on.
    begins_chat: bool = False
    # The hold of new chats that follows from it; None: unchanged.
    new_chat_hold: NewChatHold | None = None
    # The provider asked the account for a break until then. It holds for later holders of the lane too.
    hold_until: datetime | None = None
    # The lane's state after it, where that could not be stored together with it.
    lesson: LaneWrite | None = None


#: Called when a result is durable, or kept in the outbox; with an error when the database refused it. May be called a
#: second time for a batch that is given up while it is written.
Written = Callable[[BaseException | None], None]


def ignore_written(error: BaseException | None) -> None:
    """Ignore that a result was written."""


class Skip(NamedTuple):
    """A target that gets nothing, and why."""

    target_id: int
    run_id: int
    why: str
    at: datetime


#: the claims of a lane, and the future with those that were granted
ClaimEntry = tuple[list[Claim], asyncio.Future[set[int]]]


@dataclass(slots=True)
class Batch:
    """Everything that is written with the next commit."""

    claims: list[ClaimEntry] = field(default_factory=list)
    results: list[tuple[Result, Written]] = field(default_factory=list)
    skips: list[Skip] = field(default_factory=list)
    starts: dict[int, datetime] = field(default_factory=dict)  # runs whose first target is at hand
    lanes: dict[int, LaneWrite] = field(default_factory=dict)
    times: dict[int, list[float]] = field(default_factory=dict)
    accounts: list[int] = field(default_factory=list)  # whose lanes hand in here
    written: asyncio.Event = field(default_factory=asyncio.Event)
    refused: bool = False  # some of it was not written

    def __bool__(self) -> bool:
        return bool(self.claims or self.results or self.skips or self.starts or self.lanes or self.times)

    @property
    def only_starts(self) -> bool:
        return not (self.claims or self.results or self.skips or self.lanes or self.times)

    @property
    def size(self) -> int:
        return len(self.claims) + len(self.results)

    def hand_in_lane(self, lane: LaneWrite) -> None:
        """Replace the lane's state in this batch."""
        earlier = self.lanes.get(lane.account_id)
        if earlier is not None:
            lane.claimed_at = lane.claimed_at or earlier.claimed_at
            lane.delivered = lane.delivered or earlier.delivered
        self.lanes[lane.account_id] = lane

    def runs(self) -> list[int]:
        """Return the runs whose counters this batch changes, in the order in which runs are locked."""
        ids = {claim.run_id for claims, _ in self.claims for claim in claims}
        ids.update(result.run_id for result, _ in self.results)
        ids.update(skip.run_id for skip in self.skips)
        return sorted(ids.union(self.starts, self.times))

    def people(self) -> list[str]:
        """Return the addresses whose follow-up attempts this batch reads or changes."""
        people = {claim.follow_up_to for claims, _ in self.claims for claim in claims}
        people.update(result.follow_up_to for result, _ in self.results)
        return sorted(people - {""})

    def parted(self, runs: Collection[int]) -> tuple[Batch, Batch]:
        """Return the batch without these runs, and the part that is about them. Lanes belong to no run; times are only
        for a text."""
        free, theirs = Batch(lanes=self.lanes), Batch()
        for claims, granted in self.claims:
            (theirs if any(c.run_id in runs for c in claims) else free).claims.append((claims, granted))
        for result, written in self.results:
            (theirs if result.run_id in runs else free).results.append((result, written))
        for skip in self.skips:
            (theirs if skip.run_id in runs else free).skips.append(skip)
        for run_id, at in self.starts.items():
            (theirs if run_id in runs else free).starts[run_id] = at
        free.times = {run_id: seconds for run_id, seconds in self.times.items() if run_id not in runs}
        return free, theirs


def never_sent(claim: Claim) -> Result:
    return Result(
        claim.target_id,
        claim.run_id,
        claim.account_id,
        claim.epoch,
        claim.at,
        "pending",
        -1,
        -1,
        claim.at,
        kind="network",
        error="the database went away before the provider was called",
    )


# --- as statements ------------------------------------------------------------------------------------------


def plain(text: str, limit: int = 500) -> str:
    """Return a provider's text fit for a column: PostgreSQL takes no NUL and no half characters."""
    if text.isascii() and "\x00" not in text:
        return text[:limit]
    return text.replace("\x00", "")[:limit].encode("utf-8", "replace").decode()


def columns(rows: Iterable[tuple[Any, ...]]) -> list[str]:
    """Turn rows into the arrays that unnest takes, as text: psycopg takes half a millisecond to find out the types."""
    return ["{" + ",".join(_as_text(column)) + "}" for column in zip(*rows)]


def _as_text(column: tuple[Any, ...]) -> list[str]:
    """Return a column's values as text. Most columns of results have one value for all: it is converted once."""
    first = column[0]
    if column.count(first) == len(column):
        return [_TO_TEXT[type(first)](first)] * len(column)
    return [_TO_TEXT[type(value)](value) for value in column]


def array(ids: Iterable[int]) -> str:
    return f"{{{','.join(map(str, ids))}}}"


def _quoted(text: str) -> str:
    if not text:
        return '""'
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


class _Converters(dict[type, Callable[[Any], str]]):
    """Functions from a value to text, by type. A subtype, such as a member of an enumeration, is converted like its
    base type: a provider's answer must not be lost over it."""

    def __missing__(self, kind: type) -> Callable[[Any], str]:
        for known in kind.__mro__:
            if known in self:
                self[kind] = self[known]
                return self[known]
        raise TypeError(f"no column takes a value of type {kind.__name__}")


_TO_TEXT = _Converters(
    {
        int: int.__repr__,
        float: float.__repr__,
        bool: lambda value: "t" if value else "f",
        datetime: datetime.isoformat,
        str: _quoted,
        type(None): lambda value: "NULL",
    }
)


def calls_of(batch: Batch) -> list[Call]:
    """Return the batch as prepared statements, in the order in which they must happen."""
    # Two drivers may share runs, and operators lock a run before its targets: all use this order.
    runs = batch.runs()
    calls: list[Call] = [("lock_runs", [array(runs)])] if runs else []
    if people := batch.people():
        calls.append(("lock_people", columns((address,) for address in people)))
    if batch.skips:
        calls.append(("skip", columns((skip.target_id, skip.why, skip.at) for skip in batch.skips)))
    if batch.results:
        results = [result for result, _ in batch.results]
        calls.append(recording(results))
        suppress = [_suppression_row(result) for result in results if result.suppress]
        if suppress:
            calls.append(("suppress", columns(suppress)))
        chats = [(result.target_id,) for result in results if result.begins_chat]
        if chats:
            calls.append(("begin_chats", columns(chats)))
    if batch.starts:
        calls.append(("start", columns(batch.starts.items())))
    if batch.claims:
        rows = [(c.target_id, c.account_id, c.epoch, c.at, c.part) for c in _one_to_each(batch)]
        calls.append(("claim", [*columns(rows), str(follow_ups.limits().attempts)]))
    # Runs before lanes, as the controls lock them, each in the order of their ids.
    if batch.times:
        calls.append(("times", columns((run_id, *batch.times[run_id]) for run_id in sorted(batch.times))))
    new_chats, breaks = _new_chat_holds(batch), _breaks(batch)
    if new_chats or breaks:
        calls.append(("lock_lane_states", [array(sorted({*new_chats, *breaks, *batch.lanes}))]))
    if new_chats:
        calls.append(("hold_new_chats", columns(new_chats[account] for account in sorted(new_chats))))
    if breaks:
        calls.append(("hold_lanes", columns(breaks[account] for account in sorted(breaks))))
    if batch.lanes:
        calls.append(("pace", columns(_lane_row(batch.lanes[account]) for account in sorted(batch.lanes))))
    return calls


def recording(results: list[Result]) -> Call:
    rows = columns(map(_result_row, results))
    if not any(result.follow_up_to for result in results):
        return "record", rows
    return "record_follow_ups", [*rows, *follow_ups.limits_in_sql()]


def _one_to_each(batch: Batch) -> Iterator[Claim]:
    """Yield the claims; of several follow-ups to one person only the first, because one statement does not see its own
    grants."""
    people: set[str] = set()
    for claim in (claim for claims, _ in batch.claims for claim in claims):
        if claim.follow_up_to not in people:
            yield claim
        if claim.follow_up_to:
            people.add(claim.follow_up_to)


def _new_chat_holds(batch: Batch) -> dict[int, tuple[Any, ...]]:
    """Return the last hold of new chats of each account."""
    return {
        r.account_id: hold_row(r.account_id, replace(r.new_chat_hold, why=plain(r.new_chat_hold.why)), r.at)
        for r, _ in batch.results
        if r.new_chat_hold is not None
    }


def _breaks(batch: Batch) -> dict[int, tuple[Any, ...]]:
    """Return the longest break that each account's provider asked for."""
    asked = [r for r, _ in batch.results if r.hold_until is not None]
    longest = {r.account_id: r for r in sorted(asked, key=lambda r: (r.hold_until, r.epoch))}
    return {account: (account, r.epoch, r.hold_until) for account, r in longest.items()}


def _lane_row(lane: LaneWrite) -> tuple[Any, ...]:
    pace = lane.pace
    return (
        lane.account_id,
        lane.epoch,
        pace.theoretical_arrival,
        pace.next_send_at,
        pace.batch_sent,
        pace.slow_factor,
        lane.sample,
        lane.sample_run,
        lane.probing,
        lane.claimed_at,
        lane.at,
        lane.delivered,
    )


def _result_row(r: Result) -> tuple[Any, ...]:
    return (
        r.target_id,
        r.epoch,
        r.claimed_at,
        r.status,
        r.parts_sent,
        r.attempts,
        r.retry_at,
        r.at,
        r.latency_ms,
        plain(r.provider_id, 200),
        r.kind,
        plain(r.error),
        r.account_id,
        r.action,
        r.part,
        r.activity,
    )


def entries_of(batch: Batch) -> list[Batch]:
    return [
        *(Batch(skips=[skip]) for skip in batch.skips),
        *(Batch(results=[result]) for result in batch.results),
        *(Batch(starts={run_id: at}) for run_id, at in batch.starts.items()),
        # A claim never goes without the pace it was computed for.
        *(
            Batch(claims=[entry], lanes={c.account_id: batch.lanes[c.account_id] for c in entry[0]})
            for entry in batch.claims
        ),
        *(Batch(lanes={key: lane}) for key, lane in batch.lanes.items()),
        *(Batch(times={key: seconds}) for key, seconds in batch.times.items()),
    ]


def _suppression_row(r: Result) -> tuple[Any, ...]:
    """Return the columns of reminders.suppressions.New."""
    return plain(r.suppress), "hard_bounce", "provider", plain(r.error), r.at, None, None
