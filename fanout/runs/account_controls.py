"""What operators do with an account: reactivate it, pause it. And the end of suspensions that are over."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from accounts import access
from accounts.models import Account
from fanout.database import Steps, carry_out
from fanout.lanes import status
from fanout.models.trail import note
from fanout.runs.controls import Answer, User, pk_of


def reactivate(account: Account, user: User, now: datetime) -> Answer:
    """An operator's decision: the account may send again. Its runs are resumed one by one, by intent."""
    if account.archived:
        return Answer(False, f"{account.label} is archived: restore it first.")
    return _change_account(account, user, "reactivated", status.reactivate(account.pk, pk_of(user), now), now)


def pause_account(account: Account, user: User, now: datetime, reason: str = "paused by an operator") -> Answer:
    return _change_account(account, user, "paused", status.pause(account.pk, reason, pk_of(user), now), now)


def _change_account(account: Account, user: User, verb: str, change: Steps[bool], now: datetime) -> Answer:
    access.require(user, account)
    with transaction.atomic():
        changed = carry_out(change)
        account.refresh_from_db()
        if changed:
            note(verb, account, user, now, account.status_reason)
    return Answer(changed, f"{account.label} {verb}." if changed else f"{account.label} is {account.status} already.")


def end_suspensions(now: datetime) -> int:
    """Temporary bans that are over, for accounts without a live run; a lane sees to its own."""
    # In the order in which everybody locks lanes.
    ended = Account.objects.filter(status=Account.Status.SUSPENDED, status_until__lte=now).order_by("pk")
    with transaction.atomic():
        return sum(carry_out(status.end_suspension(account.pk, now)) for account in ended)
