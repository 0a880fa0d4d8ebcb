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
from django.db.models import F, QuerySet

from accounts.addresses import spellings_of
from accounts.channels.base import Kind, NotSent
from accounts.channels.http import as_number
from accounts.channels.provider_events import EventKind, ProviderEvent
from accounts.channels.registry import channel
from accounts.models import Account
from fanout.database import carry_out, execute
from fanout.inbound import origins
from fanout.inbound.event_store import WHOLE_SECOND, NotYet, bare_id, look_again, may_look_again, store, store_report
from fanout.inbound.mails import DETAIL_LENGTH, Bounce, parse_bounce
from fanout.inbound.sessions import until
from fanout.lanes import chats, status
from fanout.lanes.lane_rows import hold_lane, wake_lanes
from fanout.models import Activity, Event, InboundEvent, KnownId, Run, RunTarget
from fanout.models.events import RECEIPT
from fanout.rules import breaker
from fanout.rules.message_ids import Named, message_id, named_in
from fanout.rules.outcomes import ACCOUNT_KINDS, AccountChange, Consequence, consequence, parts_out
from fanout.runs import corrections, erasing, follow_ups, texts, transitions
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
        event = store_report(target.account_id, _as_event(bounce), now)
        if event is not None:
            _work_on(event, now)
    return event is not None


def _work_on(row: InboundEvent, now: datetime) -> None:
    """Apply it at once; a report that is faster than our own record of the result is left to the inbound worker."""
    try:
        row.effect, row.state = bounced(row, now)[:500], InboundEvent.State.DONE
    except NotYet:
        look_again([row], now)
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
    part = part_of(event, target)
    waits = _on_its_way(event, target, part) and may_look_again(event)
    if not waits and (fits := event.detail.get("fits")):
        return f"nothing: it carries no id of a message of ours, and {fits} deliveries to this address fit"
    if target is None:
        if waits:
            raise NotYet
        return "It names no message that this account sent."
    if is_faceless(target.address):
        return erasing.forget(event)
    InboundEvent.objects.filter(pk=event.pk).update(run_target_id=target.pk)
    bounce = _from_event(event, target)
    if _is_refusal(bounce) and not _about_last_try(event, target, part):
        return "nothing: it is about an earlier try"
    verdict = _verdict(event, target, bounce)
    if waits:
        # The lane must not go on, however late our record of the message is.
        _hold_new_chats(target, bounce, verdict, now)
        _stop_or_hold(event, target, bounce, verdict, now)
        raise NotYet
    if _goes_again(event, target, part, bounce, verdict, now):
        changes = [_send_again(target, part, bounce, verdict, now)]
    else:
        changes = apply_bounce(target, bounce, now, part)
    # After the target: runs are locked before lanes.
    changes += _hold_new_chats(target, bounce, verdict, now)
    changes += _stop_or_hold(event, target, bounce, verdict, now)
    return "; ".join(filter(None, changes)) or "nothing new"


def _on_its_way(event: InboundEvent, target: RunTarget | None, part: int) -> bool:
    """Return whether our own record of the result may still have to be written."""
    if target is None:
        return bool(event.provider_id) and named_in(event.message_id) is None
    return target.status == Status.SENDING or (target.status == Status.PENDING and part not in _parts_out(target))


def target_of(event: InboundEvent) -> RunTarget | None:
    """Return the target that an event is about. An account's provider can name only messages of that account."""
    targets = RunTarget.objects.filter(account_id=event.account_id)
    if named := named_in(event.message_id):
        return targets.filter(pk=named.target_id).first()
    if event.provider_id:
        found = targets.filter(provider_id=event.provider_id).order_by("-pk").first()
        return found or _by_earlier_part(targets, event)
    return None


def _by_earlier_part(targets: QuerySet[RunTarget], event: InboundEvent) -> RunTarget | None:
    """Return the target by the id of a part before its last one: the event also names the chat."""
    chat = event.group or event.address
    if not chat:
        return None
    known = KnownId.objects.filter(account=event.account_id, known_as=bare_id(chat)).values_list("address", flat=True)
    of_person = targets.filter(recipient__address__in={*spellings_of(chat), *known}, claimed_at__isnull=False)
    recent = of_person.exclude(part_ids={}).order_by("-claimed_at")[: origins.MOST_CANDIDATES]
    return next((target for target in recent if event.provider_id in target.part_ids.values()), None)


