"""Single messages: one call each, sent together with others in runs."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from django.contrib.auth.models import Group
from django.db import transaction
from django.db.models import QuerySet
from django.http import Http404, HttpRequest
from django.utils import timezone
from ninja import Field, Query, Router, Schema, Status

from accounts import access
from accounts.addresses import AddressError
from accounts.channels.registry import channel
from accounts.models import Account
from fanout.api.conventions import (
    Answer,
    Caller,
    Done,
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
from fanout.api.recipients import Address, RecipientIn, entry_of
from fanout.api.reminders import MOST_PARTS, PartIn, WindowIn, new_part, team_of
from fanout.models import RunTarget, SingleMessage
from fanout.ops import reminder_changes
from fanout.runs import single_messages
from fanout.runs.freezing import written
from fanout.runs.single_messages import NewMessage
from reminders import erasure, imports, targets
from reminders.models import MOST_TEXT, Recipient
from reminders.window import Window

router = Router()
READS = Needs(Scope.READ, "fanout.view_run")
SENDS = Needs(Scope.SEND, "fanout.change_run")
#: the part of a message that is only a text, and the placeholders that it goes into
TEXT = {"kind": "text", "text": "{text}"}
SUBJECT = {"subject": "{subject}"}

Name = Annotated[Text, Field(max_length=60)]
Value = Annotated[Text, Field(max_length=MOST_TEXT)]


class MessageIn(Schema):
    account: Id | None = Field(None, description="The account that sends it; or name a team")
    team: Id | None = Field(
        None, description="An active account of this team sends it, the same one to the same person"
    )
    address: Address
    name: Annotated[Text, Field(max_length=imports.MOST_NAME)] = Field("", description="The person's name, if known")
    text: Value = Field("", description="The message as it is; or give parts")
    subject: Line = Field("", description="For mail")
    parts: Annotated[list[PartIn], Field(max_length=MOST_PARTS)] = Field(
        [], description="Parts with placeholders: messages with the same parts share a run"
    )
    values: dict[Name, Value] = Field({}, description="Values of the placeholders", max_length=50)
    window: WindowIn | None = Field(None, description="Delivery window in `timezone`; default: at any hour")
    timezone: Annotated[Text, Field(max_length=64)] = Field("", description="Default: the account's")
    earliest: datetime | None = None
    latest: datetime | None = Field(None, description="Not sent at or after this time")


class MessageOut(Answer):
    id: int
    status: str = Field(
        description="accepted, pending, sending, sent, failed, skipped, unconfirmed; refused: it got into no run"
    )
    account: int
    recipient: int
    earliest: datetime | None
    latest: datetime | None
    accepted_at: datetime
    run: int | None
    target: int | None
    sent_at: datetime | None
    read_at: datetime | None
    replied_at: datetime | None
    problem: str


class MessagePage(Answer):
    items: list[MessageOut]
    next: str | None


def messages_out(rows: list[SingleMessage]) -> list[dict[str, Any]]:
    found = RunTarget.objects.in_bulk([row.run_target_id for row in rows if row.run_target_id])
    return [_message(row, found.get(row.run_target_id or 0)) for row in rows]


def _message(row: SingleMessage, target: RunTarget | None) -> dict[str, Any]:
    unknown = "refused" if row.problem else "accepted"
    return {
        "id": row.pk,
        "status": target.status if target else unknown,
        "account": target.account_id if target else row.account_id,
        "recipient": row.recipient_id,
        "earliest": row.earliest,
        "latest": row.latest,
        "accepted_at": row.accepted_at,
        "run": target.run_id if target else None,
        "target": row.run_target_id,
        "sent_at": target.settled_at if target and target.status == RunTarget.Status.SENT else None,
        "read_at": target.read_at if target else None,
        "replied_at": target.replied_at if target else None,
        "problem": (target.error or target.error_kind) if target else row.problem,
    }


@router.post("", response={202: MessageOut}, auth=SENDS)
def send_message(request: HttpRequest, wish: MessageIn) -> Any:
    """Hand in one message. It uses the same lanes, pace, caps, suppressions and windows as reminders, and is put into a
    run with others like it. Use an `Idempotency-Key`: a repeated call then sends nothing twice."""
    caller, now = caller_of(request), timezone.now()
    if (wish.account is None) == (wish.team is None):
        raise Problem(422, "Name either an account or a team.", {"account": "or a team"})
    if bool(wish.text.strip()) == bool(wish.parts):
        raise Problem(422, "Give either a text or parts.", {"text": "or parts"})
    _require_offsets(wish)
    team = team_of(caller, wish.team)
    with transaction.atomic(savepoint=False):
        recipient = _recipient(caller, wish, now)
        account = _account(caller, wish, team, recipient)
        zone = wish.timezone or account.timezone
        window = Window(zone, wish.window.start_hour, wish.window.end_hour) if wish.window else Window(zone)
        parts, values = _content(caller, wish, account)
        new = NewMessage(account, recipient, parts, values, window, wish.earliest, wish.latest)
        message = single_messages.hand_in(new, caller.user, team, now)
    return Status(202, messages_out([message])[0])


def _require_offsets(wish: MessageIn) -> None:
    for name in ("earliest", "latest"):
        at = getattr(wish, name)
        if at is not None and at.tzinfo is None:
            raise Problem(422, "A time needs its offset, such as 2026-03-01T09:00:00+01:00.", {name: "no offset"})


def _recipient(caller: Caller, wish: MessageIn, now: datetime) -> Recipient:
    """Return the person in the caller's list, added if necessary."""
    try:
        entry = entry_of(1, RecipientIn.model_construct(address=wish.address, name=wish.name))
    except AddressError as problem:
        raise Problem(422, str(problem), {"address": str(problem)}) from None
    found = targets.find_or_add(entry, caller.user, caller.token.team_id, now)
    if found is None:
        raise Problem(422, erasure.REFUSED, {"address": erasure.REFUSED})
    return found


