"""Has anything shown that an account works with what is stored now? A test or a delivery does."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import connection

from accounts.actions import Action
from accounts.channels.registry import channel
from accounts.models import Account
from accounts.signin import SignIn
from fanout.models import Event

# Only accounts that nothing has shown to work yet; each looks at the newest part of its own activity.
DELIVERED = """
UPDATE accounts_account a SET untested_since = NULL
 WHERE a.untested_since IS NOT NULL
   AND EXISTS (SELECT 1 FROM fanout_activity v
                WHERE v.account_id = a.id AND v.action = ANY(%(actions)s::varchar[]) AND v.outcome = 'sent'
                  AND v.at > a.untested_since)
"""


def doubt(account: Account, now: datetime) -> None:
    """What worked before says nothing about new settings. An account that is paired proves itself by that."""
    if not channel(account.channel).pairs:
        account.untested_since = now


def note_test(account: Account, result: SignIn, user: Any, asked_at: datetime) -> None:
    """A line in the timeline; a success counts unless the account was changed while the provider was asked."""
    Event.objects.create(account=account, actor=user, at=asked_at, verb="tested", detail=in_words(account, result))
    if result.ok:
        Account.objects.filter(pk=account.pk, untested_since__lte=asked_at).update(untested_since=None)


def in_words(account: Account, result: SignIn) -> str:
    return f"{account.label}{'' if result.ok else ' could not sign in'}: {result.text}"


def note_deliveries(now: datetime) -> None:
    """Accounts that delivered something since they were added or changed work."""
    with connection.cursor() as cursor:
        cursor.execute(DELIVERED, {"actions": list(Action.values)})
