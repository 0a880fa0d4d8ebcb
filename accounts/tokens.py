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
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.db import connection
from django.db.models import F, Model, Q, QuerySet

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

# The setting holds until the end of the transaction, which is this statement. It also reads the person with teams and
# permissions: asked one by one, they would cost more than most operations.
USE = """
WITH quick AS (SELECT set_config('synchronous_commit', 'off', true) AS off),
used AS (
  UPDATE accounts_apitoken t
     SET calls = CASE WHEN t.minute = %(minute)s THEN t.calls + 1 ELSE 1 END, minute = %(minute)s,
         last_used_at = %(now)s, last_used_from = %(address)s
    FROM quick
   WHERE t.digest = %(digest)s AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > %(now)s)
     AND quick.off IS NOT NULL
  RETURNING t.*)
SELECT array(SELECT g.id FROM auth_user_groups ug JOIN auth_group g ON g.id = ug.group_id
              WHERE ug.user_id = u.id ORDER BY g.id),
       array(SELECT g.name FROM auth_user_groups ug JOIN auth_group g ON g.id = ug.group_id
              WHERE ug.user_id = u.id ORDER BY g.id),
       array(SELECT c.app_label || '.' || p.codename
               FROM auth_permission p JOIN django_content_type c ON c.id = p.content_type_id
              WHERE p.id IN (SELECT up.permission_id FROM auth_user_user_permissions up WHERE up.user_id = u.id
                             UNION ALL
                             SELECT gp.permission_id FROM auth_user_groups ug
                               JOIN auth_group_permissions gp ON gp.group_id = ug.group_id
                              WHERE ug.user_id = u.id)),
       {token}, {user}
  FROM used t JOIN auth_user u ON u.id = t.user_id WHERE u.is_active AND u.is_staff
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
    person = get_user_model()
    names, columns = _columns(ApiToken, "t"), _columns(person, "u")
    with connection.cursor() as cursor:
        cursor.execute(USE.format(token=", ".join(names.values()), user=", ".join(columns.values())), facts)
        row = cursor.fetchone()
    if row is None:
        return None
    ids, teams, permissions, *values = row
    token = ApiToken.from_db(connection.alias, list(names), values[: len(names)])
    token.user = person.from_db(connection.alias, list(columns), values[len(names) :])
    groups = [Group(pk=pk, name=name) for pk, name in zip(ids, teams)]
    _know(token.user, groups, permissions)
    # A team that the person has left is read by itself.
    token.team = next((group for group in groups if group.pk == token.team_id), None) or token.team
    return Use(token, settings.API_CALLS_PER_MINUTE - token.calls, 60 - now.second)


def _columns(model: type[Model], alias: str) -> dict[str, str]:
    return {field.attname: f'{alias}."{field.column}"' for field in model._meta.concrete_fields}


def _know(user: Any, groups: list[Group], permissions: list[str]) -> None:
    """Let the person's teams and permissions be known without further queries, for this call."""
    known = user.groups.all()
    known._result_cache = groups
    user._prefetched_objects_cache = {"groups": known}
    user._perm_cache = set(permissions)


def still_in_force(token: ApiToken, permission: str, now: datetime) -> bool:
    """Return whether a token that was used before may go on with an operation that needs the permission: it was not
    revoked, and its person has kept role, login and team. No call is counted."""
    may = get_user_model().objects.with_perm(permission, backend="django.contrib.auth.backends.ModelBackend")
    member = Q(team=None) | Q(user__is_superuser=True) | Q(user__groups=F("team"))
    usable = ApiToken.objects.filter(member, pk=token.pk, user__in=may.filter(is_staff=True))
    return in_force(usable, now).exists()


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
