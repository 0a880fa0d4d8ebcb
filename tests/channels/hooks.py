"""What every webhook must do, as one suite: subclass `WebhookContract` and give it a signed sample."""

from __future__ import annotations

import abc
import json
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from accounts.channels import registry
from accounts.channels.base import AccountConfig
from accounts.channels.provider_events import HookRequest, ProviderEvent, Unreadable, Webhook

ODD: tuple[Any, ...] = (None, "", "x\x00", 7, -1, 1e400, 10**400, True, [], [None], {}, {"id": []})


class WebhookContract(abc.ABC):
    channel: ClassVar[str]
    account: ClassVar[AccountConfig]
    #: One body per kind of event that the provider sends.
    samples: ClassVar[tuple[dict[str, Any], ...]]
    #: Bodies of events that nobody knows yet.
    future: ClassVar[tuple[dict[str, Any], ...]]
    #: Whether what proves the sender also proves the body.
    covers_body = True

    @abc.abstractmethod
    def headers(self, body: bytes) -> dict[str, str]:
        """What the provider would send along with this body."""

    @property
    def webhook(self) -> Webhook:
        webhook = registry.webhook(self.channel)
        assert webhook is not None
        return webhook

    def request(self, body: Any) -> HookRequest:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return HookRequest("POST", self.headers(raw), {}, raw)

    def parse(self, body: Any) -> list[ProviderEvent]:
        return self.webhook.parse(self.request(body), self.account)

    def test_a_good_one_is_authentic_and_says_something(self) -> None:
        assert self.samples
        for sample in self.samples:
            assert self.webhook.authentic(self.request(sample), self.account)
            assert self.parse(sample)

    def test_a_forged_one_is_not_authentic(self) -> None:
        good = self.request(self.samples[0])
        forged = [HookRequest("POST", {}, {}, good.body)]
        forged += [
            HookRequest("POST", {**good.headers, name: value}, {}, good.body)
            for name in good.headers
            for value in ("", "0" * 64, good.headers[name][:-1], "é")
        ]
        if self.covers_body:
            forged.append(HookRequest("POST", good.headers, {}, good.body + b" "))

        assert not any(self.webhook.authentic(request, self.account) for request in forged)

    def test_without_a_secret_of_ours_nothing_is_authentic(self) -> None:
        nobody = AccountConfig(1, self.channel, "Line", "", self.account.config, {})

        assert not self.webhook.authentic(self.request(self.samples[0]), nobody)
        assert not self.webhook.authentic(HookRequest("POST", {}, {}, b"{}"), nobody)

    def test_a_replayed_one_has_the_same_keys_and_no_two_events_share_one(self) -> None:
        keys = [event.key for sample in self.samples for event in self.parse(sample)]

        assert keys == [event.key for sample in self.samples for event in self.parse(sample)]
        assert len(set(keys)) == len(keys)
        assert all(0 < len(key) <= 200 for key in keys)

    def test_a_truncated_one_is_unreadable(self) -> None:
        whole = json.dumps(self.samples[0]).encode()
        for end in range(0, len(whole), 3):
            with pytest.raises(Unreadable):
                self.parse(whole[:end])

    def test_what_nobody_knows_yet_is_passed_over(self) -> None:
        assert self.future
        for body in self.future:
            assert self.parse(body) == []

    def test_no_value_whatsoever_breaks_the_parser(self) -> None:
        for sample in self.samples:
            for body in mutations(sample):
                try:
                    events = self.parse(json.dumps(body).encode())
                except Unreadable:
                    continue
                assert all(isinstance(event.text, str) and event.key for event in events)


def mutations(body: Any) -> Iterator[Any]:
    """The body with each of its values replaced by odd ones, one at a time, and with each left out."""
    yield from ODD
    if isinstance(body, dict):
        for name, value in body.items():
            yield {other: body[other] for other in body if other != name}
            yield from ({**body, name: changed} for changed in mutations(value))
    elif isinstance(body, list):
        for index, value in enumerate(body):
            yield from ([*body[:index], changed, *body[index + 1 :]] for changed in mutations(value))
