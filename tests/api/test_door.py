"""Tokens, limits, repeated calls, problems and pages: what all operations share."""

from __future__ import annotations

import re
import threading
from datetime import timedelta
from functools import partial
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test.client import FakePayload, encode_multipart
from django.urls import reverse
from django.utils import timezone

from accounts import tokens
from accounts.access import OPERATORS
from accounts.models import ApiToken, TokenGuess
from fanout.database import conninfo
from fanout.models import KeptAnswer, Run, TrailEntry
from fanout.ops.tasks import hygiene
from tests.admin.conftest import login
from tests.api.conftest import Api
from tests.channels.mail_server import wait_until
from tests.engine.stage import PNG
from tests.factories import AccountFactory, ReminderFactory, RunFactory

pytestmark = pytest.mark.django_db
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


def test_without_a_token_there_is_nothing(client, operator):
    answer = client.get("/api/v1/runs")
    assert answer.status_code == 401
    assert answer["Content-Type"] == "application/problem+json"
    assert "Bearer" in answer["WWW-Authenticate"]
    assert login(operator).get("/api/v1/runs").status_code == 401, "a session is no token"


def test_a_token_is_stored_hashed_and_works_until_it_is_revoked_or_expires(api):
    assert api.secret not in str(ApiToken.objects.values().get())
    assert api.get("/runs").status_code == 200
    token = ApiToken.objects.get()
    assert token.last_used_at is not None
    assert token.last_used_from == "127.0.0.1"
    ApiToken.objects.update(expires_at=timezone.now())
    assert api.get("/runs").status_code == 401
    ApiToken.objects.update(expires_at=None)
    assert tokens.revoke(token, timezone.now())
    assert api.get("/runs").status_code == 401


def test_a_person_who_may_not_log_in_has_no_calls(api):
    api.user.is_active = False
    api.user.save(update_fields=["is_active"])
    assert api.get("/runs").status_code == 401


def test_unknown_tokens_are_throttled_and_right_ones_still_work(api, client):
    for _ in range(tokens.MOST_GUESSES):
        assert client.get("/api/v1/runs", headers={"Authorization": "Bearer crier_x"}).status_code == 401
    answer = client.get("/api/v1/runs", headers={"Authorization": "Bearer crier_x"})
    assert answer.status_code == 429
    assert int(answer["Retry-After"]) > 0
    assert api.get("/runs").status_code == 200
    TokenGuess.objects.update(since=timezone.now() - tokens.GUESSES_FOR)
    assert client.get("/api/v1/runs", headers={"Authorization": "Bearer crier_x"}).status_code == 401


def test_a_token_has_a_rate_limit_and_says_so(api, settings):
    settings.API_CALLS_PER_MINUTE = 2
    ApiToken.objects.update(minute=timezone.now().replace(second=0, microsecond=0))
    left = [api.get("/runs") for _ in range(3)]
    assert [answer.status_code for answer in left] == [200, 200, 429]
    assert [answer["RateLimit-Remaining"] for answer in left] == ["1", "0", "0"]
    assert left[2]["Retry-After"] == left[2]["RateLimit-Reset"]


def test_scopes(operator):
    reading = Api(operator, ["read"])
    run = RunFactory.create(reminder__account__owner=operator, status="running", targets={"pending": 1})
    assert reading.get(f"/runs/{run.pk}").status_code == 200
    answer = reading.post(f"/runs/{run.pk}/pause")
    assert answer.status_code == 403
    assert "scope “send”" in answer.json()["detail"]
    assert Api(operator, ["send"]).get(f"/runs/{run.pk}").status_code == 403


def test_a_token_of_a_team_sees_only_what_the_team_has(operator, team):
    own = RunFactory.create(reminder__account__owner=operator)
    shared = RunFactory.create(reminder__account__owner=operator, team=team)
    api = Api(operator, team=team)
    assert [run["id"] for run in api.get("/runs").json()["items"]] == [shared.pk]
    assert api.get(f"/runs/{own.pk}").status_code == 404


