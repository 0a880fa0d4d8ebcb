"""Filters and search of the activity list: by account, owner, day and recipient. Each goes by an index."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any

from django.contrib import admin
from django.contrib.auth import get_user_model
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone

from accounts import access
from accounts.addresses import AddressError, guess_kind, normalise
from accounts.inputs import as_id
from accounts.models import Account
from fanout.admin.base import teams
from fanout.models import Run, RunTarget
from reminders.models import Recipient

MOST_CHOICES = 200
MOST_RECIPIENTS = 20
MOST_RUNS = 500
NOTHING_LIKE_IT = 0  # no row has it


class FormFilter(admin.SimpleListFilter):
    """Chosen in the form above the list, and not in Django's column of links."""

    def has_output(self) -> bool:
        return True

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("", "all")]


class AccountFilter(FormFilter):
    title = "account"
    parameter_name = "account"

    def queryset(self, request: HttpRequest, queryset: QuerySet[Run]) -> QuerySet[Run]:
        """Runs that the account sends something of, also where it is one of several."""
        return queryset.filter(lanes__contains=[number(self.value())]) if self.value() else queryset


class OwnerFilter(FormFilter):
    title = "owner"
    parameter_name = "owner"

    def queryset(self, request: HttpRequest, queryset: QuerySet[Run]) -> QuerySet[Run]:
        return queryset.filter(owner=number(self.value())) if self.value() else queryset


class SinceFilter(FormFilter):
    title = "from"
    parameter_name = "since"

    def queryset(self, request: HttpRequest, queryset: QuerySet[Run]) -> QuerySet[Run]:
        begin = midnight(self.value())
        return queryset.filter(scheduled_for__gte=begin) if begin else queryset


class UntilFilter(FormFilter):
    title = "to"
    parameter_name = "until"

    def queryset(self, request: HttpRequest, queryset: QuerySet[Run]) -> QuerySet[Run]:
        end = midnight(self.value(), days=1)
        return queryset.filter(scheduled_for__lt=end) if end else queryset


FORM_FILTERS = (AccountFilter, OwnerFilter, SinceFilter, UntilFilter)


def number(value: str | None) -> int:
    return as_id(value or "") or NOTHING_LIKE_IT


def midnight(day: str | None, days: int = 0) -> datetime | None:
    """The beginning of a day by the reader's clock; None where it is no date."""
    try:
        begin = date.fromisoformat(day or "") + timedelta(days=days)
        return datetime(begin.year, begin.month, begin.day, tzinfo=timezone.get_current_timezone())
    except (ValueError, OverflowError):
        return None


def choices(request: HttpRequest) -> dict[str, Any]:
    """What the form offers, and what was chosen."""
    user: Any = request.user
    people = get_user_model().objects.filter(is_staff=True, is_active=True)
    if not user.is_superuser:
        people = people.filter(Q(pk=user.pk) | Q(groups__in=teams(user))).distinct()
    accounts = access.visible(user, Account.objects.order_by("label")).values_list("pk", "label")
    chosen = {name: request.GET.get(name, "") for name in ("account", "owner", "since", "until", "q")}
    return {
        "accounts": list(accounts[:MOST_CHOICES]),
        "owners": list(people.order_by("username").values_list("pk", "username")[:MOST_CHOICES]),
        "chosen": chosen,
        "kept": {name: request.GET[name] for name in ("status", "o") if name in request.GET},
        "narrowed": any(chosen.values()),
    }


def matching(user: Any, runs: QuerySet[Run], term: str) -> QuerySet[Run]:
    """Runs with this in their title, of accounts with this in their name, or to the recipient of this address or
    name."""
    accounts = access.visible(user, Account.objects.filter(Q(label__icontains=term) | Q(address__icontains=term)))
    ids = list(accounts.values_list("pk", flat=True)[:MOST_CHOICES])
    return runs.filter(Q(title__icontains=term) | Q(account__in=ids) | Q(pk__in=_runs_to(user, term)))


def _runs_to(user: Any, term: str) -> list[int]:
    """The newest runs that had the recipient among their targets, by the recipient's index."""
    recipients = access.visible(user, Recipient.objects.filter(Q(address=_address(term)) | Q(name__iexact=term)))
    ids = list(recipients.order_by().values_list("pk", flat=True)[:MOST_RECIPIENTS])
    targets = RunTarget.objects.filter(recipient__in=ids).order_by("-run_id") if ids else RunTarget.objects.none()
    return list(targets.values_list("run_id", flat=True)[:MOST_RUNS])


def _address(term: str) -> str:
    """As addresses are stored, in whichever spelling it was typed; as typed where it is none."""
    try:
        return normalise(guess_kind(term), term)
    except AddressError:
        return term
