"""`manage.py erase`: remove everything about an address from the database."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser
from django.utils import timezone

from accounts import access
from accounts.addresses import AddressError, guess_kind, normalise
from fanout.management.base import BadInput, CrierCommand, NotDone, add_actor_option, find_actor
from fanout.runs.erasing import erase


class Command(CrierCommand):
    help = (
        "Erase an address: recipients, names, fields, addresses of deliveries, events and texts that mention it. "
        "Counts stay. With --as only what belongs to that operator. This cannot be undone."
    )
    example = "erase ann@example.com --yes"

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("address")
        parser.add_argument("--yes", action="store_true", help="really erase; this cannot be undone")
        add_actor_option(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        raw = options["address"]
        try:
            address = normalise(guess_kind(raw), raw)
        except AddressError as problem:
            raise BadInput(str(problem)) from None
        if not options["yes"]:
            raise BadInput("This cannot be undone. To erase the address, add --yes.")
        try:
            answer = erase(address, find_actor(options["actor"]), timezone.now())
        except access.NotYours as refusal:
            raise NotDone(str(refusal)) from None
        if not answer.ok:
            raise NotDone(answer.text)
        self.answer({"text": answer.text}, answer.text)
