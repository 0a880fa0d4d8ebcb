"""Moving things between teams, and people who are an operator and a viewer at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group
from django.test import RequestFactory
from django.urls import reverse
from django.utils import timezone

from accounts.access import OPERATORS, VIEWERS, NotYours
from fanout.lanes.accounts import changing
from fanout.models import InboundEvent
from fanout.ops.list_changes import import_recipients
from reminders.imports import Entry
from reminders.models import Recipient, Suppression
from tests.admin.conftest import login, member
from tests.admin.forms import account_form, filled
from tests.factories import (
    AccountFactory,
    InboundEventFactory,
    MediaFileFactory,
    RecipientFactory,
    ReminderFactory,
    TeamFactory,
)
from tests.security import world as worlds
from tests.security.test_permission_matrix import ACTIONS, PAGES, ROLES, client_of, row
from tests.security.world import World

pytestmark = pytest.mark.django_db


# --- only the owner or an administrator moves a thing -----------------------------------------------------


@pytest.fixture
def teams() -> tuple[Group, Group]:
    return TeamFactory.create(), TeamFactory.create()


@pytest.fixture
def people(teams: tuple[Group, Group]) -> dict[str, Any]:
    """The owner and a colleague, both in both teams, and an administrator."""
    people = {name: member(name, OPERATORS) for name in ("owner", "colleague")}
    for person in people.values():
        person.groups.add(*teams)
    return people | {"administrator": member("boss", is_superuser=True)}


def reminder_data(reminder: Any) -> dict[str, Any]:
    return filled(reminder.account, title=reminder.title, paste="")


#: each kind of thing that is shared with a team: how it is made, and what its form sends
KINDS: dict[str, tuple[str, Callable[..., Any], Callable[[Any], dict[str, Any]]]] = {
    "account": ("accounts_account", AccountFactory.create, lambda thing: account_form(label=thing.label)),
    "reminder": (
        "reminders_reminder",
        lambda owner, team: ReminderFactory.create(
            account=AccountFactory.create(owner=owner, team=team), team=team, targets=1, parts=()
        ),
        reminder_data,
    ),
    "recipient": (
        "reminders_recipient",
        RecipientFactory.create,
        lambda thing: {"kind": thing.kind, "address": thing.address, "name": "A", "status": "active"},
    ),
    "file": ("reminders_mediafile", MediaFileFactory.create, lambda thing: {}),
}
#: who may move it
MOVES = {"owner": True, "colleague": False, "administrator": True}


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_owner_or_an_administrator_moves_a_thing_between_teams(kind, people, teams):
    name, make, data = KINDS[kind]
    here, there = teams
    for who, may in MOVES.items():
        for target in (there, None):
            thing = make(owner=people["owner"], team=here)
            owner = {"owner": thing.owner_id} if who == "administrator" else {}
            posted = data(thing) | owner | {"team": target.pk if target else ""}
            path = reverse(f"admin:{name}_change", args=[thing.pk])
            answer = login(people[who]).post(path, posted)
            assert answer.status_code == 302, answer.context["errors"]
            thing.refresh_from_db()
            assert thing.team == (target if may else here), (who, target)


def test_the_form_says_who_moves_it(people, teams):
    account = AccountFactory.create(owner=people["owner"], team=teams[0])
    path = reverse("admin:accounts_account_change", args=[account.pk])
    assert "moves it to another team" in login(people["colleague"]).get(path).content.decode()
    assert "moves it to another team" not in login(people["owner"]).get(path).content.decode()


def test_code_that_forgets_the_rule_for_accounts_meets_it(people, teams):
    account = AccountFactory.create(owner=people["owner"], team=teams[0])

    def move(who: str) -> None:
        with changing(account, people[who], timezone.now()) as change:
            change.account.team = teams[1]

    with pytest.raises(NotYours, match="another team"):
        move("colleague")
    account.refresh_from_db()
    assert account.team == teams[0]
    move("owner")
    account.refresh_from_db()
    assert account.team == teams[1]


def test_an_import_does_not_move_what_is_there(people, teams):
    """A colleague's recipients are not the importer's, and one's own keep the team they have."""
    here, there = teams
    theirs = RecipientFactory.create(owner=people["owner"], team=here)
    mine = RecipientFactory.create(owner=people["colleague"], team=here)
    entries = [Entry(1, one.kind, one.address) for one in (theirs, mine)]
    assert import_recipients(entries, people["colleague"], people["colleague"], timezone.now(), there) == 1
    assert list(Recipient.objects.filter(pk__in=[theirs.pk, mine.pk]).values_list("team", flat=True)) == [here.pk] * 2


# --- an operator who is a viewer, too, is a viewer --------------------------------------------------------


@pytest.fixture
def world(settings: Any) -> World:
    settings.BOUNCE_TOKEN, settings.PUBLIC_URL = "a token", "https://crier.example.com"
    built = worlds.build()
    both = member("otto", OPERATORS, VIEWERS)
    both.groups.add(built.things["admin/accounts/account/"].team)
    built.people["both"] = both
    return built


@pytest.mark.slow
def test_operator_and_viewer_gets_the_pages_of_a_viewer(world):
    column, client = ROLES.index("viewer"), client_of(world.people["both"])
    seen = {name: row(world, [client], name, route) for name, route in worlds.pages().items()}
    assert seen == {name: [cells[column] for cells in PAGES[name]] for name in seen}


def test_operator_and_viewer_is_offered_the_actions_of_a_viewer(world):
    request = RequestFactory().get("/")
    request.user = world.people["both"]
    offered = {
        f"{model._meta.label_lower}:{name}"
        for model, model_admin in admin.site._registry.items()
        if model_admin.has_view_permission(request)
        for name in model_admin.get_actions(request)
    }
    column = ROLES.index("viewer")
    assert offered == {name for name, (cells,) in ACTIONS.items() if cells[column] == "o"}


#: bulk actions that need no control of one object: what is posted besides the selection
BULK = {
    "tag_selected": ("recipient", {"tag": "mine"}),
    "untag_selected": ("recipient", {"tag": "old"}),
    "suppress_selected": ("recipient", {"detail": ""}),
    "erase_selected": ("recipient", {}),
    "remove": ("recipient", {}),
    "archive": ("recipient", {}),
    "work_on_again": ("event", {}),
}


@pytest.mark.parametrize("action", BULK)
def test_bulk_actions_of_operator_and_viewer_change_nothing(action, world):
    account = world.things["admin/accounts/account/"]
    recipient = RecipientFactory.create(owner=account.owner, team=account.team, tags=["old"])
    event = InboundEventFactory.create(account=account, state=InboundEvent.State.FAILED, attempts=5)
    kind, data = BULK[action]
    name, thing = {"recipient": ("reminders_recipient", recipient), "event": ("fanout_inboundevent", event)}[kind]
    posted = {"action": action, "_selected_action": [thing.pk], "confirmed": "yes", **data}
    suppressed = Suppression.objects.count()
    login(world.people["both"]).post(reverse(f"admin:{name}_changelist"), posted)
    stored = Recipient.objects.get(pk=recipient.pk)
    assert (stored.address, stored.tags, stored.archived) == (recipient.address, ["old"], False)
    assert Suppression.objects.count() == suppressed
    assert InboundEvent.objects.get(pk=event.pk).state == InboundEvent.State.FAILED
