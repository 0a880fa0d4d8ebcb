"""Entries of one commit and their SQL: the claims, results and lane states that lanes hand to the ledger.

From top to bottom: the entries, the commit that gathers them, the order of its statements, the statements themselves
(`CLAIM` with every condition of a claim), and how values become parameters. Every statement takes arrays and touches
rows by primary key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from fanout.database import lock_in_order
from fanout.engine.counters import HOT_RUNS
from fanout.lanes.chats import BEGIN_CHATS, HOLD_NEW_CHATS, NEW_CHAT, hold_row
from fanout.lanes.lane_rows import HOLD_LANES
from fanout.models.run import in_sql
from fanout.rules.new_chat_limits import NewChatHold
from fanout.rules.pace import PaceState
from fanout.runs import follow_ups, texts
from fanout.runs.follow_ups import COUNTED, LOCK_PEOPLE
from fanout.runs.transitions import START
from reminders.models import Recipient
from reminders.suppressions import REPORTED, SUPPRESS_ALL

SAME_FOR = timedelta(seconds=1)  # a lane's state that has not changed is stored again after this time

Call = tuple[str, Sequence[Any]]  # a prepared statement's name and its parameters


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
    clears_crashes: bool = False  # it has delivered: the lane does not kill its drivers
    timeouts: int = 0

    def adds_nothing_to(self, stored: LaneWrite | None) -> bool:
        """Return whether it says the same as the state that was stored a moment ago, as for a lane without a pace whose
        deliveries all succeed. Only the time of its last claim would change."""
        return (
            stored is not None
            and self.pace == stored.pace
            and self.at - stored.at < SAME_FOR
            and not self.clears_crashes
            and replace(self, at=stored.at, claimed_at=stored.claimed_at, clears_crashes=stored.clears_crashes)
            == stored
        )


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
    # How many parts right behind it have gone out and are passed over: none, unless it was refused late.
    passed_over: int = 0
    # For the claim journal: the person, and the run's reminder, moment and action.
    address: str = ""
    origin: str = ""


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
    # The person as the provider calls them, where that is not the address.
    known_as: str = ""
    kind: str = ""
    error: str = ""
    suppress: str = ""  # the address
    suppress_as: str = "hard_bounce"  # Suppression.Reason
    # The person, of a follow-up that went out whole: it counts as an attempt.
    follow_up_to: str = ""
    # The first message to this person went out: the chat is known from now on.
    begins_chat: bool = False
    # The hold of new chats that follows from it; None: unchanged.
    new_chat_hold: NewChatHold | None = None
    # The provider asked the account for a break until then. It holds for later holders of the lane too.
    hold_until: datetime | None = None
    # The lane's state after it, where that could not be stored together with it.
    lane_after: LaneWrite | None = None


#: Called when a result is durable, or kept in the outbox; with an error when the database refused it. May be called a
#: second time for a commit that is given up while it is written.
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
class Commit:
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

    def only_waits(self, locked: Locked) -> bool:
        """Return whether it has only starts and lane states of locked rows."""
        if self.claims or self.results or self.skips or self.times:
            return False
        return locked.runs.issuperset(self.starts) and locked.lanes.issuperset(self.lanes)

    @property
    def size(self) -> int:
        return len(self.claims) + len(self.results)

    def hand_in_lane(self, lane: LaneWrite) -> None:
        """Replace the lane's state in this commit."""
        earlier = self.lanes.get(lane.account_id)
        if earlier is not None:
            lane.claimed_at = lane.claimed_at or earlier.claimed_at
            lane.clears_crashes = lane.clears_crashes or earlier.clears_crashes
        self.lanes[lane.account_id] = lane

    def runs(self) -> list[int]:
        """Return the runs whose counters this commit changes, in the order in which runs are locked."""
        ids = {claim.run_id for claims, _ in self.claims for claim in claims}
        ids.update(result.run_id for result, _ in self.results)
        ids.update(skip.run_id for skip in self.skips)
        return sorted(ids.union(self.starts, self.times))

    def people(self) -> list[str]:
        """Return the addresses whose follow-up attempts this commit reads or changes."""
        people = {claim.follow_up_to for claims, _ in self.claims for claim in claims}
        people.update(result.follow_up_to for result, _ in self.results)
        return sorted(people - {""})

    def targets(self) -> list[int]:
        ids = {claim.target_id for claims, _ in self.claims for claim in claims}
        ids.update(result.target_id for result, _ in self.results)
        return sorted(ids.union(skip.target_id for skip in self.skips))

    def go_before(self, following: Commit) -> None:
        """Put the starts and lane states of this commit, which could not be written, before those of another."""
        following.starts = self.starts | following.starts
        for lane in self.lanes.values():
            later = following.lanes.get(lane.account_id)
            following.lanes[lane.account_id] = lane
            if later is not None:
                following.hand_in_lane(later)

    def parted(self, locked: Locked) -> tuple[Commit, Commit]:
        """Return the part of the commit that needs no locked row, and the part that does. Of a lane's claims only those
        of locked targets are left out. Times are only for a text."""
        free, theirs = Commit(), Commit()
        for claims, granted in self.claims:
            rest = [claim for claim in claims if not locked.holds_up_claim(claim)]
            locked.note_behind_people(claims)
            (free if rest else theirs).claims.append((rest or claims, granted))
        for result, written in self.results:
            (theirs if locked.holds_up(result) else free).results.append((result, written))
        for skip in self.skips:
            held_up = skip.run_id in locked.runs or skip.target_id in locked.targets
            (theirs if held_up else free).skips.append(skip)
        for run_id, at in self.starts.items():
            (theirs if run_id in locked.runs else free).starts[run_id] = at
        for account_id, lane in self.lanes.items():
            (theirs if account_id in locked.lanes else free).lanes[account_id] = lane
        free.times = {run_id: seconds for run_id, seconds in self.times.items() if run_id not in locked.runs}
        return free, theirs


