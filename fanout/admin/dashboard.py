"""The first page: what needs attention, what is going on, what comes next, and whether all processes run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import Q, QuerySet, Value
from django.template.defaultfilters import pluralize

from accounts import access
from accounts.models import Account
from fanout.admin import charts
from fanout.admin.first_steps import first_steps
from fanout.admin.runs import forecasts
from fanout.admin.runs.buttons import buttons_for
from fanout.admin.runs.senders import names
from fanout.admin.volume import sends_per_minute, volume
from fanout.models import ClusterBeat, Driver, Run, RunTarget
from fanout.plans.forecast import seconds_to_send
from fanout.plans.queue import Senders, new_chats_left, pending_by_account, read_senders, with_part_count
from fanout.plans.upcoming import Firing, due_reminders, upcoming_firings
from fanout.rules.liveness import CLUSTERS, cluster_is_alive, driver_is_alive
from fanout.runs.message_2 import listed
from fanout.runs.progress import NO_PROGRESS
from reminders.models import Reminder
from reminders.moments import about

SHOWN = 8
DAY = timedelta(hours=24)


def overview(user: Any, now: datetime) -> dict[str, Any]:
    if not user.has_perm("fanout.view_run"):
        return {}
    runs = listed(access.visible(user, Run.objects.filter(archived=False)))
    paused, live = paused_and_live(runs)
    reminders = due_reminders(access.visible(user, Reminder.objects.all()), now)
    accounts = access.visible(user, Account.objects.filter(archived=False))
    down = accounts.exclude(status=Account.Status.ACTIVE).order_by("label").values_list("pk", flat=True)[:SHOWN]
    senders = read_senders(Q(pk__in={*_sender_ids([*paused, *live], reminders), *down}), now)
    zone = forecasts.my_zone()
    return {
        "now": now,
        "may_add": user.has_perm("reminders.add_reminder"),
        # Whoever has a run has taken them all.
        "first_steps": first_steps(user) if not (paused or live) else [],
        "paused": needs_you(paused[:SHOWN], senders, user, now),
        "more_paused": len(paused) > SHOWN,
        "down": with_queue([senders.accounts[pk] for pk in down]),
        "open_runs": runs_with_unconfirmed(user)[:SHOWN],
        "going_on": going_on(live[:SHOWN], senders, user, now),
        "more_live": len(live) > SHOWN,
        "lanes": lanes_ahead(upcoming_firings(reminders, senders, now), zone, now),
        "quarters": [now + DAY * n / 4 for n in range(5)],
        "per_minute": sends_per_minute(accounts, now, zone),
        "volume": volume(runs, now),
        "processes": processes(now),
    }


def paused_and_live(runs: QuerySet[Run]) -> tuple[list[Run], list[Run]]:
    """The newest paused ones and the oldest that are going on, one more of each than is shown, in one query."""
    paused = runs.filter(status=Run.Status.PAUSED)
    live = runs.filter(status__in=Run.UNDER_WAY).order_by("scheduled_for", "pk")
    either = [Q(pk__in=some.values("pk")[: SHOWN + 1]) for some in (paused, live)]
    rows = with_part_count(Run.objects.filter(either[0] | either[1])).defer("parts", "reply_parts")
    newest = list(rows.select_related("account"))
    stopped = [run for run in newest if run.status == Run.Status.PAUSED]
    return stopped, [run for run in reversed(newest) if run.status != Run.Status.PAUSED]


def _sender_ids(runs: Sequence[Run], reminders: Sequence[Reminder]) -> set[int]:
    of_runs = {pk for run in runs for pk in (run.account_id, *run.lanes)}
    return of_runs | {account.pk for reminder in reminders for account in reminder.senders}


def going_on(live: Sequence[Run], senders: Senders, user: Any, now: datetime) -> list[dict[str, Any]]:
    going = forecasts.going_on(live, user, now, senders)
    stands = [(run, going.get(run.pk, NO_PROGRESS)) for run in live]
    return [
        {
            "run": run,
            "sender": names(run, senders.accounts),
            "status": forecasts.status(run, one),
            "rate": one.rate,
            "eta": forecasts.eta(run, one),
        }
        for run, one in stands
    ]


def needs_you(paused: Sequence[Run], senders: Senders, user: Any, now: datetime) -> list[dict[str, Any]]:
    """Paused runs, each with how long the rest takes and what can be done about it."""
    left = {(run.pk, pk): run.pending for run in paused for pk in run.lanes}
    new = new_chats_left(left, senders.snapshots, now)
    acting = bool(paused) and user.has_perm("fanout.change_run") and not access.is_viewer(user)
    return [
        {
            "run": run,
            "rest": _rest(seconds_to_send(run, senders.snapshots, new)),
            "buttons": buttons_for(run, now, rows_only=True) if acting else [],
        }
        for run in paused
    ]


def _rest(seconds: float) -> str:
    return about(seconds) if seconds < math.inf else "for ever, because its budget of new chats is 0"


def with_queue(accounts: Sequence[Account]) -> list[tuple[Account, int]]:
    """Each with the number of recipients that wait for it."""
    waiting = pending_by_account([account.pk for account in accounts])
    return [(account, waiting.get(account.pk, 0)) for account in accounts]


def unconfirmed_targets(user: Any) -> QuerySet[RunTarget]:
    targets = RunTarget.objects.filter(status=RunTarget.Status.UNCONFIRMED)
    return targets if user.is_superuser else targets.filter(run__in=access.visible(user, Run.objects.all()))


def runs_with_unconfirmed(user: Any) -> QuerySet[Run]:
    """Found through the targets, for whose unconfirmed rows there is a partial index."""
    newest = unconfirmed_targets(user).order_by("-claimed_at").values("run_id")[:200]
    return Run.objects.filter(pk__in=newest).defer("parts").order_by("-scheduled_for")


# --- the next 24 hours ----------------------------------------------------------------------------------


def lanes_ahead(firings: Sequence[Firing], zone: str, now: datetime) -> list[dict[str, Any]]:
    """The accounts that will be busy, each with its firings as bars on a day's line and in words."""
    labels = {account.pk: account for firing in firings for account in firing.reminder.senders}
    rows = []
    for pk, account in list(labels.items())[:SHOWN]:
        mine = [firing.share(account) for firing in firings if _busies(firing, pk)]
        rows.append(
            {
                "account": account,
                "bars": [bar for firing in mine if (bar := day_bar(firing, pk, now))],
                "firings": [(firing, firing.verdict(zone, now)) for firing in mine],
            }
        )
    return rows


