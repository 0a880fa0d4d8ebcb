"""Single messages: handed in one by one by a program, sent in runs.

A run has the same parts for all its targets, so the text of a message is the value of a placeholder: messages that have
the same parts, account, window and hour share a run, and 10,000 calls cost what one run costs. Handing one in is one
insert, which waits for no other; a task puts them into runs. From then on lanes, pace, caps, suppressions and windows
hold for them as for everything else.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfoNotFoundError

from django.core.exceptions import ValidationError
from django.db import DataError, IntegrityError, connection, transaction
from django_q.tasks import async_task

from accounts import access
from accounts.channels.registry import channel
from accounts.inputs import valid_timezone
from accounts.models import Account
from fanout.database import LOCK_RUNS, carry_out, execute, raise_unless
from fanout.lanes.lane_rows import wake_lanes_at
from fanout.models import Event, Run, RunTarget, SingleMessage
from fanout.models import trail as trails
from fanout.models.trail import by_token, note, with_token
from fanout.runs import transitions
from fanout.runs.controls import ControlResult
from reminders import placeholders, readiness, schedule, wording
from reminders.models import MessagePart, Recipient, Reminder, Suppression
from reminders.targets import what_they_reach
from reminders.window import Window, window_error

log = logging.getLogger("crier.messages")

TITLE = "Messages by API"
#: messages that one transaction puts into a run
CHUNK = 1_000
#: targets of one run; further messages begin another
MOST_TARGETS = 20_000
LATEST = timedelta(days=366)
WAITING = {"run_target_id": None, "problem": ""}
CANCELED = "canceled before it was sent"
UNUSABLE = "its timezone, times or parts cannot be used: hand it in again"
#: what reading such a message or making its run raises
UNUSABLE_ERRORS = (ValueError, OverflowError, ZoneInfoNotFoundError, DataError)
#: runs that take no more messages
CLOSED = (Run.Status.CANCELED, Run.Status.SKIPPED, Run.Status.PREPARING)


@dataclass(slots=True)
class NewMessage:
    """A message as a program hands it in. `parts` are as `written_part` makes them."""

    account: Account
    recipient: Recipient
    parts: list[dict[str, Any]]
    values: dict[str, str] = field(default_factory=dict)
    window: Window | None = None
    earliest: datetime | None = None
    latest: datetime | None = None


# --- handing in -------------------------------------------------------------------------------------------------


def hand_in(new: NewMessage, user: Any, team: Any, now: datetime) -> SingleMessage:
    """Store the message and have it put into a run. Raises ValidationError."""
    _check(new, user, now)
    window = new.window or Window(new.account.timezone)
    parts = [placeholders.frozen(part) for part in new.parts]
    own = placeholders.values_for(new.recipient, parts) or {}
    values = {name: value for name, value in (own | new.values).items() if value}
    if lacking := set(placeholders.required_in(parts)) - set(values):
        raise ValidationError({"values": f"There is {placeholders.lacking(lacking)}."})
    if problem := _wording_problem(new, values):
        raise ValidationError({"parts": problem})
    handed_in_by = trails.token.get()
    message = SingleMessage.objects.create(
        owner=user,
        team_id=team.pk if team else new.account.team_id,
        account=new.account,
        recipient=new.recipient,
        parts=parts,
        key=_key(parts, window, max(now, new.earliest or now), handed_in_by),
        values=values if placeholders.names_in(parts) else None,
        timezone=window.timezone,
        window_start_hour=window.start_hour,
        window_end_hour=window.end_hour,
        earliest=new.earliest,
        latest=new.latest,
        accepted_at=now,
        token=handed_in_by,
    )
    transaction.on_commit(lambda: _enqueue_unless_queued(message.pk))
    return message


def _check(new: NewMessage, user: Any, now: datetime) -> None:
    if problem := access.may_use(user, [new.account]):
        raise ValidationError({"account": problem})
    if new.account.archived:
        raise ValidationError({"account": f"{new.account.label} is archived: restore it first."})
    if not channel(new.account.channel).reaches(new.recipient.kind):
        raise ValidationError({"address": f"{what_they_reach([new.account])}."})
    subjects = " ".join(part.get("subject", "") for part in new.parts)
    if problem := readiness.subject_problem([new.account], subjects):
        raise ValidationError({"subject": problem})
    if new.window and not valid_timezone(new.window.timezone):
        raise ValidationError({"timezone": f"“{new.window.timezone}” is not a timezone, such as Europe/Berlin."})
    if new.window and (wrong := window_error(new.window.start_hour, new.window.end_hour)):
        raise ValidationError({"window": wrong})
    for name, at in (("earliest", new.earliest), ("latest", new.latest)):
        if at is not None and not schedule.EARLIEST <= at <= now + LATEST:
            raise ValidationError({name: "A message can be handed in for the next 366 days."})
    if new.latest is not None and new.latest <= max(now, new.earliest or now):
        raise ValidationError({"latest": "This is before the message could be sent."})
    for number, part in enumerate(new.parts, 1):
        if part["kind"] == MessagePart.Kind.TEXT and not part["text"].strip():
            raise ValidationError({"parts": f"Part {number} needs a text."})
    for row in execute(
        SILENT, {"address": new.recipient.address, "now": now, "statuses": list(Recipient.GETS_NOTHING)}
    ):
        why = dict(Suppression.Reason.choices).get(row["reason"], "opted out").lower()
        raise ValidationError({"address": f"{new.recipient.address} gets no messages: {why}."})


SILENT = """
SELECT reason FROM reminders_suppression
 WHERE address = %(address)s AND (expires_at IS NULL OR expires_at > %(now)s)
 UNION ALL
