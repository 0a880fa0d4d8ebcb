"""Reminders: forecast before they are saved, added, previewed, fired, switched on and off."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Count, Prefetch
from django.http import HttpRequest
from django.utils import timezone
from ninja import Field, Query, Router, Schema, Status

from accounts import access
from accounts.models import Account
from fanout.api.conventions import (
    Answer,
    Caller,
    Done,
    Hour,
    Id,
    Line,
    Needs,
    PageQuery,
    Problem,
    Scope,
    Text,
    caller_of,
    page_of,
    require,
)
from fanout.api.recipients import Address, Tag
from fanout.api.runs import ForecastOut, RunOut, find_run, forecast_out, runs_out
from fanout.ops import reminder_changes
from fanout.ops.reminder_changes import NewPart, NewReminder, NewStep
from fanout.plans.audience import audience
from fanout.plans.forecast import forecast_reminder
from fanout.runs import controls, firing
from fanout.runs.freezing import written_part
from reminders import imports, readiness, wording
from reminders.models import (
    MOST_HTML,
    MOST_STEP_DAYS,
    MOST_STEPS,
    MOST_TEXT,
    MediaFile,
    Recipient,
    Reminder,
    ReminderMessage,
    Segment,
)

router = Router()
READS = Needs(Scope.READ, "reminders.view_reminder")
ADDS = Needs(Scope.SEND, "reminders.add_reminder")
CHANGES = Needs(Scope.SEND, "reminders.change_reminder")
FIRES = Needs(Scope.SEND, "fanout.change_run")

MOST_PARTS = 20
MOST_LISTED = 10_000


class TemplateIn(Schema):
    name: Line
    language: Annotated[Text, Field(max_length=20)] = Field("", description="Needed where the name has several")
    values: dict[Line, Annotated[Text, Field(max_length=MOST_TEXT)]] = Field(
        {}, description="By variable, such as `1` or `header.1`; with placeholders as in texts", max_length=50
    )


class PartIn(Schema):
    text: Annotated[Text, Field(max_length=MOST_TEXT)] = Field(
        "", description="The text, or the caption of a file; placeholders as {first_name|there}"
    )
    html: Annotated[Text, Field(max_length=MOST_HTML)] = Field("", description="For mail: the same in HTML")
    media: Id | None = Field(None, description="Number of an uploaded file")
    template: TemplateIn | None = Field(
        None,
        description="Message template, for people who have not written within 24 hours; only in the first message of "
        "accounts that need templates (`GET /accounts/{id}/templates`)",
    )


class AudienceIn(Schema):
    recipients: Annotated[list[Id], Field(max_length=MOST_LISTED)] = []
    tags: Annotated[list[Tag], Field(max_length=20)] = []
    addresses: Annotated[list[Address], Field(max_length=MOST_LISTED)] = Field(
        [], description="Those that are not in your list are added to it"
    )
    segment: Id | None = Field(
        None,
        description="Everyone who is in this segment when the reminder fires; of one that is shared with a team, only "
        "those who are shared with it, too",
    )


class FollowUpIn(Schema):
    days: Annotated[int, Field(ge=1, le=MOST_STEP_DAYS)] = Field(description="After the firing")
    parts: Annotated[list[PartIn], Field(min_length=1, max_length=MOST_PARTS)]


class WindowIn(Schema):
    start_hour: Hour = 6
    end_hour: Hour = 18


class ScheduleIn(Schema):
    at: datetime | None = Field(None, description="Fire once at this time")
    cron: Annotated[Text, Field(max_length=120)] = Field("", description="Fire repeatedly: five fields")


class ReminderIn(Schema):
    title: Line = Field("", description="Default: the beginning of the text")
    subject: Line = Field("", description="For mail")
    senders: Annotated[list[Id], Field(min_length=1, max_length=50)] = Field(
        description="Accounts; those with the same reach take turns"
    )
    parts: Annotated[list[PartIn], Field(max_length=MOST_PARTS)] = []
    reply_parts: Annotated[list[PartIn], Field(max_length=MOST_PARTS)] = Field(
        [], description="Message 2, for people who reply within 24 hours"
    )
    follow_ups: Annotated[list[FollowUpIn], Field(max_length=MOST_STEPS)] = Field(
        [], description="For people who have not replied some days after a firing, in ascending order of days"
    )
    audience: AudienceIn = Field(default_factory=lambda: AudienceIn.model_validate({}))
    window: WindowIn = Field(default_factory=lambda: WindowIn.model_validate({}))
    timezone: Annotated[Text, Field(max_length=64)] = Field("", description="Default: the first sender's")
    schedule: ScheduleIn = Field(
        default_factory=lambda: ScheduleIn.model_validate({}),
        description="Without one the reminder fires only by hand",
    )
    enabled: bool = Field(True, description="False: do not switch it on yet")
    auto_resume: bool = Field(False, description="Go on by itself when the window opens again")
    resume_after_limit: bool = Field(False, description="Go on by itself when the account may send again")
    follow_up: bool = Field(
        False, description="A follow-up itself: stops by itself at people who do not reply, and at a long queue"
    )
    urgency: Literal["high", "medium", "low"] = "medium"
    even_if_late: bool = Field(False, description="Add it even if it only fires after its window has closed")
    team: Id | None = Field(None, description="Share it with this team; default: the token's, else the first sender's")


class ReminderOut(Answer):
    id: int
    title: str
    subject: str
    senders: list[int]
    parts: int
    targets: int
    follow_up_days: list[int]
    timezone: str
    window: WindowIn
    schedule: ScheduleIn
    enabled: bool
    archived: bool
    missing: list[str] = Field(description="What it lacks before it fires by itself")
    problem: str = Field(description="Why it could not be fired")
    next_fire_at: datetime | None
    team: int | None
    created_at: datetime


class ReminderPage(Answer):
    items: list[ReminderOut]
    next: str | None


def reminder_out(reminder: Reminder) -> dict[str, Any]:
    parts, people = len(reminder.messages.all()), _targets(reminder)
    same = ("title", "subject", "timezone", "enabled", "archived", "next_fire_at", "created_at", "follow_up_days")
    return {
        "id": reminder.pk,
        **{name: getattr(reminder, name) for name in same},
        "senders": [account.pk for account in reminder.senders],
        "parts": parts,
        "targets": people,
        "window": {"start_hour": reminder.delivery_window_start_hour, "end_hour": reminder.delivery_window_end_hour},
        "schedule": {"at": reminder.fire_at, "cron": reminder.cron},
        "missing": readiness.missing(parts, people, reminder.timed),
        "problem": reminder.firing_problem,
        "team": reminder.team_id,
    }


def _targets(reminder: Reminder) -> int:
    counted: int | None = getattr(reminder, "counted", None)
    return reminder.targets.count() if counted is None else counted


def find_reminder(request: HttpRequest, pk: int) -> Reminder:
    return caller_of(request).find(Reminder.objects.select_related("account", "owner"), pk, "reminder")


class ReminderQuery(PageQuery):
    limit: int = Field(50, ge=1, le=100)
    enabled: bool | None = None
    archived: bool = False


@router.get("", response=ReminderPage, auth=READS)
def list_reminders(request: HttpRequest, query: Query[ReminderQuery]) -> Any:
    """List reminders, newest first."""
    rows = caller_of(request).visible(Reminder.objects.filter(archived=query.archived).select_related("account"))
    rows = rows.prefetch_related(
        "further_senders__account", Prefetch("messages", ReminderMessage.objects.only("reminder"))
    )
    if query.enabled is not None:
        rows = rows.filter(enabled=query.enabled)
    items, following = page_of(rows, query)
    counts = Reminder.objects.filter(pk__in=[row.pk for row in items]).order_by()
    counted = dict(counts.values_list("pk").annotate(n=Count("targets")))
    for row in items:
        row.__dict__["counted"] = counted[row.pk]
    return {"items": [reminder_out(row) for row in items], "next": following}


@router.get("/{int:reminder_id}", response=ReminderOut, auth=READS)
def get_reminder(request: HttpRequest, reminder_id: int) -> Any:
    """Return one reminder."""
    return reminder_out(find_reminder(request, reminder_id))


# --- adding -----------------------------------------------------------------------------------------------------


@router.post("", response={201: ReminderOut}, auth=ADDS)
def add_reminder(request: HttpRequest, wish: ReminderIn) -> Any:
    """Add a reminder with parts, audience, senders, window and schedule. Without one of the first two, or without a
    time, it is a draft, which is off."""
    new = _new(caller_of(request), wish)
    reminder_changes.add_reminder(new, caller_of(request).user, timezone.now())
    return Status(201, reminder_out(find_reminder(request, new.reminder.pk)))


class ExampleOut(Answer):
    to: str
    parts: list[dict[str, str]]


class DraftOut(Answer):
    targets: int
    missing: list[str]
    forecast: ForecastOut
    examples: list[ExampleOut]


class PreviewOut(Answer):
    problem: str
    examples: list[ExampleOut]


@router.post("/forecast", response=DraftOut, auth=ADDS)
def forecast_draft(request: HttpRequest, wish: ReminderIn) -> Any:
    """Forecast a reminder before it is added: when it would end, which limit is decisive, and how it reads. Nothing is
    saved."""
    new, now = _new(caller_of(request), wish), timezone.now()
    with transaction.atomic():
        count = reminder_changes.add_reminder(new, caller_of(request).user, now)
        answer = {
            "targets": count,
            "missing": readiness.missing(len(new.parts), count, new.reminder.timed),
            "forecast": forecast_out(forecast_reminder(new.reminder, now)),
            "examples": _examples(new.reminder, _people(request, new.reminder)),
        }
        transaction.set_rollback(True)
    return answer


def _new(caller: Caller, wish: ReminderIn) -> NewReminder:
    senders = [caller.find(Account.objects.filter(archived=False), pk, "account") for pk in wish.senders]
    first = senders[0]
    reminder = Reminder(
        owner=caller.user,
        team=team_of(caller, wish.team) or first.team,
        account=first,
        title=wish.title or _title(wish),
        subject=wish.subject,
        action=readiness.action_through(first, False, before=""),
        timezone=wish.timezone or first.timezone,
        schedule="cron" if wish.schedule.cron else "once",
        cron=wish.schedule.cron,
        fire_at=_aware(wish.schedule.at),
        delivery_window_start_hour=wish.window.start_hour,
        delivery_window_end_hour=wish.window.end_hour,
        enabled=wish.enabled,
        auto_resume=wish.auto_resume,
        resume_after_limit=wish.resume_after_limit,
        segment=caller.find(Segment.objects.all(), pk, "segment") if (pk := wish.audience.segment) else None,
        follow_up=wish.follow_up,
        urgency=wish.urgency,
    )
    if not access.may_see(caller.user, reminder):
        raise Problem(403, "You are not a member of this team.", {"team": "not yours"})
    return NewReminder(
        reminder,
        senders,
        [new_part(caller, part) for part in wish.parts],
        [new_part(caller, part) for part in wish.reply_parts],
        [NewStep(step.days, [new_part(caller, part) for part in step.parts]) for step in wish.follow_ups],
        _chosen(caller, wish.audience.recipients),
        wish.audience.tags,
        _listed(wish.audience.addresses),
        caller.token.team_id,
        wish.even_if_late,
    )


def team_of(caller: Caller, wanted: int | None) -> Group | None:
    """Return the team that a new thing is shared with."""
    if caller.token.team is not None:
        if wanted not in (None, caller.token.team_id):
            raise Problem(403, "This token is for another team.", {"team": "not the token's"})
        return caller.token.team
    if wanted is None:
        return None
    rows = access.teams() if caller.user.is_superuser else access.teams().filter(user=caller.user)
    team = rows.filter(pk=wanted).first()
    if team is None:
        raise Problem(403, "You are not a member of this team.", {"team": "not yours"})
    return team


def _title(wish: ReminderIn) -> str:
    return (wish.parts[0].text[:60] if wish.parts else "") or "Reminder"


def _aware(at: datetime | None) -> datetime | None:
    if at is not None and at.tzinfo is None:
        raise Problem(422, "A time needs its offset, such as 2026-03-01T09:00:00+01:00.", {"schedule.at": "no offset"})
    return at


def new_part(caller: Caller, part: PartIn) -> NewPart:
    file = caller.find(MediaFile.objects.all(), part.media, "file") if part.media else None
    template = part.template
    if template is None:
        return NewPart(part.text, part.html, file)
    named = f"{template.name}:{template.language}" if template.language else template.name
    return NewPart(part.text, part.html, file, named=named, values=template.values)


def _chosen(caller: Caller, ids: list[int]) -> list[Recipient]:
    wanted = list(dict.fromkeys(ids))
    found = caller.visible(Recipient.objects.filter(archived=False)).in_bulk(wanted)
    if missing := [pk for pk in wanted if pk not in found]:
        raise Problem(
            422, f"There is no recipient {missing[0]}.", {"audience.recipients": f"no recipient {missing[0]}"}
        )
    return [found[pk] for pk in wanted]


def _listed(addresses: list[str]) -> list[imports.Entry]:
    listed = imports.gathered(
        ((n, text, text) for n, text in enumerate(addresses, 1)),
        lambda number, text: imports.from_row(number, {"address": text}, imports.GUESS_ALL),
    )
    if listed.problems:
        words = "; ".join(imports.first_problems(listed.problems, 5))
        raise ValidationError({"audience.addresses": words})
    return listed.entries


# --- reading what will go out -----------------------------------------------------------------------------------


def _people(request: HttpRequest, reminder: Reminder) -> wording.Audience:
    """Return the recipients; names and fields only of those that the call may see."""
    people = audience(reminder, timezone.now())
    return wording.Audience(people, seen=caller_of(request).visible(people))


def _examples(reminder: Reminder, people: wording.Audience) -> list[dict[str, Any]]:
    parts = [written_part(reminder, part) for part in reminder.messages.select_related("media")]
    return wording.preview(parts, people.some())


@router.get("/{int:reminder_id}/preview", response=PreviewOut, auth=READS)
def preview(request: HttpRequest, reminder_id: int) -> Any:
    """Show how the reminder reads for its first recipients."""
    reminder = find_reminder(request, reminder_id)
    people = _people(request, reminder)
    return {"problem": wording.reminder_problem(reminder, people), "examples": _examples(reminder, people)}


@router.get("/{int:reminder_id}/forecast", response=ForecastOut, auth=READS)
def forecast(request: HttpRequest, reminder_id: int) -> Any:
    """Forecast the next firing: when it ends, whether it fits the window, and which limit is decisive."""
    return forecast_out(forecast_reminder(find_reminder(request, reminder_id), timezone.now()))


# --- firing and switching ---------------------------------------------------------------------------------------


class FireIn(Schema):
    when_open: bool = Field(False, description="Outside the window: start when it opens, instead of failing")
    after: Id | None = Field(
        None, description="A reminder that was fired seconds ago is fired again only if this names that run"
    )


class FireOut(Done):
    run: RunOut


@router.post("/{int:reminder_id}/fire", response=FireOut, auth=FIRES)
def fire(request: HttpRequest, reminder_id: int, wish: FireIn) -> Any:
    """Fire now, regardless of the schedule, which goes on as before."""
    caller, now = caller_of(request), timezone.now()
    reminder = find_reminder(request, reminder_id)
    at = firing.when_closed(reminder, now) if wish.when_open else None
    answer = require(controls.fire(reminder, caller.user, now, at=at, after=wish.after))
    assert answer.run is not None  # it was made
    return {"text": answer.text, "run": runs_out([find_run(request, answer.run.pk)], caller)[0]}


class SwitchOut(Done):
    reminder: ReminderOut


@router.post("/{int:reminder_id}/disable", response=SwitchOut, auth=CHANGES)
def disable(request: HttpRequest, reminder_id: int) -> Any:
    """Switch a reminder off: it fires only by hand."""
    reminder = find_reminder(request, reminder_id)
    answer = require(reminder_changes.switch_off(reminder, caller_of(request).user, timezone.now()))
    return {"text": answer.text, "reminder": reminder_out(find_reminder(request, reminder_id))}


@router.post("/{int:reminder_id}/enable", response=SwitchOut, auth=CHANGES)
def enable(request: HttpRequest, reminder_id: int) -> Any:
    """Switch a reminder on."""
    reminder = find_reminder(request, reminder_id)
    answer = require(reminder_changes.switch_on(reminder, caller_of(request).user, timezone.now()))
    return {"text": answer.text, "reminder": reminder_out(find_reminder(request, reminder_id))}
