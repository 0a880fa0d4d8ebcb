"""`manage.py replies`: what people wrote back, and what was done about it."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser
from django.utils import timezone

from accounts import access
from fanout.inbound import reply_inbox
from fanout.inbound.reply_inbox import Reply, Wanted
from fanout.management.base import (
    BadInput,
    CrierCommand,
    NotDone,
    add_actor_option,
    find_account,
    find_actor,
    find_run,
    find_team,
    in_range,
    table,
)
from reminders.moments import moment

MOST = 1_000
HEADERS = ("reply", "when", "from", "to", "run", "handled", "text")
LINE = 80  # characters of a text in the table


class Command(CrierCommand):
    help = "List replies to our messages, newest first, or with --mark say what became of one."
    example = "replies --account 'Events line' --state all"

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("reply", nargs="?", type=int, help="with --mark: the reply's number")
        parser.add_argument(
            "--mark", choices=list(reply_inbox.CONTROLS), help="mark the reply, or opt its person out or convert them"
        )
        parser.add_argument("--state", choices=reply_inbox.STATES, default=reply_inbox.OPEN, help="[open]")
        parser.add_argument("--account", help="only replies to this account")
        parser.add_argument("--team", help="only replies to accounts of this team")
        parser.add_argument("--run", help="only replies to this run")
        parser.add_argument("--person", default="", help="only this address, or people with such a name")
        parser.add_argument("--before", type=int, metavar="REPLY", help="only replies older than this one")
        parser.add_argument("--limit", type=int, default=20)
        add_actor_option(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        actor = find_actor(options["actor"])
        if (options["mark"] is None) != (options["reply"] is None):
            raise BadInput("--mark needs the number of a reply, and a number needs --mark.")
        if options["mark"]:
            self.mark(options["reply"], options["mark"], actor)
        else:
            self.list(actor, options)

    def mark(self, pk: int, name: str, actor: Any) -> None:
        event = reply_inbox.find(None, pk)
        if event is None:
            raise BadInput(f"There is no reply {pk}.")
        try:
            result = reply_inbox.CONTROLS[name](event, actor, timezone.now())
        except access.NotYours as refusal:
            raise NotDone(str(refusal)) from None
        if not result.ok:
            raise NotDone(result.text)
        self.answer({"reply": pk, "text": result.text}, result.text)

    def list(self, actor: Any, options: dict[str, Any]) -> None:
        in_range("--limit", options["limit"], 1, MOST)
        wanted = Wanted(
            state=options["state"],
            account=find_account(options["account"]).pk if options["account"] else None,
            team=find_team(options["team"]).pk if options["team"] else None,
            run=find_run(options["run"]).pk if options["run"] else None,
            person=options["person"],
            before=options["before"],
        )
        found, earlier = reply_inbox.page(actor, wanted, timezone.now(), options["limit"])
        more = [f"There are more: --before {earlier}"] if earlier else []
        self.answer(
            {"replies": [facts(reply) for reply in found], "earlier": earlier},
            *table(HEADERS, (row(reply) for reply in found)),
            *more,
        )


def facts(reply: Reply) -> dict[str, Any]:
    event = reply.event
    return {
        "reply": event.pk,
        "at": event.happened_at.isoformat(),
        "address": event.address,
        "name": reply.person.name if reply.person else "",
        "account": event.account.label,
        "team": event.account.team.name if event.account.team else None,
        "run": reply.run.pk if reply.run else None,
        "title": reply.run.title if reply.run else "",
        "answers": reply.answered,
        "text": reply.text,
        "suppressed": reply.suppressed,
        "handled_at": event.handled_at.isoformat() if event.handled_at else None,
        "handled_by": event.handled_by,
    }


def row(reply: Reply) -> tuple[Any, ...]:
    event, line = reply.event, " ".join(reply.text.split())
    who = reply.person.name if reply.person and reply.person.name else event.address
    handled = (event.handled_by or "yes") if event.handled_at else "no"
    when = moment(event.happened_at, event.account.timezone)
    return event.pk, when, who, event.account.label, reply.run.pk if reply.run else None, handled, line[:LINE]
