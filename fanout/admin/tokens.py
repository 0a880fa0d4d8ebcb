"""A person's API tokens: made with a name and scopes, shown once, and revoked. Administrators revoke others' too."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.utils import timezone
from django.views.decorators.cache import never_cache

from accounts import tokens
from accounts.models import ApiToken
from fanout.admin.login import sensitive
from fanout.admin.model_admin import teams
from fanout.models.trail import note


class TokenForm(forms.Form):
    name = forms.CharField(
        max_length=60, help_text="The program that uses it, such as “n8n”. The audit trail shows it."
    )
    scopes = forms.MultipleChoiceField(
        choices=ApiToken.Scope.choices, widget=forms.CheckboxSelectMultiple, initial=["read"]
    )
    team = forms.ModelChoiceField(
        queryset=Group.objects.none(),
        required=False,
        empty_label="everything that you see",
        help_text="A token for one team sees only what is shared with it, and shares with it what it adds.",
    )
    expires_on = forms.DateField(
        required=False,
        label="Works until",
        widget=forms.DateInput(attrs={"type": "date"}),
        help_text="The last day, in UTC. Empty: until it is revoked.",
    )

    def __init__(self, user: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choice: Any = self.fields["team"]
        choice.queryset = teams(user)

    def expires_at(self) -> datetime | None:
        day = self.cleaned_data["expires_on"]
        return datetime.combine(day + timedelta(days=1), time(), UTC) if day else None


@never_cache
@sensitive
def token_page(request: HttpRequest, pk: int | None = None) -> HttpResponse:
    """Show a person's tokens; make and revoke them. People see their own, administrators also others'."""
    if not request.user.is_staff:
        raise PermissionDenied
    person: Any = request.user
    if pk is not None and pk != person.pk:
        if not request.user.is_superuser:
            raise PermissionDenied
        person = get_object_or_404(get_user_model(), pk=pk)
    if request.method == "POST" and "revoke" in request.POST:
        return _revoke(request, person)
    own = person.pk == request.user.pk
    form = TokenForm(request.user, request.POST or None) if own else None
    secret = _issue(request, form) if form is not None and request.method == "POST" and form.is_valid() else ""
    context = admin.site.each_context(request) | {
        "title": "API tokens" if own else f"API tokens of {person}",
        "form": TokenForm(request.user) if secret else form,
        "secret": secret,
        "tokens": person.api_tokens.select_related("team").order_by("-pk")[: 2 * tokens.MOST_TOKENS],
        "now": timezone.now(),
    }
    return TemplateResponse(request, "crier/tokens.html", context)


def _issue(request: HttpRequest, form: TokenForm) -> str:
    """Return the new token's secret; "" where it was refused, which the form says."""
    now, wish = timezone.now(), form.cleaned_data
    try:
        expires_at = form.expires_at()
    except OverflowError:
        form.add_error("expires_on", "Choose a day within ten years.")
        return ""
    try:
        with transaction.atomic():
            token, secret = tokens.issue(request.user, wish["name"], wish["scopes"], wish["team"], expires_at, now)
            note("made an API token", token, request.user, now, f"{token.name}: {', '.join(token.scopes)}")
    except ValidationError as problem:
        form.add_error(None, " ".join(problem.messages))
        return ""
    return secret


def _revoke(request: HttpRequest, person: Any) -> HttpResponse:
    named = request.POST["revoke"]
    token = get_object_or_404(ApiToken, pk=int(named) if named.isascii() and named.isdecimal() else 0, user=person)
    now = timezone.now()
    with transaction.atomic():
        if tokens.revoke(token, now):
            note("revoked an API token", token, request.user, now, token.name)
            messages.success(request, f"“{token}” is revoked: calls with it are refused from now on.")
    return HttpResponseRedirect(request.get_full_path())
