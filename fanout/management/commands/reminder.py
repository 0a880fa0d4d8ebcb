"""`manage.py reminder add|list|preview|templates`: reminders from a script."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from django.core.management.base import CommandParser
from django.db.models import Count
from django.utils import timezone

from accounts.addresses import NEW_CHAT_KINDS
from accounts.inputs import as_id
from accounts.models import Account
from fanout.management.base import BadInput, CrierCommand, find_account, find_reminder, find_segment, table
from fanout.management.options import parse_date_and_time, parse_timezone, parse_window, read_recipients, require_usable
from fanout.ops import reminder_changes
from fanout.ops.reminder_changes import NewPart, NewReminder, NewStep
from fanout.plans.audience import audience
from fanout.runs.freezing import written_part
from reminders import imports, readiness, schedule, wording
from reminders.models import Reminder
from reminders.moments import moment
from reminders.part_templates import NOT_NEEDED, Choice, stored_parts
from reminders.placeholders import ALWAYS, values_of
from reminders.readiness import action_through, connect_problem, inmail_problem

REPLY, THEN = "reply-", "then-"


class Part(argparse.Action):
    """Collects --text, --media and what belongs to them in the order typed; those of Message 2 separately."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option: str | None = None) -> None:
        word = str(option).lstrip("-")
        prefix = next((one for one in (REPLY, THEN) if word.startswith(one)), "")
        name = {REPLY: "reply_parts", THEN: "then_parts"}.get(prefix, "parts")
        setattr(namespace, name, [*(getattr(namespace, name, None) or []), (word.removeprefix(prefix), values)])


