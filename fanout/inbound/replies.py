"""Handle what people write back or wish: a reply ends their waiting, takes queued follow-ups out and may bring them
Message 2; an opt-out, an unsubscription or a complaint suppresses them.

Runs are locked first, in the order of their ids, then people, then targets, then lanes: as the ledger does.
"""

from __future__ import annotations

from datetime import datetime

from django.db import transaction
from django.template.defaultfilters import pluralize

from accounts.addresses import GROUP_KINDS, spellings_of, sql_list
from accounts.channels.paired import is_hidden
from accounts.channels.provider_events import EventKind
from fanout.database import Row, carry_out, execute
from fanout.inbound import known_ids
from fanout.inbound.event_store import SUPPRESSED_AS, WHOLE_SECOND, ServerNotAccepted
from fanout.inbound.reply_mails import our_subjects
from fanout.lanes.chats import note_message_from
from fanout.models import InboundEvent, RunTarget
from fanout.rules.gates import REPLIED
from fanout.rules.message_ids import named_in
from fanout.runs import message_2, server, transitions
from fanout.runs.erasing import forget
from reminders import suppressions
from reminders.erasure import erased
from reminders.models import OptOutPhrase, Recipient, Suppression
from reminders.opt_outs import Decision, bare, decide_by_words, essence
from reminders.suppressions import REPORTED, in_force

IN_A_GROUP = "nothing: it was said in a group"
NO_PERSON = "nothing: it names no person"
MESSAGES_LOOKED_AT = 20


def reply(event: InboundEvent, now: datetime) -> str:
    """Apply a reply of a person and return its effect in words. Ignore messages posted in groups."""
    if event.group:
        return IN_A_GROUP
    if not event.address:
        return NO_PERSON
    use_stored_spelling(event)
    recipients = recipients_at(event.address)
    if stays_forgotten(event.address, recipients):
        return forget(event)
    words = _apply(event, recipients, now)
    note_message_from(event.account_id, event.address, event.happened_at, now)
    return words


def _apply(event: InboundEvent, recipients: list[int], now: datetime) -> str:
    if event.detail.get("edited"):
        return _apply_edit(event, now)
    if event.opts_out or _opts_out_after_all(event):
        words = _note_reply(event, recipients, now, opted_out=True)
        opt_out(event.address, *SUPPRESSED_AS[EventKind.REPLY])
        return "; ".join([*words, "opted out and suppressed"])
    return "; ".join(_note_reply(event, recipients, now)) or "nothing: the address is in no list"


def _apply_edit(event: InboundEvent, now: datetime) -> str:
    """Apply the new text of an earlier message: an opt-out counts, and nothing else, because its first text has."""
    if not (event.opts_out or _opts_out_after_all(event)):
        return "kept: an edit of an earlier message"
    note_opt_out(event, now)
    opt_out(event.address, *SUPPRESSED_AS[EventKind.REPLY])
    return "opted out and suppressed, by an edit of an earlier message"


def _opts_out_after_all(event: InboundEvent) -> bool:
    """Return whether a message opts out that was stored without deciding it: by an earlier version, or under a hidden
    id, behind which a person was found afterwards."""
    undecided = is_hidden(str(event.detail.get("jid") or "")) or decide_by_words(event.text).opts_out
    return undecided and decide(event.text).opts_out


