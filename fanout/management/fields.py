"""KEY=VALUE on the command line: columns of an account, settings of its provider, and secrets."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, cast

from django.db.models import Field

from accounts.channels.registry import channel, channels
from accounts.channels.settings import FieldKind
from accounts.knobs import KNOBS
from accounts.models import Account
from fanout.lanes.accounts import Change
from fanout.management.base import BadInput

#: columns of an account that may be set by name; everything else goes to the provider's settings
COLUMNS = {
    "label",
    "address",
    "timezone",
    "hours_start",
    "hours_end",
    "send_days",
    "warmup_started_on",
    "warmup_days",
    "warmup_floor",
    *KNOBS,
}
WEEKDAYS = set("1234567")


def pairs(typed: list[str]) -> dict[str, str]:
    values = {}
    for pair in typed:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise BadInput(f"{pair!r} is not KEY=VALUE.")
        values[name] = value
    return values


def assign(change: Change, settings: list[str], secrets: list[str]) -> None:
    """Into the object, not saved yet. A secret is one by its name, whichever option it came by."""
    account, values = change.account, pairs(settings)
    secret_names = {field.name for field in channel(account.channel).credentials}
    hidden = {name: raw for name, raw in values.items() if name in secret_names} | pairs(secrets)
    if hidden:
        change.enter({name: secret(raw) for name, raw in hidden.items()})
    for name, raw in values.items():
        if name in COLUMNS:
            setattr(account, name, column(name, raw))
        elif name not in hidden:
            _set_config(account, name, raw)


def _set_config(account: Account, name: str, raw: str) -> None:
    described = channel(account.channel)
    settings = [field.name for field in described.settings]
    # One that an earlier version stored can still be removed, and of an unknown channel the account itself complains.
    if name not in [*settings, *account.config] and account.channel in channels():
        raise BadInput(
            f"There is no setting “{name}”: {described.label} has {', '.join(settings)}; every account has "
            f"{', '.join(sorted(COLUMNS))}; daily caps are set with `manage.py tune`."
        )
    certificates = {f.name for f in described.settings if f.kind is FieldKind.PEM}
    account.config = {**account.config, name: secret(raw) if name in certificates else plain(raw)}
    if raw == "":
        del account.config[name]


def column(name: str, raw: str) -> Any:
    """The value as the column stores it; ValidationError says what is wrong."""
    if name == "send_days":
        return send_days(raw)
    field = cast("Field[Any, Any]", Account._meta.get_field(name))
    return None if raw == "" and field.null else field.to_python(raw)


def send_days(raw: str) -> list[int] | None:
    """ISO weekdays; None for every day."""
    words = [word.strip() for word in raw.split(",")] if raw.strip() else []
    wrong = [word for word in words if word not in WEEKDAYS]
    if wrong:
        raise BadInput(f"send_days takes numbers from 1 (Monday) to 7 (Sunday) such as 1,2,3, not {wrong[0]!r}.")
    return [int(word) for word in words] or None


def plain(raw: str) -> Any:
    """The value of a setting: a number, yes or no, JSON, or else text."""
    try:
        return json.loads(raw)
    except ValueError:
        return {"yes": True, "no": False}.get(raw.lower(), raw)


def secret(raw: str) -> str:
    """The secret itself; `-` reads standard input and @FILE a file, because `ps` shows what is typed.

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
