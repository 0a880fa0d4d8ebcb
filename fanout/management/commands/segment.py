"""`manage.py segment add|list|show|delete`: saved groups of recipients by conditions."""

from __future__ import annotations

import argparse
from typing import Any

from django.core.management.base import CommandParser
from django.utils import timezone

from fanout.management.base import (
    BadInput,
    CrierCommand,
    NotDone,
    find_owner,
    find_reminder,
    find_segment,
    table,
)
from fanout.ops import list_changes
from fanout.plans.audience import examples, segment_members
from reminders.models import Segment
from reminders.segments import read_conditions

MOST_LISTED = 10_000


class Command(CrierCommand):
    help = "Add, list, show and delete segments: recipients by conditions, evaluated whenever a reminder fires."
    example = 'segment add "Penang, quiet" --tag choir --field "city = Penang" --not-contacted-days 30'

    def arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="add|list|show|delete")
        add = actions.add_parser("add", help="add a segment and print its number")
        add.add_argument("name")
        add.add_argument("--owner", metavar="USERNAME", help="default: the only administrator")
        add.add_argument("--tag", action="append", default=[], dest="tags", help="with this tag; may be repeated")
        add.add_argument("--every-tag", action="store_true", help="with all of these tags, not only one of them")
        add.add_argument("--without-tag", action="append", default=[], dest="without_tags", metavar="TAG")
        add.add_argument(
            "--field", action="append", default=[], dest="fields", metavar="NAME=VALUE", help="or NAME!=VALUE"
        )
        add.add_argument("--not-replied-to", metavar="REMINDER", help="got this reminder and has not written since")
        add.add_argument("--not-contacted-days", type=int, metavar="DAYS", help="got nothing for so many days")
        actions.add_parser("list", help="list all segments, with how many are in each now")
        for name, words in (("show", "who is in it now"), ("delete", "delete a segment that no reminder has")):
            action = actions.add_parser(name, help=words)
            action.add_argument("segment", help="number or name")
        for action in actions.choices.values():
            action.add_argument("--json", action="store_true", default=argparse.SUPPRESS)

    def handle(self, *args: Any, **options: Any) -> None:
        actions = {"add": self.add, "list": self.list, "show": self.show, "delete": self.delete}
        actions[options["action"]](options)

    def add(self, options: dict[str, Any]) -> None:
        owner = find_owner(options["owner"])
        reminder = find_reminder(options["not_replied_to"]) if options["not_replied_to"] else None
        try:
            conditions = read_conditions("\n".join(options["fields"]))
        except ValueError as problem:
            raise BadInput(f"--field: {problem}") from None
        segment = Segment(
            owner=owner,
            name=options["name"].strip(),
            tags=list(dict.fromkeys(options["tags"])),
            every_tag=options["every_tag"],
            without_tags=list(dict.fromkeys(options["without_tags"])),
            fields=[list(condition) for condition in conditions],
            not_replied_to=reminder,
            not_contacted_days=options["not_contacted_days"],
        )
        list_changes.add_segment(segment, None, timezone.now())
        self.answer(as_data(segment), str(segment.pk))

    def list(self, options: dict[str, Any]) -> None:
        segments = Segment.objects.select_related("owner", "not_replied_to").order_by("name", "pk")
        rows = [as_data(segment) for segment in segments]
        names = ("segment", "name", "owner", "members", "conditions")
        self.answer({"segments": rows}, *table(names, [[row[name] for name in names] for row in rows]))

    def show(self, options: dict[str, Any]) -> None:
        segment = find_segment(options["segment"])
        members = segment_members(segment, segment.owner, timezone.now()).order_by("pk")
        rows = [{"recipient": one.pk, "name": one.name, "address": one.address} for one in members[:MOST_LISTED]]
        data = as_data(segment) | {"recipients": rows}
        lines = table(("recipient", "name", "address"), [list(row.values()) for row in rows])
        self.answer(data, f"{segment.words}: {data['members']:,} now", *lines)

    def delete(self, options: dict[str, Any]) -> None:
        segment = find_segment(options["segment"])
        answer = list_changes.delete_segment(segment, None, timezone.now())
        if not answer.ok:
            raise NotDone(answer.text)
        self.answer({"deleted": options["segment"]}, answer.text)


def as_data(segment: Segment) -> dict[str, Any]:
    members = segment_members(segment, segment.owner, timezone.now())
    return {
        "segment": segment.pk,
        "name": segment.name,
        "owner": segment.owner.get_username(),
        "conditions": segment.words,
        "members": members.order_by().count(),
        "examples": examples(members, segment.owner),
    }
