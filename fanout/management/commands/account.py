"""`manage.py account add|list|set|hook|health|move|restored`: accounts from a script."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from django.core.management.base import CommandParser
from django.db.models import Field
from django.utils import timezone

from accounts.channels.registry import channel, channels, offered
from accounts.channels.settings import FieldKind
from accounts.inputs import EVERY_DAY, SEND_DAYS
from accounts.knobs import KNOBS
from accounts.models import Account
from accounts.presets import HOURS, WARMUP
from fanout.lanes import accounts
from fanout.lanes.accounts import Change
from fanout.lanes.paired_numbers import CannotMove, NumberHealth, move, number_health
from fanout.management.base import BadInput, CrierCommand, NotDone, find_account, find_owner, table
from fanout.runs.controls import compare_with_journal

SET_HELP = (
    "a column (timezone, address, hours_start …), a knob, or a setting of the provider; may be repeated. For "
    "certificates (ca_pem) VALUE may be @FILE"
)
SECRET_HELP = "a secret of the provider, stored encrypted; VALUE may be - (read standard input) or @FILE (read a file)"


class Command(CrierCommand):
    help = "Add, list and change accounts."
    example = "account add --channel smtp --label Office --set host=mail.example.com --secret password=@pw.txt"

    def arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="add|list|set|hook|health|move|restored")
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
        health = actions.add_parser("health", help="show how paired numbers are doing")
        health.add_argument("account", nargs="?", help="number or label (default: all paired numbers)")
        move = actions.add_parser("move", help="move a paired number to another machine")
        move.add_argument("account", help="number or label")
        move.add_argument("--to", required=True, metavar="HOST", help="the machine, as `hostname` prints it there")
        restored = actions.add_parser(
            "restored", help="compare paired numbers with their journals after the database was restored"
        )
        restored.add_argument("account", nargs="?", help="number or label (default: all paired numbers)")
        for action in actions.choices.values():
            # Also after the subcommand. SUPPRESS: its absence there must not undo a --json before it.
            action.add_argument("--json", action="store_true", default=argparse.SUPPRESS)

    def handle(self, *args: Any, **options: Any) -> None:
        getattr(self, {"set": "change"}.get(options["action"], options["action"]))(options)

    def add(self, options: dict[str, Any]) -> None:
        account = Account(owner=find_owner(options["owner"]), channel=options["channel"], label=options["label"])
        assign_pairs(accounts.Change(account), options["pairs"], options["secrets"])
        accounts.add_account(account, None, timezone.now())
        self.answer({"account": account.pk, "label": account.label}, str(account.pk))

    def list(self, options: dict[str, Any]) -> None:
        rows = [as_data(account) for account in Account.objects.select_related("owner")]
        names = ("account", "label", "channel", "status", "status_reason", "timezone")
        self.answer({"accounts": rows}, *table(names, [[row[name] for name in names] for row in rows]))

    def change(self, options: dict[str, Any]) -> None:
        account = find_account(options["account"])
        with accounts.changing(account, None, timezone.now()) as change:
            assign_pairs(change, options["pairs"], options["secrets"])
        names = [*change.fields, *change.tuned]
        self.answer(
            {"account": account.pk, "changed": names}, f"{account.label}: changed {', '.join(names) or 'nothing'}."
        )

    def hook(self, options: dict[str, Any]) -> None:
        account = find_account(options["account"])
        address = (
            accounts.renew_webhook(account, None, timezone.now())
            if options["renew"]
            else accounts.webhook_address(account)
        )
        if not address:
            raise NotDone(f"{account.label} has no webhook: its provider reports nothing that way.")
        self.answer({"account": account.pk, "hook": address}, address)

    def health(self, options: dict[str, Any]) -> None:
        now, asked = timezone.now(), paired_accounts(options["account"])
        found = [(account, health) for account in asked if (health := number_health(account, now)) is not None]
        if options["account"] and not found:
            raise NotDone(f"{asked[0].label} is no paired number, or was never paired.")
        numbers = [health_as_data(account, health, now) for account, health in found]
        lines = [f"{account.label}: {'. '.join(health.lines(now))}." for account, health in found]
        self.answer({"numbers": numbers}, *(lines or ["No number is paired."]))

    def move(self, options: dict[str, Any]) -> None:
        account = find_account(options["account"])
        try:
            words = move(account, options["to"], None, timezone.now())
        except CannotMove as problem:
            raise NotDone(str(problem)) from None
        self.answer({"account": account.pk, "moved_to": options["to"]}, words)

    def restored(self, options: dict[str, Any]) -> None:
        answers = [(account, compare_with_journal(account)) for account in paired_accounts(options["account"])]
        rows = [{"account": account.pk, "ok": one.ok, "detail": one.text} for account, one in answers]
        if not all(one.ok for _, one in answers):
            raise NotDone(" ".join(f"{account.label}: {one.text}" for account, one in answers if not one.ok))
        lines = [f"{account.label}: {one.text}" for account, one in answers]
        self.answer({"numbers": rows}, *(lines or ["No number is paired."]))


def paired_accounts(chosen: str | None) -> list[Account]:
    return [find_account(chosen)] if chosen else list(Account.objects.filter(paired_session__isnull=False))


def _add_pairs(parser: CommandParser) -> None:
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="pairs", help=SET_HELP)
    parser.add_argument("--secret", action="append", default=[], metavar="KEY=VALUE", dest="secrets", help=SECRET_HELP)


def as_data(account: Account) -> dict[str, Any]:
    """Return the account as data, without credentials."""
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


def health_as_data(account: Account, health: NumberHealth, now: datetime) -> dict[str, Any]:
    data = {"account": account.pk, "label": account.label, "good": health.is_good(now), **asdict(health)}
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in data.items()}


# --- KEY=VALUE: columns of an account, settings of its provider, and secrets ------------------------------


#: columns of an account that may be set by name; everything else goes to the provider's settings
COLUMNS = {
    "label",
    "address",
    "timezone",
    *HOURS,
    *WARMUP,
    *KNOBS,
}


def parse_pairs(typed: list[str]) -> dict[str, str]:
    values = {}
    for pair in typed:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise BadInput(f"{pair!r} is not KEY=VALUE.")
        values[name] = value
    return values


def assign_pairs(change: Change, settings: list[str], secrets: list[str]) -> None:
    """Assign the values to the account without saving. Secrets are recognised by name, with --set as well."""
    account, values = change.account, parse_pairs(settings)
    secret_names = {field.name for field in channel(account.channel).credentials}
    hidden = {name: raw for name, raw in values.items() if name in secret_names} | parse_pairs(secrets)
    if hidden:
        change.enter({name: read_secret(raw) for name, raw in hidden.items()})
    for name, raw in values.items():
        if name in COLUMNS:
            setattr(account, name, parse_column(name, raw))
        elif name not in hidden:
            _set_config(account, name, raw)


def _set_config(account: Account, name: str, raw: str) -> None:
    described = channel(account.channel)
    settings = [field.name for field in described.settings]
    # A setting of an earlier version can still be removed; an unknown channel is reported by the account itself.
    if name not in [*settings, *account.config] and account.channel in channels():
        raise BadInput(
            f"There is no setting “{name}”: {described.label} has {', '.join(settings)}; every account has "
            f"{', '.join(sorted(COLUMNS))}; daily caps are set with `manage.py tune`."
        )
    certificates = {f.name for f in described.settings if f.kind is FieldKind.PEM}
    account.config = {**account.config, name: read_secret(raw) if name in certificates else parse_setting(raw)}
    if raw == "":
        del account.config[name]


def parse_column(name: str, raw: str) -> Any:
    """Return the value as the column stores it. Raises ValidationError."""
    if name == "send_days":
        return parse_send_days(raw)
    field = cast("Field[Any, Any]", Account._meta.get_field(name))
    return None if raw == "" and field.null else field.to_python(raw)


def parse_send_days(raw: str) -> list[int] | None:
    """Return ISO weekdays; None for every day."""
    words = [word.strip() for word in raw.split(",")] if raw.strip() else []
    wrong = [word for word in words if word not in map(str, EVERY_DAY)]
    if wrong:
        raise BadInput(f"{SEND_DAYS} Give them as 1,2,3, not {wrong[0]!r}.")
    return [int(word) for word in words] or None


def parse_setting(raw: str) -> Any:
    """Return the value of a setting: a number, yes or no, JSON, or else text."""
    try:
        return json.loads(raw)
    except ValueError:
        return {"yes": True, "no": False}.get(raw.lower(), raw)


def read_secret(raw: str) -> str:
    """Return the secret; `-` reads standard input and @FILE a file, because `ps` shows the command line.

    Always text: the password 1e5 is not a number.
    """
    if raw != "-" and not raw.startswith("@"):
        return raw
    name = "standard input" if raw == "-" else raw[1:]
    try:
        return (sys.stdin.read() if raw == "-" else Path(name).read_text()).strip()
    except OSError as problem:
        raise BadInput(f"{name} cannot be read: {problem.strerror}.") from None
    except UnicodeDecodeError:
        raise BadInput(f"{name} cannot be read: it is not UTF-8 text.") from None
