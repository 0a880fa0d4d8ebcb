"""`manage.py demo_data`: past runs to look at, and two that are going out now."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser
from django.db import transaction
from django.utils import timezone

from accounts.models import Account
from config.local.provider import set_hooks
from fanout.lanes import accounts
from fanout.management.base import PlainCommand
from fanout.management.demo import cast as demo
from fanout.management.demo import history, provider_book
from fanout.models import Run
from fanout.runs import controls

EMBEDDED_ONLY = "The demo has well-known passwords, so it goes into the embedded database only: unset DATABASE_URL."


class Command(PlainCommand):
    help = "Add demo data. If it exists already, only start a run, unless one is going on."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--provider", metavar="URL", help="the sandbox provider to send to (default: SANDBOX_URL)")
        parser.add_argument("--site", metavar="URL", help="where the provider reports to (default: SITE_URL)")

    def handle(self, *args: Any, provider: str | None, site: str | None, **options: Any) -> None:
        if not settings.EMBEDDED_DATABASE:
            raise CommandError(EMBEDDED_ONLY)
        url = provider or settings.SANDBOX_URL
        with transaction.atomic():
            cast = demo.gather(url)
            made = history.write(cast, timezone.now())
        set_hooks(url, {account.config["account"]: hook(account, site) for account in cast.accounts.values()})
        provider_book.tell(url)
        if made:
            self.stdout.write(f"{len(cast.accounts)} accounts, {len(cast.recipients)} groups, {made} past runs.")
        for title in demo.LIVE:
            self.stdout.write(go_live(cast, title))


def hook(account: Account, site: str | None) -> dict[str, str]:
    """Return the webhook for the provider. The web server may listen elsewhere than SITE_URL says."""
    address = accounts.webhook_address(account)
    return {"url": address.replace(settings.SITE_URL, site or settings.SITE_URL), "key": account.credentials["key"]}


def go_live(cast: demo.Cast, title: str) -> str:
    """Fire the reminder unless it is going out; running drivers send it to the sandbox provider at 40 a minute."""
    reminder = cast.reminders[title]
    if reminder.runs.filter(status__in=Run.LIVE).exists():
        return f"“{reminder.title}” is still going out."
    return f"“{reminder.title}”: {controls.fire(reminder, cast.mei, timezone.now()).text}"
