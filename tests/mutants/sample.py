"""The fixed sample: mutants that a named test must notice (sample.toml)."""

from __future__ import annotations

import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.mutants.changes import Mutant
from tests.mutants.swapping import ROOT

SAMPLE = Path(__file__).with_name("sample.toml")
SECONDS = 1.0  # none of the tests takes longer


def sample() -> list[dict[str, Any]]:
    """As the plugin takes them."""
    return [
        asdict(_found(entry["file"], entry["before"], entry["after"]))
        | {"test": entry["test"], "tests": {entry["test"]: 1.0}}
        for entry in tomllib.loads(SAMPLE.read_text())["mutant"]
    ]


def _found(file: str, before: str, after: str) -> Mutant:
    source = (ROOT / file).read_bytes()
    places = source.count(before.encode())
    if places != 1:
        raise ValueError(
            f"{file} has {places} times {before!r}, and the sample means one. Adapt tests/mutants/sample.toml."
        )
    start = source.index(before.encode())
    return Mutant(file, start, source.count(b"\n", 0, start) + 1, before, after)
