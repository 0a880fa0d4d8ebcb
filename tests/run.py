"""Run linters and tests beside each other, and say at the end what ran: `make test` and `make test-all` call this.

    python -m tests.run quick    linters, and the tests that need no browser and no long-lived processes
    python -m tests.run rest     the other tests
    python -m tests.run all      all of this in one run: while tests of processes wait, others use the cores

mypy works on one core for a minute, so it runs beside the tests. `tests/conftest.py` says which test belongs to which
tier (`--tier`).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
LINTERS = (
    ("ruff", [sys.executable, "-m", "ruff", "check", "."]),
    ("ruff format", [sys.executable, "-m", "ruff", "format", "--check", "."]),
    ("imports", [str(BIN / "lint-imports"), "--no-logo"]),
    ("plain English", [sys.executable, ".ci/structure.py", "--check"]),
    ("pins", [sys.executable, ".ci/pins.py"]),
    ("mypy", [sys.executable, "-m", "mypy", "."]),
)
#: Tests of the second tier wait for processes most of the time, but every worker needs ten seconds of a core to
#: import all tests.
MORE_THAN_CORES = {"quick": 1, "rest": 3, "all": 3}

#: names the file in which pytest leaves the line about the tests that were left out (tests/conftest.py)
LEFT_OUT_FILE = "CRIER_LEFT_OUT_FILE"


@dataclass(frozen=True)
class Result:
    """The end of one step: `line` for the summary, `output` to show when it failed."""

    name: str
    passed: bool
    line: str
    output: str = ""


def main() -> int:
    parser = argparse.ArgumentParser(description="Run linters and tests.")
    parser.add_argument("tier", choices=("quick", "rest", "all"))
    parser.add_argument("--workers", help="processes that run tests (more than cores, because many tests wait)")
    given = parser.parse_args()
    began = time.monotonic()
    workers = given.workers or str((os.cpu_count() or 1) + MORE_THAN_CORES[given.tier])
    beside = ThreadPoolExecutor(max_workers=1)
    try:
        linting: list[Future[Result]] = []
        if given.tier != "rest":
            linting = [beside.submit(lint, name, command) for name, command in LINTERS]
        tested, left_out = run_tests(given.tier, workers)
        results = [*(future.result() for future in linting), tested]
    finally:
        beside.shutdown(cancel_futures=True)
    for result in results:
        if result.output:
            say(f"\n== {result.name} failed\n{result.output}")
    say(f"\n== summary ({time.monotonic() - began:.0f} s)")
    for result in results:
        say(f"{'ok    ' if result.passed else 'FAILED'}  {result.name}: {result.line}")
    if left_out:
        say(left_out)
    return 0 if all(result.passed for result in results) else 1


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def lint(name: str, command: list[str]) -> Result:
    began = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    seconds = f"{time.monotonic() - began:.0f} s"
    passed = done.returncode == 0
    return Result(name, passed, seconds, "" if passed else done.stdout + done.stderr)


def run_tests(tier: str, workers: str) -> tuple[Result, str]:
    """Run one tier with pytest's own output on the screen. The result counts what ran; the line beside it says what was
    left out."""
    say("== pytest" if tier == "all" else f"== pytest, {tier} tier")
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report, left_out = Path(folder, "report.xml"), Path(folder, "left-out")
        command = [sys.executable, "-m", "pytest", "-q", "-n", workers, "--dist", "worksteal", "--tier", tier]
        environment = keeping_bytecode() | {LEFT_OUT_FILE: str(left_out)}
        done = subprocess.run([*command, f"--junitxml={report}"], cwd=ROOT, env=environment, check=False)
        counts = ElementTree.parse(report).getroot()[0].attrib if report.exists() else {}
        line = left_out.read_text() if left_out.exists() else ""
    skipped, failed = int(counts.get("skipped", 0)), int(counts.get("failures", 0)) + int(counts.get("errors", 0))
    passed = int(counts.get("tests", 0)) - skipped - failed
    ran = f"{passed} passed, {failed} failed, {skipped} skipped in {time.monotonic() - began:.0f} s"
    name = "tests" if tier == "all" else f"tests, {tier} tier"
    return Result(name, done.returncode == 0 and passed > 0, ran), line


def keeping_bytecode() -> dict[str, str]:
    """Return the environment without the variable of many containers that makes every process compile all it imports:
    the suite starts hundreds, and rewrites the assertions of its modules."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


if __name__ == "__main__":
    sys.exit(main())
