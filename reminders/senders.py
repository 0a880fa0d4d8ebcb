"""Which of a reminder's senders sends to whom: each target goes through an account whose channel reaches its kind of
address, and accounts with the same reach take turns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from accounts import access
from accounts.actions import Action
from accounts.channels.base import PLURAL_OF_KIND
from accounts.channels.registry import channel
from accounts.models import Account


def able_to_reach(kind: str, accounts: Sequence[Account]) -> tuple[int, ...]:
    """The accounts, by their place, that take turns for a kind of address: active ones, where one reaches it."""
    able = [n for n, account in enumerate(accounts) if channel(account.channel).reaches(kind)]
    return tuple(n for n in able if accounts[n].status == Account.Status.ACTIVE) or tuple(able)


def turns(kinds: Iterable[str], accounts: Sequence[Account]) -> list[int | None]:
    """Whose turn each target is, by the account's place; None where no account reaches it."""
    reaches: dict[str, tuple[int, ...]] = {}
    had: Counter[tuple[int, ...]] = Counter()
    order: list[int | None] = []
    for kind in kinds:
        if kind not in reaches:
            reaches[kind] = able_to_reach(kind, accounts)
        able = reaches[kind]
        order.append(able[had[able] % len(able)] if able else None)
        had[able] += 1
    return order


def shares(kinds: Mapping[str, int], accounts: Sequence[Account]) -> list[int]:
    """How many targets each account gets, where there are so many of each kind: as many as `turns` gives it."""
    totals: Counter[tuple[int, ...]] = Counter()
    for kind, count in kinds.items():
        totals[able_to_reach(kind, accounts)] += count
    each = [0] * len(accounts)
    for able, total in totals.items():
        for turn, n in enumerate(able):
            each[n] += (total - turn + len(able) - 1) // len(able)
    return each


def problem(owner: Any, accounts: Sequence[Account], kinds: Collection[str], subject: str) -> str:
    """Why these accounts cannot send the reminder, in a sentence; empty when they can."""
    wanted = Account.objects.filter(pk__in=[account.pk for account in accounts])
    usable = set(access.visible(owner, wanted))
    for account in accounts:
        if account not in usable:
            return f"{owner} may not send through {account}: the account belongs to somebody else."
    if lacking := subject_problem(accounts, subject):
        return lacking
    unreached = [PLURAL_OF_KIND[kind] for kind in sorted(kinds) if not able_to_reach(kind, accounts)]
    if unreached:
        return f"None of the senders reaches the {' and '.join(unreached)} among the targets: add one that does."
    return ""


def connect_problem(account: Account) -> str:
    """Why a reminder through this account cannot ask people to connect; empty when it can."""
    described = channel(account.channel)
    can = Action.CONNECTION_REQUEST in described.actions
    return "" if can else f"{account} ({described.label}) sends no connection requests."


def action(account: Account, connects: bool, before: str) -> str:
    """What a reminder through this account counts as; one that no longer connects is the channel's own action again."""
    described = channel(account.channel)
    if connects:
        return Action.CONNECTION_REQUEST
    return described.action if before == Action.CONNECTION_REQUEST else described.counts(before)


def subject_problem(accounts: Sequence[Account], subject: str) -> str:
    mail = [account for account in accounts if channel(account.channel).subject]
    return f"Give the reminder a subject: {mail[0]} sends mail." if mail and not subject.strip() else ""
