"""Drivers on a database that lacks commits, as after a restored backup or the promotion of a standby that lagged.

With real servers: `python -m tests.engine.chaos --lose-commits`, which tests/engine/test_processes.py runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction
from django.db.models import F

from fanout.database import conninfo, execute
from fanout.engine import lost_commits
from fanout.engine.claim_journal import Beat, ClaimJournal, boot
from fanout.engine.commit import Claim, Result
from fanout.inbound import worker
from fanout.inbound.event_store import LOOK_AT_SERVER_AGAIN
from fanout.models import Driver, InboundEvent, KnownServer, LaneState, LostClaim, Notification, Run
from fanout.ops import tasks
from fanout.runs import controls, recovery, server
from fanout.runs.recovery import PATIENCE, judge
from fanout.runs.texts import MAY_HAVE_GONE_OUT
from reminders.models import Reminder
from tests.engine.stage import MONDAY, Stage, books_balance, fresh
from tests.factories import UserFactory
from tests.inbound.people import remind, say, stored

COPIED = (
    *("fanout_run", "fanout_runtarget", "fanout_runchange", "fanout_dayresult", "fanout_daychange"),
    *("fanout_lanestate", "fanout_driver", "fanout_activity"),
)


class Backup:
    """A copy of what drivers write, to go back to."""

    def take(self) -> None:
        for table in COPIED:
            execute(f"CREATE TABLE backup_{table} AS TABLE {table}", [])

    def restore(self) -> None:
        with transaction.atomic():
            execute("SET LOCAL session_replication_role = replica", [])  # no triggers: the counters are copied
            for table in COPIED:
                execute(f"DELETE FROM {table}", [])
            for table in COPIED:
                execute(f"INSERT INTO {table} SELECT * FROM backup_{table}", [])


@pytest.fixture
def backup(transactional_db: None) -> Iterator[Backup]:
    yield Backup()
    for table in COPIED:
        execute(f"DROP TABLE IF EXISTS backup_{table}", [])


@pytest.fixture
def journals(tmp_path: Path) -> list[ClaimJournal]:
    """Journals of the machine's processes; the stage's driver uses the last one."""
    return [ClaimJournal(tmp_path / "claims")]


@pytest.fixture
def journaled(stage: Stage, journals: list[ClaimJournal]) -> Stage:
    """The stage, with a claim journal."""
    open_ledger = stage.open_ledger

    async def opened(outbox: Any) -> Any:
        ledger = await open_ledger(outbox)
        ledger.journal = journals[-1]
        ledger.held = await lost_commits.check(ledger)
        return ledger

    stage.open_ledger = opened  # type: ignore[method-assign]
    return stage


def restored(stage: Stage, backup: Backup, **fields: Any) -> Run:
    """Send a part of a run, go back to a backup from before that, and let drivers find it."""
    run = stage.fire(stage.reminder(stage.account(**fields), groups=30, parts=("text", "text")))
    stage.play(10)
    backup.take()
    stage.play(20)
    before = len(stage.book.deliveries())
    backup.restore()
    stage.play(5)
    assert KnownServer.objects.get().held
    assert len(stage.book.deliveries()) == before, "something was sent before an operator confirmed"
    return run


def test_messages_that_a_restored_backup_does_not_know_are_not_sent_twice(journaled: Stage, backup: Backup) -> None:
    boss = UserFactory.create(is_superuser=True)
    run = restored(journaled, backup)
    lost = list(LostClaim.objects.all())
    assert lost
    assert all(claim.target_found and claim.answer == "sent" for claim in lost)
    assert Notification.objects.filter(user=boss, title=recovery.STOPPED).count() == 1
    assert recovery.confirm(boss, journaled.now).text == "Sending goes on. Nothing is left open."
    journaled.play()
    assert (fresh(run).status, fresh(run).sent) == (Run.Status.SUCCESS, 30)
    assert not journaled.book.duplicates("to", "part")
    assert not KnownServer.objects.get().held


def test_what_has_no_known_answer_is_left_unconfirmed_or_sent_once_more(
    journaled: Stage, backup: Backup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ClaimJournal, "answered", lambda self, result: None)
    run = restored(journaled, backup)
    open_ones = run.targets.filter(status="unconfirmed").count()
    assert open_ones == LostClaim.objects.count() > 0
    done = recovery.confirm(None, journaled.now, send_again=True)
    assert done.text == f"Sending goes on. {open_ones} recipients will be sent to once more."
    journaled.play()
    assert fresh(run).sent == 30
    assert len(journaled.book.duplicates("to", "part")) == open_ones, "as the operator wanted"


def test_people_of_a_lost_run_are_unconfirmed_when_it_is_fired_again(journaled: Stage, backup: Backup) -> None:
    journaled.fire(journaled.reminder(journaled.account(), groups=1))
    journaled.play()
    backup.take()
    reminder = journaled.reminder(journaled.account(), groups=20, first=100)
    at = journaled.now
    journaled.fire(reminder, at)
    journaled.play(10)
    reached = {delivery.to for delivery in journaled.book.deliveries() if delivery.to >= "120363000000000100"}
    assert reached
    backup.restore()
    journaled.play(3)
    assert {claim.address for claim in LostClaim.objects.filter(target_found=False)} == reached
    recovery.confirm(None, journaled.now)
    again = journaled.fire(reminder, at)
    assert set(again.targets.filter(status="unconfirmed").values_list("address", flat=True)) == reached
    journaled.play()
    assert not journaled.book.duplicates("to", "part")
    assert again.pk not in set(LostClaim.objects.values_list("run_id", flat=True)), "ids are not given away twice"


def test_lanes_that_are_driven_stop_when_another_machine_reports(journaled: Stage) -> None:
    run = journaled.fire(journaled.reminder(journaled.account(), groups=60))

    def report(now: datetime) -> None:
        machines = {"b": MACHINE | {"lost": 3}}
        KnownServer.objects.update(held=True, new_timeline=1, machines=machines, noticed_at=now, why="b lost 3.")

    journaled.play(20, [(journaled.now + timedelta(seconds=5), report)])
    sent = len(journaled.book.deliveries())
    assert 0 < sent < 60
    journaled.play(20)
    assert len(journaled.book.deliveries()) == sent
    assert fresh(run).pending == 60 - sent


def test_a_new_timeline_is_accepted_at_once_where_nothing_is_missing(journaled: Stage) -> None:
    run = journaled.fire(journaled.reminder(journaled.account(), groups=40))
    journaled.play(10)
    KnownServer.objects.update(timeline=0)  # as if the server had been promoted since
    journaled.play()
    known = KnownServer.objects.get()
    assert (known.held, known.new_timeline, known.generation) == (False, None, 2)
    assert known.timeline != 0
    assert fresh(run).sent == 40
    assert not LostClaim.objects.exists()


def test_a_heartbeat_of_another_driver_that_comes_meanwhile_is_not_missing(journaled: Stage, tmp_path: Path) -> None:
    journaled.fire(journaled.reminder(journaled.account(), groups=5))
    journaled.play()
    other = psycopg.connect(conninfo(connection.settings_dict), autocommit=True)

    class BesideAnother(ClaimJournal):
        """Another driver of this machine beats whenever we look."""

        def last_beats(self) -> list[Beat]:
            (row,) = other.execute("UPDATE fanout_driver SET beat_at = beat_at + interval '1 s' RETURNING beat_at")
            return [replace(beat, at=row[0]) for beat in super().last_beats()]

    async def connect() -> bool:
        ledger = await journaled.open_ledger(journaled.outbox)
        ledger.journal = BesideAnother(tmp_path / "claims")
        try:
            return await lost_commits.check(ledger)
        finally:
            await ledger.close_connections()

    assert asyncio.run(connect()) is False
    other.close()
    assert not KnownServer.objects.get().held


@pytest.mark.parametrize("synchronous", [True, False])
def test_a_machine_that_does_not_come_back(journaled: Stage, synchronous: bool) -> None:
    run = journaled.fire(journaled.reminder(journaled.account(), groups=40))
    journaled.play(10)
    driver = Driver.objects.get()
    Driver.objects.create(
        host="gone", slot=0, token="gone", pid=1, backend_pid=1, started_at=driver.beat_at, beat_at=driver.beat_at,
        synchronous=synchronous,
    )  # fmt: skip
    KnownServer.objects.update(timeline=0)
    before = len(journaled.book.deliveries())
    journaled.play(5)
    known = KnownServer.objects.get()
    assert not known.held
    assert known.new_timeline is not None, "it is awaited"
    assert len(journaled.book.deliveries()) == before
    KnownServer.objects.update(noticed_at=F("noticed_at") - PATIENCE)  # the database's clock, not the stage's
    if synchronous:
        journaled.play()
        assert fresh(run).sent == 40
    else:
        journaled.play(5)
        assert "gone sent before the fail-over" in KnownServer.objects.get().why
        assert len(journaled.book.deliveries()) == before


def test_a_machine_that_sent_and_has_lost_its_journal_proves_nothing(
    journaled: Stage, backup: Backup, journals: list[ClaimJournal], tmp_path: Path
) -> None:
    journaled.fire(journaled.reminder(journaled.account(), groups=30))
    journaled.play(10)
    backup.take()
    journaled.play(10)
    backup.restore()
    KnownServer.objects.update(timeline=0)
    before = len(journaled.book.deliveries())
    for file in (tmp_path / "claims").iterdir():  # a container that was made anew, without its volume
        file.unlink()
    journals.append(ClaimJournal(tmp_path / "claims"))
    journaled.play(5)
    KnownServer.objects.update(noticed_at=F("noticed_at") - PATIENCE)
    journaled.play(5)
    assert KnownServer.objects.get().held
    assert len(journaled.book.deliveries()) == before


def test_a_power_failure_is_not_forgotten_while_it_is_compared(journaled: Stage, tmp_path: Path) -> None:
    journaled.fire(journaled.reminder(journaled.account(), groups=60))
    journaled.play(10)
    KnownServer.objects.update(timeline=0)
    for file in (tmp_path / "claims").glob("slot-*"):
        file.write_text(file.read_text().replace(boot(), "another"))
    before = len(journaled.book.deliveries())
    journaled.play(5)
    assert KnownServer.objects.get().new_timeline is not None
    assert len(journaled.book.deliveries()) == before


def test_a_backup_from_before_the_upgrade_is_compared(journaled: Stage, backup: Backup) -> None:
    run = journaled.fire(journaled.reminder(journaled.account(), groups=30, parts=("text", "text")))
    journaled.play(10)
    backup.take()
    journaled.play(20)
    backup.restore()
    KnownServer.objects.all().delete()
    journaled.play(5)
    assert KnownServer.objects.get().held
    recovery.confirm(None, journaled.now)
    journaled.play()
    assert fresh(run).sent == 30
    assert not journaled.book.duplicates("to", "part")


def test_a_new_installation_beside_an_old_journal_is_accepted(
    journaled: Stage, journals: list[ClaimJournal], tmp_path: Path
) -> None:
    journaled.fire(journaled.reminder(journaled.account(), groups=5))
    journaled.play()
    Driver.objects.all().delete()
    KnownServer.objects.all().delete()
    journals.append(ClaimJournal(tmp_path / "claims"))
    journaled.play(3)
    assert not KnownServer.objects.get().held


def test_a_locked_lane_keeps_no_driver_from_connecting(journaled: Stage, backup: Backup) -> None:
    locked, free = journaled.account(), journaled.account()
    journaled.fire(journaled.reminder(free, groups=30))
    journaled.fire(journaled.reminder(locked, groups=1, first=100))
    journaled.play(5)
    backup.take()
    journaled.play(5)
    backup.restore()
    epochs = dict(LaneState.objects.values_list("account_id", "epoch"))
    with psycopg.connect(conninfo(connection.settings_dict)) as other:
        other.execute("SELECT 1 FROM fanout_lanestate WHERE account_id = %s FOR UPDATE", [locked.pk])
        journaled.play(3)
        assert KnownServer.objects.get().held
        raised = dict(LaneState.objects.values_list("account_id", "epoch"))
        assert raised[free.pk] >= epochs[free.pk] + recovery.EPOCHS_APART
        assert raised[locked.pk] == epochs[locked.pk]
    recovery.confirm(None, journaled.now)
    assert LaneState.objects.get(pk=locked.pk).epoch == epochs[locked.pk] + recovery.EPOCHS_APART


def test_runs_are_paused_where_a_journal_does_not_reach_back(
    journaled: Stage, backup: Backup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fanout.engine.claim_journal.FILE_SIZE", 400)
    monkeypatch.setattr("fanout.engine.claim_journal.ALL_FILES", 1_600)
    run = restored(journaled, backup)
    assert "The list is incomplete" in KnownServer.objects.get().why
    answer = recovery.confirm(None, journaled.now)
    assert "Paused: 1 run." in answer.text
    journaled.play()
    assert fresh(run).status == Run.Status.PAUSED
    assert not journaled.book.duplicates("to", "part")


def test_nothing_is_fired_while_the_server_is_not_accepted(stage: Stage) -> None:
    reminder = stage.reminder(stage.account(), next_fire_at=stage.now)
    Reminder.objects.filter(pk=reminder.pk).update(next_fire_at=stage.now)
    KnownServer.objects.create(pk=1, system_identifier=1, timeline=1)
    tasks.minute()
    answer = controls.fire(reminder, None, stage.now)
    assert (answer.ok, answer.text) == (False, server.NOT_ACCEPTED)
    assert not Run.objects.exists()
    KnownServer.objects.all().delete()
    tasks.minute()
    assert Run.objects.exists()


def test_a_reply_waits_with_message_2_while_the_server_is_not_accepted(stage: Stage) -> None:
    run = stage.fire(remind(stage, stage.account()))
    stage.play()
    accepted = KnownServer.objects.create(pk=1, system_identifier=1, timeline=1)
    event = stored(run.account, 0, stage.now)
    for _ in range(worker.MOST_ATTEMPTS + 1):
        worker.step(stage.now)
        stage.now += LOOK_AT_SERVER_AGAIN
    event.refresh_from_db()
    assert (event.state, event.attempts, event.effect) == ("new", 0, server.NOT_ACCEPTED)
    assert run.targets.get().replied_at is not None
    assert not Run.objects.filter(answers=run).exists()
    accepted.delete()
    worker.step(stage.now)
    event.refresh_from_db()
    assert (event.state, event.effect) == ("done", "noted; Message 2 queued")


def test_message_2_that_the_database_has_lost_is_not_sent_twice(journaled: Stage, backup: Backup) -> None:
    run = journaled.fire(remind(journaled, journaled.account(), people=2))
    journaled.play()
    backup.take()
    say(run.account, 0, journaled.now)
    journaled.play()
    assert len(journaled.book.deliveries()) == 3
    backup.restore()
    journaled.play(3)
    assert LostClaim.objects.filter(target_found=False).count() == 1
    # The events were lost as well, and the provider reports them again.
    InboundEvent.objects.all().delete()
    recovery.confirm(None, journaled.now)
    assert say(run.account, 0, journaled.now) == f"noted; Message 2: {MAY_HAVE_GONE_OUT}"
    assert say(run.account, 1, journaled.now) == "noted; Message 2 queued"
    journaled.play()
    message_2 = Run.objects.get(answers=run)
    assert (message_2.status, message_2.sent, message_2.unconfirmed) == ("partial", 1, 1)
    assert len(journaled.book.deliveries()) == 4
    assert books_balance(message_2)


def test_large_runs_are_not_prepared_while_the_server_is_not_accepted(stage: Stage) -> None:
    run = stage.fire(stage.reminder(stage.account(), groups=3))
    Run.objects.filter(pk=run.pk).update(status=Run.Status.PREPARING)
    KnownServer.objects.create(pk=1, system_identifier=1, timeline=1)
    tasks.prepare_runs()
    assert fresh(run).status == Run.Status.PREPARING
    KnownServer.objects.all().delete()
    tasks.prepare_runs()
    assert fresh(run).status != Run.Status.PREPARING


# --- the journal ------------------------------------------------------------------------------------------

ORIGIN = f"7\t{MONDAY.isoformat()}\tmessage"


def claim(target: int, second: int = 0) -> Claim:
    at = MONDAY + timedelta(seconds=second)
    return Claim(target, 1, 1, 3, at, address=f"{target}@g.us", origin=ORIGIN)


def noted(journal: ClaimJournal) -> None:
    """Claim 1, a beat, claim 2 and its answer, a beat, claim 3."""
    journal.now_in(5)
    journal.claimed([claim(1)])
    journal.beaten(0, MONDAY)
    journal.claimed([claim(2, 1)])
    journal.answered(Result(2, 1, 1, 3, claim(2, 1).at, "sent", 1, 1, MONDAY, activity="sent", provider_id="a\tb\n"))
    journal.beaten(0, MONDAY + timedelta(seconds=2))
    journal.claimed([claim(3, 3)])


@pytest.mark.parametrize(
    ("generation", "beat", "in_doubt", "certain"),
    [
        pytest.param(5, 2, {3}, set(), id="the last beat is there"),
        pytest.param(5, 1, {2, 3}, set(), id="an earlier beat is there"),
        pytest.param(5, None, {1, 2, 3}, set(), id="no beat is there"),
        pytest.param(6, 2, {3}, set(), id="the server was accepted without this machine"),
        pytest.param(4, 2, {1, 2, 3}, {1, 2, 3}, id="the database is from before all this"),
    ],
)
def test_a_journal_names_what_came_after_the_last_heartbeat_that_is_there(
    tmp_path: Path, generation: int, beat: int | None, in_doubt: set[int], certain: set[int]
) -> None:
    journal = ClaimJournal(tmp_path, host="a")
    noted(journal)
    durable = {} if beat is None else {0: MONDAY + timedelta(seconds=beat)}
    compared = ClaimJournal(tmp_path, host="a").compare(generation, durable)
    assert (set(compared.claims), compared.certain) == (in_doubt, certain)
    assert set(compared.results) == ({(2, 3, claim(2, 1).at)} if 2 in in_doubt else set())


def test_a_journal_that_was_compared_counts_again_only_for_an_older_database(tmp_path: Path) -> None:
    journal = ClaimJournal(tmp_path, host="a")
    noted(journal)
    journal.settle(journal.compare(5, {}), 6)
    assert not journal.is_up_to_date(6)
    journal.claimed([claim(4, 4)])  # by the old leader, which did not know that it had been replaced
    assert set(journal.compare(6, {0: MONDAY + timedelta(hours=1)}).claims) == {4}
    assert set(journal.compare(5, {}).claims) == {1, 2, 3, 4}
    journal.now_in(6)
    assert journal.is_up_to_date(6)


def test_a_journal_survives_a_killed_process_but_proves_nothing_after_a_power_failure(tmp_path: Path) -> None:
    noted(ClaimJournal(tmp_path, host="a"))
    (file,) = tmp_path.glob("*.claims")
    with file.open("ab") as cut_off:
        cut_off.write(b"c\t4\t1\t1")
    later = ClaimJournal(tmp_path, host="a")
    assert set(later.compare(5, {}).claims) == {1, 2, 3}
    assert later.survived
    later.boot = "another"
    assert not later.survived


def test_a_journal_stays_within_its_size_and_age(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fanout.engine.claim_journal.FILE_SIZE", 200)
    monkeypatch.setattr("fanout.engine.claim_journal.ALL_FILES", 2_000)
    journal = ClaimJournal(tmp_path, host="a")
    for target in range(200):
        journal.claimed([claim(target)])
    files = sorted(tmp_path.glob("*.claims"))
    assert sum(file.stat().st_size for file in files) < 3_000
    assert max(journal.compare(0, {}).claims) == 199


MACHINE = {"answered": True, "lost": None, "synchronous": False, "generation": 1}


@pytest.mark.parametrize(
    ("machines", "waited", "complete"),
    [
        pytest.param({"a": MACHINE}, 0, True, id="all have answered"),
        pytest.param({"a": MACHINE, "b": MACHINE | {"lost": 0}}, 0, False, id="one has lost a heartbeat"),
        pytest.param({"a": MACHINE, "b": MACHINE | {"answered": False}}, 29, None, id="one is awaited"),
        pytest.param({"a": MACHINE, "b": MACHINE | {"answered": False}}, 30, False, id="one is gone"),
        pytest.param(
            {"b": MACHINE | {"answered": False, "synchronous": True}}, 4, None, id="a synchronous one is awaited"
        ),
        pytest.param(
            {"b": MACHINE | {"answered": False, "synchronous": True}}, 5, True, id="a synchronous one is gone"
        ),
    ],
)
def test_a_history_is_complete_when_every_machine_says_so(
    machines: dict[str, Any], waited: int, complete: bool | None
) -> None:
    assert judge(machines, timedelta(seconds=waited))[0] is complete
