"""What `make demo CHANNEL=…` sets up works for every channel that has a scripted gateway."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from accounts.channels.registry import channels
from accounts.models import Account
from fanout.models import Run
from tests.factories import UserFactory
from tests.gateways.process import GatewayServer
from tests.gateways.trial import ROOT, TRIALS
from tests.gateways.trial_data import fire


def test_every_gateway_can_be_tried() -> None:
    dialects = {path.stem for path in Path(__file__).parent.glob("*.py") if "\nDIALECT = " in path.read_text()}

    assert {trial.dialect for trial in TRIALS.values()} == dialects
    assert set(TRIALS) <= set(channels())


@pytest.mark.processes
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("channel", ["waha", "unipile"])
def test_a_run_is_under_way_and_a_second_start_finds_everything(channel: str, tmp_path: Path) -> None:
    UserFactory.create(username="mei")
    with GatewayServer(tmp_path, TRIALS[channel].dialect) as server:
        fire(channel, server.url)
        fire(channel, server.url)

    run = Run.objects.order_by("pk").first()
    assert run is not None
    assert (run.status, run.total, run.account.channel) == ("queued", 7, channel)
    assert Account.objects.count() == 1


@pytest.mark.processes
def test_nothing_is_left_behind_after_sigterm(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "tests.gateways.trial", "waha", "--port", str(port)]
    environment = {**os.environ, "CRIER_VAR": str(tmp_path), "DATABASE_URL": ""}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL) as trial:
        parent = psutil.Process(trial.pid)
        wait_until(lambda: len(parent.children()) == 2)
        children = parent.children()
        trial.terminate()
        trial.wait(90)
    wait_until(lambda: not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children))


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.1)
