"""Who has one of an account's places, and whose result is still to be written."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from fanout.engine.dispatcher import OpenTargets


def thing(number: int) -> Any:
    return SimpleNamespace(id=number)


def test_a_target_has_a_place_until_only_its_result_is_left() -> None:
    targets, run = OpenTargets(), thing(1)
    assert (bool(targets), targets.in_flight, targets.being_written, targets.of(run)) == (False, 0, 0, set())
    targets.add(run, thing(5))
    targets.add(run, thing(6))
    assert (bool(targets), targets.in_flight, targets.being_written) == (True, 2, 0)
    targets.release(thing(5))
    assert (bool(targets), targets.in_flight, targets.being_written) == (True, 1, 1)
    assert targets.of(run) == {5, 6}


def test_targets_are_counted_by_their_runs() -> None:
    targets = OpenTargets()
    for run, target in ((1, 5), (2, 6), (2, 7)):
        targets.add(thing(run), thing(target))
    targets.release(thing(6))
    targets.remove(thing(2), thing(6))
    assert (targets.of(thing(1)), targets.of(thing(2)), targets.in_flight, targets.being_written) == ({5}, {7}, 2, 0)
    targets.remove(thing(2), thing(7))
    assert (targets.of(thing(2)), targets.in_flight, bool(targets)) == (set(), 1, True)
    targets.remove(thing(1), thing(5))
    assert (targets.in_flight, targets.being_written, bool(targets)) == (0, 0, False)
