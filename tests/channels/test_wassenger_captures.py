"""Answers and reports of Wassenger in its own shapes (tests/gateways/captures/wassenger.py)."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from accounts.channels.base import AccountConfig
from accounts.channels.http import Answer
from accounts.channels.provider_events import HookRequest
from accounts.channels.wassenger.transport import outcome_of
from accounts.channels.wassenger.webhook import WassengerWebhook
from tests.gateways.captures.shapes import CapturedAnswer, CapturedReport, judge_report
from tests.gateways.captures.wassenger import ANSWERS, REPORTS, written, written_nested
from tests.gateways.process import judge

ACCOUNT = AccountConfig(1, "wassenger", "Line", "", {"device": "d1"}, {})


@pytest.mark.parametrize("capture", ANSWERS, ids=lambda capture: capture.name)
def test_what_an_answer_means(capture: CapturedAnswer) -> None:
    judge(outcome_of(Answer(capture.status, capture.body)), capture.means)


@pytest.mark.parametrize("capture", REPORTS, ids=lambda capture: capture.name)
def test_what_a_report_says(capture: CapturedReport) -> None:
    judge_report(WassengerWebhook(), ACCOUNT, capture)


@pytest.mark.parametrize("body", [written(), written_nested()], ids=["flat", "nested"])
def test_when_it_was_written(body: dict[str, object]) -> None:
    (event,) = WassengerWebhook().parse(HookRequest("POST", {}, {}, json.dumps(body).encode()), ACCOUNT)

    assert event.at == datetime(2026, 5, 28, 20, 26, 40, tzinfo=UTC)
