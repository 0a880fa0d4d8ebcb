"""`manage.py sync_groups`: store the groups of an account as recipients."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser
from django.utils import timezone

from accounts.models import Account
from fanout.management.base import CrierCommand, NotDone, find_account
from fanout.runs.controls import ControlResult, synchronise_contacts, synchronise_groups


class Command(CrierCommand):
    help = (
        "Ask an account's provider for its groups and keep them as recipients, with their names and sizes. Groups that "
        "are no longer there are marked and not deleted."
    )
    example = "sync_groups Office"

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("account", help="number or label")
        parser.add_argument("--contacts", action="store_true", help="also add the people of the account's address book")

    def handle(self, *args: Any, **options: Any) -> None:
        account = find_account(options["account"])
        answer = synchronise_groups(account, None, timezone.now())
        if not answer.ok:
            raise NotDone(answer.text)
        if options["contacts"]:
            answer = self.add_contacts(account, answer)
        present = account.memberships.filter(gone_at=None).count()
        gone = account.memberships.exclude(gone_at=None).count()
        self.answer({"account": account.pk, "groups": present, "gone": gone, "detail": answer.text}, answer.text)

    def add_contacts(self, account: Account, groups: ControlResult) -> ControlResult:
        contacts = synchronise_contacts(account, None, timezone.now())
        if not contacts.ok:
            raise NotDone(f"{groups.text} {contacts.text}")
        return ControlResult(True, f"{groups.text} {contacts.text}")
