"""Answers and reports of Unipile in its own shapes (tests/gateways/captures/unipile.py)."""

from __future__ import annotations

import pytest

from accounts.channels.base import AccountConfig
from accounts.channels.http import Answer
from accounts.channels.unipile.transport import outcome_of
from accounts.channels.unipile.webhook import UnipileWebhook
from tests.gateways.captures.shapes import CapturedAnswer, CapturedReport, judge_report
from tests.gateways.captures.unipile import ANSWERS, REPORTS
from tests.gateways.process import judge

ACCOUNT = AccountConfig(1, "unipile", "Line", "", {"account_id": "a1"}, {})


@pytest.mark.parametrize("capture", ANSWERS, ids=lambda capture: capture.name)
def test_what_an_answer_means(capture: CapturedAnswer) -> None:
    judge(outcome_of(Answer(capture.status, capture.body), "message_id", "chat_id"), capture.means)


@pytest.mark.parametrize("capture", REPORTS, ids=lambda capture: capture.name)
def test_what_a_report_says(capture: CapturedReport) -> None:
    judge_report(UnipileWebhook(), ACCOUNT, capture)
