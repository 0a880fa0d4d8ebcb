"""What every request passes: no NUL in it, the second factor, and where it comes from."""

from __future__ import annotations

from typing import Any

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest, HttpResponseRedirect
from django.urls import reverse
from django.utils.decorators import sync_and_async_middleware
from django.utils.deprecation import MiddlewareMixin
from django.utils.http import urlencode

from accounts import second_factor
from config.proxies import client_address
from fanout.models.trail import client

#: pages that ask for no second factor: they do not look at the person, or lead to giving it
OPEN = {
    "metrics",
    "bounce_webhook",
    "unsubscribe",
    "admin:login",
    "admin:logout",
    "admin:second_factor_code",
}


class NulMiddleware(MiddlewareMixin):
    """PostgreSQL stores no NUL: a text with one is no name, no search and no number, and would be an error there."""

    def process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: Any) -> HttpResponse | None:
        # A webhook reads its body itself, once.
        posted = {} if getattr(view, "csrf_exempt", False) else dict(request.POST.lists())
        fields = [*request.GET.lists(), *posted.items()]
        if "\0" in request.path or any("\0" in text for name, texts in fields for text in (name, *texts)):
            return HttpResponseBadRequest("The request contains a NUL character.", content_type="text/plain")
        return None


class SecondFactorMiddleware(MiddlewareMixin):
    """A password alone opens nothing for a person who has a second factor, whatever the page."""

    def process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: Any) -> HttpResponse | None:
        match = request.resolver_match
        if match is None or match.view_name in OPEN or not request.user.is_authenticated:
            return None
        page = missing_step(request.user)
        if page is None or page == match.view_name:
            return None
        return HttpResponseRedirect(f"{reverse(page)}?{urlencode({'next': request.get_full_path()})}")


def missing_step(user: Any) -> str | None:
    """The page that this session has to pass first."""
    if user.is_verified():
        return None
    if second_factor.app_of(user) is not None:
        return "admin:second_factor_code"
    return "admin:second_factor" if second_factor.required_of(user) else None


@sync_and_async_middleware
def client_address_in_trail(get_response: Any) -> Any:
    """Tell the audit trail where the request comes from: what writes an entry is far from the request."""
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