def test_a_token_of_a_team_that_the_person_has_left_does_nothing(operator, team):
    api = Api(operator, team=team)
    assert api.get("/runs").status_code == 200
    operator.groups.remove(team)
    answer = api.post("/recipients", {"address": "+4915112345678"})
    assert answer.status_code == 403
    assert "no longer a member" in answer.json()["detail"]


@pytest.mark.parametrize("lost", ["token", "role", "login", "team"])
def test_a_download_ends_when_its_token_may_not_read_on(operator, team, lost):
    api = Api(operator, team=team)
    run = RunFactory.create(reminder__account__owner=operator, team=team, status="success", targets={"sent": 1_200})
    path = f"/runs/{run.pk}/targets.csv"
    assert len(list(api.get(path).streaming_content)) > 1_000
    lines = iter(api.get(path).streaming_content)
    assert next(lines).startswith(b"position")
    if lost == "token":
        tokens.revoke(api.token, timezone.now())
    elif lost == "login":
        User.objects.filter(pk=operator.pk).update(is_active=False)
    else:
        operator.groups.remove(team if lost == "team" else Group.objects.get(name=OPERATORS))
    with pytest.raises(PermissionError):
        list(lines)
    assert api.get(path).status_code == (401 if lost in ("token", "login") else 403)


def test_the_audit_trail_names_the_token(api):
    run = RunFactory.create(reminder__account__owner=api.user, status="running", targets={"pending": 1})
    assert api.post(f"/runs/{run.pk}/pause").status_code == 200
    entry = TrailEntry.objects.latest("pk")
    assert (entry.verb, entry.actor_name, entry.address) == ("paused", "mei (token n8n)", "127.0.0.1")


def test_calls_pass_no_middleware_of_pages_and_keep_what_it_protects(api, client):
    answer = api.get("/runs")
    assert answer["X-Frame-Options"] == "DENY"
    assert answer["Content-Security-Policy"].startswith("default-src 'none'")
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert not answer.cookies
    assert not hasattr(answer.wsgi_request, "session")
    assert api.get("/runs", Host="elsewhere.example").status_code == 400
    assert api.get("/runs?status=a%00b").status_code == 400


def test_wrong_addresses_and_methods_are_problems_too(api, client):
    for answer, status in (
        (client.get("/api/v1/nothing"), 404),
        (api("delete", "/runs"), 405),
        (api.post("/messages", []), 422),
    ):
        assert (answer.status_code, answer["Content-Type"]) == (status, "application/problem+json")
        assert answer.json()["status"] == status
    assert api("delete", "/runs")["Allow"] == "GET"
    bearer = {"Authorization": f"Bearer {api.secret}"}
    answer = api.client.generic("POST", "/api/v1/messages", b"", "application/json", headers=bearer)
    assert [one["field"] for one in answer.json()["errors"]] == ["body"], answer.content


class CutOff(FakePayload):
    def read(self, size: int | None = None) -> bytes:
        raise OSError("the client has gone")


def test_requests_that_cannot_be_read_are_problems_too(api):
    account = AccountFactory.create(owner=api.user)
    bearer = {"Authorization": f"Bearer {api.secret}"}
    path = f"/api/v1/accounts/{account.pk}/pause"
    answer = api.client.generic("POST", path, '{"reason": "\\ud800"}', "application/json", headers=bearer)
    assert (answer.status_code, [one["field"] for one in answer.json()["errors"]]) == (422, ["reason"]), answer.content
    cut_off = {"wsgi.input": CutOff(b"{}"), "CONTENT_LENGTH": "2"}
    for answer in (
        api.get("/runs?" + "&".join(f"p{n}=1" for n in range(settings.DATA_UPLOAD_MAX_NUMBER_FIELDS + 1))),
        api.client.generic("POST", "/api/v1/media", b"x", "multipart/form-data", headers=bearer),
        api.client.generic("POST", "/api/v1/messages", b"{}", "application/json", headers=bearer, **cut_off),
    ):
        assert (answer.status_code, answer["Content-Type"]) == (400, "application/problem+json"), answer.content
        assert "cannot be read" in answer.json()["detail"]


