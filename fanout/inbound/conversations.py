"""The conversation with one person: deliveries and replies as one list, newest last."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from django.db.models import Model, QuerySet

from accounts import access
from accounts.models import Account
from fanout.inbound.replies import automatic_words
from fanout.models import InboundEvent, Run, RunTarget
from reminders import placeholders
from reminders.models import Recipient

M = TypeVar("M", bound=Model)
Visible = Callable[[QuerySet[Any]], QuerySet[Any]]

LINES_SHOWN = 50  # lines; the deliveries of a recipient have a list of their own

Kind = InboundEvent.Kind
KINDS_SHOWN = (Kind.REPLY, Kind.UNSUBSCRIBE, Kind.COMPLAINT, Kind.AUTOMATIC)
ELSEWHERE = "a reply to another account"
NOT_KEPT = "the text is not kept any more"


@dataclass(frozen=True, slots=True)
class Line:
    at: datetime
    timezone: str
    #: the title of the run, or the account that received it
    name: str
    texts: list[str]
    #: None for received messages
    target: RunTarget | None = None


def conversation(recipient: Recipient, user: Any, team: int | None = None) -> list[Line]:
    """Return the lines with this address over all accounts and lists that the person may see; of one team if named."""

    def visible(rows: QuerySet[M]) -> QuerySet[M]:
        rows = access.visible(user, rows)
        return rows.filter(team=team) if team else rows

    lines = [*_sent(recipient, visible), *_received(recipient, visible)]
    return sorted(lines, key=lambda line: line.at)[-LINES_SHOWN:]


def _sent(recipient: Recipient, visible: Visible) -> Iterator[Line]:
    people = list(Recipient.objects.filter(address=recipient.address).values_list("pk", flat=True))
    targets = RunTarget.objects.filter(recipient__in=people, claimed_at__isnull=False)
    runs = visible(Run.objects.all())
    if runs.query.has_filters():
        targets = targets.filter(run__in=runs)
    for target in targets.select_related("run").order_by("-run_id")[:LINES_SHOWN]:
        at = target.settled_at or target.claimed_at
        assert at is not None  # claimed
        yield Line(at, target.run.timezone, target.run.title, _texts(target), target)


def _texts(target: RunTarget) -> list[str]:
    """Return the texts of the sent parts; of the first one while it is being sent."""
    parts = target.run.parts[: max(1, target.parts_sent)]
    return [_text(part, target.values or {}) or part.get("media", {}).get("filename", "") for part in parts]


def _text(part: dict[str, Any], values: dict[str, str]) -> str:
    text: str = part.get("text", "")
    return placeholders.render(text, values) if part.get("personal") else text


def _received(recipient: Recipient, visible: Visible) -> Iterator[Line]:
    """Yield replies, without messages in groups. Their texts are visible to people who may see the account."""
    said = InboundEvent.objects.filter(address=recipient.address, group="", kind__in=KINDS_SHOWN)
    events = list(said.select_related("account").order_by("-happened_at")[:LINES_SHOWN])
    asked = Account.objects.filter(pk__in={event.account_id for event in events})
    mine = set(visible(asked).values_list("pk", flat=True))
    for event in events:
        if event.account_id in mine:
            yield Line(event.happened_at, event.account.timezone, event.account.label, [_event_text(event)])
        else:
            yield Line(event.happened_at, "UTC", "", [ELSEWHERE])


def _event_text(event: InboundEvent) -> str:
    if event.kind == Kind.AUTOMATIC:
        return automatic_words(event)
    if event.kind != Kind.REPLY:
        return event.get_kind_display().lower()
    return event.text or NOT_KEPT
