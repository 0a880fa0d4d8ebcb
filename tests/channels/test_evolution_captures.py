"""Answers and reports of Evolution API in its own shapes (tests/gateways/captures/evolution.py)."""

from __future__ import annotations

import pytest

from accounts.channels.base import AccountConfig
from accounts.channels.evolution.transport import outcome_of
from accounts.channels.evolution.webhook import EvolutionWebhook
from accounts.channels.http import Answer
from tests.gateways.captures.evolution import ANSWERS, REPORTS
from tests.gateways.captures.shapes import CapturedAnswer, CapturedReport, judge_report
from tests.gateways.process import judge

ACCOUNT = AccountConfig(1, "evolution", "Line", "", {"instance": "acme"}, {"webhook_secret": "k3y"})


@pytest.mark.parametrize("capture", ANSWERS, ids=lambda capture: capture.name)
def test_what_an_answer_means(capture: CapturedAnswer) -> None:
    judge(outcome_of(Answer(capture.status, capture.body), capture.with_file), capture.means)


@pytest.mark.parametrize("capture", REPORTS, ids=lambda capture: capture.name)
def test_what_a_report_says(capture: CapturedReport) -> None:
    judge_report(EvolutionWebhook(), ACCOUNT, capture)
