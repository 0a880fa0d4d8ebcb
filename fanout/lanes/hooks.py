"""An account's webhook address: where its provider reports to."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import uuid4

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction

from accounts import access
from accounts.channels.registry import channel
from accounts.models import Account
from fanout.models import Event
from fanout.models.trail_entry import note


def address(account: Account) -> str:
    """Empty where the channel's provider reports nothing by webhook."""
    if not channel(account.channel).webhook:
        return ""
    return f"{settings.PUBLIC_URL or settings.SITE_URL}/hooks/{account.channel}/{account.hook_token}"


@transaction.atomic
def renew(account: Account, user: Any, now: datetime) -> str:
    """A new address; the old one is unknown from now on."""
    access.require(user, account)
    if not address(account):
        raise ValidationError(f"{account.label} has no webhook: its provider reports nothing that way.")
    account.hook_token = str(uuid4())
    account.save(update_fields=["hook_token", "updated_at"])
    Event.objects.create(account=account, actor=user, at=now, verb="webhook renewed")
    note("renewed webhook", account, user, now)
    return address(account)
