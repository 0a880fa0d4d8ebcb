"""Put the facts of a run into sentences for the operator. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from accounts.addresses import counted_as
from fanout.models.run import PauseReason, window_of
from fanout.rules.follow_up_limits import without_number
from fanout.rules.gates import ENDS_BY_ITSELF
from reminders.moments import about, closing_time, duration

WINDOW_CLOSED_UNSTARTED = "delivery window closed"
CANCELED = "canceled by the operator"
LOST_COMMITS = (
    "nothing is sent: the database may lack commits after a fail-over or a restore, and an operator has to confirm "
    "(`manage.py lost_commits`)"
)
MAY_HAVE_GONE_OUT = "the database lost the record of this message: it may have been delivered"
#: without counts: what was in flight may still arrive
CANCELED_RUN = "Canceled by the operator: what was pending is not sent."
#: the title of what is told when messages of a finished run bounce
CAME_BACK = "Sent messages came back"

Facts = Mapping[str, Any]  # a run's columns
Causes = Mapping[str, Sequence[str]]  # why targets are "failed" or "skipped", the most frequent cause first

#: the provider's kinds of refusal, in an operator's words
ERRORS = {
    "hard_bounce": "address does not exist",
    "soft_bounce": "mailbox full or busy",
    "auth": "login refused",
    "rate_limited": "provider asked to slow down",
    "banned": "account banned",
    "new_chats_blocked": "new chats blocked",
    "unavailable": "provider not available",
    "network": "connection failed",
    "content_rejected": "message rejected",
    "sender_rejected": "sender refused by the recipient's server",
    "recipient_gone": "group or person is gone",
    "not_writable": "the account may not write there",
    "recipient_limited": "provider limits messages to this person",
    "opted_out": "the person opted out at the provider",
    "unknown": "no clear answer",
    "": "no reason recorded",
}


def error(kind: str) -> str:
    return ERRORS.get(kind, kind)


def part_refused(part: int, parts: int, out: Collection[int], detail: str, doubtful: int | None = None) -> str:
    """Return the error of a message that ends with a refused part: which one it was, and which went out."""
    if parts < 2:
        return detail
    others = [f"; {_parts(out)} went out" if out else ""]
    others += [f"; part {doubtful + 1} may have gone out"] if doubtful is not None else []
    return f"Part {part + 1} of {parts} was refused{''.join(others)}: {detail}"


def _parts(numbers: Collection[int]) -> str:
    """Return parts in words, counted from 1: "part 1", "parts 1, 2 and 4"."""
    *first, last = (str(number + 1) for number in sorted(numbers))
    return f"parts {', '.join(first)} and {last}" if first else f"part {last}"


def unstored(results: int) -> str:
    """Return why an account sends nothing although it could."""
    of = "1 message" if results == 1 else f"{results} messages"
    return f"the database does not take the result of {of}, and nothing more is sent until it does"


def window_end(run: Facts) -> str:
    """Return the window end on the run's last active day, with the name of the timezone."""
    return f"{closing_time(run['window_closes_at'], run['timezone'])} ({run['timezone']})"


def recipients(run: Facts) -> str:
    """Count all recipients of a run by what they are."""
    return counted_as(run["total"], run["kinds"])


#: why a recipient is left out, in an operator's words; the codes are without their numbers
LEFT_OUT = {
    "active_chat": "wrote a short while ago",
    "cooldown_active": "still in the cooldown",
    "max_attempts_reached": "no reply to several follow-ups",
    "backpressure": "too many follow-ups are queued",
    "queue_full": "the queue of follow-ups is full",
    "opted_out": "opted out",
    "not_interested": "not interested",
    "do_not_disturb": "do not disturb",
    "blacklisted": "blacklisted",
    "converted": "converted",
    "closed": "closed",
    "the person has replied": "replied",
}


def left_out(why: str) -> str:
    return LEFT_OUT.get(without_number(why), why) or "no reason recorded"


def left_out_counts(reasons: Mapping[str, int]) -> str:
    """Return “3 opted out, 2 still in the cooldown”, the most frequent first."""
    counted: Counter[str] = Counter()
    for why, n in reasons.items():
        counted[left_out(why)] += n
    return ", ".join(f"{n:,} {why}" for why, n in sorted(counted.items(), key=lambda item: (-item[1], item[0])))


NO_ONE = "No one was written to: "


def none_queued(run: Facts, reasons: Mapping[str, int]) -> str:
    return f"{NO_ONE}{left_out_counts(reasons)}."


def queued(run: Facts, reasons: Mapping[str, int]) -> str:
    """Return what a new run sends, and what it leaves out and why."""
    words = f"{counted_as(run['pending'] + run['sending'] + run['sent'], run['kinds'])} queued"
    return f"{words}; {run['skipped']:,} left out: {left_out_counts(reasons)}." if run["skipped"] else f"{words}."


def sent(run: Facts) -> str:
    return f"Sent to {run['sent']:,} of {recipients(run)}, {run['pending']:,} still pending"


