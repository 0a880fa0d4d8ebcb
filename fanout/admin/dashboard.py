"""The first page: what needs attention, what is going on, what comes next, and whether all processes run."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db.models import QuerySet, Sum
from django.template.defaultfilters import pluralize
from django.urls import reverse

from accounts import access
from accounts.models import Account
from fanout.admin.paginator import capped_counts, shown
from fanout.admin.runs import forecasts
from fanout.admin.runs.buttons import buttons_for
from fanout.models import ClusterBeat, Driver, Run, RunTarget
from fanout.rules.liveness import cluster_is_alive, driver_is_alive
from fanout.runs.message_2 import listed
from reminders.models import Reminder

CAP = 1_000
SHOWN = 8
DAY = timedelta(hours=24)
CLUSTERS = ("main", "drivers")


def overview(user: Any, now: datetime) -> dict[str, Any]:
    if not user.has_perm("fanout.view_run"):
        return {}
    runs = listed(access.visible(user, Run.objects.filter(archived=False)))
    runs = runs.defer("parts", "reply_parts").select_related("account")
    accounts = access.visible(user, Account.objects.filter(archived=False))
    reminders = access.visible(user, Reminder.objects.all())
    acting = user.has_perm("fanout.change_run") and not access.is_viewer(user)
    return {
        "now": now,
        "paused": with_buttons(runs.filter(status=Run.Status.PAUSED)[:SHOWN], now, acting),
        "down": accounts.exclude(status=Account.Status.ACTIVE)[:SHOWN],
        "open_runs": runs_with_unconfirmed(user)[:SHOWN],
        "going_on": going_on(runs, now),
        "tiles": tiles(user, runs, accounts, now),
        "next_firings": next_firings(reminders, now),
        "processes": processes(now),
    }


def going_on(runs: QuerySet[Run], now: datetime) -> list[dict[str, Any]]:
    live = list(runs.filter(status__in=Run.LIVE).order_by("scheduled_for")[:SHOWN])
    etas = forecasts.etas(live, now)
    return [{"run": run, "rate": forecasts.per_minute(run, now), "eta": etas.get(run.pk)} for run in live]


def with_buttons(runs: QuerySet[Run], now: datetime, acting: bool) -> list[tuple[Run, list[Any]]]:
    return [(run, buttons_for(run, now, rows_only=True) if acting else []) for run in runs]


def unconfirmed_targets(user: Any) -> QuerySet[RunTarget]:
    targets = RunTarget.objects.filter(status=RunTarget.Status.UNCONFIRMED)
    return targets if user.is_superuser else targets.filter(run__in=access.visible(user, Run.objects.all()))


def runs_with_unconfirmed(user: Any) -> QuerySet[Run]:
    """Found through the targets, for whose unconfirmed rows there is a partial index."""
    newest = unconfirmed_targets(user).order_by("-claimed_at").values("run_id")[:200]
    return Run.objects.filter(pk__in=newest).defer("parts").order_by("-scheduled_for")


def tiles(user: Any, runs: QuerySet[Run], accounts: QuerySet[Account], now: datetime) -> list[dict[str, Any]]:
    listing, accounts_list = (
        reverse("admin:fanout_run_changelist"),
        reverse("admin:accounts_account_changelist"),
    )
    targets_list = reverse("admin:fanout_runtarget_changelist")
    counts = capped_counts(
        {
            "paused": runs.filter(status=Run.Status.PAUSED),
            "down": accounts.exclude(status=Account.Status.ACTIVE),
            "unconfirmed": unconfirmed_targets(user),
            "live": runs.filter(status__in=[*Run.LIVE, Run.Status.PREPARING]),
        },
        CAP,
    )
    day = volume(runs, now)
    return [
        _tile("paused runs", counts["paused"], f"{listing}?status=paused", "warn"),
        _tile("accounts not active", counts["down"], f"{accounts_list}?health=down", "bad"),
        _tile("unconfirmed targets", counts["unconfirmed"], targets_list, "warn"),
        _tile("runs going on", counts["live"], f"{listing}?status=running"),
        {"word": "delivered in 24 hours", "n": f"{day['sent']:,}", "url": listing},
        {
            "word": "of attempts failed",
            "n": day["error_share"],
            "url": f"{listing}?status=partial",
            "tone": "bad" if day["errors_high"] else "",
        },
    ]


def _tile(word: str, n: int, url: str, tone: str = "") -> dict[str, Any]:
    return {"word": word, "n": shown(n, CAP), "url": url, "tone": tone if n else ""}


def volume(runs: QuerySet[Run], now: datetime) -> dict[str, Any]:
    """Deliveries and error share of the last day, summed from the counters of the runs."""
    recent = runs.filter(scheduled_for__gte=now - DAY, scheduled_for__lte=now).order_by()
    sums = recent.aggregate(sent=Sum("sent", default=0), failed=Sum("failed", default=0))
    attempts = sums["sent"] + sums["failed"]
    share = sums["failed"] / attempts if attempts else 0.0
    return {"sent": sums["sent"], "error_share": f"{share:.1%}", "errors_high": share > 0.05}


def next_firings(reminders: QuerySet[Reminder], now: datetime) -> list[dict[str, Any]]:
    """The next firings, each with an earlier one on the same account within the hour, if any."""
    due = list(
        reminders.filter(enabled=True, next_fire_at__isnull=False)
        .select_related("account")
        .order_by("next_fire_at")[:SHOWN]
    )
    return [{"reminder": reminder, "meets": _meets(reminder, due)} for reminder in due]


def _meets(reminder: Reminder, others: list[Reminder]) -> Reminder | None:
    def near(other: Reminder) -> bool:
        if reminder.next_fire_at is None or other.next_fire_at is None:
            return False
        return timedelta(0) <= reminder.next_fire_at - other.next_fire_at < timedelta(hours=1)

    same = (other for other in others if other.account_id == reminder.account_id and other.pk != reminder.pk)
    return next(filter(near, same), None)


def processes(now: datetime) -> list[dict[str, Any]]:
    """Clusters and drivers, each with its last beat."""
    return [*_clusters(now), *_drivers(now)]


def _clusters(now: datetime) -> list[dict[str, Any]]:
    """The newest beat of each; those that must run are listed even if they never did."""
    beats = {beat.cluster: beat.beat_at for beat in ClusterBeat.objects.order_by("beat_at")}
    return [
        {"name": f"cluster {name}", "at": beats.get(name), "ok": cluster_is_alive(beats.get(name), now)}
        for name in sorted({*CLUSTERS, *beats})
    ]


def _drivers(now: datetime) -> list[dict[str, Any]]:
    recent = Driver.objects.filter(ended_at=None, beat_at__gte=now - DAY).order_by("host", "slot")[:SHOWN]
    return [
        {
            "name": f"driver {driver.slot}",
            "at": driver.beat_at,
            "ok": driver_is_alive(driver.beat_at, now),
            "note": f"{driver.lanes} lane{pluralize(driver.lanes)}",
        }
        for driver in recent
    ]
