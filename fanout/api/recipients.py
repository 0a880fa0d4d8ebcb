"""Recipients: added or changed one by one or in thousands, tagged, suppressed, erased, and their timeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from django.db import transaction
from django.db.models import BigIntegerField, Q, TextField
from django.http import HttpRequest
from django.utils import timezone
from ninja import Field, Query, Router, Schema

from accounts.addresses import AddressError, guess_kind, normalise
from accounts.models import ApiToken
from fanout.api.conventions import (
    Answer,
    Caller,
    Done,
    Id,
    Needs,
    PageQuery,
    Problem,
    Scope,
    Text,
    caller_of,
    page_of,
    require,
)
from fanout.inbound import person_timeline
from fanout.models.trail import note
from fanout.ops import list_changes
from fanout.runs.erasing import erase
from reminders import erasure, imports, suppressions, targets
from reminders.imports import Entry
from reminders.models import Recipient, Suppression

router = Router()
READS = Needs(Scope.READ, "reminders.view_recipient")
CHANGES = Needs(Scope.RECIPIENTS, "reminders.change_recipient")
ADDS = Needs(Scope.RECIPIENTS, "reminders.add_recipient")
ERASES = Needs(Scope.RECIPIENTS, "reminders.delete_recipient")
SUPPRESSES = Needs(Scope.RECIPIENTS, "reminders.add_suppression")

MOST_AT_ONCE = 10_000
MOST_SUPPRESSED = 1_000
Address = Annotated[Text, Field(min_length=1, max_length=254)]
Tag = Annotated[Text, Field(min_length=1, max_length=imports.MOST_TAG, pattern=r"^[^,;]+$")]
Tags = Annotated[list[Tag], Field(max_length=imports.MOST_TAGS)]


class RecipientIn(Schema):
    address: Address = Field(examples=["+49 151 12345678", "ann@example.com", "120363025246125400@g.us"])
    kind: Annotated[Text, Field(max_length=16)] | None = Field(None, description="Default: guessed from the address")
    name: Annotated[Text, Field(max_length=imports.MOST_NAME)] = ""
    tags: Tags = Field([], description="Added to those that it has")
    fields: dict[Annotated[Text, Field(max_length=60)], Annotated[Text, Field(max_length=imports.MOST_FIELD)]] = Field(
        {}, description="Own texts for placeholders, merged with those that it has", max_length=100
    )


class RecipientOut(Answer):
    id: int
    kind: str
    address: str
    name: str
    tags: list[str]
    fields: dict[str, str]
    status: str
    team: int | None
    archived: bool
    replied_at: datetime | None
    created_at: datetime


class RecipientPage(Answer):
    items: list[RecipientOut]
    next: str | None


class LineOut(Answer):
    line: int = Field(description="Number in the list, from 1")
    status: Literal["added", "changed", "refused"]
    id: int | None
    address: str
    problem: str


class ListOut(Answer):
    added: int
    changed: int
    refused: int
    lines: list[LineOut]


def recipient_out(row: Recipient) -> dict[str, Any]:
    same = [name for name in RecipientOut.model_fields if name not in ("id", "team", "fields")]
    fields = {str(name): str(value) for name, value in row.fields.items()}
    return {"id": row.pk, "team": row.team_id, "fields": fields, **{name: getattr(row, name) for name in same}}


def find_recipient(request: HttpRequest, pk: int) -> Recipient:
    return caller_of(request).find(Recipient.objects.all(), pk, "recipient")


class RecipientQuery(PageQuery):
    address: Annotated[Text, Field(max_length=254)] = Field("", description="Exactly this one, in any spelling")
    tag: Annotated[Text, Field(max_length=imports.MOST_TAG)] = ""
    archived: bool = False


@router.get("", response=RecipientPage, auth=READS)
def list_recipients(request: HttpRequest, query: Query[RecipientQuery]) -> Any:
    """List recipients, newest first."""
    rows = erasure.present(caller_of(request).visible(Recipient.objects.filter(archived=query.archived)))
    if query.address:
        rows = rows.filter(address=_normal(query.address))
    if query.tag:
        rows = rows.filter(tags__contains=[query.tag])
    items, following = page_of(rows, query)
    return {"items": [recipient_out(row) for row in items], "next": following}


def _normal(address: str, kind: str | None = None) -> str:
    try:
        return normalise(kind or guess_kind(address), address)
    except AddressError as problem:
        raise Problem(422, str(problem), {"address": str(problem)}) from None


@router.get("/{int:recipient_id}", response=RecipientOut, auth=READS)
def get_recipient(request: HttpRequest, recipient_id: int) -> Any:
    """Return one recipient."""
    return recipient_out(find_recipient(request, recipient_id))


# --- adding and changing ----------------------------------------------------------------------------------------


@router.post("", response=RecipientOut, auth=ADDS)
def upsert_recipient(request: HttpRequest, wish: RecipientIn) -> Any:
    """Add a recipient, or change the one with this address."""
    line = _upsert(caller_of(request), [wish])["lines"][0]
    if line["status"] == "refused":
        raise Problem(422, line["problem"], {"address": line["problem"]})
    return recipient_out(find_recipient(request, line["id"]))


class ListIn(Schema):
    recipients: Annotated[list[RecipientIn], Field(min_length=1, max_length=MOST_AT_ONCE)]


@router.post("/batch", response=ListOut, auth=ADDS)
def upsert_recipients(request: HttpRequest, wish: ListIn) -> Any:
    """Add or change up to 10,000 recipients. Each line has a result; lines that are refused do not stop the others."""
    return _upsert(caller_of(request), wish.recipients)


def entry_of(number: int, wish: RecipientIn) -> Entry:
    """Return the line as an import has it. Raises AddressError."""
    row = {name: value for name, value in wish.fields.items() if name not in imports.COLUMNS}
    row |= {"address": wish.address, "name": wish.name, "kind": wish.kind or "", "tags": ";".join(wish.tags)}
    return imports.from_row(number, row, imports.GUESS_ALL)


def _upsert(caller: Caller, wishes: Sequence[RecipientIn]) -> dict[str, Any]:
    listed = imports.gathered(((n, "", wish) for n, wish in enumerate(wishes, 1)), entry_of)
    problems = {int(text.split(" ", 2)[1]): text.split("): ", 1)[-1] for text in listed.problems}
    entries = {entry.line: entry for entry in listed.entries}
    addresses = [entry.address for entry in listed.entries]
    mine = Recipient.objects.filter(targets.among("address", addresses, TextField()), owner=caller.user)
    with transaction.atomic():
        before = dict(mine.values_list("address", "team_id"))
        gone = erasure.erased(addresses)
        usable = []
        for entry in listed.entries:
            if entry.address in gone:
                problems[entry.line] = erasure.REFUSED
            elif _not_shared(caller.token, before, entry.address):
                problems[entry.line] = targets.NOT_SHARED
            else:
                usable.append(entry)
        list_changes.upsert_recipients(usable, caller.user, caller.user, timezone.now(), caller.token.team)
        ids = dict(mine.values_list("address", "pk"))
    lines = [_line(n, wish, entries.get(n), problems, before, ids) for n, wish in enumerate(wishes, 1)]
    counts = {status: sum(line["status"] == status for line in lines) for status in ("added", "changed", "refused")}
    return counts | {"lines": lines}


def _not_shared(token: ApiToken, before: Mapping[str, int | None], address: str) -> bool:
    return token.team_id is not None and address in before and before[address] != token.team_id


def _line(
    number: int,
    wish: RecipientIn,
    entry: Entry | None,
    problems: dict[int, str],
    before: dict[str, Any],
    ids: dict[str, int],
) -> dict[str, Any]:
    if number in problems or entry is None:
        problem = problems.get(number, "The list has this address in an earlier line.")
        return {"line": number, "status": "refused", "id": None, "address": wish.address, "problem": problem}
    status = "changed" if entry.address in before else "added"
    return {"line": number, "status": status, "id": ids[entry.address], "address": entry.address, "problem": ""}


class TagsIn(Schema):
    recipients: Annotated[list[Id], Field(min_length=1, max_length=MOST_AT_ONCE)]
    add: Tags = []
    remove: Tags = []


class TagsOut(Answer):
    tagged: int
    untagged: int


@router.post("/tags", response=TagsOut, auth=CHANGES)
def tag(request: HttpRequest, wish: TagsIn) -> Any:
    """Add tags to recipients, and remove others."""
    caller = caller_of(request)
    rows = caller.visible(Recipient.objects.filter(targets.among("pk", wish.recipients, BigIntegerField())))
    with transaction.atomic():
        tagged = sum(targets.add_tag(rows, one) for one in wish.add)
        untagged = sum(targets.remove_tag(rows, one) for one in wish.remove)
        note("tagged", None, caller.user, timezone.now(), f"{tagged:,} added, {untagged:,} removed")
    return {"tagged": tagged, "untagged": untagged}


# --- silence ----------------------------------------------------------------------------------------------------


class SuppressIn(Schema):
    addresses: Annotated[list[Address], Field(min_length=1, max_length=MOST_SUPPRESSED)]
    detail: Annotated[Text, Field(max_length=suppressions.MOST_DETAIL)] = Field("", description="Why")
    days: Annotated[int, Field(ge=1, le=36_500)] | None = Field(None, description="Default: for ever")


class SuppressOut(Answer):
    suppressed: int
    already: int


@router.post("/suppress", response=SuppressOut, auth=SUPPRESSES)
def suppress(request: HttpRequest, wish: SuppressIn) -> Any:
    """Suppress addresses: they get no more messages, from any account and any operator."""
    user, now = caller_of(request).user, timezone.now()
    until = now + timedelta(days=wish.days) if wish.days else None
    reason, source = Suppression.Reason.MANUAL.value, Suppression.Source.OPERATOR.value
    addresses = dict.fromkeys(_normal(address) for address in wish.addresses)
    news = [suppressions.NewSuppression(one, reason, source, wish.detail, now, until, user.pk) for one in addresses]
    changed = list_changes.suppress(news, user, now)
    return {"suppressed": changed, "already": len(news) - changed}


@router.post("/{int:recipient_id}/erase", response=Done, auth=ERASES)
def erase_recipient(request: HttpRequest, recipient_id: int) -> Any:
    """Erase a person from your tables, or, with a token of a team, from the team's. This cannot be undone."""
    caller = caller_of(request)
    recipient = find_recipient(request, recipient_id)
    if erasure.is_faceless(recipient.address):
        raise Problem(409, "This recipient was erased already.")
    return {"text": require(erase(recipient.address, caller.user, timezone.now(), caller.token.team_id)).text}


