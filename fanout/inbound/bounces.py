"""Apply bounces, reported by a mail server or by a provider's event: the target fails, the address may be suppressed,
the account's day is judged, and the operator is told.

A late refusal because of the account's own trouble is not a bounce: it stops or holds the account as a refusal at once
does, and what certainly did not arrive is sent again.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import F

from accounts.channels.base import Kind, NotSent
from accounts.channels.events import EventKind, ProviderEvent
from accounts.channels.http import as_number
from accounts.channels.registry import channel
from accounts.models import Account
from fanout.database import carry_out, execute
from fanout.inbound import origins
from fanout.inbound.events import WHOLE_SECOND, NotYet, look_again, may_look_again, store
from fanout.inbound.mails import DETAIL_LENGTH, Bounce, parse_bounce
from fanout.inbound.sessions import until
from fanout.lanes import chats, status
from fanout.lanes.wake import hold_lane, wake_lanes
from fanout.models import Activity, Event, InboundEvent, Run, RunTarget
from fanout.models.events import RECEIPT
from fanout.rules import breaker
from fanout.rules.message_ids import Named, message_id, named_in
from fanout.rules.outcomes import ACCOUNT_KINDS, AccountChange, Consequence, consequence
from fanout.runs import corrections, follow_ups, people, transitions
from reminders import suppressions
from reminders.erasure import is_faceless
from reminders.models import Suppression
from reminders.window import local_day_bounds

Status = RunTarget.Status
#: A report about an older message stops no account: the trouble of that day is known, or over.
NEWS = timedelta(days=1)

# --- from mails -------------------------------------------------------------------------------------------


def take_in(raw: bytes, now: datetime) -> tuple[int, int]:
    """Read and apply one mail; returns how many bounces it reports, and how many of them were new."""
    reported = parse_bounce(raw)
    if any(bounce.message is None for bounce in reported):
        reported = _with_origin(reported, origins.origin_of(raw), now)
    return len(reported), sum(record_bounce(bounce, now) for bounce in reported)


def _with_origin(reported: list[Bounce], origin: origins.Origin, now: datetime) -> list[Bounce]:
    """Return bounces that name no message of ours with the delivery that fits. Where several fit, nothing is applied,
    and an event of the account shows it."""
    found = []
    for bounce in reported:
        match = origins.deliveries(bounce.address, origin, now) if bounce.message is None else None
        if match is None or not match.targets:
            found.append(bounce)
        elif len(match.targets) == 1:
            target = match.targets[0]
            named = Named(target.pk, max(target.parts_sent - 1, 0))
            found.append(replace(bounce, message=named, authentic=match.by_queue_id))
        else:
            found.append(bounce)
            store(match.targets[0].account_id, [_in_doubt(bounce, match.targets)], now)
    return found


def _in_doubt(bounce: Bounce, fits: list[RunTarget]) -> ProviderEvent:
    ids = sorted(target.pk for target in fits)
    facts = f"{ids}:{bounce.address}:{bounce.kind}:{bounce.final}"
    return ProviderEvent(
        key=f"mail-in-doubt-{hashlib.sha256(facts.encode()).hexdigest()}",
        kind=EventKind.BOUNCE,
        address=bounce.address,
        text=bounce.detail,
        detail={"kind": bounce.kind.value, "final": bounce.final, "by": "mail", "fits": len(ids)},
    )


def record_bounce(bounce: Bounce, now: datetime) -> bool:
    """Store the bounce as an event of the account that sent, and work on it. Returns False if it is not new, or names
    no message of ours: a mail that looks like a bounce can come from any sender, so nothing of it is kept."""
    target = RunTarget.objects.filter(pk=bounce.message.target_id).first() if bounce.message else None
    if target is None or is_faceless(target.address):
        return False
    with transaction.atomic():
        event = _as_event(bounce)
        if not store(target.account_id, [event], now):
            return False
        _work_on(InboundEvent.objects.get(account_id=target.account_id, key=event.key), now)
    return True


def _work_on(row: InboundEvent, now: datetime) -> None:
    """Apply it at once; a report that is faster than our own record of the result is left to the inbound worker."""
    try:
        row.effect, row.state = bounced(row, now)[:500], InboundEvent.State.DONE
    except NotYet:
        look_again(row.pk, now)
    else:
        row.save(update_fields=["effect", "state"])


def _as_event(bounce: Bounce) -> ProviderEvent:
    assert bounce.message is not None
    # Only the stable facts: servers word the same failure anew in every report.
    facts = f"{bounce.message}:{bounce.address}:{bounce.kind}:{bounce.final}"
    return ProviderEvent(
        key=f"mail-{hashlib.sha256(facts.encode()).hexdigest()}",
        kind=EventKind.BOUNCE,
        address=bounce.address,
        message_id=message_id(*bounce.message),
        text=bounce.detail,
        detail={"kind": bounce.kind.value, "final": bounce.final, "by": "mail", "authentic": bounce.authentic},
    )


# --- from events ------------------------------------------------------------------------------------------


def bounced(event: InboundEvent, now: datetime) -> str:
    """Apply a bounce event and return its effect in words."""
    target = target_of(event)
    waits = _on_its_way(event, target) and may_look_again(event)
    if not waits and (fits := event.detail.get("fits")):
        return f"nothing: it carries no id of a message of ours, and {fits} deliveries to this address fit"
    if target is None:
        if waits:
            raise NotYet
        return "It names no message that this account sent."
    if is_faceless(target.address):
        return people.forget(event)
    InboundEvent.objects.filter(pk=event.pk).update(run_target_id=target.pk)
    bounce = _from_event(event, target)
    if _is_refusal(bounce) and not _about_last_try(event, target):
        return "nothing: it is about an earlier try"
    verdict = _verdict(event, target, bounce)
    if waits:
        # The lane must not go on, however late our record of the message is.
        _hold_new_chats(target, bounce, verdict, now)
        _stop_or_hold(event, target, bounce, verdict, now)
        raise NotYet
    if _goes_again(event, target, bounce, verdict, now):
        changes = [_send_again(event, target, bounce, verdict, now)]
    else:
        changes = apply_bounce(target, bounce, now)
    # After the target: runs are locked before lanes.
    changes += _hold_new_chats(target, bounce, verdict, now)
    changes += _stop_or_hold(event, target, bounce, verdict, now)
    return "; ".join(filter(None, changes)) or "nothing new"


def _on_its_way(event: InboundEvent, target: RunTarget | None) -> bool:
    """Return whether our own record of the result may still have to be written."""
    if target is None:
        return bool(event.provider_id) and named_in(event.message_id) is None
    return target.status in (Status.PENDING, Status.SENDING)


def target_of(event: InboundEvent) -> RunTarget | None:
    """Return the target that an event is about. An account's provider can name only messages of that account."""
    targets = RunTarget.objects.filter(account_id=event.account_id)
    if named := named_in(event.message_id):
        return targets.filter(pk=named.target_id).first()
    if event.provider_id:
        return targets.filter(provider_id=event.provider_id).order_by("-pk").first()
    return None


