"""Effective knobs: the account's own, else the environment's, else the channel's, else the default."""

from __future__ import annotations

import pytest

from accounts import knobs
from tests.factories import AccountFactory

case = pytest.param


@pytest.mark.parametrize(
    ("own", "environment", "channel", "value", "source"),
    [
        case(9, 5, 1, 9, "account", id="account"),
        case(None, 5, 1, 5, "environment", id="environment"),
        case(None, None, 1, 1, "channel", id="channel"),
        case(None, None, None, 3, "default", id="default"),
        case(0, 5, 1, 0, "account", id="zero-is-a-value"),
    ],
)
def test_who_decides(own: float, environment: float, channel: float, value: float, source: str) -> None:
    def layer(number: float | None) -> dict[str, float]:
        return {} if number is None else {"group_concurrency": number}

    setting = knobs.resolve({"group_concurrency": own}, layer(environment), layer(channel))["group_concurrency"]

    assert (setting.value, setting.source) == (value, source)


@pytest.mark.parametrize(("channel", "value", "source"), [("smtp", 1, "channel"), ("sandbox", 3, "default")])
def test_mail_goes_out_one_at_a_time(channel: str, value: float, source: str) -> None:
    setting = AccountFactory.build(channel=channel, owner=None).settings()["group_concurrency"]

    assert (setting.value, setting.source) == (value, source)