def test_a_bug_is_a_problem_too(api, monkeypatch):
    def broken(*args, **kwargs):
        raise RuntimeError("a bug")

    monkeypatch.setattr("fanout.api.accounts.page_of", broken)
    api.client.raise_request_exception = False
    answer = api.get("/accounts")
    assert (answer.status_code, answer["Content-Type"]) == (500, "application/problem+json")
    assert "a bug" not in answer.content.decode()


# --- the same POST twice ----------------------------------------------------------------------------------------


def test_a_repeated_post_gets_the_first_answer_and_does_nothing(api):
    account = AccountFactory.create(owner=api.user)
    path = f"/accounts/{account.pk}/pause"
    first = api.post(path, Idempotency_Key="one")
    again = api.post(path, Idempotency_Key="one")
    assert first.status_code == again.status_code == 200
    assert first.content == again.content
    assert again["Idempotent-Replayed"] == "true"
    assert TrailEntry.objects.filter(verb="paused").count() == 1
    other = api.post(path, {"reason": "another"}, Idempotency_Key="one")
    assert other.status_code == 422
    assert "another request" in other.json()["detail"]
    assert api.post(path, Idempotency_Key="two").status_code == 409, "paused already"


def test_a_refused_post_may_be_tried_again_with_its_key(api):
    run = RunFactory.create(reminder__account__owner=api.user, status="success", targets={"sent": 1})
    for path in ("pause", "cancel"):
        assert api.post(f"/runs/{run.pk}/{path}", Idempotency_Key=path).status_code == 409
    assert not KeptAnswer.objects.exists()


def test_keys_belong_to_a_token_and_last_a_day(api, colleague):
    account = AccountFactory.create(owner=api.user)
    api.post(f"/accounts/{account.pk}/pause", Idempotency_Key="one")
    assert Api(colleague).post(f"/accounts/{account.pk}/pause", Idempotency_Key="one").status_code == 404
    KeptAnswer.objects.update(began_at=timezone.now() - timedelta(hours=25))
    hygiene()
    assert not KeptAnswer.objects.exists()


def test_a_call_that_lost_its_process_may_be_repeated(api):
    run = RunFactory.create(reminder__account__owner=api.user, status="running", targets={"pending": 1})
    path = f"/runs/{run.pk}/cancel"
    api.post(path, Idempotency_Key="one")
    KeptAnswer.objects.update(status=None)
    assert api.post(path, Idempotency_Key="one").status_code == 409, "under way"
    KeptAnswer.objects.update(began_at=timezone.now() - timedelta(minutes=3))
    assert "canceled already" in api.post(path, Idempotency_Key="one").json()["detail"]


