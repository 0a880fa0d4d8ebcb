"""Ask before a list action changes many things at once, and say how many of what; and before a button does what cannot
be taken back, where no script has asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone

from fanout.admin.answers import MOST_AT_ONCE, back, do_each
from fanout.runs.controls import ControlResult

ROWS_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Question:
    """What would be done. Without a `button` there is nothing to do."""

    title: str
    sentences: Sequence[str]
    button: str
    rows: Sequence[tuple[str, str]] = ()  # a thing, and what becomes of it
    danger: bool = False


Ask = Callable[[list[Any], datetime], Question]
Control = Callable[[Any, Any, datetime], ControlResult]


def asking_action(
    name: str,
    description: str,
    past: str,
    question: Ask,
    control: Control,
    more: Callable[[list[ControlResult], datetime], str] | None = None,
    permission: str = "change",
) -> Any:
    """A list action that asks first, then applies the control to each of the selected things."""

    @admin.action(description=description, permissions=[permission])
    def action(model_admin: Any, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        now, things = timezone.now(), list(queryset[: MOST_AT_ONCE + 1])
        if not confirmed(request):
            return ask(model_admin, request, question(things[:MOST_AT_ONCE], now), len(things) > MOST_AT_ONCE)
        do_each(
            request,
            things,
            lambda thing: control(thing, request.user, now),
            past,
            more=None if more is None else lambda answers: more(answers, now),
        )
        return None

    action.__name__ = name
    return action


def ask(model_admin: Any, request: HttpRequest, question: Question, cut_off: bool) -> TemplateResponse:
    """The page with the question. Its form repeats the selection, also "all that match"."""
    context = model_admin.admin_site.each_context(request) | {
        "title": question.title,
        "opts": model_admin.opts,
        "list_name": getattr(model_admin, "list_name", model_admin.opts.verbose_name_plural),
        "question": question,
        "rows": question.rows[:ROWS_SHOWN],
        "more_rows": max(0, len(question.rows) - ROWS_SHOWN),
        "most": MOST_AT_ONCE if cut_off else 0,
        "posted": _posted(request, ("action", "select_across", "index", ACTION_CHECKBOX_NAME)),
        "back": request.get_full_path(),
    }
    return TemplateResponse(request, "crier/ask.html", context)


def ask_once(model_admin: Any, request: HttpRequest, question: Question, default: str) -> TemplateResponse:
    """The page with the question of one button; yes comes to the same address, with all that was posted. `default`:
    where no leads to, if nobody knows where the click came from."""
    came_from = back(request, default).url
    context = model_admin.admin_site.each_context(request) | {
        "title": question.title,
        "opts": model_admin.opts,
        "list_name": "Back",
        "question": question,
        "posted": [*_posted(request, [key for key in request.POST if key not in NOT_REPEATED]), ("back", came_from)],
        "back": came_from,
    }
    return TemplateResponse(request, "crier/ask.html", context)


NOT_REPEATED = ("csrfmiddlewaretoken", "confirmed", "back")


def confirmed(request: HttpRequest) -> bool:
    """On the page with the question, or in the browser's own."""
    return request.POST.get("confirmed") == "yes"


def _posted(request: HttpRequest, keys: Iterable[str]) -> list[tuple[str, str]]:
    return [(key, value) for key in keys for value in request.POST.getlist(key)]
