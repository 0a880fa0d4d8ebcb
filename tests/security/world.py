"""One of everything, and one person of each kind, for the permission matrix."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from axes.models import AccessAttempt, AccessFailureLog, AccessLog
from django.contrib.auth.models import AnonymousUser, Group, User
from django.contrib.contenttypes.models import ContentType
from django.urls import URLResolver, get_resolver
from django.utils import timezone

from accounts.access import OPERATORS, VIEWERS
from accounts.models import Account
from fanout.models import LostClaim, TrailEntry, WebhookDelivery, WebhookEndpoint
from fanout.models.trail import note
from reminders import suppressions
from reminders.models import OptOutPhrase, Reminder, ReminderTarget
from tests.admin.conftest import member
from tests.factories import (
    AccountFactory,
    InboundEventFactory,
    MediaFileFactory,
    NotificationFactory,
    RecipientFactory,
    ReminderFactory,
    RunFactory,
    SegmentFactory,
    SuppressionFactory,
    TeamFactory,
)

#: the columns of every table. The things belong to the operator and are shared with the team of viewer and colleague.
ROLES = ("anonymous", "no role", "viewer", "stranger", "operator", "colleague", "superuser")

#: <int:pk> and <pk>, and the older (?P<pk>…)
VARIABLE = re.compile(r"<(?:\w+:)?(?P<name>\w+)>|\(\?P<(?P<group>\w+)>[^)]*\)")


@dataclass
class World:
    people: dict[str, Any]
    #: by the address of their pages
    things: dict[str, Any]

    def path(self, route: str) -> str:
        """The route as an address, with something real for each of its variables."""
        thing = next((thing for prefix, thing in self.things.items() if route.startswith(prefix)), None)
        path = VARIABLE.sub(lambda match: self._value(match["name"] or match["group"], thing), route)
        return "/" + path.replace("^", "").replace("$", "")

    def _value(self, variable: str, thing: Any) -> str:
        fixed = {
            "name": "pause",
            "url": "nowhere/",
            "app_label": "fanout",
            "token": str(suppressions.unsubscribe_url("ann@example.com")).rsplit("/", 1)[-1],
            "content_type_id": str(ContentType.objects.get_for_model(Reminder).pk),
        }
        return fixed.get(variable) or str(getattr(thing, "pk", 1))


def build() -> World:
    team = TeamFactory.create()
    people: dict[str, Any] = {
        "anonymous": AnonymousUser(),
        "no role": member("nora"),
        "viewer": member("vera", VIEWERS),
        "stranger": member("sten", OPERATORS),
        "operator": member("mei", OPERATORS),
        "colleague": member("cleo", OPERATORS),
        "superuser": member("boss", is_superuser=True),
    }
    for role in ("viewer", "operator", "colleague"):
        people[role].groups.add(team)
    people["stranger"].groups.add(TeamFactory.create())
    return World(people, one_of_everything(people["operator"], team))


def one_of_everything(owner: User, team: Group) -> dict[str, Any]:
    account = AccountFactory.create(owner=owner, team=team)
    reminder = ReminderFactory.create(account=account, team=team, targets=1)
    run = RunFactory.create(
        reminder=reminder, team=team, status="paused", pause_reason="operator", targets={"pending": 1}
    )
    note("tested", account, owner, timezone.now())
    axes = {"username": "x", "ip_address": "192.0.2.1", "user_agent": "x"}
    return {
        "admin/fanout/runtarget/": run.targets.get(),
        "admin/fanout/run/": run,
        "admin/fanout/trailentry/": TrailEntry.objects.latest("pk"),
        "admin/fanout/inboundevent/": InboundEventFactory.create(account=account, words={"text": "yes"}),
        "admin/fanout/lostclaim/": LostClaim.objects.create(
            account=account,
            target_id=1,
            run_id=1,
            reminder_id=1,
            scheduled_for=timezone.now(),
            address="+4915112345678",
            part=0,
            claimed_at=timezone.now(),
            host="a",
            target_found=False,
            noticed_at=timezone.now(),
        ),
        "admin/fanout/webhookdelivery/": WebhookDelivery.objects.create(
            endpoint=(
                hook := WebhookEndpoint.objects.create(
                    owner=owner, team=team, url="https://example.com/", kinds=["reply"]
                )
            ),
            message_id="msg_1",
            kind="reply",
            payload={},
            created_at=timezone.now(),
        ),
        "admin/fanout/webhookendpoint/": hook,
        "admin/fanout/notification/": (news := NotificationFactory.create(user=owner)),
        "admin/bell/": news,
        "admin/replies/": InboundEventFactory.create(
            account=account,
            kind="reply",
            address="+4915112345678",
            run_target_id=run.targets.get().pk,
            words={"text": "yes"},
        ),
        "admin/accounts/account/": account,
        "admin/reminders/remindertarget/": ReminderTarget.objects.get(),
        "admin/reminders/reminder/": reminder,
        "admin/reminders/recipient/": RecipientFactory.create(owner=owner, team=team),
        "admin/reminders/segment/": SegmentFactory.create(owner=owner, team=team),
        "admin/reminders/suppression/": SuppressionFactory.create(),
        "admin/reminders/optoutphrase/": OptOutPhrase.objects.create(phrase="Nie wieder"),
        "admin/reminders/mediafile/": (media := MediaFileFactory.create(owner=owner, team=team)),
        "admin/media/": media,
        "admin/auth/user/": owner,
        "admin/tokens/": owner,
        "admin/auth/group/": team,
        "admin/axes/accessattempt/": AccessAttempt.objects.create(
            **axes, failures_since_start=1, get_data="", post_data=""
        ),
        "admin/axes/accesslog/": AccessLog.objects.create(**axes),
        "admin/axes/accessfailurelog/": AccessFailureLog.objects.create(**axes),
    }


def pages() -> dict[str, str]:
    """Every route of the site by its name; one without a name by itself. Those of the API are for programs, and have a
    table of their own (operations.txt)."""
    routes = _routes(get_resolver().url_patterns, "", "")
    return {name: route for name, route in routes if not name.startswith("api:")}


def _routes(patterns: Any, namespace: str, route: str) -> Iterator[tuple[str, str]]:
    for pattern in patterns:
        here = f"{route}{pattern.pattern}"
        if isinstance(pattern, URLResolver):
            inside = f"{namespace}{pattern.namespace}:" if pattern.namespace else namespace
            yield from _routes(pattern.url_patterns, inside, here)
        else:
            yield (f"{namespace}{pattern.name}" if pattern.name else f"/{here}"), here


def another_account(world: World) -> Account:
    """Of the same owner and team."""
    account = world.things["admin/accounts/account/"]
    return AccountFactory.create(owner=account.owner, team=account.team)