def _busies(firing: Firing, account: int) -> bool:
    """Whether the account has a share of it; of one that nobody gets, the first one has."""
    return firing.shares.get(account, 0) > 0 or (not firing.targets and firing.reminder.senders[0].pk == account)


def day_bar(firing: Firing, account: int, now: datetime) -> charts.Band | None:
    """From its first to its last message within the next day; wide enough to be seen."""
    lane = firing.lanes.get(account)
    if lane is None or lane.first is None or lane.last is None:
        return None
    begin = (lane.first - now.timestamp()) / DAY.total_seconds() * 100
    end = min((lane.last - now.timestamp()) / DAY.total_seconds() * 100, 100.0)
    if begin >= 100:
        return None
    tone = "good" if firing.fits else "bad"
    return charts.Band(round(begin, 2), round(max(end - begin, 0.6), 2), tone, firing.reminder.title)


class Beat(NamedTuple):
    """The last sign of life of a process. A driver belongs to no cluster here, and a cluster has no slot."""

    cluster: str
    host: str
    slot: int
    lanes: int
    at: datetime


def processes(now: datetime) -> dict[str, Any]:
    """Whether all that must run does, in words, and the last sign of life of each."""
    beats = last_beats(now)
    rows = [*_clusters(beats, now), *_drivers(beats, now)]
    silent = [row["name"] for row in rows if not row["ok"]]
    return {"rows": rows, "silent": silent, "words": _well(rows) if not silent else ""}


def last_beats(now: datetime) -> list[Beat]:
    """In one query, the oldest first."""
    drivers = Driver.objects.filter(ended_at=None, beat_at__gte=now - DAY).order_by("host", "slot")[:SHOWN]
    clusters = ClusterBeat.objects.values_list("cluster", "host", Value(-1), Value(0), "beat_at")
    rows = clusters.union(drivers.values_list(Value(""), "host", "slot", "lanes", "beat_at"), all=True)
    return sorted((Beat(*row) for row in rows), key=lambda beat: beat.at)


def _well(rows: Sequence[dict[str, Any]]) -> str:
    drivers = [row["lanes"] for row in rows if "lanes" in row]
    sending = sum(drivers)
    return f"All well: {len(drivers)} driver{pluralize(len(drivers))}, {sending} account{pluralize(sending)} sending."


def _clusters(beats: Sequence[Beat], now: datetime) -> list[dict[str, Any]]:
    """The newest beat of each; those that must run are listed even if they never did."""
    newest = {beat.cluster: beat.at for beat in beats if beat.cluster}
    return [
        {"name": f"workers “{name}”", "at": newest.get(name), "ok": cluster_is_alive(newest.get(name), now)}
        for name in sorted({*CLUSTERS, *newest})
    ]


def _drivers(beats: Sequence[Beat], now: datetime) -> list[dict[str, Any]]:
    drivers = sorted((beat for beat in beats if not beat.cluster), key=lambda beat: (beat.host, beat.slot))
    several = len({driver.host for driver in drivers}) > 1
    return [
        {
            "name": f"driver {driver.slot + 1}" + (f" on {driver.host}" if several else ""),
            "at": driver.at,
            "ok": driver_is_alive(driver.at, now),
            "lanes": driver.lanes,
            "note": f"{driver.lanes} account{pluralize(driver.lanes)}",
        }
        for driver in drivers
    ]
