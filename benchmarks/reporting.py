"""How benchmarks say what they measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def report(figures: dict[str, Any], file: Path | None) -> None:
    """A line of JSON, shown and kept."""
    line = json.dumps(figures)
    print(line, flush=True)  # noqa: T201
    if file is not None:
        with file.open("a") as kept:
            kept.write(line + "\n")
