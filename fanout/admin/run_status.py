"""A run as every page shows it: status, rate, expected end, why it waits, senders, and buttons."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from accounts.models import Account
from fanout.admin.widgets import badge
from fanout.models import Run
from fanout.plans import forecast
from fanout.plans.forecast import Forecast
from fanout.plans.queue import Senders
from fanout.runs import controls, progress, why
from fanout.runs.controls import ControlResult, retry_failed
from fanout.runs.progress import NO_PROGRESS, RunProgress
from fanout.runs.why import Why
from fanout.templatetags.crier import when


def going_on(runs: Sequence[Run], user: Any, now: datetime, senders: Senders | None = None) -> dict[int, RunProgress]:
    """Return how the runs are going, as this person may see it and in their timezone."""
    return progress.progress_of(runs, now, user, my_zone(), senders)


def read_going(runs: Sequence[Run], user: Any, now: datetime) -> None:
    """Set `going` on each run."""
    progress = going_on(runs, user, now)
    for run in runs:
        run.__dict__["going"] = progress.get(run.pk, NO_PROGRESS)


def my_zone() -> str:
    """Return the timezone of the current person."""
    return timezone.get_current_timezone_name()


def status_with_reason(run: Run, stands: RunProgress) -> SafeString:
    """Return the badge with the reason beside it, which does not repeat the badge's word."""
    reason = run.get_pause_reason_display() or why.short_why(run, stands.behind).removeprefix(f"{run.status} ")
    label = format_html('{} <span class="quiet">{}</span>', badge(run), reason) if reason else badge(run)
    if run.status != Run.Status.PAUSED or run.resume_at is None:
        return label
    return format_html('{} <span class="quiet">resumes</span> {}', label, when(run.resume_at, run.timezone))


def eta(run: Run, stands: RunProgress) -> SafeString | str:
    """Return the expected end, and how many fit today if not all do."""
    expected = stands.forecast
    if expected is None:
        return "–"
    if expected.ends_at is None:
        return f"never: {expected.bound_by}"
    done = when(expected.ends_at, run.timezone)
    if expected.fits:
        return done
    fit = f"{expected.fits_count:,} more fit today" if expected.fits_count else "no more fit today"
    return format_html('{} <span class="quiet fits">{}</span>', done, expected.wait or fit)


def forecast_sentence(expected: Forecast) -> SafeString:
    """Return the forecast's sentence; the number left is marked, so that the page's script can update it."""
    left = f"{expected.left:,}"
    if not expected.sentence.startswith(f"{left} "):
        return format_html("{}", expected.sentence)
    return format_html('<span data-count="left">{}</span>{}', left, expected.sentence.removeprefix(left))


def forecast_rest(run: Run, now: datetime) -> Forecast | None:
    """Return the forecast for the rest of a run; None when nothing is pending."""
    if run.status in Run.FINISHED or not run.pending:
        return None
    return forecast.forecast_run(run, now, my_zone())


def why_run(run: Run, stands: RunProgress, now: datetime) -> Why | None:
    """Return why the run waits, and when the next message is sent; None for a finished run."""
    turn = stands.behind, stands.forecast.starts_at if stands.forecast else None
    return None if run.status in Run.FINISHED else why.why_run(run, now, my_zone(), turn)


def why_account(account: Account, now: datetime) -> Why:
    return why.why_account(account, now, my_zone())


# --- senders ----------------------------------------------------------------------------------------------


MOST_SENDERS_NAMED = 3


def read_sender_accounts(runs: Sequence[Run]) -> Mapping[int, Account]:
    """Return the accounts of all lanes of these runs by id. The runs' own are read already: at most one query."""
    own = {run.account_id: run.account for run in runs}
    others = {pk for run in runs for pk in run.lanes} - own.keys()
    return own | (Account.objects.in_bulk(others) if others else {})