def paused(run: Facts, why: str = "", advise: bool = True) -> str:
    """Return when and why it stopped, what is done, what is left, where to go on, and advice that fits the cause."""
    because = f": {why}" if why else ""
    lead = {
        PauseReason.WINDOW_CLOSED: f"Delivery window closed at {window_end(run)}.",
        PauseReason.ACCOUNT_HOURS: "Outside the account's business hours.",
        PauseReason.ACCOUNT_CAPACITY: f"The account has reached its limit{because}.",
        PauseReason.CIRCUIT_BREAKER: f"Stopped because of too many errors{because}.",
        PauseReason.ACCOUNT_DOWN: f"The account cannot send{because}.",
        PauseReason.MEDIA: f"Media upload failed{because}.",
        PauseReason.OPERATOR: "Paused by an operator.",
    }[PauseReason(run["pause_reason"])]
    sentences = [lead, f"{sent(run)}.", *_extras(run), "Resume from the Activity tab.", advice(run) if advise else ""]
    return " ".join(sentence for sentence in sentences if sentence)


def _extras(run: Facts) -> list[str]:
    extras = []
    if run["failed"]:
        extras.append(f"{run['failed']:,} failed.")
    if run["unconfirmed"]:
        extras.append(f"{run['unconfirmed']:,} unconfirmed: check whether they arrived.")
    return extras


def advice(run: Facts) -> str:
    reason = run["pause_reason"]
    if reason == PauseReason.OPERATOR:
        return ""
    if reason == PauseReason.CIRCUIT_BREAKER:
        return "Look at the errors first; resuming starts with a single trial message."
    if reason == PauseReason.ACCOUNT_DOWN:
        return "Reactivate the account, or offload the rest to another account."
    if reason == PauseReason.MEDIA:
        return "Replace or shrink the file, then fire again."
    if reason == PauseReason.ACCOUNT_HOURS:
        return "Extend the account's business hours, or offload to another account."
    if reason == PauseReason.ACCOUNT_CAPACITY:
        return ADVICE["waiting"]
    return started_late(run) or ADVICE[held_back_by(run)]


def started_late(run: Facts) -> str:
    """Return a sentence for a run that would have fitted, had it begun when the window opened; otherwise empty."""
    begun, closes = run["started_at"], run["window_closes_at"]
    opens = window_of(run).opened_before(closes)
    done = run["total"] - run["pending"]
    if begun is None or begun < opens or not done:
        return ""
    had = (closes - begun).total_seconds()
    needed = had * run["total"] / done
    if needed > (closes - opens).total_seconds():
        return ""
    return (
        f"It started {duration(had)} before the window closed and needs {about(needed)}: "
        "start it earlier, or widen the delivery window."
    )


ADVICE = {
    "pacing": "The account is at capacity: offload to another account, or widen the delivery window.",
    "media": "Uploading media took most of the time: shrink the files.",
    "provider": "The provider answered slowly: more of the time went into its answers than into pacing.",
    "retries": "The provider kept failing and most of the time went into retries: look at the errors.",
    "waiting": "Most of the time the account was held by its limits: raise them, or offload to another account.",
}


def held_back_by(run: Facts) -> str:
    """Return the cause that took most of the run's time."""
    return max(ADVICE, key=lambda cause: run[f"seconds_{cause}"])


def finished(run: Facts, causes: Causes) -> str:
    """Return to how many it was sent, and of the rest how many and why."""
    if run["status"] == "success":
        return ""
    words = [word for word in ("failed", "skipped", "unconfirmed") if run[word]]
    counted = [f"{run[word]:,} {word}{_because(causes.get(word, ()))}" for word in words]
    return f"Sent to {run['sent']:,} of {recipients(run)}" + (f", {', '.join(counted)}." if counted else ".")


def _because(causes: Sequence[str]) -> str:
    if not causes:
        return ""
    return f" ({causes[0]})" if len(causes) == 1 else f" (mostly: {causes[0]})"


def came_back(run: Facts, summary: str, cause: str) -> str:
    """Return the notification of a finished run whose messages bounce: the counts of now, and the newest cause."""
    return f"{run['title']}: {summary} Messages that had been accepted came back, the last one with: {cause}."


def closed_before_start(run: Facts) -> str:
    skipped = f"All {recipients(run)} were" if run["total"] > 1 else f"Its {recipients(run)} was"
    return (
        f"Delivery window closed at {window_end(run)} before the first message could go out. "
        f"{skipped} skipped; there is nothing to resume."
    )


def notification(run: Facts) -> tuple[str, str] | None:
    """Return title and body, or None where no notification is needed."""
    counts = f"Sent to {run['sent']:,} of {recipients(run)}."
    if run.get("answers_id") and run.get("pause_reason") in ENDS_BY_ITSELF:
        return None  # Message 2 goes on by itself
    if run["status"] == "paused":
        cause = PauseReason(run["pause_reason"]).label
        return "Reminder paused", f"{counts} Resume from the Activity tab. {run['title']}: {cause}."
    return {
        "success": ("Reminder sent", f"{run['title']}: {counts}"),
        "partial": ("Reminder partly sent", f"{run['title']}: {run['error_summary'] or counts}"),
        "failed": ("Reminder failed", f"{run['title']}: {run['error_summary'] or counts}"),
    }.get(run["status"])