def _from_event(event: InboundEvent, target: RunTarget) -> Bounce:
    kind, by_mail = event.detail.get("kind"), event.detail.get("by") == "mail"
    return Bounce(
        # Providers write addresses in their own way: the recipient is known from the message.
        address=event.address if by_mail else target.address,
        kind=Kind(kind) if kind in set(Kind) else Kind.SOFT_BOUNCE,
        detail=event.text or "no reason given",
        # A provider that says so has given up, unless it says otherwise.
        final=bool(event.detail.get("final", True)),
        by_mail=by_mail,
        certain=event.detail.get("certain") is True,
        authentic=event.detail.get("authentic") is not False,
    )


# --- refused by the account's provider --------------------------------------------------------------------
#
# A provider may refuse a message at once, or accept it and report the refusal later, or both. Either way the account
# has the same trouble, so the same rule (fanout.rules.outcomes) decides about it.


def _is_refusal(bounce: Bounce) -> bool:
    """Return whether it refuses one try, and is not a report about the message's delivery."""
    return bounce.certain or _is_trouble(bounce)


def _is_trouble(bounce: Bounce) -> bool:
    return bounce.kind in ACCOUNT_KINDS and not bounce.by_mail


def _about_last_try(event: InboundEvent, target: RunTarget) -> bool:
    another = event.provider_id and target.provider_id and event.provider_id != target.provider_id
    if another and target.status == Status.SENT and target.parts_sent - 1 == _part_of(event):
        return False
    return target.claimed_at is None or event.happened_at + WHOLE_SECOND >= target.claimed_at


def _verdict(event: InboundEvent, target: RunTarget, bounce: Bounce) -> Consequence:
    """Return the consequence of the same refusal at the moment at which it happened: a break counts from there, so that
    an old report holds nothing."""
    return consequence(
        NotSent(bounce.kind, plain(bounce.detail), as_number(event.detail.get("retry_after")), until(event)),
        retries=channel(target.account.channel).retries,
        attempts=max(1, target.attempts),
        base=target.account.settings()["retry_base_seconds"].value,
        sample="",
        repeatable=False,
        now=event.happened_at,
    )


