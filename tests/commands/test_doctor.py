"""`manage.py doctor`: each check with a healthy and a broken installation."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import timedelta
from threading import Thread
from wsgiref.simple_server import WSGIRequestHandler, make_server

import psycopg
import pytest
from cryptography.fernet import Fernet
from django.core.wsgi import get_wsgi_application
from django.db import connection
from django.utils import timezone

from fanout.database import conninfo
from fanout.inbound import worker
from fanout.models import Activity
from fanout.ops import diagnosis, tasks
from reminders.models import Suppression
from tests.commands.calling import data, not_done
from tests.engine.test_storing import RESULTS, Fault
from tests.factories import (
    AccountFactory,
    ClusterBeatFactory,
    DriverFactory,
    InboundEventFactory,
    ReminderFactory,
    RunFactory,
    RunTargetFactory,
)

pytestmark = pytest.mark.django_db


# --- doctor -------------------------------------------------------------------------------------------------


def test_a_healthy_crier(settings):
    settings.EMBEDDED_DATABASE = True  # also with TEST_DATABASE_URL: the suite's settings are those of one machine
    for cluster in ("main", "drivers"):
        ClusterBeatFactory(cluster=cluster)
    DriverFactory()
    tasks.ensure_schedules()
    with worker.worker_lock():
        checks = data("doctor")["checks"]
    assert checks
    assert [check for check in checks if check["state"] != "ok"] == []
    assert len(checks) == len(diagnosis.LOOKS)


def test_an_old_postgres_is_named(monkeypatch):
    assert diagnosis.database().state == diagnosis.OK
    monkeypatch.setattr(diagnosis, "OLDEST_POSTGRES", 990_000)
    verdict = diagnosis.database()
    assert (verdict.state, verdict.hint) == (diagnosis.FAILED, "Crier needs PostgreSQL 14 or newer")


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        pytest.param({"state": "new", "came_at": timezone.now() - timedelta(minutes=5)}, "waiting", id="behind"),
        pytest.param({"state": "failed"}, "1 reports of the last day could not be worked on", id="failed"),
    ],
)
def test_reports_that_are_not_worked_on_are_found(fields, says):
    InboundEventFactory(**fields)
    with worker.worker_lock():
        verdict = diagnosis.inbound()
    assert (verdict.state, says in verdict.text) == (diagnosis.WARNING, True)


def test_a_sick_crier_says_what_to_do():
    AccountFactory(config={"url": "http://127.0.0.1:1"}, label="Line")
    assert not_done("doctor") == "Failing checks: clusters, drivers, inbound, schedules, accounts."
    verdicts = {verdict.name: verdict for verdict in diagnosis.examine()}
    assert "make up" in verdicts["clusters"].hint
    assert verdicts["accounts"].text.startswith("Line: ")


def test_credentials_that_no_key_opens_are_found(settings):
    AccountFactory(credentials={"key": "x"}, label="Line")
    settings.CREDENTIAL_KEYS = [Fernet.generate_key().decode()]
    assert "No key in CREDENTIAL_KEYS" in diagnosis.accounts().text


def test_a_rate_of_the_environment_that_is_too_fast_for_a_gateway_is_found(settings):
    AccountFactory(channel="waha", label="Gateway")
    AccountFactory(channel="waha", label="Slow", max_send_per_minute=20)
    AccountFactory(channel="smtp", label="Mail")
    assert diagnosis.paces().state == diagnosis.OK
    settings.BOT = settings.BOT | {"max_send_per_minute": 40}
    verdict = diagnosis.paces()
    assert verdict.state == diagnosis.WARNING
    assert verdict.text.startswith("1 account (Gateway): A WAHA")
    assert "these settings give 1.5 s" in verdict.text


def test_locks_need_room(settings):
    settings.BOT_FIRE_CONCURRENCY = 10_000_000
    assert diagnosis.locks().state == diagnosis.FAILED


def test_all_processes_can_be_connected_at_once(settings):
    settings.WEB_THREADS, settings.DRIVER_SLOTS = 10, 2
    assert diagnosis.connections_needed({"main": 1, "drivers": 3}, has_bridge=True) == {
        "web": 17,
        "main": 9,
        "drivers": 33,
        "up": 1,
        "bridge": 3,
    }
    verdict = diagnosis.connections()
    assert (verdict.state, verdict.hint) == (diagnosis.OK, "")
    assert verdict.text.startswith("38 of ")
    # Machines that are known by their beats; one that is silent does not count.
    for host in ("one", "two"):
        ClusterBeatFactory(cluster="main", host=host)
    ClusterBeatFactory(cluster="drivers", host="two")
    ClusterBeatFactory(cluster="drivers", host="three", beat_at=timezone.now() - timedelta(minutes=5))
    assert diagnosis.connections().text.startswith("65 of ")


def test_too_few_connections_are_said_with_what_to_do(settings):
    with connection.cursor() as cursor:
        cursor.execute("SHOW max_connections")
        settings.WEB_THREADS = int(cursor.fetchone()[0])
    verdict = diagnosis.connections()
    assert verdict.state == diagnosis.WARNING
    assert f"web {settings.WEB_THREADS + 7}, main 9, drivers 11, up 1, bridge 0" in verdict.text
    assert "raise max_connections" in verdict.hint
    assert "WEB_THREADS" in verdict.hint


@pytest.mark.parametrize(
    ("fields", "state", "says"),
    [
        pytest.param({}, "ok", "1 switched on", id="fine"),
        pytest.param({"next_fire_at": timezone.now() - timedelta(minutes=5)}, "failed", "1 overdue", id="overdue"),
        pytest.param({"enabled": False, "firing_problem": "?"}, "warning", "1 set aside: “Rent”", id="set-aside"),
        pytest.param({"enabled": False, "archived": True, "firing_problem": "?"}, "ok", "0 switched on", id="archived"),
        pytest.param({"enabled": False, "next_fire_at": timezone.now() - timedelta(days=5)}, "ok", "0", id="off"),
    ],
)
def test_reminders_that_are_not_fired_are_said(fields, state, says):
    ReminderFactory.create(title="Rent", **fields)
    verdict = diagnosis.reminders()
    assert (verdict.state, says in verdict.text) == (state, True)


def test_locks_need_room_for_the_lanes_of_other_machines_too():
    assert diagnosis.locks().state == diagnosis.OK
    DriverFactory.create(host="another", lanes=10_000_000, beat_at=timezone.now())
    assert diagnosis.locks().state == diagnosis.FAILED


@pytest.mark.django_db(transaction=True)
def test_doctor_names_a_session_that_stands_still_in_a_transaction(monkeypatch):
    monkeypatch.setattr(diagnosis, "STUCK_AFTER", timedelta(0))
    run = RunFactory.create()
    assert diagnosis.stuck_clients().state == diagnosis.OK
    with psycopg.connect(conninfo(connection.settings_dict), application_name="a shell") as stuck:
        stuck.execute("SELECT 1 FROM fanout_run WHERE id = %s FOR UPDATE", [run.pk])
        verdict = diagnosis.stuck_clients()
        assert (verdict.state, "a shell" in verdict.text) == (diagnosis.WARNING, True)
        assert str(stuck.info.backend_pid) in verdict.hint


@pytest.mark.parametrize(
    ("seconds", "fault", "says"),
    [
        pytest.param(29, None, "what providers answered is stored", id="under way"),
        pytest.param(
            31, None, "result of 1 message, and nothing more is sent until it does: it would take it now", id="late"
        ),
        pytest.param(31, Fault(RESULTS), "until it does: No space left on device", id="full disk"),
    ],
)
def test_doctor_says_why_results_are_not_stored(seconds: int, fault: Fault | None, says: str):
    claimed_at = timezone.now() - timedelta(seconds=seconds)
    target = RunTargetFactory.create(status="sending", claim_epoch=1, claimed_at=claimed_at)
    if fault:
        fault.begin()
    verdict = diagnosis.results()
    assert says in verdict.text
    assert (verdict.state, bool(verdict.hint)) == ((diagnosis.FAILED, True) if seconds > 30 else (diagnosis.OK, False))
    target.refresh_from_db()
    assert (target.status, Activity.objects.count()) == ("sending", 0)


# --- unsubscribe links --------------------------------------------------------------------------------------


class Quiet(WSGIRequestHandler):
    def log_message(self, *words):
        pass


@contextmanager
def site(application):
    """A web server with this application; yields its address."""
    with make_server("127.0.0.1", 0, application, handler_class=Quiet) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def answering(status, page=b""):
    def application(environ, start_response):
        start_response(status, [("Content-Type", "text/html")])
        return [page]

    return application


def test_a_link_is_opened_through_the_public_address(settings):
    settings.HTTPS = settings.SECURE_SSL_REDIRECT = False
    with site(get_wsgi_application()) as settings.PUBLIC_URL:
        settings.ALLOWED_HOSTS = ["127.0.0.1"]
        assert diagnosis.links().state == diagnosis.OK, diagnosis.links()
        settings.ALLOWED_HOSTS = ["elsewhere.example"]
        verdict = diagnosis.links()
    assert (verdict.state, "answers 400" in verdict.text) == (diagnosis.FAILED, True)
    assert not Suppression.objects.exists()


@pytest.mark.parametrize(
    ("application", "state", "says"),
    [
        pytest.param(answering("404 Not Found"), "failed", "answers 404", id="another-key"),
        pytest.param(answering("403 Forbidden"), "failed", "answers 403", id="a-login-in-front"),
        pytest.param(answering("200 OK", b"Welcome"), "failed", "shows another page", id="another-site"),
    ],
)
def test_links_that_do_not_work(settings, application, state, says):
    with site(application) as settings.PUBLIC_URL:
        verdict = diagnosis.links()
    assert (verdict.state, says in verdict.text) == (state, True)
    assert verdict.hint


def test_a_public_address_that_is_not_reached_is_a_warning(settings):
    settings.PUBLIC_URL = "http://127.0.0.1:1"
    assert "cannot be reached" in diagnosis.links().text


def test_mails_without_links_are_a_warning():
    assert diagnosis.links().state == diagnosis.OK
    AccountFactory(channel="smtp", address="m@example.com", config={"host": "mail.example.com"})
    verdict = diagnosis.links()
    assert (verdict.state, "PUBLIC_URL" in verdict.hint) == (diagnosis.WARNING, True)
