"""Two controls of one run at the same moment, and controls that die half-way: everything left to send has a lane that
comes for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import product
from typing import Any

import psycopg
import pytest
from django.db import connection

from accounts.models import Account
from fanout.database import carry_out, conninfo, execute
from fanout.engine.commit import Result
from fanout.models import Event, LaneState, Run
from fanout.ops import audit, tasks
from fanout.runs import controls, corrections, transitions
from tests.channels.mail_server import wait_until
from tests.engine.stage import Stage, fresh

#: of every account of a run
TARGETS = 2


@dataclass(frozen=True)
class Scene:
    """A run through three accounts, and an account that it can be offloaded to."""

    stage: Stage
    run: Run
    spare: Account

    def target_ids(self, status: str) -> list[int]:
        return list(self.run.targets.filter(status=status).values_list("pk", flat=True))


def scene(stage: Stage, number: int, status: str) -> Scene:
    """A run with pending targets of the first account, failed ones of the second and unconfirmed ones of the third. A
    finished run has nothing pending; a paused one is due to go on by itself."""
    first, second, third, spare = (stage.account() for _ in range(4))
    reminder = stage.reminder(first, groups=3 * TARGETS, first=100 * number, title=f"run {number}")
    reminder.set_further_senders([second, third])
    run = stage.fire(reminder)
    run.targets.filter(account=second).update(status="failed", error_kind="soft_bounce")
    run.targets.filter(account=third).update(status="unconfirmed", claimed_at=stage.now)
    facts: dict[str, Any] = {"status": status, "first_attempt_at": stage.now, "started_at": stage.now}
    if status == "paused":
        facts |= {"pause_reason": "operator", "resume_at": stage.now, "lanes": [first.pk]}
    if status == "failed":
        run.targets.filter(account=first).update(status="failed", error_kind="soft_bounce")
        facts |= {"finished_at": stage.now}
        LaneState.objects.filter(account__in=[first, second, third]).update(due_at=None)
    Run.objects.filter(pk=run.pk).update(**facts)
    return Scene(stage, fresh(run), spare)


def retry_failed(at: Scene, run: Run) -> Any:
    return controls.retry_failed(run, at.stage.user, at.stage.now)


def resume(at: Scene, run: Run) -> Any:
    return controls.resume(run, at.stage.user, at.stage.now)


def settle_send_again(at: Scene, run: Run) -> Any:
    return corrections.settle(run, at.target_ids("unconfirmed"), False, at.stage.user, at.stage.now)


def resume_due(at: Scene, run: Run) -> Any:
    return controls.resume_due(at.stage.now)


def offload(at: Scene, run: Run) -> Any:
    return corrections.offload(run, at.spare, at.stage.user, at.stage.now)


def pause(at: Scene, run: Run) -> Any:
    return controls.pause(run, at.stage.user, at.stage.now)


def cancel(at: Scene, run: Run) -> Any:
    return controls.cancel(run, at.stage.user, at.stage.now)


Control = Callable[[Scene, Run], Any]
CONTROLS: tuple[Control, ...] = (retry_failed, resume, settle_send_again, resume_due, offload, pause, cancel)

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


def at_the_same_moment(at: Scene, *acts: Control) -> None:
    """Each on a connection of its own. They queue for the run, which is locked until all of them wait: what one of
    them does in a second transaction comes behind the first of the others."""
    problems: list[BaseException] = []

    def act(control: Control) -> None:
        try:
            control(at, Run.objects.get(pk=at.run.pk))
        except BaseException as problem:
            problems.append(problem)
        finally:
            connection.close()

    info = conninfo(connection.settings_dict)
    threads = [threading.Thread(target=act, args=[control]) for control in acts]
    with psycopg.connect(info) as holder, psycopg.connect(info, autocommit=True) as watcher:
        holder.execute("SELECT 1 FROM fanout_run WHERE id = %s FOR UPDATE", [at.run.pk])
        for n, thread in enumerate(threads, start=1):
            thread.start()
            wait_until(partial(_all_wait, watcher, threads[:n]))
        holder.rollback()
        for thread in threads:
            thread.join(30)
    assert not problems


def _all_wait(watcher: psycopg.Connection[Any], threads: list[threading.Thread]) -> bool:
    """Return whether each waits for a lock or has ended."""
    ((waiting,),) = watcher.execute(WAITING).fetchall()
    return bool(waiting >= sum(thread.is_alive() for thread in threads))


def undriven(run: Run) -> list[int]:
    """The accounts with something to send for a live run that no driver would come for."""
    run.refresh_from_db()
    if run.status not in Run.LIVE:
        return []
    owing = {row["id"] for row in execute(transitions.SENDERS, {"run": run.pk})}
    due = set(LaneState.objects.filter(due_at__isnull=False).values_list("account_id", flat=True))
    return sorted(owing - ({*run.lanes} & due))


def judge(stage: Stage, run: Run) -> str:
    """Return what is wrong with a run that was driven to its end, by the provider's book; empty where nothing is."""
    run.refresh_from_db()
    if run.status == Run.Status.PAUSED:
        return ""
    if run.status in Run.LIVE or run.pending or run.sending:
        return f"{run.status} with {run.pending} pending"
    sent = sorted(run.targets.filter(status="sent").values_list("address", flat=True))
    ours = set(run.targets.values_list("address", flat=True))
    booked = sorted(delivery.to for delivery in stage.book.deliveries() if delivery.to in ours)
    return "" if sent == booked else f"says {sent}, the provider {booked}"