SELECT status FROM reminders_recipient WHERE address = %(address)s AND status = ANY(%(statuses)s)
 LIMIT 1
"""


def _wording_problem(new: NewMessage, values: dict[str, str]) -> str:
    """Return what is wrong with the placeholders, as for a reminder. Those with a default need no value."""
    to, fields = new.recipient, new.recipient.fields | values
    named = placeholders.names_in([placeholders.frozen(part) for part in new.parts])
    fields |= {name: fields.get(name) or "…" for name in named}
    person = Recipient(kind=to.kind, name=values.get("name") or to.name, fields=fields)
    only = wording.Audience(Recipient.objects.none(), [person])
    return wording.problem(wording.texts_in(new.parts), lambda: only, only)


def _key(parts: list[dict[str, Any]], window: Window, at: datetime, token: str) -> str:
    """Return what messages of one run have in common, besides owner, team and account. By hours, so that a message for
    the evening does not keep back those of the morning to the same person; by tokens, because the audit trail names the
    one that a run is from."""
    hour = at.replace(minute=0, second=0, microsecond=0).timestamp()
    common = [parts, window.timezone, window.start_hour, window.end_hour, hour, token]
    return hashlib.sha256(json.dumps(common, sort_keys=True).encode()).hexdigest()


def _enqueue_unless_queued(pk: int) -> None:
    """Start the task, unless an earlier message waits for it: the task looks again after those. Called after the
    commit, so that its last look cannot miss this one."""
    if not execute(EARLIER, [pk]):
        enqueue_collecting()


EARLIER = "SELECT FROM fanout_singlemessage WHERE run_target_id IS NULL AND problem = '' AND id < %s LIMIT 1"


def enqueue_collecting() -> None:
    async_task("fanout.ops.tasks.collect_messages", cluster="main", task_name="collect-messages")


# --- putting them into runs -------------------------------------------------------------------------------------


def collect(now: datetime, seconds: float) -> bool:
    """Put waiting messages into runs, the oldest first, for some seconds. Returns whether that was all; those whose
    group failed are left for the next minute."""
    until = time.monotonic() + seconds
    left: set[int] = set()
    while time.monotonic() < until:
        waiting = SingleMessage.objects.filter(**WAITING).exclude(pk__in=left).order_by("pk")
        rows = list(waiting.values_list("pk", "owner_id", "team_id", "account_id", "key")[:CHUNK])
        if not rows:
            return True
        groups: dict[tuple[Any, ...], list[int]] = {}
        for pk, *common in rows:
            groups.setdefault(tuple(common), []).append(pk)
        for pks in groups.values():
            left |= _left_of_group(pks, now)
    return False


def _left_of_group(pks: list[int], now: datetime) -> set[int]:
    """Put messages of the same kind into a run, apart from other groups. A message that can never get into one is
    refused. Return those to try again later."""
    try:
        _collect_group(pks, now)
    except UNUSABLE_ERRORS:
        if len(pks) > 1:
            return {one for pk in pks for one in _left_of_group([pk], now)}
        log.exception("a single message cannot be used", extra={"single_message": pks[0]})
        # Its times go too: the driver cannot read all that PostgreSQL stores.
        gone: dict[str, Any] = {"parts": [], "values": None, "earliest": None, "latest": None}
        SingleMessage.objects.filter(**WAITING, pk__in=pks).update(problem=UNUSABLE, **gone)
    except Exception:
        log.exception("single messages could not be put into a run", extra={"single_messages": pks[:10]})
        connection.close_if_unusable_or_obsolete()
        return set(pks)
    return set()


def _collect_group(pks: list[int], now: datetime) -> None:
    """Put messages of the same kind into a run, in one transaction. A second message to the same person goes into
    another run."""
    with transaction.atomic():
        locked = SingleMessage.objects.filter(**WAITING, pk__in=pks).order_by("pk").select_for_update(of=("self",))
        left = list(locked.select_related("account", "recipient", "owner", "team"))
        if left and (problem := access.may_use(left[0].owner, [left[0].account])):
            SingleMessage.objects.filter(pk__in=[one.pk for one in left]).update(problem=problem[:300])
            return
        while left:
            run = _open_run(left[0], now)
            have = set(_recipients_in(run, [one.recipient_id for one in left]))
            joining: dict[int, SingleMessage] = {}
            for one in left:
                if one.recipient_id not in have and len(joining) + run.total < MOST_TARGETS:
                    joining.setdefault(one.recipient_id, one)
            if not joining:
                run = _make_run(left[0], now)
                joining = {one.recipient_id: one for one in reversed(left)}
            _join(run, list(joining.values()), now)
            done = {one.pk for one in joining.values()}
            left = [one for one in left if one.pk not in done]


def _recipients_in(run: Run, recipients: Sequence[int]) -> Iterable[int]:
    """Return who is in the run already, by the index of a recipient's targets."""
    rows = RunTarget.objects.filter(recipient__in=recipients, run=run).order_by()
    return rows.values_list("recipient_id", flat=True)


