"""Sessions of Django wait for locked rows for a limited time, and say what happened."""

from __future__ import annotations

import sys

import psycopg
import pytest
from django.conf import settings
from django.db import OperationalError, connection, transaction
from django.test import RequestFactory

from config.problems import LOCKED, sentence, server_error
from fanout.database import conninfo
from fanout.models import Run
from tests.factories import RunFactory


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        ("lock_timeout", settings.DATABASE_LOCK_SECONDS),
        ("idle_in_transaction_session_timeout", settings.DATABASE_IDLE_SECONDS),
    ],
)
def test_every_session_has_the_limits(name: str, seconds: float) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT setting::int FROM pg_settings WHERE name = %s", [name])
        assert cursor.fetchone() == (seconds * 1000,)
    assert seconds > 0


@pytest.mark.django_db(transaction=True)
def test_a_page_or_command_that_meets_a_locked_row_says_so() -> None:
    run = RunFactory.create()
    with psycopg.connect(conninfo(connection.settings_dict)) as stuck:
        stuck.execute("SELECT 1 FROM fanout_run WHERE id = %s FOR UPDATE", [run.pk])
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute("SET LOCAL lock_timeout = '50ms'")
                Run.objects.filter(pk=run.pk).update(archived=True)
        except OperationalError:
            error = sys.exc_info()[1]
            page = server_error(RequestFactory().get("/admin/"))
    assert error is not None
    assert sentence(error) == LOCKED
    assert (page.status_code, b"Another session has locked" in page.content) == (503, True)
    assert page["Retry-After"] == "5"
