"""`manage.py reminder add|list|preview|templates`: reminders from a script."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from django.core.files import File
from django.core.management.base import CommandParser
from django.db import transaction
from django.db.models import Count
from django.utils import timezone

from accounts import access
from accounts.addresses import NEW_CHAT_KINDS
from accounts.channels import templates
from accounts.channels.base import Channel
from accounts.channels.registry import channel
from accounts.channels.templates import Template
from accounts.inputs import as_id
from accounts.models import Account
from fanout.management.base import BadInput, CrierCommand, find_account, find_reminder, find_segment, table
from fanout.management.options import parse_date_and_time, parse_timezone, parse_window, read_recipients, require_usable
from fanout.models.trail import note
from fanout.plans.audience import audience
from fanout.runs.freezing import written_part
from reminders import imports, media, readiness, schedule, targets, wording
from reminders.models import FollowUpPart, MediaFile, Reminder, ReminderMessage, ReplyPart
from reminders.moments import moment
from reminders.part_templates import Choice, WrittenPart, key_of, stored_key, stored_parts
from reminders.placeholders import ALWAYS, values_of
from reminders.readiness import action_through, connect_problem, inmail_problem, senders_problem

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
        channels = [channel(account.channel) for account in accounts]
        parts = read_parts(options.get("parts") or [], channels)
        if not parts:
            raise BadInput("Give at least one --text or --media.")
        reply_parts = read_parts(options.get("reply_parts") or [], channels, REPLY)
        steps = read_steps(options.get("then_parts") or [], channels)
        check_captions([*parts, *reply_parts, *(part for _, step in steps for part in step)], channels)
        choice = Choice(accounts)
        choose_templates(parts, choice)
        if not options["to"] and not options["segment"]:
            raise BadInput("Say to whom: --to with a file, --segment, or both.")
        listed = imports.RecipientList()
        if options["to"]:
            listed = read_recipients(options["to"])
            require_usable(listed, options["to"])
        segment = find_segment(options["segment"]) if options["segment"] else None
        reminder = read_reminder(options, parts, len(listed.entries) + bool(segment), accounts[0])
        reminder.segment = segment
        reminder.follow_up_days = [days for days, _ in steps]
        if segment and not access.may_see(reminder.owner, segment):
            raise BadInput(f"--segment: {reminder.owner} may not use {segment}: it belongs to another operator.")
        if problem := targets.unreachable_error(accounts, listed.entries):
            raise BadInput(problem)
        if problem := senders_problem(reminder.owner, accounts, (), reminder.subject):
            raise BadInput(problem)
        with transaction.atomic():
            reminder.full_clean()
            reminder.save()
            reminder.set_further_senders(accounts)
            add_parts(reminder, parts, ReminderMessage)
            add_parts(reminder, reply_parts, ReplyPart)
            add_follow_ups(reminder, steps)
            count = targets.add_listed(reminder, reminder.owner, listed.entries)
            if problem := wording.reminder_problem(reminder, wording.Audience(audience(reminder, timezone.now()))):
                raise BadInput(problem)
            note("added", reminder, None, timezone.now())
        unreached = [fate["problem"] for fate in fates(reminder, choice) if fate["problem"]]
        data = {"reminder": reminder.pk, "title": reminder.title, "targets": count, "parts": len(parts)}
        data["reply_parts"] = len(reply_parts)
        data["segment"] = segment.name if segment else None
        data["follow_up_days"] = reminder.follow_up_days
        data["templates"] = [stored_key(part.get("template")) for part in parts]
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
            raise BadInput("These accounts send without templates.")
        rows: list[dict[str, Any]] = [
            {
                "template": key_of(template),
                "variables": [variable.key for variable in template.variables()],
                "file": template.file,
                "text": templates.preview(template, {}),
            }
            for template in choice.usable()
        ]
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


def read_parts(typed: list[tuple[str, str]], channels: Sequence[Channel], prefix: str = "") -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    for word, value in typed:
        if word == "caption":
            if not parts or parts[-1]["kind"] == "text":
                raise BadInput(f"--{prefix}caption needs a --{prefix}media before it.")
            parts[-1]["text"] = value
        elif word == "template":
            if not parts:
                raise BadInput("--template needs a --text or --media before it.")
            parts[-1]["template_key"], parts[-1]["values"] = value, []
        elif word == "value":
            if not parts or "values" not in parts[-1]:
                raise BadInput("--value needs a --template before it.")
            parts[-1]["values"].append(value)
        elif word == "media":
            parts.append(read_file(value, channels))
        else:
            parts.append({"kind": "text", "text": value})
    return parts


Steps = list[tuple[int, list[dict[str, Any]]]]  # the days of each follow-up, and its parts


def read_steps(typed: list[tuple[str, str]], channels: Sequence[Channel]) -> Steps:
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
    read = [(days, read_parts(parts, channels, THEN)) for days, parts in steps]
    with_parts = {number for number, (_, parts) in enumerate(read, start=1) if parts}
    if problem := readiness.follow_ups_problem([days for days, _ in read], with_parts):
        raise BadInput(problem)
    return read


def choose_templates(parts: list[dict[str, Any]], choice: Choice) -> None:
    """Replace each part's typed template by the one that is stored; raises BadInput for what would be refused."""
    for number, part in enumerate(parts, 1):
        if "template_key" not in part:
            continue
        if not choice.needed:
            raise BadInput("--template: these accounts send without templates.")
        template = find_template(part.pop("template_key"), choice)
        values = dict(read_value(typed, template) for typed in part.pop("values"))
        written = WrittenPart(f"part {number}", part["kind"], part["text"], key_of(template), values)
        if problems := choice.problems(written):
            raise BadInput(f"--template {key_of(template)}: {' '.join(problems)}")
        part["template"] = choice.as_part(written)


