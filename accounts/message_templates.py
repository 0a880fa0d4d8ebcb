"""Keep the message templates that a provider has approved for an account, and find those that a reminder may use.

They are read when the account is tested and every 15 minutes (fanout.ops.tasks). The provider is asked outside any
transaction.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta

from asgiref.sync import async_to_sync
from django.db import transaction
from django.db.models import F, Q

from accounts.channels.registry import channel, channels
from accounts.channels.templates import Template, own_template, template_in
from accounts.models import Account, MessageTemplate
from accounts.signin import NoAnswer, learned_settings, listed_templates

log = logging.getLogger("crier.templates")

#: Meta reviews templates within minutes; it pauses bad ones at any time.
READ_EVERY = timedelta(minutes=14)
#: Accounts that one task reads, so that it ends within its time limit.
MOST_AT_ONCE = 20
PROBLEM_LENGTH = 500


def refresh(account: Account, now: datetime) -> str:
    """Read the account's templates from its provider and store them. Returns the result in words.

    Where the provider does not answer, the templates that were read before stay.
    """
    account.remember(async_to_sync(learned_settings)(account))
    try:
        listed = async_to_sync(listed_templates)(account)
    except NoAnswer as problem:
        words = f"Templates could not be read: {problem}"
        _note(account, words[:PROBLEM_LENGTH], now)
        return words
    with transaction.atomic():
        _store(account, listed)
        _note(account, "", now)
    usable = sum(not template.unusable() for template in listed)
    return f"{len(listed)} templates listed, {usable} of them can be used"


def _note(account: Account, problem: str, now: datetime) -> None:
    Account.objects.filter(pk=account.pk).update(templates_read_at=now, templates_problem=problem)
    account.templates_read_at, account.templates_problem = now, problem


def _store(account: Account, listed: Iterable[Template]) -> None:
    rows = {
        (one.name, one.language): MessageTemplate(
            account=account, name=one.name, language=one.language, content=asdict(one)
        )
        for one in listed
    }
    gone = [row.pk for row in account.templates.all() if (row.name, row.language) not in rows]
    MessageTemplate.objects.filter(pk__in=gone).delete()
    MessageTemplate.objects.bulk_create(
        rows.values(),
        update_conflicts=True,
        unique_fields=["account", "name", "language"],
        update_fields=["content"],
    )


def refresh_due(now: datetime) -> int:
    """Read the templates of accounts that were not asked for a while. Returns how many accounts were asked."""
    listing = [key for key, described in channels().items() if described.lists_templates]
    old = Q(templates_read_at=None) | Q(templates_read_at__lte=now - READ_EVERY)
    due = Account.objects.filter(old, channel__in=listing, archived=False).order_by(
        F("templates_read_at").asc(nulls_first=True), "pk"
    )
    accounts = list(due[:MOST_AT_ONCE])
    for account in accounts:
        log.info("templates of %s: %s", account.label, refresh(account, now), extra={"account": account.pk})
    return len(accounts)


# --- for reminders --------------------------------------------------------------------------------------------


def needing_templates(accounts: Iterable[Account]) -> list[Account]:
    """Return the accounts whose provider takes only templates for people who have not written for a while."""
    return [account for account in accounts if channel(account.channel).free_for is not None]


def templates_of(accounts: Sequence[Account]) -> dict[tuple[str, str], Template]:
    """Return the templates that all of these accounts have, by name and language."""
    if not accounts:
        return {}
    rows = MessageTemplate.objects.filter(account__in=accounts)
    by_account: dict[int, dict[tuple[str, str], Template]] = {account.pk: {} for account in accounts}
    for row in rows:
        by_account[row.account_id][row.name, row.language] = template_in(row.content)
    first, *others = by_account.values()
    return {key: template for key, template in first.items() if all(key in other for other in others)}


def default_template(account: Account) -> Template | None:
    """Return the template that the account's settings name for texts without one of their own, or None."""
    if not channel(account.channel).lists_templates or (named := own_template(account.config, None)) is None:
        return None
    return templates_of([account]).get((named.name, named.language)) or named
