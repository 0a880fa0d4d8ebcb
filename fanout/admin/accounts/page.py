"""What the account pages show besides the form."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count
from django.db.models.functions import TruncHour

from accounts import access
from accounts.actions import Action, warmup_curve
from accounts.addresses import PERSON
from accounts.channels.registry import channel
from accounts.models import Account
from fanout.admin import charts
from fanout.admin.accounts.pace import SOURCES
from fanout.admin.runs import forecasts
from fanout.lanes import account_limits
from fanout.lanes.new_chats import new_chats_now
from fanout.models import Activity, Run
from fanout.rules.gates import local_date
from fanout.runs.message_2 import listed

EVENTS_SHOWN = 20
RUNS_SHOWN = 8


def page_context(account: Account, user: Any, now: datetime) -> dict[str, Any]:
    # Also those that other accounts began. A shared account sends for people who do not share their reminders.
    sends = listed(access.visible(user, Run.objects.filter(lanes__contains=[account.pk])))
    return {
        "now": now,
        "account": account,
        "channel": channel(account.channel),
        "pairs": channel(account.channel).pairs,
        "why": forecasts.why_account(account, now),
        "next_step": next_step(account),
        "caps": caps_today(account, now),
        "new_chats": new_chats_now(account, now) if channel(account.channel).reaches(PERSON) else None,
        "hourly": hourly(account, now),
        "warmup": warmup_chart(account, now),
        "events": account.events.select_related("actor").order_by("-at", "-id")[:EVENTS_SHOWN],
        "runs": sends.defer("parts", "reply_parts")[:RUNS_SHOWN],
    }


def next_step(account: Account) -> str:
    """What its operator should do now, in a sentence; empty where nothing is to do."""
    Status = Account.Status
    if account.status == Status.UNPAIRED:
        return "Pair it with its phone: until then nothing is sent." if channel(account.channel).pairs else ""
    if account.status == Status.ACTIVE and account.untested_since:
        return "Nothing has shown yet that it works: test the connection, or send a test message."
    steps = {
        Status.PAUSED: "Reactivate it when it may send again. What is pending waits.",
        Status.SUSPENDED: "Settle the cause, test the connection, then reactivate it.",
    }
    return steps.get(Status(account.status), "")


def caps_today(account: Account, now: datetime) -> list[dict[str, Any]]:
    """Used and cap of today, for the main action and every other with a cap of its own."""
    own = {limit.action: limit for limit in account.daily_limits.all()}
    today, rows = local_date(account.timezone, now), []
    for action in sorted({channel(account.channel).action, *own}):
        cap = account_limits.caps_by_day(account, action, own.get(action))(today)
        used = account_limits.used_today(account, action, now)
        rows.append({"action": Action(action).label, "used": used, "limit": cap.limit, "source": SOURCES[cap.source]})
    return rows


def hourly(account: Account, now: datetime) -> charts.Chart:
    """Sends per hour of the last day."""
    ends = now.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    starts = ends - timedelta(hours=24)
    rows = Activity.objects.filter(
        account=account, action__in=Action.values, outcome=Activity.Outcome.SENT, at__gte=starts, at__lt=ends
    )
    counted = rows.order_by().annotate(hour=TruncHour("at")).values("hour").annotate(n=Count("pk"))
    counts = {row["hour"]: row["n"] for row in counted}
    return charts.timeline("Sends per hour", counts, [(starts, ends)], timedelta(hours=1), forecasts.my_zone())


def warmup_chart(account: Account, now: datetime) -> charts.Chart | None:
    if not account.warmup_days or account.warmup_started_on is None or account.warmup_errors():
        return None
    today = local_date(account.timezone, now)
    # The cap of the day after the warm-up is what the curve leads to.
    after = account.warmup_started_on + timedelta(days=account.warmup_days)
    target = account_limits.cap_on(account, channel(account.channel).action, after).limit
    curve = warmup_curve(target, account.warmup_floor, account.warmup_days, account.warmup_started_on)
    marked = (today - account.warmup_started_on).days
    values = [(f"{day:%d %b}", n) for day, n in curve]
    return charts.curve("Warm-up: messages per day", values, marked if 0 <= marked < len(values) else None)