@dataclass(slots=True)
class Locked:
    """Rows that another session has locked for long, as far as the ledger knows. What needs them waits; the rest goes
    on."""

    runs: set[int] = field(default_factory=set)
    lanes: set[int] = field(default_factory=set)  # by account
    targets: set[int] = field(default_factory=set)
    people: set[str] = field(default_factory=set)  # addresses
    #: targets that were not claimed because their person is locked, by address
    behind_people: dict[str, set[int]] = field(default_factory=dict)
    #: accounts that wait for a row of another kind, and until when (monotonic)
    accounts: dict[int, float] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.runs or self.lanes or self.targets or self.people or self.accounts)

    def holds_up_claim(self, claim: Claim) -> bool:
        if claim.account_id in self.lanes or claim.account_id in self.accounts or claim.run_id in self.runs:
            return True
        return claim.target_id in self.targets or claim.follow_up_to in self.people

    def holds_up(self, result: Result) -> bool:
        """Return whether a result must wait. One that changes its lane is not stored without it."""
        if result.run_id in self.runs or result.target_id in self.targets or result.account_id in self.accounts:
            return True
        changes_lane = (
            result.lane_after is not None or result.new_chat_hold is not None or result.hold_until is not None
        )
        return (changes_lane and result.account_id in self.lanes) or result.follow_up_to in self.people

    def note_behind_people(self, claims: list[Claim]) -> None:
        for claim in claims:
            if claim.follow_up_to in self.people:
                self.behind_people.setdefault(claim.follow_up_to, set()).add(claim.target_id)

    def unclaimable(self) -> set[int]:
        """Return targets that a lane need not try to claim now."""
        return self.targets.union(*self.behind_people.values())

    def update(self, rows: Iterable[dict[str, Any]], now: float) -> None:
        """Replace what is known by the rows of `LOCKED_ROWS`."""
        found: dict[str, set[Any]] = {"run": set(), "lane": set(), "target": set(), "person": set()}
        for row in rows:
            found[row["what"]].add(row["key"] if row["what"] == "person" else int(row["key"]))
        self.runs, self.lanes, self.targets, self.people = found.values()
        self.behind_people = {who: ids for who, ids in self.behind_people.items() if who in self.people}
        self.accounts = {account_id: until for account_id, until in self.accounts.items() if until > now}