class Command(CrierCommand):
    help = "Add and list reminders, show how one reads, and which message templates its parts can have."
    example = (
        'reminder add --account "Events line" --title Market --text "Open at 8." --media poster.png '
        '--caption "See you!" --to groups.csv --window 6-18 --cron "0 8 * * 5"'
    )

    def arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="add|list|preview|templates")
        add = actions.add_parser("add", help="add a reminder and print its number")
        add.add_argument(
            "--account",
            required=True,
            action="append",
            dest="accounts",
            metavar="ACCOUNT",
            help="number or label of a sender; may be repeated: accounts with the same reach take turns",
        )
        add.add_argument("--title", help="default: the beginning of the text")
        add.add_argument("--subject", default="", help="subject line, for mail")
        add.add_argument(
            "--connect", action="store_true", help="send LinkedIn connection requests, with the text as their note"
        )
        add.add_argument("--inmail", action="store_true", help="send LinkedIn InMail, which costs a credit each")
        add.add_argument("--text", action=Part, help="a text part; may be repeated")
        add.add_argument("--media", action=Part, metavar="FILE", help="a file part; may be repeated")
        add.add_argument("--caption", action=Part, help="caption of the preceding file")
        add.add_argument(
            "--template",
            action=Part,
            metavar="NAME[:LANGUAGE]",
            help="message template of the preceding part, for people who have not written within 24 hours; `reminder "
            "templates` lists them",
        )
        add.add_argument(
            "--value",
            action=Part,
            metavar="VARIABLE=TEXT",
            help="value of a variable of the preceding template, such as 1=Doors or who={first_name}; may be repeated",
        )
        add.add_argument(
            "--reply-text", action=Part, help="Message 2, sent to people who reply within 24 hours: a text part"
        )
        add.add_argument("--reply-media", action=Part, metavar="FILE", help="Message 2: a file part")
        add.add_argument("--reply-caption", action=Part, help="Message 2: caption of the preceding file")
        add.add_argument(
            "--then-after",
            action=Part,
            metavar="DAYS",
            help="a follow-up so many days later, to those who have not replied; at most three",
        )
        add.add_argument("--then-text", action=Part, help="a text part of the preceding --then-after")
        add.add_argument("--then-media", action=Part, metavar="FILE", help="a file part of the preceding --then-after")
        add.add_argument("--then-caption", action=Part, help="caption of the preceding --then-media")
        add.add_argument("--to", metavar="FILE", help="file with addresses, in the format of import_recipients")
        add.add_argument(
            "--segment", metavar="SEGMENT", help="number or name: everyone who is in it whenever the reminder fires"
        )
        add.add_argument("--window", default="6-18", help="delivery window: opening and closing hour")
        add.add_argument("--tz", help="default: the account's timezone")
        when = add.add_mutually_exclusive_group()
        when.add_argument(
            "--at",
            help="fire once at this time in --tz, such as 2026-03-01T09:00; with neither --at nor --cron the reminder "
            "is off and fires only by hand",
        )
        when.add_argument("--cron", help="fire repeatedly: five cron fields, in --tz")
        add.add_argument(
            "--even-if-late",
            action="store_true",
            help="add it even if it only fires after the window has closed, when nothing is sent",
        )
        add.add_argument("--auto-resume", action="store_true", help="resume by itself when the window next opens")
        add.add_argument(
            "--resume-after-limit",
            action="store_true",
            help="resume by itself when the account may send again after its daily cap or its hours",
        )
        add.add_argument(
            "--follow-up",
            action="store_true",
            help="a follow-up: stops by itself at people who do not reply, and at a long queue",
        )
        add.add_argument(
            "--urgency",
            choices=Reminder.Urgency.values,
            help="of a follow-up; only high is added to a long queue (default: medium)",
        )
        add.add_argument("--off", "--disabled", action="store_true", dest="disabled", help="do not switch it on yet")
        actions.add_parser("list", help="list all reminders")
        preview = actions.add_parser("preview", help="show how a reminder reads for its first recipients")
        preview.add_argument("reminder", help="number or title")
        listed = actions.add_parser("templates", help="list the message templates that a reminder's parts can have")
        listed.add_argument("--account", required=True, action="append", dest="accounts", metavar="ACCOUNT")
        for action in actions.choices.values():
            action.add_argument("--json", action="store_true", default=argparse.SUPPRESS)

    def handle(self, *args: Any, **options: Any) -> None:
        actions = {"add": self.add, "list": self.list, "preview": self.preview, "templates": self.templates}
        actions[options["action"]](options)

    def add(self, options: dict[str, Any]) -> None:
        accounts = [find_account(name) for name in options["accounts"]]
        parts = read_parts(options.get("parts") or [])
        if not parts:
            raise BadInput("Give at least one --text or --media.")
        if not options["to"] and not options["segment"]:
            raise BadInput("Say to whom: --to with a file, --segment, or both.")
        listed = imports.RecipientList()
        if options["to"]:
            listed = read_recipients(options["to"])
            require_usable(listed, options["to"])
        new = NewReminder(
            read_reminder(options, parts, accounts[0]),
            accounts,
            parts,
            read_parts(options.get("reply_parts") or [], REPLY),
            read_steps(options.get("then_parts") or []),
            listed=listed.entries,
            even_if_late=options["even_if_late"],
        )
        try:
            reminder_changes.add_reminder(new, None, timezone.now())
        except reminder_changes.Late as problem:
            raise BadInput(f"{' '.join(problem.messages)} To add it all the same, use --even-if-late.") from None
        self._added(new)

    def _added(self, new: NewReminder) -> None:
        """Print the reminder's number, and a warning where something will not arrive."""
        reminder = new.reminder
        unreached = [fate["problem"] for fate in fates(reminder, Choice(new.senders)) if fate["problem"]]
        data: dict[str, Any] = {
            "reminder": reminder.pk,
            "title": reminder.title,
            "targets": reminder.targets.count(),
            "parts": len(new.parts),
            "reply_parts": len(new.reply_parts),
            "segment": reminder.segment.name if reminder.segment else None,
            "follow_up_days": reminder.follow_up_days,
            "templates": [part.template for part in stored_parts(reminder)],
        }
        if warning := " ".join(filter(None, [readiness.replies_not_received(reminder), *unreached])):
            data["warning"] = warning
            self.stderr.write(warning)
        self.answer(data | {"next_fire_at": reminder.next_fire_at}, str(reminder.pk))

    def preview(self, options: dict[str, Any]) -> None:
        """Show the parts as they will be sent to some recipients, or once if all get the same."""
        reminder = find_reminder(options["reminder"])
        parts = [written_part(reminder, part) for part in reminder.messages.select_related("media")]
        people = wording.Audience(audience(reminder, timezone.now()))
        problem = wording.reminder_problem(reminder, people)
        shown = wording.preview(parts, people.some())
        outside = fates(reminder, Choice(reminder.senders))
        data = {"reminder": reminder.pk, "problem": problem, "examples": shown, "without_a_recent_message": outside}
        lines = [line for example in shown for line in as_lines(example)]
        self.answer(data, *filter(None, [problem]), *lines, *(line for fate in outside for line in fate_lines(fate)))

    def templates(self, options: dict[str, Any]) -> None:
        """List the templates that all of these accounts have, with their variables."""
        choice = Choice([find_account(name) for name in options["accounts"]])
        if not choice.needed:
            raise BadInput(NOT_NEEDED)
        rows = choice.described()
        shown = [[row["template"], " ".join(row["variables"]), row["file"], one_line(row["text"])] for row in rows]
        lines = table(("template", "variables", "file", "text"), shown) if rows else [choice.note()]
        self.answer({"templates": rows, "note": choice.note()}, *lines)

    def list(self, options: dict[str, Any]) -> None:
        reminders = Reminder.objects.select_related("account", "owner", "segment")
        reminders = reminders.prefetch_related("further_senders")
        # Explicit: a query with counts ignores the order of the model.
        reminders = reminders.annotate(n=Count("targets")).order_by("-pk")
        rows = [as_data(reminder, reminder.n) for reminder in reminders]
        names = ("reminder", "title", "account", "targets", "segment", "window", "next", "problem")
        self.answer({"reminders": rows}, *table(names, [[row[name] for name in names] for row in rows]))


