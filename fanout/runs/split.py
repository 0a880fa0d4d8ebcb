"""Which accounts send what is left of runs, before and after an offload."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from django.db.models import Count, Q

from accounts.models import Account
from fanout.models import Run, RunTarget


@dataclass(frozen=True, slots=True)
class Share:
    """What one account has still to send: `movable` of `pending` may go to another account of its channel."""

    account_id: int
    label: str
    channel: str
    pending: int
    movable: int


def shares(runs: Iterable[Run]) -> list[Share]:
    """What is pending for these runs, by account."""
    pending = RunTarget.objects.filter(run__in=list(runs), status=RunTarget.Status.PENDING).order_by()
    rows = pending.values_list("account_id", "account__label", "account__channel")
    untouched = Q(parts_sent=0, in_doubt=False)
    return [Share(*row) for row in rows.annotate(n=Count("pk"), movable=Count("pk", filter=untouched))]


def now(split: Sequence[Share]) -> Counter[str]:
    return Counter({share.label: share.pending for share in split})


def after_offload(split: Sequence[Share], account: Account) -> Counter[str]:
    """Who sends how many once the account has taken over what it may."""
    moved: Counter[str] = Counter()
    for share in split:
        takes = share.movable if share.channel == account.channel and share.account_id != account.pk else 0
        moved[account.label] += takes
        moved[share.label] += share.pending - takes
    return moved


def in_words(split: Mapping[str, int]) -> str:
    """ "200 via Office line, 150 via Community line", the most first."""
    most_first = sorted(split.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{n:,} via {label}" for label, n in most_first if n)
