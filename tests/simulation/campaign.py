"""More schedules than the suite has time for, and any of them again.

    python -m tests.simulation --schedules 10000 --seed 1
    python -m tests.simulation --replay 4711

Prints the seed of every play in which an invariant did not hold; the exit code is 1 then.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

import django

django.setup()

from django.db import connection  # noqa: E402

from tests.engine.sessions import SESSIONS  # noqa: E402
from tests.simulation.schedule import ACCOUNTS  # noqa: E402
from tests.simulation.world import Verdict, carry_out  # noqa: E402


def main(words: list[str]) -> int:
    options = parsed(words)
    if options.replay is not None:
        seeds = range(options.replay, options.replay + 1)
    else:
        seeds = range(options.seed, options.seed + -(-options.schedules // ACCOUNTS))
    began = time.monotonic()
    verdicts = list(judged(seeds, options.workers))
    broken = [verdict.seed for verdict in verdicts if verdict.violations]
    say(
        f"{sum(v.schedules for v in verdicts)} schedules, {sum(v.calls for v in verdicts)} calls, "
        f"{sum(v.deaths for v in verdicts)} deaths in {time.monotonic() - began:.0f} s; "
        f"{len(broken)} of {len(verdicts)} plays broke an invariant"
    )
    return 1 if broken else 0


def parsed(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__.splitlines()[0])
    parser.add_argument("--schedules", type=int, default=10_000, help="how many (10000)")
    parser.add_argument("--seed", type=int, default=1000, help="the seed of the first play (1000)")
    parser.add_argument("--replay", type=int, metavar="SEED", help="only the play of this seed")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (one per core)")
    return parser.parse_args(words)


def judged(seeds: range, workers: int) -> Iterator[Verdict]:
    pieces = [seeds[n::workers] for n in range(min(workers, len(seeds)))]
    with ProcessPoolExecutor(len(pieces), mp_context=get_context("spawn")) as pool:
        for verdicts in pool.map(carry_out_all, pieces):
            yield from verdicts


def carry_out_all(seeds: range) -> list[Verdict]:
    """In a database of this process's own."""
    logging.disable(logging.ERROR)  # the engine says what it does about every crash
    name = connection.settings_dict["NAME"]
    connection.settings_dict["TEST"]["NAME"] = f"simulation_{os.getpid()}"
    connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
    try:
        return [told(carry_out(seed)) for seed in seeds]
    finally:
        SESSIONS.close()
        connection.creation.destroy_test_db(name, verbosity=0)


def told(verdict: Verdict) -> Verdict:
    if verdict.violations:
        say(f"SEED {verdict.seed} (again with --replay {verdict.seed}):")
        for violation in verdict.violations[:20]:
            say(f"    {violation}")
    return verdict


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
