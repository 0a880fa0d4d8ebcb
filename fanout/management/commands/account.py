"""`manage.py account add|list|set|hook`: accounts from a script."""

from __future__ import annotations

import argparse
from typing import Any

from django.core.management.base import CommandParser
from django.utils import timezone

from accounts.channels.registry import offered
from accounts.models import Account
from fanout.lanes import accounts
from fanout.management import fields, lookup
from fanout.management.base import CrierCommand, NotDone, table

SET_HELP = (
    "a column (timezone, address, hours_start …), a knob, or a setting of the provider; may be repeated. For "
    "certificates (ca_pem) VALUE may be @FILE"
)
SECRET_HELP = "a secret of the provider, stored encrypted; VALUE may be - (read standard input) or @FILE (read a file)"


class Command(CrierCommand):
    help = "Add, list and change accounts."
    example = "account add --channel smtp --label Office --set host=mail.example.com --secret password=@pw.txt"

    def arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="add|list|set|hook")
        add = actions.add_parser("add", help="add an account and print its number")
        add.add_argument("--channel", required=True, help=", ".join(offered()))
        add.add_argument("--label", required=True)
        add.add_argument("--owner", metavar="USERNAME", help="default: the only administrator")
        _add_pairs(add)
        actions.add_parser("list", help="list all accounts")
        change = actions.add_parser("set", help="change an account")
        change.add_argument("account", help="number or label")
        _add_pairs(change)
        hook = actions.add_parser("hook", help="print the webhook address of an account, for its provider")
        hook.add_argument("account", help="number or label")
        hook.add_argument("--renew", action="store_true", help="make a new one; the old one stops working at once")
        for action in actions.choices.values():
            # Also after the word, where people write it. SUPPRESS: its absence there must not undo the first.
            action.add_argument("--json", action="store_true", default=argparse.SUPPRESS)

    def handle(self, *args: Any, **options: Any) -> None:
        {"add": self.add, "list": self.list, "set": self.change, "hook": self.hook}[options["action"]](options)

    def add(self, options: dict[str, Any]) -> None:
        account = Account(owner=lookup.owner(options["owner"]), channel=options["channel"], label=options["label"])
        fields.assign(accounts.Change(account), options["pairs"], options["secrets"])
        accounts.add_account(account, None, timezone.now())
        self.answer({"account": account.pk, "label": account.label}, str(account.pk))

    def list(self, options: dict[str, Any]) -> None:
        rows = [as_data(account) for account in Account.objects.select_related("owner")]
        names = ("account", "label", "channel", "status", "status_reason", "timezone")
        self.answer({"accounts": rows}, *table(names, [[row[name] for name in names] for row in rows]))

    def change(self, options: dict[str, Any]) -> None:
        account = lookup.account(options["account"])
        with accounts.changing(account, None, timezone.now()) as change:
            fields.assign(change, options["pairs"], options["secrets"])
        names = [*change.fields, *change.tuned]
        self.answer(
            {"account": account.pk, "changed": names}, f"{account.label}: changed {', '.join(names) or 'nothing'}."
        )

    def hook(self, options: dict[str, Any]) -> None:
        account = lookup.account(options["account"])
        address = (
            accounts.renew_webhook(account, None, timezone.now())
            if options["renew"]
            else accounts.webhook_address(account)
        )
        if not address:
            raise NotDone(f"{account.label} has no webhook: its provider reports nothing that way.")
        self.answer({"account": account.pk, "hook": address}, address)


def _add_pairs(parser: CommandParser) -> None:
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="pairs", help=SET_HELP)
    parser.add_argument("--secret", action="append", default=[], metavar="KEY=VALUE", dest="secrets", help=SECRET_HELP)


def as_data(account: Account) -> dict[str, Any]:
    """Without credentials: nobody needs to read them."""
    return {
        "account": account.pk,
        "label": account.label,
        "channel": account.channel,
        "address": account.address,
        "owner": account.owner.get_username(),
        "status": account.status,
        "status_reason": account.status_reason,
        "timezone": account.timezone,
        "config": account.config,
    }