def never_sent(claim: Claim, why: str = "the database went away") -> Result:
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
        error=f"{why} before the provider was called",
    )


def accounts_of(commit: Commit) -> set[int]:
    accounts = {claim.account_id for claims, _ in commit.claims for claim in claims}
    accounts.update(result.account_id for result, _ in commit.results)
    return accounts.union(commit.lanes)


def entries_of(commit: Commit) -> list[Commit]:
    return [
        *(Commit(skips=[skip]) for skip in commit.skips),
        *(Commit(results=[result]) for result in commit.results),
        *(Commit(starts={run_id: at}) for run_id, at in commit.starts.items()),
        # A claim never goes without the pace it was computed for.
        *(
            Commit(claims=[entry], lanes={c.account_id: commit.lanes[c.account_id] for c in entry[0]})
            for entry in commit.claims
        ),
        *(Commit(lanes={key: lane}) for key, lane in commit.lanes.items()),
        *(Commit(times={key: seconds}) for key, seconds in commit.times.items()),
    ]


# --- the order of the statements --------------------------------------------------------------------------


def calls_of(commit: Commit, hot: Collection[int] = (), same: Collection[int] = ()) -> list[Call]:
    """Return the commit as prepared statements, in the order in which they must happen. `hot`: runs whose counters are
    appended; `same`: accounts whose lane's state is stored already."""
    # Two drivers may share runs, and operators lock a run before its targets: all use this order.
    runs = commit.runs()
    calls: list[Call] = [("lock_runs", [array(runs)])] if runs else []
    if hot:
        calls.append(("hot_runs", [array(hot)]))
    if people := commit.people():
        calls.append(("lock_people", columns((address,) for address in people)))
    if commit.skips:
        calls.append(("skip", columns((skip.target_id, skip.why, skip.at) for skip in commit.skips)))
    if commit.results:
        results = [result for result, _ in commit.results]
        calls.append(recording(results))
        suppress = [_suppression_row(result) for result in results if result.suppress]
        if suppress:
            calls.append(("suppress", columns(suppress)))
        chats = [(result.target_id,) for result in results if result.begins_chat]
        if chats:
            calls.append(("begin_chats", columns(chats)))
        known = [(result.target_id, plain(result.known_as, 100)) for result in results if result.known_as]
        if known:
            calls.append(("remember_ids", columns(known)))
    if commit.starts:
        calls.append(("start", columns(commit.starts.items())))
    if commit.claims:
        rows = [(c.target_id, c.account_id, c.epoch, c.at, c.part, c.passed_over) for c in _one_to_each(commit)]
        calls.append(("claim", [*columns(rows), str(follow_ups.limits().attempts)]))
    # Runs before lanes, as the controls lock them, each in the order of their ids.
    if commit.times:
        calls.append(("times", columns((run_id, *commit.times[run_id]) for run_id in sorted(commit.times))))
    new_chats, breaks = _new_chat_holds(commit), _breaks(commit)
    if new_chats or breaks:
        calls.append(("lock_lane_states", [array(sorted({*new_chats, *breaks, *commit.lanes}))]))
    if new_chats:
        calls.append(("hold_new_chats", columns(new_chats[account] for account in sorted(new_chats))))
    if breaks:
        calls.append(("hold_lanes", columns(breaks[account] for account in sorted(breaks))))
    if lanes := sorted(commit.lanes.keys() - set(same)):
        calls.append(("pace", columns(_lane_row(commit.lanes[account]) for account in lanes)))
    return calls


def recording(results: list[Result]) -> Call:
    rows = columns(map(_result_row, results))
    if not any(result.follow_up_to for result in results):
        return "record", rows
    return "record_follow_ups", [*rows, *follow_ups.limits_in_sql()]


