"""People who want nothing more: by a word, by their provider's button, or by a complaint."""

from __future__ import annotations

import unicodedata
from datetime import datetime

from django.conf import settings

from accounts.addresses import spellings_of
from fanout.inbound import people
from fanout.models import InboundEvent
from fanout.runs import erasing
from reminders.erasure import erased
from reminders.models import Recipient, Suppression

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
        [Suppression(address=one, reason=reason, source=source, detail=detail) for one in spellings_of(address)],
        update_conflicts=True,
        unique_fields=["address"],
        update_fields=["reason", "source", "detail", "expires_at", "added_by"],
    )


def stays_forgotten(address: str, recipients: list[int]) -> bool:
    """Somebody who was erased after an opt-out writes again: their hash keeps them out of every list, so nothing of
    this needs to be kept."""
    return not recipients and bool(erased(spellings_of(address)))


def unsubscribe(event: InboundEvent, now: datetime) -> str:
    return _by_provider(event, Reason.UNSUBSCRIBED, Source.RECIPIENT, "unsubscribed")


def complaint(event: InboundEvent, now: datetime) -> str:
    return _by_provider(event, Reason.COMPLAINT, Source.PROVIDER, "complained")


def _by_provider(event: InboundEvent, reason: Suppression.Reason, source: Suppression.Source, what: str) -> str:
    if not event.address or event.group:
        return "nothing: it names no person"
    people.recognise(event)
    if stays_forgotten(event.address, people.with_address(event.address)):
        return erasing.forget(event)
    opt_out(event.address, reason, source, "reported by the provider")
    return f"{what}: opted out and suppressed"
