"""`manage.py import_recipients`: add recipients from a list of addresses."""

from __future__ import annotations

from typing import Any

import phonenumbers
from django.core.management.base import CommandParser
from django.utils import timezone

from accounts.addresses import CHOICES
from fanout.management.base import BadInput, CrierCommand, find_owner
from fanout.management.options import read_recipients, require_usable
from fanout.ops.list_changes import import_recipients
from reminders import imports


class Command(CrierCommand):
    help = (
        "Import recipients: one address per line, an Excel file (.xlsx), or CSV with the columns address, name, kind "
        "and tags (separated by semicolons). Every other column becomes a field for placeholders. A recipient that "
        "exists already, in any spelling, keeps its name and tags and gets the fields."
    )
    example = "import_recipients groups.csv --owner mei --tag choir"

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", help="path, or - for standard input")
        parser.add_argument("--owner", metavar="USERNAME", help="default: the only administrator")
        parser.add_argument("--kind", choices=list(CHOICES), help="default: guessed from each address")
        parser.add_argument("--region", help="country of phone numbers without country code, such as DE")
        parser.add_argument(
            "--tag", action="append", default=[], help="tag for all imported recipients; may be repeated"
        )
        parser.add_argument("--skip-invalid", action="store_true", help="skip unusable lines and import the rest")
        parser.add_argument("--dry-run", action="store_true", help="check the list without storing anything")

    def handle(self, *args: Any, **options: Any) -> None:
        owner, region = find_owner(options["owner"]), options["region"]
        if region and region.upper() not in phonenumbers.SUPPORTED_REGIONS:
            raise BadInput(f"{region!r} is not a country; write it like DE.")
        if any(len(tag) > imports.MOST_TAG for tag in options["tag"]):
            raise BadInput(f"A --tag has at most {imports.MOST_TAG} characters.")
        defaults = imports.Defaults(options["kind"], region and region.upper(), options["tag"])
        listed = read_recipients(options["file"], defaults)
        if not options["skip_invalid"]:
            require_usable(listed, options["file"])
        dry_run = options["dry_run"]
        added = 0 if dry_run else import_recipients(listed.entries, owner, None, timezone.now())
        self.report(listed, added, dry_run)

    def report(self, listed: imports.RecipientList, added: int, dry_run: bool) -> None:
        present = 0 if dry_run else len(listed.entries) - added
        data = {
            "read": len(listed.entries),
            "added": added,
            "known": present,
            "repeated": listed.repeated,
            "invalid": listed.problems,
            "dry_run": dry_run,
        }
        stored = "" if dry_run else f", {added} added, {present} already there"
        text = f"{len(listed.entries)} addresses read{stored}, {listed.repeated} repeated in the list."
        self.answer(data, text, *listed.problems)