def _stop_or_hold(
    event: InboundEvent, target: RunTarget, bounce: Bounce, verdict: Consequence, now: datetime
) -> list[str]:
    """Stop the account or hold its lane, as after a refusal while sending; return in words what was done."""
    if not _is_trouble(bounce) or _overcome(target) or event.happened_at < now - NEWS:
        return []
    if verdict.account is not None:
        if not carry_out(status.stop(target.account_id, verdict.account, now)):
            return []
        wake_lanes([target.account_id], now)
        return [f"the account is {verdict.account.status}: {verdict.account.reason}"]
    if verdict.hold_until is None or verdict.hold_until <= now:
        return []
    hold_lane(target.account_id, verdict.hold_until, now)
    return ["the account takes a break"]


def _overcome(target: RunTarget) -> bool:
    """Return whether the message went out before the account was last changed, started or stopped: an operator has seen
    to that trouble, or it is over."""
    account = target.account
    changes = [at for at in (account.status_changed_at, account.untested_since) if at is not None]
    return target.claimed_at is not None and any(target.claimed_at < at for at in changes)


def _hold_new_chats(target: RunTarget, bounce: Bounce, verdict: Consequence, now: datetime) -> list[str]:
    """Hold the account's new chats after one that the provider took and then refused, as after one refused at once."""
    blocked = bounce.kind == Kind.NEW_CHATS_BLOCKED and verdict.retry_at is not None and verdict.retry_at > now
    if blocked and verdict.retry_at is not None and not _overcome(target):
        chats.refused_late(target, verdict.retry_at - now, bounce.detail, now)
        return ["new chats are held"]
    return []


def _goes_again(event: InboundEvent, target: RunTarget, bounce: Bounce, verdict: Consequence, now: datetime) -> bool:
    """Return whether nothing arrived and a later try may succeed: the trouble is the account's, or this person's for a
    while. A message that counted as sent goes again only within its run's window, and only where it is the very one
    that the report names: not an earlier try, not one with a receipt, a reply or a later part, and not one of a
    provider that calls every try by the same id."""
    if verdict.status != "pending" or bounce.by_mail:
        return False
    if target.status != Status.SENT:
        return _is_trouble(bounce) or (bounce.certain and bounce.kind == Kind.RECIPIENT_LIMITED)
    temporary = _is_trouble(bounce) or bounce.kind == Kind.RECIPIENT_LIMITED
    arrived = target.delivered_at or target.read_at or target.replied_at or (event.group and event.address)
    if not temporary or not bounce.certain or arrived or target.parts_sent - 1 != _part_of(event):
        return False
    named = bool(event.provider_id) and event.provider_id == target.provider_id
    if not named or channel(target.account.channel).own_ids or target.run.window_closes_at <= now:
        return False
    receipts = InboundEvent.objects.filter(RECEIPT, account=event.account_id, provider_id=event.provider_id)
    return not receipts.exists()


def _part_of(event: InboundEvent) -> int:
    """Return the part that an event is about. One that does not say can only mean the first."""
    named = named_in(event.message_id)
    return named.part if named else 0


def _send_again(event: InboundEvent, target: RunTarget, bounce: Bounce, verdict: Consequence, now: datetime) -> str:
    """Send the part again, as after a refusal while sending: the account's trouble never fails a recipient. Where the
    event may mean an earlier part, the unconfirmed one may have arrived: that is for an operator."""
    run = Run.objects.select_for_update(no_key=True).get(pk=target.run_id)
    rows = RunTarget.objects.filter(pk=target.pk)
    if not rows.filter(status=target.status).exists():
        return "nothing: it was settled at this moment"
    if target.status == Status.SENT:
        follow_ups.taken_back(target)
        rows.update(status=Status.UNCONFIRMED, parts_sent=F("parts_sent") - 1)
        count(target, Activity.Outcome.FAILED, bounce.kind.value, now)
        chats.not_begun(target)
    elif target.status != Status.UNCONFIRMED:
        return ""
    elif target.parts_sent != _part_of(event):
        return "nothing: it does not name the part that is in doubt"
    answer = corrections.settle(run, {target.pk}, False, None, now, by_provider=True)
    again = rows.filter(status=Status.PENDING)
    again.update(next_attempt_at=verdict.retry_at, attempts=target.attempts if verdict.spends_attempt else 0)
    return f"It was not sent: {bounce.kind.value.replace('_', ' ')}. {answer.text}"


# --- applying ---------------------------------------------------------------------------------------------


@transaction.atomic
def apply_bounce(target: RunTarget, bounce: Bounce, now: datetime) -> list[str]:
    """Apply the bounce and return in words what it changed; a second time nothing.

    Only the address that the target was written to can be suppressed or fail. Otherwise the recipient's own server took
    the message and an address behind it did not: one member of a list, or a forwarding.
    """
    bounce = replace(bounce, detail=plain(bounce.detail))
    # Runs are locked before their targets.
    Run.objects.select_for_update(no_key=True).get(pk=target.run_id)
    changes = []
    if bounce.address == target.address:
        # Anyone who knows both addresses can write a report without an id of ours: it fails and counts nothing.
        if bounce.final and bounce.authentic and fail(target, bounce, now):
            changes += ["The target failed", *protect(target, now)]
        changes += suppress(bounce, now)
    if changes or not noted(target, bounce):
        Event.objects.create(run_id=target.run_id, at=now, verb=verb(bounce), detail=line(bounce))
        changes.append("noted in the run's timeline")
    return changes


