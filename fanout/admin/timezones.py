"""One clock for a person's pages: the timezone they chose, else that of their browser."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.deprecation import MiddlewareMixin

from accounts.inputs import valid_timezone
from accounts.models import Profile
from fanout.admin.model_admin import ModelForm, zone_list

#: the page's script writes the browser's timezone here, on the login page already
COOKIE = "timezone"


class TimezoneMiddleware(MiddlewareMixin):
    """Shows all times on admin pages in the reader's timezone."""

    def process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: Any) -> None:
        match = request.resolver_match
        if match is not None and match.app_name == "admin":
            timezone.activate(zone_of(request))

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        timezone.deactivate()
        return response


def zone_of(request: HttpRequest) -> str:
    guess = request.COOKIES.get(COOKIE, "")
    zone = chosen_zone(request.user) or (guess if valid_timezone(guess) else "")
    return zone or timezone.get_default_timezone_name()


def chosen_zone(user: Any) -> str:
    if not user.is_authenticated:
        return ""
    return Profile.objects.filter(user=user).values_list("timezone", flat=True).first() or ""


class ProfileForm(ModelForm):
    class Meta:
        model = Profile
        fields = ("timezone",)
        widgets = {"timezone": forms.TextInput(attrs={"list": "zones"})}


def my_timezone(request: HttpRequest) -> HttpResponse:
    """Show and save the person's own timezone."""
    user: Any = request.user
    if not user.is_staff:
        raise PermissionDenied
    profile = Profile.objects.filter(user=user).first() or Profile(user=user)
    form = ProfileForm(request.POST or None, instance=profile)
    if request.method == "POST" and form.is_valid():
        form.save()
        messages.success(request, "Saved.")
        return HttpResponseRedirect(reverse("admin:my_timezone"))
    context = admin.site.each_context(request) | {"title": "Your timezone", "form": form, "zones": zone_list()}
    return TemplateResponse(request, "crier/my_timezone.html", context)
