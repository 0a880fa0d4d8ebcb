"""Parts of an account's page besides the form: today's figures, charts, the pace table, and values to start from."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.db.models import Count
from django.db.models.functions import TruncHour
from django.utils.text import get_text_list

from accounts import access, knobs
from accounts.actions import Action, warmup_curve
from accounts.channels.base import Channel
from accounts.channels.registry import channel
from accounts.models import Account
from accounts.presets import PRESETS
from fanout.admin.account_form import SETTING
from fanout.admin.run_status import my_zone, why_account
from fanout.admin.widgets import Chart, bar_chart, timeline_chart
from fanout.lanes import account_limits, tuning
from fanout.lanes.account_state import AccountState, read_counts
from fanout.lanes.paired_numbers import number_health
from fanout.lanes.reputation import ADVICE_ON_OPT_OUTS, mail_health, trend
from fanout.models import Activity, Run
from fanout.rules.gates import Cap, local_date
from fanout.rules.outcomes import timeouts_in_words
from fanout.runs.message_2 import listed

EVENTS_SHOWN = 20
RUNS_SHOWN = 8


def page_context(account: Account, user: Any, now: datetime) -> dict[str, Any]:
    # Including runs that other accounts began. A shared account also sends for people who do not share theirs.
    sends = listed(access.visible(user, Run.objects.filter(lanes__contains=[account.pk])))
    state = AccountState.of(account, getattr(account, "lane", None), now)
    read_counts([state])
    return {
        "now": now,
        "account": account,
        "channel": channel(account.channel),
        "pairs": channel(account.channel).pairs,
        "why": why_account(account, now),
        "next_step": next_step(account),
        "caps": caps_today(account, now),
        "new_chats": state.new_chats if channel(account.channel).begins_chats else None,
        "timeouts": timeouts_in_words(state.timeouts),
        "mail_health": mail_health(account, now),
        "trend": (people := trend(account, now)),
        "replies_line": people.line("replied"),
        "opt_outs_line": people.line("opted_out"),
        "advice_on_opt_outs": ADVICE_ON_OPT_OUTS,
        "number_health": health.lines(now) if (health := number_health(account, now)) else [],
        "number_is_well": health is not None and health.is_good(now),
        "hourly": hourly(account, now),
        "warmup": warmup_chart(account, now),
        "events": account.events.select_related("actor").order_by("-at", "-id")[:EVENTS_SHOWN],
        "runs": sends.defer("parts", "reply_parts")[:RUNS_SHOWN],
    }


def next_step(account: Account) -> str:
    """Return what its operator should do now, in a sentence; empty if there is nothing to do."""
    Status = Account.Status
    if account.status == Status.UNPAIRED:
        if account.needs_pairing:
            return "Pair it with its phone: until then nothing is sent."
        return (
            "Pair it again at its provider. If it does not become active then, test the connection and reactivate it."
        )
    if account.status == Status.ACTIVE and account.untested_since:
        return "Not tested yet: test the connection, or send a test message."
    steps = {
        Status.PAUSED: "Reactivate it when it may send again. What is pending waits.",
        Status.SUSPENDED: "Settle the cause, test the connection, then reactivate it.",
    }
    return steps.get(Status(account.status), "")


def caps_today(account: Account, now: datetime) -> list[dict[str, Any]]:
    """Return used and cap of today, for the main action and every other action that has a cap."""
    own = {limit.action: limit for limit in account.daily_limits.all()}
    today, rows = local_date(account.timezone, now), []
    for action in sorted({channel(account.channel).action, *own}):
        cap = account_limits.caps_by_day(account, action, own.get(action))(today)
        used = account_limits.used_today(account, action, now)
        rows.append({"action": Action(action).label, "used": used, "limit": cap.limit, "source": SOURCES[cap.source]})
    return rows


def hourly(account: Account, now: datetime) -> Chart:
    """Draw the sends per hour of the last day."""
    ends = now.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    starts = ends - timedelta(hours=24)
    rows = Activity.objects.filter(
        account=account, action__in=Action.values, outcome=Activity.Outcome.SENT, at__gte=starts, at__lt=ends
    )
    counted = rows.order_by().annotate(hour=TruncHour("at")).values("hour").annotate(n=Count("pk"))
    counts = {row["hour"]: row["n"] for row in counted}
    return timeline_chart("Sends per hour", counts, [(starts, ends)], timedelta(hours=1), my_zone())


def warmup_chart(account: Account, now: datetime) -> Chart | None:
    if not account.warmup_days or account.warmup_started_on is None or account.warmup_errors():
        return None
    today = local_date(account.timezone, now)
    # The curve ends at the cap of the day after the warm-up.
    after = account.warmup_started_on + timedelta(days=account.warmup_days)
    target = account_limits.cap_on(account, channel(account.channel).action, after).limit
    curve = warmup_curve(target, account.warmup_floor, account.warmup_days, account.warmup_started_on)
    marked = (today - account.warmup_started_on).days
    values = [(f"{day:%d %b}", n) for day, n in curve]
    return bar_chart("Warm-up: messages per day", values, marked if 0 <= marked < len(values) else None)


# --- the pace table: every knob and cap with its box, the value without it, and its source ----------------


#: sources of a value, as people call them
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
class PaceRow:
    """`field` is its input, None on a read-only page. `otherwise` is the value if the input is empty."""

    name: str
    label: str
    value: str
    source: str
    otherwise: str
    field: Any = None


def pace_rows(account: Account, form: Any, now: datetime) -> list[PaceRow]:
    made = [*_cap_rows(account, now), *_knob_rows(account)]
    return [_with_box(row, form) for row in made]


def caps_in_words(rows: Sequence[PaceRow]) -> str:
    """Return the daily caps of a new account, for example "20 emails a day (site default)"; empty if there are none."""
    caps = [row for row in rows if row.name.startswith(tuning.CAP) and row.value != tuning.NO_CAP]
    # The label is "Emails a day (“none”: no cap)".
    return get_text_list([f"{row.value} {row.label.split(' (')[0].lower()} ({row.source})" for row in caps], "and")


def _with_box(row: PaceRow, form: Any) -> PaceRow:
    if row.name not in form.fields:
        return row
    box = form[row.name]
    box.field.widget.attrs |= {"placeholder": row.otherwise, "aria-describedby": f"source_{row.name}"}
    return PaceRow(row.name, row.label, row.value, row.source, row.otherwise, box)


def _knob_rows(account: Account) -> Iterator[PaceRow]:
    inherited = knobs.resolve({}, settings.BOT, channel(account.channel).knobs)
    for name, setting in account.settings().items():
        meaning = setting.knob.meaning
        yield PaceRow(
            name,
            meaning[0].upper() + meaning[1:],
            _shown_value(setting.value),
            SOURCES[setting.source],
            _shown_value(inherited[name].value),
        )


def _cap_rows(account: Account, now: datetime) -> Iterator[PaceRow]:
    today = local_date(account.timezone, now)
    own = {limit.action: limit for limit in account.daily_limits.all()} if account.pk else {}
    for action in channel(account.channel).actions:
        cap = account_limits.caps_by_day(account, action, own.get(action))(today)
        otherwise = account_limits.caps_by_day(account, action, None)(today)
        yield PaceRow(
            tuning.CAP + action,
            f"{action.replace('_', ' ').capitalize()}s a day (“none”: no cap)",
            _shown_cap(cap),
            SOURCES[cap.source],
            _shown_cap(otherwise),
        )


def _shown_cap(cap: Cap) -> str:
    return tuning.NO_CAP if cap.limit is None else _shown_value(cap.limit)


def _shown_value(value: float) -> str:
    if math.isinf(value):
        return "no limit"
    return str(int(value)) if value == int(value) else f"{value:g}"


# --- values to start from: a well-known provider's settings, a preset's pace ------------------------------


PROVIDER, PRESET = "provider", "preset"
#: parameters that the links keep
KEPT_IN_QUERY = ("channel", PROVIDER, PRESET)


@dataclass(frozen=True, slots=True)
class Start:
    """A provider or preset; `values` are those of the form's fields.

    It is shown as a link, so that it works without a script; a script fills the values into the form as it stands.
    """

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


def start_values(channel: Channel, asked: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of form fields that the page's query asks for."""
    chosen = [start.values for start in _starts(channel) if asked.get(start.kind) == start.name]
    return {name: value for each in chosen for name, value in each.items()}


def start_links(channel: Channel, asked: Mapping[str, str], kind: str) -> list[Link]:
    return [
        Link(start, _start_query(asked, start), asked.get(kind) == start.name)
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


def _start_query(asked: Mapping[str, str], start: Start) -> str:
    return urlencode({name: asked[name] for name in KEPT_IN_QUERY if name in asked} | {start.kind: start.name})
