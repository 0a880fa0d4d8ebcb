"""The simulation finds what it is there to find, and a seed replays exactly."""

from __future__ import annotations

import pytest

from tests.simulation.campaign import told
from tests.simulation.plants import PLANTS
from tests.simulation.world import Verdict, carry_out, trace

SEEDS = range(101, 113)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_fault_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, complaint, known = PLANTS[name]
    plant(monkeypatch)
    seeds = sorted(SEEDS, key=lambda seed: seed != known)
    complaints = (violation for seed in seeds for violation in carry_out(seed).violations)
    assert any(complaint in violation for violation in complaints)


@pytest.mark.django_db(transaction=True)
def test_a_seed_replays_exactly() -> None:
    """Also where another play has left the tables in another order."""
    first = trace(7, accounts=15)
    assert len(first) > 50
    carry_out(8, accounts=15)
    assert trace(7, accounts=15) == first


def test_a_broken_play_is_named_with_its_seed(capsys: pytest.CaptureFixture[str]) -> None:
    told(Verdict(4711, 40, 100, 1, ("account 1 at 09:00:01: a call without the account's lock",)))
    said = capsys.readouterr().out
    assert "SEED 4711 (again with --replay 4711):" in said
    assert "a call without the account's lock" in said
    told(Verdict(4712, 40, 100, 1, ()))
    assert capsys.readouterr().out == ""
