from __future__ import annotations

import fcntl
import gc
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import hypothesis
import psycopg
import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import connection
from django.test import TransactionTestCase

from tests import emptying
from tests.engine.sessions import SESSIONS
from tests.engine.stage import Stage
from tests.run import LEFT_OUT_FILE
from tests.settings import template_name

# The same examples in every run, without a deadline: the machine may be busy. `make search` draws new ones.
hypothesis.settings.register_profile("same", derandomize=True, database=None, deadline=None)
hypothesis.settings.register_profile("search", derandomize=False, deadline=None, max_examples=500, print_blob=True)
hypothesis.settings.load_profile("same")

#: Modules of the second tier besides all tests marked `browser` or `processes`: what they find is worth minutes, not
#: a wait before every commit.
SLOW = (
    "tests/simulation/test_",
    "tests/mutants/test_sample",
    "tests/security/test_hostile_input",
    "tests/plans/test_forecast_on_the_engine",
    "tests/engine/test_machine",
    "tests/security/test_permission_matrix.py::test_pages",
    "tests/engine/test_simulation",
)
#: More than about fifteen seconds on a quiet machine, most of which they wait: they begin first, or one worker would be
#: left alone with one of them at the end.
LONGEST = (
    "tests/engine/test_processes.py::test_kills",
    "tests/ops/test_webhook_processes",
    "tests/browser/test_axe",
    "tests/simulation/test_schedules.py::test_the_invariants",
    "tests/simulation/test_plants",
    "tests/security/test_permission_matrix.py::test_pages",
    "tests/config/test_problems.py::test_simulate_works",
    "tests/config/test_up",
    "tests/engine/test_storing.py::test_lanes_wait",
    "tests/api/test_schema",
    "tests/browser/test_guide",
    "tests/plans/test_forecast.py::test_within",
    "tests/ops/test_broker.py::test_a_real_cluster",
    "tests/runs/test_at_the_same_moment.py::test_every_pair",
    "tests/engine/test_processes.py::test_five_hundred_lanes",
    "tests/engine/test_simulation.py::test_three_thousand_lanes",
    "tests/mutants/test_sample.py::test_every_mutant",
    "tests/runs/test_message_2_processes",
)
ROOT = Path(__file__).resolve().parent.parent
MARKED = re.compile(r"\bmark\.(browser|processes|slow)\b")
#: as it was before the first module was imported
ENVIRONMENT: dict[str, str] = {}


def pytest_sessionstart() -> None:
    """Made by collectstatic on a server; whitenoise warns where it is missing, as soon as a module imports the
    application."""
    settings.STATIC_ROOT.mkdir(parents=True, exist_ok=True)
    import_module(settings.ROOT_URLCONF)  # registers the pages: tests ask the admin site for all of them
    ENVIRONMENT.update(os.environ)
    TransactionTestCase._fixture_teardown = emptying.empty  # type: ignore[attr-defined]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tier", choices=("quick", "rest", "all"), default="all", help="quick: what `make test` runs")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Spare the second tier the modules that have none of its tests: importing all takes as long as a dozen tests."""
    is_module = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
    return True if is_module and not is_collected(collection_path, config) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Import a share of the modules before they are collected. Workers that come to a new module at the same time would
    each rewrite its assertions, which takes longer than everything else about it; so each finds most of them done."""
    worker, workers = os.environ.get("PYTEST_XDIST_WORKER"), int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if worker is None or [Path(words).resolve() for words in session.config.args] != [ROOT / "tests"]:
        return
    gc.disable()  # what importing and collecting make stays: looking for garbage in it takes a second
    modules = [path for path in sorted((ROOT / "tests").rglob("test_*.py")) if is_collected(path, session.config)]
    for path in modules[int(worker.removeprefix("gw")) :: workers]:
        with suppress(Exception):  # collecting it reports the problem
            import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))


def is_collected(module: Path, config: pytest.Config) -> bool:
    return config.option.tier != "rest" or has_slow_tests(module)


def has_slow_tests(module: Path) -> bool:
    """Read it from the module's text; collecting the first tier proves that it is so."""
    name = module.relative_to(ROOT).as_posix()
    return name.startswith(("tests/browser/", *(slow.partition("::")[0] for slow in SLOW))) or bool(
        MARKED.search(module.read_text())
    )


