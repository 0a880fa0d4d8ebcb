"""Which accounts send how much of a run, before and after an offload."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from django.db.models import Count, Q, QuerySet

from accounts.models import Account
from fanout.models import Run, RunTarget

Status = RunTarget.Status
GOES_OUT = (Status.PENDING, Status.SENDING, Status.SENT, Status.FAILED, Status.UNCONFIRMED)


@dataclass(frozen=True, slots=True)
class Share:
    """What one account sends: `movable` of its `targets` may go to another account of its channel."""

    account_id: int
    label: str
    channel: str
    targets: int
    movable: int


def whole(run: Run) -> list[Share]:
    """All that the run sends and has sent, by account."""
    return _shares(run.targets.filter(status__in=GOES_OUT))


def left(runs: Sequence[Run]) -> list[Share]:
    """What is pending for these runs, by account."""
    return _shares(RunTarget.objects.filter(run__in=runs, status=Status.PENDING))


def _shares(targets: QuerySet[RunTarget]) -> list[Share]:
    rows = targets.order_by().values_list("account_id", "account__label", "account__channel")
    untouched = Q(status=Status.PENDING, parts_sent=0, in_doubt=False)
    return [Share(*row) for row in rows.annotate(n=Count("pk"), movable=Count("pk", filter=untouched))]


def after_offload(shares: Sequence[Share], account: Account) -> list[Share]:
    """The shares once the account has taken over what it may."""
    givers = [share for share in shares if share.channel == account.channel and share.account_id != account.pk]
    moved = sum(share.movable for share in givers)
    kept = [replace(share, targets=share.targets - share.movable) if share in givers else share for share in shares]
    return [*kept, Share(account.pk, account.label, account.channel, moved, 0)]


def in_words(shares: Sequence[Share]) -> str:
    """As in: 200 via Office line, 150 via Community line. The most come first."""
    counted: Counter[str] = Counter()
    for share in shares:
        counted[share.label] += share.targets
    return ", ".join(f"{n:,} via {label}" for label, n in counted.most_common() if n)
