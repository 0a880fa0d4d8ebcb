"""`manage.py lost_commits`: show what may have gone out before a fail-over or a restore, and confirm it."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser
from django.utils import timezone

from fanout.management.base import BadInput, CrierCommand, NotDone, table
from fanout.models import LostClaim
from fanout.runs import recovery
from reminders.moments import moment

MOST = 1_000


class Command(CrierCommand):
    help = (
        "Show whether the database server lacks commits since a fail-over or a restore, and which messages may have "
        "gone out without its knowledge. Nothing is sent until it is confirmed."
    )
    example = "lost_commits --confirm"

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--confirm", action="store_true", help="go on sending; the messages stay unconfirmed")
        parser.add_argument(
            "--send-again", action="store_true", help="with --confirm: send those once more that are unconfirmed"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if options["send_again"] and not options["confirm"]:
            raise BadInput("--send-again needs --confirm.")
        now = timezone.now()
        if options["confirm"]:
            result = recovery.confirm(None, now, options["send_again"])
            if not result.ok:
                raise NotDone(result.text)
            self.answer({"confirmed": True, "text": result.text}, result.text)
            return
        known, claims = recovery.in_the_way(), recovery.lost_claims()
        shown = list(claims[:MOST])
        words = recovery.in_words(known) if known else "The database server is complete, as far as Crier knows."
        names = ("message to", "part", "account", "machine", "claimed", "answer", "")
        self.answer(
            {"held": bool(known and known.held), "text": words, "messages": [as_data(claim) for claim in shown]},
            words,
            *(table(names, [row(claim) for claim in shown]) if shown else []),
        )


def as_data(claim: LostClaim) -> dict[str, Any]:
    return {
        "address": claim.address,
        "part": claim.part,
        "account": claim.account_id,
        "run": claim.run_id,
        "target": claim.target_id,
        "machine": claim.host,
        "claimed_at": claim.claimed_at.isoformat(),
        "answer": claim.answer,
        "run_is_lost": not claim.target_found,
    }


def row(claim: LostClaim) -> tuple[Any, ...]:
    lost = "" if claim.target_found else "its run is lost"
    at = moment(claim.claimed_at, claim.account.timezone)
    return claim.address, claim.part + 1, claim.account.label, claim.host, at, claim.answer or "unknown", lost
