"""From a click to controls.py and back: one call, one message."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponseRedirect
from django.utils.http import url_has_allowed_host_and_scheme

from accounts.access import NotYours
from fanout.runs.controls import Answer

REASONS_SHOWN = 4


def attempt(control: Callable[[Any], Answer], thing: Any) -> Answer:
    """A refusal for want of ownership is an answer like any other."""
    try:
        return control(thing)
    except NotYours as refusal:
        return Answer(False, str(refusal))


def tell(request: HttpRequest, done: Answer) -> None:
    messages.add_message(request, messages.SUCCESS if done.ok else messages.WARNING, done.text)


def do_each(request: HttpRequest, things: Iterable[Any], control: Callable[[Any], Answer], verb: str) -> None:
    """The control on each, then one message: how many, how many not, and why not."""
    dones = [attempt(control, thing) for thing in things]
    worked = sum(done.ok for done in dones)
    text = f"{verb}: {worked} of {len(dones)}."
    if worked < len(dones):
        text += f" Not changed: {reasons(done.text for done in dones if not done.ok)}"
    level = messages.SUCCESS if worked == len(dones) else messages.WARNING
    messages.add_message(request, level, text)


def reasons(texts: Iterable[str]) -> str:
    counted = Counter(texts).most_common()
    told = [f"{n} × {text}" for text, n in counted[:REASONS_SHOWN]]
    left = len(counted) - REASONS_SHOWN
    return " ".join(told) + (f" And {left} other reasons." if left > 0 else "")


def back(request: HttpRequest, default: str) -> HttpResponseRedirect:
    """To the page the click came from."""
    came_from = request.headers.get("Referer", "")
    mine = url_has_allowed_host_and_scheme(came_from, {request.get_host()}, request.is_secure())
    return HttpResponseRedirect(came_from if mine else default)
