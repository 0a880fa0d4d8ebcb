"""A run and its failures as a file, from the run's page."""

from __future__ import annotations

import asyncio
import csv
import io
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.db import connections
from django.test import AsyncClient
from django.urls import reverse

from fanout.models import Run, TrailEntry
from tests.admin.conftest import login, member
from tests.factories import RunFactory


@pytest.fixture
def run(operator: User) -> Run:
    run = RunFactory.create(reminder__owner=operator, targets={"sent": 2, "failed": 1, "skipped": 1}, status="partial")
    run.targets.filter(status="failed").update(error="=HYPERLINK(1)")
    return run


def table(answer: Any) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(b"".join(answer.streaming_content).decode())))


@pytest.mark.parametrize(
    ("query", "statuses"),
    [
        pytest.param("", ["sent", "sent", "failed", "skipped"], id="all"),
        pytest.param("?only=failures", ["failed", "skipped"], id="failures"),
    ],
)
def test_a_run_is_downloaded(operator, run, query, statuses):
    answer = login(operator).get(reverse("admin:fanout_run_export", args=[run.pk]) + query)
    rows = table(answer)
    assert sorted(row["status"] for row in rows) == sorted(statuses)
    assert {"planned_for", "delay_reason"} <= set(rows[0])
    assert [row["error"] for row in rows if row["status"] == "failed"] == ["'=HYPERLINK(1)"]
    assert "attachment" in answer["Content-Disposition"]
    assert TrailEntry.objects.get(verb="exported").subject == f"run {run.pk}"


def test_the_page_links_to_it(operator, run):
    page = login(operator).get(reverse("admin:fanout_run_change", args=[run.pk])).content.decode()
    assert f"{reverse('admin:fanout_run_export', args=[run.pk])}?only=failures" in page


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_the_web_server_sends_it_in_chunks():
    boss = member("boss", is_superuser=True)
    run = RunFactory.create(targets={"sent": 600}, status="success")

    async def chunks() -> list[bytes]:
        client = AsyncClient()
        await sync_to_async(client.force_login)(boss, backend="django.contrib.auth.backends.ModelBackend")
        answer: Any = await client.get(reverse("admin:fanout_run_export", args=[run.pk]))
        sent = [chunk async for chunk in answer.streaming_content]
        await sync_to_async(connections.close_all)()
        return sent

    sent = asyncio.run(chunks())
    assert len(sent) == 2
    assert b"".join(sent).count(b"\n") == 601
