"""Confirmation: before a sensitive change (credentials, users, the second factor) a person enters password or code once
more, unless they have done so within the last minutes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import wraps
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.auth import authenticate
from django.contrib.auth.signals import user_logged_in
from django.dispatch import receiver
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.http import url_has_allowed_host_and_scheme, urlencode
from django.views.decorators.debug import sensitive_post_parameters

from accounts import second_factor
from fanout.models.trail import note

CONFIRMED_FOR = timedelta(minutes=15)
SESSION_KEY = "crier_confirmed_at"

View = Callable[..., HttpResponse]


def is_confirmed(request: HttpRequest, now: datetime) -> bool:
    at = request.session.get(SESSION_KEY, 0)
    return timedelta(0) <= now - datetime.fromtimestamp(at, now.tzinfo) < CONFIRMED_FOR


def remember(request: HttpRequest, now: datetime) -> None:
    request.session[SESSION_KEY] = now.timestamp()


@receiver(user_logged_in, dispatch_uid="confirmed at login")
def logged_in(request: HttpRequest, **kwargs: Any) -> None:
    remember(request, timezone.now())


def sensitive(view: View) -> View:
    """The view, for people who have confirmed that it is them; others are asked first and then led back."""

    @wraps(view)
    def asking(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        # Visitors too: the view sends them to the login.
        if not request.user.is_authenticated or is_confirmed(request, timezone.now()):
            return view(request, *args, **kwargs)
        return HttpResponseRedirect(confirm_url(request))

    return asking


def confirm_url(request: HttpRequest, then: str = "") -> str:
    """`then`: where to go on afterwards; without it the same address, which must be a page and no button's."""
    return f"{reverse('admin:confirm')}?{urlencode({'next': then or request.get_full_path()})}"


def confirm_first(request: HttpRequest, form: type[Any], *names: str) -> type[Any]:
    """The form class; unless the person has confirmed, one that does not accept these fields."""
    if is_confirmed(request, timezone.now()):
        return form
    link = format_html('<a href="{}">Confirm that it is you</a>', confirm_url(request))

    def refusing(name: str) -> Callable[[Any], None]:
        def refuse(self: Any) -> None:
            if self.cleaned_data[name]:
                raise forms.ValidationError(format_html("{}, then enter it again.", link))

        return refuse

    def explain(self: Any, *args: Any, **kwargs: Any) -> None:
        form.__init__(self, *args, **kwargs)
        for name in names:
            if name in self.fields:
                self.fields[name].help_text = format_html("{} to change it.", link)

    return type(form.__name__, (form,), {f"clean_{name}": refusing(name) for name in names} | {"__init__": explain})


class ConfirmForm(forms.Form):
    proof = forms.CharField(
        max_length=200, widget=forms.PasswordInput(attrs={"autocomplete": "current-password", "autofocus": True})
    )


@sensitive_post_parameters("proof")
def confirm_page(request: HttpRequest) -> HttpResponse:
    """Ask for the password, or for a code of the second factor."""
    form = ConfirmForm(request.POST or None)
    has_app = second_factor.app_of(request.user) is not None
    form.fields["proof"].label = "Your password, or a code from your app" if has_app else "Your password"
    if request.method == "POST" and form.is_valid():
        if proves(request, form.cleaned_data["proof"]):
            remember(request, timezone.now())
            return HttpResponseRedirect(next_page(request))
        note("confirmation failed", request.user, request.user, timezone.now())
        form.add_error("proof", "That is not right.")
    context = admin.site.each_context(request) | {"title": "Confirm that it is you", "form": form}
    return TemplateResponse(request, "crier/security/confirm.html", context)


def proves(request: HttpRequest, proof: str) -> bool:
    """Through the login's own back ends, so that guessing here is slowed down and locked out as it is there."""
    user: Any = request.user
    if second_factor.is_app_code(second_factor.tidy(proof)) and second_factor.accepted(user, proof):
        return True
    person = authenticate(request, username=user.get_username(), password=proof)
    return person is not None and person.pk == user.pk


def next_page(request: HttpRequest) -> str:
    """Where the person wanted to go, if it is a page of this site."""
    wanted = request.GET.get("next", "")
    mine = url_has_allowed_host_and_scheme(wanted, {request.get_host()}, request.is_secure())
    return wanted if mine else reverse("admin:index")
