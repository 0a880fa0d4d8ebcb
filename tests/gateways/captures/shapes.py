"""What a capture of a gateway is: its shape, the place that documents it, and what it means."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from accounts.channels.base import AccountConfig
from accounts.channels.provider_events import HookRequest, Webhook


class CapturedAnswer(NamedTuple):
    """An answer to a send, and the kind of refusal, the type of outcome or the outcome that it means."""

    name: str
    source: str
    status: int
    body: dict[str, Any]
    means: Any
    with_file: bool = False


class CapturedReport(NamedTuple):
    """A request to the webhook, and some fields of the event in it; None where it is not about us."""

    name: str
    source: str
    body: dict[str, Any]
    event: dict[str, Any] | None


def judge_report(webhook: Webhook, account: AccountConfig, capture: CapturedReport) -> None:
    """Fail unless the webhook reads the captured event, or nothing, from the report."""
    events = webhook.parse(HookRequest("POST", {}, {}, json.dumps(capture.body).encode()), account)
    if capture.event is None:
        assert events == []
    else:
        (event,) = events
        assert {name: getattr(event, name) for name in capture.event} == capture.event
