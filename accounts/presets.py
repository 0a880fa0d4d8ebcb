"""Sets of values that fit a way of sending, for an operator to apply to an account as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from accounts.actions import Action
from accounts.addresses import GROUP
from accounts.channels.base import PLURAL_OF_KIND, Channel
from accounts.channels.registry import channel


@dataclass(frozen=True, slots=True)
class Preset:
    name: str
    label: str
    action: str  # only for accounts whose provider counts this
    #: knobs (accounts.knobs) and daily caps ("daily_limit_<action>")
    values: Mapping[str, float]
    #: further fields of the account
    fields: Mapping[str, Any] = field(default_factory=dict)
    #: only for accounts that reach this kind of address; empty: any
    reaches: str = ""

    def problem(self, channel_key: str) -> str:
        """Why it does not fit the channel, in a sentence; empty when it does."""
        described = channel(channel_key)
        if self.action in described.actions:
            return self._out_of_reach(described)
        return (
            f"The preset {self.name} is for accounts that send {Action(self.action).label}s, not for {described.label}."
        )

    def _out_of_reach(self, described: Channel) -> str:
        if not self.reaches or described.reaches(self.reaches):
            return ""
        wanted = PLURAL_OF_KIND[self.reaches]
        return f"The preset {self.name} is for accounts that send to {wanted}, not for {described.label}."


PRESETS = {
    preset.name: preset
    for preset in (
        Preset(
            "cold-mail",
            "Cold mail: 9 to 18 o'clock from Monday to Friday, 20 a day, one every 6 to 20 minutes",
            Action.EMAIL,
            # Drawn from 5 to 20 minutes, and never less than 6: so from 6.
            {"min_gap_seconds": 360, "max_gap_seconds": 1_200, "send_burst": 1, "daily_limit_email": 20},
            {"hours_start": 9, "hours_end": 18, "send_days": [1, 2, 3, 4, 5]},
        ),
        Preset(
            "mature-gateway",
            "Mature gateway account: one message every 3 s, a pause of 30 s after 75",
            Action.MESSAGE,
            {"max_send_per_minute": 20, "send_burst": 1, "batch_size": 75, "batch_pause_seconds": 30},
            # LinkedIn counts messages too, and closes accounts that send like this.
            reaches=GROUP,
        ),
    )
}
