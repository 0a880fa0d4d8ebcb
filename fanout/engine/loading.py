"""Read what a lane needs before it sends, as plain values: the account, its limits, its live runs and their targets."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from django.conf import settings

from accounts.channels.base import AccountConfig, Channel, Media, Part
from accounts.channels.registry import channel, config_of
from fanout.database import Statement, carry_out_with
from fanout.engine.commit import ANOTHER_UNDER_WAY, HAS_REPLIED, columns
from fanout.engine.connection import Row
from fanout.engine.ledger import Ledger
from fanout.lanes import account_limits
from fanout.lanes.account_limits import USED_TODAY, Day, as_arrays, cap_of_row, day_of
from fanout.lanes.account_state import AccountState, counts
from fanout.lanes.chats import LAST_WROTE_AT, NEW_CHAT
from fanout.lanes.lane_rows import OUTAGE
from fanout.models.run import Run, in_sql, lane_order
from fanout.rules import gates
from fanout.rules.follow_up_limits import Limits, Prospect
from fanout.rules.gates import AccountFacts, Close, RunFacts, TargetFacts, Wait
from fanout.rules.pace import believed
from fanout.runs import follow_ups
from reminders.media import link_url
from reminders.suppressions import unsubscribe_url
from reminders.window import Window

# A handle that is about to expire is not used.
EXPIRY_MARGIN = timedelta(minutes=5)


@dataclass(slots=True)
class Target:
    id: int
    address: str
    parts_sent: int
    attempts: int
    facts: TargetFacts
    # Values of its placeholders; None where the run has none.
    values: dict[str, str] | None = None
    # Between two parts: not before this moment.
    ready_at: datetime | None = None
    # The account has not written to this person yet, nor the person to it.
    new_chat: bool = False
    # When the person last wrote to the account.
    last_wrote_at: datetime | None = None
    # The provider's ids of the parts that have gone out, where the message has several.
    part_ids: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class TargetQueue:
    """The next few targets of a run that its lane has read, and when it reads more."""

    buffer: deque[Target] = field(default_factory=deque)
    between_parts: list[Target] = field(default_factory=list)
    fetched: bool = False  # by this lane, since it was taken
    # Nothing to fetch before this moment, and what it waits for then, where that is more than a retry.
    dry_until: datetime | None = None
    next_look: datetime | None = None  # after one that found nothing
    held: Wait | None = None


@dataclass(slots=True)
class LaneRun:
    """A live run as its lane sees it: frozen parts, the window, and the next few targets."""

    id: int
    status: str
    action: str
    owner_id: int
    scheduled_for: datetime
    facts: RunFacts
    parts: list[Part]
    attempted: bool
    follow_up: bool = False
    # The account's queue of follow-ups is long: follow-ups wait longer between sends.
    under_backpressure: bool = False
    # The run with Message 1, if this is Message 2.
    message_1: int | None = None
    # The run whose message this follow-up follows.
    follows: int | None = None
    # A run of single messages: it waits for the next opening of its window, attempted or not.
    collects: bool = False
    is_test: bool = False
    # Reminder, moment and action, as the claim journal notes them.
    origin: str = ""
    queue: TargetQueue = field(default_factory=TargetQueue)
    waiting_until: datetime | None = None
    closing: Close | None = None
    # Stopped, here or by an operator: in-flight targets end, and nothing is claimed.
    over: bool = False

    @property
    def closes_at(self) -> datetime:
        return self.facts.window_closes_at

    @property
    def interrupts(self) -> bool:
        """Return whether it interrupts another run, as Message 2 and tests do."""
        return self.message_1 is not None or self.is_test


@dataclass(slots=True, kw_only=True)
class LaneAccount(AccountState):
    """An account as its lane drives it: the stored state, changed by every claim and outcome."""

    config: AccountConfig
    owner_id: int
    # Per action, because each has a cap of its own.
    facts: dict[str, AccountFacts]
    # Whether every message gets a visible unsubscribe link.
    adds_link: bool
    epoch: int
    wake_count: int
    sample: str
    sample_run: int | None
    # Why the lane was parked, if its provider was away: a lane that is taken again goes on waiting for that.
    outage: str = ""
    follow_up_limits: Limits = field(default_factory=follow_ups.limits)

    @property
    def on_trial(self) -> bool:
        """Return whether the next message decides about the account: after the breaker or a reactivation, until a run
        has a sample of its own. After a break that the provider asked for, a failure may be the recipient's fault."""
        return self.probing and self.sample_run is None

    @property
    def retries(self) -> tuple[float, ...]:
        return channel(self.channel).retries

    @property
    def retry_base(self) -> float:
        return self.knobs["retry_base_seconds"]

    @property
    def slowdown_at(self) -> float:
        return self.knobs["error_rate_slowdown"]

    @property
    def breaker_at(self) -> float:
        return self.knobs["circuit_breaker"]

    @property
    def bounces_at(self) -> float:
        return self.knobs["bounce_rate_pause"]