def _open_run(message: SingleMessage, now: datetime) -> Run:
    """Return the run that the message joins, locked; a new one where there is none."""
    runs = Run.objects.filter(
        reminder__account=message.account_id,
        owner=message.owner_id,
        team=message.team_id,
        collects=message.key,
        archived=False,
        total__lt=MOST_TARGETS,
    )
    found = runs.exclude(status__in=CLOSED).order_by("-pk").values_list("pk", flat=True).first()
    if found is None:
        return _make_run(message, now)
    execute(LOCK_RUNS, {"runs": [found]})
    run = Run.objects.get(pk=found)
    return _make_run(message, now) if run.archived or run.status in CLOSED else run


def _make_run(message: SingleMessage, now: datetime) -> Run:
    """Make a run for messages like this one. It is finished until its first message joins it."""
    window = Window(message.timezone, message.window_start_hour, message.window_end_hour)
    starts = max(now, (message.earliest or now).replace(minute=0, second=0, microsecond=0))
    facts: dict[str, Any] = {
        "reminder": _holder(message),
        "account_id": message.account_id,
        "lanes": [message.account_id],
        "owner_id": message.owner_id,
        "team_id": message.team_id,
        "title": TITLE,
        "action": channel(message.account.channel).action,
        "parts": message.parts,
        "timezone": window.timezone,
        "window_start_hour": window.start_hour,
        "window_end_hour": window.end_hour,
        "window_closes_at": window.closes_on(max(window.next_opening(starts), starts)),
        "auto_resume": True,
        "resume_after_limit": True,
        "collects": message.key,
        "status": Run.Status.SUCCESS,
        "finished_at": now,
    }
    for microseconds in range(1_000):
        try:
            with transaction.atomic():
                run = Run.objects.create(**facts, scheduled_for=starts + timedelta(microseconds=microseconds))
        except IntegrityError as error:
            raise_unless(error, "run_once_per_moment")
            continue  # another run of this moment
        Event.objects.create(run=run, at=now, verb="fired", detail="the first message came")
        with with_token(message.token):
            note("fired", run, message.owner, now, "for single messages")
        return run
    raise RuntimeError("there are a thousand runs of this moment already")


