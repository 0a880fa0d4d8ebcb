"""The first page: what needs attention, what is going on, what comes next, and whether all processes run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import reduce
from hashlib import sha256
from operator import or_
from typing import Any, NamedTuple

from django.contrib.auth import get_user_model
from django.core.cache import cache
from django.db import connection
from django.db.models import Exists, Q, QuerySet, Value
from django.template.defaultfilters import pluralize
from django.urls import reverse

from accounts import access
from accounts.actions import Action
from accounts.models import Account
from fanout.admin.run_status import buttons_for, eta, going_on, my_zone, sender_links, status_with_reason
from fanout.admin.widgets import Band, Chart, line_chart
from fanout.lanes.reputation import rising, with_opt_outs
from fanout.models import ClusterBeat, Driver, KnownServer, Run, RunTarget
from fanout.plans.follow_up_steps import lanes_of_steps
from fanout.plans.forecast import forecast_runs, seconds_to_send
from fanout.plans.projection import as_datetime
from fanout.plans.queue import Senders, new_chats_left, pending_by_account, read_senders, with_part_count
from fanout.plans.upcoming import MOST_FIRINGS, Firing, due_reminders, upcoming_firings
from fanout.rules.liveness import CLUSTERS, cluster_is_alive, driver_is_alive
from fanout.runs import recovery
from fanout.runs.message_2 import listed
from fanout.runs.progress import NO_PROGRESS
from reminders.models import Recipient, Reminder
from reminders.moments import about

SHOWN = 8
DAY = timedelta(hours=24)


def overview(user: Any, now: datetime) -> dict[str, Any]:
    if not user.has_perm("fanout.view_run"):
        return {"no_role": True, "administrators": administrators()}
    runs = listed(access.visible(user, Run.objects.filter(archived=False)))
    paused, live, resuming = unfinished_runs(runs, now)
    reminders = due_reminders(access.visible(user, Reminder.objects.all()), now)
    accounts = access.visible(user, Account.objects.filter(archived=False))
    down, left = accounts_in_trouble(accounts, now)
    sending = {*_sender_ids([*paused, *live, *resuming], reminders), *lanes_of_steps(user, now + DAY)}
    senders = read_senders(Q(pk__in={*sending, *down}), now)
    firings = shown_to(user, upcoming_firings(reminders, senders, now))
    zone = my_zone()
    return {
        "now": now,
        "may_add": access.may_do(user, "reminders.add_reminder"),
        # Hide the checklist once a run exists.
        "first_steps": first_steps(user) if not (paused or live or resuming) else [],
        "paused": needs_you(paused[:SHOWN], senders, user, now),
        "more_paused": len(paused) > SHOWN,
        "down": with_queue(sorted((senders.accounts[pk] for pk in down), key=lambda account: account.label)),
        "open_runs": runs_with_unconfirmed(user)[:SHOWN],
        "rising": rising(Account.objects.filter(pk__in=left).order_by("label"), now) if left else [],
        "going_on": runs_under_way(live[:SHOWN], senders, user, now),
        "more_live": len(live) > SHOWN,
        "lanes": lanes_ahead(firings, zone, now, resumptions(resuming, senders, now)),
        "quarters": [now + DAY * n / 4 for n in range(5)],
        "per_minute": sends_per_minute(accounts, now, zone),
        "volume": volume(runs, now),
        "processes": processes(now),
    }


def accounts_in_trouble(accounts: QuerySet[Account], now: datetime) -> tuple[list[int], list[int]]:
    """Return the accounts that are not active, and those that people opted out of lately, in one query."""
    down = accounts.exclude(status=Account.Status.ACTIVE).order_by("label").values_list("pk", Value(True))
    left = with_opt_outs(accounts, now).values_list("pk", Value(False))
    rows = list(down[:SHOWN].union(left[:SHOWN], all=True))
    return [pk for pk, is_down in rows if is_down], [pk for pk, is_down in rows if not is_down]


def administrators() -> list[str]:
    """Return whom to ask for a role: their names, with their mail address where it is known."""
    people = get_user_model().objects.filter(is_superuser=True, is_active=True).order_by("pk")[:3]
    return [f"{user.get_full_name() or user.username}{f' ({user.email})' if user.email else ''}" for user in people]


def unfinished_runs(runs: QuerySet[Run], now: datetime) -> tuple[list[Run], list[Run], list[Run]]:
    """Return the newest paused runs that wait for a person and the oldest live ones, one more of each than is shown,
    and those that go on by themselves within the next day, the soonest first; in one query."""
    paused = runs.filter(status=Run.Status.PAUSED, resume_at=None)
    live = runs.filter(status__in=Run.UNDER_WAY).order_by("scheduled_for", "pk")
    soon = runs.filter(status=Run.Status.PAUSED, resume_at__lte=now + DAY).order_by("resume_at", "pk")
    chosen = ((paused, SHOWN + 1), (live, SHOWN + 1), (soon, MOST_FIRINGS))
    any_of = reduce(or_, (Q(pk__in=some.values("pk")[:most]) for some, most in chosen))
    rows = with_part_count(Run.objects.filter(any_of)).defer("parts", "reply_parts")
    newest = list(rows.select_related("account"))
    stopped = [run for run in newest if run.status == Run.Status.PAUSED]
    resuming = sorted((run for run in stopped if run.resume_at), key=lambda run: (run.resume_at or now, run.pk))
    waiting = [run for run in stopped if not run.resume_at]
    return waiting, [run for run in reversed(newest) if run.status != Run.Status.PAUSED], resuming


def _sender_ids(runs: Sequence[Run], reminders: Sequence[Reminder]) -> set[int]:
    of_runs = {pk for run in runs for pk in (run.account_id, *run.lanes)}
    return of_runs | {account.pk for reminder in reminders for account in reminder.senders}


def runs_under_way(live: Sequence[Run], senders: Senders, user: Any, now: datetime) -> list[dict[str, Any]]:
    going = going_on(live, user, now, senders)
    stands = [(run, going.get(run.pk, NO_PROGRESS)) for run in live]
    return [
        {
            "run": run,
            "sender": sender_links(run, senders.accounts),
            "status": status_with_reason(run, one),
            "rate": one.rate,
            "eta": eta(run, one),
        }
        for run, one in stands
    ]


def needs_you(paused: Sequence[Run], senders: Senders, user: Any, now: datetime) -> list[dict[str, Any]]:
    """Return paused runs, each with the time that the rest takes and its buttons."""
    left = {(run.pk, pk): run.pending for run in paused for pk in run.lanes}
    new = new_chats_left(left, senders.snapshots, now)
    acting = bool(paused) and access.may_do(user, "fanout.change_run")
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
    """Return each account with the number of recipients that wait for it."""
    waiting = pending_by_account([account.pk for account in accounts])
    return [(account, waiting.get(account.pk, 0)) for account in accounts]


def unconfirmed_targets(user: Any) -> QuerySet[RunTarget]:
    targets = RunTarget.objects.filter(status=RunTarget.Status.UNCONFIRMED)
    return targets if user.is_superuser else targets.filter(run__in=access.visible(user, Run.objects.all()))


def runs_with_unconfirmed(user: Any) -> QuerySet[Run]:
    """Find the runs through their targets: unconfirmed targets have a partial index."""
    newest = unconfirmed_targets(user).order_by("-claimed_at").values("run_id")[:200]
    return Run.objects.filter(pk__in=newest).defer("parts").order_by("-scheduled_for")


# --- the next 24 hours ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ahead:
    """What an account will send in the next day: a firing, or a run that goes on."""

    account: Account
    at: datetime
    timezone: str
    title: str
    url: str
    verdict: str
    good: bool
    bar: Band | None


def shown_to(user: Any, firings: Sequence[Firing]) -> list[Firing]:
    """Return the firings without the follow-ups of reminders that the person does not see: those fill the queues of
    shared accounts too, and are counted there."""
    of_others = {one.reminder.pk for one in firings if one.step and one.reminder.owner_id != user.pk}
    reminders = access.visible(user, Reminder.objects.filter(pk__in=of_others))
    unseen = of_others - set(reminders.values_list("pk", flat=True)) if of_others else of_others
    return [one for one in firings if not one.step or one.reminder.pk not in unseen]


def lanes_ahead(
    firings: Sequence[Firing], zone: str, now: datetime, resumed: Sequence[Ahead] = ()
) -> list[dict[str, Any]]:
    """Return the accounts that will be busy, each with what it sends, as bars of a day and in words."""
    ahead = sorted([*resumed, *_firings_ahead(firings, zone, now)], key=lambda one: one.at)
    accounts = {one.account.pk: one.account for one in ahead}
    rows = []
    for pk, account in list(accounts.items())[:SHOWN]:
        mine = [one for one in ahead if one.account.pk == pk]
        rows.append({"account": account, "bars": [one.bar for one in mine if one.bar], "ahead": mine})
    return rows


def _firings_ahead(firings: Sequence[Firing], zone: str, now: datetime) -> Iterator[Ahead]:
    for firing in firings:
        for account in firing.reminder.senders:
            if _busies(firing, account.pk):
                mine = firing.share(account)
                yield Ahead(
                    account=account,
                    at=mine.at,
                    timezone=mine.reminder.timezone,
                    title=mine.title,
                    url=reverse("admin:reminders_reminder_change", args=[mine.reminder.pk]),
                    verdict=mine.verdict(zone, now),
                    good=bool(mine.fits and mine.targets),
                    bar=day_bar(mine, account.pk, now),
                )


def resumptions(runs: Sequence[Run], senders: Senders, now: datetime) -> list[Ahead]:
    """Return what each account sends of the runs that go on by themselves."""
    forecasts = forecast_runs(runs, now, my_zone(), senders) if runs else {}
    ahead = []
    for run in runs:
        expected = forecasts[run.pk]
        for pk in run.lanes:
            if pk in senders.accounts and run.resume_at is not None:
                begin, end = expected.starts_at or run.resume_at, expected.ends_at or now + DAY
                ahead.append(
                    Ahead(
                        account=senders.accounts[pk],
                        at=run.resume_at,
                        timezone=run.timezone,
                        title=run.title,
                        url=reverse("admin:fanout_run_change", args=[run.pk]),
                        verdict=f"goes on: {expected.sentence}",
                        good=expected.fits,
                        bar=_band(begin, end, now, expected.fits, run.title),
                    )
                )
    return ahead


def _busies(firing: Firing, account: int) -> bool:
    """Return whether the account sends a share of the firing; one without targets belongs to its first account."""
    return firing.shares.get(account, 0) > 0 or (not firing.targets and firing.reminder.senders[0].pk == account)


def day_bar(firing: Firing, account: int, now: datetime) -> Band | None:
    """Return a bar from the first to the last message within the next day, wide enough to be seen."""
    lane = firing.lanes.get(account)
    if lane is None or lane.first is None or lane.last is None:
        return None
    return _band(as_datetime(lane.first), as_datetime(lane.last), now, firing.fits, firing.reminder.title)


def _band(first: datetime, last: datetime, now: datetime, fits: bool, title: str) -> Band | None:
    begin, end = ((at - now) / DAY * 100 for at in (first, last))
    if begin >= 100:
        return None
    return Band(round(begin, 2), round(max(min(end, 100.0) - begin, 0.6), 2), "good" if fits else "bad", title)


DATABASE = "database"


class Beat(NamedTuple):
    """The last heartbeat of a process. `cluster` is empty for a driver; a cluster has no slot."""

    cluster: str
    host: str
    slot: int
    lanes: int
    at: datetime


def processes(now: datetime) -> dict[str, Any]:
    """Return the last heartbeat of each process, the silent ones, a summary when none is silent, and why the database
    stops all sending, if it does."""
    beats = last_beats(now)
    stopped = [recovery.stopped_because(beat.host) for beat in beats if beat.cluster == DATABASE]
    beats = [beat for beat in beats if beat.cluster != DATABASE]
    rows = [*_clusters(beats, now), *_drivers(beats, now)]
    silent = [row["name"] for row in rows if not row["ok"]]
    words = _well(rows) if not silent else ""
    return {"rows": rows, "silent": silent, "words": words, "stopped": next(iter(stopped), "")}


def last_beats(now: datetime) -> list[Beat]:
    """Return all heartbeats in one query, oldest first; and as `DATABASE` that its server lacks commits, with the
    reason as host."""
    drivers = Driver.objects.filter(ended_at=None, beat_at__gte=now - DAY).order_by("host", "slot")[:SHOWN]
    clusters = ClusterBeat.objects.values_list("cluster", "host", Value(-1), Value(0), "beat_at")
    held = KnownServer.objects.filter(held=True).values_list(Value(DATABASE), "why", Value(-1), Value(0), "noticed_at")
    rows = clusters.union(drivers.values_list(Value(""), "host", "slot", "lanes", "beat_at"), held, all=True)
    return sorted((Beat(*row) for row in rows), key=lambda beat: beat.at)


def _well(rows: Sequence[dict[str, Any]]) -> str:
    drivers = [row["lanes"] for row in rows if "lanes" in row]
    if not drivers:  # between two slices there is none for a moment
        return "All well: a driver starts as soon as something is due."
    sending = sum(drivers)
    return f"All well: {len(drivers)} driver{pluralize(len(drivers))}, {sending} account{pluralize(sending)} sending."


def _clusters(beats: Sequence[Beat], now: datetime) -> list[dict[str, Any]]:
    """Return the newest heartbeat of each cluster; required clusters are listed even if they never ran."""
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


# --- how much was delivered since yesterday, and how fast each account sends ------------------------------

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
COUNTED_EVERY = MINUTE
HIGH_ERROR_SHARE = 0.05
CURVES = 5
MOST_COUNTED = 20_000  # messages of one account


@dataclass(frozen=True, slots=True)
class Volume:
    sent: int
    failed: int

    @property
    def share(self) -> float:
        attempts = self.sent + self.failed
        return self.failed / attempts if attempts else 0.0

    @property
    def errors_high(self) -> bool:
        return self.share > HIGH_ERROR_SHARE


COUNTS_OF_RUNS = """
WITH begun AS ({begun}), older AS ({older})
SELECT (SELECT coalesce(sum(sent), 0) FROM begun), (SELECT coalesce(sum(failed), 0) FROM begun),
       ARRAY(SELECT id FROM older ORDER BY id)