@pytest.mark.django_db(transaction=True)
def test_a_control_that_met_a_locked_row_gives_its_key_back(transactional_db, api):
    run = RunFactory.create(reminder__account__owner=api.user, status="running", targets={"pending": 1})
    path = f"/runs/{run.pk}/cancel"
    with psycopg.connect(conninfo(connection.settings_dict)) as stuck, connection.cursor() as cursor:
        stuck.execute("SELECT 1 FROM fanout_run WHERE id = %s FOR UPDATE", [run.pk])
        cursor.execute("SET lock_timeout = '50ms'")
        assert api.post(path, Idempotency_Key="one").status_code == 503
        cursor.execute("RESET lock_timeout")
    assert api.post(path, Idempotency_Key="one").status_code == 200


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("operation", "outcomes"),
    [
        # the second call waits for the first, whose answer is stored in the same transaction
        pytest.param("accounts/{account}/pause", [(200, False), (200, True)], id="one transaction"),
        pytest.param("runs/{run}/pause", [(200, False), (200, True)], id="a run in one transaction"),
        # the claim of the first is committed, so the second is told to come back
        pytest.param("runs/{run}/cancel", [(200, False), (409, False)], id="in chunks"),
    ],
)
def test_two_calls_with_the_same_key_at_the_same_moment(transactional_db, api, operation, outcomes):
    run = RunFactory.create(reminder__account__owner=api.user, status="running", targets={"pending": 1})
    path = "/" + operation.format(account=run.account_id, run=run.pk)
    answers: list[Any] = []

    def call() -> None:
        try:
            answers.append(api.post(path, Idempotency_Key="one"))
        finally:
            connection.close()

    info = conninfo(connection.settings_dict)
    threads = [threading.Thread(target=call) for _ in range(2)]
    with psycopg.connect(info) as holder, psycopg.connect(info, autocommit=True) as watcher:
        for table, pk in (("accounts_account", run.account_id), ("fanout_run", run.pk)):
            holder.execute(f"SELECT 1 FROM {table} WHERE id = %s FOR UPDATE", [pk])
        for n, thread in enumerate(threads, start=1):
            thread.start()
            wait_until(partial(_have_come, watcher, answers, n))
        holder.rollback()
        for thread in threads:
            thread.join(30)
    seen = sorted((answer.status_code, "Idempotent-Replayed" in answer) for answer in answers)
    assert seen == outcomes
    assert len({answer.content for answer in answers if answer.status_code == 200}) == 1
    verb = "canceled" if "cancel" in operation else "paused"
    assert TrailEntry.objects.filter(verb=verb).count() == 1


def _have_come(watcher: psycopg.Connection[Any], answers: list[Any], calls: int) -> bool:
    """Return whether so many calls wait for a lock or were answered."""
    ((waiting,),) = watcher.execute(WAITING).fetchall()
    return bool(waiting + len(answers) >= calls)


def test_uploads_need_no_key(api):
    """The same file is stored once. Its body is larger than that of other calls may be, and differs by its boundary."""
    content = PNG + bytes(settings.DATA_UPLOAD_MAX_MEMORY_SIZE)
    ids = set()
    for boundary in ("one", "two"):
        body = encode_multipart(boundary, {"file": SimpleUploadedFile("poster.png", content)})
        headers = {"Authorization": f"Bearer {api.secret}", "Idempotency-Key": "one"}
        kind = f"multipart/form-data; boundary={boundary}"
        answer = api.client.generic("POST", "/api/v1/media", body, kind, headers=headers)
        assert answer.status_code == 200, answer.content
        ids.add(answer.json()["id"])
    assert len(ids) == 1


def test_a_key_holds_whatever_type_the_body_is_said_to_have(api):
    account = AccountFactory.create(owner=api.user)
    headers = {"Authorization": f"Bearer {api.secret}", "Idempotency-Key": "one"}
    for kind in ("multipart/form-data", "multipart/form-data; boundary=x", "text/plain", "application/json"):
        path = f"/api/v1/accounts/{account.pk}/pause"
        assert api.client.generic("POST", path, "{}", kind, headers=headers).status_code == 200, kind
    assert TrailEntry.objects.filter(verb="paused").count() == 1


# --- problems, pages, ETag --------------------------------------------------------------------------------------


def test_problems_name_the_field(api):
    account = AccountFactory.create(owner=api.user)
    answer = api.put(f"/accounts/{account.pk}/pace", {"knobs": {"send_burst": "many"}})
    assert answer.status_code == 422
    assert answer["Content-Type"] == "application/problem+json"
    answer = api.get("/runs?limit=0&status=gone").json()
    assert {problem["field"] for problem in answer["errors"]} >= {"limit"}
    assert api.get("/runs/999999").json()["detail"] == "There is no run 999999."
    assert api.get("/runs/99999999999999999999").status_code == 404
    assert api.post(f"/accounts/{account.pk}/pause", {"reason": "a\x00b"}).status_code == 422
    assert api("post", f"/accounts/{account.pk}/pause", None).status_code == 400, "no body"