def _holder(message: SingleMessage) -> Reminder:
    """Return the reminder that these runs belong to, because a run needs one. It is archived and never fires."""
    facts = {"owner_id": message.owner_id, "team_id": message.team_id, "account_id": message.account_id}
    kept = Reminder.objects.filter(**facts, title=TITLE, archived=True).order_by("pk").first()
    return kept or Reminder.objects.create(
        **facts, title=TITLE, archived=True, enabled=False, timezone=message.account.timezone
    )


# Their order is that of the messages. `next_attempt_at` keeps one back until its own time; the lane waits for it as for
# a retry.
JOIN = """
INSERT INTO fanout_runtarget (run_id, account_id, recipient_id, position, address, "values", planned_at, expires_at,
                              next_attempt_at, status, error, parts_sent, attempts, claim_epoch, provider_id,
                              error_kind)
SELECT %(run)s, %(account)s, m.recipient_id, %(total)s + row_number() OVER (ORDER BY m.id), p.address, m.values,
       greatest(%(starts)s, m.earliest), m.latest, CASE WHEN m.earliest > %(starts)s THEN m.earliest END,
       'pending', '', 0, 0, 0, '', ''
  FROM fanout_singlemessage m JOIN reminders_recipient p ON p.id = m.recipient_id
 WHERE m.id = ANY(%(messages)s)
 ORDER BY m.id
RETURNING id, recipient_id
"""
JOINED = """
UPDATE fanout_singlemessage m SET run_target_id = t.id, parts = '[]', "values" = NULL
  FROM unnest(%(targets)s::bigint[], %(recipients)s::bigint[]) AS t(id, recipient_id)
 WHERE m.id = ANY(%(messages)s) AND m.recipient_id = t.recipient_id
"""


def _join(run: Run, messages: list[SingleMessage], now: datetime) -> None:
    """Add the messages to the run, and let its lane send them."""
    starts = max(now, run.scheduled_for)
    opens = run.window.next_opening(starts)
    lanes = carry_out(transitions.reopen_for_account(run.pk, run.account_id, run.window.closes_on(opens), False, now))
    ids = [message.pk for message in messages]
    facts = {"run": run.pk, "account": run.account_id, "total": run.total, "starts": starts, "messages": ids}
    rows = execute(JOIN, facts)
    columns = {"targets": [row["id"] for row in rows], "recipients": [row["recipient_id"] for row in rows]}
    execute(JOINED, columns | {"messages": ids})
    kinds = sorted({*run.kinds, *(message.recipient.kind for message in messages)})
    if kinds != run.kinds:
        Run.objects.filter(pk=run.pk).update(kinds=kinds)
    run.refresh_from_db()
    wake_lanes_at(dict.fromkeys(lanes, starts), now)


# --- afterwards -------------------------------------------------------------------------------------------------


def cancel(message: SingleMessage, user: Any, now: datetime) -> ControlResult:
    """Keep a message from being sent, unless it is on its way or was sent already."""
    access.require(user, message)
    with transaction.atomic():
        waiting = SingleMessage.objects.filter(pk=message.pk, **WAITING)
        if waiting.update(problem=CANCELED, parts=[], values=None):
            note("canceled", message, user, now)
            return ControlResult(True, "The message will not be sent.")
        message.refresh_from_db()
        target = RunTarget.objects.filter(pk=message.run_target_id or 0).first()
        if target is None:
            return ControlResult(False, message.problem or "The message is no longer there.")
        execute(LOCK_RUNS, {"runs": [target.run_id]})
        if not carry_out(transitions.take_out([target.pk], f"{CANCELED}{by_token()}", now)):
            target.refresh_from_db()
            return ControlResult(False, f"The message is {target.status} already.")
        note("canceled", message, user, now)
    return ControlResult(True, "The message will not be sent.")


def forget(now: datetime) -> int:
    """Delete what was handed in long ago; the targets of the runs stay."""
    old = SingleMessage.objects.filter(accepted_at__lt=now - SingleMessage.KEPT_FOR).exclude(**WAITING)
    return SingleMessage.objects.filter(pk__in=list(old.values_list("pk", flat=True)[:50_000])).delete()[0]