"""
COUNTS_OF_TARGETS = """
SELECT count(*) FILTER (WHERE status = 'sent'), count(*) FILTER (WHERE status = 'failed')
  FROM fanout_runtarget WHERE run_id = ANY(%s) AND status IN ('sent', 'failed') AND settled_at >= %s
"""


def volume(runs: QuerySet[Run], now: datetime) -> Volume:
    """Return how many targets were settled in the last day.

    Runs that began within it are summed from their counters. Targets are counted only for runs that began earlier and
    were still going on.
    """
    since = now - DAY
    went_on = Q(status__in=Run.LIVE) | Q(finished_at__gte=since)
    begun = runs.order_by().filter(first_attempt_at__gte=since).values("sent", "failed")
    older = runs.order_by().filter(went_on, first_attempt_at__lt=since).values("id")
    (begun_sql, some), (older_sql, others) = (rows.query.sql_with_params() for rows in (begun, older))
    with connection.cursor() as cursor:
        cursor.execute(COUNTS_OF_RUNS.format(begun=begun_sql, older=older_sql), [*some, *others])
        sent, failed, older_ids = cursor.fetchone()
    more_sent, more_failed = _settled_since(since, older_ids) if older_ids else (0, 0)
    return Volume(sent + more_sent, failed + more_failed)


def _settled_since(since: datetime, runs: list[int]) -> tuple[int, int]:
    """Return how many of their targets were sent and failed, cached for a minute: it reads everything they settled."""
    key = f"settled-since-{sha256(repr(runs).encode()).hexdigest()}"
    counts: tuple[int, int] | None = cache.get(key)
    if counts is None:
        with connection.cursor() as cursor:
            cursor.execute(COUNTS_OF_TARGETS, [runs, since])
            counts = cursor.fetchone()
        cache.set(key, counts, COUNTED_EVERY.total_seconds())
    return counts


PER_MINUTE = """
WITH latest AS ({latest})
SELECT a.label, date_trunc('minute', s.at), count(*)
  FROM latest a CROSS JOIN unnest(%s::varchar[]) AS k(action)
 CROSS JOIN LATERAL (SELECT v.at FROM fanout_activity v
                      WHERE v.account_id = a.id AND v.action = k.action AND v.outcome = 'sent'
                        AND v.at >= %s AND v.at < %s
                      ORDER BY v.at DESC LIMIT %s) AS s
 GROUP BY a.id, 1, 2