@dataclass(slots=True)
class LaneLoad:
    """Everything that a lane needs before its first claim."""

    account: LaneAccount
    runs: list[LaneRun]
    handles: dict[tuple[str, str], Uploaded]  # by Media.key


@dataclass(frozen=True, slots=True)
class Uploaded:
    """A provider's handle for a file."""

    handle: str
    expires_at: datetime | None

    def usable(self, now: datetime) -> bool:
        return self.expires_at is None or self.expires_at - EXPIRY_MARGIN > now


# With the words of the template that the account's settings name for texts.
LANES = """
SELECT l.*, a.*,
       (SELECT t.content FROM accounts_messagetemplate t
         WHERE t.account_id = a.id AND t.name = a.config->>'template'
           AND t.language = coalesce(nullif(a.config->>'template_language', ''), 'en')) AS own_template
  FROM fanout_lanestate l JOIN accounts_account a ON a.id = l.account_id WHERE l.account_id = ANY(%s)
"""

# Account by account: with all of them in one array the planner compared it with every live run.
RUNS = f"""
SELECT r.* FROM fanout_run r
 WHERE r.id IN (SELECT live.id FROM unnest(%(accounts)s::bigint[]) AS a(id)
                 CROSS JOIN LATERAL (SELECT l.id FROM fanout_run l WHERE l.status IN {in_sql(Run.LIVE)}
                                                                    AND l.lanes && ARRAY[a.id]) AS live)
 ORDER BY {lane_order("r")}
"""

OWN_LIMITS = 'SELECT account_id, action, "limit" FROM accounts_dailylimit WHERE account_id = ANY(%s)'

UPLOADS = """
SELECT account_id, sha256, kind, handle, expires_at FROM fanout_mediaupload
 WHERE account_id = ANY(%s) AND sha256 = ANY(%s)
"""


async def load_again(ledger: Ledger, lanes: list[tuple[int, datetime]]) -> list[LaneLoad]:
    """Load lanes again, each with the moment at which it asks."""
    loads = await load(ledger, [account_id for account_id, _ in lanes], max(now for _, now in lanes))
    return [loads[account_id] for account_id, _ in lanes]


async def load(ledger: Ledger, accounts: list[int], now: datetime) -> dict[int, LaneLoad]:
    """Load lanes with a handful of queries, for any number of lanes and targets."""
    rows = await ledger.read(LANES, (accounts,))
    lanes = {row["account_id"]: LaneLoad(lane_account(row, now), [], {}) for row in rows}
    await _load_runs(ledger, lanes)
    await _load_counts(ledger, lanes)
    await _load_caps(ledger, lanes, rows, now)
    await _load_handles(ledger, lanes)
    return lanes


async def _load_runs(ledger: Ledger, lanes: dict[int, LaneLoad]) -> None:
    for row in await ledger.read(RUNS, {"accounts": list(lanes)}):
        for account_id in row["lanes"]:
            if account_id in lanes:
                lanes[account_id].runs.append(lane_run(row, lanes[account_id].account.config.channel))


async def _load_counts(ledger: Ledger, lanes: dict[int, LaneLoad]) -> None:
    """Count what the limits of accounts with runs are about."""

    async def read_all(statements: Sequence[Statement]) -> list[list[Row]]:
        return [await ledger.read(*statement) for statement in statements]

    await carry_out_with(read_all, [counts([lane.account for lane in lanes.values() if lane.runs])])


async def _load_caps(ledger: Ledger, lanes: dict[int, LaneLoad], rows: list[Row], now: datetime) -> None:
    """Read today's caps and how much of them is used."""
    own = {(r["account_id"], r["action"]): r for r in await ledger.read(OWN_LIMITS, (list(lanes),))}
    capped: list[Day] = []
    for row in rows:
        lane = lanes[row["account_id"]]
        for action in {run.action for run in lane.runs}:
            limit = own.get((row["account_id"], action))
            today = gates.local_date(row["timezone"], now)
            cap = cap_of_row(row, action, gates.OwnLimit(limit["limit"]) if limit else None, today).limit
            lane.account.facts[action] = replace(lane.account.base_facts, cap=cap, day_ends_at=lane.account.day[1])
            if cap is not None:
                capped.append(day_of(row["account_id"], row["channel"], action, lane.account.day))
    if capped:
        for used in await ledger.read(USED_TODAY, as_arrays(capped)):
            facts = lanes[used["account_id"]].account.facts
            facts[used["action"]] = replace(facts[used["action"]], used=used["used"])


