"""The door of the API: every call passes it, before and after its operation.

It looks the token up and counts the call, repeats the answer to a POST that came before, keeps sessions out, and says
with an ETag that a list has not changed. Calls come to it past the middleware of pages (`straight_to_the_door`).
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import wraps
from typing import Any

from django.core.exceptions import BadRequest, RequestDataTooBig, SuspiciousOperation
from django.core.signals import got_request_exception
from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseNotModified, UnreadablePostError
from django.http.multipartparser import MultiPartParserError
from django.urls import Resolver404, resolve
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt

from accounts import crypto, tokens
from accounts.tokens import GUESSES_FOR, MOST_GUESSES, Use
from config.problems import AWAY, LOCKED, RETRY_AFTER, is_away, is_locked
from config.web import client_address
from fanout.api.conventions import PROBLEM, Caller, Problem, problem_response
from fanout.models import KeptAnswer
from fanout.models import trail as trails

log = logging.getLogger("crier.api")

View = Callable[..., HttpResponseBase]

#: characters of an Idempotency-Key
MOST_KEY = 255
#: A call that has no answer after this time has lost its process: the same key may try again.
LOST_AFTER = timedelta(minutes=2)
PREFIX = "/api/v1/"
#: Operations that take several transactions, so that a large run is not locked for long. Each has the same effect the
#: second time, so that their answer is stored after them; all others are one transaction with their answer.
IN_CHUNKS = re.compile(rf"{PREFIX}(runs/\d+/(cancel|retry-failed|settle|offload|resume)|recipients/\d+/erase)")
UPLOAD = f"{PREFIX}media"
#: what Django raises for requests that it cannot read
UNREADABLE = (SuspiciousOperation, BadRequest, MultiPartParserError, UnreadablePostError)
UNREADABLE_WORDS = (
    "The request cannot be read: it was cut off, has too many parameters, or is an upload without its boundary."
)
#: Operations whose answer has a webhook's secret: it is stored encrypted.
SECRET: tuple[str, ...] = ("/webhooks", "/rotate")
#: JSON needs nothing from a browser, and is shown in no frame
HEADERS = {"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'", "X-Frame-Options": "DENY"}


def straight_to_the_door(get_response: View) -> View:
    """Lead calls of operations past the middleware of pages: sessions, messages, second factors and lockouts of logins
    mean nothing to a token, and cost more than most operations."""

    def middleware(request: HttpRequest) -> HttpResponseBase:
        if not request.path_info.startswith(PREFIX):
            return get_response(request)
        try:
            operation = resolve(request.path_info)
        except Resolver404:
            return problem_response(Problem(404, "There is nothing here: /api/v1/docs lists all operations."))
        if not getattr(operation.func, "is_operation", False):
            return get_response(request)  # the documentation is a page
        request.get_host()  # raises an error for hosts that are not ours
        if "\0" in request.path or "%00" in request.META.get("QUERY_STRING", ""):
            return problem_response(Problem(400, "The request contains a NUL character."))
        request.resolver_match = operation
        came_from = trails.client.set(client_address(request))
        try:
            answer: HttpResponseBase = operation.func(request, *operation.args, **operation.kwargs)
        finally:
            trails.client.reset(came_from)
        for name, value in HEADERS.items():
            answer[name] = value
        return answer

    return middleware


def door(view: View) -> View:
    """Wrap the view of an operation."""

    @csrf_exempt
    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        now = timezone.now()
        use: Use | None = None
        mark = None
        try:
            use = _admitted(request, now)
            mark = trails.token.set(use.token.name)
            request.__dict__["caller"] = Caller(use.token.user, use.token)
            request.user = use.token.user  # a session that came along does not count
            answer = _once(request, use, now, lambda: view(request, *args, **kwargs))
            if answer.status_code == 405:
                allowed = answer["Allow"]
                raise Problem(405, f"This address takes {allowed} only.", headers={"Allow": allowed})
        except Problem as problem:
            answer = problem_response(problem)
        except RequestDataTooBig:
            answer = problem_response(Problem(413, "The request is too large: send it in several calls."))
        except UNREADABLE:
            answer = problem_response(Problem(400, UNREADABLE_WORDS))
        except Exception as error:
            answer = problem_response(_of_failure(error, request))
        finally:
            if mark is not None:
                trails.token.reset(mark)
        return _with_headers(request, answer, use)

    guarded.is_operation = True  # type: ignore[attr-defined]
    return guarded


def _of_failure(error: Exception, request: HttpRequest) -> Problem:
    """Return the problem of an error that is not the caller's. A bug is logged with its traceback."""
    if is_locked(error) or is_away(error):
        words = LOCKED if is_locked(error) else AWAY.strip()
        return Problem(503, words, headers={"Retry-After": RETRY_AFTER})
    got_request_exception.send(sender=door, request=request)
    log.exception("an operation of the API failed")
    return Problem(500, "An error of Crier's own, which was logged. Tell your administrator if it comes again.")


