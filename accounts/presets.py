"""Sets of values that fit a way of sending, for an operator to apply to an account as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from accounts.actions import Action
from accounts.addresses import GROUP, KINDS
from accounts.channels.base import Channel
from accounts.channels.registry import channel
from accounts.knobs import KNOBS


@dataclass(frozen=True, slots=True)
class Preset:
    name: str
    label: str
    action: str  # only for accounts whose provider counts this; empty: for any
    #: knobs (accounts.knobs) and daily caps ("daily_limit_<action>"); None: the account has none of its own
    values: Mapping[str, float | None]
    #: further fields of the account
    fields: Mapping[str, Any] = field(default_factory=dict)
    #: only for accounts that reach this kind of address; empty: any
    reaches: str = ""

    def problem(self, channel_key: str) -> str:
        """Return the sentence for a channel that the preset does not fit, or ""."""
        described = channel(channel_key)
        if not self.action or self.action in described.actions:
            return self._out_of_reach(described)
        return (
            f"The preset {self.name} is for accounts that send {Action(self.action).label}s, not for {described.label}."
        )

    def _out_of_reach(self, described: Channel) -> str:
        if not self.reaches or described.reaches(self.reaches):
            return ""
        wanted = KINDS[self.reaches].plural
        return f"The preset {self.name} is for accounts that send to {wanted}, not for {described.label}."


#: names of everything that a preset may set
PACE = (*KNOBS, *(f"daily_limit_{action}" for action in Action.values))
#: The account's columns about its calendar. The preset "default" empties them: keep columns that it must not out of it.
HOURS = ("hours_start", "hours_end", "send_days")
WARMUP = ("warmup_started_on", "warmup_days", "warmup_floor")

PRESETS = {
    preset.name: preset
    for preset in (
        Preset(
            "default",
            "Default: as the channel and the site say, at any hour",
            "",
            dict.fromkeys(PACE),
            dict.fromkeys(HOURS),
        ),
        Preset(
            "careful",
            "Careful new number: one message every 7.5 s, a pause of 60 s after 20, 200 a day",
            Action.MESSAGE,
            {
                "max_send_per_minute": 8,
                "send_burst": 1,
                "batch_size": 20,
                "batch_pause_seconds": 60,
                "daily_limit_message": 200,
            },
            reaches=GROUP,
        ),
        Preset(
            "cold-mail",
            "Cold mail: 9 to 18 o'clock from Monday to Friday, 20 a day, one every 6 to 20 minutes",
            Action.EMAIL,
            # The rule is 5 to 20 minutes, but never less than 6: so the gap starts at 6.
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
