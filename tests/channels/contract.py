"""What every transport must do, as one suite: subclass `TransportContract` and give it a rig.

A rig stands for a provider and can make it misbehave; the suite asks for the outcome and looks into what the
provider really got.
"""

from __future__ import annotations

import abc
import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import ClassVar, NamedTuple, TypeVar

import pytest

from accounts.channels import registry
from accounts.channels.base import (
    CheckFailed,
    Kind,
    Media,
    NotSent,
    Outcome,
    Part,
    Sent,
    Transport,
    Unknown,
    UploadFailed,
)

T = TypeVar("T")

CONTENT = b"\x89PNG not really"
TEXT = Part(key="1:0", index=0, kind="text", text="Doors open at nine", subject="Reminder")


class Received(NamedTuple):
    """One message as the provider got it."""

    to: str
    text: str
    message_id: str


class Rig(abc.ABC):
    """A provider that can be told to misbehave."""

    address = "someone@example.org"

    @abc.abstractmethod
    def transport(self, timeout: float = 5) -> Transport: ...

    @abc.abstractmethod
    def fail(self, kind: Kind) -> None:
        """Answer every further send with this kind of refusal."""

    @abc.abstractmethod
    def drop_after_accept(self) -> None:
        """Take the next messages and end the connection without an answer."""

    @abc.abstractmethod
    def stay_silent(self) -> None:
        """Never answer a send."""

    @abc.abstractmethod
    def go_down(self) -> None:
        """Nobody listens any more."""

    @abc.abstractmethod
    def refuse_login(self, words: str) -> None: ...

    @abc.abstractmethod
    def received(self) -> list[Received]: ...

    def fail_upload(self) -> None:
        raise NotImplementedError


class TransportContract:
    #: What the provider can answer a send with; the suite tries each.
    kinds: ClassVar[tuple[Kind, ...]] = ()

    @pytest.fixture
    def rig(self) -> Iterator[Rig]:
        raise NotImplementedError

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "kind" in metafunc.fixturenames:
            metafunc.parametrize("kind", self.kinds, ids=str)

    def test_it_is_what_its_channel_says(self, rig: Rig) -> None:
        transport = rig.transport()

        assert registry.channels()[transport.channel.key] is transport.channel
        assert (type(transport).prepare is not Transport.prepare) == transport.channel.uploads

    def test_sends_text(self, rig: Rig) -> None:
        outcome = send(rig, TEXT, "m-1")

        assert isinstance(outcome, Sent)
        assert [(r.to, r.message_id) for r in rig.received()] == [(rig.address, "m-1")]
        assert TEXT.text in rig.received()[0].text

    def test_message_ids_reach_the_provider(self, rig: Rig) -> None:
        async def three(transport: Transport) -> list[Outcome]:
            return [await transport.send(rig.address, TEXT, f"m-{n}") for n in range(3)]

        assert all(isinstance(outcome, Sent) for outcome in use(rig, three))
        assert [r.message_id for r in rig.received()] == ["m-0", "m-1", "m-2"]

    def test_sends_many_at_once(self, rig: Rig) -> None:
        async def many(transport: Transport) -> list[Outcome]:
            return await asyncio.gather(*(transport.send(rig.address, TEXT, f"m-{n}") for n in range(20)))

        assert all(isinstance(outcome, Sent) for outcome in use(rig, many))
        assert sorted(r.message_id for r in rig.received()) == sorted(f"m-{n}" for n in range(20))

    def test_sends_media_after_prepare(self, rig: Rig) -> None:
        async def upload_and_send(transport: Transport) -> Outcome:
            return await transport.send(rig.address, await with_media(transport), "m-1")

        assert isinstance(use(rig, upload_and_send), Sent)
        assert [r.message_id for r in rig.received()] == ["m-1"]

    def test_a_failed_upload_says_why(self, rig: Rig) -> None:
        async def upload(transport: Transport) -> None:
            if not transport.uploads_media:
                pytest.skip("media travels inside the message")
            rig.fail_upload()
            with pytest.raises(UploadFailed) as caught:
                await transport.prepare(media())
            assert caught.value.reason.detail

        use(rig, upload)

    def test_every_refusal_has_its_kind(self, rig: Rig, kind: Kind) -> None:
        rig.fail(kind)

        outcome = send(rig, TEXT, "m-1")

        assert isinstance(outcome, NotSent)
        assert outcome.kind == kind
        assert outcome.detail
        assert rig.received() == []

    def test_a_drop_after_acceptance_is_unknown(self, rig: Rig) -> None:
        rig.drop_after_accept()

        assert isinstance(send(rig, TEXT, "m-1"), Unknown)
        assert len(rig.received()) == 1

    def test_silence_is_unknown(self, rig: Rig) -> None:
        rig.stay_silent()

        for seconds in 0.3, 1.0, 5.0:  # a busy machine may need longer until the message is handed over
            outcome = send(rig, TEXT, "m-1", timeout=seconds)
            if isinstance(outcome, Unknown):
                break
        assert isinstance(outcome, Unknown)

    def test_a_refused_connection_is_not_sent(self, rig: Rig) -> None:
        rig.go_down()

        outcome = send(rig, TEXT, "m-1")

        assert isinstance(outcome, NotSent)
        assert outcome.kind is Kind.NETWORK

    def test_check_says_who_we_are(self, rig: Rig) -> None:
        assert use(rig, lambda transport: transport.check())

    def test_check_fails_with_the_providers_words(self, rig: Rig) -> None:
        rig.refuse_login("Your trial ended on Monday")

        with pytest.raises(CheckFailed) as caught:
            use(rig, lambda transport: transport.check())
        assert caught.value.kind is Kind.AUTH
        assert "Your trial ended on Monday" in caught.value.detail

    def test_check_fails_when_nobody_listens(self, rig: Rig) -> None:
        rig.go_down()

        with pytest.raises(CheckFailed) as caught:
            use(rig, lambda transport: transport.check())
        assert caught.value.kind is Kind.NETWORK

    def test_close_twice_is_fine_and_sending_goes_on_after_it(self, rig: Rig) -> None:
        async def close_and_send(transport: Transport) -> Outcome:
            await transport.close()
            await transport.send(rig.address, TEXT, "m-1")
            await transport.close()
            await transport.close()
            return await transport.send(rig.address, TEXT, "m-2")

        assert isinstance(use(rig, close_and_send), Sent)

    def test_odd_texts_arrive_whole(self, rig: Rig) -> None:
        text = 'Zażółć "gęślą" jaźń\n\\ 🎉 <b>&amp;'

        assert isinstance(send(rig, replace(TEXT, text=text), "m-1"), Sent)
        assert text.splitlines()[0] in rig.received()[0].text


def use(rig: Rig, work: Callable[[Transport], Awaitable[T]], timeout: float = 5) -> T:
    """Run `work` with a transport in a loop of its own, and close it."""

    async def go() -> T:
        transport = rig.transport(timeout)
        try:
            return await work(transport)
        finally:
            await transport.close()

    return asyncio.run(go())


def send(rig: Rig, part: Part, message_id: str, timeout: float = 5) -> Outcome:
    return use(rig, lambda transport: transport.send(rig.address, part, message_id), timeout)


def media() -> Media:
    digest = hashlib.sha256(CONTENT).hexdigest()
    return Media(digest, "poster.png", "image/png", len(CONTENT), lambda: CONTENT, kind="image")


async def with_media(transport: Transport) -> Part:
    part = Part(key="1:1", index=1, kind="image", text="The poster", media=media())
    if not transport.uploads_media:
        return part
    return replace(part, handle=(await transport.prepare(media())).value)
