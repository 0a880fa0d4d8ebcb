"""People who want nothing more: by a word, by their provider's button, or by a complaint."""

from __future__ import annotations

import unicodedata
from datetime import datetime

from django.conf import settings

from fanout.inbound import people
from fanout.models import InboundEvent
from fanout.runs import erasing
from reminders.erasure import erased
from reminders.models import Recipient, Suppression
from reminders.suppressions import holding

Reason, Source = Suppression.Reason, Suppression.Source


def is_opt_out(text: str) -> bool:
    """Whether the message is only an opt-out word: “ Stop! ” is one, “stop by at eight” is not."""
    return bool(word := bare(text)) and word in {bare(one) for one in settings.OPT_OUT_WORDS}


def bare(text: str) -> str:
    """Lower case, without accents, punctuation and symbols; one space between words."""
    # Accents that are characters of their own go first: NFKD sorts them, and thousands of them on one letter would take
    # quadratic time.
    letters = "".join(sign for sign in text.casefold() if not unicodedata.combining(sign))
    apart = unicodedata.normalize("NFKD", letters)
    spelled = "".join(sign if sign.isalnum() else " " for sign in apart if not unicodedata.combining(sign))
    return " ".join(spelled.split())


def opt_out(address: str, reason: Suppression.Reason, source: Suppression.Source, detail: str) -> None:
    """Nobody writes to this address any more, in whosever list it is. Pending targets are skipped at their claim."""
    Recipient.objects.filter(pk__in=people.lock(address)).update(status=Recipient.Status.OPTED_OUT, limited=False)
    # A suppression that would expire, or that an operator could take back, becomes the person's own word.
    Suppression.objects.bulk_create(
        [Suppression(address=address, reason=reason, source=source, detail=detail)],
        update_conflicts=True,
        unique_fields=["address"],
        update_fields=["reason", "source", "detail", "expires_at", "added_by"],
    )


def stays_forgotten(address: str, recipients: list[int]) -> bool:
    """Somebody who was erased after an opt-out writes again: their hash keeps them out of every list, so nothing of
    this needs to be kept."""
    return not recipients and bool(erased([address]))


REPORTED = "reported by the provider"
REPORTED_TOO = "reported by the provider; suppressed before"


def unsubscribe(event: InboundEvent, now: datetime) -> str:
    if event.detail.get("resumed"):
        return _resume(event)
    wishes = InboundEvent.objects.filter(kind=event.kind, account=event.account_id, address=event.address)
    if wishes.filter(happened_at__gt=event.happened_at, detail__resumed=True).exists():
        return "nothing: the person took it back later"
    return _by_provider(event, Reason.UNSUBSCRIBED, Source.RECIPIENT, "unsubscribed", now)


def complaint(event: InboundEvent, now: datetime) -> str:
    return _by_provider(event, Reason.COMPLAINT, Source.PROVIDER, "complained", now)


def _by_provider(
    event: InboundEvent, reason: Suppression.Reason, source: Suppression.Source, what: str, now: datetime
) -> str:
    if not event.address or event.group:
        return "nothing: it names no person"
    if stays_forgotten(event.address, people.with_address(event.address)):
        return erasing.forget(event)
    before = Suppression.objects.filter(holding(now), address=event.address).exclude(reason=reason, detail=REPORTED)
    opt_out(event.address, reason, source, REPORTED_TOO if before.exists() else REPORTED)
    return f"{what}: opted out and suppressed"


def _resume(event: InboundEvent) -> str:
    """Take back the opt-out that this account's provider reported, and no other reason to leave the person alone."""
    recipients = people.lock(event.address)
    wishes = InboundEvent.objects.filter(kind=event.kind, address=event.address).exclude(account=event.account_id)
    latest = {wish.account_id: wish.detail.get("resumed") for wish in wishes.order_by("happened_at", "pk")}
    if not all(latest.values()):
        return "nothing: the person has opted out of another account's messages too"
    mine = Suppression.objects.filter(address=event.address, reason=Reason.UNSUBSCRIBED, detail=REPORTED)
    if not mine.delete()[0]:
        return "nothing: there is no opt-out that it takes back"
    opted_out = Recipient.objects.filter(pk__in=recipients, status=Recipient.Status.OPTED_OUT)
    opted_out.update(status=Recipient.Status.ACTIVE)
    return "resumed: the opt-out is taken back"
