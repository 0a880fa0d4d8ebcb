"""A pytest plugin (`-p tests.mutants.judging`): which mutants do the collected tests notice?

The tests run once as they are: they must pass, and their database is there afterwards. Then each mutant gets a fork of
this process, in which they run again, the quickest first, until one fails.
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
PATIENCE = 60.0  # seconds, besides ten times what the tests need without the mutant


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--mutants", help="a JSON file of mutants; each may name the one test that must notice it")
    parser.addoption("--verdicts", help="where to add a line of JSON for each")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    if session.testsfailed:
        raise session.Interrupted("the tests could not be collected")
    seconds = {item.nodeid: run(item, session) for item in session.items}
    items = sorted(session.items, key=lambda item: seconds[item.nodeid])
    with open(session.config.getoption("verdicts"), "a") as verdicts:
        for raw in json.loads(Path(session.config.getoption("mutants")).read_text()):
            test, digest = raw.pop("test", None), raw.pop("digest", "")
            chosen = [item for item in items if test in (None, item.nodeid)]
            verdict = judge(Mutant(**raw), chosen, sum(seconds[item.nodeid] for item in chosen))
            verdicts.write(json.dumps(raw | verdict | {"test": test, "digest": digest}) + "\n")
            verdicts.flush()
    # What tests share goes away with the last of them.
    runtestprotocol(items[0], log=False, nextitem=None)
    return True


def run(item: pytest.Item, session: pytest.Session) -> float:
    began = time.monotonic()
    failed = failure(item)
    if failed is not None:
        session.testsfailed += 1
        raise session.Interrupted(f"{item.nodeid} fails without any mutant:\n{failed}")
    return time.monotonic() - began


def failure(item: pytest.Item) -> str | None:
    """What the test said when it failed. What the session shares stays, as the database does."""
    getattr(item, "_initrequest", lambda: None)()  # fixtures of its own are made anew each time
    session: Any = item.session  # the only thing that the next one shares with it
    for report in runtestprotocol(item, log=False, nextitem=session):
        if report.failed:
            return report.longreprtext
    return None


def judge(mutant: Mutant, items: list[pytest.Item], usual: float) -> dict[str, Any]:
    if not items:
        return {"verdict": "no such test"}
    source = mutant.applied((ROOT / mutant.file).read_bytes())
    connections.close_all()
    began = time.monotonic()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _in_the_fork(mutant, source, items, writing)
    os.close(writing)
    by, code = _outcome(child, reading, PATIENCE + 10 * usual)
    with items[0].config.stash[blocking_manager_key].unblock():
        if code is None:
            # A test that was killed left its rows behind.
            call_command("flush", verbosity=0, interactive=False, inhibit_post_migrate=True)
        if is_migration(mutant):
            renew_functions(mutant.file)
    connections.close_all()
    verdict = "noticed" if code is None else VERDICTS.get(code, "noticed")
    return {"verdict": verdict, "by": by or ("time limit" if code is None else ""), "seconds": time.monotonic() - began}


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
            if failure(item) is not None:
                os.write(writing, item.nodeid.encode())
                code = NOTICED
                break
    except NothingChanged:
        code = NOT_APPLIED
    except BaseException as error:  # it could not even be imported
        os.write(writing, f"{type(error).__name__}: {error}".encode()[:300])
        code = NOTICED
    sys.stdout.flush()
    os._exit(code)


def _outcome(child: int, reading: int, limit: float) -> tuple[str, int | None]:
    """Which test noticed, and the exit code; None when the time was up."""
    by = b""
    ends_at = time.monotonic() + limit
    while ready := select.select([reading], [], [], max(0.0, ends_at - time.monotonic()))[0]:
        piece = os.read(ready[0], 4096)
        if not piece:
            break
        by += piece
    os.close(reading)
    if not ready:
        os.killpg(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return by.decode(errors="replace"), os.waitstatus_to_exitcode(status) if ready else None
