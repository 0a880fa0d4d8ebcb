"""Every knob of an account: its name, its default and the values that it takes.

The effective value is the account's own, else the environment's, else the channel's, else the default here. Only
`resolve` decides it, so that the lane, the forecast, the admin and `manage.py tune` agree.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accounts.channels.base import Channel


@dataclass(frozen=True, slots=True)
class Knob:
    name: str
    default: float
    low: float
    high: float
    meaning: str
    whole: bool = True

    @property
    def variable(self) -> str:
        # One variable holds both ends of the jitter: BOT_PART_JITTER_MS=200-500.
        if self.name.startswith("part_jitter"):
            return "BOT_PART_JITTER_MS"
        return f"BOT_{self.name.upper()}"

    def parse(self, raw: str) -> float:
        """Return a value from the shell; raise ValueError with a sentence for the person."""
        try:
            value = int(raw) if self.whole else float(raw)
        except ValueError:
            kind = "a whole number" if self.whole else "a number"
            raise ValueError(f"{self.name} takes {kind}, not {raw!r}.") from None
        if not self.low <= value <= self.high:
            raise ValueError(f"{self.name} must be between {self.low:g} and {self.high:g}, not {value:g}.")
        return value


KNOBS: dict[str, Knob] = {
    knob.name: knob
    for knob in (
        Knob("max_send_per_minute", 40, 0, 100_000, "messages per minute and account (0: no limit)"),
        Knob("send_burst", 3, 1, 10_000, "messages that may follow each other at once after a pause"),
        Knob("group_concurrency", 3, 1, 1_000, "recipients that one account writes to at the same time"),
        Knob("min_gap_seconds", 0, 0, 86_400, "shortest random gap between two sends, in seconds", whole=False),
        Knob("max_gap_seconds", 0, 0, 86_400, "longest random gap between two sends, in seconds", whole=False),
        Knob("batch_size", 0, 0, 100_000, "messages after which a longer pause follows (0: off)"),
        Knob("batch_pause_seconds", 0, 0, 86_400, "length of that pause, in seconds", whole=False),
        Knob("part_jitter_min_ms", 200, 0, 60_000, "shortest wait between two parts to one recipient, in milliseconds"),
        Knob("part_jitter_max_ms", 500, 0, 60_000, "longest wait between two parts to one recipient, in milliseconds"),
        Knob(
            "error_rate_slowdown",
            0.05,
            0,
            1,
            "share of failures (0.05: 5 %) above which the account slows down",
            whole=False,
        ),
        Knob("circuit_breaker", 0.20, 0, 1, "share of failures (0.2: 20 %) above which the run pauses", whole=False),
        Knob(
            "bounce_rate_pause", 0.05, 0, 1, "share of bounces (0.05: 5 %) above which the account pauses", whole=False
        ),
        Knob(
            "complaint_rate_pause",
            0.01,
            0,
            1,
            "share of complaints in a week (0.01: 1 %) above which the account pauses",
            whole=False,
        ),
        Knob("retry_base_seconds", 5, 1, 3_600, "wait before the first retry, in seconds (not for mail)", whole=False),
        Knob("new_chats_per_day", math.inf, 0, 100_000, "people a day to whom it writes for the first time"),
    )
}


@dataclass(frozen=True, slots=True)
class Setting:
    """One effective value and where it comes from: account, environment, channel or default."""

    knob: Knob
    value: float
    source: str

    @property
    def shown(self) -> float | None:
        """Return the value for people and scripts; None means no limit."""
        return None if math.isinf(self.value) else self.value


def resolve(
    overrides: Mapping[str, Any], environment: Mapping[str, float], channel: Mapping[str, float]
) -> dict[str, Setting]:
    """Return the effective value of every knob. `channel` has the defaults of the account's channel."""
    return {name: _resolved(knob, overrides, environment, channel) for name, knob in KNOBS.items()}


def _resolved(
    knob: Knob, overrides: Mapping[str, Any], environment: Mapping[str, float], channel: Mapping[str, float]
) -> Setting:
    own = overrides.get(knob.name)
    if own is not None:
        return Setting(knob, own, "account")
    for source, values in (("environment", environment), ("channel", channel)):
        if knob.name in values:
            return Setting(knob, values[knob.name], source)
    return Setting(knob, knob.default, "default")


# -- the delay between two sends --------------------------------------------------------------------------


def delays(settings: Mapping[str, Setting]) -> tuple[float, float]:
    """Return the least and the most seconds between two sends, apart from batch pauses and bursts."""
    rate = settings["max_send_per_minute"].value
    interval = 60 / rate if rate else 0.0
    gaps = settings["min_gap_seconds"].value, settings["max_gap_seconds"].value
    return max(interval, gaps[0]), max(interval, *gaps)


def delay_error(channel: Channel, settings: Mapping[str, Setting]) -> str | None:
    """Return the sentence for an account that would send too fast or too slowly, else None."""
    if channel.delay is None:
        return None
    shortest, longest = channel.delay
    least, most = delays(settings)
    # A rate of 7 a minute is 8.571… s: judge what the operator reads, not the last bit.
    if round(least, 3) >= shortest and round(most, 3) <= longest:
        return None
    actual = f"{least:.3g} s" if least == most else f"{least:.3g} to {most:.3g} s"
    return (
        f"A {channel.label} account sends one message every {shortest:g} to {longest:g} seconds; these settings "
        f"give {actual}. Set max_send_per_minute from {60 / longest:g} to {60 / shortest:g} (20 is one every "
        f"3 seconds), and gaps of at most {longest:g} seconds."
    )
