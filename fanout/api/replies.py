"""Replies of people, and what was delivered per day."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Annotated, Any, Literal

from django.db.models import Exists, OuterRef, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from ninja import Field, Query, Router, Schema

from accounts.models import Account
from fanout.api.conventions import Answer, Id, Needs, PageQuery, Problem, Scope, Text, caller_of, page_of
from fanout.api.runs import find_run
from fanout.lanes import results
from fanout.models import InboundEvent, Run, RunTarget

router = Router()
READS = Needs(Scope.READ, "fanout.view_inboundevent")
READS_RUNS = Needs(Scope.READ, "fanout.view_run")
MOST_DAYS = 92
Kind = InboundEvent.Kind
KINDS = (Kind.REPLY, Kind.UNSUBSCRIBE, Kind.COMPLAINT, Kind.AUTOMATIC)


class ReplyOut(Answer):
    id: int
    kind: Literal["reply", "unsubscribe", "complaint", "automatic"]
    account: int
    address: str
    text: str = Field(description="Empty once it is not kept any more")
    happened_at: datetime
    opted_out: bool
    run: int | None
    target: int | None
    effect: str


class ReplyPage(Answer):
    items: list[ReplyOut]
    next: str | None


class ReplyQuery(PageQuery):
    run: Id | None = Field(None, description="Only replies to this run")
    account: Id | None = None
    address: Annotated[Text, Field(max_length=254)] = ""


@router.get("/replies", response=ReplyPage, auth=READS)
def list_replies(request: HttpRequest, query: Query[ReplyQuery]) -> Any:
    """List what people wrote back, newest first. Messages in groups are not replies."""
    caller = caller_of(request)
    accounts = caller.visible(Account.objects.all())
    rows: QuerySet[InboundEvent] = InboundEvent.objects.filter(kind__in=KINDS, group="")
    if query.run is not None:
        run = find_run(request, query.run)
        mine = RunTarget.objects.filter(run=run).order_by()
        # Not the run's lanes, which are only the accounts that still have something to send.
        senders = list(mine.values_list("account_id", flat=True).distinct())
        rows = rows.filter(Exists(mine.filter(pk=OuterRef("run_target_id"))))
        # By the index of each account's events; none came before the run began.
        rows = rows.filter(account__in=senders, came_at__gte=run.scheduled_for - timedelta(minutes=1))
    if query.account is not None:
        accounts = accounts.filter(pk=query.account)
    if query.address:
        rows = rows.filter(address=query.address)
    items, following = page_of(rows.filter(account__in=accounts), query)
    runs = dict(RunTarget.objects.filter(pk__in=[one.run_target_id for one in items]).values_list("pk", "run_id"))
    return {"items": [_reply(one, runs) for one in items], "next": following}


def _reply(event: InboundEvent, runs: dict[int, int]) -> dict[str, Any]:
    same = ("kind", "address", "text", "happened_at", "effect")
    return {
        "id": event.pk,
        **{name: getattr(event, name) for name in same},
        "account": event.account_id,
        "opted_out": event.opts_out or event.kind in (Kind.UNSUBSCRIBE, Kind.COMPLAINT),
        "run": runs.get(event.run_target_id or 0),
        "target": event.run_target_id,
    }


class DayStatistics(Answer):
    date: date
    sent: int = Field(description="Targets that were sent on this day")
    failed: int
    received: int = Field(description="Of those sent: receipts, whenever they came")
    read: int
    replied: int
    opted_out: int


class StatisticsOut(Answer):
    days: list[DayStatistics]


class StatisticsQuery(Schema):
    since: date | None = Field(None, description="First day; default: six days before the last one")
    until: date | None = Field(None, description="Last day; default: today in UTC")
    account: Id | None = None
    reminder: Id | None = None


@router.get("/statistics/days", response=StatisticsOut, auth=READS_RUNS)
def day_statistics(request: HttpRequest, query: Query[StatisticsQuery]) -> Any:
    """Count what was sent and what came back per day of each run's own calendar, for at most 92 days: the numbers of
    the page "Results"."""
    until = query.until or timezone.now().date()
    since = query.since or until - timedelta(days=min(6, until.toordinal() - 1))
    if not 0 <= (until - since).days < MOST_DAYS or not 1971 <= since.year <= until.year <= 9000:
        raise Problem(422, f"Ask for 1 to {MOST_DAYS} days.", {"since": "not before the last day"})
    runs = caller_of(request).visible(Run.objects.all())
    found = results.by_day(results.Span(since, until, runs, query.account, query.reminder))
    days = [since + timedelta(days=n) for n in range((until - since).days + 1)]
    return {"days": [{"date": day, **found.get(day, results.Result()).as_dict()} for day in days]}
