"""Error and bounce rates over the last outcomes of a lane. Pure.

The sample is a short string, one letter per outcome, newest last. It is stored with the lane, so a restart
does not forget that the provider has been refusing.
"""

from __future__ import annotations

SENT, ERROR, BOUNCE, LIMITED, UNREACHABLE = ".", "e", "b", "r", "n"
FAILURES = ERROR + BOUNCE
JUDGED = SENT + FAILURES  # a provider that wants more time, or that nobody could reach, has not failed anyone
SAMPLE_SIZE = 50
MINIMUM_SAMPLE = 20  # below it a rate says nothing
MOST_UNREACHABLE = 6  # in a row: an outage of hours must not push the outcomes out of the sample


def add(sample: str, letter: str) -> str:
    if letter == UNREACHABLE and sample.endswith(UNREACHABLE * MOST_UNREACHABLE):
        return sample
    return (sample + letter)[-SAMPLE_SIZE:]


def judged(sample: str) -> int:
    """How many outcomes the rates are taken of."""
    return len(sample) - sample.count(LIMITED) - sample.count(UNREACHABLE)


def error_rate(sample: str) -> float:
    """Failed ÷ (sent + failed)."""
    total = judged(sample)
    return 1 - sample.count(SENT) / total if total else 0.0


def bounce_rate(sample: str) -> float:
    total = judged(sample)
    return sample.count(BOUNCE) / total if total else 0.0


def slowdown_rate(sample: str) -> float:
    """The error rate for the slow-down: it speaks only from a minimum sample on."""
    return error_rate(sample) if judged(sample) >= MINIMUM_SAMPLE else 0.0


def trips(sample: str, threshold: float) -> bool:
    return judged(sample) >= MINIMUM_SAMPLE and error_rate(sample) > threshold


def bounces(sample: str, threshold: float) -> bool:
    return judged(sample) >= MINIMUM_SAMPLE and bounce_rate(sample) > threshold


def failing(sample: str) -> int:
    """How many of the newest outcomes in a row were not a delivery."""
    return len(sample) - len(sample.rstrip(ERROR + BOUNCE + LIMITED + UNREACHABLE))
