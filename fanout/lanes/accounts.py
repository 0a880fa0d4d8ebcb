"""Add and change accounts, for the admin and the shell alike: checked, saved, noted in the timeline, and the lane is
woken. Also their webhook addresses, and whether they are tested."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import uuid4

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import connection, transaction

from accounts import access
from accounts.actions import Action
from accounts.channels.registry import channel
from accounts.crypto import CredentialError
from accounts.knobs import KNOBS
from accounts.models import Account, changed_destination, reenter_credentials
from accounts.presets import Preset
from accounts.signin import SignIn
from fanout.lanes import tuning
from fanout.lanes.lane_rows import wake_lanes
from fanout.models import Event, LaneState
from fanout.models.trail import note

NOT_PAIRED = "not paired yet, see “Pair” on its page"

#: columns that only the engine and the controls write
NOT_SETTINGS = {
    "id",
    "hook_token",
    "status",
    "status_reason",
    "status_until",
    "status_changed_at",
    "untested_since",
    "last_error",
    "last_error_at",
    "created_at",
    "updated_at",
}


@dataclass(slots=True)
class Change:
    """An operator's change of an account; the last two fields are filled in when it is done."""

    account: Account
    #: the credentials that came with the change; None: the stored ones stay
    entered: dict[str, Any] | None = None
    fields: list[str] = field(default_factory=list)
    tuned: dict[str, list[float | None]] = field(default_factory=dict)

    def enter(self, credentials: dict[str, Any], *, replace: bool = False) -> None:
        """Set credentials as the operator gave them, beside the stored ones or in their place."""
        self.entered = credentials
        self.account.credentials = credentials if replace else readable(self.account) | credentials


@transaction.atomic
def add_account(account: Account, user: Any, now: datetime) -> None:
    if channel(account.channel).pairs:
        account.status, account.status_reason = Account.Status.UNPAIRED, NOT_PAIRED
    mark_untested(account, now)
    account.full_clean()
    account.save()
    Event.objects.create(account=account, actor=user, at=now, verb="added", detail=account.channel)
    note("added", account, user, now, account.channel)
    wake_lanes([account.pk], now)


@contextmanager
def changing(account: Account, user: Any, now: datetime) -> Iterator[Change]:
    """Lock the stored account and yield it to be changed, with its caps. All or nothing."""
    access.require(user, account)
    with transaction.atomic():
        change = Change(Account.objects.select_for_update().get(pk=account.pk))
        columns, before = _columns(change.account), tuning.snapshot(change.account, now)
        destination = change.account.destination()
        yield change
        if change.account.team_id != columns["team_id"] and not access.may_move(user, account):
            raise access.NotYours(f"You may not share {account} with another team: it belongs to another operator.")
        moved = changed_destination(destination, change.account.destination())
        _require_new_credentials(change, moved, columns["credentials"])
        if moved or _credentials(change.account) != columns["credentials"]:
            mark_untested(change.account, now)
            forget_timeouts(account.pk)
        _save(change, columns)
        change.tuned = tuning.changes_between(before, tuning.snapshot(change.account, now))
        _note(change, user, now)
        wake_lanes([account.pk], now)


def _require_new_credentials(change: Change, moved: list[str], stored: Any) -> None:
    """Keep only credentials that came with the change where the destination changed, or raise ValidationError if none
    did. Those stored for another destination must not be sent to a new one."""
    if not moved or not stored:
        return
    if change.entered is None:
        raise ValidationError(reenter_credentials(moved))
    change.account.credentials = change.entered


def readable(account: Account) -> dict[str, Any]:
    """Return the stored credentials; empty where no key decrypts them, so that they can be entered again."""
    credentials = _credentials(account)
    return credentials if isinstance(credentials, dict) else {}


def _save(change: Change, before: dict[str, Any]) -> None:
    after = _columns(change.account)
    columns = [name for name in after if after[name] != before[name]]
    change.fields = [word for name in columns if name not in KNOBS for word in _words(name, before[name], after[name])]
    if columns:
        # Untouched credentials are not validated: there may be no key left that decrypts them.
        change.account.full_clean(exclude=None if "credentials" in columns else {"credentials"})
        change.account.save(update_fields=[*columns, "untested_since", "updated_at"])