def _admitted(request: HttpRequest, now: datetime) -> Use:
    """Return the call of a token in force. Raises Problem."""
    kind, _, secret = request.headers.get("Authorization", "").partition(" ")
    if kind.lower() != "bearer" or not secret.strip():
        words = "Send a token: “Authorization: Bearer crier_…”. People make tokens on their page “API tokens”."
        raise Problem(401, words, headers={"WWW-Authenticate": "Bearer"})
    address = client_address(request)
    use = tokens.use(secret.strip(), address, now)
    if use is None:
        if tokens.guessed(address, now) > MOST_GUESSES:
            seconds = int(GUESSES_FOR.total_seconds())
            words = "Too many calls with unknown tokens came from your address. Try again later."
            raise Problem(429, words, headers={"Retry-After": str(seconds)})
        words = "This token is unknown, has expired or was revoked."
        raise Problem(401, words, headers={"WWW-Authenticate": 'Bearer error="invalid_token"'})
    person = use.token.user
    teams = {group.pk for group in person.groups.all()}
    if use.token.team_id and use.token.team_id not in teams and not person.is_superuser:
        raise Problem(403, "You are no longer a member of the team of this token: make another one.")
    if use.left < 0:
        words = f"This token has made {use.limit:,} calls in this minute, which is its limit."
        raise Problem(429, words, headers={"Retry-After": str(use.renewed_in)} | _limits(use))
    return use


def _limits(use: Use) -> dict[str, str]:
    return {
        "RateLimit-Limit": str(use.limit),
        "RateLimit-Remaining": str(max(0, use.left)),
        "RateLimit-Reset": str(use.renewed_in),
    }


def _with_headers(request: HttpRequest, answer: HttpResponseBase, use: Use | None) -> HttpResponseBase:
    for name, value in (_limits(use) if use else {}).items():
        answer[name] = value
    answer["Cache-Control"] = "no-store" if request.method != "GET" else "private, no-cache"
    if request.method != "GET" or answer.status_code != 200 or not isinstance(answer, HttpResponse):
        return answer
    tag = f'"{hashlib.sha256(answer.content).hexdigest()[:32]}"'
    known = [one.strip().removeprefix("W/") for one in request.headers.get("If-None-Match", "").split(",")]
    if tag in known or known == ["*"]:
        same = HttpResponseNotModified()
        for name in ("RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset", "Cache-Control"):
            same[name] = answer[name]
        same["ETag"] = tag
        return same
    answer["ETag"] = tag
    return answer


# --- the same POST twice ----------------------------------------------------------------------------------------


