"""A pytest plugin (`-p tests.mutants.judging`): which mutants do their tests notice?

Each mutant gets a fork of this process, in which its tests run in their order until one fails. That one must pass
without the mutant, or the next ones are asked.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol
from django.core.management import call_command
from django.db import connections
from pytest_django.plugin import blocking_manager_key

from tests.mutants.changes import Mutant
from tests.mutants.swapping import ROOT, NothingChanged, renew_functions, swap_in

NOTICED, SURVIVED, NOT_APPLIED = 1, 0, 3
VERDICTS = {NOTICED: "noticed", SURVIVED: "survived", NOT_APPLIED: "not applied"}
MEMORY = 4 << 30  # bytes: a loop without an end must not take the machine with it
PATIENCE = 60.0  # seconds, besides ten times what a test, or all of them, take without the mutant


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--mutants", help="a JSON file of mutants, each with its tests and the seconds they take")
    parser.addoption("--verdicts", help="where to add a line of JSON for each")


@pytest.fixture(scope="session", autouse=True)
def made_before_any_fork(django_db_setup: None) -> None:
    """The database: forks use this process's, one at a time."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    if session.testsfailed:
        raise session.Interrupted("the tests could not be collected")
    items = {item.nodeid: item for item in session.items}
    wanted = json.loads(Path(session.config.getoption("mutants")).read_text())
    first = next(items[test] for raw in wanted for test in raw["tests"] if test in items)
    failed = failure(first)
    if failed is not None:
        session.testsfailed += 1
        raise session.Interrupted(f"{first.nodeid} fails without any mutant:\n{failed}")
    with open(session.config.getoption("verdicts"), "a") as verdicts:
        for raw in wanted:
            usual = raw.pop("tests")
            mutant = Mutant(**{name: raw[name] for name in Mutant.__slots__})
            verdict = judge(mutant, [items[test] for test in usual if test in items], usual)
            verdicts.write(json.dumps(raw | verdict) + "\n")
            verdicts.flush()
    # What tests share goes away with the last of them.
    runtestprotocol(first, log=False, nextitem=None)
    return True


def failure(item: pytest.Item) -> str | None:
    """What the test said when it failed. What the session shares stays, as the database does."""
    getattr(item, "_initrequest", lambda: None)()  # fixtures of its own are made anew each time
    session: Any = item.session  # the only thing that the next one shares with it
    for report in runtestprotocol(item, log=False, nextitem=session):
        if report.failed:
            return report.longreprtext
    return None


def judge(mutant: Mutant, items: list[pytest.Item], usual: dict[str, float]) -> dict[str, Any]:
    began = time.monotonic()
    verdict, by = "no such test", ""
    while items:
        verdict, by = shown_to(mutant, items, usual)
        noticing = next((n for n, item in enumerate(items) if item.nodeid == by), None)
        if verdict != "noticed" or noticing is None or passes(items[noticing]):
            break
        sys.stdout.write(f"\n{by} fails without any mutant as well: left out\n")
        verdict, by, items = "survived", "", items[noticing + 1 :]
    return {"verdict": verdict, "by": by, "seconds": round(time.monotonic() - began, 1)}


def passes(item: pytest.Item) -> bool:
    """A second time on an empty database: the mutant may have left rows behind."""
    if failure(item) is None:
        return True
    empty_the_database(item)
    return failure(item) is None


def empty_the_database(item: pytest.Item) -> None:
    with item.config.stash[blocking_manager_key].unblock():
        call_command("flush", verbosity=0, interactive=False)
    connections.close_all()


def shown_to(mutant: Mutant, items: list[pytest.Item], usual: dict[str, float]) -> tuple[str, str]:
    """What came of it, and the test that ran last."""
    source = mutant.applied((ROOT / mutant.file).read_bytes())
    connections.close_all()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _in_the_fork(mutant, source, items, writing)
    os.close(writing)
    by, code = _outcome(child, reading, usual)
    if code is None:
        empty_the_database(items[0])  # a test that was killed left its rows behind
    if is_migration(mutant):
        with items[0].config.stash[blocking_manager_key].unblock():
            renew_functions(mutant.file)
    connections.close_all()
    verdict = "noticed" if code is None else VERDICTS.get(code, "noticed")
    return verdict, by if verdict == "noticed" else ""


def is_migration(mutant: Mutant) -> bool:
    return "/migrations/" in mutant.file


def _in_the_fork(mutant: Mutant, source: bytes, items: list[pytest.Item], writing: int) -> None:
    os.setpgid(0, 0)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    code = SURVIVED
    try:
        swap_in(mutant.file, source)
        if is_migration(mutant):
            with items[0].config.stash[blocking_manager_key].unblock():
                renew_functions(mutant.file)
        for item in items:
            os.write(writing, f"{item.nodeid}\n".encode())
            if failure(item) is not None:
                code = NOTICED
                break
    except NothingChanged:
        code = NOT_APPLIED
    except BaseException as error:  # it could not even be imported
        os.write(writing, f"{type(error).__name__}: {' '.join(str(error).split())}\n".encode()[:300])
        code = NOTICED
    sys.stdout.flush()
    os._exit(code)


def _outcome(child: int, reading: int, usual: dict[str, float]) -> tuple[str, int | None]:
    """The last that the fork said, and its exit code; None when the time was up."""
    said = b""
    last = ""
    ends_at = time.monotonic() + PATIENCE + 10 * sum(usual.values())
    limit = PATIENCE
    while ready := select.select([reading], [], [], max(0.0, min(limit, ends_at - time.monotonic())))[0]:
        piece = os.read(reading, 4096)
        if not piece:
            break
        said += piece
        last = said.decode(errors="replace").rstrip("\n").rpartition("\n")[2]
        limit = PATIENCE + 10 * usual.get(last, 0.0)
    os.close(reading)
    if not ready:
        os.killpg(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return last, os.waitstatus_to_exitcode(status) if ready else None
