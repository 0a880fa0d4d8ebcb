"""The calendar: what fires when through which account, by week or month, and when accounts are free."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, timedelta
from typing import Any
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.formats import date_format

from accounts import access
from accounts.inputs import as_id
from accounts.models import Account
from fanout.admin.model_admin import acts
from fanout.admin.run_status import my_zone
from fanout.plans.agenda import MOST_ACCOUNTS, MOST_DAYS, USUAL_HOURS, AccountDay, Agenda, Entry, agenda, gap_in_words

WEEK, MONTH = "week", "month"
#: accounts that the filter offers; the page's address accepts any other
MOST_CHOICES = 200
#: entries of one day in the view of a month
SHOWN = 4
#: free times of one day that are offered
OFFERED = 2
ROUNDED = timedelta(minutes=5)
FARTHEST = timedelta(days=366)


def calendar_page(request: HttpRequest) -> HttpResponse:
    if not request.user.has_perm("fanout.view_run"):
        raise PermissionDenied
    now, zone = timezone.now(), my_zone()
    today = now.astimezone(ZoneInfo(zone)).date()
    view = MONTH if request.GET.get("view") == MONTH else WEEK
    day = _chosen_day(request.GET.get("day", ""), today)
    days = _week_of(day) if view == WEEK else _weeks_of_month(day)
    only = as_id(request.GET.get("account", ""))
    found = agenda(request.user, days, zone, now, only, idle_days=view == WEEK)
    may_add = request.user.has_perm("reminders.add_reminder") and acts(request)
    context: dict[str, Any] = {
        "title": "Calendar",
        "view": view,
        "today": today,
        "day": day,
        "only": only,
        "accounts": _offered(request.user, only),
        "more_accounts": len(found.accounts) >= MOST_ACCOUNTS,
        "agenda": found,
        "far": (days[-1] - today).days > MOST_DAYS,
        "most_days": MOST_DAYS,
        "usual": f"{USUAL_HOURS[0]}:00–{USUAL_HOURS[1]}:00",
        "heading": f"{days[0]:%d %b} – {days[-1]:%d %b %Y}" if view == WEEK else f"{day:%B %Y}",
        "links": _links(view, day, today, only),
        "days": days,
    }
    if view == WEEK:
        # Once for each day and not in each of its cells.
        context["heads"] = heads = {one: _head(one, today) for one in days}
        context["rows"] = [_row(found, account, heads, zone, may_add) for account in found.accounts]
    else:
        cells = [_month_day(found, one, day, only, zone) for one in days]
        context["weeks"] = [cells[n : n + 7] for n in range(0, len(cells), 7)]
    page = admin.site.each_context(request) | context
    return TemplateResponse(request, "crier/calendar.html", page)


def _offered(user: Any, only: int | None) -> list[tuple[int, str]]:
    """Return the accounts that the filter offers, and the chosen one."""
    mine = access.visible(user, Account.objects.filter(archived=False)).values_list("pk", "label")
    first = list(mine.order_by("label", "pk")[:MOST_CHOICES])
    chosen = list(mine.filter(pk=only)) if only is not None and only not in dict(first) else []
    return [*first, *chosen]


# --- days -------------------------------------------------------------------------------------------------


def _chosen_day(text: str, today: date) -> date:
    """Return the day in the address, if it can be shown; else today."""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return today
    return day if abs(day - today) <= FARTHEST else today


def _week_of(day: date) -> list[date]:
    monday = day - timedelta(days=day.weekday())
    return [monday + timedelta(days=n) for n in range(7)]


def _weeks_of_month(day: date) -> list[date]:
    """Return the days of the weeks that the month touches."""
    first = day.replace(day=1)
    last = (first + timedelta(days=31)).replace(day=1) - timedelta(days=1)
    monday = _week_of(first)[0]
    return [monday + timedelta(days=n) for n in range((_week_of(last)[-1] - monday).days + 1)]


def _links(view: str, day: date, today: date, only: int | None) -> dict[str, str]:
    if view == WEEK:
        before, after = day - timedelta(days=7), day + timedelta(days=7)
    else:
        before = day.replace(day=1) - timedelta(days=1)
        after = (day.replace(day=1) + timedelta(days=31)).replace(day=1)
    return {
        "before": calendar_url(view, before, only),
        "after": calendar_url(view, after, only),
        "now": calendar_url(view, today, only),
        "week": calendar_url(WEEK, day, only),
        "month": calendar_url(MONTH, day, only),
    }


def calendar_url(view: str, day: date, only: int | None) -> str:
    parameters = {"view": view, "day": day.isoformat()} | ({"account": only} if only is not None else {})
    return f"{reverse('admin:calendar')}?{urlencode(parameters)}"


# --- cells ------------------------------------------------------------------------------------------------


def _head(day: date, today: date) -> dict[str, Any]:
    """Return how a day of the week is called: short, and in full."""
    label = f"{date_format(day, 'D j M')}{' (today)' if day == today else ''}"
    return {"label": label, "in_full": date_format(day, "l j F"), "today": day == today, "past": day < today}


def _row(found: Agenda, account: Account, heads: Mapping[date, Any], zone: str, may_add: bool) -> dict[str, Any]:
    cells = [_cell(found.cells[account.pk, day], account, head, zone, may_add) for day, head in heads.items()]
    return {"account": account, "cells": cells}


def _cell(cell: AccountDay, account: Account, head: dict[str, Any], zone: str, may_add: bool) -> dict[str, Any]:
    gaps = [
        {"words": gap_in_words(begin, end, zone), "url": _new_reminder(account, begin, zone)}
        for begin, end in cell.gaps[:OFFERED]
    ]
    return {
        "head": head,
        "entries": [_shown(entry, zone) for entry in cell.entries],
        "words": "" if head["past"] else _capacity(cell, account, zone),
        "full": cell.full and not head["past"],
        "gaps": gaps if may_add else [],
    }


def _capacity(cell: AccountDay, account: Account, zone: str) -> str:
    """Return what is planned and free; for an account that does not send, why it does not."""
    return cell.words(zone) if account.status == Account.Status.ACTIVE else account.get_status_display().lower()


def _new_reminder(account: Account, begin: datetime, zone: str) -> str:
    """Return the form of a new reminder that fires once at the beginning of a free time."""
    local = begin.astimezone(ZoneInfo(zone)).replace(tzinfo=None, second=0, microsecond=0)
    late = timedelta(minutes=-local.minute % 5) or (ROUNDED if begin.second else timedelta())
    at = local + late
    parameters = {"account": account.pk, "schedule": "once", "fire_at": f"{at:%Y-%m-%dT%H:%M}", "timezone": zone}
    return f"{reverse('admin:reminders_reminder_add')}?{urlencode(parameters)}"


def _shown(entry: Entry, zone: str) -> dict[str, Any]:
    url = ""
    if entry.run is not None:
        url = reverse("admin:fanout_run_change", args=[entry.run])
    elif entry.reminder is not None:
        url = reverse("admin:reminders_reminder_change", args=[entry.reminder])
    begins = entry.begins.astimezone(ZoneInfo(zone))
    return {"entry": entry, "url": url, "moment": begins.isoformat(), "clock": f"{begins:%H:%M}"}


def _month_day(found: Agenda, day: date, chosen: date, only: int | None, zone: str) -> dict[str, Any]:
    entries = found.on(day)
    labels = {account.pk: account.label for account in found.accounts}
    shown = [_shown(entry, zone) | {"account": labels[entry.account]} for entry in entries[:SHOWN]]
    active = [account for account in found.accounts if account.status == Account.Status.ACTIVE]
    cells = [(account.label, found.cells.get((account.pk, day))) for account in active]
    full = [label for label, cell in cells if cell is not None and cell.planned and cell.full]
    return {
        "day": day,
        "inside": day.month == chosen.month,
        "entries": shown,
        "more": max(0, len(entries) - SHOWN),
        "full": full,
        "url": calendar_url(WEEK, day, only),
    }
