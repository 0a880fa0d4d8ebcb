"""The demo's provider: its own, found again, and never a stranger's."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from config import env
from config.local.children import wait_until
from config.local.provider import health
from config.local.supervisor import StartError, Supervisor
from tests.sandbox_server import SandboxServer

pytestmark = pytest.mark.processes


@pytest.fixture
def parent(settings, monkeypatch) -> Iterator[Callable[[Path], Supervisor]]:
    """A parent in a checkout of its own, as `manage.py up --demo` makes it."""
    monkeypatch.delenv("SANDBOX_URL", raising=False)
    made: list[Supervisor] = []

    def make(var: Path) -> Supervisor:
        monkeypatch.setattr(env, "VAR_DIR", var)
        settings.VAR_DIR = var
        settings.SANDBOX_URL = env.url("SANDBOX_URL", env.sandbox_url())
        made.append(Supervisor(lambda line: None, "127.0.0.1", 8000, sandbox=True, workers=None))
        return made[-1]

    yield make
    for one in made:
        one.record.close()
        if one.provider is not None:
            one.provider.child.kill_all()


def killed(one: Supervisor) -> None:
    """As by kill -9: the record is free again, the provider lives on."""
    one.record.close()


def test_its_files_are_for_one_user_only_and_the_folder_above_is_left_alone(parent, tmp_path):
    var = tmp_path / "var"
    (var / "sandbox").mkdir(parents=True)
    var.chmod(0o755)
    (var / "sandbox").chmod(0o755)
    parent(var)
    assert [oct(path.stat().st_mode & 0o777) for path in (var, var / "sandbox")] == ["0o755", "0o700"]


def test_two_checkouts_have_a_provider_each(parent, tmp_path):
    first, second = parent(tmp_path / "a"), parent(tmp_path / "b")
    urls = [first.start_provider(), second.start_provider()]
    assert urls[0] != urls[1]
    assert health(urls[0])["token"] != health(urls[1])["token"]
    assert [child.env["SANDBOX_URL"] for child in (first.web, *first.clusters)] == [urls[0]] * 3
    assert (tmp_path / "a" / "sandbox" / "book.jsonl").exists()
    assert (tmp_path / "b" / "sandbox" / "book.jsonl").exists()


def test_the_one_that_a_killed_parent_left_is_found_again(parent, tmp_path):
    first = parent(tmp_path)
    url = first.start_provider()
    killed(first)
    second = parent(tmp_path)
    assert second.start_provider() == url
    assert second.provider.child.pid == first.provider.child.pid


def test_a_port_that_went_to_a_stranger_is_given_up(parent, tmp_path):
    first = parent(tmp_path / "a")
    url = first.start_provider()
    first.provider.child.kill_all()
    killed(first)
    with SandboxServerOn(tmp_path, url):
        second = parent(tmp_path / "a")
        assert second.start_provider() != url
        assert health(second.provider.url)["token"] == second.provider.token


def test_after_a_crash_it_comes_back_where_the_accounts_look_for_it(parent, tmp_path):
    one = parent(tmp_path)
    url = one.start_provider()
    os.kill(one.provider.child.pid, signal.SIGKILL)
    one.provider.child.popen.wait()
    one.provider.child.start()
    assert wait_until(lambda: bool(health(url)), 20)


def test_a_provider_that_the_site_names_is_used_and_left_alone(parent, tmp_path, monkeypatch):
    with SandboxServer(tmp_path) as server:
        monkeypatch.setenv("SANDBOX_URL", server.url)
        one = parent(tmp_path / "a")
        assert one.start_provider() == server.url
        assert one.provider is None


def test_an_address_that_the_site_names_and_another_program_has_is_refused(parent, tmp_path, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as busy:
        monkeypatch.setenv("SANDBOX_URL", f"http://127.0.0.1:{busy.getsockname()[1]}")
        with pytest.raises(StartError, match=r"(?s)address already in use.*Choose another address in SANDBOX_URL"):
            parent(tmp_path).start_provider()


class SandboxServerOn(SandboxServer):
    """A stranger's, on a port that was ours."""

    def __init__(self, directory: Path, url: str) -> None:
        super().__init__(directory)
        self.port = int(url.rpartition(":")[2])
