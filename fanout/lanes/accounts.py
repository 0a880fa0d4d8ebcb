"""Adding and changing accounts, for the admin and the shell alike: checked, saved, noted in the timeline, and the
lane is poked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import transaction

from accounts import access
from accounts.crypto import CredentialError
from accounts.knobs import KNOBS
from accounts.models import Account
from fanout.lanes import tuning
from fanout.lanes.poke import poke
from fanout.models import Event
from fanout.models.trail_entry import note

#: what the engine and the controls write, and an operator does not
NOT_SETTINGS = {"id", "status", "status_reason", "status_until", "status_changed_at", "last_error", "last_error_at",
                "created_at", "updated_at"}  # fmt: skip


@dataclass(slots=True)
class Change:
    """What an operator does to an account; the last two are filled in when it is done."""

    account: Account
    fields: list[str] = field(default_factory=list)
    tuned: dict[str, list[float | None]] = field(default_factory=dict)


@transaction.atomic
def add_account(account: Account, user: Any, now: datetime) -> None:
    account.full_clean()
    account.save()
    Event.objects.create(account=account, actor=user, at=now, verb="added", detail=account.channel)
    note("added", account, user, now, account.channel)
    poke([account.pk], now)


@contextmanager
def changing(account: Account, user: Any, now: datetime) -> Iterator[Change]:
    """The account as stored, locked, for the block to change; its caps too. All or nothing."""
    access.require(user, account)
    with transaction.atomic():
        change = Change(Account.objects.select_for_update().get(pk=account.pk))
        columns, before = _columns(change.account), tuning.snapshot(change.account, now)
        yield change
        _save(change, columns)
        change.tuned = tuning.changes_between(before, tuning.snapshot(change.account, now))
        _note(change, user, now)
        poke([account.pk], now)


def _save(change: Change, before: dict[str, Any]) -> None:
    after = _columns(change.account)
    columns = [name for name in after if after[name] != before[name]]
    change.fields = [word for name in columns if name not in KNOBS for word in _words(name, before[name], after[name])]
    if columns:
        # Untouched credentials are not validated: there may be no key left that opens them.
        change.account.full_clean(exclude=None if "credentials" in columns else {"credentials"})
        change.account.save(update_fields=[*columns, "updated_at"])


def _columns(account: Account) -> dict[str, Any]:
    columns = {
        f.attname: account.__dict__[f.attname] for f in Account._meta.concrete_fields if f.name not in NOT_SETTINGS
    }
    # Copies: the block may change them in place. With their type, which hides the values from tracebacks.
    return columns | {"config": _copy(account.config), "credentials": _copy(_credentials(account))}


def _copy(value: Any) -> Any:
    return type(value)(value) if isinstance(value, dict) else value


def _credentials(account: Account) -> Any:
    try:
        return account.credentials
    except CredentialError:
        return account.__dict__["credentials"]  # sealed, as it was stored


def _words(name: str, before: Any, after: Any) -> list[str]:
    """A column's name, or the names of the settings and secrets that changed in it; never a value."""
    if not isinstance(after, dict):
        return [name.removesuffix("_id")]
    before = before if isinstance(before, dict) else {}
    return [key for key in {**before, **after} if before.get(key) != after.get(key)]


def _note(change: Change, user: Any, now: datetime) -> None:
    lines = {"changed": ", ".join(change.fields), "tuned": tuning.describe(change.tuned)}
    for verb, detail in lines.items():
        if detail:
            Event.objects.create(account=change.account, actor=user, at=now, verb=verb, detail=detail)
            note(verb, change.account, user, now, detail)


def tune(account: Account, values: dict[str, float | None], user: Any, now: datetime) -> dict[str, list[float | None]]:
    """Set knobs and caps. Returns what changed: name -> [before, after]."""
    with changing(account, user, now) as change:
        tuning.assign(change.account, values)
    return change.tuned
