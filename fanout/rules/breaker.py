"""Error and bounce rates: over the last outcomes of a lane, and over an account's day. Pure.

The sample is a short string, one letter per outcome, newest last. It is stored with the lane, so a restart
does not forget that the provider has been refusing.
"""

from __future__ import annotations

from collections.abc import Sequence

SENT, ERROR, BOUNCE, LIMITED, UNREACHABLE = ".", "e", "b", "r", "n"
FAILURES = ERROR + BOUNCE
JUDGED = SENT + FAILURES  # being asked to wait, or not reaching the provider, is no failure of a recipient
SAMPLE_SIZE = 50
MINIMUM_SAMPLE = 20  # below it a rate says nothing
LAST_OUTCOMES, MOST_SOFT = 5, 3  # of one address: 3 soft bounces among its last 5 outcomes are too many
COMPLAINT_LIMIT = 0.003  # of the messages of a week: Gmail and Yahoo reject mail of senders above it
LEAST_COMPLAINTS = 2
MOST_UNREACHABLE = 6  # in a row: an outage of hours must not push the outcomes out of the sample


def add(sample: str, letter: str) -> str:
    if letter == UNREACHABLE and sample.endswith(UNREACHABLE * MOST_UNREACHABLE):
        return sample
    return (sample + letter)[-SAMPLE_SIZE:]


def judged(sample: str) -> int:
    """Return how many outcomes the rates are computed from."""
    return len(sample) - sample.count(LIMITED) - sample.count(UNREACHABLE)


def error_rate(sample: str, minimum: int = 1) -> float:
    """Return failed ÷ (sent + failed); 0 below the minimum."""
    total = judged(sample)
    return 1 - sample.count(SENT) / total if total >= minimum else 0.0


def slowdown_rate(sample: str) -> float:
    """Return the error rate for the slow-down, which needs a minimum sample."""
    return error_rate(sample, MINIMUM_SAMPLE)


def trips(sample: str, threshold: float) -> bool:
    return error_rate(sample, MINIMUM_SAMPLE) > threshold


def bounces(sample: str, threshold: float) -> str:
    """Return why the account must pause, in words; empty: it may go on."""
    bounced = sample.count(BOUNCE)
    return too_many_bounces(bounced, judged(sample), threshold) if bounced else ""


def too_many_bounces(bounced: int, sends: int, threshold: float) -> str:
    """Return the sentence about a bounce rate above the threshold; empty below it. The sends are the last ones of a
    lane, or those of an account's day."""
    if sends < MINIMUM_SAMPLE or bounced / sends <= threshold:
        return ""
    return f"bounce rate {bounced / sends:.0%}: {bounced} of {sends} messages came back"


def complaint_rate(complaints: int, sends: int) -> float:
    """Return complained ÷ sent; 0 below the minimum sample."""
    return complaints / sends if sends >= MINIMUM_SAMPLE else 0.0


def warns_of_complaints(complaints: int, sends: int) -> bool:
    return complaint_rate(complaints, sends) > COMPLAINT_LIMIT


def too_many_complaints(complaints: int, sends: int, threshold: float) -> bool:
    """Return whether the account must pause. One person alone does not stop it."""
    return complaints >= LEAST_COMPLAINTS and complaint_rate(complaints, sends) > threshold


def worn_out(soft: Sequence[bool]) -> bool:
    """Return whether an address has bounced softly too often. `soft`: its outcomes, newest first."""
    return sum(soft[:LAST_OUTCOMES]) >= MOST_SOFT


def failing(sample: str) -> int:
    """Return how many of the newest outcomes in a row were not a delivery."""
    return len(sample) - len(sample.rstrip(ERROR + BOUNCE + LIMITED + UNREACHABLE))


#: Fewer opt-outs in a week say nothing about the account.
LEAST_OPT_OUTS = 3
#: Opt-outs per message below which a rise is not worth a warning.
USUAL_OPT_OUTS = 0.002


def rate_before(before: int, sends_before: int) -> float:
    """Return the opt-outs per message of the week before; 0 where too little was sent to tell."""
    return before / sends_before if sends_before >= MINIMUM_SAMPLE else 0.0


def opt_outs_rise(opted_out: int, sends: int, before: int, sends_before: int) -> bool:
    """Return whether twice as many people per message opt out in a week as in the one before. Where little was sent
    before, the usual rate stands for it. Where little was sent since, they opt out of earlier messages."""
    if opted_out < LEAST_OPT_OUTS or sends < MINIMUM_SAMPLE:
        return False
    return opted_out / sends >= 2 * max(rate_before(before, sends_before), USUAL_OPT_OUTS)
