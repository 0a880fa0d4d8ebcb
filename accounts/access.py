"""Who may see and do what. Operators act on what they own or what was shared with their team; viewers read;
superusers do all. Querysets, actions and endpoints all ask here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from django.contrib.auth.models import AbstractUser, AnonymousUser
from django.db.models import Model, Q, QuerySet

from accounts.roles import VIEWERS

M = TypeVar("M", bound=Model)


class NotYours(Exception):
    """The person may not do this; the text says so."""


def visible(user: Any, rows: QuerySet[M]) -> QuerySet[M]:
    """The owned rows that a person may see."""
    if user.is_superuser:
        return rows
    return rows.filter(Q(owner=user) | Q(team__in=user.groups.all()))


def may_see(user: AbstractUser | AnonymousUser, thing: Any) -> bool:
    if not user.is_active:
        return False
    if user.is_superuser or thing.owner_id == user.pk:
        return True
    return thing.team_id is not None and user.groups.filter(pk=thing.team_id).exists()


def may_use(user: AbstractUser | AnonymousUser | None, things: Iterable[Any]) -> str:
    """The sentence for the first thing that a person may not use; nothing where they may use all. None is the shell."""
    if user is None or user.is_superuser:
        return ""
    teams = {team.pk for team in user.groups.all()}
    for thing in things:
        if thing.owner_id != user.pk and thing.team_id not in teams:
            return f"You may not use {thing}: it is no longer shared with you. Ask its owner, or choose another."
    return ""


def may_act(user: AbstractUser | AnonymousUser, thing: Any) -> bool:
    return may_see(user, thing) and (user.is_superuser or not is_viewer(user))


def is_viewer(user: AbstractUser | AnonymousUser) -> bool:
    return user.groups.filter(name=VIEWERS).exists()


def require(user: AbstractUser | AnonymousUser | None, thing: Any) -> None:
    """Raise NotYours unless the person may act on the thing. None is the shell: whoever has it may do all."""
    if user is not None and not may_act(user, thing):
        raise NotYours(f"You may not change {thing}: it belongs to somebody else.")