def as_lines(example: dict[str, Any]) -> Iterator[str]:
    yield f"To {example['to']}:"
    for part in example["parts"]:
        yield from (f"  {line}" for name in ("subject", "text") for line in part.get(name, "").splitlines())


def one_line(text: str) -> str:
    return " ".join(text.split())


def fates(reminder: Reminder, choice: Choice) -> list[dict[str, str]]:
    """Return what becomes of each part for people who have not written for a day; nothing where that does not
    matter."""
    recipients = audience(reminder, timezone.now())
    person = next(iter(wording.Audience(recipients).some()), None)
    people = recipients.filter(kind__in=NEW_CHAT_KINDS)
    if not choice.needed or person is None or not people.exists():
        return []
    values = values_of(person, [*ALWAYS, *person.fields])
    return [choice.fate(part, values) for part in stored_parts(reminder)]


def fate_lines(fate: dict[str, str]) -> Iterator[str]:
    what = fate["problem"] or fate["way"]
    yield f"{fate['where'].capitalize()}, to people who have not written within 24 hours: {what}"
    yield from (f"  {line}" for line in fate["text"].splitlines() if not fate["problem"])
    yield from filter(None, [fate["note"]])


def as_data(reminder: Reminder, targets: int) -> dict[str, Any]:
    at = reminder.next_fire_at
    return {
        "reminder": reminder.pk,
        "title": reminder.title,
        "account": ", ".join(account.label for account in reminder.senders),
        "targets": targets,
        "segment": reminder.segment.name if reminder.segment else None,
        "window": f"{reminder.delivery_window_start_hour}-{reminder.delivery_window_end_hour}",
        "timezone": reminder.timezone,
        "cron": reminder.cron,
        "enabled": reminder.enabled,
        "follow_up": reminder.urgency if reminder.follow_up else None,
        "next": moment(at, reminder.timezone) if at else None,
        "problem": reminder.firing_problem,
    }


