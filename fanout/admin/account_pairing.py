"""Pairing a number with its phone: a code that renews itself, the state of the session, and its groups."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import segno
from asgiref.sync import async_to_sync
from django.contrib import admin
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.safestring import SafeString, mark_safe
from django.views.decorators.cache import never_cache

from accounts.addresses import PERSON, AddressError, normalise
from accounts.channels.http import FAILURES, words_of
from accounts.channels.registry import channel, pairing
from accounts.models import Account, PairedSession
from fanout.admin.list_actions import tell
from fanout.lanes.paired_numbers import CannotMove, is_moving, machines, move, moving_words
from fanout.models import Event
from fanout.models.trail import note
from fanout.runs.controls import ControlResult, compare_with_journal, synchronise_groups

#: states of a session in which pairing can begin
CAN_PAIR = {"unpaired", "expired", "pairing"}
CAN_CONNECT = {"replaced", "refused", "disconnected", "outdated", "banned"}


@never_cache
def pairing_page(request: HttpRequest, account: Account) -> HttpResponse:
    only_paired(account)
    if request.method == "POST":
        step = STEPS.get(request.POST.get("step", ""))
        if step is not None:
            tell(request, step(request, account, timezone.now()))
        return HttpResponseRedirect(reverse("admin:accounts_account_pair", args=[account.pk]))
    context = admin.site.each_context(request) | {"title": f"Pair {account.label}"} | session_context(account)
    return TemplateResponse(request, "crier/pairing/page.html", context)


@never_cache
def pairing_state(request: HttpRequest, account: Account) -> HttpResponse:
    """Return the part of the page that the browser fetches again and again."""
    only_paired(account)
    return TemplateResponse(request, "crier/pairing/state.html", session_context(account))


def only_paired(account: Account) -> None:
    if not channel(account.channel).pairs:
        raise Http404


def session_context(account: Account) -> dict[str, Any]:
    stored = PairedSession.objects.filter(account=account).first()
    context: dict[str, Any] = {
        "account": account,
        "missing": channel(account.channel).bridge_problem(),
        "machines": machines(account, timezone.now()),
        "stored": stored,
        "moving": sentence(moving_words(stored, timezone.now())) if stored and is_moving(stored) else "",
    }
    try:
        answer = async_to_sync(pairing(account.channel))(account.pk, "GET")
    except FAILURES as error:
        return context | {"problem": sentence(words_of(error))}
    if answer.status != 200:
        return context | {"problem": sentence(str(answer.body.get("detail") or f"HTTP {answer.status}"))}
    session = answer.body
    return context | {
        "session": session,
        "qr": qr_code(session["qr"]) if session["qr"] else "",
        "expires_at": parse_moment(session["code_expires_at"]),
        "since": parse_moment(session["since"]),
        "until": parse_moment(session["until"]),
        "can_pair": session["state"] in CAN_PAIR,
        "can_connect": session["state"] in CAN_CONNECT,
    }


def sentence(words: str) -> str:
    return words[:1].upper() + words[1:].rstrip(".") + "."


def qr_code(text: str) -> SafeString:
    """Return an SVG without style attributes, which the content security policy forbids."""
    picture = segno.make(text, micro=False).svg_inline(scale=5, border=4, dark="#000", light="#fff")
    return mark_safe(picture)  # noqa: S308 - drawn by segno: no text of a person is in it


def parse_moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


# --- buttons ------------------------------------------------------------------------------


def pair(request: HttpRequest, account: Account, now: datetime) -> ControlResult:
    phone = request.POST.get("phone", "").strip()
    try:
        phone = normalise(PERSON, phone) if phone else ""
    except AddressError as error:
        return ControlResult(False, str(error))
    answer = ask_bridge(account, "pair", {"phone": phone})
    if answer.ok:
        note_pairing("pairing began", account, request.user, now)
    # It stays on the page when the phone has scanned the code; the state below says what to do at each step.
    return ControlResult(answer.ok, "Pairing has begun." if answer.ok else answer.text)


def connect(request: HttpRequest, account: Account, now: datetime) -> ControlResult:
    answer = ask_bridge(account, "connect")
    return ControlResult(answer.ok, "Connecting …" if answer.ok else answer.text)


def unpair(request: HttpRequest, account: Account, now: datetime) -> ControlResult:
    answer = ask_bridge(account, "logout")
    if answer.ok:
        note_pairing("unpaired", account, request.user, now)
    return answer


def synchronise(request: HttpRequest, account: Account, now: datetime) -> ControlResult:
    return synchronise_groups(account, request.user, now)


def restored(request: HttpRequest, account: Account, now: datetime) -> ControlResult:
    answer = compare_with_journal(account)
    if answer.ok:
        note_pairing("compared after a restore", account, request.user, now)
    return answer


def move_number(request: HttpRequest, account: Account, now: datetime) -> ControlResult:
    try:
        words = move(account, request.POST.get("host", ""), request.user, now)
    except CannotMove as problem:
        return ControlResult(False, str(problem))
    note("moved", account, request.user, now)
    return ControlResult(True, words)


STEPS: dict[str, Callable[[HttpRequest, Account, datetime], ControlResult]] = {
    "pair": pair,
    "connect": connect,
    "unpair": unpair,
    "synchronise": synchronise,
    "restored": restored,
    "move": move_number,
}


def ask_bridge(account: Account, action: str, body: dict[str, Any] | None = None) -> ControlResult:
    try:
        answer = async_to_sync(pairing(account.channel))(account.pk, "POST", action, body)
    except FAILURES as error:
        return ControlResult(False, sentence(words_of(error)))
    return ControlResult(answer.status == 200, sentence(str(answer.body.get("detail") or "")))


def note_pairing(verb: str, account: Account, user: Any, now: datetime) -> None:
    Event.objects.create(account=account, actor=user, at=now, verb=verb)
    note(verb, account, user, now)
