"""An account's groups and contacts, fetched from its provider and kept as recipients, for the admin and the shell."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from asgiref.sync import async_to_sync

from accounts.channels.registry import channel
from accounts.models import Account
from accounts.signin import NoAnswer, listed_contacts, listed_groups
from fanout.models import Event
from fanout.runs.controls import Answer
from reminders.groups import add_contacts, synchronise


def synchronise_groups(account: Account, user: Any, now: datetime) -> Answer:
    described = channel(account.channel)
    if not described.lists_groups:
        return Answer(False, f"{account.label}: {described.label} does not list groups. Import them as recipients.")
    try:
        groups = async_to_sync(listed_groups)(account)
    except NoAnswer as problem:
        return Answer(False, f"{account.label} could not list its groups: {problem}")
    if not groups:
        return Answer(False, f"{account.label}: the provider lists no groups; nothing was changed.")
    done = synchronise(account, groups, now)
    words = f"{len(groups)} groups listed: {done.added} added, {done.renamed} renamed, {done.gone} no longer there"
    Event.objects.create(account=account, actor=user, at=now, verb="groups synchronised", detail=words)
    return Answer(True, f"{account.label}: {words}.")


def synchronise_contacts(account: Account, user: Any, now: datetime) -> Answer:
    described = channel(account.channel)
    if not described.lists_contacts:
        return Answer(False, f"{account.label}: {described.label} does not list contacts. Import them as recipients.")
    try:
        contacts = async_to_sync(listed_contacts)(account)
    except NoAnswer as problem:
        return Answer(False, f"{account.label} could not list its contacts: {problem}")
    words = f"{len(contacts)} contacts listed: {add_contacts(account, contacts)} added"
    Event.objects.create(account=account, actor=user, at=now, verb="contacts synchronised", detail=words)
    return Answer(True, f"{account.label}: {words}.")
