"""What Meta's documented answers and webhooks mean (tests/gateways/captures/cloud.py)."""

from __future__ import annotations

import pytest

from accounts.channels.base import AccountConfig, NotSent, Unknown
from accounts.channels.cloud.transport import CloudTransport
from accounts.channels.http import Answer
from tests.channels.contract import TEXT
from tests.gateways.captures import cloud as captures

ACCOUNT = AccountConfig(1, "cloud", "Line", "", {"phone_number_id": "10200"}, {"access_token": "k"})


@pytest.mark.parametrize("capture", captures.ERRORS, ids=lambda capture: f"{capture.code}")
def test_an_error_has_its_kind_its_wait_and_a_sentence(capture: captures.ErrorCapture) -> None:
    outcome = CloudTransport(ACCOUNT).outcome_of(Answer(capture.status, capture.body()), TEXT)

    if capture.kind is None:
        assert isinstance(outcome, Unknown)
    else:
        assert isinstance(outcome, NotSent)
        assert (outcome.kind, outcome.retry_after) == (capture.kind, capture.wait)
    assert capture.title in outcome.detail
    assert capture.advice in outcome.detail
