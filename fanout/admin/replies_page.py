"""The page of replies: of all runs, newest first, with the message that each one answers and its buttons."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from accounts import access
from accounts.inputs import LARGEST_ID, as_id
from accounts.models import Account
from fanout.admin.list_actions import attempt, back, tell
from fanout.admin.model_admin import teams
from fanout.inbound import reply_inbox
from fanout.inbound.reply_inbox import ALL, HANDLED, OPEN, Wanted
from fanout.models import Run

#: accounts and teams that the filters offer; the page's address accepts any other
MOST_CHOICES = 200
MOST_SEARCHED = 200  # characters
PILLS = ((OPEN, "Not handled", "warn"), (HANDLED, "Handled", "good"), (ALL, "All", "mute"))
#: what is left to do with a reply: the name of the control, its label, its tone, and what the browser asks first
BUTTONS = (
    ("handled", "Handled", "primary", ""),
    ("converted", "Converted", "", ""),
    ("opted_out", "Opt out", "danger", "Send no more messages to this person, from any account?"),
)


@require_GET
def replies_page(request: HttpRequest) -> HttpResponse:
    _require(request, "fanout.view_inboundevent")
    now, wanted = timezone.now(), wanted_in(request)
    rows, earlier = reply_inbox.page(request.user, wanted, now)
    acting = access.may_do(request.user, "fanout.change_inboundevent")
    run = access.visible(request.user, Run.objects.filter(pk=wanted.run)).first() if wanted.run else None
    context = {
        "title": "Replies",
        "replies": [(reply, buttons_for(reply) if acting else []) for reply in rows],
        "pills": pills(request, wanted),
        "wanted": wanted,
        "run_number": "" if wanted.run is None else request.GET["run"],
        "of_run": run,
        "accounts": _labels(access.visible(request.user, Account.objects.all()).order_by("label"), "label"),
        "teams": _labels(teams(request.user), "name"),
        "earlier": _link(request, before=str(earlier)) if earlier else "",
        "is_first": wanted.before is None,
        "newest": _link(request, before=""),
        "narrowed": wanted.person != "" or {wanted.account, wanted.team, wanted.run} != {None},
    }
    return TemplateResponse(request, "crier/replies.html", admin.site.each_context(request) | context)


@require_POST
def reply_do(request: HttpRequest, pk: int) -> HttpResponse:
    """Apply one control to a reply: as posted, or mark it as handled."""
    _require(request, "fanout.view_inboundevent")
    event, control = reply_inbox.find(request.user, pk), reply_inbox.CONTROLS.get(request.POST.get("do", "handled"))
    if event is None or control is None:
        raise Http404
    _require(request, "fanout.change_inboundevent")
    tell(request, attempt(lambda event: control(event, request.user, timezone.now()), event))
    return back(request, reverse("admin:replies"))


def _require(request: HttpRequest, permission: str) -> None:
    may = access.may_do(request.user, permission) if ".change_" in permission else request.user.has_perm(permission)
    if not may:
        raise PermissionDenied


def wanted_in(request: HttpRequest) -> Wanted:
    """Return the filters of the page's address; what is no number is ignored. A number that no row can have matches
    nothing."""
    asked = request.GET
    state = asked.get("state", OPEN)
    return Wanted(
        state=state if state in reply_inbox.STATES else OPEN,
        account=_number(asked.get("account", "")),
        team=_number(asked.get("team", "")),
        run=_number(asked.get("run", "")),
        person=asked.get("person", "").replace("\x00", "")[:MOST_SEARCHED],
        before=as_id(asked.get("before", "")),
    )


def _number(text: str) -> int | None:
    too_large = text.isascii() and text.isdecimal() and as_id(text) is None
    return LARGEST_ID if too_large else as_id(text)


def pills(request: HttpRequest, wanted: Wanted) -> list[dict[str, Any]]:
    return [
        {"label": label, "tone": tone, "chosen": wanted.state == state, "url": _link(request, state=state, before="")}
        for state, label, tone in PILLS
    ]


def buttons_for(reply: reply_inbox.Reply) -> list[tuple[str, str, str, str]]:
    """Return the buttons that would change something."""
    if reply.event.handled_at is not None:
        done = {"handled"}
        again = [("open", "Not handled", "", "")]
    else:
        done, again = set(), []
    if reply.suppressed:
        done |= {"opted_out", "converted"}
    if reply.person is None or reply.person.status == reply.person.Status.CONVERTED:
        done |= {"converted"}
    return [*again, *(button for button in BUTTONS if button[0] not in done)]


def _labels(rows: Any, name: str) -> list[tuple[int, str]]:
    return list(rows.values_list("pk", name)[:MOST_CHOICES])


def _link(request: HttpRequest, **changes: str) -> str:
    """Return the page's address with other filters; an empty one is left out."""
    asked = {name: request.GET.get(name, "") for name in ("state", "account", "team", "run", "person", "before")}
    return f"?{urlencode({name: value for name, value in (asked | changes).items() if value})}"