# --- reading ----------------------------------------------------------------------------------------------


def read_parts(typed: list[tuple[str, str]], prefix: str = "") -> list[NewPart]:
    parts: list[NewPart] = []
    for word, value in typed:
        if word == "caption":
            if not parts or parts[-1].path is None:
                raise BadInput(f"--{prefix}caption needs a --{prefix}media before it.")
            parts[-1] = replace(parts[-1], text=value)
        elif word == "template":
            if not parts:
                raise BadInput("--template needs a --text or --media before it.")
            parts[-1] = replace(parts[-1], named=value, values={})
        elif word == "value":
            if not parts or not parts[-1].named:
                raise BadInput("--value needs a --template before it.")
            name, is_given, text = value.partition("=")
            if not is_given:
                raise BadInput(f"--value {value}: write VARIABLE=TEXT.")
            parts[-1] = replace(parts[-1], values={**parts[-1].values, name: text})
        elif word == "media":
            if not Path(value).is_file():
                raise BadInput(f"{value} is not a file.")
            parts.append(NewPart(path=Path(value)))
        else:
            parts.append(NewPart(value))
    return parts


def read_steps(typed: list[tuple[str, str]]) -> list[NewStep]:
    """Return the follow-ups in the order typed: --then-after begins one, and its parts come behind."""
    steps: list[tuple[int, list[tuple[str, str]]]] = []
    for word, value in typed:
        if word == "after":
            days = as_id(value)
            if days is None:
                raise BadInput(f"--then-after takes a number of days, not {value!r}.")
            steps.append((days, []))
        elif not steps:
            raise BadInput(f"--then-{word} needs a --then-after before it.")
        else:
            steps[-1][1].append((word, value))
    return [NewStep(days, read_parts(parts, THEN)) for days, parts in steps]


def read_action(account: Account, connects: bool, inmail: bool, parts: int) -> str:
    if connects and inmail:
        raise BadInput("Choose --connect or --inmail, not both.")
    if connects and (problem := connect_problem(account)):
        raise BadInput(f"--connect: {problem}")
    if inmail and (problem := inmail_problem(account, parts)):
        raise BadInput(f"--inmail: {problem}")
    return action_through(account, connects, before="", inmail=inmail)


def read_reminder(options: dict[str, Any], parts: Sequence[NewPart], account: Account) -> Reminder:
    if options["urgency"] and not options["follow_up"]:
        raise BadInput("--urgency is for follow-ups: add --follow-up, or omit --urgency.")
    start, end = parse_window(options["window"])
    zone = parse_timezone(options["tz"] or account.timezone)
    return Reminder(
        owner=account.owner,
        team=account.team,
        account=account,
        title=options["title"] or parts[0].text[:60] or "Reminder",
        subject=options["subject"],
        # Caps count mails and messages separately.
        action=read_action(account, options["connect"], options["inmail"], len(parts)),
        timezone=zone,
        schedule="cron" if options["cron"] else "once",
        cron=options["cron"] or "",
        fire_at=_moment(options["at"], zone) if options["at"] else None,
        delivery_window_start_hour=start,
        delivery_window_end_hour=end,
        auto_resume=options["auto_resume"],
        resume_after_limit=options["resume_after_limit"],
        follow_up=options["follow_up"],
        urgency=options["urgency"] or Reminder.Urgency.MEDIUM,
        segment=find_segment(options["segment"]) if options["segment"] else None,
        enabled=not options["disabled"],
    )


def _moment(raw: str, zone: str) -> datetime:
    moment = parse_date_and_time(raw, "a date and time such as 2026-03-01T09:00")
    moment = moment if moment.tzinfo else moment.replace(tzinfo=ZoneInfo(zone))
    if problem := schedule.passed_error(moment, timezone.now()):
        raise BadInput(f"{raw}: {problem} Give a later one, or omit --at and use `manage.py fire`.")
    return moment
