"""API tokens: issued, shown once, looked up with every call, counted and revoked.

A token is 256 random bits, so a plain hash of it is enough, and looking it up is one statement. That statement also
counts the call and notes the last use; it does not wait for the disk, because the count is worth nothing after a crash.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import connection
from django.db.models import Q, QuerySet

from accounts import access
from accounts.models import ApiToken, TokenGuess

PREFIX = "crier_"
SHOWN = len(PREFIX) + 6
#: tokens that a person may have in force: each is a key that may leak
MOST_TOKENS = 50
LONGEST = timedelta(days=3650)
#: unknown tokens from one address before it gets 429; tokens that are right still work from there
MOST_GUESSES = 20
GUESSES_FOR = timedelta(minutes=15)


def issue(
    user: Any, name: str, scopes: list[str], team: Any, expires_at: datetime | None, now: datetime
) -> tuple[ApiToken, str]:
    """Return a new token and its secret, which is not stored. Raises ValidationError."""
    if not name.strip():
        raise ValidationError({"name": "Give the token a name: the program that uses it."})
    if not scopes:
        raise ValidationError({"scopes": "Choose at least one scope."})
    if expires_at is not None and not now < expires_at <= now + LONGEST:
        raise ValidationError({"expires_at": "Choose a day from tomorrow on, within ten years."})
    if team is not None and not (user.is_superuser or user.groups.filter(pk=team.pk).exists()):
        raise ValidationError({"team": "You are not a member of this team."})
    if team is not None and team.name in access.ROLE_GROUPS.values():
        raise ValidationError({"team": "This is a role, not a team."})
    if in_force(user.api_tokens.all(), now).count() >= MOST_TOKENS:
        raise ValidationError(f"You have {MOST_TOKENS} tokens: revoke those that are no longer used.")
    secret = PREFIX + secrets.token_urlsafe(32)
    token = ApiToken(
        user=user,
        name=" ".join(name.split())[:60],
        digest=digest_of(secret),
        begins=secret[:SHOWN],
        scopes=scopes,
        team=team,
        created_at=now,
        expires_at=expires_at,
    )
    token.full_clean()
    token.save(force_insert=True)
    return token, secret


def digest_of(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()


def revoke(token: ApiToken, now: datetime) -> bool:
    """Revoke the token at once. Returns whether it was in force."""
    return bool(ApiToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=now))


def in_force(tokens: QuerySet[ApiToken], now: datetime) -> QuerySet[ApiToken]:
    return tokens.filter(Q(expires_at=None) | Q(expires_at__gt=now), revoked_at=None)


# --- calls ----------------------------------------------------------------------------------------------------

# The setting holds until the end of the transaction, which is this statement.
USE = """
WITH quick AS (SELECT set_config('synchronous_commit', 'off', true) AS off)
UPDATE accounts_apitoken t
   SET calls = CASE WHEN t.minute = %(minute)s THEN t.calls + 1 ELSE 1 END, minute = %(minute)s,
       last_used_at = %(now)s, last_used_from = %(address)s
  FROM quick
 WHERE t.digest = %(digest)s AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > %(now)s)
   AND quick.off IS NOT NULL
RETURNING t.id, t.calls
"""


@dataclass(frozen=True, slots=True)
class Use:
    """One call: the token, and how many calls it has left in this minute. Below zero: too many."""

    token: ApiToken
    left: int
    renewed_in: int  # seconds

    @property
    def limit(self) -> int:
        return int(settings.API_CALLS_PER_MINUTE)


def use(secret: str, address: str, now: datetime) -> Use | None:
    """Return the call of this token; None if no token in force has this secret, or its person may not log in."""
    minute = now.replace(second=0, microsecond=0)
    facts: dict[str, Any] = {"digest": digest_of(secret), "now": now, "minute": minute, "address": address[:45]}
    with connection.cursor() as cursor:
        cursor.execute(USE, facts)
        row = cursor.fetchone()
    if row is None:
        return None
    token = ApiToken.objects.select_related("user", "team").get(pk=row[0])
    if not (token.user.is_active and token.user.is_staff):
        return None
    return Use(token, settings.API_CALLS_PER_MINUTE - row[1], 60 - now.second)


def exists(secret: str, now: datetime) -> bool:
    """Return whether a token in force has this secret, without counting a call."""
    return in_force(ApiToken.objects.filter(digest=digest_of(secret)), now).exists()


GUESS = """
INSERT INTO accounts_tokenguess AS g (address, since, tries) VALUES (%(address)s, %(now)s, 1)
ON CONFLICT (address) DO UPDATE
   SET tries = CASE WHEN g.since > %(since)s THEN least(g.tries + 1, %(most)s) ELSE 1 END,
       since = CASE WHEN g.since > %(since)s THEN g.since ELSE %(now)s END
RETURNING tries
"""


def guessed(address: str, now: datetime) -> int:
    """Count a call with an unknown token from this address. Returns how many there were lately, up to one too many."""
    facts: dict[str, Any] = {"address": address[:45], "now": now, "since": now - GUESSES_FOR, "most": MOST_GUESSES + 1}
    with connection.cursor() as cursor:
        cursor.execute(GUESS, facts)
        return int(cursor.fetchone()[0])


def forget_guesses(now: datetime) -> int:
    return TokenGuess.objects.filter(since__lte=now - GUESSES_FOR).delete()[0]