def _columns(account: Account) -> dict[str, Any]:
    columns = {
        f.attname: account.__dict__[f.attname] for f in Account._meta.concrete_fields if f.name not in NOT_SETTINGS
    }
    # Copies, because the block may change them in place. With their type, which hides the values from tracebacks.
    return columns | {"config": _copy(account.config), "credentials": _copy(_credentials(account))}


def _copy(value: Any) -> Any:
    return type(value)(value) if isinstance(value, dict) else value


def _credentials(account: Account) -> Any:
    try:
        return account.credentials
    except CredentialError:
        return account.__dict__["credentials"]  # sealed, as it was stored


def _words(name: str, before: Any, after: Any) -> list[str]:
    """Return the column's name, or the names of the settings and secrets that changed in it; never a value."""
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


def apply_preset(account: Account, preset: Preset, user: Any, now: datetime) -> dict[str, list[float | None]]:
    """Give the account all values of a preset. Returns the knobs and caps that changed."""
    if problem := preset.problem(account.channel):
        raise ValidationError(problem)
    with changing(account, user, now) as change:
        tuning.assign(change.account, preset.values)
        for name, value in preset.fields.items():
            setattr(change.account, name, value)
        Event.objects.create(account=account, actor=user, at=now, verb="preset applied", detail=preset.label)
    return change.tuned


# --- webhook address --------------------------------------------------------------------------------------


def webhook_address(account: Account) -> str:
    """Return the address that the account's provider reports to; empty where it reports nothing by webhook."""
    if not channel(account.channel).webhook:
        return ""
    return f"{settings.PUBLIC_URL or settings.SITE_URL}/hooks/{account.channel}/{account.hook_token}"


@transaction.atomic
def renew_webhook(account: Account, user: Any, now: datetime) -> str:
    """Give the account a new webhook address; the old one is unknown from now on."""
    access.require(user, account)
    if not webhook_address(account):
        raise ValidationError(f"{account.label} has no webhook: its provider reports nothing that way.")
    account.hook_token = str(uuid4())
    account.save(update_fields=["hook_token", "updated_at"])
    Event.objects.create(account=account, actor=user, at=now, verb="webhook renewed")
    note("renewed webhook", account, user, now)
    return webhook_address(account)


# --- proof that an account works --------------------------------------------------------------------------


# Only unverified accounts; each looks at the newest part of its own activity.
VERIFY_BY_DELIVERY = """
UPDATE accounts_account a SET untested_since = NULL
 WHERE a.untested_since IS NOT NULL
   AND EXISTS (SELECT 1 FROM fanout_activity v
                WHERE v.account_id = a.id AND v.action = ANY(%(actions)s::varchar[]) AND v.outcome = 'sent'
                  AND v.at > a.untested_since)
"""


def mark_untested(account: Account, now: datetime) -> None:
    """Mark an account as not tested after its settings changed. Pairing tests an account by itself."""
    if not channel(account.channel).pairs:
        account.untested_since = now


def note_test(account: Account, result: SignIn, user: Any, asked_at: datetime) -> None:
    """Add a test to the timeline. A success verifies the account unless it was changed while the provider was asked."""
    Event.objects.create(
        account=account, actor=user, at=asked_at, verb="tested", detail=sign_in_result(account, result)
    )
    if result.learned:
        account.remember(result.learned)
    if result.ok:
        Account.objects.filter(pk=account.pk, untested_since__lte=asked_at).update(untested_since=None)
        if forget_timeouts(account.pk):
            wake_lanes([account.pk], asked_at)


def forget_timeouts(account_id: int) -> bool:
    """End the break of an account whose provider did not answer: its server or its credentials were changed, or a test
    went well. Returns whether there was one."""
    lanes = LaneState.objects.filter(account=account_id, timeouts__gt=0)
    return bool(lanes.update(timeouts=0, next_send_at=None))


def sign_in_result(account: Account, result: SignIn) -> str:
    return f"{account.label}{'' if result.ok else ' could not sign in'}: {result.text}"


def note_deliveries(now: datetime) -> None:
    """Mark accounts as tested that delivered something since they were added or changed."""
    with connection.cursor() as cursor:
        cursor.execute(VERIFY_BY_DELIVERY, {"actions": list(Action.values)})
