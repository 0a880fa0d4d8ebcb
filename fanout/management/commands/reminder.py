"""`manage.py reminder add|list`: reminders from a script."""

from __future__ import annotations

import argparse
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from django.core.files import File
from django.core.management.base import CommandParser
from django.db import transaction
from django.db.models import Count
from django.utils import timezone

from accounts.actions import Action
from accounts.channels.registry import channel
from accounts.models import Account
from fanout.management import lists, lookup
from fanout.management.base import BadInput, CrierCommand, table
from fanout.management.options import date_and_time, timezone_name, window
from fanout.models.trail_entry import note
from reminders import media, senders, targets
from reminders.models import MediaFile, Reminder, ReminderMessage
from reminders.moments import moment


class Part(argparse.Action):
    """--text, --media and --caption in the order in which they were typed."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option: str | None = None) -> None:
        parts = [*(getattr(namespace, "parts", None) or []), (str(option).lstrip("-"), values)]
        namespace.parts = parts


class Command(CrierCommand):
    help = "Add and list reminders."
    example = (
        'reminder add --account "Events line" --title Market --text "Open at 8." --media poster.png '
        '--caption "See you!" --to groups.csv --window 6-18 --cron "0 8 * * 5"'
    )

    def arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="add|list")
        add = actions.add_parser("add", help="add a reminder and print its number")
        add.add_argument(
            "--account", required=True, action="append", dest="accounts", metavar="ACCOUNT",
            help="number or label of a sender; may be repeated: accounts with the same reach take turns",
        )  # fmt: skip
        add.add_argument("--title", help="default: the beginning of the text")
        add.add_argument("--subject", default="", help="subject line, for mail")
        add.add_argument(
            "--connect", action="store_true", help="send LinkedIn connection requests, with the text as their note"
        )
        add.add_argument("--text", action=Part, help="a text part; may be repeated")
        add.add_argument("--media", action=Part, metavar="FILE", help="a file part; may be repeated")
        add.add_argument("--caption", action=Part, help="caption of the preceding file")
        add.add_argument(
            "--to", required=True, metavar="FILE", help="file with addresses, in the format of import_recipients"
        )
        add.add_argument("--window", default="6-18", help="delivery window: opening and closing hour")
        add.add_argument("--tz", help="default: the account's timezone")
        when = add.add_mutually_exclusive_group()
        when.add_argument(
            "--at", help="fire once at this time in --tz, such as 2026-03-01T09:00; default: only by hand"
        )
        when.add_argument("--cron", help="fire repeatedly: five cron fields, in --tz")
        add.add_argument(
            "--even-if-late", action="store_true",
            help="add it even if it only fires after the window has closed, when nothing is sent",
        )  # fmt: skip
        add.add_argument("--auto-resume", action="store_true", help="resume by itself when the window next opens")
        add.add_argument("--disabled", action="store_true", help="do not fire until it is enabled")
        actions.add_parser("list", help="list all reminders")
        for action in actions.choices.values():
            action.add_argument("--json", action="store_true", default=argparse.SUPPRESS)

    def handle(self, *args: Any, **options: Any) -> None:
        {"add": self.add, "list": self.list}[options["action"]](options)

    def add(self, options: dict[str, Any]) -> None:
        parts = read_parts(options.get("parts") or [])
        accounts = [lookup.account(name) for name in options["accounts"]]
        reminder = read_reminder(options, parts, accounts[0])
        listed = lists.read(options["to"])
        lists.require_usable(listed, options["to"])
        if problem := targets.unreachable_error(accounts, listed.entries):
            raise BadInput(problem)
        if problem := senders.problem(reminder.owner, accounts, (), reminder.subject):
            raise BadInput(problem)
        with transaction.atomic():
            reminder.full_clean()
            reminder.save()
            reminder.set_further_senders(accounts)
            add_parts(reminder, parts)
            count = targets.add_listed(reminder, reminder.owner, listed.entries)
            note("added", reminder, None, timezone.now())
        data = {"reminder": reminder.pk, "title": reminder.title, "targets": count, "parts": len(parts)}
        self.answer(data | {"next_fire_at": reminder.next_fire_at}, str(reminder.pk))

    def list(self, options: dict[str, Any]) -> None:
        reminders = Reminder.objects.select_related("account").prefetch_related("further_senders__account")
        reminders = reminders.annotate(n=Count("targets"))
        rows = [as_data(reminder, reminder.n) for reminder in reminders]
        names = ("reminder", "title", "account", "targets", "window", "next")
        self.answer({"reminders": rows}, *table(names, [[row[name] for name in names] for row in rows]))


def as_data(reminder: Reminder, targets: int) -> dict[str, Any]:
    at = reminder.next_fire_at
    return {
        "reminder": reminder.pk,
        "title": reminder.title,
        "account": ", ".join(
            [reminder.account.label, *(sender.account.label for sender in reminder.further_senders.all())]
        ),
        "targets": targets,
        "window": f"{reminder.delivery_window_start_hour}-{reminder.delivery_window_end_hour}",
        "timezone": reminder.timezone,
        "cron": reminder.cron,
        "enabled": reminder.enabled,
        "next": moment(at, reminder.timezone) if at else None,
    }


# --- reading ----------------------------------------------------------------------------------------------


def read_parts(typed: list[tuple[str, str]]) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    for word, value in typed:
        if word == "caption":
            if not parts or parts[-1]["kind"] == "text":
                raise BadInput("--caption needs a --media before it.")
            parts[-1]["text"] = value
        elif word == "media":
            parts.append(read_file(value))
        else:
            parts.append({"kind": "text", "text": value})
    if not parts:
        raise BadInput("Give at least one --text or --media.")
    return parts


def read_file(raw: str) -> dict[str, Any]:
    path = Path(raw)
    if not path.is_file():
        raise BadInput(f"{raw} is not a file.")
    kind = media.kind_of(path.name)
    with path.open("rb") as opened:
        media.check(kind, File(opened, path.name))
    return {"kind": kind, "text": "", "path": path}


def action_of(account: Account, connect: bool) -> str:
    described = channel(account.channel)
    if connect and Action.CONNECTION_REQUEST not in described.actions:
        raise BadInput(f"--connect: {account} ({described.label}) sends no connection requests.")
    return Action.CONNECTION_REQUEST if connect else described.action


def read_reminder(options: dict[str, Any], parts: list[dict[str, Any]], account: Account) -> Reminder:
    start, end = window(options["window"])
    zone = timezone_name(options["tz"] or account.timezone)
    reminder = Reminder(
        owner=account.owner,
        team=account.team,
        account=account,
        title=options["title"] or parts[0]["text"][:60] or "Reminder",
        subject=options["subject"],
        # The caps count mail and messages apart.
        action=action_of(account, options["connect"]),
        timezone=zone,
        schedule="cron" if options["cron"] else "once",
        cron=options["cron"] or "",
        fire_at=_moment(options["at"], zone) if options["at"] else None,
        delivery_window_start_hour=start,
        delivery_window_end_hour=end,
        auto_resume=options["auto_resume"],
        enabled=not options["disabled"],
    )
    reminder.clean()
    now = timezone.now()
    if not options["even_if_late"] and (problem := reminder.late_error(now)):
        raise BadInput(f"{problem} To add it all the same, use --even-if-late.")
    reminder.plan_next(after=now)
    return reminder


def _moment(raw: str, zone: str) -> datetime:
    moment = date_and_time(raw, "a date and time such as 2026-03-01T09:00")
    moment = moment if moment.tzinfo else moment.replace(tzinfo=ZoneInfo(zone))
    if moment <= timezone.now():
        raise BadInput(f"{raw} is in the past: omit --at and use `manage.py fire`.")
    return moment


# --- storing ----------------------------------------------------------------------------------------------


def add_parts(reminder: Reminder, parts: list[dict[str, Any]]) -> None:
    for position, part in enumerate(parts):
        file = add_media(reminder, part["path"]) if "path" in part else None
        message = ReminderMessage(
            reminder=reminder, position=position, kind=part["kind"], text=part["text"], media=file
        )
        message.full_clean()
        message.save()


def add_media(reminder: Reminder, path: Path) -> MediaFile:
    with path.open("rb") as opened:
        return media.keep(File(opened, path.name), reminder.owner, reminder.team)
