"""Freeze a reminder into its run: copy its text and settings, decide who is admitted, plan who sends when, and copy the
targets with that plan.

A reminder with a million targets takes a minute to copy. In one transaction that would pass the task's time limit, be
rolled back, and come first again every minute. So a large run is made at once, with the status "being prepared", and a
task of its own copies the targets in chunks. Each chunk is durable; the next task goes on with what the run lacks, and
then the run is queued like any other.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, Protocol

from django.db import connection, transaction
from django.db.models import Count, QuerySet
from django_q.tasks import async_task

from accounts.models import Account
from fanout.database import carry_out, execute
from fanout.lanes import account_limits
from fanout.lanes.chats import new_recipients, pending_new_chats, scaled_to_all
from fanout.lanes.lane_rows import wake_lanes_at
from fanout.models import Event, Run, RunTarget, Tally
from fanout.plans.audience import living, unanswered, uncopied
from fanout.plans.follow_up_steps import step_moments
from fanout.plans.plan import Copied, Planned, PlannedTarget, plan
from fanout.plans.projection import AccountSnapshot
from fanout.plans.queue import account_snapshots
from fanout.rules import gates
from fanout.rules.follow_up_limits import Prospect, not_admitted, not_by_itself, without_number
from fanout.runs import follow_ups, texts, transitions
from reminders import placeholders
from reminders.models import MessagePart, Reminder
from reminders.placeholders import VALUES_SQL, names_in, required_in
from reminders.targets import turns

# --- what a run copies of its reminder -------------------------------------------------------------------


def frozen(reminder: Reminder, scheduled_for: datetime) -> dict[str, Any]:
    """Return the fields that a run copies of its reminder, so that later edits change nothing in it."""
    return {
        "reminder": reminder,
        "account": reminder.account,
        "lanes": [reminder.account_id],
        "owner_id": reminder.owner_id,
        "team_id": reminder.team_id,
        "title": reminder.title,
        "action": reminder.run_action,
        "scheduled_for": scheduled_for,
        "parts": [frozen_part(reminder, message) for message in reminder.messages.all()],
        "reply_parts": [frozen_part(reminder, part) for part in reminder.reply_parts.all()],
        "timezone": reminder.timezone,
        "window_start_hour": reminder.delivery_window_start_hour,
        "window_end_hour": reminder.delivery_window_end_hour,
        "window_closes_at": reminder.window.closes_on(scheduled_for),
        "auto_resume": reminder.auto_resume,
        **frozen_steps(reminder, scheduled_for),
        "resume_after_limit": reminder.resume_after_limit,
        "follow_up": reminder.follow_up,
        "urgency": reminder.urgency,
    }


def frozen_steps(reminder: Reminder, scheduled_for: datetime) -> dict[str, Any]:
    """Return the follow-ups that a run keeps, each with its days and parts, and when the first is due."""
    if not reminder.follow_up_days:
        return {}
    parts: dict[int, list[dict[str, Any]]] = {}
    for part in reminder.follow_up_parts.all():
        parts.setdefault(part.step, []).append(frozen_part(reminder, part))
    steps = [
        {"days": days, "parts": parts[number]}
        for number, days in enumerate(reminder.follow_up_days, start=1)
        if number in parts
    ]
    moments = step_moments(steps, scheduled_for, reminder.timezone)
    return {"steps": steps, "next_step_at": moments[0] if moments else None}


def frozen_part(reminder: Reminder, message: MessagePart) -> dict[str, Any]:
    """Return the part as a run keeps it."""
    return placeholders.frozen(written_part(reminder, message))


def written_part(reminder: Reminder, message: MessagePart) -> dict[str, Any]:
    """Return the part as it was written, with its placeholders."""
    return written(message) | ({"subject": reminder.subject} if reminder.subject else {})


class Part(Protocol):
    """A part of a reminder, stored or not."""

    @property
    def kind(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def html(self) -> str: ...
    @property
    def template(self) -> Any: ...
    @property
    def media(self) -> Any: ...


def written(message: Part) -> dict[str, Any]:
    """Return the part without the subject, which is the reminder's."""
    part: dict[str, Any] = {"kind": message.kind, "text": message.text}
    if message.html:
        part["html"] = message.html
    if message.template:
        part["template"] = message.template
    if message.media is not None:
        file = message.media
        part["media"] = {
            "id": file.pk,
            "sha256": file.sha256,
            "filename": file.filename,
            "mime": file.mime,
            "size": file.size,
            "path": file.file.name,
        }
    return part


