"""Accounts: status and health, what holds them back, caps and pace, pausing and resuming. Never their credentials."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from django.http import HttpRequest
from django.utils import timezone
from ninja import Field, Query, Router, Schema

from accounts.channels.registry import channel
from accounts.models import Account
from fanout.api.conventions import (
    Answer,
    Done,
    Line,
    Needs,
    PageQuery,
    Paging,
    Scope,
    Text,
    caller_of,
    page_of,
    require,
)
from fanout.api.runs import EventPage, WhyOut, events_out
from fanout.lanes import account_limits, accounts, tuning
from fanout.lanes.paired_numbers import number_health
from fanout.models import Event
from fanout.runs import controls
from fanout.runs.why import why_account
from reminders.part_templates import Choice

router = Router()
READS = Needs(Scope.READ, "accounts.view_account")
CHANGES = Needs(Scope.ACCOUNTS, "accounts.change_account")


class CapOut(Answer):
    action: str
    limit: int | None = Field(description="Messages per day; null: no cap")
    used: int
    source: str


class AccountOut(Answer):
    id: int
    label: str
    channel: str
    address: str
    status: str
    status_reason: str
    status_until: datetime | None
    timezone: str
    team: int | None
    archived: bool
    last_error: str
    last_error_at: datetime | None
    untested_since: datetime | None = Field(description="Since then nothing has shown that it works")


class AccountPage(Answer):
    items: list[AccountOut]
    next: str | None


class HealthOut(Answer):
    status: str
    status_reason: str
    good: bool
    lines: list[str] = Field(description="For paired numbers: what their bridge last reported")
    why: str
    next_send_at: datetime | None
    caps: list[CapOut]


class KnobOut(Answer):
    name: str
    value: float | None
    source: str
    meaning: str


class PaceOut(Answer):
    knobs: list[KnobOut]


def account_out(account: Account) -> dict[str, Any]:
    same = [name for name in AccountOut.model_fields if name not in ("id", "team")]
    return {"id": account.pk, "team": account.team_id, **{name: getattr(account, name) for name in same}}


def find_account(request: HttpRequest, pk: int) -> Account:
    return caller_of(request).find(Account.objects.all(), pk, "account")


class AccountQuery(PageQuery):
    status: Line = ""
    channel: Line = ""
    archived: bool = False


@router.get("", response=AccountPage, auth=READS)
def list_accounts(request: HttpRequest, query: Query[AccountQuery]) -> Any:
    """List accounts, newest first."""
    rows = caller_of(request).visible(Account.objects.filter(archived=query.archived))
    if query.status:
        rows = rows.filter(status=query.status)
    if query.channel:
        rows = rows.filter(channel=query.channel)
    items, following = page_of(rows, query)
    return {"items": [account_out(account) for account in items], "next": following}


@router.get("/{int:account_id}", response=AccountOut, auth=READS)
def get_account(request: HttpRequest, account_id: int) -> Any:
    """Return one account."""
    return account_out(find_account(request, account_id))


@router.get("/{int:account_id}/health", response=HealthOut, auth=READS)
def health(request: HttpRequest, account_id: int) -> Any:
    """Say how an account is, what holds it back, and how much of its caps is used today."""
    account, now = find_account(request, account_id), timezone.now()
    line, paired = why_account(account, now), number_health(account, now)
    good = account.status == Account.Status.ACTIVE and (paired is None or paired.is_good(now))
    return {
        "status": account.status,
        "status_reason": account.status_reason,
        "good": good,
        "lines": paired.lines(now) if paired else [],
        "why": line.text,
        "next_send_at": line.next_send_at,
        "caps": _caps(account, now),
    }


def _caps(account: Account, now: datetime) -> list[dict[str, Any]]:
    caps = {action: account_limits.cap_today(account, action, now) for action in channel(account.channel).actions}
    return [
        {
            "action": str(action),
            "limit": cap.limit,
            "used": account_limits.used_today(account, action, now),
            "source": cap.source,
        }
        for action, cap in caps.items()
    ]


@router.get("/{int:account_id}/why", response=WhyOut, auth=READS)
def why(request: HttpRequest, account_id: int) -> Any:
    """Say which limit holds the account back, and when its next message goes out."""
    line = why_account(find_account(request, account_id), timezone.now())
    return {"why": line.text, "next_send_at": line.next_send_at}


@router.get("/{int:account_id}/timeline", response=EventPage, auth=READS)
def timeline(request: HttpRequest, account_id: int, paging: Paging) -> Any:
    """List what happened to an account, and who did it."""
    return events_out(Event.objects.filter(account=find_account(request, account_id)), paging)


@router.get("/{int:account_id}/pace", response=PaceOut, auth=READS)
def pace(request: HttpRequest, account_id: int) -> Any:
    """List every knob and daily cap with its value and source."""
    return _pace(find_account(request, account_id))


def _pace(account: Account) -> dict[str, Any]:
    names = ("name", "value", "source", "meaning")
    values = tuning.effective(account, timezone.now())
    return {"knobs": [{name: getattr(value, name) for name in names} for value in values]}


class TemplateOut(Answer):
    template: str = Field(description="Name and language, as `name:language`")
    variables: list[str]
    file: str = Field(description="The kind of file that it starts with; empty: none")
    text: str


class TemplatesOut(Answer):
    items: list[TemplateOut]
    note: str = Field(description="Why there are none")


@router.get("/{int:account_id}/templates", response=TemplatesOut, auth=READS)
def templates(request: HttpRequest, account_id: int) -> Any:
    """List the approved message templates that parts through this account can have."""
    choice = Choice([find_account(request, account_id)])
    return {"items": choice.described(), "note": choice.note()}


class PaceIn(Schema):
    knobs: dict[Line, Line] = Field(
        description="As `manage.py tune` takes them: an empty value restores the environment’s, “none” removes "
        "a daily cap",
        examples=[{"max_send_per_minute": "30", "daily_limit_message": "500"}],
        min_length=1,
        max_length=100,
    )


@router.put("/{int:account_id}/pace", response=PaceOut, auth=CHANGES)
def tune(request: HttpRequest, account_id: int, wish: PaceIn) -> Any:
    """Set knobs and daily caps, also while the account is sending."""
    account = find_account(request, account_id)
    values = tuning.parse([f"{name}={value}" for name, value in wish.knobs.items()])
    accounts.tune(account, values, caller_of(request).user, timezone.now())
    return _pace(find_account(request, account_id))


class AccountDone(Done):
    account: AccountOut


class PauseIn(Schema):
    reason: Annotated[Text, Field(max_length=300)] = "paused by an operator"


@router.post("/{int:account_id}/pause", response=AccountDone, auth=CHANGES)
def pause(request: HttpRequest, account_id: int, wish: PauseIn) -> Any:
    """Pause an account: it sends nothing until it is resumed."""
    account = find_account(request, account_id)
    answer = require(controls.pause_account(account, caller_of(request).user, timezone.now(), wish.reason))
    return {"text": answer.text, "account": account_out(find_account(request, account_id))}


@router.post("/{int:account_id}/resume", response=AccountDone, auth=CHANGES)
def resume(request: HttpRequest, account_id: int) -> Any:
    """Let a paused or suspended account send again. Its runs are resumed one by one."""
    account = find_account(request, account_id)
    answer = require(controls.reactivate(account, caller_of(request).user, timezone.now()))
    return {"text": answer.text, "account": account_out(find_account(request, account_id))}