@pytest.mark.slow
@pytest.mark.parametrize("status", ["paused", "running", "failed"])
def test_every_pair_of_controls_leaves_no_work_without_a_lane(stage: Stage, status: str) -> None:
    scenes = {}
    for number, acts in enumerate(product(CONTROLS, repeat=2)):
        name = " and ".join(act.__name__ for act in acts)
        scenes[name] = scene(stage, number, status)
        at_the_same_moment(scenes[name], *acts)
    assert {name: left for name, at in scenes.items() if (left := undriven(at.run))} == {}
    assert audit.forgotten_lanes(stage.now, stage.now) == []

    stage.play()
    assert {name: wrong for name, at in scenes.items() if (wrong := judge(stage, at.run))} == {}
    # What an operator's pause holds goes out when it is resumed, to the last target.
    paused = [at for at in scenes.values() if at.run.status == Run.Status.PAUSED]
    for at in paused:
        assert resume(at, at.run).ok
    stage.play()
    assert {name: wrong for name, at in scenes.items() if (wrong := judge(stage, at.run))} == {}
    assert not [name for name, at in scenes.items() if at.run.status == Run.Status.PAUSED]
    assert not stage.book.duplicates("to", "part")
    assert stage.book.deliveries()


def test_an_operators_pause_stands_against_a_settled_target(stage: Stage) -> None:
    """The target waits for the resume, whichever of the two came first."""
    for number, acts in enumerate([(settle_send_again, pause), (pause, settle_send_again)] * 4):
        at = scene(stage, number, "running")
        at_the_same_moment(at, *acts)
        assert (fresh(at.run).status, at.run.pending) == (Run.Status.PAUSED, 2 * TARGETS)


def test_a_planned_resume_that_was_taken_back_meanwhile_stays_so(stage: Stage) -> None:
    at = scene(stage, 0, "paused")

    def keep_paused(at: Scene, run: Run) -> Any:
        return controls.keep_paused(run, at.stage.user, at.stage.now)

    at_the_same_moment(at, keep_paused, resume_due)
    assert (fresh(at.run).status, at.run.resume_at) == (Run.Status.PAUSED, None)


# --- controls that die half-way -----------------------------------------------------------------------------


class Killed(BaseException):
    """Stands for the end of the process: nothing after it happens."""