# --- its targets, at once or in chunks -------------------------------------------------------------------

CHUNK = 10_000
WORK_FOR = 35.0  # seconds: well within the task's time limit; the next task goes on


def freeze_targets(run: Run, now: datetime, snapshots: Snapshots | None = None) -> None:
    """Admit, plan and copy all targets of the reminder, in the caller's transaction."""
    planned = list(plan_targets(run, now, snapshots))
    freeze(run, planned, now)
    note_refused(run, planned, now)


def enqueue_preparing() -> None:
    """Start the task that prepares large runs. Twice does no harm: of two tasks at the same run one stops."""
    async_task("fanout.ops.tasks.prepare_runs", cluster="main", task_name="prepare-runs")


def unprepared() -> list[int]:
    return list(Run.objects.filter(status=Run.Status.PREPARING).order_by("scheduled_for").values_list("pk", flat=True))


def prepare(run_id: int, now: datetime) -> bool:
    """Copy chunks for a while. Returns False when there is more to copy."""
    run = Run.objects.select_related("reminder", "account").filter(pk=run_id, status=Run.Status.PREPARING).first()
    if run is None:
        return True
    until = time.monotonic() + WORK_FOR
    planned = plan_targets(run, now)
    while chunk := list(islice(planned, CHUNK)):
        if not prepare_chunk(run, chunk, now):
            return True
        if time.monotonic() >= until:
            return False
    if uncopied(run).exists():  # added meanwhile
        return False
    _queue_prepared(run, now)
    return True


def prepare_chunk(run: Run, chunk: list[PlannedTarget], now: datetime) -> bool:
    """Copy one chunk in its own transaction. Returns False if the run was canceled, or another worker is preparing it:
    our plan would then belong to other moments."""
    with transaction.atomic():
        if not _as_we_left_it(run).select_for_update().exists():
            return False
        freeze(run, chunk, now)
        note_refused(run, chunk, now)
    return True


def _queue_prepared(run: Run, now: datetime) -> None:
    with transaction.atomic():
        if not run.pending and _as_we_left_it(run).update(status=Run.Status.QUEUED):
            carry_out(transitions.skip(run.pk, now))
        elif _as_we_left_it(run).update(status=Run.Status.QUEUED):
            # Also where the window is over by now: the lane then skips the targets, chunk by chunk.
            wake_lanes_at(dict.fromkeys(run.lanes, run.scheduled_for), now)


def _as_we_left_it(run: Run) -> QuerySet[Run]:
    return Run.objects.filter(pk=run.pk, status=Run.Status.PREPARING, total=run.total)


# --- 1: who is admitted ----------------------------------------------------------------------------------

FIXED = "SELECT recipient_id, position, id FROM reminders_remindertarget WHERE reminder_id = %s"
# Behind the fixed targets.
LIVING = " UNION ALL SELECT m.id, NULL, m.id FROM ({members}) AS m(id)"
PEOPLE = """
SELECT p.id, p.kind, coalesce(s.reason, ''), p.status, p.follow_up_attempts, p.attempts_reset_at, p.cooldown_until,
       p.replied_at, p.limited
  FROM ({targets}) AS t(recipient_id, position, id) JOIN reminders_recipient p ON p.id = t.recipient_id
  LEFT JOIN reminders_suppression s ON s.address = p.address AND (s.expires_at IS NULL OR s.expires_at > %s)
 ORDER BY t.position, t.id
"""
Turns = list[int | None]  # the index of the account that sends to each target
Whys = list[str]  # why a target gets nothing; empty where it does


def admitted(run: Run, senders: Sequence[Account], now: datetime) -> tuple[list[int], Turns, Whys]:
    """Return every recipient of the reminder that the run lacks, in order, with the sender's index and the reason of a
    refusal. The caller's transaction keeps others from filling the same queues meanwhile."""
    recipients, kinds, whys = _people(run, now)
    if run.step:
        each = _as_before(run, recipients, whys, senders)
        _keep_within_the_queues(run, each, whys, [account.pk for account in senders])
        return recipients, each, whys
    order = iter(turns((kind for kind, why in zip(kinds, whys) if not why), senders))
    each = [None if why else next(order) for why in whys]
    if run.follow_up:
        _keep_within_the_queues(run, each, whys, [account.pk for account in senders])
    return recipients, each, whys


