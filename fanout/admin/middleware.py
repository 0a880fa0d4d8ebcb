"""Middleware of every request: no NUL in it, the second factor, and its address for the audit trail."""

from __future__ import annotations

from typing import Any

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest, HttpResponseRedirect
from django.urls import reverse
from django.utils.decorators import sync_and_async_middleware
from django.utils.deprecation import MiddlewareMixin
from django.utils.http import urlencode

from accounts import second_factor
from config.web import client_address
from fanout.models.trail import client

#: pages without a second factor: they do not depend on the person, or are part of logging in
OPEN = {
    "metrics",
    "bounce_webhook",
    "unsubscribe",
    "admin:login",
    "admin:logout",
    "admin:second_factor_code",
}


class NulMiddleware(MiddlewareMixin):
    """Refuses requests with a NUL character: PostgreSQL cannot store one, and would raise an error."""

    def process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: Any) -> HttpResponse | None:
        # A webhook reads its body itself, once.
        posted = {} if getattr(view, "csrf_exempt", False) else dict(request.POST.lists())
        fields = [*request.GET.lists(), *posted.items()]
        if "\0" in request.path or any("\0" in text for name, texts in fields for text in (name, *texts)):
            return HttpResponseBadRequest("The request contains a NUL character.", content_type="text/plain")
        return None


class SecondFactorMiddleware(MiddlewareMixin):
    """Asks people who have a second factor for it before any page."""

    def process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: Any) -> HttpResponse | None:
        match = request.resolver_match
        if match is None or match.view_name in OPEN or not request.user.is_authenticated:
            return None
        page = missing_step(request.user)
        if page is None or page == match.view_name:
            return None
        return HttpResponseRedirect(f"{reverse(page)}?{urlencode({'next': request.get_full_path()})}")


def missing_step(user: Any) -> str | None:
    """Return the page that this session has to pass first; None if there is none."""
    if user.is_verified():
        return None
    if second_factor.app_of(user) is not None:
        return "admin:second_factor_code"
    return "admin:second_factor" if second_factor.required_of(user) else None


@sync_and_async_middleware
def client_address_in_trail(get_response: Any) -> Any:
    """Store the client's address for the audit trail, whose entries are written without the request."""
    if iscoroutinefunction(get_response):

        async def middleware(request: HttpRequest) -> Any:
            token = client.set(client_address(request))
            try:
                return await get_response(request)
            finally:
                client.reset(token)
    else:

        def middleware(request: HttpRequest) -> Any:  # type: ignore[misc]
            token = client.set(client_address(request))
            try:
                return get_response(request)
            finally:
                client.reset(token)

    return middleware