#: how many tests of each kind the chosen tier leaves out
LEFT_OUT: Counter[str] = Counter()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the chosen tier. Every worker begins with some of the longest."""
    tier = config.option.tier
    overlooked = {item.path for item in items if is_slow(item) and not has_slow_tests(item.path)}
    if overlooked:
        raise pytest.UsageError(f"the second tier does not collect {', '.join(map(str, overlooked))}")
    left_out = [item for item in items if tier != "all" and is_slow(item) is (tier == "quick")]
    LEFT_OUT.update(map(_kind, left_out))
    config.hook.pytest_deselected(items=left_out)
    dropped = set(left_out)
    kept = [item for item in items if item not in dropped]
    items[:] = dealt(kept, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))


def pytest_collection_finish() -> None:
    gc.enable()
    gc.freeze()  # nor is it looked through during the tests


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Under pytest-xdist only workers collect: tell the controller what they left out."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = dict(LEFT_OUT)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    told = getattr(node, "workeroutput", None)  # a worker that crashed has none
    if told is not None:
        LEFT_OUT.clear()  # every worker collects the same tests
        LEFT_OUT.update(told.get("left_out", {}))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    tier = terminalreporter.config.option.tier
    line = ""
    if tier == "quick" and LEFT_OUT:
        kinds = ", ".join(f"{count} {kind}" for kind, count in LEFT_OUT.most_common())
        line = f"Left out: {LEFT_OUT.total()} tests ({kinds}). Run them with: make test-rest"
    elif tier == "rest":
        line = "Left out: the tests of the first tier. Run them with: make test"
    if path := os.environ.get(LEFT_OUT_FILE):
        Path(path).write_text(line)  # the last line of the summary that tests/run.py prints
    elif line:
        terminalreporter.write_line(line)


def is_slow(item: pytest.Item) -> bool:
    """Return whether only `make test-rest` runs it: it needs a browser, processes, or more than about two seconds."""
    marked = any(item.get_closest_marker(name) for name in ("browser", "processes", "slow"))
    return marked or item.nodeid.startswith(SLOW)


def _kind(item: pytest.Item) -> str:
    """A word for the summary: the test's marker, else its package."""
    kinds = ("browser", "processes")
    return next((kind for kind in kinds if item.get_closest_marker(kind)), item.path.parent.name)


def dealt(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """Return the tests in the order of `workers` equal parts, as pytest-xdist hands them out. The longest are at the
    beginning of some parts. Where there are enough parts, one for each core is without: it uses the core meanwhile."""
    longest = sorted((item for item in items if item.nodeid.startswith(LONGEST)), key=_rank)
    others = [item for item in items if not item.nodeid.startswith(LONGEST)]
    cores = os.cpu_count() or 1
    waiting = workers - cores if workers > cores + 1 else workers
    parts: list[pytest.Item] = []
    for number in range(workers):
        first = longest[number::waiting] if number < waiting else []
        room = max(0, (len(items) - len(parts)) // (workers - number) - len(first))
        parts += first + others[:room]
        del others[:room]
    return parts


def _rank(item: pytest.Item) -> int:
    return next(number for number, name in enumerate(LONGEST) if item.nodeid.startswith(name))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown() -> Iterator[None]:
    """A variable that a test leaves behind changes the tests that come after it in the same worker."""
    try:
        yield
    finally:
        changed = {name for name, _ in ENVIRONMENT.items() ^ os.environ.items()} - {"PYTEST_CURRENT_TEST"}
        for name in changed:
            os.environ.pop(name, None)
        os.environ.update({name: ENVIRONMENT[name] for name in changed & ENVIRONMENT.keys()})
    assert not changed, f"left changed in the environment: {', '.join(sorted(changed))}"


@pytest.fixture(scope="session")
def django_db_setup(django_test_environment: None, django_db_blocker: Any) -> Iterator[None]:
    """Copy a database that was migrated once for all workers: migrations take longer than most modules."""
    run = Path(os.environ["CRIER_TEST_RUN"])
    template = template_name(run)
    name = f"test_{template}_{os.getpid()}"
    original = settings.DATABASES["default"]["NAME"]
    settings.DATABASES["default"]["NAME"] = connection.settings_dict["NAME"] = name
    with django_db_blocker.unblock(), psycopg.connect(settings.DATABASE_URL, autocommit=True) as server:
        with (run / "template.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not server.execute("SELECT 1 FROM pg_database WHERE datname = %s", [template]).fetchone():
                server.execute(f"CREATE DATABASE {name}")
                call_command("migrate", verbosity=0)
                connection.close()
                server.execute(f"ALTER DATABASE {name} RENAME TO {template}")
            server.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        yield
        SESSIONS.close()
        connection.close()
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")  # a process of the last test may be about to end
    settings.DATABASES["default"]["NAME"] = connection.settings_dict["NAME"] = original


@pytest.fixture(autouse=True)
def media_root(request: pytest.FixtureRequest) -> Iterator[None]:
    """Uploaded files of tests go away with them. They are below `tmp_path` where a test has one: its processes look for
    them there."""
    if "tmp_path" in request.fixturenames:
        request.getfixturevalue("settings").MEDIA_ROOT = request.getfixturevalue("tmp_path") / "media"
        yield
    else:  # a directory for every test would cost as much as many a test
        yield
        shutil.rmtree(settings.MEDIA_ROOT, ignore_errors=True)


@pytest.fixture
def stage(transactional_db: None, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """The real lane on the virtual clock."""
    # It runs ORM calls of a test inside its event loop; nothing waits there but the test itself.
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    settings.MEDIA_ROOT = tmp_path
    return Stage()
