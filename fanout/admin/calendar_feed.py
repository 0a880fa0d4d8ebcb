"""A person's calendar for calendar programs: an iCalendar file under a secret address that can be revoked."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django.contrib import admin, messages
from django.core.cache import cache
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone

from accounts.models import CalendarFeed
from fanout.admin.timezones import chosen_zone
from fanout.models.trail import note
from fanout.plans.agenda import PAST, UNSEEN, Agenda, Entry, agenda

DAYS = 31
#: programs read an address every few minutes, and looking ahead takes a moment
KEPT_SECONDS = 120
SHORTEST = timedelta(minutes=15)
LINE = 75  # octets of a line, by RFC 5545


def calendar_ics(request: HttpRequest, token: str) -> HttpResponse:
    """Return the calendar of the person to whom the secret belongs. No login: a calendar program has none."""
    feed = CalendarFeed.objects.select_related("user").filter(digest=_digest(token)).first()
    if feed is None or not _may_read(feed.user):
        raise Http404
    key = f"calendar-{feed.digest}-{_rights(feed.user)}"
    text: str | None = cache.get(key)
    if text is None:
        now = timezone.now()
        zone = chosen_zone(feed.user) or timezone.get_default_timezone_name()
        today = now.astimezone(ZoneInfo(zone)).date()
        days = [today + timedelta(days=n) for n in range(DAYS)]
        text = as_icalendar(agenda(feed.user, days, zone, now), request.get_host(), now)
        cache.set(key, text, KEPT_SECONDS)
    answer = HttpResponse(text, content_type="text/calendar; charset=utf-8")
    answer["Cache-Control"] = "private, no-store"
    answer["X-Robots-Tag"] = "noindex"
    answer["Content-Disposition"] = 'inline; filename="crier.ics"'
    return answer


def _may_read(user: Any) -> bool:
    """Return whether the person may still log in and see runs, as on the pages."""
    return bool(user.is_active and user.is_staff and user.has_perm("fanout.view_run"))


def _rights(user: Any) -> str:
    """Return a digest of what the person may see, for the cache's key: rights that are taken away end at once."""
    teams = sorted(user.groups.values_list("pk", flat=True))
    return _digest(f"{user.is_superuser} {teams} {sorted(user.get_all_permissions())}")


def my_calendar_feed(request: HttpRequest) -> HttpResponse:
    """Show whether the person has an address, and make or revoke it. The address is shown once, when it is made."""
    user: Any = request.user
    if not user.has_perm("fanout.view_run"):
        raise PermissionDenied
    address = ""
    if request.method == "POST":
        now = timezone.now()
        if "revoke" in request.POST:
            if CalendarFeed.objects.filter(user=user).delete()[0]:
                note("revoked calendar address", user, user, now)
            messages.success(request, "Revoked: calendar programs that have the address get nothing any more.")
            return HttpResponseRedirect(reverse("admin:calendar_feed"))
        token = secrets.token_urlsafe(32)
        CalendarFeed.objects.update_or_create(user=user, defaults={"digest": _digest(token), "created_at": now})
        note("made calendar address", user, user, now)
        address = request.build_absolute_uri(reverse("admin:calendar_ics", args=[token]))
    feed = CalendarFeed.objects.filter(user=user).first()
    context = {"title": "Calendar address", "feed": feed, "address": address, "days": DAYS}
    answer = TemplateResponse(request, "crier/calendar_feed.html", admin.site.each_context(request) | context)
    answer["Cache-Control"] = "no-store"
    return answer


def _digest(token: str) -> str:
    # The secret is 256 random bits: nothing is gained by a slow hash.
    return hashlib.sha256(token.encode()).hexdigest()


# --- iCalendar (RFC 5545) ----------------------------------------------------------------------------------


def as_icalendar(found: Agenda, host: str, now: datetime) -> str:
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//Crier//Calendar//EN", "X-WR-CALNAME:Crier"]
    labels = {account.pk: account.label for account in found.accounts}
    for cell in found.cells.values():
        for entry in cell.entries:
            if entry.tone != PAST and entry.title != UNSEEN:
                lines += _event(entry, labels[entry.account], host, now)
    return "".join(f"{folded}\r\n" for line in [*lines, "END:VCALENDAR"] for folded in _folded(line))


def _event(entry: Entry, account: str, host: str, now: datetime) -> list[str]:
    what = f"run-{entry.run}" if entry.run else f"reminder-{entry.reminder}"
    if entry.step:  # follow-ups of one firing may differ by less than a second
        what += f"-{entry.step}"
    ends = max(entry.ends or entry.begins, entry.begins + SHORTEST)
    warning = "⚠ " if entry.problem else ""
    return [
        "BEGIN:VEVENT",
        f"UID:{what}-{entry.account}-{_utc(entry.due)}-{entry.day:%Y%m%d}@{_text(host)}",
        f"DTSTAMP:{_utc(now)}",
        f"DTSTART:{_utc(entry.begins)}",
        f"DTEND:{_utc(ends)}",
        f"SUMMARY:{_text(f'{warning}{entry.title} ({account})')}",
        f"DESCRIPTION:{_text(f'{entry.recipients} through {account}: {entry.words}')}",
        "TRANSP:TRANSPARENT",
        "END:VEVENT",
    ]


def _utc(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y%m%dT%H%M%SZ}"


def _text(text: str) -> str:
    """Escape a text: line breaks in a title must not begin a property of their own."""
    for sign, escaped in (("\\", "\\\\"), (";", "\\;"), (",", "\\,")):
        text = text.replace(sign, escaped)
    return "\\n".join(text.splitlines())


def _folded(line: str) -> Iterator[str]:
    """Yield the line in pieces of at most 75 octets; all but the first begin with a space."""
    piece, size = "", 0
    for character in line:
        octets = len(character.encode())
        if size + octets > LINE:
            yield piece
            piece, size = " ", 1
        piece, size = piece + character, size + octets
    yield piece
