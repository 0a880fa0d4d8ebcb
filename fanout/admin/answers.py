"""Call a control and show its answer as a message."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponseRedirect
from django.utils.http import url_has_allowed_host_and_scheme

from accounts.access import NotYours
from fanout.runs.controls import ControlResult

REASONS_SHOWN = 4
MOST_AT_ONCE = 1_000  # things that one request changes: a person waits for it


def attempt(control: Callable[[Any], ControlResult], thing: Any) -> ControlResult:
    """The control's answer; a refusal because of ownership becomes one, too."""
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
    """Apply the control to each, then show one message with the counts and the reasons for refusals. `more`: what else
    to say about the answers."""
    chosen = list(things[: MOST_AT_ONCE + 1])
    answers = [attempt(control, thing) for thing in chosen[:MOST_AT_ONCE]]
    worked = sum(answer.ok for answer in answers)
    text = f"{verb}: {worked} of {len(answers)}."
    if worked < len(answers):
        text += f" Not changed: {reasons(answer.text for answer in answers if not answer.ok)}"
    if len(chosen) > MOST_AT_ONCE:
        text += f" Only the first {MOST_AT_ONCE:,} were seen to: repeat it for the others."
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
    """Redirect to the page the click came from; a question in between names it."""
    came_from = request.POST.get("back") or request.headers.get("Referer", "")
    mine = url_has_allowed_host_and_scheme(came_from, {request.get_host()}, request.is_secure())
    return HttpResponseRedirect(came_from if mine else default)
