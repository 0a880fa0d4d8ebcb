"""What a lane reads before it sends, as plain values: the account, its limits, its live runs."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from django.conf import settings

from accounts import crypto, knobs
from accounts.transports.base import AccountConfig, Media, Part
from fanout.engine import sql
from fanout.engine.connection import Row
from fanout.engine.gates import AccountFacts, RunFacts, TargetFacts
from fanout.engine.ledger import Ledger
from fanout.engine.pace import PaceSettings, PaceState
from reminders.window import EVERY_DAY, BusinessHours, local_day_bounds, window_start_at

MAIL_CHANNELS = {"smtp", "gmail"}
#: channels that have a daily cap even where the account sets none
CAPPED_CHANNELS = {"smtp", "gmail", "linkedin"}


@dataclass(slots=True)
class Target:
    id: int
    address: str
    parts_sent: int
    attempts: int
    facts: TargetFacts
    # Between two parts: not before this moment.
    ready_at: datetime | None = None


@dataclass(slots=True)
class RunView:
    """A live run as its lane sees it: frozen parts, the window, and the next few targets."""

    id: int
    status: str
    action: str
    owner_id: int
    scheduled_for: datetime
    facts: RunFacts
    parts: list[Part]
    attempted: bool
    buffer: deque[Target] = field(default_factory=deque)
    continuing: list[Target] = field(default_factory=list)
    open: set[int] = field(default_factory=set)
    # Nothing to fetch before this moment.
    dry_until: datetime | None = None
    closing: Any = None

    @property
    def closes_at(self) -> datetime:
        return self.facts.window_closes_at


@dataclass(slots=True)
class LaneView:
    """An account and its lane's durable state."""

    account: AccountConfig
    facts: AccountFacts
    pace: PaceState
    pace_settings: PaceSettings
    concurrency: int
    jitter: tuple[float, float]
    slowdown_at: float
    breaker_at: float
    bounces_at: float
    retry_base: float
    epoch: int
    poke: int
    sample: str
    probing: bool
    timezone: str
    day: tuple[datetime, datetime]

    @property
    def mail(self) -> bool:
        return self.account.channel in MAIL_CHANNELS


async def load_lane(ledger: Ledger, account_id: int, now: datetime) -> LaneView:
    (row,) = await ledger.read(sql.LANE, (account_id,))
    return lane_view(row, now)


def lane_view(row: Row, now: datetime) -> LaneView:
    effective = {name: setting.value for name, setting in knobs.resolve(row, settings.BOT).items()}
    concurrency = int(effective["group_concurrency"])
    return LaneView(
        account=account_config(row, concurrency),
        facts=AccountFacts(
            row["status"],
            row["status_reason"],
            row["status_until"],
            business_hours(row),
        ),
        pace=PaceState(row["tat"], row["next_send_at"], row["batch_sent"], row["slow_factor"]),
        pace_settings=pace_settings(effective),
        concurrency=concurrency,
        jitter=(effective["part_jitter_min_ms"] / 1000, effective["part_jitter_max_ms"] / 1000),
        slowdown_at=effective["error_rate_slowdown"],
        breaker_at=effective["circuit_breaker"],
        bounces_at=effective["bounce_rate_pause"],
        retry_base=effective["retry_base_seconds"],
        epoch=row["epoch"],
        poke=row["poke"],
        sample=row["sample"],
        probing=row["probing"],
        timezone=row["timezone"],
        day=local_day_bounds(row["timezone"], now),
    )


def pace_settings(effective: dict[str, float]) -> PaceSettings:
    return PaceSettings(
        per_minute=effective["max_send_per_minute"],
        burst=int(effective["send_burst"]),
        min_gap=effective["min_gap_seconds"],
        max_gap=effective["max_gap_seconds"],
        batch_size=int(effective["batch_size"]),
        batch_pause=effective["batch_pause_seconds"],
    )


def business_hours(row: Row) -> BusinessHours:
    days = frozenset(row["send_days"] or EVERY_DAY)
    return BusinessHours(row["timezone"], row["hours_start"], row["hours_end"], days)


def account_config(row: Row, concurrency: int) -> AccountConfig:
    return AccountConfig(
        id=row["id"],
        channel=row["channel"],
        label=row["label"],
        address=row["address"],
        config={"url": settings.SANDBOX_URL, **row["config"]} if row["channel"] == "sandbox" else row["config"],
        credentials=crypto.decrypt(row["credentials"]) if row["credentials"] else {},
        concurrency=concurrency,
    )


async def with_cap(ledger: Ledger, view: LaneView, action: str, now: datetime) -> LaneView:
    """The view with today's cap and use for an action, counted from the activity ledger."""
    day = local_day_bounds(view.timezone, now)
    cap = await _cap(ledger, view, action)
    used = 0
    if cap is not None:
        given = {"account": view.account.id, "action": action, "starts": day[0], "ends": day[1]}
        used = (await ledger.read(sql.USED_TODAY, given))[0]["used"]
    return replace(view, facts=replace(view.facts, cap=cap, used=used, day_ends_at=day[1]), day=day)


async def _cap(ledger: Ledger, view: LaneView, action: str) -> int | None:
    own = await ledger.read(sql.CAP, (view.account.id, action))
    if own:
        limit: int | None = own[0]["limit"]
        return limit
    return settings.BOT_DAILY_LIMITS.get(action) if view.account.channel in CAPPED_CHANNELS else None


async def load_runs(ledger: Ledger, account_id: int) -> list[RunView]:
    return [run_view(row) for row in await ledger.read(sql.RUNS, (account_id,))]


def run_view(row: Row) -> RunView:
    opens_at = window_start_at(row["timezone"], row["window_start_hour"], row["window_closes_at"] - _MOMENT)
    return RunView(
        id=row["id"],
        status=row["status"],
        action=row["action"],
        owner_id=row["owner_id"],
        scheduled_for=row["scheduled_for"],
        facts=RunFacts(opens_at, row["window_closes_at"]),
        parts=[frozen_part(row["id"], index, part) for index, part in enumerate(row["parts"])],
        attempted=row["first_attempt_at"] is not None,
    )


def frozen_part(run_id: int, index: int, part: dict[str, Any]) -> Part:
    return Part(
        key=f"{run_id}:{index}",
        index=index,
        kind=part["kind"],
        text=part.get("text", ""),
        subject=part.get("subject", ""),
        html=part.get("html", ""),
        media=frozen_media(part["media"]) if part.get("media") else None,
    )


def frozen_media(media: dict[str, Any]) -> Media:
    return Media(media["sha256"], media["filename"], media["mime"], media["size"], read=partial(_content, media))


def _content(media: dict[str, Any]) -> bytes:
    if "path" not in media:
        return bytes(media["size"])  # a simulation's file has a size only
    return (Path(settings.MEDIA_ROOT) / media["path"]).read_bytes()


def target(row: Row) -> Target:
    facts = TargetFacts(row["suppressed"], row["recipient_status"], row["cooldown_until"])
    return Target(row["id"], row["address"], row["parts_sent"], row["attempts"], facts)


# A window that closes at midnight belongs to the day before it.
_MOMENT = (datetime.max - datetime.min).resolution
