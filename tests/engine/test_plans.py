"""A batch goes by key, also while the statistics know nothing of a run that was frozen a moment ago."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import psycopg
import pytest
from django.db import connection

from fanout.engine.commit import Call, Claim, Commit, Result, Skip, calls_of, ignore_written
from fanout.engine.connection import prepare
from fanout.models import LaneState, Run
from reminders.models import Recipient
from tests.engine.ledgers import EPOCH, NOW, TestsOwnLink, lane_write, ledger_in_test
from tests.factories import RunFactory
from tests.reads import handled_by

__all__ = ["ledger_in_test"]
pytestmark = pytest.mark.usefixtures("ledger_in_test")

TARGETS = 4_000
AT_HAND = 3

FREEZE = """
INSERT INTO fanout_runtarget (run_id, account_id, recipient_id, position, address, status, parts_sent, attempts,
                              claim_epoch, claimed_at, settled_at, provider_id, error_kind, error)
SELECT r.id, r.account_id, p.id, row_number() OVER (ORDER BY p.id), p.address, %s, 0, 0, %s, %s, %s, '', '', ''
  FROM fanout_run r, reminders_recipient p WHERE r.id = %s
RETURNING id
"""


def freeze(run: Run, status: str) -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute(FREEZE, [status, EPOCH, NOW, None if status == "pending" else NOW, run.pk])
        return [pk for (pk,) in cursor.fetchall()]


@pytest.fixture
def prepared(ledger_in_test: None) -> Iterator[None]:
    """The statements as a driver prepares them. Settings go with the test's transaction, prepared statements do not."""
    asyncio.run(prepare(TestsOwnLink()))
    yield
    with connection.cursor() as cursor:
        cursor.execute("DEALLOCATE ALL")


def rows_of(call: Call) -> int:
    name, values = call
    cursor = psycopg.ClientCursor(connection.connection)
    parameters = ", ".join(["%s"] * len(values))
    cursor.execute(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) EXECUTE {name}({parameters})", values)
    return handled_by(cursor)


@pytest.mark.usefixtures("prepared")
def test_no_statement_of_a_batch_reads_what_else_is_pending() -> None:
    history, run = (RunFactory.create(scheduled_for=NOW, status="queued") for _ in range(2))
    LaneState.objects.create(account=run.account, epoch=EPOCH)
    Recipient.objects.bulk_create(
        Recipient(owner=run.owner, kind="group", address=f"{10**12 + n}@g.us") for n in range(TARGETS)
    )
    freeze(history, "sent")
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE accounts_account, reminders_recipient, fanout_run, fanout_runtarget, fanout_lanestate")
    targets = freeze(run, "pending")
    to_claim, to_skip = targets[:AT_HAND], targets[AT_HAND : 2 * AT_HAND]
    of_lane = (run.pk, run.account_id, EPOCH, NOW)
    first = Commit(
        claims=[([Claim(pk, *of_lane) for pk in to_claim], None)],  # type: ignore[list-item]
        skips=[Skip(pk, run.pk, "left out", NOW) for pk in to_skip],
        starts={run.pk: NOW},
        lanes={run.account_id: lane_write(run.account_id)},
        times={run.pk: [1.0] * 5},
    )
    then = Commit(
        results=[
            (Result(pk, *of_lane, "sent", 1, 1, NOW, action="message", activity="sent"), ignore_written)
            for pk in to_claim
        ]
    )
    rows = {call[0]: rows_of(call) for batch in (first, then) for call in calls_of(batch)}
    assert set(rows) == {"lock_runs", "skip", "start", "claim", "times", "pace", "record"}
    assert max(rows.values()) < 20 * AT_HAND, rows
    run.refresh_from_db()
    assert (run.status, run.sent, run.skipped, run.pending) == ("running", AT_HAND, AT_HAND, TARGETS - 2 * AT_HAND)