def part_of(event: InboundEvent, target: RunTarget | None) -> int:
    """Return the part that an event is about: the one that it names by our id or by the provider's. Another id of ours
    is that of the part in doubt; where no part has an id, only the first can be meant."""
    if named := named_in(event.message_id):
        return named.part
    if target is None or not event.provider_id or not target.part_ids:
        return 0
    known = (int(part) for part, known in target.part_ids.items() if known == event.provider_id)
    return next(known, target.parts_sent)


def _parts_out(target: RunTarget) -> set[int]:
    return parts_out(target.parts_sent, target.part_ids)


def _id_of(target: RunTarget, part: int) -> str:
    """Return the provider's id of the last try of a part; "" where it is not known."""
    known = target.part_ids.get(str(part))
    return str(known if known is not None else target.provider_id if target.parts_sent - 1 == part else "")


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


def _about_last_try(event: InboundEvent, target: RunTarget, part: int) -> bool:
    if part in _parts_out(target) and event.provider_id and (known := _id_of(target, part)):
        earlier = part < max(_parts_out(target))
        if event.provider_id != known or earlier:
            return event.provider_id == known
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
    hold_lane(target.account_id, verdict.hold_until, verdict.slow, now)
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


def _goes_again(
    event: InboundEvent, target: RunTarget, part: int, bounce: Bounce, verdict: Consequence, now: datetime
) -> bool:
    """Return whether nothing arrived and a later try may succeed: the trouble is the account's, or this person's for a
    while. A part that counted as sent goes again only within its run's window, and only where it is the very one that
    the report names: not an earlier try, not one with a receipt or a reply, and not one of a provider that calls every
    try by the same id."""
    if verdict.status != "pending" or bounce.by_mail:
        return False
    temporary = _is_trouble(bounce) or bounce.kind == Kind.RECIPIENT_LIMITED
    if not (target.status == Status.SENT or _is_between(target, part)):
        return _is_trouble(bounce) or (bounce.certain and temporary)
    # A receipt of another part says nothing about this one; receipts with this part's id are looked for below.
    received = None if target.part_ids else target.delivered_at or target.read_at
    arrived = received or target.replied_at or (event.group and event.address)
    if not temporary or not bounce.certain or arrived or part not in _parts_out(target):
        return False
    named = bool(event.provider_id) and event.provider_id == _id_of(target, part)
    if not named or channel(target.account.channel).own_ids or target.run.window_closes_at <= now:
        return False
    receipts = InboundEvent.objects.filter(RECEIPT, account=event.account_id, provider_id=event.provider_id)
    return not receipts.exists()


def _is_between(target: RunTarget, part: int) -> bool:
    """Return whether the part went out and the target waits for another one."""
    return target.status == Status.PENDING and part in _parts_out(target)


def _send_again(target: RunTarget, part: int, bounce: Bounce, verdict: Consequence, now: datetime) -> str:
    """Send the part again, as after a refusal while sending: the account's trouble never fails a recipient. Where the
    event may mean an earlier part, the unconfirmed one may have arrived: that is for an operator."""
    run = Run.objects.select_for_update(no_key=True).get(pk=target.run_id)
    rows = RunTarget.objects.filter(pk=target.pk)
    if not rows.filter(status=target.status).exists():
        return "nothing: it was settled at this moment"
    waits = {"next_attempt_at": verdict.retry_at, "attempts": target.attempts if verdict.spends_attempt else 0}
    words = f"It was not sent: {bounce.kind.value.replace('_', ' ')}."
    if _is_between(target, part):
        rows.update(**_without(target, part), **waits, reopened_at=now)
        count(target, Activity.Outcome.FAILED, bounce.kind.value, now, part)
        wake_lanes([target.account_id], now)
        return f"{words} It will be sent again, before the parts that follow."
    if target.status == Status.SENT:
        follow_ups.taken_back(target)
        rows.update(status=Status.UNCONFIRMED, **_without(target, part))
        count(target, Activity.Outcome.FAILED, bounce.kind.value, now, part)
        chats.not_begun(target)
    elif target.status != Status.UNCONFIRMED:
        return ""
    elif target.parts_sent != part:
        return "nothing: it does not name the part that is in doubt"
    answer = corrections.settle(run, {target.pk}, False, None, now, by_provider=True)
    rows.filter(status=Status.PENDING).update(**waits)
    return f"{words} {answer.text}"


