"""The delay per send that a channel's provider puts up with. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from accounts.channels.base import Channel
from accounts.knobs import Setting


def delays(settings: Mapping[str, Setting]) -> tuple[float, float]:
    """Seconds between two sends, at the least and at the most; batch pauses and bursts are apart."""
    rate = settings["max_send_per_minute"].value
    interval = 60 / rate if rate else 0.0
    gaps = settings["min_gap_seconds"].value, settings["max_gap_seconds"].value
    return max(interval, gaps[0]), max(interval, *gaps)


def delay_error(channel: Channel, settings: Mapping[str, Setting]) -> str | None:
    """The sentence for the operator when an account would send too fast or too slowly, else None."""
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
