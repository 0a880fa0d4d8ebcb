"""Where a request came from."""

from __future__ import annotations

from django.http import HttpRequest


def client_address(request: HttpRequest) -> str:
    return str(request.META.get("REMOTE_ADDR", ""))
