"""A session ends after SESSION_COOKIE_AGE without a page."""

from __future__ import annotations

import time

from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.http import HttpRequest
from django.utils.deprecation import MiddlewareMixin

#: Saving it with every page would cost three statements each.
RENEWED_EVERY = 300


class IdleLimit(MiddlewareMixin):
    def process_request(self, request: HttpRequest) -> None:
        if settings.SESSION_COOKIE_NAME not in request.COOKIES or SESSION_KEY not in request.session:
            return
        now = int(time.time())
        if now - request.session.get("seen", 0) > RENEWED_EVERY:
            request.session["seen"] = now
