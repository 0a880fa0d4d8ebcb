"""The activity list: pills, filters, search, and actions on many runs at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import Any

from django.contrib import admin
from django.contrib.auth import get_user_model
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.text import capfirst

from accounts import access
from accounts.addresses import AddressError, guess_kind, normalise
from accounts.inputs import as_id, counted
from accounts.models import Account
from fanout.admin.list_actions import Question, asking_action, do_each
from fanout.admin.model_admin import capped_counts, teams
from fanout.admin.run_status import BUTTONS, Button, my_zone
from fanout.admin.widgets import RUN, capped_number
from fanout.models import Run, RunTarget
from fanout.models.run import LANE_ORDER
from fanout.plans.forecast import forecast_runs
from fanout.runs import controls, message_2
from fanout.runs.controls import ControlResult
from reminders.models import Recipient
from reminders.moments import moment

PILL_CAP = 1_000
ARCHIVED = "archived"
#: what the overview lists under "Going out now"; without a pill of its own
UNDER_WAY = "under_way"
MESSAGE_2 = "message_2"
PILLS = (
    Run.Status.RUNNING,
    Run.Status.QUEUED,
    Run.Status.WAITING,
    Run.Status.PREPARING,
    Run.Status.PAUSED,
    Run.Status.SUCCESS,
    Run.Status.PARTIAL,
    Run.Status.FAILED,
    Run.Status.SKIPPED,
    Run.Status.CANCELED,
)


class PillFilter(admin.SimpleListFilter):
    """Filters by status, shows the archive or the runs of Message 2; by default all other runs."""

    title = "status"
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        statuses = ((str(status.value), str(status.label)) for status in PILLS)
        return [*statuses, (UNDER_WAY, "Under way"), (MESSAGE_2, "Message 2"), (ARCHIVED, "Archived")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Run]) -> QuerySet[Run]:
        return pill_rows(queryset, self.value())


def pill_rows(runs: QuerySet[Run], pill: str | None) -> QuerySet[Run]:
    if pill == ARCHIVED:
        return runs.filter(archived=True, answers=None)
    runs = runs.filter(archived=False)
    if pill == MESSAGE_2:
        return runs.filter(answers__isnull=False)
    runs = message_2.listed(runs)
    if pill == UNDER_WAY:
        return runs.filter(status__in=Run.UNDER_WAY)
    return runs.filter(status=pill) if pill else runs


def pills(request: HttpRequest, runs: QuerySet[Run]) -> list[dict[str, Any]]:
    labels = {str(status.value): capfirst(status.label) for status in PILLS}
    labels |= {MESSAGE_2: "Message 2", ARCHIVED: "Archived"}
    counts = capped_counts({name: pill_rows(runs, name) for name in labels}, PILL_CAP)
    chosen = request.GET.get("status")
    listed = [
        {
            "name": name,
            "label": labels[name],
            "tone": RUN.get(name, "mute"),
            "count": capped_number(n, PILL_CAP),
            "url": _with_pill(request, name),
            "chosen": name == chosen,
        }
        for name, n in counts.items()
    ]
    return [{"label": "All", "tone": "", "url": _with_pill(request, None), "chosen": chosen is None}, *listed]


def _with_pill(request: HttpRequest, name: str | None) -> str:
    query = request.GET.copy()
    for key in ("status", "p", "e"):
        query.pop(key, None)
    if name:
        query["status"] = name
    return f"?{query.urlencode()}"


# --- filters and search by account, owner, day and recipient, each by an index ----------------------------


MOST_CHOICES = 200
MOST_RECIPIENTS = 20
MOST_RUNS = 500
NO_ID = 0  # matches no row


class FormFilter(admin.SimpleListFilter):
    """A filter in the form above the list instead of Django's column of links."""

    def has_output(self) -> bool:
        return True

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("", "all")]


class AccountFilter(FormFilter):
    title = "account"
    parameter_name = "account"

    def queryset(self, request: HttpRequest, queryset: QuerySet[Run]) -> QuerySet[Run]:
        """Return runs that the account sends, alone or as one of several."""
        return queryset.filter(lanes__contains=[_id_of(self.value())]) if self.value() else queryset


class OwnerFilter(FormFilter):
    title = "owner"
    parameter_name = "owner"

    def queryset(self, request: HttpRequest, queryset: QuerySet[Run]) -> QuerySet[Run]:
        return queryset.filter(owner=_id_of(self.value())) if self.value() else queryset


class SinceFilter(FormFilter):
    title = "from"
    parameter_name = "since"

    def queryset(self, request: HttpRequest, queryset: QuerySet[Run]) -> QuerySet[Run]:
        begin = _midnight(self.value())
        return queryset.filter(scheduled_for__gte=begin) if begin else queryset


class UntilFilter(FormFilter):
    title = "to"
    parameter_name = "until"

    def queryset(self, request: HttpRequest, queryset: QuerySet[Run]) -> QuerySet[Run]:
        end = _midnight(self.value(), days=1)
        return queryset.filter(scheduled_for__lt=end) if end else queryset


FORM_FILTERS = (AccountFilter, OwnerFilter, SinceFilter, UntilFilter)


def _id_of(value: str | None) -> int:
    return as_id(value or "") or NO_ID


def _midnight(day: str | None, days: int = 0) -> datetime | None:
    """Return the beginning of a day in the reader's timezone; None if it is not a date."""
    try:
        begin = date.fromisoformat(day or "") + timedelta(days=days)
        return datetime(begin.year, begin.month, begin.day, tzinfo=timezone.get_current_timezone())
    except (ValueError, OverflowError):
        return None