def _one_to_each(commit: Commit) -> Iterator[Claim]:
    """Yield the claims; of several follow-ups to one person only the first, because one statement does not see its own
    grants."""
    people: set[str] = set()
    for claim in (claim for claims, _ in commit.claims for claim in claims):
        if claim.follow_up_to not in people:
            yield claim
        if claim.follow_up_to:
            people.add(claim.follow_up_to)


def _new_chat_holds(commit: Commit) -> dict[int, tuple[Any, ...]]:
    """Return the last hold of new chats of each account."""
    return {
        r.account_id: hold_row(r.account_id, replace(r.new_chat_hold, why=plain(r.new_chat_hold.why)), r.at)
        for r, _ in commit.results
        if r.new_chat_hold is not None
    }


def _breaks(commit: Commit) -> dict[int, tuple[Any, ...]]:
    """Return the longest break that each account's provider asked for."""
    asked = [r for r, _ in commit.results if r.hold_until is not None]
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
        lane.clears_crashes,
        lane.timeouts,
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


def _suppression_row(r: Result) -> tuple[Any, ...]:
    """Return the columns of reminders.suppressions.NewSuppression."""
    if r.suppress_as == "unsubscribed":
        # As after the provider's report of the same wish, so that its report of a resume takes both back.
        return plain(r.suppress), r.suppress_as, "recipient", REPORTED, r.at, None, None
    return plain(r.suppress), r.suppress_as, "provider", plain(r.error), r.at, None, None


# --- the statements ---------------------------------------------------------------------------------------

# First in every commit: counters change under these locks.
LOCK_RUN_ROWS = lock_in_order("fanout_run", "id", "%s::bigint[]")


def locked_rows(what: str, table: str, key: str, keys: str, primary: str = "") -> str:
    """Return the query for those of these rows that another session has locked. It never waits. `primary`: the primary
    key, where `key` is another one."""
    free = f"SELECT {primary or key} FROM {table} WHERE {key} = ANY({keys}) FOR NO KEY UPDATE SKIP LOCKED"
    return (
        f"(WITH free AS MATERIALIZED ({free}) SELECT DISTINCT '{what}' AS what, {key}::text AS key FROM {table}"
        f" WHERE {key} = ANY({keys}) AND {primary or key} NOT IN (SELECT * FROM free))"
    )


# After a lock timeout: which of these rows another session has locked.
LOCKED_ROWS = " UNION ALL ".join(
    (
        locked_rows("run", "fanout_run", "id", "%(runs)s::bigint[]"),
        locked_rows("lane", "fanout_lanestate", "account_id", "%(lanes)s::bigint[]"),
        locked_rows("target", "fanout_runtarget", "id", "%(targets)s::bigint[]"),
        locked_rows("person", "reminders_recipient", "address", "%(people)s::text[]", "id"),
    )
)

# Before a commit writes to lanes twice.
LOCK_LANE_STATES = lock_in_order("fanout_lanestate", "account_id", "%s::bigint[]")

# --- the claim ------------------------------------------------------------------------------------------
#
# A claim is granted only while everything it rests on still holds, so that pause, cancel, suspend, suppress and hold
# take effect at the very next claim. The conditions speak of a claim c, its target t, the target's recipient p and its
# run r. NEW_CHAT is the only one that stands elsewhere (fanout/lanes/chats.py): the budget of new chats is counted
# with it.
#
# They are scalar subqueries on purpose: each is one look-up by key. As joins the planner reordered them and met every
# running run with every claim.

# A plain comparison fits the index of pending targets. While the statistics do not know a run that was frozen a moment
# ago, the planner took that index to be empty and met all of it with every claim.
PENDING = "(SELECT t.status) = 'pending'"

