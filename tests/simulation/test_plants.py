"""The simulation finds what it is there to find, and a seed replays exactly."""

from __future__ import annotations

import pytest

from tests.simulation.plants import PLANTS
from tests.simulation.world import carry_out, trace

SEEDS = range(101, 113)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_fault_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, complaint = PLANTS[name]
    plant(monkeypatch)
    complaints = (violation for seed in SEEDS for violation in carry_out(seed).violations)
    assert any(complaint in violation for violation in complaints)


@pytest.mark.django_db(transaction=True)
def test_a_seed_replays_exactly() -> None:
    first = trace(7)
    assert len(first) > 50
    assert trace(7) == first
