from __future__ import annotations

import os
from collections.abc import Iterator
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from django.conf import settings
from django.test import TransactionTestCase

from tests import emptying
from tests.engine.stage import Stage

# The same examples in every run, without a deadline: the machine may be busy. `make search` draws new ones.
hypothesis.settings.register_profile("same", derandomize=True, database=None, deadline=None)
hypothesis.settings.register_profile("search", derandomize=False, deadline=None, max_examples=500, print_blob=True)
hypothesis.settings.load_profile("same")

#: modules whose single tests take longest: begun first, so that no worker is left alone with one of them at the end
SLOW = (
    "engine/test_processes",
    "runs/test_message_2_processes",
    "ops/test_payloads",
    "engine/test_simulation",
    "simulation/test_",
    "mutants/test_sample",
)
#: as it was before the first module was imported
ENVIRONMENT: dict[str, str] = {}


def pytest_sessionstart() -> None:
    """Made by collectstatic on a server; whitenoise warns where it is missing, as soon as a module imports the
    application."""
    settings.STATIC_ROOT.mkdir(parents=True, exist_ok=True)
    ENVIRONMENT.update(os.environ)
    TransactionTestCase._fixture_teardown = emptying.empty  # type: ignore[attr-defined]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not any(module in item.nodeid for module in SLOW))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown() -> Iterator[None]:
    """A variable that a test leaves behind changes the tests that come after it in the same worker."""
    yield
    changed = {name for name, _ in ENVIRONMENT.items() ^ os.environ.items()} - {"PYTEST_CURRENT_TEST"}
    for name in changed:
        os.environ.pop(name, None)
    os.environ.update({name: ENVIRONMENT[name] for name in changed & ENVIRONMENT.keys()})
    assert not changed, f"left changed in the environment: {', '.join(sorted(changed))}"


@pytest.fixture(scope="session")
def django_db_modify_db_settings(django_db_modify_db_settings_parallel_suffix: None) -> None:
    """A database of this test run's own: two runs in one checkout do not pull it from under each other."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", f"{os.getpid()}")[:12]
    for database in settings.DATABASES.values():
        test = database.setdefault("TEST", {})
        test["NAME"] = f"{test.get('NAME') or 'test_' + str(database['NAME'])}_{run}"


@pytest.fixture(autouse=True)
def media_root(settings: Any, tmp_path: Path) -> None:
    """Uploaded files of tests go away with them."""
    settings.MEDIA_ROOT = tmp_path / "media"


@pytest.fixture(autouse=True)
def quick_passwords(settings: Any) -> None:
    """A real hash takes half a second by design, and the suite logs in thousands of times."""
    settings.PASSWORD_HASHERS = ["tests.hashing.OneRound"]


@pytest.fixture(autouse=True)
def private_networks(settings: Any) -> None:
    """Tests talk to servers on this machine, whatever the environment says."""
    settings.ALLOW_PRIVATE_NETWORKS = [ip_network("0.0.0.0/0"), ip_network("::/0")]
    settings.SANDBOX = True


@pytest.fixture
def stage(transactional_db: None, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """The real lane on the virtual clock."""
    # It runs ORM calls of a test inside its event loop; nothing waits there but the test itself.
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    settings.MEDIA_ROOT = tmp_path
    return Stage()