# `rules.follow_up_limits.refusal`: true where it has nothing to say. A cooldown that has expired counts as cleared.
MAY_GET = f"""(p.status NOT IN {in_sql(Recipient.GETS_NOTHING)} AND (NOT r.follow_up OR
              CASE WHEN p.cooldown_until IS NULL THEN p.status = 'active' AND p.follow_up_attempts < %s::int
                   ELSE p.cooldown_until <= c.at
                        AND (p.status = 'active' OR (p.limited AND p.status = 'not_interested')) END))"""

# Attempts are counted when they have gone out, so a person gets one follow-up at a time: of several at once, all would
# find the attempts as they were. A follow-up of which an earlier part was sent goes on.
ANOTHER_UNDER_WAY = """(t.parts_sent = 0 AND EXISTS (
      SELECT FROM reminders_recipient q JOIN fanout_runtarget o ON o.recipient_id = q.id
       WHERE q.address = t.address AND o.id <> t.id
         AND (o.status = 'sending' OR (o.status = 'pending' AND o.parts_sent > 0))
         AND (SELECT r.follow_up AND (o.status = 'sending' OR r.status = 'running')
                FROM fanout_run r WHERE r.id = o.run_id)))"""

# A follow-up follows a message of this run (`{follows}`, null for every other run). A person who has replied to it, or
# written since then, gets none, also where the reply came while the follow-up was being made, or before it was sent
# again, or waits for the inbound worker. The time of the claim alone does not tell: it is the last part's, and a reply
# may have come between two parts. A follow-up of which an earlier part was sent goes on. `SILENT` in
# fanout.plans.audience is the same for the ORM, but for replies that wait.
HAS_REPLIED = """(t.parts_sent = 0 AND EXISTS (
      SELECT FROM fanout_runtarget f
       WHERE f.run_id = {follows} AND f.recipient_id = t.recipient_id
         AND (f.replied_at IS NOT NULL OR f.claimed_at <= p.replied_at OR EXISTS (
              SELECT FROM fanout_inboundevent e
               WHERE e.address = t.address AND e.address <> '' AND e.happened_at >= f.claimed_at
                 AND e.kind = 'reply' AND e."group" = '' AND e.state <> 'done'))))"""

CLAIM = f"""
UPDATE fanout_runtarget t
   SET status = 'sending', claim_epoch = c.epoch, claimed_at = c.at,
       attempts = t.attempts + 1, next_attempt_at = NULL
  FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::timestamptz[], %s::int[], %s::int[])
    AS c(id, account_id, epoch, at, part, passed_over)
 -- the target still waits for this part, from this account, and then for the same one
 WHERE t.id = c.id AND t.account_id = c.account_id AND {PENDING} AND t.parts_sent = c.part
   AND NOT t.part_ids ? (c.part + c.passed_over + 1)::text
   AND (c.passed_over = 0
        OR t.part_ids ?& ARRAY(SELECT n::text FROM generate_series(c.part + 1, c.part + c.passed_over) AS n))
   -- this session drives the lane, and new chats are not held
   AND (SELECT l.epoch = c.epoch
               AND CASE WHEN l.new_chats_after > c.at
                        THEN (SELECT NOT {NEW_CHAT} FROM reminders_recipient p WHERE p.id = t.recipient_id)
                        ELSE true END
          FROM fanout_lanestate l WHERE l.account_id = c.account_id)
   -- the account may send
   AND (SELECT a.status FROM accounts_account a WHERE a.id = c.account_id) = 'active'
   -- the run may send, its window is open, and the person may get it
   AND (SELECT r.status = 'running' AND r.window_closes_at > c.at
               AND (SELECT {MAY_GET}
                           AND CASE WHEN r.step > 0 THEN NOT {HAS_REPLIED.format(follows="r.follows_id")} ELSE true END
                      FROM reminders_recipient p WHERE p.id = t.recipient_id)
               AND CASE WHEN r.follow_up THEN NOT {ANOTHER_UNDER_WAY} ELSE true END
          FROM fanout_run r WHERE r.id = t.run_id)
   -- the address is not suppressed, and Message 2 is not too late
   AND NOT EXISTS (SELECT FROM reminders_suppression s
                    WHERE s.address = t.address AND (s.expires_at IS NULL OR s.expires_at > c.at))
   AND (t.expires_at IS NULL OR t.expires_at > c.at)
RETURNING t.id
"""