def test_pages_do_not_move_while_rows_are_added(api):
    reminder = ReminderFactory.create(account__owner=api.user)
    for n in range(5):
        RunFactory.create(reminder=reminder, scheduled_for=timezone.now() + timedelta(minutes=n))
    first = api.get("/runs?limit=2").json()
    RunFactory.create(reminder=reminder)
    second = api.get(f"/runs?limit=2&cursor={first['next']}").json()
    third = api.get(f"/runs?limit=2&cursor={second['next']}").json()
    seen = [run["id"] for page in (first, second, third) for run in page["items"]]
    assert seen == sorted(Run.objects.order_by("pk").values_list("pk", flat=True)[:5], reverse=True)
    assert third["next"] is None
    for wrong in ("x", "WyJhIl0", "W10", "WzEsMl0", "~~~"):
        assert api.get(f"/runs?cursor={wrong}").status_code == 422


def test_a_list_that_has_not_changed_is_304(api):
    RunFactory.create(reminder__account__owner=api.user)
    first = api.get("/runs")
    same = api.get("/runs", If_None_Match=first["ETag"])
    assert (same.status_code, same.content) == (304, b"")
    assert api.get("/runs", If_None_Match="*").status_code == 304
    assert api.get("/runs/999999", If_None_Match="*").status_code == 404
    Run.objects.update(title="changed")
    assert api.get("/runs", If_None_Match=first["ETag"]).status_code == 200


def test_the_documentation_is_open_and_served_by_us(client):
    document = client.get("/api/v1/openapi.json").json()
    assert document["info"]["title"] == "Crier"
    assert "/api/v1/runs" in document["paths"]
    page = client.get(reverse("api:openapi-view"))
    assert page.status_code == 200
    assert "script-src 'self'" in page["Content-Security-Policy"]
    assert b"http://" not in page.content
    assert b"<script" not in page.content
    words = page.content.decode()
    for path, operations in document["paths"].items():
        for method in operations:
            assert f"<b>{method.upper()}</b> {path}<" in words
    for link in set(re.findall(r'href="#([^"]+)"', words)):
        assert f'id="{link}"' in words, link


# --- the page ---------------------------------------------------------------------------------------------------


def test_a_person_makes_a_token_sees_it_once_and_revokes_it(operator, client):
    page = login(operator)
    answer = page.post(reverse("admin:my_tokens"), {"name": "n8n", "scopes": ["read", "send"], "expires_on": ""})
    token = ApiToken.objects.get()
    secret = next(word for word in answer.content.decode().split('"') if word.startswith(tokens.PREFIX))
    assert client.get("/api/v1/runs", headers={"Authorization": f"Bearer {secret}"}).status_code == 200
    assert secret not in page.get(reverse("admin:my_tokens")).content.decode()
    page.post(reverse("admin:my_tokens"), {"revoke": token.pk})
    assert client.get("/api/v1/runs", headers={"Authorization": f"Bearer {secret}"}).status_code == 401
    verbs = list(TrailEntry.objects.order_by("pk").values_list("verb", flat=True))
    assert verbs[-2:] == ["made an API token", "revoked an API token"]


def test_administrators_revoke_others_tokens_and_others_do_not(operator, colleague, boss):
    Api(operator)
    token = ApiToken.objects.get()
    page = reverse("admin:tokens", args=[operator.pk])
    assert login(colleague).post(page, {"revoke": token.pk}).status_code == 403
    assert login(colleague).post(reverse("admin:my_tokens"), {"revoke": token.pk}).status_code == 404
    assert login(boss).post(page, {"name": "mine", "scopes": ["read"]}).status_code == 200
    assert ApiToken.objects.count() == 1, "no token in another person's name"
    login(boss).post(page, {"revoke": token.pk})
    assert ApiToken.objects.get().revoked_at is not None