async def _load_handles(ledger: Ledger, lanes: dict[int, LaneLoad]) -> None:
    """Read the handles that accounts already have for the files of their live runs."""
    wanted = {part.media.sha256 for lane in lanes.values() for run in lane.runs for part in run.parts if part.media}
    if wanted:
        for row in await ledger.read(UPLOADS, (list(lanes), list(wanted))):
            lanes[row["account_id"]].handles[row["sha256"], row["kind"]] = Uploaded(row["handle"], row["expires_at"])


def lane_account(row: Row, now: datetime) -> LaneAccount:
    account = LaneAccount.read(
        row,
        row,
        now,
        config=config_of(row, 1, unsubscribe_url, link_url),
        owner_id=row["owner_id"],
        facts={},
        adds_link=settings.UNSUBSCRIBE_FOOTER and channel(row["channel"]).subject,
        epoch=row["epoch"],
        wake_count=row["wake_count"],
        sample=row["sample"],
        sample_run=row["sample_run"],
        outage=row["why"] if row["why"].startswith(OUTAGE) else "",
    )
    account.config = replace(account.config, concurrency=account.concurrency)
    account.pace = believed(account.pace, account.pace_settings, now, held=account.probing)
    return account


def lane_run(row: Row, channel_key: str) -> LaneRun:
    of, window = channel(channel_key), Window(row["timezone"], row["window_start_hour"], row["window_end_hour"])
    return LaneRun(
        id=row["id"],
        status=row["status"],
        action=of.counts(row["action"]),
        owner_id=row["owner_id"],
        scheduled_for=row["scheduled_for"],
        facts=RunFacts(window.opened_before(row["window_closes_at"]), row["window_closes_at"]),
        parts=[read_part(row["id"], index, part, row["action"], of) for index, part in enumerate(row["parts"])],
        # Message 2 waits for the next opening of its window, attempted or not.
        attempted=row["first_attempt_at"] is not None or row["answers_id"] is not None,
        collects=bool(row["collects"]),
        message_1=row["answers_id"],
        follows=row["follows_id"],
        origin=f"{row['reminder_id']}\t{row['scheduled_for'].isoformat()}\t{of.counts(row['action'])}",
        is_test=row["is_test"],
        follow_up=row["follow_up"],
        waiting_until=row["waiting_until"],
    )


def read_part(run_id: int, index: int, part: dict[str, Any], action: str, of: Channel) -> Part:
    uploaded_as = of.uploaded_as(part["kind"], part.get("text", ""))
    return Part(
        key=f"{run_id}:{index}",
        index=index,
        kind=part["kind"],
        text=part.get("text", ""),
        subject=part.get("subject", ""),
        html=part.get("html", ""),
        media=read_media(part["media"], uploaded_as) if part.get("media") else None,
        personal=part.get("personal", False),
        action=action,
        template=part.get("template"),
    )


def read_media(media: dict[str, Any], kind: str) -> Media:
    return Media(media["sha256"], media["filename"], media["mime"], media["size"], partial(_content, media), kind)


def _content(media: dict[str, Any]) -> bytes:
    if "path" not in media:
        return bytes(media["size"])  # a simulated file has only a size
    return Path(settings.MEDIA_ROOT, media["path"]).read_bytes()


# --- the next targets of a run ----------------------------------------------------------------------------

# The next targets of many lanes, each of one run: `w` is a lane's request, and `n` the request that a row is for.
#
# A run passes over recipients to whom an earlier live run still has to send: nothing overtakes. A follow-up also passes
# over people to whom another account is sending one at this moment. Message 2 follows only where something of Message 1
# has arrived (`message_1`, null for every other run).
TARGETS = f"""
SELECT w.n, next.*
  FROM (SELECT run, account, now, open::bigint[], earlier::bigint[], follow_up, no_new_chats, message_1,
               follows, most, n
          FROM unnest(%s::bigint[], %s::bigint[], %s::timestamptz[], %s::text[], %s::text[], %s::bool[], %s::bool[],
                      %s::bigint[], %s::bigint[], %s::int[])
               WITH ORDINALITY
                 AS w(run, account, now, open, earlier, follow_up, no_new_chats, message_1, follows, most, n)) AS w
 CROSS JOIN LATERAL (
SELECT t.id, t.address, t.parts_sent, nullif(t.part_ids, '{{}}') AS part_ids, t.attempts, t.values, t.expires_at,
       p.status AS recipient_status, p.follow_up_attempts, p.cooldown_until, p.limited,
       {NEW_CHAT} AS new_chat, {LAST_WROTE_AT} AS last_wrote_at,
       EXISTS (SELECT FROM fanout_runtarget f WHERE f.run_id = w.message_1 AND f.recipient_id = t.recipient_id
                                                AND f.parts_sent = 0) AS no_message_1,
       {HAS_REPLIED.format(follows="w.follows")} AS has_replied,
       CASE WHEN s.expires_at IS NULL OR s.expires_at > w.now THEN coalesce(s.reason, '') ELSE '' END AS suppressed
  FROM fanout_runtarget t
  JOIN reminders_recipient p ON p.id = t.recipient_id
  LEFT JOIN reminders_suppression s ON s.address = t.address
 WHERE t.run_id = w.run AND t.account_id = w.account AND t.status = 'pending'
   AND (t.next_attempt_at IS NULL OR t.next_attempt_at <= w.now)
   AND NOT t.id = ANY(w.open)
   AND NOT EXISTS (SELECT FROM fanout_runtarget e
                    WHERE e.run_id = ANY(w.earlier) AND e.recipient_id = t.recipient_id
                      AND e.status IN ('pending', 'sending'))
   AND CASE WHEN w.follow_up THEN NOT {ANOTHER_UNDER_WAY} ELSE true END
   AND CASE WHEN w.no_new_chats THEN NOT {NEW_CHAT} ELSE true END
 ORDER BY t.position LIMIT w.most) AS next
"""