def _note_reply(event: InboundEvent, recipients: list[int], now: datetime, opted_out: bool = False) -> list[str]:
    """Do everything but the opting out; returns in words what was done."""
    if not recipients:
        return []
    messages = _sent_to(recipients, event, now)
    message_1 = None if opted_out else next((one for one in messages if one["has_message_2"]), None)
    queued = [] if opted_out else execute(QUEUED_FOLLOW_UPS, {"people": recipients, "came_at": event.came_at})
    _lock_runs({target["run_id"] for target in [*queued, *messages[:1], message_1] if target is not None})
    lock_recipients(event.address)
    words = ["noted"]
    if taken := carry_out(transitions.take_out([target["id"] for target in queued], REPLIED, now)):
        words.append(f"{taken} queued follow-up{pluralize(taken)} taken out")
    if messages:
        execute(RECORD_REPLY, _record(messages[0], event) | {"opted_out": opted_out, "now": now})
    # An older reply that comes after a newer one changes nothing.
    execute(END_WAITING, {"people": recipients, "at": event.happened_at})
    if message_1 is not None and message_1["suppressed"]:
        words.append("no Message 2: the address is suppressed")
    elif message_1 is not None:
        if not server.may_fire():  # the Message 2 that the database has lost may be out already
            raise ServerNotAccepted
        words.append(message_2.queue_for_reply(message_1["id"], recipients, event.happened_at, now))
    return words


# With the Message 2 of each. Adding to a Message 2 requires the lock of its Message 1, so no second one is made.
LOCK_RUNS_WITH_MESSAGE_2 = """
SELECT FROM fanout_run WHERE id = ANY(%(runs)s::bigint[]) OR answers_id = ANY(%(runs)s::bigint[])
 ORDER BY id FOR NO KEY UPDATE
"""


def _lock_runs(runs: set[int]) -> None:
    if runs:
        execute(LOCK_RUNS_WITH_MESSAGE_2, {"runs": list(runs)})


# Not one between two parts, which would leave half a message. Not one that was made after the reply was known: the
# same event may be worked on twice.
QUEUED_FOLLOW_UPS = """
SELECT t.id, t.run_id FROM fanout_runtarget t JOIN fanout_run r ON r.id = t.run_id
 WHERE t.recipient_id = ANY(%(people)s::bigint[]) AND t.status = 'pending' AND t.parts_sent = 0
   AND r.follow_up AND r.created_at <= %(came_at)s
"""


# --- the message that it replies to -------------------------------------------------------------------------

# What the account had sent them when they wrote, or was sending; the message that they quote first, then the latest.
SENT_TO = """
SELECT t.id, t.run_id, r.reply_parts <> '[]' AS has_message_2,
       EXISTS (SELECT FROM reminders_suppression s
                WHERE s.address = %(address)s AND (s.expires_at IS NULL OR s.expires_at > %(now)s)) AS suppressed
  FROM fanout_runtarget t JOIN fanout_run r ON r.id = t.run_id
 WHERE t.recipient_id = ANY(%(people)s::bigint[]) AND t.account_id = %(account)s AND t.claimed_at <= %(before)s
   AND (t.status IN ('sent', 'sending', 'unconfirmed') OR t.parts_sent > 0)
 ORDER BY t.id = %(named)s OR (t.provider_id <> '' AND t.provider_id = %(quoted)s) DESC, t.claimed_at DESC
 LIMIT %(most)s
"""


def _sent_to(recipients: list[int], event: InboundEvent, now: datetime) -> list[Row]:
    named = named_in(event.message_id)
    wanted = {"people": recipients, "account": event.account_id, "before": event.happened_at + WHOLE_SECOND}
    quoted = {"named": named.target_id if named else 0, "quoted": event.provider_id}
    return execute(SENT_TO, wanted | quoted | {"most": MESSAGES_LOOKED_AT, "address": event.address, "now": now})


# The time of the first reply, however late it is reported; `least` passes over what is empty.
RECORD_REPLY = """
WITH target AS (
  UPDATE fanout_runtarget
     SET replied_at = least(replied_at, %(at)s),
         opted_out_at = CASE WHEN %(opted_out)s THEN least(opted_out_at, %(at)s) ELSE opted_out_at END
   WHERE id = %(target)s
)
UPDATE fanout_inboundevent
   SET run_target_id = %(target)s,
       handled_at = CASE WHEN %(opted_out)s THEN coalesce(handled_at, %(now)s) ELSE handled_at END
 WHERE id = %(event)s
"""

