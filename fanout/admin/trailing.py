"""Admin pages that write what was changed there to the audit trail."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone

from fanout.admin.generics import ModelAdmin
from fanout.models.trail import note, note_all


class TrailedAdmin(ModelAdmin):
    #: off where the code that saves notes the change itself
    notes_changes = True

    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        self._note("added", request, obj)
        return super().log_addition(request, obj, message)

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        self._note("changed", request, obj, changed_fields(message))
        return super().log_change(request, obj, message)

    def _note(self, verb: str, request: HttpRequest, obj: Any, detail: str = "") -> None:
        if self.notes_changes:
            note(verb, obj, request.user, timezone.now(), detail)

    @transaction.atomic
    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        note("deleted", obj, request.user, timezone.now())
        super().delete_model(request, obj)

    @transaction.atomic
    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        note_all("deleted", list(queryset), request.user, timezone.now())
        super().delete_queryset(request, queryset)


def changed_fields(message: Any) -> str:
    """The names of what was changed, from the message of Django's own log; never a value."""
    if not isinstance(message, list):
        return str(message)
    return ", ".join(words for step in message for verb, facts in step.items() if (words := _words(verb, facts)))


def _words(verb: str, facts: dict[str, Any]) -> str:
    fields = ", ".join(facts.get("fields", []))
    of = facts.get("name", "")
    return f"{verb} {of} {fields}".replace("  ", " ").strip() if of else fields