# --- the timeline ------------------------------------------------------------------------------------------------


class TimelineEntry(Answer):
    at: datetime
    direction: Literal["sent", "received"]
    name: str = Field(description="The title of the run, or the account that received it")
    texts: list[str]
    run: int | None
    status: str | None
    reason: str = Field(description="Why it was not sent, or not yet")
    opted_out: bool


class TimelineOut(Answer):
    suppressed: bool
    items: list[TimelineEntry]
    next: str | None = Field(description="Pass it as `before` to get earlier entries")


@router.get("/{int:recipient_id}/timeline", response=TimelineOut, auth=READS)
def timeline(request: HttpRequest, recipient_id: int, before: Annotated[Text, Field(max_length=100)] = "") -> Any:
    """Return what was sent to this address and what came back, newest first: the page that the admin shows."""
    caller, recipient = caller_of(request), find_recipient(request, recipient_id)
    if before and person_timeline.place_in(before) is None:
        raise Problem(422, "This is not `next` of an earlier page.", {"before": "not a place"})
    held = Suppression.objects.filter(suppressions.in_force(timezone.now()), Q(address=recipient.address))
    page = person_timeline.timeline(recipient, caller.user, before, caller.token.team_id)
    items = [
        {
            "at": entry.at,
            "direction": "sent" if entry.target else "received",
            "name": entry.name,
            "texts": entry.texts,
            "run": entry.target.run_id if entry.target else None,
            "status": entry.target.status if entry.target else None,
            "reason": entry.reason,
            "opted_out": entry.opted_out,
        }
        for entry in page.entries
    ]
    return {"suppressed": held.exists(), "items": items, "next": page.earlier or None}
