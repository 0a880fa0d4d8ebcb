"""How runs stand that are going on: rate, expected end, and what they wait behind. Lists, pages and the shell ask here,
so that they agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fanout.models import Run
from fanout.plans.forecast import Forecast, behind, forecast_runs
from fanout.plans.queue import Senders
from fanout.runs import rate


@dataclass(frozen=True, slots=True)
class Going:
    """`behind`: the runs that its lane sends first, in words."""

    per_minute: float | None = None
    forecast: Forecast | None = None
    behind: str = ""

    @property
    def rate(self) -> str:
        return "–" if self.behind else rate.in_words(self.per_minute)

    @property
    def ends_at(self) -> datetime | None:
        return self.forecast.ends_at if self.forecast else None


AT_REST = Going()


def going_on(
    runs: Sequence[Run], now: datetime, user: Any = None, zone: str = "", senders: Senders | None = None
) -> dict[int, Going]:
    """Of those runs that are going on, in a handful of queries. `user` and `zone`: of whoever reads it, None being the
    shell; `senders`: where they have been read."""
    live = [run for run in runs if run.status in Run.LIVE and run.pending]
    if not live:
        return {}
    forecasts = forecast_runs(live, now, zone, senders)
    words, rates = behind(forecasts, user, now), rate.rates_of_runs(live, now)
    return {run.pk: Going(rates.get(run.pk), forecasts[run.pk], words[run.pk]) for run in live}
