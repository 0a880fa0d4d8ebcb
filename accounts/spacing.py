"""The delay per send that gateways put up with. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from accounts.knobs import Setting

#: services that drive a paired phone for us; they ban accounts that send faster than a person could
GATEWAYS = frozenset({"wassenger", "waha", "evolution"})
SHORTEST, LONGEST = 2.0, 10.0


def delays(settings: Mapping[str, Setting]) -> tuple[float, float]:
    """Seconds between two sends, at the least and at the most; batch pauses and bursts are apart."""
    rate = settings["max_send_per_minute"].value
    interval = 60 / rate if rate else 0.0
    gaps = settings["min_gap_seconds"].value, settings["max_gap_seconds"].value
    return max(interval, gaps[0]), max(interval, *gaps)


def gateway_delay_error(channel: str, settings: Mapping[str, Setting]) -> str | None:
    """The sentence for the operator when a gateway account would send too fast or too slowly, else None."""
    if channel not in GATEWAYS:
        return None
    least, most = delays(settings)
    # A rate of 7 a minute is 8.571… s: judge what the operator reads, not the last bit.
    if round(least, 3) >= SHORTEST and round(most, 3) <= LONGEST:
        return None
    told = f"{least:.3g} s" if least == most else f"{least:.3g} to {most:.3g} s"
    return (
        f"A {channel} account sends one message every {SHORTEST:g} to {LONGEST:g} seconds; these settings "
        f"give {told}. Set max_send_per_minute from {60 / LONGEST:g} to {60 / SHORTEST:g} (20 is one every "
        f"3 seconds), and gaps of at most {LONGEST:g} seconds."
    )
