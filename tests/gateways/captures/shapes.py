"""What a capture of a gateway is: its shape, the place that documents it, and what it means."""

from __future__ import annotations

from typing import Any, NamedTuple


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
