"""The audit trail: who changed which account, reminder or user, from where. Entries are added and never changed."""

from __future__ import annotations

import getpass
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Any

from django.db import models

#: address of the request under way, set by a middleware. Empty: the shell, or Crier itself
client: ContextVar[str] = ContextVar("client", default="")
#: set while a command of the shell works for a person
at_the_shell: ContextVar[bool] = ContextVar("at_the_shell", default=False)
#: name of the API token whose call is under way
token: ContextVar[str] = ContextVar("token", default="")

#: kinds whose name an administrator may read; other things are named by their number, because the name may be an
#: address
NAMED = {"account", "reminder", "user", "group", "optoutphrase", "segment"}


class TrailEntry(models.Model):
    at = models.DateTimeField("when")
    # No foreign keys: an entry outlives the person and the thing it names.
    actor_id = models.BigIntegerField(null=True, blank=True)
    actor_name = models.CharField("who", max_length=150)
    address = models.CharField("from", max_length=45, blank=True)
    verb = models.CharField("what", max_length=40)
    kind = models.CharField(max_length=40, blank=True)
    subject_id = models.CharField(max_length=40, blank=True)
    subject = models.CharField(max_length=200, blank=True)
    # Names of fields and pace values; never a secret, a message or a recipient's address.
    detail = models.TextField(blank=True)

    class Meta:
        verbose_name = "audit trail entry"
        verbose_name_plural = "audit trail"
        ordering = ["-at", "-id"]
        indexes = [
            # the list, the retention, and the ceiling for failed logins
            models.Index(fields=["at"], name="trail_at"),
            # the list, filtered by what happened or by the kind of thing
            models.Index(fields=["verb", "at"], name="trail_verb"),
            models.Index(fields=["kind", "at"], name="trail_kind"),
        ]

    def __str__(self) -> str:
        # A login is of oneself.
        subject = "" if self.subject == self.actor_name else self.subject
        return f"{self.actor_name} {self.verb} {subject}".rstrip()


def note(verb: str, thing: Any, actor: Any, now: datetime, detail: str = "") -> None:
    note_all(verb, [thing], actor, now, detail)


def note_all(verb: str, things: Iterable[Any], actor: Any, now: datetime, detail: str = "") -> None:
    """Add an entry for each thing, in the caller's transaction: no change without its entry, and no entry without
    it."""
    common = {"at": now, "verb": verb, "detail": detail, "address": client.get()} | _actor(actor)
    TrailEntry.objects.bulk_create([TrailEntry(**common, **_subject(thing)) for thing in things], batch_size=1000)


def _actor(actor: Any) -> dict[str, Any]:
    if actor is None or actor.pk is None:
        return {"actor_name": "nobody" if client.get() else shell_user() or "Crier"}
    return {"actor_id": actor.pk, "actor_name": f"{actor.get_username()}{by_token()}"[:150]}


def by_token() -> str:
    """Return how a call of the API is marked; empty elsewhere."""
    return f" (token {token.get()})" if token.get() else ""


@contextmanager
def with_token(name: str) -> Iterator[None]:
    """Mark entries as those of a call with this token; an empty name marks nothing."""
    before = token.set(name)
    try:
        yield
    finally:
        token.reset(before)


def shell_user() -> str:
    """Return how a person at the shell is named; empty where Crier acts by itself."""
    return f"shell ({_system_user()})" if at_the_shell.get() else ""


def with_author(detail: str, user: Any) -> str:
    """Return the detail of an event in a timeline, with the shell or the token that acted. The event names the user."""
    by = f"by {shell_user()}" if user is None and shell_user() else by_token().strip(" ()")
    return f"{detail}, {by}".removeprefix(", ") if by else detail


def _system_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"  # a container's user without a name


def _subject(thing: Any) -> dict[str, str]:
    if thing is None:
        return {}
    kind = str(thing._meta.model_name)
    name = str(thing) if kind in NAMED else f"{thing._meta.verbose_name} {thing.pk}"
    return {"kind": kind, "subject_id": str(thing.pk), "subject": name[:200]}
