"""A reminder that is due becomes a run with frozen parts and targets. Idempotent per reminder and moment."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import IntegrityError, connection, transaction
from django.db.models import Count, F, OuterRef, QuerySet, Subquery
from django.db.models.functions import Greatest
from django_q.tasks import async_task

from accounts.models import Account
from fanout.database import carry_out, execute
from fanout.lanes import account_limits
from fanout.lanes.new_chats import new_recipients, pending_new_chats, scaled_to_all
from fanout.lanes.telling import tell_of_reminder
from fanout.lanes.wake import wake_lanes_at
from fanout.models import Event, Run, RunTarget
from fanout.plans.owed import AccountPlan
from fanout.plans.planning import Copied, Planned, PlannedTarget, plan
from fanout.plans.queue import account_plans
from fanout.runs import transitions
from fanout.runs.admission import admitted, note_refused
from fanout.runs.freezing import freeze
from reminders import placeholders, usable
from reminders.models import MessagePart, Reminder
from reminders.moments import closing_time, duration, moment, wall_clock

log = logging.getLogger("crier.firing")

Plans = dict[tuple[int, str], AccountPlan]  # by account and action

AHEAD = timedelta(seconds=60)  # runs are made this long before they start, so that they start on their second
MISSED_AT_MOST = 100  # firings of one reminder recorded after a downtime
RECENT = timedelta(hours=2)
# Fired in one transaction, so that what they ask for is read together; no more than a task has time for.
MOST_REMINDERS = 25
MOST_TARGETS = 2_000
READ_TOGETHER = ("further_senders", "messages__media", "reply_parts__media", "owner__groups")
LATELY = timedelta(hours=24)  # whoever fires a reminder again within it is told what went out
LARGE = 20_000  # targets above which a run is prepared by a task of its own, in chunks
SET_ASIDE_AFTER = 3  # attempts that ended the worker; the first of them may have been another reminder's doing

ENDS_WORKERS = (
    "It was switched off, because making a run of it stopped Crier's worker several times and held up other reminders. "
    "Look at its text, recipients and schedule, then switch it on again on its page."
)
TRIED_AGAIN = "It is tried again every minute; an administrator finds the cause in the log of the cluster main."


@dataclass(slots=True)
class Together:
    """What the firings of one transaction share."""

    plans: Plans = field(default_factory=dict)  # what was read of accounts already
    due: dict[int, datetime] = field(default_factory=dict)  # lanes to wake at the end, each for its first moment

    def note_due(self, lanes: Iterable[int], at: datetime) -> None:
        self.due |= {lane: min(at, self.due.get(lane, at)) for lane in lanes}


def fire_due(now: datetime) -> list[Run]:
    """Make the runs that are due within the next minute, and account for those that were missed; of reminders whose
    last firing ended well."""
    due = _due(now).filter(firing_attempts=0, firing_problem="").order_by("next_fire_at", "pk")
    sizes = due.annotate(size=Count("targets")).values_list("pk", "size")
    return [run for chunk in chunked(sizes) for run in _fire_chunk(chunk, now)]


def fire_suspects(now: datetime) -> list[Run]:
    """The same for the others, one by one: reminders that could not be fired, and those that a worker had begun to fire
    when it ended. One of them may have ended it, and would end this one: those with the fewest attempts come first, so
    that it holds up the others no longer. A reminder with too many attempts is set aside."""
    suspects = _due(now).exclude(firing_attempts=0, firing_problem="").order_by("firing_attempts", "next_fire_at", "pk")
    runs: list[Run] = []
    for pk, attempts in list(suspects.values_list("pk", "firing_attempts")):
        if attempts < SET_ASIDE_AFTER:
            runs += _fire_chunk([pk], now)
        else:
            _set_aside(pk, now)
    return runs


def _due(now: datetime) -> QuerySet[Reminder]:
    return Reminder.objects.filter(enabled=True, next_fire_at__lte=now + AHEAD)


def _locked(reminders: QuerySet[Reminder]) -> QuerySet[Reminder]:
    """Without those that another worker is firing or somebody is saving: they have their turn in the next minute."""
    return reminders.select_for_update(of=("self",), no_key=True, skip_locked=True)


def chunked(sizes: Iterable[tuple[int, int]]) -> Iterator[list[int]]:
    """Reminders, each with the number of its targets, in groups that are fired in one transaction. A large run only
    begins there: its targets do not count."""
    chunk: list[int] = []
    targets = 0
    for pk, size in sizes:
        copied = size if size <= LARGE else 0
        if chunk and (len(chunk) == MOST_REMINDERS or targets + copied > MOST_TARGETS):
            yield chunk
            chunk, targets = [], 0
        chunk.append(pk)
        targets += copied
    if chunk:
        yield chunk


def _fire_chunk(pks: list[int], now: datetime) -> list[Run]:
    """One broken reminder must not stop the others: then they are fired one by one."""
    begun = _begin(pks, now)
    if not begun:
        return []
    try:
        return fire_if_due(begun, now)
    except Exception as error:
        if not connection.is_usable():
            raise  # the database went away: no reminder has done that
        # It has ended, if badly.
        Reminder.objects.filter(pk__in=begun).update(firing_attempts=Greatest(F("firing_attempts") - 1, 0))
        if len(begun) == 1:
            log.exception("a reminder could not be fired", extra={"reminder": begun[0]})
            _note_problem(begun[0], error, now)
            return []
    return [run for pk in begun for run in _fire_chunk([pk], now)]


def _begin(pks: list[int], now: datetime) -> list[int]:
    """Note the attempt, durably: if it ends the worker, the next one knows which reminders were being fired. Returns
    those that are still due."""
    with transaction.atomic():
        locked = set(_locked(_due(now).filter(pk__in=pks).order_by("pk")).values_list("pk", flat=True))
        Reminder.objects.filter(pk__in=locked).update(firing_attempts=F("firing_attempts") + 1)
    return [pk for pk in pks if pk in locked]


FIRED = """
UPDATE reminders_reminder r SET next_fire_at = f.at, firing_attempts = 0, firing_problem = ''
  FROM unnest(%(reminders)s::bigint[], %(times)s::timestamptz[]) AS f(id, at) WHERE r.id = f.id