def filter_choices(request: HttpRequest) -> dict[str, Any]:
    """Return the choices of the form, and the current ones."""
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


def search_runs(user: Any, runs: QuerySet[Run], term: str) -> QuerySet[Run]:
    """Return runs whose title or account contains the term, or with a recipient of this address or name."""
    accounts = access.visible(user, Account.objects.filter(Q(label__icontains=term) | Q(address__icontains=term)))
    ids = list(accounts.values_list("pk", flat=True)[:MOST_CHOICES])
    return runs.filter(Q(title__icontains=term) | Q(account__in=ids) | Q(pk__in=_runs_to(user, term)))


def _runs_to(user: Any, term: str) -> list[int]:
    """Return the newest runs with this recipient among their targets, by the recipient's index."""
    recipients = access.visible(user, Recipient.objects.filter(Q(address=_address(term)) | Q(name__iexact=term)))
    ids = list(recipients.order_by().values_list("pk", flat=True)[:MOST_RECIPIENTS])
    targets = RunTarget.objects.filter(recipient__in=ids).order_by("-run_id") if ids else RunTarget.objects.none()
    return list(targets.values_list("run_id", flat=True)[:MOST_RUNS])


def _address(term: str) -> str:
    """Return the term as addresses are stored, in any spelling; unchanged if it is not an address."""
    try:
        return normalise(guess_kind(term), term)
    except AddressError:
        return term


# --- actions on many runs ---------------------------------------------------------------------------------


ASKED_FIRST = ("resume", "cancel")


def run_actions() -> list[Any]:
    """Return the list actions; cancel asks first."""
    at_opening = Button(
        "resume_at_opening",
        "Resume at the next opening of their windows",
        "Will resume at the next opening",
        lambda run, now: False,
        controls.resume_at_opening,
    )
    return [
        resume_selected,
        plain_action(at_opening),
        *(plain_action(button) for button in BUTTONS if button.bulk and button.name not in ASKED_FIRST),
        asking_action("cancel", "Cancel the selected runs", "Canceled", about_canceling, controls.cancel),
    ]


def plain_action(button: Button) -> Any:
    """Return a list action that applies the button's control to every selected run, in the order in which lanes send
    them: the first run to go on would otherwise overtake older ones."""

    @admin.action(
        description=f"{button.label} the selected runs" if " " not in button.label else button.label,
        permissions=["change"],
    )
    def action(model_admin: Any, request: HttpRequest, queryset: QuerySet[Run]) -> None:
        now, runs = timezone.now(), queryset.order_by(*LANE_ORDER)
        do_each(request, runs, lambda run: button.control(run, request.user, now), button.past)

    action.__name__ = button.name
    return action


# --- resume -----------------------------------------------------------------------------------------------


@admin.action(description="Resume the selected runs", permissions=["change"])
def resume_selected(model_admin: Any, request: HttpRequest, queryset: QuerySet[Run]) -> None:
    """Resume at once, without a question: a resumed run can be paused again."""
    now, runs = timezone.now(), queryset.order_by(*LANE_ORDER)
    do_each(
        request,
        runs,
        lambda run: controls.resume_when_open(run, request.user, now),
        "Resumed",
        more=lambda answers: f"{_planned(answers)} {expected_end(answers, now)}".strip(),
    )


resume_selected.__name__ = "resume"


def _planned(answers: Sequence[ControlResult]) -> str:
    """Return how many go on only when their window opens, in a sentence."""
    changed = [answer.run.pk for answer in answers if answer.ok and answer.run]
    later = Run.objects.filter(pk__in=changed, status=Run.Status.PAUSED, resume_at__isnull=False).count()
    return (
        f"{counted(later, 'run')} {'goes' if later == 1 else 'go'} on when the delivery window opens." if later else ""
    )


def _left_alone(n: int, why: str) -> str:
    return f"{counted(n, 'selected run')} {'is' if n == 1 else 'are'} {why} and will not be changed." if n else ""


def with_expected_end(answer: ControlResult, now: datetime) -> ControlResult:
    return replace(answer, text=f"{answer.text} {expected_end([answer], now)}".rstrip())


def expected_end(answers: Sequence[ControlResult], now: datetime) -> str:
    """Return when the last of the resumed runs is expected to be done, in a sentence."""
    changed = [answer.run.pk for answer in answers if answer.ok and answer.run]
    runs = list(Run.objects.filter(pk__in=changed, status__in=Run.LIVE).defer("parts", "reply_parts"))
    ends = [forecast.ends_at for forecast in forecast_runs(runs, now).values() if forecast.ends_at]
    return f"Done about {moment(max(ends), my_zone(), now)}." if ends else ""


# --- cancel -----------------------------------------------------------------------------------------------


def about_canceling(runs: Sequence[Run], now: datetime) -> Question:
    open_runs = [run for run in runs if run.status not in Run.FINISHED]
    pending, sent = sum(run.pending for run in open_runs), sum(run.sent for run in open_runs)
    sentences = [
        f"{pending:,} pending will not be sent, {sent:,} were sent. A canceled run cannot be resumed."
        if open_runs
        else "",
        _left_alone(len(runs) - len(open_runs), "finished already"),
    ]
    rows = [(run.title, f"{run.sent:,} sent, {run.pending:,} will not be") for run in open_runs]
    title = f"Cancel {counted(len(open_runs), 'run')}?"
    button = title.rstrip("?") if open_runs else ""
    return Question(title, [text for text in sentences if text], button, rows, danger=True)
