"""`/hooks/<channel>/<token>`: what is authentic is stored once; nothing is stored for the rest."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import threading
import time
from typing import Any

import psycopg
import pytest
from asgiref.testing import ApplicationCommunicator
from django.db import connection
from django.utils import timezone

from accounts.channels.provider_events import Webhook
from accounts.channels.sandbox.webhook import SandboxWebhook, signature
from accounts.models import Account
from config.asgi import application
from fanout.inbound import webhooks, worker
from fanout.inbound.event_store import storing
from fanout.inbound.webhooks import MOST_BYTES, Webhooks
from fanout.models import InboundEvent
from tests.engine.test_processes import until
from tests.factories import AccountFactory
from tests.gateways.captures.cloud import HookCapture, message

pytestmark = pytest.mark.django_db(transaction=True)
KEY = "a shared key"


@pytest.fixture
def account() -> Account:
    made: Account = AccountFactory.create(credentials={"key": KEY})
    made.refresh_from_db()
    return made


def reply(number: int = 1, text: str = "yes") -> dict[str, Any]:
    return {"id": f"ev-{number}", "kind": "reply", "at": time.time(), "from": "+4917612345678", "text": text}


def body_of(*events: dict[str, Any]) -> bytes:
    return json.dumps({"events": events}).encode()


def path_of(account: Account) -> str:
    return f"/hooks/{account.channel}/{account.hook_token}"


async def no_app(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError(f"{scope['path']} went on to Django")


async def ask(
    hooks: Webhooks, path: str, body: bytes = b"", method: str = "POST", query: str = "", **headers: str
) -> int:
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()],
    }
    client = ApplicationCommunicator(hooks, scope)
    # In two pieces, as a network has it.
    await client.send_input({"type": "http.request", "body": body[:10], "more_body": True})
    await client.send_input({"type": "http.request", "body": body[10:], "more_body": False})
    answer = await client.receive_output(timeout=180)
    status: int = answer["status"]
    return status


def post(path: str, *bodies: bytes, key: str = KEY, method: str = "POST", **headers: str) -> list[int]:
    """The answers to requests that come at the same moment."""

    async def together() -> list[int]:
        hooks = Webhooks(no_app)
        asked = [
            ask(hooks, path, body, method, **{"x_sandbox_signature": signature(key, body)} | headers) for body in bodies
        ]
        statuses = list(await asyncio.gather(*asked))
        for database in (hooks.intake.accounts, hooks.intake.events) if hooks.intake else ():
            await database.close()
        return statuses

    return asyncio.run(together())


def test_an_authentic_event_is_stored(account):
    assert post(path_of(account), body_of(reply(text="See you"))) == [200]
    event = InboundEvent.objects.get()
    assert (event.account, event.kind, event.address, event.text) == (account, "reply", "+4917612345678", "See you")
    assert event.state == "new"


def test_a_repeated_delivery_changes_nothing(account):
    body = body_of(reply())
    assert post(path_of(account), body, body, body) == [200] * 3
    assert post(path_of(account), body) == [200]
    assert InboundEvent.objects.count() == 1


def test_one_webhook_for_several_numbers_of_an_app():
    """Meta has one address for an app. The same secret makes a report authentic for its other numbers, too."""

    def number(number: str, business: str = "20400", secret: str = "s") -> Account:
        config = {"phone_number_id": number, "business_account_id": business}
        credentials = {"access_token": "k", "app_secret": secret}
        return AccountFactory.create(channel="cloud", config=config, credentials=credentials)

    first, second, elsewhere = number("10200"), number("10201"), number("10201", secret="another app's")
    stranger = number("10300", business="20500")

    said = message("reply", "text", "text", text={"body": "Yes"}).value
    about_second = said | {"metadata": {"phone_number_id": "10201"}}
    deleted = {"event": "ACCOUNT_DELETED"}
    for field, value in (("messages", about_second), ("account_update", deleted)):
        body = json.dumps(HookCapture("", "", field, value).body()).encode()
        signed = "sha256=" + hmac.new(b"s", body, hashlib.sha256).hexdigest()
        assert post(path_of(first), body, body, x_hub_signature_256=signed) == [200, 200]

    received = {one.pk: sorted(one.inbound_events.values_list("kind", flat=True)) for one in Account.objects.all()}
    assert received == {first.pk: ["session"], second.pk: ["reply", "session"], elsewhere.pk: [], stranger.pk: []}


def test_the_first_report_about_a_number_tells_its_business_account():
    """Until then a ban may be another business account's, and is only noted."""

    def number(**config: str) -> Account:
        credentials = {"access_token": "k", "app_secret": "s"}
        return AccountFactory.create(
            channel="cloud", config={"phone_number_id": "10200"} | config, credentials=credentials
        )

    def report(account: Account, field: str, value: dict[str, Any], business: str) -> None:
        body = HookCapture("", "", field, value).body()
        body["entry"][0]["id"] = business
        raw = json.dumps(body).encode()
        signed = "sha256=" + hmac.new(b"s", raw, hashlib.sha256).hexdigest()
        assert post(path_of(account), raw, x_hub_signature_256=signed) == [200]

    account, entered = number(business_account_id=""), number(business_account_id="7")
    another = number(business_account_id="", phone_number_id="10300")
    report(account, "account_update", {"event": "ACCOUNT_DELETED"}, "999")
    worker.step(timezone.now())
    assert account.inbound_events.get().effect == "noted: it may be about another account"
    account.refresh_from_db()
    assert account.status == "active"
    account.inbound_events.all().delete()
    said = message("reply", "text", "text", text={"body": "Yes"}).value
    report(account, "messages", said, "20400")
    report(account, "account_update", {"event": "ACCOUNT_DELETED"}, "999")

    account.refresh_from_db()
    entered.refresh_from_db()
    another.refresh_from_db()
    assert another.config["business_account_id"] == "", "the report was about one number"
    assert (account.config["business_account_id"], entered.config["business_account_id"]) == ("20400", "7")
    assert not account.inbound_events.filter(kind="session").exists()
    report(account, "account_update", {"event": "ACCOUNT_DELETED"}, "20400")
    assert account.inbound_events.filter(kind="session").count() == 1


