"""Every operation for every person, with and without the scope: tests/security/operations.txt has the answers."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import transaction
from django.test import Client

from accounts.models import ApiToken
from fanout.api.conventions import Needs
from fanout.api.site import OPEN, api, urlpatterns
from fanout.models import SingleMessage
from tests.api.conftest import Api
from tests.engine.stage import PNG
from tests.factories import AccountFactory, RunFactory, RunTargetFactory
from tests.security import world as worlds
from tests.security.world import World

pytestmark = pytest.mark.django_db
TABLE = Path(__file__).parents[1] / "security/operations.txt"
#: people with a token; the things belong to the operator and are shared with the team of viewer and colleague
ROLES = ("no role", "viewer", "stranger", "operator", "colleague", "superuser")


def operations() -> dict[str, tuple[str, str, Needs]]:
    """By "METHOD path": the method, the path, and what it needs."""
    found = {}
    for bound in api._get_bound_routers():
        for path, view in bound.path_operations.items():
            for operation in view.operations:
                (needs,) = operation.auth_callbacks
                assert isinstance(needs, Needs), path
                for method in operation.methods:
                    found[f"{method} {bound.prefix}{path}"] = (method.lower(), f"{bound.prefix}{path}", needs)
    return found


def path_of(path: str, world: World) -> str:
    things = {
        "{int:run_id}": world.things["admin/fanout/run/"],
        "{int:account_id}": world.things["admin/accounts/account/"],
        "{int:recipient_id}": world.things["admin/reminders/recipient/"],
        "{int:media_id}": world.things["admin/reminders/mediafile/"],
        "{int:reminder_id}": world.things["admin/reminders/reminder/"],
        "{int:message_id}": world.things["message"],
        "{int:segment_id}": world.things["admin/reminders/segment/"],
        "{int:endpoint_id}": world.things["admin/fanout/webhookendpoint/"],
        "{int:delivery_id}": world.things["admin/fanout/webhookdelivery/"],
    }
    for name, thing in things.items():
        path = path.replace(name, str(thing.pk))
    return path


def bodies(world: World) -> dict[str, Any]:
    account = world.things["admin/accounts/account/"].pk
    recipient = world.things["admin/reminders/recipient/"].pk
    reminder = {"senders": [account], "parts": [{"text": "Hello"}], "audience": {"recipients": [recipient]}}
    return {
        "PUT /accounts/{int:account_id}/pace": {"knobs": {"send_burst": "2"}},
        "POST /recipients": {"address": "120363025246125400@g.us"},
        "POST /recipients/batch": {"recipients": [{"address": "120363025246125400@g.us"}]},
        "POST /recipients/tags": {"recipients": [recipient], "add": ["x"]},
        "POST /recipients/suppress": {"addresses": ["120363025246125400@g.us"]},
        "POST /reminders": reminder,
        "POST /reminders/forecast": reminder,
        "POST /messages": {"account": account, "address": "120363025246125400@g.us", "text": "Hello"},
        "POST /segments": {"name": "Choir", "tags": ["choir"]},
        "POST /webhooks": {"url": "http://127.0.0.1:9/", "kinds": ["reply"]},
        "PUT /webhooks/{int:endpoint_id}": {"url": "http://127.0.0.1:9/"},
        "POST /runs/{int:run_id}/settle": {"targets": [1], "delivered": True},
        "POST /runs/{int:run_id}/offload": {"account": worlds.another_account(world).pk},
    }


def ask(caller: Api, name: str, world: World, wishes: dict[str, Any]) -> str:
    method, path, _ = operations()[name]
    with transaction.atomic():
        if name == "POST /media":
            file = {"file": SimpleUploadedFile("a.png", PNG)}
            headers = {"Authorization": f"Bearer {caller.secret}"}
            answer: Any = caller.client.post("/api/v1/media", file, headers=headers)
        else:
            answer = caller(method, path_of(path, world), wishes.get(name, {}) if method != "get" else None)
        for close in getattr(answer, "_resource_closers", ()):
            close()
        transaction.set_rollback(True)
    return {200: "o", 201: "o", 202: "o", 409: "o", 403: "x", 404: "-", 422: "?"}[answer.status_code]


@pytest.fixture
def world() -> World:
    world = worlds.build()
    reminder = world.things["admin/reminders/reminder/"]
    facts = {"owner": reminder.owner, "team": reminder.team, "account": reminder.account}
    recipient = world.things["admin/reminders/recipient/"]
    world.things["message"] = SingleMessage.objects.create(
        **facts, recipient=recipient, key="k", timezone="UTC", accepted_at=reminder.created_at
    )
    return world


def test_every_operation_for_every_role(world):
    wishes, callers = bodies(world), [Api(world.people[role]) for role in ROLES]
    seen = {name: "".join(ask(caller, name, world, wishes) for caller in callers) for name in operations()}
    if os.environ.get("WRITE_MATRIX"):
        TABLE.with_suffix(".new").write_text("".join(f"{cells} {name}\n" for name, cells in sorted(seen.items())))
    lines = [line.split(" ", 1) for line in TABLE.read_text().splitlines() if line.strip() and line[0] != "#"]
    assert seen == {name: cells for cells, name in lines}


def test_no_operation_without_its_scope(world):
    wishes, operator = bodies(world), world.people["operator"]
    without = {scope: Api(operator, [one for one in ApiToken.Scope.values if one != scope]) for scope in ApiToken.Scope}
    for name, (_, _, needs) in operations().items():
        assert ask(without[needs.scope], name, world, wishes) == "x", name


def test_a_token_of_another_team_finds_nothing(world):
    operator, wishes = world.people["operator"], bodies(world)
    other = worlds.TeamFactory.create()
    operator.groups.add(other)
    caller = Api(operator, team=other)
    for name, (_, path, _) in operations().items():
        if "{" in path:
            assert ask(caller, name, world, wishes) == "-", name


def test_a_token_of_another_team_reaches_nothing_by_a_body(world):
    operator, things = world.people["operator"], world.things
    other = worlds.TeamFactory.create()
    operator.groups.add(other)
    caller, own = Api(operator, team=other), AccountFactory.create(owner=operator, team=other)
    account, recipient = things["admin/accounts/account/"], things["admin/reminders/recipient/"]
    recipient.tags = ["choir"]
    recipient.save()
    file = [{"media": things["admin/reminders/mediafile/"].pk}]
    reminder: dict[str, Any] = {"senders": [own.pk], "parts": [{"text": "Hello"}]}
    refused: list[tuple[str, dict[str, Any], str]] = [
        ("POST /messages", {"account": account.pk, "address": "120363025246125400@g.us", "text": "Hello"}, "-"),
        ("POST /messages", {"account": own.pk, "address": recipient.address, "text": "Hello"}, "?"),
        ("POST /messages", {"account": own.pk, "address": "120363025246125400@g.us", "parts": file}, "-"),
        ("POST /recipients", {"address": recipient.address}, "?"),
        ("POST /segments", {"name": "A", "not_replied_to": things["admin/reminders/reminder/"].pk}, "-"),
        ("POST /segments", {"name": "A", "tags": ["choir"], "team": recipient.team_id}, "x"),
        ("POST /webhooks", {"url": "http://127.0.0.1:9/", "kinds": ["reply"], "team": recipient.team_id}, "x"),
    ]
    for name in ("POST /reminders", "POST /reminders/forecast"):
        refused += [
            (name, reminder | {"senders": [account.pk]}, "-"),
            (name, reminder | {"senders": [own.pk, account.pk]}, "-"),
            (name, reminder | {"audience": {"recipients": [recipient.pk]}}, "?"),
            (name, reminder | {"audience": {"addresses": [recipient.address]}}, "?"),
            (name, reminder | {"audience": {"segment": things["admin/reminders/segment/"].pk}}, "-"),
            (name, reminder | {"parts": file}, "-"),
            (name, reminder | {"reply_parts": file}, "-"),
            (name, reminder | {"follow_ups": [{"days": 1, "parts": file}]}, "-"),
            (name, reminder | {"team": recipient.team_id}, "x"),
        ]
    for name, wish, cell in refused:
        assert ask(caller, name, world, {name: wish}) == cell, (name, wish)
    draft = caller.post("/reminders/forecast", reminder | {"audience": {"tags": ["choir"]}}).json()
    assert draft["targets"] == 0
    assert caller.post("/recipients/batch", {"recipients": [{"address": recipient.address}]}).json()["refused"] == 1
    tagged = caller.post("/recipients/tags", {"recipients": [recipient.pk], "add": ["x"], "remove": ["choir"]})
    assert tagged.json() == {"tagged": 0, "untagged": 0}
    run = RunFactory.create(
        reminder__account=own, team=other, status="paused", pause_reason="operator", targets={"pending": 1}
    )
    assert caller.post(f"/runs/{run.pk}/offload", {"account": account.pk}).status_code == 404
    theirs = RunTargetFactory.create(run=things["admin/fanout/run/"], status="unconfirmed")
    caller.post(f"/runs/{run.pk}/settle", {"targets": [theirs.pk], "delivered": True})
    theirs.refresh_from_db()
    assert theirs.status == "unconfirmed"


def test_sessions_and_visitors_get_401_everywhere(world):
    clients = [Client(), Client()]
    clients[1].force_login(world.people["superuser"])
    for method, path, _ in operations().values():
        for client in clients:
            content = {} if method == "get" else {"data": json.dumps({}), "content_type": "application/json"}
            answer: Any = getattr(client, method)(f"/api/v1{path_of(path, world)}", **content)
            assert answer.status_code == 401, path
    assert {route.name for route in urlpatterns if route.name in OPEN} == OPEN