"""


def fire_if_due(pks: list[int], now: datetime) -> list[Run]:
    """The firings of these reminders that are due. They are read under a lock: whoever disabled or rescheduled one
    since it was listed has had the last word."""
    with transaction.atomic():  # all of them and the next times, or none: a kill in between loses no firing
        locked = _locked(_due(now).filter(pk__in=pks).order_by("pk")).select_related("account", "owner")
        reminders = sorted(locked.prefetch_related(*READ_TOGETHER), key=lambda r: pks.index(r.pk))
        account_limits.lock_queues({account.pk for r in reminders if r.follow_up for account in r.senders})
        together = Together(_plans_of(reminders, now))
        runs = [run for reminder in reminders for run in _fire_moments(reminder, now, together)]
        times = [reminder.next_fire_at for reminder in reminders]
        execute(FIRED, {"reminders": [reminder.pk for reminder in reminders], "times": times})
        wake_lanes_at(together.due, now)
        return runs


def _set_aside(pk: int, now: datetime) -> None:
    """Switch it off and tell its owner. Nothing of it is looked at, because that is what ended the workers."""
    with transaction.atomic():
        suspects = _due(now).filter(pk=pk, firing_attempts__gte=SET_ASIDE_AFTER)
        reminder = _locked(suspects).first()
        if reminder is None:
            return
        reminder.enabled, reminder.firing_attempts, reminder.firing_problem = False, 0, ENDS_WORKERS
        reminder.save(update_fields=["enabled", "firing_attempts", "firing_problem", "updated_at"])
        due_at = moment(reminder.next_fire_at or now, reminder.timezone)
        body = f"“{reminder.title}”: {ENDS_WORKERS} Nothing was sent {due_at}."
        execute(*tell_of_reminder(reminder, "Reminder switched off", body, now))
    log.error("a reminder was set aside: firing it ended its worker", extra={"reminder": pk})


def _note_problem(pk: int, error: Exception, now: datetime) -> None:
    """Show why it could not be fired, and tell its owner once."""
    problem = f"It could not be fired because of an error in Crier ({type(error).__name__}). {TRIED_AGAIN}"
    with transaction.atomic():
        if Reminder.objects.filter(pk=pk).exclude(firing_problem=problem).update(firing_problem=problem):
            reminder = Reminder.objects.get(pk=pk)
            body = f"“{reminder.title}”: {problem}"
            execute(*tell_of_reminder(reminder, "Reminder could not be fired", body, now))


def _plans_of(reminders: list[Reminder], now: datetime) -> Plans:
    """What the accounts of these reminders owe, by account and action, read together."""
    senders: dict[str, dict[int, Account]] = {}
    for reminder in reminders:
        senders.setdefault(reminder.run_action, {}).update({account.pk: account for account in reminder.senders})
    return {
        (account, action): plan
        for action, accounts in senders.items()
        for account, plan in account_plans(list(accounts.values()), now, action).items()
    }


def _fire_moments(reminder: Reminder, now: datetime, together: Together) -> list[Run]:
    """Of several missed firings only the last is made up for: nobody wants the same text ten times because the
    machine was off."""
    moments = _due_moments(reminder, now)
    missed = [moment for moment in moments if moment < now - AHEAD]
    note = "Missed: Crier did not run or could not fire it in time; a later firing of the same reminder took its place."
    runs = [_make_run(reminder, moment, now, together, skip=note) for moment in missed[:-1][:MISSED_AT_MOST]]
    runs += [_make_run(reminder, moment, now, together) for moment in [*missed[-1:], *moments[len(missed) :]]]
    return [run for run in runs if run is not None]


def _due_moments(reminder: Reminder, now: datetime) -> list[datetime]:
    """The first of those that were missed, so many that they are worth recording, and all of the last two hours."""
    moments: list[datetime] = []
    while reminder.next_fire_at is not None and reminder.next_fire_at <= now + AHEAD:
        moments.append(reminder.next_fire_at)
        long_ago = len(moments) >= MISSED_AT_MOST and reminder.next_fire_at < now - RECENT
        reminder.plan_next(after=_last_before(reminder, now) if long_ago else reminder.next_fire_at)
    return moments


def _last_before(reminder: Reminder, now: datetime) -> datetime:
    """A moment, never before the one already reached, from which on the next firing is the last one missed or is close
    to it. Doubling the step keeps it to a few look-ups, however long the machine was off."""
    step = RECENT
    while reminder.next_fire_at is not None and now - step > reminder.next_fire_at:
        following = reminder.firing_after(now - step)
        if following is not None and following <= now - AHEAD:
            return now - step
        step *= 2
    assert reminder.next_fire_at is not None
    return reminder.next_fire_at


def make_run(reminder: Reminder, scheduled_for: datetime, now: datetime, actor: Any = None) -> Run | None:
    """None: this moment already has its run."""
    together = Together()
    with transaction.atomic():
        run = _make_run(reminder, scheduled_for, now, together, actor)
        wake_lanes_at(together.due, now)
    return run


def _make_run(
    reminder: Reminder, scheduled_for: datetime, now: datetime, together: Together, actor: Any = None, skip: str = ""
) -> Run | None:
    """The same in the caller's transaction; the lanes are woken at its end."""
    skip = skip or reason_to_skip(reminder)
    try:
        with transaction.atomic():
            run = Run.objects.create(**frozen(reminder, scheduled_for), **(_skipped(skip, now) if skip else {}))
            Event.objects.create(run=run, actor=actor, at=now, verb="fired", detail=skip)
            if not skip:
                _send_off(run, reminder, now, together)
    except IntegrityError:
        return None
    return run


