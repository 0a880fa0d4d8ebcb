"""The things that commands name: by their number, or by the label people know them by."""

from __future__ import annotations

from typing import Any, TypeVar

from django.contrib.auth import get_user_model
from django.core.management.base import CommandParser
from django.db.models import Model, QuerySet

from accounts.models import Account
from fanout.management.base import BadInput
from fanout.models import Run
from reminders.models import Reminder

M = TypeVar("M", bound=Model)
SHOWN = 5


def account(word: str) -> Account:
    return _find(Account.objects.all(), "label", word, "account")


def reminder(word: str) -> Reminder:
    return _find(Reminder.objects.select_related("account"), "title", word, "reminder")


def run(word: str) -> Run:
    """Runs have no name of their own."""
    number = _number(word)
    if number is None:
        raise BadInput(f"A run is named by its number, not {word!r}: `manage.py runs` lists them.")
    found = Run.objects.select_related("account").filter(pk=number).first()
    if found is None:
        raise BadInput(f"There is no run {word}.")
    return found


def user(name: str) -> Any:
    found = get_user_model().objects.filter(username=name).first()
    if found is None:
        raise BadInput(f"There is no user {name!r}.")
    return found


def owner(name: str | None) -> Any:
    """Who owns what a command makes: the one named, or the only administrator."""
    if name:
        return user(name)
    admins = list(get_user_model().objects.filter(is_superuser=True, is_active=True)[:2])
    if len(admins) != 1:
        raise BadInput("Say whose it is with --owner USERNAME.")
    return admins[0]


def add_actor(parser: CommandParser) -> None:
    parser.add_argument("--as", dest="actor", metavar="USERNAME", help="act as this operator, with their rights")


def actor(name: str | None) -> Any:
    """None is the shell: whoever has it may do all."""
    return user(name) if name else None


def _number(word: str) -> int | None:
    """A key as the database has them; `isdigit` would let a ² through, and Python reads no endless number."""
    return int(word) if word.isdecimal() and len(word) < 19 else None


def _find(rows: QuerySet[M], name_field: str, word: str, what: str) -> M:
    number = _number(word)
    if number is not None and (found := rows.filter(pk=number).first()):
        return found
    named = list(rows.filter(**{f"{name_field}__iexact": word})[: SHOWN + 1])
    if len(named) == 1:
        return named[0]
    if named:
        ids = ", ".join(str(thing.pk) for thing in named[:SHOWN])
        raise BadInput(f"Several {what}s are called {word!r}: name one by its number ({ids}).")
    raise BadInput(f"There is no {what} {word!r}.")
