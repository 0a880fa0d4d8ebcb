"""Error and bounce rates over the last outcomes of a lane. Pure.

The sample is a short string, one letter per outcome, newest last. It is stored with the lane, so a restart
does not forget that the provider has been refusing.
"""

from __future__ import annotations

SENT, ERROR, BOUNCE, LIMITED = ".", "e", "b", "r"
SAMPLE_SIZE = 50
MINIMUM_SAMPLE = 20  # below it a rate says nothing


def add(sample: str, letter: str) -> str:
    return (sample + letter)[-SAMPLE_SIZE:]


def error_rate(sample: str) -> float:
    return 1 - sample.count(SENT) / len(sample) if sample else 0.0


def bounce_rate(sample: str) -> float:
    return sample.count(BOUNCE) / len(sample) if sample else 0.0


def slowdown_rate(sample: str) -> float:
    """The error rate for the slow-down: it speaks only from a minimum sample on."""
    return error_rate(sample) if len(sample) >= MINIMUM_SAMPLE else 0.0


def trips(sample: str, threshold: float) -> bool:
    return len(sample) >= MINIMUM_SAMPLE and error_rate(sample) > threshold


def bounces(sample: str, threshold: float) -> bool:
    return len(sample) >= MINIMUM_SAMPLE and bounce_rate(sample) > threshold


def failing(sample: str) -> int:
    """How many of the newest outcomes in a row were not a delivery."""
    return len(sample) - len(sample.rstrip(ERROR + BOUNCE + LIMITED))