def _skipped(reason: str, now: datetime) -> dict[str, Any]:
    return {"status": Run.Status.SKIPPED, "error_summary": reason, "finished_at": now}


def _send_off(run: Run, reminder: Reminder, now: datetime, together: Together) -> None:
    """Freeze the targets with their plan and note the lanes to wake; where the window is over, fail at once. A large
    run only begins here: see `preparing`."""
    if reminder.targets.count() > LARGE:
        run.status = Run.Status.PREPARING
        run.save(update_fields=["status"])
        transaction.on_commit(enqueue_preparing)
        return
    planned = list(plan_targets(run, now, together.plans))
    freeze(run, planned, now)
    note_refused(run, planned, now)
    if run.window_closes_at <= now:
        carry_out(transitions.fail_unstarted(run.pk, now))
        run.refresh_from_db()
    else:
        together.note_due(run.lanes, run.scheduled_for)


def enqueue_preparing() -> None:
    """Twice does no harm: of two tasks at the same run one stops."""
    async_task("fanout.ops.tasks.prepare_runs", cluster="main", task_name="prepare-runs")


def plan_targets(run: Run, now: datetime, plans: Plans | None = None) -> Iterator[PlannedTarget]:
    """Account and moment for every target of the reminder that the run has not got yet and that is admitted: each
    through a sender that reaches it, behind what that sender owes."""
    senders = run.reminder.senders
    ahead = [plan.before(run.scheduled_for, run.pk) for plan in _take_plans(run, senders, now, plans or {})]
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


def _take_plans(run: Run, senders: list[Account], now: datetime, plans: Plans) -> list[AccountPlan]:
    """Each is good for one run: the next one comes behind it, and is planned with what the account owes then."""
    taken = [plans.pop((account.pk, run.action), None) for account in senders]
    if all(taken):
        return [plan for plan in taken if plan is not None]
    fresh = account_plans(senders, now, run.action)
    return [fresh[account.pk] for account in senders]


