"""Answers and reports of WAHA in its own shapes (tests/gateways/captures/waha.py)."""

from __future__ import annotations

import pytest

from accounts.channels.base import AccountConfig
from accounts.channels.http import Answer
from accounts.channels.waha.transport import outcome_of
from accounts.channels.waha.webhook import WahaWebhook
from tests.gateways.captures.shapes import CapturedAnswer, CapturedReport, judge_report
from tests.gateways.captures.waha import ANSWERS, REPORTS
from tests.gateways.process import judge

ACCOUNT = AccountConfig(1, "waha", "Line", "", {}, {"hmac_key": "k3y"})


@pytest.mark.parametrize("capture", ANSWERS, ids=lambda capture: capture.name)
def test_what_an_answer_means(capture: CapturedAnswer) -> None:
    judge(outcome_of(Answer(capture.status, capture.body)), capture.means)


@pytest.mark.parametrize("capture", REPORTS, ids=lambda capture: capture.name)
def test_what_a_report_says(capture: CapturedReport) -> None:
    judge_report(WahaWebhook(), ACCOUNT, capture)