def _as_before(run: Run, recipients: Sequence[int], whys: Whys, senders: Sequence[Account]) -> Turns:
    """Return the sender of each follow-up: the account that the person knows from the message before."""
    rows = RunTarget.objects.filter(run=run.follows_id).order_by().values_list("recipient_id", "account_id")
    account_of, places = dict(rows), {account.pk: n for n, account in enumerate(senders)}
    return [None if why else places.get(account_of[one]) for one, why in zip(recipients, whys)]


def senders_of(run: Run) -> list[Account]:
    """Return the accounts that send it: those of the reminder, or of the run that a follow-up follows."""
    if run.follows is None:
        return run.reminder.senders
    lanes = Account.objects.filter(pk__in=run.follows.lanes).in_bulk()
    return [lanes[pk] for pk in run.follows.lanes if pk in lanes]


def _people(run: Run, now: datetime) -> tuple[list[int], list[str], Whys]:
    """Return the recipients, the kind of each address, and why it may not receive anything."""
    recipients, kinds, whys, limits = [], [], [], follow_ups.limits()
    targets, parameters = _targets(run)
    # Those whom the run has already, and fixed targets who are in the segment, too. Kept apart here and not by the
    # database: its planner knows nothing of a new run's rows, and may compare each person with each of them.
    met = _copied_recipients(run)
    with connection.cursor() as cursor:
        cursor.execute(PEOPLE.format(targets=targets), [*parameters, now])
        for recipient, kind, suppressed, *person in cursor:
            if recipient in met:
                continue
            met.add(recipient)
            recipients.append(recipient)
            prospect = Prospect(*person)
            gate = gates.may_receive(gates.TargetFacts(suppressed, prospect, run.follow_up), limits, now)
            kinds.append(kind)
            why = gate.why if isinstance(gate, gates.Refuse) else ""
            whys.append(why or (not_by_itself(prospect, limits, now) if run.step else ""))
    return recipients, kinds, whys


def _copied_recipients(run: Run) -> set[int]:
    """Return the recipients that the run has. By their ids: editing the reminder meanwhile moves positions."""
    return set(run.targets.order_by().values_list("recipient_id", flat=True)) if run.total else set()


def _targets(run: Run) -> tuple[str, list[Any]]:
    """Return SQL for the fixed targets of its reminder and for who is in the segment at its moment, or for those who
    have not replied to the run that it follows, with the parameters."""
    reminder = run.reminder
    if run.follows_id is not None:
        rows = unanswered(run.follows_id, run.scheduled_for).order_by().values_list("recipient_id", "position", "pk")
        sql, values = rows.query.sql_with_params()
        return sql, list(values)
    if reminder.segment_id is None:
        return FIXED, [reminder.pk]
    members, parameters = living(reminder, run.scheduled_for).order_by().values("pk").query.sql_with_params()
    return FIXED + LIVING.format(members=members), [reminder.pk, *parameters]


def _keep_within_the_queues(run: Run, each: Turns, whys: Whys, accounts: Sequence[int]) -> None:
    """Refuse what does not fit into an account's queue at this urgency (backpressure)."""
    limits = account_limits.queue_limits()
    account_limits.lock_queues(accounts)
    queued = account_limits.queued(accounts, limits.full)
    for n, sender in enumerate(each):
        if sender is not None and (why := not_admitted(queued[accounts[sender]], run.urgency, limits)):
            each[n], whys[n] = None, why
        elif sender is not None:
            queued[accounts[sender]] += 1


# --- 2: who sends when -----------------------------------------------------------------------------------

Snapshots = dict[tuple[int, str], AccountSnapshot]  # by account and action


def snapshots_of(reminders: list[Reminder], now: datetime) -> Snapshots:
    """Return the snapshots of these reminders' accounts, by account and action, read together."""
    senders: dict[str, dict[int, Account]] = {}
    for reminder in reminders:
        senders.setdefault(reminder.run_action, {}).update({account.pk: account for account in reminder.senders})
    return {
        (account, action): snapshot
        for action, accounts in senders.items()
        for account, snapshot in account_snapshots(list(accounts.values()), now, action).items()
    }


