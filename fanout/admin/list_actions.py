"""Call a control for one object or for many selected ones, ask first where needed, and show the result as a message."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme

from accounts.access import NotYours
from fanout.runs.controls import ControlResult

REASONS_SHOWN = 4
MOST_AT_ONCE = 1_000  # objects that one request changes: a person waits for it


def attempt(control: Callable[[Any], ControlResult], thing: Any) -> ControlResult:
    """Return the control's answer; a refusal because of ownership becomes an answer, too."""
    try:
        return control(thing)
    except NotYours as refusal:
        return ControlResult(False, str(refusal))


def tell(request: HttpRequest, answer: ControlResult) -> None:
    messages.add_message(request, messages.SUCCESS if answer.ok else messages.WARNING, answer.text)


def do_each(
    request: HttpRequest,
    things: Sequence[Any] | QuerySet[Any],
    control: Callable[[Any], ControlResult],
    verb: str,
    more: Callable[[list[ControlResult]], str] | None = None,
) -> None:
    """Apply the control to each, then show one message with the counts and the reasons for refusals.

    `more` returns further text about the answers.
    """
    chosen = list(things[: MOST_AT_ONCE + 1])
    answers = [attempt(control, thing) for thing in chosen[:MOST_AT_ONCE]]
    worked = sum(answer.ok for answer in answers)
    text = f"{verb}: {worked} of {len(answers)}."
    if worked < len(answers):
        text += f" Not changed: {reasons(answer.text for answer in answers if not answer.ok)}"
    if len(chosen) > MOST_AT_ONCE:
        text += f" Only the first {MOST_AT_ONCE:,} were processed; run it again for the rest."
    if more is not None:
        text = f"{text} {more(answers)}".rstrip()
    level = messages.SUCCESS if worked == len(answers) else messages.WARNING
    messages.add_message(request, level, text)


def reasons(texts: Iterable[str]) -> str:
    counted = Counter(texts).most_common()
    most_common = [f"{n} × {text}" for text, n in counted[:REASONS_SHOWN]]
    left = len(counted) - REASONS_SHOWN
    return " ".join(most_common) + (f" And {left} other reasons." if left > 0 else "")


def back(request: HttpRequest, default: str) -> HttpResponseRedirect:
    """Redirect to the page of the click, which a question in between names in its form."""
    came_from = request.POST.get("back") or request.headers.get("Referer", "")
    mine = url_has_allowed_host_and_scheme(came_from, {request.get_host()}, request.is_secure())
    return HttpResponseRedirect(came_from if mine else default)


# --- asking first -----------------------------------------------------------------------------------------


ROWS_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Question:
    """A question before an action. Without a `button` there is nothing to do."""

    title: str
    sentences: Sequence[str]
    button: str
    rows: Sequence[tuple[str, str]] = ()  # an object, and what will happen to it
    danger: bool = False
    links: Sequence[tuple[str, str]] = ()  # what the person may do instead: words and address


AskQuestion = Callable[[list[Any], datetime], Question]
Control = Callable[[Any, Any, datetime], ControlResult]


def asking_action(
    name: str,
    description: str,
    past: str,
    question: AskQuestion,
    control: Control,
    more: Callable[[list[ControlResult], datetime], str] | None = None,
    permission: str = "change",
    order: Sequence[Any] = ("pk",),
) -> Any:
    """Return a list action that asks first, then applies the control to each selected object, in this order and not
    in the list's."""

    @admin.action(description=description, permissions=[permission])
    def action(model_admin: Any, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        now, things = timezone.now(), list(queryset.order_by(*order)[: MOST_AT_ONCE + 1])
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
    """Return the page with the question. Its form repeats the selection, including “all that match”."""
    context = model_admin.admin_site.each_context(request) | {
        "title": question.title,
        "opts": model_admin.opts,
        "list_name": _list_name(model_admin),
        "question": question,
        "rows": question.rows[:ROWS_SHOWN],
        "more_rows": max(0, len(question.rows) - ROWS_SHOWN),
        "links": question.links[:ROWS_SHOWN],
        "most": MOST_AT_ONCE if cut_off else 0,
        "posted": _posted(request, ("action", "select_across", "index", ACTION_CHECKBOX_NAME)),
        "back": request.get_full_path(),
    }
    return TemplateResponse(request, "crier/ask.html", context)


def _list_name(model_admin: Any) -> str:
    return str(getattr(model_admin, "list_name", model_admin.opts.verbose_name_plural))


def ask_once(model_admin: Any, request: HttpRequest, question: Question, default: str, **also: str) -> TemplateResponse:
    """Return the page with the question of one button.

    Its form repeats everything that was posted, to the same address, with `also` besides. `default` is where “no” leads
    to when the page of the click is not known.
    """
    came_from = back(request, default).url
    context = model_admin.admin_site.each_context(request) | {
        "title": question.title,
        "opts": model_admin.opts,
        "list_name": _list_name(model_admin),
        "list_url": reverse(f"admin:{model_admin.opts.app_label}_{model_admin.opts.model_name}_changelist"),
        "question": question,
        "posted": [
            *_posted(request, [key for key in request.POST if key not in (*NOT_REPEATED, *also)]),
            *also.items(),
            ("back", came_from),
        ],
        "back": came_from,
    }
    return TemplateResponse(request, "crier/ask.html", context)


NOT_REPEATED = ("csrfmiddlewaretoken", "confirmed", "back")


def confirmed(request: HttpRequest) -> bool:
    """Return whether the person said yes, on the page with the question or in the browser's own dialog."""
    return request.POST.get("confirmed") == "yes"


def _posted(request: HttpRequest, keys: Iterable[str]) -> list[tuple[str, str]]:
    return [(key, value) for key in keys for value in request.POST.getlist(key)]


# --- archiving and restoring ------------------------------------------------------------------------------


class ArchivedFilter(admin.SimpleListFilter):
    """Shows archived rows; without it a list has only rows in use."""

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
        _archive_action("archive", f"Archive the selected {things}", "Archived", archive),
        _archive_action("restore", f"Restore the selected {things}", "Restored", restore),
    ]


def _archive_action(name: str, description: str, past: str, control: Control) -> Any:
    @admin.action(description=description, permissions=["change"])
    def action(model_admin: Any, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        now = timezone.now()
        do_each(request, queryset, lambda thing: control(thing, request.user, now), past)

    action.__name__ = name
    return action
