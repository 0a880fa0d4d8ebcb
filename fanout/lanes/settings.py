"""An account's row as the values that rules take: pace, hours, and what its lane remembers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fanout.rules.pace import PaceSettings, PaceState
from reminders.window import EVERY_DAY, BusinessHours

Row = Mapping[str, Any]  # a row's columns


def pace_settings(effective: Mapping[str, float]) -> PaceSettings:
    return PaceSettings(
        per_minute=effective["max_send_per_minute"],
        burst=int(effective["send_burst"]),
        min_gap=effective["min_gap_seconds"],
        max_gap=effective["max_gap_seconds"],
        batch_size=int(effective["batch_size"]),
        batch_pause=effective["batch_pause_seconds"],
    )


def pace_state(lane: Row) -> PaceState:
    return PaceState(lane["tat"], lane["next_send_at"], lane["batch_sent"], lane["slow_factor"])


def part_jitter(effective: Mapping[str, float]) -> tuple[float, float]:
    """Seconds between two parts of one target, at least and at most."""
    return effective["part_jitter_min_ms"] / 1000, effective["part_jitter_max_ms"] / 1000


def business_hours(account: Row) -> BusinessHours:
    days = frozenset(account["send_days"] or EVERY_DAY)
    return BusinessHours(account["timezone"], account["hours_start"], account["hours_end"], days)