def _limited(plans: Sequence[AccountPlan], now: datetime) -> list[int]:
    """The accounts whose new chats have limits."""
    return [plan.account_id for plan in plans if plan.new_chats.limited(now)]


def _new_chats(
    recipients: Sequence[int], turns: Sequence[int | None], plans: Sequence[AccountPlan], now: datetime
) -> set[int]:
    """The places of those to whom an account whose new chats have limits would write for the first time."""
    limited = {n for n, plan in enumerate(plans) if plan.new_chats.limited(now)}
    asked = {n: (recipients[n], plans[turn].account_id) for n, turn in enumerate(turns) if turn in limited}
    new = new_recipients(list(asked.values()))
    return {n for n, (recipient, _) in asked.items() if recipient in new}


def _copied(run: Run, limited: Sequence[int]) -> dict[int, Copied]:
    """How many targets each account has to send to already."""
    if not run.total:
        return {}
    pending = run.targets.filter(status=RunTarget.Status.PENDING).order_by()
    targets = dict(pending.values_list("account_id").annotate(n=Count("pk")))
    new = pending_new_chats([(run.pk, account) for account in targets if account in limited])
    return {account: Copied(n, scaled_to_all(new.get((run.pk, account), 0), n)) for account, n in targets.items()}


def reason_to_skip(reminder: Reminder) -> str:
    senders = reminder.senders
    if not any(account.status == Account.Status.ACTIVE for account in senders):
        account = senders[0]
        reason = f": {account.status_reason}" if account.status_reason else ""
        return f"The account {account.label} is {account.status}{reason}."
    if problem := usable.problem(reminder, reminder.owner):
        return f"Its owner may not send this any more. {problem}"
    if not reminder.targets.exists():
        return "The reminder has no targets."
    if not reminder.messages.all():
        return "The reminder has no message."
    return ""


# --- asked before it is fired by hand ---------------------------------------------------------------------------


def last_runs(reminders: Sequence[int]) -> dict[int, Run]:
    """The newest run of each reminder; tests and Message 2 are none of its own."""
    own = Run.objects.filter(reminder=OuterRef("pk"), answers=None, is_test=False).order_by("-scheduled_for", "-pk")
    newest = Reminder.objects.filter(pk__in=reminders).values_list(Subquery(own.values("pk")[:1]), flat=True)
    runs = Run.objects.filter(pk__in=list(newest)).defer("parts", "reply_parts")
    return {run.reminder_id: run for run in runs}


def question(reminder: Reminder, recipients: str, last: Run | None, now: datetime) -> str:
    """What somebody who fires it by hand should know: to whom, what went out lately, and whether the window is open."""
    sentences = [f"Send “{reminder.title}” to {recipients} now?", _lately(last, now), _window_today(reminder, now)]
    return " ".join(sentence for sentence in sentences if sentence)


def _lately(last: Run | None, now: datetime) -> str:
    if last is None:
        return ""
    counts = f"{last.sent:,} of {last.total:,} delivered"
    if last.status not in Run.FINISHED:
        return f"It is {last.status} already, {counts}: they would get it again."
    if last.sent and last.finished_at and now - last.finished_at < LATELY:
        passed = duration((now - last.finished_at).total_seconds())
        return f"It went out {passed} ago ({counts}): they would get it again."
    return ""


def _window_today(reminder: Reminder, now: datetime) -> str:
    opens, closes = reminder.window.opens_on(now), reminder.window.closes_on(now)
    if closes <= now:
        closed = closing_time(closes, reminder.timezone)
        return f"Its delivery window closed at {closed} ({reminder.timezone}): nothing would be sent."
    return f"It starts when its window opens at {wall_clock(opens, reminder.timezone, now)}." if now < opens else ""


def frozen(reminder: Reminder, scheduled_for: datetime) -> dict[str, Any]:
    """What a run copies of its reminder: later edits change nothing in it."""
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
        "follow_up": reminder.follow_up,
        "urgency": reminder.urgency,
    }


def frozen_part(reminder: Reminder, message: MessagePart) -> dict[str, Any]:
    """Return the part as a run keeps it."""
    return placeholders.frozen(written_part(reminder, message))


def written_part(reminder: Reminder, message: MessagePart) -> dict[str, Any]:
    """Return the part as it was written, with its placeholders."""
    part: dict[str, Any] = {"kind": message.kind, "text": message.text}
    if reminder.subject:
        part["subject"] = reminder.subject
    if message.html:
        part["html"] = message.html
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
