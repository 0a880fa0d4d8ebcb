"""The pages of one's own second factor: setting it up, recovery codes, and the code at login."""

from __future__ import annotations

import base64
from typing import Any

import django_otp
from django import forms
from django.contrib import admin, messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters

from accounts import second_factor
from fanout.admin.security.confirming import next_page, sensitive
from fanout.models.trail import note

WRONG = "This code is not right, or was used already. After each wrong one it takes longer until the next is accepted."


class CodeForm(forms.Form):
    code = forms.CharField(
        max_length=20,
        widget=forms.TextInput(attrs={"autocomplete": "one-time-code", "autofocus": True, "spellcheck": "false"}),
    )


@never_cache
@sensitive_post_parameters("code")
def enter_code(request: HttpRequest) -> HttpResponse:
    """After the password: a code from the app, or a recovery code."""
    if second_factor.app_of(request.user) is None:
        return HttpResponseRedirect(next_page(request))
    form = CodeForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        if (device := second_factor.accepted(request.user, form.cleaned_data["code"])) is not None:
            let_in(request, device)
            return HttpResponseRedirect(next_page(request))
        note("wrong code", request.user, request.user, timezone.now())
        form.add_error("code", WRONG)
    # Without the header's menu and bell: this session may see nothing yet.
    context = admin.site.each_context(request) | {"title": "Second factor", "form": form, "has_permission": False}
    return TemplateResponse(request, "crier/security/code.html", context)


def let_in(request: HttpRequest, device: Any) -> None:
    django_otp.login(request, device)
    # A session id that somebody saw before the code was given is worth nothing after it.
    request.session.cycle_key()
    if not second_factor.is_app(device):
        left = second_factor.recovery_codes_left(request.user)
        note("used a recovery code", request.user, request.user, timezone.now(), f"{left} left")
        messages.warning(request, f"You used a recovery code; {left} are left.")


@never_cache
@sensitive_post_parameters("code")
@sensitive
def my_second_factor(request: HttpRequest) -> HttpResponse:
    if request.method == "POST":
        return STEPS.get(request.POST.get("step", ""), page)(request)
    return page(request)


def page(request: HttpRequest, **extra: Any) -> HttpResponse:
    app, begun = second_factor.app_of(request.user), second_factor.begun(request.user)
    context = admin.site.each_context(request) | {
        "title": "Second factor",
        "app": app,
        "codes_left": second_factor.recovery_codes_left(request.user),
        "required": second_factor.required_of(request.user),
        "form": CodeForm(),
    }
    if begun is not None:
        context |= {"qr": second_factor.qr_code(begun), "key": key_words(begun)}
    return TemplateResponse(request, "crier/security/second_factor.html", context | extra)


def key_words(app: Any) -> str:
    """The key for people without a camera, in groups of four."""
    key = base64.b32encode(app.bin_key).decode()
    return " ".join(key[start : start + 4] for start in range(0, len(key), 4))


def begin(request: HttpRequest) -> HttpResponse:
    second_factor.begin(request.user)
    return HttpResponseRedirect(reverse("admin:second_factor"))


def finish(request: HttpRequest) -> HttpResponse:
    form = CodeForm(request.POST)
    app = second_factor.finish(request.user, form.cleaned_data["code"]) if form.is_valid() else None
    if app is None:
        form.add_error("code", WRONG)
        return page(request, form=form)
    django_otp.login(request, app)
    note("turned on the second factor", request.user, request.user, timezone.now())
    return page(request, codes=second_factor.new_recovery_codes(request.user))


def renew(request: HttpRequest) -> HttpResponse:
    """New recovery codes. They are in this answer only: nobody can look them up later."""
    if second_factor.app_of(request.user) is None:
        return page(request)
    note("made new recovery codes", request.user, request.user, timezone.now())
    return page(request, codes=second_factor.new_recovery_codes(request.user))


@transaction.atomic
def remove(request: HttpRequest) -> HttpResponse:
    second_factor.remove(request.user)
    note("turned off the second factor", request.user, request.user, timezone.now())
    messages.success(request, "The second factor is off.")
    return HttpResponseRedirect(reverse("admin:second_factor"))


STEPS = {"begin": begin, "finish": transaction.atomic(finish), "renew": transaction.atomic(renew), "remove": remove}