def plan_targets(run: Run, now: datetime, snapshots: Snapshots | None = None) -> Iterator[PlannedTarget]:
    """Return account and moment for every admitted target of the reminder that the run lacks: each through a sender
    that reaches it, behind that sender's queue."""
    senders = senders_of(run)
    taken = _take_snapshots(run, senders, now, snapshots or {})
    ahead = [snapshot.before(run.scheduled_for, run.pk) for snapshot in taken]
    recipients, turns, whys = admitted(run, senders, now)
    planned = plan(
        turns,
        ahead,
        run.window,
        now,
        starts=max(now, run.scheduled_for),
        parts=len(run.parts),
        seed=run.pk,
        copied=_copied(run, _limited(ahead, now)),
        follow_up=run.follow_up,
        new=_new_chats(recipients, turns, ahead, now),
    )
    whose = (Planned(None, None, why) if why else target for target, why in zip(planned, whys))
    return zip(recipients, whose)


def _take_snapshots(run: Run, senders: list[Account], now: datetime, snapshots: Snapshots) -> list[AccountSnapshot]:
    """Return the senders' snapshots. Each is good for one run: the next run comes behind it and needs a fresh one."""
    taken = [snapshots.pop((account.pk, run.action), None) for account in senders]
    if all(taken):
        return [snapshot for snapshot in taken if snapshot is not None]
    fresh = account_snapshots(senders, now, run.action)
    return [fresh[account.pk] for account in senders]


def _limited(snapshots: Sequence[AccountSnapshot], now: datetime) -> list[int]:
    """Return the accounts whose new chats have limits."""
    return [snapshot.account_id for snapshot in snapshots if snapshot.new_chats.limited(now)]


def _new_chats(
    recipients: Sequence[int], turns: Sequence[int | None], snapshots: Sequence[AccountSnapshot], now: datetime
) -> set[int]:
    """Return the indexes of recipients that would be new chats of an account whose new chats have limits."""
    limited = {n for n, snapshot in enumerate(snapshots) if snapshot.new_chats.limited(now)}
    asked = {n: (recipients[n], snapshots[turn].account_id) for n, turn in enumerate(turns) if turn in limited}
    new = new_recipients(list(asked.values()))
    return {n for n, (recipient, _) in asked.items() if recipient in new}


def _copied(run: Run, limited: Sequence[int]) -> dict[int, Copied]:
    """Count the targets that each account has to send to already."""
    if not run.total:
        return {}
    pending = run.targets.filter(status=RunTarget.Status.PENDING).order_by()
    targets = dict(pending.values_list("account_id").annotate(n=Count("pk")))
    new = pending_new_chats([(run.pk, account) for account in targets if account in limited])
    return {account: Copied(n, scaled_to_all(new.get((run.pk, account), 0), n)) for account, n in targets.items()}


# --- 3: the copy -----------------------------------------------------------------------------------------

# At creation the plan goes in with the targets: rewriting 100,000 fresh rows took five seconds more. A target that has
# left the reminder since it was planned is left out, unless its segment may have brought it, and one that the run has
# already stays as it is. Positions go on where the last chunk ended.
FREEZE = f"""
INSERT INTO fanout_runtarget (run_id, account_id, recipient_id, position, address, status, parts_sent, attempts,
                              planned_at, claim_epoch, provider_id, error_kind, error, settled_at, claimed_at, values)
SELECT %(run)s, coalesce(p.account_id, %(account)s), p.recipient_id,
       %(total)s + row_number() OVER (ORDER BY p.n), r.address,
       CASE WHEN p.why <> '' THEN 'skipped' WHEN l.address IS NOT NULL THEN 'unconfirmed' ELSE 'pending' END,
       coalesce(l.part, 0), CASE WHEN l.address IS NULL THEN 0 ELSE 1 END, p.at, 0, '',
       CASE WHEN l.address IS NULL THEN '' ELSE 'unknown' END,
       CASE WHEN p.why = '' AND l.address IS NOT NULL THEN %(lost)s ELSE p.why END,
       CASE WHEN p.why <> '' THEN %(now)s END, l.claimed_at,
       CASE WHEN %(names)s::text[] <> '{{}}' THEN {VALUES_SQL} END
  FROM unnest(%(recipients)s::bigint[], %(accounts)s::bigint[], %(moments)s::timestamptz[], %(whys)s::text[])
       WITH ORDINALITY AS p(recipient_id, account_id, at, why, n)
  LEFT JOIN reminders_remindertarget t ON t.reminder_id = %(reminder)s AND t.recipient_id = p.recipient_id
  JOIN reminders_recipient r ON r.id = p.recipient_id
  -- what went out in a run of this moment that the database has lost
  LEFT JOIN (SELECT DISTINCT ON (address) address, part, claimed_at FROM fanout_lostclaim
              WHERE reminder_id = %(reminder)s AND scheduled_for = %(moment)s AND NOT target_found
              ORDER BY address, part DESC, claimed_at DESC) AS l ON l.address = r.address
 WHERE t.id IS NOT NULL OR %(living)s
 ORDER BY p.n
ON CONFLICT DO NOTHING
"""