# One test for many cases: each test empties the whole database.
REFUSED: dict[str, tuple[dict[str, str], int]] = {
    "forged": ({"key": "another key"}, 403),
    "unsigned": ({"x_sandbox_signature": ""}, 403),
    "strange signature": ({"x_sandbox_signature": "é" * 64}, 403),
    "PUT": ({"method": "PUT"}, 405),
    "GET without a greeting": ({"method": "GET"}, 405),
    "too large, as announced": ({"content_length": str(MOST_BYTES + 1)}, 413),
    "absurdly large": ({"content_length": "9" * 5000}, 413),
}
UNREADABLE: dict[str, tuple[bytes, int]] = {
    "cut off and signed": (body_of(reply())[:-20], 400),
    "no text": (b"\xff\xfe", 400),
    "no object": (b"[]", 400),
    "no event": (b'{"events": [[1]]}', 400),
    "too deep": (b"[" * 100_000, 400),
    "unknown kind": (body_of(reply() | {"kind": "levitation"}), 400),
    "no moment": (body_of(reply() | {"at": 1e300}), 400),
    "too large, unannounced": (body_of(reply(text="x" * MOST_BYTES)), 413),
    "nothing that concerns us": (b'{"events": []}', 200),
}


def test_what_is_refused_or_cannot_be_read_stores_nothing(account):
    path, body = path_of(account), body_of(reply())
    answers = {case: post(path, body, **change)[0] for case, (change, _) in REFUSED.items()}
    assert answers == {case: status for case, (_, status) in REFUSED.items()}
    answers = {case: post(path, body)[0] for case, (body, _) in UNREADABLE.items()}
    assert answers == {case: status for case, (_, status) in UNREADABLE.items()}
    assert not InboundEvent.objects.exists()


def test_a_body_that_was_cut_off_on_its_way_is_not_authentic(account):
    body = body_of(reply())
    assert post(path_of(account), body[:-1], x_sandbox_signature=signature(KEY, body)) == [403]


def test_an_account_without_a_key_accepts_no_request():
    account = AccountFactory.create()
    account.refresh_from_db()
    assert post(path_of(account), body_of(reply()), key="") == [403]


def test_wrong_addresses_get_the_same_response(account):
    smtp = AccountFactory.create(channel="smtp")
    smtp.refresh_from_db()
    strange = ["0", "00000000-0000-4000-8000-000000000000", "%00", "a\x00b", "x" * 5000]
    for path in (
        *(f"/hooks/sandbox/{token}" for token in strange),
        f"/hooks/smtp/{account.hook_token}",
        f"/hooks/smtp/{smtp.hook_token}",
        f"/hooks/no_such/{account.hook_token}",
    ):
        assert post(path, body_of(reply())) == [404], path
    assert not InboundEvent.objects.exists()


def test_a_renewed_address_is_the_only_one(account):
    old = path_of(account)
    account.hook_token = "new-token"
    account.save(update_fields=["hook_token"])
    assert post(old, body_of(reply())) == [404]
    assert post(path_of(account), body_of(reply())) == [200]