"""


def sends_per_minute(accounts: QuerySet[Account], now: datetime, zone: str) -> Chart:
    """Draw the last hour in whole minutes, with a curve for each of the accounts that sent last."""
    until = now.replace(second=0, microsecond=0)
    since = until - HOUR
    latest = accounts.filter(lane__last_claim_at__gte=since).order_by("-lane__last_claim_at").values("id", "label")
    sql, some = latest[:CURVES].query.sql_with_params()
    counts: dict[str, dict[datetime, int]] = {}
    with connection.cursor() as cursor:
        cursor.execute(PER_MINUTE.format(latest=sql), [*some, Action.values, since, until, MOST_COUNTED])
        for label, minute, n in cursor.fetchall():
            counts.setdefault(label, {})[minute] = n
    busiest = dict(sorted(counts.items(), key=lambda one: -sum(one[1].values())))
    return line_chart("Sends per minute", busiest, since, until, MINUTE, zone)


# --- what a new site still needs before its first reminder goes out ---------------------------------------


class FirstStep(NamedTuple):
    label: str
    hint: str
    url: str


def first_steps(user: Any) -> list[FirstStep]:
    """Return the steps that are left, in order; none for people who may not take them."""
    if not access.may_do(user, "reminders.add_reminder"):
        return []
    steps: list[tuple[FirstStep, QuerySet[Any]]] = [
        (
            FirstStep("Add an account", "the number or mailbox that sends", reverse("admin:accounts_account_add")),
            access.visible(user, Account.objects.all()),
        ),
        (
            FirstStep("Add recipients", "groups and people", reverse("admin:reminders_recipient_changelist")),
            access.visible(user, Recipient.objects.all()),
        ),
        (
            FirstStep("Write a reminder", "what, to whom and when", reverse("admin:reminders_reminder_add")),
            access.visible(user, Reminder.objects.all()),
        ),
        (
            FirstStep("Send a test", "from the reminder's page", reverse("admin:reminders_reminder_changelist")),
            access.visible(user, Run.objects.all()),
        ),
    ]
    done = {f"step_{n}": Exists(rows) for n, (_, rows) in enumerate(steps)}
    # Annotates a single row, the person's own, so that one query is enough.
    taken = get_user_model().objects.filter(pk=user.pk).values_list(*done.values()).get()
    return [step for (step, _), yes in zip(steps, taken) if not yes]
