"""The two groups every installation has, and what their members may do. What they may do it *to* is decided
row by row in accounts.access."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig, apps
from django.contrib.auth.management import create_permissions
from django.contrib.auth.models import Group, Permission

OPERATORS = "operators"
VIEWERS = "viewers"

ALL = ("view", "add", "change", "delete")
#: app.model: what operators may do. Viewers may view the same models.
OPERATOR_PERMISSIONS = {
    "accounts.account": ("view", "add", "change"),
    "accounts.dailylimit": ALL,
    "reminders.recipient": ALL,
    "reminders.suppression": ("view", "add"),
    "reminders.mediafile": ALL,
    "reminders.reminder": ALL,
    "reminders.remindermessage": ALL,
    "reminders.replypart": ALL,
    "reminders.remindertarget": ALL,
    "fanout.run": ("view", "change"),
    "fanout.runtarget": ("view", "change"),
    "fanout.event": ("view",),
    "fanout.inboundevent": ("view", "change"),
    "fanout.notification": ("view",),
    "fanout.subscription": ("view", "add", "change", "delete"),
}


def ensure_roles(app_config: AppConfig, using: str = "default", **kwargs: Any) -> None:
    """After every migration of an app: its permissions belong to the groups. What an administrator added to
    a group by hand stays."""
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
