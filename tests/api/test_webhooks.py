"""Webhook endpoints by the API: their secret once, changes, the log, and addresses that may not be called."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.utils import timezone

from fanout.models import KeptAnswer, TrailEntry, WebhookDelivery, WebhookEndpoint
from fanout.ops import webhooks
from fanout.runs import controls
from tests.api.conftest import Api
from tests.factories import RunFactory
from tests.ops.test_webhooks import OK, Hook, requests, told, until_quiet, verified

pytestmark = pytest.mark.django_db


def test_an_endpoint_is_added_called_rotated_and_deleted(api):
    run = RunFactory.create(reminder__account__owner=api.user, status="running", targets={"pending": 1})
    with Hook(OK) as hook:
        made = api.post("/webhooks", {"url": hook.url, "kinds": ["run.paused"]})
        assert made.status_code == 201
        row, secret = made.json(), made.json()["secret"]
        controls.pause(run, api.user, timezone.now())
        until_quiet()
        ((headers, body),) = requests(hook)
        assert verified(secret, headers, body)
        (delivery,) = api.get(f"/webhooks/{row['id']}/deliveries").json()["items"]
        assert (delivery["state"], delivery["message_id"]) == ("delivered", headers["webhook-id"])
        assert delivery["payload"]["type"] == "run.paused"
        assert api.get(f"/webhooks/{row['id']}/deliveries?state=failed").json()["items"] == []
        again = api.post(f"/webhooks/{row['id']}/deliveries/{delivery['id']}/resend").json()
        assert again["state"] == "pending"
        rotated = api.post(f"/webhooks/{row['id']}/rotate").json()
        assert rotated["secret"] != secret
        until_quiet()
        assert told(hook) == ["run.paused", "run.paused"]
        last_headers, last_body = requests(hook)[-1]
        assert verified(secret, last_headers, last_body)
        assert verified(rotated["secret"], last_headers, last_body)
    for path in ("", f"/{row['id']}"):
        assert b"whsec_" not in api.get(f"/webhooks{path}").content
    assert api("delete", f"/webhooks/{row['id']}").status_code == 200
    assert not WebhookDelivery.objects.exists()
    verbs = TrailEntry.objects.exclude(verb="paused").order_by("pk").values_list("verb", flat=True)
    assert list(verbs) == ["added", "sent webhooks again", "rotated a webhook's secret", "deleted"]


def test_a_secret_is_repeated_for_the_same_key_and_stored_encrypted(api, settings):
    wish = {"url": "http://127.0.0.1:9/", "kinds": ["reply"]}
    first, again = (api.post("/webhooks", wish, Idempotency_Key="a") for _ in range(2))
    assert first.json()["secret"].startswith("whsec_")
    assert (again.status_code, again.json()) == (201, first.json())
    path = f"/webhooks/{first.json()['id']}/rotate"
    rotated, repeated = (api.post(path, Idempotency_Key="b") for _ in range(2))
    assert rotated.json() == repeated.json() != first.json()
    assert WebhookEndpoint.objects.count() == 1
    bodies = list(KeptAnswer.objects.values_list("body", flat=True))
    assert len(bodies) == 2
    assert not [body for body in bodies if "whsec_" in body or "127.0.0.1" in body]
    settings.CREDENTIAL_KEYS = [Fernet.generate_key().decode()]
    unreadable = api.post(path, Idempotency_Key="b")
    assert (unreadable.status_code, unreadable.json()["detail"][:22]) == (409, "This was done already.")


def test_one_that_was_switched_off_starts_anew(api):
    row = WebhookEndpoint.objects.create(
        owner=api.user,
        url="http://127.0.0.1:9/",
        kinds=["reply"],
        enabled=False,
        problem="gone",
        failing_since=timezone.now() - timedelta(days=2),
    )
    changed = api.put(f"/webhooks/{row.pk}", {"enabled": True, "kinds": ["reply", "opt_out", "reply"]}).json()
    assert (changed["enabled"], changed["problem"], changed["failing_since"]) == (True, "", None)
    assert changed["kinds"] == ["reply", "opt_out"]
    assert changed["url"] == row.url


@pytest.mark.parametrize(
    "wish",
    [
        pytest.param({"kinds": []}, id="no events"),
        pytest.param({"kinds": ["run.gone"]}, id="unknown event"),
        pytest.param({"url": "ftp://example.com/"}, id="scheme"),
        pytest.param({"url": "http://169.254.169.254/latest"}, id="metadata"),
        pytest.param({"url": "http://2130706433/"}, id="decimal loopback"),
        pytest.param({"url": "http://0x7f.1/"}, id="hexadecimal loopback"),
        pytest.param({"url": "http://[::ffff:127.0.0.1]/"}, id="mapped loopback"),
        pytest.param({"url": "http://localhost/"}, id="name of this machine"),
        pytest.param({"url": "https://" + "a" * 600}, id="too long"),
        pytest.param({"url": "https://example.com/\u0000"}, id="NUL"),
    ],
)
def test_what_is_refused(api, wish, settings):
    settings.ALLOW_PRIVATE_NETWORKS = []
    answer = api.post("/webhooks", {"url": "https://192.0.2.1/", "kinds": ["reply"]} | wish)
    assert answer.status_code == 422, answer.content
    assert not WebhookEndpoint.objects.exists()


def test_a_person_has_a_limited_number(api, monkeypatch):
    monkeypatch.setattr(webhooks, "MOST_ENDPOINTS", 2)
    wish: dict[str, Any] = {"url": "http://127.0.0.1:9/", "kinds": ["reply"]}
    assert [api.post("/webhooks", wish).status_code for _ in range(3)] == [201, 201, 422]


def test_a_token_of_a_team_adds_for_the_team(operator, team):
    wish = {"url": "http://127.0.0.1:9/", "kinds": ["reply"]}
    made = Api(operator, team=team).post("/webhooks", wish).json()
    assert made["team"] == team.pk
    assert Api(operator, team=team).post("/webhooks", wish | {"team": team.pk + 999}).status_code == 403
    mine = Api(operator).post("/webhooks", wish).json()
    assert Api(operator, team=team).post(f"/webhooks/{mine['id']}/rotate").status_code == 404


def test_a_delivery_belongs_to_its_endpoint(api, colleague):
    theirs = WebhookEndpoint.objects.create(owner=colleague, url="http://127.0.0.1:9/", kinds=["reply"])
    mine = WebhookEndpoint.objects.create(owner=api.user, url="http://127.0.0.1:9/", kinds=["reply"])
    delivery = WebhookDelivery.objects.create(
        endpoint=theirs, message_id="msg_1", kind="reply", payload={}, created_at=timezone.now()
    )
    for endpoint in (mine, theirs):
        assert api.post(f"/webhooks/{endpoint.pk}/deliveries/{delivery.pk}/resend").status_code == 404
