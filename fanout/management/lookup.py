"""Accounts, reminders, runs and users by what was typed: a number, a label, a title or a name."""

from __future__ import annotations

from typing import Any, TypeVar

from django.contrib.auth import get_user_model
from django.core.management.base import CommandParser
from django.db.models import Model, QuerySet

from accounts.inputs import as_id
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
    """By its number: runs have no name of their own."""
    number = as_id(word)
    if number is None:
        raise BadInput(f"A run is named by its number, not {word!r}: `manage.py runs` lists them.")
    row = Run.objects.select_related("account").filter(pk=number).first()
    if row is None:
        raise BadInput(f"There is no run {word}.")
    return row


def user(name: str) -> Any:
    row = get_user_model().objects.filter(username=name).first()
    if row is None:
        raise BadInput(f"There is no user {name!r}.")
    return row


def owner(name: str | None) -> Any:
    """The user named, or the only administrator."""
    if name:
        return user(name)
    admins = list(get_user_model().objects.filter(is_superuser=True, is_active=True)[:2])
    if len(admins) != 1:
        raise BadInput("There is no single administrator: name the owner with --owner USERNAME.")
    return admins[0]


def add_actor(parser: CommandParser) -> None:
    parser.add_argument("--as", dest="actor", metavar="USERNAME", help="act with the rights of this operator")


def actor(name: str | None) -> Any:
    """The operator named with --as. None stands for the shell, which may do everything."""
    return user(name) if name else None


def _find(rows: QuerySet[M], name_field: str, word: str, what: str) -> M:
    number = as_id(word)
    if number is not None and (row := rows.filter(pk=number).first()):
        return row
    named = list(rows.filter(**{f"{name_field}__iexact": word})[: SHOWN + 1])
    if len(named) == 1:
        return named[0]
    if named:
        ids = ", ".join(str(thing.pk) for thing in named[:SHOWN])
        raise BadInput(f"Several {what}s are called {word!r}: name one by its number ({ids}).")
    raise BadInput(f"There is no {what} {word!r}.")