RECORD_OPT_OUT = """
WITH target AS (UPDATE fanout_runtarget SET opted_out_at = least(opted_out_at, %(at)s) WHERE id = %(target)s)
UPDATE fanout_inboundevent SET run_target_id = %(target)s WHERE id = %(event)s
"""


def _record(message: Row, event: InboundEvent) -> Row:
    return {"target": message["id"], "event": event.pk, "at": event.happened_at}


def note_opt_out(event: InboundEvent, now: datetime) -> None:
    """Note the opt-out with the message after which it came: the one that the event names, else the latest."""
    for message in _sent_to(recipients_at(event.address), event, now)[:1]:
        _lock_runs({message["run_id"]})
        execute(RECORD_OPT_OUT, _record(message, event))


# --- the person ---------------------------------------------------------------------------------------------

# Attempts that went out after the reply was written stand: a reply that is reported late does not reply to them.
# Where none of those that count was before it, the cooldown stays too.
END_WAITING = """
WITH person AS (
  SELECT p.id, least(p.follow_up_attempts, count(t.id)) AS attempts,
         p.follow_up_attempts > 0 AND count(t.id) >= p.follow_up_attempts AS unanswered
    FROM reminders_recipient p
    LEFT JOIN (reminders_recipient same JOIN fanout_runtarget t ON t.recipient_id = same.id AND t.status = 'sent'
                                        JOIN fanout_run r ON r.id = t.run_id AND r.follow_up)
      ON same.address = p.address AND t.claimed_at >= greatest(%(at)s, p.attempts_reset_at)
   WHERE p.id = ANY(%(people)s::bigint[]) AND (p.replied_at IS NULL OR p.replied_at < %(at)s)
   GROUP BY p.id
)
UPDATE reminders_recipient p
   SET replied_at = %(at)s, attempts_reset_at = greatest(%(at)s, p.attempts_reset_at),
       follow_up_attempts = person.attempts,
       cooldown_until = CASE WHEN person.unanswered THEN p.cooldown_until END,
       status = CASE WHEN p.limited AND p.status = 'not_interested' AND NOT person.unanswered THEN 'active'
                     ELSE p.status END,
       limited = p.limited AND person.unanswered
  FROM person WHERE p.id = person.id
"""


# --- opting out ------------------------------------------------------------------------------------------

Reason, Source = Suppression.Reason, Suppression.Source


def decide(text: str) -> Decision:
    """Return whether a message opts its sender out, and why. The site's own list comes before the built-in words."""
    said = essence(text)
    own = OptOutPhrase.objects.filter(essence=said).first() if said else None
    if own is None:
        return decide_by_words(text)
    does = "opts out" if own.opts_out else "does not opt out"
    return Decision(own.opts_out, f"“{own.phrase}” is in this site's list: it {does}.")


def opt_out(address: str, reason: Suppression.Reason, source: Suppression.Source, detail: str) -> None:
    """Stop all messages to this address, in all lists. Pending targets are not claimed any more."""
    Recipient.objects.filter(pk__in=lock_recipients(address)).update(status=Recipient.Status.OPTED_OUT, limited=False)
    # A suppression that would expire, or that an operator could take back, becomes the person's own word.
    Suppression.objects.bulk_create(
        [Suppression(address=one, reason=reason, source=source, detail=detail) for one in spellings_of(address)],
        update_conflicts=True,
        unique_fields=["address"],
        update_fields=["reason", "source", "detail", "expires_at", "added_by"],
    )


