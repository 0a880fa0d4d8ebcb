"""What Meta's documented answers and webhooks mean (tests/gateways/captures/cloud.py)."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from accounts.channels.base import AccountConfig, NotSent, Unknown
from accounts.channels.cloud.transport import outcome_of
from accounts.channels.cloud.webhook import CloudWebhook
from accounts.channels.http import Answer
from accounts.channels.provider_events import HookRequest
from tests.gateways.captures import cloud as captures

ACCOUNT = AccountConfig(1, "cloud", "Line", "", {"phone_number_id": "10200"}, {"access_token": "k"})


@pytest.mark.parametrize("capture", captures.ERRORS, ids=lambda capture: f"{capture.code}")
def test_an_error_has_its_kind_its_wait_and_a_sentence(capture: captures.ErrorCapture) -> None:
    outcome = outcome_of(Answer(capture.status, capture.body()))

    if capture.kind is None:
        assert isinstance(outcome, Unknown)
    else:
        assert isinstance(outcome, NotSent)
        assert (outcome.kind, outcome.retry_after) == (capture.kind, capture.wait)
    assert capture.title in outcome.detail
    assert capture.advice in outcome.detail


def events_of(capture: captures.HookCapture, business: str = "", number: str = captures.NUMBER_ID) -> list[Any]:
    config = {"phone_number_id": number, "business_account_id": business}
    request = HookRequest("POST", {}, {}, json.dumps(capture.body()).encode())
    return CloudWebhook().parse(request, replace(ACCOUNT, config=config))


@pytest.mark.parametrize("capture", captures.HOOKS, ids=lambda capture: f"{capture.field}-{capture.name}")
def test_a_webhook_says_this_and_nothing_else(capture: captures.HookCapture) -> None:
    events = events_of(capture, business=captures.BUSINESS_ID)

    assert [(event.kind, event.text) for event in events] == [(kind, text) for kind, text, _ in capture.events]
    for event, (_, _, detail) in zip(events, capture.events):
        assert {name: event.detail[name] for name in event.detail.keys() - {"user_id"}} == detail
        assert event.at == datetime.fromtimestamp(captures.AT, UTC)
        assert event.address == ("" if event.kind == "session" else f"+{captures.PERSON}")


@pytest.mark.parametrize("capture", captures.HOOKS, ids=lambda capture: f"{capture.field}-{capture.name}")
def test_a_webhook_about_another_number_or_business_account_says_nothing(capture: captures.HookCapture) -> None:
    assert events_of(capture, business="20401", number="10201") == []


def test_our_business_account_counts_by_its_id() -> None:
    deleted = next(capture for capture in captures.HOOKS if capture.name == "ACCOUNT_DELETED")
    to_partner = deleted._replace(value={**deleted.value, "waba_info": {"waba_id": "20401"}})

    assert len(events_of(deleted, business=captures.BUSINESS_ID)) == 1
    assert events_of(to_partner, business=captures.BUSINESS_ID) == []
    assert len(events_of(to_partner, business="20401")) == 1
