"""Permissions: which rows a person may see and change, and the two groups that every installation has.

Operators act on what they own or what was shared with their team, viewers only read, and superusers may do everything.
Querysets, actions and endpoints all ask here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from django.apps import AppConfig, apps
from django.contrib.auth.management import create_permissions
from django.contrib.auth.models import AbstractUser, AnonymousUser, Group, Permission
from django.db.models import Model, Q, QuerySet, TextChoices

M = TypeVar("M", bound=Model)


class NotYours(Exception):
    """Raised when a person may not do something; the text says so."""


def visible(user: Any, rows: QuerySet[M]) -> QuerySet[M]:
    """Return the rows that a person may see."""
    if user.is_superuser:
        return rows
    teams = user.groups.all()
    # A call of the API has read the teams with its token: the plans of their numbers are simpler.
    known = teams if teams._result_cache is None else [team.pk for team in teams]
    return rows.filter(Q(owner=user) | Q(team__in=known) if known is teams or known else Q(owner=user))


#: what `visible` means, as a condition of statements on rows `r`; its parameters are those of `sees`
SEES = "(%(sees_all)s OR r.owner_id = %(user)s OR r.team_id = ANY(%(teams)s::bigint[]))"


def sees(user: Any) -> dict[str, Any]:
    return {"sees_all": user.is_superuser, "user": user.pk, "teams": [team.pk for team in user.groups.all()]}


def may_see(user: AbstractUser | AnonymousUser, thing: Any) -> bool:
    if not user.is_active:
        return False
    if user.is_superuser or thing.owner_id == user.pk:
        return True
    return thing.team_id is not None and user.groups.filter(pk=thing.team_id).exists()


def may_use(user: AbstractUser | AnonymousUser | None, things: Iterable[Any]) -> str:
    """Return the sentence for the first thing that a person may not use, or "" if they may use all. None is the
    shell."""
    if user is None or user.is_superuser:
        return ""
    teams = {team.pk for team in user.groups.all()}
    for thing in things:
        if thing.owner_id != user.pk and thing.team_id not in teams:
            return f"You may not use {thing}: it is no longer shared with you. Ask its owner, or choose another."
    return ""


def may_act(user: AbstractUser | AnonymousUser, thing: Any) -> bool:
    return may_see(user, thing) and (user.is_superuser or not is_viewer(user))


def may_do(user: AbstractUser | AnonymousUser, permission: str) -> bool:
    """Return whether a person has a permission that changes something, and is not a viewer."""
    return user.has_perm(permission) and (user.is_superuser or not is_viewer(user))


def may_move(user: AbstractUser | AnonymousUser | None, thing: Any) -> bool:
    """Return whether a person may share a thing with another team, or with none: its owner and administrators. Others
    could take it away from the team that works with it. None is the shell."""
    return owns(user, thing) and (user is None or may_act(user, thing))


def owns(user: AbstractUser | AnonymousUser | None, thing: Any) -> bool:
    return user is None or user.is_superuser or thing.owner_id == user.pk


def is_viewer(user: AbstractUser | AnonymousUser) -> bool:
    """Return whether a person only reads. A viewer who is an operator, too, is a viewer."""
    return any(group.name == VIEWERS for group in user.groups.all())


def require(user: AbstractUser | AnonymousUser | None, thing: Any) -> None:
    """Raise NotYours unless the person may act on the thing. None is the shell, which may do everything."""
    if user is not None and not may_act(user, thing):
        raise NotYours(f"You may not change {thing}: it belongs to another operator.")


# -- the two groups and their permissions -----------------------------------------------------------------


OPERATORS = "operators"
VIEWERS = "viewers"

ALL_VERBS = ("view", "add", "change", "delete")
#: app.model: what operators may do. Viewers may view the same models.
OPERATOR_PERMISSIONS = {
    "accounts.account": ("view", "add", "change"),
    "accounts.dailylimit": ALL_VERBS,
    "reminders.recipient": ALL_VERBS,
    "reminders.segment": ALL_VERBS,
    "reminders.suppression": ("view", "add"),
    "reminders.optoutphrase": ("view",),
    "reminders.mediafile": ALL_VERBS,
    "reminders.reminder": ALL_VERBS,
    "reminders.remindermessage": ALL_VERBS,
    "reminders.replypart": ALL_VERBS,
    "reminders.followuppart": ALL_VERBS,
    "reminders.remindertarget": ALL_VERBS,
    "fanout.run": ("view", "change"),
    "fanout.runtarget": ("view", "change"),
    "fanout.event": ("view",),
    "fanout.inboundevent": ("view", "change"),
    "fanout.lostclaim": ("view", "change"),
    "fanout.notification": ("view",),
    "fanout.webhookendpoint": ALL_VERBS,
    "fanout.webhookdelivery": ("view",),
    "fanout.subscription": ("view", "add", "change", "delete"),
}


def ensure_roles(app_config: AppConfig, using: str = "default", **kwargs: Any) -> None:
    """Give the groups the permissions of an app, after each of its migrations.

    Permissions that an administrator added to a group by hand stay.
    """
    names = [name for name in OPERATOR_PERMISSIONS if name.split(".")[0] == app_config.label]
    if not names:
        return
    # Our apps come before django.contrib.auth, whose own handler would make these only after us.
    create_permissions(app_config, verbosity=0, using=using, apps=kwargs.get("apps", apps))
    for name in names:
        model = name.split(".")[1]
        _grant(using, app_config.label, OPERATORS, [f"{verb}_{model}" for verb in OPERATOR_PERMISSIONS[name]])
        _grant(using, app_config.label, VIEWERS, [f"view_{model}"])


def _grant(using: str, app_label: str, group_name: str, codenames: list[str]) -> None:
    group, _ = Group.objects.using(using).get_or_create(name=group_name)
    permissions = Permission.objects.using(using).filter(content_type__app_label=app_label, codename__in=codenames)
    group.permissions.add(*permissions)


# -- one role for each person ------------------------------------------------------------------------------


class Role(TextChoices):
    """What a person may do. Teams, the other groups, say with whom they share it."""

    ADMINISTRATOR = "administrator"
    OPERATOR = "operator"
    VIEWER = "viewer"


ROLE_GROUPS = {Role.OPERATOR: OPERATORS, Role.VIEWER: VIEWERS}


def teams() -> QuerySet[Group]:
    """Return all teams: the groups that are not a role's."""
    return Group.objects.exclude(name__in=ROLE_GROUPS.values()).order_by("name")


def role_of(user: AbstractUser) -> Role | None:
    """Return the role; None for people who may do nothing, or only what an expert's permissions allow."""
    if user.is_superuser:
        return Role.ADMINISTRATOR
    names = {group.name for group in user.groups.all()}
    return Role.VIEWER if VIEWERS in names else Role.OPERATOR if OPERATORS in names else None


def give_role(user: AbstractUser, role: str, teams: Iterable[Group]) -> None:
    """Let a person log in with this role and share with these teams, and with no others."""
    user.is_staff, user.is_superuser = True, role == Role.ADMINISTRATOR
    user.save(update_fields=["is_staff", "is_superuser"])
    names = [group for name, group in ROLE_GROUPS.items() if name == role]
    user.groups.set([*Group.objects.filter(name__in=names), *teams])
