"""Views for other programs: mail servers post bounces and replies, people unsubscribe, gateways fetch files."""

from __future__ import annotations

import hmac

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.core.signing import BadSignature
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from fanout.inbound import bounces, complaints, mails, replies, reply_mails
from reminders import media, suppressions
from reminders.media import answer_with

TOKEN_HEADER = "X-Crier-Token"


@csrf_exempt
@require_POST
def bounce_webhook(request: HttpRequest) -> HttpResponse:
    """Take one raw mail in the body. The same mail again changes nothing, so a server may repeat it."""
    if not authorised(request):
        return JsonResponse({"error": f"wrong or missing {TOKEN_HEADER}"}, status=403)
    try:
        now = timezone.now()
        is_complaint, matched = complaints.take_in_complaint(request.body, now)
        reported, applied = (0, matched) if is_complaint else bounces.take_in(request.body, now)
        is_reply, new = (False, False) if reported or is_complaint else reply_mails.take_in_reply(request.body, now)
    except (RequestDataTooBig, mails.TooLarge):
        return JsonResponse({"error": "the mail is too large for a bounce"}, status=413)
    told = {"bounces": reported, "complaints": int(is_complaint), "replies": int(is_reply)}
    return JsonResponse(told | {"applied": applied + new})


def authorised(request: HttpRequest) -> bool:
    expected = str(getattr(settings, "BOUNCE_TOKEN", "") or "")
    if not expected:
        # Not configured: hide that the page exists.
        raise Http404
    token = request.headers.get(TOKEN_HEADER, "")
    return hmac.compare_digest(token.encode(), expected.encode())


@csrf_exempt
@require_http_methods(["GET", "POST"])
def unsubscribe_page(request: HttpRequest, token: str) -> HttpResponse:
    """Unsubscribe by RFC 8058: a mail program posts here without a login. A person sees a button first, because link
    scanners follow every GET."""
    try:
        address = suppressions.unsubscribe_address(token)
    except BadSignature:
        raise Http404 from None
    if request.method == "POST":
        replies.unsubscribe_by_link(address, timezone.now())
    return render(request, "unsubscribe.html", {"address": address, "done": request.method == "POST"})


@require_safe
def media_file(request: HttpRequest, token: str) -> HttpResponseBase:
    """Return a file to the gateway that was given its link. It needs no login, and shows no other file."""
    try:
        file = media.linked_file(token, timezone.now())
        answer = answer_with(request, file, file.mime, download=True)
    except (media.NoSuchFile, FileNotFoundError):
        raise Http404 from None
    answer["Cache-Control"] = f"private, max-age={media.CACHE_SECONDS}"
    answer["X-Robots-Tag"] = "noindex"
    return answer
