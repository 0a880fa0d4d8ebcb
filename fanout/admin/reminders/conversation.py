"""What was sent to a person and what came back, as one list: the newest last."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import QuerySet

from accounts import access
from accounts.models import Account
from fanout.models import InboundEvent, Run, RunTarget
from reminders import placeholders
from reminders.models import Recipient

SHOWN = 50  # lines; the deliveries of a recipient have a list of their own

Kind = InboundEvent.Kind
HEARD = (Kind.REPLY, Kind.UNSUBSCRIBE, Kind.COMPLAINT)
ELSEWHERE = "a reply to another account"
NOT_KEPT = "the text is not kept any more"


@dataclass(frozen=True, slots=True)
class Line:
    at: datetime
    timezone: str
    #: the title of the run, or the account that it came to
    name: str
    texts: list[str]
    #: of what we sent; empty for what came back
    target: RunTarget | None = None


def conversation(recipient: Recipient, user: Any) -> list[Line]:
    """Through all accounts and lists that have this address, as far as the person who asks may see them."""
    lines = [*_sent(recipient, user), *_heard(recipient, user)]
    return sorted(lines, key=lambda line: line.at)[-SHOWN:]


def _sent(recipient: Recipient, user: Any) -> Iterator[Line]:
    people = list(Recipient.objects.filter(address=recipient.address).values_list("pk", flat=True))
    targets = RunTarget.objects.filter(recipient__in=people, claimed_at__isnull=False)
    if not user.is_superuser:
        targets = targets.filter(run__in=access.visible(user, Run.objects.all()))
    for target in targets.select_related("run").order_by("-run_id")[:SHOWN]:
        at = target.settled_at or target.claimed_at
        assert at is not None  # claimed
        yield Line(at, target.run.timezone, target.run.title, _texts(target), target)


def _texts(target: RunTarget) -> list[str]:
    """Of the parts that went out, or of the first one while that is under way."""
    parts = target.run.parts[: max(1, target.parts_sent)]
    return [_text(part, target.values or {}) or part.get("media", {}).get("filename", "") for part in parts]


def _text(part: dict[str, Any], values: dict[str, str]) -> str:
    text: str = part.get("text", "")
    return placeholders.render(text, values) if part.get("personal") else text


def _heard(recipient: Recipient, user: Any) -> Iterator[Line]:
    """What was said in a group is no part of it. The words belong to the account that they came to."""
    said = InboundEvent.objects.filter(address=recipient.address, group="", kind__in=HEARD)
    events = list(said.select_related("account").order_by("-happened_at")[:SHOWN])
    mine = _seen(user, Account.objects.filter(pk__in={event.account_id for event in events}))
    for event in events:
        if event.account_id in mine:
            yield Line(event.happened_at, event.account.timezone, event.account.label, [_words(event)])
        else:
            yield Line(event.happened_at, "UTC", "", [ELSEWHERE])


def _seen(user: Any, accounts: QuerySet[Account]) -> set[int]:
    return set(access.visible(user, accounts).values_list("pk", flat=True))


def _words(event: InboundEvent) -> str:
    if event.kind != Kind.REPLY:
        return event.get_kind_display().lower()
    return event.text or NOT_KEPT
