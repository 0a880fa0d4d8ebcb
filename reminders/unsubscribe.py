"""One-click unsubscribe: an address in a link that nobody can make up."""

from __future__ import annotations

from datetime import datetime

from django.conf import settings
from django.core import signing

from reminders import erasure, suppressions
from reminders.models import Suppression

SALT = "crier.unsubscribe"


def url_for(address: str) -> str | None:
    """None while the site has no public address: nobody else could open the link."""
    if not settings.PUBLIC_URL:
        return None
    return f"{settings.PUBLIC_URL}/unsubscribe/{signing.dumps(address, salt=SALT)}"


def address_of(token: str) -> str:
    """Raises BadSignature for a link that is not ours."""
    address: str = signing.loads(token, salt=SALT)
    return address


def unsubscribe(address: str, now: datetime) -> None:
    if erasure.erased([address]):
        return  # nothing is kept of them but a hash, which does the same
    reason, source = Suppression.Reason.UNSUBSCRIBED, Suppression.Source.RECIPIENT
    suppressions.suppress(suppressions.New(address, reason, source, "one-click unsubscribe", now))
