"""Segments: recipients by conditions, evaluated whenever a reminder to them fires."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from django.http import HttpRequest
from django.utils import timezone
from ninja import Field, Router, Schema, Status

from fanout.api.conventions import Answer, Done, Id, Line, Needs, Paging, Scope, Text, caller_of, page_of, require
from fanout.api.recipients import Tags
from fanout.api.reminders import team_of
from fanout.ops import list_changes
from fanout.plans.audience import examples, segment_members
from reminders.imports import MOST_FIELD, field_name
from reminders.models import Reminder, Segment
from reminders.segments import MOST_CONDITIONS, MOST_DAYS, stored_conditions

router = Router()
READS = Needs(Scope.READ, "reminders.view_segment")
ADDS = Needs(Scope.RECIPIENTS, "reminders.add_segment")
DELETES = Needs(Scope.RECIPIENTS, "reminders.delete_segment")


class FieldIn(Schema):
    name: Line
    comparison: Literal["=", "!="] = "="
    value: Annotated[Text, Field(max_length=MOST_FIELD)] = Field("", description="Empty: the field is not filled in")


class SegmentIn(Schema):
    name: Annotated[Text, Field(min_length=1, max_length=100)]
    tags: Tags = Field([], description="With one of them")
    every_tag: bool = Field(False, description="With all of them")
    without_tags: Tags = []
    fields: Annotated[list[FieldIn], Field(max_length=MOST_CONDITIONS)] = []
    not_replied_to: Id | None = Field(None, description="Got this reminder and has not written since")
    not_contacted_days: Annotated[int, Field(ge=1, le=MOST_DAYS)] | None = Field(
        None, description="Got nothing for so many days"
    )
    team: Id | None = Field(None, description="Share it with this team; default: the token's")


class SegmentOut(Answer):
    id: int
    name: str
    conditions: str = Field(description="In words")
    tags: list[str]
    every_tag: bool
    without_tags: list[str]
    fields: list[FieldIn]
    not_replied_to: int | None
    not_contacted_days: int | None
    team: int | None
    created_at: datetime


class SegmentWithMembers(SegmentOut):
    members: int = Field(description="Recipients that are in it now and that you see")
    examples: list[str]


class SegmentPage(Answer):
    items: list[SegmentOut]
    next: str | None


def segment_out(segment: Segment) -> dict[str, Any]:
    same = ("name", "tags", "every_tag", "without_tags", "not_contacted_days", "created_at")
    return {
        "id": segment.pk,
        **{name: getattr(segment, name) for name in same},
        "conditions": segment.words,
        "fields": [condition._asdict() for condition in stored_conditions(segment.fields)],
        "not_replied_to": segment.not_replied_to_id,
        "team": segment.team_id,
    }


def _with_members(request: HttpRequest, segment: Segment) -> dict[str, Any]:
    caller = caller_of(request)
    # Only those whom the caller sees: otherwise conditions that are tried out would count the owner's other people.
    seen = caller.visible(segment_members(segment, segment.owner, timezone.now()))
    return segment_out(segment) | {"members": seen.order_by().count(), "examples": examples(seen, caller.user)}


def find_segment(request: HttpRequest, pk: int) -> Segment:
    return caller_of(request).find(Segment.objects.select_related("not_replied_to", "owner"), pk, "segment")


@router.get("", response=SegmentPage, auth=READS)
def list_segments(request: HttpRequest, paging: Paging) -> Any:
    """List segments, newest first."""
    rows = caller_of(request).visible(Segment.objects.select_related("not_replied_to"))
    items, following = page_of(rows, paging)
    return {"items": [segment_out(row) for row in items], "next": following}


@router.get("/{int:segment_id}", response=SegmentWithMembers, auth=READS)
def get_segment(request: HttpRequest, segment_id: int) -> Any:
    """Return one segment with how many are in it now."""
    return _with_members(request, find_segment(request, segment_id))


@router.post("", response={201: SegmentWithMembers}, auth=ADDS)
def add_segment(request: HttpRequest, wish: SegmentIn) -> Any:
    """Add a segment. All its conditions must hold, and it has at least one."""
    caller = caller_of(request)
    reminder = caller.find(Reminder.objects.all(), wish.not_replied_to, "reminder") if wish.not_replied_to else None
    segment = Segment(
        owner=caller.user,
        team=team_of(caller, wish.team),
        name=wish.name.strip(),
        tags=list(dict.fromkeys(wish.tags)),
        every_tag=wish.every_tag,
        without_tags=list(dict.fromkeys(wish.without_tags)),
        fields=[[field_name(one.name), one.comparison, one.value.strip()] for one in wish.fields],
        not_replied_to=reminder,
        not_contacted_days=wish.not_contacted_days,
    )
    list_changes.add_segment(segment, caller.user, timezone.now())
    return Status(201, _with_members(request, find_segment(request, segment.pk)))


@router.delete("/{int:segment_id}", response=Done, auth=DELETES)
def delete_segment(request: HttpRequest, segment_id: int) -> Any:
    """Delete a segment that no reminder has."""
    segment = find_segment(request, segment_id)
    return {"text": require(list_changes.delete_segment(segment, caller_of(request).user, timezone.now())).text}