@pytest.mark.parametrize("status", ["running", "paused"])
def test_an_offload_that_dies_half_way(stage: Stage, status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    at = scene(stage, 0, status)
    if status == "running":
        stage.play(30)  # its lanes have looked, and sleep
    monkeypatch.setattr(transitions, "CHUNK", 1)
    really, calls = corrections._unlocked, 0

    def die_later(*arguments: Any) -> list[int]:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise Killed
        return really(*arguments)

    monkeypatch.setattr(corrections, "_unlocked", die_later)
    if status == "running":
        assert retry_and_settle(at)
    with pytest.raises(Killed):
        offload(at, fresh(at.run))
    if status == "paused":
        resume(at, fresh(at.run))
    assert undriven(at.run) == []
    stage.play()
    assert judge(stage, at.run) == ""
    assert len(stage.book.deliveries(at.spare.address)) == 1


def retry_and_settle(at: Scene) -> bool:
    """Everything is pending again, in a run that is going on."""
    for control in (retry_failed, settle_send_again):
        assert control(at, fresh(at.run)).ok
        assert corrections.carry_on_corrections(at.stage.now, 60)
    return fresh(at.run).status in Run.LIVE


def test_a_retry_that_dies_half_way_is_gone_on_with(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    at = scene(stage, 0, "failed")
    monkeypatch.setattr(transitions, "CHUNK", 1)
    assert retry_failed(at, at.run).ok
    with monkeypatch.context() as dies:
        dies.setattr(corrections, "go_on_if_open", lambda *arguments: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            corrections.carry_on_corrections(stage.now, 60)
    assert at.run.corrections.get().done == 0
    assert corrections.carry_on_corrections(stage.now, 60)
    stage.play()
    assert judge(stage, at.run) == ""
    assert len(stage.book.deliveries()) == 2 * TARGETS


def test_a_run_that_ends_between_two_chunks_of_a_retry_goes_on(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    at = scene(stage, 0, "failed")
    monkeypatch.setattr(transitions, "CHUNK", 1)
    assert retry_failed(at, at.run).ok
    under_way = at.run.corrections.get()
    for _ in range(2):
        assert corrections._correct_chunk(under_way.pk, stage.now)
    stage.play()  # it goes on with the first ones, and what was pending by then is sent
    assert fresh(at.run).status in Run.FINISHED
    assert corrections.carry_on_corrections(stage.now, 60)
    assert undriven(at.run) == []
    stage.play()
    assert (judge(stage, at.run), at.run.sent) == ("", 2 * TARGETS)


# --- the watch of every minute ------------------------------------------------------------------------------


def test_the_watch_gives_forgotten_work_its_lane(stage: Stage) -> None:
    """Left behind by an earlier version, or by a hand in the database."""
    at = scene(stage, 0, "running")
    run = at.run
    first = run.account_id
    run.targets.exclude(account=first).update(status="pending", error_kind="")
    Run.objects.filter(pk=run.pk).update(lanes=[first])
    LaneState.objects.exclude(account=first).update(due_at=None)
    stage.play()
    assert (fresh(run).status, run.pending) == (Run.Status.RUNNING, 2 * TARGETS)
    tasks.wake_sleeping(stage.now)
    stage.play()
    assert (judge(stage, run), run.status, run.sent) == ("", Run.Status.SUCCESS, 3 * TARGETS)


def test_the_watch_wakes_a_lane_that_sleeps_beside_one_that_is_driven(stage: Stage) -> None:
    at = scene(stage, 0, "running")
    second = fresh(at.run).lanes[1]
    at.run.targets.filter(account=second).update(status="pending", error_kind="")
    LaneState.objects.filter(account=second).update(due_at=None, progress_at=stage.now)
    stage.now += timedelta(minutes=4)
    tasks.wake_sleeping(stage.now)
    assert undriven(at.run) == [second]  # another lane may be about to end the run for it
    stage.now += timedelta(minutes=2)
    tasks.wake_sleeping(stage.now)
    assert undriven(at.run) == []
    stage.play()
    assert (judge(stage, at.run), at.run.sent) == ("", 2 * TARGETS)


def test_the_watch_leaves_a_lane_alone_that_stepped_aside(stage: Stage) -> None:
    at = scene(stage, 0, "running")
    first, second, third = fresh(at.run).lanes
    at.run.targets.filter(account=second).update(status="pending", error_kind="")
    assert carry_out(transitions.step_aside(at.run.pk, second, "second", "at its cap", stage.now))
    tasks.wake_sleeping(stage.now)
    assert fresh(at.run).lanes == [first, third]
    assert Event.objects.filter(run=at.run, verb="stepped aside").count() == 1
    # Resumed, it is a lane like the others, and nothing is left of its stepping aside.
    pause(at, at.run)
    assert resume(at, fresh(at.run)).ok
    assert fresh(at.run).lanes == [first, second]
    Run.objects.filter(pk=at.run.pk).update(lanes=[first])
    tasks.wake_sleeping(stage.now)
    assert fresh(at.run).lanes == [first, second]


def test_a_late_answer_gives_the_next_part_its_lane(stage: Stage) -> None:
    """The run was resumed while the target was unconfirmed, and so without its account."""
    first, second = stage.account(), stage.account()
    reminder = stage.reminder(first, groups=2, parts=("text", "text"))
    reminder.set_further_senders([second])
    run = stage.fire(reminder)
    late = run.targets.get(account=second)
    run.targets.filter(pk=late.pk).update(status="unconfirmed", claim_epoch=1, claimed_at=stage.now, attempts=1)
    Run.objects.filter(pk=run.pk).update(lanes=[first.pk], status="running", first_attempt_at=stage.now)
    LaneState.objects.filter(account=second).update(due_at=None)
    answered = Result(late.pk, run.pk, second.pk, 1, stage.now, "pending", 1, 0, stage.now, "message", activity="sent")
    stage.outbox.put([answered])
    stage.play()
    assert fresh(run).status == Run.Status.SUCCESS
    assert [delivery.part for delivery in stage.book.deliveries(second.address)] == [1]
