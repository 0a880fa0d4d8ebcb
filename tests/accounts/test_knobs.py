"""Effective values of knobs, and the delay between two sends that a channel allows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from accounts import knobs
from accounts.channels.base import Channel
from accounts.knobs import delay_error
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


# -- the delay between two sends --------------------------------------------------------------------------


GATEWAY = Channel(key="waha", label="waha", delay=(2, 10))


def effective(**values: float) -> dict[str, knobs.Setting]:
    return knobs.resolve(values, {}, {})


@pytest.mark.parametrize(
    ("values", "accepted"),
    [
        case({"max_send_per_minute": 20}, True, id="three-seconds"),
        case({"max_send_per_minute": 30}, True, id="two-seconds"),
        case({"max_send_per_minute": 6}, True, id="ten-seconds"),
        case({"max_send_per_minute": 31}, False, id="just-too-fast"),
        case({"max_send_per_minute": 5}, False, id="too-slow"),
        case({}, False, id="forty-a-minute-by-default"),
        case({"max_send_per_minute": 0}, False, id="no-limit"),
        case({"max_send_per_minute": 0, "min_gap_seconds": 2, "max_gap_seconds": 9}, True, id="gap-alone"),
        case({"max_send_per_minute": 60, "min_gap_seconds": 1, "max_gap_seconds": 9}, False, id="gap-too-short"),
        case({"max_send_per_minute": 20, "min_gap_seconds": 1, "max_gap_seconds": 12}, False, id="gap-too-long"),
        case({"max_send_per_minute": 20, "min_gap_seconds": 0, "max_gap_seconds": 5}, True, id="rate-and-gap"),
    ],
)
def test_a_bounded_delay(values: dict[str, float], accepted: bool) -> None:
    assert (delay_error(GATEWAY, effective(**values)) is None) == accepted


def test_the_sentence_says_what_to_do() -> None:
    assert delay_error(GATEWAY, effective()) == (
        "A waha account sends one message every 2 to 10 seconds; these settings give 1.5 s. "
        "Set max_send_per_minute from 6 to 30 (20 is one every 3 seconds), and gaps of at most 10 seconds."
    )


def test_others_are_free() -> None:
    assert delay_error(replace(GATEWAY, delay=None), effective(max_send_per_minute=600)) is None
