"""Archived things in lists: hidden, shown by a filter, and brought back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone

from fanout.admin.answers import do_each
from fanout.runs.controls import ControlResult

Control = Callable[[Any, Any, datetime], ControlResult]


class ArchivedFilter(admin.SimpleListFilter):
    """Without it a list has only what is in use."""

    title = "archive"
    parameter_name = "archive"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("yes", "Archived")]

    def choices(self, changelist: Any) -> Iterator[Any]:
        in_use, *others = super().choices(changelist)
        yield in_use | {"display": "In use"}
        yield from others

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(archived=self.value() == "yes")


def archive_actions(archive: Control, restore: Control, things: str) -> list[Any]:
    return [
        _action("archive", f"Archive the selected {things}", "Archived", archive),
        _action("restore", f"Restore the selected {things}", "Restored", restore),
    ]


def _action(name: str, description: str, past: str, control: Control) -> Any:
    @admin.action(description=description, permissions=["change"])
    def action(model_admin: Any, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        now = timezone.now()
        do_each(request, queryset, lambda thing: control(thing, request.user, now), past)

    action.__name__ = name
    return action
