"""What operators do with many runs at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone

from accounts.inputs import counted
from fanout.admin.answers import do_each
from fanout.admin.asking import Question, asking_action
from fanout.admin.runs import forecasts
from fanout.admin.runs.buttons import BUTTONS, Button
from fanout.models import Run
from fanout.plans.forecast import forecast_runs
from fanout.runs import controls
from fanout.runs.controls import ControlResult
from reminders.moments import moment

ASKED = ("resume", "cancel")


def actions() -> list[Any]:
    plain = [plain_action(button) for button in BUTTONS if button.bulk and button.name not in ASKED]
    return [resume_selected(), plan_selected(), *plain, cancel_selected()]


def plain_action(button: Button) -> Any:
    """A list action that applies the button's control to every selected run."""

    @admin.action(
        description=f"{button.label} the selected runs" if " " not in button.label else button.label,
        permissions=["change"],
    )
    def action(model_admin: Any, request: HttpRequest, queryset: QuerySet[Run]) -> None:
        now = timezone.now()
        do_each(request, queryset, lambda run: button.control(run, request.user, now), button.past)

    action.__name__ = button.name
    return action


# --- resume -----------------------------------------------------------------------------------------------


def resume_selected() -> Any:
    control = controls.resume_when_open
    return asking_action("resume", "Resume the selected runs", "Resumed", about_resuming, control, more=expected_end)


def plan_selected() -> Any:
    button = Button(
        "resume_at_opening",
        "Resume at the next opening of their windows",
        "Will resume at the next opening",
        lambda run, now: False,
        controls.resume_at_opening,
    )
    return plain_action(button)


def about_resuming(runs: Sequence[Run], now: datetime) -> Question:
    paused = [run for run in runs if run.status == Run.Status.PAUSED]
    at_once = [run for run in paused if run.window.is_open(now)]
    later = [run for run in paused if not run.window.is_open(now)]
    sentences = [
        _goes_on("Now", at_once) if at_once else "",
        _goes_on("When its window opens" if len(later) == 1 else "When their windows open", later) if later else "",
        _left_alone(len(runs) - len(paused), "not paused"),
    ]
    rows = [(run.title, _goes_on_when(run, now)) for run in [*at_once, *later]]
    title = f"Resume {counted(len(paused), 'run')}?"
    return Question(title, [text for text in sentences if text], title.rstrip("?") if paused else "", rows)


def _goes_on(when: str, runs: Sequence[Run]) -> str:
    return f"{when}: {counted(len(runs), 'run')} with {sum(run.pending for run in runs):,} still to send."


def _goes_on_when(run: Run, now: datetime) -> str:
    when = "now" if run.window.is_open(now) else moment(run.window.next_opening(now), run.timezone, now)
    return f"{run.pending:,} still to send via {run.account}, {when}"


def _left_alone(n: int, why: str) -> str:
    return f"{counted(n, 'selected run')} {'is' if n == 1 else 'are'} {why} and will not be changed." if n else ""


def with_expected_end(answer: ControlResult, now: datetime) -> ControlResult:
    return replace(answer, text=f"{answer.text} {expected_end([answer], now)}".rstrip())


def expected_end(answers: Sequence[ControlResult], now: datetime) -> str:
    """When the last of the runs that were resumed is done."""
    changed = [answer.run.pk for answer in answers if answer.ok and answer.run]
    runs = list(Run.objects.filter(pk__in=changed, status__in=Run.LIVE).defer("parts", "reply_parts"))
    ends = [forecast.ends_at for forecast in forecast_runs(runs, now).values() if forecast.ends_at]
    return f"Done about {moment(max(ends), forecasts.my_zone(), now)}." if ends else ""


# --- cancel -----------------------------------------------------------------------------------------------


def cancel_selected() -> Any:
    return asking_action("cancel", "Cancel the selected runs", "Canceled", about_canceling, controls.cancel)


def about_canceling(runs: Sequence[Run], now: datetime) -> Question:
    open_runs = [run for run in runs if run.status not in Run.FINISHED]
    pending, sent = sum(run.pending for run in open_runs), sum(run.sent for run in open_runs)
    sentences = [
        f"{pending:,} pending will not be sent, {sent:,} were delivered. A canceled run cannot be resumed."
        if open_runs
        else "",
        _left_alone(len(runs) - len(open_runs), "finished already"),
    ]
    rows = [(run.title, f"{run.sent:,} delivered, {run.pending:,} will not be") for run in open_runs]
    title = f"Cancel {counted(len(open_runs), 'run')}?"
    button = title.rstrip("?") if open_runs else ""
    return Question(title, [text for text in sentences if text], button, rows, danger=True)
