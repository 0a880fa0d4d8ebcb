"""The API as a whole: its routers, its OpenAPI document, problems instead of error pages, and its routes, each behind
the door."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import DatabaseError, DataError
from django.http import Http404, HttpRequest, HttpResponse
from ninja import NinjaAPI, Router
from ninja.errors import HttpError
from ninja.errors import ValidationError as Invalid

from accounts.access import NotYours
from config.problems import first_line
from fanout.api import accounts, media, messages, recipients, reminders, replies, runs, segments, webhooks
from fanout.api.conventions import PROBLEM, Problem, ProblemOut, of_validation, problem_response
from fanout.api.docs import Page
from fanout.api.door import door

DESCRIPTION = """
Crier delivers reminders to groups, people and mailboxes through paired sender accounts, inside delivery windows, at a
pace that keeps the accounts alive. `docs/api.md` walks through the whole life of a reminder.

Times are RFC 3339. Lists have a cursor: pass `next` of a page as `cursor` to get the following one. A POST with an
`Idempotency-Key` is carried out once in 24 hours. Problems are RFC 9457. Version 1 only gets additions: new operations,
new optional fields, new values of enumerations. Anything else would be version 2, beside this one for a year.
"""
#: names of routes that need no token
OPEN = {"openapi-json", "openapi-view"}


class CrierApi(NinjaAPI):
    def get_openapi_schema(self, **kwargs: Any) -> Any:
        """Add what all operations have in common: the answer where something is wrong."""
        schema = super().get_openapi_schema(**kwargs)
        schema["components"]["schemas"]["Problem"] = ProblemOut.model_json_schema(
            ref_template="#/components/schemas/{model}"
        )
        schema["components"]["schemas"] |= schema["components"]["schemas"]["Problem"].pop("$defs", {})
        content = {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}}
        for operations in schema["paths"].values():
            for operation in operations.values():
                operation["responses"]["default"] = {"description": "A problem", "content": content}
        return schema


api = CrierApi(
    title="Crier",
    version="1",
    description=DESCRIPTION,
    urls_namespace="api",
    openapi_url="/openapi.json",
    docs=Page(),
    docs_url="/docs",
    servers=[{"url": settings.PUBLIC_URL or settings.SITE_URL}],
)
ROUTERS: dict[str, Router] = {
    "/accounts": accounts.router,
    "/recipients": recipients.router,
    "/media": media.router,
    "/reminders": reminders.router,
    "/messages": messages.router,
    "/runs": runs.router,
    "/segments": segments.router,
    "/webhooks": webhooks.router,
    "": replies.router,
}
for prefix, router in ROUTERS.items():
    api.add_router(prefix, router, tags=[prefix.strip("/") or "replies"])


# --- problems ---------------------------------------------------------------------------------------------------


def _invalid(error: Invalid) -> Problem:
    """Name the fields without the names of our own arguments."""
    fields: dict[str, str] = {}
    for one in error.errors:
        where = [str(word) for word in one["loc"][1:]] or [str(one["loc"][0])]
        name = (".".join(where[1:]) or "body") if one["loc"][0] == "body" else ".".join(where)
        fields.setdefault(name, str(one["msg"]).removeprefix("Value error, "))
    return Problem(422, " ".join(f"{name}: {words}." for name, words in list(fields.items())[:5]), fields)


def _database(error: DatabaseError) -> Problem:
    """Refuse values that the database cannot hold; everything else is for the door, or a bug."""
    if not isinstance(error, DataError):
        raise error
    return Problem(422, f"Unusable value: {first_line(error)}.")


DESCRIBED: dict[type[Exception], Callable[[Any], Problem]] = {
    Problem: lambda problem: problem,
    Invalid: _invalid,
    ValidationError: of_validation,
    NotYours: lambda error: Problem(403, str(error)),
    Http404: lambda error: Problem(404, str(error) or "There is nothing here."),
    HttpError: lambda error: Problem(error.status_code, str(error)),
    DatabaseError: _database,
}


def _answer(request: HttpRequest, error: Any) -> HttpResponse:
    kind = next(kind for kind in type(error).__mro__ if kind in DESCRIBED)
    return problem_response(DESCRIBED[kind](error))


for described in DESCRIBED:
    api.add_exception_handler(described, _answer)


# --- routes -----------------------------------------------------------------------------------------------------


def _routes() -> list[Any]:
    """Return the routes, each behind the door. The documentation is open: it has no data."""
    routes: list[Any] = list(api.urls[0])
    for route in routes:
        if route.name not in OPEN:
            route.callback = door(route.callback)
    return routes


app_name = api.urls_namespace
urlpatterns = _routes()