# --- results --------------------------------------------------------------------------------------------

# A provider's answer stands, also when the lane has changed hands: a result is accepted when it fits the claim it
# belongs to, even for a row marked unconfirmed (or already put back) meanwhile.
#
# A target of a run that was canceled meanwhile gets no further part: it is skipped like the others.
RECORDED = f"""
WITH answered AS (
  SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::timestamptz[], %s::text[], %s::int[], %s::int[],
                       %s::timestamptz[], %s::timestamptz[], %s::int[], %s::text[], %s::text[], %s::text[],
                       %s::bigint[], %s::text[], %s::int[], %s::text[])
    AS a(id, epoch, claimed_at, status, parts_sent, attempts, retry_at, at, latency_ms, provider_id, kind, error,
         account_id, action, part, activity)
), o AS MATERIALIZED (
  SELECT *, status = 'pending' AND (SELECT r.status FROM fanout_runtarget t JOIN fanout_run r ON r.id = t.run_id
                                     WHERE t.id = a.id) = 'canceled' AS canceled FROM answered a
), updated AS (
  UPDATE fanout_runtarget t
     SET status = CASE WHEN o.canceled THEN 'skipped' ELSE o.status END,
         next_attempt_at = CASE WHEN NOT o.canceled THEN o.retry_at END,
         -- -1: as before the claim, because the provider was never called
         parts_sent = CASE WHEN o.parts_sent < 0 THEN t.parts_sent ELSE o.parts_sent END,
         part_ids = CASE WHEN o.activity = 'sent' AND (o.part > 0 OR o.status = 'pending' OR t.part_ids <> '{{}}')
                         THEN t.part_ids || jsonb_build_object(o.part::text, o.provider_id) ELSE t.part_ids END,
         attempts = CASE WHEN o.attempts < 0 THEN greatest(t.attempts - 1, 0) ELSE o.attempts END,
         settled_at = CASE WHEN o.status <> 'pending' OR o.canceled THEN o.at END,
         latency_ms = coalesce(o.latency_ms, t.latency_ms), error_kind = o.kind,
         error = CASE WHEN o.canceled THEN '{texts.CANCELED}' ELSE o.error END,
         -- Until the part is known to have been sent, an unanswered try at it stays one.
         in_doubt = o.activity <> 'sent' AND (t.in_doubt OR o.kind = 'unknown'),
         provider_id = CASE WHEN o.provider_id = '' THEN t.provider_id ELSE o.provider_id END
    FROM o
   WHERE t.id = o.id AND t.claim_epoch = o.epoch AND t.claimed_at = o.claimed_at
     AND (t.status IN ('sending', 'unconfirmed') OR (t.status = 'pending' AND o.activity = 'sent'
                                                      AND t.parts_sent < o.parts_sent))
  RETURNING o.account_id, t.id, o.action, o.activity, o.kind, o.part, o.at, t.run_id, t.address, t.status, t.claimed_at
)"""
ADD_ACTIVITY = """
INSERT INTO fanout_activity (account_id, run_target_id, action, outcome, kind, part, at)
SELECT account_id, id, action, activity, kind, part, at FROM updated WHERE activity <> ''
"""
RECORD = RECORDED + ADD_ACTIVITY

# The same where a follow-up may have gone out whole: the person's attempts are counted in the same statement.
# LOCK_PEOPLE goes before it, because two drivers may write to the same people.
RECORD_FOLLOW_UPS = f"""{RECORDED}, went_out AS (
  SELECT u.account_id, u.address, u.claimed_at AS at FROM updated u
   WHERE u.status = 'sent' AND (SELECT r.follow_up FROM fanout_run r WHERE r.id = u.run_id)
), {COUNTED}
{ADD_ACTIVITY}"""