def automatic(event: InboundEvent, now: datetime) -> str:
    """Keep a mail that a program wrote: it ends no waiting, brings no Message 2 and opts no one out. A mail that only
    its subject calls automatic is a reply if that is the subject of our own message."""
    use_stored_spelling(event)
    recipients = recipients_at(event.address)
    if stays_forgotten(event.address, recipients):
        return forget(event)
    if (subject := bare(str(event.detail.get("subject") or ""))) and recipients:
        sent = [row["id"] for row in _sent_to(recipients, event, now)]
        if any(subject in our_subjects(one) for one in RunTarget.objects.select_related("run").filter(pk__in=sent)):
            event.kind = InboundEvent.Kind.REPLY
            event.save(update_fields=["kind"])
            return reply(event, now)
    return f"kept: {automatic_words(event)}"


def automatic_words(event: InboundEvent) -> str:
    """Return what the mail is, and until when the person is away if it says so."""
    what, until = event.detail.get("what") or "automatic mail", event.detail.get("away_until")
    return f"{what}, away until {until}" if until else str(what)


def stays_forgotten(address: str, recipients: list[int]) -> bool:
    """Return whether a person who was erased after an opt-out writes again: their hash keeps them out of every list, so
    nothing of this needs to be kept."""
    return not recipients and bool(erased(spellings_of(address)))


REPORTED_TOO = "reported by the provider; suppressed before"


def unsubscribe(event: InboundEvent, now: datetime) -> str:
    """Opt out a person who told the provider so, or take that back if the provider reports a resume."""
    use_stored_spelling(event)
    if event.detail.get("resumed"):
        return _resume(event)
    wishes = InboundEvent.objects.filter(kind=event.kind, account=event.account_id, address=event.address)
    if wishes.filter(happened_at__gt=event.happened_at, detail__resumed=True).exists():
        return "nothing: the person took it back later"
    return suppress_as_reported(event, "unsubscribed", now)


def suppress_as_reported(event: InboundEvent, what: str, now: datetime) -> str:
    """Opt out the person of a wish or complaint that the provider reports, and return in words what was done."""
    if not event.address or event.group:
        return NO_PERSON
    reason, source, _ = SUPPRESSED_AS[EventKind(event.kind)]
    use_stored_spelling(event)
    if stays_forgotten(event.address, recipients_at(event.address)):
        return forget(event)
    note_opt_out(event, now)
    before = Suppression.objects.filter(in_force(now), address=event.address).exclude(reason=reason, detail=REPORTED)
    opt_out(event.address, reason, source, REPORTED_TOO if before.exists() else REPORTED)
    return f"{what}: opted out and suppressed"


def _resume(event: InboundEvent) -> str:
    """Take back the opt-out that this account's provider reported, also where it is noted with a message: a report that
    comes after this one notes nothing either. Other reasons to send nothing stay."""
    noted = execute(NOTED_WISHES, {"address": event.address, "before": event.happened_at})
    # Lock order: runs, then recipients.
    _lock_runs({row["run_id"] for row in noted})
    recipients = lock_recipients(event.address)
    mine = InboundEvent.objects.filter(kind=event.kind, account=event.account_id, address=event.address)
    # Opt-outs are worked on first, so a newer one may have been.
    if mine.filter(happened_at__gt=event.happened_at, opts_out=True).exists():
        return "nothing: the person opted out again later"
    wishes = InboundEvent.objects.filter(kind=event.kind, address=event.address).exclude(account=event.account_id)
    latest = {wish.account_id: wish.detail.get("resumed") for wish in wishes.order_by("happened_at", "pk")}
    if not all(latest.values()):
        return "nothing: the person has opted out of another account's messages too"
    spellings = spellings_of(event.address)
    lifted = Suppression.objects.filter(address__in=spellings, reason=Reason.UNSUBSCRIBED, detail=REPORTED)
    if not lifted.delete()[0]:
        return "nothing: there is no opt-out that it takes back"
    opted_out = Recipient.objects.filter(pk__in=recipients, status=Recipient.Status.OPTED_OUT)
    opted_out.update(status=Recipient.Status.ACTIVE)
    execute(TAKE_BACK, {"targets": [row["id"] for row in noted], "times": [row["happened_at"] for row in noted]})
    return "resumed: the opt-out is taken back"