def _without(target: RunTarget, part: int) -> dict[str, Any]:
    """Return the columns of a target of which a part did not go out after all; later parts are not sent again."""
    ids = {str(n): "" for n in range(part + 1, target.parts_sent)} | target.part_ids
    ids.pop(str(part), None)
    return {"parts_sent": min(part, target.parts_sent), "part_ids": ids}


# --- applying ---------------------------------------------------------------------------------------------


@transaction.atomic
def apply_bounce(target: RunTarget, bounce: Bounce, now: datetime, part: int = 0) -> list[str]:
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
        if bounce.final and bounce.authentic and fail(target, bounce, now, part):
            changes += ["The target failed", *protect(target, now)]
        changes += suppress(bounce, now)
    if changes or not noted(target, bounce):
        Event.objects.create(run_id=target.run_id, at=now, verb=verb(bounce), detail=line(bounce))
        changes.append("noted in the run's timeline")
    return changes


def fail(target: RunTarget, bounce: Bounce, now: datetime, part: int = 0) -> bool:
    """Fail the target: a message that was given up was not delivered, also if the first server took it. Of a message
    with several parts no further one goes out, and a retry sends what is missing."""
    rows = RunTarget.objects.filter(pk=target.pk)
    failure: dict[str, Any] = {"status": Status.FAILED, "error_kind": bounce.kind.value, "error": bounce.detail}
    if target.part_ids and part in _parts_out(target):
        return _fail_part(target, bounce, now, part, failure)
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


def _fail_part(target: RunTarget, bounce: Bounce, now: datetime, part: int, failure: dict[str, Any]) -> bool:
    """Fail a message of several parts, of which one that had gone out was refused. Returns False where the target is
    with the provider or skipped: then only the timeline has it."""
    rows, left = RunTarget.objects.filter(pk=target.pk, status=target.status), _without(target, part)
    doubtful = target.parts_sent if target.status == Status.UNCONFIRMED else None
    if doubtful is not None:
        left["part_ids"][str(doubtful)] = ""  # it may have arrived: not sent again with the other
    others = parts_out(**left) - ({doubtful} if doubtful is not None else set())
    failure["error"] = texts.part_refused(part, len(target.run.parts), others, bounce.detail, doubtful)[:500]
    settled = {} if target.status == Status.FAILED else {"settled_at": now}
    open_states = (Status.SENT, Status.PENDING, Status.UNCONFIRMED, Status.FAILED)
    if target.status not in open_states or not rows.update(**left, **failure, **settled, reopened_at=now):
        return False
    count(target, Activity.Outcome.FAILED, counted_as(bounce), target.claimed_at or now, part)
    wake_lanes([target.account_id], now)  # the lane may be about to send the next part
    carry_out(transitions.came_back(target.run_id, cause(bounce), now))
    return True


def counted_as(bounce: Bounce) -> str:
    """Return how it counts towards the bounce rate: every mail that came back does; of events only bounces do."""
    if bounce.by_mail and not bounce.hard and bounce.kind is not Kind.SENDER_REJECTED:
        return Kind.SOFT_BOUNCE.value
    return bounce.kind.value


def count(target: RunTarget, outcome: str, kind: str, at: datetime, part: int | None = None) -> None:
    Activity.objects.create(
        account_id=target.account_id,
        run_target=target,
        action=target.action,
        outcome=outcome,
        part=target.parts_sent if part is None else part,
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
        done = suppressions.suppress(
            suppressions.NewSuppression(bounce.address, reason, source, bounce.detail, now, ends_at)
        )
    elif bounce.kind is Kind.OPTED_OUT:
        reason, source = Suppression.Reason.UNSUBSCRIBED, Suppression.Source.RECIPIENT
        done = suppressions.suppress(
            suppressions.NewSuppression(bounce.address, reason, source, suppressions.REPORTED, now)
        )
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