SKIP = f"""
UPDATE fanout_runtarget t SET status = 'skipped', error = s.why, settled_at = s.at
  FROM unnest(%s::bigint[], %s::text[], %s::timestamptz[]) AS s(id, why, at)
 WHERE t.id = s.id AND {PENDING}
"""

# True where the stored break is one that the lane does not know of yet (HOLD_LANES).
UNKNOWN_BREAK = "coalesce(l.probing AND NOT p.probing AND l.next_send_at > p.at, false)"

# The pace goes out with the claim it was computed for, in the same transaction.
PACE = f"""
UPDATE fanout_lanestate l
   SET theoretical_arrival = p.theoretical_arrival, batch_sent = p.batch_sent,
       slow_factor = CASE WHEN {UNKNOWN_BREAK} THEN greatest(l.slow_factor, p.slow_factor) ELSE p.slow_factor END,
       next_send_at = CASE WHEN {UNKNOWN_BREAK} THEN greatest(l.next_send_at, p.next_send_at) ELSE p.next_send_at END,
       sample = p.sample, sample_run = p.sample_run, probing = p.probing OR {UNKNOWN_BREAK},
       last_claim_at = coalesce(p.claimed_at, l.last_claim_at), progress_at = p.at,
       crashes = CASE WHEN p.clears_crashes THEN 0 ELSE l.crashes END, timeouts = p.timeouts
  FROM unnest(%s::bigint[], %s::bigint[], %s::timestamptz[], %s::timestamptz[], %s::int[], %s::float8[],
              %s::text[], %s::bigint[], %s::bool[], %s::timestamptz[], %s::timestamptz[], %s::bool[], %s::int[])
    AS p(account_id, epoch, theoretical_arrival, next_send_at, batch_sent, slow_factor, sample, sample_run, probing,
         claimed_at, at, clears_crashes, timeouts)
 WHERE l.account_id = p.account_id AND l.epoch = p.epoch
"""

TIMES = """
UPDATE fanout_run r
   SET seconds_pacing = seconds_pacing + t.pacing, seconds_provider = seconds_provider + t.provider,
       seconds_media = seconds_media + t.media, seconds_retries = seconds_retries + t.retries,
       seconds_waiting = seconds_waiting + t.waiting
  FROM unnest(%s::bigint[], %s::float8[], %s::float8[], %s::float8[], %s::float8[], %s::float8[])
    AS t(id, pacing, provider, media, retries, waiting)
 WHERE r.id = t.id
"""

# How a provider calls the person of a target, where it told. An erased target has no claim.
REMEMBER_IDS = """
INSERT INTO fanout_knownid AS k (account_id, known_as, address)
SELECT DISTINCT ON (t.account_id, n.known_as) t.account_id, n.known_as, t.address
  FROM unnest(%s::bigint[], %s::text[]) AS n(id, known_as) JOIN fanout_runtarget t ON t.id = n.id
 WHERE t.claim_epoch > 0
 ORDER BY t.account_id, n.known_as
ON CONFLICT (account_id, known_as) DO UPDATE SET address = excluded.address WHERE k.address <> excluded.address
"""

# Prepared on every connection that claims.
HOT = {
    "lock_runs": LOCK_RUN_ROWS,
    "hot_runs": HOT_RUNS,
    "skip": SKIP,
    "record": RECORD,
    "suppress": SUPPRESS_ALL,
    "begin_chats": BEGIN_CHATS,
    "remember_ids": REMEMBER_IDS,
    "lock_people": LOCK_PEOPLE,
    "record_follow_ups": RECORD_FOLLOW_UPS,
    "start": START,
    "claim": CLAIM,
    "pace": PACE,
    "times": TIMES,
    "lock_lane_states": LOCK_LANE_STATES,
    "hold_new_chats": HOLD_NEW_CHATS,
    "hold_lanes": HOLD_LANES,
}


# --- values as text ---------------------------------------------------------------------------------------


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