# The messages with which the provider's reports of an opt-out were noted.
NOTED_WISHES = """
SELECT t.id, t.run_id, e.happened_at FROM fanout_inboundevent e JOIN fanout_runtarget t ON t.id = e.run_target_id
 WHERE e.address = %(address)s AND e.kind = 'unsubscribe' AND e.opts_out AND e.happened_at <= %(before)s
"""
# Only what these reports noted: an earlier word of the person stays.
TAKE_BACK = """
UPDATE fanout_runtarget t SET opted_out_at = NULL
  FROM unnest(%(targets)s::bigint[], %(times)s::timestamptz[]) AS w(target, at)
 WHERE t.id = w.target AND t.opted_out_at = w.at
"""


# The latest message to the address, of any account: the link in a mail names only the address.
LATEST_TO = """
SELECT t.id, t.run_id FROM reminders_recipient p JOIN fanout_runtarget t ON t.recipient_id = p.id
 WHERE p.address = %(address)s AND t.parts_sent > 0 AND t.claimed_at <= %(at)s
 ORDER BY t.claimed_at DESC LIMIT 1
"""


def unsubscribe_by_link(address: str, now: datetime) -> None:
    """Suppress a person who follows the link in a mail. The mail is marked in a transaction of its own: it may have to
    wait for its run, and the wish does not."""
    suppressions.unsubscribe(address, now)
    with transaction.atomic():
        for message in execute(LATEST_TO, {"address": address, "at": now}):
            _lock_runs({message["run_id"]})
            execute(RECORD_OPT_OUT, {"target": message["id"], "event": None, "at": now})


# --- people ----------------------------------------------------------------------------------------------

# A WhatsApp id may spell a number in another way than the list does (accounts.addresses.spellings_of). First comes the
# person to whom the account has written, then the spelling of the event.
STORED_AS = f"""
SELECT s.address FROM unnest(%(spellings)s::text[]) WITH ORDINALITY AS s(address, place)
  JOIN reminders_recipient p ON p.address = s.address AND p.kind NOT IN {sql_list(GROUP_KINDS)}
 ORDER BY EXISTS (SELECT FROM fanout_runtarget t WHERE t.recipient_id = p.id AND t.account_id = %(account)s
                                                   AND t.claimed_at IS NOT NULL) DESC, s.place
 LIMIT 1
"""


def use_stored_spelling(event: InboundEvent) -> None:
    """Change the event's address to the spelling in which lists have the person, where it is another one.

    What the provider told goes first: which spelling it uses for a number cannot be computed.
    """
    hidden = event.detail.get("jid")
    if told := known_ids.known_address(event.account_id, event.address):
        event.address = told
        event.save(update_fields=["address"])
    elif len(spellings := spellings_of(event.address)) > 1:
        for row in execute(STORED_AS, {"spellings": list(spellings), "account": event.account_id}):
            event.address = row["address"]
            event.save(update_fields=["address"])
    if is_hidden(hidden) and event.address:
        known_ids.remember(event.account_id, str(hidden), event.address)


WITH_ADDRESS = f"""
SELECT id FROM reminders_recipient
 WHERE address = ANY(%(addresses)s::text[]) AND kind NOT IN {sql_list(GROUP_KINDS)}
"""


def recipients_at(address: str) -> list[int]:
    """Return the ids of the person's recipients: one in each list that has the address. Groups are not people."""
    return [row["id"] for row in execute(WITH_ADDRESS, {"addresses": [address]})]


def lock_recipients(address: str) -> list[int]:
    """Lock the person's recipients, in every spelling of the address, in the order of their ids and return these."""
    addresses = list(spellings_of(address))
    return [row["id"] for row in execute(f"{WITH_ADDRESS} ORDER BY id FOR NO KEY UPDATE", {"addresses": addresses})]
