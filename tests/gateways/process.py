"""A scripted gateway as a real process, and the rig that the contract asks for."""

from __future__ import annotations

import json
import sys
from abc import abstractmethod
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from accounts.channels import registry
from accounts.channels.base import AccountConfig, Kind, NotSent, Outcome, Transport
from accounts.channels.sandbox.book import Book, Upload
from tests.channels.contract import Received, Rig
from tests.sandbox_server import SandboxServer


class GatewayServer(SandboxServer):
    def __init__(self, directory: Path, dialect: str) -> None:
        super().__init__(directory)
        self.dialect = dialect

    def _command(self) -> list[str]:
        module = [sys.executable, "-m", "tests.gateways.server", self.dialect]
        return [*module, "--port", str(self.port), "--book", str(self.book_path), "--seed", "1"]

    def fresh(self) -> None:
        """As if it had just been started; a book that is read from here on is empty."""
        if self._process is None:
            self.start()
        self.set_script({})

    def set_hook(self, account: str, url: str, key: str) -> None:
        """Where the gateway reports for the account, and the secret that proves it."""
        hooks = json.dumps({account: {"url": url, "key": key}}).encode()
        urlopen(Request(f"{self.url}/hooks", hooks, method="PUT"), timeout=60).close()

    def answer(self, number: str, text: str, hidden: str = "") -> int:
        """Report that a person answers the last message to this number; returns the webhook's status. `hidden` says how
        the report names the person (`Dialect.incoming`)."""
        return self._report(number, kind="reply", text=text, hidden=hidden)

    def react(self, number: str, emoji: str) -> int:
        """Report that a person reacts to the last message to this number; returns the webhook's status."""
        return self._report(number, kind="reaction", text=emoji)

    def refuse_late(self, number: str) -> int:
        """Report that WhatsApp refuses the last message to this number, which the gateway has accepted; returns the
        webhook's status."""
        return self._report(number, kind="refusal")

    def _report(self, number: str, **form: str) -> int:
        message = [line for line in self.book().lines() if line.get("to") == number and "provider_id" in line][-1]
        body = urlencode({"message": message["provider_id"], **form}).encode()
        with urlopen(Request(f"{self.url}/report", body, method="POST"), timeout=60) as response:
            status: int = json.load(response)["status"]
        return status


class GatewayRig(Rig):
    """One server serves the tests of a module: each reads the book from where it began."""

    address = "120363025246125486@g.us"
    channel: str

    def __init__(self, server: GatewayServer) -> None:
        server.fresh()
        self.server = server
        self.began = len(server.book().lines())

    @abstractmethod
    def settings(self) -> dict[str, Any]: ...

    @abstractmethod
    def secrets(self) -> dict[str, Any]: ...

    def account(self, **config: Any) -> AccountConfig:
        settings = {"url": self.server.url, **self.settings(), **config}
        return AccountConfig(1, self.channel, "Line", "", settings, self.secrets(), concurrency=5)

    def transport(self, timeout: float = 5) -> Transport:
        return registry.transport_for(self.account(timeout=timeout))

    def script(self, effect: str, **more: Any) -> None:
        self.server.set_script({"*": {"faults": [{"effect": effect, **more}]}})

    def fail(self, kind: Kind) -> None:
        self.script(kind.value)

    def drop_after_accept(self) -> None:
        self.script("drop_after_accept")

    def stay_silent(self) -> None:
        self.script("hang")

    def go_down(self) -> None:
        self.server.kill()

    def refuse_login(self, words: str) -> None:
        self.script("auth", on="check", message=words)

    def fail_upload(self) -> None:
        self.script("content_rejected", on="media")

    def uploads(self) -> list[Upload]:
        return Book(self.server.book().lines()[self.began :]).uploads()

    def received(self) -> list[Received]:
        lines = [line for line in self.server.book().lines()[self.began :] if "provider_id" in line]
        return [Received(line["to"], line["text"], line["message_id"]) for line in lines]


def judge(actual: Outcome, expected: Any) -> None:
    """A kind stands for a certain refusal, a type for any outcome of that type."""
    if isinstance(expected, Kind):
        assert isinstance(actual, NotSent)
        assert actual.kind is expected
        assert actual.detail
    elif isinstance(expected, type):
        assert isinstance(actual, expected)
    else:
        assert actual == expected
