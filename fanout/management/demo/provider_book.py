"""The sandbox provider's book of the demo's past runs: what it accepted and refused, and what it reported.

Made from the rows of the runs, so that the pages and the book tell the same story from the first minute. What is sent
from then on, the provider writes by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from django.db.models import QuerySet

from accounts.channels.sandbox.book import Line
from accounts.channels.sandbox.provider import TEXT_KEPT
from accounts.channels.sandbox.reports import report_line
from config.local.provider import add_past
from fanout.models import InboundEvent, Run, RunTarget
from fanout.rules.message_ids import message_id

#: how the ids of past messages begin; those that the provider gives begin otherwise
BY_DEMO = "demo-"
#: lines of one request; the provider reads a body of up to 1 MB
MOST_LINES = 2_000
ACCEPTED = 200
BETWEEN_PARTS = timedelta(seconds=1)


def past_runs() -> QuerySet[Run]:
    """Return the runs that the demo has made up and that reached the provider."""
    made_up = RunTarget.objects.filter(provider_id__startswith=BY_DEMO).values("run")
    return Run.objects.filter(pk__in=made_up).select_related("account").order_by("scheduled_for", "pk")


def tell(url: str) -> None:
    """Add what the provider's book lacks of the past runs: all of them in a new book, and nothing the next time."""
    for run in past_runs():
        lines = sorted(lines_of(run), key=lambda line: float(line["t"]))
        for begin in range(0, len(lines), MOST_LINES):
            add_past(
                url, f"run {run.pk} of {run.scheduled_for.isoformat()}, from {begin}", lines[begin : begin + MOST_LINES]
            )


def lines_of(run: Run) -> Iterator[Line]:
    targets = list(run.targets.order_by("position"))
    said = InboundEvent.objects.filter(run_target_id__in=[target.pk for target in targets])
    words = {event.run_target_id: event.text for event in said}
    for target in targets:
        if target.claimed_at is None:
            continue
        if target.status == RunTarget.Status.FAILED:
            yield from _refused(run, target, target.claimed_at)
        elif target.status == RunTarget.Status.SENT:
            yield from _accepted(run, target, target.claimed_at)
            yield from _reported(run, target, words.get(target.pk, ""))


def _name(run: Run) -> str:
    return str(run.account.config["account"])


def _refused(run: Run, target: RunTarget, at: datetime) -> Iterator[Line]:
    for attempt in range(target.attempts):
        yield {
            "t": (at + timedelta(minutes=attempt)).timestamp(),
            "refused": target.error_kind,
            "account": _name(run),
            "to": target.address,
            "message_id": message_id(target.pk, 0),
        }


def _accepted(run: Run, target: RunTarget, at: datetime) -> Iterator[Line]:
    last = len(run.parts) - 1
    for number, part in enumerate(run.parts):
        yield {
            "t": (at + number * BETWEEN_PARTS).timestamp(),
            "account": _name(run),
            "to": target.address,
            "part": number,
            "message_id": message_id(target.pk, number),
            # A target keeps the id of its last part.
            "provider_id": target.provider_id if number == last else f"{target.provider_id}-{number}",
            "kind": part["kind"],
            "text": part["text"][:TEXT_KEPT],
            "media": None,
        }


def _reported(run: Run, target: RunTarget, words: str) -> Iterator[Line]:
    for kind, at, text in (
        ("delivered", target.delivered_at, ""),
        ("read", target.read_at, ""),
        ("reply", target.replied_at, words),
    ):
        if at is not None:
            report_id = f"ev-{target.provider_id}-{kind}"
            yield report_line(at.timestamp(), _name(run), kind, report_id, ACCEPTED, text)
