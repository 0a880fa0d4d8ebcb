"""KEY=VALUE on the command line, for an account's columns, its provider settings and its secrets."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, cast

from django.db.models import Field

from accounts.knobs import KNOBS
from accounts.models import Account
from fanout.management.base import BadInput

#: columns of an account that may be set by name; everything else goes to the provider's settings
COLUMNS = {"label", "address", "timezone", "hours_start", "hours_end", "send_days", "warmup_started_on", "warmup_days",
           "warmup_floor", *KNOBS}  # fmt: skip
#: what providers call their secrets: never stored among the settings, whichever option they came by
SECRETS = {"password", "token", "key", "api_key", "secret", "access_token", "app_secret", "service_account"}


def pairs(given: list[str]) -> dict[str, str]:
    found = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise BadInput(f"{pair!r} is not KEY=VALUE.")
        found[name] = value
    return found


def assign(account: Account, settings: list[str], secrets: list[str]) -> list[str]:
    """Into the object, not saved yet. Returns the names, for the account's timeline; never a value."""
    config, credentials = dict(account.config), dict(account.credentials) if account.pk else {}
    for name, raw in pairs(settings).items():
        if name in SECRETS:
            credentials[name] = secret(raw)
        elif name in COLUMNS:
            setattr(account, name, column(name, raw))
        elif raw == "":
            config.pop(name, None)
        else:
            config[name] = plain(raw)
    for name, raw in pairs(secrets).items():
        credentials[name] = secret(raw)
    account.config, account.credentials = config, credentials
    return [*pairs(settings), *pairs(secrets)]


def column(name: str, raw: str) -> Any:
    """As the column stores it; ValidationError says what is wrong."""
    if name == "send_days":
        return [int(day) for day in raw.split(",") if day.strip().isdigit()] or None
    field = cast("Field[Any, Any]", Account._meta.get_field(name))
    return None if raw == "" and field.null else field.to_python(raw)


def plain(raw: str) -> Any:
    """Numbers, yes and no, and JSON as what they are; everything else as text."""
    try:
        return json.loads(raw)
    except ValueError:
        return {"yes": True, "no": False}.get(raw.lower(), raw)


def secret(raw: str) -> Any:
    """`-` reads standard input and @FILE a file: what is typed on the command line is seen by `ps`."""
    if raw == "-":
        return plain(sys.stdin.read().strip())
    if raw.startswith("@"):
        try:
            return plain(Path(raw[1:]).read_text().strip())
        except OSError as problem:
            raise BadInput(f"{raw[1:]} cannot be read: {problem.strerror}.") from None
    return raw
