"""Answers and reports of WAHA in its own shapes (tests/gateways/captures/waha.py)."""

from __future__ import annotations

import pytest

from accounts.channels.http import Answer
from accounts.channels.waha.transport import outcome_of
from tests.gateways.captures.shapes import CapturedAnswer
from tests.gateways.captures.waha import ANSWERS
from tests.gateways.process import judge


@pytest.mark.parametrize("capture", ANSWERS, ids=lambda capture: capture.name)
def test_what_an_answer_means(capture: CapturedAnswer) -> None:
    judge(outcome_of(Answer(capture.status, capture.body)), capture.means)