# The rest of a run when nothing was fetched: whether there is any, whether any of it is not held as a new chat, and
# when the first of that may be tried again.
REMAINING = "t.run_id = w.run AND t.account_id = w.account AND t.status = 'pending'"
FREE = f"""CASE WHEN w.no_new_chats THEN (SELECT NOT {NEW_CHAT} FROM reminders_recipient p WHERE p.id = t.recipient_id)
                  ELSE true END"""
NEXT_RETRY = f"""
SELECT EXISTS (SELECT FROM fanout_runtarget t WHERE {REMAINING}) AS pending,
       EXISTS (SELECT FROM fanout_runtarget t WHERE {REMAINING} AND {FREE}) AS free,
       (SELECT min(t.next_attempt_at) FROM fanout_runtarget t
         WHERE {REMAINING} AND t.next_attempt_at IS NOT NULL AND {FREE}) AS at
  FROM unnest(%s::bigint[], %s::bigint[], %s::bool[]) WITH ORDINALITY AS w(run, account, no_new_chats, n)
 ORDER BY w.n
"""


class Wanted(NamedTuple):
    """A lane's request for the next targets of a run; the columns of `w` in TARGETS."""

    run: int
    account: int
    now: datetime
    open: str  # arrays, as PostgreSQL writes them
    earlier: str
    follow_up: bool
    no_new_chats: bool
    message_1: int | None
    follows: int | None
    most: int


async def next_targets(ledger: Ledger, wanted: list[Wanted]) -> list[list[Target]]:
    targets: list[list[Target]] = [[] for _ in wanted]
    for row in await ledger.read(TARGETS, columns(wanted)):
        n = row["n"] - 1
        targets[n].append(target(row, wanted[n].follow_up))
    return targets


class Remaining(NamedTuple):
    """A lane's question about the rest of a run when nothing was fetched; the columns of `w` in NEXT_RETRY."""

    run: int
    account: int
    no_new_chats: bool


async def next_retries(ledger: Ledger, lanes: list[Remaining]) -> list[Row]:
    return await ledger.read(NEXT_RETRY, columns(lanes))


def target(row: Row, follow_up: bool) -> Target:
    return Target(
        row["id"],
        row["address"],
        row["parts_sent"],
        row["attempts"],
        _facts(
            row["recipient_status"],
            row["follow_up_attempts"],
            row["cooldown_until"],
            row["limited"],
            row["suppressed"],
            follow_up,
            row["expires_at"],
            row["no_message_1"],
            row["has_replied"],
        ),
        row["values"],
        new_chat=row["new_chat"],
        last_wrote_at=row["last_wrote_at"],
        part_ids=row["part_ids"] or {},
    )


@lru_cache(maxsize=1000)
def _facts(
    status: str,
    attempts: int,
    cooldown_until: datetime | None,
    limited: bool,
    suppressed: str,
    follow_up: bool,
    expires_at: datetime | None,
    no_message_1: bool,
    has_replied: bool,
) -> TargetFacts:
    """Return what the gates know of a target. It is never changed, and most targets share it."""
    person = Prospect(status, attempts, cooldown_until=cooldown_until, limited=limited)
    return TargetFacts(suppressed, person, follow_up, expires_at, no_message_1, has_replied)


async def under_backpressure(ledger: Ledger, accounts: list[int]) -> list[bool]:
    """Return whether each account's queue of follow-ups is above the threshold; counted no further than that."""
    limits = account_limits.queue_limits()
    rows = await ledger.read(account_limits.QUEUED, account_limits.up_to_threshold(accounts, limits))
    queued = {row["id"]: row["n"] for row in rows}
    return [limits.above_threshold(queued[account_id]) for account_id in accounts]