def test_a_provider_that_asks_first_is_greeted(account, monkeypatch):
    def greeting(self: Webhook, request: Any, account: Any) -> str | None:
        return str(request.query.get("challenge"))

    monkeypatch.setattr(SandboxWebhook, "greeting", greeting)
    assert post(path_of(account), b"", method="GET") == [200]


def test_other_addresses_go_on_to_django():
    async def reached(path: str) -> None:
        with pytest.raises(AssertionError, match="went on to Django"):
            await Webhooks(no_app)({"type": "http", "path": path}, None, None)  # type: ignore[arg-type]

    for path in ("/", "/hooks/bounces", "/hooks/a/b/c", "/admin/"):
        asyncio.run(reached(path))
    assert isinstance(application, Webhooks)


def test_while_the_database_is_away_the_provider_is_asked_to_come_back(account, monkeypatch):
    async def refuse(*args: Any, **kwargs: Any) -> None:
        raise psycopg.OperationalError("connection refused")

    monkeypatch.setattr(psycopg.AsyncConnection, "connect", refuse)
    assert post(path_of(account), body_of(reply())) == [503]


def test_a_lost_session_loses_no_event(account):
    async def story() -> list[int]:
        hooks, body = Webhooks(no_app), body_of(reply(1))
        first = await ask(hooks, path_of(account), body, x_sandbox_signature=signature(KEY, body))
        assert hooks.intake is not None
        for database in (hooks.intake.accounts, hooks.intake.events):
            assert database.link is not None
            await database.link.close()
        body = body_of(reply(2))
        second = await ask(hooks, path_of(account), body, x_sandbox_signature=signature(KEY, body))
        for database in (hooks.intake.accounts, hooks.intake.events):
            await database.close()
        return [first, second]

    assert asyncio.run(story()) == [200, 200]
    assert InboundEvent.objects.count() == 2


def test_events_that_postgresql_refuses_do_not_keep_out_others(account, monkeypatch):
    def refusing(events: Any, now: Any) -> Any:
        statement, parameters = storing(events, now)
        # As an array: a year that PostgreSQL does not know.
        strange = any(event.key == "ev-2" for _, event in events)
        return statement, parameters | ({"happened_at": ["99999999-01-01"] * len(events)} if strange else {})

    monkeypatch.setattr(webhooks, "storing", refusing)
    assert post(path_of(account), *(body_of(reply(n)) for n in (1, 2, 3))) == [200, 400, 200]
    assert set(InboundEvent.objects.values_list("key", flat=True)) == {"ev-1", "ev-3"}


def test_a_request_has_a_limited_number_of_events(account):
    most = webhooks.MOST_EVENTS
    many = [{"id": f"ev-{n}", "kind": "read", "at": time.time(), "message": "sbx-1"} for n in range(most + 1)]
    assert post(path_of(account), body_of(*many), body_of(*many[:most])) == [413, 200]
    assert InboundEvent.objects.count() == most


def test_a_request_that_takes_long_to_read_does_not_hold_up_the_event_loop(account, monkeypatch):
    """Pages, live streams and other webhooks are served by the same loop."""
    read = SandboxWebhook().parse

    def slowly(self: Any, request: Any, account: Any) -> Any:
        end = time.thread_time() + 1
        while time.thread_time() < end:
            pass
        return read(request, account)

    monkeypatch.setattr(SandboxWebhook, "parse", slowly)
    body = body_of(reply(text="a:\n" * 20_000))
    pauses = []

    async def meanwhile() -> int:
        hooks = Webhooks(no_app)
        asking = asyncio.create_task(ask(hooks, path_of(account), body, x_sandbox_signature=signature(KEY, body)))
        while not asking.done():
            before = time.monotonic()
            await asyncio.sleep(0.01)
            pauses.append(time.monotonic() - before)
        assert hooks.intake is not None
        for database in (hooks.intake.accounts, hooks.intake.events):
            await database.close()
        return await asking

    assert asyncio.run(meanwhile()) == 200
    assert max(pauses) < 0.7
    assert len(pauses) > 20


def test_a_burst_loses_none_and_is_worked_on(account):
    """The short form of benchmarks.webhooks."""
    stop = threading.Event()
    worker = threading.Thread(target=work_until, args=(stop,))
    worker.start()
    read = {"id": "", "kind": "read", "at": time.time(), "message": "sbx-1"}
    statuses = post(path_of(account), *(body_of(read | {"id": f"ev-{n}"}) for n in range(2_000)))
    until(InboundEvent.objects.filter(detail__looks__gt=0).exists)
    stop.set()
    worker.join()
    assert statuses == [200] * 2_000
    assert InboundEvent.objects.count() == 2_000


def work_until(stop: threading.Event) -> None:
    worker.run(30, stop.is_set)
    connection.close()