# What `caller.find` reads, with the columns that a plain text needs. Written out because each message asks for it: to
# build the statement took a third of the call.
ACCOUNT = f"""
SELECT r.id, r.owner_id, r.team_id, r.label, r.channel, r.address, r.timezone, r.status, r.archived
  FROM accounts_account r
 WHERE r.id = %(account)s AND NOT r.archived AND {access.SEES}
   AND (%(team)s::bigint IS NULL OR r.team_id = %(team)s)
"""  # noqa: S608


def _account(caller: Caller, wish: MessageIn, team: Group | None, recipient: Recipient) -> Account:
    if wish.account is not None:
        facts = access.sees(caller.user) | {"account": wish.account, "team": caller.token.team_id}
        for found in Account.objects.raw(ACCOUNT, facts):
            return found
        raise Http404(f"There is no account {wish.account}.")
    rows: QuerySet[Account] = caller.visible(Account.objects.filter(team=team, archived=False))
    active = rows.filter(status=Account.Status.ACTIVE).order_by("pk")
    able = [account for account in active if channel(account.channel).reaches(recipient.kind)]
    if not able:
        words = f"No active account of this team reaches {recipient.address}."
        raise Problem(409, words, {"team": words})
    return able[recipient.pk % len(able)]


def _content(caller: Caller, wish: MessageIn, account: Account) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return the parts and their values. A plain text is a value, so that messages with different texts share a run."""
    if wish.parts:
        subject = {"subject": wish.subject} if wish.subject else {}
        values = {name.lower(): value for name, value in wish.values.items()}
        parts = reminder_changes.with_templates([new_part(caller, part) for part in wish.parts], [account])
        reminder_changes.check_parts(parts, [account])
        return [written(part) | subject for part in parts], values
    subject = SUBJECT if wish.subject else {}
    return [TEXT | subject], {"text": wish.text} | ({"subject": wish.subject} if wish.subject else {})


class MessageQuery(PageQuery):
    account: Id | None = None
    recipient: Id | None = None


@router.get("", response=MessagePage, auth=READS)
def list_messages(request: HttpRequest, query: Query[MessageQuery]) -> Any:
    """List messages that were handed in within the last 30 days, newest first."""
    rows = caller_of(request).visible(SingleMessage.objects.all())
    if query.account is not None:
        rows = rows.filter(account=query.account)
    if query.recipient is not None:
        rows = rows.filter(recipient=query.recipient)
    items, following = page_of(rows, query)
    return {"items": messages_out(items), "next": following}


@router.get("/{int:message_id}", response=MessageOut, auth=READS)
def get_message(request: HttpRequest, message_id: int) -> Any:
    """Return one message with its outcome."""
    return messages_out([_find(request, message_id)])[0]


class MessageDone(Done):
    message: MessageOut


@router.post("/{int:message_id}/cancel", response=MessageDone, auth=SENDS)
def cancel_message(request: HttpRequest, message_id: int) -> Any:
    """Keep a message from being sent."""
    message = _find(request, message_id)
    answer = require(single_messages.cancel(message, caller_of(request).user, timezone.now()))
    return {"text": answer.text, "message": messages_out([_find(request, message_id)])[0]}


def _find(request: HttpRequest, pk: int) -> SingleMessage:
    return caller_of(request).find(SingleMessage.objects.all(), pk, "message")