# A text with a gap is worse than none. Only targets of this chunk that lack a value are changed.
SKIP_LACKING = """
UPDATE fanout_runtarget t SET status = 'skipped', settled_at = %(now)s, error = (
         SELECT 'no value for ' || string_agg('{' || name || '}', ', ' ORDER BY name) || ', which has no default'
           FROM unnest(%(required)s::text[]) AS needed(name) WHERE NOT t.values ? name)
 WHERE t.run_id = %(run)s AND t.status = 'pending' AND t.position > %(total)s AND NOT t.values ?& %(required)s::text[]
"""


# Counters as the insert has left them: it is in the same transaction.
SET_LANES = """
UPDATE fanout_run r
   SET lanes = %(lanes)s::bigint[],
       kinds = ARRAY(SELECT k.kind COLLATE "C" FROM (
                       SELECT unnest(r.kinds) AS kind
                        UNION SELECT p.kind FROM reminders_recipient p WHERE p.id = ANY(%(recipients)s::bigint[])) AS k
                      ORDER BY 1)
 WHERE r.id = %(run)s
RETURNING r.lanes, r.kinds, r.total, r.pending, r.skipped
"""


def freeze(run: Run, planned: Sequence[PlannedTarget], now: datetime) -> None:
    """Copy these targets of the reminder into the run, with their plan; the accounts become lanes of the run. In the
    caller's transaction."""
    recipients, accounts = [recipient for recipient, _ in planned], [target.account_id for _, target in planned]
    execute(
        FREEZE,
        {
            "run": run.pk,
            "account": run.account_id,
            "reminder": run.reminder_id,
            "living": run.reminder.segment_id is not None or run.follows_id is not None,
            "total": run.total,
            "recipients": recipients,
            "accounts": accounts,
            "moments": [target.at for _, target in planned],
            "whys": [target.why for _, target in planned],
            "now": now,
            "moment": run.scheduled_for,
            "lost": texts.MAY_HAVE_GONE_OUT,
            # Those of Message 2 too: its targets get the same values.
            "names": names_in([*run.parts, *run.reply_parts]),
        },
    )
    if required := required_in(run.parts):
        execute(SKIP_LACKING, {"run": run.pk, "total": run.total, "now": now, "required": required})
    lanes = {account for account in accounts if account is not None}.union(run.lanes if run.total else ())
    ordered = sorted(lanes or {run.account_id})  # a run that sends nothing needs a lane to end it
    (stored,) = execute(SET_LANES, {"run": run.pk, "lanes": ordered, "recipients": recipients})
    for name, value in stored.items():
        setattr(run, name, value)


def note_refused(run: Run, planned: Sequence[PlannedTarget], now: datetime) -> None:
    """Write a line into the run's timeline, and the account's tally."""
    reasons = Counter(target.why for _, target in planned if target.why)
    if not reasons:
        return
    Event.objects.create(run=run, at=now, verb="skipped at once", detail=texts.left_out_counts(reasons))
    if run.follow_up:
        counted: dict[tuple[int, str, str], int] = {
            (run.account_id, Tally.What.REFUSED, why): n for why, n in _without_numbers(reasons).items()
        }
        if any(why.startswith(("backpressure", "queue_full")) for why in reasons):
            counted[run.account_id, Tally.What.BACKPRESSURE, ""] = 1
        follow_ups.tally(counted)


def _without_numbers(reasons: Counter[str]) -> Counter[str]:
    counted: Counter[str] = Counter()
    for why, n in reasons.items():
        counted[without_number(why)] += n
    return counted
