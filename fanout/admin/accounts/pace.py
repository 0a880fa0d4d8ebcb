"""The pace table of an account: every knob and cap with its box, what holds without it, and who says so."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings

from accounts import knobs
from accounts.channels.registry import channel
from accounts.models import Account
from fanout.lanes import account_limits, tuning
from fanout.rules.gates import Cap, local_date

#: who decides a value, as people call it
SOURCES = {
    "account": "this account",
    "environment": "site default",
    "fallback": "site default",
    "channel": "from channel",
    "default": "Crier's default",
    "warm-up": "warm-up",
    "none": "no cap",
}


@dataclass(frozen=True, slots=True)
class Row:
    """`field` is its box, None on a page for looking only. `otherwise` holds where the box is empty."""

    name: str
    label: str
    value: str
    source: str
    otherwise: str
    field: Any = None


def rows(account: Account, form: Any, now: datetime) -> list[Row]:
    made = [*_cap_rows(account, now), *_knob_rows(account)]
    return [_with_box(row, form) for row in made]


def _with_box(row: Row, form: Any) -> Row:
    if row.name not in form.fields:
        return row
    box = form[row.name]
    box.field.widget.attrs |= {"placeholder": row.otherwise, "aria-describedby": f"source_{row.name}"}
    return Row(row.name, row.label, row.value, row.source, row.otherwise, box)


def _knob_rows(account: Account) -> Iterator[Row]:
    inherited = knobs.resolve({}, settings.BOT, channel(account.channel).knobs)
    for name, setting in account.settings().items():
        meaning = setting.knob.meaning
        yield Row(
            name,
            meaning[0].upper() + meaning[1:],
            shown(setting.value),
            SOURCES[setting.source],
            shown(inherited[name].value),
        )


def _cap_rows(account: Account, now: datetime) -> Iterator[Row]:
    today = local_date(account.timezone, now)
    own = {limit.action: limit for limit in account.daily_limits.all()} if account.pk else {}
    for action in channel(account.channel).actions:
        cap = account_limits.caps_by_day(account, action, own.get(action))(today)
        otherwise = account_limits.caps_by_day(account, action, None)(today)
        yield Row(
            tuning.CAP + action,
            f"{action.replace('_', ' ').capitalize()}s a day (“none”: no cap)",
            _cap(cap),
            SOURCES[cap.source],
            _cap(otherwise),
        )


def _cap(cap: Cap) -> str:
    return tuning.NO_CAP if cap.limit is None else shown(cap.limit)


def shown(value: float) -> str:
    if math.isinf(value):
        return "no limit"
    return str(int(value)) if value == int(value) else f"{value:g}"