def fail(target: RunTarget, bounce: Bounce, now: datetime) -> bool:
    """Fail the target: a message that was given up was not delivered, also if the first server took it."""
    rows = RunTarget.objects.filter(pk=target.pk)
    failure: dict[str, Any] = {"status": Status.FAILED, "error_kind": bounce.kind.value, "error": bounce.detail}
    unconfirmed = rows.filter(status=Status.UNCONFIRMED).update(
        parts_sent=F("parts_sent") + (0 if bounce.certain else 1), settled_at=now, **failure
    )
    if not unconfirmed and not rows.filter(status=Status.SENT).update(**failure):
        return False
    if unconfirmed and not bounce.certain:
        # What came back had gone out: the unconfirmed part goes on counting against the daily cap.
        count(target, Activity.Outcome.SENT, "bounced", target.claimed_at or now)
    # On the day of its send, however late the report is.
    count(target, Activity.Outcome.FAILED, counted_as(bounce), target.claimed_at or now)
    never_out = unconfirmed and bounce.certain
    rejudge, came_back = transitions.rejudge, transitions.came_back
    carry_out(rejudge(target.run_id, now) if never_out else came_back(target.run_id, cause(bounce), now))
    return True


def counted_as(bounce: Bounce) -> str:
    """Return how it counts towards the bounce rate: every mail that came back does; of events only bounces do."""
    if bounce.by_mail and not bounce.hard and bounce.kind is not Kind.SENDER_REJECTED:
        return Kind.SOFT_BOUNCE.value
    return bounce.kind.value


def count(target: RunTarget, outcome: str, kind: str, at: datetime) -> None:
    Activity.objects.create(
        account_id=target.account_id,
        run_target=target,
        action=target.action,
        outcome=outcome,
        part=target.parts_sent,
        at=at,
        kind=kind,
    )


def cause(bounce: Bounce) -> str:
    """Return the text of the owner's notification, which may go out by mail: without the address."""
    return f"{bounce.kind.value.replace('_', ' ')}, {bounce.detail.replace(bounce.address, '…')[:150]}"


def protect(target: RunTarget, now: datetime) -> list[str]:
    """Pause an account if too many messages came back of those that it sent on the same day as this one."""
    account = target.account
    if account.status != Account.Status.ACTIVE:
        return []
    starts, ends = local_day_bounds(account.timezone, target.claimed_at or now)
    (day,) = execute(*status.bounces_of_day(account.pk, starts, ends))
    why = breaker.too_many_bounces(day["bounced"], day["sends"], account.settings()["bounce_rate_pause"].value)
    if not why or not carry_out(status.stop(account.pk, AccountChange("paused", why), now)):
        return []
    wake_lanes([account.pk], now)
    return [f"the account is paused: {why}"]


def suppress(bounce: Bounce, now: datetime) -> list[str]:
    if bounce.hard:
        reason, source = Suppression.Reason.HARD_BOUNCE, Suppression.Source.PROVIDER
        # A report that anyone could have written suppresses for a while, not for good.
        ends_at = None if bounce.authentic else now + timedelta(days=settings.SOFT_BOUNCE_SUPPRESS_DAYS)
        done = suppressions.suppress(suppressions.New(bounce.address, reason, source, bounce.detail, now, ends_at))
    elif bounce.kind is Kind.OPTED_OUT:
        reason, source = Suppression.Reason.UNSUBSCRIBED, Suppression.Source.RECIPIENT
        done = suppressions.suppress(suppressions.New(bounce.address, reason, source, suppressions.REPORTED, now))
    else:
        done = bounce.final and carry_out(status.judge_address(bounce.address, bounce.detail, now))
    return ["the address is suppressed"] if done else []


def noted(target: RunTarget, bounce: Bounce) -> bool:
    """Return whether the run's timeline has the line, which is written once however often the report comes."""
    return Event.objects.filter(run_id=target.run_id, verb=verb(bounce), detail=line(bounce)).exists()


def verb(bounce: Bounce) -> str:
    return "bounced" if bounce.hard else "bounce noted"


def line(bounce: Bounce) -> str:
    return plain(f"{bounce.address}: {bounce.detail}")


def plain(words: str) -> str:
    return words.replace("\x00", "")[:DETAIL_LENGTH]