def find_template(typed: str, choice: Choice) -> Template:
    usable = choice.usable()
    found = [template for template in usable if typed in (key_of(template), template.name)]
    if len(found) == 1:
        return found[0]
    names = ", ".join(key_of(template) for template in found or usable)
    raise BadInput(f"--template {typed}: choose one of {names}." if names else f"--template {typed}: {choice.note()}")


def read_value(typed: str, template: Template) -> tuple[str, str]:
    """Return the key of a variable and its value. In the body a variable's name is enough."""
    name, is_given, value = typed.partition("=")
    keys = [variable.key for variable in template.variables()]
    key = next((key for key in (name, f"body.{name}") if key in keys), None)
    if not is_given or key is None:
        known = ", ".join(keys) or "none"
        raise BadInput(f"--value {typed}: write VARIABLE=TEXT; the variables of {key_of(template)} are {known}.")
    return key, value


def read_file(raw: str, channels: Sequence[Channel]) -> dict[str, Any]:
    path = Path(raw)
    if not path.is_file():
        raise BadInput(f"{raw} is not a file.")
    kind = media.kind_of(path.name)
    with path.open("rb") as opened:
        media.check(kind, File(opened, path.name), channels)
    return {"kind": kind, "text": "", "path": path}


def check_captions(parts: list[dict[str, Any]], channels: Sequence[Channel]) -> None:
    for part in parts:
        if problem := media.caption_problem(part["kind"], part["text"], channels):
            raise BadInput(problem)


def read_action(account: Account, connects: bool, inmail: bool, parts: int) -> str:
    if connects and inmail:
        raise BadInput("Choose --connect or --inmail, not both.")
    if connects and (problem := connect_problem(account)):
        raise BadInput(f"--connect: {problem}")
    if inmail and (problem := inmail_problem(account, parts)):
        raise BadInput(f"--inmail: {problem}")
    return action_through(account, connects, before="", inmail=inmail)


def read_reminder(options: dict[str, Any], parts: list[dict[str, Any]], people: int, account: Account) -> Reminder:
    if options["urgency"] and not options["follow_up"]:
        raise BadInput("--urgency is for follow-ups: add --follow-up, or omit --urgency.")
    start, end = parse_window(options["window"])
    zone = parse_timezone(options["tz"] or account.timezone)
    reminder = Reminder(
        owner=account.owner,
        team=account.team,
        account=account,
        title=options["title"] or parts[0]["text"][:60] or "Reminder",
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
    )
    # Fired by hand only: it is off, as in the admin.
    reminder.enabled = not options["disabled"] and not readiness.missing(len(parts), people, reminder.timed)
    reminder.clean()
    now = timezone.now()
    if reminder.enabled and not options["even_if_late"] and (problem := reminder.late_error(now)):
        raise BadInput(f"{problem} To add it all the same, use --even-if-late.")
    reminder.next_fire_at = reminder.firing_after(now)
    return reminder


def _moment(raw: str, zone: str) -> datetime:
    moment = parse_date_and_time(raw, "a date and time such as 2026-03-01T09:00")
    moment = moment if moment.tzinfo else moment.replace(tzinfo=ZoneInfo(zone))
    if problem := schedule.passed_error(moment, timezone.now()):
        raise BadInput(f"{raw}: {problem} Give a later one, or omit --at and use `manage.py fire`.")
    return moment


# --- storing ----------------------------------------------------------------------------------------------


def add_parts(reminder: Reminder, parts: list[dict[str, Any]], model: type[ReminderMessage | ReplyPart]) -> None:
    for position, part in enumerate(parts):
        file = add_media(reminder, part["path"]) if "path" in part else None
        message = model(reminder=reminder, position=position, kind=part["kind"], text=part["text"], media=file)
        if isinstance(message, ReminderMessage):
            message.template = part.get("template")
        message.full_clean()
        message.save()


def add_follow_ups(reminder: Reminder, steps: Steps) -> None:
    rows = [(number, part) for number, (_, parts) in enumerate(steps, start=1) for part in parts]
    for position, (number, part) in enumerate(rows):
        file = add_media(reminder, part["path"]) if "path" in part else None
        row = FollowUpPart(
            reminder=reminder, step=number, position=position, kind=part["kind"], text=part["text"], media=file
        )
        row.full_clean()
        row.save()


def add_media(reminder: Reminder, path: Path) -> MediaFile:
    with path.open("rb") as opened:
        return media.keep(File(opened, path.name), reminder.owner, reminder.team)
