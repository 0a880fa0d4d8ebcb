"""`make mutants`: change the code in small wrong ways and say which changes no test notices.

    python -m tests.mutants --count 120 --seed 1            some of every area
    python -m tests.mutants --only fanout/engine/commit.py  one module
    python -m tests.mutants --again                         survivors once more, after tests were added
    python -m tests.mutants --learn                         which tests reach which functions, from the beginning

What was judged stays in var/mutants.jsonl: the same command goes on where it was stopped, and a module that changed
is judged anew. Nothing in the checkout is written to.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from hashlib import blake2b
from itertools import zip_longest
from pathlib import Path
from typing import Any

from tests.mutants.areas import AREAS, area_of
from tests.mutants.changes import Mutant, mutants
from tests.mutants.choosing import file_of, shown
from tests.mutants.equivalents import reason_of
from tests.mutants.reach import QUICK, Reach, learn
from tests.mutants.swapping import ROOT

RESULTS = ROOT / "var" / "mutants.jsonl"
AT_ONCE = 12  # mutants that one process judges: it imports their tests and makes its database once


def main(words: list[str]) -> int:
    options = parsed(words)
    results = Path(options.results)
    results.parent.mkdir(exist_ok=True)
    reach = learn(options.workers, everything=options.learn)
    if options.learn:
        return 0
    chosen = sample(options.only, options.count, options.seed)
    judged = read(results)
    open_ = [m for m in chosen if key(m) not in judged or (options.again and judged[key(m)]["verdict"] == "survived")]
    say(f"{len(chosen)} mutants, {len(chosen) - len(open_)} of them judged before; results in {results}")
    with ThreadPoolExecutor(options.workers) as workers:
        list(workers.map(lambda those: judge(those, reach, results), jobs(open_)))
    return report(chosen, read(results))


def parsed(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=60, help="how many (60)")
    parser.add_argument("--seed", type=int, default=1, help="which ones (1)")
    parser.add_argument("--only", default="", help="modules whose path begins like this, or the name of an area")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (one per core)")
    parser.add_argument("--results", default=str(RESULTS), help="where the results are kept")
    parser.add_argument("--again", action="store_true", help="judge survivors once more")
    parser.add_argument("--learn", action="store_true", help="only run all tests and note what they reach")
    return parser.parse_args(words)


def sample(only: str, count: int, seed: int) -> list[Mutant]:
    """A seeded choice that takes turns among the areas, or the largest would be all of it."""
    by_area: dict[str, list[Mutant]] = {}
    for path in sorted(ROOT.glob("*/**/*.py")):
        file = path.relative_to(ROOT).as_posix()
        area = area_of(file)
        if area is not None and (file.startswith(only) or area == only):
            by_area.setdefault(area, []).extend(mutants(file, path.read_bytes()))
    rng = random.Random(seed)
    for those in by_area.values():
        rng.shuffle(those)
    turns = (m for turn in zip_longest(*by_area.values()) for m in turn if m is not None)
    return [m for m in turns if reason_of(m) is None][:count]


def jobs(chosen: list[Mutant]) -> Iterable[list[Mutant]]:
    """Neighbours together: they have their tests in common."""
    ordered = sorted(chosen, key=lambda m: (m.file, m.start))
    return (ordered[first : first + AT_ONCE] for first in range(0, len(ordered), AT_ONCE))


def judge(those: list[Mutant], reach: Reach, results: Path) -> None:
    """One pytest process, which notes each verdict at once."""
    wanted = [asdict(m) | {"digest": digest(m.file), "tests": shown(m, reach)} for m in those]
    with results.open("a") as verdicts:
        for raw in wanted:
            if not raw["tests"]:
                verdicts.write(json.dumps(raw | {"verdict": "survived", "by": "no test reaches it"}) + "\n")
    reached = [raw for raw in wanted if raw["tests"]]
    problem = run_pytest(reached, results) if reached else ""
    judged = read(results)
    for mutant in those:
        say(f"{judged[key(mutant)]['verdict'] if key(mutant) in judged else 'not judged':<12} {mutant.name}")
    if problem:
        say(problem)


def verdicts_of(those: list[dict[str, Any]]) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        verdicts = Path(folder, "verdicts.jsonl")
        verdicts.touch()
        problem = run_pytest(those, verdicts)
        lines = [json.loads(line) for line in verdicts.read_text().splitlines()]
        if problem and len(lines) < len(those):
            say(problem)
        return lines


def run_pytest(those: list[dict[str, Any]], verdicts: Path) -> str:
    """What it said when it ended badly."""
    tests = sorted({file_of(test) for mutant in those for test in mutant["tests"]})
    with tempfile.TemporaryDirectory() as folder:
        wanted = Path(folder, "mutants.json")
        wanted.write_text(json.dumps(those))
        command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.mutants.judging", "-p", "no:cacheprovider"]
        command += ["-m", QUICK, f"--mutants={wanted}", f"--verdicts={verdicts}", *tests]
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=_environment())
    return "" if run.returncode in (0, 5) else f"{run.stdout[-3000:]}{run.stderr[-2000:]}"


def _environment() -> dict[str, str]:
    """A pytest of its own, also when another one started it."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}


def digest(file: str) -> str:
    return blake2b((ROOT / file).read_bytes(), digest_size=8).hexdigest()


def key(mutant: Mutant) -> tuple[str, str]:
    return mutant.name, digest(mutant.file)


def read(results: Path) -> dict[tuple[str, str], dict[str, Any]]:
    judged = {}
    for line in results.read_text().splitlines() if results.exists() else []:
        verdict = json.loads(line)
        mutant = Mutant(**{name: verdict[name] for name in Mutant.__slots__})
        judged[mutant.name, verdict["digest"]] = verdict
    return judged


def report(chosen: list[Mutant], judged: dict[tuple[str, str], dict[str, Any]]) -> int:
    """The share that was noticed, area by area, and every survivor. 1: there are some."""
    verdicts = [(m, judged[key(m)]["verdict"]) for m in chosen if key(m) in judged]
    for area in AREAS:
        counts = Counter(verdict for m, verdict in verdicts if area_of(m.file) == area)
        judged_here = counts["noticed"] + counts["survived"]
        if judged_here:
            share = counts["noticed"] / judged_here
            say(f"{area:<12} {counts['noticed']:>4} of {judged_here:<4} noticed ({share:.0%})")
    noticed = sum(verdict == "noticed" for _, verdict in verdicts)
    survivors = [m for m, verdict in verdicts if verdict == "survived"]
    if verdicts:
        say(f"{'all':<12} {noticed:>4} of {len(verdicts):<4} noticed ({noticed / len(verdicts):.0%})")
    for mutant in survivors:
        say(f"SURVIVED {mutant.file}:{mutant.line}\n    - {mutant.before}\n    + {mutant.after}")
    return 1 if survivors else 0


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