def _once(request: HttpRequest, use: Use, now: datetime, call: Callable[[], HttpResponseBase]) -> HttpResponseBase:
    """Call the operation, or return the answer that the same key had before. Uploads need no key: the same file is
    stored once, while its body may be large and differs each time by its boundary."""
    key = request.headers.get("Idempotency-Key", "")
    # By its path: other operations read their body as JSON whatever its type is said to be.
    if request.method != "POST" or not key or request.path_info == UPLOAD:
        return call()
    if len(key) > MOST_KEY or not key.isprintable():
        raise Problem(422, f"An Idempotency-Key has at most {MOST_KEY} printable characters.")
    digest = hashlib.sha256(f"{request.method} {request.get_full_path()}\n".encode() + request.body).hexdigest()
    row = KeptAnswer(token=use.token, key=key, digest=digest, began_at=now)
    secret = request.path_info.endswith(SECRET)
    if IN_CHUNKS.fullmatch(request.path_info):
        return _repeated(row, secret) or _store(row, _or_forgotten(row, call), secret)
    with transaction.atomic():
        # A second call with the key waits here for the end of the first.
        if (kept := _repeated(row, secret)) is not None:
            return kept
        answer = call()
        if answer.status_code < 400:
            return _store(row, answer, secret)
        transaction.set_rollback(True)  # nothing was done, so that the same key may try again
        return answer


CLAIM = """
INSERT INTO fanout_keptanswer AS k (token_id, key, digest, began_at, kind, body)
VALUES (%(token)s, %(key)s, %(digest)s, %(now)s, '', '')
ON CONFLICT (token_id, key) DO UPDATE
   SET digest = excluded.digest, began_at = excluded.began_at, status = NULL, kind = '', body = ''
 WHERE k.began_at < %(old)s OR (k.status IS NULL AND k.began_at < %(lost)s AND k.digest = excluded.digest)
RETURNING id
"""
KEEP = """
UPDATE fanout_keptanswer SET status = %(status)s, kind = %(kind)s, body = %(body)s
 WHERE token_id = %(token)s AND key = %(key)s
"""


def _repeated(row: KeptAnswer, secret: bool) -> HttpResponse | None:
    """Claim the key; None if it is new. Otherwise return the answer that was stored with it."""
    now = row.began_at
    facts: dict[str, Any] = {"token": row.token_id, "key": row.key, "digest": row.digest, "now": now}
    with connection.cursor() as cursor:
        cursor.execute(CLAIM, facts | {"old": now - KeptAnswer.KEPT_FOR, "lost": now - LOST_AFTER})
        if cursor.fetchone():
            return None
    kept = KeptAnswer.objects.get(token=row.token_id, key=row.key)
    if kept.digest != row.digest:
        raise Problem(422, "This Idempotency-Key was used for another request: take a new one.")
    if kept.status is None:
        raise Problem(409, "The call with this Idempotency-Key is still under way.", headers={"Retry-After": "1"})
    try:
        body = crypto.decrypt(kept.body)["body"] if secret else kept.body
    except crypto.CredentialError:
        words = "This was done already. Its answer was stored with a key that is gone: rotate the webhook’s secret."
        raise Problem(409, words) from None
    answer = HttpResponse(body, status=kept.status, content_type=kept.kind)
    answer["Idempotent-Replayed"] = "true"
    return answer


def _or_forgotten(row: KeptAnswer, call: Callable[[], HttpResponseBase]) -> HttpResponseBase:
    """Call the operation. One that fails gives its key back, so that the same key may try again at once."""
    try:
        return call()
    except Exception:
        KeptAnswer.objects.filter(token=row.token_id, key=row.key).delete()
        raise


def _store(row: KeptAnswer, answer: HttpResponseBase, secret: bool) -> HttpResponseBase:
    """Store the answer. One that did nothing is forgotten, so that the same key may try again."""
    if answer.status_code >= 400 or not isinstance(answer, HttpResponse):
        KeptAnswer.objects.filter(token=row.token_id, key=row.key).delete()
        return answer
    facts: dict[str, Any] = {"token": row.token_id, "key": row.key, "status": answer.status_code}
    kind = answer.get("Content-Type", PROBLEM)[:60]
    body = answer.content.decode()
    with connection.cursor() as cursor:
        cursor.execute(KEEP, facts | {"kind": kind, "body": crypto.encrypt({"body": body}) if secret else body})
    return answer