def sender_links(run: Run, accounts: Mapping[int, Account]) -> SafeString:
    """Return the names of the accounts, with links to them."""
    lanes = [accounts[pk] for pk in run.lanes if pk in accounts] or [run.account]
    links = [(reverse("admin:accounts_account_change", args=[one.pk]), one) for one in lanes[:MOST_SENDERS_NAMED]]
    more = f" and {len(lanes) - MOST_SENDERS_NAMED} more" if len(lanes) > MOST_SENDERS_NAMED else ""
    return format_html("{}{}", format_html_join(", ", '<a href="{}">{}</a>', links), more)


# --- buttons ----------------------------------------------------------------------------------------------


RunControl = Callable[[Run, Any, datetime], ControlResult]
IsOffered = Callable[[Run, datetime], bool]


@dataclass(frozen=True, slots=True)
class Button:
    name: str
    label: str
    past: str  # how the message about several runs begins
    offered: IsOffered
    control: RunControl
    tone: str = ""
    on_row: bool = False
    bulk: bool = True
    confirm: str = ""

    @property
    def yes(self) -> str:
        """Return the label of the button on the page with the question."""
        return f"{self.label} this run" if " " not in self.label else self.label


def _paused(run: Run, now: datetime) -> bool:
    return run.status == Run.Status.PAUSED


def _can_resume(run: Run, now: datetime) -> bool:
    return _paused(run, now) and run.window.is_open(now)


def _can_wait_for_opening(run: Run, now: datetime) -> bool:
    return _paused(run, now) and run.resume_at is None and not run.window.is_open(now)


def _goes_on_by_itself(run: Run, now: datetime) -> bool:
    return _paused(run, now) and run.resume_at is not None


def _can_retry(run: Run, now: datetime) -> bool:
    return run.failed > 0 and run.status in (Run.Status.PARTIAL, Run.Status.FAILED, Run.Status.PAUSED)


def _can_archive(run: Run, now: datetime) -> bool:
    return not run.archived and run.status not in Run.LIVE


def _can_run_again(run: Run, now: datetime) -> bool:
    unsent = run.status in (Run.Status.FAILED, Run.Status.SKIPPED) and not run.sent and not run.unconfirmed
    return unsent and run.answers_id is None and not run.is_test and not run.step


BUTTONS = (
    Button("resume", "Resume", "Resumed", _can_resume, controls.resume, "primary", on_row=True),
    # Outside the window a resume would be refused: this one is offered in its place.
    Button(
        "resume_when_open",
        "Resume when the window opens",
        "Resumed, or planned for the opening",
        _can_wait_for_opening,
        controls.resume_when_open,
        "primary",
        on_row=True,
        bulk=False,
    ),
    Button(
        "keep_paused",
        "Keep paused",
        "Planned resumes taken back",
        _goes_on_by_itself,
        controls.keep_paused,
        on_row=True,
    ),
    Button("pause", "Pause", "Paused", lambda run, now: run.status in Run.LIVE, controls.pause, on_row=True),
    Button("retry_failed", "Retry failed", "Retried", _can_retry, retry_failed, on_row=True),
    Button(
        "cancel",
        "Cancel",
        "Canceled",
        lambda run, now: run.status not in Run.FINISHED,
        controls.cancel,
        tone="danger",
        confirm="Cancel this run? Pending targets will be skipped, and it cannot be resumed.",
    ),
    Button(
        "stop_follow_ups",
        "Stop follow-ups",
        "Follow-ups stopped",
        lambda run, now: run.next_step_at is not None,
        controls.stop_follow_ups,
        bulk=False,
        confirm="Send no further follow-ups of this run? One that is going out is canceled; the run itself stays.",
    ),
    Button(
        "run_again",
        "Run again",
        "Run again",
        _can_run_again,
        controls.run_again,
        on_row=True,
        bulk=False,
        confirm="Fire this reminder again, as it is now, for all its targets?",
    ),
    Button("archive", "Archive", "Archived", _can_archive, controls.archive),
    Button(
        "unarchive",
        "Restore",
        "Restored",
        lambda run, now: run.archived,
        lambda run, user, now: controls.archive(run, user, now, archived=False),
    ),
)
BY_NAME = {button.name: button for button in BUTTONS}


def buttons_for(run: Run, now: datetime, rows_only: bool = False) -> list[Button]:
    return [button for button in BUTTONS if button.offered(run, now) and (button.on_row or not rows_only)]
