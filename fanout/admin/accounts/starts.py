"""What the form of an account can start from: a well-known provider's settings, a preset's pace.

They are links, so that they work without a script; a script fills the same values into the form as it stands.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from accounts.channels.base import Channel
from accounts.presets import PRESETS
from fanout.admin.accounts.channel_fields import SETTING

PROVIDER, PRESET = "provider", "preset"
#: what the address of the page keeps when a link is followed
KEPT = ("channel", PROVIDER, PRESET)


@dataclass(frozen=True, slots=True)
class Start:
    """`values` are those of the form's fields."""

    kind: str
    name: str
    label: str
    hint: str
    values: Mapping[str, Any]

    @property
    def values_json(self) -> str:
        return json.dumps(dict(self.values))


@dataclass(frozen=True, slots=True)
class Link:
    start: Start
    query: str
    chosen: bool


def values(channel: Channel, asked: Mapping[str, str]) -> dict[str, Any]:
    """The values of form fields that the address of the page asks for."""
    chosen = [start.values for start in _starts(channel) if asked.get(start.kind) == start.name]
    return {name: value for each in chosen for name, value in each.items()}


def links(channel: Channel, asked: Mapping[str, str], kind: str) -> list[Link]:
    return [
        Link(start, _query(asked, start), asked.get(kind) == start.name)
        for start in _starts(channel)
        if start.kind == kind
    ]


def _starts(channel: Channel) -> list[Start]:
    providers = [
        Start(PROVIDER, p.name, p.label, p.hint, {SETTING + name: value for name, value in p.settings.items()})
        for p in channel.providers
    ]
    presets = [
        Start(PRESET, p.name, p.label, "", {**p.values, **p.fields})
        for p in PRESETS.values()
        if not p.problem(channel.key)
    ]
    return providers + presets


def _query(asked: Mapping[str, str], start: Start) -> str:
    return urlencode({name: asked[name] for name in KEPT if name in asked} | {start.kind: start.name})
