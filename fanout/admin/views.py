"""Endpoints beside the admin's own pages: the live stream, the bell's history, media files."""

from __future__ import annotations

from typing import Any

from asgiref.sync import sync_to_async
from django.contrib.auth import get_user
from django.contrib.sessions.backends.db import SessionStore
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse, StreamingHttpResponse
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from accounts import access
from accounts.inputs import as_id, as_ids
from config.web import light
from fanout.admin import bell, stream
from fanout.models import Notification, Run
from reminders.media import answer_with
from reminders.models import MediaFile

MOST_WATCHED = 100
#: what a browser may show in place; everything else is a download, whatever its sender claims it to be
SHOWN_IN_PLACE = {"image/png", "image/jpeg", "image/gif", "image/webp"}


async def live(request: HttpRequest) -> StreamingHttpResponse:
    """Server-sent events: this person's notifications, and the progress of the runs on the page."""
    if request.method != "GET":
        raise PermissionDenied
    user_id, runs = await sync_to_async(_opening)(request, request.user)

    async def missed() -> list[str]:
        return await light.run(_missed, request, user_id)

    async def still_allowed() -> list[int] | None:
        return await light.run(_still_allowed, request, user_id)

    events = stream.events(user_id, runs, missed, still_allowed)
    response = StreamingHttpResponse(events, content_type="text/event-stream")
    response["Cache-Control"] = "no-store"
    response["X-Accel-Buffering"] = "no"
    return response


def _still_allowed(request: HttpRequest, user_id: int) -> list[int] | None:
    """The runs that the person may see now; None when their session has ended, or they may see nothing any more."""
    now = HttpRequest()
    now.session = SessionStore(request.session.session_key)
    try:
        who, runs = _opening(request, get_user(now))
    except PermissionDenied:
        return None
    return runs if who == user_id else None


def _opening(request: HttpRequest, user: Any) -> tuple[int, list[int]]:
    """The user's id, and those of the requested runs that they may see."""
    if not (user.is_active and user.is_staff):
        raise PermissionDenied
    wanted = as_ids(request.GET.get("runs", "").split(","))[:MOST_WATCHED]
    runs: list[int] = []
    if wanted and user.has_perm("fanout.view_run"):
        runs = list(access.visible(user, Run.objects.filter(pk__in=wanted)).values_list("pk", flat=True))
    return user.pk, runs


def _missed(request: HttpRequest, user_id: int) -> list[str]:
    after = request.headers.get("Last-Event-ID") or request.GET.get("after", "")
    last = as_id(after)
    return bell.missed(user_id, last, timezone.now()) if last is not None else []


@require_GET
def bell_history(request: HttpRequest) -> HttpResponse:
    items = bell.with_buttons(request.user, list(bell.history(request.user)), timezone.now())
    return TemplateResponse(request, "crier/bell_history.html", {"items": items})


@require_GET
def bell_buttons(request: HttpRequest, pk: int) -> HttpResponse:
    """What can be done about one notification, for its toast."""
    notification = get_object_or_404(Notification, pk=pk, user=request.user)
    ((_, run, buttons),) = bell.with_buttons(request.user, [notification], timezone.now())
    return TemplateResponse(request, "crier/bell_buttons.html", {"run": run, "buttons": buttons})


@require_POST
def bell_read(request: HttpRequest) -> HttpResponse:
    """Mark the named notifications as read, or all. Answers with what is left on the bell."""
    named = request.POST.getlist("id")
    bell.mark_read(request.user, timezone.now(), as_ids(named) if named else None)
    if "from_list" in request.POST:
        return HttpResponseRedirect(reverse("admin:fanout_notification_changelist"))
    return JsonResponse(bell.state(request.user))


@require_GET
def media_file(request: HttpRequest, pk: int) -> HttpResponse:
    user: Any = request.user
    if not user.has_perm("reminders.view_mediafile"):
        raise PermissionDenied
    media = get_object_or_404(access.visible(user, MediaFile.objects.all()), pk=pk)
    shown = media.mime in SHOWN_IN_PLACE
    kind = media.mime if shown else "application/octet-stream"
    try:
        return answer_with(media, kind, download=not shown)
    except FileNotFoundError:
        raise Http404 from None
