"""Who gets where: every page, list action and command for everybody. A new one without an entry fails by its name."""

from __future__ import annotations

import os
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.contrib import admin
from django.core.management import call_command, get_commands, load_command_class
from django.db import transaction
from django.http import HttpResponse
from django.test import Client, RequestFactory
from django.urls import reverse

from accounts import second_factor
from fanout.admin.middleware import OPEN
from fanout.management.base import NotDone
from tests.admin.conftest import login
from tests.security import world as worlds
from tests.security.world import ROLES, World

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("unlogged_refusals")]
HERE = Path(__file__).parent


def table(name: str) -> dict[str, list[str]]:
    """Lines of the file: a name, then its cells."""
    lines = (HERE / name).read_text().splitlines()
    rows = [line.split() for line in lines if line.strip() and not line.startswith("#")]
    assert len({row[0] for row in rows}) == len(rows), "a name stands twice"
    return {row[0]: row[1:] for row in rows}


PAGES = table("pages.txt")
ACTIONS = table("actions.txt")
COMMANDS = table("commands.txt")
#: what an address needs besides its variables
DATA = {
    "admin:fanout_run_offload": lambda world: {
        "runs": world.things["admin/fanout/run/"].pk,
        "account": worlds.another_account(world).pk,
    },
}


def group_of(route: str) -> str:
    """The app whose pages they are: tested together, because making a world takes longer than asking."""
    first = route.removeprefix("admin/").split("/")[0]
    return first if first in apps.app_configs else "site"


GROUPS = sorted({group_of(route) for route in worlds.pages().values()})


@pytest.fixture
def world(settings: Any) -> World:
    settings.BOUNCE_TOKEN, settings.PUBLIC_URL = "a token", "https://crier.example.com"
    return worlds.build()


def client_of(person: Any) -> Client:
    return Client() if person.pk is None else login(person)


def cell(answer: HttpResponse) -> str:
    """The answer in one letter; pages.txt says what they mean."""
    if answer.status_code == 302:
        location = answer["Location"].split("?")[0]
        return {reverse("admin:login"): "L", reverse("admin:index"): "i"}.get(location, "o")
    return {200: "o", 204: "o", 403: "x", 404: "-", 405: "m"}[answer.status_code]


def ask(client: Client, method: str, path: str, data: dict[str, Any]) -> str:
    """The answer in one letter; what the request changed is undone."""
    cookies = SimpleCookie(client.cookies)
    with transaction.atomic():
        answer: Any = getattr(client, method)(path, data)
        # Not answer.close(), which would close the connection of the test as well.
        for close in getattr(answer, "_resource_closers", ()):
            close()
        transaction.set_rollback(True)
    client.cookies = cookies
    return cell(answer)


def rows(world: World, names: dict[str, str]) -> dict[str, list[str]]:
    clients = [client_of(world.people[role]) for role in ROLES]
    return {name: row(world, clients, name, route) for name, route in names.items()}


def row(world: World, clients: list[Client], name: str, route: str) -> list[str]:
    path, data = world.path(route), DATA.get(name, lambda world: {})(world)
    return ["".join(ask(client, method, path, data) for client in clients) for method in ("get", "post")]


@pytest.mark.parametrize("group", GROUPS)
def test_pages(group, world):
    names = {name: route for name, route in worlds.pages().items() if group_of(route) == group}
    seen = rows(world, names)
    if os.environ.get("WRITE_MATRIX"):
        with (HERE / "pages.new").open("a") as file:
            file.writelines(f"{name:58} {' '.join(cells)}\n" for name, cells in seen.items())
    assert seen == {name: PAGES.get(name, "has no entry in pages.txt") for name in names}


def test_every_page_has_an_entry_and_every_entry_a_page():
    assert set(PAGES) == set(worlds.pages())


def test_a_password_without_its_second_factor_opens_nothing(world):
    boss = world.people["superuser"]
    app = second_factor.begin(boss)
    app.confirmed = True
    app.save()
    client, code = client_of(boss), reverse("admin:second_factor_code")
    for name, route in worlds.pages().items():
        if name not in OPEN:
            for method in ("get", "post"):
                answer = getattr(client, method)(world.path(route))
                assert answer.status_code == 302, (name, method)
                assert answer["Location"].startswith(code), (name, method)


def test_list_actions(world):
    seen = {}
    for model, model_admin in admin.site._registry.items():
        names: dict[str, list[str]] = {}
        for role in ROLES:
            request = RequestFactory().get("/")
            request.user = world.people[role]
            for name in model_admin.get_actions(request) if model_admin.has_view_permission(request) else ():
                names.setdefault(name, []).append(role)
        for name, offered in names.items():
            cells = "".join("o" if role in offered else "x" for role in ROLES)
            seen[f"{model._meta.label_lower}:{name}"] = [cells]
    if os.environ.get("WRITE_MATRIX"):
        (HERE / "actions.new").write_text("".join(f"{name:58} {cells[0]}\n" for name, cells in sorted(seen.items())))
    assert seen == ACTIONS


# --- commands ---------------------------------------------------------------------------------------------

OURS = sorted(name for name, app in get_commands().items() if app in ("accounts", "reminders", "fanout", "config"))


def acts_for_somebody(name: str) -> bool:
    parser = load_command_class("fanout", name).create_parser("manage.py", name)
    return any("--as" in action.option_strings for action in parser._actions)


def test_every_command_has_an_entry():
    """`shell`: whoever has the shell may do it, and no web page calls it. Otherwise: what --as may do, by role."""
    assert sorted(COMMANDS) == OURS
    assert {name for name, (cells,) in COMMANDS.items() if cells != "shell"} == set(filter(acts_for_somebody, OURS))


ARGUMENTS = {
    "cancel": ["{run}"],
    "erase": ["{address}", "--yes"],
    "fire": ["{reminder}"],
    "offload": ["{run}", "{other}"],
    "pause": ["--account", "{account}"],
    "replies": ["{reply}", "--mark", "handled"],
    "resume": ["{run}"],
    "retry_failed": ["{run}"],
    "tune": ["{account}", "--set", "send_burst=2"],
}


@pytest.mark.parametrize("name", [name for name, (cells,) in COMMANDS.items() if cells != "shell"])
def test_commands_act_with_the_rights_of_the_person_named(name, world):
    assert permitted(name, world) == COMMANDS[name][0]


def permitted(name: str, world: World) -> str:
    numbers = {key.split("/")[2]: str(thing.pk) for key, thing in world.things.items() if key.count("/") == 3}
    other = worlds.another_account(world)
    address, reply = world.things["admin/reminders/recipient/"].address, world.things["admin/replies/"].pk
    arguments = [word.format(**numbers, other=other.pk, address=address, reply=reply) for word in ARGUMENTS[name]]
    return "".join(allowed(name, arguments, world.people[role]) for role in ROLES)


def allowed(name: str, arguments: list[str], person: Any) -> str:
    if person.pk is None:
        return "-"  # the command line knows no such person
    with transaction.atomic():
        try:
            call_command(name, *arguments, "--as", person.username)
        except NotDone as problem:
            return "x" if "belongs to another operator" in str(problem) else "o"
        finally:
            transaction.set_rollback(True)
    return "o"
