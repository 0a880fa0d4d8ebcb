"""What `make demo CHANNEL=…` sets up works for every channel that has a scripted gateway."""

from __future__ import annotations

from pathlib import Path

import pytest

from accounts.channels.registry import channels
from accounts.models import Account
from fanout.models import Run
from tests.factories import UserFactory
from tests.gateways.process import GatewayServer
from tests.gateways.trial import TRIALS
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
