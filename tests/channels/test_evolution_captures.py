"""Answers and reports of Evolution API in its own shapes (tests/gateways/captures/evolution.py)."""

from __future__ import annotations

import pytest

from accounts.channels.evolution.transport import outcome_of
from accounts.channels.http import Answer
from tests.gateways.captures.evolution import ANSWERS, CapturedAnswer
from tests.gateways.process import judge


@pytest.mark.parametrize("capture", ANSWERS, ids=lambda capture: capture.name)
def test_what_an_answer_means(capture: CapturedAnswer) -> None:
    judge(outcome_of(Answer(capture.status, capture.body), capture.with_file), capture.means)
